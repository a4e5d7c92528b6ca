"""EXP2, LOG2 and POW against wider floats: the stated errors and every edge."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from test.codegen.decompose.harness import (
    HALF,
    PLAIN,
    WIDER,
    alu,
    any_bits,
    compute,
    f32,
    f64,
    interpret,
    random,
    worst_ulp,
)
from weft.dtype import DType, to_numpy_dtype
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.uop.opset import Ops

COUNT = 200_000
# fmt: off
EDGES = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 1e-45, -1e-45, 5e-324,
    1e-310, 1.1754944e-38, 2.2250738585072014e-308, 127.99999, 128.0, 129.0, -126.0, -149.0, -149.5,
    -149.99999, -150.0, -150.5, -151.0, 1023.9999999, 1024.0, 1025.0, -1022.0, -1074.0, -1074.5,
    -1075.0, -1075.5, 1e30, -1e30, 3.4028235e38, 1.7976931348623157e308, 0.70710678, 1.41421356,
    0.7071067811865475, 0.7071067811865476, 1.4142135623730951, 1.0000001, 0.9999999,
]
# fmt: on
both = pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)


def edges(dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(EDGES, to_numpy_dtype(dtype))


def mixed(dtype: DType, *parts: np.ndarray) -> np.ndarray:
    kind = to_numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        return np.concatenate(
            [edges(dtype), any_bits(dtype, COUNT), *(p.astype(kind) for p in parts)]
        )


def error(op: Ops, x: np.ndarray, dtype: DType, renderer: Renderer = HALF) -> float:
    reference = {Ops.EXP2: np.exp2, Ops.LOG2: np.log2}[op]
    with np.errstate(all="ignore"):
        expected = reference(x.astype(WIDER[dtype]))
    return worst_ulp(compute(alu(op), [x], [dtype], renderer), expected)


@both
def test_exp2(dtype: DType) -> None:
    wide = 160 if dtype is f32 else 1100
    x = mixed(dtype, random.uniform(-wide, wide, COUNT), random.normal(0, 1, COUNT))
    assert error(Ops.EXP2, x, dtype) < 1.0


@both
def test_exp2_of_whole_numbers_is_exact(dtype: DType) -> None:
    x = np.arange(-1074, 1024).astype(to_numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        expected = np.exp2(x.astype(np.longdouble)).astype(x.dtype)
    np.testing.assert_array_equal(compute(alu(Ops.EXP2), [x], [dtype]), expected)


@both
def test_log2(dtype: DType) -> None:
    near = 1 + random.normal(0, 1, COUNT) * 10.0 ** random.uniform(-7, -1, COUNT)
    x = mixed(dtype, random.uniform(0.5, 2, COUNT), near, np.exp2(random.uniform(-30, 30, COUNT)))
    assert error(Ops.LOG2, x, dtype) < 0.9


@both
def test_log2_of_powers_of_two_is_exact(dtype: DType) -> None:
    low, high = (-149, 127) if dtype is f32 else (-1074, 1023)
    exponents = np.arange(low, high + 1)
    x = np.array([math.ldexp(1.0, int(e)) for e in exponents], to_numpy_dtype(dtype))
    np.testing.assert_array_equal(compute(alu(Ops.LOG2), [x], [dtype]), exponents)


@both
def test_pow(dtype: DType) -> None:
    kind = to_numpy_dtype(dtype)
    fine = (1 + random.normal(0, 1e-3, COUNT)).astype(kind)
    x = np.concatenate([np.exp2(random.uniform(-20, 20, COUNT)).astype(kind), fine])
    y = np.concatenate([random.uniform(-10, 10, COUNT), random.normal(0, 1e5, COUNT)]).astype(kind)
    bases = -random.integers(1, 60, COUNT).astype(kind)
    exponents = random.integers(-60, 60, COUNT).astype(kind)
    x = np.concatenate([x, any_bits(dtype, COUNT), bases])
    y = np.concatenate([y, any_bits(dtype, COUNT), exponents])
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
    worst = worst_ulp(compute(alu(Ops.POW), [x, y], [dtype, dtype]), expected)
    assert worst < (0.51 if dtype is f32 else 1.15)


@both
def test_pow_edges(dtype: DType) -> None:
    """Every pair of special values, as C says."""
    values = [*EDGES[:16], -2.0, -3.0, -1.5, 4.0, -4.0, 1.5, 2.0**24 + 1, 2.0**53 - 1, -(2.0**53)]
    with np.errstate(all="ignore"):
        pairs = np.array(list(itertools.product(values, values)), to_numpy_dtype(dtype))
        x, y = pairs[:, 0].copy(), pairs[:, 1].copy()
        expected = np.power(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
    assert worst_ulp(compute(alu(Ops.POW), [x, y], [dtype, dtype]), expected) < 1.15


@both
@pytest.mark.parametrize("renderer", [PLAIN, CRenderer()], ids=["no rounding", "c"])
def test_other_renderers(dtype: DType, renderer: Renderer) -> None:
    """C without fused multiply-add, and LLVM without a rounding instruction."""
    x = mixed(dtype, random.normal(0, 30, 10_000))
    assert error(Ops.EXP2, x, dtype, renderer) < 1.25
    assert error(Ops.LOG2, x, dtype, renderer) < 0.9
    y = random.normal(0, 3, len(x)).astype(x.dtype)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
    found = compute(alu(Ops.POW), [x, y], [dtype, dtype], renderer)
    assert worst_ulp(found, expected) < (0.51 if dtype is f32 else 1.15)


@both
def test_raw_operands_are_safe(dtype: DType) -> None:
    """The interpreter raises if a shift or a conversion goes out of its range."""
    x = edges(dtype)
    for op in (Ops.EXP2, Ops.LOG2):
        found, want = interpret(alu(op), [x], [dtype]), compute(alu(op), [x], [dtype])
        np.testing.assert_array_max_ulp(found[np.isfinite(found)], want[np.isfinite(found)], 1)
    interpret(alu(Ops.POW), [x, x[::-1].copy()], [dtype, dtype], PLAIN)
