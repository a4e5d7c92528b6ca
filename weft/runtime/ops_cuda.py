"""CUDA: NVIDIA's GPUs, through the driver and nothing else.

In: programs of a renderer, buffers. Out: results in the GPU's memory. Opened by the registry, also
as CUDA:1, CUDA:2, ...: the GPUs in the driver's order. Its parts: the driver (`cuda_driver`), a
context with its stream and errors (`cuda_context`), memory and copies (`cuda_memory`), compilers
(`cuda_compile`), launches (`cuda_program`), graphs (`cuda_graph`).
Invariant: everything is submitted to one stream, in the order in which the host asks for it; the
host waits only where it reads memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from weft.contracts import BaseDevice, Compiler, Program, ProgramFacts
from weft.errors import ArgumentError, DeviceError
from weft.knobs import CUDA_CC
from weft.renderer.base import Target
from weft.renderer.cuda import CUDARenderer, cuda_target
from weft.renderer.nvptx import NVPTXRenderer
from weft.runtime.cuda_compile import LinkCompiler, NVRTCCompiler
from weft.runtime.cuda_context import Context
from weft.runtime.cuda_driver import Driver, open_driver
from weft.runtime.cuda_graph import CUDAGraph
from weft.runtime.cuda_memory import CUDAAllocator
from weft.runtime.cuda_program import CUDAProgram
from weft.runtime.launch_queue import LaunchQueue
from weft.runtime.nvptx import emit_ptx, emitter_version

# DLPack's kDLCUDA
_MEMORY_KIND = 2
# how other libraries name streams that have no handle: the default one, and that of each thread
_DEFAULT_STREAM, _THREAD_STREAM = 1, 2
_LEAST_CAPABILITY = (7, 0)
# the attribute of an address that says in which memory it is, and the answer if in none
_MEMORY_TYPE, _INVALID_VALUE = 2, 1

# the renderer and the compiler for a target
Toolchain = tuple[Callable[[], Any], Compiler]


class CUDADevice(BaseDevice):
    """A GPU. `driver` and `toolchain` stand in for the machine's own in tests."""

    has_address = True

    def __init__(
        self,
        name: str,
        driver: Driver | None = None,
        toolchain: Callable[[Context, Target, str], Toolchain] | None = None,
    ) -> None:
        unit = name.partition(":")[2] or "0"
        if not unit.isdecimal():
            raise DeviceError(f"{name} names no GPU: write CUDA or CUDA:1")
        self.context = Context(driver or open_driver(), name, int(unit))
        major, minor = self.context.capability
        if (major, minor) < _LEAST_CAPABILITY:
            raise DeviceError(
                f"{name} is a {self.context.model} of compute capability {major}.{minor}; at least "
                f"{'.'.join(map(str, _LEAST_CAPABILITY))} is needed"
            )
        self.memory_kind = (_MEMORY_KIND, int(unit))
        choose = toolchain or choose_toolchain
        renderer, compiler = choose(self.context, describe_target(self.context), self.arch)
        allocator = CUDAAllocator(self.context)
        super().__init__(name, allocator, compiler, renderer)
        self.queue = LaunchQueue(self.context)
        # one object for a device: neighbours in a captured run are of one graph if it is the same
        self.graph: Any = functools.partial(CUDAGraph, allocator)

    @functools.cached_property
    def arch(self) -> str:
        """The compute capability, as compilers name it."""
        major, minor = self.context.capability
        return f"sm_{major}{minor}"

    @property
    def description(self) -> str:
        version = self.context.driver.version
        _, total = self.context.memory()
        return (
            f"{self.arch} {self.context.model}, {self.context.processors} processors, "
            f"{total / 2**30:.0f} GiB, driver of CUDA {version // 1000}.{version % 1000 // 10}"
        )

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        return CUDAProgram(self.context, facts, lib)

    # ------------------------------------------------------------ memory shared with others
    def check_address(self, address: int) -> None:
        """The driver knows all memory that its GPUs reach; it has never heard of other memory."""
        self.context.use()
        found = ctypes.c_uint32()
        driver = self.context.driver
        code = driver.cuPointerGetAttribute(ctypes.byref(found), _MEMORY_TYPE, address)
        if code == _INVALID_VALUE:
            raise DeviceError(
                f"{address:#x} is no address of memory that {self.name} reaches; memory of the "
                'host is taken with device="CPU", and .to() copies it'
            )
        driver.check(code, "cuPointerGetAttribute")

    @property
    def stream(self) -> int | None:
        return self.context.stream.value

    def let_wait(self, stream: Any) -> None:
        """`stream` as DLPack has it: None or 1 is the default one, 2 the thread's, -1 no waiting.

        The default one waits for ours by itself.
        """
        if stream is None or stream in (-1, _DEFAULT_STREAM, self.stream):
            return
        self.context.use()
        self.context.call("cuStreamWaitEvent", int(stream), self.context.mark(), 0)

    def problems(self) -> list[tuple[str, str]]:
        """What keeps this GPU from being at its best."""
        found = []
        free, total = self.context.memory()
        if free < total // 4:
            found.append(
                (
                    f"only {free >> 20} of {total >> 20} MiB of {self.name} are free",
                    "see with nvidia-smi which programs hold the rest",
                )
            )
        if "MIG" in self.context.model:
            found.append(
                (
                    f"{self.name} is a part of a GPU ({self.context.model})",
                    "its memory, cores and bandwidth are a share of the whole",
                )
            )
        return found


def describe_target(context: Context) -> Target:
    """The GPU in codegen's terms."""
    return cuda_target(
        *context.capability,
        cores=context.processors,
        l2=context.cache_bytes,
        shared_bytes=context.shared_bytes,
        most_shared_bytes=context.most_shared_bytes,
    )


def choose_toolchain(context: Context, target: Target, arch: str) -> Toolchain:
    """What prints and compiles kernels, as `CUDA_CC` says."""
    chosen = CUDA_CC.value
    if chosen == "llvm":
        compiler = LinkCompiler(context, arch, emit_ptx, emitter_version())
        return functools.partial(NVPTXRenderer, target), compiler
    if chosen == "nvrtc":
        return functools.partial(CUDARenderer, target), NVRTCCompiler(arch)
    raise ArgumentError(f"CUDA_CC={chosen}, but it takes llvm or nvrtc")
