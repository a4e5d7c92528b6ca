"""What compiles or runs the text of the renderers, where it is installed; else tests are skipped.

NVRTC (package nvidia-cuda-nvrtc), OpenCL (pyopencl and a driver such as PoCL) and WebGPU (wgpu and
any driver, also one in software) are optional: nothing of weft needs them.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from test.optional import found, need, skip
from test.renderer.corpus import Case, launch_sizes
from weft.renderer.base import ProgramSpec, program_variables


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
@functools.cache
def _opencl() -> Any:
    """A queue on any device; None if there is none."""
    cl = found("pyopencl")
    if cl is None:
        return None
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except Exception:
        # the package is there but no driver is: it raises an error of its own
        return None
    return cl.CommandQueue(cl.Context(devices[:1])) if devices else None


def run_opencl(case: Case, spec: ProgramSpec) -> list[bytes]:
    """The contents of the buffers after a run on the first OpenCL device."""
    queue = _opencl()
    if queue is None:
        skip("pyopencl", "finds no device")
    cl = need("pyopencl")
    with warnings.catch_warnings():
        # the compiler's remarks, and the cache's
        warnings.simplefilter("ignore")
        kernel = cl.Kernel(cl.Program(queue.context, spec.src).build(), spec.name)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [
        cl.Buffer(queue.context, flags, hostbuf=np.frombuffer(contents, np.uint8).copy())
        for contents in case.before
    ]
    groups, threads = launch_sizes(spec, case.values)
    arguments = [buffers[param.arg.slot] for param in spec.params]
    arguments += [np.dtype(v.dtype.name).type(case.values[v.arg.name]) for v in _variables(spec)]
    kernel(queue, [g * t for g, t in zip(groups, threads, strict=True)], threads, *arguments)
    found = []
    for contents, buffer in zip(case.before, buffers, strict=True):
        target = np.empty(len(contents), np.uint8)
        cl.enqueue_copy(queue, target, buffer)
        found.append(target.tobytes())
    return found


def _variables(spec: ProgramSpec) -> Sequence[Any]:
    return program_variables(spec.uops)


# ------------------------------------------------------------ WebGPU
@functools.cache
def _webgpu() -> Any:
    """A device with the limits that every device has; None if there is none."""
    wgpu = found("wgpu")
    if wgpu is None:
        return None
    try:
        return wgpu.gpu.request_adapter_sync().request_device_sync()
    except Exception:
        # the package is there but no driver is: it raises an error of its own
        return None


def validate_wgsl(source: str) -> Any:
    """The module, or the validator's error."""
    device = _webgpu()
    if device is None:
        skip("wgpu", "finds no device with a driver")
    return device.create_shader_module(code=source)


def run_wgsl(case: Case, spec: ProgramSpec) -> list[bytes]:
    """The contents of the buffers after a run."""
    module = validate_wgsl(spec.src)
    device, wgpu = _webgpu(), need("wgpu")
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    contents = list(case.before)
    variables = [case.values[v.arg.name] for v in _variables(spec)]
    if variables:
        contents.append(np.array(variables, np.int32).tobytes())
    # buffers are a whole number of words
    buffers = [
        device.create_buffer_with_data(data=some + bytes(-len(some) % 4), usage=usage)
        for some in contents
    ]
    slots = [param.arg.slot for param in spec.params]
    slots += [len(case.before)] if variables else []
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": spec.name}
    )
    entries = [
        {"binding": slot, "resource": {"buffer": buffers[slot], "offset": 0}} for slot in slots
    ]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    step = encoder.begin_compute_pass()
    step.set_pipeline(pipeline)
    step.set_bind_group(0, group)
    step.dispatch_workgroups(*launch_sizes(spec, case.values)[0])
    step.end()
    device.queue.submit([encoder.finish()])
    return [
        bytes(device.queue.read_buffer(buffer))[: len(before)]
        for buffer, before in zip(buffers, case.before, strict=False)
    ]
