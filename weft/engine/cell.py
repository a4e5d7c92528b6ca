"""Cell, the identity of a storage: what several views of one tensor have in common.

In: a UOp, the current value of the whole storage. Out: the object that assignment changes and that
all views read. Sits under Tensor, and under realize, which replaces a value by its memory.
Invariant: a Cell's value is the whole storage; a view is movement ops applied on top, never stored
here. So whoever changes the value has changed every view.
"""

from __future__ import annotations

import itertools
import weakref
from typing import ClassVar

from weft.uop.node import UOp
from weft.uop.opset import Ops

_clock = itertools.count(1)


def now() -> int:
    """A moment: later calls give greater numbers."""
    return next(_clock)


class Cell:
    """One storage: `value` is what it holds now, `version` counts how often it was overwritten.

    `pure` marks a pure constant (a bare number and what is computed from those alone), which stays
    out of memory even when it is realized.
    """

    __slots__ = ("__weakref__", "_value", "born", "pure", "version")
    live: ClassVar[weakref.WeakSet[Cell]] = weakref.WeakSet()
    # Equal expressions are one node, so realizing may give two cells the same memory. That is fine
    # until one of them is written: it then moves to memory of its own.
    _owners: ClassVar[weakref.WeakKeyDictionary[UOp, weakref.ref[Cell]]] = (
        weakref.WeakKeyDictionary()
    )
    _shared: ClassVar[weakref.WeakSet[UOp]] = weakref.WeakSet()

    def __init__(self, value: UOp, pure: bool = False) -> None:
        self.version = 0
        self.born = now()  # when the value was written down
        self.pure = pure
        self.value = value
        Cell.live.add(self)

    def __repr__(self) -> str:
        return f"<Cell version {self.version} of {self.value!r}>"

    @property
    def value(self) -> UOp:
        """What the whole storage holds."""
        return self._value

    @value.setter
    def value(self, value: UOp) -> None:
        self._value = value
        storage = self.storage
        if storage is None:
            return
        owner = Cell.owner_of(storage)
        if owner is None:
            Cell._owners[storage] = weakref.ref(self)
        elif owner is not self:
            Cell._shared.add(storage)

    @staticmethod
    def owner_of(storage: UOp) -> Cell | None:
        """The first live cell whose memory this BUFFER is."""
        found = Cell._owners.get(storage)
        return None if found is None else found()

    def overwrite(self, value: UOp) -> None:
        """A new value in the same storage, seen by every view."""
        self.pure = False
        self.value = value
        self.version += 1
        self.born = now()

    @property
    def storage(self) -> UOp | None:
        """The BUFFER that holds the value, also while writes to it are pending."""
        node = self._value
        while node.op in (Ops.RESHAPE, Ops.SHRINK, Ops.AFTER):
            node = node.src[0]
        return node if node.op is Ops.BUFFER else None

    @property
    def own_storage(self) -> UOp | None:
        """The BUFFER that holds the value and nobody else's; only that may be written in place."""
        storage = self.storage
        return None if storage is None or storage in Cell._shared else storage

    @property
    def is_realized(self) -> bool:
        """Whether the value is in its memory already, with no write pending."""
        node = self._value
        while node.op in (Ops.RESHAPE, Ops.SHRINK):
            node = node.src[0]
        return node.op is Ops.BUFFER
