"""Reference values, checked against NumPy, libm, exact fractions and published test vectors."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from weft.dtype import DType, bits_of, dtypes, to_numpy_dtype, truncate
from weft.errors import ArgumentError, DTypeError
from weft.uop.evaluate import cast, evaluate, evaluate_uop, takes, threefry
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops

FLOAT_EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -2.5,
    3.0,
    math.pi,
    1e-3,
    -1e4,
    65504.0,
    1e30,
    -1e30,
    2.0**-149,
    -(2.0**-149),
    2.0**-126,
    3.4028234663852886e38,
    math.inf,
    -math.inf,
    math.nan,
]
DOUBLE_EDGES = [*FLOAT_EDGES, 5e-324, 2.0**-1022, 1.7976931348623157e308, 1e300, 1e-300, 2.0**53]


def same(found: Any, expected: Any) -> bool:
    """Equal to the bit, where all NaNs are one."""
    if isinstance(expected, float) or isinstance(found, float):
        if math.isnan(expected):
            return math.isnan(found)
        return found == expected and math.copysign(1.0, found) == math.copysign(1.0, expected)
    return type(found) is type(expected) and found == expected


def find_libm() -> ctypes.CDLL:
    library = ctypes.util.find_library("m")
    if library is None:
        pytest.skip("no C library of mathematics was found to compare with")
    return ctypes.CDLL(library)


def edges_of(dtype: DType) -> list[float]:
    values = DOUBLE_EDGES if dtype is dtypes.float64 else FLOAT_EDGES
    return [truncate[dtype](value) for value in values]


NUMPY_INTEGERS = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.IDIV: np.floor_divide,
    Ops.MOD: np.remainder,
    Ops.MAX: np.maximum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
}


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", NUMPY_INTEGERS, ids=str)
def test_small_integers_agree_with_numpy_everywhere(op: Ops, dtype: DType) -> None:
    low, high = int(dtype.min), int(dtype.max)
    values = np.arange(low, high + 1).astype(to_numpy_dtype(dtype))
    x, y = (grid.ravel() for grid in np.meshgrid(values, values, indexing="ij"))
    with np.errstate(all="ignore"):
        expected = NUMPY_INTEGERS[op](x, y)
    result = dtypes.bool if op in GroupOp.Comparison else dtype
    found = [evaluate(op, result, a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert found == expected.tolist()


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
@pytest.mark.parametrize("op", NUMPY_INTEGERS, ids=str)
def test_integer_edges_agree_with_numpy(op: Ops, dtype: DType) -> None:
    low, high = int(dtype.min), int(dtype.max)
    edges = {low, low + 1, high, high - 1, high // 2, 0, 1, 2, 3, 7, truncate[dtype](-1)}
    x, y = zip(*itertools.product(sorted(edges), repeat=2), strict=True)
    with np.errstate(all="ignore"):
        expected = NUMPY_INTEGERS[op](*(np.array(v, to_numpy_dtype(dtype)) for v in (x, y)))
    result = dtypes.bool if op in GroupOp.Comparison else dtype
    assert [evaluate(op, result, a, b) for a, b in zip(x, y, strict=True)] == expected.tolist()


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
def test_shifts_by_any_amount(dtype: DType) -> None:
    width = dtype.bitsize
    for x in (int(dtype.min), truncate[dtype](-1), 0, 1, 5, int(dtype.max)):
        for y in (0, 1, width - 1, width, int(dtype.max), truncate[dtype](-1), int(dtype.min)):
            amount = y % (1 << width)
            left = truncate[dtype](x << amount) if amount < width else 0
            right = x >> amount if amount < width else (-1 if x < 0 else 0)
            assert evaluate(Ops.SHL, dtype, x, y) == left
            assert evaluate(Ops.SHR, dtype, x, y) == right


def test_the_edges_that_the_op_table_names() -> None:
    least = int(dtypes.int32.min)
    assert evaluate(Ops.IDIV, dtypes.int32, 5, 0) == 0
    assert evaluate(Ops.MOD, dtypes.int32, 5, 0) == 0
    assert evaluate(Ops.IDIV, dtypes.int32, least, -1) == least
    assert evaluate(Ops.MOD, dtypes.int32, least, -1) == 0
    assert evaluate(Ops.IDIV, dtypes.int32, -7, 2) == -4
    assert evaluate(Ops.MOD, dtypes.int32, -7, 2) == 1
    assert evaluate(Ops.NEG, dtypes.int32, least) == least
    assert evaluate(Ops.NEG, dtypes.uint8, 1) == 255
    for x, y in itertools.permutations((0.0, -0.0)):
        assert same(evaluate(Ops.MAX, dtypes.float32, x, y), 0.0)
    assert same(evaluate(Ops.MAX, dtypes.float32, -0.0, -0.0), -0.0)
    assert math.isnan(evaluate(Ops.MAX, dtypes.float32, math.nan, 1.0))
    assert math.isnan(evaluate(Ops.MAX, dtypes.float32, 1.0, math.nan))
    assert evaluate(Ops.MAX, dtypes.bool, False, True) is True
    assert same(evaluate(Ops.TRUNC, dtypes.float32, -0.5), -0.0)
    assert evaluate(Ops.EXP2, dtypes.float32, 128.0) == math.inf
    assert evaluate(Ops.EXP2, dtypes.float64, 1e308) == math.inf
    assert evaluate(Ops.LOG2, dtypes.float32, -0.0) == -math.inf
    for op, x in ((Ops.LOG2, -1.0), (Ops.SIN, math.inf), (Ops.SQRT, -1.0)):
        assert math.isnan(evaluate(op, dtypes.float32, x))


def test_weak_integers_are_unbounded() -> None:
    assert evaluate(Ops.MUL, dtypes.weakint, 1 << 62, 4) == 1 << 64
    assert evaluate(Ops.SHL, dtypes.weakint, 3, 63) == 3 << 63
    assert evaluate(Ops.SHL, dtypes.weakint, 3, -1) == 0


def test_constants_compare_as_numbers() -> None:
    """ConstFloat tells -0.0 from 0.0 and finds NaN equal to itself; the ops must not."""
    zero, negative, nan = (dtypes.float32.const(v) for v in (0.0, -0.0, math.nan))
    assert evaluate(Ops.CMPEQ, dtypes.bool, zero, negative) is True
    assert evaluate(Ops.CMPNE, dtypes.bool, zero, negative) is False
    assert evaluate(Ops.CMPEQ, dtypes.bool, nan, nan) is False
    assert evaluate(Ops.CMPNE, dtypes.bool, nan, nan) is True
    assert cast(negative, dtypes.float32, dtypes.bool) is False
    assert evaluate(Ops.CAST, dtypes.bool, negative, src_dtypes=(dtypes.float32,)) is False


NUMPY_FLOATS = {
    Ops.NEG: np.negative,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
}


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("op", NUMPY_FLOATS, ids=str)
def test_exact_float_ops_agree_with_numpy(op: Ops, dtype: DType) -> None:
    chance = random.Random(op.value)
    values = edges_of(dtype)
    values += [
        truncate[dtype](chance.uniform(-1, 1) * 2.0 ** chance.randint(-20, 20)) for _ in values
    ]
    for sources in itertools.product(values, repeat=int(str(OPSET[op].arity))):
        with np.errstate(all="ignore"):
            expected = NUMPY_FLOATS[op](*[to_numpy_dtype(dtype).type(v) for v in sources])
        assert same(evaluate(op, dtype, *sources), float(expected)), sources


@pytest.mark.parametrize("op", [Ops.EXP2, Ops.LOG2, Ops.SIN], ids=str)
def test_transcendentals_agree_with_numpy_in_double(op: Ops) -> None:
    reference = {Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin}[op]
    for value in DOUBLE_EDGES:
        with np.errstate(all="ignore"):
            expected = float(reference(np.float64(value)))
        found = evaluate(op, dtypes.float64, value)
        close = expected != 0 and abs(found - expected) <= 2 * math.ulp(expected)
        assert close or same(found, expected), value


def test_power_agrees_with_libm() -> None:
    """Not with NumPy, which takes x**0.5 for a square root and so errs at -inf and -0.0."""
    libm = find_libm()
    libm.pow.restype, libm.pow.argtypes = ctypes.c_double, [ctypes.c_double] * 2
    for x, y in itertools.product(DOUBLE_EDGES, repeat=2):
        assert same(evaluate(Ops.POW, dtypes.float64, x, y), libm.pow(x, y)), (x, y)


def test_power_is_that_of_c() -> None:
    inf, nan = math.inf, math.nan
    table = [
        (nan, 0.0, 1.0),
        (1.0, nan, 1.0),
        (-0.0, -3.0, -inf),
        (0.0, -3.0, inf),
        (-0.0, -2.0, inf),
        (-0.0, -inf, inf),
        (-0.0, 3.0, -0.0),
        (-2.0, 0.5, nan),
        (-1.0, inf, 1.0),
        (0.5, -inf, inf),
        (2.0, -inf, 0.0),
        (-inf, -3.0, -0.0),
        (-inf, 3.0, -inf),
        (-inf, 2.0, inf),
        (-10.0, 309.0, -inf),
        (-10.0, 310.0, inf),
        (10.0, 400.0, inf),
        (-10.0, -401.0, -0.0),
    ]
    for x, y, expected in table:
        assert same(evaluate(Ops.POW, dtypes.float64, x, y), expected), (x, y)


def test_multiply_add_rounds_once() -> None:
    """Against libm's fma and fmaf, which do too."""
    libm = find_libm()
    for name, kind, dtype in (
        ("fma", ctypes.c_double, dtypes.float64),
        ("fmaf", ctypes.c_float, dtypes.float32),
    ):
        reference = getattr(libm, name)
        reference.restype, reference.argtypes = kind, [kind] * 3
        chance = random.Random(7)
        edges = edges_of(dtype)[::2] + edges_of(dtype)[-6:]
        cases = list(itertools.product(edges, repeat=3))
        for _ in range(3000):
            x, y = (truncate[dtype](chance.uniform(-2, 2)) for _ in range(2))
            # Mostly cancelling, where rounding twice shows.
            z = -x * y * 2.0 ** chance.choice([0, 0, 0, 20, 30, -30])
            cases.append((x, y, truncate[dtype](z)))
        for case in cases:
            assert same(evaluate(Ops.MULACC, dtype, *case), reference(*case)), case


