"""METAL: Apple's GPUs, through the package pyobjc-framework-Metal.

NEVER RUN: written to Apple's documented API and PyObjC's conventions, on a machine without either.
Its text is type-checked, its calls are checked against a stand-in that records them; what a real
GPU does with them is not known. So it opens only when asked for (DEVICE=METAL).

In: programs of a renderer, buffers. Out: results in memory that CPU and GPU share. Opened by the
registry, also as METAL:1, ...: the devices in the system's order.
Invariant: command buffers go to one queue and are done in order; the host waits before it reads or
writes memory that commands may still use.
"""

from __future__ import annotations

import functools
import importlib
import struct
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.contracts import Allocator, BaseDevice, Compiler, Origin, Program, ProgramFacts
from weft.device import Buffer
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.renderer.metal import METAL, MetalRenderer
from weft.runtime.launch_queue import LaunchedProgram, LaunchQueue
from weft.uop.resolve import sym_infer

# MTLResourceOptions: memory of both, which on Apple's chips is the only memory there is
_SHARED = 0


def open_package() -> Any:
    """PyObjC's Metal, or a sentence that says what is missing."""
    try:
        return importlib.import_module("Metal")
    except (ImportError, OSError) as error:
        raise DeviceError(
            f"no Metal: {error}; on a Mac: pip install pyobjc-framework-Metal"
        ) from None


class Place(NamedTuple):
    """A byte of a buffer."""

    buffer: Any
    start: int


class MetalContext:
    """A GPU, its queue, and the command buffer that was committed last."""

    def __init__(self, package: Any, name: str, number: int) -> None:
        self.package = package
        self.name = name
        devices = list(package.MTLCopyAllDevices() or [])
        if number >= len(devices):
            raise DeviceError(f"{name}: Metal shows {len(devices)} GPUs")
        self.device = devices[number]
        self.queue = self.device.newCommandQueue()
        self.submitted = 0
        self.completed = 0
        self._last: Any = None
        self._lock = threading.RLock()

    def commit(self, commands: Any, name: str) -> None:
        """Hands a command buffer over."""
        commands.setLabel_(name)
        commands.commit()
        with self._lock:
            self._last = commands
            self.submitted += 1

    def synchronize(self) -> None:
        """Returns when all that was committed is done: what is in one queue ends in order."""
        with self._lock:
            last, count = self._last, self.submitted
        if last is None:
            return
        last.waitUntilCompleted()
        error = last.error()
        with self._lock:
            self.completed = max(self.completed, count)
            if self._last is last:
                self._last = None
        if error is not None:
            raise DeviceError(
                f"{self.name}: {error.localizedDescription()}, found after {last.label()}"
            )


class MetalAllocator(Allocator):
    """Memory of one GPU. An opaque is a `Place`."""

    def __init__(self, context: MetalContext) -> None:
        super().__init__(context.name)
        self.context = context

    def _alloc(self, nbytes: int) -> Place:
        found = self.context.device.newBufferWithLength_options_(max(4, nbytes), _SHARED)
        if found is None:
            raise MemoryError(
                f"at most {self.context.device.maxBufferLength()} bytes come in one piece"
            )
        return Place(found, 0)

    def _free(self, opaque: Place, nbytes: int) -> None:
        # command buffers keep what they use; the last reference to it goes with `opaque`
        pass

    def offset(self, opaque: Place, nbytes: int) -> Place:
        return Place(opaque.buffer, opaque.start + nbytes)

    def _bytes(self, opaque: Place, nbytes: int) -> memoryview:
        self.context.synchronize()
        whole = opaque.buffer.contents().as_buffer(opaque.buffer.length())
        return memoryview(whole).cast("B")[opaque.start : opaque.start + nbytes]

    def copyin(self, opaque: Place, source: memoryview) -> None:
        self._bytes(opaque, source.nbytes)[:] = source

    def copyout(self, target: memoryview, opaque: Place) -> None:
        target[:] = self._bytes(opaque, target.nbytes)

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        other = source_allocator
        if not isinstance(other, MetalAllocator) or other.context is not self.context:
            return False
        commands = self.context.queue.commandBuffer()
        encoder = commands.blitCommandEncoder()
        encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
            source.buffer, source.start, target.buffer, target.start, nbytes
        )
        encoder.endEncoding()
        self.context.commit(commands, "copy")
        return True


