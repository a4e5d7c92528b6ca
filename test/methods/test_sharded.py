"""Every row of the method table on operands that are cut over two devices, each along an axis of
its own.

The first case of a row in its first dtype; METHODS=all in the environment runs all cases.
"""

from __future__ import annotations

import zlib

import pytest

from test.methods import run
from test.methods.row import Array, Case, Row, plan, tensors_of
from test.methods.run import EVERYTHING, check_values, names
from test.methods.table import TABLE
from weft import Tensor

DEVICES = ("CPU:1", "CPU:2")
PLANS = [
    (row, *each)
    for row in TABLE
    for each in list(plan(row, EVERYTHING))[: None if EVERYTHING else 1]
    if each[-1] != "PYTHON"
]


def cut_tensors(arrays: list[Array], asked: Case, dtype: str, device: str) -> list[Tensor]:
    """The operands, cut along axes that the name of the case picks."""
    found = []
    for number, tensor in enumerate(tensors_of(arrays, asked, dtype, device)):
        pick = zlib.crc32(f"{asked.name}{number}".encode())
        axis = pick % tensor.ndim if tensor.ndim else None
        found.append(tensor.shard(DEVICES, axis))
    return found


@pytest.mark.parametrize(("row", "asked", "dtype", "device"), PLANS, ids=names(PLANS))
def test_values(
    row: Row, asked: Case, dtype: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "tensors_of", cut_tensors)
    check_values(row, asked, dtype, device)
