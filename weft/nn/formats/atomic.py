"""Files that appear whole or not at all.

In: a path. Out: a file to write to, which takes the path's place when it is complete.
Used by everything here that saves. Invariant: whenever the process dies, the path holds the old
contents or the new ones, never a part.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# a file that somebody is about to lock is younger than this
_SECONDS_TO_LOCK = 60.0
_LONGEST_NAME = 200
_SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], durable: bool = True) -> Iterator[IO[bytes]]:
    """A file to write, put in the place of `path` at the end unless the block raises.

    A durable one is on the disk itself before it takes its place, which costs time for each file.
    """
    # through a link to what it names: replacing the link itself would leave the old file behind
    target = Path(os.path.realpath(path))
    if durable:
        _remove_abandoned(target)
    temporary = target.with_name(f"{_prefix(target.name)}{secrets.token_hex(8)}{_SUFFIX}")
    # created with the user's own permissions for new files, which mkstemp would narrow
    handle = os.open(
        temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
    )
    try:
        with os.fdopen(handle, "wb") as file:
            _lock(file)
            with contextlib.suppress(OSError):
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """The new name survives a power cut too, where the system can say so."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(file: IO[bytes]) -> bool:
    """Marks a file as being written; the mark ends with the process, however it ends."""
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(target: Path) -> None:
    """What killed processes left of earlier saves; a checkpoint is too large to keep those."""
    prefix = _prefix(target.name)
    for left in target.parent.iterdir():
        if not (left.name.startswith(prefix) and left.name.endswith(_SUFFIX)):
            continue
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime < _SECONDS_TO_LOCK:
                continue
            with left.open("rb") as file:
                if _lock(file):
                    left.unlink()


def _prefix(name: str) -> str:
    """How the names of files for `name` start; a name of the greatest length leaves no room."""
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}."
