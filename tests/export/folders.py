"""Checkpoint folders as transformers writes them: one or two layers, random weights, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from ..models.plain import randomise

VOCAB = 37
BERT = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 50, "vocab_size": VOCAB}
TABLE = {**BERT, "max_position_embeddings": 64}
LLAMA = {**BERT, "num_key_value_heads": 2, "max_position_embeddings": 32}
GPT2 = {"n_embd": 48, "n_layer": 1, "n_head": 6, "n_positions": 64, "vocab_size": VOCAB}
T5 = {"vocab_size": VOCAB, "d_model": 48, "d_kv": 8, "d_ff": 50, "num_layers": 1, "num_heads": 6}
GEMMA = {"head_dim": 8, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 7}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}

# Class, configuration, options. Two layers where they differ from each other, or where a cache is passed on.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "num_hidden_layers": 2}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**LLAMA, "num_hidden_layers": 1, "sliding_window": 5}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**LLAMA, **GEMMA, "num_hidden_layers": 2, "sliding_window": 5}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT2, "bos_token_id": 0, "eos_token_id": 0}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 48, "n_layer": 1, "n_head": 6, "vocab_size": VOCAB}),
    "bert": ("BertModel", "BertConfig", {**TABLE, "num_hidden_layers": 1}),
    "roformer": ("RoFormerModel", "RoFormerConfig", {**TABLE, "num_hidden_layers": 1}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**T5, "decoder_start_token_id": 0}),
    # No positions among its inputs, so the tables of its rotation have one row for all.
    "llama classifier": (
        "LlamaForSequenceClassification",
        "LlamaConfig",
        {**LLAMA, "num_hidden_layers": 1, "num_labels": 3, "pad_token_id": 0},
    ),
    "big_bird": ("BigBirdModel", "BigBirdConfig", {**TABLE, "num_hidden_layers": 1, "block_size": 2}),
    "dynamic_ntk": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "num_hidden_layers": 1, "rope_parameters": DYNAMIC}),
}


def write(name: str, folder: Path) -> Path:
    """A checkpoint folder of the model with this name."""
    model, config, options = MODELS[name]
    transformers.utils.logging.disable_progress_bar()
    built = randomise(getattr(transformers, model)(getattr(transformers, config)(**options)))
    built.float().save_pretrained(folder)
    return folder


def theirs(name: str, folder: Path) -> Any:
    """The model as transformers itself loads it, eager and in float64."""
    model = getattr(transformers, MODELS[name][0])
    return model.from_pretrained(folder, attn_implementation="eager").double().eval()


def tokens(shape: tuple[int, int], seed: int = 1) -> Tensor:
    """Random ids."""
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(seed))
