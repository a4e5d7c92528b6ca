"""divmod: rules proved with z3 where they can be, and checked point by point."""

from __future__ import annotations

import itertools

import pytest

from test.optional import need
from weft.dtype import dtypes
from weft.uop import text as printing  # noqa: F401 (registers UOp.render)
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import symbolic

z3 = need("z3")

a, b, c = UOp.range(5, 0), UOp.range(3, 1), UOp.range(4, 2)
n = Variable("n", 1, 100)
wide = Variable("w", -1000, 1000)


def to_z3(node: UOp) -> tuple[object, list[object]]:
    """The expression for z3, and the bounds of its leaves.

    z3's division is a floor for positive divisors.
    """
    done: dict[UOp, object] = {}
    bounds: list[object] = []
    for u in node.toposort():
        src = [done.get(s) for s in u.src]
        if u.op is Ops.CONST:
            done[u] = z3.IntVal(u.arg)
        elif u.op in (Ops.RANGE, Ops.VARIABLE):
            name = f"r{u.arg.number[0]}" if u.op is Ops.RANGE else u.arg.name
            done[u] = z3.Int(name)
            high = done[u.src[0]] - 1 if u.op is Ops.RANGE else u.vmax
            bounds += [done[u] >= u.vmin, done[u] <= high]
        else:
            done[u] = _Z3[u.op](*src)
    return done[node], bounds


_Z3 = {
    Ops.ADD: lambda x, y: x + y,
    Ops.MUL: lambda x, y: x * y,
    Ops.NEG: lambda x: -x,
    Ops.IDIV: lambda x, y: x / y,
    Ops.MOD: lambda x, y: x % y,
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPEQ: lambda x, y: x == y,
    Ops.CMPNE: lambda x, y: x != y,
}


def proved_equal(before: UOp, after: UOp) -> bool:
    left, bounds = to_z3(before)
    right, more = to_z3(after)
    solver = z3.Solver()
    solver.set("timeout", 5000)
    solver.add(*bounds, *more, left != right)
    return bool(solver.check() == z3.unsat)


PROVED = [
    (wide * 6 + 4) // 2,
    (wide * 6 + 4) // 4,
    (wide * 6 + 5) % 4,
    (wide * 12 + c * 3 + b) // 12,
    (wide * 12 + c * 3 + b) % 12,
    (wide * 12 + c * 3 + b) // 6,
    (wide * 12 + c * 3 + b) % 6,
    (wide * -5 + c) % 5,
    (wide + 7) // 4,
    (wide - 7) // 4,
    wide // 3 // 5,
    (wide // 3 + 2) // 5,
    wide % 12 % 4,
    wide % 12 // 4,
    (wide % 12 + c) % 4,
    wide // 4 * 4 + wide % 4,
    wide // 4 % 3 * 4 + wide % 4,
    wide - wide // 7 * 7,
    (wide * 3 + c) // 2 * 2 + (wide * 3 + c) % 2,
    wide // 4 < 5,
    wide // 4 >= 5,
    wide * 4 + c < 16,
    wide * 4 - c < 17,
    wide * -6 + 4 < b * 2,
    (wide * 6 + 4).eq(10),
    (wide * 6 + 4).eq(9),
]


@pytest.mark.parametrize("before", PROVED, ids=[x.text() for x in PROVED])
def test_proved_by_z3(before: UOp) -> None:
    after = graph_rewrite(before, symbolic)
    assert after is not before
    assert proved_equal(before, after), f"{before.text()} => {after.text()}"


FORMS = [
    ((a * 12 + b * 4 + c) // 8, "(r0*3+r1)//2"),
    ((a * 12 + b * 4 + c) % 8, "(r0+r1)%2*4+r2"),
    (wide // -3, "-w//3"),
    ((a * n + UOp.range(n, 3)) // n, "r0"),
    ((a * n * 2 + UOp.range(n, 3)) // (n * 2), "r0"),
    ((a * n * 2 + UOp.range(n, 3)) % n, "r3"),
    ((wide + 9) % 4, "(w+1)%4"),
    (n // n, "1"),
]


@pytest.mark.parametrize(("before", "after"), FORMS, ids=[x.text() for x, _ in FORMS])
def test_becomes(before: UOp, after: str) -> None:
    assert graph_rewrite(before, symbolic).text().replace(" ", "") == after


def test_symbolic_sizes_at_every_value() -> None:
    size = Variable("s", 1, 4)
    axis = UOp.range(size, 3)
    for node in (
        (a * size + axis) // size,
        (a * size + axis) % size,
        (a * size * 3 + axis * 3 + b) // (size * 3),
        (a * size * 3 + axis * 3 + b) // 3 % size,
        (a * (size + 2) + axis) // (size + 2),
    ):
        after = graph_rewrite(node, symbolic)
        assert not any(u.op in (Ops.IDIV, Ops.MOD) for u in after.toposort())
        for s in range(1, 5):
            for point in itertools.product(range(5), range(3), range(s)):
                values = {size: s, a: point[0], b: point[1], axis: point[2]}
                assert evaluate_uop(node, values) == evaluate_uop(after, values)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_wrapping_dividends_are_left_alone(dtype: object) -> None:
    """x*4//4 is x for an index, not for an int8 that wraps."""
    x = UOp.variable("x", dtype.min, dtype.max, dtype)  # type: ignore[attr-defined]
    for node in (
        (x * 4) // 4,
        (x * 4 + 2) % 4,
        (x + 4) // 4,
        (x * 6) // 3,
        x % 12 % 4,
        x // 3 // 50,
    ):
        after = graph_rewrite(node, symbolic)
        for value in range(dtype.min, dtype.max + 1):  # type: ignore[attr-defined]
            assert evaluate_uop(node, {x: value}) == evaluate_uop(after, {x: value}), node.text()


def test_concrete_ints_that_cannot_wrap_simplify() -> None:
    x = UOp.variable("x", 0, 9, dtypes.int32)
    y = UOp.variable("y", 0, 3, dtypes.int32)
    assert graph_rewrite((x * 4 + y) // 4, symbolic) is x
    assert graph_rewrite((x * 4 + y) % 4, symbolic) is y
