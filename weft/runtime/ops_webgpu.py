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
from typing import Any

from weft.contracts import BaseDevice, Program, ProgramFacts
from weft.errors import DeviceError
from weft.renderer.wgsl import WGSLRenderer
from weft.runtime.launch_queue import LaunchQueue
from weft.runtime.webgpu_context import Context, open_package
from weft.runtime.webgpu_memory import WebGPUAllocator
from weft.runtime.webgpu_program import WebGPUProgram, WGSLCompiler


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
        self.queue = LaunchQueue(self.context)

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
