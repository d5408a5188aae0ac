"""GroupQueryAttention written into a graph, for all layers that have one mask.

Long prompts go through the kernel in chunks of queries, each with the keys before it as its past:

    keys ─▶                 The kernel computes whole rectangles, and hides what lies after a query. Without chunks half
    chunk 0   ▨             of it is hidden; with c chunks it computes (c + 1) / 2c of the square, at the cost of a copy
    chunk 1   ▨▨            of keys and values a chunk.
    chunk 2   ▨▨▨

`query_seqlens` says that every row of a chunk is real: without it the kernel refuses several new tokens after a past in
a batch. The operator is described in ONNX Runtime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from . import grouped
from .graph import MICROSOFT, Array, Writer, attribute, branch, heads_of, private, replace, sizes

LONG = 512  # new tokens from which chunks are faster, as measured (docs/fast.md)
CHUNKS = 8
BIAS, QUERY_SEQLENS = 10, 16  # places among the inputs


@dataclass(frozen=True)
class Site:
    """An Attention node (B, H, n, D): its mask with the input that says what is padding, and its new keys and values
    (B, G, n, D) with their past. Without a padding nothing is padded. `bounded`: no token sees a later one in a padded
    batch either."""

    node: ir.Node
    mask: ir.Value | None
    padding: ir.Value | None
    query: ir.Value
    new: tuple[ir.Value, ir.Value]
    past: tuple[ir.Value, ir.Value] | None
    bounded: bool = True


@dataclass(frozen=True)
class Lengths:
    """What the kernel is told of lengths, int32: new tokens (1), all tokens (1), and for each row the last one's index
    and the number of new ones (B)."""

    tokens: ir.Value
    total: ir.Value
    last: ir.Value
    each: ir.Value


class Kernel:
    """What the layers share: whether a row is padded, the lengths, and the bias if one is."""

    def __init__(self, graph: ir.Graph, site: Site, name: str) -> None:
        write = Writer(graph, site.node, name)
        self._graph = graph
        self._rows = write("Shape", site.query, start=0, end=1)
        self._one = write.constant(np.array([1], np.int32))
        tokens = write("Cast", write("Shape", site.query, start=2, end=3), to=ir.DataType.INT32)
        total = _total(write, site, tokens)
        self._lengths = self._told(write, tokens, total)
        self._past = write("Sub", total, tokens)
        enough = write.constant(np.array([LONG], np.int32))
        self._long = write("Squeeze", write("GreaterOrEqual", tokens, enough))
        groups = heads_of(site.new[0])
        worth = site.past is not None and heads_of(site.query) >= grouped.SMALLEST * groups
        width = groups * int(str(sizes(site.query)[3]))
        self._single = grouped.single(write, tokens, total, width) if worth else None
        self._pasts = set(site.past or ())
        self._full: ir.Value | None = None
        if site.padding is not None and site.mask is not None:
            self._ask(write, site.padding, site.mask, name, bounded=site.bounded)

    def _ask(self, write: Writer, padding: ir.Value, mask: ir.Value, name: str, *, bounded: bool) -> None:
        """Whether all keys are real; and if not, the mask, as a bias where the kernel is told of it."""
        real = write("Cast", write("Cast", padding, to=ir.DataType.BOOL), to=ir.DataType.INT32)
        self._full = write("Cast", write("ReduceMin", real, keepdims=0), to=ir.DataType.BOOL)
        choice = mask.dtype == ir.DataType.BOOL
        as_bias = bounded and choice
        made = branch(f"{name}.mask", lambda inside: [_bias(inside, mask) if as_bias else inside("Identity", mask)])
        empty: Array = np.zeros((1, 1, 1, 1), np.bool_ if choice and not as_bias else np.float32)
        nothing = branch(f"{name}.none", lambda inside: [inside.constant(empty)])
        self._mask, self._made = mask, made
        self._padded = write("If", self._full, then_branch=nothing, else_branch=made)

    def _told(self, write: Writer, tokens: ir.Value, total: ir.Value) -> Lengths:
        last = write("Expand", write("Sub", total, self._one), self._rows)
        return Lengths(tokens, total, last, write("Expand", tokens, self._rows))

    def attend(self, site: Site, name: str) -> None:
        """Replace one Attention, and the Concat of its cache."""
        write = Writer(self._graph, site.node, name)
        flat = [write.flat(one) for one in (site.query, *site.new)]
        whole = branch(f"{name}.whole", lambda inside: self._call(inside, site, flat, site.past, self._lengths))
        if self._single is not None:
            one = branch(f"{name}.one", lambda inside: self._one_token(inside, site, flat[0], name))
            choice = {"then_branch": one, "else_branch": whole}
            whole = branch(f"{name}.few", lambda inside: list(inside.node("If", [self._single], choice, 3).outputs))
        chunks = branch(f"{name}.chunks", lambda inside: self._chunks(inside, site, flat))
        either = {"then_branch": chunks, "else_branch": whole}
        y, *presents = self._either(write, site, flat, either, name)
        for old, new in zip(site.node.inputs[1:3], presents, strict=True):
            if site.past is not None and old is not None:
                replace(old, new)
        replace(site.node.outputs[0], write.spread(y, heads_of(site.query)))
        self._graph.remove(site.node, safe=True)

    def _either(
        self, write: Writer, site: Site, flat: list[ir.Value], full: dict[str, ir.Graph], name: str
    ) -> Sequence[ir.Value]:
        """What is computed without padding, and if there may be some the kernel with the mask as well."""
        if self._full is None:
            return write.node("If", [self._long], full, 3).outputs
        whole = branch(f"{name}.full", lambda inside: list(inside.node("If", [self._long], full, 3).outputs))
        padded = branch(f"{name}.padded", lambda inside: self._with_padding(inside, site, flat, f"{name}.padded"))
        return write.node("If", [self._full], {"then_branch": whole, "else_branch": padded}, 3).outputs

    def settle(self) -> None:
        """Move what makes the mask to where it is read, once no Attention reads it.

        There the length of the past is that of the mask without the new tokens: a past's buffer may be longer.
        """
        if self._full is None:
            return
        where = self._made.outputs[0].producer()
        assert where is not None
        for node in private(self._mask, self._graph, where):
            self._graph.remove(node)
            where.prepend(node)
            if node.op_type == "Shape" and node.inputs[0] in self._pasts and attribute(node, "start") == 2:
                length = ir.node("Cast", [self._past], {"to": ir.DataType.INT64})
                length.outputs[0].name = f"{node.outputs[0].name}.past"
                where.prepend(length)
                node.outputs[0].replace_all_uses_with(length.outputs[0])

    def _one_token(self, write: Writer, site: Site, query: ir.Value, name: str) -> list[ir.Value]:
        """The cache is extended, and the queries of a group attend to it as rows."""
        assert site.past is not None
        groups, total = heads_of(site.new[0]), self._lengths.total
        rows, scale = heads_of(site.query) // groups, attribute(site.node, "scale")
        keys, values = grouped.extend(write, site.past, site.new, total, self._past, f"{name}.cache")
        return [grouped.attend(write, query, keys, values, total, groups, rows, scale), keys, values]

    def _with_padding(self, write: Writer, site: Site, flat: list[ir.Value], name: str) -> list[ir.Value]:
        """The kernel with the mask as a bias; or, under a mask that lets some token see later ones, what was there."""
        if site.bounded:
            return self._call(write, site, flat, site.past, self._lengths, self._padded)
        total = write("Cast", self._lengths.total, to=ir.DataType.INT64)
        if site.past is None:
            keys, values = (write("Identity", one) for one in site.new)  # what a branch returns is made in it
        else:
            index = write("Range", *(write("Squeeze", x) for x in (self._past, self._lengths.total, self._one)))
            places = write("Unsqueeze", index, write.constant(np.array([1], np.int64)))
            keys, values = grouped.extend(write, site.past, site.new, self._lengths.total, places, f"{name}.cache")
        start, axis = write.constant(np.array([0], np.int64)), write.constant(np.array([2], np.int64))
        seen = [write("Slice", one, start, total, axis) for one in (keys, values)]
        scale = attribute(site.node, "scale")
        y = write("Attention", site.query, *seen, self._padded, **({} if scale is None else {"scale": scale}))
        return [write.flat(y), keys, values]

    def _chunks(self, write: Writer, site: Site, flat: list[ir.Value]) -> list[ir.Value]:
        """y and the presents, chunk by chunk; the last presents hold all keys and values."""
        parts = [write.node("Split", [one], {"axis": 1, "num_outputs": CHUNKS}, CHUNKS).outputs for one in flat]
        past, total, ys = site.past, self._past, []
        for new in zip(*parts, strict=True):
            tokens = write("Cast", write("Shape", new[0], start=1, end=2), to=ir.DataType.INT32)
            total = write("Add", total, tokens)
            y, key, value = self._call(write, site, list(new), past, self._told(write, tokens, total))
            past = key, value
            ys.append(y)
        assert past is not None
        return [write("Concat", *ys, axis=1), *past]

    def _call(
        self,
        write: Writer,
        site: Site,
        flat: list[ir.Value],
        past: tuple[ir.Value, ir.Value] | None,
        lengths: Lengths,
        bias: ir.Value | None = None,
    ) -> list[ir.Value]:
        """One call: y (B, n, H·D), present keys and values (B, G, t, D)."""
        inputs: list[ir.Value | None] = [*flat, *(past or (None, None)), lengths.last, lengths.total, *[None] * 10]
        inputs[BIAS] = bias
        inputs[QUERY_SEQLENS] = None if past is None else lengths.each
        attributes = {"num_heads": heads_of(site.query), "kv_num_heads": heads_of(site.new[0])}
        scale = attribute(site.node, "scale")
        attributes |= {} if scale is None else {"scale": scale}
        return list(write.node("GroupQueryAttention", inputs, attributes, 3, MICROSOFT).outputs)


def _total(write: Writer, site: Site, tokens: ir.Value) -> ir.Value:
    """All keys, int32 (1): as many as the padding has columns; without one, those of the past and the new ones."""
    if site.padding is not None:
        return write("Cast", write("Shape", site.padding, start=1, end=2), to=ir.DataType.INT32)
    if site.past is None:
        return tokens
    past = write("Cast", write("Shape", site.past[0], start=2, end=3), to=ir.DataType.INT32)
    return write("Add", past, tokens)


def _bias(write: Writer, mask: ir.Value) -> ir.Value:
    """0 where a key may be seen, -inf where not."""
    return write("Where", mask, write.constant(np.float32(0)), write.constant(np.float32(-np.inf)))
