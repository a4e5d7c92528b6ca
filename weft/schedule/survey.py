"""Survey a tensor graph: facts about every value that the decisions need, in one walk, sources
first.

What comes in: the graph's SINK and the values that must be stored. What goes out: a `Survey`.
Where it sits: before decide. The estimates assume that everything elementwise is computed in place.
The one invariant: cost is linear in the graph; estimates are capped, never exact sums over paths.
"""

from __future__ import annotations

from typing import Any

from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_CAP = 1 << 40
# in units of one addition, per element
_COST = {Ops.EXP2: 10, Ops.LOG2: 12, Ops.SIN: 16, Ops.POW: 40, Ops.SQRT: 4, Ops.FDIV: 3}
_COST |= {Ops.THREEFRY: 120, Ops.IDIV: 8, Ops.MOD: 8}
_FREE = frozenset({Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CAT, Ops.GATHER})
# points per element read from which on a reduction is worth a register tile
_REUSE = 4


class Survey:
    """Facts by node: order, position, elements, cost, read_bytes, reduces, constant, leaf,
    heavy."""

    def __init__(self, sink: UOp, must_store: set[UOp]) -> None:
        self.must_store = must_store
        depth: dict[UOp, int] = {}
        for node in sink.toposort():
            depth[node] = 1 + max((depth[s] for s in node.src), default=0)
        # by depth: what comes later in the program comes later in the order, whatever path led to
        # it
        self.order: list[UOp] = sorted(depth, key=lambda node: depth[node])
        self.position = {node: i for i, node in enumerate(self.order)}
        self.elements: dict[UOp, int] = {}
        self.cost: dict[UOp, int] = {}
        self.read_bytes: dict[UOp, int] = {}
        self.reduces: dict[UOp, bool] = {}
        self.constant: dict[UOp, bool] = {}
        self.leaf: dict[UOp, bool] = {}
        self.heavy: set[UOp] = set()
        self.padded: set[UOp] = set()  # elementwise over something padded: has holes
        for node in self.order:
            self._visit(node)

    def own_cost(self, node: UOp) -> int:
        """The work of one element, sources excluded."""
        if node.op in GroupOp.Movement or node.op in _FREE:
            return 0
        return _COST.get(node.op, 1) if node.op in GroupOp.Elementwise else 0

    def _visit(self, node: UOp) -> None:
        if node.op in (Ops.STORE, Ops.SINK):
            return
        src = node.src[:1] if node.op in GroupOp.Movement else node.src
        elements = 1
        for size in node.shape:
            elements *= size if isinstance(size, int) else max(0, int(size.vmax))
        self.elements[node] = elements
        itemsize = node.dtype.itemsize
        self.constant[node] = self._is_constant(node, src)
        is_elementwise = node.op in GroupOp.Elementwise and not self.constant[node]
        if is_elementwise and any(_is_padded(s) or s in self.padded for s in src):
            self.padded.add(node)
        stored = node in self.must_store or node.op in (Ops.BUFFER, Ops.AFTER, Ops.COPY)
        if stored or node.op is Ops.REDUCE_AXIS:
            self.cost[node] = 0
            self.read_bytes[node] = elements * itemsize
            self.reduces[node] = node.op is Ops.REDUCE_AXIS and not stored
            self.leaf[node] = stored
        else:
            cost = self.own_cost(node) + sum(self.cost[s] for s in src)
            self.cost[node] = min(_CAP, cost)
            reads = sum(self.read_bytes[s] for s in dict.fromkeys(src))
            if node.op in (Ops.SHRINK, Ops.STRIDE, Ops.GATHER):
                reads = min(reads, elements * itemsize)
            self.read_bytes[node] = min(_CAP, reads)
            self.reduces[node] = any(self.reduces[s] for s in src)
            self.leaf[node] = node.op in GroupOp.Movement and self.leaf[src[0]]
        if node.op is Ops.REDUCE_AXIS:
            source = src[0]
            read = max(1, self.read_bytes[source] // max(1, source.dtype.itemsize))
            points = self.elements[source]
            if points >= _REUSE * read and points > elements and not self.constant[source]:
                self.heavy.add(node)

    def _is_constant(self, node: UOp, src: tuple[UOp, ...]) -> bool:
        """Computed from numbers, variables and positions alone, without a reduction: never worth
        storing."""
        if node.op in (Ops.CONST, Ops.IOTA, Ops.VARIABLE, Ops.BIND):
            return True
        if node.op in (Ops.BUFFER, Ops.AFTER, Ops.REDUCE_AXIS, Ops.COPY, Ops.THREEFRY):
            return False
        return bool(src) and all(self.constant[s] for s in src)


def _is_padded(node: UOp) -> bool:
    return node.op is Ops.PAD


def max_elements(shape: tuple[Any, ...]) -> int:
    """How many elements a (possibly symbolic) shape can have at most."""
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else max(0, int(size.vmax))
    return total
