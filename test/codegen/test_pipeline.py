"""The whole pipeline: a kernel becomes text for LLVM, and what a device needs to know."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from test.codegen.kernel_builder import F32, Axes, const, interpret, kernel, load, params
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.base import ProgramSpec
from weft.renderer.llvmir import LLVMRenderer
from weft.renderer.python import PythonRenderer
from weft.runtime import llvm
from weft.runtime.ops_cpu import describe_target
from weft.uop.args import StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

rng = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def run_native(
    sink: UOp, arrays: Sequence[np.ndarray], values: Sequence[int] = (), parts: int = 1
) -> ProgramSpec:
    """Compile for this machine and run, the parallel axis cut into `parts` calls."""
    with Context(SPEC=2):
        program = lower(sink, LLVMRenderer(describe_target(llvm.target())))
    code = llvm.load(llvm.LLVMCompiler().compile(program.src), program.name)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address)
    arguments = (ctypes.c_int64 * (len(arrays) + len(values)))(
        *[array.ctypes.data for array in arrays], *values
    )
    bounds = [program.threads_n * part // parts for part in range(parts + 1)]
    for begin, end in zip(bounds, bounds[1:], strict=False):
        function(ctypes.addressof(arguments), begin, end)
    return program


def matmul(m: int, n: int, k: int, arrays: Sequence[np.ndarray]) -> UOp:
    o, p, q = params(*arrays)
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    product = load(p, i * k + r) * load(q, r * n + j)
    return kernel(o.index(i * n + j).store(product.reduce(Ops.ADD, r), i, j))


def test_facts_of_a_program() -> None:
    out, x, y = np.zeros((4, 6), np.float32), floats(4, 5), floats(5, 6)
    with Context(NOOPT=1):
        program = lower(matmul(4, 6, 5, (out, x, y)), PythonRenderer())
    assert program.name == "test"
    assert [p.arg.slot for p in program.params] == [0, 1, 2] and program.buffer_count == 3
    assert program.outs == (0,) and program.ins == (1, 2)
    assert program.variables == () and program.threads_n == 1
    # a multiplication and an addition per step; each buffer once
    assert program.ops == 2 * 4 * 6 * 5
    assert program.mem == 4 * (4 * 6 + 4 * 5 + 5 * 6)


def test_what_was_simplified_away_stays_an_argument() -> None:
    out, x = np.zeros(4, np.int32), np.ones(4, np.int32)
    o, p = params(out, x)
    i = Axes().loop(4)
    program = lower(kernel(o.index(i).store(load(p, i) * 0, i)), PythonRenderer())
    assert [p.arg.slot for p in program.params] == [0, 1]
    assert program.ins == ()


def test_variables_are_those_of_the_kernel_by_name() -> None:
    out = np.zeros(8, np.int32)
    (o,) = params(out)
    n, b = UOp.variable("n", 1, 8), UOp.variable("b", 0, 100)
    i = Axes().loop(n)
    sink = kernel(o.index(i).store((i + b).cast(dtypes.int32), i))
    program = lower(sink, PythonRenderer())
    assert program.variables == (b, n)
    interpret(program.uops, [out], [7, 5])
    assert out.tolist() == [7, 8, 9, 10, 11, 0, 0, 0]
    out[:] = 0
    run_native(sink, [out], [7, 5])
    assert out.tolist() == [7, 8, 9, 10, 11, 0, 0, 0]
    assert program.mem.variables() == [n]  # type: ignore[union-attr]


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(CompileError, match="SINK with KernelInfo"):
        lower(UOp.const(F32, 1.0), PythonRenderer())


def test_debug_prints_the_kernel_after_each_pass(capsys: pytest.CaptureFixture[str]) -> None:
    out = np.zeros(2, np.float32)
    (o,) = params(out)
    i = Axes().upcast(2)
    with Context(DEBUG=5, NOOPT=1):
        lower(kernel(o.index(i).store(UOp.const(F32, 1.0), i)), PythonRenderer())
    printed = capsys.readouterr().out
    assert "test: after expand" in printed and "test: linear program" in printed


def test_native_matmul() -> None:
    for m, n, k in ((4, 8, 5), (16, 32, 24), (7, 9, 11)):
        out, x, y = np.zeros((m, n), np.float32), floats(m, k), floats(k, n)
        run_native(matmul(m, n, k, (out, x, y)), (out, x, y))
        np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-5)


def test_native_softmax() -> None:
    rows, columns = 6, 40
    out, x = np.zeros((rows, columns), np.float32), floats(rows, columns)
    o, p = params(out, x)
    a = Axes()
    i, j, k, m = a.loop(rows), a.loop(columns), a.reduce(columns), a.reduce(columns)
    top = load(p, i * columns + k).reduce(Ops.MAX, k)

    def power(idx: UOp) -> UOp:
        return UOp(Ops.EXP2, F32, ((load(p, i * columns + idx) - top) * 1.4426950408889634,))

    total = power(m).reduce(Ops.ADD, m)
    sink = kernel(o.index(i * columns + j).store(power(j) / total, i, j))
    run_native(sink, (out, x))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_native_threads_masks_and_stages() -> None:
    """Nests of 3 threads and of none, a masked vector, a staged row; in one call and in 3."""
    for parts in (1, 3):
        out, last, x = np.zeros((3, 10), np.float32), np.ones(1, np.float32), floats(3, 10)
        o, s, p = params(out, last, x)
        a = Axes()
        t, j, lane, f = a.thread(3), a.loop(3), a.vector(4), a.loop(10)
        row = UOp(Ops.STAGE, F32, (load(p, t * 10 + f) * 2, f), StageArg(0))
        column = j * 4 + lane
        inside = column.lt(10)
        value = load(row, column, inside) + (t * 100).cast(F32)
        stores = [
            o.index(t * 10 + column, inside).store(value, t, j, lane),
            s.index(const(0)).store(load(s, const(0)) * 3),
        ]
        with Context(NOOPT=1):
            program = run_native(kernel(*stores), (out, last, x), parts=parts)
        assert program.threads_n == 3
        np.testing.assert_allclose(
            out, x * 2 + np.array([[0], [100], [200]], np.float32), rtol=1e-6
        )
        assert last[0] == 3


def test_native_half_types_round_every_op() -> None:
    out, x = np.zeros(16, np.float16), rng.standard_normal(16).astype(np.float16)
    o, p = params(out, x)
    i = Axes().loop(16)
    value = load(p, i) * load(p, i) + 0.125
    run_native(kernel(o.index(i).store(value, i)), (out, x))
    np.testing.assert_array_equal(out, x * x + np.float16(0.125))


def test_constants_fold_into_the_copies() -> None:
    """A table of 1, 2, 3 times x: the first passes through, no comparison is left (M2)."""
    out, x = np.zeros(3, np.float32), floats(3)
    o, p = params(out, x)
    i = Axes().upcast(3)
    two_or_three = i.eq(1).where(UOp.const(F32, 2.0), UOp.const(F32, 3.0))
    table = i.eq(0).where(UOp.const(F32, 1.0), two_or_three)
    with Context(NOOPT=1):
        program = run_native(kernel(o.index(i).store(table * load(p, i), i)), (out, x))
    np.testing.assert_array_equal(out, x * np.arange(1, 4, dtype=np.float32))
    assert sum(1 for u in program.uops if u.op is Ops.MUL) == 2
    assert not any(u.op in (Ops.WHERE, Ops.CMPEQ) for u in program.uops)
