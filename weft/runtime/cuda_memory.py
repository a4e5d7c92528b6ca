"""Memory of a GPU, and the host's memory that copies go through.

In: sizes and copies. Out: addresses, and copies in the order of the work that was submitted. On top
of the context; the CUDA device's allocator.
Invariant: memory is given out again in the order of the stream, so a kernel that still reads freed
memory is done before whatever is launched next writes to it. A copy into memory that no launch has
seen since it was taken overlaps with the work before it; every other copy is in order.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from weft.contracts import Allocator
from weft.helpers import round_up
from weft.runtime.cuda_context import Context
from weft.runtime.cuda_driver import Address, Pointer
from weft.runtime.memory import Block, BlockCache, machine_memory

# The driver takes so much from ordinary memory at once, without pinning any.
_SMALL_COPY = 64 << 10
# The most bytes that go through pinned memory at once, and the least that are worth a call: on an
# H200 pieces of 4 MB go at 53.6 GB/s, of 1 MB at 48.5, one copy of all at 55.5.
_CHUNK_BYTES = 4 << 20
_LEAST_PIECE = 2 << 20
# Threads that move bytes between ordinary and pinned memory: one moves 5 to 10 GB/s, the bus 55;
# with 8 of them 1 GiB goes in at 51 GB/s, with 16 at 45 to 49.
_MOVERS = 8
# Pinned memory that results are read to; beyond it they go to ordinary memory.
_MOST_PINNED = 8 << 30
_PORTABLE = 1
# Freshly taken memory whose history is remembered.
_REMEMBERED = 256


class _DeviceMapping:
    """Memory of the GPU, returned when it is no longer referenced."""

    __slots__ = ("address", "nbytes", "_context")

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context: Context | None = None
        context.use()
        found = Address()
        context.call("cuMemAlloc_v2", ctypes.byref(found), nbytes)
        self.address, self.nbytes = found.value, nbytes
        self._context = context

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        context = self._context
        if context is not None and not finalizing() and context.is_usable:
            context.use()
            # waits for all work, so nobody still reads it
            context.driver.cuMemFree_v2(self.address)


class DeviceMemory(BlockCache):
    """Blocks of a GPU. All that is freed is kept until somebody needs it."""

    slab_bytes = 2 << 20

    def __init__(self, context: Context) -> None:
        super().__init__(cache_limit=1 << 62)
        self._context = context

    def map(self, nbytes: int) -> _DeviceMapping:
        return _DeviceMapping(self._context, nbytes)


class _PinnedMapping:
    """Memory of the host that the GPU's copy engines reach."""

    __slots__ = ("address", "nbytes", "_context")

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context: Context | None = None
        context.use()
        found = Pointer()
        context.call("cuMemHostAlloc", ctypes.byref(found), nbytes, _PORTABLE)
        self.address, self.nbytes = int(found.value or 0), nbytes
        self._context = context

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        context = self._context
        if context is not None and not finalizing() and context.is_usable:
            context.use()
            context.driver.cuMemFreeHost(self.address)


