"""The pool on Python's threads, for systems without futexes.

In: addresses of kernels `void fn(ptr args, i64 begin, i64 end)`, the size of their parallel axis.
Out: the same work done in pieces by the calling thread and the workers. Stands in for `pool`'s
native one, with the same methods.
Invariant: a kernel runs without the GIL, or its threads would take turns.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from typing import Any

from weft.runtime.llvm import usable_cores

KernelFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class PythonPool:
    """The same on Python's threads, for systems without futexes. A kernel runs without the GIL."""

    def __init__(self) -> None:
        self._forget_workers()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_workers)

    def _forget_workers(self) -> None:
        self._busy = threading.Lock()
        self._jobs: queue.SimpleQueue[_Region] = queue.SimpleQueue()
        self._workers = 0

    def prepare(self) -> None:
        """There is nothing to make."""

    def run(self, function: int, args: int, size: int) -> None:
        """Calls `function(args, begin, end)` over [0, size); returns when all of it is done."""
        helpers = min(usable_cores(), size) - 1
        kernel = KernelFunction(function)
        if helpers < 1 or not self._busy.acquire(blocking=False):
            if size > 0:
                kernel(args, 0, size)
            return
        try:
            while self._workers < helpers:
                threading.Thread(target=_serve, args=(self._jobs,), daemon=True).start()
                self._workers += 1
            region = _Region(kernel, args, size, min(size, 4 * helpers + 4))
            for _ in range(helpers):
                self._jobs.put(region)
            region.work()
            for _ in range(helpers):
                region.finished.acquire()
        finally:
            self._busy.release()

    def run_table(self, table: int, count: int, threads: int) -> None:
        """Runs `count` rows of three 64-bit words (function, args, size), one after the other."""
        rows = (ctypes.c_int64 * (3 * count)).from_address(table)
        for index in range(count):
            self.run(*rows[3 * index : 3 * index + 3])

    is_prepared = True
    # of a guarded table, as far as anybody can tell
    rows_begun = 1 << 62

    def run_guarded(self, table: int, count: int, threads: int) -> None:
        """As `run_table`. Signals come when it is done: these threads cannot be told to stop."""
        self.run_table(table, count, threads)

    def begin_table(self, table: int, threads: int) -> int:
        """Nothing is begun: all is left to `finish_table`."""
        return 0

    def finish_table(self, table: int, count: int, threads: int, begun: int) -> None:
        """Runs a table that was begun; returns when all of it is done."""
        self.run_table(table, count, threads)


class _Region:
    """One call of `run` that the workers share."""

    def __init__(self, kernel: Any, args: int, size: int, chunks: int) -> None:
        self.kernel = kernel
        self.args = args
        self.size = size
        self.chunks = chunks
        # The next of a range is taken by exactly one thread.
        self.numbers = iter(range(chunks))
        self.finished = threading.Semaphore(0)

    def work(self) -> None:
        for number in self.numbers:
            begin, end = [n * self.size // self.chunks for n in (number, number + 1)]
            self.kernel(self.args, begin, end)


def _serve(jobs: queue.SimpleQueue[_Region]) -> None:
    while True:
        region = jobs.get()
        try:
            region.work()
        finally:
            region.finished.release()
