"""The control in a report: ratios hold what two processes of the same code differ by, and the page says so."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest

from isorun.bench.records import Measurement, Run
from isorun.bench.twins import spread
from isorun.reports.build import document, render
from isorun.reports.race import places
from isorun.reports.series import groups, speeds

from ..fakes import fake_run
from .reading import records, said, tables


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


def twinned(run: Run, deviation: float) -> Run:
    """Every case of ort-cpu with a second process, which is off by a number of its own for every case."""
    rng = np.random.default_rng(0)

    def twin(m: Measurement) -> Measurement:
        if m.case.runtime != "ort-cpu" or m.status != "ok":
            return m
        factor = math.exp(deviation * rng.standard_normal())
        return replace(m, twin_ns=tuple(tuple(int(ns * factor) for ns in block) for block in m.blocks_ns))

    return replace(run, measurements=tuple(map(twin, run.measurements)))


def test_ratios_are_wider_by_what_processes_differ_by(run: Run) -> None:
    made = twinned(run, 0.03)
    found = spread(made.measurements)
    assert found is not None
    for bare, held in zip(groups(run), groups(made), strict=True):
        assert bare.spread is None
        for n, one in speeds(bare, "ort-cpu").items():
            other = speeds(held, "ort-cpu")[n]
            assert other.ratio == one.ratio
            for before, after in ((one.interval.low, other.interval.low), (one.interval.high, other.interval.high)):
                blocks, whole = (abs(math.log(end / one.ratio)) for end in (before, after))
                assert whole == pytest.approx(math.hypot(blocks, found.apart))


def test_a_lead_within_what_processes_differ_by_is_undecided(run: Run) -> None:
    """llama3-8b is 2 % faster on ort-cpu: by blocks alone that is sure at some n, under a control of 5 % nowhere."""

    def levels(made: Run) -> list[bool]:
        (group,) = (group for group in groups(made) if (group.model, group.phase) == ("llama3-8b", "forward"))
        return [bool(place.level) for place in places(group)]

    assert not all(levels(run))
    assert all(levels(twinned(run, 0.05)))


def test_the_page_says_once_what_brackets_hold(run: Run) -> None:
    made = document(twinned(run, 0.03))
    found = spread(twinned(run, 0.03).measurements)
    assert found is not None
    differ = f"differ by {100 * math.expm1(found.typical):.1f} % in the median of {found.cases} cases"
    whole = " ".join(said(made, section.key) for section in made.sections)
    assert whole.count("Control: two processes of ort-cpu, the same code on the same inputs") == 1
    assert differ in said(made, "latency")
    assert f"± {100 * math.expm1(found.apart):.1f} %" in said(made, "latency")
    held = {row["rule"].text: row["in this run"].text for row in records(tables(made, "contract")["What was held to"])}
    assert held["the same runtime twice"] == f"ort-cpu twice, in {found.cases} cases"
    assert differ in render(twinned(run, 0.03), "md").decode()


def test_a_run_without_a_control_says_so(run: Run) -> None:
    made = document(run)
    assert "This run has no control" in said(made, "latency")
    assert "brackets hold the noise of the blocks alone" in said(made, "latency")
    held = {row["rule"].text: row["in this run"].text for row in records(tables(made, "contract")["What was held to"])}
    assert held["the same runtime twice"] == "none"


def test_where_nothing_is_compared_nothing_is_said(run: Run) -> None:
    alone = replace(run, measurements=tuple(m for m in run.measurements if m.case.runtime == "torch"))
    assert "control" not in said(document(alone), "latency")


def test_the_twin_stands_in_the_data(run: Run) -> None:
    made = twinned(run, 0.03)
    rows = list(csv.DictReader(io.StringIO(render(made, "csv").decode())))
    for row, m in zip(rows, made.measurements, strict=True):
        if m.twin_ns and row["median_ms"]:
            assert float(row["twin_ratio"]) == pytest.approx(m.twin_median_ns / (m.median_ns or 0), rel=1e-5)
        else:
            assert row["twin_ratio"] == ""
