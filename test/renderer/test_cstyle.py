"""What is special in the text of C; what programs compute is in test_behaviour."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from test.renderer.programs import (
    acc,
    acc_set,
    const,
    elementwise,
    end,
    load,
    loop,
    program,
    read,
    run_c,
)
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.renderer.c import CRenderer
from weft.renderer.cstyle import shortest_float32
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

f32 = dtypes.float32


def test_constants_fold_into_the_text() -> None:
    """Three elements times 1, 2 and 3: the first passes through, the others show it (M2)."""
    data, out = UOp.param(1, f32, 3), UOp.param(0, f32, 3)
    loads = [load(data, const(k)) for k in range(3)]
    values = [loads[0], loads[1] * const(2.0, f32), loads[2] * const(3.0, f32)]
    stores = [out.index(const(k)).store(value) for k, value in enumerate(values)]
    found = np.zeros(3, np.float32)
    text = run_c(program(*stores), [found, np.array([5, 6, 7], np.float32)])
    assert "data0[0] = val0;" in text
    assert "data0[1] = val1 * 2.0f;" in text
    assert "data0[2] = val2 * 3.0f;" in text
    assert found.tolist() == [5, 12, 21]


def test_a_whole_kernel_reads_well() -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 3)
    i, j = loop(3, 0), loop(4, 1)
    total = acc(const(0.0, f32))
    finish = end(j)
    uops = program(
        i,
        total,
        j,
        acc_set(total, read(total, j) + load(data, i * const(4) + j)),
        finish,
        out.index(i).store(read(total, finish)),
        end(i),
    )
    assert CRenderer().render("sum_rows", uops).splitlines() == [
        "#include <stdbool.h>",
        "#include <stdint.h>",
        "void sum_rows(void** args, int64_t begin, int64_t end) {",
        "  (void)args; (void)begin; (void)end;",
        "  float* data0 = (float*)args[0];",
        "  float* data1 = (float*)args[1];",
        "  for (int64_t ridx0 = 0; ridx0 < 3; ridx0++) {",
        "    float acc0 = 0.0f;",
        "    for (int64_t ridx1 = 0; ridx1 < 4; ridx1++) {",
        "      float val0 = acc0;",
        "      float val1 = data1[(ridx0 * 4) + ridx1];",
        "      acc0 = val0 + val1;",
        "    }",
        "    float val2 = acc0;",
        "    data0[ridx0] = val2;",
        "  }",
        "}",
    ]


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 1e-45, 1.1754944e-38, 3.4028235e38, 16777216.0, 1e10, 123456.79, -2.5]
)
def test_floats_are_short_and_exact(value: float) -> None:
    stored = struct.unpack("<f", struct.pack("<f", value))[0]
    text = shortest_float32(stored)
    assert struct.pack("<f", float(text)) == struct.pack("<f", stored)
    assert len(text) <= len(repr(stored))
    literal = CRenderer().literal(stored, f32)
    assert literal.endswith("f") and ("." in literal or "e" in literal)


def test_integers_that_have_no_literal() -> None:
    renderer = CRenderer()
    assert renderer.literal(-(2**63), dtypes.int64) == "(-9223372036854775807ll - 1)"
    assert renderer.literal(-(2**31), dtypes.int32) == "(-2147483647 - 1)"
    assert renderer.literal(2**64 - 1, dtypes.uint64) == "18446744073709551615ull"
    assert renderer.literal(-128, dtypes.int8) == "-128"
    assert renderer.literal(1.0, dtypes.bfloat16) == str(0x3F80)


def test_signed_overflow_is_defined_and_indices_stay_plain() -> None:
    data, out = UOp.param(1, dtypes.int32, 8), UOp.param(0, dtypes.int32, 8)
    i = loop(4)
    value = load(data, i * const(2) + const(1))
    uops = program(i, out.index(i).store(value + value), end(i))
    text = CRenderer().render("k", uops)
    assert "data1[(ridx0 * 2) + 1]" in text
    assert "(int32_t)((uint32_t)val0 + (uint32_t)val0)" in text


def test_vectors_of_three_have_room_for_four() -> None:
    data, out = UOp.param(1, f32, 3), UOp.param(0, f32, 4)
    vector = load(data, const(0), lanes=3)
    found = np.full(4, -1, np.float32)
    run_c(program(out.index(const(0)).store(vector + vector)), [found, np.arange(3.0, dtype="f4")])
    assert found.tolist() == [0, 2, 4, -1]


def test_long_expressions_get_names() -> None:
    """A chain of thousands of ops nests no parentheses deeper than a compiler takes."""
    value = load(UOp.param(1, f32, 1), const(0))
    for step in range(3000):
        value = value * const(1.0 + step % 2, f32) if step % 3 else value + const(0.25, f32)
    uops = program(UOp.param(0, f32, 1).index(const(0)).store(value))
    text = CRenderer().render("k", uops)
    assert max(len(line) for line in text.splitlines()) < 250


def test_what_cannot_be_printed_is_refused_by_name() -> None:
    renderer = CRenderer()
    assert set(renderer.code_for_op) <= GroupOp.Elementwise
    with pytest.raises(CompileError, match="EXP2"):
        renderer.render("k", elementwise([lambda x: x.alu(Ops.EXP2)], [f32])[0])
    with pytest.raises(CompileError, match="stored as bits"):
        renderer.render("k", elementwise([lambda x: x.cast(f32)], [dtypes.float16])[0])
    with pytest.raises(CompileError, match="name of a C function"):
        renderer.render("two words", elementwise([lambda x: x], [f32])[0])
    with pytest.raises(CompileError, match="no type for"):
        renderer.render("k", program(UOp.range(4, 0)))
