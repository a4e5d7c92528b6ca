"""Kernels in a GPU's memory, and their launches.

In: cubins with what is known of them. Out: `CUDAProgram`, which launches in the device's stream and
comes back at once. On top of the context, under graphs and the device.
Invariant: arguments are laid out as `word_layout` says, with no table of words: each is its value.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from weft.contracts import Origin, ProgramFacts
from weft.device import Buffer
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.runtime.cuda_context import Context
from weft.runtime.cuda_driver import Pointer
from weft.runtime.launch_queue import LaunchedProgram
from weft.uop.node import UOp
from weft.uop.resolve import sym_infer

# what a group has without asking, and the attribute that asks for more
_STATIC_SHARED = 48 << 10
_MOST_DYNAMIC_SHARED = 8
# what a function says about itself
_ATTRIBUTES = {"shared_bytes": 1, "local_bytes": 3, "registers": 4}


class CUDAProgram(LaunchedProgram):
    """A loaded kernel."""

    def __init__(self, context: Context, facts: ProgramFacts, lib: bytes) -> None:
        self._module: Any = None
        self._context = context
        self.name = facts.name
        self.layout = facts.layout
        self.buffer_count = facts.buffer_count
        self.variables = facts.variables
        self.argument_count = facts.buffer_count + len(facts.variables)
        self._sizes = facts.global_size or (1, 1, 1)
        self.block = tuple(facts.local_size) or (1, 1, 1)
        self.shared_bytes = facts.shared_bytes
        self.symbolic_axes = tuple(
            [axis for axis, size in enumerate(self._sizes) if isinstance(size, UOp)]
        )
        self.is_symbolic = bool(self.symbolic_axes)
        if not facts.layout:
            raise CompileError(f"{facts.name} was not made for a GPU: its arguments have no layout")
        context.use()
        module, function = Pointer(), Pointer()
        code = context.driver.cuModuleLoadData(ctypes.byref(module), lib)
        if code:
            described = context.driver.describe(code)
            raise CompileError(f"{context.name} does not load {facts.name}: {described}")
        self._module = module
        context.call("cuModuleGetFunction", ctypes.byref(function), module, facts.name.encode())
        self.function = function
        if self.shared_bytes > _STATIC_SHARED:
            context.call("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, self.shared_bytes)
        # Several threads may run one program: the driver has copied these when a launch returns.
        self._lock = threading.Lock()
        self._cells = (ctypes.c_uint64 * len(self.layout))()
        first = ctypes.addressof(self._cells)
        places = [first + 8 * place for place in range(len(self.layout))]
        self._pointers = (ctypes.c_void_p * len(places))(*places)
        self._slots = [detail for kind, detail in self.layout if kind == "buffer"]
        self._launch = context.driver.cuLaunchKernel
        self._events: tuple[Any, Any] | None = None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._module is not None and not finalizing() and self._context.is_usable:
            with contextlib.suppress(DeviceError):
                self._context.synchronize()
                self._context.driver.cuModuleUnload(self._module)

    def attributes(self) -> dict[str, int]:
        """Registers of a thread, bytes of its spills, shared bytes of a group."""
        self._context.use()
        found = {}
        for name, number in _ATTRIBUTES.items():
            value = ctypes.c_int()
            self._context.call("cuFuncGetAttribute", ctypes.byref(value), number, self.function)
            found[name] = value.value
        return found

    def grid(self, values: Sequence[int]) -> tuple[int, int, int]:
        """Groups along x, y and z for these values of the variables."""
        if not self.is_symbolic:
            x, y, z = self._sizes
            return int(x), int(y), int(z)
        known = dict(zip(self.variables, values, strict=True))
        x, y, z = [s if isinstance(s, int) else max(0, sym_infer(s, known)) for s in self._sizes]
        return x, y, z

    @property
    def most_groups(self) -> tuple[int, int, int]:
        """Groups along x, y and z for the values that make most."""
        x, y, z = [s if isinstance(s, int) else max(1, int(s.vmax)) for s in self._sizes]
        return x, y, z

    def launch(
        self, bufs: Sequence[Buffer], vals: Sequence[int], wait: bool, origin: Origin | None
    ) -> float | None:
        """Submits the kernel; with `wait` the seconds that it took, by the GPU's clock."""
        if len(bufs) != self.buffer_count or len(vals) != len(self.variables):
            raise ArgumentError(
                f"{self.name} takes {self.buffer_count} buffers and {len(self.variables)} values, "
                f"but got {len(bufs)} and {len(vals)}"
            )
        context = self._context
        addresses = [bufs[slot].address for slot in self._slots]
        grid = self.grid(vals)
        context.use()
        if 0 in grid:
            return 0.0 if wait else None
        groups = [grid[axis] for axis in self.symbolic_axes]
        with self._lock:
            self._cells[:] = [0, *addresses, *vals, *groups]
            if not wait:
                context.note_launch(self.name, origin)
                self._submit(grid)
                return None
            return self._timed(grid, origin)

    def _submit(self, grid: tuple[int, int, int]) -> None:
        code = self._launch(
            self.function,
            *grid,
            *self.block,
            self.shared_bytes,
            self._context.stream,
            self._pointers,
            None,
        )
        if code:
            self._context.check(code, f"launching {self.name} over {grid} x {self.block}")
        self._context.count_launch()

    def _timed(self, grid: tuple[int, int, int], origin: Origin | None) -> float:
        context = self._context
        if self._events is None:
            self._events = (context.new_event(has_time=True), context.new_event(has_time=True))
        first, last = self._events
        # what was submitted before is not to blame for what this one does
        context.synchronize()
        context.note_launch(self.name, origin)
        context.call("cuEventRecord", first, context.stream)
        self._submit(grid)
        context.call("cuEventRecord", last, context.stream)
        context.synchronize()
        milliseconds = ctypes.c_float()
        context.call("cuEventElapsedTime", ctypes.byref(milliseconds), first, last)
        return milliseconds.value / 1e3
