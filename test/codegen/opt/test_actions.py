"""Every action keeps the meaning of a kernel, alone and in random company; what is illegal is
refused.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import KERNELS, costly_rows, matmul, numbers, run_plain, zeros
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import all_axes, closed_axes
from weft.codegen.opt.opt import OptError
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

THREADED = Target(name="test", has_threads=True, cores=4)
GROUPED = Target(name="gpu", has_local=True)


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


def sizes(ast: UOp) -> dict[tuple[int, ...], tuple[int, AxisType]]:
    return {axis.arg.number: (axis.src[0].arg, axis.arg.kind) for axis in all_axes(ast)}


def copy_kernel(size: int) -> tuple[UOp, list[np.ndarray]]:
    arrays = [zeros(size), numbers(size)]
    out, x = params(*arrays)
    i = Axes().loop(size)
    return kernel(out.index(i).store(load(x, i), i)), arrays


def sum_kernel(size: int, op: Ops = Ops.ADD) -> tuple[UOp, list[np.ndarray]]:
    arrays = [zeros(3), numbers(3, size)]
    out, x = params(*arrays)
    a = Axes()
    i, r = a.loop(3), a.reduce(size)
    return kernel(out.index(i).store(load(x, i * size + r).reduce(op, r), i)), arrays


def test_split_that_divides() -> None:
    ast, arrays = copy_kernel(12)
    new = apply_opt(ast, Opt(OptOps.SPLIT, 0, 4))
    assert sizes(new) == {(0, 0): (3, AxisType.LOOP), (0, 1): (4, AxisType.LOOP)}
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_the_last_tile_of_an_output_overlaps() -> None:
    ast, arrays = copy_kernel(10)
    new = apply_opt(ast, Opt(OptOps.UPCAST, (0,), 4))
    assert sizes(new) == {(0, 0): (3, AxisType.LOOP), (0, 1): (4, AxisType.UPCAST)}
    assert len(new.src) == 1
    place = new.src[0].src[0].src[1]
    assert (place.vmin, place.vmax) == (0, 9)
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_in_place_the_rest_is_apart() -> None:
    arrays = [numbers(10)]
    (x,) = params(*arrays)
    i = Axes().loop(10)
    ast = kernel(x.index(i).store(load(x, i) + 1.0, i))
    new = apply_opt(ast, Opt(OptOps.VECTOR, 0, 4))
    assert [[a.src[0].arg for a in closed_axes(store)] for store in new.src] == [[2, 4], [2]]
    same(run_plain(new, arrays), [arrays[0] + 1])


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX, Ops.MUL])
def test_the_rest_of_a_reduction_is_another_one(op: Ops) -> None:
    ast, arrays = sum_kernel(11, op)
    new = apply_opt(ast, Opt(OptOps.UNROLL, (1,), 4))
    assert new.src[0].src[1].op is op
    assert sorted(sizes(new)) == [(0,), (1, 0), (1, 1), (1, 2)]
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_whole_axes_change_kind() -> None:
    ast, arrays = sum_kernel(8)
    for opt in (Opt(OptOps.VECTOR, (1,), 8), Opt(OptOps.UNROLL, (1,)), Opt(OptOps.UPCAST, (0,), 0)):
        new = apply_opt(ast, opt)
        assert len(sizes(new)) == 2
        same(run_plain(new, arrays), run_plain(ast, arrays))


def test_lanes_of_a_register_tile() -> None:
    ast, arrays = copy_kernel(70)
    for opt in (Opt(OptOps.UPCAST, (0,), 32), Opt(OptOps.VECTOR, (0, 1), 8)):
        ast = apply_opt(ast, opt)
    assert [kind for _, kind in sizes(ast).values()] == [
        AxisType.LOOP,
        AxisType.UPCAST,
        AxisType.VECTOR,
    ]
    assert ast.arg.applied == (Opt(OptOps.UPCAST, (0,), 32), Opt(OptOps.VECTOR, (0, 1), 8))
    same(run_plain(ast, arrays)[:1], [arrays[1]])


def test_merge_flattens_and_refuses_what_is_not_flat() -> None:
    arrays = [zeros(3, 4), numbers(3, 4), numbers(4)]
    out, x, y = params(*arrays)
    a = Axes()
    i, j = a.loop(3), a.loop(4)
    flat = kernel(out.index(i * 4 + j).store(load(x, i * 4 + j), i, j))
    new = apply_opt(flat, Opt(OptOps.MERGE, (0,), (1,)))
    assert sizes(new) == {(0,): (12, AxisType.LOOP)}
    same(run_plain(new, arrays), run_plain(flat, arrays))
    broadcast = kernel(out.index(i * 4 + j).store(load(x, i * 4 + j) + load(y, j), i, j))
    as_value = kernel(out.index(i * 4 + j).store(i.cast(out.dtype), i, j))
    turned = kernel(out.index(i * 4 + j).store(load(x, j * 3 + i), i, j))
    for ast in (broadcast, as_value, turned):
        with pytest.raises(OptError, match="not used as one axis"):
            apply_opt(ast, Opt(OptOps.MERGE, (0,), (1,)))


def test_block_makes_two_levels() -> None:
    ast, arrays = sum_kernel(50)
    new = apply_opt(ast, Opt(OptOps.BLOCK, (1,), 8))
    nested = [u for u in new.toposort() if u.op is Ops.REDUCE]
    assert len(nested) == 3
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_threads_take_several_axes_as_one() -> None:
    ast, arrays = matmul(random.Random(4), 7)
    new = apply_opt(ast, Opt(OptOps.THREAD, (1,), ((2,),)), THREADED)
    outermost = closed_axes(new.src[0])[0]
    assert outermost.arg.kind is AxisType.THREAD
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_stage_packs_a_panel() -> None:
    ast, arrays = matmul(random.Random(11), 9)
    columns = sizes(ast)[(2,)][0]
    width = max(columns // 2, 1)
    new = apply_opt(ast, Opt(OptOps.UPCAST, (2,), width))
    inner = (2, 1)
    new = apply_opt(new, Opt(OptOps.STAGE, 2, ((3,), inner)))
    (staged,) = [u for u in new.toposort() if u.op is Ops.STAGE]
    assert all(axis.arg.number not in sizes(ast) for axis in closed_axes(staged))
    assert not {axis.arg.number for axis in staged.ranges} & {(3,), inner}
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_a_costly_row_is_kept() -> None:
    ast, arrays = costly_rows(random.Random(1), 9)
    new = apply_opt(ast, Opt(OptOps.KEEP, (3,)))
    (row,) = [u for u in new.toposort() if u.op is Ops.STAGE]
    assert [axis.arg.number for axis in row.ranges] == [(0,)]
    assert len([u for u in new.toposort() if u.op is Ops.IDIV]) == 1
    same(run_plain(new, arrays), run_plain(ast, arrays))
    for number in ((0,), (2,)):
        with pytest.raises(OptError):
            apply_opt(ast, Opt(OptOps.KEEP, number))


def test_padding_masks_what_it_adds() -> None:
    for ast, arrays in (copy_kernel(10), sum_kernel(10), sum_kernel(10, Ops.MAX)):
        for axis in range(len(sizes(ast))):
            new = apply_opt(ast, Opt(OptOps.PADTO, axis, 4))
            assert max(size for size, _ in sizes(new).values()) <= 12
            same(run_plain(new, arrays), run_plain(ast, arrays))


def test_groups_of_threads_are_split_axes() -> None:
    ast, _ = sum_kernel(8)
    new = apply_opt(ast, Opt(OptOps.GROUP, (1,), 4), GROUPED)
    new = apply_opt(new, Opt(OptOps.LOCAL, (0,), 3), GROUPED)
    kinds = {kind for _, kind in sizes(new).values()}
    assert {AxisType.GROUP_REDUCE, AxisType.LOCAL} <= kinds


REFUSED = [
    (Opt(OptOps.UPCAST, (1,), 2), "is reduced"),
    (Opt(OptOps.UNROLL, (0,), 2), "is an output"),
    (Opt(OptOps.UPCAST, (0,), 99), "cannot be split by 99"),
    (Opt(OptOps.UPCAST, (7,), 2), "no axis numbered"),
    (Opt(OptOps.UPCAST, 9, 2), "axes 0 to 1"),
    (Opt(OptOps.SWAP, (0,)), "needs a second axis"),
    (Opt(OptOps.SPLIT, (0,)), "needs a size"),
    (Opt(OptOps.BLOCK, (0,), 2), "is not reduced"),
    (Opt(OptOps.BLOCK, (1,), 50), "no blocks of 50"),
    (Opt(OptOps.BLOCK, (1,), 8), "no second level"),
    (Opt(OptOps.PADTO, (1,), 2), "needs no padding"),
    (Opt(OptOps.THREAD, (0,)), "no threads"),
    (Opt(OptOps.LOCAL, (0,), 3), "no groups"),
    (Opt(OptOps.GROUP, (1,), 3), "no groups"),
    (Opt(OptOps.TC, 0, 0), "tensor-core fragments"),
    (Opt(OptOps.STAGE, 5, ((1,),)), "buffer 5"),
    (Opt(OptOps.STAGE), "needs a buffer's slot"),
]


@pytest.mark.parametrize(("opt", "text"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_refused(opt: Opt, text: str) -> None:
    ast, _ = sum_kernel(8)
    with pytest.raises(OptError, match=text):
        apply_opt(ast, opt)


def test_two_lanes_in_one_expression_are_refused() -> None:
    ast, _ = matmul(random.Random(4), 7)
    ast = apply_opt(ast, Opt(OptOps.VECTOR, (2,)))
    for number in ((1,), (3,)):
        with pytest.raises(OptError, match="another VECTOR axis"):
            apply_opt(ast, Opt(OptOps.VECTOR, number))


@pytest.mark.parametrize("size", [1, 3, 4, 11, 20])
def test_run_time_sizes_have_a_rest(size: int) -> None:
    n = UOp.variable("n", 1, 20)
    arrays = [zeros(20), numbers(20)]
    out, x = params(*arrays)
    a = Axes()
    i, r = a.loop(n), a.reduce(n)
    ast = kernel(out.index(i).store(load(x, i) + load(x, r).reduce(Ops.ADD, r), i))
    expected = run_plain(ast, arrays, [size])
    for opt in (
        Opt(OptOps.VECTOR, (0,), 4),
        Opt(OptOps.VECTOR, (1,), 4),
        Opt(OptOps.UNROLL, (1, 0), 2),
    ):
        ast = apply_opt(ast, opt)
        same(run_plain(ast, arrays, [size]), expected)
    with pytest.raises(OptError, match="run-time size"):
        apply_opt(ast, Opt(OptOps.UPCAST, (0, 2)))


def test_a_run_time_size_that_divides_has_no_rest() -> None:
    """Its loop would be empty, and what is loaded in front of it is outside of its buffer."""
    n = UOp.variable("n", 1, 4)
    arrays = [zeros(32), numbers(32)]
    out, x = params(*arrays)
    a = Axes()
    i, r = a.loop(n * 8), a.reduce(n * 8)
    ast = kernel(out.index(i).store(load(x, i) + load(x, r).reduce(Ops.ADD, r), i))
    expected = run_plain(ast, arrays, [3])
    for number in ((0,), (1,)):
        ast = apply_opt(ast, Opt(OptOps.VECTOR, number, 4))
        same(run_plain(ast, arrays, [3]), expected)
    assert sorted(axis.arg.number for axis in all_axes(ast)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def random_opt(pick: random.Random, ast: UOp) -> Opt:
    axes = [axis.arg.number for axis in all_axes(ast)] or [(0,)]
    op = pick.choice(list(OptOps))
    axis = pick.choice(axes)
    if op is OptOps.STAGE:
        names = pick.sample(axes, min(len(axes), pick.randint(1, 3)))
        return Opt(op, pick.randint(1, 3), tuple(names))
    if op in (OptOps.SWAP, OptOps.MERGE):
        return Opt(op, axis, pick.choice(axes))
    if op is OptOps.THREAD:
        return Opt(op, axis, (pick.choice(axes),) if pick.random() < 0.3 else None)
    return Opt(op, axis, pick.choice([0, 2, 3, 4, 5, 8]))


@pytest.mark.parametrize("seed", range(10 * len(KERNELS)))
def test_random_actions_compute_the_same(seed: int) -> None:
    pick = random.Random(seed)
    ast, arrays = KERNELS[seed % len(KERNELS)](pick, 9)
    expected = run_plain(ast, arrays)
    applied = 0
    for _ in range(40):
        try:
            new = apply_opt(ast, random_opt(pick, ast), THREADED)
        except OptError:
            continue
        written = [axis for axis in all_axes(new) if axis.arg.kind in WRITTEN_OUT]
        if np.prod([axis.src[0].arg for axis in written]) > 512:
            continue
        ast = new
        applied += 1
        if applied == 6:
            break
    same(run_plain(ast, arrays), expected)


WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL)


SWEEP = [Opt(OptOps.SPLIT, (1,), 8), Opt(OptOps.SWEEP, (1, 1), ((0,),))]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [Opt(OptOps.VECTOR, (1, 1, 3), 4), Opt(OptOps.VECTOR, (1, 1), 4)],
        [Opt(OptOps.UPCAST, (0, 3), 0), Opt(OptOps.UNROLL, (2,), 5)],
        # a rest of the reduction is another one: then it is filled as usual
        [Opt(OptOps.VECTOR, (1, 1, 3), 4), Opt(OptOps.UNROLL, (2,), 4)],
        [Opt(OptOps.VECTOR, (2,), 5)],
        [Opt(OptOps.BLOCK, (2,), 5)],
        [Opt(OptOps.THREAD, (1, 0))],
    ],
    ids=lambda opts: "_".join(opt.op.name for opt in opts) or "plain",
)
def test_a_sweep_adds_to_all_its_outputs_in_every_round(more: list[Opt]) -> None:
    rows, columns, terms = 3, 21, 15
    arrays = [zeros(rows, columns), numbers(rows, terms), numbers(terms, columns) + 1]
    out, x, y = params(*arrays)
    a = Axes()
    i, j, r = a.loop(rows), a.loop(columns), a.reduce(terms)
    product = (load(x, i * terms + r) * load(y, r * columns + j)).reduce(Ops.ADD, r)
    ast = kernel(out.index(i * columns + j).store(product * 2.0, i, j))
    for opt in [*SWEEP, *more]:
        ast = apply_opt(ast, opt, THREADED)
    (found, *_) = run_plain(ast, arrays)
    np.testing.assert_array_equal(found, (arrays[1] @ arrays[2]) * 2)


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MUL])
def test_a_sweep_starts_from_what_changes_nothing(op: Ops) -> None:
    arrays = [zeros(8), numbers(5, 8)]
    out, x = params(*arrays)
    a = Axes()
    j, r = a.loop(8), a.reduce(5)
    ast = kernel(out.index(j).store(load(x, r * 8 + j).reduce(op, r), j))
    new = apply_opt(ast, Opt(OptOps.SWEEP, (0,)))
    same(run_plain(new, arrays), run_plain(ast, arrays))


def test_what_cannot_be_swept_over_is_refused() -> None:
    copied, _ = copy_kernel(8)
    with pytest.raises(OptError, match="0 reductions depend"):
        apply_opt(copied, Opt(OptOps.SWEEP, (0,)))
    summed, _ = sum_kernel(8)
    with pytest.raises(OptError, match="only outputs are swept"):
        apply_opt(summed, Opt(OptOps.SWEEP, (1,)))
    with pytest.raises(OptError, match="lanes or copies of its own"):
        apply_opt(apply_opt(summed, Opt(OptOps.UNROLL, (1,), 4)), Opt(OptOps.SWEEP, (0,)))
