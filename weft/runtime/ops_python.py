"""The PYTHON device: interprets programs one UOp at a time. The oracle of the fuzzers.

In: programs as text from `renderer/python.py`. Out: their effect on memory, computed by definition.
One of the devices, found by file name; the work is done by `interpreter.py`.
Invariant: it shares nothing with the devices that it checks: not their memory, code or compiler.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from weft.contracts import Allocator, BaseDevice, Compiler, Program
from weft.device import Buffer
from weft.errors import ArgumentError
from weft.renderer.python import FORMAT_VERSION, PythonRenderer, parse
from weft.runtime.interpreter import Interpreter, view_memory

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
        _, uops = parse(lib.decode())
        self._interpreter = Interpreter(name, uops)

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
        self._interpreter.run(memory, vals)
        return time.perf_counter() - start if wait else None


class PythonDevice(BaseDevice):
    """PYTHON, PYTHON:1 ...: each with memory of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name, PythonAllocator(name), PythonCompiler(), PythonRenderer)

    @property
    def arch(self) -> str:
        return "interpreter"

    def runtime(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> Program:
        return PythonProgram(name, lib)