def test_multiply_add_keeps_what_double_would_lose() -> None:
    # The product is a tie, which goes to even: up. The tiny term, lost in double, makes it go down.
    x = 1.0 + 2.0**-23
    assert evaluate(Ops.MULACC, dtypes.float32, x, 1.5, 0.0) == 1.5 + 2.0**-22
    assert evaluate(Ops.MULACC, dtypes.float32, x, 1.5, -(2.0**-149)) == 1.5 + 2.0**-23


def test_casts() -> None:
    table = [
        (300.7, dtypes.float32, dtypes.uint8, 255),
        (-1.5, dtypes.float32, dtypes.uint8, 0),
        (math.nan, dtypes.float32, dtypes.int32, 0),
        (math.inf, dtypes.float32, dtypes.int64, int(dtypes.int64.max)),
        (-math.inf, dtypes.float32, dtypes.int64, int(dtypes.int64.min)),
        (-3.9, dtypes.float64, dtypes.int32, -3),
        (300, dtypes.int32, dtypes.uint8, 44),
        (-1, dtypes.int32, dtypes.uint64, (1 << 64) - 1),
        (0.1, dtypes.float64, dtypes.bool, True),
        (math.nan, dtypes.float64, dtypes.bool, True),
        (True, dtypes.bool, dtypes.float32, 1.0),
        ((1 << 24) + 1, dtypes.int32, dtypes.float32, float(1 << 24)),
        (65520.0, dtypes.float32, dtypes.float16, math.inf),
    ]
    for value, source, target, expected in table:
        assert same(evaluate(Ops.CAST, target, value, src_dtypes=(source,)), expected)
        assert same(cast(value, source, target), expected)


