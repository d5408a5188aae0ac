"""A suite's file: what it may hold, and what is refused with the file, the key and the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from isorun.bench.suite import SuiteError, groups, load, names

RIGHT = {
    "models": '["gpt2", "lstm@tiny"]',
    "runtimes": '["torch"]',
    "seq": '"16,32"',
    "past": "[8, 4]",
    "batch": "2",
    "budget_s": "30.5",
}


def _file(folder: Path, **changes: str | None) -> str:
    content = {key: value for key, value in {**RIGHT, **changes}.items() if value is not None}
    path = folder / "mine.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in content.items()))
    return str(path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    suite = load(_file(tmp_path))
    assert (suite.name, suite.size, suite.dtypes, suite.batch) == ("mine", "small", ("fp32",), (2,))
    assert (suite.seq, suite.past, suite.budget_s, suite.limited) == ((16, 32), (4, 8), 30.5, False)
    assert [group.name for group in groups(suite)] == [
        "gpt2@small-forward", "gpt2@small-step", "lstm@tiny-forward", "lstm@tiny-step"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": "3"}, "models = 3 should be a list of texts"),
        ({"models": '"gpt2"'}, "models = 'gpt2' should be a list of texts"),
        ({"models": '["gpt2", 3]'}, "models = ['gpt2', 3] should be a list of texts"),
        ({"models": "[]"}, "models = [] should be a list of texts"),
        ({"models": None}, "models is missing; it is a list of texts"),
        ({"runtimes": None}, "runtimes is missing"),
        ({"models": '["gpt2@huge"]'}, "gpt2@huge: size 'huge' is none of tiny, small, full"),
        ({"models": '["hf:nowhere"]'}, "hf:nowhere: no such folder"),
        ({"runtimes": '["ort_cpu"]'}, "unknown runtime 'ort_cpu'; did you mean ort-cpu"),
        ({"dtypes": '["fp31"]'}, "unknown dtype 'fp31'; did you mean fp32"),
        ({"size": "7"}, "size = 7 should be a text"),
        ({"size": '"huge"'}, "unknown size 'huge'"),
        ({"batch": "0"}, "batch = 0 should be a whole number of at least 1, or several"),
        ({"batch": "[]"}, "batch = [] should be a whole number of at least 1, or several"),
        ({"batch": "[1, 0]"}, "batch [1, 0]: 0 is below 1"),
        ({"batch": "[1, 2.5]"}, "batch = [1, 2.5] should be"),
        ({"batch": "[1, true]"}, "batch = [1, True] should be"),
        ({"batch": '"many"'}, "batch 'many': write 64,128"),
        ({"batch": "1.5"}, "batch = 1.5 should be a whole number"),
        ({"batch": "true"}, "batch = True should be a whole number"),
        ({"seq": "[0, 4]"}, "seq [0, 4]: 0 is below 1"),
        ({"seq": "[]"}, "seq = [] should be lengths"),
        ({"seq": '"64:1:2x"'}, "seq '64:1:2x': there is no number in it"),
        ({"seq": "[1.5]"}, "seq = [1.5] should be lengths"),
        ({"budget_s": '"long"'}, "budget_s = 'long' should be a positive number"),
        ({"budget_s": "-1"}, "budget_s = -1 should be a positive number"),
        ({"limited": "1"}, "limited = 1 should be true or false"),
        ({"sequence": '"4"'}, "unknown key 'sequence'; did you mean seq"),
        ({"seq": None, "past": None}, "neither seq nor past is given, so there is nothing to measure"),
        ({"models": '["bert-base"]', "seq": None}, "none of the models decodes, so there is nothing to measure"),
    ],
)
def test_a_fault_is_named_with_the_file_the_key_and_the_value(
    tmp_path: Path, changes: dict[str, str | None], message: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        load(_file(tmp_path, **changes))
    assert message in str(caught.value)


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    with pytest.raises(SuiteError, match=r"broken\.toml: No such file"):
        load(str(path))
    path.write_text("models = [")
    with pytest.raises(SuiteError, match=r"broken\.toml: not TOML: "):
        load(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SuiteError, match="not TOML"):
        load(str(path))


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        folder = tmp_path / parent / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "gpt2"}')
        (folder / "model.safetensors").write_bytes(b"")
    models = f'["hf:{tmp_path}/a/model", "hf:{tmp_path}/b/model"]'
    with pytest.raises(SuiteError, match="both called 'model-forward'"):
        load(_file(tmp_path, models=models, past=None))


@pytest.mark.parametrize("name", names())
def test_every_suite_of_the_package_can_be_planned(name: str) -> None:
    suite = load(name)
    assert all(group.points for group in groups(suite))


def test_the_suites_that_are_asked_for_are_there() -> None:
    assert {"quick", "standard", "long", "decode", "gpu", "zoo"} <= set(names())
    assert max(load("long").seq) == 16384
    assert max(load("standard").seq) == 4096
    assert len(load("standard").models) >= 46
    gpu = load("gpu")
    assert gpu.limited
    assert gpu.budget_s < 480
    assert max(gpu.seq) == 131072
