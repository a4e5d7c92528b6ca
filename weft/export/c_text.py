"""Pieces of C: types, arrays of constants, expressions over sizes.

In: dtypes, bytes, UOps over sizes. Out: text.
Sits under `write_c`.
Invariant: what is printed reads back to the same bits on every C11 compiler with IEEE floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.dtype import DType, dtypes
from weft.errors import ExportError
from weft.renderer.cstyle import shortest_float32
from weft.uop.node import UOp
from weft.uop.opset import Ops

C_TYPES = {
    dtypes.bool: "uint8_t",
    dtypes.int8: "int8_t",
    dtypes.uint8: "uint8_t",
    dtypes.int16: "int16_t",
    dtypes.uint16: "uint16_t",
    dtypes.int32: "int32_t",
    dtypes.uint32: "uint32_t",
    dtypes.int64: "int64_t",
    dtypes.uint64: "uint64_t",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_COLUMNS = 98


def c_type(dtype: DType) -> str:
    """The type of an element in memory; narrow floats are their bits."""
    found = C_TYPES.get(dtype)
    if found is None:
        found = {1: "uint8_t", 2: "uint16_t"}[dtype.itemsize]
    return found


def array_lines(data: bytes, dtype: DType) -> Iterator[str]:
    """The elements of a constant, a few on a line."""
    kind = c_type(dtype)
    if kind == "float":
        words = _floats(np.frombuffer(data, "<f4"), np.float32)
    elif kind == "double":
        words = _floats(np.frombuffer(data, "<f8"), np.float64)
    else:
        sign = "i" if kind.startswith("int") else "u"
        numbers = np.frombuffer(data, f"<{sign}{dtype.itemsize}")
        suffix = {"int64_t": "ll", "uint64_t": "ull", "uint32_t": "u"}.get(kind, "")
        words = [f"{number}{suffix}" for number in numbers.tolist()]
        if kind in ("int32_t", "int64_t"):
            least = f"{-(1 << (8 * dtype.itemsize - 1))}{suffix}"
            safe = f"({-(1 << (8 * dtype.itemsize - 1)) + 1}{suffix} - 1)"
            words = [safe if word == least else word for word in words]
    line = ""
    for word in words:
        if len(line) + len(word) + 2 > _COLUMNS:
            yield line.rstrip()
            line = ""
        line += f"{word}, "
    if line:
        yield line.rstrip()


def _floats(numbers: Any, kind: Any) -> list[str]:
    suffix = "f" if kind is np.float32 else ""
    # as many digits as tell neighbours apart; 0 and whole numbers are most of some constants
    digits = 9 if kind is np.float32 else 17
    if kind is np.float32 and len(numbers) <= 1 << 16:
        shown = [shortest_float32(float(x)) if np.isfinite(x) else "" for x in numbers]
    else:
        shown = [f"{x:.{digits}g}" for x in numbers.tolist()]
    words = []
    for text, number in zip(shown, numbers.tolist(), strict=True):
        if number != number:
            words.append("NAN")
        elif number in (float("inf"), float("-inf")):
            words.append("INFINITY" if number > 0 else "-INFINITY")
        else:
            words.append(text + ("" if "." in text or "e" in text else ".0") + suffix)
    return words


# ------------------------------------------------------------ expressions over sizes
def _divide(x: str, y: str) -> str:
    return f"size_divide({x}, {y})"


_EXPRESSIONS: dict[Ops, Callable[..., str]] = {
    Ops.ADD: lambda x, y: f"({x} + {y})",
    Ops.MUL: lambda x, y: f"({x} * {y})",
    Ops.NEG: lambda x: f"(-{x})",
    Ops.MAX: lambda x, y: f"({x} > {y} ? {x} : {y})",
    Ops.IDIV: _divide,
    Ops.MOD: lambda x, y: f"({x} - {_divide(x, y)} * {y})",
    Ops.XOR: lambda x, y: f"({x} ^ {y})",
    Ops.AND: lambda x, y: f"({x} & {y})",
    Ops.OR: lambda x, y: f"({x} | {y})",
    Ops.CMPLT: lambda x, y: f"({x} < {y})",
    Ops.CMPEQ: lambda x, y: f"({x} == {y})",
    Ops.CMPNE: lambda x, y: f"({x} != {y})",
    Ops.WHERE: lambda c, x, y: f"({c} ? {x} : {y})",
    Ops.CAST: lambda x: x,
}


def size_text(value: Any) -> str:
    """An expression over sizes, in 64 bits; C and JavaScript read it alike."""
    if isinstance(value, int):
        return str(value)
    texts: dict[UOp, str] = {}
    for node in value.toposort():
        if node.op is Ops.CONST:
            texts[node] = str(int(node.arg))
        elif node.op is Ops.VARIABLE:
            texts[node] = node.arg.name
        elif node.op in _EXPRESSIONS:
            texts[node] = _EXPRESSIONS[node.op](*[texts[s] for s in node.src])
        else:
            raise ExportError(
                f"a size depends on {node.op.name}, which exported code cannot compute"
            )
    found = texts[value]
    if len(found) > 4000:
        raise ExportError("a size is too long an expression of other sizes; give it a Variable")
    return found
