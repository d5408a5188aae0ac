"""Shape functions of ONNX Runtime's own operators (com.microsoft), as ContribOperators.md describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

Shape = tuple[int, ...]
Given = Sequence[Shape | None]
Attributes = Mapping[str, Any]


def contrib_shapes(node: onnx.NodeProto, inputs: Given) -> list[Shape | None] | None:
    """The shapes of all outputs, None for one that is absent; None altogether for an operator that is not known."""
    rule = RULES.get(node.op_type)
    if rule is None:
        return None
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    found = rule(inputs, attributes)
    return [found[index] if name and index < len(found) else None for index, name in enumerate(node.output)]


def _same(inputs: Given, _: Attributes) -> list[Shape | None]:
    return [inputs[0]] * 4


def _product(inputs: Given, attributes: Attributes) -> list[Shape | None]:
    first, second = inputs[0] or (), inputs[1] or ()
    rows = first[-1] if attributes.get("transA") else first[-2]
    columns = second[-2] if attributes.get("transB") else second[-1]
    return [(*(first[:-2] if len(first) >= len(second) else second[:-2]), rows, columns)]


def _packed(inputs: Given, attributes: Attributes) -> list[Shape | None]:
    return [(*(inputs[0] or ())[:-1], attributes["N"])]


def _heads(inputs: Given, attributes: Attributes) -> list[Shape | None]:
    """MultiHeadAttention: query (batch, tokens, hidden), key, value; past key and value at 6 and 7."""
    batch, tokens, hidden = inputs[0] or (0, 0, 0)
    value, past = inputs[2] if len(inputs) > 2 else None, inputs[6] if len(inputs) > 6 else None
    width = value[-1] if value and len(value) == 3 else hidden
    keys = (past[2] if past else 0) + ((value[1] if len(value) == 3 else value[2]) if value else tokens)
    present = (batch, attributes["num_heads"], keys, hidden // attributes["num_heads"])
    return [(batch, tokens, width), present, present]


def _groups(inputs: Given, attributes: Attributes) -> list[Shape | None]:
    """GroupQueryAttention: query (batch, tokens, hidden), key, value; past key and value at 3 and 4."""
    batch, tokens, hidden = inputs[0] or (0, 0, 0)
    heads, groups = attributes["num_heads"], attributes["kv_num_heads"]
    packed = len(inputs) < 2 or inputs[1] is None
    size = hidden // (heads + 2 * groups if packed else heads)
    past = inputs[3] if len(inputs) > 3 else None
    present = (batch, groups, (past[2] if past else 0) + tokens, size)
    return [(batch, tokens, heads * size), present, present]


RULES: Mapping[str, Callable[[Given, Attributes], list[Shape | None]]] = {
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "RotaryEmbedding"), _same),
    **dict.fromkeys(("FastGelu", "BiasGelu", "QuickGelu", "Gelu", "BiasAdd", "SimplifiedLayerNormalization"), _same),
    **dict.fromkeys(("FusedMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"), _product),
    "MatMulNBits": _packed,
    "MultiHeadAttention": _heads,
    "GroupQueryAttention": _groups,
}
