"""Folders of recordings: a new name in one, the newest of one, and not too many kept.

What comes in: a folder and a suffix. What goes out: paths. Where it sits: under the recorder and
the profiler. The one invariant: making a name leaves at most `KEPT` files, the new one counted.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# How many recordings of a kind the cache folder keeps.
KEPT = 20


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
