"""GPU-like axes, run by the interpreter: grid, groups, warps, shared memory and barriers.

Kernels are built by hand and compared with NumPy; every pass is verified on the way. The passes
are open_grid, share_reduces, share_stages, bind_axes, add_barriers and opt.gpu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, const, count, interpret, kernel, load, params
from test.fuzz.programs import Generator, difference
from test.renderer.corpus import cases_of, check_contents
from weft import Device
from weft.codegen.open_grid import open_grid, share_stages
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.gpu import runs_in_any_order
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import CompileError, RaceError, SpecError
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.base import ProgramSpec
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.prove import prove_barriers

GPU = Target(
    name="gpu",
    vector_bytes=16,
    has_local=True,
    index_dtype=dtypes.int32,
    group_threads=256,
    shared_bytes=32 << 10,
    warp_size=32,
)
F32 = dtypes.float32
random = np.random.default_rng(5)


class GPUAxes(Axes):
    """The axes of hand-built kernels, with those of GPUs."""

    def grid(self, size: int | UOp) -> UOp:
        return self.make(size, AxisType.GLOBAL)

    def local(self, size: int) -> UOp:
        return self.make(size, AxisType.LOCAL)

    def warp(self, size: int) -> UOp:
        return self.make(size, AxisType.WARP)

    def group(self, size: int) -> UOp:
        return self.make(size, AxisType.GROUP_REDUCE)


def normal(*shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.full(shape, -77.0, np.float32)


def run(
    sink: UOp,
    *arrays: np.ndarray,
    values: Sequence[int] = (),
    target: Target = GPU,
    optimised: bool = False,
) -> ProgramSpec:
    """Lower with every pass verified, and interpret."""
    with Context(SPEC=2, NOOPT=int(not optimised)):
        spec = lower(sink, PythonRenderer(target))
    interpret(spec.uops, arrays, values)
    return spec


def stage(value: UOp, *fills: UOp, memory: str = "shared") -> UOp:
    return UOp(Ops.STAGE, value.dtype, (value, *fills), StageArg(fills[0].arg.number[0], memory))


# ------------------------------------------------------------ the grid and its groups
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
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-6)
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


# ------------------------------------------------------------ several outputs
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


# ------------------------------------------------------------ reductions of a group
@pytest.mark.parametrize("size", [1, 2, 16, 64, 96, 256])
def test_a_group_reduces_through_shared_memory(size: int) -> None:
    x, out = normal(3, 2 * size), zeros(3)
    o, p = params(out, x)
    a = GPUAxes()
    i, r, g = a.grid(3), a.reduce(2), a.group(size)
    total = load(p, i * (2 * size) + r * size + g).reduce(Ops.ADD, r, g)
    spec = run(kernel(o.index(i).store(total, i)), out, x)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)
    assert spec.local_size == (size, 1, 1)
    assert count(spec.uops, Ops.BARRIER) == (0 if size == 1 else 1 if size <= 32 else 2)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX, Ops.MUL])
def test_groups_of_two_axes_and_outputs_in_the_same_group(op: Ops) -> None:
    x, out = normal(4, 3, 5, 6), zeros(4)
    o, p = params(out, x)
    a = GPUAxes()
    i, r, g, h = a.local(4), a.reduce(3), a.group(5), a.group(6)
    total = load(p, ((i * 3 + r) * 5 + g) * 6 + h).reduce(op, r, g, h)
    spec = run(kernel(o.index(i).store(total, i)), out, x)
    function = {Ops.ADD: np.sum, Ops.MAX: np.max, Ops.MUL: np.prod}[op]
    np.testing.assert_allclose(out, function(x, axis=(1, 2, 3)), rtol=1e-4)
    assert spec.local_size == (120, 1, 1)


def test_group_reductions_with_copies_in_registers_and_lanes() -> None:
    """Column sums: four lanes and two copies of outputs for every thread."""
    x, out = normal(32, 3, 2, 4), zeros(3, 2, 4)
    o, p = params(out, x)
    a = GPUAxes()
    i, u, v, r, g = a.grid(3), a.upcast(2), a.vector(4), a.reduce(4), a.group(8)
    index = (i * 2 + u) * 4 + v
    total = load(p, (r * 8 + g) * 24 + index).reduce(Ops.ADD, r, g)
    spec = run(kernel(o.index(index).store(total, i, u, v)), out, x)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-5, atol=1e-5)
    assert any([u.op is Ops.STORE and u.src[1].dtype.count == 4 for u in spec.uops])


def test_threads_serve_reductions_and_outputs() -> None:
    """A softmax: the group that reduces a row then writes it."""
    x, out = normal(5, 96), zeros(5, 96)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, m = a.grid(5), a.loop(3), a.local(32)
    r, g, s, h = a.reduce(3), a.group(32), a.reduce(3), a.group(32)
    most = load(p, i * 96 + r * 32 + g).reduce(Ops.MAX, r, g)

    def power(index: UOp) -> UOp:
        return (load(p, i * 96 + index) - most).alu(Ops.EXP2)

    total = power(s * 32 + h).reduce(Ops.ADD, s, h)
    store = o.index(i * 96 + j * 32 + m).store(power(j * 32 + m) / total, i, j, m)
    spec = run(kernel(store), out, x)
    powers = np.exp2(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert spec.local_size == (32, 1, 1) and count(spec.uops, Ops.BARRIER) == 2


def test_reductions_over_the_same_elements_share_their_barrier() -> None:
    x, sums, squares = normal(3, 64), zeros(3), zeros(3)
    f, s, p = params(sums, squares, x)
    a = GPUAxes()
    i, r, g = a.grid(3), a.reduce(4), a.group(16)
    value = load(p, i * 64 + r * 16 + g)
    spec = run(
        kernel(
            f.index(i).store(value.reduce(Ops.ADD, r, g), i),
            s.index(i).store((value * value).reduce(Ops.ADD, r, g), i),
        ),
        *(sums, squares, x),
    )
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(squares, (x * x).sum(1), rtol=1e-5)
    assert count(spec.uops, Ops.BARRIER) == 1
    # one loop over the elements, one over the parts
    assert count(spec.uops, Ops.RANGE) == 2


def test_a_group_reduction_inside_a_loop_has_two_barriers() -> None:
    """max over i of the sum over j: the parts of one sum are read before those of the next come."""
    x, out = normal(6, 16), zeros(1)
    o, p = params(out, x)
    a = GPUAxes()
    i, g = a.reduce(6), a.group(16)
    total = load(p, i * 16 + g).reduce(Ops.ADD, g).reduce(Ops.MAX, i)
    spec = run(kernel(o.index(const(0)).store(total)), out, x)
    np.testing.assert_allclose(out[0], x.sum(1).max(), rtol=1e-5)
    assert count(spec.uops, Ops.BARRIER) == 2


def test_group_reductions_inside_each_other() -> None:
    x, out = normal(4, 8), zeros(1)
    o, p = params(out, x)
    a = GPUAxes()
    g, h = a.group(4), a.group(8)
    total = load(p, g * 8 + h).reduce(Ops.ADD, h).reduce(Ops.MAX, g)
    run(kernel(o.index(const(0)).store(total)), out, x)
    np.testing.assert_allclose(out[0], x.sum(1).max(), rtol=1e-5)


# ------------------------------------------------------------ shared stages
def matmul(size: int, tile: int) -> tuple[UOp, np.ndarray, np.ndarray, np.ndarray]:
    """Square tiles of both operands, staged by hand."""
    x, y, out = normal(size, size), normal(size, size), zeros(size, size)
    o, p, q = params(out, x, y)
    a = GPUAxes()
    i, j, m, n = a.grid(size // tile), a.grid(size // tile), a.local(tile), a.local(tile)
    k, t = a.reduce(size // tile), a.reduce(tile)
    fills = [a.loop(tile) for _ in range(4)]
    left = stage(load(p, (i * tile + fills[0]) * size + k * tile + fills[1]), *fills[:2])
    right = stage(load(q, (k * tile + fills[2]) * size + j * tile + fills[3]), *fills[2:])
    product = left.index(m * tile + t).load() * right.index(t * tile + n).load()
    index = (i * tile + m) * size + j * tile + n
    sink = kernel(o.index(index).store(product.reduce(Ops.ADD, k, t), i, j, m, n))
    return sink, out, x, y


def test_tiles_are_filled_by_all_threads() -> None:
    sink, out, x, y = matmul(16, 4)
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


# ------------------------------------------------------------ barriers that matter
def without_barrier(uops: Sequence[UOp], place: int) -> list[UOp]:
    """The program without its barrier number `place`: a mistake that a compiler might make."""
    barriers = [u for u in uops if u.op is Ops.BARRIER]
    return [u for u in uops if u is not barriers[place]]


def test_a_dropped_barrier_after_a_fill_is_caught() -> None:
    sink, out, x, y = matmul(8, 4)
    spec = run(sink, out, x, y)
    with pytest.raises(SpecError, match="is read before it is written|a race in kernel test"):
        interpret(without_barrier(spec.uops, 1), [out, x, y])
    with pytest.raises(SpecError, match="with no BARRIER between them"):
        prove_barriers(without_barrier(spec.uops, 1), "test")


def test_a_dropped_barrier_before_a_fill_is_caught() -> None:
    """The first threads overwrite what the others still need."""
    sink, out, x, y = matmul(8, 4)
    spec = run(sink, out, x, y)
    with pytest.raises(RaceError, match="element . of shared memory .* no barrier of a group"):
        interpret(without_barrier(spec.uops, 0), [zeros(8, 8), x, y])
    with pytest.raises(SpecError, match="with no BARRIER between them"):
        prove_barriers(without_barrier(spec.uops, 0), "test")


def test_every_barrier_of_a_group_reduction_is_needed() -> None:
    x, out = normal(2, 64), zeros(2)
    o, p = params(out, x)
    a = GPUAxes()
    i, g = a.grid(2), a.group(64)
    spec = run(kernel(o.index(i).store(load(p, i * 64 + g).reduce(Ops.ADD, g), i)), out, x)
    for place in range(count(spec.uops, Ops.BARRIER)):
        with pytest.raises(SpecError, match="read before it is written|a race in kernel test"):
            interpret(without_barrier(spec.uops, place), [out, x])


def test_a_barrier_that_only_some_threads_reach_is_refused() -> None:
    """A shared stage in a loop whose rounds depend on the thread."""
    x, out = normal(8, 4), zeros(8)
    o, p = params(out, x)
    a = GPUAxes()
    j = a.local(8)
    r, f = a.reduce(j + 1), a.loop(4)
    row = stage(load(p, r * 4 + f), f)
    value = row.index(j % 4).load().reduce(Ops.ADD, r)
    with pytest.raises(CompileError, match="cannot differ along axis .0,., which the threads"):
        run(kernel(o.index(j).store(value, j)), out, x)


# ------------------------------------------------------------ what may run in any order
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


# ------------------------------------------------------------ refusals
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


# ------------------------------------------------------------ the heuristic
def applied(sink: UOp) -> list[OptOps]:
    better = optimise(sink, GPU)
    # what is recorded gives the same kernel again
    again = sink
    for opt in better.arg.applied:
        again = apply_opt(again, opt, GPU)
    assert again.src == better.src
    return [opt.op for opt in better.arg.applied]


def test_elementwise_gets_lanes_and_threads() -> None:
    x, out = normal(32, 64), zeros(32, 64)
    o, p = params(out, x)
    a = GPUAxes()
    i, j = a.loop(32), a.loop(64)
    sink = kernel(o.index(i * 64 + j).store(load(p, i * 64 + j) + 1.0, i, j))
    assert applied(sink) == [OptOps.MERGE, OptOps.VECTOR, OptOps.LOCAL]
    spec = run(sink, out, x, optimised=True)
    np.testing.assert_array_equal(out, x + 1)
    assert spec.local_size == (256, 1, 1) and spec.global_size == (2, 1, 1)


def test_long_rows_are_reduced_by_groups() -> None:
    x, out = normal(4, 512), zeros(4)
    o, p = params(out, x)
    a = GPUAxes()
    i, r = a.loop(4), a.reduce(512)
    sink = kernel(o.index(i).store(load(p, i * 512 + r).reduce(Ops.ADD, r), i))
    assert applied(sink) == [OptOps.GROUP]
    spec = run(sink, out, x, optimised=True)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-4)
    assert spec.global_size == (4, 1, 1) and spec.local_size == (128, 1, 1)


def test_short_rows_are_a_thread_each() -> None:
    x, out = normal(200, 6), zeros(200)
    o, p = params(out, x)
    a = GPUAxes()
    i, r = a.loop(200), a.reduce(6)
    sink = kernel(o.index(i).store(load(p, i * 6 + r).reduce(Ops.ADD, r), i))
    assert applied(sink) == [OptOps.LOCAL]
    run(sink, out, x, optimised=True)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (33, 40, 20), (16, 16, 16), (70, 129, 7)])
def test_products_run_in_tiles(m: int, n: int, k: int) -> None:
    x, y, out = normal(m, k), normal(k, n), zeros(m, n)
    o, p, q = params(out, x, y)
    a = GPUAxes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    product = load(p, i * k + r) * load(q, r * n + j)
    sink = kernel(o.index(i * n + j).store(product.reduce(Ops.ADD, r), i, j))
    found = applied(sink)
    assert (found.count(OptOps.STAGE) == 2) == (k >= 16)
    run(sink, out, x, y, optimised=True)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------ whole programs
CORPUS = (
    *("elementwise", "narrow_integers", "padded", "sum_rows", "sum_columns", "sum_all", "argmax"),
    *("cumulated", "softmax", "layernorm", "matmul", "matmul_turned", "matmul_batches", "conv"),
    *("attention", "gather", "scatter", "random", "half", "assign", "adam", "variable"),
    *("variable_rows", "several_nests", "cast_from_float32"),
)


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("name", CORPUS)
def test_programs_compute_the_same_on_groups(name: str, lanes: int) -> None:
    renderer = PythonRenderer(replace(GPU, vector_bytes=lanes))
    for case in cases_of(name):
        with Context(SPEC=1):
            spec = lower(case.kernel, renderer)
        contents = [bytearray(some) for some in case.before]
        memory = {
            param.arg.slot: view_memory(
                memoryview(contents[param.arg.slot]), param.dtype, param.arg.size
            )
            for param in spec.params
        }
        values = [case.values[v.arg.name] for v in spec.variables]
        Interpreter(case.name, spec.uops).run(memory, values)
        check_contents(case, spec, [bytes(some) for some in contents])


def test_random_programs_compute_the_same_on_groups() -> None:
    device = "PYTHON:7"
    Device[device].renderer = PythonRenderer(GPU)
    with Context(SPEC=1):
        for seed in range(40):
            found = difference(Generator(seed, 10, False).run(), device)
            assert found is None, f"seed {seed}: {found}"
