"""LLVM IR text of hand-built linear programs, compiled and run against NumPy."""

from __future__ import annotations

import math

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
    run_llvm,
)
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.errors import CompileError
from weft.renderer.base import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

f32, f64, i32, u8 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8
NATIVE = (*dtypes.ints, f32, f64)
random = np.random.default_rng(7)


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


def check(build: object, dtypes_in: list[DType], expected: object, lanes: int = 1) -> str:
    inputs = [samples(dtype) for dtype in dtypes_in]
    inputs = [np.roll(values, 7 * position) for position, values in enumerate(inputs)]
    uops = elementwise(build, dtypes_in, lanes)
    out = empty(64, uops[-2].src[1].dtype.scalar())
    text = run_llvm(uops, [out, *inputs], [64 // lanes])
    with np.errstate(all="ignore"):
        want = np.asarray(expected(*inputs)).astype(out.dtype)  # type: ignore[operator]
    np.testing.assert_array_equal(out, want)
    if out.dtype.kind == "f":
        zeros = out == 0
        np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(want[zeros]))
    return text


def np_max(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, found) if x.dtype.kind == "f" else found


BINARY = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np_max,
    Ops.CMPLT: np.less,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
}


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", NATIVE, ids=lambda d: d.name)
def test_binary(op: Ops, dtype: DType, lanes: int) -> None:
    check(lambda x, y: x.alu(op, y), [dtype, dtype], BINARY[op], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", (*dtypes.ints, dtypes.bool), ids=lambda d: d.name)
def test_bits(dtype: DType, lanes: int) -> None:
    check(lambda x, y: x & y, [dtype, dtype], np.bitwise_and, lanes)
    check(lambda x, y: x | y, [dtype, dtype], np.bitwise_or, lanes)
    check(lambda x, y: x ^ y, [dtype, dtype], np.bitwise_xor, lanes)


@pytest.mark.parametrize("lanes", [1, 8])
def test_bools_compare_and_max(lanes: int) -> None:
    both = [dtypes.bool, dtypes.bool]
    check(lambda x, y: x.alu(Ops.CMPLT, y), both, lambda x, y: ~x & y, lanes)
    check(lambda x, y: x.alu(Ops.MAX, y), both, np.logical_or, lanes)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_raw_shifts_and_divisions(dtype: DType) -> None:
    width = dtype.bitsize
    kind = to_numpy_dtype(dtype)

    def raw(op: Ops, amount: int) -> object:
        return lambda x: UOp(op, x.dtype, (x, x.const_like(amount)), tag="raw")

    for lanes in (1, 8):
        check(raw(Ops.SHL, 3), [dtype], lambda x: x << kind.type(3), lanes)
        check(raw(Ops.SHR, width - 1), [dtype], lambda x: x >> kind.type(width - 1), lanes)
        wide = np.int64 if dtype.kind == "int" else np.uint64
        check(
            raw(Ops.MOD, 7),
            [dtype],
            lambda x: np.fmod(x.astype(wide), wide(7)),
            lanes,
        )
        check(
            raw(Ops.IDIV, 7),
            [dtype],
            lambda x: (x.astype(wide) - np.fmod(x.astype(wide), wide(7))) // wide(7),
            lanes,
        )


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)
def test_unary_floats(dtype: DType, lanes: int) -> None:
    check(lambda x: x.alu(Ops.SQRT), [dtype], np.sqrt, lanes)
    check(lambda x: x.alu(Ops.TRUNC), [dtype], np.trunc, lanes)
    check(lambda x: -x, [dtype], np.negative, lanes)
    check(lambda x, y: x.alu(Ops.FDIV, y), [dtype, dtype], np.divide, lanes)


def test_negation_of_integers_wraps() -> None:
    for dtype in dtypes.ints:
        check(lambda x: -x, [dtype], np.negative, 8)


def test_where_and_fused_multiply_add() -> None:
    for lanes in (1, 8):
        check(lambda x, y: (x < y).where(x, y), [f32, f32], lambda x, y: np.where(x < y, x, y), lanes)
    # once rounded: (1 + e)**2 - 1 keeps e**2
    x = UOp.const(f64, 1 + 2.0**-30)
    i = loop(1)
    out = UOp.param(0, f64, 1)
    value = UOp(Ops.MULACC, f64, (x, x, UOp.const(f64, -1.0)))
    found = np.zeros(1)
    run_llvm(program(i, out.index(i).store(value), end(i)), [found])
    assert found[0] == 2.0**-29 + 2.0**-60


