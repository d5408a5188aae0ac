"""The three topologies, assembled from a configuration's specs, and the cached step.

Shapes: B batch, m new tokens, p past tokens, t = p + m, s source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Cache, Plan, visible
from .block import Block, ParallelBlock
from .config import Mixer, ModelConfig
from .head import Head, Pooler
from .moe import ExpertLinear
from .recurrent import LSTMLayer, RNNLayer
from .relative_attention import TransformerXLAttention


class Stack(nn.Module):
    """The layers of one encoder or decoder, from embeddings to normalised states."""

    def __init__(self, config: ModelConfig, *, causal: bool, cross: bool = False) -> None:
        super().__init__()
        block = ParallelBlock if config.residual.startswith("parallel") else Block
        ends_in_norm = config.residual in ("pre", "sandwich", "parallel", "parallel2")
        self.causal = causal
        self.position = config.position.build(config)
        self.embedding_norm = config.embedding.norm.build(config.dim)
        self.layers = nn.ModuleList(block(config, i, causal=causal, cross=cross) for i in range(config.layers))
        self.mixers = config.mixers
        self.final_norm = config.norm.build(config.dim) if ends_in_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        positions: Tensor,
        past: Sequence[Cache] = (),
        source: tuple[Tensor, Sequence[Cache]] | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """x (B, m, dim), mask (B, t), positions (B, m), `past` and source keys a layer → (B, m, dim), caches."""
        x = self.embedding_norm(self.position(x, positions))
        plans = self._plans(x, mask)
        rotate = self.position.rotation(positions)
        present = []
        for i, (spec, layer) in enumerate(zip(self.mixers, self.layers, strict=True)):
            extra = () if source is None else ((source[0], source[1][i]),)
            x, cache = layer(x, plans[spec], rotate, past[i] if past else (), *extra)
            present.append(cache)
        return self.final_norm(x), present

    def _plans(self, x: Tensor, mask: Tensor) -> dict[Mixer, Plan]:
        """What the layers of each mixer share in this call."""
        bias = self.position.bias(x, mask, causal=self.causal)
        blocks = {
            spec: cast("Block | ParallelBlock", layer) for spec, layer in zip(self.mixers, self.layers, strict=True)
        }
        return {spec: block.mixer.plan(mask, x.shape[1], bias) for spec, block in blocks.items()}  # type: ignore[operator]


class Encoder(nn.Module):
    """Bidirectional: every token sees every real token (BERT)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = config.embedding.build(config)
        self.stack = Stack(config, causal=False)
        self.pooler = Pooler(config) if config.pooler else None

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        """ids and mask (B, n), token types (B, n) where the model has them → states (B, n, dim)."""
        x, _ = self.stack(self.embedding(ids, types), mask, _counted(ids))
        y: Tensor = x
        return y


class Decoder(nn.Module):
    """Causal language model: forward without a past, step with one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = config.embedding.build(config)
        self.stack = Stack(config, causal=True)
        self.head = Head(config, self.embedding)

    def forward(
        self, ids: Tensor, mask: Tensor, positions: Tensor, past: Sequence[Cache] = ()
    ) -> tuple[Tensor, list[Cache]]:
        """ids and positions (B, m), mask (B, t), a cache a layer → logits (B, m, V) and the caches of t tokens."""
        x, present = self.stack(self.embedding(ids), mask, positions, past)
        return self.head(x), present


class EncoderDecoder(nn.Module):
    """Encoder and decoder with cross-attention; source and target share one embedding (Vaswani et al. 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = config.embedding.build(config)
        self.encoder = Stack(config, causal=False)
        self.decoder = Stack(config, causal=True, cross=True)
        self.head = Head(config, self.embedding)

    def encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Cache]]:
        """ids and mask (B, s) → states (B, s, dim), and keys and values of cross-attention a decoder layer."""
        x, _ = self.encoder(self.embedding(ids), mask, _counted(ids))
        return x, [layer.cross.keys(x) for layer in self.decoder.layers]  # type: ignore[operator, union-attr]

    def decode(
        self, ids: Tensor, mask: Tensor, source_mask: Tensor, source: Sequence[Cache], past: Sequence[Cache] = ()
    ) -> tuple[Tensor, list[Cache]]:
        """ids (B, m), mask (B, t), source mask (B, s) and keys, a cache a layer → logits (B, m, V), caches."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, mask.shape[1] - ids.shape[1] :]
        keys = visible(source_mask, ids.shape[1])
        x, present = self.decoder(self.embedding(ids), mask, positions, past, (keys, source))
        return self.head(x), present


_TOPOLOGIES = {"encoder": Encoder, "decoder": Decoder, "encoder-decoder": EncoderDecoder}


def build(config: ModelConfig, *, seed: int = 0) -> nn.Module:
    """The model of a configuration in eval mode, with random weights that depend on the seed alone.

    On the `meta` device (`with torch.device("meta")`) it is built without memory and left without values.
    """
    model = _TOPOLOGIES[config.topology](config).eval().requires_grad_(False)
    if not any(parameter.is_meta for parameter in model.parameters()):
        initialise(model, config, seed)
    return model


def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Random weights that let every part matter: a fault anywhere must reach the output.

    Matrices have variance 1/fan-in, so scores and activations stay of order 1; gains vary around 1 and biases around 0.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        initialise_module(module, config, generator)


def initialise_module(module: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """The weights that a module itself holds, drawn in turn: `initialise` goes through all modules in their order."""
    table_std = config.dim**-0.5 if config.embedding.scale else 1.0
    if isinstance(module, nn.Linear):
        fan_in = module.fan_in if isinstance(module, ExpertLinear) else module.in_features
        nn.init.normal_(module.weight, 0, fan_in**-0.5, generator=generator)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, 0, table_std, generator=generator)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        nn.init.normal_(module.weight, 1, 0.1, generator=generator)
    elif isinstance(module, LSTMLayer | RNNLayer | TransformerXLAttention):
        module.initialise(generator)
    bias = getattr(module, "bias", None)
    if isinstance(module, nn.Linear | nn.LayerNorm) and bias is not None:
        nn.init.normal_(bias, 0, 0.1, generator=generator)


def _counted(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
