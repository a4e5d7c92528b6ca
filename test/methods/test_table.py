"""Every row of the method table: shapes, dtypes and values, on the CPU and on the interpreter.

All cases run in the first dtype of a row, and the first case in all dtypes; METHODS=all in the
environment runs all cases in all dtypes.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

from test.methods.compare import assert_right
from test.methods.row import Case, Check, Row, plan, tensors_of
from test.methods.table import CHECKS, TABLE
from weft import Tensor

EVERYTHING = os.environ.get("METHODS") == "all"
PLANS = [(row, *each) for row in TABLE for each in plan(row, EVERYTHING)]


def names(planned: Any) -> list[str]:
    """What pytest prints for each."""
    return ["-".join([row.name, asked.name, *rest]) for row, asked, *rest in planned]


def skip_if_absent(row: Row | Check) -> None:
    """A reference that is not installed, or a method that is not there yet."""
    needs = getattr(row, "needs", None)
    if needs is not None and importlib.util.find_spec(needs) is None:
        pytest.skip(f"the reference of {row.name} needs {needs}, which is not installed")
    if not hasattr(Tensor, row.name):
        pytest.skip(f"Tensor has no {row.name}")


@pytest.mark.parametrize(("row", "asked", "dtype", "device"), PLANS, ids=names(PLANS))
def test_values(row: Row, asked: Case, dtype: str, device: str) -> None:
    skip_if_absent(row)
    arrays = asked.arrays(row.name, dtype)
    found = row.run(tensors_of(arrays, asked, dtype, device), asked)
    wanted = row.expected(arrays, asked)
    assert len(found) == len(wanted), f"{len(found)} results, not {len(wanted)}"
    terms = None
    if row.terms is not None:
        terms = row.terms(*row.widened(arrays), *asked.args, **asked.kwargs)
    for tensor, value, rule in zip(found, wanted, row.rules(len(wanted)), strict=True):
        assert tensor.dtype.name == rule(dtype), f"dtype {tensor.dtype}, not {rule(dtype)}"
        assert tuple(tensor.shape) == value.shape, f"shape {tensor.shape}, not {value.shape}"
        error = _peer_error(row, asked, arrays, dtype, wanted) if row.peer else None
        assert_right(tensor.numpy(), value, rule(dtype), terms, error)


def _peer_error(row: Row, asked: Case, arrays: Any, dtype: str, wanted: Any) -> Any:
    """PyTorch's own greatest error for the first result; None without PyTorch."""
    if importlib.util.find_spec("torch") is None or row.peer is None:
        return None

    def error() -> float:
        import torch

        def made(array: Any, each: Any) -> Any:
            wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
            return torch.tensor(wide).to(getattr(torch, each.dtype or dtype))

        tensors = [made(a, i) for a, i in zip(arrays, asked.inputs, strict=True)]
        assert row.peer is not None
        result = row.peer(*tensors, *asked.args, **asked.kwargs)
        return float(np.max(np.abs(result.double().numpy() - wanted[0])))

    return error


CHECKED = [(check, device) for check in CHECKS for device in ("CPU", "PYTHON")[: 1 + check.small]]


@pytest.mark.parametrize(
    ("check", "device"), CHECKED, ids=[f"{check.name}-{device}" for check, device in CHECKED]
)
def test_check(check: Check, device: str) -> None:
    skip_if_absent(check)
    check.check(device)
