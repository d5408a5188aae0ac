"""torch.compile: the same numbers, compilations counted, and nothing eager passes for compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isorun.export.artifact import bare
from isorun.models.signature import Signature, TensorSpec
from isorun.runtimes import all_runtimes, compiled
from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.compiled import CompiledSession
from isorun.runtimes.pytorch import attention

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


class Module(nn.Module):
    """Any function of one tensor, behind a signature."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        spec = TensorSpec("x", "float32", ("rows", 3))
        self.signature = Signature((spec,), (TensorSpec("y", "float32", ("rows", 3)),))
        self.function = function

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        return (self.function(tensors[0]),)


def _session(function: Callable[[Tensor], Tensor], backend: str = "aot_eager") -> CompiledSession:
    return CompiledSession(Module(function), "cpu", "fp32", 1, backend)  # type: ignore[arg-type]


def _broken(x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return x * 2


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # its own
def test_inductor_gives_the_same_numbers_and_compiles_once_a_shape() -> None:
    session = _session(lambda x: torch.sin(x) * 2 + 1, "inductor")
    for rows in (2, 5, 2):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)}
        staged = session.stage(feeds)
        for _ in range(3):
            found = session.fetch(session.run(staged))["y"]
        np.testing.assert_allclose(found, np.sin(feeds["x"]) * 2 + 1, rtol=1e-6)
    assert session.placement().facts["compilations"] == "3"
    assert session.placement().facts["backend"] == "inductor"


def test_a_graph_that_breaks_is_a_failure_and_no_eager_time() -> None:
    session = _session(_broken)
    with pytest.raises(RuntimeFailure, match="would fall back to eager"):
        session.run(session.stage(X))


def test_a_second_compilation_for_the_same_shapes_is_a_failure() -> None:
    state = {"scale": 2}
    session = _session(lambda x: x * state["scale"])
    staged = session.stage(X)
    session.run(staged)
    state["scale"] = 3
    with pytest.raises(RuntimeFailure, match="should be compiled once, and was 2 times"):
        session.run(staged)


def test_what_was_never_compiled_is_a_failure() -> None:
    session = _session(lambda x: x * 2)
    staged = session.stage(X)
    session._call = session._module  # as if the compiler had been switched off
    with pytest.raises(RuntimeFailure, match="should be compiled once, and was 0 times"):
        session.run(staged)


def test_more_shapes_than_the_limit_of_recompilations() -> None:
    session = _session(lambda x: x + 1)
    for rows in range(1, 12):
        session.run(session.stage({"x": np.zeros((rows, 3), np.float32)}))
    assert session.placement().facts["compilations"] == "11"


def test_without_a_compiler_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = all_runtimes()["torch-compile"]
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert "needs a C++ compiler, and there is no g++: apt-get install g++" in str(runtime.missing())
    monkeypatch.setenv("CXX", "mine++")
    assert "there is no mine++" in str(runtime.missing())
    monkeypatch.setattr(compiled.shutil, "which", lambda name: "/opt/mine++" if name == "mine++" else None)
    assert runtime.missing() is None


def test_on_cuda_it_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = all_runtimes()["torch-compile-cuda"]
    assert "sees no CUDA device" in str(runtime.missing())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    assert "pip install triton" in str(runtime.missing())


def test_a_source_that_cannot_be_built_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"came as a file, and the model behind it is not known"):
        all_runtimes()["torch-compile"].prepare(bare(tmp_path / "x.onnx", "fp32"), 1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            lambda x: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0],
            "flash",
        ),
        (lambda x: torch.softmax(x @ x.T, -1) @ x, "math"),
    ],
    ids=["fused", "products"],
)
def test_what_computes_attention_is_stated(function: Callable[[Tensor], Tensor], expected: str) -> None:
    assert attention(Module(function), [torch.ones(8, 3)]) == expected  # type: ignore[arg-type]
