"""lower_index: machine integers wide enough for every value, lanes as narrow as they may be."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, kernel, load
from weft.codegen.lower_index import lower_index
from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.spec_rules import check_typing


def lowered(size: int, index_dtype: DType) -> UOp:
    p, q = UOp.param(0, F32, size * 4), UOp.param(1, F32, size * 4)
    a = Axes()
    i, j = a.loop(4), a.loop(size)
    idx = i * size + j
    sink = kernel(p.index(idx).store(load(q, idx) + idx.cast(F32), i, j))
    result = lower_index(sink, index_dtype)
    assert not any(dtypes.is_weak(u.dtype) for u in result.toposort())
    assert all(check_typing(u) is None for u in result.toposort())
    return result


def index_dtypes(sink: UOp) -> set[DType]:
    return {u.src[1].dtype for u in sink.toposort() if u.op is Ops.INDEX}


def test_the_target_chooses() -> None:
    assert index_dtypes(lowered(100, dtypes.int64)) == {dtypes.int64}
    assert index_dtypes(lowered(100, dtypes.int32)) == {dtypes.int32}


def test_what_does_not_fit_is_wider() -> None:
    result = lowered(1 << 30, dtypes.int32)
    assert index_dtypes(result) == {dtypes.int64}
    ranges = [u for u in result.toposort() if u.op is Ops.RANGE]
    assert {u.dtype for u in ranges} == {dtypes.int32}


def test_variables_and_symbolic_sizes() -> None:
    p = UOp.param(0, dtypes.int32, 10)
    n = UOp.variable("n", 1, 10)
    i = Axes().loop(n)
    result = lower_index(kernel(p.index(i).store((i + n).cast(dtypes.int32), i)), dtypes.int64)
    assert {u.dtype for u in result.toposort() if u.op in (Ops.VARIABLE, Ops.RANGE)} == {
        dtypes.int64
    }
    assert all(check_typing(u) is None for u in result.toposort())


def test_loaded_indices_keep_their_bits() -> None:
    """A loaded int64 may be anything; a loaded uint8 fits, but scalars take the target's dtype."""
    p = UOp.param(0, F32, 300)
    for dtype in (dtypes.int64, dtypes.uint8, dtypes.int32):
        q = UOp.param(1, dtype, 10)
        i = Axes().loop(10)
        at = load(q, i).cast(dtypes.weakint)
        for target in (dtypes.int32, dtypes.int64):
            result = lower_index(kernel(p.index(i).store(load(p, at + 1), i)), target)
            assert all(check_typing(u) is None for u in result.toposort())
            wide = {u.src[1].dtype for u in result.toposort() if u.op is Ops.INDEX}
            # int32 + 1 may leave int32, uint8 + 1 may not
            wants = dtypes.int32 if dtype is dtypes.uint8 else dtypes.int64
            assert wants in wide or target is dtypes.int64
