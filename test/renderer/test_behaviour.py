"""Hand-built linear programs, printed as LLVM IR and as C, compiled, run, compared with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from test.renderer.programs import (
    acc,
    acc_set,
    const,
    elementwise,
    empty,
    end,
    load,
    local,
    loop,
    program,
    read,
    run_c,
    run_llvm,
)
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

f32, f64, i32, u8 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8
NATIVE = (*dtypes.ints, f32, f64)
random = np.random.default_rng(7)
Run = Callable[..., str]


@pytest.fixture(params=[run_llvm, run_c], ids=["llvm", "c"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


def samples(dtype: DType, count: int = 64) -> np.ndarray:
    """Random values and the edges."""
    kind = to_numpy_dtype(dtype)
    if dtype.kind == "bool":
        return random.integers(0, 2, count).astype(kind)
    if dtype.kind == "float":
        edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -2.5, 1e-40, -1e300]
        with np.errstate(over="ignore"):
            return np.concatenate([random.normal(0, 10, count - 9), edges]).astype(kind)
    info = np.iinfo(kind)
    edges = np.array([0, 1, info.min, info.max, info.max - 1], kind)
    values = random.integers(info.min, info.max, count - 5, dtype=kind, endpoint=True)
    return np.concatenate([values, edges])


Case = tuple[Callable[..., UOp], Callable[..., np.ndarray]]  # how it is built, what NumPy says


def check(run: Run, dtypes_in: list[DType], cases: list[Case], lanes: int = 1) -> None:
    """All cases in one program, each with a buffer of its own."""
    inputs = [samples(dtype) for dtype in dtypes_in]
    inputs = [np.roll(values, 7 * position) for position, values in enumerate(inputs)]
    compare(run, inputs, dtypes_in, cases, lanes)


def compare(
    run: Run, inputs: list[np.ndarray], dtypes_in: list[DType], cases: list[Case], lanes: int
) -> None:
    uops, kinds = elementwise([build for build, _ in cases], dtypes_in, lanes)
    outs = [empty(64, kind) for kind in kinds]
    run(uops, [*outs, *inputs], [64 // lanes])
    for out, (_, expected) in zip(outs, cases, strict=True):
        with np.errstate(all="ignore"):
            want = np.asarray(expected(*inputs)).astype(out.dtype)
        np.testing.assert_array_equal(out, want)
        if out.dtype.kind == "f":
            zeros = out == 0
            np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(want[zeros]))


def np_max(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, found) if x.dtype.kind == "f" else found


BINARY: dict[Ops, Callable[..., np.ndarray]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.CMPLT: np.less,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
}
lanes_of = pytest.mark.parametrize("lanes", [1, 4, 16])


def alu(op: Ops) -> Callable[..., UOp]:
    return lambda x, *others: x.alu(op, *others)


@lanes_of
@pytest.mark.parametrize("dtype", NATIVE, ids=lambda d: d.name)
def test_binary(run: Run, dtype: DType, lanes: int) -> None:
    check(run, [dtype, dtype], [(alu(op), expected) for op, expected in BINARY.items()], lanes)


@lanes_of
@pytest.mark.parametrize("dtype", NATIVE, ids=lambda d: d.name)
def test_max(dtype: DType, lanes: int) -> None:
    check(run_llvm, [dtype, dtype], [(alu(Ops.MAX), np_max)], lanes)


@lanes_of
@pytest.mark.parametrize("dtype", (*dtypes.ints, dtypes.bool), ids=lambda d: d.name)
def test_bits(run: Run, dtype: DType, lanes: int) -> None:
    cases: list[Case] = [
        (alu(Ops.AND), np.bitwise_and),
        (alu(Ops.OR), np.bitwise_or),
        (alu(Ops.XOR), np.bitwise_xor),
    ]
    if dtype is not dtypes.bool:
        cases.append((lambda x, y: -x, lambda x, y: np.negative(x)))
    check(run, [dtype, dtype], cases, lanes)


@lanes_of
def test_bools_compare_and_max(run: Run, lanes: int) -> None:
    both = [dtypes.bool, dtypes.bool]
    check(run, both, [(alu(Ops.CMPLT), lambda x, y: ~x & y)], lanes)
    check(run_llvm, both, [(alu(Ops.MAX), np.logical_or)], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_raw_shifts_and_divisions(run: Run, dtype: DType, lanes: int) -> None:
    width = dtype.bitsize
    kind = to_numpy_dtype(dtype).type
    wide = np.int64 if dtype.kind == "int" else np.uint64

    def raw(op: Ops, amount: int) -> Callable[[UOp], UOp]:
        return lambda x: UOp(op, x.dtype, (x, x.const_like(amount)), tag="raw")

    def remainder(x: np.ndarray) -> np.ndarray:
        return np.fmod(x.astype(wide), wide(7))

    cases: list[Case] = [
        (raw(Ops.SHL, 3), lambda x: x << kind(3)),
        (raw(Ops.SHR, width - 1), lambda x: x >> kind(width - 1)),
        (raw(Ops.MOD, 7), remainder),
        (raw(Ops.IDIV, 7), lambda x: (x.astype(wide) - remainder(x)) // wide(7)),
    ]
    check(run, [dtype], cases, lanes)


@lanes_of
@pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)
def test_floats(run: Run, dtype: DType, lanes: int) -> None:
    cases: list[Case] = [
        (alu(Ops.SQRT), np.sqrt),
        (alu(Ops.TRUNC), np.trunc),
        (alu(Ops.NEG), np.negative),
    ]
    check(run, [dtype], cases, lanes)
    chosen: Case = (lambda x, y: (x < y).where(x, y), lambda x, y: np.where(x < y, x, y))
    check(run, [dtype, dtype], [(alu(Ops.FDIV), np.divide), chosen], lanes)


@pytest.mark.parametrize("lanes", [1, 2])
def test_fused_multiply_add_rounds_once(run: Run, lanes: int) -> None:
    """(1 + e)**2 - 1 keeps e**2."""
    x = UOp.const(f64.vec(lanes), 1 + 2.0**-30)
    out = UOp.param(0, f64, 1)
    value = UOp(Ops.MULACC, x.dtype, (x, x, x.const_like(-1.0)))
    found = np.zeros(lanes)
    run(program(out.index(const(0)).store(value)), [found])
    assert (found == 2.0**-29 + 2.0**-60).all()


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("source", (*NATIVE, dtypes.bool), ids=lambda d: d.name)
def test_casts(run: Run, source: DType, lanes: int) -> None:
    def case(target: DType) -> Case:
        def build(x: UOp) -> UOp:
            return UOp(Ops.CAST, target.vec(x.dtype.count), (x,), tag="raw")

        if target.kind == "bool":
            return build, lambda x: x != 0
        return build, lambda x: x.astype(to_numpy_dtype(target))

    others = [target for target in (*NATIVE, dtypes.bool) if target is not source]
    if source.kind != "float":
        check(run, [source], [case(target) for target in others], lanes)
        return
    to_ints = [case(target) for target in others if target in dtypes.ints]
    values = random.uniform(0, 100, 64).astype(to_numpy_dtype(source))
    compare(run, [values], [source], to_ints, lanes)
    check(run, [source], [case(target) for target in others if target not in dtypes.ints], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
def test_bitcasts(run: Run, lanes: int) -> None:
    def case(target: DType, kind: str) -> Case:
        return lambda x: x.bitcast(target.vec(lanes)), lambda x: x.view(kind)

    check(run, [f32], [case(i32, "i4"), case(dtypes.uint32, "u4")], lanes)
    check(run, [f64], [case(dtypes.uint64, "u8")], lanes)
    # both are 16 bits of storage
    check(run, [dtypes.uint16], [case(dtypes.bfloat16, "u2")], lanes)
    check(run, [dtypes.bool], [case(u8, "u1")], lanes)


def test_float_constants_are_exact(run: Run) -> None:
    for dtype in (f32, f64):
        kind = to_numpy_dtype(dtype).type
        with np.errstate(over="ignore"):
            numbers = [0.1, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, 5e-324, 1 / 3]
            expected = np.array(numbers, kind)
        out = UOp.param(0, dtype, len(numbers))
        stores = [out.index(const(k)).store(UOp.const(dtype, v)) for k, v in enumerate(numbers)]
        found = np.zeros(len(numbers), kind)
        run(program(*stores), [found])
        np.testing.assert_array_equal(found, expected)
        assert np.signbit(found[1])


# ---------------------------------------------------------------- loops and registers


def test_sum_of_rows(run: Run) -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 3)
    i, j = loop(3, 0), loop(4, 1)
    total = acc(const(0.0, f32))
    step = acc_set(total, read(total, j) + load(data, i * const(4) + j))
    finish = end(j)
    uops = program(i, total, j, step, finish, out.index(i).store(read(total, finish)), end(i))
    values = np.arange(12, dtype=np.float32)
    found = np.zeros(3, np.float32)
    run(uops, [found, values])
    np.testing.assert_array_equal(found, values.reshape(3, 4).sum(1))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_symbolic_loops_of_zero_trips(run: Run, size: int) -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 1)
    j = loop(UOp.variable("size", 0, 12, dtypes.int64), 1)
    total = acc(const(2.5, f32))
    step = acc_set(total, read(total, j) + load(data, j))
    finish = end(j)
    uops = program(total, j, step, finish, out.index(const(0)).store(read(total, finish)))
    values = np.ones(12, np.float32)
    found = np.zeros(1, np.float32)
    run(uops, [found, values], [size])
    assert found[0] == 2.5 + size


def test_constant_loop_of_zero_trips(run: Run) -> None:
    out = UOp.param(0, f32, 1)
    j = loop(0, 1)
    uops = program(j, out.index(const(0)).store(const(1.0, f32)), end(j))
    found = np.zeros(1, np.float32)
    run(uops, [found])
    assert found[0] == 0


@pytest.mark.parametrize("sizes", [(3, 4), (0, 4), (3, 0)])
def test_a_register_carried_through_nested_loops(run: Run, sizes: tuple[int, int]) -> None:
    n = UOp.variable("a_outer", 0, 9, dtypes.int64)
    m = UOp.variable("b_inner", 0, 9, dtypes.int64)
    out = UOp.param(0, dtypes.int64, 1)
    i, j = loop(n, 0), loop(m, 1)
    total, other = acc(const(100), 0), acc(const(1), 1)
    inner = end(j)
    outer = end(i)
    uops = program(
        total,
        i,
        other,
        j,
        acc_set(total, read(total, j) + i * const(10) + j),
        acc_set(other, read(other, j) * const(2)),
        inner,
        acc_set(total, read(total, inner) + read(other, inner)),
        outer,
        out.index(const(0)).store(read(total, outer)),
    )
    found = np.zeros(1, np.int64)
    run(uops, [found], sizes)
    expected = 100
    for a in range(sizes[0]):
        expected += sum(a * 10 + b for b in range(sizes[1])) + 2 ** sizes[1]
    assert found[0] == expected


def test_registers_swap(run: Run) -> None:
    """Both phis take the other's old value."""
    out = UOp.param(0, dtypes.int64, 2)
    i = loop(3)
    a, b = acc(const(1), 0), acc(const(2), 1)
    old_a, old_b = read(a, i), read(b, i)
    finish = end(i)
    uops = program(
        a,
        b,
        i,
        old_a,
        old_b,
        acc_set(a, old_b),
        acc_set(b, old_a),
        finish,
        out.index(const(0)).store(read(a, finish)),
        out.index(const(1)).store(read(b, finish)),
    )
    found = np.zeros(2, np.int64)
    run(uops, [found])
    assert found.tolist() == [2, 1]


