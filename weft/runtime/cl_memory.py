"""Memory of an OpenCL device.

In: sizes and copies. Out: memory objects, and copies in the order of the queue. On top of the
context; the CL device's allocator.
Invariant: memory is given out again in the order of the queue, so a kernel that still reads freed
memory is done before whatever is launched next writes to it.

A memory is named by an object of the library and a byte in it: parts of objects have alignments
that views need not have, so kernels take the object and where in it their elements start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

from weft.contracts import Allocator
from weft.runtime.cl_context import Context
from weft.runtime.memory import Block, BlockCache

_READ_WRITE = 1
_BLOCKING = 1


class Place(NamedTuple):
    """A byte of a memory object."""

    memory: Any  # the handle, as a ctypes value
    start: int


class _Mapping:
    """A memory object, released when it is no longer referenced."""

    __slots__ = ("address", "handle", "nbytes", "_context")

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context: Context | None = None
        context.use()
        if nbytes > context.most_bytes:
            raise MemoryError(
                f"{context.name} gives at most {context.most_bytes} bytes in one piece"
            )
        self.handle = context.driver.create(
            "clCreateBuffer", context.handle, _READ_WRITE, nbytes, None
        )
        # blocks count from here: the object has no address that the host knows
        self.address, self.nbytes = 0, nbytes
        self._context = context

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        context = self._context
        if context is not None and not finalizing() and context.is_usable:
            # the library keeps it until what was submitted is done
            context.driver.clReleaseMemObject(self.handle)


class _Memory(BlockCache):
    """Blocks of a device. What is freed is kept, up to a quarter of what the device has."""

    def __init__(self, context: Context) -> None:
        super().__init__(cache_limit=context.memory_bytes // 4)
        self._context = context
        self._most = context.memory_bytes

    def map(self, nbytes: int) -> _Mapping:
        # drivers take memory when it is first written, and then fail far from here
        if self.mapped_bytes + nbytes > self._most:
            raise MemoryError(f"{self._context.name} has {self._most} bytes")
        return _Mapping(self._context, nbytes)


class CLAllocator(Allocator):
    """Memory of one device. An opaque is a Block, or a `Place` in one."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.name)
        self.context = context
        self.memory = _Memory(context)

    @property
    def cached_bytes(self) -> int:
        return self.memory.cached_bytes

    def release_cache(self) -> None:
        self.memory.release()

    def _alloc(self, nbytes: int) -> Block:
        # a kernel takes no nothing: a buffer without elements is never read
        return self.memory.take(max(1, nbytes))

    def _free(self, opaque: Block, nbytes: int) -> None:
        self.memory.give(opaque)

    def place(self, opaque: Any) -> Place:
        """The memory object and the byte in it."""
        if isinstance(opaque, Place):
            return opaque
        return Place(owner_of(opaque).handle, opaque.address)

    def offset(self, opaque: Any, nbytes: int) -> Place:
        memory, start = self.place(opaque)
        return Place(memory, start + nbytes)

    def copyin(self, opaque: Any, source: memoryview) -> None:
        self._copy("clEnqueueWriteBuffer", opaque, source)

    def copyout(self, target: memoryview, opaque: Any) -> None:
        self._copy("clEnqueueReadBuffer", opaque, target)

    def _copy(self, function: str, opaque: Any, host: memoryview) -> None:
        context = self.context
        context.use()
        memory, start = self.place(opaque)
        address = numpy.frombuffer(host, numpy.uint8).ctypes.data
        arguments = (memory, _BLOCKING, start, host.nbytes, address, 0, None, None)
        context.call(function, context.queue, *arguments)

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        other = source_allocator
        if not isinstance(other, CLAllocator) or other.context is not self.context:
            return False
        context = self.context
        context.use()
        (memory, start), (taken, byte) = self.place(target), self.place(source)
        context.call(
            "clEnqueueCopyBuffer", context.queue, taken, memory, byte, start, nbytes, 0, None, None
        )
        return True


def owner_of(block: Block) -> _Mapping:
    """The memory object that a block is in."""
    owner: Any = block._owner
    return getattr(owner, "mapping", owner)
