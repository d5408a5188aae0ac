"""Claim 9: RMSNorm against LayerNorm, and SwiGLU against GELU at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

from ....models.feedforward import GLU, MLP
from ....models.norm import LayerNorm, RMSNorm
from ....models.presets import PRESETS
from ....models.transformer import build
from ..outcome import Call, Claim, Part, Watch
from ..tools import decode, operations, preset, speed, weights

DIM, TOKENS = 512, 512
ROWS = 60  # temporary results below 128 KiB, which the allocator keeps: above, its page faults would be timed
SEEDS, STEPS, VOCAB = 4, 150, 8
STUDENT = 3.182  # of four values, at 97.5 %


def experiment(watch: Watch) -> Sequence[Part]:
    """Both norms on the same states; both layers timed, counted, and trained in a small decoder."""
    return (*_norms(watch), *_layers(watch), _trained())


def _norms(watch: Watch) -> Sequence[Part]:
    """Written out in the same operations, and by the kernels of torch and of ONNX Runtime."""
    x = torch.randn(ROWS, DIM)
    layer, rms = LayerNorm().build(DIM).requires_grad_(False), RMSNorm().build(DIM).requires_grad_(False)
    gain, shift = layer.weight, layer.bias

    def centred() -> Tensor:
        y = x - x.mean(-1, keepdim=True)
        return y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain + shift  # type: ignore[operator]

    def plain() -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain  # type: ignore[operator]

    pairs = {
        "written out in torch": (centred, plain),
        "by torch's kernels": (lambda: layer(x), lambda: rms(x)),
        "by ONNX Runtime's kernels": (onnx_call("LayerNormalization", x, 2), onnx_call("RMSNormalization", x, 1)),
    }
    times = watch({f"{how} {i}": call for how, calls in pairs.items() for i, call in enumerate(calls)})
    parts = []
    for how in pairs:
        word, ratio = speed(times[f"{how} 0"], times[f"{how} 1"])
        said = f"{ROWS} tokens of {DIM}, one thread: RMSNorm is {word}, {ratio} the speed of LayerNorm"
        parts.append(Part(f"RMSNorm takes less time, {how}", word == "faster", said))
    return parts


def onnx_call(operator: str, x: Tensor, tensors: int) -> Call:
    """One operator of opset 23 with so many weights, in a session of one thread."""
    names = ["gain", "shift"][:tensors]
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [DIM], [1.0] * DIM) for name in names]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(x.shape)) for name in "xy"]
    node = helper.make_node(operator, ["x", *names], ["y"], axis=-1)
    graph = helper.make_graph([node], operator, ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": x.numpy()}
    return lambda: session.run(None, feeds)


def _layers(watch: Watch) -> Sequence[Part]:
    config = PRESETS["llama-7b"].scaled(dim=DIM, heads=8)
    x = torch.randn(1, TOKENS, DIM)
    mlp, glu = MLP("gelu", 4 * DIM).build(config), GLU("silu", 8 * DIM // 3).build(config)
    counts, work = (weights(mlp), weights(glu)), (operations(lambda: mlp(x)), operations(lambda: glu(x)))
    times = watch({"GELU": lambda: mlp(x), "SwiGLU": lambda: glu(x)})
    word, ratio = speed(times["GELU"], times["SwiGLU"])
    return (
        Part(
            "SwiGLU with 2/3 of the hidden size has the parameters and the operations of GELU",
            abs(counts[1] / counts[0] - 1) < 0.01 and abs(work[1] / work[0] - 1) < 0.01,
            f"{counts[0]:,} and {counts[1]:,} weights, {work[0] / 1e9:.2f} and {work[1] / 1e9:.2f} GFLOP; SwiGLU is "
            f"{word}, {ratio} the speed of GELU ({TOKENS} tokens of {DIM})",
        ),
    )


def _trained() -> Part:
    """Two layers of 64 learn a random language of order 2; the same seeds and tokens for both."""
    gelu = [train(MLP("gelu", 192), seed) for seed in range(SEEDS)]
    swiglu = [train(GLU("silu", 128), seed) for seed in range(SEEDS)]
    gains = [a - b for a, b in zip(gelu, swiglu, strict=True)]
    gain, reach = fmean(gains), STUDENT * stdev(gains) / SEEDS**0.5
    return Part(
        "SwiGLU learns clearly better at equal parameters, in two layers of 64",
        gain > max(reach, 0.02),
        f"loss after {STEPS} steps, {SEEDS} seeds: GELU {fmean(gelu):.3f}, SwiGLU {fmean(swiglu):.3f}, gain "
        f"{gain:.3f} ± {reach:.3f} nats a token",
    )


def train(ffn: MLP | GLU, seed: int) -> float:
    """The loss on new text after some steps of Adam."""
    torch.manual_seed(seed)
    config = preset("llama-7b", vocab=VOCAB, ffn=ffn)
    model: Any = build(config, seed=seed).requires_grad_(True)
    table = (3 * torch.randn(VOCAB, VOCAB, VOCAB)).softmax(-1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    with torch.enable_grad():
        for _ in range(STEPS):
            loss = _loss(model, _text(table, 16, 32))
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    with torch.no_grad():
        return float(_loss(model, _text(table, 128, 32)))


def _loss(model: Any, text: Tensor) -> Tensor:
    logits, _ = decode(model, text[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def _text(table: Tensor, rows: int, length: int) -> Tensor:
    """Rows in which each token depends on the two before it."""
    text = torch.randint(0, len(table), (rows, 2))
    for _ in range(length - 1):
        following = torch.multinomial(table[text[:, -2], text[:, -1]], 1)
        text = torch.cat((text, following), dim=1)
    return text


CLAIMS = (
    Claim(
        key="9",
        statement="RMSNorm costs less than LayerNorm; SwiGLU is clearly better than GELU (at equal parameters).",
        experiment=experiment,
    ),
)
