"""The grid and its groups: output loops become GLOBAL axes, stages become shared memory.

Kernels are built by hand, interpreted and compared with NumPy; every pass is verified.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from test.codegen.gpu_builder import F32, GPU, GPUAxes, normal, run, stage, tiled_matmul, zeros
from test.codegen.kernel_builder import const, count, kernel, load, params
from weft.codegen.open_grid import open_grid, share_stages
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.gpu import runs_in_any_order
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.python import PythonRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_grid_and_group_axes_become_indices() -> None:
    x, out = normal(6, 8), zeros(6, 8)
    o, p = params(out, x)
    a = GPUAxes()
    i, j = a.grid(6), a.local(8)
    spec = run(kernel(o.index(i * 8 + j).store(load(p, i * 8 + j) * 2.0, i, j)), out, x)
    np.testing.assert_array_equal(out, x * 2)
    assert spec.global_size == (6, 1, 1) and spec.local_size == (8, 1, 1)
    assert count(spec.uops, Ops.RANGE) == 0


def test_the_innermost_axis_runs_along_x() -> None:
    x, out = normal(3, 4, 5, 6), zeros(3, 4, 5, 6)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, k, m = a.grid(3), a.grid(4), a.local(5), a.local(6)
    index = ((i * 4 + j) * 5 + k) * 6 + m
    spec = run(kernel(o.index(index).store(load(p, index) + 1.0, i, j, k, m)), out, x)
    np.testing.assert_array_equal(out, x + 1)
    assert spec.global_size == (4, 3, 1) and spec.local_size == (6, 5, 1)


def test_more_than_three_axes_share_an_index() -> None:
    shape = (2, 3, 2, 3, 4)
    x, out = normal(*shape), zeros(*shape)
    o, p = params(out, x)
    a = GPUAxes()
    axes = [a.grid(size) for size in shape]
    index = const(0)
    for axis, size in zip(axes, shape, strict=True):
        index = index * size + axis
    spec = run(kernel(o.index(index).store(load(p, index) + 1.0, *axes)), out, x)
    np.testing.assert_array_equal(out, x + 1)
    assert spec.global_size == (144, 1, 1)


def test_loops_over_outputs_become_the_grid() -> None:
    x, out = normal(6, 8), zeros(6)
    o, p = params(out, x)
    a = GPUAxes()
    i, r = a.loop(6), a.reduce(8)
    total = load(p, i * 8 + r).reduce(Ops.ADD, r)
    spec = run(kernel(o.index(i).store(total, i)), out, x)
    bound = 4 * np.finfo(np.float32).eps * math.sqrt(8) * np.abs(x).sum(1)
    assert (np.abs(out - x.sum(1, dtype=np.float64)) <= bound).all()
    assert spec.global_size == (6, 1, 1)


def test_a_loop_that_a_reduction_does_not_depend_on_stays_one() -> None:
    """Else every group would reduce again."""
    x, out = normal(6, 8), zeros(6, 8)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, r = a.loop(6), a.loop(8), a.reduce(8)
    total = load(p, i * 8 + r).reduce(Ops.ADD, r)
    spec = run(kernel(o.index(i * 8 + j).store(load(p, i * 8 + j) / total, i, j)), out, x)
    np.testing.assert_allclose(out, x / x.sum(1, keepdims=True), rtol=1e-5)
    assert spec.global_size == (6, 1, 1)


def test_limits_of_the_grid_are_kept() -> None:
    """More groups than fit along x: in rows of ten, or with some that have nothing to do."""
    small = replace(GPU, grid_limits=(16, 16, 16))
    for size in (100, 101):
        x, out = normal(size), zeros(size)
        o, p = params(out, x)
        i = GPUAxes().grid(size)
        spec = run(kernel(o.index(i).store(load(p, i) + 1.0, i)), out, x, target=small)
        np.testing.assert_array_equal(out, x + 1)
        assert all(isinstance(n, int) and n <= 16 for n in spec.global_size)
    x, out = normal(1000), zeros(1000)
    o, p = params(out, x)
    i = GPUAxes().grid(1000)
    with pytest.raises(CompileError, match="more than the target can number"):
        run(kernel(o.index(i).store(load(p, i) + 1.0, i)), out, x, target=small)


def test_a_grid_of_a_size_known_at_run_time() -> None:
    x = normal(50)
    size = UOp.variable("n", 1, 50)
    for n in (1, 7, 50):
        out = zeros(50)
        o, p = params(out, x)
        i = GPUAxes().loop(size)
        spec = run(kernel(o.index(i).store(load(p, i) + 1.0, i)), out, x, values=[n])
        np.testing.assert_array_equal(out, np.where(np.arange(50) < n, x + 1, -77))
        assert isinstance(spec.global_size[0], UOp)


def test_a_long_grid_of_a_size_known_at_run_time() -> None:
    x = normal(50)
    small = replace(GPU, grid_limits=(8, 8, 8))
    size = UOp.variable("n", 1, 50)
    for n in (1, 8, 23, 50):
        out = zeros(50)
        o, p = params(out, x)
        i = GPUAxes().loop(size)
        run(kernel(o.index(i).store(load(p, i) + 1.0, i)), out, x, values=[n], target=small)
        np.testing.assert_array_equal(out, np.where(np.arange(50) < n, x + 1, -77))


def test_lanes_of_a_warp_are_neighbours() -> None:
    x, out = normal(4, 32), zeros(4, 32)
    o, p = params(out, x)
    a = GPUAxes()
    w, i = a.warp(32), a.local(4)
    index = i * 32 + w
    spec = run(kernel(o.index(index).store(load(p, index) * 3.0, w, i)), out, x)
    np.testing.assert_array_equal(out, x * 3)
    # the warp is along x though its axis is the outer one
    assert spec.local_size == (32, 4, 1)


def test_nests_of_different_sizes_share_a_launch() -> None:
    x, y, first, second, third = normal(40), normal(6, 9), zeros(40), zeros(6), zeros(1)
    f, s, t, p, q = params(first, second, third, x, y)
    a = GPUAxes()
    i, j, r, k = a.grid(40), a.grid(6), a.reduce(9), a.reduce(40)
    spec = run(
        kernel(
            f.index(i).store(load(p, i) + 1.0, i),
            s.index(j).store(load(q, j * 9 + r).reduce(Ops.ADD, r), j),
            t.index(const(0)).store(load(p, k).reduce(Ops.MAX, k)),
        ),
        *(first, second, third, x, y),
    )
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_allclose(second, y.sum(1), rtol=1e-6)
    assert third[0] == x.max()
    assert spec.global_size == (40, 1, 1)


def test_nests_with_groups_of_different_sizes() -> None:
    x, y, first, second = normal(4, 12), normal(4, 5), zeros(4, 12), zeros(4, 5)
    f, s, p, q = params(first, second, x, y)
    a = GPUAxes()
    i, j, k, m = a.grid(4), a.local(12), a.grid(4), a.local(5)
    spec = run(
        kernel(
            f.index(i * 12 + j).store(load(p, i * 12 + j) + 1.0, i, j),
            s.index(k * 5 + m).store(load(q, k * 5 + m) * 2.0, k, m),
        ),
        *(first, second, x, y),
    )
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_array_equal(second, y * 2)
    assert spec.local_size == (12, 1, 1)


def test_an_output_of_fewer_axes_is_stored_once() -> None:
    """A row's sum beside the row: one thread of the row stores it."""
    x, rows, sums = normal(5, 8), zeros(5, 8), zeros(5)
    f, s, p = params(rows, sums, x)
    a = GPUAxes()
    i, j, r = a.grid(5), a.local(8), a.reduce(8)
    total = load(p, i * 8 + r).reduce(Ops.ADD, r)
    spec = run(
        kernel(
            f.index(i * 8 + j).store(load(p, i * 8 + j) - total, i, j),
            s.index(i).store(total, i),
        ),
        *(rows, sums, x),
    )
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(rows, x - x.sum(1, keepdims=True), rtol=1e-4, atol=1e-5)
    stores = [u for u in spec.uops if u.op is Ops.STORE and u.src[0].src[0].arg.slot == 1]
    assert [len(store.src[0].src) for store in stores] == [3]


