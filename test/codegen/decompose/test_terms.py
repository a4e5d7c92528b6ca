"""Building blocks of decompositions, evaluated."""

from __future__ import annotations

import math

import pytest

from weft import dtypes
from weft.codegen.decompose.terms import (
    absolute,
    constant,
    muladd,
    polynomial,
    power_of_two,
    raw,
    shift_left,
    shift_right,
    truncate_to,
    with_sign_of,
)
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp
from weft.uop.opset import Ops


def value(node: UOp) -> float:
    """What an expression of constants is."""
    return float(evaluate_uop(node))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_signs_and_powers(dtype: object) -> None:
    x = UOp.const(dtypes.float64, -2.5)
    assert value(absolute(x)) == 2.5
    assert value(with_sign_of(UOp.const(dtypes.float64, 3.0), x)) == -3.0
    whole = dtypes.int32 if dtype is dtypes.float32 else dtypes.int64
    power = power_of_two(UOp.const(whole, -3), dtype)  # type: ignore[arg-type]
    assert value(power) == 0.125


def test_polynomials_have_their_lowest_coefficient_first() -> None:
    x = UOp.const(dtypes.float64, 2.0)
    assert value(polynomial(x, [1.0, 0.0, 3.0])) == 13.0
    assert value(muladd(x, 3.0, 1.0)) == 7.0


def test_raw_ops_say_so() -> None:
    x = UOp.const(dtypes.int32, -8)
    assert value(shift_left(x, 1)) == -16 and value(shift_right(x, 1)) == -4
    assert {node.tag for node in (raw(Ops.SHL, x, 1), truncate_to(x, dtypes.int32))} == {"raw"}
    vector = UOp.const(dtypes.float32.vec(4), 1.0)
    assert constant(dtypes.int32, 3, vector).dtype == dtypes.int32.vec(4)
    assert math.isclose(value(constant(dtypes.float64, 0.5, x)), 0.5)
