"""What a source model makes of named arrays, in its own precision and in float64; needs torch."""

from __future__ import annotations

import numpy as np
import torch

from ..models.phases import PhaseModule
from ..models.signature import Array, Feeds


def outputs(module: PhaseModule, feeds: Feeds) -> dict[str, Array]:
    """The module's outputs by name, in the dtype of its weights; those of bfloat16, which NumPy lacks, in float32."""
    own = next((weight.dtype for weight in module.parameters()), None)
    tensors = [torch.tensor(feeds[spec.name]) for spec in module.signature.inputs]
    if own is not None:
        tensors = [tensor.to(own) if tensor.is_floating_point() else tensor for tensor in tensors]
    with torch.inference_mode():
        results = module(*tensors)
    arrays = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor for tensor in results)
    return {spec.name: array.numpy() for spec, array in zip(module.signature.outputs, arrays, strict=True)}


def outputs64(module: PhaseModule, feeds: Feeds) -> dict[str, Array]:
    """The outputs with weights and inputs in float64; the module itself is turned into float64."""
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feeds.items()}
    return outputs(module.double(), wide)
