"""The command: what it prints, what it leaves behind, and how it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from isorun import cli
from isorun.bench.runfolder import read_run
from isorun.listing import models
from isorun.runtimes import ort

COMMAND = [sys.executable, "-m", "isorun"]
SMALL = ["--models", "gpt2", "--size", "tiny", "--seq", "4,8,16,32", "--past", "8,16,32"]


def _call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isorun", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


REFUSALS = [
    (["bench", "--models", "gtp2"], "unknown model 'gtp2'; did you mean gpt2"),
    (["bench", "quik"], "unknown suite 'quik'; did you mean quick?"),
    (["bench", "--runtimes", "ort"], "unknown runtime 'ort'; did you mean"),
    (
        ["bench", "--models", "bert-base", "--seq", "64:1024:2x"],
        "1024 tokens exceed the table of 512 positions of bert-base",
    ),
    (["bench", "--seq", "many"], "seq 'many'"),
    (["bench", "--batch", "0"], "batch '0': 0 is below 1"),
    (["bench", "--batch", "two"], "batch 'two': write 64,128"),
    (["bench", "--budget", "ten"], "budget 'ten': write 90s, 10m or 2h"),
    (["bench", "--budget", "3s"], "a budget of 3 s is too small: one case needs about 10.4 s"),
    (["bench", "--resume", "nowhere"], "nowhere: no such run folder"),
    (["bench", "--resume", "nowhere", "--models", "gpt2"], "a resumed run measures what it was started with"),
    (["bench", "mine.toml"], "mine.toml: No such file"),
    (["bench", "--runtimes", "torch-cuda"], "none of the chosen runtimes can run here"),
    (["export", "gtp2", "-o", "x"], "unknown model 'gtp2'; did you mean gpt2"),
    (["export", "bert-base", "-o", "x", "--phase", "step"], "bert-base (encoder) has no phase 'step'; it has forward"),
    (["export", "llama3-8b", "-o", "x", "--size", "full"], "to export even with streamed weights, 0 are free"),
    (["report", "nowhere"], "nowhere: no such run folder"),
    (["report", "."], "no run.json, so this is not a run folder"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSALS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_refusals_are_one_message_and_status_2_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("isorun.export.machine.psutil.virtual_memory", lambda: type("M", (), {"available": 2**28}))
    assert _call(monkeypatch, *arguments) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_isorun_itself_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isorun.listing.models", lambda: 1 / 0)
    assert _call(monkeypatch, "list", "models") == 2
    said = capsys.readouterr().err
    assert "a fault in isorun itself: ZeroDivisionError" in said
    log = Path(said.split()[-1])
    assert "Traceback" in log.read_text()
    log.unlink()


def test_list_models_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call(monkeypatch, "list", "models", "--json") == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert rows["gpt2"]["parameters"] == 124_439_808
    assert rows["mistral-7b"]["mixer"] == "Window kv_heads=8, window=4096"
    assert set(rows["llama3-8b"]) >= {"topology", "mixer", "position", "norm", "ffn", "residual", "parameters"}


def test_specs_are_named_by_what_was_chosen() -> None:
    rows = {row["model"]: row for row in models()}
    assert (rows["gpt2"]["ffn"], rows["gpt2"]["norm"]) == ("MLP gelu_tanh, 3072", "LayerNorm")
    assert rows["gpt3-175b"]["mixer"] == "Softmax / Window window=128"
    assert rows["mixtral-8x7b"]["ffn"] == "MoE activation=silu, hidden=14336, experts=8, top_k=2"
    assert rows["qwen3-8b"]["mixer"] == "Softmax kv_heads=8, qk_norm=RMSNorm()"
    assert (rows["rnn"]["mixer"], rows["rnn"]["residual"]) == ("RNN", "none")


@pytest.mark.parametrize("width", [120, 160])
def test_the_table_of_models_folds_between_words(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isorun.terminal.out", Console(width=width, soft_wrap=True, highlight=False))
    assert _call(monkeypatch, "list", "models") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    for whole in ("encoder-decoder", "174,604,259,328", "kv_heads=8", "gelu_tanh", "window=4096"):
        assert whole in shown


def test_list_shows_models_runtimes_and_suites(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _call(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("transformer-base", "ort-cuda", "quick", "pip install 'isorun[gpu]'"))


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ([], "ONNX Runtime is not installed: pip install 'isorun[cpu]'"),
        (["onnxruntime", "onnxruntime-gpu"], "overwrite each other: pip uninstall -y onnxruntime onnxruntime-gpu"),
    ],
)
def test_doctor_and_bench_say_what_is_wrong_with_the_wheels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installed: list[str], said: str
) -> None:
    monkeypatch.setattr(ort, "wheels", lambda: installed)
    assert _call(monkeypatch, "doctor") == 0
    assert said in capsys.readouterr().out
    assert _call(monkeypatch, "bench", "--runtimes", "ort-cpu") == 2
    assert said in capsys.readouterr().err


def test_export_prints_the_path_of_the_graph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _call(monkeypatch, "export", "lstm", "-o", str(tmp_path / "out"), "--size", "tiny") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "model.onnx")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["artifact.json", "model.onnx"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_bench_from_the_command_to_the_page(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "bench", *SMALL, "--budget", "75s"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = tmp_path / done.stdout.splitlines()[-1]
    assert page.name == "report.html"
    files = {file.name for file in page.parent.iterdir()}
    assert files == {"run.json", "records.jsonl", "report.html", "report.md", "measurements.csv"}
    run = read_run(page.parent)
    assert {m.status for m in run.measurements} == {"ok"}
    assert len(run.measurements) == 2 * (4 + 3)
    assert {v.status for v in run.verdicts} == {"pass"}
    assert len(pd.read_csv(page.parent / "measurements.csv")) == 14
    assert all(m.flops and m.peak_bytes and m.placement for m in run.measurements)


def test_ctrl_c_keeps_what_was_measured_and_reports_it(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*COMMAND, "bench", *SMALL],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    deadline = time.monotonic() + 120
    while not any('"measurement"' in file.read_text() for file in tmp_path.glob("isorun-runs/*/records.jsonl")):
        assert running.poll() is None, running.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in err
    page = tmp_path / out.splitlines()[-1]
    assert page.exists()
    run = read_run(page.parent)
    assert 0 < len(run.measurements) < 14
    assert run.header["finished"] is None
    assert not (page.parent / "work").exists()


def test_help_needs_no_torch() -> None:
    code = "import sys\nfrom isorun.cli import main\ntry: main()\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert find_spec("torch") is not None
