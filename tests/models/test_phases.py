"""What every preset must do in every phase: caches change nothing, nor do the future, the batch or padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isorun.models.bigbird import BigBird
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.phases import example_sizes, phase_module, phases, signature
from isorun.models.presets import PRESETS
from isorun.models.signature import Array, positions
from isorun.models.transformer import build

from .plain import architectures, distance, left_padded

EQUAL = 1e-12
CONFIGS = architectures()
CACHED = [name for name, config in CONFIGS.items() if config.topology != "encoder"]
ALL_PHASES = [(name, phase) for name, config in CONFIGS.items() for phase in phases(config)]
N, SOURCE = 41, 11  # mistral's window is 16 at this size: two full blocks and a rest


@cache
def model(preset: str) -> nn.Module:
    return build(CONFIGS[preset]).double()


def run(preset: str, phase: str, feeds: Mapping[str, Array | Tensor]) -> dict[str, Tensor]:
    """Outputs of a phase by name, in float64."""
    module = phase_module(CONFIGS[preset], phase, model=model(preset))
    tensors = [torch.as_tensor(feeds[spec.name]) for spec in module.signature.inputs]
    outputs = module(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors))
    return dict(zip((spec.name for spec in module.signature.outputs), outputs, strict=True))


def inputs(preset: str, lengths: list[int], sources: list[int]) -> dict[str, Array]:
    """Feeds of the forward phase: targets padded on the left, what an encoder reads on the right."""
    config, rng = CONFIGS[preset], np.random.default_rng(2)
    left, right = left_padded(lengths), left_padded(sources)[:, ::-1].copy()

    def ids(mask: Array, limit: int) -> Array:
        return rng.integers(0, limit, mask.shape)

    if config.topology == "encoder":
        right = left_padded(lengths)[:, ::-1].copy()
        types = ids(right, config.embedding.token_types or 1)
        return {"input_ids": ids(right, 256), "attention_mask": right, "token_type_ids": types}
    if config.topology == "decoder":
        where = positions(left, left.shape[1])
        return {"input_ids": ids(left, 256), "attention_mask": left, "position_ids": where}
    source = {"input_ids": ids(right, 256), "attention_mask": right}
    return {**source, "decoder_input_ids": ids(left, 256), "decoder_attention_mask": left}


def target(preset: str) -> tuple[str, str]:
    """The names of the ids and mask that the outputs of the forward phase belong to."""
    prefix = "decoder_" if CONFIGS[preset].topology == "encoder-decoder" else ""
    return f"{prefix}input_ids", f"{prefix}attention_mask"


def forward(preset: str, feeds: Mapping[str, Array]) -> Tensor:
    """Logits or states, token by token; what is said of the whole sequence is left out."""
    return next(iter(run(preset, "forward", feeds).values()))


def decode(preset: str, feeds: Mapping[str, Array], counts: Sequence[int]) -> Tensor:
    """The logits that cached steps of these sizes give, from an empty past on."""
    config = CONFIGS[preset]
    ids, mask = (feeds[name] for name in target(preset))
    sizes = {"batch": len(ids), "past": 0, "sequence": 0, "source": SOURCE}
    kept: dict[str, Tensor | Array] = {
        spec.name: np.zeros(spec.resolve(sizes))
        for spec in signature(config, "step").inputs
        if spec.name.startswith("past_key_values.")
    }
    if config.topology == "encoder-decoder":
        kept |= as_past(run(preset, "encode", feeds))
    logits, begin = [], 0
    for end in np.cumsum(counts):
        new = {"input_ids": ids[:, begin:end], "position_ids": positions(mask[:, :end], end - begin)}
        masks = {"encoder_attention_mask": feeds["attention_mask"]}
        masks |= {"attention_mask": mask[:, :end], "decoder_attention_mask": mask[:, :end]}
        outputs = run(preset, "step", {**new, **masks, **kept})
        logits.append(outputs["logits"])
        kept |= as_past(outputs)
        begin = end
    return torch.cat(logits, 1)


def as_past(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`present.0.key` becomes `past_key_values.0.key`."""
    named = ((name.partition("present."), tensor) for name, tensor in outputs.items())
    return {f"past_key_values.{rest}": tensor for (_, found, rest), tensor in named if found}