def test_tiles_are_filled_by_all_threads() -> None:
    sink, out, x, y = tiled_matmul(16, 4)
    spec = run(sink, out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)
    assert spec.global_size == (4, 4, 1) and spec.local_size == (4, 4, 1)
    # both fills between one pair of barriers, in the loop over tiles
    assert count(spec.uops, Ops.BARRIER) == 2
    shared = [u for u in spec.uops if u.op is Ops.STORE and u.src[0].src[0].op is Ops.LOCAL]
    assert len(shared) == 2 and count(spec.uops, Ops.RANGE) == 2


@pytest.mark.parametrize("threads", [1, 7, 32, 100, 200])
def test_fills_of_any_size_over_threads_of_any_number(threads: int) -> None:
    """A row of 100 elements turned around through shared memory."""
    x, out = normal(3, 100), zeros(3, threads)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, f = a.grid(3), a.local(threads), a.loop(100)
    row = stage(load(p, i * 100 + f), f)
    value = row.index((const(99 + 200) - j) % 100).load()
    run(kernel(o.index(i * threads + j).store(value, i, j)), out, x)
    np.testing.assert_array_equal(out, x[:, (299 - np.arange(threads)) % 100])


def test_a_stage_that_threads_agree_on_becomes_shared() -> None:
    x, out = normal(3, 16), zeros(3, 16)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, f = a.grid(3), a.local(16), a.loop(16)
    row = stage(load(p, i * 16 + f), f, memory="scratch")
    value = row.index(const(15) - j).load()
    spec = run(kernel(o.index(i * 16 + j).store(value, i, j)), out, x)
    np.testing.assert_array_equal(out, x[:, ::-1])
    (memory,) = [u for u in spec.uops if u.op is Ops.LOCAL]
    assert memory.arg.memory == "shared" and count(spec.uops, Ops.BARRIER) == 1


