"""The saved trace: a zip file of JSON, written while a program runs, read part by part.

What comes in: plain data of the recorder; later the path of a file. What goes out: the file, and
its parts as plain data again.
Where it sits: between the recorder and the server, which share nothing else.
The one invariant: a trace is data. Nothing in it is ever executed or unpickled, and a damaged or
hostile file ends in a `DataError`.

    index.json      what ran: schedules, kernels, units, rules, source lines, totals
    timeline.json   launches and compile phases by time, memory by time
    unit/N.json     one unit (a kernel or a schedule): its nodes, passes and rewrite steps
    code/N.json     the unit's program, source and assembly
    threads/N.json  what the waves of a kernel's first launch issued when, where its device says it
    streams/N.json  the same as the device recorded it, for its own tools
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
import zlib
from pathlib import Path
from typing import Any

from weft.errors import DataError

FORMAT = "weft-trace"
VERSION = 1
SUFFIX = ".weft"
# More than any part of an honest trace has; a small zip file can claim to hold anything.
MOST_BYTES = 1 << 30


class TraceWriter:
    """Writes parts as they come; the file appears under its name when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        # unbuffered: what a forked child inherits must hold nothing that it would write
        self._file = os.fdopen(handle, "w+b", buffering=0)
        # the fastest level: most of what there is to gain is repeated keys and numbers
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def write(self, name: str, data: Any) -> None:
        """Adds one part."""
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
        with self._lock:
            self._zip.writestr(name, text)

    def close(self) -> Path:
        """Completes the file."""
        with self._lock:
            self._zip.close()
            self._file.close()
            os.replace(self._partial, self.path)
        return self.path

    def abandon(self) -> None:
        """Leaves nothing behind."""
        with self._lock:
            self._zip.close()
            self._file.close()
            self._partial.unlink(missing_ok=True)

    def forget(self) -> None:
        """In a forked child: the file is the parent's, and closing the zip would write to it."""
        self._zip.fp = None
        self._file.close()


class TraceReader:
    """Reads the parts of a trace, each when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._zip = zipfile.ZipFile(path)
            self._names = frozenset(self._zip.namelist())
        except FileNotFoundError:
            raise DataError(f"there is no trace {path}") from None
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._refusal(f"it does not open: {error}") from None
        self.index = self.read("index.json")
        if not isinstance(self.index, dict) or self.index.get("format") != FORMAT:
            raise self._refusal(f"it does not say that its format is {FORMAT}")
        if self.index.get("version") != VERSION:
            raise DataError(
                f"{path} is a trace of version {self.index.get('version')!r}, this weft reads "
                f"version {VERSION}; record it again"
            )

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        return name in self._names

    def raw(self, name: str) -> bytes:
        """The JSON text of a part."""
        if name not in self._names:
            raise DataError(f"the trace {self.path} has no {name}")
        try:
            with self._lock:
                if self._zip.getinfo(name).file_size > MOST_BYTES:
                    raise self._refusal(f"{name} would have more than {MOST_BYTES} bytes")
                return self._zip.read(name)
        except DataError:
            raise
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as why:
            # a RuntimeError may be a method of compression or a password that Python lacks
            raise self._refusal(f"{name} cannot be read: {why}") from None

    def read(self, name: str) -> Any:
        """The data of a part."""
        try:
            return json.loads(self.raw(name))
        except (ValueError, RecursionError) as error:
            raise self._refusal(f"{name} is no JSON: {error}") from None

    def close(self) -> None:
        """Gives the file back."""
        with self._lock:
            self._zip.close()

    def _refusal(self, why: str) -> DataError:
        return DataError(f"{self.path} is no trace of weft, or a damaged one: {why}")
