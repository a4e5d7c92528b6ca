"""LiveSet: objects for as long as somebody else holds them.

What comes in: objects. What goes out: those that are still alive, in the order they were added.
Where it sits: under the cells and the tensors, which register here when they are made.
The one invariant: an object's end takes its entry along, without running any Python: tensors come
and go by the thousand, and their ends must cost next to nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LiveSet(Generic[T]):
    """Each object is added once."""

    __slots__ = ("_forget", "_references")

    def __init__(self) -> None:
        self._references: dict[weakref.ref[T], None] = {}
        self._forget: Callable[[Any], None] = self._references.__delitem__

    def add(self, value: T) -> None:
        """From now until its end."""
        self._references[weakref.ref(value, self._forget)] = None

    def remove(self, value: T) -> None:
        """Before its end."""
        # references to one object are equal while it lives
        self._references.pop(weakref.ref(value), None)

    def __iter__(self) -> Iterator[T]:
        # a copy: any of them may end meanwhile
        for reference in list(self._references):
            value = reference()
            if value is not None:
                yield value

    def __len__(self) -> int:
        return len(self._references)
