"""Races: two work items touch one element, one of them writes, and nothing orders the two.

In: every read and write of memory that work items share, with who does it and on which line. Out:
nothing, or a `RaceError` that names both. Under the interpreter, which runs the work items.
Invariant: what is found does not depend on the order in which the items ran. Items of different
groups are never ordered; items of one group are where a barrier stands between (its `epoch`, which
all items of the group raise together, differs). Writes of equal values are a race like any other,
unless the STORE is declared to overlap others that write the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.errors import RaceError


@dataclass(eq=False, slots=True)
class Warp:
    """Items that run in step where they exchange what they have."""

    number: int
    size: int = 0
    given: dict[int, Any] = field(default_factory=dict)  # by lane, of the exchange to come
    taken: Exchange | None = None  # the last one


@dataclass(eq=False, slots=True)
class Exchange:
    """What all lanes of a warp gave, and what was made of it, once for all of them."""

    given: dict[int, Any]
    result: Any = None


@dataclass(eq=False, slots=True)
class Meeting:
    """What the items of a group gave, by their number, and what each of them takes."""

    given: dict[int, Any] = field(default_factory=dict)
    result: dict[int, Any] | None = None


@dataclass(eq=False, slots=True)
class WorkItem:
    """One thread of one group, and how many barriers it has passed."""

    group: tuple[int, ...]
    thread: tuple[int, ...]
    epoch: int = 0
    warp: Warp | None = None
    lane: int = 0  # of its warp
    number: int = 0  # of its group
    # what all items of the group gave for an op that they do together, by its line and their epoch
    meetings: dict[tuple[int, int], Meeting] = field(default_factory=dict)
    # groups of copies that are under way, the last one still open
    fetches: list[list[Callable[[], None]]] = field(default_factory=lambda: [[]])
    # products that may still read, each with what it does when it is settled
    products: list[Callable[[], None]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"thread {_place(self.thread)} of group {_place(self.group)}"


def _place(indices: tuple[int, ...]) -> str:
    """Indices as x, y, z; a launch of one has none."""
    return str(indices[0] if len(indices) == 1 else indices) if indices else "0"


# who, after how many barriers, on which line
Touch = tuple[WorkItem, int, int]


class Watch:
    """Who touched the elements of one memory, as far as it can still matter.

    Groups run one after another. So of a group's reads before the last barrier, and of those of
    other groups, one each tells as much as all of them.
    """

    __slots__ = (
        "_kernel", "_memory", "_line_text", "_written", "_read", "_read_elsewhere", "_combined"
    )  # fmt: skip

    def __init__(self, kernel: str, memory: str, line_text: Callable[[int], str]) -> None:
        self._kernel = kernel
        self._memory = memory
        self._line_text = line_text
        self._written: dict[int, Touch] = {}
        self._combined: set[int] = set()  # written by steps that join values, and by nothing else
        # since the last barrier of a group: two readers, since one of them may be the writer
        self._read: dict[int, tuple[Touch, Touch | None]] = {}
        self._read_elsewhere: dict[int, Touch] = {}

    def read(self, element: int, item: WorkItem, line: int) -> None:
        """An item reads an element."""
        before = self._written.get(element)
        if before is not None and _is_race(before, item):
            raise self._race(element, before, (item, item.epoch, line), "read")
        now = (item, item.epoch, line)
        known = self._read.get(element)
        if known is None:
            self._read[element] = (now, None)
            return
        first, second = known
        if first[0].group != item.group:
            self._read_elsewhere[element] = first
            self._read[element] = (now, None)
        elif first[1] != item.epoch:
            self._read[element] = (now, None)
        elif second is None and first[0] is not item:
            self._read[element] = (first, now)

    def write(self, element: int, item: WorkItem, line: int, is_same: bool = False) -> None:
        """An item writes an element; `is_same`: what is there, and may be written again."""
        now = (item, item.epoch, line)
        before = self._written.get(element)
        if before is not None and not is_same and _is_race(before, item):
            raise self._race(element, before, now, "written")
        self._written[element] = now
        self._combined.discard(element)
        if element in self._read:
            for reader in (*self._read[element], self._read_elsewhere.get(element)):
                if reader is not None and _is_race(reader, item):
                    raise self._race(element, now, reader, "read")

    def combine(self, element: int, item: WorkItem, line: int) -> None:
        """An item joins a value with an element in one step; others may do so beside it."""
        self.write(element, item, line, element in self._combined)
        self._combined.add(element)

    def _race(self, element: int, writer: Touch, other: Touch, what: str) -> RaceError:
        first, second = [f"{self._line_text(line)} of {item}" for item, _, line in (writer, other)]
        why = "a group" if writer[0].group == other[0].group else "the launch"
        return RaceError(
            f"a race in kernel {self._kernel}: element {element} of {self._memory} is written by "
            f"{first} and {what} by {second}, and no barrier of {why} stands between the two; what "
            "one item writes is another's only after a barrier, and between groups in no case"
        )


def _is_race(before: Touch, item: WorkItem) -> bool:
    other, epoch, _ = before
    if other is item:
        return False
    return epoch == item.epoch or other.group != item.group


class WatchedPart:
    """A memory that overlaps others of the launch: all of them are watched by the byte."""

    __slots__ = ("_whole", "_start", "_width")

    def __init__(self, whole: Watch, start: int, width: int) -> None:
        self._whole = whole
        self._start = start
        self._width = width

    def read(self, element: int, item: WorkItem, line: int) -> None:
        """As of a `Watch`."""
        first = self._start + element * self._width
        for byte in range(first, first + self._width):
            self._whole.read(byte, item, line)

    def write(self, element: int, item: WorkItem, line: int, is_same: bool = False) -> None:
        """As of a `Watch`."""
        first = self._start + element * self._width
        for byte in range(first, first + self._width):
            self._whole.write(byte, item, line, is_same)

    def combine(self, element: int, item: WorkItem, line: int) -> None:
        """As of a `Watch`."""
        first = self._start + element * self._width
        for byte in range(first, first + self._width):
            self._whole.combine(byte, item, line)
