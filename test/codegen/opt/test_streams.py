"""Streams: a matrix reduced along its rows is read as it lies in memory."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, kernel, load
from weft import dtypes
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import OptOps
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target(name="wide", vector_bytes=32, has_fma=True)


def columns(rows: int, width: int) -> list[OptOps]:
    """The actions for sums of columns."""
    a = Axes()
    j, r = a.loop(width), a.reduce(rows)
    out, x = UOp.param(0, dtypes.float32, width), UOp.param(1, dtypes.float32, rows * width)
    ast = kernel(out.index(j).store(load(x, r * width + j).reduce(Ops.ADD, r), j))
    return [opt.op for opt in optimise(ast, WIDE).arg.applied]


def test_sums_of_columns_of_a_large_matrix_are_swept() -> None:
    assert OptOps.SWEEP in columns(4096, 8192)


def test_a_matrix_in_the_caches_is_not() -> None:
    assert OptOps.SWEEP not in columns(16, 32)
