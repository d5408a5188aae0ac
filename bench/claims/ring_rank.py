"""One process of a ring: `python -m isorun.bench.claims.ring_rank RANK RANKS FOLDER`."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ...models.attention import Softmax
from ...models.presets import PRESETS
from ...models.ring import Ring, connect

TOKENS, DIM, BLOCK = 256, 64, 16


def full() -> Tensor:
    """Plain attention to all tokens in one process."""
    x, mask = _inputs()
    module = _layer(Softmax())
    y: Tensor = module(x, module.plan(mask, TOKENS), lambda turned: turned, ())[0]
    return y


def main(rank: int, ranks: int, folder: Path) -> None:
    """Attend with this rank's part of the tokens, and leave the result and the number of keys that it holds."""
    torch.set_num_threads(1)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks, timeout=limit)
    module = _layer(Ring(block=BLOCK))
    connect(module, dist.group.WORLD)  # type: ignore[arg-type]
    x, mask = (part.chunk(ranks, dim=1)[rank] for part in _inputs())
    y, (keys, _values) = module(x, module.plan(mask, x.shape[1]), lambda turned: turned, ())
    np.savez(folder / f"{rank}.npz", y=y.numpy(), held=keys.shape[2])
    dist.destroy_process_group()


def _layer(mixer: Softmax) -> Any:
    """The same weights in every process."""
    torch.manual_seed(0)
    config = replace(PRESETS["gpt2"].scaled(dim=DIM, heads=4, layers=1), mixer=mixer)
    return mixer.build(config, causal=True).double().requires_grad_(False)


def _inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, TOKENS, DIM, generator=generator, dtype=torch.float64)
    return x, torch.ones(1, TOKENS, dtype=torch.int64)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
