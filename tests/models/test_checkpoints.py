"""Checkpoint folders as transformers writes them, and those that are refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    RoFormerConfig,
    RoFormerForMaskedLM,
    RoFormerModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.core_model_loading import revert_weight_conversion

from isorun.models.checkpoints import CONFIG_BYTES, CheckpointError, copy, families, load
from isorun.models.config import ConfigError
from isorun.models.phases import phase_module, phases
from isorun.models.transformer import build

Change = Callable[[dict[str, Tensor]], None]

BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 32, "vocab_size": 37}
LLAMA = {**BERT, "num_attention_heads": 6, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}
GPT1 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 37}
GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 37, "bos_token_id": 0, "eos_token_id": 0}
T5 = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 3, "vocab_size": 37}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 512}

SAVED: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: BertModel(BertConfig(**BERT)),
    "bert with its pre-training heads": lambda: BertForPreTraining(BertConfig(**BERT)),
    "bert without a pooler": lambda: BertForMaskedLM(BertConfig(**BERT)),
    "openai-gpt": lambda: OpenAIGPTLMHeadModel(OpenAIGPTConfig(**GPT1)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2 without a head": lambda: GPT2Model(GPT2Config(**GPT2)),
    "gpt2, untied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, tie_word_embeddings=False)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "llama, biases": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=False)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**LLAMA, num_local_experts=3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA, head_dim=6)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**LLAMA, head_dim=6, sliding_window=5)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=5)),
    "mistral, no window": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5)),
    "bloom": lambda: BloomForCausalLM(BloomConfig(hidden_size=24, n_layer=2, n_head=3, vocab_size=37)),
    "roformer": lambda: RoFormerModel(RoFormerConfig(**BERT)),
    "roformer with its pre-training head": lambda: RoFormerForMaskedLM(RoFormerConfig(**BERT)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**{**BERT, "hidden_size": 48})),
    "gptj": lambda: GPTJForCausalLM(GPTJConfig(**GPT2, rotary_dim=4)),
    "glm": lambda: GlmForCausalLM(GlmConfig(**LLAMA, pad_token_id=0, head_dim=8)),
    "llama, yarn": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, rope_parameters=YARN)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound checkpoint."""
    SAVED["llama"]().save_pretrained(tmp_path)
    return tmp_path


def copied(hf: PreTrainedModel) -> nn.Module:
    family = families()[hf.config.model_type]
    tensors = revert_weight_conversion(hf, hf.state_dict())  # named as in a file
    config = family.refine(family.config(hf.config.to_dict()), [name.removeprefix(family.prefix) for name in tensors])
    model = build(config)
    copy(model, family, tensors)
    return model


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("shard", ["1GB", "8KB"])
def test_a_loaded_model_is_the_copied_one(name: str, shard: str, tmp_path: Path) -> None:
    hf = SAVED[name]()
    hf.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "8KB")
    config, model = load(tmp_path)
    expected = copied(hf)
    assert replace(config, pooler=False) == replace(
        families()[hf.config.model_type].config(hf.config.to_dict()), pooler=False
    )
    assert config.pooler == (name in ("bert", "bert with its pre-training heads"))
    for ours, theirs in ((model.parameters(), expected.parameters()), (model.buffers(), expected.buffers())):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype == (torch.float32 if a.is_floating_point() else torch.int64)
            assert torch.equal(a, b)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for phase in phases(config):
        a, b = (phase_module(config, phase, model=each) for each in (model, expected))
        feeds = [torch.from_numpy(array) for array in a.signature.feeds(a.example, padding="left").values()]
        assert all(map(torch.equal, a(*feeds), b(*feeds)))


def test_a_tied_head_stays_tied(tmp_path: Path) -> None:
    SAVED["gpt2"]().save_pretrained(tmp_path)
    _, model = load(tmp_path)
    assert model.head.linear.weight is model.embedding.word.weight


