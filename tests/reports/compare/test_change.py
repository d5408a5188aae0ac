"""Calls: none where nothing changed, the right ones where something did, at the rates that are promised."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from isorun.bench.records import Case, Run
from isorun.reports.compare.change import changes
from isorun.reports.compare.comparison import Comparison, compare
from isorun.reports.compare.machine import parted
from isorun.reports.compare.match import match
from isorun.reports.compare.noise import Deviation, Noise, estimate, left
from isorun.reports.compare.overall import heterogeneity

from .synthetic import HEADER, case, cases, measured, run, runtime
from .synthetic import Noise as Made


def words(comparison: Comparison) -> set[str]:
    return {change.word for change in comparison.changes}


def with_rates(chosen: Run, torch: float | None, ort: float | None) -> Run:
    environment = {**HEADER["environment"], "matmul_gflops": {"torch": torch, "ort-cpu": ort}}
    return replace(chosen, header={**HEADER, "environment": environment})


def test_a_run_against_itself_is_the_same() -> None:
    same = compare([run(0), run(0)])
    assert words(same) == {"same"}
    assert {change.ratio for change in same.changes} == {1.0}
    assert {overall.word for overall in same.overall} == {"same"}
    assert not same.regressed


@pytest.mark.parametrize("noise", [Made(), Made(between=0.03), Made(within=0.1, between=0.05, blocks=(5, 5))])
def test_two_runs_of_the_same_code_are_rarely_called_different(noise: Made) -> None:
    pairs = [compare([run(2 * seed, noise=noise), run(2 * seed + 1, noise=noise)]) for seed in range(24)]
    called = [bool({"faster", "slower"} & (words(pair) | {o.word for o in pair.overall})) for pair in pairs]
    assert sum(called) <= 4  # of 24 with a chance of 5 %, more come in one of 160 suites


def test_a_runtime_slowed_by_five_per_cent_is_called() -> None:
    pairs = [compare([run(2 * seed), run(2 * seed + 1, runtime("ort-cpu", 1.05))]) for seed in range(10)]
    for pair in pairs:
        torch, ort = pair.overall
        assert pair.regressed
        assert ort.word == "slower"
        assert ort.ratio == pytest.approx(1.05, abs=0.01)
        assert torch.word in ("same", "cannot tell")
    assert sum(pair.overall[1].interval.low <= 1.05 <= pair.overall[1].interval.high for pair in pairs) >= 8


def test_a_runtime_made_faster_is_no_regression() -> None:
    pair = compare([run(0), run(1, runtime("ort-cpu", 0.8))])
    assert pair.overall[1].word == "faster"
    assert {c.case.runtime for c in pair.called("faster")} == {"ort-cpu"}
    assert not pair.regressed


def test_one_case_far_slower_is_called_alone() -> None:
    slow = case("m4", "ort-cpu", 256)
    pair = compare([run(0), run(1, lambda one: 1.3 if one == slow else 1.0)])
    assert [change.case for change in pair.called("slower")] == [slow]
    assert pair.slower == pair.called("slower")


def test_the_limit_is_held_against_the_lower_bound() -> None:
    base, head = run(0), run(1, runtime("ort-cpu", 1.05))
    assert compare([base, head], limit=0.02).regressed
    assert not compare([base, head], limit=0.05).regressed
    assert compare([base, head], limit=0.05).overall[1].word == "slower"


def test_scatter_between_runs_widens_every_interval() -> None:
    quiet, loud = (compare([run(0, noise=Made(between=b)), run(1, noise=Made(between=b))]) for b in (0.0, 0.05))
    assert loud.noise.factor > 3 * quiet.noise.factor
    assert all(change.interval.high / change.interval.low > 1.1 for change in loud.changes)


def test_the_factor_of_the_noise_is_that_of_a_normal_scatter() -> None:
    rng = np.random.default_rng(0)
    groups = [[Deviation(float(value), 0.01) for value in rng.normal(0.05 * i, 0.06, 400)] for i in range(3)]
    assert estimate(groups).factor == pytest.approx(0.06 / math.hypot(0.01, 0.01), rel=0.06)


def test_few_cases_say_little_about_the_noise() -> None:
    assert estimate([]).factor == estimate([[Deviation(0.3, 0.01)]]).factor == 1.0
    assert estimate([[Deviation(0.3, math.inf), Deviation(0.1, math.inf)]]).factor == 1.0


def test_a_single_block_cannot_tell() -> None:
    base, head = run(0, noise=Made(blocks=(1, 1))), run(1, runtime("ort-cpu", 3), noise=Made(blocks=(1, 1)))
    pair = compare([base, head])
    assert words(pair) == {"cannot tell"}
    assert not pair.regressed


def test_the_rank_test_is_corrected_over_all_cases() -> None:
    base, head = run(0), run(1, runtime("ort-cpu", 1.02))
    found, _ = changes(base, head, match(base, head).pairs)
    raw = [
        mannwhitneyu(a.block_medians_ns, b.block_medians_ns).pvalue
        for a, b in zip(base.measurements, head.measurements, strict=True)
    ]
    order = np.argsort(raw)
    adjusted = np.array(raw)[order] * len(raw) / np.arange(1, len(raw) + 1)
    expected = np.minimum(1, np.minimum.accumulate(adjusted[::-1])[::-1])
    assert [found[i].rank_p for i in order] == pytest.approx(expected)


def test_equal_medians_are_no_fault_of_the_rank_test() -> None:
    one = replace(run(0), measurements=(measured(case(), [1e6] * 5),))
    assert compare([one, one]).changes[0].rank_p == 1.0


EVEN, SPELLS = (0.1, 0.1, 0.1, 0.1), (0.0, 0.5, 0.02, 0.3)
QUIET = Noise(factor=1.0, freedom=4.0)


@pytest.mark.parametrize(
    ("rates", "torch", "ort", "expected"),
    [
        ((100.0, 200.0), EVEN, EVEN, (0.0,) * 4),  # yardsticks stand still, and all lengths agree: it is the code
        ((100.0, 200.0), SPELLS, SPELLS, SPELLS),  # lengths that do not agree had a spell that no yardstick saw
        ((90.0, 200.0), EVEN, EVEN, EVEN),  # a yardstick that moved
        ((None, None), EVEN, EVEN, EVEN),  # none that was measured
        ((90.0, 180.0), EVEN, (0.2, 0.05, 0.1, 0.4), (0.1, 0.05, 0.1, 0.1)),  # the least of the runtimes
        ((90.0, 180.0), EVEN, (-0.1, 0.0, 0.1, 0.2), (0.0, 0.0, 0.1, 0.1)),  # runtimes apart: it is not the machine
        ((90.0, 180.0), EVEN, (), (0.0,) * 4),  # a runtime alone may be the code
    ],
)
def test_the_machine_is_what_all_runtimes_of_a_length_share(
    rates: tuple[float | None, float | None],
    torch: tuple[float, ...],
    ort: tuple[float, ...],
    expected: tuple[float, ...],
) -> None:
    lengths = (64, 128, 256, 512)
    moved = {case(n=n): change for n, change in zip(lengths, torch, strict=True)}
    moved |= {case(n=n, runtime="ort-cpu"): change for n, change in zip(lengths, ort, strict=False)}
    raw = [Deviation(change, 0.001) for change in moved.values()]
    found = dict(zip(moved, parted(run(0), with_rates(run(1), *rates), list(moved), raw, QUIET), strict=True))
    assert [found[one].value for one in moved] == list(moved.values())
    assert [found[case(n=n)].machine for n in lengths] == pytest.approx(expected)
    assert all(found[one].machine == found[replace(one, runtime="torch")].machine for one in found)


def test_few_lengths_do_not_say_that_the_machine_stood_still() -> None:
    def parts(lengths: int) -> set[float]:
        which = [case(n=n, runtime=name) for n in range(1, lengths + 1) for name in ("torch", "ort-cpu")]
        raw = [Deviation(0.1, 0.001)] * len(which)
        return {found.machine for found in parted(run(0), run(1), which, raw, QUIET)}

    assert (parts(3), parts(4)) == ({0.1}, {0.0})


def test_what_the_machine_did_is_as_unsure_as_lengths_scatter_and_runtimes_differ() -> None:
    rng = np.random.default_rng(0)
    moved = {case(n=n, runtime=name): 0.0 for n in range(1, 401) for name in ("torch", "ort-cpu")}
    spells = {n: rng.normal(0.05, 0.1) for n in range(1, 401)}
    raw = [Deviation(spells[one.length], 0.01) for one in moved]
    for one, part in zip(moved, parted(run(0), run(1), list(moved), raw, QUIET), strict=True):
        assert part.machine == spells[one.length]
        assert math.sqrt(part.unsure**2 - (0.5 * part.machine) ** 2) == pytest.approx(0.1, rel=0.15)


def test_a_machine_that_became_slower_is_no_regression() -> None:
    head = run(1, lambda _: 1.2)
    assert compare([run(0), head]).regressed  # the yardsticks stood still: it is the code
    slow = compare([run(0), with_rates(head, 100 / 1.2, 200 / 1.2)])
    assert not slow.regressed
    assert all(change.interval.low < 1.02 and change.interval.high > 1.18 for change in slow.changes)


def test_spells_of_other_work_are_no_regression() -> None:
    """Each length meets other work of its own, which reaches one runtime further than the other."""

    def spell(one: Case) -> float:
        hit = 0.6 * np.random.default_rng([int(one.model[1:]), one.length]).random()
        return math.exp(hit * (1.4 if one.runtime == "torch" else 1.0))

    pairs = [compare([run(2 * seed), run(2 * seed + 1, spell)]) for seed in range(6)]
    assert not any(pair.regressed for pair in pairs)
    assert not any(pair.called("faster") for pair in pairs)
    twice = [
        compare([run(s), run(9 + s, lambda one: spell(one) * (4.0 if one.runtime == "ort-cpu" else 1))])
        for s in range(3)
    ]
    assert all(pair.regressed for pair in twice)  # what the other runtime does not show is still called


def test_what_is_left_is_as_unsure_as_the_machine() -> None:
    rest = left(Deviation(0.3, 0.03, machine=0.08, unsure=0.04))
    assert rest.value == pytest.approx(0.22)
    assert rest.error == pytest.approx(0.05)


def test_what_became_faster_while_the_machine_became_slower_makes_nothing_slower() -> None:
    """ONNX Runtime gains 5 %, and the machine loses 2 to 12 %: torch did not change."""

    def factor(one: Case) -> float:
        lost = 0.02 + 0.1 * np.random.default_rng([int(one.model[1:]), one.length]).random()
        return math.exp(lost) * (0.95 if one.runtime == "ort-cpu" else 1.0)

    assert not any(compare([run(2 * seed), run(2 * seed + 1, factor)]).regressed for seed in range(10))


def test_models_count_alike_in_a_runtime_as_a_whole() -> None:
    which = [*cases(1, ("ort-cpu",)), *(case("m1", "ort-cpu", n) for n in range(8, 18))]
    head = run(1, lambda one: 1.5 if one.model == "m0" else 1.0, which=which)
    (whole,) = compare([run(0, which=which), head]).overall
    assert whole.ratio == pytest.approx(math.sqrt(1.5), rel=0.01)


def test_a_model_of_which_little_is_known_counts_little() -> None:
    which = [case(f"m{i}", "ort-cpu", n) for i in range(8) for n in (64, 256)]
    rng = np.random.default_rng(3)
    loud = [
        measured(one, list(1.6e6 * np.exp(rng.normal(0, 0.5, 5)))) if one.model == "m0" else m
        for one, m in zip(which, run(1, runtime("ort-cpu", 1.05), which=which).measurements, strict=True)
    ]
    (whole,) = compare([run(0, which=which), replace(run(1), measurements=tuple(loud))]).overall
    assert whole.ratio == pytest.approx(1.05, abs=0.01)
    assert whole.interval.high - whole.interval.low < 0.05


def test_how_far_models_really_lie_apart_is_told_from_their_errors() -> None:
    rng = np.random.default_rng(4)
    errors = rng.uniform(0.01, 0.1, 2000)
    values = 0.3 + rng.normal(0, 0.05, 2000) + rng.normal(0, errors)
    found = [Deviation(float(value), float(error)) for value, error in zip(values, errors, strict=True)]
    assert heterogeneity(found) == pytest.approx(0.05, rel=0.05)
    assert heterogeneity([Deviation(float(rng.normal(0, 0.05)), 0.1) for _ in range(99)]) == 0.0
    assert heterogeneity(found[:1]) == heterogeneity([]) == 0.0


def test_a_model_with_single_blocks_leaves_the_others_as_they_are() -> None:
    def cut(chosen: Run) -> Run:
        single = [replace(m, blocks_ns=m.blocks_ns[:1]) if m.case.model == "m0" else m for m in chosen.measurements]
        return replace(chosen, measurements=tuple(single))

    pair = compare([cut(run(0)), cut(run(1, runtime("ort-cpu", 1.05)))])
    assert len(pair.changes) == len(cases())
    assert pair.overall[1].word == "slower"
    assert pair.overall[1].ratio == pytest.approx(1.05, abs=0.01)
