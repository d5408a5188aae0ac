"""Inputs of the user: read without unpickling, and refused by name with what is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isorun.bench.validate import inputs
from isorun.bench.validate.candidate import Candidate
from isorun.bench.validate.finding import Refusal

from .graphs import candidate, model, node, says, statuses

ROWS = 10


@pytest.fixture
def two(tmp_path: Path) -> Candidate:
    """y = table[ids] + x, with ids (batch, sequence) and x (batch, sequence, 4)."""
    proto = model(
        [node("Unsqueeze", "ids zero", "u"), node("Squeeze", "u zero", "i"), node("Gather", "table i", "e"),
         node("Add", "e x", "y")],
        {"ids": ("int64", ["batch", "sequence"]), "x": ("float32", ["batch", "sequence", 4])},
        {"y": ("float32", ["batch", "sequence", 4])},
        {"table": np.ones((ROWS, 4), np.float32), "zero": np.array([0])},
    )  # fmt: skip
    return candidate(proto, tmp_path)


def feeds(**changed: Any) -> dict[str, Any]:
    return {"ids": np.array([[0, 1, 9]]), "x": np.zeros((1, 3, 4), np.float32), **changed}


def refusal(opened: Candidate, given: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        inputs.check(opened, given)
    assert caught.value.finding.status == "error"
    return f"{caught.value.finding.says} {caught.value.finding.remedy}"


def test_right_inputs_pass_without_a_word(two: Candidate) -> None:
    assert inputs.check(two, feeds()) == []
    assert inputs.check(two, feeds(ids=np.zeros((0, 3), np.int64), x=np.zeros((0, 3, 4), np.float32))) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ids": np.array([[0, 1, 9]], np.int32)}, ["ids", "int32", "int64", "astype"]),
        ({"x": np.zeros((1, 3, 4))}, ["x", "float64", "float32"]),
        ({"ids": np.array([0, 1, 9])}, ["ids", "[3]", "2 axes"]),
        ({"x": np.zeros((1, 3, 5), np.float32)}, ["x", "5 on axis 2", "fixes it at 4"]),
        ({"x": np.zeros((1, 2, 4), np.float32)}, ["'sequence'", "3 in ids", "2 in x"]),
        ({"ids": np.array([[0, 1, ROWS]])}, ["ids", "id 10", "10 rows", "0 to 9"]),
        ({"ids": np.array([[0, 1, -ROWS - 1]])}, ["ids", "id -11", "10 rows"]),
    ],
)
def test_wrong_inputs_are_refused_with_name_rule_and_value(
    two: Candidate, changed: dict[str, Any], words: list[str]
) -> None:
    text = refusal(two, feeds(**changed))
    assert [word for word in words if word not in text] == []


def test_missing_and_unknown_names(two: Candidate) -> None:
    renamed = feeds()
    renamed["tokens"] = renamed.pop("ids")
    text = refusal(two, renamed)
    assert "ids, x" in text
    assert "tokens" in text
    assert "extra" in refusal(two, feeds(extra=np.zeros(1)))


def test_a_negative_id_is_noted(two: Candidate) -> None:
    findings = inputs.check(two, feeds(ids=np.array([[0, 1, -1]])))
    assert statuses(findings) == ["note"]
    assert "row 9" in says(findings, "note")


class Unpickled(Exception):
    """Raised by a pickle that is opened."""


class Bomb:
    def __reduce__(self) -> Any:
        return explode, ()


def explode() -> None:
    raise Unpickled


def test_pickled_objects_are_refused_and_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.array([Bomb()], object))
    with pytest.raises(Unpickled), np.load(path, allow_pickle=True) as archive:
        archive["x"]  # it is armed
    with pytest.raises(Refusal, match=r"not an \.npz"):
        inputs.read(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_files_that_are_no_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "inputs.npz"
    path.write_bytes(content)
    with pytest.raises(Refusal, match=r"inputs\.npz: not an \.npz"):
        inputs.read(path)


def test_a_missing_npz(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no such file"):
        inputs.read(tmp_path / "absent.npz")


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array(["2020"], "M8[Y]"), np.zeros(1, "V4")])
def test_arrays_that_are_no_numbers(tmp_path: Path, array: Any) -> None:
    np.savez(tmp_path / "inputs.npz", x=array)
    with pytest.raises(Refusal, match="x holds"):
        inputs.read(tmp_path / "inputs.npz")


def test_damaged_archives_are_refusals(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, ids=np.arange(300).reshape(30, 10), x=np.zeros((3, 4), np.float32))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 6)):
            broken[place] = rng.integers(256)
        path.write_bytes(broken[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else broken)
        try:
            inputs.read(path)
        except Refusal:
            refused += 1
    assert refused > 200
