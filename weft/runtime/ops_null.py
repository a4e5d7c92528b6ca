"""NULL: compiles and runs nothing, for measuring weft itself and for shapes too large to hold.

In: what any device gets. Out: programs that do nothing, memory that does not exist and reads as
zeros. Opened by the registry, only when asked for. Programs are optimised and printed for a machine
that is the same everywhere, so that counts of ops and kernels can be compared.
Invariant: counts memory like a real device, and takes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.contracts import Allocator, BaseDevice, Compiler, Program
from weft.device import Buffer
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer

_TARGET = Target(
    name="null",
    cores=4,
    vector_bytes=32,
    vector_registers=16,
    has_fma=True,
    has_threads=True,
    has_half_conversion=True,
)


class NullAllocator(Allocator):
    """Memory that is only counted. An opaque is the byte offset into nothing."""

    def _alloc(self, nbytes: int) -> int:
        return 0

    def _free(self, opaque: Any, nbytes: int) -> None:
        pass

    def copyin(self, opaque: Any, source: memoryview) -> None:
        pass

    def copyout(self, target: memoryview, opaque: Any) -> None:
        target[:] = bytes(target.nbytes)

    def offset(self, opaque: Any, nbytes: int) -> int:
        position: int = opaque + nbytes
        return position

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        return True


class NullCompiler(Compiler):
    """Returns the source, so that all that comes before and after compilation still happens."""

    @property
    def cachekey(self) -> None:
        return None

    def compile(self, src: str) -> bytes:
        return src.encode()


class NullProgram(Program):
    """Does nothing, in a plausible time for the statistics of DEBUG=2."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        return 1e-6 if wait else None


def _create_renderer() -> LLVMRenderer:
    return LLVMRenderer(_TARGET)


class NullDevice(BaseDevice):
    """A device that is not there."""

    executes = False

    def __init__(self, name: str) -> None:
        super().__init__(name, NullAllocator(name), NullCompiler(), _create_renderer)

    @property
    def arch(self) -> str:
        return "null"

    def runtime(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> Program:
        return NullProgram(name)
