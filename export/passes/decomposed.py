"""Attention that an exporter took apart becomes the standard operator again, for the passes that follow.

    before    q (·c) ─▶ MatMul (·c) (+ mask) ─▶ Softmax ─▶ MatMul ─▶ y
              k (repeated, transposed, ·c) ┘                  │
              v (repeated) ───────────────────────────────────┘

    after     q·c·c, k, v, mask ─▶ Attention(scale 1) ─▶ y

That is how every exporter writes it below opset 23, and attention that a model writes out itself at any. Between the
products and k or v stand only products with numbers, transpositions, and heads that are repeated for their group; how
each exporter writes these differs, so the shapes of all of them are observed in two runs, and what they do is left to
the proof: without one the pass is not applied.

Condition: the mask is one that `causal` or `bidirectional` takes, and keys and values are four-dimensional somewhere on
the way. The graph is raised to opset 23, which the kernels' ONNX Runtime has in any case.
"""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

from ...models.signature import Signature, Sizes
from ..artifact import graph_signature
from ..precision.evaluate import Unevaluable, evaluate
from . import masks
from .graph import SWAP, Writer, replace, sizes
from .pieces import Found, Mask, attentions

OPSET = 23
# Two runs, all of whose sizes differ: a dimension that does too is free, and its pair of sizes says which.
RUNS = ({"batch": 2, "length": 5, "past": 11}, {"batch": 3, "length": 7, "past": 13})
APART = (3, 4)  # between lengths of an encoder and a decoder, where they may differ: 0 in both runs where not
LOWEST = float(np.finfo(np.float32).min) / 2  # hides a key as the lowest number does, which ORT takes for -inf
Shape = tuple[int | str | None, ...]


def apply(model: ir.Model) -> str:
    """Rewrite every attention that is written out; says how many, or why none."""
    if not attentions(model.graph):
        return "not applied: no softmax stands between two products"
    below = model.graph.opset_imports.get("", 0)
    if below < OPSET:
        _raise(model)
    if model.graph.opset_imports.get("", 0) < OPSET:
        return f"not applied: opset {below} cannot be raised to {OPSET}"
    found = attentions(model.graph)
    try:
        shapes = _observed(model, found)
    except (Unevaluable, KeyError) as error:
        return f"not applied: the shapes on the way cannot be observed: {error}"
    read = cache(masks.read)
    count = 0
    for one in found:
        count += _rewrite(model.graph, one, shapes, read, f"attention.{count}")
    if not count:
        return f"not applied: none of {len(found)} softmaxes has a mask and heads that fused attention takes"
    raised = f", raised from opset {below} to {OPSET}" if below < OPSET else ""
    return f"applied to {count} of {len(found)} softmaxes{raised}"


def _observed(model: ir.Model, found: list[Found]) -> dict[str, Shape]:
    """The shapes of all values that matter, by name: a free dimension bears the name of its axis.

    Raises:
        KeyError: an axis without a size.
        Unevaluable: the graph does not run.
    """
    wanted = {value for one in found for value in (*one.queries, *one.keys, *one.values)}
    trial = model.clone()
    signature = graph_signature(ir.to_proto(trial).graph)
    values = ir.convenience.create_value_mapping(trial.graph)
    more = [values[str(value.name)] for value in wanted if not value.is_graph_input()]
    for value in (value for value in more if not value.is_graph_output()):
        value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
        value.shape = None
        trial.graph.outputs.append(value)
    proto, names = ir.to_proto(trial), [str(value.name) for value in wanted]
    try:
        ran = [signature.sizes(**run, apart=more) for run, more in zip(RUNS, APART, strict=True)]
        shapes = [_run(proto, signature, at, names) for at in ran]
    except Unevaluable:
        ran = [signature.sizes(**run) for run in RUNS]
        shapes = [_run(proto, signature, at, names) for at in ran]
    free = {pair: axis for axis in ran[0] for pair in [(ran[0][axis], ran[1][axis])]}
    return {
        name: tuple(a if a == b else free.get((a, b), "total") for a, b in zip(shape, shapes[1][name], strict=True))
        for name, shape in shapes[0].items()
    }


