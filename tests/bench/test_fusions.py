"""Pieces are found where they belong together, and nowhere else."""

from __future__ import annotations

import onnx
from onnx import helper

from isorun.bench.fusions import FUSED, in_pieces

from ..conftest import Exported


def graph(*nodes: tuple[str, list[str], str]) -> list[onnx.NodeProto]:
    return [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes]


def test_attention_in_pieces() -> None:
    found = in_pieces(
        graph(
            ("MatMul", ["q", "k"], "scores"),
            ("Softmax", ["scores"], "weights"),
            ("Cast", ["weights"], "cast"),
            ("MatMul", ["cast", "v"], "y"),
        )
    )
    assert found == ["Attention (Softmax between MatMul)"]


def test_a_softmax_that_routes_is_no_attention() -> None:
    routed = graph(
        ("MatMul", ["x", "w"], "r"), ("Softmax", ["r"], "p"), ("TopK", ["p", "k"], "t"), ("MatMul", ["t", "w"], "y")
    )
    assert in_pieces(routed) == []


def test_swish_is_a_product_with_its_own_input() -> None:
    def gate(other: str) -> list[onnx.NodeProto]:
        return graph(("Sigmoid", ["x"], "s"), ("Mul", [other, "s"], "y"))

    assert in_pieces(gate("x")) == ["Swish (Sigmoid times its input)"]
    assert in_pieces(gate("z")) == []


def test_norms_and_gelu_in_pieces() -> None:
    norm = graph(("ReduceMean", ["xx"], "m"), ("Add", ["m", "eps"], "v"), ("Sqrt", ["v"], "d"))
    assert in_pieces([*norm, *graph(("Erf", ["x"], "e"))]) == [
        "LayerNormalization or RMSNormalization (ReduceMean and Sqrt)",
        "Gelu (Erf)",
    ]


def test_our_own_exports(exported: Exported) -> None:
    def of(name: str, phase: str) -> tuple[list[str], set[str]]:
        nodes = onnx.load(exported(name, phase).model_path, load_external_data=False).graph.node
        return in_pieces(nodes), {node.op_type for node in nodes}

    pieces, kinds = of("bert-base", "forward")
    assert pieces == []
    assert {"Attention", "LayerNormalization", "Gelu"} <= kinds & set(FUSED)
    pieces, _ = of("gemma2-2b", "step")  # soft-capped scores are computed apart
    assert pieces == ["Attention 2 (Softmax between MatMul)", "RotaryEmbedding (products with Cos and Sin)"]
    assert of("transformer-base", "forward")[0] == []  # its sines are added, and rotate nothing
