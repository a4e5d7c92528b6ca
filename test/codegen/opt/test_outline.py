"""outline: cuts that are written into a kernel together make what they make one by one."""

from __future__ import annotations

import random

import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import KERNELS, numbers, zeros
from test.codegen.opt.test_actions import THREADED, random_opt
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_legal, apply_opt
from weft.codegen.opt.axes import all_axes, index_const, piece
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.outline import Outline
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

CUTS = (OptOps.SPLIT, OptOps.UPCAST, OptOps.UNROLL, OptOps.VECTOR, OptOps.THREAD)


def one_by_one(ast: UOp, opts: list[Opt]) -> UOp:
    for opt in opts:
        try:
            ast = apply_opt(ast, opt, THREADED)
        except OptError:
            continue
    return ast


def random_cut(pick: random.Random, ast: UOp) -> Opt:
    axes = [axis.arg.number for axis in all_axes(ast)] or [(0,)]
    op = pick.choice(CUTS)
    if op is OptOps.THREAD:
        others = [axis for axis in axes if pick.random() < 0.3]
        return Opt(op, pick.choice(axes), tuple(others) or None)
    return Opt(op, pick.choice(axes), pick.choice([None, 0, 1, 2, 3, 4, 8]))


@pytest.mark.parametrize("seed", range(10 * len(KERNELS)))
def test_actions_in_a_row_make_the_same_kernel(seed: int) -> None:
    pick = random.Random(seed)
    ast, _ = KERNELS[seed % len(KERNELS)](pick, 13)
    after, opts = ast, []
    for _ in range(12):
        # among others, so that names of pieces and of axes that are gone are asked for as well
        opt = random_cut(pick, after) if pick.random() < 0.8 else random_opt(pick, ast)
        opts.append(opt)
        after = one_by_one(after, [opt])
    found = apply_legal(Outline(ast), opts, THREADED).kernel()
    assert found.arg == after.arg
    assert found is after


def product() -> tuple[UOp, UOp, UOp, UOp]:
    """out[i, j] = sum over r of x[i, r] * y[r, j], and its axes."""
    arrays = [zeros(8, 16), numbers(8, 4), numbers(4, 16)]
    out, x, y = params(*arrays)
    a = Axes()
    i, j, r = a.loop(8), a.loop(16), a.reduce(4)
    total = (load(x, i * 4 + r) * load(y, r * 16 + j)).reduce(Ops.ADD, r)
    return kernel(out.index(i * 16 + j).store(total, i, j)), i, j, r


def test_a_piece_has_the_closers_and_the_company_of_its_axis() -> None:
    ast, i, j, r = product()
    outline = Outline(ast)
    lanes = piece(j, 1, index_const(4), AxisType.VECTOR)
    tiles = piece(j, 0, index_const(4), AxisType.LOOP)
    assert not outline.meets_lanes(i)
    outline.cut(j, tiles * 4 + lanes, (tiles, lanes))
    assert outline.find((1,)) is None
    assert outline.find((1, 0)) is tiles
    assert [closer.op for closer in outline.closers(tiles)] == [Ops.STORE]
    assert [closer.op for closer in outline.closers(r)] == [Ops.REDUCE]
    assert outline.meets_lanes(i) and outline.meets_lanes(r) and outline.meets_lanes(tiles)
    assert outline.kernel().src[0].src[2:] == (i, tiles, lanes)


def test_a_kernel_without_cuts_stays_as_it_is() -> None:
    ast, *_ = product()
    assert Outline(ast).kernel() is ast
    assert apply_legal(Outline(ast), [Opt(OptOps.UNROLL, (0,), 2)], THREADED).kernel() is ast
