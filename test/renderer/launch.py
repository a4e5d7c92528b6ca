"""What compiles or runs the text of the renderers, where it is installed; else tests are skipped.

NVRTC (package nvidia-cuda-nvrtc), a driver of OpenCL such as PoCL and WebGPU (wgpu and any driver,
also one in software) are optional: nothing of weft needs them.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from test.optional import found, need_device, skip
from test.renderer.corpus import Case
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.programs import facts_of
from weft.renderer.base import ProgramSpec


# ------------------------------------------------------------ CUDA C -> machine code
@functools.cache
def _nvrtc() -> ctypes.CDLL | None:
    nvidia = found("nvidia")
    if nvidia is None:
        return None
    folders = [Path(path) for path in nvidia.__path__]
    files = [path for folder in folders for path in sorted(folder.rglob("libnvrtc.so*"))]
    return ctypes.CDLL(str(files[0])) if files else None


def compile_cuda(source: str, arch: str = "sm_90") -> bytes:
    """The machine code, or an AssertionError with the compiler's messages."""
    library = _nvrtc()
    if library is None:
        skip("nvidia", "brings no NVRTC")
    program = ctypes.c_void_p()
    size = ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
    # products that only one generation has need its own code
    arch += "a" if "wgmma." in source else ""
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={arch}".encode())
    failed = library.nvrtcCompileProgram(program, 1, options)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert not failed, f"{log.value.decode()}\n{source}"
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, code)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


# ------------------------------------------------------------ OpenCL
def run_opencl(case: Case, spec: ProgramSpec) -> list[bytes]:
    """The contents of the buffers after a run on the first OpenCL device."""
    device = need_device("CL")
    program = device.load(facts_of(spec), device.compiler.compile(spec.src))
    buffers = [Buffer("CL", len(some), dtypes.uint8).copyin(some) for some in case.before]
    # one that no op reads is not taken
    taken = buffers[: spec.buffer_count]
    program(taken, [case.values[v.arg.name] for v in spec.variables])
    return [bytes(buffer.as_memoryview()) for buffer in buffers]


# ------------------------------------------------------------ WebGPU
def validate_wgsl(source: str) -> None:
    """Raises the validator's error."""
    need_device("WEBGPU").compiler.compile(source)


def run_wgsl(case: Case, spec: ProgramSpec) -> list[bytes]:
    """The contents of the buffers after a run."""
    device = need_device("WEBGPU")
    program = device.load(facts_of(spec), device.compiler.compile(spec.src))
    buffers = [Buffer("WEBGPU", len(some), dtypes.uint8).copyin(some) for some in case.before]
    program(buffers[: spec.buffer_count], [case.values[v.arg.name] for v in spec.variables])
    return [bytes(buffer.as_memoryview()) for buffer in buffers]
