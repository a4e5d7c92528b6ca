"""Places: reading what is there now without running code, and as text for a check."""

from __future__ import annotations

import contextvars
import weakref
from typing import Any

import pytest

from weft.engine.jit.places import MISSING, Place, cell_place, state_roots


class Holder:
    shared = 4

    def __init__(self) -> None:
        self.x = 1


def closure(value: int) -> Any:
    return lambda: value


HOLDER = Holder()
CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("test_places", default=6)
PLACES = {
    "attribute": (Place("attribute", HOLDER, "x", "x"), 1),
    "item": (Place("item", {"k": 2}, "k", "k"), 2),
    "element": (Place("element", [0, 3], 1, "[1]"), 3),
    "class": (Place("class", Holder, "shared", "shared"), 4),
    "cell": (cell_place(closure(5).__closure__[0], "value"), 5),
    "context": (Place("context", CONTEXT, None, "context"), 6),
    "reference": (Place("reference", weakref.ref(HOLDER), None, "ref"), HOLDER),
    "object": (Place("object", HOLDER, None, "holder"), HOLDER),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_there(kind: str) -> None:
    place, value = PLACES[kind]
    assert place.value() is value and place.kind == kind
    if kind != "element":
        assert eval(place.expression("it"), {"it": place.container}) is value


def test_what_is_gone_is_missing() -> None:
    assert Place("attribute", HOLDER, "gone", "gone").value() is MISSING
    assert Place("item", {}, "gone", "gone").value() is MISSING
    assert Place("element", [], 0, "[0]").value() is MISSING


def test_roots_are_the_places_that_hold_something() -> None:
    gone = Place("item", {}, "gone", "gone")
    roots = state_roots([gone, PLACES["attribute"][0], PLACES["object"][0]])
    assert roots == [(1, HOLDER, "x", 1), (2, None, None, HOLDER)]