def _run(proto: onnx.ModelProto, signature: Signature, at: Sizes, names: list[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs and outputs at some sizes, by name."""
    feeds = signature.feeds(at)
    arrays = {**feeds, **evaluate(proto, feeds)}
    return {name: arrays[name].shape for name in names}


def _rewrite(graph: ir.Graph, one: Found, shapes: dict[str, Shape], read: masks.Read, prefix: str) -> bool:
    """Write the operator in front of the second product, and let its readers have it; False where it does not fit."""
    query = shapes[str(one.queries[0].name)]
    write = Writer(graph, one.product, prefix)
    if not _spread(query):
        return False
    heads, head = int(str(query[1])), query[3]
    key, value = _heads(one.keys, shapes, heads), _heads(one.values, shapes, heads)
    if key is None or value is None or shapes[str(key.name)][-1] != head:
        return False
    mask = None if one.mask is None else _added(write, one.mask, read)
    alike = all(heads in shapes[str(v.name)] for v in (key, value))
    wide = shapes[str(value.name)][-1] == head
    if not (alike if mask is None else _taken(read(mask), alike=alike, wide=wide)):
        return False
    for known in (*one.queries, *one.keys, *one.values):
        _name(known, shapes[str(known.name)])
    q = one.queries[0]
    for operator, number in one.numbers:
        q = write(operator, q, number)
        _name(q, sizes(one.queries[0]))
    k, v = (_in_heads(write, known, shapes[str(known.name)]) for known in (key, value))
    y = write("Attention", q, k, v, mask, scale=1.0)
    _name(y, (*sizes(q)[:3], shapes[str(value.name)][-1]))
    replace(one.product.outputs[0], y)
    graph.remove(one.product, safe=True)
    return True


def _added(write: Writer, mask: Mask, read: masks.Read) -> ir.Value:
    """What is to be added to the scores: nothing below `LOWEST` but -inf."""
    if mask.number is not None:
        least = write.constant(np.float32(max(mask.number, LOWEST) if np.isfinite(mask.number) else mask.number))
        nothing = write.constant(np.float32(0))
        return write("Where", mask.value, *((nothing, least) if mask.seen else (least, nothing)))
    says = read(mask.value)
    if says is None or says.hides is None:
        return mask.value
    mask.value.dtype = ir.DataType.FLOAT
    return write("Max", mask.value, write.constant(np.float32(LOWEST))) if np.isfinite(says.hides) else mask.value


def _taken(says: masks.Mask | None, *, alike: bool, wide: bool) -> bool:
    """Whether a pass that follows takes a mask, with a key head for each query head (`alike`), and values as wide as
    keys."""
    if says is None:
        return False
    return alike if says.kind == "real" else wide and (says.padding is None or says.rank == 4)


def _spread(shape: Shape) -> bool:
    """(B, H, n, D)?"""
    return len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[2], str) and isinstance(shape[3], int)


def _apart(shape: Shape) -> bool:
    """(B, n, H, D)?"""
    return len(shape) == 4 and isinstance(shape[1], str) and isinstance(shape[2], int) and isinstance(shape[3], int)


def _heads(way: tuple[ir.Value, ...], shapes: dict[str, Shape], heads: int) -> ir.Value | None:
    """The farthest value on the way that has heads before tokens, each for as many query heads; or behind them."""
    for fits, axis in ((_spread, 1), (_apart, 2)):
        for value in reversed(way):
            shape = shapes[str(value.name)]
            if fits(shape) and heads % int(str(shape[axis])) == 0:
                return value
    return None


def _in_heads(write: Writer, value: ir.Value, shape: Shape) -> ir.Value:
    """(B, H, n, D), transposed where it is (B, n, H, D)."""
    if _spread(shape):
        return value
    turned = write("Transpose", value, perm=SWAP)
    shape = sizes(value)
    _name(turned, (shape[0], shape[2], shape[1], shape[3]))
    return turned


def _name(value: ir.Value, shape: Shape) -> None:
    """Let a value have its observed shape, where the declared one is unknown, or names of the inference's own."""
    declared = sizes(value)
    if not declared or any(dim is None or str(dim).startswith("unk__") for dim in declared):
        value.shape = ir.Shape(shape)
    if value.type is None:
        value.type = ir.TensorType(ir.DataType.FLOAT)


def _raise(model: ir.Model) -> None:
    """Raise a graph to the operator's opset, in place; it stays where it is if that cannot be done."""
    from onnxscript.version_converter import convert_version

    log = logging.getLogger("onnxscript.version_converter")
    before, log.disabled = log.disabled, True  # it reports its second way as a failure of the first
    try:
        convert_version(model, OPSET, fallback=True)
    finally:
        log.disabled = before
