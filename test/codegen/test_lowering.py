"""Whole kernels built by hand, lowered to linear programs, interpreted, compared with NumPy."""

from __future__ import annotations

import numpy as np

from test.codegen.kernel_builder import (
    F32,
    Axes,
    const,
    count,
    interpret,
    kernel,
    linear_program,
    load,
    params,
    run,
)
from weft.dtype import dtypes
from weft.uop.args import StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

rng = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def test_elementwise() -> None:
    out, x = np.zeros(24, np.float32), floats(24)
    o, p = params(out, x)
    i = Axes().loop(24)
    run(kernel(o.index(i).store(load(p, i) * 2 + 1, i)), out, x)
    np.testing.assert_array_equal(out, x * np.float32(2) + 1)


def softmax_kernel(a: Axes, rows: int, columns: int, o: UOp, p: UOp, share: bool) -> UOp:
    i, j, k = a.loop(rows), a.loop(columns), a.reduce(columns)
    m = k if share else a.reduce(columns)
    top = load(p, i * columns + k).reduce(Ops.MAX, k)
    scale = 1.4426950408889634

    def power(idx: UOp) -> UOp:
        return UOp(Ops.EXP2, F32, ((load(p, i * columns + idx) - top) * scale,))

    total = power(m).reduce(Ops.ADD, m)
    return kernel(o.index(i * columns + j).store(power(j) / total, i, j))


def test_softmax_rows_stay_in_one_kernel() -> None:
    for share in (False, True):
        out, x = np.zeros((5, 7), np.float32), floats(5, 7)
        uops = run(softmax_kernel(Axes(), 5, 7, *params(out, x), share), out, x)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)
        # rows, then three loops inside them, one after another
        assert count(uops, Ops.RANGE) == 4


