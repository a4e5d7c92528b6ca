"""Keep: a row of costly values, computed once for several loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

from test.codegen.opt.kernels import costly_rows, run_plain
from weft.codegen.opt.axes import find_axis
from weft.codegen.opt.keep import keep
from weft.codegen.opt.opt import OptError
from weft.machine import Target
from weft.uop.opset import Ops


def test_what_two_loops_compute_is_kept_once() -> None:
    ast, arrays = costly_rows(random.Random(3), 9)
    new = keep(ast, find_axis(ast, (3,)), Target())
    assert len([u for u in new.toposort() if u.op is Ops.STAGE]) == 1
    for found, expected in zip(run_plain(new, arrays), run_plain(ast, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_row_that_does_not_fit_is_refused() -> None:
    ast, _ = costly_rows(random.Random(3), 9)
    with pytest.raises(OptError, match="no costly value"):
        keep(ast, find_axis(ast, (3,)), Target(stack_bytes=1))
