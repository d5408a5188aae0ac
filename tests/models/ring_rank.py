"""One rank of a ring: `ring_rank.py RANK RANKS FOLDER` attends with its part of every input in FOLDER."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from isorun.models.config import ModelConfig
from isorun.models.position import NoPosition
from isorun.models.presets import PRESETS
from isorun.models.ring import Ring, RingAttention, connect
from isorun.models.transformer import build

HEADS, HEAD_DIM, BLOCK = 6, 4, 5
# name: causal, kv_heads, tokens a rank, padding on the left of the rows
CASES = {
    "causal": (True, None, 12, (0, 3, 9)),
    "both ways": (False, None, 12, (0, 3, 9)),
    "a rank of padding": (True, 2, 7, (0, 8, 15)),
    "both ways, a rank of padding": (False, 1, 7, (0, 8, 13)),
    "one token a rank": (True, None, 1, (0, 0, 0)),
}
PRESET = PRESETS["ring"].at("tiny")
TOKENS = 20  # a rank, for the preset


def config(kv_heads: int | None) -> ModelConfig:
    base = PRESET.scaled(dim=HEADS * HEAD_DIM, heads=HEADS)
    return replace(base, position=NoPosition(), mixer=Ring(kv_heads=kv_heads, block=BLOCK))


def layer(name: str) -> RingAttention:
    """The layer of a case, the same in every process."""
    causal, kv_heads, _, _ = CASES[name]
    built = config(kv_heads)
    module = built.mixers[0].build(built, causal=causal).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    assert isinstance(module, RingAttention)
    return module


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    group, results = dist.group.WORLD, {}
    assert group is not None
    with np.load(folder / "inputs.npz") as inputs:
        parts = {name: np.array_split(inputs[name], ranks, axis=1)[rank] for name in inputs.files}
    for name in CASES:
        module = layer(name)
        connect(module, group)
        x, mask = torch.from_numpy(parts[f"{name}.x"]), torch.from_numpy(parts[f"{name}.mask"])
        y, _ = module(x, module.plan(mask, x.shape[1]), lambda rotated: rotated, ())
        results[name] = y.numpy()
    model = build(PRESET).double()
    connect(model, group)
    ids, mask, positions = (torch.from_numpy(parts[name]) for name in ("ids", "mask", "positions"))
    results["preset"] = model(ids, mask, positions)[0].numpy()
    results["refused"] = np.array([refusal(layer("causal"), group, rank, past) for past in (True, False)])
    np.savez(folder / f"rank{rank}.npz", **results)
    dist.destroy_process_group()


def refusal(module: RingAttention, group: dist.ProcessGroup, rank: int, past: bool) -> str:
    """What is said of past keys, or of one token more on each rank."""
    connect(module, group)
    tokens = 3 if past else 3 + rank
    try:
        module.plan(torch.ones(1, tokens + 2 * past, dtype=torch.int64), tokens)
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
