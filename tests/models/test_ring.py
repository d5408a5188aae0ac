"""Ring attention on two and on four gloo ranks against attention to all keys in NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from isorun.models.cost import flops, parameters
from isorun.models.phases import phase_module
from isorun.models.presets import PRESETS
from isorun.models.signature import positions
from isorun.models.transformer import build

from . import ring_rank
from .plain import Array, attention, causal, distance, linear, merge, split
from .ring_rank import CASES, HEAD_DIM, HEADS, PRESET, TOKENS

RANK = Path(ring_rank.__file__)
RANKS = (2, 4)
Returned = tuple[int, dict[str, list[Array]]]  # the number of ranks, and what each of them returned, by case


@cache
def inputs(ranks: int) -> dict[str, Array]:
    """Every case at P times its tokens a rank, and a batch of ids for the preset."""
    rng, made = np.random.default_rng(ranks), {}
    for name, (_, _, tokens, padding) in CASES.items():
        n = ranks * tokens
        made[f"{name}.x"] = rng.standard_normal((3, n, HEADS * HEAD_DIM))
        made[f"{name}.mask"] = (np.arange(n) >= np.array(padding)[:, None]).astype(np.int64)
    n = ranks * TOKENS
    made["ids"] = rng.integers(0, PRESET.vocab, (3, n))
    made["mask"] = (np.arange(n) >= np.array([0, 5, TOKENS + 3])[:, None]).astype(np.int64)
    made["positions"] = positions(made["mask"], n)
    return made


@pytest.fixture(scope="module", params=RANKS)
def ring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[str, list[Array]]]:
    """The number of ranks, and what each of them returned, by case."""
    ranks, folder = request.param, tmp_path_factory.mktemp("ring")
    np.savez(folder / "inputs.npz", **inputs(ranks))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    commands = [[sys.executable, str(RANK), str(rank), str(ranks), str(folder)] for rank in range(ranks)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, said
    loaded = []
    for rank in range(ranks):
        with np.load(folder / f"rank{rank}.npz") as file:
            loaded.append({name: file[name] for name in file.files})
    return ranks, {name: [each[name] for each in loaded] for name in loaded[0]}


@pytest.mark.parametrize("name", CASES)
def test_a_ring_is_full_attention(ring: Returned, name: str) -> None:
    ranks, returned = ring
    is_causal, _, tokens, _ = CASES[name]
    module, x, mask = ring_rank.layer(name), inputs(ranks)[f"{name}.x"], inputs(ranks)[f"{name}.mask"]
    n = ranks * tokens
    q, k, v = (split(linear(x, part), HEAD_DIM) for part in (module.q, module.k, module.v))
    allowed = causal(mask, n) if is_causal else np.broadcast_to(mask[:, None, None] > 0, (3, 1, n, n))
    expected = linear(merge(attention(q, k, v, allowed)), module.o)
    assert all(part.shape[1] == tokens for part in returned[name])
    assert distance(np.concatenate(returned[name], 1), expected) < 1e-12


def test_a_decoder_on_a_ring_is_gpt2_in_one_process(ring: Returned) -> None:
    """Logits of the whole preset, a part on each rank, against plain attention with the same weights."""
    ranks, returned = ring
    config = PRESETS["gpt2"].at("tiny")
    model = build(config, seed=1).double()
    model.load_state_dict(build(PRESET).double().state_dict())
    tensors = [torch.from_numpy(inputs(ranks)[name]) for name in ("ids", "mask", "positions")]
    (expected,) = phase_module(config, "forward", model=model)(*tensors)
    assert distance(np.concatenate(returned["preset"], 1), expected) < 1e-12


def test_past_keys_and_unequal_parts_are_refused_on_every_rank(ring: Returned) -> None:
    ranks, returned = ring
    for past, unequal in returned["refused"]:
        assert past == "ring attention takes no past, and the mask has 5 keys for 3 tokens"
        assert (
            unequal
            == f"ring attention takes as many tokens on each rank, and there are {[3 + r for r in range(ranks)]}"
        )


def test_one_process_has_the_cost_of_tiled_attention() -> None:
    assert parameters(PRESETS["ring"]) == 124_439_808
    for sizes in ({"batch": 2, "sequence": 300}, {"batch": 1, "sequence": 1, "past": 200}):
        phase = "step" if "past" in sizes else "forward"
        assert flops(PRESETS["ring"], phase, sizes) == flops(PRESETS["flash"], phase, sizes)
