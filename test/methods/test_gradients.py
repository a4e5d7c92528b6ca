"""Gradients of every differentiable row, first and second order, against finite differences.

All cases of a row run with METHODS=all in the environment; else the first two, of second order the
first.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.methods.differences import check_gradient, check_second_gradient, narrowest
from test.methods.row import FLOATS, Case, Input, Row
from test.methods.run import EVERYTHING, names
from test.methods.table import TABLE


def _is_smooth(row: Row, asked: Case) -> bool:
    """Whether a gradient is defined: floats go in, and no input holds an edge of the function."""
    floats = [i for i in asked.inputs if i.dtype is None]
    return bool(floats) and all(i.data is None for i in floats)


def _reduced(each: Input) -> Input:
    """Fewer elements: (3, 35) is there for vectors and tails, which derivatives do not need."""
    if each.dtype is None and each.shape == (3, 35):
        return replace(each, shape=(3, 5))
    return each


def _cases(row: Row) -> list[Case]:
    """Every case with elements, or the first two."""
    if not row.gradient or not any(dtype in FLOATS for dtype in row.dtypes):
        return []
    found = [asked for asked in row.cases if _is_smooth(row, asked)]
    found = [asked for asked in found if all(0 not in each.shape for each in asked.inputs)]
    return found if EVERYTHING else found[:2]


PLANS = [(row, asked) for row in TABLE for asked in _cases(row)]


def _smaller(row: Row, asked: Case) -> Case:
    """The case with fewer elements, if its other arguments suit that."""
    small = replace(asked, inputs=tuple(_reduced(each) for each in asked.inputs))
    try:
        row.expected(small.arrays(row.name, "float64"), small)
    except (ValueError, IndexError, AssertionError):
        return asked
    return small


@pytest.mark.parametrize(("row", "asked"), PLANS, ids=names(PLANS))
def test_gradient(row: Row, asked: Case) -> None:
    check_gradient(row, _smaller(row, asked))


def _second() -> list[tuple[Row, Case]]:
    """The first case of each row; of what rounds, the differences would be those of rounding."""
    exact = [each for each in PLANS if narrowest(each[0]) == "float64"]
    if EVERYTHING:
        return exact
    return [each for i, each in enumerate(exact) if not i or exact[i - 1][0] is not each[0]]


SECOND = _second()


@pytest.mark.parametrize(("row", "asked"), SECOND, ids=names(SECOND))
def test_second_gradient(row: Row, asked: Case) -> None:
    check_second_gradient(row, _smaller(row, asked))
