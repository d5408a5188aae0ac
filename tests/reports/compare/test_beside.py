"""Runs whose blocks alternated: what the machine does within and between lengths is no change, and 5 % is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isorun import cli
from isorun.bench.beside import named
from isorun.bench.records import Case, Measurement, Run
from isorun.reports.compare.beside import split
from isorun.reports.compare.comparison import compare
from isorun.reports.compare.environment import CompareError
from isorun.reports.compare.words import names, sentences

from .synthetic import HEADER, cases, measured, run, unchanged, write

BASE = {"torch": "2.13.0", "onnxruntime": "1.31.0", "onnx": "1.23.2"}


def beside(seed: int, factor: Callable[[Case], float] = unchanged, blocks: int = 5) -> Run:
    """Every case twice, in blocks that a spell of other work makes up to twice as long, for both alike."""
    rng = np.random.default_rng(seed)
    rows: list[Measurement] = []
    for one in cases(4):
        spell = 1e6 * (1 + rng.random(blocks))
        for case, times in ((one, factor(one)), (replace(one, runtime=named(one.runtime)), 1.0)):
            luck = np.exp(rng.normal(0, 0.007))
            medians = list(spell * times * luck * np.exp(rng.normal(0, 0.003, blocks)))
            rows.append(replace(measured(one, medians), case=case))
    header = {**HEADER, "environment": {**HEADER["environment"], "base": {"versions": BASE}}}
    return Run(folder=Path("runs/run"), header=header, measurements=tuple(rows))


def slowed(case: Case) -> float:
    return 1.05 if case.runtime == "ort-cpu" else 1.0


def test_spells_that_both_see_are_no_change() -> None:
    pairs = [compare([beside(seed)]) for seed in range(12)]
    assert not any(pair.regressed for pair in pairs)
    assert not any(pair.called("faster") for pair in pairs)
    assert all(overall.interval.high < 1.03 for pair in pairs for overall in pair.overall)


def test_five_per_cent_are_called_through_them() -> None:
    for seed in range(6):
        pair = compare([beside(seed, slowed)])
        torch, ort = pair.overall
        assert pair.regressed
        assert (torch.word, ort.word) == ("same", "slower")
        assert any("in the same rounds of blocks" in sentence for sentence in sentences(pair))
        assert ort.ratio == pytest.approx(1.05, abs=0.012)


def test_what_is_sure_of_all_cases_and_of_none_alone_is_said() -> None:
    pair = compare([beside(1, lambda case: 1.03 if case.runtime == "ort-cpu" else 1.0)])
    assert pair.slower_overall
    assert not pair.called("slower")
    assert any("sure of all cases together is sure of none alone" in sentence for sentence in sentences(pair))


def test_a_change_of_all_runtimes_is_called() -> None:
    assert {o.word for o in compare([beside(0, lambda _: 1.05)]).overall} == {"slower"}


def test_five_rounds_are_enough_for_a_case() -> None:
    pair = compare([beside(0, lambda case: 1.4 if case == cases(4)[0] else 1.0)])
    assert [change.case for change in pair.called("slower")] == [cases(4)[0]]


def test_the_base_has_its_own_versions_and_the_names_of_its_runtimes() -> None:
    base, head = split(beside(0))
    assert {m.case.runtime for m in base.measurements} == {m.case.runtime for m in head.measurements}
    assert base.header["environment"]["versions"] == BASE
    assert names((base, head)) == ("run@base", "run")
    (difference,) = compare([beside(0)]).differences
    assert (difference.key, difference.values) == ("versions.onnxruntime", ("1.31.0", "1.32.0"))
    assert difference.effect == "allowed"


@pytest.mark.parametrize("odd", [{}, {"environment": 3}, {"environment": {"base": "x"}}, {"environment": {"base": {}}}])
def test_an_odd_header_is_no_fault(odd: dict[str, object]) -> None:
    assert compare([replace(beside(0), header=odd)]).changes


def test_a_run_without_a_base_is_refused() -> None:
    with pytest.raises(CompareError, match="or one that was measured with --base"):
        compare([run(0)])


def test_the_command_takes_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(beside(0, slowed), tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["isorun", "compare", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "for sure slower over all cases: ort-cpu +" in capsys.readouterr().out.splitlines()[-1]
