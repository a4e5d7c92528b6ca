"""The queue of a device whose launches come back before the work is done.

In: programs, buffers, values. Out: launches, in the order in which they were asked for. Shared by
the devices with a driver: CUDA, CL, WEBGPU, METAL.
Invariant: signals are what the context counts, so waiting for one never waits for later work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from weft.contracts import Origin, Program
from weft.device import Buffer


class Submissions(Protocol):
    """What a device's context counts: what was submitted, and what is known to be done."""

    submitted: int
    completed: int

    def synchronize(self) -> None:
        """Returns when all that was submitted is done."""


class LaunchedProgram(Program):
    """A loaded kernel whose launch may fail later, and then names a line of the user's."""

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        return self.launch(bufs, vals, wait, None)

    @abstractmethod
    def launch(
        self, bufs: Sequence[Buffer], vals: Sequence[int], wait: bool, origin: Origin | None
    ) -> float | None:
        """Submits the kernel; with `wait` the seconds that it took."""


class LaunchQueue:
    """The one queue of a device."""

    def __init__(self, context: Submissions) -> None:
        self._context = context

    def submit(
        self,
        program: Program,
        bufs: Sequence[Buffer],
        vals: Sequence[int],
        wait: bool = False,
        origin: Origin | None = None,
    ) -> float | None:
        """Launches; seconds if `wait`."""
        assert isinstance(program, LaunchedProgram)
        return program.launch(bufs, vals, wait, origin)

    def copy(self, target: Buffer, source: Buffer) -> None:
        """In the order of the work of both devices."""
        target.copy_from(source)

    def signal(self) -> int:
        """How much was submitted so far."""
        return self._context.submitted

    def wait(self, value: int) -> None:
        """Returns when so much is done."""
        if value > self._context.completed or not value:
            self._context.synchronize()
