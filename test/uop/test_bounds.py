"""Bounds hold every value: exhaustively on small intervals, for wrapping and unbounded ints."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from weft.dtype import DType, dtypes
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp
from weft.uop.opset import Ops

INTERVALS = [(0, 0), (1, 4), (-3, -3), (-5, -2), (-4, 3), (0, 7), (2, 9)]
EDGES = {
    dtypes.int8: [(-128, -120), (120, 127), (-128, 127), (-1, 1), (5, 5)],
    dtypes.uint8: [(0, 3), (250, 255), (0, 255), (128, 128), (7, 20)],
    dtypes.weakint: INTERVALS,
}
BINARY = [
    Ops.ADD,
    Ops.MUL,
    Ops.IDIV,
    Ops.MOD,
    Ops.MAX,
    Ops.CMPLT,
    Ops.CMPNE,
    Ops.CMPEQ,
    Ops.AND,
    Ops.OR,
    Ops.XOR,
    Ops.SHL,
    Ops.SHR,
]
# where the interval of every pair of intervals is the tightest one
EXACT = {Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPLT}


def variable(name: str, interval: tuple[int, int], dtype: DType = dtypes.weakint) -> UOp:
    return UOp.variable(name, *interval, dtype)


def all_values(node: UOp, *variables: UOp) -> set[Any]:
    axes = [range(v.arg.lo, v.arg.hi + 1) for v in variables]
    return {
        evaluate_uop(node, dict(zip(variables, point, strict=True)))
        for point in itertools.product(*axes)
    }


def check(node: UOp, *variables: UOp) -> None:
    found = all_values(node, *variables)
    assert node.vmin <= min(found), (node.text(), node._min_max, min(found))
    assert node.vmax >= max(found), (node.text(), node._min_max, max(found))


@pytest.mark.parametrize("dtype", [dtypes.weakint, dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_binary_ops_hold_every_value(op: Ops, dtype: DType) -> None:
    pairs = list(itertools.product(EDGES[dtype], repeat=2))
    for first, second in pairs:
        if (first[1] - first[0]) * (second[1] - second[0]) > 3000:
            continue
        x, y = variable("x", first, dtype), variable("y", second, dtype)
        check(x.alu(op, y), x, y)


@pytest.mark.parametrize("op", sorted(EXACT, key=lambda op: op.name), ids=lambda op: op.name)
def test_bounds_are_exact_for_index_arithmetic(op: Ops) -> None:
    for first, second in itertools.product(INTERVALS, repeat=2):
        x, y = variable("x", first), variable("y", second)
        node = x.alu(op, y)
        found = all_values(node, x, y)
        assert node._min_max == (min(found), max(found))


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, -1, -2, -5])
def test_division_and_modulo_by_a_constant_are_exact(divisor: int) -> None:
    for interval in [*INTERVALS, (-20, -15), (13, 15), (6, 6)]:
        x = variable("x", interval)
        for node in (x // divisor, x % divisor):
            found = all_values(node, x)
            if max(found) - min(found) < abs(divisor) - 1 or node.op is Ops.IDIV:
                low, high = node._min_max
                assert low <= min(found) and high >= max(found)
            if node.op is Ops.IDIV:
                assert node._min_max == (min(found), max(found))


def test_bitwise_not_is_exact() -> None:
    for interval in INTERVALS:
        x = variable("x", interval)
        assert (x ^ -1)._min_max == (-1 - interval[1], -1 - interval[0])
        assert (-1 ^ x)._min_max == (-1 - interval[1], -1 - interval[0])
        assert (~x)._min_max == (-1 - interval[1], -1 - interval[0])
    byte = variable("x", (3, 250), dtypes.uint8)
    assert (~byte)._min_max == (5, 252)


def test_weakint_never_wraps() -> None:
    x = variable("x", (0, 2**62))
    assert (x * 16).vmax == 2**66
    assert (x * x).vmax == 2**124


def test_concrete_ints_wrap() -> None:
    x = variable("x", (100, 120), dtypes.int8)
    assert (x + 100)._min_max == (-56, -36)
    assert (x + x)._min_max == (-56, -16)
    assert variable("y", (0, 127), dtypes.int8).alu(Ops.ADD, 1)._min_max == (-128, 127)
    least = variable("z", (-128, -128), dtypes.int8)
    assert (-least)._min_max == (-128, -128)
    assert (least // -1)._min_max == (-128, -128)


def test_square_is_not_negative() -> None:
    x = variable("x", (-3, 2))
    assert (x * x)._min_max == (0, 9)


def test_casts() -> None:
    x = variable("x", (-3, 200))
    assert x.cast(dtypes.int32)._min_max == (-3, 200)
    assert x.cast(dtypes.int8)._min_max == (-128, 127)
    assert x.cast(dtypes.bool)._min_max == (False, True)
    assert variable("y", (1, 4)).cast(dtypes.bool)._min_max == (True, True)
    assert (x < 3).cast(dtypes.int32)._min_max == (0, 1)
    assert x.cast(dtypes.float32)._min_max == (-3.0, 200.0)
    # nan gives 0, so 0 is always possible
    assert x.cast(dtypes.float32).cast(dtypes.uint8)._min_max == (0, 200)
    load = UOp.param(0, dtypes.float32, 4).index(UOp.const(dtypes.weakint, 0)).load()
    assert load.cast(dtypes.int8)._min_max == (-128, 127)


def test_float_comparisons_are_never_decided() -> None:
    x = UOp.const(dtypes.float32, 1.0)
    y = variable("y", (3, 4)).cast(dtypes.float32)
    for node in (x < y, y < x, x.ne(y), x.eq(y)):
        assert node._min_max == (False, True)


def test_nan_constant_has_no_narrow_bounds() -> None:
    assert UOp.const(dtypes.float32, math.nan)._min_max == (-math.inf, math.inf)


def test_ranges_and_binds() -> None:
    n = variable("n", (1, 10))
    assert UOp.range(5, 0)._min_max == (0, 4)
    assert UOp.range(n, 0)._min_max == (0, 9)
    assert UOp.range(0, 0)._min_max == (0, 0)
    # a replay may bind another value
    assert n.bind(3)._min_max == (1, 10)


def test_reductions() -> None:
    axis, x = UOp.range(6, 0), variable("x", (-1, 3))
    assert x.reduce(Ops.ADD, axis)._min_max == (-6, 18)
    assert x.reduce(Ops.MAX, axis)._min_max == (-1, 3)
    byte = variable("b", (0, 100), dtypes.uint8)
    assert byte.reduce(Ops.ADD, axis)._min_max == (0, 255)
    maybe_empty = UOp.range(variable("n", (0, 3)), 1)
    assert x.reduce(Ops.ADD, maybe_empty)._min_max == (-3, 9)


def test_where_and_vectors() -> None:
    x, y = variable("x", (0, 3)), variable("y", (10, 20))
    assert (x < 2).where(x, y)._min_max == (0, 20)
    assert (x < 9).where(x, y)._min_max == (0, 3)
    vector = UOp(Ops.VECTORIZE, dtypes.weakint.vec(2), (x, y))
    assert vector._min_max == (0, 20)


def test_raw_division_truncates() -> None:
    x = variable("x", (-7, 7), dtypes.int32)
    quotient, remainder = (x // 2).rtag("raw"), (x % 4).rtag("raw")
    assert quotient._min_max == (-3, 3)
    assert remainder.vmin <= -3 and remainder.vmax >= 3


def test_random_expressions_hold_every_value() -> None:
    generator = random.Random(5)
    for _ in range(300):
        variables = [variable(f"v{i}", generator.choice(INTERVALS)) for i in range(2)]
        node = random_expression(generator, variables, 4)
        check(node, *variables)


def random_expression(generator: random.Random, leaves: list[UOp], depth: int) -> UOp:
    """An int expression over the leaves and small constants."""
    if depth == 0 or generator.random() < 0.15:
        constant = UOp.const(leaves[0].dtype, generator.randint(-6, 12))
        return generator.choice([*leaves, *leaves, constant])
    x = random_expression(generator, leaves, depth - 1)
    y = random_expression(generator, leaves, depth - 1)
    op = generator.choice(["add", "add", "mul", "div", "mod", "max", "where", "neg", "xor"])
    if op == "add":
        return x + y
    if op == "mul":
        return x * generator.randint(-4, 6)
    if op == "div":
        return x // generator.randint(1, 6)
    if op == "mod":
        return x % generator.randint(1, 6)
    if op == "max":
        return x.maximum(y)
    if op == "xor":
        return ~x
    return -x if op == "neg" else (x < y).where(x, y)
