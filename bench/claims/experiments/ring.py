"""Claim 19: attention over a ring of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .. import ring_rank
from ..outcome import Claim, Part, Watch

RANKS = 4
LIMIT_S = 120


def experiment(_: Watch) -> Sequence[Part]:
    """Four processes with a quarter of the tokens each, against one process with all and plain attention."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [np.load(path) for path in _ranks(Path(folder))]
    joined = np.concatenate([part["y"] for part in parts], axis=1)
    whole = ring_rank.full().numpy()
    gap, held = float(np.abs(joined - whole).max()), [int(part["held"]) for part in parts]
    share = ring_rank.TOKENS // RANKS
    return (
        Part(
            f"Each of {RANKS} ranks holds n/{RANKS} of the sequence",
            held == [share] * RANKS,
            f"{ring_rank.TOKENS} tokens; keys held by each rank: {', '.join(map(str, held))}",
        ),
        Part("The result is that of full attention", gap < 1e-12, f"largest difference {gap:.1e} in float64"),
    )


def _ranks(folder: Path) -> list[Path]:
    """The results of all ranks.

    Raises:
        RuntimeError: a rank failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-P", "-m", ring_rank.__name__]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(RANKS), str(folder)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(RANKS)
    ]
    said = [process.communicate(timeout=LIMIT_S)[1] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank of the ring failed: {''.join(said).strip()[-300:]}")
    return [folder / f"{rank}.npz" for rank in range(RANKS)]


CLAIMS = (
    Claim(
        key="19",
        statement="Ring attention: each of P ranks holds n/P of the sequence; the result equals full attention.",
        experiment=experiment,
    ),
)
