"""One GPU: its context, the stream that all work goes to, and what to say when work fails.

In: launches and waits. Out: handles for the driver's calls, marks in the stream, errors that name
kernels and the user's lines. Between the driver and the rest of the CUDA device.
Invariant: a call of the driver happens in the process that opened the context and with the context
current in its thread; after an error that loses the context nothing is submitted any more.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from pathlib import PurePath
from typing import Any

from weft.contracts import Origin
from weft.errors import DeviceError
from weft.runtime.cuda_driver import NOT_READY, STICKY, Driver, DriverError, Int, Pointer, Size

# attributes of a device, by the driver's numbers
_PROCESSORS, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 75, 76
_CACHE_BYTES, _SHARED_BYTES, _SHARED_BYTES_MOST, _COMPUTE_MODE = 38, 8, 97, 20
_PROHIBITED = 2
# a stream that does not wait for the one that other libraries use by default
_NON_BLOCKING = 1
_NO_TIMING = 2
# how many launches an error can name
_NAMED = 8

_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


class Context:
    """A GPU that is open. `number` is the driver's."""

    def __init__(self, driver: Driver, name: str, number: int) -> None:
        self.driver = driver
        self.name = name
        self.number = number
        count = driver.device_count()
        if number >= count:
            raise DeviceError(
                f"{name}: the driver shows {count} GPU{'' if count == 1 else 's'}, "
                f"so the last one is number {count - 1}"
            )
        handle = Int()
        driver.call("cuDeviceGet", ctypes.byref(handle), number)
        self.device = handle.value
        if self.attribute(_COMPUTE_MODE) == _PROHIBITED:
            raise DeviceError(f"{name}: the GPU's compute mode prohibits its use; see nvidia-smi")
        self.handle = Pointer()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.handle), self.device)
        self._thread = threading.local()
        self._is_forked = False
        self.lost = ""  # why nothing can run any more
        # Counts launches: before and after the driver's call, and those that are known to be done.
        # What is freed after a launch is then freed after its number, whatever other threads do.
        self.noted = 0
        self.submitted = 0
        self.completed = 0
        self._recent: deque[tuple[str, Origin | None]] = deque(maxlen=64)
        self._marks: deque[tuple[int, Any]] = deque()
        self._spare_events: list[Any] = []
        self._lock = threading.RLock()
        self.use()
        # Work of other libraries on their default stream is in order with ours: memory that is
        # shared and freed needs no more than that.
        self.stream = self._new_stream(0)
        self.copies = self._new_stream(_NON_BLOCKING)
        _contexts.add(self)

    # ------------------------------------------------------------ facts
    def attribute(self, number: int) -> int:
        """A fact of the GPU, by the driver's number."""
        found = Int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(found), number, self.device)
        return found.value

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability."""
        return self.attribute(_CAPABILITY_MAJOR), self.attribute(_CAPABILITY_MINOR)

    @property
    def processors(self) -> int:
        """Streaming multiprocessors."""
        return self.attribute(_PROCESSORS)

    @property
    def cache_bytes(self) -> int:
        """The second cache level."""
        return self.attribute(_CACHE_BYTES)

    @property
    def shared_bytes(self) -> int:
        """Shared memory that a group may have without asking."""
        return self.attribute(_SHARED_BYTES)

    @property
    def most_shared_bytes(self) -> int:
        """Shared memory that a group may have if it asks."""
        return self.attribute(_SHARED_BYTES_MOST)

    @property
    def model(self) -> str:
        """The GPU's name."""
        text = ctypes.create_string_buffer(128)
        self.driver.call("cuDeviceGetName", text, 128, self.device)
        return text.value.decode(errors="replace")

    def memory(self) -> tuple[int, int]:
        """Free bytes and all bytes of the GPU, other programs included."""
        self.use()
        free, total = Size(), Size()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # ------------------------------------------------------------ calling
    def use(self) -> None:
        """Makes the context the current one of this thread. Before every call of the driver."""
        if getattr(self._thread, "is_set", False) and not self._is_forked:
            if self.lost:
                self._refuse()
            return
        if self._is_forked:
            raise DeviceError(
                f"{self.name} was opened before this process was forked, and a forked process "
                'cannot use a GPU of its parent; start it with multiprocessing\'s "spawn", or use '
                f"{self.name} in the child only"
            )
        self.check(self.driver.cuCtxSetCurrent(self.handle), "cuCtxSetCurrent")
        self._thread.is_set = True

    @property
    def is_usable(self) -> bool:
        """Whether calls can be made at all; memory of a lost or a parent's context is not freed."""
        return not (self.lost or self._is_forked)

    def _refuse(self) -> None:
        raise DeviceError(
            f"{self.name} is lost since an earlier error ({self.lost}); restart the process"
        )

    def check(self, code: int, what: str) -> None:
        """Raises what a result code stands for; where that loses the context, all that is known."""
        if code == 0:
            return
        if code not in STICKY:
            self.driver.check(code, what)
        if self.lost:
            self._refuse()
        self.lost = f"error {code}"
        raise DriverError(
            f"{self.name}: {self.driver.describe(code)}, found by {what}. {self._suspects()} "
            f"{self.name} is lost for this process: nothing can be run or copied there any more. "
            "Restart it, with DEBUG=2 to wait for each kernel and see the one that fails",
            code,
        )

    def call(self, name: str, *arguments: Any) -> None:
        """A call of the driver by name; `use` comes before."""
        self.check(getattr(self.driver, name)(*arguments), name)

    def _suspects(self) -> str:
        """The launches that may have failed, the last first."""
        count = self.noted - self.completed
        if count == 0:
            return "No kernel of weft was running."
        recent = list(self._recent)[-min(count, _NAMED) :]
        named = [f"{name}{place_text(origin)}" for name, origin in reversed(recent)]
        more = f", and {count - len(named)} before" if count > len(named) else ""
        which = "It was" if count == 1 else f"It was one of {count} launches, the last first:"
        return f"{which} {', '.join(named)}{more}."

    # ------------------------------------------------------------ work
    def note_launch(self, name: str, origin: Origin | None) -> None:
        """Something will be submitted: `count_launch` follows."""
        with self._lock:
            self.noted += 1
            self._recent.append((name, origin))

    def count_launch(self) -> None:
        """It was submitted."""
        with self._lock:
            self.submitted += 1

    def synchronize(self) -> None:
        """Returns when all that was submitted is done."""
        self.use()
        before = self.submitted
        self.call("cuStreamSynchronize", self.stream)
        with self._lock:
            self.completed = max(self.completed, before)
            if self.submitted == before:
                # launches that were refused are not waited for
                self.noted = before

    def _new_stream(self, flags: int) -> Any:
        stream = Pointer()
        self.call("cuStreamCreate", ctypes.byref(stream), flags)
        return stream

    def new_event(self, has_time: bool = False) -> Any:
        """A point in a stream, to be recorded."""
        event = Pointer()
        self.call("cuEventCreate", ctypes.byref(event), 0 if has_time else _NO_TIMING)
        return event

    # ------------------------------------------------------------ marks: how far the stream is
    def mark(self) -> Any:
        """An event in the stream, after everything that was submitted."""
        with self._lock:
            self._forget_marks()
            if self._marks and self._marks[-1][0] == self.submitted:
                return self._marks[-1][1]
            event = self._spare_events.pop() if self._spare_events else self.new_event()
            self.call("cuEventRecord", event, self.stream)
            self._marks.append((self.submitted, event))
            return event

    def _forget_marks(self) -> None:
        while self._marks:
            count, event = self._marks[0]
            code = self.driver.cuEventQuery(event)
            if code == NOT_READY:
                return
            self.check(code, "cuEventQuery")
            self.completed = max(self.completed, count)
            self._marks.popleft()
            self._spare_events.append(event)

    def wait_for(self, stream: Any, count: int) -> None:
        """Lets a stream wait until the first `count` launches are done."""
        if count <= self.completed:
            return
        with self._lock:
            self._forget_marks()
            if count <= self.completed:
                return
            event = next((event for so_far, event in self._marks if so_far >= count), None)
            self.call("cuStreamWaitEvent", stream, self.mark() if event is None else event, 0)


def place_text(origin: Origin | None) -> str:
    """A line of the user's, as it follows a kernel's name."""
    return "" if origin is None else f" ({PurePath(origin[0]).name}:{origin[1]})"


def _forget_in_child() -> None:
    for context in list(_contexts):
        context._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