class _PinnedCache(BlockCache):
    def __init__(self, context: Context) -> None:
        super().__init__(cache_limit=_MOST_PINNED // 4)
        self._context = context
        self.most_bytes = min(_MOST_PINNED, machine_memory() // 4)

    def map(self, nbytes: int) -> _PinnedMapping:
        if self.mapped_bytes + nbytes > self.most_bytes:
            raise MemoryError(f"at most {self.most_bytes} bytes are pinned")
        return _PinnedMapping(self._context, nbytes)


class PinnedAllocator(Allocator):
    """Pinned memory of the host for results. It is not the GPU's, so it is not counted."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.name)
        self.memory = _PinnedCache(context)

    def _count(self, nbytes: int) -> None:
        pass

    def has_room(self, nbytes: int) -> bool:
        """Whether so much may be pinned beside what is in use."""
        in_use = self.memory.mapped_bytes - self.memory.cached_bytes
        return in_use + nbytes <= self.memory.most_bytes

    def _alloc(self, nbytes: int) -> Block:
        return self.memory.take(nbytes)

    def _free(self, opaque: Block, nbytes: int) -> None:
        self.memory.give(opaque)

    def release_cache(self) -> None:
        self.memory.release()

    def copyin(self, opaque: Block, source: memoryview) -> None:
        raise NotImplementedError

    def copyout(self, target: memoryview, opaque: Block) -> None:
        raise NotImplementedError

    def offset(self, opaque: Block, nbytes: int) -> int:
        return opaque.address + nbytes


class _Lent:
    """A pinned block that somebody reads; it goes back when the last view of it is gone."""

    def __init__(self, allocator: PinnedAllocator, nbytes: int) -> None:
        self.block: Block | None = None
        self.block = allocator.alloc(nbytes)
        self.allocator = allocator

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.block is not None and not finalizing():
            self.allocator.free(self.block, self.block.nbytes)


class _Chunk:
    """A part of the staging memory, and the event after which it may be used again."""

    def __init__(self, context: Context) -> None:
        self.memory = _PinnedMapping(context, _CHUNK_BYTES)
        self.event = context.new_event()


class Staging:
    """Copies between ordinary memory of the host and the GPU, through pinned chunks.

    Several threads move bytes, each with two chunks of its own: while the copy engine works on one,
    the thread fills or empties the other.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._chunks: list[tuple[_Chunk, _Chunk]] = []  # of each thread
        self._movers: ThreadPoolExecutor | None = None
        self._one_copy = threading.Lock()
        self._submit = threading.Lock()

    def copy(self, nbytes: int, move: Callable[[_Chunk, int, int], None]) -> None:
        """Calls `move(chunk, start, length)` for all parts, in several threads if it is worth it.

        A chunk is ready when it is given to `move`.
        """
        piece = min(_CHUNK_BYTES, max(_LEAST_PIECE, round_up(nbytes // _MOVERS, 4096)))
        starts = range(0, nbytes, piece)
        movers = min(_MOVERS, os.cpu_count() or 1, len(starts))

        def run(mover: int) -> None:
            self._context.use()
            chunks = self._chunks[mover]
            for turn, start in enumerate(starts[mover::movers]):
                chunk = chunks[turn % 2]
                self._context.call("cuEventSynchronize", chunk.event)
                move(chunk, start, min(piece, nbytes - start))

        with self._one_copy:
            while len(self._chunks) < movers:
                self._chunks.append((_Chunk(self._context), _Chunk(self._context)))
            if movers == 1:
                run(0)
                return
            if self._movers is None:
                self._movers = ThreadPoolExecutor(_MOVERS, thread_name_prefix="weft-copies")
            # all of them, also after an error: chunks must not be in use when the next copy begins
            done = [self._movers.submit(run, mover) for mover in range(movers)]
            wait(done)
            for future in done:
                future.result()

    def copyin(
        self, address: int, nbytes: int, fill: Callable[[int, int, int], None], stream: Any
    ) -> None:
        """`fill(place, start, length)` puts bytes into the chunk at `place`."""
        context = self._context

        def move(chunk: _Chunk, start: int, length: int) -> None:
            fill(chunk.memory.address, start, length)
            with self._submit:
                place = chunk.memory.address
                context.call("cuMemcpyHtoDAsync_v2", address + start, place, length, stream)
                context.call("cuEventRecord", chunk.event, stream)

        self.copy(nbytes, move)

    def copyout(self, target: int, address: int, nbytes: int, stream: Any) -> None:
        """Returns when the bytes are there."""
        context = self._context

        def move(chunk: _Chunk, start: int, length: int) -> None:
            with self._submit:
                place = chunk.memory.address
                context.call("cuMemcpyDtoHAsync_v2", place, address + start, length, stream)
                context.call("cuEventRecord", chunk.event, stream)
            context.call("cuEventSynchronize", chunk.event)
            ctypes.memmove(target + start, chunk.memory.address, length)

        self.copy(nbytes, move)


class CUDAAllocator(Allocator):
    """Memory of one GPU. An opaque is a Block, or an address."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.name)
        self.context = context
        self.memory = DeviceMemory(context)
        self.pinned = PinnedAllocator(context)
        self.staging = Staging(context)
        # launches when a block was freed; and of fresh memory: launches then, and when it was freed
        self._freed: dict[int, int] = {}
        self._fresh: OrderedDict[int, tuple[int, int]] = OrderedDict()

    @property
    def cached_bytes(self) -> int:
        return self.memory.cached_bytes

    def release_cache(self) -> None:
        self.memory.release()

    def _alloc(self, nbytes: int) -> Block:
        block = self.memory.take(nbytes)
        self._fresh[block.address] = (self.context.submitted, self._freed.pop(block.address, 0))
        if len(self._fresh) > _REMEMBERED:
            self._fresh.popitem(last=False)
        return block

    def _free(self, opaque: Block, nbytes: int) -> None:
        self._freed[opaque.address] = self.context.submitted
        self._fresh.pop(opaque.address, None)
        self.memory.give(opaque)

    def _out_of_memory(self, nbytes: int, error: MemoryError) -> Any:
        free, total = self.context.memory()
        elsewhere = total - free - self.memory.mapped_bytes
        found = super()._out_of_memory(nbytes, error)
        return type(found)(
            f"{found}; the GPU has {total} bytes, {free} of them free, and about "
            f"{max(0, elsewhere)} in use by the driver and other programs"
        )

    def address(self, opaque: Any) -> int:
        address: int = opaque if isinstance(opaque, int) else opaque.address
        return address

    def offset(self, opaque: Any, nbytes: int) -> int:
        return self.address(opaque) + nbytes

    # ------------------------------------------------------------ copies
    def host_memory(self, nbytes: int) -> memoryview:
        """Pinned memory if it is worth it and there is some."""
        if nbytes > _SMALL_COPY and self.pinned.has_room(nbytes):
            try:
                lent = _Lent(self.pinned, nbytes)
            except MemoryError:
                return super().host_memory(nbytes)
            assert lent.block is not None
            window = (ctypes.c_uint8 * nbytes).from_address(lent.block.address)
            window._weft_lent = lent  # type: ignore[attr-defined]
            return memoryview(window).cast("B")
        return super().host_memory(nbytes)

    def copyin(self, opaque: Any, source: memoryview) -> None:
        context, address, nbytes = self.context, self.address(opaque), source.nbytes
        context.use()
        if nbytes <= _SMALL_COPY:
            # The driver takes ordinary memory at once, but only looks at pinned memory later, and
            # the source may be pinned: a result that was read.
            data = source.tobytes()
            context.call("cuMemcpyHtoDAsync_v2", address, data, nbytes, context.stream)
            return
        with HostView(source) as place:
            self._staged_in(address, nbytes, lambda to, i, n: _move(to, place + i, n))

    def _staged_in(self, address: int, nbytes: int, fill: Callable[[int, int, int], None]) -> None:
        context = self.context
        taken_at, freed_at = self._fresh.pop(address, (-1, 0))
        needed = freed_at if taken_at == context.submitted else context.submitted
        context.wait_for(context.copies, needed)
        try:
            self.staging.copyin(address, nbytes, fill, context.copies)
        finally:
            # whatever was submitted is waited for, also after an error
            self._after_copies()

    def _after_copies(self) -> None:
        context = self.context
        context.note_launch("a copy from the host", None)
        event = context.new_event()
        context.call("cuEventRecord", event, context.copies)
        context.call("cuStreamWaitEvent", context.stream, event, 0)
        # the driver keeps it until it has happened
        context.call("cuEventDestroy_v2", event)
        context.count_launch()

    def copyout(self, target: memoryview, opaque: Any) -> None:
        context, address, nbytes = self.context, self.address(opaque), target.nbytes
        context.use()
        with HostView(target) as place:
            if nbytes <= _SMALL_COPY or _is_lent(target):
                context.call("cuMemcpyDtoHAsync_v2", place, address, nbytes, context.stream)
                context.synchronize()
                return
            context.wait_for(context.copies, context.submitted)
            self.staging.copyout(place, address, nbytes, context.copies)

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        context = self.context
        to = self.address(target)
        context.use()
        if isinstance(source_allocator, CUDAAllocator):
            other = source_allocator.context
            start = source_allocator.address(source)
            if other is context:
                context.note_launch("a copy", None)
                context.call("cuMemcpyDtoDAsync_v2", to, start, nbytes, context.stream)
                context.count_launch()
            else:
                self._copy_from_peer(to, other, start, nbytes)
            return True

        def fill(place: int, start: int, length: int) -> None:
            part = memoryview((ctypes.c_uint8 * length).from_address(place)).cast("B")
            source_allocator.copyout(part, source_allocator.offset(source, start))

        # straight from wherever it is into memory that the GPU reads
        self._staged_in(to, nbytes, fill)
        return True

    def _copy_from_peer(self, to: int, other: Context, start: int, nbytes: int) -> None:
        """Between two GPUs, in the order of the work of both."""
        context = self.context
        other.use()
        before = other.mark()
        context.use()
        context.call("cuStreamWaitEvent", context.stream, before, 0)
        context.note_launch(f"a copy from {other.name}", None)
        context.call(
            "cuMemcpyPeerAsync", to, context.handle, start, other.handle, nbytes, context.stream
        )
        context.count_launch()
        after = context.mark()
        other.use()
        other.call("cuStreamWaitEvent", other.stream, after, 0)
        context.use()


def _is_lent(view: memoryview) -> bool:
    return hasattr(view.obj, "_weft_lent")


def _move(target: int, source: int, nbytes: int) -> None:
    ctypes.memmove(target, source, nbytes)


class _PyBuffer(ctypes.Structure):
    """Python's own description of memory; only its first field is read here."""

    _fields_ = (("buf", ctypes.c_void_p), ("rest", ctypes.c_char * 256))


_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyBuffer_Release", ctypes.pythonapi))


class HostView:
    """The address of memory that Python holds, read-only or not, for the time of a `with`."""

    def __init__(self, view: memoryview) -> None:
        self._buffer = _PyBuffer()
        _get_buffer(view, ctypes.addressof(self._buffer), 0)

    def __enter__(self) -> int:
        return int(self._buffer.buf or 0)

    def __exit__(self, *exception: object) -> None:
        _release_buffer(ctypes.addressof(self._buffer))
