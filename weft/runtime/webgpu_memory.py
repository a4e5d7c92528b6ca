"""Memory of a WebGPU device.

In: sizes and copies. Out: buffers of the package, and copies in the order of the commands. On top
of the context; the WEBGPU device's allocator.
Invariant: memory that is given out again is written after all commands that read it before. The
package copies whole words only: what begins or ends inside a word is read, changed and written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.contracts import Allocator
from weft.runtime.memory import Block, BlockCache
from weft.runtime.webgpu_context import Context

_WORD = 4


class Place(NamedTuple):
    """A byte of a buffer of the package."""

    buffer: Any
    start: int


class _Mapping:
    """A buffer, which goes when it is no longer referenced."""

    __slots__ = ("address", "buffer", "nbytes")

    def __init__(self, context: Context, nbytes: int) -> None:
        usage = context.package.BufferUsage
        flags = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self.buffer = context.guarded(
            lambda: context.device.create_buffer(size=nbytes, usage=flags)
        )
        # blocks count from here
        self.address, self.nbytes = 0, nbytes


class _Memory(BlockCache):
    """Buffers of their own for all sizes: parts of one are not bound in two ways."""

    slab_limit = 0

    def __init__(self, context: Context) -> None:
        super().__init__(cache_limit=1 << 30)
        self._context = context
        self._most = context.limit("max-buffer-size")

    def map(self, nbytes: int) -> _Mapping:
        if nbytes > self._most:
            raise MemoryError(f"{self._context.name} gives at most {self._most} bytes in one piece")
        return _Mapping(self._context, nbytes)


class WebGPUAllocator(Allocator):
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
        self.context.use()
        return self.memory.take(max(_WORD, nbytes))

    def _free(self, opaque: Block, nbytes: int) -> None:
        self.memory.give(opaque)

    def place(self, opaque: Any) -> Place:
        """The buffer and the byte in it."""
        if isinstance(opaque, Place):
            return opaque
        owner: Any = opaque._owner
        return Place(owner.buffer, opaque.address)

    def offset(self, opaque: Any, nbytes: int) -> Place:
        buffer, start = self.place(opaque)
        return Place(buffer, start + nbytes)

    def copyin(self, opaque: Any, source: memoryview) -> None:
        context = self.context
        context.flush()
        buffer, start = self.place(opaque)
        before, after = start % _WORD, -(start + source.nbytes) % _WORD
        data: Any = source
        if before or after:
            # the words at both ends also belong to others
            first, last = start - before, start + source.nbytes + after
            data = bytearray(last - first)
            if before:
                data[:_WORD] = self._read(buffer, first, _WORD)
            if after:
                data[-_WORD:] = self._read(buffer, last - _WORD, _WORD)
            data[before : before + source.nbytes] = source
            start = first
        context.guarded(lambda: context.queue.write_buffer(buffer, start, data))

    def copyout(self, target: memoryview, opaque: Any) -> None:
        self.context.flush()
        buffer, start = self.place(opaque)
        before = start % _WORD
        nbytes = -(-(before + target.nbytes) // _WORD) * _WORD
        found = self._read(buffer, start - before, nbytes)
        target[:] = found[before : before + target.nbytes]

    def _read(self, buffer: Any, start: int, nbytes: int) -> memoryview:
        context = self.context
        found = context.guarded(lambda: context.queue.read_buffer(buffer, start, nbytes))
        return memoryview(found).cast("B")

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        other = source_allocator
        if not isinstance(other, WebGPUAllocator) or other.context is not self.context:
            return False
        (buffer, start), (taken, byte) = self.place(target), self.place(source)
        if buffer is taken or start % _WORD or byte % _WORD or nbytes % _WORD:
            return False
        self.context.copy(buffer, start, taken, byte, nbytes)
        return True
