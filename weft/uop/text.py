"""Graphs and expressions as text for people.

What comes in: a node. What goes out: `graph_text`, a numbered listing of everything below it (what
`print` shows), and `expression_text`, one infix expression (what `render` gives).
Where it sits: above the node, with which it registers itself; errors, traces, DEBUG print with it.
The one invariant: printing never fails, never recurses, and never grows without bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.args import (
    BufferArg,
    KernelInfo,
    LocalArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    StageArg,
    VariableArg,
)
from weft.uop.node import UOp, register_printer
from weft.uop.opset import OPSET, Ops, Shape

# How many nodes a listing shows, and how many characters an expression has, unless asked otherwise.
NODE_LIMIT = 400
EXPRESSION_LIMIT = 2000

# ---------------------------------------------------------------- arguments


def dtype_text(dtype: DType) -> str:
    """A dtype without its prefix: `float32`, `float32x4`."""
    return dtype.name


def range_name(number: Iterable[int]) -> str:
    """An axis: `r0`, or `r0_1` for a piece of it."""
    return "r" + "_".join(map(str, number))


_ARGUMENTS: dict[type, Callable[[Any], str]] = {
    BufferArg: lambda arg: f"#{arg.number} of {arg.size} on {_device_text(arg.device)}",
    ParamArg: lambda arg: f"slot {arg.slot} of {arg.size}",
    VariableArg: lambda arg: f"{arg.name} in {arg.lo}..{arg.hi}",
    RangeArg: lambda arg: f"{range_name(arg.number)} {arg.kind.name}",
    ReduceArg: lambda arg: f"{arg.op.name} over {', '.join(map(str, arg.axes)) or 'no axes'}",
    StageArg: lambda arg: f"#{arg.number} {arg.memory}",
    LocalArg: lambda arg: f"#{arg.number} of {arg.size} {arg.memory}",
    KernelInfo: lambda arg: arg.name,
}


def _device_text(device: str | tuple[str, ...]) -> str:
    return device if isinstance(device, str) else f"({', '.join(device)})"


def arg_text(arg: Any) -> str:
    """An arg in a few words."""
    if arg is None:
        return ""
    known = _ARGUMENTS.get(type(arg))
    if known is not None:
        return known(arg)
    return arg.name if isinstance(arg, Enum) else str(arg)


def origin_text(uop: UOp) -> str:
    """The user's line that made the node, or nothing."""
    if uop.origin is None:
        return ""
    path, line = uop.origin
    return f"{os.path.basename(path)}:{line}"


# ---------------------------------------------------------------- listings


def graph_text(uop: UOp, limit: int = NODE_LIMIT) -> str:
    """One line per node below and including `uop`, sources first and named by number.

    Of a long graph the beginning and the end are shown.
    """
    return nodes_text(list(uop.toposort()), limit)


def nodes_text(nodes: Sequence[UOp], limit: int = NODE_LIMIT) -> str:
    """A listing of these nodes in this order: a graph in toposort, or a linear program."""
    numbers = {node: number for number, node in enumerate(nodes)}
    if len(nodes) <= limit:
        shown = list(range(len(nodes)))
    else:
        # the end is where the reader looks for the result
        first = limit // 4
        shown = [*range(first), *range(len(nodes) - (limit - first), len(nodes))]
    width = len(str(len(nodes) - 1))
    depths = _loop_depths(nodes)
    lines = []
    previous = -1
    for number in shown:
        if number != previous + 1:
            lines.append(f"... {number - previous - 1} nodes are not shown ...")
        previous = number
        lines.append(f"{number:{width}d}  {_node_line(nodes[number], numbers, depths[number])}")
    return "\n".join(lines)


def _loop_depths(nodes: Sequence[UOp]) -> list[int]:
    """How deep each node of a linear program stands in loops; graphs have no such order."""
    if not any(node.op is Ops.END for node in nodes):
        return [0] * len(nodes)
    depths = []
    depth = 0
    for node in nodes:
        if node.op in (Ops.END, Ops.ENDIF):
            depth = max(0, depth - 1)
        depths.append(depth)
        if node.op in (Ops.RANGE, Ops.IF):
            depth += 1
    return depths


