"""expand: what is copied, what is not, and which lanes are one memory access."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.gpu_builder import GPUAxes
from test.codegen.kernel_builder import F32, Axes, const, kernel, load
from weft.codegen.expand import expand
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.uop.args import StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q = UOp.param(0, F32, 64), UOp.param(1, F32, 64)


def loads(sink: UOp) -> list[UOp]:
    return [u for u in sink.toposort() if u.op is Ops.LOAD]


def test_a_kernel_without_such_axes_is_left_alone() -> None:
    i = Axes().loop(4)
    sink = kernel(P.index(i).store(load(Q, i), i))
    assert expand(sink) is sink


@pytest.mark.parametrize("op", [Ops.SCAN, Ops.RANK, Ops.MOVE])
def test_threads_that_meet_get_memory_where_nothing_is_written_out(op: Ops) -> None:
    i = GPUAxes().local(64)
    value = UOp.param(1, dtypes.uint32, 64).index(i).load()
    sources = (value, i) if op is not Ops.MOVE else (value, i.cast(dtypes.uint32), i)
    arg = {Ops.SCAN: Ops.ADD, Ops.RANK: 4, Ops.MOVE: None}[op]
    found = UOp(op, dtypes.uint32, sources, arg)
    sink = expand(kernel(UOp.param(0, dtypes.uint32, 64).index(i).store(found, i)))
    (met,) = [u for u in sink.toposort() if u.op is op]
    assert not met.src[-1].ranges and met.src[-1] is not i


def test_a_value_exists_once_per_axis_it_depends_on() -> None:
    a = Axes()
    i, j = a.upcast(3), a.upcast(5)
    value = load(Q, i) + load(Q, j + 3)
    result = expand(kernel(P.index(i * 5 + j).store(value, i, j)))
    assert len(loads(result)) == 8
    assert len(result.src) == 15
    assert not any(u.op is Ops.RANGE for u in result.toposort())


def test_axes_of_size_one_disappear() -> None:
    a = Axes()
    i, r = a.loop(1), a.reduce(1)
    result = expand(kernel(P.index(i).store(load(Q, i + r).reduce(Ops.ADD, r), i)))
    assert not any(u.op in (Ops.RANGE, Ops.REDUCE) for u in result.toposort())


def test_accumulators_and_tree() -> None:
    """sum over r, u of x[4r + u] -> (A0 + A1) + (A2 + A3), each a loop over r."""
    a = Axes()
    r, u = a.reduce(4), a.unroll(4)
    value = load(Q, r * 4 + u).reduce(Ops.ADD, r, u)
    result = expand(kernel(P.index(const(0)).store(value)))
    total = result.src[0].src[1]
    assert total.op is Ops.ADD and all(s.op is Ops.ADD for s in total.src)
    parts = [s for pair in total.src for s in pair.src]
    assert all(s.op is Ops.REDUCE and len(s.src) == 2 for s in parts) and len(set(parts)) == 4


def test_maximum_of_equal_parts_is_not_repeated() -> None:
    u = Axes().unroll(4)
    value = load(Q, const(3)).reduce(Ops.MAX, u)
    result = expand(kernel(P.index(const(0)).store(value)))
    assert result.src[0].src[1].op is Ops.LOAD


def test_lanes_fold_in_halves() -> None:
    v = Axes().vector(8)
    value = load(Q, v).reduce(Ops.ADD, v)
    result = expand(kernel(P.index(const(0)).store(value)))
    lanes = [u.arg for u in result.toposort() if u.op is Ops.GEP]
    assert lanes == [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1), (2, 3), (0,), (1,)]


def test_scalar_operands_are_broadcast_once() -> None:
    a = Axes()
    i, v = a.loop(4), a.vector(4)
    value = load(Q, i * 4 + v) * load(Q, i)
    result = expand(kernel(P.index(i * 4 + v).store(value, i, v)))
    spread = [u for u in result.toposort() if u.op is Ops.VECTORIZE]
    assert len(spread) == 1 and spread[0].src[0].op is Ops.LOAD
    assert {u.dtype for u in loads(result)} == {F32, F32.vec(4)}


def test_stage_becomes_a_local_per_copy() -> None:
    """A staged row of each of two upcast rows: two scratch memories, each filled by vectors."""
    a = Axes()
    i, j, f, lane = a.upcast(2), a.loop(8), a.loop(2), a.vector(4)
    row = UOp(Ops.STAGE, F32, (load(Q, i * 8 + f * 4 + lane), f, lane), StageArg(0))
    result = expand(kernel(P.index(i * 8 + j).store(load(row, j), i, j)))
    assert sorted(u.arg.number for u in result.toposort() if u.op is Ops.LOCAL) == [0, 1]
    fills = [u.src[1] for u in result.toposort() if u.op is Ops.AFTER]
    assert all(u.op is Ops.STORE and u.src[1].dtype is F32.vec(4) for u in fills)


@pytest.mark.parametrize("count", [4, 8])
def test_division_of_lanes_against_every_value(count: int) -> None:
    """Whether or not the lanes can stay apart, each lane has the value it has by itself."""
    for scale in (1, 2, count, 3 * count):
        for divisor in (1, 2, 3, count, 2 * count, 5 * count):
            a = Axes()
            i, v = a.loop(6), a.vector(count)
            at = i * scale + v
            for value in (at // divisor, at % divisor):
                sink = kernel(P.index(v).store(value.cast(F32), i, v))
                found = expand(sink).src[0].src[1]
                for outer in range(6):
                    lanes = [int(x) for x in lane_values(found, {i: outer}, count)]
                    points = np.arange(count) + outer * scale
                    expected = points // divisor if value.op is Ops.IDIV else points % divisor
                    assert lanes == expected.tolist(), (scale, divisor, value.op)


def lane_values(node: UOp, axes: dict[UOp, int], count: int) -> np.ndarray:
    """The lanes of an expression of ints, by NumPy."""
    done: dict[UOp, np.ndarray] = {}
    functions = {
        Ops.ADD: np.add,
        Ops.MUL: np.multiply,
        Ops.IDIV: np.floor_divide,
        Ops.MOD: np.mod,
    }
    for u in node.toposort():
        if u.op is Ops.CONST:
            done[u] = np.full(count, u.arg)
        elif u.op is Ops.RANGE:
            done[u] = np.full(count, axes[u])
        elif u.op is Ops.VECTORIZE:
            done[u] = np.array([done[s][i] for i, s in enumerate(u.src)])
        elif u.op is Ops.CAST:
            done[u] = done[u.src[0]]
        else:
            done[u] = functions[u.op](*[done[s] for s in u.src])
    return done[node]


def test_two_vector_axes_in_one_expression_are_refused() -> None:
    a = Axes()
    v, w = a.vector(4), a.vector(4)
    with pytest.raises(CompileError, match="2 VECTOR axes"):
        expand(kernel(P.index(v * 4 + w).store(load(Q, v) * load(Q, w), v, w)))


def test_written_out_axes_need_constant_sizes() -> None:
    i = UOp.range(UOp.variable("n", 1, 4), 0, Axes().upcast(2).arg.kind)
    with pytest.raises(CompileError, match="constant size"):
        expand(kernel(P.index(i).store(load(Q, i), i)))


def test_dtype_of_comparisons_and_conditions() -> None:
    v = Axes().vector(4)
    value = load(Q, v).lt(0.5).where(load(Q, v), load(Q, const(0)))
    result = expand(kernel(P.index(v).store(value, v)))
    where = result.src[0].src[1]
    assert where.dtype is F32.vec(4) and where.src[0].dtype is dtypes.bool.vec(4)
