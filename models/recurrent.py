"""Recurrent mixers: LSTM, and the simple network of Elman.

Shapes: B batch, m new tokens, d the model's dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from .config import CacheTensor, ConfigError, Rotate

if TYPE_CHECKING:
    from .attention import Cache
    from .config import ModelConfig, Sizes

# exp(±SATURATED) is 0 or infinite in every precision up to float64, so a gate that it is added to is exactly 0 or 1.
SATURATED = 1e4


@dataclass(frozen=True)
class LSTM:
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates):

        i, f, o = σ(W·x + U·h + b)    g = tanh(W·x + U·h + b)    c' = f·c + i·g    h' = o·tanh(c')

    A token after another: O(m) sequential steps, a state of fixed size in place of a growing cache.
    """

    general_tokens = 2

    def check(self, config: ModelConfig) -> None:
        """A recurrence runs forward in time."""
        if config.topology != "decoder":
            raise ConfigError(f"{config.name}: an LSTM mixer is causal and cannot build an {config.topology}")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """One LSTM layer."""
        return LSTMLayer(config.dim)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """Four gates from the input (with its padding flag) and from the state."""
        return 2 * queries * 4 * config.dim * (2 * config.dim + 1)

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """Hidden and cell state: 2·dim numbers a layer, whatever the past."""
        return CacheTensor("hidden", ("batch", config.dim)), CacheTensor("cell", ("batch", config.dim))

    def scaled(self, before: ModelConfig, after: Sizes) -> LSTM:
        """It has no size of its own."""
        return self


class PaddingPlan(NamedTuple):
    """`padding` (B, m, 1) is 1 at padding, `last` (B, 1, d) the index of the last real token, `any` (B, 1) if any."""

    padding: Tensor
    last: Tensor
    any: Tensor


class LSTMLayer(nn.Module):
    """One LSTM layer that padding on either side passes through.

    The input carries a padding flag as one more feature. Its weights are fixed: they close the input gate and open the
    forget gate, so the cell state goes through padding unchanged, and from the zero state the output stays zero.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight_input = nn.Parameter(torch.empty(4 * dim, dim + 1))  # rows i, f, g, o; the last column is the flag
        self.weight_hidden = nn.Parameter(torch.empty(4 * dim, dim))
        self.bias = nn.Parameter(torch.empty(4 * dim))

    def initialise(self, generator: torch.Generator) -> None:
        """Random weights of variance 1/d, and the fixed column."""
        dim = self.weight_hidden.shape[1]
        with torch.no_grad():
            self.weight_input.normal_(0, dim**-0.5, generator=generator)
            self.weight_hidden.normal_(0, dim**-0.5, generator=generator)
            self.bias.normal_(0, 0.1, generator=generator)
            self.weight_input[:, -1] = torch.tensor([-SATURATED, SATURATED, 0.0, 0.0]).repeat_interleave(dim)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> PaddingPlan:
        """Where the padding is among the new tokens."""
        new = mask[:, mask.shape[1] - tokens :]  # B, m
        index = torch.arange(tokens, device=mask.device)
        last = (new * index).amax(dim=1)[:, None, None]  # B, 1, 1
        return PaddingPlan((1 - new)[..., None], last.expand(-1, -1, self.weight_hidden.shape[1]), new.amax(1)[:, None])

    def forward(self, x: Tensor, plan: PaddingPlan, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, d) → (B, m, d), with hidden and cell state (B, d) after the last real token."""
        hidden, cell = past or (x.new_zeros(x.shape[0], x.shape[2]),) * 2
        flagged = torch.cat((x, plan.padding.to(x.dtype)), dim=-1)
        y, cell = lstm(flagged, hidden, cell, self.weight_input, self.weight_hidden, self.bias)
        ended = y.gather(1, plan.last).squeeze(1)
        return y, (torch.where(plan.any > 0, ended, hidden), cell)


