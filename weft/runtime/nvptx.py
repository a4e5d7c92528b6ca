"""LLVM IR text to PTX text, through LLVM's NVPTX target: no toolkit and no driver is needed.

In: a module that `renderer/nvptx.py` printed, and the name of a chip ("sm_90"). Out: PTX, which the
driver links to machine code. Beside `llvm.py`; devices with NVIDIA's GPUs use it, from as many
threads as they like: llvmlite puts one lock around every call, so these are calls of our own into
its library, which give up the interpreter's lock.
Invariant: a call has an LLVM context of its own and a thread its own target machines; nothing else
is shared.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import threading
from typing import Any

from weft.errors import CompileError
from weft.runtime.llvm import SOURCE_HINT, compiling, llvm_binding

# In IR passes: LLVM simplifies addresses, unrolls short loops and moves what does not change out of
# them. See docs/decisions/0023-kernels-for-gpus-through-llvm.md.
PASS_LEVEL = 1
# chips whose fp8 conversions need a later PTX than LLVM takes for them by itself
_PTX_VERSIONS = {"sm_89": "+ptx81"}
# products of fp8 fragments need a later one on all chips, which older drivers do not know
_FP8_PRODUCT = re.compile(r"mma\.sync\.[^ ]*\.e[45]m[23]\.")
_FP8_VERSION = "+ptx84"
# products that only one generation of chips has, which code for it says by its name
_OWN_PRODUCT = "wgmma."
_ARCH = re.compile(r"sm_\d+[af]?\Z")
_TRIPLE = "nvptx64-nvidia-cuda"
# what a target machine emits
TEXT, OBJECT = 0, 1


def emit_ptx(source: str, arch: str) -> bytes:
    """The PTX of a module, for a chip and those after it."""
    library = emitting_library()
    if _OWN_PRODUCT in source and arch[-1].isdecimal():
        arch += "a"
    machine = _machine(arch, _FP8_VERSION if _FP8_PRODUCT.search(source) else "")
    # no line break, so that the line numbers of LLVM's messages are those of the source
    layout = "" if "target datalayout" in source else f'target datalayout = "{machine.layout}" '
    with compiling():
        return library.compile(machine.pointer, (layout + source).encode())


def emitter_version() -> str:
    """What beside the source and the chip decides the PTX."""
    return f"llvm{'.'.join(map(str, llvm_binding().llvm_version_info))}-O{PASS_LEVEL}"


class _Machine:
    """A target machine, kept by the thread that made it."""

    def __init__(self, arch: str, version: str) -> None:
        if not _ARCH.match(arch):
            raise CompileError(f"PTX for {arch!r} was asked for; a chip is called sm_90, say")
        binding = llvm_binding()
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        try:
            target = binding.Target.from_triple(_TRIPLE)
        except RuntimeError as error:
            raise CompileError(
                f"llvmlite's LLVM has no NVPTX target ({error}); "
                "the wheels from PyPI have it: `pip install --force-reinstall llvmlite`"
            ) from None
        features = version or _PTX_VERSIONS.get(arch, "")
        self.handle = target.create_target_machine(cpu=arch, features=features, opt=3)
        self.pointer: int = ctypes.cast(self.handle._ptr, ctypes.c_void_p).value or 0
        self.layout = str(self.handle.target_data)


_machines = threading.local()


def _machine(arch: str, version: str = "") -> _Machine:
    found: dict[tuple[str, str], _Machine] = _machines.__dict__.setdefault("by_arch", {})
    if (arch, version) not in found:
        found[arch, version] = _Machine(arch, version)
    return found[arch, version]


# A thread has no vectors. Loops are unrolled where the program says so: LLVM would unroll others
# into a form that ptxas does not unroll further, and that has too few loads in flight.
_LEFT_OUT = (
    "PTOSetLoopUnrolling",
    "PTOSetLoopVectorization",
    "PTOSetSLPVectorization",
    "PTOSetLoopInterleaving",
)
_POINTER, _TEXT, _PLACE = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
# what is called in llvmlite's library: result and arguments
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ContextCreate": (_POINTER,),
    "ContextDispose": (None, _POINTER),
    "ParseAssembly": (_POINTER, _POINTER, _TEXT, _PLACE),
    "VerifyModule": (ctypes.c_int, _POINTER, _PLACE),
    "DisposeModule": (None, _POINTER),
    "TargetMachineEmitToMemory": (_POINTER, _POINTER, _POINTER, ctypes.c_int, _PLACE),
    "GetBufferStart": (_POINTER, _POINTER),
    "GetBufferSize": (ctypes.c_size_t, _POINTER),
    "DisposeMemoryBuffer": (None, _POINTER),
    "DisposeString": (None, _POINTER),
    "CreatePipelineTuningOptions": (_POINTER,),
    "DisposePipelineTuningOptions": (None, _POINTER),
    **dict.fromkeys(_LEFT_OUT, (None, _POINTER, ctypes.c_bool)),
    "CreatePassBuilder": (_POINTER, _POINTER, _POINTER),
    "DisposePassBuilder": (None, _POINTER),
    # levels of speed and of size; newer ones take the first only, and do not see the other
    "buildPerModuleDefaultPipeline": (_POINTER, _POINTER, ctypes.c_int, ctypes.c_int),
    "RunNewModulePassManager": (None, _POINTER, _POINTER, _POINTER),
    "DisposeNewModulePassManger": (None, _POINTER),
}


class EmittingLibrary:
    """llvmlite's library without its lock."""

    def __init__(self) -> None:
        library = ctypes.CDLL(importlib.import_module("llvmlite.binding.ffi").lib._name)
        self.call: dict[str, Any] = {}
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            self.call[name] = function

    def compile(self, machine: int, source: bytes, kind: int = TEXT) -> bytes:
        """Assembly (PTX, say) or an object file, or a CompileError that says what LLVM says."""
        call = self.call
        context = call["ContextCreate"]()
        message = ctypes.c_void_p()
        module = buffer = None
        try:
            module = call["ParseAssembly"](context, source, ctypes.byref(message))
            if not module or call["VerifyModule"](module, ctypes.byref(message)):
                raise self.refusal(message)
            self.run_passes(machine, module)
            emit = call["TargetMachineEmitToMemory"]
            buffer = emit(machine, module, kind, ctypes.byref(message))
            if not buffer:
                raise self.refusal(message)
            return ctypes.string_at(call["GetBufferStart"](buffer), call["GetBufferSize"](buffer))
        finally:
            if buffer:
                call["DisposeMemoryBuffer"](buffer)
            if module:
                call["DisposeModule"](module)
            call["ContextDispose"](context)
            if message:
                call["DisposeString"](message)

    def run_passes(self, machine: int, module: int) -> None:
        call = self.call
        options = call["CreatePipelineTuningOptions"]()
        for what in _LEFT_OUT:
            call[what](options, False)
        builder = call["CreatePassBuilder"](machine, options)
        passes = call["buildPerModuleDefaultPipeline"](builder, PASS_LEVEL, 0)
        call["RunNewModulePassManager"](passes, module, builder)
        call["DisposeNewModulePassManger"](passes)
        call["DisposePassBuilder"](builder)
        call["DisposePipelineTuningOptions"](options)

    def refusal(self, message: ctypes.c_void_p) -> CompileError:
        text = ctypes.string_at(message.value).decode() if message.value else "no reason is given"
        return CompileError(f"LLVM refuses the IR of a kernel: {text.strip()}\n{SOURCE_HINT}")


@functools.cache
def emitting_library() -> EmittingLibrary:
    llvm_binding()
    return EmittingLibrary()
