"""Merge: independent reduces that read the same elements run in one loop.

In: a kernel AST. Out: the same kernel where such REDUCEs have the same RANGEs. Sits before
optimise, which then splits and types the one loop for all of them.
Invariant: only reduces of equal rank and equal free axes merge, so that none waits for another.

    sum(x[i], i) and sum(x[j] * x[j], j)  ->  sum(x[i], i) and sum(x[i] * x[i], i): x is read once
"""

from __future__ import annotations

from weft.codegen.loops import own_axes, ranks, rename
from weft.uop.node import UOp
from weft.uop.opset import Ops


def merge(sink: UOp) -> UOp:
    """The kernel after every merge that lets two reduces share a load."""
    while True:
        changes = _find_merges(sink)
        if not changes:
            return sink
        sink = sink.substitute(changes)


def _find_merges(sink: UOp) -> dict[UOp, UOp]:
    """Reduces of one rank and what they become; one rank at a time, as one may hold another."""
    by_rank = ranks(sink.toposort())
    groups: dict[object, list[UOp]] = {}
    for closer, rank in by_rank.items():
        if closer.op is Ops.REDUCE:
            sizes = tuple([axis.src[0] for axis in own_axes(closer)])
            kinds = tuple([axis.arg.kind for axis in own_axes(closer)])
            groups.setdefault((rank, closer.ranges, sizes, kinds), []).append(closer)
    for group in groups.values():
        changes = _merge_group(group) if len(group) > 1 else {}
        if changes:
            return changes
    return {}


def _merge_group(group: list[UOp]) -> dict[UOp, UOp]:
    changes: dict[UOp, UOp] = {}
    leaders: list[tuple[UOp, set[UOp]]] = []
    for closer in group:
        for leader, loads in leaders:
            if own_axes(leader) == own_axes(closer):
                break
            if set(own_axes(leader)) & set(own_axes(closer)):
                continue
            axes = zip(own_axes(closer), own_axes(leader), strict=True)
            renamed = rename(closer, dict(axes))
            if loads & _loads(renamed):
                changes[closer] = renamed
                loads |= _loads(renamed)
                break
        else:
            leaders.append((closer, _loads(closer)))
    return changes


def _loads(closer: UOp) -> set[UOp]:
    """The loads that run in this closer's own loop."""
    axes = set(own_axes(closer))
    order = closer.toposort(gate=lambda u: u is closer or not axes.isdisjoint(u.ranges))
    return {u for u in order if u.op is Ops.LOAD and not axes.isdisjoint(u.ranges)}
