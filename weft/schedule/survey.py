"""Survey a tensor graph: facts about every value that the decisions need, in one walk, sources
first.

What comes in: the graph's SINK and the values that must be stored. What goes out: a `Survey`.
Where it sits: before decide. The estimates assume that everything elementwise is computed in place.
The one invariant: cost is linear in the graph; estimates are capped, never exact sums over paths.
"""

from __future__ import annotations

from typing import Any

from weft.budgets import CHOICES
from weft.machine import GENERIC, Target
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.unpacked import is_unpacked

_CAP = 1 << 40
_FREE = frozenset({Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.CAT, Ops.GATHER})
# points per element read from which on a reduction is worth a register tile
_REUSE = 4
# storages that are told apart below one value
_MOST_LEAVES = 16

Reads = dict[UOp, int]


class Survey:
    """Facts by node: order, position, elements, cost, read_bytes, reduces, constant, leaf,
    heavy, choices, tiles."""

    def __init__(self, sink: UOp, must_store: set[UOp], target: Target = GENERIC) -> None:
        self.must_store = must_store
        self.target = target
        depth: dict[UOp, int] = {}
        for node in sink.toposort():
            depth[node] = 1 + max((depth[s] for s in node.src), default=0)
        # by depth: what comes later in the program comes later in the order, whatever path led to
        # it
        self.order: list[UOp] = sorted(depth, key=lambda node: depth[node])
        self.position = {node: i for i, node in enumerate(self.order)}
        self.elements: dict[UOp, int] = {}
        self.cost: dict[UOp, float] = {}
        self.read_bytes: dict[UOp, int] = {}
        self._reads: dict[UOp, Reads] = {}  # the same, storage by storage
        self.reduces: dict[UOp, bool] = {}
        self.constant: dict[UOp, bool] = {}
        self.leaf: dict[UOp, bool] = {}
        self.heavy: set[UOp] = set()
        self.padded: set[UOp] = set()  # elementwise over something padded: has holes
        self.choices: set[UOp] = set()  # CATs along an axis that chooses between computed pieces
        # axis -> how many neighbours along it are computed together: the pieces of such a CAT
        self.tiles: dict[UOp, dict[int, int]] = {}
        for node in self.order:
            self._visit(node)

    def own_cost(self, node: UOp) -> float:
        """The work of one element, sources excluded."""
        if node.op in GroupOp.Movement or node.op in _FREE:
            return 0
        return self.target.op_cost(node.op) if node.op in GroupOp.Elementwise else 0

    def is_unpacked(self, node: UOp) -> bool:
        """Whether it is computed out of less memory, of narrower elements but for scales."""
        size = node.dtype.itemsize
        reads = self._reads[node]
        wide = sum(count for leaf, count in reads.items() if leaf.dtype.itemsize >= size)
        return is_unpacked(self.elements[node] * size, sum(reads.values()), wide)

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
            self._reads[node] = {node: elements * itemsize}
            self.reduces[node] = node.op is Ops.REDUCE_AXIS and not stored
            self.leaf[node] = stored
        else:
            costs = [self.cost[s] for s in src]
            # an element of a CAT is one of its pieces'
            below = max(costs) if node.op is Ops.CAT else sum(costs)
            self.cost[node] = min(_CAP, self.own_cost(node) + below)
            self._reads[node] = self._read_by(node, src, elements * itemsize)
            self.reduces[node] = any(self.reduces[s] for s in src)
            self.leaf[node] = node.op in GroupOp.Movement and self.leaf[src[0]]
        if node.op not in (Ops.BUFFER, Ops.AFTER, Ops.COPY, Ops.REDUCE_AXIS):
            self._find_tiles(node, src)
        self.read_bytes[node] = min(_CAP, sum(self._reads[node].values()))
        if node.op is Ops.REDUCE_AXIS:
            source = src[0]
            read = max(1, self.read_bytes[source] // max(1, source.dtype.itemsize))
            points = self.elements[source]
            if points >= _REUSE * read and points > elements and not self.constant[source]:
                self.heavy.add(node)

    def _read_by(self, node: UOp, src: tuple[UOp, ...], size: int) -> Reads:
        """Bytes of each storage: what is read by two paths (windows that overlap) counts once."""
        distinct = list(dict.fromkeys(src))
        reads = self._reads[distinct[0]] if distinct else {}
        if len(distinct) > 1:
            reads = dict(reads)
            for source in distinct[1:]:
                for leaf, count in self._reads[source].items():
                    whole = self.elements[leaf] * leaf.dtype.itemsize
                    reads[leaf] = min(reads.get(leaf, 0) + count, whole)
            if len(reads) > _MOST_LEAVES:
                reads = {node: min(_CAP, sum(reads.values()))}
        if node.op in (Ops.SHRINK, Ops.STRIDE, Ops.GATHER) and sum(reads.values()) > size:
            # of the storages as much each as of all of them
            total = sum(reads.values())
            reads = {leaf: count * size // total for leaf, count in reads.items()}
        return reads

    def _find_tiles(self, node: UOp, src: tuple[UOp, ...]) -> None:
        """Follow the axes of computed pieces through views and arithmetic."""
        op = node.op
        below = [self.tiles[s] for s in src if s in self.tiles and len(s.shape) == len(node.shape)]
        tiles = dict(below[0]) if below else {}
        if op is Ops.CAT:
            tiles.pop(node.arg, None)
            computed = any(self.cost[s] or self.reduces[s] for s in src)
            if computed and len(src) <= CHOICES and all(_is_one(s, node.arg) for s in src):
                self.choices.add(node)
                tiles[node.arg] = len(src)
        elif op is Ops.PERMUTE:
            tiles = {i: tiles[axis] for i, axis in enumerate(node.arg) if axis in tiles}
        elif op is Ops.RESHAPE:
            tiles = _joined_tiles(self.tiles.get(src[0], {}), src[0].shape, node.shape)
        elif op in GroupOp.Movement:
            same = [_is_same(a, b) for a, b in zip(node.shape, src[0].shape, strict=True)]
            tiles = {axis: n for axis, n in tiles.items() if same[axis] and op is not Ops.FLIP}
        elif op is Ops.GATHER:
            return
        if tiles:
            self.tiles[node] = tiles

    def _is_constant(self, node: UOp, src: tuple[UOp, ...]) -> bool:
        """Computed from numbers, variables and positions alone, without a reduction: never worth
        storing."""
        if node.op in (Ops.CONST, Ops.IOTA, Ops.VARIABLE, Ops.BIND):
            return True
        if node.op in (Ops.BUFFER, Ops.AFTER, Ops.REDUCE_AXIS, Ops.COPY, Ops.THREEFRY):
            return False
        return bool(src) and all(self.constant[s] for s in src)


def _is_one(node: UOp, axis: int) -> bool:
    return isinstance(node.shape[axis], int) and bool(node.shape[axis] == 1)


def _is_same(size: Any, other: Any) -> bool:
    return isinstance(size, int) and isinstance(other, int) and size == other


def _joined_tiles(
    tiles: dict[int, int], source: tuple[Any, ...], shape: tuple[Any, ...]
) -> dict[int, int]:
    """RESHAPE: tiles of axes that stay, or are the last of several that become one."""
    if not tiles or not all(isinstance(size, int) for size in (*source, *shape)):
        return {}
    ends: dict[int, int] = {}  # elements of an axis and all behind it -> the axis
    behind = 1
    for axis in reversed(range(len(source))):
        if source[axis] > 1:
            ends[behind] = axis
        behind *= source[axis]
    found: dict[int, int] = {}
    behind = 1
    for axis in reversed(range(len(shape))):
        below = ends.get(behind)
        if shape[axis] > 1 and below in tiles and shape[axis] % source[below] == 0:
            found[axis] = tiles[below]
        behind *= shape[axis]
    return found


def _is_padded(node: UOp) -> bool:
    return node.op is Ops.PAD


def max_elements(shape: tuple[Any, ...]) -> int:
    """How many elements a (possibly symbolic) shape can have at most."""
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else max(0, int(size.vmax))
    return total