def test_thread_axis_runs_from_begin_to_end(run: Run) -> None:
    out = UOp.param(0, dtypes.int64, 8)
    for kind in (dtypes.int64, dtypes.int32):
        t = loop(8, 0, AxisType.THREAD).replace(dtype=kind)
        uops = program(t, out.index(t).store(t.cast(dtypes.int64) + const(1)), end(t))
        found = np.zeros(8, np.int64)
        run(uops, [found], n=5)
        assert found.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
        found[:] = 0
        run(uops, [found], n=0)
        assert not found.any()


def test_conditionals_join_registers(run: Run) -> None:
    out = UOp.param(0, dtypes.int64, 1)
    i = loop(10)
    total = acc(const(0))
    condition = UOp(Ops.IF, dtypes.void, (i < const(4),))
    finish = end(i)
    uops = program(
        total,
        i,
        condition,
        acc_set(total, read(total, condition) + i),
        UOp(Ops.ENDIF, dtypes.void, (condition,)),
        finish,
        out.index(const(0)).store(read(total, finish)),
    )
    found = np.zeros(1, np.int64)
    run(uops, [found])
    assert found[0] == 6


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", (f32, dtypes.bool, dtypes.bfloat16), ids=lambda d: d.name)
def test_invalid_scalar_loads_and_stores_touch_nothing(run: Run, dtype: DType) -> None:
    data, out = UOp.param(1, dtype, 4), UOp.param(0, dtype, 8)
    i = loop(8)
    far = i * const(1 << 40)
    value = load(data, (i < const(4)).where(i, far), i < const(4))
    uops = program(i, out.index(i, i < const(6)).store(value), end(i))
    kind = to_numpy_dtype(dtype)
    values, found = np.ones(4, kind), np.ones(8, kind)
    run(uops, [found, values])
    assert found.astype(int).tolist() == [1, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", (f32, f64, u8, dtypes.bool), ids=lambda d: d.name)
def test_lane_masks_and_gathers(run: Run, dtype: DType) -> None:
    data, out, scattered = (UOp.param(slot, dtype, 16) for slot in (1, 0, 2))
    lanes = UOp(Ops.VECTORIZE, dtypes.int64.vec(8), tuple(const(k) for k in range(8)))
    i = loop(1)
    few = lanes < lanes.const_like(5)
    tail = load(data, i, few, 8)
    strided = load(data, lanes * lanes.const_like(2), None, 8)
    masked = load(data, (few).where(lanes * lanes.const_like(3), lanes.const_like(1 << 50)), few, 8)
    uops = program(
        i,
        out.index(const(0)).store(tail),
        out.index(const(8)).store(strided),
        scattered.index(const(0), few).store(masked),
        scattered.index(lanes + lanes.const_like(8), few).store(strided),
        end(i),
    )
    kind = to_numpy_dtype(dtype)
    values = (np.arange(16) % 2 if dtype is dtypes.bool else np.arange(16)).astype(kind)
    found, other = np.ones(16, kind), np.ones(16, kind)
    run(uops, [found, values, other])
    np.testing.assert_array_equal(found[:8], [*values[:5], 0, 0, 0])
    np.testing.assert_array_equal(found[8:], values[::2])
    np.testing.assert_array_equal(other[:8], [*values[:15:3], 1, 1, 1])
    np.testing.assert_array_equal(other[8:], [*values[:10:2], 1, 1, 1])


def test_scalar_validity_of_vectors(run: Run) -> None:
    data, out = UOp.param(1, f32, 16), UOp.param(0, f32, 64)
    i = loop(4)
    lanes = UOp(Ops.VECTORIZE, dtypes.int64.vec(16), tuple(const(k) for k in range(16)))
    ok = i.ne(const(2))
    far = ok.where(const(0), const(1 << 40))
    plain = load(data, far, ok, 16)
    gathered = load(data, lanes + far.broadcast(16), ok, 16)
    uops = program(i, out.index(i * const(16), i < const(3)).store(plain + gathered), end(i))
    values, found = np.arange(16, dtype=np.float32), np.full(64, -1, np.float32)
    run(uops, [found, values])
    expected = [values * 2, values * 2, values * 0, np.full(16, -1)]
    np.testing.assert_array_equal(found.reshape(4, 16), expected)


def test_scratch_memory(run: Run) -> None:
    data, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    scratch = local(0, 8, f32)
    i, j = loop(8, 0), loop(8, 1)
    uops = program(
        scratch,
        i,
        scratch.index(i).store(load(data, i) * const(2.0, f32)),
        end(i),
        j,
        out.index(j).store(load(scratch, const(7) - j)),
        end(j),
    )
    values, found = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    assert "64" in run(uops, [found, values])
    np.testing.assert_array_equal(found, values[::-1] * 2)


def test_lanes_are_taken_and_put_together(run: Run) -> None:
    data, out = UOp.param(1, f32, 4), UOp.param(0, f32, 7)
    vector = load(data, const(0), lanes=4)
    high, first = vector.gep((2, 3)), vector.gep(0)
    low = vector.gep((0, 1))
    mixed = UOp(Ops.VECTORIZE, f32.vec(4), (vector.gep(3), const(9.0, f32), first, first))
    uops = program(
        out.index(const(0)).store(high + low),
        out.index(const(2)).store(first.broadcast(1)),
        out.index(const(3)).store(mixed),
    )
    found = np.zeros(7, np.float32)
    run(uops, [found, np.array([1, 2, 3, 4], np.float32)])
    assert found.tolist() == [4, 6, 1, 4, 9, 1, 1]


def test_lanes_of_two_vectors_are_counted_on(run: Run) -> None:
    data, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    one, other = load(data, const(0), lanes=4), load(data, const(4), lanes=4)
    uops = program(
        out.index(const(0)).store(one.gep((0, 4, 3, 7), other)),
        out.index(const(4)).store(one.gep((6, 1), other)),
        out.index(const(6)).store(one.gep(5, other)),
        out.index(const(7)).store(one.gep(2, other)),
    )
    found = np.zeros(8, np.float32)
    run(uops, [found, np.arange(8, dtype=np.float32)])
    assert found.tolist() == [0, 4, 3, 7, 6, 1, 5, 2]
