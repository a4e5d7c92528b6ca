"""compare: `before => after` for conditions of ints."""

from __future__ import annotations

import itertools

import pytest

from weft.dtype import dtypes
from weft.uop import text as printing  # noqa: F401 (registers UOp.render)
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import symbolic

a, b, c = UOp.range(8, 0), UOp.range(3, 1), UOp.range(4, 2)
n = Variable("n", 1, 100)
axis = UOp.range(n, 3)
p = UOp.param(0, dtypes.bool, 9).index(UOp.const(dtypes.weakint, 0)).load()

FORMS = [
    (a < 8, "True"),
    (a < 0, "False"),
    (a * 4 < 16, "r0<4"),
    (a * 4 < 15, "r0<4"),
    (a * 4 < 17, "r0<5"),
    (a + 3 < 5, "r0<2"),
    (a * 4 + c < 16, "r0<4"),
    (a * 4 + c + 3 < 16, "r0*4+r2<13"),
    (a * 4 - c < 16, "r0*4<r2+16"),
    (-a < -3, "3<r0"),
    (a < b + 9, "True"),
    ((a < 3).logical_not(), "2<r0"),
    ((2 < a).logical_not(), "r0<3"),
    ((a < b).logical_not(), "r1<r0+1"),
    (axis < n, "True"),
    (axis + 2 < n + 2, "True"),
    (axis * 2 < n * 2, "True"),
    (n <= axis, "False"),
    (a.eq(9), "False"),
    (a.ne(9), "True"),
    ((a * 2).eq(3), "False"),
    ((a * 2 + 4).eq(8), "r0==2"),
    ((a + 1).eq(b + 1), "r0==r1"),
    (a.eq(a), "True"),
    ((a // 2) < 3, "r0<6"),
    ((a % 4) < 4, "True"),
    ((a < 5) & (a < 3), "r0<3"),
    ((1 < a) & (a < 3), "r0==2"),
    ((a < 2) & (4 < a), "False"),
    ((a < 5) & (b < 2) & (a < 3), "r0<3&r1<2"),
    (a.eq(3) & (a < 5), "r0==3"),
    (a.eq(3) & a.ne(3), "False"),
    (a.eq(3) & a.ne(4), "r0==3"),
    ((a < 5) | (a < 3), "r0<5"),
    ((a < 5) | (2 < a), "True"),
    ((a < 2) | (4 < a), "r0<2|4<r0"),
    (a.maximum(9), "9"),
    (a.maximum(0), "r0"),
    (a.minimum(7), "r0"),
    ((a & 15), "r0"),
]


def plain(node: UOp) -> str:
    text = str(node.arg) if node.op is Ops.CONST else node.text()
    return text.replace(" ", "").replace("(", "").replace(")", "")


@pytest.mark.parametrize(("before", "after"), FORMS, ids=[f"{x.text()}=>{y}" for x, y in FORMS])
def test_becomes(before: UOp, after: str) -> None:
    assert plain(graph_rewrite(before, symbolic)) == after


def test_a_loaded_condition_and_its_opposite() -> None:
    assert graph_rewrite(p & p.logical_not(), symbolic).arg is False
    assert graph_rewrite(p | p.logical_not(), symbolic).arg is True


def test_float_comparisons_stay() -> None:
    x = UOp.param(0, dtypes.float32, 9).index(UOp.const(dtypes.weakint, 0)).load()
    for node in ((x < 3.0).logical_not(), (x < 3.0) & (x < 2.0), x + 1.0 < 2.0, x * 2.0 < 4.0):
        assert graph_rewrite(node, symbolic) is node


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_every_byte_with_every_edge(dtype: object) -> None:
    low, high = dtype.min, dtype.max  # type: ignore[attr-defined]
    x = UOp.variable("x", low, high, dtype)  # type: ignore[arg-type]
    edges = [low, low + 1, 0, 1, 5, high - 1, high]
    for first, second in itertools.product(edges, repeat=2):
        for node in (
            (x < first).logical_not(),
            x.const_like(first) < x,
            (x + first) < second,
            (x + first).eq(second),
            (x * 2) < second,
            (x < first) & (x.const_like(second) < x),
            (x < first) | (x.const_like(second) < x),
            (x // 3) < second,
        ):
            after = graph_rewrite(node, symbolic)
            for value in range(low, high + 1):
                point = {x: value}
                assert evaluate_uop(node, point) == evaluate_uop(after, point), node.text()
