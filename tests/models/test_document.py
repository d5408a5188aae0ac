"""The source document's figures fall out of the models' own structure."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from isorun.models.attention import Softmax
from isorun.models.cost import cache_bytes, parameters
from isorun.models.presets import PRESETS
from isorun.models.transformer import build


def _counts(name: str, **changes: object) -> dict[str, int]:
    """Parameters of the first layer by part, biases left out."""
    config = replace(PRESETS[name], **changes)
    with torch.device("meta"):
        model = build(config)
    found: dict[str, int] = {"mixer": 0, "ffn": 0}
    for path, parameter in model.named_parameters():
        for part in found:
            if f"layers.0.{part}." in path and path.endswith("weight"):
                found[part] += parameter.numel()
    return found


@pytest.mark.parametrize("heads", [1, 8, 16])
def test_attention_of_512_has_four_square_matrices_for_any_number_of_heads(heads: int) -> None:
    counts = _counts("gpt2", dim=512, heads=heads, mixer=Softmax())
    assert counts["mixer"] == 4 * 512**2 == 1_048_576


def test_the_feed_forward_layer_of_512_has_about_2_1_million() -> None:
    encoder = _counts("transformer-base", topology="encoder")
    assert encoder["ffn"] == 2 * 512 * 2048 == 2_097_152


def test_two_thirds_of_a_gpt_block_are_feed_forward_and_the_whole_has_124_million() -> None:
    counts = _counts("gpt2")
    assert counts["ffn"] / (counts["ffn"] + counts["mixer"]) == pytest.approx(2 / 3)
    assert round(parameters(PRESETS["gpt2"]) / 1e6) == 124


def test_the_cache_of_llama_7b_takes_2_gib_at_4096_tokens_in_half_precision() -> None:
    whole = cache_bytes(PRESETS["llama-7b"], batch=1, tokens=4096, bytes_per_number=2)
    assert whole == 2 * 2**30
    grouped = cache_bytes(PRESETS["llama3-8b"], batch=1, tokens=4096, bytes_per_number=2)
    assert grouped == whole // 4
