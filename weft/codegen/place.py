"""Place: the loop nest of a kernel, and for every node the loop it runs in.

In: an expanded kernel whose loops have axes of their own. Out: a `LoopTree`: the tree of loops, and
the loop of any expression. Sits after lower_index and before linearize.
Invariant: a node runs in the innermost loop it depends on, a reduce or a fill in the innermost
loop its free axes belong to; so what does not change inside a loop is computed outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.codegen.loops import ordered, own_axes
from weft.errors import CompileError
from weft.uop.args import AxisType
from weft.uop.infer import derive_ranges
from weft.uop.node import UOp
from weft.uop.opset import Ops


@dataclass(eq=False)
class Loop:
    """One loop; `axis` is None for the whole program."""

    axis: UOp | None
    parent: Loop | None
    depth: int
    children: list[Loop] = field(default_factory=list)


class LoopTree:
    """The tree of loops of a kernel."""

    def __init__(self, sink: UOp) -> None:
        self.root = Loop(None, None, 0)
        self.loops: dict[UOp, Loop] = {}
        self.of_ranges: dict[frozenset[UOp], Loop] = {frozenset(): self.root}
        self.order, by_rank = ordered(sink)  # sources first
        derive_ranges(self.order)
        self.wanted = list(dict.fromkeys([closer.ranges for closer in by_rank]))
        stores = {s for s in sink.src if s.op is Ops.STORE}
        self._place_stores([s for s in sink.src if s in stores and own_axes(s)])
        # outer closers first: the axes that a closer depends on belong to those around it
        for closer in sorted(by_rank, key=lambda c: -by_rank[c]):
            if closer not in stores:
                self._open(own_axes(closer), self.loop_of(closer), [])

    def loop_of(self, node: UOp) -> Loop:
        """The innermost loop among those a node depends on."""
        ranges = node.ranges
        found = self.of_ranges.get(ranges)
        if found is None:
            missing = [axis for axis in ranges if axis not in self.loops]
            if missing:
                numbers = sorted(axis.arg.number for axis in missing)
                raise CompileError(
                    f"{node.op.name} depends on axes {numbers}, which nothing around it closes"
                )
            found = max([self.loops[axis] for axis in ranges], key=lambda loop: loop.depth)
            self._check_path(node, found)
            self.of_ranges[ranges] = found
        return found

    def innermost(self, closer: UOp) -> Loop:
        """The loop a closer's work is done in."""
        loops = [self.loops[axis] for axis in own_axes(closer)]
        return max(loops, key=lambda loop: loop.depth) if loops else self.loop_of(closer)

    def outermost(self, closer: UOp) -> Loop:
        """The first loop a closer opens."""
        loops = [self.loops[axis] for axis in own_axes(closer)]
        return min(loops, key=lambda loop: loop.depth)

    def _check_path(self, node: UOp, loop: Loop) -> None:
        path = set()
        step: Loop | None = loop
        while step is not None:
            path.add(step.axis)
            step = step.parent
        if any([axis not in path for axis in node.ranges]):
            raise CompileError(f"{node.op.name} depends on loops that are not inside each other")

    # ------------------------------------------------------------ opening loops
    def _place_stores(self, stores: list[UOp]) -> None:
        """Stores that share an axis form one nest; the deepest gives the order of its axes."""
        for store in sorted(stores, key=lambda s: -len(own_axes(s))):
            if own_axes(store)[0] not in self.loops:
                axes = set(own_axes(store))
                shallow = [set(own_axes(s)) for s in stores if set(own_axes(s)) < axes]
                self._open(own_axes(store), self.root, shallow)

    def _open(self, axes: tuple[UOp, ...], parent: Loop, first: list[set[UOp]]) -> None:
        if axes[0] in self.loops:
            return
        own = set(axes)
        wanted = [own & ranges for ranges in self.wanted]
        for axis in order_axes(axes, [*sorted(first, key=len), *sorted(wanted, key=len)]):
            loop = Loop(axis, parent, parent.depth + 1)
            parent.children.append(loop)
            self.loops[axis] = loop
            parent = loop


def order_axes(axes: tuple[UOp, ...], wanted: Iterable[set[UOp]]) -> list[UOp]:
    """An order in which as many of the wanted sets as possible come first, else as given.

    Batchnorm: a reduce depends on c alone, the outputs are (n, c, h, w) -> (c, n, h, w), and the
    reduce runs once per channel. Threads stay outermost whatever is wanted, and an axis whose size
    depends on others follows them.
    """
    first = [axis for axis in axes if axis.arg.kind is AxisType.THREAD]
    first += [axis for axis in axes if axis not in first and axis.src[0].ranges]
    order = dict.fromkeys(first)
    for some in wanted:
        # what is already decided comes first anyway; a set that does not contain it is too late
        if some and set(order) - set(first) <= some:
            order.update(dict.fromkeys([axis for axis in axes if axis in some]))
    order.update(dict.fromkeys(axes))
    return list(order)
