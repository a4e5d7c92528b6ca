"""Nodes as rows of numbers: how a trace keeps graphs.

What comes in: UOps. What goes out: a `NodeTable` of rows `[op, dtype, arg, shape, tag, origin,
*sources]`, where text is a number in `strings`, an origin one in `origins`, a source one of a row,
and -1 stands for nothing.
Where it sits: under the recorder. The graphs before and after every pass of a kernel share one
table, so a node that stays is written once.
The one invariant: a row's sources have smaller numbers than the row.
"""

from __future__ import annotations

from typing import Any

from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops, Shape
from weft.uop.text import arg_text, expression_text

NOTHING = -1
# Longer ones (tables of constants) say nothing more to a reader.
TEXT_LIMIT = 240

_UNSHAPED = frozenset(op for op in Ops if OPSET[op].shape in (Shape.SCALAR, Shape.NONE))


class NodeTable:
    """The rows of some graphs, and what they refer to."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.strings: list[str] = []
        self.origins: list[tuple[str, int]] = []
        self._numbers: dict[UOp, int] = {}
        self._strings: dict[str, int] = {}
        self._origins: dict[tuple[str, int], int] = {}
        # arguments and dtypes repeat far more often than they differ
        self._arguments: dict[tuple[type, Any], int] = {}
        self._dtypes: dict[Any, int] = {}

    def number(self, root: UOp) -> int:
        """The row of a node; all below it that is new is added."""
        numbers = self._numbers
        found = numbers.get(root)
        if found is not None:
            return found
        for node in root.toposort(gate=lambda u: u not in numbers):
            if node not in numbers:
                row = self._row(node)
                numbers[node] = len(self.rows)
                self.rows.append(row)
        return numbers[root]

    def text(self, text: str) -> int:
        """The number of a string, cut if it is very long."""
        if not text:
            return NOTHING
        found = self._strings.get(text)
        if found is None:
            found = self._strings[text] = len(self.strings)
            self.strings.append(text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…")
        return found

    def origin(self, origin: tuple[str, int] | None) -> int:
        """The number of a source line."""
        if origin is None:
            return NOTHING
        found = self._origins.get(origin)
        if found is None:
            found = self._origins[origin] = len(self.origins)
            self.origins.append(origin)
        return found

    def _row(self, node: UOp) -> list[int]:
        numbers = self._numbers
        return [
            self.text(node.op.name),
            self._dtype(node.dtype),
            self._argument(node.arg),
            NOTHING if node.op in _UNSHAPED or not node.src else self.text(_shape_text(node)),
            NOTHING if node.tag is None else self.text(str(node.tag)),
            self.origin(node.origin),
            *[numbers[s] for s in node.src],
        ]

    def _dtype(self, dtype: Any) -> int:
        found = self._dtypes.get(dtype)
        if found is None:
            name = "" if dtype.name == "void" else dtype.name
            found = self._dtypes[dtype] = self.text(name)
        return found

    def _argument(self, arg: Any) -> int:
        if arg is None:
            return NOTHING
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0
        key = (type(arg), str(arg) if isinstance(arg, float) else arg)
        try:
            found = self._arguments.get(key)
        except TypeError:
            return self.text(arg_text(arg))
        if found is None:
            found = self._arguments[key] = self.text(arg_text(arg))
        return found


def _shape_text(node: UOp) -> str:
    try:
        shape = node.shape
    except Exception:
        # broken graphs are looked at as well, above all those
        return "?"
    sizes = [expression_text(s, 60) if isinstance(s, UOp) else str(s) for s in shape]
    return f"({', '.join(sizes)})" if sizes else ""