STEPS = {
    "one by one": [1] * N,
    "a prefill and one by one": [23, *[1] * (N - 23)],
    "two at once": [7, *[2] * ((N - 7) // 2)],
    "window, window + 1, the rest": [16, 17, N - 33],
    "all at once": [N],
}


@pytest.mark.parametrize("preset", CACHED)
@pytest.mark.parametrize("steps", STEPS)
def test_cached_steps_are_the_full_pass(preset: str, steps: str) -> None:
    feeds = inputs(preset, [N, N - 5, N - 30], [SOURCE, 6, 1])
    real = feeds[target(preset)[1]] > 0
    assert distance(decode(preset, feeds, STEPS[steps])[real], forward(preset, feeds)[real]) < EQUAL


@pytest.mark.parametrize("preset", CACHED)
@pytest.mark.parametrize("last", [0, 14, 15, 16, 39])
def test_the_future_does_not_reach_the_past(preset: str, last: int) -> None:
    """Token i is a function of tokens 0 … i alone: not a bit of its output changes with the others."""
    feeds = inputs(preset, [N] * 3, [SOURCE] * 3)
    ids, _ = target(preset)
    other = feeds[ids].copy()
    other[:, last + 1 :] = (other[:, last + 1 :] + 1) % 256
    before, after = forward(preset, feeds), forward(preset, {**feeds, ids: other})
    assert torch.equal(before[:, : last + 1], after[:, : last + 1])
    assert (before[:, last + 1 :] != after[:, last + 1 :]).any(-1).all()


def test_an_encoder_sees_both_ways() -> None:
    feeds = inputs("bert-base", [N] * 3, [SOURCE] * 3)
    other = feeds["input_ids"].copy()
    other[:, -1] = (other[:, -1] + 1) % 256
    assert (forward("bert-base", feeds) != forward("bert-base", {**feeds, "input_ids": other})).any(-1).all()


@pytest.mark.parametrize("preset", CONFIGS)
def test_a_row_does_not_depend_on_its_batch(preset: str) -> None:
    feeds = inputs(preset, [N, N - 5, 1], [SOURCE, 6, 1])
    together = forward(preset, feeds)
    for row in range(3):
        alone = forward(preset, {name: array[row : row + 1] for name, array in feeds.items()})
        real = feeds[target(preset)[1]][row] > 0
        assert distance(together[row, real], alone[0, real]) < EQUAL


@pytest.mark.parametrize("preset", CONFIGS)
def test_padding_changes_nothing_at_real_tokens(preset: str) -> None:
    """Each row alone, with its padding cut away; and whatever stands where the padding is.

    BigBird's rows are not looked at alone: its blocks are those of the padded length, in the paper and in transformers.
    """
    feeds = inputs(preset, [N, N - 5, 1], [SOURCE, 6, 1])
    own = target(preset)[1]
    together = forward(preset, feeds)
    for row in range(3):
        alone = {}
        for name, array in feeds.items():
            mask = feeds[own] if array.shape[1] == N else feeds["attention_mask"]
            alone[name] = array[row : row + 1, mask[row] > 0]
        apart = distance(together[row, feeds[own][row] > 0], forward(preset, alone)[0])
        assert apart < EQUAL or isinstance(CONFIGS[preset].mixers[0], BigBird)
    noise = dict(feeds)
    limits = {spec.name: spec.limit for spec in signature(CONFIGS[preset], "forward").inputs}
    for name in limits:
        if name.endswith("ids") and name != "position_ids":
            mask = feeds[own] if feeds[name].shape[1] == N else feeds["attention_mask"]
            noise[name] = np.where(mask > 0, feeds[name], (feeds[name] + 1) % limits[name])
    real = feeds[own] > 0
    assert torch.equal(forward(preset, noise)[real], together[real])


SIZES = [
    {"batch": 1, "sequence": 1, "past": 0, "source": 1},
    {"batch": 3, "sequence": 7, "past": 5, "source": 11},
    {"batch": 2, "sequence": 40, "past": 16, "source": 2},
]


@pytest.mark.parametrize(("preset", "phase"), ALL_PHASES)
@pytest.mark.parametrize("sizes", [*SIZES, "example"], ids=str)
def test_outputs_are_as_the_signature_says(preset: str, phase: str, sizes: dict[str, int] | str) -> None:
    config = CONFIGS[preset]
    module = phase_module(config, phase)
    at = sizes if isinstance(sizes, dict) else module.example
    feeds = module.signature.feeds(at, padding="left")
    for spec in module.signature.inputs:
        assert (feeds[spec.name].dtype, feeds[spec.name].shape) == (np.dtype(spec.dtype), spec.resolve(at))
    outputs = module(*map(torch.from_numpy, feeds.values()))
    for spec, tensor in zip(module.signature.outputs, outputs, strict=True):
        assert (tensor.numpy().dtype, tuple(tensor.shape)) == (np.dtype(spec.dtype), spec.resolve(at)), spec.name
        assert tensor.isfinite().all()


@pytest.mark.parametrize(("preset", "phase"), ALL_PHASES)
def test_examples_have_no_special_size(preset: str, phase: str) -> None:
    for config in (CONFIGS[preset], PRESETS[preset]):
        sizes = example_sizes(config)
        assert min(sizes.values()) > 1
        assert len(set(sizes.values())) == len(sizes)
        assert set(signature(config, phase).axes) <= set(sizes)
        window = getattr(config.mixer, "window", 0)
        assert sizes["sequence"] > window  # more than one block


@pytest.mark.parametrize(("preset", "phase"), [("bert-base", "step"), ("gpt2", "encode"), ("lstm", "prefill")])
def test_a_phase_that_is_not_there(preset: str, phase: str) -> None:
    config: ModelConfig = CONFIGS[preset]
    with pytest.raises(ConfigError, match=rf"{preset}.*{config.topology}.* no phase '{phase}'.*forward"):
        phase_module(config, phase)
    with pytest.raises(ConfigError):
        signature(config, phase)
