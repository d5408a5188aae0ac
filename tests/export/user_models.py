"""Modules as users write them, with what goes wrong in exports elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isorun.models.signature import Signature, TensorSpec

IDS = torch.arange(6)[None] % 5  # one row, as many write their example


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(50, 8, generator=generator))
        self.positions = nn.Parameter(torch.randn(64, 8, generator=generator))


class Plain(Embedded):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.table[ids]


class Baked(Embedded):
    """Another function above ten tokens: a trace holds one of the two."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table[ids]
        if ids.shape[1] > 10:
            x = x * 2
        return x


class Asked(Embedded):
    """A size is asked about, and both ways are the same function."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table[ids]
        return x.relu() if ids.shape[1] > 10 else x.clamp(min=0)


class ByValue(Embedded):
    def forward(self, ids: Tensor) -> Tensor:
        x = self.table[ids]
        if x.sum() > 0:
            x = x * 2
        return x


class Cut(Embedded):
    """Case 28: a table of positions cut by a Python number, shown an example of one token."""

    number: Any = staticmethod(lambda size: size)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids] + self.positions[: self.number(ids.shape[1])]


class Rope(nn.Module):
    """Case 27: tables of cosines and sines, cut to the length of the input."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(64)[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        c, s = self.cos[:n], self.sin[:n]
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, a * s + b * c], -1)


class Attention(nn.Module):
    """Case 30: nn.MultiheadAttention, tokens first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        result: Tensor = self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        return result


class Tied(nn.Module):
    """Case 33: one matrix for the embedding and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.middle = nn.Embedding(500, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.head(self.middle(self.embedding(ids)))
        return result


def plain() -> Any:
    return Plain(), {"ids": IDS}


def baked() -> Any:
    return Baked(), (IDS,)


def asked() -> Any:
    return Asked(), (IDS,)


def by_value() -> Any:
    return ByValue(), (IDS,)


def declared() -> Any:
    ids = TensorSpec("ids", "int64", ("batch", "sequence"), limit=50)
    return Plain(), Signature((ids,), (TensorSpec("states", "float32", ("batch", "sequence", 8)),))


def needs(size: int) -> Any:
    return size


def raises() -> Any:
    raise ValueError("no data here")


def nothing() -> Any:
    return {"model": Plain()}


def unsigned() -> Any:
    return Plain()


def missing() -> Any:
    return Plain(), {"mask": torch.ones(2, 3)}


def unknown() -> Any:
    return Plain(), {"ids": IDS, "tokens": IDS}


def nested() -> Any:
    return Plain(), {"ids": [1, 2]}


def case_27() -> Any:
    return Rope(), (torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0)),)


def case_28() -> Any:
    return Cut(), (torch.zeros((1, 1), dtype=torch.int64),)


def case_28_in_python() -> Any:
    module = Cut()
    module.number = int
    return module, (torch.zeros((1, 1), dtype=torch.int64),)


def case_30() -> Any:
    torch.manual_seed(0)
    return Attention(), (torch.randn(6, 1, 16), torch.full((6, 6), -1.0).triu(1))


def case_31() -> Any:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (torch.randn(2, 6, 16),)


def case_33() -> Any:
    torch.manual_seed(0)
    return Tied(), (IDS,)


def case_51() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train(), (torch.randn(2, 8),)


def lstm() -> Any:
    torch.manual_seed(0)
    return nn.LSTM(8, 8, batch_first=True), (torch.randn(2, 6, 8),)
