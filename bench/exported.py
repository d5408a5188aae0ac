"""What the header of a run says about each exported graph, so that a report needs none of the files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..export.artifact import MANIFEST, ExportedModel
from .suite import Group


def facts(group: Group, folder: Path) -> dict[str, Any] | None:
    """The graph's identity, what its manifest says of it, and where the model's positions end (None: nowhere).

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
        "max_tokens": group.config.max_tokens if group.config else None,
    }


def joined(earlier: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The facts of a run that goes on: each graph once, as it was exported last."""
    keys = ("model", "size", "phase", "dtype")
    return list({tuple(item[key] for key in keys): item for item in (*earlier, *new)}.values())
