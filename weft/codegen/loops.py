"""What every pass that shapes loops asks: who closes an axis, what must come before what, how to
rename.

In: a kernel. Out: facts about its closers, the nodes that end axes (STORE, REDUCE, STAGE), and
kernels with renamed axes. Sits below merge, separate and place.
Invariant: renaming follows scope: an axis is renamed where it is free in the closer's own
expression, never inside another closer that ends the same axis itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.uop.args import AxisType, RangeArg
from weft.uop.infer import CLOSES
from weft.uop.node import UOp
from weft.uop.opset import Ops

CLOSERS = frozenset({Ops.STORE, Ops.REDUCE, Ops.STAGE})


def own_axes(closer: UOp) -> tuple[UOp, ...]:
    """The axes that end at this node."""
    return closer.src[CLOSES[closer.op] :]


def ranks(order: Iterable[UOp]) -> dict[UOp, int]:
    """For each closer, how many closers are stacked below it.

    Closers of the same rank never depend on each other, and loops made of closers of one rank never
    wait for each other in a circle. `order` has sources first.
    """
    height: dict[UOp, int] = {}
    found: dict[UOp, int] = {}
    coupled: set[UOp] = set()  # loops whose reductions see each other round by round
    for node in order:
        if node.op is Ops.RUNNING:
            # inside of the loop, not after it
            coupled.add(node.src[1])
            height[node] = found[node.src[0]]
            continue
        below = 0
        for s in node.src:
            if height[s] > below:
                below = height[s]
        if node.op in CLOSERS and len(node.src) > CLOSES[node.op]:
            found[node] = below
            below += 1
        height[node] = below
    return _together(found, coupled) if coupled else found


def _together(found: dict[UOp, int], coupled: set[UOp]) -> dict[UOp, int]:
    """Reductions that see each other round by round are of one loop, that of the highest rank."""
    for axis in coupled:
        some = [closer for closer in found if axis in own_axes(closer)]
        highest = max(found[closer] for closer in some)
        found.update(dict.fromkeys(some, highest))
    return found


Order = dict[UOp, None]
_last: tuple[UOp, Order, dict[UOp, int]] | None = None


def ordered(sink: UOp) -> tuple[Order, dict[UOp, int]]:
    """The nodes of a kernel, sources first, and the ranks of its closers.

    Asked twice for one kernel, by passes that follow each other; the second time ends the memory of
    it, as a kernel that is done is to be forgotten.
    """
    global _last
    last, _last = _last, None
    if last is not None and last[0] is sink:
        return last[1:]
    order = sink.toposort()
    by_rank = ranks(order)
    _last = (sink, order, by_rank)
    return order, by_rank


def rename(closer: UOp, names: dict[UOp, UOp]) -> UOp:
    """The closer with its own axes replaced, in its expression too."""
    done = dict(names)
    axes = names.keys()

    def is_touched(node: UOp) -> bool:
        return node is closer or not axes.isdisjoint(node.ranges)

    for node in closer.toposort(gate=is_touched):
        if node not in done:
            changed = is_touched(node)
            done[node] = node.with_src(tuple([done[s] for s in node.src])) if changed else node
    return done[closer]


class FreshAxes:
    """Numbers for new axes of a kernel, beyond all that it has."""

    def __init__(self, order: Iterable[UOp]) -> None:
        self.next = 1 + max((u.arg.number[0] for u in order if u.op is Ops.RANGE), default=-1)

    def like(self, axis: UOp) -> UOp:
        """An axis of the same size and kind."""
        return self.make(axis.src[0], axis.arg.kind)

    def make(self, size: UOp, kind: AxisType) -> UOp:
        number = self.next
        self.next += 1
        return UOp(Ops.RANGE, size.dtype, (size,), RangeArg((number,), kind))
