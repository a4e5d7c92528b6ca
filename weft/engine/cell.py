"""Cell, the identity of a storage: what several views of one tensor have in common.

In: a UOp, the current value of the whole storage. Out: the object that assignment changes and that
all views read. Sits under Tensor, and under realize, which replaces a value by its memory.
Invariant: a Cell's value is the whole storage; a view is movement ops applied on top, never stored
here. So whoever changes the value has changed every view.
"""

from __future__ import annotations

import weakref
from typing import ClassVar

from weft.uop.node import UOp
from weft.uop.opset import Ops


class Cell:
    """One storage: `value` is what it holds now, `version` counts how often it was overwritten.

    `pure` marks a pure constant (a bare number and what is computed from those alone), which stays
    out of memory even when it is realized.
    """

    __slots__ = ("__weakref__", "pure", "value", "version")
    live: ClassVar[weakref.WeakSet[Cell]] = weakref.WeakSet()

    def __init__(self, value: UOp, pure: bool = False) -> None:
        self.value = value
        self.version = 0
        self.pure = pure
        Cell.live.add(self)

    def __repr__(self) -> str:
        return f"<Cell version {self.version} of {self.value!r}>"

    def overwrite(self, value: UOp) -> None:
        """A new value in the same storage, seen by every view."""
        self.value = value
        self.version += 1
        self.pure = False

    @property
    def storage(self) -> UOp | None:
        """The BUFFER that holds the value, also when writes to it are pending; None if there is none."""
        node = self.value
        while node.op in (Ops.RESHAPE, Ops.AFTER):
            node = node.src[0]
        return node if node.op is Ops.BUFFER else None

    @property
    def is_realized(self) -> bool:
        """Whether the value is in its memory already, with no write pending."""
        node = self.value
        while node.op is Ops.RESHAPE:
            node = node.src[0]
        return node.op is Ops.BUFFER
