"""int4 and int8-weights: weights alone are quantised, in blocks along the input channels; activations stay float32.

    W[n, k] ≈ (q[n, k] - 2^(bits-1)) · scale[n, k // block]        com.microsoft::MatMulNBits

Symmetric, by the rule of ONNX Runtime and llama.cpp (Q4_0): the value of largest magnitude of a block becomes exactly
-2^(bits-1). `accuracy_level` is the operator's own: 0 computes in float32, 4 lets a runtime quantise x to int8 in
blocks, which on a CPU is faster and less exact. An embedding that shares its table with the head is looked up in the
same blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from ...models.signature import Array
from .linear import Matrix, Rewriter, matrices, with_bias

UINT8, FLOAT = ir.DataType.UINT8, ir.DataType.FLOAT


def to_blocks(
    model: ir.Model,
    bits: int,
    *,
    block_size: int = 32,
    accuracy_level: int = 0,
    others: Mapping[str, int] | None = None,
) -> list[str]:
    """Quantise the weights of every linear layer of a float32 model in place; the notes say how many, and what stayed.

    `others` are matrices with another number of bits; those of 32 stay as they are.

    Raises:
        ValueError: a block size that the operator does not have.
    """
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block size {block_size}: MatMulNBits takes powers of two from 16 on")
    found, notes = matrices(model)
    width = {matrix: (others or {}).get(matrix.name, bits) for matrix in found}
    found = [matrix for matrix in found if width[matrix] < 32]
    for matrix in found:
        _Conversion(model, width[matrix], block_size, accuracy_level).matrix(matrix)
    Rewriter(model).finish(contrib=bool(found))
    counts = Counter(width[matrix] for matrix in found) or {bits: 0}
    summary = [
        f"{size}-bit weights: {count} matrices in blocks of {block_size}, accuracy level {accuracy_level}"
        for size, count in sorted(counts.items())
    ]
    tied = [f"{matrix.name}: one table of blocks for lookup and product" for matrix in found if matrix.lookups]
    return [*summary, *tied, *notes]


def quantise(rows: Array, bits: int, block_size: int) -> tuple[Array, Array]:
    """W (N, K) as packed integers (N, blocks, block_size·bits/8) uint8 and scales (N, blocks) float32.

    The last block is filled up with zeros. Of two 4-bit numbers in a byte the first is the lower half.
    """
    n, k = rows.shape
    zero = 1 << (bits - 1)
    padded = np.pad(rows.astype(np.float32), ((0, 0), (0, -k % block_size))).reshape(n, -1, block_size)
    place = np.abs(padded).argmax(axis=2)[..., None]
    scale = np.take_along_axis(padded, place, 2) / -zero  # N, blocks, 1
    steps = np.divide(padded, scale, out=np.zeros_like(padded), where=scale != 0)
    integers = np.clip(np.rint(steps) + zero, 0, 2 * zero - 1).astype(np.uint8)
    packed = integers if bits == 8 else integers[..., ::2] | integers[..., 1::2] << 4
    return packed, scale[..., 0]


class _Conversion:
    def __init__(self, model: ir.Model, bits: int, block_size: int, accuracy_level: int) -> None:
        self.rewriter = Rewriter(model)
        self._bits = bits
        self._block = block_size
        self._level = accuracy_level

    def matrix(self, matrix: Matrix) -> None:
        """Replace the readers of one matrix."""
        n, k = matrix.shape
        bits, block, blocks = self._bits, self._block, -(-k // self._block)
        stored = self.rewriter.store(
            f"{matrix.name}_int{bits}",
            UINT8,
            (n, blocks, block * bits // 8),
            lambda: quantise(matrix.rows(), bits, block)[0],
        )
        scale = self.rewriter.store(
            f"{matrix.name}_scale", FLOAT, (n, blocks), lambda: quantise(matrix.rows(), bits, block)[1]
        )
        for node in matrix.lookups:
            self.rewriter.replace(node, partial(self._lookup, node=node, stored=stored, scale=scale, k=k))
        for node in matrix.products:
            self.rewriter.replace(node, partial(self._product, node=node, stored=stored, scale=scale, n=n, k=k))

    def _product(
        self, tape: ir.tape.Tape, *, node: ir.Node, stored: ir.Value, scale: ir.Value, n: int, k: int
    ) -> ir.Value:
        attributes = {"N": n, "K": k, "bits": self._bits, "block_size": self._block, "accuracy_level": self._level}
        product = tape.op("MatMulNBits", [node.inputs[0], stored, scale], attributes, domain="com.microsoft")
        return with_bias(tape, product, node)

    def _lookup(self, tape: ir.tape.Tape, *, node: ir.Node, stored: ir.Value, scale: ir.Value, k: int) -> ir.Value:
        """Rows of the table: gathered as bytes, taken apart, shifted and scaled."""
        ids = node.inputs[1]
        steps = self._unpack(tape, tape.op("Gather", [stored, ids], {"axis": 0}))
        centred = tape.op("Sub", [steps, self._number(1 << (self._bits - 1))])
        inner = self._axis(-1) if self._bits == 8 else self._axis(-2, -1)  # the axes of a block
        spread = tape.op("Unsqueeze", [tape.op("Gather", [scale, ids], {"axis": 0}), inner])
        rows = tape.op("Reshape", [tape.op("Mul", [centred, spread]), self._flat(node)])
        return tape.op("Slice", [rows, self._axis(0), self._axis(k), self._axis(-1)]) if k % self._block else rows

    def _unpack(self, tape: ir.tape.Tape, packed: ir.Value) -> ir.Value:
        """Bytes (…, blocks, bytes) to numbers (…, blocks, block), or (…, blocks, block/2, 2) where a byte has two.

        In floating point, where it is exact: OpenVINO 2026.4 shifts bytes wrongly.
        """
        whole = tape.op("Cast", [packed], {"to": int(FLOAT)})
        if self._bits == 8:
            return whole
        high = tape.op("Floor", [tape.op("Div", [whole, self._number(16)])])
        low = tape.op("Sub", [whole, tape.op("Mul", [high, self._number(16)])])
        halves = [tape.op("Unsqueeze", [half, self._axis(-1)]) for half in (low, high)]
        return tape.op("Concat", halves, {"axis": -1})

    def _number(self, number: int) -> ir.Value:
        return self.rewriter.small(f"blocks_number_{number}", np.array(number, np.float32))

    def _flat(self, node: ir.Node) -> ir.Value:
        """The shape that joins the blocks of a row again: ids' own axes, then one."""
        ids = node.inputs[1]
        assert ids is not None
        assert ids.shape is not None
        return self.rewriter.small(f"blocks_flat_{len(ids.shape)}", np.array([0] * len(ids.shape) + [-1], np.int64))

    def _axis(self, *indices: int) -> ir.Value:
        return self.rewriter.small(f"blocks_{'_'.join(map(str, indices))}", np.array(indices, np.int64))
