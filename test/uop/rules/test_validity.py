"""validity: conditional loads fold into the index, indices simplify under their condition."""

from __future__ import annotations

import itertools
import random

import pytest

from weft.dtype import DType, dtypes
from weft.uop import text as printing  # noqa: F401 (registers UOp.render)
from weft.uop.args import AxisType, KernelInfo
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import simplify_index_under, simplify_valid, sym

r, k = UOp.range(10, 0), UOp.range(6, 1)
other = UOp.range(4, 2)
x = UOp.param(1, dtypes.float32, 100)
out = UOp.param(0, dtypes.float32, 100)


def simplified(node: UOp) -> UOp:
    return graph_rewrite(node, sym)


def number(value: float, dtype: DType = dtypes.float32) -> UOp:
    return UOp.const(dtype, value)


# ------------------------------------------------------------ where on load
def test_where_becomes_the_validity() -> None:
    assert simplified((r < 3).where(x.index(r).load(), number(0))) is x.index(r, r < 3).load()


def test_where_joins_a_validity() -> None:
    before = (2 < r).where(x.index(r, r < 8).load(), number(0))
    valid = simplified(before).src[0].src[2]
    assert valid.text().replace(" ", "") in ("2<r0&r0<8", "(r0<8)&(2<r0)", "r0<8&2<r0")


def test_where_with_a_cast_between() -> None:
    before = (r < 3).where(x.index(r).load().cast(dtypes.float16), number(0, dtypes.float16))
    assert simplified(before) is x.index(r, r < 3).load().cast(dtypes.float16)


def test_where_on_the_other_side() -> None:
    before = (r < 3).where(number(0), x.index(r).load())
    assert simplified(before) is x.index(r, 2 < r).load()
    either = ((r < 3) | (k < 2)).where(number(0), x.index(r + k).load())
    found = simplified(either)
    assert found.op is Ops.LOAD and len(found.src[0].src) == 3


def test_other_value_stays_a_where_around_a_masked_load() -> None:
    before = (r < 3).where(x.index(r).load(), number(-1))
    assert simplified(before) is (r < 3).where(x.index(r, r < 3).load(), number(-1))


def test_negative_zero_is_another_value() -> None:
    assert simplified((r < 3).where(x.index(r).load(), number(-0.0))).op is Ops.WHERE


def test_a_condition_on_another_axis_stays_outside() -> None:
    before = (other < 2).where(x.index(r).load(), number(0))
    assert simplified(before) is before
    both = ((other < 2) & (r < 3)).where(x.index(r).load(), number(0))
    assert simplified(both) is (other < 2).where(x.index(r, r < 3).load(), number(0))


def test_a_loaded_condition_stays_outside() -> None:
    value = x.index(r).load()
    before = (number(0) < value).where(value, number(0))
    assert simplified(before) is before


def test_implied_condition_does_not_loop() -> None:
    value = x.index(r, r < 3).load()
    before = (r < 5).where(value, number(7))
    assert simplified(before) is before


# ------------------------------------------------------------ the validity itself
def test_true_validity_disappears() -> None:
    assert simplified(x.index(r, r < 10).load()) is x.index(r).load()


def test_false_validity_reads_zero() -> None:
    assert simplified(x.index(r, r < 0).load()) is number(0)


def test_dead_store_is_dropped() -> None:
    live = out.index(r).store(number(1), r)
    dead = out.index(r, 20 < r).store(number(2), r)
    assert simplified(live.sink(dead, arg=KernelInfo())).src == (live,)


def test_implied_clauses_are_dropped() -> None:
    assert simplify_valid((r < 2) & (r * 6 + k < 20)) is (r < 2)


def test_contradiction_is_found() -> None:
    assert simplify_valid((r < 2) & (20 < r * 6 + k)).arg is False


