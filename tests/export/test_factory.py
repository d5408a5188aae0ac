"""`module:factory`: what users return, what they get wrong, and the exports that go wrong elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from isorun.bench.truth import distance
from isorun.export.artifact import ExportedModel
from isorun.export.exporter import ExportError, export
from isorun.export.outputs import outputs64
from isorun.export.source import Source, SourceError
from isorun.runtimes.reference import Float64Graph

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def in_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a `models` package of the user's own, which has the name of one of this project's folders."""
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text((HERE / "user_models.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # undone afterwards, with what the import adds
    monkeypatch.delitem(sys.modules, "models", raising=False)


def _export(name: str, **options: bool) -> ExportedModel:
    return export(Source("module", f"models:{name}"), "forward", Path("out") / name, **options)  # type: ignore[arg-type]


REFUSED = {
    "needs": "models:needs: the factory is called without arguments: missing a required argument: 'size'",
    "raises": r"models:raises: the factory raised ValueError: no data here \(.*models/__init__\.py:\d+\)",
    "nothing": "models:nothing: the factory returned dict, and should return an nn.Module",
    "unsigned": "models:unsigned: the factory returned Plain without a signature",
    "missing": "models:missing: Plain.forward on the inputs that were given: missing a required argument: 'ids'",
    "unknown": "unexpected keyword argument 'tokens'",
    "nested": "the input 'ids' is list, not a tensor",
    "absent": "models has no function 'absent'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_factory_is_named_with_its_argument(name: str) -> None:
    with pytest.raises(SourceError, match=REFUSED[name]):
        Source("module", f"models:{name}").module("forward")


def test_a_module_that_cannot_be_imported() -> None:
    with pytest.raises(SourceError, match="cannot import 'nowhere': ModuleNotFoundError"):
        Source("module", "nowhere:make").module("forward")


def test_the_axes_of_examples_are_found_by_running() -> None:
    (spec,) = Source("module", "models:plain").module("forward").signature.inputs
    assert (spec.name, spec.dtype, spec.shape, spec.limit) == ("ids", "int64", ("batch", "sequence"), 5)
    x, mask = Source("module", "models:case_30").module("forward").signature.inputs
    assert (x.shape, mask.shape) == (("sequence", 1, 16), ("sequence", "sequence"))


def test_a_signature_is_taken_as_it_is() -> None:
    module = Source("module", "models:declared").module("forward")
    assert module.signature.outputs[0].name == "states"
    assert module(torch.zeros((2, 3), dtype=torch.int64))[0].shape == (2, 3, 8)


def test_a_branch_on_a_size_is_refused_with_its_line_unless_allowed() -> None:
    line = r"the trace took for true: sequence <= 10 \(.*models/__init__\.py:\d+ in forward: if ids\.shape\[1\] > 10:\)"
    with pytest.raises(ExportError, match=rf"models:baked: at .*sequence 11 the graph is another function.*{line}"):
        _export("baked")
    assert not Path("out/baked").exists()
    (note,) = _export("baked", allow_specialised=True).notes
    assert note.startswith("specialised: at ")


def test_a_branch_whose_ways_are_one_function_is_no_fault() -> None:
    assert _export("asked").notes == ()


def test_a_branch_on_a_value_is_refused_with_its_line() -> None:
    with pytest.raises(ExportError, match=r"depends on values.*models/__init__\.py:\d+ in forward: if x\.sum\(\) > 0:"):
        _export("by_value")


@pytest.mark.parametrize("name", ["case_27", "case_28", "case_30", "case_31", "case_33", "case_51", "lstm"])
def test_what_goes_wrong_in_other_exports_holds_at_every_size(name: str) -> None:
    """Tables cut to the trace, lengths in a Reshape, the fast path of an encoder, live dropout, a fixed output."""
    artifact = _export(name)
    graph, module, declared = Float64Graph(artifact.model_path), artifact.module(), artifact.signature()
    for sizes in ({"batch": 1, "sequence": 1}, {"batch": 2, "sequence": 4}, {"batch": 3, "sequence": 41}):
        feeds = declared.feeds(sizes, seed=1)
        found, again = graph.run(feeds), graph.run(feeds)
        for output, truth in outputs64(module, feeds).items():
            assert distance(found[output], truth) <= 1e-9, (sizes, output)
            np.testing.assert_array_equal(found[output], again[output])


def test_a_size_turned_into_a_number_is_refused_with_its_line() -> None:
    with pytest.raises(
        ExportError, match=r"fixes axis 1 \(sequence\) of ids at 7 \(.*__init__\.py:\d+ in forward: .*number\("
    ):
        _export("case_28_in_python")


def test_a_shared_matrix_is_stored_once() -> None:
    artifact = _export("case_33")
    unique = 4 * (500 * 64 + 64 * 64 + 64)
    assert unique <= artifact.sizes["file_bytes"] < unique + 2**14


def test_the_project_has_no_package_of_these_names_on_the_path() -> None:
    spec = importlib.util.find_spec("models")
    assert spec is not None
    assert spec.origin == str(Path("models/__init__.py").resolve())
