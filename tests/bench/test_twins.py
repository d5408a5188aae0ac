"""What lies between two processes: the estimate against moments and planted numbers, and what it is for, the rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from isorun.bench.records import Case, Measurement
from isorun.bench.timing import compare, log_error
from isorun.bench.twins import CAP, EFFICIENCY, PRIOR, USUAL, Spread, Twin, estimate, spread

MODELS, LENGTHS, BLOCKS = 6, 2, 7  # twelve cases, as of a short run
NOISE = 0.01


def twins(values: np.ndarray, error: float) -> tuple[Twin, ...]:
    """Values (models, lengths) as the cases of a run."""
    return tuple(Twin((str(i),), "ort-cpu", float(value), error) for i, row in enumerate(values) for value in row)


def told(values: np.ndarray, error: float) -> Spread:
    found = estimate(twins(values, error))
    assert found is not None
    return found


def measurement(own: np.ndarray, twin: np.ndarray | None = None, **about: object) -> Measurement:
    case = {"model": "m", "size": "tiny", "phase": "forward", "dtype": "fp32", "runtime": "ort-cpu", "batch": 1}
    blocks = [tuple((int(1e9 * time),) for time in times) for times in (own, twin) if times is not None]
    return Measurement(
        case=Case(**{"seq": 8, "past": 0, **case, **about}),  # type: ignore[arg-type]
        status="ok",
        blocks_ns=blocks[0],
        twin_ns=blocks[1] if len(blocks) > 1 else (),
    )


@pytest.mark.parametrize("deviation", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("error", [0.001, 0.01])
def test_many_models_tell_the_deviation_whatever_the_noise_of_their_blocks(deviation: float, error: float) -> None:
    rng = np.random.default_rng(0)
    between, within = rng.normal(0, deviation, (2000, 1)), rng.normal(0, error, (2000, 2))
    assert told(between + within, error).deviation == pytest.approx(deviation, rel=0.06)


def test_it_is_the_estimate_of_moments_where_nothing_is_capped_and_errors_are_equal() -> None:
    values, error = np.array([[0.030], [-0.021], [0.012], [-0.027], [0.024]]), 0.004
    mean = stats.norm.expect(lambda z: np.minimum(z**2, CAP))  # of a capped square
    found = told(values, error).deviation
    seen = sum(value**2 / (found**2 + error**2) for value in values.ravel())
    assert seen + PRIOR * USUAL**2 / found**2 == pytest.approx(len(values) * mean + PRIOR, rel=1e-2)
    assert found == pytest.approx(math.sqrt(np.mean(values**2) - error**2), rel=0.05)


def test_few_models_say_little() -> None:
    """One pair that happens to agree is no proof: the half-width is t with few degrees of freedom."""
    one = told(np.array([[0.0001, 0.0002, 0.0001]]), 0.001)
    assert one.freedom == EFFICIENCY + PRIOR
    assert one.apart > 0.04
    assert one.apart == pytest.approx(stats.t.ppf(0.975, one.freedom) * one.deviation)
    many = told(np.full((30, 1), 0.0001), 0.001)
    assert many.apart < 0.01


def test_lengths_of_one_model_count_as_one() -> None:
    assert told(np.full((1, 20), 0.03), 0.001).freedom == told(np.full((1, 1), 0.03), 0.001).freedom
    assert told(np.full((1, 20), 0.03), 0.001).deviation == pytest.approx(
        told(np.full((1, 1), 0.03), 0.001).deviation, rel=1e-2
    )


@pytest.mark.parametrize("value", [0.5, 5.0, 500.0])
def test_an_interrupted_case_does_not_blow_it_up(value: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 0.02, (MODELS, 1)) * np.ones((1, LENGTHS))
    before = told(values, 0.002).deviation
    values[0, 0] = value
    assert told(values, 0.002).deviation < 1.6 * before


def test_a_noisy_case_says_nothing() -> None:
    quiet = twins(np.full((6, 1), 0.01), 0.001)
    noisy = tuple(Twin((f"noisy {i}",), "ort-cpu", 0.2, 0.2) for i in range(6))
    before, after = estimate(quiet), estimate(quiet + noisy)
    assert before is not None
    assert after is not None
    assert after.deviation < 1.3 * before.deviation


def test_the_cases_of_a_run_are_those_with_two_processes() -> None:
    rng = np.random.default_rng(2)
    drift = np.exp(rng.normal(0, 0.2, BLOCKS))
    own, other = drift * np.exp(rng.normal(0, NOISE, BLOCKS)), 1.03 * drift * np.exp(rng.normal(0, NOISE, BLOCKS))
    found = spread(
        [
            measurement(own),
            measurement(own, other),
            measurement(own, other, seq=16),
            measurement(own, other, batch=4),
            measurement(own[:2], other[:2], model="short"),
            measurement(own, 0 * other, model="zero"),
        ]
    )
    ratios = np.log(own / other)
    assert found is not None
    assert (found.cases, found.freedom, found.runtimes) == (3, 2 * EFFICIENCY + PRIOR, ("ort-cpu",))
    assert found.typical == pytest.approx(abs(np.median(ratios)), rel=1e-3)
    assert spread([measurement(own)]) is None
    assert spread([]) is None


def simulated(rng: np.random.Generator, deviation: float, alike: bool, slowed: float = 1.0) -> list[str]:
    """The words of a run's comparisons of two runtimes, one of which has a twin; processes differ by `deviation`."""

    def process() -> np.ndarray:
        own = rng.normal(0, deviation / math.sqrt(2), (MODELS, 1 if alike else LENGTHS, 1))
        return np.exp(own + rng.normal(0, NOISE, (MODELS, LENGTHS, BLOCKS)))

    first, twin, other = process(), process(), slowed * process()
    cases = tuple(
        Twin((str(i),), "ort-cpu", float(np.log(np.median(ratios))), log_error(ratios.tolist()))
        for i, model in enumerate(first / twin)
        for ratios in model
    )
    found = estimate(cases)
    assert found is not None
    pairs = zip(first.reshape(-1, BLOCKS).tolist(), other.reshape(-1, BLOCKS).tolist(), strict=True)
    return [compare(one, two, apart=found.apart).word for one, two in pairs]


