"""int8: dynamic quantisation of MatMul and Gemm. Weights are stored as int8, activations are quantised call by call.

    y = (x_q - x_zero)·W_q · x_scale · w_scale        DynamicQuantizeLinear, MatMulInteger, Cast, Mul

Standard operators, in the arrangement that ONNX Runtime fuses. Nothing else is quantised, so that Attention survives.
The scale of x is one number for the whole batch: rows see each other, as with every dynamically quantised model.
Weights are symmetric; `per_channel` gives each output channel a scale of its own. An embedding that shares its table
with the head is looked up in the same int8 table.

On x86 without VNNI, ONNX Runtime adds up products of uint8 and int8 in pairs of 16 bits, which saturate: the outputs of
a graph drift several times as far as its numbers say. `EXACT` is its session option against it: products of uint8 and
uint8, which are as exact elsewhere and take 1.7 times as long, so sessions set it where the processor saturates alone.
Below the extended level of optimisation it does nothing.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import numpy as np
import onnx_ir as ir

from ...models.signature import Array
from .linear import Matrix, Rewriter, matrices, with_bias

MOST = 127  # -128 is left out, so that the range is symmetric
EXACT = {"session.x64quantprecision": "1"}
INT8, FLOAT = ir.DataType.INT8, ir.DataType.FLOAT


def to_int8(model: ir.Model, *, per_channel: bool = True, kept: Container[str] = ()) -> list[str]:
    """Quantise the linear layers of a float32 model in place, but for those kept; the notes say what was done."""
    found, notes = matrices(model)
    found = [matrix for matrix in found if matrix.name not in kept]
    conversion = _Conversion(model, per_channel)
    for matrix in found:
        conversion.matrix(matrix)
    conversion.rewriter.finish()
    tied = [f"{matrix.name}: one int8 table for lookup and product" for matrix in found if matrix.lookups]
    scales = "a scale for each output channel" if per_channel else "one scale for each matrix"
    return [f"int8: {len(found)} matrices, {scales}", *tied, *notes]


def quantise(rows: Array, *, per_channel: bool) -> tuple[Array, Array]:
    """W (N, K) as int8 and its scales, (N,) or (): W ≈ W_q·scale; a row of zeros has scale 1."""
    peak = np.abs(rows).max(axis=1, initial=0.0) if per_channel else np.abs(rows).max(initial=0.0)
    scale = np.where(peak > 0, peak / MOST, 1.0).astype(np.float32)
    spread = scale[:, None] if per_channel else scale
    return np.clip(np.rint(rows / spread), -MOST, MOST).astype(np.int8), scale


class _Conversion:
    def __init__(self, model: ir.Model, per_channel: bool) -> None:
        self.rewriter = Rewriter(model)
        self._per_channel = per_channel
        self._activations: dict[tuple[ir.Value, ir.Graph], tuple[ir.Value, ...]] = {}

    def matrix(self, matrix: Matrix) -> None:
        """Replace the readers of one matrix."""
        stored, scale = self._store(matrix)
        for node in matrix.lookups:
            self.rewriter.replace(node, partial(self._lookup, node=node, stored=stored, scale=scale))
        for node in matrix.products:
            product = partial(self._product, node=node, stored=stored, scale=scale, transpose=matrix.by_rows)
            self.rewriter.replace(node, product)

    def _store(self, matrix: Matrix) -> tuple[ir.Value, ir.Value]:
        """The int8 matrix, rows as they were, and its scales."""
        n, k = matrix.shape
        per_channel, by_rows = self._per_channel, matrix.by_rows

        def integers() -> Array:
            array = quantise(matrix.rows(), per_channel=per_channel)[0]
            return np.ascontiguousarray(array if by_rows else array.T)

        stored = self.rewriter.store(f"{matrix.name}_int8", INT8, (n, k) if by_rows else (k, n), integers)
        scale = self.rewriter.store(
            f"{matrix.name}_scale",
            FLOAT,
            (n,) if per_channel else (),
            lambda: quantise(matrix.rows(), per_channel=per_channel)[1],
        )
        return stored, scale

    def _product(
        self, tape: ir.tape.Tape, *, node: ir.Node, stored: ir.Value, scale: ir.Value, transpose: bool
    ) -> ir.Value:
        x, x_scale, x_zero = self._activation(node)
        weight = tape.op("Transpose", [stored], {"perm": [1, 0]}) if transpose else stored
        whole = tape.op("MatMulInteger", [x, weight, x_zero])
        product = tape.op("Mul", [tape.op("Cast", [whole], {"to": int(FLOAT)}), tape.op("Mul", [x_scale, scale])])
        return with_bias(tape, product, node)

    def _activation(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """x quantised once for all products that read it: integers, scale, zero point."""
        x, graph = node.inputs[0], node.graph
        assert x is not None
        assert isinstance(graph, ir.Graph)
        if (x, graph) not in self._activations:
            names = (f"{x.name}_quantised", f"{x.name}_scale", f"{x.name}_zero")
            types = (ir.DataType.UINT8, FLOAT, ir.DataType.UINT8)
            outputs = [ir.Value(name=name, type=ir.TensorType(t)) for name, t in zip(names, types, strict=True)]
            quantiser = ir.Node("", "DynamicQuantizeLinear", [x], outputs=outputs, name=f"quantise_{x.name}")
            graph.insert_before(node, quantiser)
            self._activations[x, graph] = tuple(outputs)
        return self._activations[x, graph]

    def _lookup(self, tape: ir.tape.Tape, *, node: ir.Node, stored: ir.Value, scale: ir.Value) -> ir.Value:
        ids = node.inputs[1]
        row = tape.op("Cast", [tape.op("Gather", [stored, ids], {"axis": 0})], {"to": int(FLOAT)})
        if not self._per_channel:
            return tape.op("Mul", [row, scale])
        last = self.rewriter.small("int8_last_axis", np.array([-1], np.int64))
        return tape.op("Mul", [row, tape.op("Unsqueeze", [tape.op("Gather", [scale, ids], {"axis": 0}), last])])