def test_bitcasts_keep_the_bits() -> None:
    found = evaluate(Ops.BITCAST, dtypes.uint32, -0.0, src_dtypes=(dtypes.float32,))
    assert found == 0x80000000
    for dtype in (dtypes.float16, dtypes.bfloat16):
        for bits in range(0, 1 << 16, 7):
            value = evaluate(Ops.BITCAST, dtype, bits, src_dtypes=(dtypes.uint16,))
            assert math.isnan(value) or bits_of(value, dtype) == bits


def test_threefry_gives_the_known_answers_of_random123() -> None:
    ones = (1 << 64) - 1
    assert threefry(0, 0) == 0x99BA4EFE_6B200159
    assert threefry(ones, ones) == 0xBB002BE7_1CB996FC
    counter, key = 0x85A308D3_243F6A88, 0x03707344_13198A2E
    assert evaluate(Ops.THREEFRY, dtypes.uint64, counter, key) == 0x483DF7A0_C4923A9C


def test_every_op_takes_every_value_of_its_types() -> None:
    """Total means that nothing raises, and that the result is a value of its type."""
    for op in GroupOp.ALU:
        for dtype in (*dtypes.all, *dtypes.weaks):
            if op in GroupOp.Comparison or not takes(op, dtype):
                continue
            for sources in itertools.product(_some_values(dtype), repeat=int(str(OPSET[op].arity))):
                found = evaluate(op, dtype, *sources)
                kinds = {"bool": bool, "float": float}
                assert type(found) is kinds.get(dtype.kind, int), (op, dtype, sources)
                if dtype is not dtypes.weakint:
                    assert same(found, truncate[dtype](found)), (op, dtype, sources)


