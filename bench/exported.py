"""What the header of a run says about each exported graph, so that a report needs none of the files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..export.artifact import MANIFEST, ExportedModel
from ..models.config import ModelConfig
from ..models.cost import flops
from ..models.sparsity import dense, reads
from .complexity import slope
from .fusions import in_pieces
from .growth import SEPARATE
from .suite import Group

LEAST, LONGEST = 5, 2**20  # the power of two that a search for a length begins with, and the length that it ends at


def facts(group: Group, folder: Path) -> dict[str, Any] | None:
    """The graph's identity and free axes, what its manifest says of it, where the model's positions end (None: never),
    what it computes in pieces, and what its sparse attention reads (None: all keys) with the n from which its time
    tells it from full attention.

    None when the export failed.

    Raises:
        ArtifactError: a damaged manifest.
    """
    if not (folder / MANIFEST).is_file():
        return None
    artifact = ExportedModel.open(folder)
    return {
        "model": group.model,
        "size": group.source.size,
        "phase": group.phase,
        "dtype": group.dtype,
        "target": artifact.target,
        "opset": artifact.opset,
        "ops": dict(artifact.ops),
        "sizes": dict(artifact.sizes),
        "seconds": round(artifact.seconds, 2),
        "notes": list(artifact.notes),
        "max_tokens": group.config.max_tokens if group.config else artifact.limits.get("position_ids"),
        "axes": sorted(artifact.signature().axes),
        "sparse": _sparse(group.config, group.phase) if group.config else None,
        "in_pieces": _in_pieces(artifact.model_path),
    }


def _in_pieces(path: Path) -> list[str]:
    """What the graph computes in pieces that one operator could; weights in other files are not read."""
    import onnx

    return in_pieces(onnx.load(path, load_external_data=False).graph.node)


def _sparse(config: ModelConfig, phase: str) -> dict[str, Any] | None:
    """What is read, and the least power of two n from which the long end tells; None where no step or n does."""
    words = reads(config)
    return {"reads": words, "told_from": None if phase == "step" else _told_from(config, phase)} if words else None


def _told_from(config: ModelConfig, phase: str) -> int | None:
    """By operations alone over a doubling, with a margin for the bytes, which both have in common."""

    def exponent(model: ModelConfig, n: int) -> float:
        doubling = (n // 2, n)
        return slope(doubling, [flops(model, phase, {"batch": 1, "sequence": m, "source": m}) for m in doubling])

    full, most = dense(config), config.max_tokens or LONGEST
    powers = (2**power for power in range(LEAST, most.bit_length()))
    return next((n for n in powers if exponent(full, n) - exponent(config, n) >= 1.5 * SEPARATE), None)


def joined(earlier: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The facts of a run that goes on: each graph once, as it was exported last."""
    keys = ("model", "size", "phase", "dtype")
    return list({tuple(item[key] for key in keys): item for item in (*earlier, *new)}.values())