@pytest.mark.parametrize(
    ("deviation", "alike", "runs"), [(0.0, True, 300), (0.02, True, 300), (0.02, False, 300), (0.05, True, 1000)]
)
def test_equal_runtimes_in_processes_of_their_own_are_seldom_told_apart(
    deviation: float, alike: bool, runs: int
) -> None:
    """`alike`: all lengths of a model are off by the same, as by what its weights' place in memory costs."""
    rng = np.random.default_rng(3)
    words = [word for _ in range(runs) for word in simulated(rng, deviation, alike)]
    assert words.count("faster") + words.count("slower") <= 0.05 * len(words)


@pytest.mark.parametrize("deviation", [0.01, 0.02, 0.05])
def test_blocks_alone_tell_them_apart(deviation: float) -> None:
    """Without the control: what the intervals were before."""
    rng = np.random.default_rng(4)
    apart = 0
    for _ in range(200):
        offsets = np.exp(rng.normal(0, deviation / math.sqrt(2), (2, 1)))
        one, two = offsets * np.exp(rng.normal(0, 0.003, (2, BLOCKS)))
        apart += compare(one.tolist(), two.tolist()).word in ("faster", "slower")
    assert apart > 0.4 * 200


@pytest.mark.parametrize("deviation", [0.01, 0.02, 0.05])
def test_a_difference_well_beyond_that_is_seen(deviation: float) -> None:
    rng = np.random.default_rng(5)
    for factor, share in ((3, 0.5), (4.5, 0.9)):  # standard deviations
        slowed = math.exp(factor * math.hypot(deviation, NOISE))
        words = [word for _ in range(60) for word in simulated(rng, deviation, alike=True, slowed=slowed)]
        assert words.count("slower") >= share * len(words)
        assert words.count("faster") == 0
