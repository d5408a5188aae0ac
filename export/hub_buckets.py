"""T5's buckets in whole numbers, in place of the logarithm that transformers takes.

Their ends are exact powers, so that a constant rounded to float32 moves a distance of 16 into the bucket of 15.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..models.relative import bucket_of_distance

METHOD = "_relative_position_bucket"


def whole_buckets(model: nn.Module) -> None:
    """Give each module that sorts distances into buckets this way to do it."""
    for part in model.modules():
        if hasattr(type(part), METHOD):
            setattr(part, METHOD, _bucket)


def _bucket(
    relative_position: Tensor, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> Any:
    """The bucket of each distance from key to query, any shape."""
    one_way = num_buckets // 2 if bidirectional else num_buckets
    table = torch.tensor(bucket_of_distance(one_way, max_distance), device=relative_position.device)
    gap = relative_position.abs() if bidirectional else -relative_position.clamp(max=0)
    bucket = table[gap.clamp(max=max_distance)]
    return bucket + (relative_position > 0).long() * one_way if bidirectional else bucket