def test_layernorm() -> None:
    rows, columns = 4, 6
    out, x = np.zeros((rows, columns), np.float32), floats(rows, columns)
    o, p = params(out, x)
    a = Axes()
    i, j, k, m = a.loop(rows), a.loop(columns), a.reduce(columns), a.reduce(columns)
    mean = load(p, i * columns + k).reduce(Ops.ADD, k) / columns
    difference = load(p, i * columns + m) - mean
    variance = (difference * difference).reduce(Ops.ADD, m) / columns
    deviation = UOp(Ops.SQRT, F32, (variance + 1e-5,))
    value = (load(p, i * columns + j) - mean) / deviation
    run(kernel(o.index(i * columns + j).store(value, i, j)), out, x)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_independent_reduces_share_a_loop_and_a_load() -> None:
    out, x = np.zeros((2, 4), np.float32), floats(4, 9)
    o, p = params(out, x)
    a = Axes()
    i, k, m = a.loop(4), a.reduce(9), a.reduce(9)
    first = load(p, i * 9 + k).reduce(Ops.ADD, k)
    second = (load(p, i * 9 + m) * load(p, i * 9 + m)).reduce(Ops.ADD, m)
    uops = run(kernel(o.index(i).store(first, i), o.index(i + 4).store(second, i)), out, x)
    np.testing.assert_allclose(out[0], x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(out[1], (x * x).sum(1), rtol=1e-5)
    assert count(uops, Ops.RANGE) == 2
    assert sum(1 for u in uops if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX) == 1


def matmul_kernel(a: Axes, m: int, n: int, k: int, o: UOp, p: UOp, q: UOp) -> UOp:
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    product = load(p, i * k + r) * load(q, r * n + j)
    return kernel(o.index(i * n + j).store(product.reduce(Ops.ADD, r), i, j))


def test_matmul() -> None:
    out, x, y = np.zeros((3, 5), np.float32), floats(3, 4), floats(4, 5)
    run(matmul_kernel(Axes(), 3, 5, 4, *params(out, x, y)), out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)


def test_matmul_register_tile() -> None:
    """A 4x8 tile of 4 rows by one vector of 8 lanes, under a loop over k unrolled by 2."""
    m, n, k = 8, 24, 6
    out, x, y = np.zeros((m, n), np.float32), floats(m, k), floats(k, n)
    o, p, q = params(out, x, y)
    a = Axes()
    io, jo, ii, ji = a.loop(m // 4), a.loop(n // 8), a.upcast(4), a.vector(8)
    r, u = a.reduce(k // 2), a.unroll(2)
    i, j, z = io * 4 + ii, jo * 8 + ji, r * 2 + u
    value = (load(p, i * k + z) * load(q, z * n + j)).reduce(Ops.ADD, r, u)
    uops = run(kernel(o.index(i * n + j).store(value, io, jo, ii, ji)), out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)
    accumulators = [x for x in uops if x.op is Ops.ACC]
    assert len(accumulators) == 8 and all(x.dtype is F32.vec(8) for x in accumulators)
    stores = [x for x in uops if x.op is Ops.STORE]
    assert len(stores) == 4 and all(s.src[0].src[1].dtype.count == 1 for s in stores)
    # per two steps of k: 8 scalars of x, each broadcast, and 2 vectors of y, loaded once
    loads = [x for x in uops if x.op is Ops.LOAD and x.src[0].op is Ops.INDEX]
    assert sorted(x.dtype.count for x in loads) == [1] * 8 + [8] * 2


def test_matmul_with_packed_operand() -> None:
    """STAGE: a panel of y, [k][8], is copied once per block of columns, then read in order."""
    m, n, k = 6, 16, 5
    out, x, y = np.zeros((m, n), np.float32), floats(m, k), floats(k, n)
    o, p, q = params(out, x, y)
    a = Axes()
    i, jo, ji, r = a.loop(m), a.loop(n // 8), a.vector(8), a.reduce(k)
    fill, lane = a.loop(k), a.vector(8)
    panel = UOp(Ops.STAGE, F32, (load(q, fill * n + jo * 8 + lane), fill, lane), StageArg(0))
    value = (load(p, i * k + r) * load(panel, r * 8 + ji)).reduce(Ops.ADD, r)
    uops = run(kernel(o.index(i * n + jo * 8 + ji).store(value, i, jo, ji)), out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)
    # the panel depends on jo alone, so jo goes outermost and the fill runs once per jo
    ranges = [u for u in uops if u.op is Ops.RANGE]
    assert [u.src[0].arg for u in ranges] == [n // 8, k, m, k]
    assert count(uops, Ops.LOCAL) == 1


def test_row_of_scores_is_staged() -> None:
    """softmax(x @ y) per row: the scores are computed once into scratch and read twice."""
    m, n, k = 3, 8, 4
    out, x, y = np.zeros((m, n), np.float32), floats(m, k), floats(k, n)
    o, p, q = params(out, x, y)
    a = Axes()
    i, j, f, r, s, t = (
        a.loop(m), a.loop(n), a.loop(n), a.reduce(k), a.reduce(n), a.reduce(n)
    )  # fmt: skip
    scores = (load(p, i * k + r) * load(q, r * n + f)).reduce(Ops.ADD, r)
    row = UOp(Ops.STAGE, F32, (scores, f), StageArg(0))
    top = load(row, s).reduce(Ops.MAX, s)

    def power(idx: UOp) -> UOp:
        return UOp(Ops.EXP2, F32, (load(row, idx) - top,))

    total = power(t).reduce(Ops.ADD, t)
    run(kernel(o.index(i * n + j).store(power(j) / total, i, j)), out, x, y)
    z = x @ y
    e = np.exp2(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-4)


def test_batchnorm_moves_the_channel_outermost() -> None:
    n, c, h = 3, 4, 5
    out, x = np.zeros((n, c, h), np.float32), floats(n, c, h)
    o, p = params(out, x)
    a = Axes()
    i, j, h_axis, r, s = a.loop(n), a.loop(c), a.loop(h), a.reduce(n), a.reduce(h)
    mean = load(p, r * (c * h) + j * h + s).reduce(Ops.ADD, r, s) / (n * h)
    idx = i * (c * h) + j * h + h_axis
    uops = run(kernel(o.index(idx).store(load(p, idx) - mean, i, j, h_axis)), out, x)
    np.testing.assert_allclose(out, x - x.mean((0, 2), keepdims=True), rtol=1e-4, atol=1e-6)
    sizes = [u.src[0].arg for u in uops if u.op is Ops.RANGE]
    assert sizes[0] == c and count(uops, Ops.RANGE) == 5


def test_reduces_over_incomparable_axes() -> None:
    """x[i, j] - rowsum(i) - colsum(j): the second sum is recomputed inside the rows."""
    m, n = 4, 3
    out, x = np.zeros((m, n), np.float32), floats(m, n)
    o, p = params(out, x)
    a = Axes()
    i, j, r, s = a.loop(m), a.loop(n), a.reduce(n), a.reduce(m)
    rows = load(p, i * n + r).reduce(Ops.ADD, r)
    columns = load(p, s * n + j).reduce(Ops.ADD, s)
    run(kernel(o.index(i * n + j).store(load(p, i * n + j) - rows - columns, i, j)), out, x)
    expected = x - x.sum(1, keepdims=True) - x.sum(0, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_convolution_reads_nothing_outside() -> None:
    size, window = 9, 3
    out, x, w = np.zeros(size, np.float32), floats(size), floats(window)
    o, p, q = params(out, x, w)
    a = Axes()
    for unrolled in (False, True):
        i = a.loop(size)
        r = a.unroll(window) if unrolled else a.reduce(window)
        at = i + r - 1
        valid = at.ge(0) & at.lt(size)
        value = (load(p, at, valid) * load(q, r)).reduce(Ops.ADD, r)
        out[:] = 0
        run(kernel(o.index(i).store(value, i)), out, x, w)
        np.testing.assert_allclose(out, np.correlate(x, w, "same"), rtol=1e-4, atol=1e-6)


def test_vector_mask_and_vector_tail() -> None:
    """11 elements by vectors of 4: a masked tail, and one that starts earlier and overlaps."""
    size, lanes = 11, 4
    out, x = np.zeros(size, np.float32), floats(size)
    o, p = params(out, x)
    a = Axes()
    outer, lane = a.loop(3), a.vector(lanes)
    i = outer * lanes + lane
    valid = i.lt(size)
    uops = run(kernel(o.index(i, valid).store(load(p, i, valid) * 3, outer, lane)), out, x)
    np.testing.assert_array_equal(out, x * np.float32(3))
    assert any(len(u.src) == 3 and u.src[2].dtype is dtypes.bool.vec(4) for u in uops)

    out[:] = 0
    outer, lane = a.loop(3), a.vector(lanes)
    base = outer * lanes
    start = base.lt(size - lanes).where(base, const(size - lanes))
    i = start + lane
    uops = run(kernel(o.index(i).store(load(p, i) * 3, outer, lane)), out, x)
    np.testing.assert_array_equal(out, x * np.float32(3))
    assert all(u.src[1].dtype.count == 1 for u in uops if u.op is Ops.INDEX)


def test_aligned_masks_and_divisions_need_no_lanes() -> None:
    """8*o + lane < 16 and (8*o + lane) // 16 are the same for all 8 lanes."""
    out, x = np.zeros(32, np.float32), floats(32)
    o, p = params(out, x)
    a = Axes()
    outer, lane = a.loop(4), a.vector(8)
    i = outer * 8 + lane
    swapped = (const(1) - i // 16) * 16 + i % 16
    value = i.lt(16).where(load(p, i), load(p, swapped))
    uops = run(kernel(o.index(i).store(value, outer, lane)), out, x)
    np.testing.assert_array_equal(out, np.concatenate([x[:16], x[:16]]))
    assert all(u.src[1].dtype.count == 1 for u in uops if u.op is Ops.INDEX)
    assert not any(u.op is Ops.CMPLT and u.dtype.count > 1 for u in uops)


def test_gather_strided_reversed_and_broadcast_loads() -> None:
    out, x = np.zeros((4, 8), np.float32), floats(64)
    index = rng.integers(0, 64, 8).astype(np.int32)
    o, p, q = params(out, x, index)
    a = Axes()
    lane = a.vector(8)
    places = {
        "gather": load(q, lane).cast(dtypes.weakint) % 64,
        "strided": lane * 3,
        "reversed": const(20) - lane,
        "same": const(5),
    }
    stores = [
        o.index(lane + 8 * row).store(load(p, at), lane) for row, at in enumerate(places.values())
    ]
    uops = run(kernel(*stores), out, x, index)
    expected = [x[index], x[np.arange(8) * 3], x[20 - np.arange(8)], np.full(8, x[5])]
    np.testing.assert_array_equal(out, np.stack(expected))
    wide = [u for u in uops if u.op is Ops.INDEX and u.src[1].dtype.count == 8]
    assert [u.src[1].dtype for u in wide] == [dtypes.int32.vec(8)] * 2


def test_scatter() -> None:
    out, x = np.zeros(16, np.float32), floats(8)
    o, p = params(out, x)
    lane = Axes().vector(8)
    run(kernel(o.index(lane * 2).store(load(p, lane), lane)), out, x)
    np.testing.assert_array_equal(out[::2], x)
    np.testing.assert_array_equal(out[1::2], np.zeros(8, np.float32))


def test_reduce_over_vector_and_unroll() -> None:
    for op, reference in ((Ops.ADD, np.sum), (Ops.MAX, np.max), (Ops.MUL, np.prod)):
        out, x = np.zeros(3, np.float32), floats(3, 48)
        o, p = params(out, x)
        a = Axes()
        i, r, u, v = a.loop(3), a.reduce(3), a.unroll(2), a.vector(8)
        value = load(p, i * 48 + r * 16 + u * 8 + v).reduce(op, r, u, v)
        uops = run(kernel(o.index(i).store(value, i)), out, x)
        np.testing.assert_allclose(out, reference(x, axis=1), rtol=1e-4, atol=1e-5)
        assert [u.dtype for u in uops if u.op is Ops.ACC] == [F32.vec(8)] * 2


def test_reduce_over_axes_that_are_all_written_out() -> None:
    out, x = np.zeros(2, np.int32), rng.integers(-9, 9, (2, 12)).astype(np.int32)
    o, p = params(out, x)
    a = Axes()
    i, u, v = a.upcast(2), a.unroll(3), a.vector(4)
    value = load(p, i * 12 + u * 4 + v).reduce(Ops.ADD, u, v)
    uops = run(kernel(o.index(i).store(value, i)), out, x)
    np.testing.assert_array_equal(out, x.sum(1))
    assert count(uops, Ops.RANGE) == 0 and count(uops, Ops.ACC) == 0


def test_reduce_counts_values_that_do_not_depend_on_the_axis() -> None:
    for make in (Axes.reduce, Axes.unroll, Axes.vector):
        for op, expected in ((Ops.ADD, 12), (Ops.MUL, 81), (Ops.MAX, 3)):
            out, x = np.zeros(1, np.int32), np.array([3], np.int32)
            o, p = params(out, x)
            r = make(Axes(), 4)
            run(kernel(o.index(const(0)).store(load(p, const(0)).reduce(op, r))), out, x)
            assert out[0] == expected, (make, op)


def test_odd_number_of_lanes() -> None:
    out, x = np.zeros(1, np.float32), floats(9)
    o, p = params(out, x)
    a = Axes()
    r, v = a.reduce(3), a.vector(3)
    value = load(p, r * 3 + v).reduce(Ops.ADD, r, v)
    run(kernel(o.index(const(0)).store(value)), out, x)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


def test_several_outputs_of_different_depth() -> None:
    """Row means (i) and the centred rows (i, j) are one nest."""
    m, n = 3, 4
    out, means, x = np.zeros((m, n), np.float32), np.zeros(m, np.float32), floats(m, n)
    o, s, p = params(out, means, x)
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(n)
    mean = load(p, i * n + r).reduce(Ops.ADD, r) / n
    stores = [
        s.index(i).store(mean, i),
        o.index(i * n + j).store(load(p, i * n + j) - mean, i, j),
    ]
    uops = run(kernel(*stores), out, means, x)
    np.testing.assert_allclose(means, x.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out, x - x.mean(1, keepdims=True), rtol=1e-4, atol=1e-6)
    assert count(uops, Ops.RANGE) == 3


def test_several_nests() -> None:
    """Nests with their own axes, and two that use the same axis for different things."""
    first, second, x = np.zeros(6, np.float32), np.zeros((4, 6), np.float32), floats(6)
    o, s, p = params(first, second, x)
    a = Axes()
    i, j, k = a.loop(6), a.loop(4), a.loop(6)
    stores = [
        o.index(i).store(load(p, i) + 1, i),
        s.index(j * 6 + k).store(load(p, k) * 2, j, k),
    ]
    run(kernel(*stores), first, second, x)
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_array_equal(second, np.broadcast_to(x * 2, (4, 6)))
    # k outermost in one nest, i innermost in the other, the same UOp in both
    stores = [o.index(i).store(load(p, i) - 1, i), s.index(j * 6 + i).store(load(p, i), j, i)]
    run(kernel(*stores), first, second, x)
    np.testing.assert_array_equal(first, x - 1)
    np.testing.assert_array_equal(second, np.broadcast_to(x, (4, 6)))


def test_the_same_axis_stored_and_reduced() -> None:
    """x[i] - sum over i of x[i]: the axis of the store is also the reduce's."""
    out, x = np.zeros(5, np.float32), floats(5)
    o, p = params(out, x)
    i = Axes().loop(5)
    value = load(p, i) - load(p, i).reduce(Ops.ADD, i)
    run(kernel(o.index(i).store(value, i)), out, x)
    np.testing.assert_allclose(out, x - x.sum(), rtol=1e-5, atol=1e-6)


def test_in_place_update_of_several_buffers() -> None:
    """A step of an optimiser: each value is a function of what the buffers held before."""
    for kind in (Axes.loop, Axes.upcast, Axes.vector):
        weight, momentum, gradient = floats(8), floats(8), floats(8)
        w, m, g = params(weight, momentum, gradient)
        a = Axes()
        outer, inner = a.loop(2), kind(a, 4)
        i = outer * 4 + inner
        moved = load(m, i) * 0.5 + load(g, i)
        stores = [
            m.index(i).store(moved, outer, inner),
            w.index(i).store(load(w, i) - load(m, i) * 0.25, outer, inner),
        ]
        old_weight, old_momentum = weight.copy(), momentum.copy()
        uops = run(kernel(*stores), weight, momentum, gradient)
        np.testing.assert_allclose(momentum, old_momentum * 0.5 + gradient, rtol=1e-6)
        np.testing.assert_allclose(weight, old_weight - old_momentum * 0.25, rtol=1e-6)
        assert count(uops, Ops.RANGE) == (2 if kind is Axes.loop else 1)


def test_a_reader_elsewhere_runs_before_the_writer() -> None:
    out, x = np.zeros(6, np.float32), floats(6)
    o, p = params(out, x)
    i = Axes().loop(6)
    stores = [
        p.index(i).store(load(p, i) * 2, i),
        o.index(i).store(load(p, const(5) - i), i),
    ]
    before = x.copy()
    uops = run(kernel(*stores), out, x)
    np.testing.assert_array_equal(x, before * 2)
    np.testing.assert_array_equal(out, before[::-1])
    assert count(uops, Ops.RANGE) == 2


def test_threads_of_different_nests() -> None:
    """Nests with 4, 2 and no threads: each iteration runs once, also in an in-place update."""
    first, second, third = floats(8), floats(4), floats(1)
    p, q, r = params(first, second, third)
    a = Axes()
    t, i, u, j = a.thread(4), a.loop(2), a.thread(2), a.loop(2)
    stores = [
        p.index(t * 2 + i).store(load(p, t * 2 + i) * 2, t, i),
        q.index(u * 2 + j).store(load(q, u * 2 + j) * 3, u, j),
        r.index(const(0)).store(load(r, const(0)) * 5),
    ]
    expected = first * 2, second * 3, third * 5
    uops = run(kernel(*stores), first, second, third)
    for found, wanted in zip((first, second, third), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    threads = [u for u in uops if u.op is Ops.RANGE and u.arg.kind.name == "THREAD"]
    assert [u.src[0].arg for u in threads] == [4, 4, 4]


def test_thread_axis_stays_outermost() -> None:
    n, c = 4, 3
    out, x = np.zeros((n, c), np.float32), floats(n, c)
    o, p = params(out, x)
    a = Axes()
    i, j, r = a.thread(n), a.loop(c), a.reduce(n)
    mean = load(p, r * c + j).reduce(Ops.ADD, r) / n
    idx = i * c + j
    uops = run(kernel(o.index(idx).store(load(p, idx) - mean, j, i)), out, x)
    np.testing.assert_allclose(out, x - x.mean(0), rtol=1e-4, atol=1e-6)
    first = next(u for u in uops if u.op is Ops.RANGE)
    assert first.arg.kind.name == "THREAD"


def test_symbolic_size() -> None:
    out, x = np.zeros(10, np.float32), floats(10)
    o, p = params(out, x)
    a = Axes()
    n = UOp.variable("n", 1, 10)
    i, r = a.loop(n), a.reduce(n)
    value = load(p, i) + load(p, r).reduce(Ops.ADD, r)
    uops = linear_program(kernel(o.index(i).store(value, i)))
    for size in (1, 4, 10):
        out[:] = 0
        interpret(uops, (out, x), (size,))
        np.testing.assert_allclose(out[:size], x[:size] + x[:size].sum(), rtol=1e-5)
        assert not out[size:].any()


def test_nested_reduces_are_two_levels_of_accumulation() -> None:
    out, x = np.zeros(1, np.float32), floats(32)
    o, p = params(out, x)
    a = Axes()
    outer, inner = a.reduce(4), a.reduce(8)
    value = load(p, outer * 8 + inner).reduce(Ops.ADD, inner).reduce(Ops.ADD, outer)
    uops = run(kernel(o.index(const(0)).store(value)), out, x)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-4)
    assert count(uops, Ops.ACC) == 2 and count(uops, Ops.RANGE) == 2


def test_range_as_data() -> None:
    out = np.zeros((2, 8), np.float32)
    (o,) = params(out)
    a = Axes()
    i, lane = a.upcast(2), a.vector(8)
    value = (i * 8 + lane).cast(F32) * 0.5
    uops = run(kernel(o.index(i * 8 + lane).store(value, i, lane)), out)
    np.testing.assert_array_equal(out, np.arange(16, dtype=np.float32).reshape(2, 8) * 0.5)
    # constant lanes are constants
    assert not any(u.op in (Ops.CAST, Ops.ADD) for u in uops)


def test_bool_and_int_reduces() -> None:
    out, x = np.zeros(2, np.bool_), np.array([[0, 1, 0], [0, 0, 0]], np.bool_)
    o, p = params(out, x)
    a = Axes()
    i, r = a.loop(2), a.reduce(3)
    run(kernel(o.index(i).store(load(p, i * 3 + r).reduce(Ops.MAX, r), i)), out, x)
    assert out.tolist() == [True, False]


def test_deep_expression() -> None:
    out, x = np.zeros(2, np.int32), np.array([1, 2], np.int32)
    o, p = params(out, x)
    i = Axes().loop(2)
    value = load(p, i)
    for step in range(5000):
        value = value + (step % 7) if step % 2 else value ^ (step % 5)
    run(kernel(o.index(i).store(value, i)), out, x)
    expected = x.copy()
    for step in range(5000):
        expected = expected + (step % 7) if step % 2 else expected ^ (step % 5)
    np.testing.assert_array_equal(out, expected)
