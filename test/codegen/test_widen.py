"""widen: half types are loaded, stored and converted; everything else happens in float32."""

from __future__ import annotations

import numpy as np

from test.codegen.kernel_builder import Axes, const, kernel, load, params, run
from weft.codegen.widen import HALF_TYPES, widen
from weft.dtype import dtypes
from weft.uop.args import StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

HALF = dtypes.float16


def test_arithmetic_is_wide_and_the_store_rounds() -> None:
    out, x = np.zeros(4, np.float16), np.array([1, 2049, 0.1, 1e-7], np.float16)
    o, p = params(out, x)
    i = Axes().loop(4)
    sink = kernel(o.index(i).store((load(p, i) + 1) * 3, i))
    nodes = widen(sink).toposort()
    assert not any(u.op in GroupOp.ALU and u.dtype in HALF_TYPES for u in nodes)
    run(sink, out, x)
    wide = (x.astype(np.float32) + 1) * 3
    np.testing.assert_array_equal(out, wide.astype(np.float16))


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


def test_staged_values_are_not_rounded() -> None:
    out, x = np.zeros(3, np.float32), np.array([1, 2, 3], np.float16)
    o, p = params(out, x)
    a = Axes()
    i, f = a.loop(3), a.loop(3)
    third = UOp.const(HALF, 1 / 3)
    stage = UOp(Ops.STAGE, HALF, (load(p, f) * third, f), StageArg(0))
    value = load(stage, i).cast(dtypes.float32)
    run(kernel(o.index(i).store(value, i)), out, x)
    np.testing.assert_array_equal(out, x.astype(np.float32) * np.float32(np.float16(1 / 3)))
