"""fold: `before => after`, one line a rule."""

from __future__ import annotations

import math

import pytest

from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules.fold import fold


def leaf(dtype: DType, slot: int = 0) -> UOp:
    return UOp.param(slot, dtype, 9).index(UOp.const(dtypes.weakint, 0)).load()


def const(dtype: DType, value: float) -> UOp:
    return UOp.const(dtype, value)


i, j = leaf(dtypes.int32), leaf(dtypes.int32, 1)
f, g = leaf(dtypes.float32), leaf(dtypes.float32, 1)
p, q = leaf(dtypes.bool), leaf(dtypes.bool, 1)
u = leaf(dtypes.uint8)
half = leaf(dtypes.float16)
no = UOp.const(dtypes.bool, False)
vector = UOp(Ops.LOAD, dtypes.float32.vec(4), (f.src[0],))
other = UOp(Ops.LOAD, dtypes.float32.vec(4), (g.src[0],))

FOLDS = [
    # constants
    (const(dtypes.int8, 100) + const(dtypes.int8, 100), const(dtypes.int8, -56)),
    (const(dtypes.int32, -7) // const(dtypes.int32, 2), const(dtypes.int32, -4)),
    (const(dtypes.int32, 7) // const(dtypes.int32, 0), const(dtypes.int32, 0)),
    (const(dtypes.float32, 2.0).alu(Ops.SQRT), const(dtypes.float32, math.sqrt(2))),
    (const(dtypes.float32, 1.0).bitcast(dtypes.uint32), const(dtypes.uint32, 0x3F800000)),
    # neutral elements
    (i + 0, i),
    (3 + i, i + 3),
    (i * 1, i),
    (i * 0, const(dtypes.int32, 0)),
    (i * -1, -i),
    (u * 255, -u),
    (f + -0.0, f),
    (f * 1, f),
    (f * -1, -f),
    (f / 1, f),
    (f / 8, f * 0.125),
    (i.cast(dtypes.float32) + 0.0, i.cast(dtypes.float32)),
    (i // 1, i),
    (i // -1, -i),
    (i // 0, const(dtypes.int32, 0)),
    (i % 1, const(dtypes.int32, 0)),
    (i % i, const(dtypes.int32, 0)),
    (i & 0, const(dtypes.int32, 0)),
    (i & -1, i),
    (u & 255, u),
    (i | 0, i),
    (i | -1, const(dtypes.int32, -1)),
    (i ^ 0, i),
    (p ^ True, p.eq(no)),
    (i << 0, i),
    (i << 32, const(dtypes.int32, 0)),
    (u >> 8, const(dtypes.uint8, 0)),
    (i >> 40, i >> 31),
    (i.maximum(-(2**31)), i),
    (f.maximum(-math.inf), f),
    (i.maximum(3).maximum(5), i.maximum(5)),
    # the same operand twice
    (i & i, i),
    (f.maximum(f), f),
    (i ^ i, const(dtypes.int32, 0)),
    (j ^ (j ^ i), i),
    ((i ^ j) ^ j, i),
    (j ^ (i ^ j), i),
    (i & (j | i), i),
    (p | (p & q), p),
    (f.neg().neg(), f),
    (~~i, i),
    ((i & 12) & 10, i & 8),
    # conditions
    (p.where(f, f), f),
    (const(dtypes.bool, True).where(f, g), f),
    (p.where(const(dtypes.bool, True), no), p),
    (p.where(no, const(dtypes.bool, True)), p.eq(no)),
    (p.where(q, no), p & q),
    (p.where(const(dtypes.bool, True), q), p | q),
    (p.eq(no).where(f, g), p.where(g, f)),
    (p.where(p.where(f, g), g), p.where(f, g)),
    (p.where(q.where(f, g), g), (p & q).where(f, g)),
    (p.where(const(dtypes.float32, 1), const(dtypes.float32, 0)), p.cast(dtypes.float32)),
    (p.eq(no).eq(no), p),
    (p.ne(no), p),
    (p.eq(True), p),
    (f.eq(g).eq(no), f.ne(g)),
    (f.ne(g).eq(no), f.eq(g)),
    (i < i, no),
    (i.eq(i), const(dtypes.bool, True)),
    (f < f, no),
    (p.cast(dtypes.int32).ne(0), p),
    (p.cast(dtypes.int32) < 1, p.eq(no)),
    (p.where(const(dtypes.int32, 3), const(dtypes.int32, 5)).eq(5), p.eq(no)),
    # types
    (UOp(Ops.CAST, dtypes.int32, (i,)), i),
    (i.cast(dtypes.bool), i.ne(0)),
    (u.cast(dtypes.int32).cast(dtypes.float32), u.cast(dtypes.float32)),
    (i.cast(dtypes.int64).cast(dtypes.int8), i.cast(dtypes.int8)),
    (i.cast(dtypes.uint32).cast(dtypes.int32), i),
    (half.cast(dtypes.float32).cast(dtypes.float16), half),
    (f.bitcast(dtypes.int32).bitcast(dtypes.float32), f),
    (f.bitcast(dtypes.int32).bitcast(dtypes.uint32), f.bitcast(dtypes.uint32)),
    # vectors
    (UOp(Ops.VECTORIZE, dtypes.float32.vec(2), (f, g)).gep(1), g),
    (vector.gep((0, 1, 2, 3)), vector),
    (vector.gep((3, 2)).gep(1), vector.gep(2)),
    (UOp(Ops.VECTORIZE, vector.dtype, tuple(vector.gep(k) for k in range(4))), vector),
    (vector.gep((7, 1), other).gep(0), vector.gep(7, other)),
    (
        UOp(Ops.VECTORIZE, dtypes.float32.vec(2), (vector.gep(7, other), vector.gep(0, other))),
        vector.gep((7, 0), other),
    ),
    (UOp.const(vector.dtype, 2.0) * UOp.const(vector.dtype, 3.0), UOp.const(vector.dtype, 6.0)),
]


@pytest.mark.parametrize(("before", "after"), FOLDS, ids=range(len(FOLDS)))
def test_folds_to(before: UOp, after: UOp) -> None:
    assert graph_rewrite(before, fold) is after


STAY = [
    f + 0.0,  # -0.0 + 0.0 is 0.0
    f * 0.0,  # nan, inf
    f + -f,  # nan
    f.eq(f),  # nan
    f.ne(f),
    (f + 1.0) + 2.0,  # rounds twice
    f / 3.0,
    f.cast(dtypes.float16).cast(dtypes.float32),  # rounds
    i.cast(dtypes.float32).cast(dtypes.int32),  # rounds
    u.cast(dtypes.float32).cast(dtypes.int8),  # saturates, an int would wrap
    i.cast(dtypes.int8).cast(dtypes.int32),
    (f < g).eq(no),  # nan
]


@pytest.mark.parametrize("node", STAY, ids=range(len(STAY)))
def test_value_would_change_so_it_stays(node: UOp) -> None:
    assert graph_rewrite(node, fold) is node


def test_shape_is_kept_where_an_operand_vanishes() -> None:
    buffer = UOp.new_buffer("TEST", 6, dtypes.int32)._mop(Ops.RESHAPE, (2, 3))
    condition = buffer < 3
    for node in (buffer * 0, buffer % 1, buffer ^ buffer, condition.where(i, i), buffer < buffer):
        assert graph_rewrite(node, fold).shape == (2, 3)


def test_weak_constants_beyond_64_bits_are_not_folded() -> None:
    large = UOp.const(dtypes.weakint, 2**62)
    assert graph_rewrite(large * 4, fold) is large * 4
