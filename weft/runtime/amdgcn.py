"""LLVM IR text to machine code of AMD's GPUs, through LLVM's AMDGPU target: nothing else is needed.

In: a module that `renderer/amdgcn.py` printed, and the name of an architecture ("gfx1100"). Out: a
relocatable object, which `weft.amd` links to a code object. Beside `nvptx.py`, whose calls into
llvmlite's library without its lock these are.
Invariant: a module is emitted once (a second time aborts the process), in an LLVM context of its
own; a thread has its own target machines.
"""

from __future__ import annotations

import ctypes
import threading

from weft.errors import CompileError
from weft.renderer.amdgcn import CHIPS, TRIPLE
from weft.runtime.llvm import compiling, llvm_binding
from weft.runtime.nvptx import OBJECT, PASS_LEVEL, TEXT, emitting_library


def emit_object(source: str, arch: str) -> bytes:
    """The object file of a module."""
    return _emit(source, arch, OBJECT)


def emit_assembly(source: str, arch: str) -> str:
    """The assembly of a module, as LLVM prints it."""
    return _emit(source, arch, TEXT).rstrip(b"\0").decode(errors="replace")


def _emit(source: str, arch: str, kind: int) -> bytes:
    library = emitting_library()
    machine = _machine(arch)
    # no line break, so that the line numbers of LLVM's messages are those of the source
    layout = "" if "target datalayout" in source else f'target datalayout = "{machine.layout}" '
    with compiling():
        return library.compile(machine.pointer, (layout + source).encode(), kind)


def emitter_version() -> str:
    """What beside the source and the architecture decides the object."""
    return f"llvm{'.'.join(map(str, llvm_binding().llvm_version_info))}-O{PASS_LEVEL}"


class _Machine:
    """A target machine, kept by the thread that made it."""

    def __init__(self, arch: str) -> None:
        if arch not in CHIPS:
            raise CompileError(f"code for {arch!r} was asked for; there are {', '.join(CHIPS)}")
        binding = llvm_binding()
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        try:
            target = binding.Target.from_triple(TRIPLE)
        except RuntimeError as error:
            raise CompileError(
                f"llvmlite's LLVM has no AMDGPU target ({error}); "
                "the wheels from PyPI have it: `pip install --force-reinstall llvmlite`"
            ) from None
        self.handle = target.create_target_machine(cpu=arch, opt=3)
        self.pointer: int = ctypes.cast(self.handle._ptr, ctypes.c_void_p).value or 0
        self.layout = str(self.handle.target_data)


_machines = threading.local()


def _machine(arch: str) -> _Machine:
    found: dict[str, _Machine] = _machines.__dict__.setdefault("by_arch", {})
    if arch not in found:
        found[arch] = _Machine(arch)
    return found[arch]
