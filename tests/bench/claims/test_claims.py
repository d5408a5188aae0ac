"""The claims: complete, collected, judged by their parts, and each verdict that of an independent source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from isorun.bench.claims.outcome import Call, Claim, Part, Result, Watch
from isorun.bench.claims.run import ROUNDS, claims, gathered, run, watch

EXPERIMENTS = Path(__file__).parents[3] / "bench" / "claims" / "experiments"
QUICK = ("1", "2", "4", "7", "10", "11", "13", "15", "20", "21")


def never(calls: Mapping[str, Call], seconds: float = 0.4) -> Mapping[str, tuple[float, ...]]:
    """No quick claim takes times."""
    raise AssertionError("a watch was asked for")


def steady(laws: Mapping[str, float]) -> Watch:
    """A watch by which a call "name n" takes n to the power of its name's law, and "name" as many nanoseconds."""

    def timed(calls: Mapping[str, Call], seconds: float = 0.4) -> Mapping[str, tuple[float, ...]]:
        for call in calls.values():
            call()
        return {label: (_time(label, laws),) * 7 for label in calls}

    return timed


def _time(label: str, laws: Mapping[str, float]) -> float:
    name, _, n = label.rpartition(" ")
    return float(int(n) ** laws[name]) if n.isdigit() and name in laws else laws[label]


def tried(keys: Sequence[str], watch: Watch = never) -> dict[str, Result]:
    known = {claim.key: claim for claim in claims()}
    return {result.key: result for result in run((known[key] for key in keys), watch)}


def held(result: Result) -> list[bool]:
    return [part.holds for part in result.parts]


def test_there_are_21_claims_and_9_errors_each_once() -> None:
    keys = [claim.key for claim in claims()]
    assert keys == [*map(str, range(1, 22)), *(f"E{number}" for number in range(1, 10))]
    assert all(claim.right for claim in claims() if claim.kind == "error")
    assert not any(claim.right for claim in claims() if claim.kind == "claim")


def test_every_file_of_the_folder_has_claims() -> None:
    files = {path.stem for path in EXPERIMENTS.glob("*.py")} - {"__init__"}
    assert {claim.experiment.__module__.rsplit(".", 1)[1] for claim in claims()} == files


@pytest.fixture(scope="module")
def quick() -> dict[str, Result]:
    return tried([*QUICK, *(f"E{number}" for number in range(1, 10))])


@pytest.mark.parametrize("key", [*QUICK, *(f"E{number}" for number in range(1, 10))])
def test_a_quick_experiment_runs_and_measures(quick: dict[str, Result], key: str) -> None:
    result = quick[key]
    assert result.reason is None
    assert all(re.search(r"\d|-LN", part.evidence) for part in result.parts)


@pytest.mark.parametrize("key", [key for key in QUICK if key != "21"])
def test_what_is_right_is_confirmed(quick: dict[str, Result], key: str) -> None:
    assert quick[key].word == "confirmed"


@pytest.mark.parametrize("key", [f"E{number}" for number in range(1, 10)])
def test_what_is_wrong_is_refuted(quick: dict[str, Result], key: str) -> None:
    assert quick[key].word == "refuted"


def test_the_counter_of_the_mini_gpt_leaves_out_a_norm(quick: dict[str, Result]) -> None:
    shape, counter = quick["21"].parts
    assert shape.holds
    assert not counter.holds
    block = 4 * 64**2 + 2 * 64 * 256 + 2 * 2 * 64
    whole = 100 * 64 + 16 * 64 + 2 * block + 2 * 64 + 64 * 100
    assert f"{whole - 128:,} of {whole:,}" in counter.evidence


def test_figures_are_those_of_an_independent_calculation(quick: dict[str, Result]) -> None:
    assert "1,048,576" in quick["2"].parts[0].evidence
    assert "128" in quick["E6"].parts[0].evidence
    assert f"{10_000 ** (-126 / 128):.7f}" in quick["E7"].parts[0].evidence
    assert f"{2 * 32 * 32 * 128 * 4096 * 2 / 2**30:.3f} GiB" in quick["13"].parts[-2].evidence
    assert "6.283" in quick["E4"].parts[0].evidence


def test_rope_decays_for_like_keys_alone() -> None:
    assert held(tried(["5"])["5"]) == [True, True, True, True, False]


def test_a_learned_table_refuses_and_the_rest_goes_on() -> None:
    result = tried(["6"])["6"]
    assert result.word == "confirmed"
    assert "IndexError" in result.parts[-1].evidence


FAST = {"masked": 2.0, "skipping": 1.0}


@pytest.mark.parametrize(
    ("key", "laws", "expected"),
    [
        ("16", {"masked": 2.0, "skipping": 1.0}, [True, True, True]),
        ("16", {"masked": 2.0, "skipping": 2.0}, [True, False, True]),
        ("17", {"Longformer": 1.0, "BigBird": 1.1}, [True, True]),
        ("17", {"Longformer": 1.9, "BigBird": 1.0}, [False, True]),
        ("18", {"MHA": 2e6, "GQA": 1e6, "MQA": 1e6}, [True, True]),
    ],
)
def test_times_decide_where_the_statement_is_about_time(key: str, laws: dict[str, float], expected: list[bool]) -> None:
    assert held(tried([key], steady(laws))[key]) == expected


def test_a_speed_is_told_with_its_word() -> None:
    said = tried(["18"], steady({"MHA": 2e6, "GQA": 1e6, "MQA": 4e6}))["18"].parts[1].evidence
    assert "GQA 2.00× (2.00–2.00, blocks of one process) (faster)" in said
    assert "MQA 0.50× (0.50–0.50, blocks of one process) (slower)" in said


def of(*parts: bool) -> Result:
    given = tuple(Part("it holds", holds, "1") for holds in parts)
    return Result(key="1", kind="claim", statement="", right="", parts=given, seconds=0.0)


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((True, True), "confirmed"),
        ((False, False), "refuted"),
        ((True, False), "confirmed in part"),
        ((), "not tried"),
    ],
)
def test_the_verdict_is_that_of_the_parts(parts: tuple[bool, ...], word: str) -> None:
    assert of(*parts).word == word


def test_an_experiment_that_fails_is_a_row_with_a_reason_and_the_rest_goes_on() -> None:
    def broken(_: Watch) -> Sequence[Part]:
        raise RuntimeError("no memory")

    def fine(_: Watch) -> Sequence[Part]:
        return (Part("it holds", True, "1"),)

    chosen = [Claim(key="1", statement="", experiment=broken), Claim(key="2", statement="", experiment=fine)]
    found = gathered(run(chosen))
    assert [(r.word, r.reason) for r in found.results] == [
        ("not tried", "RuntimeError: no memory"),
        ("confirmed", None),
    ]
    assert not found.complete


def test_the_watch_takes_as_many_blocks_of_each_call() -> None:
    counts = {"a": 0, "b": 0}

    def call(name: str) -> Call:
        def counted() -> None:
            counts[name] += 1
            sum(range(1000))

        return counted

    times = watch({name: call(name) for name in counts}, 0.01)
    assert {name: len(blocks) for name, blocks in times.items()} == {"a": ROUNDS, "b": ROUNDS}
    assert all(1e2 < block < 1e9 for blocks in times.values() for block in blocks)
    assert min(counts.values()) > ROUNDS
