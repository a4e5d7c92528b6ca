"""What happens over time, in columns: launches, memory, phases of the compiler.

What comes in: single events, from any thread. What goes out: plain lists for the timeline.
Where it sits: under the recorder.
The one invariant: each of these is bounded, however long a program runs; totals stay exact.
"""

from __future__ import annotations

import threading
import time
from typing import Any

MOST_LAUNCHES = 200_000
MOST_SPANS = 50_000
MOST_MEMORY = 100_000
# shorter phases are cache hits
LEAST_SPAN = 20e-6


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 2)


class Launches:
    """Each launch of a schedule's item: when, and how long."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.starts: list[float] = []
        self.lengths: list[float] = []
        self.items: list[int] = []
        self.dropped = 0
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        self._seconds: dict[int, float] = {}
        self._best: dict[int, float] = {}

    def add(self, item: int, start: float, seconds: float) -> None:
        """One launch."""
        with self._lock:
            self._counts[item] = self._counts.get(item, 0) + 1
            self._seconds[item] = self._seconds.get(item, 0.0) + seconds
            self._best[item] = min(self._best.get(item, seconds), seconds)
            if len(self.items) >= MOST_LAUNCHES:
                self.dropped += 1
                return
            self.starts.append(_microseconds(start - self.began))
            self.lengths.append(_microseconds(seconds))
            self.items.append(item)

    def totals(self, items: int) -> tuple[list[int], list[float], list[float]]:
        """Launches, their seconds, and the fastest, of each item."""
        return (
            [self._counts.get(i, 0) for i in range(items)],
            [self._seconds.get(i, 0.0) for i in range(items)],
            [self._best.get(i, 0.0) for i in range(items)],
        )

    def data(self) -> dict[str, Any]:
        """Columns; times are microseconds since the recording began."""
        return {"start": self.starts, "length": self.lengths, "item": self.items}


class MemoryUse:
    """Bytes in use on each device, whenever that changes."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.devices: dict[str, tuple[list[float], list[int]]] = {}

    def add(self, device: str, in_use: int) -> None:
        """Called inside allocators, also from finalizers: must not wait for anything."""
        found = self.devices.get(device)
        if found is None:
            found = self.devices.setdefault(device, ([], []))
        times, sizes = found
        times.append(_microseconds(time.perf_counter() - self.began))
        sizes.append(in_use)
        if len(sizes) >= MOST_MEMORY:
            _halve(times, sizes)

    def data(self) -> dict[str, Any]:
        """For each device two columns: microseconds, bytes."""
        return {
            device: {"time": times[: len(sizes)], "bytes": sizes[: len(times)]}
            for device, (times, sizes) in self.devices.items()
        }


def _halve(times: list[float], sizes: list[int]) -> None:
    """Of each two neighbours the larger stays, so that peaks do."""
    kept = [i if sizes[i] >= sizes[i + 1] else i + 1 for i in range(0, len(sizes) - 1, 2)]
    times[:] = [times[i] for i in kept]
    sizes[:] = [sizes[i] for i in kept]


class Spans:
    """Phases of the compiler, which nest; each thread has its own."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.rows: list[list[Any]] = []
        self._here = threading.local()

    def enter(self) -> float:
        """A phase begins."""
        self._here.depth = getattr(self._here, "depth", 0) + 1
        return time.perf_counter()

    def leave(self, start: float, name: str, detail: str) -> None:
        """The phase that began at `start` is over."""
        seconds = time.perf_counter() - start
        self._here.depth -= 1
        if seconds >= LEAST_SPAN and len(self.rows) < MOST_SPANS:
            thread = threading.current_thread().name
            began = _microseconds(start - self.began)
            row = [name, detail, thread, self._here.depth, began, _microseconds(seconds)]
            self.rows.append(row)

    def data(self) -> list[list[Any]]:
        """Rows of name, detail, thread, depth, start and length in microseconds, by start."""
        return sorted(self.rows, key=lambda row: row[4])
