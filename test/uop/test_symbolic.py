"""Simplification keeps every value: random expressions, reshape chains, wraps, float edges."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from weft.dtype import DType, dtypes
from weft.uop import text as printing  # noqa: F401 (registers UOp.render)
from weft.uop.evaluate import evaluate_uop
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, Variable
from weft.uop.opset import OPSET, GroupOp, Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import simplify, sym, symbolic, symbolic_simple


def points(variables: list[UOp]) -> Iterator[dict[UOp, int]]:
    """Every combination of values of variables and ranges."""
    axes = [range(v.vmin, v.vmax + 1) for v in variables]
    for point in itertools.product(*axes):
        yield dict(zip(variables, point, strict=True))


def same_value(left: Any, right: Any) -> bool:
    """Bit equality, any nan being any other."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


def check_same(node: UOp, variables: list[UOp], rules: Any = symbolic) -> UOp:
    after = graph_rewrite(node, rules)
    assert after.dtype is node.dtype
    for values in points(variables):
        before_value, after_value = evaluate_uop(node, values), evaluate_uop(after, values)
        assert same_value(before_value, after_value), (
            f"{node.text()} => {after.text()} at {values}: {before_value} != {after_value}"
        )
    # what came out is final
    assert graph_rewrite(after, rules) is after, after.text()
    return after


class Expressions:
    """Random int and bool expressions over some leaves."""

    def __init__(self, seed: int, leaves: list[UOp]) -> None:
        self.random = random.Random(seed)
        self.leaves = leaves
        self.dtype = leaves[0].dtype

    def constant(self, low: int, high: int) -> UOp:
        return UOp.const(self.dtype, self.random.randint(low, high))

    def number(self, depth: int) -> UOp:
        if depth == 0 or self.random.random() < 0.1:
            return self.random.choice([*self.leaves, *self.leaves, self.constant(-9, 20)])
        x = self.number(depth - 1)
        kind = self.random.choice("++++**//%%nm?x&s")
        if kind == "+":
            return x + self.number(depth - 1)
        if kind == "*":
            return x * self.constant(-5, 12)
        if kind == "/":
            return x // self.constant(-3, 12)
        if kind == "%":
            return x % self.constant(-3, 12)
        if kind == "m":
            return x.maximum(self.number(depth - 1))
        if kind == "?":
            return self.condition(depth - 1).where(x, self.number(depth - 1))
        if kind == "x":
            return ~x
        if kind == "&":
            return x & self.constant(0, 15)
        if kind == "s":
            return self.random.choice([x << 2, x >> 1, x * self.number(depth - 1)])
        return -x

    def condition(self, depth: int) -> UOp:
        kind = self.random.choice("<<<=!&|~") if depth > 0 else "<"
        if kind in "&|":
            x, y = self.condition(depth - 1), self.condition(depth - 1)
            return x & y if kind == "&" else x | y
        if kind == "~":
            return self.condition(depth - 1).logical_not()
        x = self.number(max(depth - 1, 0))
        y = self.random.choice([self.constant(-9, 30), self.number(max(depth - 1, 0))])
        if kind == "<":
            return self.random.choice([x < y, y < x, x >= y])
        return x.eq(y) if kind == "=" else x.ne(y)


@pytest.mark.parametrize("seed", range(10))
def test_random_index_expressions(seed: int) -> None:
    leaves = [UOp.range(4, 0), UOp.range(3, 1), UOp.variable("v", -4, 5)]
    make = Expressions(seed, leaves)
    for _ in range(60):
        check_same(make.number(4), leaves)
        check_same(make.condition(3), leaves)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_random_wrapping_expressions(seed: int, dtype: DType) -> None:
    low, high = dtype.min, dtype.max
    leaves = [
        UOp.variable("edge", high - 3, high, dtype),
        UOp.variable("least", low, low + 2, dtype),
        UOp.variable("small", 0, 4, dtype),
    ]
    make = Expressions(seed, leaves)
    for _ in range(60):
        check_same(make.number(4), leaves)
        check_same(make.condition(3), leaves)