@pytest.mark.parametrize("source", (*NATIVE, dtypes.bool), ids=lambda d: d.name)
@pytest.mark.parametrize("target", (*NATIVE, dtypes.bool), ids=lambda d: d.name)
def test_casts(source: DType, target: DType) -> None:
    if source is target:
        return
    kind = to_numpy_dtype(target)

    def build(x: UOp) -> UOp:
        return UOp(Ops.CAST, target.vec(x.dtype.count), (x,), tag="raw")

    for lanes in (1, 8):
        if source.kind == "float" and target.kind in ("int", "uint"):
            values = random.uniform(0, 100, 64).astype(to_numpy_dtype(source))
            out = empty(64, target)
            run_llvm(elementwise(build, [source], lanes), [out, values], [64 // lanes])
            np.testing.assert_array_equal(out, values.astype(kind))
        elif target.kind == "bool":
            check(build, [source], lambda x: x != 0, lanes)
        else:
            check(build, [source], lambda x: x.astype(kind), lanes)


def test_bitcasts() -> None:
    for lanes in (1, 8):
        check(lambda x: x.bitcast(i32.vec(lanes)), [f32], lambda x: x.view(np.int32), lanes)
        check(lambda x: x.bitcast(dtypes.uint64.vec(lanes)), [f64], lambda x: x.view("u8"), lanes)
        # both are 16 bits of storage
        check(
            lambda x: x.bitcast(dtypes.bfloat16.vec(lanes)),
            [dtypes.uint16],
            lambda x: x,
            lanes,
        )
        check(lambda x: x.bitcast(u8.vec(lanes)), [dtypes.bool], lambda x: x.view("u1"), lanes)


def test_half_converts_in_one_instruction_where_the_target_says_so() -> None:
    renderer = LLVMRenderer(Target(has_half_conversion=True))
    assert dtypes.float16 in renderer.native_dtypes
    uops = elementwise(lambda x: x.cast(f32), [dtypes.float16], 8)
    values = np.arange(64).astype(np.float16)
    out = np.zeros(64, np.float32)
    assert "fpext <8 x half>" in run_llvm(uops, [out, values], [8], renderer=renderer)
    np.testing.assert_array_equal(out, values.astype(np.float32))
    with pytest.raises(CompileError, match="stored as bits"):
        LLVMRenderer(Target()).render("k", uops)


def test_float_constants_are_exact() -> None:
    for dtype in (f32, f64):
        kind = to_numpy_dtype(dtype).type
        with np.errstate(over="ignore"):
            numbers = [0.1, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, 5e-324, 1 / 3]
            expected = np.array(numbers, kind)
        out = UOp.param(0, dtype, len(numbers))
        stores = [out.index(const(k)).store(UOp.const(dtype, v)) for k, v in enumerate(numbers)]
        found = np.zeros(len(numbers), kind)
        run_llvm(program(*stores), [found])
        np.testing.assert_array_equal(found, expected)
        assert np.signbit(found[1])


# ---------------------------------------------------------------- loops and registers


def test_sum_of_rows_keeps_the_register_in_a_phi() -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 3)
    i, j = loop(3, 0), loop(4, 1)
    total = acc(const(0.0, f32))
    step = acc_set(total, read(total, j) + load(data, i * const(4) + j))
    finish = end(j)
    uops = program(i, total, j, step, finish, out.index(i).store(read(total, finish)), end(i))
    values = np.arange(12, dtype=np.float32)
    found = np.zeros(3, np.float32)
    text = run_llvm(uops, [found, values])
    np.testing.assert_array_equal(found, values.reshape(3, 4).sum(1))
    assert "alloca" not in text


@pytest.mark.parametrize("size", [0, 1, 5])
def test_symbolic_loops_of_zero_trips(size: int) -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 1)
    j = loop(UOp.variable("size", 0, 12, dtypes.int64), 1)
    total = acc(const(2.5, f32))
    step = acc_set(total, read(total, j) + load(data, j))
    finish = end(j)
    uops = program(total, j, step, finish, out.index(const(0)).store(read(total, finish)))
    values = np.ones(12, np.float32)
    found = np.zeros(1, np.float32)
    run_llvm(uops, [found, values], [size])
    assert found[0] == 2.5 + size


def test_constant_loop_of_zero_trips() -> None:
    out = UOp.param(0, f32, 1)
    j = loop(0, 1)
    uops = program(j, out.index(const(0)).store(const(1.0, f32)), end(j))
    found = np.zeros(1, np.float32)
    run_llvm(uops, [found])
    assert found[0] == 0


@pytest.mark.parametrize("sizes", [(3, 4), (0, 4), (3, 0)])
def test_a_register_carried_through_nested_loops(sizes: tuple[int, int]) -> None:
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
    run_llvm(uops, [found], sizes)
    expected = 100
    for a in range(sizes[0]):
        expected += sum(a * 10 + b for b in range(sizes[1])) + 2 ** sizes[1]
    assert found[0] == expected


def test_registers_swap() -> None:
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
    run_llvm(uops, [found])
    assert found.tolist() == [2, 1]


