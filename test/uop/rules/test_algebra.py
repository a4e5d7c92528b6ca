"""algebra: `before => after` for sums and products of ints."""

from __future__ import annotations

import pytest

from weft.dtype import dtypes
from weft.uop import text as printing  # noqa: F401 (registers UOp.render)
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules.algebra import algebra
from weft.uop.rules.fold import fold

rules = fold + algebra
a, b, c = UOp.range(5, 0), UOp.range(3, 1), UOp.range(4, 2)
n, m = Variable("n", 1, 100), Variable("m", 1, 9)
x, y = (UOp.variable(name, -9, 9, dtypes.int32) for name in "xy")

FORMS = [
    (a * 2 + a * 3, "r0*5"),
    (b + a, "r0+r1"),
    ((a + 3) * 4, "r0*4+12"),
    ((a * 3) * 4, "r0*12"),
    ((a * 3 + b) * 4 + c, "r0*12+r1*4+r2"),
    (a - a, "0"),
    (-(a + b) + b, "-r0"),
    ((a + 1) + (b + 2), "r0+r1+3"),
    (n * a * m, "m*n*r0"),
    ((a + 4) * n, "n*4+n*r0"),
    ((a + b) * (n + m) - a * n - b * n, "m*r0+m*r1"),
    (a // 2 * 2 + a % 2, "r0"),
    (a // 2 % 3 * 2 + a % 2, "r0%6"),
    (a - a // 2 * 2, "r0%2"),
    (a // n * n + a % n, "r0"),
    (a << 3, "r0*8"),
    ((a + 2) + 3, "r0+5"),
    ((a + 2) + -2, "r0"),
    ((a + 2) + b * 3, "r0+r1*3+2"),
    ((b + 2) + a, "r0+r1+2"),
    ((a + 2) + a, "r0*2+2"),
    ((a // 2 * 2 + 7) + a % 2, "r0+7"),
    # concrete ints: combined, not multiplied out, not sorted
    (x * 2 + y + x * 3, "y+x*5"),
    (x + y - x, "y"),
    (x - x, "0"),
    ((x + 3) + 5, "x+8"),
    ((x + 3) + y, "x+y+3"),
    ((x * 3) * 5, "x*15"),
    ((x + 3) * 5, "x*5+15"),
    (-(x * 3), "x*-3"),
]


@pytest.mark.parametrize(
    ("before", "after"), FORMS, ids=[f"{k}: {v}" for k, (_, v) in enumerate(FORMS)]
)
def test_becomes(before: UOp, after: str) -> None:
    found = graph_rewrite(before, rules)
    assert found.text().replace(" ", "") == after


def test_floats_are_left_alone() -> None:
    value = UOp.param(0, dtypes.float32, 4).index(UOp.const(dtypes.weakint, 0)).load()
    for node in (value * 2 + value * 3, (value + 1.5) + 2.5, value - value, (value + 1.5) * 2.0):
        assert graph_rewrite(node, rules) is node


def test_wrapping_is_respected() -> None:
    byte = UOp.variable("x", -128, 127, dtypes.int8)
    assert graph_rewrite((byte * 100) * 3, rules) is byte * 44
    assert graph_rewrite((byte + 100) + 100, rules) is byte + (-56)


def test_coefficients_beyond_64_bits_are_not_made() -> None:
    large = a * (2**40) * (2**40)
    assert graph_rewrite(large, rules) is large


def test_shape_is_kept() -> None:
    tensor = UOp.new_buffer("TEST", 6, dtypes.int32)._mop(Ops.RESHAPE, (2, 3))
    assert graph_rewrite(tensor - tensor, rules).shape == (2, 3)
    weak = UOp(Ops.IOTA, dtypes.weakint, (), 6)
    assert graph_rewrite(weak - weak, rules).shape == (6,)
