"""Seeded mutations of small valid models: bytes of the file, and fields of the messages in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from isorun.export.external import messages

from .graphs import Array, model, node

INTEGERS = (0, 1, -1, 2, 7, 10, 16, 17, 100, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = (
    "", "x", "\0", "../x", "/etc/passwd", "h", "w", "table", "a" * 3000, "é😀", "0", "-1", "9" * 30, "location",
    "length", "If", "Loop", "Dropout", "Softmax", "Gather", "Constant", "Twice", "local", "SequenceEmpty", "%s{}\n[b]",
)  # fmt: skip
BYTES = (b"", b"\0", b"\xff" * 8, b"a" * 5, b"\x80abc")
FLOATS = (0.0, float("nan"), float("inf"), -1.0, 1e30)


def whole() -> onnx.ModelProto:
    """Ids looked up, a matrix, a local function, dropout, a subgraph, a softmax and a sparse tensor."""
    rng = np.random.default_rng(0)
    branches = [
        helper.make_graph([node(op, "h", "t")], op, [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
        for op in ("Identity", "Neg")
    ]
    nodes = [
        node("Gather", "table ids", "x"), node("MatMul", "x w", "h0"), node("Add", "h0 big", "h1"),
        node("Twice", "h1", "h2", domain="local"),
        node("Constant", "", "off", value=numpy_helper.from_array(np.array(False))),
        node("Dropout", "h2 ratio off", "h"),
        node("If", "cond", "i", then_branch=branches[0], else_branch=branches[1]),
        node("Softmax", "i", "y", axis=-1),
    ]  # fmt: skip
    constants: dict[str, Array] = {
        "table": rng.standard_normal((10, 8)).astype(np.float32), "w": rng.standard_normal((8, 8)).astype(np.float32),
        "big": rng.standard_normal(8).astype(np.float32), "ratio": np.array(0.5, np.float32), "cond": np.array(True),
    }  # fmt: skip
    shape = ["batch", "sequence"]
    proto = model(nodes, {"ids": ("int64", shape)}, {"y": ("float32", [*shape, 8])}, constants)
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    proto.opset_import.append(versions[1])
    proto.functions.append(
        helper.make_function("local", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], versions[:1])
    )
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array([1, 2], np.float32), "s"), numpy_helper.from_array(np.array([1, 3])), [5]
        )
    )
    return proto


def external() -> tuple[onnx.ModelProto, bytes]:
    """The same with its table in the file `w.bin`, and what that file holds."""
    proto = whole()
    table = proto.graph.initializer[0]
    content = table.raw_data
    table.ClearField("raw_data")
    table.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(len(content)))):
        table.external_data.add(key=key, value=value)
    return proto, content


def mutants(seed: int) -> Iterator[bytes]:
    """Files without end, each with one or a few changes."""
    rng = random.Random(seed)
    seeds = [whole(), external()[0]]
    while True:
        proto = rng.choice(seeds)
        yield _fields(proto, rng) if rng.random() < 0.7 else _bytes(proto.SerializeToString(), rng)


def _fields(proto: onnx.ModelProto, rng: random.Random) -> bytes:
    mutant = onnx.ModelProto()
    mutant.CopyFrom(proto)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        message: Any = rng.choice(list(messages(mutant)))
        present = [field for field, _ in message.ListFields()]
        field = rng.choice(present if present and rng.random() < 0.6 else list(message.DESCRIPTOR.fields))
        if rng.random() < 0.15:
            message.ClearField(field.name)
        elif field.type == field.TYPE_MESSAGE:
            _message(mutant, message, field, rng)
        else:
            _scalar(message, field, rng)
    return mutant.SerializeToString()


def _message(mutant: onnx.ModelProto, message: Any, field: Any, rng: random.Random) -> None:
    """Add, drop or repeat a message of a list, or put another of its kind in its place."""
    if field.is_repeated:
        items = getattr(message, field.name)
        if items and rng.random() < 0.4:
            del items[rng.randrange(len(items))]
        else:
            extra = field.message_type._concrete_class()
            if items and rng.random() < 0.7:
                extra.CopyFrom(rng.choice(list(items)))
            items.append(extra)
        return
    alike = [other for other in messages(mutant) if other.DESCRIPTOR is field.message_type]
    other = field.message_type._concrete_class()
    if alike:
        other.CopyFrom(rng.choice(alike))
    getattr(message, field.name).CopyFrom(other)


def _scalar(message: Any, field: Any, rng: random.Random) -> None:
    value = _value(field, rng)
    if not field.is_repeated:
        setattr(message, field.name, value)
        return
    items = getattr(message, field.name)
    if items and rng.random() < 0.7:
        items[rng.randrange(len(items))] = value
    else:
        items.append(value)


def _value(field: Any, rng: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return rng.choice(BYTES)
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.type == field.TYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    number = rng.choice(INTEGERS)
    if field.type == field.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    return number % 2**64 if field.type == field.TYPE_UINT64 else number


def _bytes(content: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8, 30])):
        place = rng.randrange(len(mutant) or 1)
        kind = rng.randrange(5)
        if kind == 0 and mutant:
            mutant[place] = rng.randrange(256)
        elif kind == 1 and mutant:
            mutant[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del mutant[place : place + rng.randrange(1, 20)]
        elif kind == 3:
            mutant[place:place] = rng.randbytes(rng.randrange(1, 9))
        elif rng.random() < 0.3:
            del mutant[place:]
    return bytes(mutant)
