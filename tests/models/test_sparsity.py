"""What sparse models read, and that their dense twins are full attention at the same sizes."""

from __future__ import annotations

import pytest
import torch

from isorun.models.cost import dense_flops, flops
from isorun.models.presets import PRESETS
from isorun.models.sparsity import dense, reads
from isorun.models.transformer import build

SPARSE = {
    "mistral-7b": "a window of 16 tokens",
    "longformer-base": "a window of 16 tokens and 1 global one",
    "bigbird-base": "8 blocks of 2 tokens",
    "gpt3-small": "a window of 8 tokens in 1 of 2 layers",
    "gemma2-2b": "a window of 64 tokens in 1 of 2 layers",
}


def sizes(n: int) -> dict[str, int]:
    return {"batch": 1, "sequence": n, "source": n}


@pytest.mark.parametrize("name", SPARSE)
def test_what_is_read_is_said_with_its_size(name: str) -> None:
    assert reads(PRESETS[name].at("tiny")) == SPARSE[name]


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "bert-base", "lstm", "t5-small"])
def test_a_model_that_reads_all_keys_has_no_twin(name: str) -> None:
    config = PRESETS[name].at("tiny")
    assert reads(config) is None
    assert dense(config).mixers == config.mixers
    assert dense_flops(config, "forward", sizes(64)) is None


@pytest.mark.parametrize("name", SPARSE)
def test_the_twin_scores_every_pair(name: str) -> None:
    config = PRESETS[name].at("tiny")
    first, second, third = (dense_flops(config, "forward", sizes(n)) or 0 for n in (96, 192, 288))
    pairs = 4 * config.heads * config.head_dim * config.layers  # Q·K and weights·V, a multiply and an add each
    assert third - 2 * second + first == 2 * pairs * 96**2
    assert flops(config, "forward", sizes(288)) < third


@pytest.mark.parametrize("name", SPARSE)
def test_the_twin_can_be_built(name: str) -> None:
    with torch.device("meta"):
        assert build(dense(PRESETS[name].at("tiny"))) is not None
