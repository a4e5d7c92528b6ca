"""Open grid: what groups of threads run, and what memory they share.

In: an optimised kernel for a target with groups of threads. Out: the same kernel whose output loops
are GLOBAL axes where rounds may run in any order, and whose stages are shared memory where the
threads of a group agree on them. Sits after optimise, which decides everything else.
Invariant: iterations of a kernel run at once only if none reads what another writes. A kernel that
breaks this runs on one thread.

    STORE(p[i], REDUCE(x[i, r], r), i LOOP)  ->  STORE(p[i], REDUCE(x[i, r], r), i GLOBAL)
"""

from __future__ import annotations

from dataclasses import replace

from weft.codegen.loops import own_axes
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.gpu import THREADS, nests_of, runs_in_any_order
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.share_reduces import THREAD_KINDS
from weft.errors import CompileError
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import AxisType, RangeArg
from weft.uop.distinct import named_axes
from weft.uop.node import UOp
from weft.uop.opset import Ops

_AT_ONCE = (*THREAD_KINDS, AxisType.GLOBAL)


def open_grid(sink: UOp, target: Target) -> UOp:
    """Output loops on which all that is reduced or staged depends, as axes of the grid."""
    if not runs_in_any_order(sink):
        _refuse_threads(sink)
        return _open_columns(sink, target)
    changes: dict[UOp, UOp] = {}
    for nest in nests_of(sink):
        for axis in _grid_axes(nest):
            changes[axis] = axis.replace(arg=RangeArg(axis.arg.number, AxisType.GLOBAL))
    return sink.substitute(changes)


def _open_columns(sink: UOp, target: Target) -> UOp:
    """Writes in order, by as many threads as never meet.

    STORE(p[p1[i]*8 + j], v, i, j: 8): the rounds of i are in order, and those of j apart
    """
    if len(sink.src) > 1:
        return sink
    (store,) = sink.src
    place, axes = store.src[0], set(own_axes(store))
    for node in store.src[1].toposort():
        if node.op is Ops.LOAD and node.src[0].src[0] is place.src[0] and node.src[0] is not place:
            return sink
    apart = [axis for axis in _grid_axes([store]) if axis in named_axes(place, axes)]
    changes = {axis: axis.replace(arg=RangeArg(axis.arg.number, AxisType.GLOBAL)) for axis in apart}
    fixed = [axis for axis in apart if axis.src[0].op is Ops.CONST]
    if fixed:
        # the innermost axis is that of neighbouring threads, if it has parts of one size
        axis = fixed[-1]
        most = min(THREADS, target.group_threads, axis.src[0].arg)
        threads = max([n for n in range(1, most + 1) if axis.src[0].arg % n == 0])
        if threads > 1:
            del changes[axis]
            sink = apply_opt(sink, Opt(OptOps.LOCAL, axis.arg.number, threads), target)
            outer = [a for a in own_axes(sink.src[0]) if a.arg.number == (*axis.arg.number, 0)]
            changes |= {a: a.replace(arg=RangeArg(a.arg.number, AxisType.GLOBAL)) for a in outer}
    return sink.substitute(changes)


def _grid_axes(nest: list[UOp]) -> list[UOp]:
    """A group that ran a reduction for one round of a loop should not leave it to run again."""
    outputs = own_axes(nest[0])
    needs = [
        node.ranges
        for node in UOp.sink(*nest).toposort()
        if node.op in (Ops.REDUCE, Ops.STAGE) and node.ranges <= set(outputs)
        # tiles of a product are staged by every group that needs them
        if node.op is Ops.REDUCE or node.arg.memory != "shared"
    ]
    return [
        axis
        for axis in outputs
        if axis.arg.kind is AxisType.LOOP
        and not axis.src[0].ranges
        and all([axis in ranges for ranges in needs])
    ]


def _refuse_threads(sink: UOp) -> None:
    for node in sink.toposort():
        if node.op is Ops.RANGE and node.arg.kind in _AT_ONCE:
            raise CompileError(
                f"axis {node.arg.number} is {node.arg.kind.name}, but {sink.arg.name} reads "
                "elements that other iterations write: only loops keep its order"
            )


def share_stages(sink: UOp, target: Target) -> UOp:
    """A STAGE that is the same for all threads of a group moves to the memory they share.

    STAGE(x[o, f], f) under o GLOBAL, l LOCAL  ->  STAGE(x[o, f], f; shared)
    """
    order = sink.toposort()
    if not any([u.op is Ops.RANGE and u.arg.kind in THREAD_KINDS for u in order]):
        return sink
    used = sum(stage_bytes(u) for u in order if u.op is Ops.STAGE and u.arg.memory == "shared")
    most = max(target.shared_bytes, target.most_shared_bytes)
    if used > most:
        raise CompileError(
            f"{sink.arg.name} needs {used} bytes of shared memory, {target.name} has {most}"
        )
    changes: dict[UOp, UOp] = {}
    shared = [u for u in order if u.op is Ops.STAGE and u.arg.memory == "shared"]
    # threads fill different parts at once, so what they share inside of a fill cannot differ there
    needed = {axis for stage in shared for axis in stage.ranges}
    spread = {axis for stage in shared for axis in own_axes(stage)}
    for node in reversed(order):
        if node.op is not Ops.STAGE or node.arg.memory == "shared" or node.arg.length is not None:
            continue
        if any([axis.arg.kind in (*THREAD_KINDS, AxisType.VECTOR) for axis in node.ranges]):
            continue
        if not needed.isdisjoint(own_axes(node)) or not spread.isdisjoint(node.ranges):
            continue
        if used + stage_bytes(node) <= target.shared_bytes:
            used += stage_bytes(node)
            changes[node] = node
            spread.update(own_axes(node))
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        if node in changes:
            new = new.replace(arg=replace(node.arg, memory="shared"))
        done[node] = new
    return done[sink]


def stage_bytes(stage: UOp) -> int:
    """The memory of a STAGE, with the copies that written-out axes make of it."""
    copies = [axis for axis in stage.ranges if axis.arg.kind in (AxisType.UPCAST, AxisType.UNROLL)]
    filled = () if stage.arg.strides is not None else own_axes(stage)
    sizes = [axis.src[0] for axis in (*filled, *copies)]
    count = int(prod(size.arg for size in sizes if size.op is Ops.CONST)) * stage.arg.depth
    if stage.arg.strides is not None:
        count *= int(stage.shape[0])
    return count * stage.dtype.itemsize
