"""Share threads: all nests of a kernel run over one THREAD axis size.

In: a kernel in which some nests have a THREAD axis, of any size, and others have none. Out: every
nest has a THREAD axis of the greatest size, because a call runs one span of it; what a nest has
fewer of is guarded by a loop of 0 or 1 rounds. Sits before expand.
Invariant: each iteration of each nest runs on exactly one thread.

    STORE(p[0], v)  ->  STORE(p[0], v, t in 0..T of THREAD, g in 0..(1 if t < 1 else 0))
"""

from __future__ import annotations

from weft.codegen.loops import FreshAxes, own_axes, rename
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def thread_count(sink: UOp) -> int:
    """The size of the axis that threads share; 1 if there is none."""
    sizes = [1]
    for store in sink.src:
        for axis in own_axes(store) if store.op is Ops.STORE else ():
            if axis.arg.kind is AxisType.THREAD:
                if axis.src[0].op is not Ops.CONST:
                    raise CompileError("a THREAD axis needs a constant size")
                sizes.append(axis.src[0].arg)
    return max(sizes)


def share_threads(sink: UOp) -> UOp:
    """The kernel with one THREAD size for all nests."""
    count = thread_count(sink)
    axes = [_thread_axis(store) for store in sink.src if store.op is Ops.STORE]
    if count == 1 or all([axis is not None and axis.src[0].arg == count for axis in axes]):
        return sink
    fresh = FreshAxes(sink.toposort())
    size = UOp.const(dtypes.weakint, count)
    nests = _first_axes(sink)
    made: dict[UOp | None, tuple[UOp, UOp]] = {}
    stores = []
    for store, axis in zip(sink.src, axes, strict=True):
        if axis is not None and axis.src[0].arg == count:
            stores.append(store)
            continue
        first = nests.get(own_axes(store)[0]) if own_axes(store) else None
        if first not in made:
            thread = fresh.make(size, AxisType.THREAD)
            fewer = 1 if axis is None else axis.src[0].arg
            rounds = (thread < fewer).where(
                UOp.const(dtypes.weakint, 1), UOp.const(dtypes.weakint, 0)
            )
            made[first] = (thread, fresh.make(rounds, AxisType.LOOP))
        stores.append(_guard(store, axis, *made[first]))
    return sink.with_src(tuple(stores))


def _first_axes(sink: UOp) -> dict[UOp, UOp]:
    """For each output axis one axis that stands for its nest: stores that share one are a nest."""
    first: dict[UOp, UOp] = {}
    for store in sorted(sink.src, key=lambda s: -len(own_axes(s))):
        axes = own_axes(store)
        known = next((first[axis] for axis in axes if axis in first), None)
        for axis in axes:
            first.setdefault(axis, known if known is not None else axes[0])
    return first


def _thread_axis(store: UOp) -> UOp | None:
    return next((a for a in own_axes(store) if a.arg.kind is AxisType.THREAD), None)


def _guard(store: UOp, axis: UOp | None, thread: UOp, guard: UOp) -> UOp:
    inner = tuple([a for a in own_axes(store) if a is not axis])
    if axis is not None:
        # the guard is always 0; as part of the value it keeps every load behind it
        store = rename(store, {axis: thread + guard})
    return store.with_src((*store.src[:2], thread, guard, *inner))
