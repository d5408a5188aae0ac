"""Exported modules in float64 against themselves in float64: equal at opset 23, a rounded constant away at opset 18.

The limit of the project is 1e-9 of the scale; faults that a tolerance of 1e-2 forgives are far above it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from onnx import ModelProto, numpy_helper
from torch import nn
from torch.nn import functional as F

from isorun.export.passes.upcast import upcast
from isorun.runtimes.reference import Float64Graph

DIM, HEADS, VOCAB, CONTEXT = 32, 4, 40, 64

# torch.onnx.export itself uses a deprecated torch call; nothing of the project is concerned.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning")


class Attention(nn.Module):
    """Causal attention, rotary (half-split) where asked, over the last `window` keys where asked."""

    def __init__(self, rotary: bool, window: int | None) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.rotary, self.window = rotary, window
        exponents = torch.arange(0, DIM // HEADS, 2) / (DIM // HEADS)
        self.register_buffer("frequencies", 10000.0**-exponents)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(x.shape[2]).to(x.dtype)[:, None] * self.frequencies
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, n, _ = x.shape
        q, k, v = (t.view(batch, n, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.rotary:
            q, k = self.rotate(q), self.rotate(k)
        if self.window is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            distance = torch.arange(n)[:, None] - torch.arange(n)
            y = F.scaled_dot_product_attention(q, k, v, (distance >= 0) & (distance < self.window))
        return self.out(y.transpose(1, 2).reshape(batch, n, DIM))


class Llama(nn.Module):
    """Two blocks of RMSNorm, rotary attention and SwiGLU."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.mixers = nn.ModuleList(Attention(rotary=True, window=None) for _ in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(DIM, eps) for _ in range(5))
        self.up, self.gate, self.down = (nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2)) for _ in range(3))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        for i, mixer in enumerate(self.mixers):
            x = x + mixer(self.norms[2 * i](x))
            y = self.norms[2 * i + 1](x)
            x = x + self.down[i](F.silu(self.gate[i](y)) * self.up[i](y))
        return self.head(self.norms[4](x))


class Gpt(nn.Module):
    """Two blocks of LayerNorm, windowed attention and GELU, with learned positions."""

    def __init__(self, gelu: str = "none", window: int = 5) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.mixers = nn.ModuleList(Attention(rotary=False, window=window) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(5))
        self.up, self.down = (nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2)) for _ in range(2))
        self.gelu = gelu

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
        for i, mixer in enumerate(self.mixers):
            x = x + mixer(self.norms[2 * i](x))
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x)), approximate=self.gelu))
        return self.norms[4](x) @ self.embed.weight.mT


@dataclass
class Exported:
    source: nn.Module
    proto: ModelProto

    def distance(self, other: nn.Module | None = None, proto: ModelProto | None = None) -> float:
        """Largest difference between the graph and the source (or `other`, with its weights) in units of the scale."""
        module = copy.deepcopy(self.source if other is None else other)
        module.load_state_dict(self.source.state_dict())
        ids = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, (3, 19)))
        with torch.no_grad():
            truth = module.double()(ids).numpy()
        (got,) = Float64Graph(proto or self.proto).run({"input_ids": ids.numpy()}).values()
        assert (got.dtype, got.shape) == (np.float64, truth.shape)
        return float(np.abs(got - truth).max() / truth.std())


@cache
def exported(kind: type[nn.Module], opset: int) -> Exported:
    torch.manual_seed(0)
    module = kind()
    for parameter in module.parameters():
        if parameter.dim() == 1:  # norms and biases that are not 1 and 0
            nn.init.normal_(parameter, 1, 0.2)
    axes = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}}
    example = (torch.zeros(2, 7, dtype=torch.long),)
    program = torch.onnx.export(
        module.eval(), example, dynamo=True, opset_version=opset, dynamic_shapes=axes, verbose=False
    )
    return Exported(module, program.model_proto)


def test_opset_23_is_the_module() -> None:
    assert {"Attention", "RMSNormalization"} <= {node.op_type for node in exported(Llama, 23).proto.graph.node}
    assert exported(Llama, 23).distance() < 1e-13
    assert exported(Gpt, 23).distance() < 1e-13


def test_opset_18_differs_by_a_rounded_constant_and_nothing_else() -> None:
    """Attention expanded multiplies q and k by the square root of the scale, head_dim^(-1/4), stored in float32."""
    for kind in (Llama, Gpt):
        found = exported(kind, 18)
        assert 1e-11 < found.distance() < 1e-7
        exact = upcast(found.proto)
        constants = {"scale": (DIM // HEADS) ** -0.25, "epsilon": 1e-5, "gelu": 2**-0.5, "gelu'": 2**0.5}
        for tensor in exact.graph.initializer:
            value = numpy_helper.to_array(tensor)
            for constant in constants.values():
                if value.dtype == np.float64 and value.size == 1 and abs(value.item() / constant - 1) < 1e-6:
                    tensor.CopyFrom(numpy_helper.from_array(np.full_like(value, constant), tensor.name))
        assert found.distance(proto=exact) < 1e-13


def test_planted_faults_stand_out() -> None:
    """Each is forgiven by a tolerance of 1e-2 or so; all are a thousand times the limit of 1e-9."""
    llama, gpt = exported(Llama, 23), exported(Gpt, 23)
    faults = {
        "epsilon 1e-6 for 1e-5": llama.distance(Llama(eps=1e-6)),
        "tanh GELU for the exact one": gpt.distance(Gpt(gelu="tanh")),
        "window one too long": gpt.distance(Gpt(window=6)),
        "window one too short": gpt.distance(Gpt(window=4)),
    }
    assert {name for name, distance in faults.items() if not distance > 1e-6} == set()
