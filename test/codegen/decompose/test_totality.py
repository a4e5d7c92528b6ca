"""IDIV, MOD, SHL, SHR and float -> int casts for every edge, and how bounds make them bare."""

from __future__ import annotations

import math

import numpy as np
import pytest

from test.codegen.decompose.harness import (
    HALF,
    alu,
    any_bits,
    compute,
    f32,
    f64,
    interpret,
    random,
)
from weft.codegen.decompose.decompose import decompose
from weft.dtype import DType, convert, dtypes, to_numpy_dtype
from weft.renderer.c import CRenderer
from weft.uop.evaluate import evaluate
from weft.uop.node import UOp
from weft.uop.opset import Ops

INTEGER_OPS = (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR)
of_ints = pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)


def reference(op: Ops, x: np.ndarray, y: np.ndarray, dtype: DType) -> np.ndarray:
    values = [evaluate(op, dtype, int(a), int(b)) for a, b in zip(x, y, strict=True)]
    return np.array(values, x.dtype)


def pairs_of(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of 8-bit values (for wider types: of their edges and some random ones)."""
    kind = to_numpy_dtype(dtype)
    if dtype.bitsize == 8:
        values = np.arange(256, dtype=np.uint8).view(kind)
    else:
        info = np.iinfo(kind)
        small = [v for v in (*range(-9, 10), 15, 16, 31, 32, 33, 63, 64, 65, -64) if v >= info.min]
        ends = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2, info.min // 2]
        some = random.integers(info.min, info.max, 30, dtype=kind, endpoint=True)
        values = np.concatenate([np.array(small, kind), np.array(ends, kind), some])
    return np.repeat(values, len(values)), np.tile(values, len(values))


@of_ints
@pytest.mark.parametrize("op", INTEGER_OPS, ids=lambda op: op.name)
def test_integer_ops_are_total(op: Ops, dtype: DType) -> None:
    x, y = pairs_of(dtype)
    expected = reference(op, x, y, dtype)
    for lanes in (1, 8):
        found = compute(alu(op), [x, y], [dtype, dtype], lanes=lanes)
        np.testing.assert_array_equal(found, expected)
    found = compute(alu(op), [x, y], [dtype, dtype], CRenderer())
    np.testing.assert_array_equal(found, expected)
    # the interpreter raises if a raw op's operands are not safe
    part = random.permutation(len(x))[:2000]
    np.testing.assert_array_equal(
        interpret(alu(op), [x[part], y[part]], [dtype, dtype]), expected[part]
    )


@of_ints
def test_constant_divisors(dtype: DType) -> None:
    x = np.unique(pairs_of(dtype)[0])
    least = int(dtype.min)
    for divisor in (0, 1, 2, 3, 7, 8, 10, 64, 100, dtype.max, -1, -2, -3, -7, -8, least):
        if not dtype.min <= divisor <= dtype.max:
            continue
        y = np.full(len(x), divisor, x.dtype)
        for op in (Ops.IDIV, Ops.MOD):

            def build(v: UOp, op: Ops = op, divisor: int = divisor) -> UOp:
                return v.alu(op, divisor)

            expected = reference(op, x, y, dtype)
            np.testing.assert_array_equal(compute(build, [x], [dtype]), expected)
            np.testing.assert_array_equal(interpret(build, [x], [dtype]), expected)


def machine_range(size: int) -> UOp:
    """An axis whose counter is a machine integer: an index is decomposed once it is one."""
    axis = UOp.range(size, 0)
    return axis.replace(dtype=dtypes.int64, src=(UOp.const(dtypes.int64, size),))


def test_index_arithmetic_is_bare() -> None:
    """Bounds that exclude negative numbers leave one raw op, a shift or a mask."""
    r = machine_range(1000)

    def after(value: UOp) -> UOp:
        return decompose(value, HALF)

    division, remainder = after(r // 7), after(r % 7)
    assert (division.op, division.tag) == (Ops.IDIV, "raw") and division.src[0] is r
    assert (remainder.op, remainder.tag) == (Ops.MOD, "raw") and remainder.src[0] is r
    assert after(r // 8) is UOp(Ops.SHR, r.dtype, (r, r.const_like(3)), tag="raw")
    assert after(r % 8) is r & 7
    assert after(r << 2).tag == "raw"
    # what may be negative is corrected
    assert after((r - 500) // 7).op is not Ops.IDIV
    assert after((r - 500) // 8).op is Ops.SHR and after((r - 500) % 8).op is Ops.AND


def test_divisors_that_bounds_know_to_be_positive() -> None:
    r, n = machine_range(1000), UOp.variable("n", 1, 64, dtypes.int64)
    assert decompose(r // n, HALF) is UOp(Ops.IDIV, r.dtype, (r, n), tag="raw")
    assert decompose(r % n, HALF) is UOp(Ops.MOD, r.dtype, (r, n), tag="raw")


@pytest.mark.parametrize("source", [f32, f64], ids=lambda d: d.name)
@of_ints
def test_float_to_int_saturates(source: DType, dtype: DType) -> None:
    kind = to_numpy_dtype(source)
    ends = [float(dtype.min), float(dtype.max), 0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5]
    special = [math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-40]
    base = np.array([*ends, *special], kind)
    # infinities step back to the largest numbers
    around = [np.nextafter(base, kind.type(d), dtype=kind) for d in (np.inf, -np.inf)]
    wide = random.normal(0, float(dtype.max), 500).astype(kind)
    x = np.concatenate([base, *around, base + kind.type(1), base - 1, wide, any_bits(source, 500)])
    expected = np.array([convert(float(v), source, dtype) for v in x], to_numpy_dtype(dtype))

    def build(v: UOp) -> UOp:
        return v.cast(dtype)

    for lanes in (1, 8):
        np.testing.assert_array_equal(compute(build, [x], [source], lanes=lanes), expected)
    np.testing.assert_array_equal(compute(build, [x], [source], CRenderer()), expected)
    np.testing.assert_array_equal(interpret(build, [x], [source]), expected)
