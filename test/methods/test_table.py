"""Every row of the method table: shapes, dtypes and values, on the default device and on PYTHON.

All cases run in the first dtype of a row, and the first case in all dtypes; METHODS=all in the
environment runs all cases in all dtypes.
"""

from __future__ import annotations

import pytest

from test.methods.row import Case, Check, Row, plan
from test.methods.run import EVERYTHING, check_values, names
from test.methods.table import CHECKS, TABLE
from weft import Device

PLANS = [(row, *each) for row in TABLE for each in plan(row, EVERYTHING)]


@pytest.mark.parametrize(("row", "asked", "dtype", "device"), PLANS, ids=names(PLANS))
def test_values(row: Row, asked: Case, dtype: str, device: str) -> None:
    check_values(row, asked, dtype, device)


CHECKED = [
    (check, device) for check in CHECKS for device in (Device.DEFAULT, "PYTHON")[: 1 + check.small]
]


@pytest.mark.parametrize(
    ("check", "device"), CHECKED, ids=[f"{check.name}-{device}" for check, device in CHECKED]
)
def test_check(check: Check, device: str) -> None:
    check.check(device)
