"""Feeds: deterministic, below their limits, with masks and positions as declared."""

from __future__ import annotations

import numpy as np
import pytest

from isorun.models.phases import phases, signature
from isorun.models.presets import PRESETS
from isorun.models.signature import Signature, TensorSpec, positions

ALL_PHASES = [(name, phase) for name, config in PRESETS.items() for phase in phases(config)]
SIZES = {"batch": 4, "sequence": 6, "past": 3, "source": 5}


@pytest.mark.parametrize(("preset", "phase"), ALL_PHASES)
def test_feeds_depend_on_the_seed_alone(preset: str, phase: str) -> None:
    declared = signature(PRESETS[preset].at("tiny"), phase)
    once, again, other = (declared.feeds(SIZES, seed=seed, padding="left") for seed in (5, 5, 6))
    assert list(once) == [spec.name for spec in declared.inputs]
    single = {spec.name for spec in declared.inputs if spec.limit == 1}  # one token type: nothing to draw
    for name, array in once.items():
        assert np.array_equal(array, again[name])
        drawn = not name.endswith(("mask", "position_ids")) and name not in single
        assert np.array_equal(array, other[name]) != drawn


def test_ids_reach_their_limit_and_stay_below_it() -> None:
    declared = Signature((TensorSpec("input_ids", "int64", ("batch", "sequence"), limit=7),), ())
    ids = declared.feeds({"batch": 10, "sequence": 100})["input_ids"]
    assert set(np.unique(ids)) == set(range(7))


def test_cache_tensors_are_standard_normal() -> None:
    declared = Signature((TensorSpec("past_key_values.0.key", "float32", ("batch", 100)),), ())
    values = declared.feeds({"batch": 100})["past_key_values.0.key"]
    assert values.dtype == np.float32
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 1) < 0.05


MASKED = Signature(
    (
        TensorSpec("attention_mask", "int64", ("batch", "past + sequence"), limit=2),
        TensorSpec("position_ids", "int64", ("batch", "sequence"), limit=9),
    ),
    (),
)


def test_padding_and_positions() -> None:
    sizes = {"batch": 4, "sequence": 2, "past": 1}
    expected = {
        "none": ([[1, 1, 1]] * 4, [[1, 2]] * 4),
        "left": ([[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 1]], [[1, 2], [0, 1], [0, 0], [0, 0]]),
        "right": ([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0]], [[1, 2], [1, 1], [0, 0], [0, 0]]),
    }
    for padding, (mask, where) in expected.items():
        feeds = MASKED.feeds(sizes, padding=padding)  # type: ignore[arg-type]
        assert feeds["attention_mask"].tolist() == mask
        assert feeds["position_ids"].tolist() == where


@pytest.mark.parametrize("padding", ["left", "right"])
def test_the_only_token_is_never_padding(padding: str) -> None:
    feeds = MASKED.feeds({"batch": 4, "sequence": 1, "past": 0}, padding=padding)  # type: ignore[arg-type]
    assert feeds["attention_mask"].tolist() == [[1]] * 4


def test_positions_of_the_last_tokens() -> None:
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], np.int32)
    assert positions(mask, 5).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert positions(mask, 2).tolist() == [[1, 2], [3, 4]]
    assert positions(mask, 2).dtype == np.int64


def test_axes_and_sums() -> None:
    assert MASKED.axes == {"batch", "past", "sequence"}
    assert MASKED.inputs[0].resolve({"batch": 2, "past": 3, "sequence": 4}) == (2, 7)
    with pytest.raises(KeyError, match="past"):
        MASKED.feeds({"batch": 2, "sequence": 4})
    one_more = TensorSpec("attention_mask", "int64", ("batch", "past_length + 1"))
    assert one_more.resolve({"batch": 2, "past_length": 3}) == (2, 4)
    assert Signature((one_more,), ()).axes == {"batch", "past_length"}


def of_shapes(*shapes: tuple[int | str, ...]) -> Signature:
    return Signature(tuple(TensorSpec(f"x{i}", "int64", shape) for i, shape in enumerate(shapes)), ())


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([("batch", "past + sequence"), ("batch", "sequence")], {"batch": 3, "past": 9, "sequence": 5}),
        ([("B", "t"), ("B", "t", 8)], {"B": 3, "t": 5}),
        ([("ids_0", "ids_1"), ("mask_0", "mask_1")], {"ids_0": 3, "ids_1": 5, "mask_0": 3, "mask_1": 5}),
        ([("n", 8)], {"n": 5}),  # nothing else is free
        ([("n", "n")], {"n": 5}),
        ([("batch_size", "total_length"), ("batch_size", "past_length")], [3, 14, 9]),
        ([("batch", "sequence"), ("batch", "source")], {"batch": 3, "sequence": 5, "source": 5}),
    ],
)
def test_sizes_of_axes_by_their_names_and_places(
    shapes: list[tuple[int | str, ...]], expected: dict[str, int] | list[int]
) -> None:
    found = of_shapes(*shapes).sizes(batch=3, length=5, past=9)
    if isinstance(expected, list):
        expected = dict(zip(("batch_size", "total_length", "past_length"), expected, strict=True))
    assert found == expected


def test_lengths_of_an_encoder_and_a_decoder_can_differ() -> None:
    both = of_shapes(("batch", "sequence"), ("batch", "source"), ("batch", "past + sequence"))
    assert both.sizes(batch=3, length=5, past=9, apart=2) == {"batch": 3, "past": 9, "sequence": 5, "source": 7}


def test_positions_without_a_mask_follow_the_past() -> None:
    specs = (TensorSpec("position_ids", "int32", ("batch", "sequence")), TensorSpec("x", "float32", ("past", 2)))
    found = Signature(specs, ()).feeds({"batch": 2, "sequence": 3, "past": 4})["position_ids"]
    assert found.tolist() == [[4, 5, 6]] * 2
    assert found.dtype == np.int32


def test_a_mask_of_other_rank_is_an_input_like_any_other() -> None:
    bias = TensorSpec("attention_mask", "float32", ("batch", 1, "sequence", "sequence"))
    found = Signature((bias,), ()).feeds({"batch": 2, "sequence": 3})["attention_mask"]
    assert found.shape == (2, 1, 3, 3)
    assert found.dtype == np.float32
