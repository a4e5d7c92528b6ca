"""AMD: AMD's GPUs through HSA, or an emulator of them where there are none.

In: programs of the amdgcn renderer, buffers. Out: results in the GPU's memory. Opened by the
registry, also as AMD:1 (the second GPU) and AMD:gfx1201 (an emulated one). `AMD_EMULATE=1`
emulates, `AMD_ARCH` says what; without hardware that is the default. Its parts are in the folder
`amd`: agents (HSA and the emulator), packets, code objects.
Invariant: everything is one queue of packets, done in the order in which the host submits them.
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from weft.amd.link import link
from weft.contracts import (
    Allocator,
    BaseDevice,
    LaunchReport,
    Origin,
    Program,
    ProgramFacts,
)
from weft.device import Buffer
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.knobs import AMD_ARCH, AMD_EMULATE
from weft.renderer.amdgcn import CHIPS, AMDGCNRenderer, amd_target
from weft.runtime.amd.agent import Agent
from weft.runtime.amd.aql import Dispatch
from weft.runtime.amd.emulated import EmulatedAgent, Launched
from weft.runtime.amd.hsa import open_agent
from weft.runtime.amdgcn import emit_assembly, emit_object, emitter_version
from weft.runtime.cuda_compile import ThreadedCompiler
from weft.uop.node import UOp
from weft.uop.resolve import sym_infer

_DEFAULT_ARCH = "gfx1100"


class AMDAllocator(Allocator):
    """Memory of an agent: `opaque` is its address."""

    def __init__(self, device: str, agent: Agent) -> None:
        super().__init__(device)
        self.agent = agent

    def _alloc(self, nbytes: int) -> int:
        return self.agent.allocate(nbytes)

    def _free(self, opaque: int, nbytes: int) -> None:
        self.agent.free(opaque)

    def copyin(self, opaque: int, source: memoryview) -> None:
        self.agent.copy_in(opaque, source)

    def copyout(self, target: memoryview, opaque: int) -> None:
        self.agent.copy_out(target, opaque)

    def offset(self, opaque: int, nbytes: int) -> int:
        return opaque + nbytes

    def address(self, opaque: int) -> int:
        return opaque


class AMDCompiler(ThreadedCompiler):
    """LLVM IR to code objects."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.arch = arch

    @property
    def cachekey(self) -> str:
        return f"amd-linked-{emitter_version()}-{self.arch}"

    def compile(self, src: str) -> bytes:
        return link(emit_object(src, self.arch))

    def assembly(self, src: str) -> str:
        return emit_assembly(src, self.arch)


class AMDProgram(Program):
    """A loaded kernel."""

    def __init__(self, agent: Agent, facts: ProgramFacts, lib: bytes) -> None:
        self.name = facts.name
        self._agent = agent
        self.buffer_count = facts.buffer_count
        self.variables = facts.variables
        self._sizes = facts.global_size or (1, 1, 1)
        x, y, z = facts.local_size or (1, 1, 1)
        self.group = (x, y, z)
        if not facts.layout:
            raise CompileError(f"{facts.name} was not made for a GPU: its arguments have no layout")
        self._layout = facts.layout
        self._slots = [detail for kind, detail in self._layout if kind == "buffer"]
        self._struct = _argument_struct(self._layout)
        self.kernel = agent.load(facts.name, lib)
        self._lock = threading.Lock()

    def groups(self, values: Sequence[int]) -> tuple[int, int, int]:
        """Groups along x, y and z for these values of the variables."""
        known = dict(zip(self.variables, values, strict=True))
        x, y, z = [
            max(0, sym_infer(s, known)) if isinstance(s, UOp) else int(s) for s in self._sizes
        ]
        return x, y, z

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        if len(bufs) != self.buffer_count or len(vals) != len(self.variables):
            raise ArgumentError(
                f"{self.name} takes {self.buffer_count} buffers and {len(self.variables)} values, "
                f"but got {len(bufs)} and {len(vals)}"
            )
        groups = self.groups(vals)
        if 0 in groups:
            return 0.0 if wait else None
        addresses = [bufs[slot].address for slot in self._slots]
        contents = self._pack(addresses, vals, groups)
        grid = tuple([g * size for g, size in zip(groups, self.group, strict=True)])
        with self._lock:
            dispatch = Dispatch(
                self.group, (grid[0], grid[1], grid[2]), self.kernel.handle,
                self._agent.arguments(contents), self.kernel.private_bytes, self.kernel.group_bytes,
            )  # fmt: skip
            number = self._agent.submit(dispatch, self.name)
        if not wait:
            return None
        self._agent.wait(number)
        return self._agent.elapsed(number)

    def _pack(
        self, addresses: Sequence[int], values: Sequence[int], groups: tuple[int, int, int]
    ) -> bytes:
        buffers, variables = iter(addresses), iter(values)
        found: list[int] = []
        for kind, detail in self._layout:
            if kind == "words":
                found.append(0)
            elif kind == "buffer":
                found.append(next(buffers))
            elif kind == "value":
                found.append(next(variables) & (1 << 8 * detail) - 1)
            else:
                found.append(groups[detail])
        packed = self._struct.pack(*found)
        return packed + bytes(max(0, self.kernel.kernarg_bytes - len(packed)))


