"""WEBGPU: whatever the package wgpu reaches (Vulkan, Metal, Direct3D), with kernels in WGSL.

In: programs of a renderer, buffers. Out: results in the device's memory. Opened by the registry,
only when asked for, also as WEBGPU:1, ...: the adapters in the package's order. Its parts: context
with the commands that wait (`webgpu_context`), memory (`webgpu_memory`), launches
(`webgpu_program`).
Invariant: commands are done in the order in which the host asks for them; the host waits only where
it reads memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from weft.contracts import BaseDevice, Origin, Program, ProgramFacts
from weft.device import Buffer
from weft.errors import DeviceError
from weft.renderer.wgsl import WGSLRenderer
from weft.runtime.webgpu_context import Context, open_package
from weft.runtime.webgpu_memory import WebGPUAllocator
from weft.runtime.webgpu_program import WebGPUProgram, WGSLCompiler


class WebGPUQueue:
    """The queue of a device."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def submit(
        self,
        program: Program,
        bufs: Sequence[Buffer],
        vals: Sequence[int],
        wait: bool = False,
        origin: Origin | None = None,
    ) -> float | None:
        """Launches; seconds if `wait`."""
        assert isinstance(program, WebGPUProgram)
        return program.launch(bufs, vals, wait, origin)

    def copy(self, target: Buffer, source: Buffer) -> None:
        """In the order of the work of both devices."""
        target.copy_from(source)

    def signal(self) -> int:
        """The number of commands so far."""
        return self._context.submitted

    def wait(self, value: int) -> None:
        """Returns when so many commands are done."""
        if value > self._context.completed or not value:
            self._context.synchronize()


class WEBGPUDevice(BaseDevice):
    """An adapter. `package` stands in for wgpu in tests."""

    def __init__(self, name: str, package: Any = None) -> None:
        unit = name.partition(":")[2] or "0"
        if not unit.isdecimal():
            raise DeviceError(f"{name} names no adapter: write WEBGPU or WEBGPU:1")
        self.context = Context(package or open_package(), name, int(unit))
        self.allocator: WebGPUAllocator = WebGPUAllocator(self.context)
        self._modules = WGSLCompiler(self.context)
        renderer = functools.partial(WGSLRenderer, self.context.target(), has_starts=True)
        super().__init__(name, self.allocator, self._modules, renderer)
        self.queue = WebGPUQueue(self.context)

    @property
    def arch(self) -> str:
        return self.context.model

    @property
    def description(self) -> str:
        return self.context.description

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        return WebGPUProgram(self.allocator, facts, lib.decode(), self._modules)

    def problems(self) -> list[tuple[str, str]]:
        """What programs cannot do here."""
        return [(f"{self.name} has no float64", "programs that need it are refused there")]
