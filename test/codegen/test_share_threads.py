"""share_threads: one THREAD size for all nests."""

from __future__ import annotations

import pytest

from test.codegen.kernel_builder import F32, Axes, const, kernel, load
from weft.codegen.share_threads import share_threads, thread_count
from weft.errors import CompileError
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q = UOp.param(0, F32, 100), UOp.param(1, F32, 100)


def thread_sizes(store: UOp) -> list[int]:
    axes = [a for a in store.src[2:] if a.arg.kind is AxisType.THREAD]
    return [a.src[0].arg for a in axes]


def test_kernels_without_threads_are_left_alone() -> None:
    i = Axes().loop(4)
    sink = kernel(P.index(i).store(load(Q, i), i))
    assert share_threads(sink) is sink and thread_count(sink) == 1


def test_every_nest_gets_the_greatest_size() -> None:
    a = Axes()
    t, u, i = a.thread(8), a.thread(3), a.loop(5)
    sink = kernel(
        P.index(t).store(load(Q, t), t),
        P.index(u + 8).store(load(Q, u), u),
        P.index(i + 20).store(load(Q, i), i),
        P.index(const(40)).store(load(Q, const(0))),
    )
    assert thread_count(sink) == 8
    result = share_threads(sink)
    assert [thread_sizes(s) for s in result.src] == [[8]] * 4
    assert result.src[0] is sink.src[0]


def test_loads_stay_behind_the_guard() -> None:
    """A nest of 3 threads must not even read for the others."""
    a = Axes()
    t, u = a.thread(8), a.thread(3)
    stores = [P.index(t).store(load(Q, t), t), P.index(u + 8).store(load(Q, u), u)]
    guarded = share_threads(kernel(*stores)).src[1]
    thread, guard = guarded.src[2:4]
    reads = [x for x in guarded.toposort() if x.op is Ops.LOAD]
    assert thread in guard.ranges and all(guard in x.ranges for x in reads)


def test_symbolic_thread_axes_are_refused() -> None:
    i = UOp.range(UOp.variable("n", 1, 4), 0, AxisType.THREAD)
    with pytest.raises(CompileError, match="constant size"):
        share_threads(kernel(P.index(i).store(load(Q, i), i)))


def test_stores_of_one_nest_share_the_guard() -> None:
    """Row sums (i) beside the whole (j, i), next to a nest with threads."""
    a = Axes()
    t, i, j = a.thread(8), a.loop(4), a.loop(5)
    stores = [
        P.index(t).store(load(Q, t), t),
        P.index(i + 8).store(load(Q, i), i),
        P.index(j * 4 + i + 20).store(load(Q, i), j, i),
    ]
    result = share_threads(kernel(*stores))
    assert result.src[1].src[2:4] == result.src[2].src[2:4]