def test_thread_axis_runs_from_begin_to_end() -> None:
    out = UOp.param(0, dtypes.int64, 8)
    for kind in (dtypes.int64, dtypes.int32):
        t = loop(8, 0, AxisType.THREAD).replace(dtype=kind)
        uops = program(t, out.index(t).store(t.cast(dtypes.int64) + const(1)), end(t))
        found = np.zeros(8, np.int64)
        run_llvm(uops, [found], n=5)
        assert found.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
        found[:] = 0
        run_llvm(uops, [found], n=0)
        assert not found.any()


def test_conditionals_join_registers() -> None:
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
    run_llvm(uops, [found])
    assert found[0] == 6


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", (f32, dtypes.bool, dtypes.bfloat16), ids=lambda d: d.name)
def test_invalid_scalar_loads_and_stores_touch_nothing(dtype: DType) -> None:
    data, out = UOp.param(1, dtype, 4), UOp.param(0, dtype, 8)
    i = loop(8)
    far = i * const(1 << 40)
    value = load(data, (i < const(4)).where(i, far), i < const(4))
    uops = program(i, out.index(i, i < const(6)).store(value), end(i))
    kind = to_numpy_dtype(dtype)
    values, found = np.ones(4, kind), np.ones(8, kind)
    run_llvm(uops, [found, values])
    assert found.astype(int).tolist() == [1, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", (f32, f64, u8, dtypes.bool), ids=lambda d: d.name)
def test_lane_masks_and_gathers(dtype: DType) -> None:
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
    run_llvm(uops, [found, values, other])
    np.testing.assert_array_equal(found[:8], [*values[:5], 0, 0, 0])
    np.testing.assert_array_equal(found[8:], values[::2])
    np.testing.assert_array_equal(other[:8], [*values[:15:3], 1, 1, 1])
    np.testing.assert_array_equal(other[8:], [*values[:10:2], 1, 1, 1])


def test_scalar_validity_of_vectors() -> None:
    data, out = UOp.param(1, f32, 16), UOp.param(0, f32, 64)
    i = loop(4)
    lanes = UOp(Ops.VECTORIZE, dtypes.int64.vec(16), tuple(const(k) for k in range(16)))
    ok = i.ne(const(2))
    far = ok.where(const(0), const(1 << 40))
    plain = load(data, far, ok, 16)
    gathered = load(data, lanes + far.broadcast(16), ok, 16)
    uops = program(i, out.index(i * const(16), i < const(3)).store(plain + gathered), end(i))
    values, found = np.arange(16, dtype=np.float32), np.full(64, -1, np.float32)
    run_llvm(uops, [found, values])
    expected = [values * 2, values * 2, values * 0, np.full(16, -1)]
    np.testing.assert_array_equal(found.reshape(4, 16), expected)


def test_scratch_memory() -> None:
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
    assert "align 64" in run_llvm(uops, [found, values])
    np.testing.assert_array_equal(found, values[::-1] * 2)


def test_lanes_are_taken_and_put_together() -> None:
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
    run_llvm(uops, [found, np.array([1, 2, 3, 4], np.float32)])
    assert found.tolist() == [4, 6, 1, 4, 9, 1, 1]


def test_products_contract_and_exact_ones_do_not() -> None:
    def text(tag: str | None) -> str:
        def build(x: UOp, y: UOp) -> UOp:
            return UOp(Ops.ADD, x.dtype, ((x * y).rtag(tag), x), tag=tag)

        return LLVMRenderer().render("k", elementwise(build, [f32, f32]))

    assert "fmul contract float" in text(None) and "fadd contract float" in text(None)
    assert "contract" not in text("exact")


def test_names_and_determinism() -> None:
    uops = elementwise(lambda x: x + x, [f32])
    renderer = LLVMRenderer()
    assert "@E_4_4(" in renderer.render("E_4_4", uops)
    assert '@"a\\20b"(' in renderer.render("a b", uops)
    assert renderer.render("k", uops) == renderer.render("k", uops)


def test_what_must_be_decomposed_is_refused_by_name() -> None:
    renderer = LLVMRenderer(Target(has_rounding=False))
    for op in (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW, Ops.THREEFRY, Ops.IDIV, Ops.CAST, Ops.TRUNC):
        assert not renderer.is_native(op)
    assert set(LLVMRenderer().code_for_op) <= GroupOp.Elementwise
    with pytest.raises(CompileError, match="EXP2"):
        renderer.render("k", elementwise(lambda x: x.alu(Ops.EXP2), [f32]))


def test_half_open_loops_are_refused() -> None:
    i, j = loop(2, 0), loop(3, 1)
    with pytest.raises(CompileError, match="END"):
        LLVMRenderer().render("k", program(i, j, end(i), end(j)))
