"""Suites: what is planned, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isorun.bench.suite import Point, SuiteError, groups, lengths, load, sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", (64,)),
        ("128, 64,64", (64, 128)),
        ("64:1024:2x", (64, 128, 256, 512, 1024)),
        ("100:350:+100", (100, 200, 300)),
        ("3:100:4x", (3, 12, 48)),
    ],
)
def test_lengths(text: str, expected: tuple[int, ...]) -> None:
    assert lengths(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-4", "a", "64:32:2x", "1:8:1x", "1:8", "1:8:2", "1:8:+0", "8:1:+1", "1:2:3:4"]
)
def test_lengths_that_make_no_grid_are_refused_with_the_text(text: str) -> None:
    with pytest.raises(SuiteError, match="lengths"):
        lengths(text)


def test_quick_is_six_models_on_two_runtimes() -> None:
    suite = load("quick")
    planned = groups(suite)
    assert len(suite.models) == 6
    assert suite.runtimes == ("torch", "ort-cpu")
    assert [(group.config.name, group.phase) for group in planned if group.phase == "step"] == [
        (name, "step") for name in ("transformer-base", "gpt2", "llama3-8b", "mistral-7b", "lstm")
    ]
    assert sum(len(group.points) for group in planned) == 6 * 5 + 5 * 4


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"models": ["gtp2"]}, "unknown model 'gtp2'; did you mean gpt2"),
        ({"runtimes": ["ort_cpu"]}, "unknown runtime 'ort_cpu'; did you mean ort-cpu"),
        ({"size": "huge"}, "unknown size 'huge'; there are tiny, small, full"),
    ],
)
def test_unknown_names_are_refused_with_the_near_matches(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        load("quick", **chosen)


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(SuiteError, match="unknown suite 'quik'; did you mean quick"):
        load("quik")


def test_chosen_lengths_beyond_every_table_are_refused_naming_the_limit() -> None:
    with pytest.raises(SuiteError, match="1024 tokens exceed the table of 512 positions of bert-base"):
        load("quick", seq="64:1024:2x", models=["bert-base"])
    with pytest.raises(SuiteError, match="1025 tokens exceed the table of 1024 positions of gpt2"):
        load("quick", past="1024", models=["gpt2", "bert-base"])
    assert load("quick", seq="8192", models=["llama3-8b"]).seq == (8192,)


def test_chosen_lengths_that_some_models_can_have_are_measured_on_those() -> None:
    suite = load("quick", seq="64,1024", models=["bert-base", "gpt2"])
    longer = {group.model: group.too_long(1024) for group in groups(suite) if group.phase == "forward"}
    assert longer == {"bert-base": "1024 tokens exceed the table of 512 positions of bert-base", "gpt2": None}


def test_a_length_of_the_suite_itself_beyond_a_table_is_a_reason_not_a_refusal() -> None:
    bert = next(group for group in groups(load("quick")) if group.config.name == "bert-base")
    assert bert.too_long(512) is None
    assert bert.too_long(513) == "513 tokens exceed the table of 512 positions of bert-base"


def test_a_step_is_one_token_after_its_past() -> None:
    suite = replace(load("quick"), models=("gpt2",))
    forward, step = groups(suite)
    assert sizes(forward.case(Point(1, 64), "torch")) == {"batch": 1, "sequence": 64, "past": 0, "source": 64}
    assert sizes(step.case(Point(1, 64), "torch")) == {"batch": 1, "sequence": 1, "past": 64, "source": 64}