def _node_line(node: UOp, numbers: dict[UOp, int], depth: int) -> str:
    sources = ", ".join([str(numbers.get(s, s.op.name)) for s in node.src])
    dtype = "" if node.dtype is dtypes.void else dtype_text(node.dtype)
    name = "  " * depth + node.op.name
    head = f"{name:<12} {dtype:<10} {f'({sources})' if sources else '':<12}"
    tail = [arg_text(node.arg), _shape_text(node)]
    if node.tag is not None:
        tail.append(f"tag={node.tag!r}")
    if node.origin is not None:
        tail.append(f"# {origin_text(node)}")
    return f"{head} {'  '.join(part for part in tail if part)}".rstrip()


def _shape_text(node: UOp) -> str:
    """The shape of what has one; a buffer's is its size, which its arg tells."""
    if OPSET[node.op].shape in (Shape.SCALAR, Shape.NONE) or not node.src:
        return ""
    try:
        shape = node.shape
    except Exception:
        # broken graphs are printed as well, above all by the verifier
        return "shape ?"
    return f"[{', '.join(map(_size_text, shape))}]" if shape else ""


def _size_text(size: Any) -> str:
    return expression_text(size, 80) if isinstance(size, UOp) else str(size)


def neighbourhood_text(uop: UOp, depth: int = 2) -> str:
    """A node and the sources nearest to it, for error messages."""
    near: dict[UOp, None] = {uop: None}
    level = [uop]
    for _ in range(depth):
        level = [s for node in level for s in node.src[:8] if s not in near]
        near.update(dict.fromkeys(level))
    # `near` has consumers before sources only along shortest paths: take the graph's own order
    order = [node for node in uop.toposort(gate=lambda u: u in near) if node in near]
    return nodes_text(order, 40)


# ---------------------------------------------------------------- expressions

# Python's precedence, higher binds tighter.
_CONDITIONAL, _NOT, _COMPARE, _OR, _XOR, _AND, _SHIFT, SUM, PRODUCT, _UNARY, ATOM = range(11)

BINARY: dict[Ops, tuple[str, int]] = {
    Ops.ADD: ("+", SUM),
    Ops.MUL: ("*", PRODUCT),
    Ops.FDIV: ("/", PRODUCT),
    Ops.IDIV: ("//", PRODUCT),
    Ops.MOD: ("%", PRODUCT),
    Ops.AND: ("&", _AND),
    Ops.OR: ("|", _OR),
    Ops.XOR: ("^", _XOR),
    Ops.SHL: ("<<", _SHIFT),
    Ops.SHR: (">>", _SHIFT),
}
_COMPARISONS = {Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.CMPEQ: "=="}

# the text of a node and how tightly it binds
Piece = tuple[str, int]


def expression_text(uop: UOp, limit: int = EXPRESSION_LIMIT) -> str:
    """The node as a Python-like expression; parts that would be too long become `...`.

    Ranges are r<number>, variables have their name, buffers are p<slot>.
    """
    pieces: dict[UOp, Piece] = {}
    text = ""
    for node in uop.toposort():
        text, binding = _piece(node, [pieces[s] for s in node.src])
        pieces[node] = (text, binding) if len(text) <= limit else ("...", ATOM)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _wrap(piece: Piece, at_least: int) -> str:
    text, binding = piece
    return text if binding >= at_least else f"({text})"


