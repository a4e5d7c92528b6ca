"""A GPU that is not there: the emulator behind a queue of packets.

In: what `agent.py` asks for. Out: the same as hardware gives, with errors that name instructions.
The AMD device opens it with AMD_EMULATE=1, and where there is no hardware.
Invariant: a packet is run when its doorbell rings, from the bytes in the queue and nothing else.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable

from weft.amd.codeobject import CodeObject
from weft.amd.codeobject import load as load_code
from weft.amd.targets import target
from weft.errors import CompileError, DeviceError, WeftError
from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.agent import Kernel
from weft.runtime.amd.aql import PACKET_BYTES, Dispatch
from weft.runtime.amd.code import lanes_of, mode_of, start_of
from weft.runtime.amd.counters import Counters, counted
from weft.runtime.amd.emulator import Allocations, EmulatorError, Launch
from weft.runtime.amd.program import Program, read_lines
from weft.runtime.amd.thread_trace import Entries, ThreadTrace

_ALIGN = 256
_SLOTS = 64
_ARGUMENT_BYTES = 1 << 16
# what watches launches: counters and traces
Watcher = Callable[["Launched"], None]


class Launched:
    """A launch that is done: who asked, what was run, what was counted."""

    def __init__(
        self, name: str, launch: Launch, counters: Counters, trace: ThreadTrace | None = None
    ) -> None:
        self.name = name
        self.launch = launch
        self.counters = counters
        self.trace = trace  # where the agent traces threads


class _Loaded:
    """A code object in memory, and its kernels made ready."""

    def __init__(self, agent: EmulatedAgent, code: CodeObject) -> None:
        self.code = code
        self.agent = agent
        self.memory, self.base = _aligned_memory(max(64, code.size))
        ctypes.memmove(self.base, code.image(self.base), code.size)
        agent.allocations.register(self.base, max(64, code.size))
        self.programs: dict[str, Program] = {}
        self.turn = -1

    def program(self, name: str) -> Program:
        found = self.programs.get(name)
        agent = self.agent
        wanted = (agent.counts_conflicts, agent.traces_threads)
        if found is None or (found.counts_conflicts, found.is_traced) != wanted:
            arch = self.agent.arch
            descriptor = self.code.kernels[name].descriptor
            lanes = lanes_of(descriptor, arch)
            shape = state.Shape(lanes, arch.startswith("gfx9"))
            start, size = self.code.text_place
            code = ctypes.string_at(self.base + start, size)
            lines = read_lines(code, arch, lanes)
            mode = mode_of(descriptor)
            counts, traced = wanted
            found = Program(
                arch, shape, lines, size, counts_conflicts=counts, mode=mode, is_traced=traced
            ).build()
            self.programs[name] = found
        return found

    def close(self) -> None:
        self.agent.allocations.forget(self.base)


class _Handle:
    """What a packet's kernel object names."""

    def __init__(self, loaded: _Loaded, name: str) -> None:
        self.loaded = loaded
        self.name = name
        self.address = loaded.base + loaded.code.kernels[name].descriptor_at
        loaded.agent.handles[self.address] = self

    def __del__(self) -> None:
        agent = self.loaded.agent
        if agent.handles.get(self.address) is self:
            agent.handles.pop(self.address, None)
            self.loaded.close()


