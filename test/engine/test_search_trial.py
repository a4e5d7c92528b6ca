"""Trials: scratch memory for candidates, and what counts as a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.codegen.opt.kernels import prepared
from weft import Tensor, dtypes
from weft.engine.search_trial import first_difference, index_bounds, numbers
from weft.uop.opset import Ops


def test_indices_of_scratch_memory_stay_inside() -> None:
    table = Tensor.empty(1000, 4).contiguous().realize()
    rows = Tensor([3, 999, 0], dtype=dtypes.int32).realize()
    ast = prepared(table[rows] * 2)
    slots = {u.arg.slot: u for u in ast.toposort() if u.op is Ops.PARAM}
    (slot,) = [number for number, param in slots.items() if param.dtype is dtypes.int32]
    bounds = index_bounds(ast)
    assert set(bounds) == {slot} and 400 < bounds[slot] <= 1000
    assert numbers(dtypes.int32, 5000, 1, bounds[slot]).max() < 1000


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_scratch_numbers_of_every_dtype(dtype: Any) -> None:
    found = numbers(dtype, 10_000, 3)
    assert found.nbytes == 10_000 * dtype.itemsize
    assert len(np.unique(found[:1000])) > 1
    np.testing.assert_array_equal(found, numbers(dtype, 10_000, 3))
    assert first_difference(found, found.copy(), dtype, 1) is None


def test_differences_beyond_rounding_are_found() -> None:
    right = np.linspace(1, 2, 100, dtype=np.float32)
    assert first_difference(right * np.float32(1 + 1e-7), right, dtypes.float32, 100) is None
    wrong = right.copy()
    wrong[42] += 0.01
    assert first_difference(wrong, right, dtypes.float32, 100) == 42
    missing = right.copy()
    missing[7] = np.nan
    assert first_difference(missing, right, dtypes.float32, 100) == 7
    assert first_difference(missing, missing.copy(), dtypes.float32, 100) is None
    whole = np.arange(10, dtype=np.int32)
    assert first_difference(whole + (whole == 3), whole, dtypes.int32, 100) == 3
