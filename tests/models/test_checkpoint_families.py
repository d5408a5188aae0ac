"""What is particular to a family's checkpoints, and weights of one under the configuration of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Gemma2Config, Qwen2Config, Qwen3Config

from isorun.models.checkpoints import families, load
from isorun.models.config import ConfigError

from .test_checkpoints import SAVED, change, refused

OTHERS = {
    "gpt2 in llama": ("gpt2", "llama", "the tensors are those of gpt2"),
    "bert in gpt2": ("bert", "gpt2", "the tensors are those of bert"),
    "llama in bert": ("llama", "bert", "the tensors are those of llama or mistral"),
    "mistral in mixtral": ("mistral", "mixtral", "the tensors are those of llama or mistral"),
    "mixtral in mistral": ("mixtral", "mistral", "the tensors are those of mixtral"),
    "qwen3 in gemma2": ("qwen3", "gemma2", "the tensors are those of qwen3"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_checkpoint_of_another_family(case: str, tmp_path: Path) -> None:
    stored, said, found = OTHERS[case]
    SAVED[stored]().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SAVED[said]().config.to_dict()))
    refused(tmp_path, str(tmp_path), f"config.json says {said}, and {found}")


def test_an_expert_that_is_missing_is_named(tmp_path: Path) -> None:
    SAVED["mixtral"]().save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors.pop("model.layers.1.block_sparse_moe.experts.1.w2.weight"))
    refused(tmp_path, "layers.1.block_sparse_moe.experts.1.w2.weight is missing (mixtral)")


def test_a_gain_stored_without_its_one_is_widened_before_it_is_added(tmp_path: Path) -> None:
    """Gemma stores w and means 1 + w, which bfloat16 would round."""
    SAVED["gemma2"]().save_pretrained(tmp_path)
    small = torch.full((24,), 2.0**-12, dtype=torch.bfloat16)
    change(tmp_path, lambda tensors: tensors.update({"model.norm.weight": small}))
    assert torch.equal(load(tmp_path)[1].stack.final_norm.weight, torch.full((24,), 1 + 2.0**-12))


LAYERED = {
    "qwen2": lambda: Qwen2Config(use_sliding_window=True, sliding_window=7, num_hidden_layers=5, max_window_layers=2),
    "qwen3": lambda: Qwen3Config(use_sliding_window=True, sliding_window=7, num_hidden_layers=5, max_window_layers=2),
    "gemma2": lambda: Gemma2Config(num_hidden_layers=5),
}


@pytest.mark.parametrize("name", LAYERED)
def test_older_files_do_not_list_their_layers(name: str) -> None:
    """The published config.json of these families has no `layer_types`; transformers works them out, and so do we."""
    theirs = LAYERED[name]().to_dict()
    read = families()[name].config
    listed = read(theirs)
    assert len(set(listed.mixers)) == 2
    assert read({key: value for key, value in theirs.items() if key != "layer_types"}).mixers == listed.mixers


@pytest.mark.parametrize("name", ["bert", "gpt2", "openai-gpt"])
def test_groups_where_a_family_has_none(name: str, tmp_path: Path) -> None:
    SAVED[name]().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_key_value_heads": 1}))
    with pytest.raises(ConfigError, match=f"num_key_value_heads 1 with 3 heads: {name} has no groups"):
        load(tmp_path)