class EmulatedAgent:
    """An architecture, emulated on the host."""

    def __init__(self, arch: str, budget: int = 1 << 62) -> None:
        self.arch = target(arch).name
        self.cores = 0
        self.description = f"{self.arch}, emulated on the CPU"
        self.budget = budget
        self.allocations = Allocations()
        self.counts_conflicts = False  # which costs time
        self.traces_threads = False  # every instruction of every wave, which costs more
        self.most_traced = 200_000  # instructions of a launch; the first groups are traced
        self.watchers: list[Watcher] = []
        self.handles: dict[int, _Handle] = {}
        self._memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._lock = threading.RLock()
        # the queue: a ring of packets, and how many were written and read
        self._ring, self.ring = _aligned_memory(_SLOTS * PACKET_BYTES)
        self.written = self.read = 0
        self._names: dict[int, str] = {}
        self._seconds: deque[tuple[int, float]] = deque(maxlen=64)
        self._arguments, self._argument_base = _aligned_memory(_ARGUMENT_BYTES)
        self.allocations.register(self._argument_base, _ARGUMENT_BYTES)
        self._next_argument = 0

    # ------------------------------------------------------------ memory
    def allocate(self, nbytes: int) -> int:
        try:
            memory, address = _aligned_memory(max(1, nbytes))
        except (OverflowError, ValueError) as error:
            raise MemoryError("more than this machine can address") from error
        self._memory[address] = memory
        self.allocations.register(address, max(1, nbytes))
        return address

    def free(self, address: int) -> None:
        self.allocations.forget(address)
        self._memory.pop(address, None)

    def copy_in(self, address: int, source: memoryview) -> None:
        window = memoryview((ctypes.c_char * source.nbytes).from_address(address)).cast("B")
        window[:] = source

    def copy_out(self, target: memoryview, address: int) -> None:
        window = memoryview((ctypes.c_char * target.nbytes).from_address(address)).cast("B")
        target[:] = window

    # ------------------------------------------------------------ code
    def load(self, name: str, code: bytes) -> Kernel:
        read = load_code(code)
        if name not in read.kernels:
            known = ", ".join(read.kernels)
            raise CompileError(f"a code object has no kernel {name}; it has {known}")
        if read.target.name != self.arch:
            raise CompileError(f"{name} is code for {read.target}, this is {self.arch}")
        handle = _Handle(_Loaded(self, read), name)
        found = read.kernels[name].descriptor
        return Kernel(
            name, handle.address, found.kernarg_size, found.group_segment_size,
            found.private_segment_size, handle,
        )  # fmt: skip

    # ------------------------------------------------------------ the queue
    def arguments(self, contents: bytes) -> int:
        with self._lock:
            size = -(-max(1, len(contents)) // 64) * 64
            if size > _ARGUMENT_BYTES:
                raise DeviceError(f"a kernel has {len(contents)} bytes of arguments")
            if self._next_argument + size > _ARGUMENT_BYTES:
                self._next_argument = 0
            address = self._argument_base + self._next_argument
            self._next_argument += size
            ctypes.memmove(address, contents, len(contents))
            return address

    def submit(self, dispatch: Dispatch, name: str) -> int:
        with self._lock:
            slot = self.ring + self.written % _SLOTS * PACKET_BYTES
            ctypes.memmove(slot, dispatch.pack(), PACKET_BYTES)
            number = self.written
            self._names[number] = name
            self.written += 1
            self.ring_doorbell()
            return number

    def ring_doorbell(self) -> None:
        """Runs all packets that were written."""
        while self.read < self.written:
            slot = self.ring + self.read % _SLOTS * PACKET_BYTES
            packet = ctypes.string_at(slot, PACKET_BYTES)
            number = self.read
            self.read += 1
            self._run(Dispatch.unpack(packet), slot, self._names.pop(number, "a kernel"), number)

    def _run(self, dispatch: Dispatch, packet: int, name: str, number: int) -> None:
        handle = self.handles.get(dispatch.kernel_object)
        if handle is None:
            raise DeviceError(f"{name}: no kernel is loaded at {dispatch.kernel_object:#x}")
        launch = self.prepare(handle.loaded, handle.name, dispatch, packet)
        before = launch.program.line_counts() if self.watchers else []
        entries = Entries(launch, self.most_traced) if launch.program.is_traced else None
        started = time.perf_counter()
        try:
            launch.run()
        except EmulatorError as error:
            raise EmulatorError(f"kernel {name}: {error}") from None
        seconds = time.perf_counter() - started
        self._seconds.append((number, seconds))
        if self.watchers:
            counters = counted(launch, before, seconds)
            for watch in list(self.watchers):
                trace = None if entries is None else ThreadTrace(name, launch, entries)
                watch(Launched(name, launch, counters, trace))

    def prepare(self, loaded: _Loaded, name: str, dispatch: Dispatch, packet: int = 0) -> Launch:
        """A launch that is ready to run, or to be stepped."""
        groups = []
        for threads, size in zip(dispatch.grid, dispatch.group, strict=True):
            if threads % size:
                raise DeviceError(f"{name}: {threads} threads are not whole groups of {size}")
            groups.append(threads // size)
        if prod(dispatch.group) > 1024:
            raise DeviceError(f"{name}: a group of {dispatch.group} has more than 1024 threads")
        kernel = loaded.code.kernels[name]
        program = loaded.program(name)
        if loaded.turn != self.allocations.turn:
            program.forget_allocations()
            loaded.turn = self.allocations.turn
        text, _ = loaded.code.text_place
        entry = kernel.entry - text
        start = start_of(kernel.descriptor, self.arch, dispatch.kernarg, packet, entry)
        if entry not in program.first_record:
            raise WeftError(f"{name} begins at {entry:#x}, where no instruction is")
        return Launch(
            program, start, (groups[0], groups[1], groups[2]), dispatch.group,
            loaded.base + text, self.allocations, self.budget, dispatch.group_bytes,
        )  # fmt: skip

    def wait(self, number: int) -> None:
        """A packet is done when its doorbell has rung."""

    def elapsed(self, number: int) -> float:
        return next((s for n, s in self._seconds if n == number), 0.0)


def _aligned_memory(nbytes: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    memory = (ctypes.c_char * (nbytes + _ALIGN))()
    return memory, -(-ctypes.addressof(memory) // _ALIGN) * _ALIGN
