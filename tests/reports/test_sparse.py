"""Is a window linear? The answer names the mechanism with its size, and both predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isorun.bench.extrapolate import predict
from isorun.bench.records import Run
from isorun.reports.ahead import TARGET, law_ahead
from isorun.reports.answers import AHEAD
from isorun.reports.build import document, render
from isorun.reports.document import Document, Line
from isorun.reports.format import duration
from isorun.reports.series import groups
from isorun.reports.sparse import QUESTION, reading

from ..fakes import fake_case, fake_run
from .reading import answers, records, tables

WINDOW = 256
SHORT, LONG = (64, 128, 256, 512), (64, 128, 256, 512, 1024, 2048)


def windowed(n: int) -> float:
    return 2000.0 * n + n * min(n, 2 * WINDOW)


def full(n: int) -> float:
    return 2000.0 * n + n * n


def run_of(
    truth: Callable[[int], float],
    lengths: tuple[int, ...],
    *,
    noise: float = 0.005,
    told: object = ...,
    step: bool = False,
) -> Run:
    """One model whose graph is windowed, timed by `truth`."""
    rng = np.random.default_rng(1)
    base = next(m for m in fake_run().measurements if m.status == "ok")
    phase = "step" if step else "forward"
    made = tuple(
        replace(
            base,
            case=fake_case(model="mistral-7b", phase=phase, n=n),
            blocks_ns=tuple((int(1e3 * truth(n) * factor),) for factor in rng.normal(1, noise, 9)),
            flops=int(windowed(n)),
            dense_flops=int(full(n)),
        )
        for n in lengths
    )
    sparse = {"reads": "a window of 256 tokens", "told_from": 2048} if told is ... else told
    facts = {"model": "mistral-7b", "size": "small", "phase": phase, "dtype": "fp32", "sparse": sparse}
    header = {**fake_run().header, "exports": [facts]}
    return replace(fake_run(), header=header, measurements=made, verdicts=())


def line(made: Document) -> Line:
    return answers(made, "mistral-7b")[QUESTION, "forward"]


def test_a_window_that_is_there_is_called_linear() -> None:
    found = line(document(run_of(windowed, LONG)))
    assert (found.head, found.tone) == ("yes, with a window of 256 tokens", "good")
    assert "from n = 1024 to 2048" in found.detail
    assert "that rules out full attention" in found.detail
    sparse, dense = (
        np.polyfit(np.log(LONG[-2:]), np.log([law(n) for n in LONG[-2:]]), 1)[0] for law in (windowed, full)
    )
    assert f"theory predicts n^{sparse:.2f}, with full attention n^{dense:.2f}" in found.detail


def test_a_window_whose_exponent_is_rough_is_consistent_with_linear() -> None:
    found = line(document(run_of(windowed, (*LONG, 4096, 8192), noise=0.09)))
    assert (found.head, found.tone) == ("consistent with linear: a window of 256 tokens", "near")
    assert "that rules out full attention" in found.detail


@pytest.mark.parametrize("lengths", [LONG, LONG[:2] + LONG[3:]])
def test_far_beyond_a_window_the_straight_line_goes_on(lengths: tuple[int, ...]) -> None:
    run = run_of(windowed, lengths)
    (group,) = groups(run)
    law = law_ahead(run, group, "torch")
    assert law is not None
    assert law.lengths == tuple(n for n in lengths if n >= 2 * WINDOW)  # where `windowed` becomes straight
    low, mid, high = predict(law, TARGET)
    assert low <= 1e3 * windowed(TARGET) <= high
    assert high < 1.1 * low
    ahead = answers(document(run), "mistral-7b")[AHEAD, "forward"]
    assert ahead.head == f"about {duration(mid)}"
    assert f"by the straight line from n = {law.lengths[0]} on" in ahead.detail


def test_two_lengths_are_no_straight_line() -> None:
    run = run_of(windowed, LONG[:2] + LONG[4:])
    (group,) = groups(run)
    law = law_ahead(run, group, "torch")
    assert law is not None
    assert law.lengths == (64, 128, 1024, 2048)


def test_a_window_that_is_not_there_is_gone_beyond_as_a_square() -> None:
    run = run_of(full, LONG)
    (group,) = groups(run)
    law = law_ahead(run, group, "torch")
    assert law is not None
    assert law.lengths == LONG
    assert law.predict(TARGET) == pytest.approx(1e3 * full(TARGET), rel=0.1)


def test_a_window_that_is_not_there_is_found_out() -> None:
    found = line(document(run_of(full, LONG)))
    assert (found.head, found.tone) == ("no: as if all keys were read, and not a window of 256 tokens", "bad")


def test_lengths_that_cannot_tell_say_which_would() -> None:
    found = line(document(run_of(windowed, SHORT)))
    assert (found.head, found.tone) == ("cannot tell", "unsure")
    assert found.detail.startswith("at n ≤ 512 with a window of 256 tokens theory predicts n^")
    assert "too near to tell apart; measure to n = 2,048" in found.detail


def test_two_lengths_are_an_answer_too() -> None:
    found = line(document(run_of(windowed, SHORT[:2])))
    assert (found.head, found.tone) == ("cannot tell", "unsure")
    assert found.detail.startswith("a window of 256 tokens: too few times on torch")


def test_noise_cannot_tell_either() -> None:
    found = line(document(run_of(windowed, LONG, noise=0.6)))
    assert found.head == "cannot tell"
    assert "too wide to tell" in found.detail


def test_half_of_the_layers_with_a_window_are_not_linear() -> None:
    run = run_of(lambda n: full(n) / 2, LONG)
    mixed = tuple(replace(m, flops=int(full(m.case.seq)), dense_flops=int(m.case.seq**2.4)) for m in run.measurements)
    found = line(document(replace(run, measurements=mixed)))
    assert (found.head, found.tone) == ("no, yet as cheap as a window of 256 tokens can be", "good")


def test_every_runtime_has_a_row_in_scaling() -> None:
    (row,) = records(tables(document(run_of(windowed, LONG)), "scaling")["Sparse attention"])
    assert row["reads"].text == "a window of 256 tokens"
    assert (row["judged at n"].text, row["linear?"].tone) == ("1024–2048", "good")


@pytest.mark.parametrize(
    "told", [None, 3, "text", [1], {"reads": None}, {"told_from": "many"}, {"reads": "<script>x</script>"}]
)
def test_odd_facts_are_no_fault(told: object) -> None:
    page = render(run_of(windowed, SHORT, told=told), "html").decode()
    assert "<script>x" not in page


def test_nobody_asks_a_decode_step_or_a_dense_model() -> None:
    assert QUESTION not in str(document(run_of(windowed, LONG, step=True)))
    assert QUESTION not in str(document(fake_run()))


def test_full_attention_goes_at_the_rate_of_products_in_the_precision_of_the_case() -> None:
    run = run_of(windowed, LONG)
    half = tuple(
        replace(m, case=replace(m.case, dtype="fp16"), expected_ns=float(m.flops or 0)) for m in run.measurements
    )
    name = half[0].case.runtime
    machine = {"matmul_gflops": {name: 100.0}, "precisions": {"fp16": {"matmul_gflops": {name: 1.0}}}}
    facts = [{**run.header["exports"][0], "dtype": "fp16"}]
    run = replace(run, header={**run.header, "environment": machine, "exports": facts}, measurements=half)
    (group,) = groups(run)
    found = reading(run, group, name)
    assert found is not None
    assert found.dense == pytest.approx(np.log2(full(2048) / full(1024)))
    assert found.sparse == pytest.approx(np.log2(windowed(2048) / windowed(1024)))
