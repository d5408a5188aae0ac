"""What experiments measure with, against sizes known beforehand."""

from __future__ import annotations

import pytest
import torch

from isorun.bench.claims.tools import exponent, layer, operations, peak_bytes, speed, weights
from isorun.models.attention import Softmax

FLOAT = 4


def test_peak_memory_counts_what_lives_at_one_time() -> None:
    x = torch.zeros(1000)

    def chain() -> None:
        y = x + 1
        z = y + 1  # y and z
        del y
        z + 1  # z and the result

    assert peak_bytes(chain) == 2 * 1000 * FLOAT


def test_peak_memory_leaves_out_inputs_views_and_results_in_place() -> None:
    x = torch.zeros(1000)
    assert peak_bytes(lambda: x.view(10, 100).add_(1)) == 0
    assert peak_bytes(lambda: x[:10].clone()) == 10 * FLOAT


def test_peak_memory_of_attention_holds_its_scores() -> None:
    n = 512
    assert peak_bytes(layer(Softmax(), heads=1)(n)) >= n * n * FLOAT


def test_operations_of_attention_are_those_of_its_products() -> None:
    n, d = 32, 64
    assert operations(layer(Softmax(), dim=d)(n)) == 4 * 2 * n * d * d + 2 * 2 * n * n * d


def test_weights_leave_biases_out() -> None:
    assert weights(torch.nn.Linear(3, 5)) == 15


def test_exponent_of_a_power() -> None:
    assert exponent({n: 7.0 * n**1.5 for n in (10, 100, 1000)}) == pytest.approx(1.5)


def test_speed_says_word_and_ratio() -> None:
    assert speed([2.0] * 7, [1.0] * 7) == ("faster", "2.00× (2.00–2.00, blocks of one process)")
