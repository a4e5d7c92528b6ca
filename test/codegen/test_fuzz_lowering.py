"""Random splits and axis types of small kernels compute what the plain loops compute."""

from __future__ import annotations

import random

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, const, kernel, load, params, run
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

# sizes with many divisors; ints, so that any order of summation gives the same bits
SIZES = (1, 2, 4, 6, 8, 12)


def random_array(pick: random.Random, size: int) -> np.ndarray:
    return np.array([pick.randrange(-5, 6) for _ in range(size)], np.int32)


def matmul(pick: random.Random) -> tuple[UOp, list[np.ndarray]]:
    m, n, k = (pick.choice(SIZES) for _ in range(3))
    arrays = [np.zeros(m * n, np.int32), random_array(pick, m * k), random_array(pick, k * n)]
    o, p, q = params(*arrays)
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    value = (load(p, i * k + r) * load(q, r * n + j)).reduce(Ops.ADD, r)
    return kernel(o.index(i * n + j).store(value * 2, i, j)), arrays


def staged_matmul(pick: random.Random) -> tuple[UOp, list[np.ndarray]]:
    m, n, k = (pick.choice(SIZES[1:]) for _ in range(3))
    arrays = [np.zeros(m * n, np.int32), random_array(pick, m * k), random_array(pick, k * n)]
    o, p, q = params(*arrays)
    a = Axes()
    i, j, r, f = a.loop(m), a.loop(n), a.reduce(k), a.loop(k)
    column = UOp(Ops.STAGE, q.dtype, (load(q, f * n + j) + 1, f), StageArg(0))
    value = (load(p, i * k + r) * load(column, r)).reduce(Ops.ADD, r)
    return kernel(o.index(i * n + j).store(value, i, j)), arrays


def rows(pick: random.Random) -> tuple[UOp, list[np.ndarray]]:
    """Two reduces that depend on each other, and two outputs."""
    m, n = pick.choice(SIZES), pick.choice(SIZES)
    arrays = [np.zeros(m * n, np.int32), np.zeros(m, np.int32), random_array(pick, m * n)]
    o, s, p = params(*arrays)
    a = Axes()
    i, j, r, t = a.loop(m), a.loop(n), a.reduce(n), a.reduce(n)
    top = load(p, i * n + r).reduce(Ops.MAX, r)
    total = (load(p, i * n + t) - top).reduce(Ops.ADD, t)
    value = load(p, i * n + j) * 3 - top + total
    return kernel(o.index(i * n + j).store(value, i, j), s.index(i).store(total, i)), arrays


def window(pick: random.Random) -> tuple[UOp, list[np.ndarray]]:
    size, width = pick.choice(SIZES[2:]), pick.choice((2, 4))
    arrays = [np.zeros(size, np.int32), random_array(pick, size), random_array(pick, width)]
    o, p, q = params(*arrays)
    a = Axes()
    i, r = a.loop(size), a.reduce(width)
    at = i + r - 1
    value = load(p, at, at.ge(0) & at.lt(size)) * load(q, r)
    return kernel(o.index(i).store(value.reduce(Ops.ADD, r), i)), arrays


def shuffled(pick: random.Random) -> tuple[UOp, list[np.ndarray]]:
    """A transpose with a flip, by division and remainder of one flat axis."""
    m, n = pick.choice(SIZES), pick.choice(SIZES)
    arrays = [np.zeros(m * n, np.int32), random_array(pick, m * n)]
    o, p = params(*arrays)
    i = Axes().loop(m * n)
    at = (i % m) * n + (const(n - 1) - i // m)
    return kernel(o.index(i).store(load(p, at), i)), arrays


KERNELS = (matmul, staged_matmul, rows, window, shuffled)
INNER = {
    AxisType.LOOP: (AxisType.UPCAST, AxisType.VECTOR, AxisType.LOOP, AxisType.THREAD),
    AxisType.REDUCE: (AxisType.UNROLL, AxisType.VECTOR, AxisType.REDUCE),
}


def split_randomly(pick: random.Random, sink: UOp) -> UOp:
    """Each axis r -> outer*k + inner, or inner*k + outer, with a random type for inner."""
    axes = sorted((u for u in sink.toposort() if u.op is Ops.RANGE), key=lambda u: u.arg.number)
    staged = {r for u in sink.toposort() if u.op is Ops.STAGE for r in u.ranges}
    fresh = Axes()
    fresh.number = 100
    changes: dict[UOp, UOp] = {}
    pieces: dict[UOp, list[UOp]] = {}
    for axis in axes:
        size = axis.src[0].arg
        factor = pick.choice([f for f in range(1, size + 1) if size % f == 0])
        kinds = [k for k in INNER[axis.arg.kind] if k is not AxisType.VECTOR or axis not in staged]
        kind = pick.choice(kinds)
        if kind is AxisType.THREAD:
            inner, outer = fresh.make(size // factor, kind), fresh.make(factor, axis.arg.kind)
            changes[axis] = inner * factor + outer
        else:
            outer, inner = fresh.make(size // factor, axis.arg.kind), fresh.make(factor, kind)
            changes[axis] = outer * factor + inner
        pieces[axis] = [outer, inner]
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src: list[UOp] = []
        for place, s in enumerate(node.src):
            is_closed = s.op is Ops.RANGE and node.op in (Ops.STORE, Ops.REDUCE, Ops.STAGE)
            at_end = place >= (2 if node.op is Ops.STORE else 1)
            src += pieces[s] if is_closed and at_end else [done[s]]
        done[node] = changes[node] if node in changes else node.with_src(tuple(src))
    return done[sink]


def is_legal(sink: UOp) -> bool:
    """At most one VECTOR axis per expression, one THREAD axis per store."""
    for node in sink.toposort():
        kinds = [r.arg.kind for r in node.ranges if r.src[0].arg > 1]
        if kinds.count(AxisType.VECTOR) > 1 or kinds.count(AxisType.THREAD) > 1:
            return False
        if node.op in (Ops.REDUCE, Ops.STAGE, Ops.STORE):
            # a thread axis is an output axis of every store of its nest
            own = [s.arg.kind for s in node.src if s.op is Ops.RANGE]
            if own.count(AxisType.THREAD) > (1 if node.op is Ops.STORE else 0):
                return False
    return True


@pytest.mark.parametrize("seed", range(120))
def test_split_kernels_compute_the_same(seed: int) -> None:
    pick = random.Random(seed)
    sink, arrays = KERNELS[seed % len(KERNELS)](pick)
    expected = [array.copy() for array in arrays]
    run(sink, *expected)
    for _ in range(20):
        split = split_randomly(pick, sink)
        if is_legal(split):
            break
    else:
        pytest.skip("no legal split found")
    found = [array.copy() for array in arrays]
    run(split, *found)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)
