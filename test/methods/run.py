"""Runs one case of a row and compares it: what the table's tests and the random ones share.

In: a row, a case, a dtype, a device. Out: nothing, or an AssertionError.
Sits above `row.py` and `compare.py`, below the tests.
Invariant: shape, dtype and values are all compared, for every result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.compare import assert_right
from test.methods.row import Array, Case, Check, Row, tensors_of
from test.optional import found, need

# METHODS=all in the environment: all cases in all dtypes
EVERYTHING = os.environ.get("METHODS") == "all"


def names(planned: Any) -> list[str]:
    """What pytest prints for each."""
    return ["-".join([row.name, asked.name, *rest]) for row, asked, *rest in planned]


def skip_if_absent(row: Row | Check) -> None:
    """Skip a row whose reference is not installed."""
    needs = row.needs if isinstance(row, Row) else None
    if needs is not None:
        need(needs)


def check_values(row: Row, asked: Case, dtype: str, device: str, seed: str = "") -> None:
    """The method gives what its reference gives."""
    skip_if_absent(row)
    arrays = asked.arrays(row.name + seed, dtype)
    found = row.run(tensors_of(arrays, asked, dtype, device), asked)
    wanted = row.expected(arrays, asked)
    assert len(found) == len(wanted), f"{len(found)} results, not {len(wanted)}"
    terms = None
    if row.terms is not None:
        terms = row.terms(*row.widened(arrays), *asked.args, **asked.kwargs)
    for tensor, value, rule in zip(found, wanted, row.rules(len(wanted)), strict=True):
        assert tensor.dtype.name == rule(dtype), f"dtype {tensor.dtype}, not {rule(dtype)}"
        assert tuple(tensor.shape) == value.shape, f"shape {tensor.shape}, not {value.shape}"
        error = _peer_error(row, asked, arrays, dtype, wanted)
        assert_right(tensor.numpy(), value, rule(dtype), terms, error)


def _peer_error(
    row: Row, asked: Case, arrays: list[Array], dtype: str, wanted: tuple[Array, ...]
) -> Callable[[], float] | None:
    """PyTorch's own greatest error for the first result; None without PyTorch."""
    peer = row.peer
    torch = found("torch")
    if peer is None or torch is None:
        return None

    def error() -> float:
        tensors = []
        for array, each in zip(arrays, asked.inputs, strict=True):
            wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
            tensors.append(torch.tensor(wide).to(getattr(torch, each.dtype or dtype)))
        result = peer(*tensors, *asked.args, **asked.kwargs)
        return float(np.max(np.abs(result.double().numpy() - wanted[0])))

    return error
