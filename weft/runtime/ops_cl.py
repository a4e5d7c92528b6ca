"""CL: whatever has a driver of OpenCL, GPU or CPU, through the loader library and nothing else.

In: programs of a renderer, buffers. Out: results in the device's memory. Opened by the registry,
only when asked for, also as CL:1, CL:2, ...: the devices of all vendors in the library's order. Its
parts: the library (`cl_driver`), a context with its queue and facts (`cl_context`), memory
(`cl_memory`), compiling and launching (`cl_program`).
Invariant: everything is submitted to one queue, in the order in which the host asks for it; the
host waits only where it reads memory.
"""

from __future__ import annotations

import functools

from weft.contracts import BaseDevice, Program, ProgramFacts
from weft.errors import DeviceError
from weft.renderer.opencl import OpenCLRenderer
from weft.runtime.cl_context import Context
from weft.runtime.cl_driver import Driver, open_driver
from weft.runtime.cl_memory import CLAllocator
from weft.runtime.cl_program import CLCompiler, CLProgram
from weft.runtime.launch_queue import LaunchQueue


class CLDevice(BaseDevice):
    """A device of OpenCL. `driver` stands in for the machine's own in tests."""

    def __init__(self, name: str, driver: Driver | None = None) -> None:
        unit = name.partition(":")[2] or "0"
        if not unit.isdecimal():
            raise DeviceError(f"{name} names no device of OpenCL: write CL or CL:1")
        self.context = Context(driver or open_driver(), name, int(unit))
        self.allocator: CLAllocator = CLAllocator(self.context)
        self._programs = CLCompiler(self.context)
        renderer = functools.partial(OpenCLRenderer, self.context.target())
        super().__init__(name, self.allocator, self._programs, renderer)
        self.queue = LaunchQueue(self.context)

    @property
    def arch(self) -> str:
        return self.context.model

    @property
    def description(self) -> str:
        return self.context.description

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        return CLProgram(self.allocator, facts, self._programs.load(facts.name, lib))

    def problems(self) -> list[tuple[str, str]]:
        """What keeps this device from being at its best."""
        if "fp64" in self.context.target().features:
            return []
        return [(f"{self.name} has no float64", "programs that need it are refused there")]
