"""Folders of recordings: a new name in one, the newest of one, and not too many kept.

What comes in: a folder and a suffix, or the path a user asked for. What goes out: paths that can be
written. Where it sits: under the recorder and the profiler. The one invariant: making a name leaves
at most `KEPT` files, the new one counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import time
from pathlib import Path

from weft.errors import DataError
from weft.knobs import ContextVar

# How many recordings of a kind the cache folder keeps.
KEPT = 20


def flush_output() -> None:
    """Let go of what the program printed, before something is said about it.

    Standard output that is no terminal is kept until there is enough of it.
    """
    # it may be closed, or nobody reads it any more
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()


def _by_age(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"), key=lambda path: path.stat().st_mtime)


def newest(folder: Path, suffix: str) -> Path | None:
    """The last recording of the folder, if there is one."""
    found = _by_age(folder, suffix)
    return found[-1] if found else None


def new_path(folder: Path, suffix: str) -> Path:
    """A name for a recording of this program; the oldest ones make room for it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    old = _by_age(folder, suffix)
    for path in old[: max(0, len(old) - KEPT + 1)]:
        path.unlink(missing_ok=True)
    name = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{name[:40]}-{os.getpid()}{suffix}"


def path_for(asked: ContextVar[str], folder: Path, suffix: str) -> Path:
    """Where a recording goes: to the file that the knob names, or to a new one of the folder.

    Found out at the beginning: at the end of a long program it would be too late to be told.
    """
    if not asked.value:
        try:
            return new_path(folder, suffix)
        except OSError:
            # a read-only cache is no reason not to watch
            return new_path(Path(tempfile.mkdtemp(prefix="weft-")), suffix)
    path = Path(asked.value).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            reason = errno.EISDIR if path.is_dir() else errno.EACCES
            raise OSError(reason, os.strerror(reason))
    except OSError as error:
        raise DataError(
            f"{asked.name}={asked.value}: no file can be written there ({error.strerror}); "
            "name one in a folder that is yours, or leave it out for one in the cache folder"
        ) from None
    return path
