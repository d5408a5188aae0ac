"""Causal attention as ONNX Runtime's GroupQueryAttention, whose kernel never holds the n² scores.

    before                                      after, with p past tokens and t = p + n

    attention_mask ─▶ mask (B, 1, n, t)         attention_mask ─▶ full? ─▶ If ─▶ bias: nothing, or (B, 1, n, t)
    past, k ─▶ Concat ─▶ present                                    │
    q, present, mask ─▶ Attention ─▶ y          q, k, v, past ─▶ If ┤ full: the kernel           ─▶ y, present
                                                                    └ else: the kernel with bias ─▶ y, present

Condition: in a batch without padding the mask is causal (`masks`), or `is_causal` says so; keys and values are the
layer's own with or without a cache, all heads are of one width, and nothing else reads the scores.

Why two branches: the kernel hides what lies after a query, and a suffix of each row; padding may lie anywhere. What it
cannot express is given to it as a bias of n² numbers, which is made only when a row has padding. A batch without
padding, a single prompt or a decode step above all, pays nothing. Where a padded token sees later ones, as under masks
that leave no row empty, the second branch is the Attention of before. Without an input for padding there is no second.

What the cache gains: the kernel writes new keys behind the past ones. Where both are one buffer (`aliases`) a step
copies nothing; where they are two, it is the Concat of before.
"""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from . import masks
from .gqa import Kernel, Site
from .graph import attribute, made_by, plain, sizes


def apply(model: ir.Model) -> str:
    """Rewrite every causal Attention of a model; says how many, or why none."""
    graph = model.graph
    nodes = [node for node in graph if node.op_type == "Attention" and node.domain == ""]
    read = cache(masks.read)
    sites = [site for node in nodes if (site := _site(node, read)) is not None]
    if not nodes:
        return "not applied: the graph has no Attention operator"
    if not sites:
        return f"not applied: no mask of {len(nodes)} Attention is causal over real keys"
    kernels: dict[ir.Value | ir.Node, Kernel] = {}
    for count, site in enumerate(sites):
        shared = site.mask or site.node
        if shared not in kernels:
            kernels[shared] = Kernel(graph, site, f"causal.{len(kernels)}")
        kernels[shared].attend(site, f"gqa.{count}")
    for kernel in kernels.values():
        kernel.settle()
    return f"applied to {len(sites)} of {len(nodes)} Attention"


def _site(node: ir.Node, read: masks.Read) -> Site | None:
    """The parts of an Attention node that fits, or None."""
    query, key, value, mask = (*node.inputs, None, None)[:4]
    if query is None or key is None or value is None or not plain(node):
        return None
    says = read(mask)
    shapes = [sizes(one) for one in (query, key, value)]
    fixed = all(len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int) for shape in shapes)
    if not fixed or len({shape[3] for shape in shapes}) != 1:
        return None
    own = shapes[0][2] == shapes[1][2] == shapes[2][2]
    if attribute(node, "is_causal", 0):  # counted from the first key, whatever the number of queries
        return Site(node, None, None, query, (key, value), None) if own and mask is None else None
    if says is None or says.kind != "causal" or (says.padding is not None and says.rank != 4):
        return None
    k, v = _cached(key, node), _cached(value, node)
    if k is not None and v is not None:
        return Site(node, mask, says.padding, query, (k[1], v[1]), (k[0], v[0]), says.bounded)
    return Site(node, mask, says.padding, query, (key, value), None, says.bounded) if own else None


def _cached(value: ir.Value, reader: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Concat(past, new) over the tokens, where past is an input and nothing but the reader and an output has it."""
    joined = made_by(value, "Concat")
    if joined is None or len(joined.inputs) != 2 or attribute(joined, "axis") not in (2, -2):
        return None
    past, new = joined.inputs
    private = all(user is reader for user, _ in joined.outputs[0].uses())
    return (past, new) if past is not None and new is not None and past.is_graph_input() and private else None


def aliases(graph: ir.Graph) -> dict[str, str]:
    """Present → past, by name, where nothing but the kernel and the batch size depends on the past's buffer.

    Keys and values of a layer go together: the kernel takes them as shared when both are.
    """
    found: dict[str, str] = {}
    for choice in graph:
        kernel = _kernel(choice)
        pairs = [] if kernel is None else list(zip(choice.outputs[1:], kernel.inputs[3:5], strict=True))
        if pairs and all(present.is_graph_output() and past and _private(past, graph) for present, past in pairs):
            found |= {str(present.name): str(past.name) for present, past in pairs if past}
    return found


def _kernel(choice: ir.Node) -> ir.Node | None:
    """A kernel in some branch of an If that extends an input of the graph; None where there is none."""
    branches = [branch.as_graph() for branch in choice.attributes.values()] if choice.op_type == "If" else []
    kernels = (node for branch in branches for node in branch.all_nodes() if node.op_type == "GroupQueryAttention")
    return next((node for node in kernels if node.inputs[3] is not None and node.inputs[3].is_graph_input()), None)


def _private(past: ir.Value, graph: ir.Graph) -> bool:
    """Read by the branches that extend it (`gqa`, `grouped.extend`) and by Shape of the first axis, alone."""
    extended = any(user.op_type == "ScatterElements" for user, _ in past.uses())
    return all(_extends(user, graph, extended=extended) or _axis(user, 0) for user, _ in past.uses())


def _extends(user: ir.Node, graph: ir.Graph, *, extended: bool) -> bool:
    """The kernel; or what writes one token into a buffer with room, else puts it behind, and asks which it is."""
    one = extended and (user.op_type in ("ScatterElements", "Concat") or _axis(user, 2))
    return user.graph is not graph and (user.op_type == "GroupQueryAttention" or one)


def _axis(node: ir.Node, axis: int) -> bool:
    """Shape of one axis."""
    return node.op_type == "Shape" and attribute(node, "start", 0) == axis and attribute(node, "end") == axis + 1
