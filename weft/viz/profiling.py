"""`PROFILE=1`: writes a profile of the whole program when it ends.

What comes in: what the viewer's recorder hears of launches, phases and memory. What goes out: a
file of the Trace Event Format, and where it is on standard error. Where it sits: beside
`recording`, whose recorder it uses without its graphs. The one invariant: the program's output is
not touched.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from weft.disk import cache_folder, write_atomically
from weft.knobs import JIT, PROFILE_TRACE, Context
from weft.viz.profile_file import trace_events
from weft.viz.recording import Recorder
from weft.viz.shelf import flush_output, newest, path_for
from weft.viz.trace_file import TraceReader

SUFFIX = ".json"


def profile_folder() -> Path:
    """Where profiles are kept that were not asked for by name."""
    return cache_folder() / "profiles"


def last_profile() -> Path | None:
    """The newest profile of the folder."""
    return newest(profile_folder(), SUFFIX)


class Profiler:
    """Listens from its making to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = tempfile.TemporaryDirectory(prefix="weft-profile-")
        self.recorder = Recorder(Path(self._folder.name) / "parts.weft", rewrites=False)

    def close(self) -> Path:
        """Write the profile."""
        reader = TraceReader(self.recorder.close())
        try:
            events = trace_events(reader.index, reader.read("timeline.json"))
        finally:
            reader.close()
            self._folder.cleanup()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(events, separators=(",", ":")).encode())
        return self.path


@contextlib.contextmanager
def profiling(path: str | os.PathLike[str]) -> Iterator[None]:
    """Profile what the block computes. Within it a jit replays its kernels one by one."""
    profiler = Profiler(Path(path))
    with Context(JIT=min(JIT.value, 1) * 2):
        try:
            yield
        finally:
            profiler.close()


def start() -> None:
    """Profile until the program ends, then say where the file is."""
    profiler = Profiler(path_for(PROFILE_TRACE, profile_folder(), SUFFIX))
    JIT.value = min(JIT.value, 1) * 2
    owner = os.getpid()
    atexit.register(_finish, profiler, owner)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=profiler.recorder.forget)


def _finish(profiler: Profiler, owner: int) -> None:
    if os.getpid() == owner and profiler.recorder.is_open:
        path = profiler.close()
        flush_output()
        print(f"weft: the profile is {path}; `weft profile {path}` sums it up", file=sys.stderr)
