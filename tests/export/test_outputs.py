"""The outputs of a source: in its own precision, and wholly in float64, with weights or without."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isorun.export.outputs import outputs, outputs64
from isorun.models.signature import Signature, TensorSpec


class Root(nn.Module):
    """√x, and with weights √x·w."""

    signature = Signature((TensorSpec("x", "float32", ("n",)),), (TensorSpec("y", "float32", ("n",)),))

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([3.0])) if weights else 3.0

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.sqrt() * self.w,)


@pytest.mark.parametrize("weights", [True, False])
def test_float64_is_float64_also_without_weights(weights: bool) -> None:
    x = np.array([2.0, 3.0, 5.0], np.float32)
    module = Root(weights=weights)
    single = outputs(module, {"x": x})["y"]  # type: ignore[arg-type]
    double = outputs64(module, {"x": x})["y"]  # type: ignore[arg-type]
    assert single.dtype == np.float32
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, 3 * np.sqrt(x.astype(np.float64)), rtol=1e-15)