def test_half_precision_is_widened(folder: Path) -> None:
    change(folder, lambda tensors: tensors.update({name: tensor.half() for name, tensor in tensors.items()}))
    stored = load_file(folder / "model.safetensors")
    _, model = load(folder)
    assert torch.equal(model.head.linear.weight, stored["lm_head.weight"].float())


def test_a_loaded_model_does_not_hang_on_its_file(folder: Path) -> None:
    _, model = load(folder)
    before = model.head.linear.weight.clone()
    change(folder, lambda tensors: [tensor.zero_() for tensor in tensors.values()])
    assert torch.equal(model.head.linear.weight, before)


def change(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    """Rewrite the tensors in place, in the same file."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(tensors)
    other = folder / "other"
    save_file(tensors, other)
    path.write_bytes(other.read_bytes())
    other.unlink()


TENSORS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "missing": (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), ("layers.1.mlp.up_proj.weight", "missing")),
    "misshapen": (
        lambda t: t.update({"model.layers.0.self_attn.k_proj.weight": torch.zeros(9, 24)}),
        ("layers.0.self_attn.k_proj.weight", "(9, 24)", "(8, 24)"),
    ),
    "unknown": (
        lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.zeros(4)}),
        ("layers.0.self_attn.q_norm.weight", "no place", "llama"),
    ),
    "a layer too many": (
        lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(32, 24)}),
        ("layers.2.mlp.up_proj.weight", "no place"),
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_fit(case: str, folder: Path) -> None:
    edit, words = TENSORS[case]
    change(folder, edit)
    refused(folder, str(folder), *words)


def test_copy_refuses_as_well() -> None:
    hf = SAVED["gpt2"]()
    family = families()["gpt2"]
    model = build(family.config(hf.config.to_dict()))
    tensors = hf.state_dict()
    with pytest.raises(CheckpointError, match=r"h\.1\.attn\.c_attn\.weight gives shape .*should be"):
        copy(model, family, {**tensors, "transformer.h.1.attn.c_attn.weight": torch.zeros(24, 71)})
    del tensors["transformer.ln_f.bias"]
    with pytest.raises(CheckpointError, match=r"tensor ln_f\.bias is missing \(gpt2\)"):
        copy(model, family, tensors)


class Trap:
    """What a pickle may do to whoever opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_opened(folder: Path) -> None:
    sprung = folder / "sprung"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(sprung)))
    load(folder)
    (folder / "model.safetensors").unlink()
    refused(folder, str(folder), "no *.safetensors", "never opened")
    assert not sprung.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert sprung.exists()  # it would have worked


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\xff" * 8 + b"{}"])
def test_damaged_weights(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "model.safetensors")


def test_truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(folder, "model.safetensors")


CONFIGS = {
    "no JSON": (b"{model_type", "JSONDecodeError"),
    "no text": (b"\xff\xfe\xff", "UnicodeDecodeError"),
    "a list": (b"[1, 2]", "TypeError"),
    "no family": (b'{"hidden_size": 3}', "model_type"),
    "an unknown family": (b'{"model_type": "mamba"}', "'mamba' is none of be"),
    "a size too few": (b'{"model_type": "llama", "num_hidden_layers": 2}', "hidden_size"),
    "too large": (b" " * (CONFIG_BYTES + 1), "larger"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_config_that_is_none(case: str, folder: Path) -> None:
    content, word = CONFIGS[case]
    (folder / "config.json").write_bytes(content)
    refused(folder, str(folder / "config.json"), word)


def test_no_config(tmp_path: Path) -> None:
    refused(tmp_path, str(tmp_path / "config.json"), "not there")


def test_config_of_an_impossible_model(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_key_value_heads": 4}))
    with pytest.raises(ConfigError, match="kv_heads 4 does not divide heads 6"):
        load(folder)


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        load(folder)
    for word in words:
        assert word in str(refusal.value)
