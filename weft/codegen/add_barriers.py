"""Add barriers: the threads of a group wait for each other around the fills of shared memory.

In: a kernel of one thread whose shared memory is filled by all threads of its group. Out: the same
kernel with a BARRIER between each fill and what reads it, and in a loop one before the fill too,
because the round before may still be reading. Sits after bind_axes.
Invariant: all threads of a group reach the same barriers. Shared memory depends on no axis that
they run differently (bind_axes refuses it), so no loop around a fill has a size that differs.

    AFTER(LOCAL, STORE(LOCAL[lidx0], x[k, lidx0])) in a loop over k
    -> AFTER(LOCAL, BARRIER(STORE(AFTER(LOCAL, BARRIER(k))[lidx0], x[k, lidx0])))
"""

from __future__ import annotations

from dataclasses import replace

from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def add_barriers(sink: UOp, target: Target) -> UOp:
    """Fills at one level that do not wait for each other share their barriers."""
    order = sink.toposort()
    if not any([_is_thread_index(node) for node in order]):
        return sink.substitute({node: _as_own(node) for node in order if _is_shared(node)})
    by_height = _heights(order)
    done: dict[UOp, UOp] = {}
    for nodes in by_height:
        fills: dict[frozenset[UOp], list[UOp]] = {}
        for node in nodes:
            if _is_fill(node):
                fills.setdefault(node.ranges, []).append(node)
                continue
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else node.with_src(src)
        for group in fills.values():
            stores = {node: _stores(node, done) for node in group}
            together = dict.fromkeys([store for some in stores.values() for store in some])
            barrier = UOp(Ops.BARRIER, dtypes.void, tuple(together))
            for node in group:
                done[node] = node.src[0].after(barrier)
    return done[sink]


def _is_thread_index(node: UOp) -> bool:
    return node.op is Ops.SPECIAL and str(node.arg).startswith("l")


def _is_shared(node: UOp) -> bool:
    return node.op is Ops.LOCAL and node.arg.memory == "shared"


def _as_own(memory: UOp) -> UOp:
    """A group of one thread shares with nobody."""
    return memory.replace(arg=replace(memory.arg, memory="scratch"))


def _is_fill(node: UOp) -> bool:
    # memory of several rounds has its own barriers, see `pipeline_fills`
    return node.op is Ops.AFTER and _is_shared(node.src[0]) and node.src[-1].op is Ops.STORE


def _heights(order: dict[UOp, None]) -> list[list[UOp]]:
    """The nodes by how many fills are stacked below them; sources first in each list and over all.

    What reads a fill is higher than the fill, so all fills of one height are ready together.
    """
    height: dict[UOp, int] = {}
    result: list[list[UOp]] = [[]]
    for node in order:
        below = max([height[s] + _is_fill(s) for s in node.src], default=0)
        height[node] = below
        if below == len(result):
            result.append([])
        result[below].append(node)
    return result


def _stores(fill: UOp, done: dict[UOp, UOp]) -> list[UOp]:
    """The stores of a fill, after a barrier if they may run again."""
    memory = fill.src[0]
    stores = [done[store] for store in fill.src[1:]]
    # what runs at most once (the guard of a nest) has no round before
    loops = sorted(
        [axis for axis in fill.ranges if axis.src[0].vmax > 1], key=lambda axis: axis.arg.number
    )
    if not loops:
        return stores
    before = UOp(Ops.BARRIER, dtypes.void, tuple([done[axis] for axis in loops]))
    fresh = memory.after(before)
    result: list[UOp] = []
    for store in stores:
        place = store.src[0].with_src((fresh, *store.src[0].src[1:]))
        result.append(store.with_src((place, *store.src[1:])))
    return result
