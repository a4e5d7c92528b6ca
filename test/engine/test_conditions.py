"""conditions.py: what bounds leave open about slices is asked of the values, and only that."""

from __future__ import annotations

import pytest

from weft import Tensor, Variable
from weft.engine.conditions import check_bound, conditions_of, narrow
from weft.errors import IndexingError
from weft.uop.node import UOp

START = Variable("i", 0, 40)


def sliced(start: UOp, length: int = 4, size: int = 16) -> UOp:
    return UOp.sink(Tensor.empty(size).uop.shrink(((start, start + length),)))


def test_what_bounds_prove_asks_nothing() -> None:
    assert conditions_of(sliced(Variable("j", 0, 12))) == ()


def test_what_bounds_leave_open_is_asked_once() -> None:
    graph = sliced(START)
    twice = UOp.sink(*graph.src, *sliced(START).src)
    (condition,) = conditions_of(twice)
    assert condition.variables == [START]
    assert condition.holds({"i": 12}) and not condition.holds({"i": 13})


def test_the_error_names_the_values() -> None:
    (condition,) = conditions_of(sliced(START))
    condition.check({"i": 0})
    with pytest.raises(IndexingError, match="from 14 to 18 of an axis of 16 .* i = 14"):
        condition.check({"i": 14})


def test_narrow_leaves_the_values_for_which_it_holds() -> None:
    graph = sliced(START)
    narrowed = narrow(graph, conditions_of(graph), {"i": 3})
    (variable,) = narrowed.variables()
    assert (variable.vmin, variable.vmax) == (0, 12) and conditions_of(narrowed) == ()


def test_of_two_variables_neither_is_narrowed() -> None:
    other = Variable("n", 1, 16)
    graph = UOp.sink(Tensor.empty(16).uop.shrink(((START, START + other),)))
    assert narrow(graph, conditions_of(graph), {"i": 0, "n": 1}) is graph


def test_bound_values_are_checked_where_the_slice_is_written() -> None:
    check_bound(sliced(START.bind(12)).src[0])
    with pytest.raises(IndexingError):
        check_bound(sliced(START.bind(13)).src[0])