def test_random_mixed_radix() -> None:
    generator = random.Random(3)
    for _ in range(80):
        sizes = [generator.randint(1, 4) for _ in range(3)]
        axes = [UOp.range(size, number) for number, size in enumerate(sizes)]
        flat = (axes[0] * sizes[1] + axes[1]) * sizes[2] + axes[2]
        total = sizes[0] * sizes[1] * sizes[2]
        first = generator.choice([d for d in range(1, total + 1) if total % d == 0])
        inner = total // first
        offset = generator.choice([0, 0, 1, 5, -3])
        for node in ((flat + offset) // inner, (flat + offset) % inner, flat // inner % 3):
            check_same(node, axes)
        # split and merged again, nothing may be left of it
        again = flat // inner * inner + flat % inner
        assert graph_rewrite(again, symbolic) is graph_rewrite(flat, symbolic)


a, b, c = UOp.range(5, 0), UOp.range(3, 1), UOp.range(4, 2)
n, m = Variable("n", 1, 100), Variable("m", 2, 9)
outer, by_n, by_m = UOp.range(7, 3), UOp.range(n, 4), UOp.range(m, 5)
flat = (a * 3 + b) * 4 + c
nested = (by_m * n + by_n) * 4 + c

COLLAPSES = [
    ((a * 12 + UOp.range(12, 6)) // 12, "r0"),
    ((a * 12 + UOp.range(12, 6)) % 12, "r6"),
    (flat // 12, "r0"),
    (flat // 4 % 3, "r1"),
    (flat % 12 // 4, "r1"),
    (flat % 4, "r2"),
    (flat // 4 * 4 + flat % 4, "r0*12+r1*4+r2"),
    (flat // 12 * 12 + flat // 4 % 3 * 4 + flat % 4, "r0*12+r1*4+r2"),
    ((flat // 6) * 6 + flat % 6, "r0*12+r1*4+r2"),
    ((outer * n + by_n) // n, "r3"),
    ((outer * n + by_n) % n, "r4"),
    (nested // (n * 4), "r5"),
    (nested // 4 % n, "r4"),
    (nested % 4, "r2"),
    (nested % (n * 4), "r2+r4*4"),
    ((outer * (n + 1) + UOp.range(n + 1, 6)) // (n + 1), "r3"),
    ((outer * (n + 1) + UOp.range(n + 1, 6)) % (n + 1), "r6"),
    ((11 - c) % 12, "-r2+11"),
    (a % 12, "r0"),
    (a // 5, "0"),
    ((6 * a + 4 * b) // 2, "r0*3+r1*2"),
    (a - a // 2 * 2, "r0%2"),
    (a // 2 // 3, "0"),
    (by_n // 3 // 4, "r4//12"),
    (by_n % 24 % 8, "r4%8"),
    (by_n // 4 % 3 * 4 + by_n % 4, "r4%12"),
    (a + b - a, "r1"),
    (a * 2 + a * 3, "r0*5"),
    ((a + 3) + (b + 4), "r0+r1+7"),
    (by_n < n, "True"),
    (by_n + 1 < n + 1, "True"),
    (n < by_n, "False"),
    (a * 4 + c < 8, "r0<2"),
    ((a + 3 < 5), "r0<2"),
    ((a < 9), "True"),
    (a >= 2, "1<r0"),
    ((a >= 1) & (a < 2), "r0==1"),
    ((a >= 3) & (a < 2), "False"),
    ((a < 3) & (a < 2), "r0<2"),
    ((a < 3) | (a < 2), "r0<3"),
    ((a < 3) | (a >= 2), "True"),
    ((a * 2).eq(5), "False"),
    ((a * 2 + 2).eq(6), "r0==2"),
    (a ^ (a ^ b), "r1"),
    (~~a, "r0"),
    (by_n // 4 < 3, "r4<12"),
    (by_n // 4 >= 3, "11<r4"),
    (a.minimum(10), "r0"),
    (a.maximum(-1), "r0"),
    (by_n >> 2, "r4//4"),
    (by_n & 7, "r4%8"),
    (a << 3, "r0*8"),
]


@pytest.mark.parametrize(
    ("before", "after"), COLLAPSES, ids=[f"{x.text()}=>{y}" for x, y in COLLAPSES]
)
def test_collapses_to(before: UOp, after: str) -> None:
    found = graph_rewrite(before, symbolic)
    text = str(found.arg) if found.op is Ops.CONST else found.text()
    assert text.replace(" ", "") == after


# ------------------------------------------------------------ every fold, for every dtype
def foldable(op: Ops, dtype: DType) -> bool:
    kinds = {
        "any": ("bool", "int", "uint", "float"),
        "float": ("float",),
        "int": ("int", "uint"),
        "number": ("int", "uint", "float"),
        "bits": ("int", "uint", "bool"),
    }
    return dtype.kind in kinds[OPSET[op].on] and op is not Ops.THREEFRY


SMALL_EDGES = {
    "int": [-128, -127, -2, -1, 0, 1, 2, 7, 126, 127],
    "uint": [0, 1, 2, 7, 127, 128, 254, 255],
    "bool": [False, True],
    "float": [-math.inf, -2.0, -1.0, -0.0, 0.0, 0.25, 1.0, 2.0, 3.0, 1e30, math.inf, math.nan],
}
DTYPES = [dtypes.int8, dtypes.uint8, dtypes.bool, dtypes.float32, dtypes.float16]


def leaf(dtype: DType, name: str) -> UOp:
    """A value nothing is known about."""
    slot = 0 if name == "x" else 1
    return UOp.param(slot, dtype, 9).index(UOp.const(dtypes.weakint, 0)).load()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "op", sorted(GroupOp.Binary, key=lambda op: op.name), ids=lambda op: op.name
)
def test_binary_op_with_each_constant(op: Ops, dtype: DType) -> None:
    if not foldable(op, dtype):
        return
    x, values = leaf(dtype, "x"), SMALL_EDGES[dtype.kind]
    for number in values:
        constant = UOp.const(dtype, number)
        for node in (x.alu(op, constant), constant.alu(op, x), x.alu(op, x)):
            after = graph_rewrite(node, sym)
            for value in values:
                point = {x: dtype.const(value)}
                before_value, after_value = evaluate_uop(node, point), evaluate_uop(after, point)
                assert same_value(before_value, after_value), (op, number, value, after.text())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nested_ops_with_constants(dtype: DType) -> None:
    x, y = leaf(dtype, "x"), leaf(dtype, "y")
    values = SMALL_EDGES[dtype.kind]
    generator = random.Random(11)
    usable = [op for op in sorted(GroupOp.Binary, key=lambda op: op.name) if foldable(op, dtype)]
    usable = [op for op in usable if op not in GroupOp.Comparison and op is not Ops.POW]
    for _ in range(400):
        first, second = generator.choice(usable), generator.choice(usable)
        left = generator.choice([x, y, UOp.const(dtype, generator.choice(values))])
        right = generator.choice([x, y, UOp.const(dtype, generator.choice(values))])
        inner = x.alu(first, left)
        node = generator.choice([inner.alu(second, right), right.alu(second, inner)])
        if generator.random() < 0.3:
            compared = generator.choice(sorted(GroupOp.Comparison, key=lambda op: op.name))
            node = node.alu(compared, generator.choice([y, right]))
        after = graph_rewrite(node, sym)
        for value, other in itertools.product(values, repeat=2):
            point = {x: dtype.const(value), y: dtype.const(other)}
            before_value, after_value = evaluate_uop(node, point), evaluate_uop(after, point)
            assert same_value(before_value, after_value), (node.text(), after.text(), point)


@pytest.mark.parametrize("source", [*DTYPES, dtypes.int32, dtypes.int64], ids=str)
def test_casts_of_casts(source: DType) -> None:
    x = leaf(source, "x")
    middle_types = [*DTYPES, dtypes.int16, dtypes.uint32, dtypes.float64, dtypes.bfloat16]
    values = [source.const(v) for v in SMALL_EDGES[source.kind]]
    values += [source.const(v) for v in (300, 70000, -70000)] if source.kind == "int" else []
    for middle, target in itertools.product(middle_types, repeat=2):
        node = x.cast(middle).cast(target)
        after = graph_rewrite(node, sym)
        for value in values:
            before_value = evaluate_uop(node, {x: value})
            assert same_value(before_value, evaluate_uop(after, {x: value})), (middle, target)


# ------------------------------------------------------------ cost and plumbing
class Counting(PatternMatcher):
    """Rules that count how many nodes they were offered."""

    offered = 0

    def rewrite(self, uop: UOp, ctx: Any = None) -> Any:
        self.offered += 1
        return super().rewrite(uop, ctx)


@pytest.mark.parametrize("dtype", [dtypes.weakint, dtypes.int32], ids=str)
def test_sums_that_grow_in_order_are_read_once(dtype: DType) -> None:
    rules = Counting(symbolic.rules)
    total = UOp.variable("v000", 0, 9, dtype)
    for number in range(1, 500):
        total = total + UOp.variable(f"v{number:03}", 0, 9, dtype) * (number + 1)
    assert graph_rewrite(total, rules) is total
    assert rules.offered < 5 * 500


@pytest.mark.parametrize("dtype", [dtypes.weakint, dtypes.int32], ids=str)
def test_long_sums_in_any_order(dtype: DType) -> None:
    terms = [UOp.variable(f"v{i:03}", 0, 9, dtype) * (i + 1) for i in range(150)]
    random.Random(1).shuffle(terms)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    rules = Counting(symbolic.rules)
    after = graph_rewrite(total, rules)
    assert after._min_max == total._min_max
    assert rules.offered < 150 * 150 * 2


def test_deep_chains_do_not_recurse() -> None:
    x = UOp.variable("x", 0, 9, dtypes.int32)
    node, index = x, UOp.variable("i", 0, 9)
    for number in range(20_000):
        node = node + 1 if number % 2 else node.maximum(3)
        index = index + 1
    assert graph_rewrite(index, symbolic).text() == "i+20000"
    graph_rewrite(node, symbolic)


def test_simplify_is_remembered_and_registered() -> None:
    node = (n + 3) - 3
    assert node.simplify() is n
    assert simplify(node) is n
    assert ((n - n) + 4).ssimplify() == 4


def test_order_of_terms_does_not_matter() -> None:
    terms = [a * 3, b, c * n, n * 2, UOp.const(dtypes.weakint, 5)]
    found = {
        graph_rewrite(v + w + x + y + z, symbolic)
        for v, w, x, y, z in itertools.permutations(terms)
    }
    assert len(found) == 1


def test_raw_ops_keep_their_meaning() -> None:
    """Truncating division must not be taken for a floor division."""
    x = UOp.variable("x", -9, 9, dtypes.int32)
    for node in (x // 4, x % 4, (x * 4 + 2) // 4, (x // 2) // 3):
        raw = node.substitute({u: u.rtag("raw") for u in node.toposort() if u.op in RAW})
        assert graph_rewrite(raw, sym) is raw


RAW = (Ops.IDIV, Ops.MOD)


def test_simple_set_leaves_index_arithmetic_alone() -> None:
    assert graph_rewrite(flat // 12, symbolic_simple) is flat // 12
    assert graph_rewrite(a * 1 + 0, symbolic_simple) is a
