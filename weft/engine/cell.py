"""Cell, the identity of a storage: what several views of one tensor have in common.

In: a UOp, the current value of the whole storage. Out: the object that assignment changes and that
all views read. Sits under Tensor, and under realize, which replaces a value by its memory.
Invariant: a Cell's value is the whole storage; a view is movement ops applied on top, never stored
here. So whoever changes the value has changed every view.
"""

from __future__ import annotations

import itertools
import math
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

from weft.engine.live import LiveSet
from weft.engine.storage import held_with
from weft.uop.node import UOp
from weft.uop.opset import Ops

_clock = itertools.count(1)
# views of one storage before those that have ended are looked for
_MANY = 64


def now() -> int:
    """A moment: later calls give greater numbers."""
    return next(_clock)


@dataclass
class Known:
    """Where the value of an expression is; kept with its node.

    It serves every graph that holds the expression, until somebody writes the expression down
    anew: then only graphs older than `since`, so that timing a loop measures work and not memory
    of it.
    """

    storage: UOp
    found: int  # when the value was stored
    is_state: bool  # what a write left behind, not what an expression means
    since: float = math.inf


class Life:
    """How long the value of a cell may be found in graphs: until it is overwritten, or the cell
    ends."""

    __slots__ = ("__weakref__",)


class Cell:
    """One storage: `value` is what it holds now, `version` counts how often it was overwritten.

    `pure` marks a pure constant (a bare number and what is computed from those alone), which stays
    out of memory even when it is realized. `inline` marks an expression that is best computed
    wherever it is read, such as weights out of the few bits they are kept in: a jitted function
    does not store it either. `is_asked` says that somebody wants the gradient of it.
    """

    __slots__ = (
        "__weakref__",
        "_life",
        "_node",
        "_reads",
        "_seen_by",
        "before",
        "born",
        "formed",
        "inline",
        "is_asked",
        "origin",
        "pure",
        "sources",
        "users",
        "version",
        "write",
    )
    # None: it is known by its form (see forms.py), and nobody has asked for the graph yet
    _node: UOp | None
    # the form of the value and the storages that it is over; None: not looked for yet, (): it has
    # none that is known. Both in one, because another thread may just replace them.
    formed: Any
    sources: tuple[weakref.ref[Cell], ...]  # cells that wait, whose values are part of this one
    users: list[weakref.ref[Cell]]  # cells that wait, of which this one is a source
    origin: tuple[str, int] | None
    # the same as `formed`, of a write to the storage that waits; the storage is the first one
    write: Any
    before: UOp | None  # what the value was before that write
    _reads: tuple[UOp, frozenset[UOp]] | None  # a value that waits, and the storages in its graph
    live: ClassVar[LiveSet[Cell]] = LiveSet()
    # those without a storage: the others are found by theirs (`holders_of`)
    lazy: ClassVar[LiveSet[Cell]] = LiveSet()
    # those with writes that wait
    writing: ClassVar[LiveSet[Cell]] = LiveSet()

    def __init__(self, value: UOp, pure: bool = False) -> None:
        self.version = 0
        self._seen_by: list[weakref.ref[Any]] = []
        self._life: Life | None = None
        self._reads = None
        self.born = now()  # when the value was written down
        self.pure = pure
        self.inline = self.is_asked = False
        self._node = value
        self.formed = self.origin = self.write = None
        self.sources, self.users = (), []
        self.value = value
        _write_down(value, self.born)
        Cell.live.add(self)

    @classmethod
    def of_form(
        cls,
        formed: tuple[Any, tuple[UOp, ...]],
        sources: tuple[weakref.ref[Cell], ...],
        origin: tuple[str, int] | None,
    ) -> Cell:
        """A value that is known by its form; its graph is built if somebody asks for it."""
        cell = object.__new__(cls)
        cell.version = 0
        cell.born = next(_clock)
        cell.pure = cell.inline = cell.is_asked = False
        cell._seen_by = []
        cell._reads = None
        cell._life = cell._node = cell.write = None
        cell.formed = formed
        cell.sources = sources
        cell.users = []
        cell.origin = origin
        if sources:
            cell._tell_sources()
        Cell.lazy.add(cell)
        Cell.live.add(cell)
        return cell

    def written(self) -> None:
        """The write that waited has happened."""
        form, storages = self.write
        self._node, self.before = self.before, None
        self.formed = (form.place, storages[:1])
        self.write = None
        self.sources = ()
        Cell.writing.remove(self)

    def _tell_sources(self) -> None:
        mine = weakref.ref(self)
        for source in self.sources:
            found = source()
            if found is not None:
                found.users.append(mine)

    def write_form(
        self,
        write: tuple[Any, tuple[UOp, ...]],
        sources: tuple[weakref.ref[Cell], ...],
        origin: tuple[str, int] | None,
    ) -> None:
        """As `overwrite`, by a write that is known by its form."""
        self.before = self._node
        self._node = None
        self.formed = ()
        self.write = write
        self.sources = sources
        self.origin = origin
        if self._seen_by:
            self._take_back()
        if sources:
            self._tell_sources()
        Cell.writing.add(self)
        self.version += 1
        self.born = next(_clock)

    @classmethod
    def of_new(cls, value: UOp, storage: UOp) -> Cell:
        """The first cell of memory that nobody has seen yet, as quickly as can be."""
        cell = object.__new__(cls)
        cell.version = 0
        cell.born = next(_clock)
        cell.pure = cell.inline = cell.is_asked = False
        cell._seen_by = []
        cell._reads = None
        cell._life = cell.formed = cell.origin = cell.write = None
        cell.sources, cell.users = (), []
        cell._node = value
        storage.held.cells = [weakref.ref(cell)]
        Cell.live.add(cell)
        return cell

    def __repr__(self) -> str:
        return f"<Cell version {self.version} of {self.value!r}>"

    @property
    def value(self) -> UOp:
        """What the whole storage holds."""
        node = self._node
        return self._built() if node is None else node

    @value.setter
    def value(self, value: UOp) -> None:
        self._node = value
        self.formed = self.write = self._reads = None
        if self.sources:
            self.sources = ()
        if self._seen_by:
            self._take_back()
        storage = self.storage
        if storage is None:
            Cell.lazy.add(self)
            return
        Cell.lazy.remove(self)
        if self.is_realized:
            Cell.writing.remove(self)
        else:
            Cell.writing.add(self)
        held = held_with(storage)
        for reference in held.cells:
            if reference() is self:
                return
        alive = [reference for reference in held.cells if reference() is not None]
        held.cells = [*alive, weakref.ref(self)]

    @property
    def _value(self) -> UOp:
        return self.value

    def _built(self) -> UOp:
        """The graph of a value that was known by its form until now.

        Values that it is a part of are built too: they shall hold the very node, by which its
        memory and its gradient are found.
        """
        waiting = [cell for user in self.users if (cell := user()) and cell._node is None]
        for cell in (*waiting, self):
            formed = cell.formed or cell.write
            if not formed:
                # another thread has built it just now
                continue
            form, storages = formed
            cell._node = node = form.fill(storages, cell.origin)
            cell.formed, cell.sources, cell.write, cell.before = (), (), None, None
            for part in node.toposort(gate=_is_computed):
                _write_down(part, cell.born)
        self.users.clear()
        assert self._node is not None
        return self._node

    @property
    def life(self) -> Life:
        """What ends with the value that graphs hold."""
        if self._life is None:
            self._life = Life()
        return self._life

    def end_life(self) -> None:
        """Nothing leads to the value any more that graphs hold."""
        self._life = None

    def seen_by(self, tensor: Any) -> None:
        """Remembers a tensor that keeps a view of the value in `_uop`."""
        seen = self._seen_by
        if len(seen) >= _MANY and len(seen).bit_count() == 1:
            seen[:] = [reference for reference in seen if reference() is not None]
        seen.append(weakref.ref(tensor))

    def _take_back(self) -> None:
        """Views of the old value go: they would keep the memory of all that it was made from."""
        for reference in self._seen_by:
            tensor = reference()
            if tensor is not None:
                tensor._uop = None
        self._seen_by.clear()

    @staticmethod
    def holders_of(storage: UOp) -> list[Cell]:
        """The live cells whose memory this BUFFER is, oldest first."""
        found = [reference() for reference in held_with(storage).cells]
        return [cell for cell in found if cell is not None and cell.storage is storage]

    @staticmethod
    def owner_of(storage: UOp) -> Cell | None:
        """The first live cell whose memory this BUFFER is."""
        found = Cell.holders_of(storage)
        return found[0] if found else None

    @staticmethod
    def is_shared(storage: UOp) -> bool:
        """Whether the memory is that of several live cells: none of them may write in place.

        Equal expressions are one node, so realizing may give two cells the same memory. That is
        fine until one of them is written while both live: it then moves to memory of its own.
        """
        held = held_with(storage)
        return held.is_shared or (len(held.cells) > 1 and len(Cell.holders_of(storage)) > 1)

    def overwrite(self, value: UOp) -> None:
        """A new value in the same storage, seen by every view."""
        if self._life is not None and self.storage is None:
            # what is in memory is there until a write happens
            self.end_life()
        self.pure = self.inline = False
        self.value = value
        self.version += 1
        self.born = now()
        _write_down(value, self.born)

    @property
    def storage(self) -> UOp | None:
        """The BUFFER that holds the value, also while writes to it are pending."""
        node = self._node
        if node is None:
            write = self.write
            return write[1][0] if write else None
        while node.op in (Ops.RESHAPE, Ops.SHRINK, Ops.AFTER):
            node = node.src[0]
        return node if node.op is Ops.BUFFER else None

    @property
    def reads(self) -> frozenset[UOp]:
        """The storages that its value is computed from, and the one that it is written to."""
        node = self._node
        formed = self.formed or self.write
        if node is None and formed:
            return frozenset(formed[1])
        node = self.value
        if self._reads is None or self._reads[0] is not node:
            self._reads = (node, frozenset(u for u in node.toposort() if u.op is Ops.BUFFER))
        return self._reads[1]

    def rests_in(self, storage: UOp) -> bool:
        """Whether its value is in this memory, with no write pending."""
        node = self._node
        if node is None:
            return False
        while node.op in (Ops.RESHAPE, Ops.SHRINK):
            node = node.src[0]
        return node is storage

    @property
    def own_storage(self) -> UOp | None:
        """The BUFFER that holds the value and nobody else's; only that may be written in place."""
        storage = self.storage
        return None if storage is None or Cell.is_shared(storage) else storage

    @property
    def is_part(self) -> bool:
        """Whether its memory is a part of another's: no other cell can have that as its own."""
        storage = self.storage
        return storage is not None and held_with(storage).is_part

    @property
    def is_realized(self) -> bool:
        """Whether the value is in its memory already, with no write pending."""
        node = self._node
        if node is None:
            return False
        while node.op in (Ops.RESHAPE, Ops.SHRINK):
            node = node.src[0]
        return node.op is Ops.BUFFER


def _is_computed(node: UOp) -> bool:
    return node.op is not Ops.BUFFER


def _write_down(value: UOp, when: int) -> None:
    """An expression was written down: what is known of it until then is for older graphs."""
    known = value.held
    if type(known) is Known and not known.is_state and known.found < when:
        known.since = known.found
