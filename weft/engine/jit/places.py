"""Places: where a value is that a function reads, and how it is read again.

In: a container (an object, a cell, the globals of a module, a class, a list) and a key. Out: the
value that is there now; its text, as a user would name it.
Sits above `objects`, below `guards`, which compares what is in places.
Invariant: reading a place runs none of the user's code.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()


class Place:
    """One place. `kind` says how it is read, see `value`."""

    __slots__ = ("container", "key", "kind", "text")

    def __init__(self, kind: str, container: Any, key: Any, text: str) -> None:
        self.kind = kind
        self.container = container
        self.key = key
        self.text = text

    def __str__(self) -> str:
        return self.text

    def value(self) -> Any:
        """What is there now; MISSING if there is nothing."""
        container, key = self.container, self.key
        try:
            if self.kind == "attribute":
                return getattr(container, key)
            if self.kind in ("item", "element"):
                return container[key]
            if self.kind == "cell":
                return container.cell_contents
            if self.kind == "class":
                return container.__dict__[key]
            if self.kind == "reference":
                return container()
            if self.kind == "context":
                return container.get()
        except (AttributeError, LookupError, ValueError):
            return MISSING
        return container

    def find(self) -> tuple[Any, Any, Any]:
        """(container, key, value); an object that stands for itself is in no container."""
        if self.kind == "object":
            return None, None, self.container
        return self.container, self.key, self.value()

    def expression(self, container: str) -> str:
        """Python that reads it, given a name for the container."""
        if self.kind == "attribute":
            return f"{container}.{self.key}"
        return {
            "item": f"{container}[{self.key!r}]",
            "cell": f"{container}.cell_contents",
            "class": f"{container}.__dict__[{self.key!r}]",
            "reference": f"{container}()",
            "context": f"{container}.get()",
            "object": container,
        }[self.kind]


def state_roots(places: Iterable[Place]) -> list[tuple[Any, Any, Any, Any]]:
    """(number, container, key, value) of places that hold something now."""
    roots = []
    for number, place in enumerate(places):
        container, key, value = place.find()
        if value is not MISSING:
            roots.append((number, container, key, value))
    return roots


def cell_place(cell: types.CellType, name: str) -> Place:
    """The contents of a closure's cell."""
    return Place("cell", cell, "cell_contents", name)
