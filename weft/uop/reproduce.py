"""Graphs as text files, so that what a rewrite failed on can be looked at and run again.

What comes in: a graph and what happened to it. What goes out: a file in the cache folder, one line
per node, `number: OP dtype (sources) [arg, tag]`; `load_graph` reads such a file.
Where it sits: between the node and the rewriter, which saves here the graph that a rule failed on.
The one invariant: the text is data, never code, and saving never hides the error it is about.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from weft.disk import cache_folder, write_atomically
from weft.dtype import ConstFloat, DType, to_dtype
from weft.errors import DataError
from weft.uop.args import (
    AxisType,
    BufferArg,
    KernelInfo,
    LocalArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    StageArg,
    VariableArg,
)
from weft.uop.node import UOp
from weft.uop.opset import Ops

_ENUMS: dict[str, type[Enum]] = {"Ops": Ops, "AxisType": AxisType}
_DATACLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        BufferArg,
        KernelInfo,
        LocalArg,
        ParamArg,
        RangeArg,
        ReduceArg,
        StageArg,
        VariableArg,
    )
}
_LINE = re.compile(r"^(\d+): (\w+) (\w+) \(([\d ]*)\)(?: (\[.*\]))?$")
_DTYPE = re.compile(r"^(\w+?)(?:x(\d+))?$")


def graph_rows(root: UOp) -> str:
    """The graph, sources first, the root last."""
    numbers: dict[UOp, int] = {}
    lines = []
    for node in root.toposort():
        sources = " ".join([str(numbers[s]) for s in node.src])
        line = f"{len(numbers)}: {node.op.name} {node.dtype.name} ({sources})"
        if node.arg is not None or node.tag is not None:
            facts = [_encode(node.arg), _encode(node.tag)]
            line += f" {json.dumps(facts, separators=(',', ':'))}"
        lines.append(line)
        numbers[node] = len(numbers)
    return "\n".join(lines) + "\n"


def parse_rows(text: str) -> UOp:
    """The graph of a text; lines that start with # are comments."""
    nodes: list[UOp] = []
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        match = _LINE.match(line)
        if match is None or int(match[1]) != len(nodes):
            raise DataError(f"node {len(nodes)} of a saved graph is expected, found {line[:200]!r}")
        src = tuple([nodes[int(number)] for number in match[4].split()])
        arg, tag = _decode(json.loads(match[5])) if match[5] else (None, None)
        nodes.append(UOp(Ops[match[2]], _parse_dtype(match[3]), src, arg, tag))
    if not nodes:
        raise DataError("a saved graph has at least one node, found none")
    return nodes[-1]


def save_graph(root: UOp, title: str) -> Path | None:
    """Writes the graph to the cache folder; where, or None if that cannot be written to."""
    comments = "".join(f"# {line}\n" for line in title.splitlines())
    try:
        text = f"{comments}{graph_rows(root)}"
        folder = cache_folder() / "reproducers"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.graph"
        write_atomically(path, text.encode())
    except Exception:
        return None
    return path


def load_graph(path: str | Path) -> UOp:
    """The graph of a file that `save_graph` wrote."""
    return parse_rows(Path(path).read_text(encoding="utf-8"))


def _encode(value: Any) -> Any:
    """An arg or tag as JSON; what JSON lacks is an object whose one key names the kind."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, tuple):
        return [_encode(part) for part in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    kind = type(value).__name__
    if _ENUMS.get(kind) is type(value):
        return {kind: value.name}
    if _DATACLASSES.get(kind) is type(value):
        return {kind: [_encode(getattr(value, field.name)) for field in fields(value)]}
    # what a later stage put there, such as the actions that were applied: for the reader only
    return {"text": repr(value)}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_decode(part) for part in value])
    if not isinstance(value, dict):
        return value
    ((kind, contents),) = value.items()
    if kind == "float":
        return ConstFloat(float.fromhex(contents))
    if kind == "dtype":
        return _parse_dtype(contents)
    if kind == "text":
        return contents
    if kind in _ENUMS:
        return _ENUMS[kind][contents]
    return _DATACLASSES[kind](*_decode(contents))


def _parse_dtype(name: str) -> DType:
    match = _DTYPE.match(name)
    if match is None:
        raise DataError(f"a saved graph has the dtype {name!r}, which does not exist")
    return to_dtype(match[1]).vec(int(match[2])) if match[2] else to_dtype(match[1])
