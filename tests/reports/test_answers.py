"""The answers per model: each word follows from laws that were planted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isorun.bench.records import Measurement, Run
from isorun.reports.answers import AHEAD, FAITHFUL, FASTEST, GROWTH
from isorun.reports.build import document
from isorun.reports.document import Line

from ..fakes import LAWS, WINDOW, fake_case, fake_run
from .reading import answers, records, tables, verdicts

Law = Callable[[int], float]
MS = 1e6
LAWS_TABLE = "The fitted law of each line"


def run_of(laws: dict[str, Law], lengths: tuple[int, ...], *, noise: float = 0.002, phase: str = "forward") -> Run:
    """One model, timed by a law for each runtime in nanoseconds; work grows as the first law does."""
    rng = np.random.default_rng(1)
    first = next(iter(laws.values()))
    base = next(m for m in fake_run().measurements if m.status == "ok")
    made = []
    for n in lengths:
        for runtime, law in laws.items():
            blocks = tuple((int(law(n) * factor),) for factor in rng.normal(1, noise, 9))
            case = fake_case(runtime=runtime, phase=phase, n=n)
            made.append(replace(base, case=case, blocks_ns=blocks, flops=int(first(n))))
    return replace(fake_run(), measurements=tuple(made), verdicts=())


def line(run: Run, question: str, label: str = "forward", model: str = "gpt2") -> Line:
    return answers(document(run), model)[question, label]


def figures(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*\.?\d*", text)]


def test_faithful_or_not_with_the_reason() -> None:
    run = fake_run()
    assert line(run, FAITHFUL, "graph").head == "yes"
    wrong = line(run, FAITHFUL, "graph", "mistral-7b")
    assert (wrong.head, wrong.tone) == ("no", "bad")
    assert wrong.detail == f"forward: 0.0041 from the source in float64, limit 1e-9; {WINDOW}"
    outputs = line(run, FAITHFUL, "outputs")
    assert outputs.head == "wrong on ort-cpu"  # at one n of the decode step
    assert outputs.detail.startswith("at most 3,100 times")


def test_an_export_that_failed_is_not_faithful() -> None:
    run = fake_run()
    failed = tuple(Measurement(case=m.case, status="failed", reason="no such operator") for m in run.measurements)
    found = line(replace(run, measurements=failed, verdicts=()), FAITHFUL, "graph")
    assert (found.head, found.detail, found.tone) == ("no", "no such operator", "bad")


def test_the_fastest_with_its_lead() -> None:
    found = line(fake_run(), FASTEST, model="bert-base")
    assert found.head == "ort-cpu"
    assert figures(found.detail)[0] == pytest.approx(LAWS["bert-base"].faster, rel=0.03)
    assert found.detail.endswith("over torch at n = 512; the same answer at every n")  # 1024 was never measured


def test_lines_that_cross_are_told_length_by_length() -> None:
    run = run_of({"torch": lambda n: MS * n, "ort-cpu": lambda n: 150 * MS + MS * n / 4}, (64, 128, 256, 512))
    found = line(run, FASTEST)
    assert found.head == "ort-cpu"  # 278 ms against 512 ms at the longest n
    assert "at n = 512; torch from n = 64 to 128" in found.detail  # they meet at 200


def test_what_cannot_be_told_apart_is_not_called_faster() -> None:
    run = run_of({"torch": lambda n: MS * n, "ort-cpu": lambda n: MS * n * 1.01}, (64, 128, 256), noise=0.2)
    found = line(run, FASTEST)
    assert (found.head, found.tone) == ("undecided between ort-cpu and torch", "unsure")


def test_a_lead_that_ends_is_told_with_its_end() -> None:
    rng = {64: 0.5, 128: 0.5, 256: 0.5, 512: 0.999}
    run = run_of({"torch": lambda n: MS * n, "ort-cpu": lambda n: MS * n * rng[n]}, (64, 128, 256, 512), noise=0.05)
    found = line(run, FASTEST)
    assert (found.head, found.tone) == ("ort-cpu up to n = 256, then undecided between ort-cpu and torch", "plain")
    assert re.match(r"[12]\.\d+× \(.*\) over torch at n = 256; .* at n = 512", found.detail)


def test_a_runtime_alone_wins_nothing() -> None:
    assert (
        "nothing else has a verified time" in line(run_of({"torch": lambda n: MS * n}, (64, 128, 256)), FASTEST).detail
    )


@pytest.mark.parametrize(
    ("law", "word"),
    [
        (lambda n: MS * n, "linearly"),
        (lambda n: 1e3 * n * n, "more than linearly"),
        (lambda n: MS, "hardly at all"),
        (lambda n: MS * n**0.5, "less than linearly"),
    ],
)
def test_growth_in_words(law: Law, word: str) -> None:
    found = line(run_of({"torch": law}, (64, 128, 256, 512)), GROWTH)
    assert found.head == word
    assert found.tone in ("good", "near")  # theory follows the same law
    slope = np.log2(law(512) / law(256))
    said = re.search(r"n\^([\d.-]+) \(.*\) from n = 256 to 512; operations give n\^([\d.-]+): ", found.detail)
    assert said is not None
    assert float(said[1]) == pytest.approx(slope, abs=0.02)
    assert float(said[2]) == pytest.approx(slope, abs=0.006)
    assert "within 0.25" in found.detail  # the rule stands beside its mark


def test_time_that_grows_unlike_theory_is_marked() -> None:
    run = run_of({"torch": lambda n: MS * n, "ort-cpu": lambda n: 1e3 * n * n}, (64, 128, 256, 512))
    found = line(run, GROWTH)  # the fastest at 512 is ort-cpu: 262 ms against 512 ms
    assert (found.head, found.tone) == ("more than linearly", "bad")


def test_one_rule_gives_one_mark_everywhere() -> None:
    def law(n: int) -> float:  # a fixed cost that theory does not know, and more than the last doubling tells
        return 2 * MS + 20e3 * n + 30 * n * n

    run = run_of({"torch": law}, (64, 128, 256, 512, 1024))
    theory = tuple(replace(m, flops=int(law(m.case.seq) - 2 * MS)) for m in run.measurements)
    made = document(replace(run, measurements=theory))
    (answer,) = (found for (question, _), found in answers(made, "gpt2").items() if question == GROWTH)
    cell = verdicts(made)["gpt2", "forward"]["torch: growth"]
    (row,) = records(tables(made, "scaling")["The fitted law of each line"])
    assert answer.tone == cell.tone == row["verdict"].tone == "near"
    assert cell.note == row["verdict"].note
    assert answer.detail == f"{cell.note}; on torch"
    assert "outside the interval, but within 0.25 of the exponent" in cell.note
    assert "over all n from 64 it is n^" in cell.note
    assert "flatter at short n, where fixed costs weigh more" in cell.note


def test_what_is_known_without_theory_has_no_mark() -> None:
    run = run_of({"torch": lambda n: MS * n**1.6}, (64, 128, 256, 512), noise=0.11)
    theory = tuple(replace(m, flops=int(1e6 * m.case.seq**1.25)) for m in run.measurements)
    found = line(replace(run, measurements=theory), GROWTH)
    assert found.detail.startswith("too noisy to hold against theory")
    assert (found.head, found.tone) == ("more than linearly", "plain")


def test_noise_is_not_taken_for_an_answer() -> None:
    found = line(run_of({"torch": lambda n: MS * n}, (64, 128, 256), noise=0.5), GROWTH)
    assert (found.head, found.tone) == ("cannot tell", "unsure")


def test_the_time_at_32768_tokens_is_the_law_s() -> None:
    law = lambda n: 2 * MS + 20e3 * n + 10 * n * n  # noqa: E731
    found = line(run_of({"torch": law}, (64, 256, 1024, 4096)), AHEAD)
    expected_s = law(32768) / 1e9  # 11.4 s
    assert found.head.startswith("about ")
    assert figures(found.head)[0] == pytest.approx(expected_s, rel=0.05)
    low, high = figures(found.detail)[:2]
    assert low - 0.05 <= expected_s <= high + 0.05  # the text has three digits
    assert "8.0 times the longest measured n" in found.detail
    reach = next(n for n in range(1, 32768) if law(n) > 1e9)  # 9,052
    assert figures(found.detail.split("one second is enough for")[1])[0] == pytest.approx(reach, rel=0.02)


def test_too_few_lengths_or_too_much_noise_give_no_time_at_32768() -> None:
    for few in ((64, 128), (64, 128, 256)):
        found = line(run_of({"torch": lambda n: MS * n}, few), AHEAD)
        assert (found.head, found.detail) == ("cannot tell", "4 lengths at least say how far times lie from a law")
    none = line(run_of({"torch": lambda n: MS * (1 + 3 * (n == 256))}, (64, 128, 256, 512)), AHEAD)
    assert (none.head, none.tone) == ("cannot tell", "unsure")
    assert re.match(r"the data leave anything from .* on; 64 times the longest measured n, on torch", none.detail)
    wild = run_of({"torch": lambda n: MS * n}, (64, 128, 256, 512), noise=0.6)
    assert line(wild, AHEAD).head in ("cannot tell", "roughly 32.8 s") or "anything from" in line(wild, AHEAD).detail


def with_peaks(run: Run, peak: Law, total: object) -> Run:
    """The same with the memory that each length took at its peak, on a machine that has `total` bytes."""
    made = tuple(replace(m, peak_bytes=int(peak(m.case.seq))) for m in run.measurements)
    environment = {**run.header["environment"], "memory_bytes": total}
    return replace(run, measurements=made, header={**run.header, "environment": environment})


def test_what_does_not_fit_into_memory_has_no_time_there() -> None:
    run = run_of({"torch": lambda n: MS * n}, (64, 256, 1024, 4096))
    square = with_peaks(run, lambda n: 2e8 + 100 * n * n, 2**34)  # 100 GiB at 32,768
    found = line(square, AHEAD)
    assert found.head == "does not fit here"
    assert re.match(
        r"it takes about 100 GiB of memory \(.*\), and 16\.0 GiB are here; with enough of it, about 33", found.detail
    )
    (law,) = records(tables(document(square), "scaling")[LAWS_TABLE])
    assert law["at 32,768"].text == "does not fit here"
    assert "100 GiB" in law["at 32,768"].note


def test_where_one_runtime_does_not_fit_the_other_is_asked() -> None:
    run = run_of({"torch": lambda n: 2 * MS * n, "ort-cpu": lambda n: MS * n}, (64, 256, 1024, 4096))
    made = with_peaks(run, lambda n: 2e8 + 1e4 * n, 2**34)
    large = tuple(
        replace(m, peak_bytes=int(2e8 + 100 * m.case.seq**2)) if m.case.runtime == "ort-cpu" else m
        for m in made.measurements
    )
    found = line(replace(made, measurements=large), AHEAD)
    assert re.match(r"about 6\d\.\d s on torch", found.head)
    assert "; ort-cpu does not fit: it takes about 100 GiB of memory" in found.detail


@pytest.mark.parametrize("total", [2**38, None, "much", 0, -1])
def test_what_may_fit_has_a_time(total: object) -> None:
    run = run_of({"torch": lambda n: MS * n}, (64, 256, 1024, 4096))
    assert line(with_peaks(run, lambda n: 2e8 + 100 * n * n, total), AHEAD).head.startswith("about 33")
    few = run_of({"torch": lambda n: MS * n}, (64, 256, 1024))  # three peaks say nothing about their own law
    assert "fit here" not in line(with_peaks(few, lambda n: 2e8 + 100 * n * n, 2**34), AHEAD).head


def test_a_model_whose_positions_end_is_not_extrapolated() -> None:
    run = run_of({"torch": lambda n: MS * n}, (64, 128, 256))
    facts = {"model": "gpt2", "size": "small", "phase": "forward", "dtype": "fp32", "max_tokens": 1024}
    ending = replace(run, header={**run.header, "exports": [facts]})
    found = line(ending, AHEAD)
    assert (found.head, found.detail) == ("not possible", "this model has 1,024 positions")
    (law,) = records(tables(document(ending), "scaling")[LAWS_TABLE])
    assert law["at 32,768"].text == "beyond its 1,024 positions"


def test_a_crossover_beyond_the_positions_is_none() -> None:
    run = run_of({"torch": lambda n: MS * n + 500 * n * n}, (64, 128, 256, 512))  # n* = 2000
    facts = {"model": "gpt2", "size": "small", "phase": "forward", "dtype": "fp32", "max_tokens": 1024}
    (law,) = records(tables(document(replace(run, header={**run.header, "exports": [facts]})), "scaling")[LAWS_TABLE])
    assert law["crossover n*"].text == "beyond its 1,024 positions"
    (law,) = records(tables(document(run), "scaling")[LAWS_TABLE])
    assert 1500 < figures(law["crossover n*"].text)[0] < 2700


def test_the_names_of_scaled_models_are_explained() -> None:
    (found,) = (part for part in document(fake_run()).sections if part.key == "answers")
    assert "@ small is the architecture of that name at dim 256, 4 layers and random weights" in " ".join(found.notes)


def test_a_verdict_names_the_lengths_that_have_a_time() -> None:
    run = run_of({"torch": lambda n: MS * n}, (64, 128, 256))
    *timed, last = run.measurements
    left = replace(last, status="skipped", reason="beyond the table", blocks_ns=())
    found = verdicts(document(replace(run, measurements=(*timed, left))))
    assert found["gpt2", "forward"]["n"].text == "64–128"


@pytest.mark.parametrize("value", [None, 3, "text", [3], [{"model": 1}], [{"model": "gpt2", "max_tokens": "many"}]])
def test_odd_facts_on_exports_are_no_fault(value: object) -> None:
    run = run_of({"torch": lambda n: MS * n}, (64, 128, 256))
    assert "positions" not in line(replace(run, header={**run.header, "exports": value}), AHEAD).detail


def test_times_under_other_conditions_are_not_compared() -> None:
    run = run_of({"torch": lambda n: MS * n, "ort-cpu": lambda n: MS * n / 2}, (64, 128, 256))
    more = tuple(
        replace(m, placement=replace(m.placement, threads=8)) if m.placement and m.case.runtime == "ort-cpu" else m
        for m in run.measurements
    )
    found = line(replace(run, measurements=more), FASTEST)
    assert "torch is not compared with ort-cpu: threads 8 against 1" in found.detail
    assert "×" not in found.detail
    made = document(replace(run, measurements=more))
    assert "ort-cpu is not compared with torch: threads 1 against 8" in str(
        tables(made, "contract")["Not compared"].rows
    )
    assert verdicts(made)["gpt2", "forward"]["ort-cpu: speed over torch"].text == "–"


def test_each_precision_is_held_to_its_own_limit() -> None:
    run = fake_run()
    cases = tuple(m for m in run.measurements if m.case.model == "gpt2" and m.case.phase == "forward")
    verdict = next(v for v in run.verdicts if (v.model, v.phase) == ("gpt2", "forward"))
    drifted = replace(verdict, dtype="int4", check="drift", distance=0.12, limit=1.0)
    both = (*cases, *(replace(m, case=replace(m.case, dtype="int4")) for m in cases))
    made = replace(run, measurements=both, verdicts=(verdict, drifted))
    found = answers(document(made), "gpt2")
    assert "within 2.4e-13 of the source" in found[FAITHFUL, "graph, fp32"].detail
    assert "within 0.12 of the source in float64, limit 1" in found[FAITHFUL, "graph, int4"].detail
    assert {label for question, label in found if question == FASTEST} == {"forward, fp32", "forward, int4"}
