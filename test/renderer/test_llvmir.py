"""What is special in the text of LLVM IR; what programs compute is in test_behaviour."""

from __future__ import annotations

from collections.abc import Callable

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
    run_llvm,
)
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

f32 = dtypes.float32


def test_registers_are_phis_and_known_loops_have_no_guard() -> None:
    data, out = UOp.param(1, f32, 4), UOp.param(0, f32, 1)
    j = loop(4)
    total = acc(const(0.0, f32))
    finish = end(j)
    uops = program(
        total,
        j,
        acc_set(total, read(total, j) + load(data, j)),
        finish,
        out.index(const(0)).store(read(total, finish)),
    )
    text = LLVMRenderer().render("k", uops)
    assert "alloca" not in text and text.count("= phi ") == 2 and text.count("br i1") == 1


def test_addresses_that_differ_by_a_constant_share_the_rest() -> None:
    data, out = UOp.param(1, f32, 12), UOp.param(0, f32, 12)
    j = loop(4)
    row = j * const(3)
    # the last sum is a value as well, so it has a name of its own
    places = [row, row + const(1), row + const(2)]
    value = places[2].cast(f32)
    uops = program(
        j,
        out.index(places[0]).store(load(data, places[1])),
        out.index(places[1]).store(load(data, places[0]) + value),
        out.index(places[2]).store(load(data, places[2])),
        end(j),
        # in another block no base of the loop is used
        out.index(const(0) + const(1)).store(const(7.0, f32)),
    )
    found, values = np.zeros(12, np.float32), np.arange(12, dtype=np.float32)
    text = run_llvm(uops, [found, values])
    assert text.count(" = add i64") == 1, "only the sum that is a value"
    rows = values.reshape(4, 3)
    expected = np.stack([rows[:, 1], rows[:, 0] + np.arange(4) * 3 + 2, rows[:, 2]], axis=1)
    expected = expected.reshape(-1)
    expected[1] = 7.0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [4, 12])
def test_addresses_of_many_guarded_loads_are_opaque_and_right(count: int) -> None:
    data, out = UOp.param(1, f32, 20), UOp.param(0, f32, 4)
    j = loop(4)
    start = j * const(5)
    total = const(0.0, f32)
    for k in range(count):
        total = total + load(data, start + const(k), start < const(20 - k))
    uops = program(j, out.index(j).store(total), end(j))
    found, values = np.zeros(4, np.float32), np.arange(20, dtype=np.float32)
    text = run_llvm(uops, [found, values])
    assert text.count("freeze i64") == (count == 12)
    padded = np.concatenate([values, np.zeros(20, np.float32)])
    np.testing.assert_array_equal(found, [padded[5 * i : 5 * i + count].sum() for i in range(4)])


def test_half_converts_in_one_instruction_where_the_target_says_so() -> None:
    renderer = LLVMRenderer(Target(has_half_conversion=True))
    assert dtypes.float16 in renderer.native_dtypes
    uops, _ = elementwise([lambda x: x.cast(f32)], [dtypes.float16], 8)
    values = np.arange(64).astype(np.float16)
    out = np.zeros(64, np.float32)
    assert "fpext <8 x half>" in run_llvm(uops, [out, values], [8], renderer=renderer)
    np.testing.assert_array_equal(out, values.astype(np.float32))
    with pytest.raises(CompileError, match="stored as bits"):
        LLVMRenderer(Target()).render("k", uops)


def test_products_round_where_they_stand() -> None:
    def text(build: Callable[[UOp, UOp], UOp]) -> str:
        return LLVMRenderer().render("k", elementwise([build], [f32, f32])[0])

    plain = text(lambda x, y: x * y + x)
    assert "fmul float" in plain and "fadd float" in plain and "contract" not in plain
    fused = text(lambda x, y: UOp(Ops.MULACC, x.dtype, (x, y, x)))
    assert "@llvm.fma.f32(" in fused and "fmul" not in fused


def test_names_and_determinism() -> None:
    uops, _ = elementwise([lambda x: x + x], [f32])
    renderer = LLVMRenderer()
    assert "@E_4_4(" in renderer.render("E_4_4", uops)
    assert '@"a\\20b"(' in renderer.render("a b", uops)
    assert renderer.render("k", uops) == renderer.render("k", uops)


def test_what_must_be_decomposed_is_refused_by_name() -> None:
    renderer = LLVMRenderer(Target(has_rounding=False))
    for op in (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW, Ops.THREEFRY, Ops.IDIV, Ops.CAST, Ops.TRUNC):
        assert not renderer.is_native(op)
    assert set(LLVMRenderer().code_for_op) <= GroupOp.Elementwise
    with pytest.raises(CompileError, match="EXP2"):
        renderer.render("k", elementwise([lambda x: x.alu(Ops.EXP2)], [f32])[0])


def test_half_open_loops_are_refused() -> None:
    i, j = loop(2, 0), loop(3, 1)
    with pytest.raises(CompileError, match="END"):
        LLVMRenderer().render("k", program(i, j, end(i), end(j)))
