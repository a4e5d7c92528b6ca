"""Memory of the host: blocks that are reused, on huge pages where they are large.

In: sizes. Out: `Block`s with an address, and `HostAllocator`, the allocator of every device whose
memory is the host's. Sits below the devices that run on the host. A fresh 64 MB output costs ten
times a reused one, because the kernel hands out and clears each page on first touch; so freed
blocks are kept, and what was not taken again goes back to the system when keeping it has been
dearer than clearing it anew.
Invariant: a block is either out, or in the cache, or gone; only the allocator's lock moves it.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weft.contracts import Allocator, ledger
from weft.errors import DeviceError
from weft.knobs import LRU

HUGE_PAGE = 2 << 20
ALIGNMENT = 64
# Blocks below this size share a slab, because a page (and a system call) each would be waste.
_SLAB_BLOCK_LIMIT = 64 << 10
_SLAB_BYTES = 256 << 10
# Beyond this step, rounding up could refuse a request that fits the machine.
_LARGEST_STEP = 64 << 20
_CACHE_LIMIT = 4 << 30
# What is always kept: too little for anybody to miss it.
_ALWAYS_KEPT = 64 << 20
# A block may be idle for a second, and for another one per so many bytes in the cache. Fresh pages
# are cleared at 1 to 8 GB a second, so a program that then needs all of it again loses a tenth of
# its time in the worst case, a hundredth in the usual one.
_IDLE_SECONDS = 1.0
_BYTES_PER_IDLE_SECOND = 100 << 20
# The thread that returns memory looks no more often.
_LOOK_SECONDS = 0.25


def size_class(nbytes: int) -> int:
    """Rounds a size up to one of eight steps per power of two, so that near sizes share blocks.

    >>> [size_class(n) for n in (1, 64, 65, 1000, 1 << 20, (1 << 20) + 1, 3 << 20)]
    [64, 64, 128, 1024, 1048576, 1179648, 3145728]
    """
    step = 1 << max(0, (max(nbytes, 1) - 1).bit_length() - 4)
    step = max(ALIGNMENT, min(step, _LARGEST_STEP))
    return max(1, -(-nbytes // step)) * step


class _Mapping:
    """Anonymous memory of the operating system, returned when it is no longer referenced."""

    __slots__ = ("address", "nbytes", "_map")

    def __init__(self, nbytes: int) -> None:
        huge = nbytes >= HUGE_PAGE
        # A huge page begins at a multiple of its size; addresses that are never touched are free.
        slack = HUGE_PAGE if huge else 0
        try:
            if hasattr(mmap, "MAP_PRIVATE"):
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                self._map = mmap.mmap(-1, nbytes + slack, flags=flags)
            else:
                self._map = mmap.mmap(-1, nbytes + slack)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"the operating system refuses: {error}") from None
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.nbytes = nbytes
        self.address = -(-first // HUGE_PAGE) * HUGE_PAGE if huge else first
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                # The part of the last one stays small pages: it would be resident as a whole.
                whole = nbytes // HUGE_PAGE * HUGE_PAGE
                self._map.madvise(mmap.MADV_HUGEPAGE, self.address - first, whole)
            except OSError:
                # A kernel built without huge pages; the memory is as good, only slower.
                pass


class Block:
    """Memory that is out or free. `nbytes` is the size of its class, at least what was asked."""

    __slots__ = ("address", "nbytes", "is_free", "stamp", "_owner")

    def __init__(self, address: int, nbytes: int, owner: Mapping | _Slab | None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.is_free = False
        self.stamp = 0.0  # when it was freed
        self._owner = owner


class _Slab:
    """One mapping cut into equal small blocks. `live` counts those that are out."""

    __slots__ = ("mapping", "live")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.live = 0


class Mapping(Protocol):
    """Memory of whoever has it, which goes back when it is no longer referenced."""

    address: int
    nbytes: int


class BlockCache(ABC):
    """Takes blocks from whoever has memory and keeps freed ones, up to a bound and for a time.

    Not thread-safe by itself: `Allocator.alloc` and `free` call it under their lock.
    `on_surplus` is called whenever there is more in the cache than is always kept.
    """

    # bytes of a slab, from which blocks below the limit are cut
    slab_bytes = _SLAB_BYTES
    slab_limit = _SLAB_BLOCK_LIMIT

    def __init__(
        self,
        cache_limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_surplus: Callable[[], None] = lambda: None,
    ) -> None:
        self._cache_limit = cache_limit
        self._clock = clock
        self._on_surplus = on_surplus
        self._free: dict[int, list[Block]] = {}
        self.cached_bytes = 0
        self.mapped_bytes = 0

    @property
    def cache_limit(self) -> int:
        """The most bytes that are kept."""
        return _CACHE_LIMIT if self._cache_limit is None else self._cache_limit

    @abstractmethod
    def map(self, nbytes: int) -> Mapping:
        """New memory; MemoryError, with the reason, if there is none to have."""

    def take(self, nbytes: int) -> Block:
        """A block of at least `nbytes`; MemoryError if there is none to have."""
        if nbytes == 0:
            return Block(0, 0, None)
        size = size_class(nbytes)
        free = self._free.get(size)
        if not free:
            if size >= self.slab_limit:
                return self._map_block(size)
            free = self._map_slab(size)
        # The newest: its pages are likeliest to be in the CPU's caches.
        block = free.pop()
        block.is_free = False
        self.cached_bytes -= size
        if isinstance(block._owner, _Slab):
            block._owner.live += 1
        return block

    def _map(self, nbytes: int) -> Mapping:
        mapping = self.map(nbytes)
        self.mapped_bytes += nbytes
        return mapping

    def _map_block(self, size: int) -> Block:
        mapping = self._map(size)
        return Block(mapping.address, size, mapping)

    def _map_slab(self, size: int) -> list[Block]:
        """Cuts a new slab into free blocks of a class, and returns the free blocks of the class."""
        slab = _Slab(self._map(self.slab_bytes))
        first = slab.mapping.address
        count = self.slab_bytes // size
        blocks = [Block(first + index * size, size, slab) for index in range(count)]
        for block in blocks:
            block.is_free = True
        free = self._free.setdefault(size, [])
        # Reversed, so that blocks go out in the order of their addresses.
        free.extend(reversed(blocks))
        self.cached_bytes += size * len(blocks)
        return free

    def give(self, block: Block) -> None:
        """Takes a block back, for reuse or for the operating system."""
        if block.is_free:
            raise DeviceError(f"the memory at {block.address:#x} was freed twice")
        block.is_free = True
        if block.nbytes == 0:
            return
        block.stamp = self._clock()
        self._free.setdefault(block.nbytes, []).append(block)
        self.cached_bytes += block.nbytes
        if isinstance(block._owner, _Slab):
            block._owner.live -= 1
        if not LRU:
            self._release_class(block.nbytes)
            return
        if self.cached_bytes > self.cache_limit:
            self._shrink(self.cache_limit)
        if self.cached_bytes > _ALWAYS_KEPT:
            self._on_surplus()

    def release(self) -> None:
        """Returns everything free to the operating system, but for slabs partly in use."""
        for size in list(self._free):
            self._release_class(size)

    def release_idle(self) -> float | None:
        """Returns the blocks that were idle too long; in how many seconds the next one will be.

        None: there is nothing but what is always kept. The more is kept, the longer it may be:
        then it is dear to have again. What a program takes in every step is never idle for long.
        """
        now = self._clock()
        while self.cached_bytes > _ALWAYS_KEPT:
            oldest = self._oldest()
            if oldest is None:
                return None
            patience = _IDLE_SECONDS + self.cached_bytes / _BYTES_PER_IDLE_SECOND
            left = oldest[0].stamp + patience - now
            if left > 0:
                return left
            self._drop_first(oldest)
        return None

    def _shrink(self, limit: int) -> None:
        """Returns the blocks that were not used for longest until the cache fits."""
        while self.cached_bytes > limit:
            oldest = self._oldest()
            if oldest is None:
                self.release()
                return
            self._drop_first(oldest)

    def _oldest(self) -> list[Block] | None:
        """The class with the block that was idle for longest, its first; slabs aside."""
        # Within a class the first is the oldest, because the newest are reused first.
        return min(
            (free for size, free in self._free.items() if free and size >= self.slab_limit),
            key=lambda free: free[0].stamp,
            default=None,
        )

    def _drop_first(self, free: list[Block]) -> None:
        block = free.pop(0)
        self.cached_bytes -= block.nbytes
        self.mapped_bytes -= block.nbytes

    def _release_class(self, size: int) -> None:
        free = self._free.pop(size, [])
        kept = [b for b in free if isinstance(b._owner, _Slab) and b._owner.live]
        dropped = [b for b in free if not (isinstance(b._owner, _Slab) and b._owner.live)]
        if kept:
            self._free[size] = kept
        self.cached_bytes -= size * len(dropped)
        for owner in {id(b._owner): b._owner for b in dropped}.values():
            if isinstance(owner, _Slab):
                self.mapped_bytes -= owner.mapping.nbytes
            elif owner is not None:
                self.mapped_bytes -= owner.nbytes


class HostMemory(BlockCache):
    """Blocks of the operating system's memory."""

    def __init__(
        self,
        cache_limit: int | None = None,
        memory_limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_surplus: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(cache_limit, clock, on_surplus)
        self._memory_limit = memory_limit

    @functools.cached_property
    def memory_limit(self) -> int:
        """More than this would swap for ever or have the process killed, so it is refused."""
        return machine_memory() if self._memory_limit is None else self._memory_limit

    @property
    def cache_limit(self) -> int:
        """A quarter of what there is, up to a bound."""
        if self._cache_limit is not None:
            return self._cache_limit
        return min(self.memory_limit // 4, _CACHE_LIMIT)

    def map(self, nbytes: int) -> _Mapping:
        if self.mapped_bytes + nbytes > self.memory_limit:
            raise MemoryError(f"this machine grants the process {self.memory_limit} bytes")
        return _Mapping(nbytes)


def machine_memory() -> int:
    """Bytes this process may hope for: memory and swap, or a container's limit."""
    limits = []
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(1024 * sum(int(fields[key].split()[0]) for key in ("MemTotal", "SwapTotal")))
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf"):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits, default=1 << 46)


class _Returner:
    """A thread that returns idle memory also when the program asks for none and frees none.

    It runs only while there is something to return. A forked child starts its own.
    """

    def __init__(self) -> None:
        self._runs_in = 0  # the process it runs in, if it does

    def start(self) -> None:
        """Unless it runs. Called under the lock, also from a finalizer at any bytecode: so not
        with `threading.Thread`, whose start may wait for a lock that this thread holds already.
        """
        process = os.getpid()
        if self._runs_in == process:
            return
        self._runs_in = process
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            # There is none to have, as when the interpreter ends.
            self._runs_in = 0

    def _run(self) -> None:
        left: float | None = 0.0
        while left is not None:
            time.sleep(max(left, _LOOK_SECONDS))
            with ledger:
                left = host_memory.release_idle()
                if left is None:
                    self._runs_in = 0


# One for the process: what one host device frees, another may take.
host_memory = HostMemory(on_surplus=_Returner().start)


class HostAllocator(Allocator):
    """Allocator of a device whose memory is the host's. An opaque is a Block, or an address."""

    def __init__(self, device: str, memory: HostMemory | None = None) -> None:
        super().__init__(device)
        self.memory = host_memory if memory is None else memory

    @property
    def cached_bytes(self) -> int:
        return self.memory.cached_bytes

    def release_cache(self) -> None:
        with ledger:
            ledger.drain()
            self.memory.release()

    def _alloc(self, nbytes: int) -> Block:
        return self.memory.take(nbytes)

    def _free(self, opaque: Any, nbytes: int) -> None:
        self.memory.give(opaque)

    def address(self, opaque: Any) -> int:
        address: int = opaque if isinstance(opaque, int) else opaque.address
        return address

    def offset(self, opaque: Any, nbytes: int) -> int:
        return self.address(opaque) + nbytes

    def copyin(self, opaque: Any, source: memoryview) -> None:
        address = self.address(opaque)
        if source.readonly:
            # ctypes gives no address of read-only memory, such as bytes or a mapped file.
            memoryview((ctypes.c_uint8 * source.nbytes).from_address(address)).cast("B")[:] = source
        else:
            ctypes.memmove(address, _address_of(source), source.nbytes)

    def copyout(self, target: memoryview, opaque: Any) -> None:
        ctypes.memmove(_address_of(target), self.address(opaque), target.nbytes)


def _address_of(data: memoryview) -> int:
    return ctypes.addressof(ctypes.c_uint8.from_buffer(data))
