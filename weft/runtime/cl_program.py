"""From OpenCL C to kernels, and their launches.

In: a renderer's text. Out: the driver's binary of it, which is kept on disk, and `CLProgram`, which
launches in the device's queue and comes back at once. On top of the context, under the device.
Invariant: arguments are laid out as the renderer says: a memory object and the element to start at
for each buffer, then the values of the variables.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from weft.contracts import Compiler, Origin, ProgramFacts
from weft.device import Buffer
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.runtime.cl_context import Context
from weft.runtime.cl_driver import DriverError, Handle, Int, Size, describe
from weft.runtime.cl_memory import CLAllocator
from weft.runtime.launch_queue import LaunchedProgram
from weft.uop.resolve import sym_infer

_BUILD_LOG = 0x1183
_BINARY_SIZES, _BINARIES = 0x1165, 0x1166
_STARTED, _ENDED = 0x1282, 0x1283
# Drivers that give no binary: what is loaded is the source.
_SOURCE = b"// OpenCL C\n"
# programs that were just built and not loaded yet
_REMEMBERED = 64
# how many parts each core has of a loop that is shared, which evens out a slow one
_PARTS_PER_CORE = 4


class _Built:
    """A program of the library, released when it is no longer referenced."""

    __slots__ = ("handle", "_context")

    def __init__(self, context: Context, handle: Handle) -> None:
        self.handle = handle
        self._context = context

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing() and self._context.is_usable:
            self._context.driver.clReleaseProgram(self.handle)


class CLCompiler(Compiler):
    """The driver's own compiler."""

    def __init__(self, context: Context) -> None:
        self._context = context
        options = ["-cl-std=CL1.2"]
        if context.rounds_divisions:
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        self._options = " ".join(options)
        self._lock = threading.Lock()
        self._recent: OrderedDict[bytes, _Built] = OrderedDict()

    @property
    def cachekey(self) -> str:
        return f"opencl; {self._options}; {self._context.identity}"

    def compile(self, src: str) -> bytes:
        built = self._from_source(src)
        binary = self._binary(built) or _SOURCE + src.encode()
        with self._lock:
            self._recent[hashlib.sha256(binary).digest()] = built
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return binary

    def load(self, name: str, lib: bytes) -> _Built:
        """The program of what `compile` gave, in this process or another one."""
        with self._lock:
            built = self._recent.pop(hashlib.sha256(lib).digest(), None)
        if built is not None:
            return built
        if lib.startswith(_SOURCE):
            return self._from_source(lib[len(_SOURCE) :].decode())
        return self._from_binary(name, lib)

    def _from_source(self, src: str) -> _Built:
        context = self._context
        context.use()
        text = ctypes.c_char_p(src.encode())
        handle = context.driver.create(
            "clCreateProgramWithSource", context.handle, 1, ctypes.byref(text), None
        )
        built = _Built(context, handle)
        code = self._build(built)
        if code:
            raise CompileError(self._message(src, self._log(built), code))
        return built

    def _from_binary(self, name: str, lib: bytes) -> _Built:
        context = self._context
        context.use()
        devices, sizes = (Handle * 1)(context.device), (Size * 1)(len(lib))
        data = ctypes.create_string_buffer(lib, len(lib))
        pointers, status = (Handle * 1)(ctypes.addressof(data)), (Int * 1)()
        try:
            handle = context.driver.create(
                "clCreateProgramWithBinary", context.handle, 1, devices, sizes, pointers, status
            )
        except DriverError as error:
            raise CompileError(f"{context.name} does not load {name}: {error}") from None
        built = _Built(context, handle)
        code = self._build(built)
        if code:
            raise CompileError(f"{context.name} does not load {name}: {describe(code)}")
        return built

    def _build(self, built: _Built) -> int:
        devices = (Handle * 1)(self._context.device)
        code: int = self._context.driver.clBuildProgram(
            built.handle, 1, devices, self._options.encode(), None, None
        )
        return code

    def _log(self, built: _Built) -> str:
        try:
            found = self._context.driver.info(
                "clGetProgramBuildInfo", built.handle, self._context.device, _BUILD_LOG
            )
        except DriverError:
            return ""
        return found.rstrip(b"\0").decode(errors="replace")

    def _message(self, src: str, log: str, code: int) -> str:
        """What the compiler says, with the kernel and the line that it is about."""
        name = re.search(r"void (\w+)\(", src)
        lines = src.splitlines()
        places = [int(n) for n in re.findall(r":(\d+):\d+: error", log)]
        shown = [f"{n}: {lines[n - 1]}" for n in places[:1] if 0 < n <= len(lines)]
        where = f" at line {shown[0]}" if shown else ""
        kernel = name.group(1) if name else "a kernel"
        return (
            f"{self._context.name} does not compile {kernel}{where}: {describe(code)}\n{log or src}"
        )

    def _binary(self, built: _Built) -> bytes:
        """What the driver made, if it gives it away."""
        driver = self._context.driver
        try:
            size = int.from_bytes(
                driver.info("clGetProgramInfo", built.handle, _BINARY_SIZES)[:8], "little"
            )
            if not size:
                return b""
            data = ctypes.create_string_buffer(size)
            pointers = (Handle * 1)(ctypes.addressof(data))
            driver.call(
                "clGetProgramInfo",
                built.handle,
                _BINARIES,
                ctypes.sizeof(pointers),
                pointers,
                None,
            )
        except DeviceError:
            return b""
        return data.raw


