"""What weft keeps on disk between runs: a cache of values, bounded, shared by all processes.

In: keys, bytes or JSON values. Out: the value that was put, or None. Sits between the knobs and
the helpers, which pass its names on. Invariants: an entry is bytes or JSON and never unpickled; it
appears whole or not at all; one that does not match its checksum, or stands under another name
than its own, does not exist; and trouble with the cache is one warning, never an exception.

No lock is ever taken, so no process waits for another, and one that is killed leaves nothing
locked. What was written is counted by the length of a file that every writer appends to; whoever
finds the bound passed removes the entries that were used longest ago.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from weft.errors import ArgumentError
from weft.knobs import CACHE_MB, CACHELEVEL, WEFT_CACHE, getenv

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# An entry: this line, the digest of its name and the rest, one letter for the kind, the value.
_MAGIC = b"weft cache 2\n"
_DIGEST_SIZE = hashlib.sha256().digest_size
# What a file takes on disk is a multiple of this, nearly everywhere.
_BLOCK = 4096
# Beside the tables: one byte for every block written since the entries were counted.
_LEDGER = ".written"
_TEMPORARY = ".tmp-"
# A temporary file older than this was left by a process that died. An entry is marked as used at
# most this often.
_HOUR = 3600.0

_warned: set[str] = set()
# Folders that were found to be private to this user.
_private: set[str] = set()
_names = itertools.count()


def cache_folder() -> Path:
    """The folder of everything on disk, private to the user. Not created here."""
    if WEFT_CACHE.value:
        return Path(WEFT_CACHE.value).expanduser()
    given = getenv("XDG_CACHE_HOME", "")
    if given:
        return Path(given) / "weft"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "weft"
    if sys.platform == "win32":
        return Path(getenv("LOCALAPPDATA", str(Path.home()))) / "weft"
    return Path.home() / ".cache" / "weft"


def entries_folder() -> Path:
    """The folder of the cache's tables."""
    return cache_folder() / "cache"


