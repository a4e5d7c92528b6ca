"""movement: neighbours merge, no-ops vanish, shapes stay."""

from __future__ import annotations

import pytest

from weft.dtype import dtypes
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import movement, symbolic

n = Variable("n", 1, 10)
flat = UOp.new_buffer("TEST", 24, dtypes.float32)
x = flat._mop(Ops.RESHAPE, (2, 3, 4))


def reshape(u: UOp, *shape: object) -> UOp:
    return u._mop(Ops.RESHAPE, shape)


def full(value: float, *shape: object) -> UOp:
    ones = UOp.const(dtypes.float32, value)._mop(Ops.RESHAPE, (1,) * len(shape))
    return ones._mop(Ops.EXPAND, shape)


CASES = [
    (reshape(reshape(flat, 4, 6), 2, 3, 4), x),
    (reshape(reshape(flat, 4, 6), 24), flat),
    (x._mop(Ops.PERMUTE, (2, 0, 1))._mop(Ops.PERMUTE, (1, 2, 0)), x),
    (
        x._mop(Ops.PERMUTE, (2, 0, 1))._mop(Ops.PERMUTE, (2, 0, 1)),
        x._mop(Ops.PERMUTE, (1, 2, 0)),
    ),
    (x._mop(Ops.FLIP, (True, False, True))._mop(Ops.FLIP, (True, False, True)), x),
    (x._mop(Ops.STRIDE, (1, 1, 1)), x),
    (flat._mop(Ops.STRIDE, (2,))._mop(Ops.STRIDE, (3,)), flat._mop(Ops.STRIDE, (6,))),
    (
        flat._mop(Ops.SHRINK, ((2, 20),))._mop(Ops.SHRINK, ((3, 9),)),
        flat._mop(Ops.SHRINK, ((5, 11),)),
    ),
    (flat._mop(Ops.SHRINK, ((0, 24),)), flat),
    (flat._mop(Ops.PAD, ((0, 0),)), flat),
    (flat._mop(Ops.PAD, ((1, 2),))._mop(Ops.PAD, ((3, 0),)), flat._mop(Ops.PAD, ((4, 2),))),
    (
        reshape(flat, 1, 24)._mop(Ops.EXPAND, (1, 24))._mop(Ops.EXPAND, (5, 24)),
        reshape(flat, 1, 24)._mop(Ops.EXPAND, (5, 24)),
    ),
    (reshape(full(3, 4, 5), 20), full(3, 20)),
    (reshape(full(3, 4, 5), n, 2), full(3, n, 2)),
    (full(3, 4, 5)._mop(Ops.PERMUTE, (1, 0)), full(3, 5, 4)),
    (full(3, 4)._mop(Ops.SHRINK, ((1, 3),)), full(3, 2)),
    (full(0, 4)._mop(Ops.PAD, ((1, 3),)), full(0, 8)),
    (full(3, 4)._mop(Ops.PAD, ((1, 3),)), full(3, 4)._mop(Ops.PAD, ((1, 3),))),
    (full(3, 1, 1), UOp.const(dtypes.float32, 3)._mop(Ops.RESHAPE, (1, 1))),
    (reshape(full(3, 1, 1)), UOp.const(dtypes.float32, 3)),
    (x + full(3, 2, 3, 4), x + 3),
    (
        UOp(Ops.CONTIGUOUS, x.dtype, (UOp(Ops.CONTIGUOUS, x.dtype, (x,)),)),
        UOp(Ops.CONTIGUOUS, x.dtype, (x,)),
    ),
]


@pytest.mark.parametrize(("before", "after"), CASES, ids=range(len(CASES)))
def test_becomes(before: UOp, after: UOp) -> None:
    found = graph_rewrite(before, movement)
    assert found is after
    assert found.shape == before.shape


def test_symbolic_arguments_are_sources() -> None:
    node = reshape(flat, n, 4)
    assert node.src == (flat, n) and node.arg == (None, 4) and node.marg == (n, 4)
    padded = flat._mop(Ops.PAD, ((n, 0),))._mop(Ops.PAD, ((0, n),))
    merged = graph_rewrite(padded, movement)
    assert merged.op is Ops.PAD and merged.src[0] is flat and merged.marg == ((n, n),)


def test_shifted_boxes_are_no_no_ops() -> None:
    shifted = flat._mop(Ops.PAD, ((1, 0),))._mop(Ops.SHRINK, ((1, 25),))
    assert graph_rewrite(shifted, movement).shape == (24,)
    moved = flat._mop(Ops.PAD, ((n, -n),))
    assert graph_rewrite(moved, movement).op is Ops.PAD


def test_constants_fold_through_shapes() -> None:
    node = full(3, 4, 5) * full(2, 4, 5) + 1
    assert graph_rewrite(node, movement + symbolic) is full(7, 4, 5)