class CLProgram(LaunchedProgram):
    """A loaded kernel."""

    def __init__(self, allocator: CLAllocator, facts: ProgramFacts, built: _Built) -> None:
        self._kernel: Handle | None = None
        self._context = context = allocator.context
        self._place = allocator.place
        self._built = built
        self.name = facts.name
        self.layout = facts.layout
        self.buffer_count = facts.buffer_count
        self.variables = facts.variables
        if not facts.layout and (facts.buffer_count or facts.variables):
            raise CompileError(f"{facts.name} was not made for OpenCL: its arguments are unknown")
        self._groups = facts.global_size or (1, 1, 1)
        self._threads = tuple(facts.local_size) or (1, 1, 1)
        if facts.threads_n > 1:
            parts = _PARTS_PER_CORE * context.units
            self._groups = (min(facts.threads_n, parts), 1, 1)
        self._kernel = context.driver.create("clCreateKernel", built.handle, facts.name.encode())
        # An argument stays set in the kernel: only one thread at a time may change and launch it.
        self._lock = threading.Lock()
        self._set: list[int | None] = [None] * len(facts.layout)
        self._cells = (ctypes.c_uint64 * max(1, len(facts.layout)))()
        self._local = (Size * 3)(*self._threads)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._kernel is not None and not finalizing() and self._context.is_usable:
            self._context.driver.clReleaseKernel(self._kernel)

    def _sizes(self, values: Sequence[int]) -> tuple[int, ...]:
        """Groups along x, y and z for these values of the variables."""
        known = dict(zip(self.variables, values, strict=True))
        return tuple(
            [s if isinstance(s, int) else max(0, sym_infer(s, known)) for s in self._groups]
        )

    def launch(
        self, bufs: Sequence[Buffer], vals: Sequence[int], wait: bool, origin: Origin | None
    ) -> float | None:
        """Submits the kernel; with `wait` the seconds that it took, by the device's clock."""
        if len(bufs) != self.buffer_count or len(vals) != len(self.variables):
            raise ArgumentError(
                f"{self.name} takes {self.buffer_count} buffers and {len(self.variables)} values, "
                f"but got {len(bufs)} and {len(vals)}"
            )
        context = self._context
        context.use()
        groups = self._sizes(vals)
        if 0 in groups:
            return 0.0 if wait else None
        arguments = self._arguments(bufs, vals)
        sizes = (Size * 3)(*[g * t for g, t in zip(groups, self._threads, strict=True)])
        over = f"{groups} groups of {self._threads}"
        with self._lock:
            self._set_arguments(arguments)
            if not wait:
                code = self._enqueue(context.queue, sizes, None)
                context.submit(code, self.name, origin, over)
                return None
            # what was submitted before is not to blame for what this one does
            context.synchronize()
            event = Handle()
            code = self._enqueue(context.timed_queue, sizes, ctypes.byref(event))
            context.submit(code, self.name, origin, over)
        return self._seconds(event)

    def _arguments(self, bufs: Sequence[Buffer], vals: Sequence[int]) -> list[int]:
        found: list[int] = []
        values = iter(vals)
        start = 0
        for kind, detail in self.layout:
            if kind == "buffer":
                memory, start = self._place(bufs[detail].opaque)
                found.append(memory.value)
            elif kind == "start":
                if start % detail:
                    raise ArgumentError(
                        f"{self.name} was given memory that starts at byte {start}, which is no "
                        f"multiple of its elements' {detail} bytes; copy it first"
                    )
                found.append(start // detail)
            else:
                found.append(next(values) & 0xFFFFFFFFFFFFFFFF)
        return found

    def _set_arguments(self, arguments: list[int]) -> None:
        """Those that are not what they were."""
        set_argument = self._context.driver.clSetKernelArg
        for place, (kind, detail) in enumerate(self.layout):
            value = arguments[place]
            if self._set[place] == value:
                continue
            self._cells[place] = value
            nbytes = detail if kind == "value" else 8
            code = set_argument(
                self._kernel, place, nbytes, ctypes.addressof(self._cells) + 8 * place
            )
            self._context.driver.check(code, f"argument {place} of {self.name}")
            self._set[place] = value

    def _enqueue(self, queue: Handle, sizes: Any, event: Any) -> int:
        code: int = self._context.driver.clEnqueueNDRangeKernel(
            queue, self._kernel, 3, None, sizes, self._local, 0, None, event
        )
        return code

    def _seconds(self, event: Handle) -> float:
        driver = self._context.driver
        try:
            events = (Handle * 1)(event)
            driver.call("clWaitForEvents", 1, events)
            times = []
            for number in (_STARTED, _ENDED):
                found = driver.info("clGetEventProfilingInfo", event, number)
                times.append(int.from_bytes(found[:8], "little"))
        finally:
            driver.clReleaseEvent(event)
        return max(0, times[1] - times[0]) / 1e9
