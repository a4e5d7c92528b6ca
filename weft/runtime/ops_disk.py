"""DISK: files as memory. `DISK:<path>` is the device of one file; it stores and computes nothing.

In: buffers over a file, copies from and to them. Out: exactly those bytes read or written, with
positioned reads and writes in pieces: no page of a file is mapped, so one that shrinks under a
reader ends in an error and never in a signal. Opened by the registry, only when asked for.
Invariant: a base Buffer holds one open file, the same one until it dies. A path that is removed
or replaced meanwhile still reads as what was opened, and is never written by mistake.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from typing import Any

from weft.contracts import Allocator, BaseDevice
from weft.device import Device
from weft.errors import DataError, DeviceError, MissingFileError

# The most bytes that one system call moves, and that a copy from file to file holds.
PIECE = 1 << 24

_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class _Explained:
    """Says an error of the system in the user's terms.

    A class, not a generator: its frame would hold the error in a cycle, and with it the tensors of
    all frames below, until somebody collects garbage.
    """

    def __init__(self, path: str, what: str) -> None:
        self._path = path
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, OSError):
            return
        kind_of_error = DataError
        if isinstance(error, FileNotFoundError):
            folder = os.path.dirname(self._path)
            found = "no such file" if os.path.isdir(folder) else f"there is no folder {folder}"
            kind_of_error = MissingFileError
        elif isinstance(error, PermissionError):
            hint = "; copy it to where you may write" if self._what == "written" else ""
            found = f"{error.strerror}{hint}"
        else:
            found = error.strerror or str(error)
        raise kind_of_error(f"{self._path} cannot be {self._what}: {found}") from None


class DiskFile:
    """One file of `nbytes` bytes, opened for reading when it is there, for writing when written.

    Writing makes a file that is missing, and lengthens one that is shorter than `nbytes`; it never
    shortens one.
    """

    def __init__(self, path: str, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes
        self.can_write = False
        self._handle: int | None = None
        self._lock = threading.Lock()
        if os.path.exists(path):
            self._handle = self._open(os.O_RDONLY, "opened")

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self.can_write = False
        if handle is not None:
            os.close(handle)

    def _open(self, flags: int, what: str) -> int:
        with self._explained(what):
            # Asked before opening: opening a pipe would wait for its other end.
            if os.path.exists(self.path) and not stat.S_ISREG(os.stat(self.path).st_mode):
                kind = "a directory" if os.path.isdir(self.path) else "no regular file"
                raise DataError(f"{self.path} cannot be {what}: it is {kind}; name a file")
            return os.open(self.path, flags | _FLAGS, 0o666)

    def _explained(self, what: str) -> _Explained:
        """The system's errors in the user's terms."""
        return _Explained(self.path, what)

    def for_reading(self) -> int:
        handle = self._handle
        if handle is not None:
            return handle
        with self._lock:
            if self._handle is None:
                self._handle = self._open(os.O_RDONLY, "read")
            return self._handle

    def for_writing(self) -> int:
        with self._lock:
            if self._handle is None or not self.can_write:
                self._reopen_for_writing()
            assert self._handle is not None
            return self._handle

    def _reopen_for_writing(self) -> None:
        make = os.O_CREAT if self._handle is None else 0
        handle = self._open(os.O_RDWR | make, "written")
        try:
            if self._handle is not None and not is_same_file(self._handle, handle):
                raise DataError(
                    f"{self.path} cannot be written: another file was put in its place since it "
                    "was opened; open it again"
                )
            with self._explained("written"):
                if os.fstat(handle).st_size < self.nbytes:
                    os.ftruncate(handle, self.nbytes)
        except BaseException:
            os.close(handle)
            raise
        if self._handle is None:
            self._handle = handle
        else:
            # The number stays: another thread may be reading through it at this moment.
            os.dup2(handle, self._handle, inheritable=False)
            os.close(handle)
        self.can_write = True

    def read(self, target: memoryview, start: int) -> None:
        """Fills `target` with the bytes from `start` on."""
        handle = self.for_reading()
        done = 0
        while done < target.nbytes:
            part = target[done : done + PIECE]
            with self._explained("read"):
                count = self._read_part(handle, part, start + done)
            if count == 0:
                raise DataError(
                    f"bytes {start} to {start + target.nbytes} of {self.path} were asked for, but "
                    f"it has {os.fstat(handle).st_size} bytes: it is shorter than the Tensor over "
                    "it, or was cut since that was made"
                )
            done += count

    def write(self, source: memoryview, start: int) -> None:
        """Puts the bytes of `source` at `start`."""
        handle = self.for_writing()
        done = 0
        while done < source.nbytes:
            with self._explained("written"):
                done += self._write_part(handle, source[done : done + PIECE], start + done)

    def _read_part(self, handle: int, target: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(handle, [target], start)
        if hasattr(os, "pread"):
            found = os.pread(handle, target.nbytes, start)
        else:
            with self._lock:
                os.lseek(handle, start, os.SEEK_SET)
                found = os.read(handle, target.nbytes)
        target[: len(found)] = found
        return len(found)

    def _write_part(self, handle: int, source: memoryview, start: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(handle, source, start)
        with self._lock:
            os.lseek(handle, start, os.SEEK_SET)
            return os.write(handle, source)


def is_same_file(left: int, right: int) -> bool:
    """Whether two handles are of one file."""
    return os.path.samestat(os.fstat(left), os.fstat(right))


@dataclass(frozen=True)
class DiskMemory:
    """The bytes of a file from `start` on."""

    file: DiskFile
    start: int


class DiskAllocator(Allocator):
    """Bytes of one file. An opaque is a `DiskMemory`."""

    def __init__(self, device: str, path: str) -> None:
        super().__init__(device)
        self.path = path

    def _count(self, nbytes: int) -> None:
        """Files take no memory, so they are not counted."""

    def _alloc(self, nbytes: int) -> DiskMemory:
        return DiskMemory(DiskFile(self.path, nbytes), 0)

    def _free(self, opaque: Any, nbytes: int) -> None:
        opaque.file.close()

    def copyin(self, opaque: Any, source: memoryview) -> None:
        opaque.file.write(source, opaque.start)

    def copyout(self, target: memoryview, opaque: Any) -> None:
        opaque.file.read(target, opaque.start)

    def offset(self, opaque: Any, nbytes: int) -> DiskMemory:
        return DiskMemory(opaque.file, opaque.start + nbytes)

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        """File to file through one piece of memory; parts of one file may overlap."""
        if not isinstance(source_allocator, DiskAllocator):
            return False
        # Reading first: whether there is something to copy is known before a file is made.
        reading = source.file.for_reading()
        writing = target.file.for_writing()
        starts = range(0, nbytes, PIECE)
        # Moving towards the end of a file, the last piece goes first: it must not be overwritten
        # before it is read.
        backwards = target.start > source.start and is_same_file(reading, writing)
        piece = memoryview(bytearray(min(PIECE, nbytes)))
        for start in reversed(starts) if backwards else starts:
            part = piece[: min(PIECE, nbytes - start)]
            source.file.read(part, source.start + start)
            target.file.write(part, target.start + start)
        return True


class DiskDevice(BaseDevice):
    """One file."""

    executes = False
    # What is here is moved elsewhere to be computed with.
    is_storage = True

    def __init__(self, name: str) -> None:
        path = name.partition(":")[2]
        if not path or path.isdigit():
            # A number would be a count of devices, as in CPU:1.
            example = f"./{path}" if path else "/a/file"
            raise DeviceError(f"{name} names no file: write for example DISK:{example}")
        # Where the path leads is decided once, whatever becomes of the current folder.
        self.path = os.path.abspath(path)
        super().__init__(name, DiskAllocator(name, self.path), None, self._refuse_to_render)

    def _refuse_to_render(self) -> Any:
        raise DeviceError(
            f"{self.name} only stores and computes nothing; move the Tensor first: "
            f'x.to("{Device.DEFAULT}")'
        )
