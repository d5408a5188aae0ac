"""The CUDA paths without a device: what is asked of ONNX Runtime, torch and TensorRT, on fakes that remember it."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from isorun.export.artifact import ExportedModel
from isorun.runtimes import all_runtimes, ort, tensorrt
from isorun.runtimes.base import RuntimeFailure
from isorun.runtimes.pytorch import Torch, TorchSession

from ..conftest import Exported


class FakeBinding:
    """Remembers where inputs and outputs were put, and that it was waited for."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        self.log.append(f"input {name} on {value.device}")

    def bind_output(self, name: str, device: str) -> None:
        self.log.append(f"output {name} on {device}")

    def synchronize_inputs(self) -> None:
        self.log.append("inputs there")

    def synchronize_outputs(self) -> None:
        self.log.append("outputs there")

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        self.log.append("copied")
        return [np.zeros(1)]


class FakeSession:
    """An inference session on a device that is not there."""

    def __init__(self, path: str, options: Any, providers: list[tuple[str, dict[str, str]]], **_: Any) -> None:
        self.log: list[str] = []
        FakeOrt.sessions.append(self)
        self.providers = providers

    def get_providers(self) -> list[str]:
        return FakeOrt.granted or [name for name, _ in self.providers]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", shape=["n"])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y", shape=["n"])]

    def io_binding(self) -> FakeBinding:
        return FakeBinding(self.log)

    def run_with_iobinding(self, binding: FakeBinding) -> None:
        self.log.append("run")

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return [SimpleNamespace(ep_name=name, get_nodes=lambda: [0, 1, 2]) for name, _ in self.providers]


class FakeOrt(SimpleNamespace):
    """The module onnxruntime, as far as it is used."""

    sessions: list[FakeSession] = []  # noqa: RUF012
    granted: list[str] = []  # noqa: RUF012
    log: list[str] = []  # noqa: RUF012


def _put(array: np.ndarray, device: str, index: int) -> Any:
    if FakeOrt.log[-1:] != ["preloaded"]:
        raise RuntimeError("libcublas.so.13: cannot open shared object file")
    return SimpleNamespace(device=device)


@pytest.fixture
def fake(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> type[FakeOrt]:
    exported("lstm", "forward")  # with the true one
    FakeOrt.sessions, FakeOrt.granted, FakeOrt.log = [], [], []
    module = FakeOrt(
        __spec__=ModuleSpec("onnxruntime", None),
        SessionOptions=lambda: SimpleNamespace(add_session_config_entry=lambda name, value: None),
        InferenceSession=FakeSession,
        OrtValue=SimpleNamespace(ortvalue_from_numpy=_put),
        get_available_providers=lambda: ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
        preload_dlls=lambda: (FakeOrt.log.append("preloaded"), print("Failed to load libcudnn"))[0],
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(ort, "wheels", lambda: ["onnxruntime-gpu"])
    return FakeOrt


def _artifact(exported: Exported, folder: Path, dtype: str) -> ExportedModel:
    from dataclasses import replace

    return replace(exported("lstm", "forward"), folder=folder, dtype=dtype)


def test_ort_cuda_finds_the_libraries_first_and_copies_nothing_in_the_timed_call(
    exported: Exported, fake: type[FakeOrt], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = all_runtimes()["ort-cuda"]
    assert runtime.missing() is None
    fake.log.clear()
    session = runtime.prepare(_artifact(exported, tmp_path, "fp16"), 1)
    assert fake.log == ["preloaded"]
    (made,) = fake.sessions
    assert made.providers == [("CUDAExecutionProvider", {"use_tf32": "0"})]
    staged = session.stage({"x": np.zeros(3, np.float32)})
    assert made.log == ["input x on cuda", "output y on cuda", "inputs there"]
    raw = session.run(staged)
    assert made.log[3:] == ["run", "outputs there"], "a run is waited for, and nothing is copied in it"
    session.fetch(raw)
    assert made.log[5:] == ["copied"]
    placed = session.placement()
    assert placed.facts == {"device": "cuda", "tf32": "off"}
    assert (placed.provider, dict(placed.nodes)) == ("CUDAExecutionProvider", {"CUDAExecutionProvider": 3})
    assert capsys.readouterr().out == "", "what ONNX Runtime prints does not reach the user"


def test_a_session_that_fell_back_to_the_cpu_is_a_failure(
    exported: Exported, fake: type[FakeOrt], tmp_path: Path
) -> None:
    fake.granted = ["CPUExecutionProvider"]
    with pytest.raises(RuntimeFailure, match="ort-cuda asked for CUDAExecutionProvider and got CPUExecutionProvider"):
        all_runtimes()["ort-cuda"].prepare(_artifact(exported, tmp_path, "fp32"), 1)


def test_a_device_that_the_driver_does_not_have_is_said(fake: type[FakeOrt], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["onnxruntime"], "preload_dlls", lambda: None)
    assert "no usable CUDA device: libcublas.so.13" in str(all_runtimes()["ort-cuda"].missing())


@pytest.mark.parametrize(
    ("dtype", "switch"), [("fp32", None), ("fp16", "trt_fp16_enable"), ("bf16", "trt_bf16_enable")]
)
def test_tensorrt_caches_its_engines_and_counts_those_it_built(
    exported: Exported, fake: type[FakeOrt], tmp_path: Path, dtype: str, switch: str | None
) -> None:
    engines = tmp_path / tensorrt.ENGINES
    engines.mkdir()
    (engines / "old.engine").write_bytes(b"")
    os.utime(engines / "old.engine", (1e9, 1e9))
    session = all_runtimes()["ort-tensorrt"].prepare(_artifact(exported, tmp_path, dtype), 1)
    (made,) = fake.sessions
    (first, options), (second, _) = made.providers
    assert (first, second) == ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    assert options["trt_engine_cache_enable"] == "1"
    assert options["trt_engine_cache_path"] == str(engines)
    assert {name for name in options if name.endswith("16_enable")} == ({switch} if switch else set())
    for name in ("a", "b"):
        (engines / f"{name}.engine").write_bytes(b"")
    placed = session.placement()
    assert placed.facts == {"device": "cuda", "tf32": "on in TensorRT", "engines built": "2"}
    assert dict(placed.nodes) == {"TensorrtExecutionProvider": 3, "CUDAExecutionProvider": 3}


def test_tensorrt_says_what_to_install(fake: type[FakeOrt], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "find_spec", lambda name: None)
    monkeypatch.setattr(tensorrt, "find_library", lambda name: None)
    assert "pip install tensorrt" in str(all_runtimes()["ort-tensorrt"].missing())
    monkeypatch.setattr(tensorrt, "find_library", lambda name: "libnvinfer.so.10")
    assert all_runtimes()["ort-tensorrt"].missing() is None


def test_torch_on_cuda_waits_for_the_device_and_states_tf32(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    artifact = exported("lstm", "forward")
    module = Torch("torch", "cpu").build(artifact, 1)
    assert torch.backends.cudnn.allow_tf32 is False
    assert torch.get_float32_matmul_precision() == "highest"
    session = TorchSession(module, "cuda", "fp32", 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 4096)
    facts = session.placement().facts
    assert facts == {"device": "cuda", "tf32": "off", "device bytes at the peak": "4096"}
    session._call = lambda *tensors: tensors
    session.run([torch.ones(1)])
    assert waited == [1]
