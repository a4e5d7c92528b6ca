"""Memory that other processes of the machine can read: one file without a name, mapped by all.

In: sizes. Out: `SharedMemory`, blocks of a range of addresses behind a file in memory; `Window`,
the same range of another process. Sits under the device of a rank.
Invariant: a byte of the range is at one offset in every process, so a message between ranks of a
machine is a number, and its receiver reads the sender's memory itself.

The file is as long as all the machine's memory, and takes as much of it as was touched. It has no
name, so nothing is left behind when its processes are killed, and the size of /dev/shm is no limit.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import insort

from weft.errors import DeviceError
from weft.runtime.memory import HUGE_PAGE, HostMemory, machine_memory

# fallocate(2): pages go back to the system, and the file stays as long as it is
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class _Range:
    """A part of the file, given back when it is no longer referenced."""

    __slots__ = ("_memory", "address", "nbytes", "start")

    def __init__(self, memory: SharedMemory, start: int, nbytes: int) -> None:
        self._memory = memory
        self.start = start
        self.nbytes = nbytes
        self.address = memory.base + start

    def __del__(self) -> None:
        self._memory.unmap(self.start, self.nbytes)


class SharedMemory(HostMemory):
    """Blocks of a file that others map too."""

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(os, "memfd_create"):
            raise DeviceError("this system has no files in memory (memfd_create)")
        self.length = 2 * machine_memory() // mmap.PAGESIZE * mmap.PAGESIZE
        self.file = os.memfd_create("weft")
        os.ftruncate(self.file, self.length)
        self.base = _address_of(self.file, self.length)
        self._gaps: list[tuple[int, int]] = [(0, self.length)]  # (start, stop), ascending
        self._libc = ctypes.CDLL(None, use_errno=True)

    def map(self, nbytes: int) -> _Range:  # type: ignore[override]
        if self.mapped_bytes + nbytes > self.memory_limit:
            raise MemoryError(f"this machine grants the process {self.memory_limit} bytes")
        step = HUGE_PAGE if nbytes >= HUGE_PAGE else mmap.PAGESIZE
        room = -(-nbytes // step) * step
        for number, (start, stop) in enumerate(self._gaps):
            first = -(-start // step) * step
            if stop - first >= room:
                left = [(start, first)] if start < first else []
                right = [(first + room, stop)] if first + room < stop else []
                self._gaps[number : number + 1] = left + right
                return _Range(self, first, room)
        raise MemoryError("the addresses that ranks share are taken")

    def unmap(self, start: int, nbytes: int) -> None:
        """Takes a range back; its pages are the system's."""
        self._libc.fallocate(
            self.file,
            _KEEP_SIZE | _PUNCH_HOLE,
            ctypes.c_int64(start),
            ctypes.c_int64(nbytes),
        )
        insort(self._gaps, (start, start + nbytes))
        joined: list[tuple[int, int]] = []
        for gap in self._gaps:
            if joined and joined[-1][1] == gap[0]:
                joined[-1] = (joined[-1][0], gap[1])
            else:
                joined.append(gap)
        self._gaps = joined

    def offset_of(self, address: int) -> int:
        """Where in the file an address is; -1: elsewhere."""
        offset = address - self.base
        return offset if 0 <= offset < self.length else -1


class Window:
    """The memory of another process of this machine."""

    def __init__(self, process: int, file: int, length: int) -> None:
        descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        self.base = _address_of(descriptor, length)
        os.close(descriptor)


def _address_of(file: int, length: int) -> int:
    """A file in this process's memory, for as long as it lives."""
    mapped = mmap.mmap(file, length, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0))
    _maps.append(mapped)
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


# those of this process: unmapping what a kernel may still read would end it
_maps: list[mmap.mmap] = []
