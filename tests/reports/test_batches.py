"""What a larger batch costs, and a whole generation: each word follows from laws that were planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isorun.bench.records import Run
from isorun.reports.answers import BATCH, GENERATING
from isorun.reports.batches import gains, largest
from isorun.reports.build import document
from isorun.reports.series import facets, groups, growth

from ..fakes import fake_case, fake_run
from .reading import answers, charts, records, tables

FORWARD, STEP = (64, 128, 256, 512), (64, 128, 256, 512)
Law = Callable[[int, int], float]  # of batch and n, in nanoseconds


def run_of(forward: Law, step: Law | None = None, *, batches: tuple[int, ...] = (1, 8), noise: float = 0.003) -> Run:
    """One model on one runtime, timed by a law for each phase."""
    rng = np.random.default_rng(2)
    base = next(m for m in fake_run().measurements if m.status == "ok" and m.case.runtime == "torch")
    made = []
    for phase, law, lengths in (("forward", forward, FORWARD), ("step", step, STEP)):
        for batch in batches if law else ():
            for n in lengths:
                blocks = tuple((int(law(batch, n) * factor),) for factor in rng.normal(1, noise, 9))  # type: ignore[misc]
                case = replace(fake_case(phase=phase, n=n), batch=batch)
                made.append(replace(base, case=case, blocks_ns=blocks, flops=batch * n))
    return replace(fake_run(), measurements=tuple(made), verdicts=())


def cheap(batch: int, n: int) -> float:
    """Eight rows cost 0.5 + 0.5·8 = 4.5 times one."""
    return 1e4 * n * (0.5 + 0.5 * batch)


def decode(batch: int, n: int) -> float:
    return 1e6 + 500 * n


def test_the_cost_of_a_batch_is_the_ratio_of_the_laws_and_its_interval_holds_it() -> None:
    found = gains(groups(run_of(cheap)))
    assert [(gain.base.case.batch, gain.more.case.batch, gain.more.case.length) for gain in found] == [
        (1, 8, n) for n in FORWARD
    ]
    for gain in found:
        assert gain.cost == pytest.approx(4.5, rel=0.02)
        assert gain.interval.low < 4.5 < gain.interval.high < 4.7
        assert gain.rate == pytest.approx(8 / 4.5, rel=0.02)


def test_the_answer_says_what_a_batch_costs_at_the_longest_n() -> None:
    line = answers(document(run_of(cheap)), "gpt2")[BATCH, "forward, batch 8"]
    assert line.tone == "good"
    assert line.head.endswith("the tokens per second")
    assert line.head.startswith("1.7")
    assert "at n = 512 a batch of 8 costs 4." in line.detail
    assert "as much as one sequence: 23." in line.detail
    assert line.evidence == "#batches-g1"


@pytest.mark.parametrize(
    ("law", "tone"),
    [(lambda b, n: 1e4 * n * b, "unsure"), (lambda b, n: 1e4 * n * b * 1.2 ** (b > 1), "bad"), (decode, "good")],
)
def test_a_batch_that_pays_nothing_or_less_is_called_so(law: Law, tone: str) -> None:
    (gain,) = largest(groups(run_of(law)))
    assert gain.tone == tone


def test_each_batch_is_held_against_the_smallest() -> None:
    run = run_of(cheap, batches=(2, 4, 8))
    table = tables(document(run), "batches")["A call of more rows"]
    assert {(row["against batch"].value, row["batch"].value) for row in records(table)} == {(2, 4), (2, 8)}
    (best,) = largest(groups(run))
    assert (best.base.case.batch, best.more.case.batch, best.more.case.length) == (2, 8, 512)


def test_one_batch_has_no_section() -> None:
    made = document(run_of(cheap, batches=(4,)))
    assert "batches" not in {section.key for section in made.sections}
    assert not any(question == BATCH for question, _ in answers(made, "gpt2"))


def test_curves_of_two_batches_are_never_mixed_in_one_fit() -> None:
    run = run_of(cheap, decode)
    found = groups(run)
    assert [(group.phase, group.batch) for group in found] == [("forward", 1), ("forward", 8), ("step", 1), ("step", 8)]
    for group in found[:2]:
        law = growth(group, "torch")
        assert law is not None
        assert law.fit.coefficients[1] == pytest.approx(cheap(group.batch, 1), rel=0.05)
        assert {m.case.batch for m in group.curve("torch")} == {group.batch}
    assert [facet["batch"] for facet in facets(run)] == ["1", "8", "1", "8"]
    assert len(charts(document(run), "scaling")) == 2


def test_a_single_block_says_nothing_about_a_batch() -> None:
    run = run_of(cheap)
    single = replace(run, measurements=tuple(replace(m, blocks_ns=m.blocks_ns[:1]) for m in run.measurements))
    assert gains(groups(single)) == ()


def pass_(batch: int, n: int) -> float:
    return 1e6 + 3e4 * n + 10 * n * n


def test_a_generation_is_the_sum_of_the_planted_calls() -> None:
    made = document(run_of(pass_, decode, batches=(1,)))
    (row,) = records(
        tables(made, "decode")["Generating, with and without a cache: derived from the fitted laws, not measured"]
    )
    assert (row["prompt"].value, row["tokens"].value) == (64, 448)
    cached = pass_(1, 64) + sum(decode(1, n) for n in range(64, 64 + 447))
    alone = sum(pass_(1, n) for n in range(64, 64 + 448))
    assert row["with the cache"].value == pytest.approx(cached, rel=0.02)
    assert row["without"].value == pytest.approx(alone, rel=0.02)
    assert row["the cache saves"].value == pytest.approx(alone / cached, rel=0.03)
    line = answers(made, "gpt2")[GENERATING, "decode step"]
    assert line.head.startswith("about 5")
    assert "448 tokens after 64" in line.detail
    assert line.detail.endswith("from the fitted laws, not measured")


def test_a_generation_takes_the_laws_of_its_own_batch() -> None:
    made = document(run_of(lambda b, n: b * pass_(1, n), decode))
    rows = {
        row["phase"].text: row for row in records(next(t for c, t in tables(made, "decode").items() if "Gener" in c))
    }
    one, eight = rows["decode step, batch 1"], rows["decode step, batch 8"]
    assert eight["without"].value == pytest.approx(8 * float(one["without"].value or 0), rel=0.05)


def test_without_passes_or_with_a_source_there_is_no_generation() -> None:
    run = run_of(pass_, decode, batches=(1,))
    steps = replace(run, measurements=tuple(m for m in run.measurements if m.case.phase == "step"))
    about = {"model": "gpt2", "size": "small", "phase": "step", "dtype": "fp32", "axes": ["batch", "past", "source"]}
    for other in (steps, replace(run, header={**run.header, "exports": [about]})):
        assert not any("Gener" in caption for caption in tables(document(other), "decode"))
