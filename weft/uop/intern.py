"""The table of live nodes: what makes equal nodes one object.

What comes in: a new node and the key of its contents. What goes out: the node that stands for them.
Where it sits: under `node.py`, whose `UOp.__new__` looks into `table` before it makes a node.
The one invariant: an entry holds its node weakly and its key strongly, so a node lives as long as
somebody else holds it, and its sources at least as long as itself.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Entries that may wait while kernels are made.
_MOST_WAITING = 1000

_lock = threading.RLock()


class NodeRef(weakref.ref[Any]):
    """A table entry: knows its key, so that a dead node takes its entry along.

    None: it is not, or no longer, in the table.
    """

    __slots__ = ("key",)
    key: tuple[Any, ...] | None


table: dict[tuple[Any, ...], NodeRef] = {}
# Entries of dead nodes that are still to be removed.
dead: deque[NodeRef] = deque()
_is_sweeping = False


def forget(entry: NodeRef | None = None) -> None:
    """A node died: remove its entry, and those that are waiting.

    Runs inside the collector of any thread, so it must not wait: if another thread holds the table,
    that one does it when it is done. An entry's key holds the sources, so removing one may kill the
    next node: a loop, not recursion.
    """
    global _is_sweeping
    if entry is not None:
        dead.append(entry)
    if _is_sweeping or not _lock.acquire(False):
        return
    _is_sweeping = True
    remove, next_dead, key = table.pop, dead.popleft, None
    try:
        while dead:
            # its key goes with it, and with that the sources: they come next in this loop
            key = next_dead().key
            # None: a new node already lives under the same key
            if key is not None:
                remove(key, None)
                key = None
    finally:
        _is_sweeping = False
        _lock.release()


@atexit.register
def _rest() -> None:
    """When the interpreter ends modules are taken apart: nodes that die then are left in the table,
    as comparing keys would find builtins that are gone."""
    global _is_sweeping
    _is_sweeping = True


class Deaths:
    """What happens when a new node dies, and how many entries of dead nodes may wait."""

    __slots__ = ("at_death", "makers", "may_wait")

    def __init__(self) -> None:
        self.at_death: Callable[[NodeRef], None] = forget
        self.may_wait = 0
        self.makers = 0  # threads that make kernels

    def count_makers(self, change: int) -> None:
        with _lock:
            self.makers += change
            waits = bool(self.makers)
            self.at_death, self.may_wait = (dead.append, _MOST_WAITING) if waits else (forget, 0)


deaths = Deaths()


@contextmanager
def leisurely_deaths() -> Iterator[None]:
    """Within the block the entries of dead nodes are removed many at a time: several times faster.

    For the passes over a kernel, which make and drop nodes by the thousand, and where only memory
    of the compiler depends on when that happens.
    """
    deaths.count_makers(1)
    try:
        yield
    finally:
        deaths.count_makers(-1)
        forget()


def take_place(entry: NodeRef, new_entry: NodeRef, node: Any) -> Any:
    """The node that stands in the table where `node` should: another thread's, or a dead one."""
    key = new_entry.key
    assert key is not None, "a new entry has a key"
    # entries are replaced and removed under the lock, but added without
    with _lock:
        while entry is not new_entry:
            found = entry()
            if found is not None:
                new_entry.key = None
                return found
            if table.get(key) is entry:
                table[key] = new_entry
                entry.key = None
            entry = table.setdefault(key, new_entry)
    return node


def live_uops() -> int:
    """How many distinct nodes are alive."""
    forget()
    return len(table)
