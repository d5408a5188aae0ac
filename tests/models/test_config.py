"""Impossible configurations are refused where they are written, and a scaled one is the same architecture."""

from __future__ import annotations

import importlib.util
from dataclasses import FrozenInstanceError, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from isorun.models import presets
from isorun.models.attention import Softmax
from isorun.models.config import SIZES, ConfigError
from isorun.models.feedforward import GLU, MLP, NoFeedForward
from isorun.models.position import Rope, Sinusoidal
from isorun.models.presets import PRESETS
from isorun.models.recurrent import LSTM, RNN
from isorun.models.transformer import build
from isorun.models.window import Window

TINY = {name: config.at("tiny") for name, config in PRESETS.items()}

IMPOSSIBLE = {
    "heads do not divide dim": ("gpt2", {"dim": 64, "heads": 6}, ("heads 6", "dim 64")),
    "kv_heads do not divide heads": ("llama3-8b", {"mixer": Softmax(kv_heads=3)}, ("kv_heads 3", "heads 8")),
    "more kv_heads than heads": ("llama3-8b", {"mixer": Softmax(kv_heads=16)}, ("kv_heads 16", "heads 8")),
    "no kv_heads": ("llama3-8b", {"mixer": Softmax(kv_heads=0)}, ("kv_heads 0", "heads 8")),
    "window and kv_heads": ("mistral-7b", {"mixer": Window(window=4, kv_heads=5)}, ("kv_heads 5", "heads 8")),
    "no window": ("mistral-7b", {"mixer": Window(window=0)}, ("window 0", "below 1")),
    "odd rotary head": ("llama3-8b", {"dim": 72}, ("head_dim 9", "RoPE")),
    "odd sinusoidal dim": ("gpt2", {"dim": 63, "heads": 7, "position": Sinusoidal()}, ("dim 63", "sinusoidal")),
    "no layers": ("gpt2", {"layers": 0}, ("layers 0", "below 1")),
    "no heads": ("gpt2", {"heads": 0}, ("heads 0", "below 1")),
    "no vocabulary": ("gpt2", {"vocab": -1}, ("vocab -1", "below 1")),
    "no MLP": ("gpt2", {"ffn": MLP("relu", 0)}, ("hidden size 0", "below 1")),
    "no GLU": ("llama3-8b", {"ffn": GLU("silu", 0)}, ("hidden size 0", "below 1")),
    "parallel with cross-attention": ("transformer-base", {"residual": "parallel"}, ("parallel", "encoder-decoder")),
    "residual around nothing": ("gpt2", {"ffn": NoFeedForward()}, ("'pre'", "feed-forward")),
    "pooler on a decoder": ("gpt2", {"pooler": True}, ("pooler", "decoder")),
    "RNN both ways": ("bert-base", {"mixer": RNN()}, ("RNN", "encoder")),
    "a window of one layer in two": ("gpt3-small", {"mixer": (Softmax(), Window(window=0))}, ("window 0", "below 1")),
    "groups of one layer in two": ("gpt2", {"mixer": (Softmax(), Softmax(kv_heads=3))}, ("kv_heads 3", "heads 8")),
    "no layer at all": ("gpt2", {"ffn": ()}, ("ffn", "no entry")),
    "LSTM both ways": ("bert-base", {"mixer": LSTM()}, ("LSTM", "encoder")),
    "LSTM with cross-attention": ("transformer-base", {"mixer": LSTM()}, ("LSTM", "encoder-decoder")),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refused_at_construction_with_the_values(case: str) -> None:
    preset, changes, values = IMPOSSIBLE[case]
    with pytest.raises(ConfigError) as refusal:
        replace(TINY[preset], **changes)
    for value in (TINY[preset].name, *values):
        assert value in str(refusal.value)


@pytest.mark.parametrize("preset", ["bert-base", "transformer-base"])
def test_a_window_is_refused_where_it_would_look_ahead(preset: str) -> None:
    config = replace(TINY[preset], mixer=Window(window=4))
    with pytest.raises(ConfigError, match=f"window looks back.*{config.topology}"):
        build(config)


@pytest.mark.parametrize("changes", [{"dim": 72, "position": Rope()}, {"dim": 9, "heads": 9, "position": Sinusoidal()}])
def test_the_odd_sizes_are_fine_without_that_position(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(TINY["gpt2"], **changes)
    del changes["position"]
    replace(TINY["gpt2"], **changes)


def test_a_scaled_size_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="heads 5 does not divide dim 64"):
        TINY["gpt2"].scaled(heads=5)


def test_an_unknown_size_is_not_ignored() -> None:
    with pytest.raises(TypeError, match="hidden"):
        TINY["gpt2"].scaled(hidden=3)


@pytest.mark.parametrize("heads", [4, 8, 12, 64])
@pytest.mark.parametrize("preset", ["llama3-8b", "mistral-7b"])
def test_groups_stay_of_four(preset: str, heads: int) -> None:
    mixer = PRESETS[preset].scaled(dim=heads * 4, heads=heads).mixer
    assert isinstance(mixer, Softmax)
    assert mixer.kv_heads == heads // 4


def test_groups_and_windows_do_not_vanish() -> None:
    mixer = PRESETS["mistral-7b"].scaled(dim=4, heads=2, context=4).mixer
    assert mixer == Window(window=1, kv_heads=1)


@pytest.mark.parametrize(
    ("preset", "ratio"),
    [("gpt2", 4), ("bert-base", 4), ("transformer-base", 4), ("llama3-8b", 3.5), ("mistral-7b", 3.5)],
)
@pytest.mark.parametrize("dim", [64, 96, 1024])
def test_the_hidden_size_keeps_its_ratio(preset: str, ratio: float, dim: int) -> None:
    ffn = PRESETS[preset].scaled(dim=dim, heads=8).ffn
    assert isinstance(ffn, MLP | GLU)
    assert ffn.hidden == ratio * dim


@pytest.mark.parametrize("context", [128, 2048, 65_536])
def test_the_window_keeps_an_eighth_of_the_context(context: int) -> None:
    mixer = PRESETS["mistral-7b"].scaled(context=context).mixer
    assert isinstance(mixer, Window)
    assert mixer.window == context / 8


@pytest.mark.parametrize("preset", PRESETS)
def test_named_sizes(preset: str) -> None:
    config = PRESETS[preset]
    assert config.at("full") is config
    for size in ("tiny", "small"):
        smaller = config.at(size)
        expected = {**SIZES[size], "context": min(SIZES[size]["context"], config.context)}
        assert {field: getattr(smaller, field) for field in expected} == expected
        kept = ("name", "topology", "position", "norm", "residual", "bias", "tie_embeddings", "embedding", "pooler")
        assert all(getattr(smaller, field) == getattr(config, field) for field in kept)
        for few, all_ in ((smaller.mixers, config.mixers), (smaller.ffns, config.ffns)):
            assert all(type(a) is type(b) for a, b in zip(few, all_, strict=False))


def test_the_limit_is_that_of_the_position_table() -> None:
    expected = {"gpt1": 512, "gpt2": 1024, "gpt3-175b": 2048, "bert-base": 512, "mini-gpt": 16}
    expected |= dict.fromkeys(("llama3-8b", "mistral-7b", "gemma2-2b", "palm-8b", "transformer-base", "lstm", "rnn"))
    assert {name: PRESETS[name].max_tokens for name in expected} == expected


def test_a_head_of_its_own_size_keeps_its_ratio_and_stays_even() -> None:
    gemma = PRESETS["gemma2-2b"]
    assert (gemma.head_dim, gemma.dim // gemma.heads) == (256, 288)
    assert gemma.at("tiny").head_dim == 8  # 256 / 288 · 64 / 8 is 7.1
    assert gemma.scaled(dim=1152, heads=4).head_dim == 256


def test_a_cycle_of_layers() -> None:
    full, window = PRESETS["gpt3-175b"].mixers[:2]
    assert PRESETS["gpt3-175b"].mixers == (full, window) * 48
    assert (type(full), type(window)) == (Softmax, Window)
    windows = [getattr(mixer, "window", None) for mixer in PRESETS["gemma2-2b"].mixers]
    assert windows == [4096, None] * 13


def test_names_are_unique() -> None:
    files = [import_module(f"{presets.__name__}.{found.name}") for found in iter_modules(presets.__path__)]
    names = [config.name for file in files for config in file.PRESETS]
    assert len(set(names)) == len(names) == len(PRESETS)
    assert all(PRESETS[name].name == name for name in names)


def test_a_second_preset_of_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("isorun.models.presets.gpt2"), "PRESETS", (PRESETS["gpt2"],) * 2)
    spec = importlib.util.find_spec("isorun.models.presets")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ConfigError, match="two presets are named gpt2"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_config_is_a_value() -> None:
    with pytest.raises(FrozenInstanceError):
        TINY["gpt2"].dim = 3  # type: ignore[misc]
    assert TINY["gpt2"] == PRESETS["gpt2"].at("tiny")
    assert hash(TINY["gpt2"]) == hash(PRESETS["gpt2"].at("tiny"))
