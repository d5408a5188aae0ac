"""How far arrays are apart, in units of their own size (numpy only)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..models.signature import Array


def rms(array: Array) -> float:
    """Root of the mean square; 0 for an empty array."""
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64))))) if array.size else 0.0


def relative(found: Mapping[str, Array], truth: Mapping[str, Array]) -> dict[str, float]:
    """rms(found - truth) in units of rms(truth), by output; infinite where a value is not finite."""
    errors = {}
    for name, array in truth.items():
        error = rms(found[name].astype(np.float64) - array.astype(np.float64)) / (rms(array) or 1.0)
        errors[name] = error if np.isfinite(error) else float("inf")
    return errors
