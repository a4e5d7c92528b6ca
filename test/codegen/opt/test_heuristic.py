"""The heuristic keeps the meaning of every kernel on every kind of target, and chooses what it is
known to need.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import KERNELS, numbers, run_for, run_plain, zeros
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

TARGETS = [
    Target("narrow", cores=1, vector_bytes=16, vector_registers=16),
    Target("usual", cores=4, vector_bytes=32, vector_registers=16, has_threads=True, has_fma=True),
    Target("wide", cores=2, vector_bytes=64, vector_registers=32, has_threads=True, has_fma=True),
]
WIDE = TARGETS[2]


@pytest.mark.parametrize("seed", range(8 * len(KERNELS)))
def test_optimised_kernels_compute_the_same(seed: int) -> None:
    pick = random.Random(seed)
    ast, arrays = KERNELS[seed % len(KERNELS)](pick, pick.choice([6, 18, 40]))
    expected = run_plain(ast, arrays)
    found = run_for(ast, arrays, TARGETS[seed % len(TARGETS)])
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


def applied(ast: UOp, target: Target = WIDE) -> list[Opt]:
    return list(optimise(ast, target).arg.applied)


def product(m: int, n: int, k: int, right_turned: bool = False) -> UOp:
    out, x, y = params(*[np.empty(size, np.float32) for size in (m * n, m * k, k * n)])
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    right = j * k + r if right_turned else r * n + j
    total = (load(x, i * k + r) * load(y, right)).reduce(Ops.ADD, r)
    return kernel(out.index(i * n + j).store(total, i, j))


def axes_of(ast: UOp, kind: AxisType) -> list[int]:
    found = sorted({u for u in ast.toposort() if u.op is Ops.RANGE}, key=lambda u: u.arg.number)
    return [u.src[0].arg for u in found if u.arg.kind is kind]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("turned", [False, True])
def test_the_register_tile_of_a_product_fits(target: Target, turned: bool) -> None:
    ast = optimise(product(512, 512, 512, turned), target)
    assert target.vector_registers // 2 <= accumulators(ast) < target.vector_registers
    assert axes_of(ast, AxisType.VECTOR)[0] == target.vector_bytes // 4


def accumulators(ast: UOp) -> int:
    axes = {u for store in ast.src for u in store.src[2:] if u.arg.kind is AxisType.UPCAST}
    return int(np.prod([axis.src[0].arg for axis in axes]))


@pytest.mark.parametrize("products", [1, 2])
def test_near_operands_have_a_tile_that_keeps_the_units_busy_and_no_larger(products: int) -> None:
    """Registers beyond that would only make the program longer."""
    target = replace(WIDE, products=products, broadcast_cycles=1 / 4)
    near, far = product(256, 256, 256), product(1024, 1024, 1024)
    assert accumulators(optimise(near, target)) == 8 * products
    assert accumulators(optimise(far, target)) > 16
    # a number that is spread over lanes comes from another line each time
    assert accumulators(optimise(turned_left(256, 256, 256), target)) > 16


def test_a_batch_is_near_if_a_sample_of_it_is() -> None:
    batch, m, n, k = 64, 64, 256, 256
    sizes = (batch * m * n, m * k, batch * k * n)
    out, w, x = params(*[np.empty(size, np.float32) for size in sizes])
    a = Axes()
    b, i, j, r = a.loop(batch), a.loop(m), a.loop(n), a.reduce(k)
    total = (load(w, i * k + r) * load(x, (b * k + r) * n + j)).reduce(Ops.ADD, r)
    ast = kernel(out.index((b * m + i) * n + j).store(total, b, i, j))
    target = replace(WIDE, products=1, broadcast_cycles=1 / 4)
    assert accumulators(optimise(ast, target)) == 8


def turned_left(m: int, n: int, k: int) -> UOp:
    out, x, y = params(*[np.empty(size, np.float32) for size in (m * n, m * k, k * n)])
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    total = (load(x, r * m + i) * load(y, r * n + j)).reduce(Ops.ADD, r)
    return kernel(out.index(i * n + j).store(total, i, j))


def test_a_turned_operand_is_packed_if_it_is_read_often() -> None:
    assert [o.op for o in applied(product(512, 512, 512, True)) if o.op is OptOps.STAGE]
    # a few rows: both operands are read along the reduction
    few = applied(product(4, 512, 512, True))
    assert Opt(OptOps.VECTOR, (2,), 16) in few
    assert not [o for o in few if o.op is OptOps.STAGE]


def test_scratch_stays_small() -> None:
    for k in (256, 4096, 100_000):
        ast = optimise(product(512, 512, k), WIDE)
        for stage in (u for u in ast.toposort() if u.op is Ops.STAGE):
            assert np.prod([axis.src[0].arg for axis in stage.src[1:]]) * 4 <= WIDE.scratch_bytes


def test_elementwise_is_flat_and_shared() -> None:
    out, x = params(np.empty(1 << 20, np.float32), np.empty(1 << 20, np.float32))
    a = Axes()
    i, j = a.loop(1 << 10), a.loop(1 << 10)
    at = i * (1 << 10) + j
    ast = optimise(kernel(out.index(at).store(load(x, at) * 2.0, i, j)), WIDE)
    assert [axis.arg.kind for axis in ast.src[0].src[2:]] == [
        AxisType.THREAD,
        AxisType.UPCAST,
        AxisType.VECTOR,
    ]


@pytest.mark.parametrize(
    ("size", "steps", "lanes"), [(1 << 12, 1, 16), (1 << 20, 1, 8), (1 << 20, 2, 16)]
)
def test_what_little_is_done_to_far_memory_has_half_lines(
    size: int, steps: int, lanes: int
) -> None:
    """Lanes that are apart in memory are gathered in any case."""
    out, x = params(*[np.empty(n, np.float32) for n in (size, size * steps)])
    i = Axes().loop(size)
    ast = optimise(kernel(out.index(i).store(load(x, i * steps) + 1, i)), WIDE)
    assert axes_of(ast, AxisType.VECTOR) == [lanes]


def test_small_kernels_stay_on_one_core() -> None:
    out, x = params(np.empty(512, np.float32), np.empty(512, np.float32))
    i = Axes().loop(512)
    assert not axes_of(optimise(kernel(out.index(i).store(load(x, i), i)), WIDE), AxisType.THREAD)


@pytest.mark.parametrize(("count", "cores"), [(1 << 12, 1), (1 << 15, 3), (1 << 22, 16)])
def test_work_is_shared_by_as_many_cores_as_it_is_worth_waking(count: int, cores: int) -> None:
    out, x = params(np.empty(count, np.float32), np.empty(count, np.float32))
    i = Axes().loop(count)
    ast = optimise(kernel(out.index(i).store(load(x, i) + 1.0, i)), replace(WIDE, cores=16))
    assert min(16, max([1, *axes_of(ast, AxisType.THREAD)])) == cores


def test_what_reads_its_own_output_elsewhere_stays_on_one_core() -> None:
    size = 1 << 18
    x, y = params(np.empty(size, np.float32), np.empty(size, np.float32))
    a = Axes()
    i, r = a.loop(size), a.reduce(size)
    total = load(x, r).reduce(Ops.ADD, r)
    same_place = kernel(x.index(i).store(load(x, i) + load(y, i), i))
    elsewhere = kernel(x.index(i).store(load(x, i) + total, i))
    j = a.loop(size)
    other_nest = kernel(y.index(i).store(load(x, i), i), x.index(j).store(load(x, j) * 2.0, j))
    assert axes_of(optimise(same_place, WIDE), AxisType.THREAD)
    assert not axes_of(optimise(elsewhere, WIDE), AxisType.THREAD)
    assert not axes_of(optimise(other_nest, WIDE), AxisType.THREAD)


def test_long_sums_have_two_levels() -> None:
    out, x = params(np.empty(1, np.float32), np.empty(1 << 24, np.float32))
    r = Axes().reduce(1 << 24)
    total = load(x, r).reduce(Ops.ADD, r)
    opts = applied(kernel(out.index(UOp.const(dtypes.weakint, 0)).store(total)))
    assert OptOps.BLOCK in [o.op for o in opts]


@pytest.mark.parametrize("size", [1, 7, 16, 100, 300])
def test_run_time_sizes_get_lanes_and_a_rest(size: int) -> None:
    n = UOp.variable("n", 1, 300)
    arrays = [zeros(4, 300), numbers(4, 300)]
    out, x = params(*arrays)
    a = Axes()
    i, j, r = a.loop(4), a.loop(n), a.reduce(n)
    value = load(x, i * 300 + j) + load(x, i * 300 + r).reduce(Ops.ADD, r)
    ast = kernel(out.index(i * 300 + j).store(value, i, j))
    assert [o.op for o in applied(ast)].count(OptOps.VECTOR) == 2
    expected = run_plain(ast, arrays, [size])
    np.testing.assert_array_equal(run_for(ast, arrays, WIDE, [size])[0], expected[0])


def test_a_target_without_vectors_gets_the_plain_kernel() -> None:
    ast = product(64, 64, 64)
    assert optimise(ast, Target(vector_bytes=0)) is ast


@pytest.mark.parametrize("seed", range(len(KERNELS)))
def test_programs_stay_small(seed: int) -> None:
    ast, _ = KERNELS[seed](random.Random(seed), 300)
    with Context(SPEC=0):
        program = lower(ast, LLVMRenderer(WIDE))
    assert len(program.uops) < 2000


def test_a_large_matrix_is_swept_over_row_by_row() -> None:
    swept = applied(product(1, 4096, 4096))
    assert [opt.op for opt in swept if opt.op is OptOps.SWEEP]
    assert swept[-1].op is OptOps.THREAD
    # what stays in cache, and what is computed with rather than waited for, is not
    for ast in (product(1, 256, 256), product(64, 4096, 4096), product(1, 4096, 4096, True)):
        assert OptOps.SWEEP not in [opt.op for opt in applied(ast)]


@pytest.mark.parametrize("columns", [4096, 5000, 5120, 11008, 3000])
def test_cores_share_sweeps_and_not_the_outputs_of_one(columns: int) -> None:
    """Each sweep reads a part of the matrix; two cores at one of them would both read it."""
    swept = applied(product(1, columns, 4096))
    split, *_, thread = swept
    assert (split.op, thread.op, thread.arg) == (OptOps.SPLIT, OptOps.THREAD, None)
    assert thread.axis == (*split.axis, 0)
    rounds = -(-columns // split.arg)
    assert rounds % WIDE.cores == 0
    assert rounds * split.arg < 1.02 * columns


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "rounds"),
    [
        (1, 4096, 16384, 4),
        (1, 3000, 16384, 2),
        (1, 2048, 16384, 2),
        (1, 1024, 16384, 2),
        (8, 2048, 8192, 2),
        (2, 2048, 2048, 2),
        # near, and many sums: shorter pieces are as good
        (8, 2048, 2048, 4),
    ],
)
def test_a_sweep_reads_whole_pages(rows: int, columns: int, terms: int, rounds: int) -> None:
    """Two rounds for each core even out a slow one, but pieces shorter than a page cost more."""
    split, *_ = applied(product(rows, columns, terms), replace(WIDE, cores=2, l3=32 << 20))
    assert split.op is OptOps.SPLIT and -(-columns // split.arg) == rounds


def column_sums(parts: int, rows: int, columns: int) -> UOp:
    out, x = params(*[np.empty(n, np.float32) for n in (parts * columns, parts * rows * columns)])
    a = Axes()
    i, j, r = a.loop(parts), a.loop(columns), a.reduce(rows)
    total = load(x, (i * rows + r) * columns + j).reduce(Ops.ADD, r)
    return kernel(out.index(i * columns + j).store(total, i, j))


@pytest.mark.parametrize(("columns", "lanes"), [(384, 16), (512, 16), (500, 4), (1000, 8)])
def test_parts_of_a_matrix_are_swept_over_in_the_order_of_memory(columns: int, lanes: int) -> None:
    """Row after row, not some side by side; the cores share the parts."""
    swept = applied(column_sums(64, 256, columns))
    assert swept == [
        Opt(OptOps.SWEEP, (1,)),
        Opt(OptOps.VECTOR, (1, 3), lanes),
        Opt(OptOps.VECTOR, (1,), 16),
        Opt(OptOps.THREAD, (0,)),
    ]


def test_parts_of_an_odd_width_are_swept_over_in_vectors() -> None:
    swept = applied(column_sums(64, 256, 1001))
    assert swept[:3] == [
        Opt(OptOps.SPLIT, (1,), 512),
        Opt(OptOps.SWEEP, (1, 1)),
        Opt(OptOps.VECTOR, (1, 1, 3), 16),
    ]


def test_short_rows_that_adjoin_are_no_jumps() -> None:
    """17 columns are two vectors; gathering along the rows instead would read all 17 times."""
    assert Opt(OptOps.VECTOR, (1,), 16) in applied(column_sums(64, 15625, 17))


@pytest.mark.parametrize("batch", [1, 4])
def test_an_image_of_a_batch_is_read_once(batch: int) -> None:
    """Its places outside, its channels inside: the weights stay near, the image does not."""
    inner, outer, places = 256, 64, 3136
    sizes = (batch * outer * places, batch * inner * places, outer * inner)
    out, x, w = params(*[np.empty(size, np.float32) for size in sizes])
    a = Axes()
    b, o, p, k = a.loop(batch), a.loop(outer), a.loop(places), a.reduce(inner)
    total = (load(x, (b * inner + k) * places + p) * load(w, o * inner + k)).reduce(Ops.ADD, k)
    opts = applied(kernel(out.index((b * outer + o) * places + p).store(total, b, o, p)))
    assert Opt(OptOps.SWAP, p.arg.number, o.arg.number) in opts


def test_a_product_inside_of_staged_rows_has_a_tile() -> None:
    """Rows of scores as attention has them: the fill gets lanes and copies as an output would."""
    rows, columns, width = 16, 64, 8
    out, x, y = params(*[np.empty(n, np.float32) for n in (rows, rows * width, columns * width)])
    a = Axes()
    i, block, item, row = a.loop(rows), a.loop(columns // 16), a.loop(16), a.loop(rows)
    e, r = a.reduce(width), a.reduce(columns)
    score = (load(x, row * width + e) * load(y, (block * 16 + item) * width + e)).reduce(Ops.ADD, e)
    stage = UOp(Ops.STAGE, score.dtype, (score, block, item, row), StageArg(0))
    total = load(stage, r * rows + i).reduce(Ops.MAX, r)
    ast = kernel(out.index(i).store(total, i))
    opts = applied(ast)
    assert Opt(OptOps.VECTOR, row.arg.number, 16) in opts
    assert Opt(OptOps.UPCAST, item.arg.number, 16) in opts
    arrays = [zeros(rows), numbers(rows, width), numbers(columns, width) + 1]
    (found, *_) = run_for(ast, arrays, WIDE)
    np.testing.assert_array_equal(found, (arrays[1] @ arrays[2].T).max(1))


def windows(batch: int, inner: int, outer: int, side: int, kernel_side: int) -> UOp:
    """A convolution of padded images, as the schedule makes it."""
    padded = side + kernel_side - 1
    sizes = (
        batch * outer * side * side,
        batch * inner * padded * padded,
        outer * inner * kernel_side * kernel_side,
    )
    out, x, w = params(*[np.empty(size, np.float32) for size in sizes])
    a = Axes()
    b, o, i, j = a.loop(batch), a.loop(outer), a.loop(side), a.loop(side)
    c, p, q = a.reduce(inner), a.reduce(kernel_side), a.reduce(kernel_side)
    pixel = load(x, ((b * inner + c) * padded + i + p) * padded + j + q)
    weight = load(w, ((o * inner + c) * kernel_side + p) * kernel_side + q)
    place = out.index(((b * outer + o) * side + i) * side + j)
    return kernel(place.store((pixel * weight).reduce(Ops.ADD, c, p, q), b, o, i, j))


def test_a_convolution_shares_pixels_between_channels() -> None:
    """Lanes along the rows of large images, whose channels are a multiple of a page apart."""
    opts = applied(windows(8, 16, 32, 64, 3))
    copied = {opt.axis: opt.arg for opt in opts if opt.op is OptOps.UPCAST}
    lanes = [opt.axis for opt in opts if opt.op is OptOps.VECTOR]
    assert lanes[0][0] == 3 and copied[(1,)] > 2  # type: ignore[index]
    assert not [opt for opt in opts if opt.op is OptOps.STAGE]


def test_a_convolution_of_small_images_has_lanes_along_channels() -> None:
    opts = applied(windows(128, 32, 32, 20, 5))
    lanes = [opt.axis for opt in opts if opt.op is OptOps.VECTOR]
    assert lanes[0][0] == 1  # type: ignore[index]
    assert [opt for opt in opts if opt.op is OptOps.STAGE]


def test_a_product_of_short_rows_has_the_tile_of_one_of_long_rows() -> None:
    # neighbours of a row are read one after another, but no two rows share one
    def copies(terms: int) -> list[Opt]:
        return [opt for opt in applied(product(512, 512, terms)) if opt.op is OptOps.UPCAST]

    assert copies(16) == copies(32)
    assert not any(opt.op is OptOps.UNROLL for opt in applied(product(512, 512, 16)))


def test_windows_that_share_elements_are_written_out() -> None:
    rows, columns = 64, 256
    out, x, w = params(*[np.empty(n, np.float32) for n in (rows * columns, 1 << 15, rows * 9)])
    a = Axes()
    i, j, u, v = a.loop(rows), a.loop(columns), a.reduce(3), a.reduce(3)
    pixel = load(x, i * (columns + 2) + j + u * (columns + 2) + v)
    total = (pixel * load(w, u * 3 + v)).reduce(Ops.ADD, u, v)
    opts = applied(kernel(out.index(i * columns + j).store(total, i, j)))
    assert [opt.axis for opt in opts if opt.op is OptOps.UNROLL] == [(2,), (3,)]


def test_short_rows_of_a_pool_keep_their_lanes() -> None:
    """As many copies as a row of 56 has vectors, not as many as registers would hold."""
    out, x = params(np.empty(64 * 56 * 56, np.float32), np.empty(64 * 114 * 114, np.float32))
    a = Axes()
    c, i, j, p, q = a.loop(64), a.loop(56), a.loop(56), a.reduce(3), a.reduce(3)
    value = load(x, (c * 114 + i * 2 + p) * 114 + j * 2 + q).reduce(Ops.MAX, p, q)
    opts = applied(kernel(out.index((c * 56 + i) * 56 + j).store(value, c, i, j)))
    assert OptOps.VECTOR in [opt.op for opt in opts]


def test_short_rows_that_adjoin_are_read_one_after_another() -> None:
    def kinds(ast: UOp) -> list[OptOps]:
        return [opt.op for opt in applied(ast)]

    assert OptOps.UPCAST not in kinds(product(1, 8192, 768, True))
    # long rows are streams side by side, and what stays in cache shares its loads
    assert OptOps.UPCAST in kinds(product(1, 4096, 4096, True))
    assert OptOps.UPCAST in kinds(product(1, 64, 768, True))


def test_axis_that_chooses_between_values_is_written_out() -> None:
    out, x = params(*[np.empty(size, np.float32) for size in (3 * 64, 64)])
    a = Axes()
    which, t = a.loop(3), a.loop(64)
    one = load(x, t)
    value = (which < 2).where((which < 1).where(one + 1, one * 2), one * one)
    ast = kernel(out.index(which * 64 + t).store(value, which, t))
    assert applied(ast)[0] == Opt(OptOps.UPCAST, which.arg.number, 0)
    program = lower(ast, LLVMRenderer(WIDE))
    assert not any(u.op is Ops.CMPLT for u in program.uops)


def test_axis_that_padding_asks_about_is_a_loop() -> None:
    out, x = params(*[np.empty(size, np.float32) for size in (8 * 64, 8 * 64)])
    a = Axes()
    row, t = a.loop(8), a.loop(64)
    value = (row < 7).where(load(x, row * 64 + t), 0.0)
    ast = kernel(out.index(row * 64 + t).store(value, row, t))
    assert not any(opt.op is OptOps.UPCAST and opt.axis == row.arg.number for opt in applied(ast))


def test_short_axis_between_the_lanes_has_copies() -> None:
    """p[t*2 + r] with lanes along t: both r together are whole rows of memory."""
    out, x, y = params(*[np.empty(size, np.float32) for size in (2 * 65, 2 * 65, 65)])
    a = Axes()
    t, r = a.loop(65), a.loop(2)
    value = load(x, r * 65 + t) + load(y, t)
    ast = kernel(out.index(t * 2 + r).store(value, t, r))
    assert Opt(OptOps.UPCAST, r.arg.number, 0) in applied(ast)