def _some_values(dtype: DType) -> list[Any]:
    if dtype.kind == "bool":
        return [False, True]
    if dtype.kind != "float":
        return [dtype.min, dtype.max, 0, 1, 7, truncate[dtype](-1)]
    return [truncate[dtype](v) for v in (*FLOAT_EDGES[:6], 1e30, 2.0**-149, math.inf, math.nan)]


def test_errors_say_what_was_asked() -> None:
    with pytest.raises(DTypeError, match="IDIV takes integer types, found dtypes.float"):
        evaluate(Ops.IDIV, dtypes.float32, 1.0, 2.0)
    with pytest.raises(ArgumentError, match="ADD takes 2 values, found 1"):
        evaluate(Ops.ADD, dtypes.int32, 1)
    with pytest.raises(ArgumentError, match="LOAD is not elementwise"):
        evaluate(Ops.LOAD, dtypes.int32, 1)
    with pytest.raises(ArgumentError, match="BITCAST needs src_dtypes"):
        evaluate(Ops.BITCAST, dtypes.int32, 1.0)


def test_expressions() -> None:
    i = UOp.range(10, 0)
    n = UOp.variable("n", 1, 100)
    expression = (i * 4 + n) % 7
    assert evaluate_uop(expression, {i: 3, n: 5}) == (3 * 4 + 5) % 7
    assert evaluate_uop(n.bind(8) + 1) == 9
    assert evaluate_uop(i < 3, {i: 2}) is True
    memory = UOp.param(0, dtypes.float32, 10).index(i).load()
    assert evaluate_uop(memory * 2.0, {memory: 1.5}) == 3.0
    with pytest.raises(ArgumentError, match="variable n has no value"):
        evaluate_uop(expression, {i: 3})
    with pytest.raises(ArgumentError, match="RANGE.* has no value"):
        evaluate_uop(expression, {n: 3})


def test_a_deep_expression() -> None:
    x = UOp.variable("x", 0, 10)
    expression = x
    for number in range(100_000):
        expression = UOp(Ops.ADD, x.dtype, (expression, UOp.const(x.dtype, number % 3)))
    assert evaluate_uop(expression, {x: 1}) == 1 + sum(number % 3 for number in range(100_000))
