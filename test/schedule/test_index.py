"""index.py: where an element of a view is in its source, checked against NumPy for each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.dtype import dtypes
from weft.schedule.index import (
    Views,
    as_index,
    both,
    flatten_index,
    needed_guard,
    source_index,
    unflatten_index,
)
from weft.uop.node import UOp

SHAPE = (4, 6)
VIEWS: dict[str, tuple[Callable[[UOp], UOp], Callable[[Any], Any]]] = {
    "reshape": (lambda u: u.reshape((2, 3, 4)), lambda a: a.reshape(2, 3, 4)),
    "reshape of one axis": (lambda u: u.reshape((4, 2, 3)), lambda a: a.reshape(4, 2, 3)),
    "permute": (lambda u: u.permute((1, 0)), lambda a: a.T),
    "shrink": (lambda u: u.shrink(((1, 3), (2, 6))), lambda a: a[1:3, 2:6]),
    "flip": (lambda u: u.flip((1,)), lambda a: a[:, ::-1]),
    "pad": (lambda u: u.pad(((1, 0), (0, 2))), lambda a: np.pad(a, ((1, 0), (0, 2)))),
    "expand": (
        lambda u: u.reshape((4, 1, 6)).expand((4, 3, 6)),
        lambda a: np.broadcast_to(a[:, None], (4, 3, 6)),
    ),
}


def value_at(view: UOp, position: tuple[int, ...], data: Any) -> Any:
    """The element of a view of memory, found by the indices of its sources."""
    idx = tuple(as_index(i) for i in position)
    guard: UOp | None = None
    node = view
    while node.src:
        idx, condition = source_index(node, idx)
        guard = both(guard, condition)
        node = node.src[0]
    if guard is not None and not guard.simplify().arg:
        return 0
    return data[flatten_index(idx, node.shape).simplify().arg]


@pytest.mark.parametrize("name", VIEWS)
def test_every_element_of_a_view_is_where_numpy_has_it(name: str) -> None:
    move, reference = VIEWS[name]
    data = np.arange(1, 25)
    view = move(UOp.new_buffer("CPU", 24, dtypes.int32).reshape(SHAPE))
    wanted = reference(data.reshape(SHAPE))
    assert view.shape == wanted.shape
    for position in np.ndindex(wanted.shape):
        assert value_at(view, position, data) == wanted[position], position


def test_positions_and_elements_are_each_others_inverse() -> None:
    for flat in range(24):
        element = unflatten_index(as_index(flat), (2, 3, 4))
        assert flatten_index(element, (2, 3, 4)).arg == flat


def test_an_axis_that_a_reshape_keeps_costs_nothing() -> None:
    i, j = UOp.range(6, 0), UOp.range(4, 1)
    node = UOp.new_buffer("CPU", 24, dtypes.int32).reshape((2, 3, 4)).reshape((6, 4))
    index, guard = source_index(node, (i, j))
    assert index[2] is j and guard is None


def test_a_pad_that_is_never_reached_has_no_guard() -> None:
    padded = UOp.new_buffer("CPU", 8, dtypes.int32).pad(((2, 2),))
    inner = UOp.range(8, 0) + 2
    index, guard = source_index(padded, (inner.simplify(),))
    assert guard is None and index[0] is UOp.range(8, 0)
    _, guard = source_index(padded, (UOp.range(12, 0),))
    assert guard is not None


def test_a_load_only_needs_the_guard_of_its_own_axes() -> None:
    i, j = UOp.range(4, 0), UOp.range(12, 1)
    guard = (i >= 1) & (j < 9)
    assert needed_guard(j, guard, 9) is (j < 9)
    assert needed_guard(i, None, 4) is None


def test_what_was_asked_before_is_remembered() -> None:
    views = Views()
    node = UOp.new_buffer("CPU", 24, dtypes.int32).reshape(SHAPE).permute((1, 0))
    idx = (UOp.range(6, 0), UOp.range(4, 1))
    assert views.source(node, idx) is views.source(node, idx)
