"""Ctrl-C while memory is written in place: obeyed at once, or soon, and never half done in silence.

In: the BUFFERs that a schedule overwrites, and how far it has come. Out: `writing_in_place`, a
block in which Ctrl-C has this meaning. Sits under whatever runs schedules: realize, eager, the JIT.
Invariant: memory that was left in the middle of a write is lost, and says so when it is read.

Before the first kernel that writes in place, nothing has happened: Ctrl-C ends the rest at once.
After it, what is left is finished, which in a training step is a small part of it. If that takes
`LONGEST_SECONDS`, or Ctrl-C is pressed again, it is left where it stands, and all that it was to
write is lost: a part of it may be new and a part old.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft.device import Buffer
from weft.engine import history
from weft.engine.cell import Cell
from weft.engine.known import forget, forget_readers
from weft.engine.storage import held_with, shaped, storages_of
from weft.errors import LostError
from weft.uop.node import UOp
from weft.uop.opset import Ops

# After so long, who pressed Ctrl-C is told why nothing happens.
SILENT_SECONDS = 1.0
# After so long, it is obeyed.
LONGEST_SECONDS = 5.0
# Two signals within it are one press: wrappers such as make hand on what their child got already.
ONE_PRESS_SECONDS = 0.25


class Writing(Protocol):
    """How far a schedule that writes in place has come."""

    def begin(self) -> None:
        """What comes now writes."""

    def watch(self, has_begun: Callable[[], bool]) -> None:
        """What comes now may write, at a moment that only this knows."""

    def end(self) -> None:
        """All is written; what is left has to be noted, and takes no time."""


class _Nothing:
    """Nothing is written in place, or no Ctrl-C comes here: it may be obeyed at any time."""

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def begin(self) -> None:
        pass

    def watch(self, has_begun: Callable[[], bool]) -> None:
        pass

    def end(self) -> None:
        pass


NOTHING = _Nothing()


def writing_in_place(storages: Sequence[UOp]) -> _Nothing | _InPlace:
    """A block that overwrites these BUFFERs. Only the main thread gets Ctrl-C."""
    if not storages or threading.current_thread() is not threading.main_thread():
        return NOTHING
    handler = signal.getsignal(signal.SIGINT)
    # otherwise the process ends, or nothing happens: in both cases without Python
    return _InPlace(storages, handler) if callable(handler) else NOTHING


class _InPlace:
    """Decides what a Ctrl-C that comes inside of the block does."""

    __slots__ = ("_begun", "_first", "_handler", "_is_over", "_left", "_storages", "_timers")

    def __init__(self, storages: Sequence[UOp], handler: Callable[[int, Any], Any]) -> None:
        self._storages = storages
        self._handler = handler
        self._begun: Callable[[], bool] | None = None
        self._first: float | None = None  # when it was pressed
        self._is_over = self._left = False
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> Writing:
        signal.signal(signal.SIGINT, self._on_signal)
        return self

    def begin(self) -> None:
        self._begun = _always

    def watch(self, has_begun: Callable[[], bool]) -> None:
        has_begun_before = self._begun is not None and self._begun()
        self._begun = _always if has_begun_before else has_begun

    def end(self) -> None:
        self._begun, self._is_over = _always, True

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._begun is None or not self._begun():
            self._handler(number, frame)
            return
        if self._first is None:
            self._first = time.monotonic()
            self._after(SILENT_SECONDS, _say_waiting)
            self._after(LONGEST_SECONDS, _press)
        elif not self._is_over and time.monotonic() - self._first > ONE_PRESS_SECONDS:
            self._left = True
            self._handler(number, frame)
            # a handler that raises nothing has heard of it
            self._left = False

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._handler)
        for timer in self._timers:
            timer.cancel()
        if self._left:
            lose(self._storages)
        elif self._first is not None:
            signal.raise_signal(signal.SIGINT)


def _always() -> bool:
    return True


def _press() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _say_waiting() -> None:
    print(
        "weft: Ctrl-C waits for a step that writes in place; pressed again, or after "
        f"{LONGEST_SECONDS:.0f} seconds, it leaves the step, and what that writes is lost",
        file=sys.stderr,
        flush=True,
    )


# ------------------------------------------------------------ memory that was left half written
class LostBuffer(Buffer):
    """Memory whose contents are neither what they were nor what they should be."""

    __slots__ = ()

    def allocate(self) -> Buffer:
        raise LostError(
            f"{self.size} elements of {self.dtype} on {self.device} were being written in place "
            "when Ctrl-C came, so what they held is lost: assign new values, or load them again"
        )

    def ensure_allocated(self) -> Buffer:
        return self.allocate()

    def _require_contents(self, what: str) -> None:
        self.allocate()


def lose(storages: Sequence[UOp]) -> None:
    """Whoever reads these BUFFERs from now on gets an error; whoever writes a whole one anew gets
    other memory."""
    history.overwrite(storages)
    forget_readers(set(storages))
    for storage in storages:
        forget(storage)
        for part in storages_of(storage):
            held_with(part).buffer = LostBuffer(part.arg.device, part.arg.size, part.dtype)
        for cell in Cell.holders_of(storage):
            # an expression and no storage: assigning to it does not write where it is
            value = shaped(storage, cell.value.shape)
            cell.overwrite(UOp(Ops.CONTIGUOUS, value.dtype, (value,)))


def is_lost(storage: UOp) -> bool:
    """Whether the contents of a BUFFER are."""
    return any([type(held_with(part).buffer) is LostBuffer for part in storages_of(storage)])
