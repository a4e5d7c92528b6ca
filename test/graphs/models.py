"""Small ONNX files, written by hand: the tests that use them need no `onnx` package.

In: nodes, constants and inputs as Python has them. Out: bytes, as protocol buffers have them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT, INT64, STRING, BOOL = 1, 7, 8, 9
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float64": 11}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def text(field_number: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field_number << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, value: Any) -> bytes:
    """A TensorProto with its bytes inside."""
    array = np.asarray(value)
    dims = b"".join(number(1, size) for size in array.shape)
    return dims + number(2, _TYPES[array.dtype.name]) + text(8, name) + text(9, array.tobytes())


def external(name: str, shape: Sequence[int], entries: Mapping[str, str]) -> bytes:
    """A TensorProto of float32 whose bytes are in another file."""
    dims = b"".join(number(1, size) for size in shape)
    pairs = b"".join(text(13, text(1, k) + text(2, v)) for k, v in entries.items())
    return dims + number(2, FLOAT) + text(8, name) + pairs + number(14, 1)


def attribute(name: str, value: Any) -> bytes:
    head = text(1, name)
    if isinstance(value, bool | int):
        return head + number(3, int(value)) + number(20, 2)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, str):
        return head + text(4, value) + number(20, 3)
    if isinstance(value, np.ndarray):
        return head + text(5, tensor("", value)) + number(20, 4)
    if isinstance(value, Graph):
        return head + text(6, value.encode()) + number(20, 5)
    if all(isinstance(one, float) for one in value):
        packed = b"".join(varint(7 << 3 | 5) + struct.pack("<f", one) for one in value)
        return head + packed + number(20, 6)
    return head + b"".join(number(8, one) for one in value) + number(20, 7)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any
) -> bytes:
    parts = [text(1, name) for name in inputs] + [text(2, name) for name in outputs]
    parts += [text(4, op), text(7, domain)] if domain else [text(4, op)]
    return b"".join(parts + [text(5, attribute(k, v)) for k, v in attributes.items()])


def value(name: str, kind: int, shape: Sequence[int | str] | None) -> bytes:
    dims = [number(1, n) if isinstance(n, int) else text(2, n) for n in shape or ()]
    inner = number(1, kind)
    if shape is not None:
        inner += text(2, b"".join(text(1, one) for one in dims))
    return text(1, name) + text(2, text(1, inner))


@dataclass
class Graph:
    """A graph: (name, type, shape) of inputs and outputs, nodes and constants as bytes."""

    inputs: Sequence[tuple[str, int, Any]]
    outputs: Sequence[tuple[str, int, Any]]
    nodes: Sequence[bytes]
    constants: Sequence[bytes] = field(default_factory=list)

    def encode(self) -> bytes:
        parts = [text(1, one) for one in self.nodes] + [text(2, "graph")]
        parts += [text(5, one) for one in self.constants]
        parts += [text(11, value(*one)) for one in self.inputs]
        return b"".join(parts + [text(12, value(*one)) for one in self.outputs])


def model(graph: Graph, opsets: Mapping[str, int] | None = None, extra: bytes = b"") -> bytes:
    versions = {"": 17} if opsets is None else opsets
    sets = [text(8, text(1, d) + number(2, v)) for d, v in versions.items()]
    return number(1, 8) + text(7, graph.encode()) + b"".join(sets) + extra


def affine() -> bytes:
    """y = x @ ones + [1, 2], for any number of rows."""
    return model(
        Graph(
            [("x", FLOAT, ["rows", 3])],
            [("y", FLOAT, ["rows", 2])],
            [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])],
            [
                tensor("w", np.ones((3, 2), dtype=np.float32)),
                tensor("b", np.array([1, 2], dtype=np.float32)),
            ],
        )
    )


def shapes() -> bytes:
    """Shape arithmetic, a loop and a branch: y is x, flattened, plus 0 + 1 + 2."""
    body = Graph(
        [("i", INT64, []), ("go", BOOL, []), ("s", FLOAT, [])],
        [("go2", BOOL, []), ("s2", FLOAT, [])],
        [
            node("Identity", ["go"], ["go2"]),
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Add", ["s", "f"], ["s2"]),
        ],
    )
    yes = Graph([], [("r", FLOAT, None)], [node("Add", ["flat", "total"], ["r"])])
    no = Graph([], [("r2", FLOAT, None)], [node("Identity", ["flat"], ["r2"])])
    return model(
        Graph(
            [("x", FLOAT, ["n", 4])],
            [("y", FLOAT, None)],
            [
                node("Shape", ["x"], ["size"]),
                node("ReduceProd", ["size"], ["all"], keepdims=1),
                node("Reshape", ["x", "all"], ["flat"]),
                node("Loop", ["three", "", "zero"], ["total"], body=body),
                node("Greater", ["total", "zero"], ["more"]),
                node("If", ["more"], ["y"], then_branch=yes, else_branch=no),
            ],
            [tensor("three", np.int64(3)), tensor("zero", np.float32(0))],
        )
    )


def mixed() -> bytes:
    """Convolution, pooling, a quantised product, a sort and a function of the model."""
    body = node("Mul", ["a", "a"], ["aa"]) + b""
    twice = text(1, "Square") + text(4, "a") + text(5, "aa") + text(7, body)
    twice += text(9, text(1, "") + number(2, 17)) + text(10, "own")
    return model(
        Graph(
            [("x", FLOAT, [1, 1, 4, 4])],
            [("y", FLOAT, None), ("places", INT64, None)],
            [
                node("Conv", ["x", "w"], ["c"], kernel_shape=[2, 2], strides=[1, 1]),
                node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2]),
                node("Square", ["p"], ["s"], domain="own"),
                node("QuantizeLinear", ["s", "scale", "zero"], ["q"]),
                node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
                node("Slice", ["d", "starts", "ends", "axes"], ["part"]),
                node("Concat", ["part", "d"], ["joined"], axis=3),
                node("TopK", ["joined", "k"], ["y", "places"], axis=-1, largest=1),
            ],
            [
                tensor("w", np.full((1, 1, 2, 2), 0.5, dtype=np.float32)),
                tensor("scale", np.float32(0.25)),
                tensor("zero", np.uint8(3)),
                tensor("starts", np.array([0], dtype=np.int64)),
                tensor("ends", np.array([1], dtype=np.int64)),
                tensor("axes", np.array([3], dtype=np.int64)),
                tensor("k", np.array([2], dtype=np.int64)),
            ],
        ),
        {"": 17, "own": 1},
        text(25, twice),
    )
