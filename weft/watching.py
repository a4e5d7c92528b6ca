"""Counters and clocks: what has run in this process, and how long a block of it took.

In: blocks of Python, and the engine, which counts. Out: numbers that `DEBUG` and tests read, lines
of text. Sits under `helpers`, which passes its names on.
Invariant: watching changes nothing of what is watched.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from types import TracebackType


class Counters:
    """What has run so far in this process."""

    __slots__ = (
        "global_mem",
        "global_ops",
        "kernel_count",
        "mem_used",
        "mem_used_per_device",
        "time_sum_s",
    )

    def __init__(self) -> None:
        self.mem_used = 0
        self.mem_used_per_device: defaultdict[str, int] = defaultdict(int)
        self.reset()

    def reset(self) -> None:
        """Sets the counters of work to zero. Memory in use stays in use, so its counters stay."""
        self.global_ops = 0
        self.global_mem = 0
        self.time_sum_s = 0.0
        self.kernel_count = 0


# an object and no class: to set something of a class makes Python forget what it knows of it
GlobalCounters = Counters()


class Timing(contextlib.ContextDecorator):
    """Prints how long a block took. `on_exit` may add to the line; it is given nanoseconds."""

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix = prefix
        self.on_exit = on_exit
        self.enabled = enabled

    def __enter__(self) -> Timing:
        self.start = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.et = time.perf_counter_ns() - self.start
        if self.enabled:
            addition = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{addition}")


class Profiling(contextlib.ContextDecorator):
    """Prints where the Python time of a block went, or saves the profile to the file `fn`."""

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ) -> None:
        self.enabled = enabled
        self.sort = sort
        self.frac = frac
        self.fn = fn
        self.ts = ts

    def __enter__(self) -> Profiling:
        import cProfile

        # In milliseconds, or in units of `ts` of them: seconds would print as zeros.
        self.profile = cProfile.Profile(time.perf_counter_ns, 1e-6 / self.ts)
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.enabled:
            return
        import pstats

        self.profile.disable()
        if self.fn:
            self.profile.dump_stats(self.fn)
        pstats.Stats(self.profile).strip_dirs().sort_stats(self.sort).print_stats(self.frac)


@contextlib.contextmanager
def disable_gc() -> Generator[None, None, None]:
    """Runs a block, or a decorated function, without garbage collection."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
