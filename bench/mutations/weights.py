"""Faults in stored weights."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from ...models.signature import Array
from .surgery import FLOATS, Graph, change, kind

NORMS = ("LayerNormalization", "RMSNormalization")


def _matrix(graph: Graph) -> TensorProto | None:
    picked = graph.pick(graph.matrices())
    return picked[1] if picked else None


@kind("matrix transposed")
def transposed(graph: Graph) -> bool:
    """A square weight is stored (in, out) where (out, in) was meant."""
    square = [tensor for _, tensor in graph.matrices() if tensor.dims[0] == tensor.dims[1]]
    return change(graph.pick(square), lambda w: w.T)


@kind("matrix one row off")
def rows_rolled(graph: Graph) -> bool:
    """The rows of a weight are shifted by one."""
    return change(_matrix(graph), lambda w: np.roll(w, 1, axis=0))


@kind("matrix negated")
def negated(graph: Graph) -> bool:
    """A weight has the wrong sign."""
    return change(_matrix(graph), lambda w: -w)


@kind("one element off by 1 %")
def one_element(graph: Graph) -> bool:
    """One number of one matrix, the largest, is 1 % too large."""

    def edit(w: Array) -> Array:
        w.flat[np.abs(w).argmax()] *= 1.01
        return w

    return change(_matrix(graph), edit)


@kind("matrix rounded to float16")
def halved(graph: Graph) -> bool:
    """A weight went through half precision."""
    return change(_matrix(graph), lambda w: w.astype(np.float16))


@kind("NaN in a weight")
def not_a_number(graph: Graph) -> bool:
    """One number of one matrix is NaN."""

    def edit(w: Array) -> Array:
        w[0, 0] = np.nan
        return w

    return change(_matrix(graph), edit)


@kind("two weights swapped")
def swapped(graph: Graph) -> bool:
    """Two weights of one shape stand in each other's place."""
    matrices = [tensor for _, tensor in graph.matrices()]
    pairs = [(a, b) for i, a in enumerate(matrices) for b in matrices[i + 1 :] if a.dims == b.dims and a.name != b.name]
    pair = graph.pick(pairs)
    if pair is None:
        return False
    first, second = (numpy_helper.to_array(tensor) for tensor in pair)
    return change(pair[0], lambda _: second) and change(pair[1], lambda _: first)


@kind("bias dropped")
def no_bias(graph: Graph) -> bool:
    """A bias is zero."""
    return change(graph.pick(_biases(graph)), np.zeros_like)


@kind("bias negated")
def bias_negated(graph: Graph) -> bool:
    """A bias is subtracted."""
    return change(graph.pick(_biases(graph)), lambda b: -b)


@kind("norm gain dropped")
def no_gain(graph: Graph) -> bool:
    """The gain of a norm is one everywhere."""
    return change(graph.pick(graph.vectors(*NORMS, place=1)), np.ones_like)


@kind("norm gain plus one")
def gain_plus_one(graph: Graph) -> bool:
    """A gain that is stored as w is used as 1 + w."""
    return change(graph.pick(graph.vectors(*NORMS, place=1)), lambda w: w + 1)


@kind("norm shift dropped")
def no_shift(graph: Graph) -> bool:
    """The shift of a LayerNorm is zero."""
    return change(graph.pick(graph.vectors("LayerNormalization", place=2)), np.zeros_like)


@kind("table one row off")
def table_rolled(graph: Graph) -> bool:
    """Ids or positions look up the row before their own."""
    weights = graph.weights
    tables = [weights[node.input[0]] for node in graph.of("Gather") if node.input[0] in weights]
    return change(graph.pick([t for t in tables if len(t.dims) == 2]), lambda w: np.roll(w, 1, axis=0))


@kind("head untied")
def head_untied(graph: Graph) -> bool:
    """The head has its own copy of the table, and it is another one."""
    shared = {node.input[0] for node in graph.of("Gather")} & {node.input[0] for node in graph.of("Transpose")}
    name = graph.pick(sorted(shared & set(graph.weights)))
    if name is None:
        return False
    other = graph.constant(numpy_helper.to_array(graph.weights[name]) * np.float32(1.01))
    for node in graph.of("Transpose"):
        if node.input[0] == name:
            node.input[0] = other
    return True


@kind("frequencies wrong")
def frequencies(graph: Graph) -> bool:
    """The base of the positions is another one."""
    found = [t for name, t in graph.weights.items() if "frequencies" in name]
    return change(graph.pick(found), lambda f: f**1.1)


@kind("frequencies rounded to float16")
def frequencies_halved(graph: Graph) -> bool:
    """The frequencies of the positions went through half precision."""
    found = [t for name, t in graph.weights.items() if "frequencies" in name]
    return change(graph.pick(found), lambda f: f.astype(np.float16))


def _biases(graph: Graph) -> list[TensorProto]:
    weights = graph.weights
    found = (weights.get(name) for node in graph.of("Add") for name in node.input)
    recurrent = (weights.get(node.input[0]) for node in graph.of("Split"))
    return [
        t
        for t in (*found, *recurrent)
        if t is not None and len(t.dims) == 1 and t.data_type in FLOATS and t.dims[0] > 1
    ]