def _warn_once(kind: str, text: str) -> None:
    """One warning for each kind of trouble: a read-only disk must not flood the terminal."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _warn_unused(error: OSError) -> None:
    _warn_once("unused", f"weft's disk cache is not used: {error}; CACHELEVEL=0 switches it off")


def private_folder(folder: Path) -> Path:
    """Creates `folder` for this user alone. Raises OSError if it belongs to somebody else."""
    if str(folder) not in _private or not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(folder)
    return folder


def _require_private(folder: Path) -> None:
    """Raises OSError unless the folder exists and only this user may write to it."""
    if str(folder) in _private:
        return
    if hasattr(os, "getuid"):
        found = folder.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise PermissionError(f"others than this user may write to {folder}")
    _private.add(str(folder))


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file such that a reader sees the old one, or the whole new one, and nothing else."""
    name = f"{_TEMPORARY}{os.getpid()}-{next(_names)}-{os.urandom(8).hex()}"
    temporary = os.path.join(path.parent, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# *** keys and entries ***


def _key_text(key: Any) -> str:
    """A key as text. Keys are JSON values or bytes."""
    if isinstance(key, bytes):
        return "bytes:" + key.hex()
    try:
        return "json:" + json.dumps(key, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a cache key must be bytes or JSON, but is {key!r}: {error}") from None


def _entry_path(table: str, key: Any) -> Path:
    if not isinstance(table, str):
        raise ArgumentError(f"a cache table is named by text, found {table!r}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", table) or table.startswith("."):
        # no name of a folder: a hash stands for it, and its letters for whoever looks
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", table)[:40]
        table = f"t_{plain}-{hashlib.sha256(table.encode()).hexdigest()[:16]}"
    name = hashlib.sha256(_key_text(key).encode()).hexdigest()
    return entries_folder() / table / name[:2] / name


def _encode_entry(table: str, name: str, body: bytes) -> bytes:
    """The file of a value. Under another name, or with any bit changed, it is no entry."""
    return _MAGIC + hashlib.sha256(f"{table}/{name}:".encode() + body).digest() + body


def _decode_entry(path: Path, entry: bytes) -> bytes | None:
    """The kind and the value, or None if the file is not what was written under this name."""
    body = entry[len(_MAGIC) + _DIGEST_SIZE :]
    whole = body[:1] in (b"B", b"J", b"L")
    whole = whole and entry == _encode_entry(path.parent.parent.name, path.name, body)
    return body if whole else None


def diskcache_get(table: str, key: Any) -> Any:
    """The value put under `key`, or None."""
    if CACHELEVEL < 1:
        return None
    path = _entry_path(table, key)
    try:
        _require_private(cache_folder())
        with open(path, "rb") as file:
            entry = file.read()
            used = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_unused(error)
        return None
    body = _decode_entry(path, entry)
    if body is None:
        _warn_once("damaged", f"a damaged entry of weft's disk cache is ignored: {path}")
        return None
    if time.time() - used > _HOUR:
        _mark_used(path)
    if body[:1] == b"L":
        return ast.literal_eval(body[1:].decode())
    return body[1:] if body[:1] == b"B" else json.loads(body[1:])


def _mark_used(path: Path) -> None:
    """Eviction goes by the time of the last change; whoever may not write may still read."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _encode_value(value: Any) -> bytes:
    """As JSON if that gives the same again, else as a literal: tuples, sets, any keys of dicts."""
    try:
        text = json.dumps(value)
        if json.loads(text) == value:
            return b"J" + text.encode()
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        text = repr(value)
        if ast.literal_eval(text) == value:
            return b"L" + text.encode()
    except (SyntaxError, ValueError, RecursionError):
        pass
    raise ArgumentError(f"a cached value must be bytes or JSON, or a literal: {value!r:.200}")


def diskcache_put(table: str, key: Any, value: Any) -> Any:
    """Puts bytes, a JSON value or a literal of Python's under `key` and returns it."""
    path = _entry_path(table, key)
    body = b"B" + value if isinstance(value, bytes) else _encode_value(value)
    entry = _encode_entry(path.parent.parent.name, path.name, body)
    # one entry must not push out all others
    if CACHELEVEL < 1 or (CACHE_MB > 0 and len(entry) > _bound() // 4):
        return value
    try:
        private_folder(cache_folder())
        try:
            write_atomically(path, entry)
        except FileNotFoundError:
            # the first of its folder, or somebody cleared the cache a moment ago
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, entry)
        _count_written(len(entry))
    except OSError as error:
        _warn_unused(error)
    return value


# *** the bound ***


def _bound() -> int:
    return int(CACHE_MB) << 20


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _count_written(size: int) -> None:
    """Adds to the count of all writers; makes room where the bound is passed."""
    ledger = entries_folder() / _LEDGER
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        before = os.fstat(handle).st_size
        os.write(handle, b"." * _blocks(size))
    finally:
        os.close(handle)
    # a count that was lost starts with what is there
    if before == 0 or (CACHE_MB > 0 and (before + _blocks(size)) * _BLOCK > _bound()):
        make_room()


def make_room() -> None:
    """Removes what was used longest ago until three quarters of the bound are taken.

    Also what dead processes left behind. Any number of processes may do this at once.
    """
    found = list(_files())
    abandoned = time.time() - _HOUR
    for entry in found:
        if entry.path.name.startswith(_TEMPORARY) and entry.used < abandoned:
            _remove(entry.path)
    entries = [entry for entry in found if not entry.path.name.startswith(".")]
    taken = sum(_blocks(entry.size) for entry in entries)
    if CACHE_MB > 0 and taken * _BLOCK > _bound():
        entries.sort(key=lambda entry: entry.used)
        for entry in entries:
            if taken * _BLOCK <= _bound() * 3 // 4:
                break
            _remove(entry.path)
            taken -= _blocks(entry.size)
    # at least one, for nothing means that nobody has counted
    os.truncate(entries_folder() / _LEDGER, max(1, taken))


def _remove(path: Path) -> None:
    # another process may have been faster
    with contextlib.suppress(OSError):
        path.unlink()


# *** looking after it ***


@dataclass(frozen=True)
class CacheEntry:
    """A file of the cache: whose table it is in, how large it is, when it was last used."""

    table: str
    path: Path
    size: int
    used: float


def _files() -> Iterator[CacheEntry]:
    """All files of all tables, temporary ones too; what vanishes meanwhile is left out."""
    for table in _list(entries_folder()):
        for shelf in _list(table.path):
            for file in _list(shelf.path):
                with contextlib.suppress(OSError):
                    found = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield CacheEntry(table.name, Path(file.path), found.st_size, found.st_mtime)


def _list(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def cache_entries() -> Iterator[CacheEntry]:
    """The entries, in no order."""
    return (entry for entry in _files() if not entry.path.name.startswith("."))


def is_whole(entry: CacheEntry) -> bool:
    """Whether an entry is what was written, under its own name; one that is gone is no damage."""
    try:
        return _decode_entry(entry.path, entry.path.read_bytes()) is not None
    except FileNotFoundError:
        return True
    except OSError:
        return False


def diskcache_remove(entry: CacheEntry) -> None:
    """Removes one entry; that it is gone already is as good."""
    _remove(entry.path)


def diskcache_clear() -> None:
    """Forgets all cached values. Downloaded files stay."""
    import shutil

    shutil.rmtree(entries_folder(), ignore_errors=True)


def diskcache(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a pure function of JSON arguments with a cache on disk of its bytes or JSON."""
    table = f"call-{function.__module__}.{function.__qualname__}"
    table = re.sub(r"[^A-Za-z0-9_.-]", "_", table)

    @functools.wraps(function)
    def cached(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        key = [list(args), kwargs]
        # In a list, for a result may itself be None.
        found = diskcache_get(table, key)
        if isinstance(found, bytes):
            return cast(Result, found)
        if found is not None:
            return cast(Result, found[0])
        result = function(*args, **kwargs)
        diskcache_put(table, key, result if isinstance(result, bytes) else [result])
        return result

    return cached
