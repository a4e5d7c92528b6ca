"""Functions of one value against NumPy and SciPy in float64, at their edges and in every float."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, dtypes
from weft.uop.node import UOp

scipy = optional("scipy")

WIDE = random(500, low=-30, high=30)
UNIT = np.concatenate([random(300, low=-1, high=1), np.float32([-1, -0.5, 0, 0.5, 1])])
ABOVE = random(300, low=0.001, high=200)
LARGE = np.float32([1e-20, 1e-6, 0.1, 1, 10, 100, 1e3, 1e4, 1e5, 1e10, 1e20])

FUNCTIONS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "exp": (random(500, low=-87, high=88), np.exp),
    "exp2": (random(500, low=-120, high=120), np.exp2),
    "log": (ABOVE, np.log),
    "log2": (ABOVE, np.log2),
    "log10": (ABOVE, np.log10),
    "sqrt": (ABOVE, np.sqrt),
    "rsqrt": (ABOVE, lambda x: 1 / np.sqrt(x)),
    "reciprocal": (ABOVE, lambda x: 1 / x),
    "sin": (WIDE, np.sin),
    "cos": (np.concatenate([WIDE, LARGE, [math.pi / 2, 3 * math.pi / 2]]), np.cos),
    "tan": (np.concatenate([WIDE, np.float32([1.57, -1.57, 1.5707])]), np.tan),
    "asin": (UNIT, np.arcsin),
    "acos": (UNIT, np.arccos),
    "atan": (np.concatenate([WIDE, LARGE]), np.arctan),
    "sinh": (random(300, low=-80, high=80), np.sinh),
    "cosh": (random(300, low=-80, high=80), np.cosh),
    "tanh": (WIDE, np.tanh),
    "asinh": (np.concatenate([WIDE, LARGE]), np.arcsinh),
    "acosh": (np.concatenate([ABOVE + 1, [1.0]]), np.arccosh),
    "atanh": (random(300, low=-0.999, high=0.999), np.arctanh),
    "erf": (random(500, low=-6, high=6), scipy.special.erf),
    "sigmoid": (WIDE, scipy.special.expit),
    "square": (WIDE, np.square),
    "abs": (WIDE, np.abs),
    "floor": (WIDE, np.floor),
    "ceil": (WIDE, np.ceil),
    "trunc": (WIDE, np.trunc),
    "round": (np.concatenate([WIDE, np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 1e10])]), np.round),
    "sign": (np.concatenate([WIDE, [0.0]]), np.sign),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_function(name: str, dtype: Any) -> None:
    data, reference = FUNCTIONS[name]
    data = data.astype(np.float32).astype(dtype.name)
    check(getattr(Tensor(data), name)(), reference(data.astype(np.float64)))


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "sqrt"])
def test_half_loses_nothing_to_constants(name: str) -> None:
    data = random(200, low=0.1, high=8).astype(np.float16)
    result = getattr(Tensor(data), name)()
    assert result.dtype is dtypes.float16
    check(result, FUNCTIONS[name][1](data.astype(np.float64)))


@pytest.mark.parametrize("name", ["exp", "log", "sin", "sqrt", "tanh"])
def test_ints_become_floats(name: str) -> None:
    result = getattr(Tensor([1, 2, 3]), name)()
    assert result.dtype is dtypes.default_float
    check(result, FUNCTIONS[name][1](np.array([1.0, 2.0, 3.0])))


EDGES = {
    "exp": [(math.inf, math.inf), (-math.inf, 0.0), (100.0, math.inf), (-200.0, 0.0)],
    "log": [(0.0, -math.inf), (-1.0, math.nan), (math.inf, math.inf)],
    "tanh": [(math.inf, 1.0), (-math.inf, -1.0), (1e-20, 1e-20)],
    "sigmoid": [(math.inf, 1.0), (-math.inf, 0.0)],
    "erf": [(math.inf, 1.0), (-math.inf, -1.0), (1e-20, 1.1283791670955126e-20)],
    "cos": [(math.inf, math.nan), (0.0, 1.0)],
    "atan": [(math.inf, math.pi / 2), (-math.inf, -math.pi / 2)],
    "asin": [(2.0, math.nan)],
    "asinh": [(math.inf, math.inf), (-math.inf, -math.inf), (1e-20, 1e-20)],
    "acosh": [(0.5, math.nan), (math.inf, math.inf)],
    "atanh": [(1.0, math.inf), (-1.0, -math.inf), (2.0, math.nan)],
    "floor": [(-0.5, -1.0), (math.inf, math.inf)],
    "round": [(-0.5, -0.0), (0.5, 0.0), (8388609.0, 8388609.0)],
    "sign": [(math.nan, math.nan), (0.0, 0.0)],
    "abs": [(-0.0, 0.0), (-math.inf, math.inf)],
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    pairs = EDGES[name]
    values = getattr(Tensor([x for x, _ in pairs]), name)().numpy()
    np.testing.assert_allclose(values, np.float32([y for _, y in pairs]), rtol=1.3e-6, atol=0)
    assert math.isnan(getattr(Tensor([math.nan]), name)().item())


def test_signs_of_zero() -> None:
    assert math.copysign(1, Tensor([-0.0]).abs().item()) == 1
    assert math.copysign(1, Tensor([-0.5]).ceil().item()) == -1
    assert math.copysign(1, Tensor([-0.0]).minimum(0.0).item()) == -1
    assert Tensor([1.0, -2.0]).copysign(Tensor([-0.0, 0.0])).tolist() == [-1.0, 2.0]


def test_minimum_of_every_kind_of_number() -> None:
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.float32):
        data = [0, 1, 2, 100]
        assert Tensor(data, dtype=dtype).minimum(2).tolist() == [0, 1, 2, 2]
    assert Tensor([-128, 127], dtype=dtypes.int8).minimum(
        Tensor([127, -128], dtype=dtypes.int8)
    ).tolist() == [-128, -128]
    assert math.isnan(Tensor([math.nan]).minimum(1.0).item())
    assert Tensor([True, False]).minimum(True).tolist() == [True, False]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, -1, 0.5, -0.5, 2.0, 1.7])
def test_pow_of_floats(exponent: float) -> None:
    data = random(100, low=0.1, high=5)
    check(Tensor(data) ** exponent, data.astype(np.float64) ** exponent)


def test_pow_of_ints() -> None:
    assert (Tensor([2, -3, 5]) ** 3).tolist() == [8, -27, 125]
    assert (Tensor([2, 3]) ** Tensor([10, 4])).tolist() == [1024, 81]
    assert (Tensor([1, -1, 2]) ** -1).tolist() == [1, -1, 0]
    assert (3 ** Tensor([0, 1, 2])).tolist() == [1, 3, 9]
    assert (Tensor([7, 0]) ** 0).tolist() == [1, 1]
    assert (2.0 ** Tensor([3.0])).tolist() == [8.0]


def test_fmod_and_lerp() -> None:
    check(Tensor([5.5, -5.5]).fmod(2.0), np.fmod([5.5, -5.5], 2.0))
    assert Tensor([7, -7]).fmod(3).tolist() == [1, -1]
    check(Tensor([0.0, 10.0]).lerp(Tensor([10.0, 0.0]), 0.25), [2.5, 7.5])


def test_clip() -> None:
    assert Tensor([-5, 3, 9]).clip(0, 5).tolist() == [0, 3, 5]
    assert Tensor([-5, 3]).clamp(min_=0).tolist() == [0, 3]


def test_shared_with_uop() -> None:
    x = UOp.variable("x", 0, 10).cast(dtypes.float32)
    for name in ("exp", "tanh", "erf", "cos", "atan", "floor", "sigmoid"):
        assert getattr(x, name)().dtype is dtypes.float32


@pytest.mark.parametrize("name", ["asinh", "acosh"])
def test_inverse_hyperbolic_functions_of_large_doubles(name: str) -> None:
    """log(2x) is not near enough to them before 1e8: at 26366 it was wrong from the 11th digit."""
    data = np.logspace(3, 300, 200)
    values = getattr(Tensor(data), name)().numpy()
    np.testing.assert_allclose(values, getattr(np, f"arc{name[1:]}")(data), rtol=1e-15)