def _argument_struct(layout: tuple[tuple[str, int], ...]) -> struct.Struct:
    """Each argument at a multiple of its size, as LLVM lays out a kernel's arguments."""
    letters = {1: "B", 2: "H", 4: "I", 8: "Q"}
    text, at = "<", 0
    for kind, detail in layout:
        size = {"words": 8, "buffer": 8, "groups": 4}.get(kind, detail)
        padding = -at % size
        text += f"{padding}x{letters[size]}" if padding else letters[size]
        at += padding + size
    return struct.Struct(text)


class AMDQueue:
    """The queue of an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._last = -1

    def submit(
        self,
        program: Program,
        bufs: Sequence[Buffer],
        vals: Sequence[int],
        wait: bool = False,
        origin: Origin | None = None,
    ) -> float | None:
        """Launches; seconds if `wait`."""
        try:
            return program(bufs, vals, wait)
        except DeviceError as error:
            if origin is None:
                raise
            raise type(error)(f"{error} (submitted at {origin[0]}:{origin[1]})") from None

    def copy(self, target: Buffer, source: Buffer) -> None:
        target.copy_from(source)

    def signal(self) -> int:
        return 0

    def wait(self, value: int) -> None:
        self._agent.wait(-1)


class AMDDevice(BaseDevice):
    """A GPU, or an emulated one. `agent` stands in for the machine's own in tests."""

    has_address = True

    def __init__(self, name: str, agent: Agent | None = None) -> None:
        unit = name.partition(":")[2] or "0"
        if not unit.isdecimal() and unit not in CHIPS:
            raise DeviceError(f"{name} names no GPU: write AMD, AMD:1, or AMD:gfx1201 to emulate")
        self.agent = agent or (EmulatedAgent(unit) if unit in CHIPS else choose_agent(int(unit)))
        arch = self.agent.arch
        super().__init__(
            name,
            AMDAllocator(name, self.agent),
            AMDCompiler(arch),
            functools.partial(_renderer, arch, self.agent.cores),
        )
        self.queue: Any = AMDQueue(self.agent)

    @property
    def arch(self) -> str:
        return self.agent.arch

    @property
    def description(self) -> str:
        return self.agent.description

    def watch(self, note: Callable[[LaunchReport], None]) -> Callable[[], None]:
        """The emulator counts and traces; hardware is not asked yet."""
        agent = self.agent
        if not isinstance(agent, EmulatedAgent):
            return super().watch(note)
        before = agent.traces_threads, agent.counts_conflicts

        def watcher(launched: Launched) -> None:
            note(_report(launched))

        def undo() -> None:
            agent.traces_threads, agent.counts_conflicts = before
            agent.watchers.remove(watcher)

        agent.traces_threads = agent.counts_conflicts = True
        agent.watchers.append(watcher)
        return undo

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        return AMDProgram(self.agent, facts, lib)

    def launch(
        self,
        name: str,
        code: bytes,
        tensors: Sequence[Any],
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
    ) -> None:
        """Runs a kernel of a code object, written by hand say, on realized tensors of this device.

        Its arguments are the tensors' addresses, in order.
        """
        kernel = self.agent.load(name, code)
        buffers: list[Buffer] = [t if isinstance(t, Buffer) else t._buffer() for t in tensors]
        foreign = [buffer.device for buffer in buffers if buffer.device != self.name]
        if foreign:
            raise ArgumentError(f"{name} runs on {self.name}, but a tensor is on {foreign[0]}")
        contents = struct.pack(f"<{len(buffers)}Q", *[buffer.address for buffer in buffers])
        contents += bytes(max(0, kernel.kernarg_bytes - len(contents)))
        grid = tuple([g * t for g, t in zip(groups, threads, strict=True)])
        dispatch = Dispatch(
            threads, (grid[0], grid[1], grid[2]), kernel.handle, self.agent.arguments(contents),
            kernel.private_bytes, kernel.group_bytes,
        )  # fmt: skip
        self.agent.wait(self.agent.submit(dispatch, name))


def _report(launched: Launched) -> LaunchReport:
    trace, counts = launched.trace, launched.counters.as_dict()

    def threads() -> dict[str, Any] | None:
        return None if trace is None else trace.shown()

    def streams() -> Any:
        return None if trace is None else {**trace.recorded(), "counts": counts}

    return LaunchReport(launched.name, counts, threads, streams)


def _renderer(arch: str, cores: int) -> AMDGCNRenderer:
    return AMDGCNRenderer(amd_target(arch, cores))


def choose_agent(unit: int) -> Agent:
    """The machine's GPU, or the emulator: as AMD_EMULATE says, and by what there is."""
    asked = AMD_ARCH.value
    if asked and asked not in CHIPS:
        raise ArgumentError(f"AMD_ARCH={asked}, but there are {', '.join(CHIPS)}")
    how = AMD_EMULATE.value
    if how == 1:
        return EmulatedAgent(asked or _DEFAULT_ARCH)
    try:
        return open_agent(unit)
    except DeviceError:
        if how == 0:
            raise
        return EmulatedAgent(asked or _DEFAULT_ARCH)