def _piece(node: UOp, src: list[Piece]) -> Piece:
    op = node.op
    if op in BINARY and len(src) == 2:
        return _binary_piece(node, src)
    if op in _COMPARISONS and len(src) == 2:
        if op is Ops.CMPEQ and node.src[1].op is Ops.CONST and node.src[1].arg is False:
            return f"not {_wrap(src[0], _NOT)}", _NOT
        sides = [_wrap(side, _COMPARE + 1) for side in src]
        return f"{sides[0]}{_COMPARISONS[op]}{sides[1]}", _COMPARE
    if op is Ops.NEG:
        return f"-{_wrap(src[0], _UNARY)}", _UNARY
    if op is Ops.WHERE and len(src) == 3:
        condition, chosen, other = (_wrap(part, _NOT) for part in src)
        return f"{chosen} if {condition} else {other}", _CONDITIONAL
    leaf = _LEAVES.get(op)
    if leaf is not None:
        return leaf(node)
    compound = _COMPOUNDS.get(op)
    if compound is not None and src:
        return compound(node, src), ATOM
    return _call(op.name.lower(), src), ATOM


def _binary_piece(node: UOp, src: list[Piece]) -> Piece:
    symbol, binding = BINARY[node.op]
    left = _wrap(src[0], binding)
    if node.op is Ops.ADD:
        # x + (-y) is how x - y is built
        right = node.src[1]
        text = src[1][0]
        if right.op is Ops.NEG or (right.op is Ops.CONST and text.startswith("-")):
            if not text.startswith("--"):
                return f"{left}-{text[1:]}", binding
    return f"{left}{symbol}{_wrap(src[1], binding + 1)}", binding


def _call(name: str, src: Iterable[Piece]) -> str:
    return f"{name}({', '.join(text for text, _ in src)})"


def _constant(node: UOp) -> Piece:
    text = str(node.arg)
    return text, _UNARY if text.startswith("-") else ATOM


_LEAVES: dict[Ops, Callable[[UOp], Piece]] = {
    Ops.CONST: _constant,
    Ops.VARIABLE: lambda node: (node.arg.name, ATOM),
    Ops.BIND: lambda node: (f"({node.src[0].arg.name}={node.src[1].arg})", ATOM),
    Ops.PARAM: lambda node: (f"p{node.arg.slot}", ATOM),
    Ops.BUFFER: lambda node: (f"b{node.arg.number}", ATOM),
    Ops.LOCAL: lambda node: (f"local{node.arg.number}", ATOM),
    Ops.STAGE: lambda node: (f"stage{node.arg.number}", ATOM),
    Ops.ACC: lambda node: (f"acc{node.arg}", ATOM),
    Ops.RANGE: lambda node: (range_name(node.arg.number), ATOM),
    Ops.SPECIAL: lambda node: (str(node.arg), ATOM),
}


def _index(node: UOp, src: list[Piece]) -> str:
    place = f"{_wrap(src[0], ATOM)}[{src[1][0]}"
    return f"{place}]" if len(src) < 3 else f"{place} if {_wrap(src[2], _NOT)}]"


def _reduce(node: UOp, src: list[Piece]) -> str:
    return _call(f"reduce_{arg_text(node.arg).lower()}", src)


def _vectorize(node: UOp, src: list[Piece]) -> str:
    if all(s is node.src[0] for s in node.src):
        return f"{dtype_text(node.dtype)}({src[0][0]})"
    return f"{{{', '.join(text for text, _ in src)}}}"


def _lanes(node: UOp, src: list[Piece]) -> str:
    if len(src) == 1:
        return f"{_wrap(src[0], ATOM)}.lanes{list(node.arg)}"
    return f"({', '.join(text for text, _ in src)}).lanes{list(node.arg)}"


_COMPOUNDS: dict[Ops, Callable[[UOp, list[Piece]], str]] = {
    Ops.INDEX: _index,
    # a load is its place; a register's second source only says when
    Ops.LOAD: lambda node, src: _wrap(src[0], ATOM),
    Ops.CAST: lambda node, src: _call(dtype_text(node.dtype), src),
    Ops.BITCAST: lambda node, src: _call(f"{dtype_text(node.dtype)}_bits", src),
    Ops.MAX: lambda node, src: _call("max", src),
    Ops.REDUCE: _reduce,
    Ops.VECTORIZE: _vectorize,
    Ops.GEP: _lanes,
}


register_printer(expression_text, graph_text)
