"""Ring attention: tiled attention over a sequence that is spread over several processes.

Shapes: B batch, P ranks, s tokens a rank, n = P·s tokens, G kv_heads, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .attention import Plan
from .tiled import Tiled, TiledAttention, TiledPlan, begin, finish

if TYPE_CHECKING:
    from .config import ModelConfig

RingPlan = list[TiledPlan | None]  # how the keys of each rank are seen, in the order in which they come; None: not


@dataclass(frozen=True, kw_only=True)
class Ring(Tiled):
    """Softmax attention with n/P tokens on each of P ranks (Liu, Zaharia and Abbeel 2023, algorithm 1).

    Rank i holds tokens i·s … (i + 1)·s - 1. Keys and values travel from rank to rank, and each keeps the online softmax
    of its own queries, block by block as in tiled.py; what comes next is under way while a rank computes:

                 rank 0   rank 1   rank 2
        step 0    kv 0     kv 1     kv 2
        step 1    kv 2     kv 0     kv 1
        step 2    kv 1     kv 2     kv 0

    A rank's memory is O(s·block), and it sends (P - 1)·2·B·G·s·D numbers a layer. Where attention is causal, the keys
    of a later rank are not looked at, so the last rank has most to do.

    `connect` puts the layers of a model on a process group. Without one, and so in an export, one process holds all
    tokens, and this is tiled attention.
    """

    def build(self, config: ModelConfig, *, causal: bool) -> nn.Module:
        """The attention layer, in one process."""
        return RingAttention(config, self, causal=causal)


class RingAttention(TiledAttention):
    """Tiled attention whose keys and values go round."""

    group: dist.ProcessGroup | None = None

    def plan(self, mask: Tensor, tokens: int, bias: Tensor | None = None) -> Plan:
        """In a group: how this rank sees the keys of every rank, from the mask (B, s) of its own.

        Raises:
            ValueError: past keys, which have no place in a ring, or ranks with different numbers of tokens.
        """
        if self.group is None:
            return super().plan(mask, tokens, bias)
        if mask.shape[1] != tokens:
            raise ValueError(f"ring attention takes no past, and the mask has {mask.shape[1]} keys for {tokens} tokens")
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        counts = [int(count) for count in _gathered(torch.tensor([tokens], device=mask.device), self.group)]
        if len(set(counts)) > 1:
            raise ValueError(f"ring attention takes as many tokens on each rank, and there are {counts}")
        masks, own = _gathered(mask.contiguous(), self.group), torch.arange(tokens, device=mask.device)
        sources = [(rank - step) % ranks for step in range(ranks)]
        # Queries are numbered from the first key of the rank that the keys come from.
        return [
            None if self.causal and source > rank else self.blocks(masks[source], own + (rank - source) * tokens)
            for source in sources
        ]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        """softmax(scale·q·kᵀ)·v of this rank's queries over the keys of all ranks: (B, H, s, D)."""
        if self.group is None:
            return super().attend(q, k, v, plan)
        q = self.by_group(q)
        state, held = begin(q), torch.stack((k, v))  # one tensor, so one message: 2, B, G, s, D
        for step, seen in enumerate(plan):
            coming, transfers = self._pass_on(held) if step + 1 < len(plan) else (held, [])
            if seen is not None:
                state = self.absorb(state, q, held[0], held[1], seen)
            for transfer in transfers:
                transfer.wait()
            held = coming
        return finish(state)

    def _pass_on(self, held: Tensor) -> tuple[Tensor, list[dist.Work]]:
        """Begin to send to the next rank and to receive from the one before."""
        group, coming = self.group, torch.empty_like(held)
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        sending = dist.P2POp(dist.isend, held, group=group, group_peer=(rank + 1) % ranks)
        receiving = dist.P2POp(dist.irecv, coming, group=group, group_peer=(rank - 1) % ranks)
        return coming, dist.batch_isend_irecv([sending, receiving])


def connect(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Put every ring layer of a model on a process group: gloo on CPUs, nccl on GPUs.

    After that each rank calls the model with its own part of ids, mask and positions, the same length on all.
    """
    for module in model.modules():
        if isinstance(module, RingAttention):
            module.group = group


def _gathered(tensor: Tensor, group: dist.ProcessGroup) -> list[Tensor]:
    """The tensors of all ranks, of one shape."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    return parts
