"""Sweep: sums of many outputs side by side, the reduced loop outside."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import numbers, run_plain, zeros
from weft.codegen.opt.axes import find_axis
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.sweep import sweep
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def column_sums() -> tuple[UOp, list[np.ndarray]]:
    arrays = [zeros(8), numbers(5, 8)]
    out, x = params(*arrays)
    a = Axes()
    j, r = a.loop(8), a.reduce(5)
    return kernel(out.index(j).store(load(x, r * 8 + j).reduce(Ops.ADD, r), j)), arrays


def test_sums_lie_side_by_side() -> None:
    ast, arrays = column_sums()
    new = sweep(ast, find_axis(ast, 0), [], Target())
    (staged,) = [u for u in new.toposort() if u.op is Ops.STAGE]
    assert staged.arg.sweep and staged.src[0].op is Ops.REDUCE
    np.testing.assert_array_equal(run_plain(new, arrays)[0], arrays[1].sum(0))


def test_what_cannot_be_swept_over_is_refused() -> None:
    ast, _ = column_sums()
    with pytest.raises(OptError, match="only outputs"):
        sweep(ast, find_axis(ast, 1), [], Target())
    with pytest.raises(OptError, match="once"):
        sweep(ast, find_axis(ast, 0), [find_axis(ast, 0)], Target())
    with pytest.raises(OptError, match="are more than"):
        sweep(ast, find_axis(ast, 0), [], Target(stack_bytes=8))