class MetalCompiler(Compiler):
    """The system's compiler of Metal's language. It has no binaries that are simple to keep."""

    def __init__(self, context: MetalContext) -> None:
        self._context = context

    @property
    def cachekey(self) -> str:
        return "metal-text-1"

    def compile(self, src: str) -> bytes:
        self.library(src)
        return src.encode()

    def library(self, src: str) -> Any:
        """The compiled text, or the compiler's messages."""
        context = self._context
        options = context.package.MTLCompileOptions.alloc().init()
        options.setFastMathEnabled_(False)
        library, error = context.device.newLibraryWithSource_options_error_(src, options, None)
        if library is None:
            raise CompileError(f"{context.name} does not compile: {_words(error)}\n{src}")
        return library


class MetalProgram(LaunchedProgram):
    """A loaded kernel."""

    def __init__(self, context: MetalContext, facts: ProgramFacts, library: Any) -> None:
        self._context = context
        self.name = facts.name
        self.buffer_count = facts.buffer_count
        self.variables = facts.variables
        self._slots = [slot for kind, slot in facts.layout if kind == "buffer"]
        self._values = [nbytes for kind, nbytes in facts.layout if kind == "value"]
        self._groups = facts.global_size or (1, 1, 1)
        self._threads = tuple(facts.local_size) or (1, 1, 1)
        function = library.newFunctionWithName_(facts.name)
        device = context.device
        state, error = device.newComputePipelineStateWithFunction_error_(function, None)
        if state is None:
            raise CompileError(f"{context.name} does not load {facts.name}: {_words(error)}")
        x, y, z = self._threads
        if x * y * z > state.maxTotalThreadsPerThreadgroup():
            raise CompileError(
                f"{facts.name} runs in groups of {x * y * z} threads, but {context.name} takes at "
                f"most {state.maxTotalThreadsPerThreadgroup()} of it"
            )
        self._state = state

    def launch(
        self, bufs: Sequence[Buffer], vals: Sequence[int], wait: bool, origin: Origin | None
    ) -> float | None:
        """Commits the kernel; with `wait` the seconds that it took, by the GPU's clock."""
        if len(bufs) != self.buffer_count or len(vals) != len(self.variables):
            raise ArgumentError(
                f"{self.name} takes {self.buffer_count} buffers and {len(self.variables)} values, "
                f"but got {len(bufs)} and {len(vals)}"
            )
        known = dict(zip(self.variables, vals, strict=True))
        groups = [s if isinstance(s, int) else max(0, sym_infer(s, known)) for s in self._groups]
        if 0 in groups:
            return 0.0 if wait else None
        context = self._context
        commands = context.queue.commandBuffer()
        encoder = commands.computeCommandEncoder()
        encoder.setComputePipelineState_(self._state)
        for slot in self._slots:
            buffer, start = bufs[slot].opaque
            encoder.setBuffer_offset_atIndex_(buffer, start, slot)
        first = 1 + max(self._slots, default=-1)
        for place, (value, nbytes) in enumerate(zip(vals, self._values, strict=True), first):
            data = struct.pack("<q" if nbytes == 8 else "<i", value)
            encoder.setBytes_length_atIndex_(data, nbytes, place)
        size = context.package.MTLSizeMake
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(*groups), size(*self._threads))
        encoder.endEncoding()
        line = "" if origin is None else f" ({origin[0]}:{origin[1]})"
        context.commit(commands, f"{self.name}{line}")
        if not wait:
            return None
        context.synchronize()
        return float(commands.GPUEndTime() - commands.GPUStartTime())


def _words(error: Any) -> str:
    return "no reason was given" if error is None else str(error.localizedDescription())


class MetalDevice(BaseDevice):
    """A GPU of Apple's. `package` stands in for PyObjC's in tests."""

    def __init__(self, name: str, package: Any = None) -> None:
        unit = name.partition(":")[2] or "0"
        if not unit.isdecimal():
            raise DeviceError(f"{name} names no GPU: write METAL or METAL:1")
        self.context = MetalContext(package or open_package(), name, int(unit))
        self._libraries = MetalCompiler(self.context)
        renderer = functools.partial(MetalRenderer, METAL)
        super().__init__(name, MetalAllocator(self.context), self._libraries, renderer)
        self.queue = LaunchQueue(self.context)

    @property
    def arch(self) -> str:
        return str(self.context.device.name())

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        return MetalProgram(self.context, facts, self._libraries.library(lib.decode()))

    def problems(self) -> list[tuple[str, str]]:
        """What is known of it."""
        return [(f"{self.name} was never run by its authors", "compare results with DEVICE=CPU")]