def test_a_stage_of_each_thread_stays_its_own() -> None:
    x, out = normal(4, 16, 5), zeros(4, 16)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, f, r = a.grid(4), a.local(16), a.loop(5), a.reduce(5)
    mine = stage(load(p, (i * 16 + j) * 5 + f).alu(Ops.EXP2), f, memory="scratch")
    value = mine.index(r).load().reduce(Ops.ADD, r)
    spec = run(kernel(o.index(i * 16 + j).store(value, i, j)), out, x)
    np.testing.assert_allclose(out, np.exp2(x).sum(2), rtol=1e-5)
    (memory,) = [u for u in spec.uops if u.op is Ops.LOCAL]
    assert memory.arg.memory == "scratch" and count(spec.uops, Ops.BARRIER) == 0


def test_shared_memory_that_does_not_fit_is_private_or_refused() -> None:
    small = replace(GPU, shared_bytes=32)
    x, out = normal(3, 16), zeros(3, 16)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, f, g = a.grid(3), a.local(16), a.loop(16), a.group(16)
    row = stage(load(p, i * 16 + f), f, memory="scratch")
    sink = kernel(o.index(i * 16 + j).store(row.index(const(15) - j).load(), i, j))
    assert share_stages(sink, small) is sink
    total = load(p, i * 16 + g).reduce(Ops.ADD, g)
    with pytest.raises(CompileError, match="64 bytes of shared memory, gpu has 32"):
        run(kernel(o.index(i).store(total, i)), out, x, target=small)


def test_in_place_on_the_same_element_runs_at_once() -> None:
    x = normal(12)
    expected = x * 2 + 1
    (p,) = params(x)
    i = GPUAxes().loop(12)
    sink = kernel(p.index(i).store(load(p, i) * 2.0 + 1.0, i))
    assert runs_in_any_order(sink)
    spec = run(sink, x, optimised=True)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    assert spec.global_size


def test_in_place_in_parts_runs_at_once() -> None:
    """A size that no group divides is split into full groups and a rest, each in place."""
    size = 2 * 251
    x = normal(size)
    expected = x * 2 + 1
    (p,) = params(x)
    i = GPUAxes().loop(size)
    sink = kernel(p.index(i).store(load(p, i) * 2.0 + 1.0, i))
    split = apply_opt(sink, Opt(OptOps.LOCAL, (0,), 100), GPU)
    assert len(split.src) == 2 and runs_in_any_order(split)
    run(split, x)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "case", ["other element", "one element", "run-time place", "another nest", "fewer axes"]
)
def test_what_sees_the_stores_of_others_runs_on_one_thread(case: str) -> None:
    x, other = normal(13), np.zeros(12, np.int32)
    p, q = params(x, other)
    a = GPUAxes()
    i, j = a.loop(12), a.loop(12)
    out = UOp.param(2, F32, 144)
    stores = {
        "other element": [p.index(i).store(load(p, i + 1), i)],
        "one element": [
            p.index(const(12)).store(load(p, const(12)) + 1.0),
            out.index(j).store(load(p, const(12)), j),
        ],
        "run-time place": [p.index(load(q, i).cast(dtypes.weakint)).store(load(p, const(12)), i)],
        "another nest": [p.index(i).store(load(p, i), i), out.index(j).store(load(p, j), j)],
        "fewer axes": [
            p.index(i).store(load(p, i) + 1.0, i),
            out.index(i * 12 + j).store(load(p, i), i, j),
        ],
    }
    sink = kernel(*stores[case])
    assert not runs_in_any_order(sink)
    with Context(SPEC=1):
        spec = lower(sink, PythonRenderer(GPU))
    assert spec.global_size == () and spec.local_size == ()


def test_threads_in_a_kernel_whose_order_matters_are_refused() -> None:
    (p,) = params(normal(13))
    i = GPUAxes().local(12)
    with pytest.raises(CompileError, match="reads elements that other iterations write"):
        open_grid(kernel(p.index(i).store(load(p, i + 1), i)), GPU)


def test_too_many_threads_are_refused() -> None:
    x, out = normal(512), zeros(512)
    o, p = params(out, x)
    i = GPUAxes().local(512)
    with pytest.raises(CompileError, match="wants 512 threads in a group, gpu has at most 256"):
        run(kernel(o.index(i).store(load(p, i), i)), out, x)


def test_a_warp_axis_divides_the_warp() -> None:
    x, out = normal(24), zeros(24)
    o, p = params(out, x)
    i = GPUAxes().warp(24)
    with pytest.raises(CompileError, match="size 24 is part of a warp, which has 32 threads"):
        run(kernel(o.index(i).store(load(p, i), i)), out, x)


def test_a_group_of_unknown_size_is_refused() -> None:
    x, out = normal(24), zeros(24)
    o, p = params(out, x)
    i = GPUAxes().local(UOp.variable("n", 1, 24))  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="of kind LOCAL needs a constant size, found n"):
        run(kernel(o.index(i).store(load(p, i), i)), out, x, values=[3])
