"""Writes linear programs for the PYTHON device as text, and reads them back.

In: a linear program. Out: one line per UOp, `number: OP dtype (sources) [arg, tag]`; `parse` is the
inverse. Sits beside the other renderers; the interpreter in `runtime/` reads the text.
Invariant: the text is data, never code, and the same program always gives the same text.

    program "add" version 1
    0: PARAM float32 () [{"ParamArg":[0,4]},null]
    1: CONST int64 () [3,null]
    2: INDEX float32 (0 1)
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from weft.dtype import ConstFloat, DType, to_dtype
from weft.errors import CompileError, WeftError
from weft.fragment import Digit, Fragment, OperandMap
from weft.machine import Target
from weft.renderer.base import Renderer
from weft.uop.args import (
    AxisType,
    LocalArg,
    MatrixArg,
    ParamArg,
    RangeArg,
    TileArg,
    Unordered,
    VariableArg,
)
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

FORMAT_VERSION = 1

# Memory, run-time values and constants mean the same wherever they stand, so they need no place.
LEAVES = frozenset({Ops.CONST, Ops.PARAM, Ops.VARIABLE, Ops.LOCAL})

_ENUMS: dict[str, type[Enum]] = {"Ops": Ops, "AxisType": AxisType}
_DATACLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(LocalArg, ParamArg, RangeArg, VariableArg, MatrixArg, TileArg, Unordered),
        *(Fragment, OperandMap, Digit),
    )
}
_HEADER = re.compile(r'^program (".*") version (\d+)$')
_LINE = re.compile(r"^(\d+): (\w+) (\w+) \(([\d ]*)\)(?: (\[.*\]))?$")
_DTYPE = re.compile(r"^(\w+?)(?:x(\d+))?$")


class PythonRenderer(Renderer):
    """Prints for the interpreter, which computes every op on every dtype by its definition.

    `lacks` takes ops out, so that they arrive decomposed: how decompositions are checked here.
    """

    name = "python"
    suffix = "weft"

    def __init__(self, target: Target | None = None, lacks: Collection[Ops] = ()) -> None:
        # No vectors: as the oracle it should see kernels as plain as they can be.
        super().__init__(target or Target(name="python", vector_bytes=0))
        native = sorted(GroupOp.Elementwise - set(lacks), key=lambda op: op.value)
        self.code_for_op = dict.fromkeys(native, True)

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        """The program as text; SINK, which does nothing, is left out."""
        lines = [f"program {json.dumps(name)} version {FORMAT_VERSION}"]
        numbers: dict[UOp, int] = {}
        for uop in _with_leaves(uops):
            for source in uop.src:
                if source not in numbers:
                    raise CompileError(f"in {name}, {uop!r} uses {source!r} before it is defined")
            lines.append(_line_of(len(numbers), uop, [numbers[source] for source in uop.src]))
            numbers[uop] = len(numbers)
        return "\n".join(lines) + "\n"


def _with_leaves(uops: Sequence[UOp]) -> list[UOp]:
    """The program without SINK and repeated leaves, with the leaves that it does not list."""
    ordered: dict[UOp, None] = {}
    for uop in uops:
        if uop.op is Ops.SINK:
            continue
        if uop in ordered and uop.op not in LEAVES:
            raise CompileError(f"{uop!r} stands twice in the program; each UOp stands once")
        for source in uop.src:
            if source.op in LEAVES:
                ordered.setdefault(source)
        ordered.setdefault(uop)
    return list(ordered)


def _line_of(number: int, uop: UOp, sources: list[int]) -> str:
    line = f"{number}: {uop.op.name} {uop.dtype.name} ({' '.join(map(str, sources))})"
    if uop.arg is None and uop.tag is None:
        return line
    facts = [_encode(uop.arg, uop), _encode(uop.tag, uop)]
    return f"{line} {json.dumps(facts, separators=(',', ':'))}"


def _encode(value: Any, uop: UOp) -> Any:
    """An arg or tag as JSON. What JSON lacks becomes an object whose one key names the kind."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple):
        return [_encode(part, uop) for part in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    kind = type(value).__name__
    if _ENUMS.get(kind) is type(value):
        return {kind: value.name}
    if _DATACLASSES.get(kind) is type(value):
        return {kind: [_encode(getattr(value, field.name), uop) for field in fields(value)]}
    raise CompileError(f"{uop!r} cannot be written for the PYTHON device: its arg is a {kind}")


def parse(text: str) -> tuple[str, list[UOp]]:
    """The name and the linear program of a text, or `CompileError` with the line that is wrong."""
    lines = text.splitlines()
    header = _HEADER.match(lines[0]) if lines else None
    if header is None or int(header[2]) != FORMAT_VERSION:
        found = repr(lines[0]) if lines else "nothing"
        raise CompileError(
            f'a program for the PYTHON device starts with `program "name" version '
            f"{FORMAT_VERSION}`, found {found}"
        )
    uops: list[UOp] = []
    for line in lines[1:]:
        try:
            uops.append(_parse_line(line, uops))
        except (KeyError, IndexError, TypeError, ValueError, WeftError) as error:
            raise CompileError(f"line {len(uops) + 2} of a program is wrong: {line!r}") from error
    return json.loads(header[1]), uops


def _parse_line(line: str, uops: list[UOp]) -> UOp:
    match = _LINE.match(line)
    if match is None or int(match[1]) != len(uops):
        raise ValueError(f"number {len(uops)} expected")
    src = tuple(uops[int(number)] for number in match[4].split())
    arg, tag = _decode(json.loads(match[5])) if match[5] else (None, None)
    return UOp(Ops[match[2]], _parse_dtype(match[3]), src, arg, tag)


def _parse_dtype(name: str) -> DType:
    match = _DTYPE.match(name)
    if match is None:
        raise ValueError(f"{name} is no dtype")
    return to_dtype(match[1]).vec(int(match[2])) if match[2] else to_dtype(match[1])


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part) for part in value)
    if not isinstance(value, dict):
        return value
    ((kind, contents),) = value.items()
    if kind == "float":
        return ConstFloat(float.fromhex(contents))
    if kind == "dtype":
        return _parse_dtype(contents)
    if kind in _ENUMS:
        return _ENUMS[kind][contents]
    return _DATACLASSES[kind](*_decode(contents))
