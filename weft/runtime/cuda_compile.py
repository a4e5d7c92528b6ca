"""From a renderer's text to machine code of a GPU.

In: CUDA C, or what a renderer of PTX prints. Out: cubins, which are kept on disk under the kernel's
hash and the GPU's compute capability. CUDA C is compiled by NVRTC, which is a package of its own;
PTX by the linker inside the driver, so that nothing else is needed.
Invariant: compilers keep no state between programs but the libraries that they have loaded, so many
threads may use one.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from weft.contracts import Compiler
from weft.errors import CompileError, DeviceError
from weft.runtime.cuda_context import Context
from weft.runtime.cuda_driver import Pointer, Size

# in programs with products that only one generation of chips has, which code for it says by name
OWN_PRODUCT = "wgmma."
# NVRTC and the linker work outside Python's lock, so threads share the cores.
_THREADS = min(16, os.cpu_count() or 1)
_LOG_BYTES = 8 << 10
# kinds of input and options of the driver's linker
_INPUT_PTX = 1
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6


class ThreadedCompiler(Compiler):
    """A compiler whose programs are compiled in several threads."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def compile_all(self, sources: Iterable[str]) -> list[bytes]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="weft-compile")
        waiting: list[Future[bytes]] = [self._threads.submit(self.compile, s) for s in sources]
        return [found.result() for found in waiting]


class NVRTCCompiler(ThreadedCompiler):
    """CUDA C by NVIDIA's run-time compiler."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.arch = arch

    @property
    def cachekey(self) -> str:
        library = open_nvrtc()
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"nvrtc-{major.value}.{minor.value}-{self.arch}"

    def compile(self, src: str) -> bytes:
        library = open_nvrtc()
        program = Pointer()
        library.nvrtcCreateProgram(ctypes.byref(program), src.encode(), b"kernel.cu", 0, None, None)
        own = "a" if OWN_PRODUCT in src else ""
        options = [f"--gpu-architecture={self.arch}{own}".encode(), b"-minimal"]
        given = (ctypes.c_char_p * len(options))(*options)
        try:
            if library.nvrtcCompileProgram(program, len(options), given):
                log = _part(library, program, "ProgramLog").decode(errors="replace").rstrip("\0\n")
                raise CompileError(f"NVRTC for {self.arch}: {log}\n{src}")
            return _part(library, program, "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))


def _part(library: Any, program: Pointer, what: str) -> bytes:
    size = Size()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    found = ctypes.create_string_buffer(max(1, size.value))
    getattr(library, f"nvrtcGet{what}")(program, found)
    return found.raw[: size.value]


@functools.cache
def open_nvrtc() -> Any:
    """NVRTC: from its package, from a toolkit, or as the system finds it."""
    names: list[str] = []
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        names += sorted(glob.glob(f"{folder}/*/lib/libnvrtc.so.*"), reverse=True)
        names += sorted(glob.glob(f"{folder}/*/bin/**/nvrtc64_*.dll", recursive=True), reverse=True)
    names += ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]
    names += sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"), reverse=True)
    for name in names:
        if "builtins" in name or ".alt." in name:
            continue
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(
        "CUDA_CC=nvrtc compiles with NVRTC, which is not here: pip install nvidia-cuda-nvrtc, or "
        "unset CUDA_CC to compile with the driver alone"
    )


class LinkCompiler(ThreadedCompiler):
    """PTX by the driver's own compiler; `emit`, in some `version`, makes it of a program's text."""

    def __init__(
        self, context: Context, arch: str, emit: Callable[[str, str], bytes], version: str
    ) -> None:
        super().__init__()
        self._context = context
        self._emit = emit
        self._version = version
        self.arch = arch

    @property
    def cachekey(self) -> str:
        return f"link-{self._context.driver.version}-{self._version}-{self.arch}"

    def compile(self, src: str) -> bytes:
        return self.link(self._emit(src, self.arch), src)

    def link(self, ptx: bytes, src: str) -> bytes:
        """The machine code of PTX."""
        context, driver = self._context, self._context.driver
        context.use()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        keys = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        state, code, size = Pointer(), Pointer(), Size()
        context.call("cuLinkCreate_v2", 2, keys, values, ctypes.byref(state))
        try:
            text = ptx if ptx.endswith(b"\0") else ptx + b"\0"
            failed = driver.cuLinkAddData_v2(
                state, _INPUT_PTX, text, len(text), b"kernel", 0, None, None
            )
            if not failed:
                found = (ctypes.byref(code), ctypes.byref(size))
                failed = driver.cuLinkComplete(state, *found)
            if failed:
                raise CompileError(
                    f"the driver does not compile PTX for {self.arch}: {driver.describe(failed)}: "
                    f"{log.value.decode(errors='replace')}\n{src}"
                )
            return ctypes.string_at(code, size.value)
        finally:
            driver.cuLinkDestroy(state)

    def assembly(self, src: str) -> str:
        """PTX: machine code has no text without a disassembler."""
        return self._emit(src, self.arch).rstrip(b"\0").decode(errors="replace")
