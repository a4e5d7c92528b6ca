"""Stage: values of a buffer in fast memory, in the order of the axes."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import numbers, run_plain, zeros
from weft.codegen.opt.axes import find_axis
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.stage import scratch_of, stage, staged_values
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def product(rows: int = 3, columns: int = 4, terms: int = 5) -> tuple[UOp, list[np.ndarray]]:
    arrays = [zeros(rows, columns), numbers(rows, terms), numbers(terms, columns)]
    out, x, y = params(*arrays)
    a = Axes()
    i, j, r = a.loop(rows), a.loop(columns), a.reduce(terms)
    value = (load(x, i * terms + r) * load(y, r * columns + j)).reduce(Ops.ADD, r)
    return kernel(out.index(i * columns + j).store(value, i, j)), arrays


def test_a_staged_operand_computes_the_same() -> None:
    ast, arrays = product()
    new = stage(ast, 2, [find_axis(ast, 2), find_axis(ast, 1)], Target())
    (staged,) = [u for u in new.toposort() if u.op is Ops.STAGE]
    assert scratch_of(staged) == 5 * 4 * 4
    np.testing.assert_array_equal(run_plain(new, arrays)[0], arrays[1] @ arrays[2])


def test_what_cannot_be_staged_is_refused() -> None:
    ast, _ = product()
    i, j, r = (find_axis(ast, number) for number in range(3))
    with pytest.raises(OptError, match="no value read from buffer 7"):
        stage(ast, 7, [i], Target())
    with pytest.raises(OptError, match="bytes of scratch"):
        stage(ast, 2, [r, j], Target(stack_bytes=16))
    assert staged_values(list(ast.toposort()), 1, [i, r]) != []
