"""Recording: whoever wants to know what a piece of Python computes is told here.

In: a recorder, installed for the current thread. Out: what realize runs, which random numbers are
drawn and when memory is read out, told to that recorder.
Sits under realize and the random numbers, which report; the JIT listens.
Invariant: a recorder hears of its own thread only, and only while it is installed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from weft.uop.node import UOp


class Recorder(Protocol):
    """Who is told."""

    random_slots: list[Any]  # names of pending draws, see RandomState
    pasts: list[Any]  # of what was realized meanwhile, see history.py

    def before_realize(self, sink: UOp) -> None:
        """SINK(values) will be scheduled and run next."""

    def before_execute(self, prepared: Any, request: Any) -> None:
        """A schedule will run over the buffers of a request; it may still be refused."""

    def after_execute(self, nodes: dict[int, UOp]) -> None:
        """The schedule ran; the BUFFER of each memory that has one."""

    def drew(self, slot: int, words: int, key: tuple[int, int]) -> None:
        """So many random words were drawn: the slot and its key."""

    def seeded(self, seed: int) -> None:
        """The sequence of random numbers starts again."""

    def refuse(self, what: str) -> None:
        """Something that no replay can repeat is about to happen."""


_thread = threading.local()
_lock = threading.Lock()
# recordings of all threads; where there is none nobody need ask for the thread's
listeners = 0


def active() -> Recorder | None:
    """The recorder of this thread."""
    found: Recorder | None = getattr(_thread, "recorder", None)
    return found


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Install a recorder; with None nobody listens."""
    global listeners
    before = active()
    with _lock:
        listeners += 1
    _thread.recorder = recorder
    try:
        yield
    finally:
        _thread.recorder = before
        with _lock:
            listeners -= 1


@contextmanager
def observing(observer: Callable[..., None]) -> Iterator[None]:
    """Tell an observer of all calls in this thread, as `sys.setprofile` does."""
    before = sys.getprofile()
    # a profiler that is written in C is not called, but told when to start
    is_native = hasattr(before, "disable") and hasattr(before, "enable")
    if is_native:
        before.disable()  # type: ignore[union-attr]
    outer = getattr(_thread, "observer", None)
    _thread.observer = observer
    sys.setprofile(observer)
    try:
        yield
    finally:
        _thread.observer = outer
        sys.setprofile(None if is_native else before)
        if is_native:
            before.enable()  # type: ignore[union-attr]


def unobserved() -> AbstractContextManager[None]:
    """While weft does its own work, which is most of a run: an observer need not hear of it."""
    if listeners and getattr(_thread, "observer", None) is not None:
        return _pausing(_thread.observer)
    return _NOTHING


@contextmanager
def _pausing(observer: Callable[..., None]) -> Iterator[None]:
    sys.setprofile(None)
    _thread.observer = None
    try:
        yield
    finally:
        _thread.observer = observer
        sys.setprofile(observer)


_NOTHING = nullcontext()
