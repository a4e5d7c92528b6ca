"""The table has a row for every public method, and a case for every parameter.

The failures are the to-do list of whoever adds a method.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from test.methods.row import Row
from test.methods.table import CHECKS, TABLE
from weft import Tensor

PUBLIC = [name for name in dir(Tensor) if not name.startswith("_")]
# Python calls these on every object; what they do is the business of the methods they serve
UNCHECKED = {"__class_getitem__", "__init_subclass__"}
# rows of these give the same parameters to every method alike
COMMON = {"self"}


def _protocol() -> list[str]:
    """The special methods that weft itself defines."""
    found: set[str] = set()
    for owner in Tensor.__mro__:
        if owner.__module__.startswith("weft"):
            found |= {
                name
                for name, value in vars(owner).items()
                if name.startswith("__") and name.endswith("__") and inspect.isroutine(value)
            }
    return sorted(found - UNCHECKED)


NAMES = {row.name for row in TABLE} | {check.name for check in CHECKS}


@pytest.mark.parametrize("name", [*PUBLIC, *_protocol()])
def test_method_has_a_row(name: str) -> None:
    assert name in NAMES, f"Tensor.{name} has no row in test/methods: add one to its family"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_row_has_a_method(name: str) -> None:
    assert hasattr(Tensor, name), f"the table has a row for {name}, which Tensor lacks"


def _given(row: Row) -> set[str]:
    """The parameters that the cases of a row give."""
    given: set[str] = set(row.elsewhere)
    signature = inspect.signature(inspect.getattr_static(Tensor, row.name))
    names = list(signature.parameters)
    for asked in row.cases:
        count = len(asked.inputs) + len(asked.args)
        given |= set(names[:count]) | set(asked.kwargs)
    return given


def _rows_by_name() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in TABLE:
        if inspect.isfunction(inspect.getattr_static(Tensor, row.name, None)):
            found.setdefault(row.name, []).append(row)
    return found


@pytest.mark.parametrize(("name", "rows"), _rows_by_name().items(), ids=list(_rows_by_name()))
def test_every_parameter_is_given(name: str, rows: list[Row]) -> None:
    signature = inspect.signature(inspect.getattr_static(Tensor, name))
    given: set[str] = set().union(*[_given(row) for row in rows])
    many: tuple[Any, ...] = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [n for n, p in signature.parameters.items() if n not in COMMON and p.kind not in many]
    missing = [parameter for parameter in wanted if parameter not in given]
    assert not missing, f"no case of {name} gives {missing}"