# ------------------------------------------------------------ the index under it
CASES = [
    (r < 3, r % 3, "r0"),
    (r < 3, r // 3, "0"),
    ((2 < r) & (r < 6), r // 3, "1"),
    ((2 < r) & (r < 6), r % 3, "r0-3"),
    (r + k < 7, (r + k) % 7, "r0+r1"),
    ((0 < r + k) & (r + k < 8), (r + k + 6) % 7, "r0+r1-1"),
    ((r - 1).alu(Ops.CMPLT, 4), (r + 4) % 9, "r0+4"),
    (r.eq(4), r * 6 + k, "r0*6+r1"),
]


@pytest.mark.parametrize(("valid", "idx", "after"), CASES, ids=range(len(CASES)))
def test_index_under(valid: UOp, idx: UOp, after: str) -> None:
    valid, idx = simplified(valid), simplified(idx)
    found = simplify_index_under(valid, idx)
    for i in range(10):
        for j in range(6):
            if valid.substitute({r: _weak(i), k: _weak(j)}).simplify().arg:
                before = idx.substitute({r: _weak(i), k: _weak(j)}).simplify()
                assert found.substitute({r: _weak(i), k: _weak(j)}).simplify() is before
    text = str(found.arg) if found.op is Ops.CONST else found.text()
    assert text.replace(" ", "") == after


def _weak(value: int) -> UOp:
    return UOp.const(dtypes.weakint, value)


def test_a_load_inside_the_index_does_not_change() -> None:
    table = UOp.param(2, dtypes.int32, 10).index(r % 3).load().cast(dtypes.weakint)
    before = x.index(table + r % 3, r < 3)
    assert simplify_index_under(before.src[2], before.src[1]) is before.src[1]


def test_axes_of_symbolic_size_keep_their_identity() -> None:
    size = UOp.variable("n", 1, 50)
    axis = UOp.range(size, 3)
    valid = simplified((size + r < 9) & (axis < 5))
    found = simplify_index_under(valid, (axis + r) % 14 + axis % 5)
    assert {u for u in found.toposort() if u.op is Ops.RANGE} <= {axis, r}


# ------------------------------------------------------------ axes of size 1
def test_unit_axes_vanish() -> None:
    one, rest = UOp.range(1, 5), UOp.range(1, 6, AxisType.REDUCE)
    value = x.index(r * 1 + one + rest).load().reduce(Ops.ADD, rest)
    kernel = out.index(r + one).store(value, r, one).sink(arg=KernelInfo())
    after = simplified(kernel)
    assert after is out.index(r).store(x.index(r).load(), r).sink(arg=KernelInfo())


def test_empty_axis_is_no_unit_axis() -> None:
    empty = UOp.range(0, 5, AxisType.REDUCE)
    value = x.index(r).load().reduce(Ops.ADD, empty)
    assert simplified(value) is value


def test_random_indices_under_random_conditions() -> None:
    """Wherever the condition holds, the simplified index is the index."""
    generator = random.Random(17)
    axes = [UOp.range(6, 0), UOp.range(5, 1)]
    points = list(itertools.product(range(6), range(5)))

    def expression(depth: int) -> UOp:
        if depth == 0:
            return generator.choice(axes)
        inner = expression(depth - 1)
        step = generator.randint(2, 7)
        return generator.choice(
            [inner + expression(depth - 1), inner * step, inner // step, inner % step, inner + step]
        )

    for _ in range(150):
        parts = [expression(1) < generator.randint(1, 9) for _ in range(generator.randint(1, 3))]
        parts.append(generator.randint(-1, 3) < expression(1))
        valid, idx = parts[0], simplified(expression(3))
        for part in parts[1:]:
            valid = valid & part
        found = simplified(x.index(idx, valid).load())
        for point in points:
            values = dict(zip(axes, point, strict=True))
            holds = evaluate_uop(valid, values)
            if found.op is Ops.CONST:
                assert not holds
                continue
            index = found.src[0]
            still = evaluate_uop(index.src[2], values) if len(index.src) > 2 else True
            assert holds == still, (valid.text(), index.src[2:], values)
            if holds:
                assert evaluate_uop(idx, values) == evaluate_uop(index.src[1], values)
