"""widen: half types compute in float32, and every result is a number of the half type."""

from __future__ import annotations

import numpy as np

from test.codegen.kernel_builder import Axes, const, kernel, load, params, run
from weft.codegen.widen import widen
from weft.dtype import NARROW_FLOATS, dtypes
from weft.uop.args import StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

HALF = dtypes.float16


def test_arithmetic_is_wide_and_every_op_rounds() -> None:
    out, x = np.zeros(4, np.float16), np.array([1, 2049, 0.1, 1e-7], np.float16)
    o, p = params(out, x)
    i = Axes().loop(4)
    sink = kernel(o.index(i).store((load(p, i) + 1) * 3, i))
    nodes = widen(sink).toposort()
    assert not any(u.op in GroupOp.ALU and u.dtype in NARROW_FLOATS for u in nodes)
    run(sink, out, x)
    np.testing.assert_array_equal(out, (x + np.float16(1)) * np.float16(3))


def test_choices_and_signs_round_nothing() -> None:
    out, x = np.zeros(4, np.float16), np.array([1, -2, 0.1, 1e-7], np.float16)
    o, p = params(out, x)
    i = Axes().loop(4)
    value = load(p, i)
    sink = kernel(o.index(i).store((value < 0).where(-value, value).maximum(0.5), i))
    casts = [u for u in widen(sink).toposort() if u.op is Ops.CAST]
    assert len(casts) == 2, "the load is widened, the store is narrowed"
    run(sink, out, x)
    np.testing.assert_array_equal(out, np.maximum(np.abs(x), np.float16(0.5)))


def test_a_value_is_the_same_number_stored_and_read_in_place() -> None:
    out, seen = np.zeros(64, np.float16), np.zeros(64, np.int32)
    x = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    o, s, p = params(out, seen, x)
    a = Axes()
    i, j = a.loop(64), a.loop(64)
    third = UOp.const(HALF, 1 / 3)
    run(kernel(o.index(i).store(load(p, i) * third, i)), out, seen, x)
    again = kernel(s.index(j).store((load(p, j) * third).eq(load(o, j)).cast(dtypes.int32), j))
    run(again, out, seen, x)
    assert seen.all()


def test_an_explicit_cast_rounds() -> None:
    out, x = np.zeros(1, np.float32), np.array([1 + 2**-12], np.float32)
    o, p = params(out, x)
    value = load(p, const(0)).cast(HALF).cast(dtypes.float32) + 1
    run(kernel(o.index(const(0)).store(value)), out, x)
    assert out[0] == 2.0


def test_reduce_accumulates_wide() -> None:
    out, x = np.zeros(1, np.float16), np.full(4096, 1.0, np.float16)
    o, p = params(out, x)
    r = Axes().reduce(4096)
    run(kernel(o.index(const(0)).store(load(p, r).reduce(Ops.ADD, r))), out, x)
    assert out[0] == 4096


def test_maximum_of_halves_starts_from_minus_infinity() -> None:
    out, x = np.zeros(1, np.float16), np.full(3, -np.inf, np.float16)
    o, p = params(out, x)
    r = Axes().reduce(3)
    run(kernel(o.index(const(0)).store(load(p, r).reduce(Ops.MAX, r))), out, x)
    assert out[0] == -np.inf


def test_bits_of_a_loaded_half_are_its_own() -> None:
    out, x = np.zeros(2, np.uint16), np.array([0.1, -3], np.float16)
    o, p = params(out, x)
    i = Axes().loop(2)
    sink = kernel(o.index(i).store(load(p, i).bitcast(dtypes.uint16), i))
    assert not any(u.op is Ops.CAST for u in widen(sink).toposort())
    run(sink, out, x)
    np.testing.assert_array_equal(out, x.view(np.uint16))


def test_copying_halves_converts_nothing() -> None:
    out, x = np.zeros(2, np.float16), np.array([0.1, np.nan], np.float16)
    o, p = params(out, x)
    i = Axes().loop(2)
    assert not any(
        u.op is Ops.CAST for u in widen(kernel(o.index(i).store(load(p, i), i))).toposort()
    )


def test_staged_values_are_rounded() -> None:
    out, x = np.zeros(3, np.float32), np.array([1, 2, 3], np.float16)
    o, p = params(out, x)
    a = Axes()
    i, f = a.loop(3), a.loop(3)
    third = UOp.const(HALF, 1 / 3)
    stage = UOp(Ops.STAGE, HALF, (load(p, f) * third, f), StageArg(0))
    value = load(stage, i).cast(dtypes.float32)
    run(kernel(o.index(i).store(value, i)), out, x)
    np.testing.assert_array_equal(out, (x * np.float16(1 / 3)).astype(np.float32))
