"""The PYTHON device: interprets programs one UOp at a time. The oracle of the fuzzers.

In: programs as text from `renderer/python.py`. Out: their effect on memory, computed by definition.
One of the devices, found by file name; the work is done by `interpreter.py`.
With a target that has groups of threads it is a GPU without one, which finds races.
Invariant: it shares nothing with the devices that it checks: not their memory, code or compiler.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from weft.contracts import Allocator, BaseDevice, Compiler, Program
from weft.device import Buffer
from weft.errors import ArgumentError, DeviceError
from weft.knobs import PYTHON_SEED, PYTHON_TARGET
from weft.machine import Target
from weft.renderer.cuda import SM_90
from weft.renderer.metal import METAL
from weft.renderer.opencl import OPENCL
from weft.renderer.python import FORMAT_VERSION, PythonRenderer, parse
from weft.renderer.wgsl import WEBGPU
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import memory_of, view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops

# the machines whose programs can be interpreted, by the name that PYTHON_TARGET and the device's
# name take: DEVICE=PYTHON PYTHON_TARGET=sm_90, or PYTHON:sm_90
TARGETS = {target.name: target for target in (SM_90, METAL, OPENCL, WEBGPU)}

# New memory is not zero, so that a result which depends on its contents looks wrong.
_POISON = b"\xa5"


class PythonAllocator(Allocator):
    """Memory that Python owns: `opaque` is a writable memoryview of bytes."""

    def _alloc(self, nbytes: int) -> memoryview:
        try:
            return memoryview(bytearray(_POISON) * nbytes)
        except OverflowError as error:
            raise MemoryError("more than this machine can address") from error

    def _free(self, opaque: memoryview, nbytes: int) -> None:
        # The bytes go when the last view of them goes.
        pass

    def copyin(self, opaque: memoryview, source: memoryview) -> None:
        opaque[: source.nbytes] = source.cast("B")

    def copyout(self, target: memoryview, opaque: memoryview) -> None:
        target.cast("B")[:] = opaque[: target.nbytes]

    def offset(self, opaque: memoryview, nbytes: int) -> memoryview:
        return opaque[nbytes:]

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        if not isinstance(source_allocator, PythonAllocator):
            return False
        target[:nbytes] = source[:nbytes]
        return True


class PythonCompiler(Compiler):
    """There is nothing to compile: the text itself is what is loaded."""

    @property
    def cachekey(self) -> str:
        return f"python-{FORMAT_VERSION}"

    def compile(self, src: str) -> bytes:
        parse(src)
        return src.encode()

    def assembly(self, src: str) -> str:
        return src


class PythonProgram(Program):
    """A parsed program, ready to be interpreted."""

    def __init__(self, name: str, lib: bytes) -> None:
        self.name = name
        _, self._uops = parse(lib.decode())
        self._interpreter = Interpreter(name, self._uops)
        self._watching_all: Interpreter | None = None  # for memories that overlap
        stores = [memory_of(u) for u in self._uops if u.op is Ops.STORE]
        self._written = {memory.arg.slot for memory in stores if memory.op is Ops.PARAM}

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        start = time.perf_counter()
        memory: dict[int, Any] = {}
        for param in self._interpreter.params:
            slot, size = param.arg.slot, param.arg.size
            if slot >= len(bufs) or bufs[slot].nbytes < size * param.dtype.itemsize:
                found = f"{bufs[slot]}" if slot < len(bufs) else f"only {len(bufs)} buffers"
                raise ArgumentError(
                    f"kernel {self.name} needs {size} elements of {param.dtype} as buffer {slot}, "
                    f"found {found}"
                )
            memory[slot] = view_memory(bufs[slot].opaque, param.dtype, size)
        overlaps = _overlaps(self._interpreter.params, self._written, bufs)
        interpreter = self._interpreter
        if overlaps:
            if self._watching_all is None:
                self._watching_all = Interpreter(self.name, self._uops, watch_all=True)
            interpreter = self._watching_all
        interpreter.run(memory, vals, overlaps, PYTHON_SEED.value)
        return time.perf_counter() - start if wait else None


def _overlaps(
    params: Sequence[UOp], written: set[int], bufs: Sequence[Buffer]
) -> dict[int, tuple[int, int]]:
    """For slots that share a buffer which is written: its number, and the byte they start at."""
    sharing: dict[int, list[int]] = {}
    for param in params:
        sharing.setdefault(id(bufs[param.arg.slot].base), []).append(param.arg.slot)
    return {
        slot: (number, bufs[slot].offset)
        for number, slots in enumerate(sharing.values())
        if len(slots) > 1 and not written.isdisjoint(slots)
        for slot in slots
    }


class PythonDevice(BaseDevice):
    """PYTHON, PYTHON:1, PYTHON:sm_90 ...: each with memory of its own."""

    def __init__(self, name: str) -> None:
        self.target = _target_of(name)
        super().__init__(
            name, PythonAllocator(name), PythonCompiler(), lambda: PythonRenderer(self.target)
        )

    @property
    def arch(self) -> str:
        return "interpreter" if self.target is None else f"interpreter of {self.target.name}"

    def runtime(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> Program:
        return PythonProgram(name, lib)


def _target_of(name: str) -> Target | None:
    """The machine that a device of this name interprets the programs of; None: any."""
    unit = name.partition(":")[2]
    asked = PYTHON_TARGET.value if not unit or unit.isdecimal() else unit
    if not asked:
        return None
    if asked not in TARGETS:
        known = ", ".join(TARGETS)
        raise DeviceError(
            f"{name} was asked to interpret programs of {asked!r}; it knows those of {known} "
            "(as in PYTHON_TARGET=sm_90), and without a target plain ones"
        )
    return TARGETS[asked]