@dataclass(frozen=True)
class RNN:
    """The simple recurrent network (Elman 1990), O(m) sequential steps with a state of fixed size:

    h' = tanh(W·x + U·h + b)
    """

    general_tokens = 2

    def check(self, config: ModelConfig) -> None:
        """A recurrence runs forward in time."""
        if config.topology != "decoder":
            raise ConfigError(f"{config.name}: an RNN mixer is causal and cannot build an {config.topology}")

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """One layer."""
        return RNNLayer(config.dim)

    def flops(self, config: ModelConfig, queries: int, keys: int) -> int:
        """One matrix for the input and one for the state."""
        return 2 * queries * 2 * config.dim * config.dim

    def cache(self, config: ModelConfig) -> tuple[CacheTensor, ...]:
        """The hidden state: dim numbers a layer, whatever the past."""
        return (CacheTensor("hidden", ("batch", config.dim)),)

    def scaled(self, before: ModelConfig, after: Sizes) -> RNN:
        """It has no size of its own."""
        return self


class Packing(NamedTuple):
    """`order` (B, m, d): which token stands at each step; `place` (B, m, d): at which step each token stands.

    `last` (B, 1, d) is the step of the last real token, and `any` (B, 1) whether there is one.
    """

    order: Tensor
    place: Tensor
    last: Tensor
    any: Tensor


class RNNLayer(nn.Module):
    """One layer that padding anywhere leaves alone.

    It has no gate that could hold the state, so the real tokens are moved to the first steps, and back afterwards. The
    steps behind them repeat the first token, which nobody reads.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight_input = nn.Parameter(torch.empty(dim, dim))
        self.weight_hidden = nn.Parameter(torch.empty(dim, dim))
        self.bias = nn.Parameter(torch.empty(dim))

    def initialise(self, generator: torch.Generator) -> None:
        """Random weights of variance 1/d."""
        dim = len(self.bias)
        with torch.no_grad():
            self.weight_input.normal_(0, dim**-0.5, generator=generator)
            self.weight_hidden.normal_(0, dim**-0.5, generator=generator)
            self.bias.normal_(0, 0.1, generator=generator)

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Packing:
        """Where each new token goes, from how many real ones come before it."""
        new = mask[:, mask.shape[1] - tokens :]  # B, m
        place = (new.cumsum(1) - 1).clamp(min=0)
        behind = torch.where(new > 0, place, tokens)  # padding goes to a step m, which is cut off
        index = torch.arange(tokens, device=mask.device).expand_as(new)
        order = new.new_zeros(new.shape[0], tokens + 1).scatter(1, behind, index)[:, :tokens]
        order, place = (x[..., None].expand(-1, -1, len(self.bias)) for x in (order, place))
        return Packing(order, place, place[:, -1:], new.amax(1)[:, None])

    def forward(self, x: Tensor, plan: Packing, rotate: Rotate, past: Cache) -> tuple[Tensor, Cache]:
        """x (B, m, d) → (B, m, d), with the hidden state (B, d) after the last real token."""
        (hidden,) = past or (x.new_zeros(x.shape[0], x.shape[2]),)
        packed = x.gather(1, plan.order)
        y: Tensor = rnn(packed, hidden, self.weight_input, self.weight_hidden, self.bias)
        ended = y.gather(1, plan.last).squeeze(1)
        return y.gather(1, plan.place), (torch.where(plan.any > 0, ended, hidden),)


@torch.library.custom_op("isorun::rnn", mutates_args=())
def rnn(x: Tensor, hidden: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias: Tensor) -> Tensor:
    """torch's kernel with a free number of steps, as `lstm` below: outputs (B, m, d)."""
    weights = [weight_input, weight_hidden, bias, torch.zeros_like(bias)]
    y, _ = torch.rnn_tanh(x, hidden[None], weights, True, 1, 0.0, False, False, True)
    return y.contiguous()


@rnn.register_fake
def _(x: Tensor, hidden: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], hidden.shape[1])


@torch.library.custom_op("isorun::lstm", mutates_args=())
def lstm(
    x: Tensor, hidden: Tensor, cell: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """torch's LSTM kernel with a free number of steps: outputs (B, m, d) and the last cell state (B, d).

    An operator of our own because torch.export unrolls `torch.lstm` and so fixes m at the traced length.
    """
    weights = [weight_input, weight_hidden, bias, torch.zeros_like(bias)]
    y, _, last = torch.lstm(x, (hidden[None], cell[None]), weights, True, 1, 0.0, False, False, True)
    return y.contiguous(), last[0].clone()


@lstm.register_fake
def _(
    x: Tensor, hidden: Tensor, cell: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], x.shape[1], hidden.shape[1]), torch.empty_like(cell)
