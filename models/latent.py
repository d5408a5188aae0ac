"""Latent attention: keys and values from one small vector a token, which is all that the cache keeps.

Shapes: B batch, m new tokens, p past tokens, t = p + m, H heads, r rank, d dimensions without position, e with (RoPE),
v dimensions of a value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Cache, Plan, reachable, scaled
from .config import CacheTensor, ConfigError, Rotate, single
from .norm import RMSNorm

if TYPE_CHECKING:
    from .config import ModelConfig, Norm, Sizes


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, Liu et al. 2024, section 2.1):

        c = norm(W_c·x)            k_h = [W_k,h·c ; rope(W_e·x)]    v_h = W_v,h·c
        q_h = [q⁰_h ; rope(q¹_h)]  softmax(q_hᵀ·k_h·scale) over keys, scale = growth/√(d + e)

    The cache is c and the rotated key of the token, r + e numbers for all heads together. They are never expanded into
    keys and values of the heads: W_k goes to the query's side, q⁰ᵀ·(W_k·c) = (W_kᵀ·q⁰)ᵀ·c, and W_v to the output's. So
    a step reads the cache as it is, as one key head of r + e and one value head of r that all heads share; a prefill
    pays 2r + e for each score in place of d + e + v, and saves expanding.

    `config.head_dim` is e, the part that turns. `q_rank` compresses queries as well (DeepSeek-V2, but not its Lite
    version). `growth` is what YaRN adds to scores, where it is not in the rotation.
    """

    rank: int
    plain: int
    value: int
    q_rank: int | None = None
    growth: float = 1.0
    norm: Norm = RMSNorm(1e-6)  # noqa: RUF009  (frozen)

    @property
    def general_tokens(self) -> int:
        """Any length but one."""
        return 2

    def check(self, config: ModelConfig) -> None:
        """Every part has a size."""
        for name in ("rank", "plain", "value", "q_rank"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"{config.name}: {name} {size} of latent attention is below 1")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer."""
        return LatentAttention(config, self, causal=causal)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Projections, W_k and W_v at the new tokens, and scores over latents."""
        heads, dim, turning = config.heads, config.dim, config.head_dim
        query = heads * (self.plain + turning)
        of_query = dim * query if self.q_rank is None else self.q_rank * (dim + query)
        of_heads = heads * self.rank * (self.plain + self.value)
        projections = of_query + dim * (self.rank + turning) + of_heads + heads * self.value * dim
        return 2 * queries * (projections + heads * keys * (2 * self.rank + turning))

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """Latents and rotated keys: r + e numbers a token and layer."""
        return (
            CacheTensor("latent", ("batch", "past", self.rank)),
            CacheTensor("rotated", ("batch", "past", config.head_dim)),
        )

    def scaled(self, before: ModelConfig, after: Sizes) -> Latent:
        """Ranks keep their ratio to dim, the parts of a head to dim / heads."""

        def of_head(size: int) -> int:
            return max(1, size * before.heads * after.dim // (before.dim * after.heads))

        q_rank = None if self.q_rank is None else max(1, self.q_rank * after.dim // before.dim)
        rank = max(1, self.rank * after.dim // before.dim)
        return replace(self, rank=rank, plain=of_head(self.plain), value=of_head(self.value), q_rank=q_rank)


class LatentAttention(nn.Module):
    """Attention over latents."""

    def __init__(self, config: ModelConfig, spec: Latent, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.spec, self.turning = causal, spec, config.head_dim
        self.growth = single(spec.growth)
        bias, query = config.biases, config.heads * (spec.plain + config.head_dim)
        self.q: nn.Module = nn.Linear(config.dim, query, bias=False)
        if spec.q_rank is not None:
            down, up = nn.Linear(config.dim, spec.q_rank, bias=bias.qkv), nn.Linear(spec.q_rank, query, bias=False)
            self.q = nn.Sequential(down, spec.norm.build(spec.q_rank), up)
        self.down = nn.Linear(config.dim, spec.rank + config.head_dim, bias=bias.qkv)
        self.norm = spec.norm.build(spec.rank)
        self.up = nn.Linear(spec.rank, config.heads * (spec.plain + spec.value), bias=False)
        self.o = nn.Linear(config.heads * spec.value, config.dim, bias=bias.out)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Plan:
        """Which keys each query may see: bool (B, 1, m, t)."""
        return reachable(mask, tokens, causal=self.causal)

    def forward(self, x: Tensor, plan: Plan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, dim) → (B, m, dim), with latents (B, t, r) and rotated keys (B, t, e) of past and new tokens."""
        latent, rotated = torch.split(self.down(x), [self.spec.rank, self.turning], dim=-1)
        latent, rotated = self.norm(latent), rotate(rotated[:, None])[:, 0]
        if past:
            latent, rotated = torch.cat((past[0], latent), dim=1), torch.cat((past[1], rotated), dim=1)
        of_key, of_value = self._heads()
        k = torch.cat((latent, rotated), dim=-1)[:, None]  # B, 1, t, r + e
        q, turning = self._queries(x)
        q = torch.cat((q @ of_key, rotate(turning)), dim=-1)  # B, H, m, r + e
        y = F.scaled_dot_product_attention(q, k, latent[:, None], attn_mask=plan, scale=1.0, enable_gqa=True)
        y = y @ of_value.transpose(1, 2)  # B, H, m, v
        return self.o(y.transpose(1, 2).flatten(2)), (latent, rotated)

    def _queries(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled queries without and with position, (B, H, m, d) and (B, H, m, e)."""
        q = scaled(torch.unflatten(self.q(x), 2, (-1, self.spec.plain + self.turning)).transpose(1, 2), None)
        q = q if self.growth == 1.0 else q * self.growth
        plain, turning = torch.split(q, [self.spec.plain, self.turning], dim=-1)
        return plain, turning

    def _heads(self) -> tuple[Tensor, Tensor]:
        """W_k (H, d, r) and W_v (H, v, r)."""
        weight = torch.unflatten(self.up.weight, 0, (-1, self.spec.plain + self.spec.value))
        of_key, of_value = torch.split(weight, [self.spec.plain, self.spec.value], dim=1)
        return of_key, of_value
