"""The guided tour's own NumPy Mini-GPT, transcribed, against our preset: same weights, same logits.

Its code runs as it stands, with one thing to know: it masks with -1e9 in place of -inf, where exp(-1e9) is exactly 0
in float64, so no number differs (its other snippet, `np.triu(…) * (-np.inf)`, is NaN on and below the diagonal and is
not used here). What is left out is cross-attention, which its GPT never calls. Its count of parameters misses the final
norm, which is no array of the model itself.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from isorun.models.config import ModelConfig
from isorun.models.cost import parameters
from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

Array = NDArray[np.float64]
MINI: ModelConfig = PRESETS["mini-gpt"]
VOCAB_SIZE, D_MODEL, NUM_HEADS, NUM_LAYERS, SEQ_LEN, D_FF = 100, 64, 4, 2, 16, 256


class MultiHeadAttention:
    def __init__(self) -> None:
        self.W_Q, self.W_K, self.W_V, self.W_O = (np.random.randn(D_MODEL, D_MODEL) * 0.02 for _ in range(4))

    def forward(self, x: Array, causal_mask: Array) -> Array:
        batch, seq, _ = x.shape
        Q, K, V = (
            (x @ W).reshape(batch, seq, NUM_HEADS, D_MODEL // NUM_HEADS).transpose(0, 2, 1, 3)
            for W in (self.W_Q, self.W_K, self.W_V)
        )
        scores = Q @ K.transpose(0, 1, 3, 2) / np.sqrt(D_MODEL // NUM_HEADS)
        scores = scores + causal_mask
        scores = scores - scores.max(axis=-1, keepdims=True)
        attn = np.exp(scores)
        attn /= attn.sum(axis=-1, keepdims=True)
        context = attn @ V
        context = context.transpose(0, 2, 1, 3).reshape(batch, seq, D_MODEL)
        return context @ self.W_O


class LayerNorm:
    def __init__(self) -> None:
        self.gamma = np.ones(D_MODEL)
        self.beta = np.zeros(D_MODEL)

    def forward(self, x: Array) -> Array:
        mean = x.mean(axis=-1, keepdims=True)
        var = x.var(axis=-1, keepdims=True)
        return self.gamma * (x - mean) / np.sqrt(var + 1e-6) + self.beta


class FeedForward:
    def __init__(self) -> None:
        self.W1 = np.random.randn(D_MODEL, D_FF) * 0.02
        self.W2 = np.random.randn(D_FF, D_MODEL) * 0.02

    def forward(self, x: Array) -> Array:
        return np.maximum(0, x @ self.W1) @ self.W2


class TransformerBlock:
    def __init__(self) -> None:
        self.ln1, self.attn, self.ln2, self.ffn = LayerNorm(), MultiHeadAttention(), LayerNorm(), FeedForward()

    def forward(self, x: Array, causal_mask: Array) -> Array:
        x = x + self.attn.forward(self.ln1.forward(x), causal_mask=causal_mask)
        return x + self.ffn.forward(self.ln2.forward(x))


class MiniGPT:
    def __init__(self) -> None:
        self.token_embed = np.random.randn(VOCAB_SIZE, D_MODEL) * 0.02
        self.pos_embed = np.random.randn(SEQ_LEN, D_MODEL) * 0.02
        self.blocks = [TransformerBlock() for _ in range(NUM_LAYERS)]
        self.final_ln = LayerNorm()
        self.lm_head = np.random.randn(D_MODEL, VOCAB_SIZE) * 0.02

    def forward(self, token_ids: NDArray[np.int64]) -> Array:
        _, seq = token_ids.shape
        x = self.token_embed[token_ids]
        x = x + self.pos_embed[:seq]
        causal_mask = np.triu(np.ones((seq, seq)), k=1) * (-1e9)
        for block in self.blocks:
            x = block.forward(x, causal_mask=causal_mask)
        x = self.final_ln.forward(x)
        return x @ self.lm_head


def theirs() -> MiniGPT:
    """The document's model; its norms, all ones and zeros at first, are moved so that they matter."""
    np.random.seed(42)
    model = MiniGPT()
    for norm in (model.final_ln, *(norm for block in model.blocks for norm in (block.ln1, block.ln2))):
        norm.gamma = norm.gamma + 0.1 * np.random.randn(D_MODEL)
        norm.beta = norm.beta + 0.1 * np.random.randn(D_MODEL)
    return model


def poured(model: MiniGPT) -> torch.nn.Module:
    """Our preset with the same weights; torch's linear layers keep theirs as (out, in)."""
    values: dict[str, Array] = {
        "embedding.word.weight": model.token_embed,
        "stack.position.table.weight": model.pos_embed,
        "stack.final_norm.weight": model.final_ln.gamma,
        "stack.final_norm.bias": model.final_ln.beta,
        "head.linear.weight": model.lm_head.T,
    }
    for i, block in enumerate(model.blocks):
        layer = f"stack.layers.{i}"
        for ours, matrix in zip("qkvo", (block.attn.W_Q, block.attn.W_K, block.attn.W_V, block.attn.W_O), strict=True):
            values[f"{layer}.mixer.{ours}.weight"] = matrix.T
        for joint, norm in (("mixer_joint", block.ln1), ("ffn_joint", block.ln2)):
            values |= {f"{layer}.{joint}.norm.weight": norm.gamma, f"{layer}.{joint}.norm.bias": norm.beta}
        values |= {f"{layer}.ffn.up.weight": block.ffn.W1.T, f"{layer}.ffn.down.weight": block.ffn.W2.T}
    ours = build(MINI).double()
    ours.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in values.items()})
    return ours


def close(got: Tensor, expected: Array) -> bool:
    return bool(np.abs(got.numpy() - expected).max() < 1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(2, 8), (1, 1), (3, 16), (2, 5)], ids=str)
def test_logits(shape: tuple[int, int]) -> None:
    model = theirs()
    ids = np.random.default_rng(0).integers(0, VOCAB_SIZE, shape)
    expected = model.forward(ids)
    assert expected.shape == (*shape, 100)
    tokens = torch.from_numpy(ids)
    where = torch.arange(shape[1]).expand(shape)
    ours = poured(model)
    (logits,) = phase_module(MINI, "forward", model=ours)(tokens, torch.ones_like(tokens), where)
    assert close(logits, expected)
    step = phase_module(MINI, "step", model=ours)
    past = [torch.zeros(shape[0], 4, 0, 16, dtype=torch.float64)] * 4
    for i in range(shape[1]):
        logits, *past = step(tokens[:, i : i + 1], torch.ones_like(tokens[:, : i + 1]), where[:, i : i + 1], *past)
        assert close(logits[:, 0], expected[:, i])


def test_parameters() -> None:
    """112,768, of which the document's own loop counts 112,640: the final norm is an object that it does not open."""
    table, positions, head = VOCAB_SIZE * D_MODEL, SEQ_LEN * D_MODEL, D_MODEL * VOCAB_SIZE
    block = 4 * D_MODEL * D_MODEL + 2 * D_MODEL * D_FF + 2 * 2 * D_MODEL
    counted = table + positions + head + NUM_LAYERS * block
    assert counted == 112_640
    assert parameters(MINI) == counted + 2 * D_MODEL == 112_768


def test_the_table_ends_where_theirs_does() -> None:
    ids = np.zeros((1, 17), np.int64)
    with pytest.raises(ValueError, match="16"):
        theirs().forward(ids)
    assert MINI.max_tokens == SEQ_LEN
