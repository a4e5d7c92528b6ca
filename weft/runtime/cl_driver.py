"""OpenCL's library, by ctypes: its functions with their types, and its errors in words.

In: calls by name. Out: results, or a `DeviceError` (a `MemoryError` where memory ran out) that says
what the driver said and what to do. First of the files of the CL device.
Invariant: every result code is looked at. Nothing is loaded before a device is opened; the library
is the loader that every vendor's driver comes with, and only functions of OpenCL 1.2 are needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import sys
from typing import Any

from weft.errors import DeviceError

Handle = ctypes.c_void_p
Int, UInt, Bits, Size = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
Text = ctypes.c_char_p

ALL_DEVICES = 0xFFFFFFFF
_NO_DEVICE, _NO_PLATFORM = -1, -1001
_OUT_OF_MEMORY = frozenset({-4, -5, -6, -61})

# what a result code is called, and what it means to whoever reads it
_NAMES = {
    -1: "DEVICE_NOT_FOUND",
    -2: "DEVICE_NOT_AVAILABLE",
    -3: "COMPILER_NOT_AVAILABLE",
    -4: "MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "OUT_OF_RESOURCES",
    -6: "OUT_OF_HOST_MEMORY",
    -9: "IMAGE_FORMAT_MISMATCH",
    -11: "BUILD_PROGRAM_FAILURE",
    -13: "MISALIGNED_SUB_BUFFER_OFFSET",
    -14: "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -30: "INVALID_VALUE",
    -33: "INVALID_DEVICE",
    -34: "INVALID_CONTEXT",
    -36: "INVALID_COMMAND_QUEUE",
    -38: "INVALID_MEM_OBJECT",
    -42: "INVALID_BINARY",
    -43: "INVALID_BUILD_OPTIONS",
    -44: "INVALID_PROGRAM",
    -45: "INVALID_PROGRAM_EXECUTABLE",
    -46: "INVALID_KERNEL_NAME",
    -48: "INVALID_KERNEL",
    -49: "INVALID_ARG_INDEX",
    -50: "INVALID_ARG_VALUE",
    -51: "INVALID_ARG_SIZE",
    -52: "INVALID_KERNEL_ARGS",
    -54: "INVALID_WORK_GROUP_SIZE",
    -55: "INVALID_WORK_ITEM_SIZE",
    -61: "INVALID_BUFFER_SIZE",
    -63: "INVALID_GLOBAL_WORK_SIZE",
    -1001: "PLATFORM_NOT_FOUND_KHR",
}
_ADVICE = {
    -1: "the driver shows no device",
    -3: "the driver has no compiler of OpenCL C",
    -5: "it needs more registers or memory than there is, or the watchdog ended it",
    -36: "the device is lost: an earlier kernel failed or ran too long",
    -1001: "no vendor's driver is installed",
}
INSTALL = (
    "install the driver of your GPU, or a CPU's: apt-get install pocl-opencl-icd, or "
    "pip install intel-opencl-rt"
)

# The functions, the types of their arguments, and what they return: a result code, or a handle
# after which the last argument is where the code goes.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "clGetPlatformIDs": (Int, (UInt, Handle, Handle)),
    "clGetPlatformInfo": (Int, (Handle, UInt, Size, Handle, Handle)),
    "clGetDeviceIDs": (Int, (Handle, Bits, UInt, Handle, Handle)),
    "clGetDeviceInfo": (Int, (Handle, UInt, Size, Handle, Handle)),
    "clCreateContext": (Handle, (Handle, UInt, Handle, Handle, Handle, Handle)),
    "clCreateCommandQueue": (Handle, (Handle, Handle, Bits, Handle)),
    "clCreateBuffer": (Handle, (Handle, Bits, Size, Handle, Handle)),
    "clReleaseMemObject": (Int, (Handle,)),
    "clEnqueueReadBuffer": (
        Int,
        (Handle, Handle, UInt, Size, Size, Handle, UInt, Handle, Handle),
    ),
    "clEnqueueWriteBuffer": (
        Int,
        (Handle, Handle, UInt, Size, Size, Handle, UInt, Handle, Handle),
    ),
    "clEnqueueCopyBuffer": (
        Int,
        (Handle, Handle, Handle, Size, Size, Size, UInt, Handle, Handle),
    ),
    "clCreateProgramWithSource": (Handle, (Handle, UInt, Handle, Handle, Handle)),
    "clCreateProgramWithBinary": (
        Handle,
        (Handle, UInt, Handle, Handle, Handle, Handle, Handle),
    ),
    "clBuildProgram": (Int, (Handle, UInt, Handle, Text, Handle, Handle)),
    "clGetProgramInfo": (Int, (Handle, UInt, Size, Handle, Handle)),
    "clGetProgramBuildInfo": (Int, (Handle, Handle, UInt, Size, Handle, Handle)),
    "clReleaseProgram": (Int, (Handle,)),
    "clCreateKernel": (Handle, (Handle, Text, Handle)),
    "clReleaseKernel": (Int, (Handle,)),
    "clSetKernelArg": (Int, (Handle, UInt, Size, Handle)),
    "clGetKernelWorkGroupInfo": (Int, (Handle, Handle, UInt, Size, Handle, Handle)),
    "clEnqueueNDRangeKernel": (
        Int,
        (Handle, Handle, UInt, Handle, Handle, Handle, UInt, Handle, Handle),
    ),
    "clFlush": (Int, (Handle,)),
    "clFinish": (Int, (Handle,)),
    "clWaitForEvents": (Int, (UInt, Handle)),
    "clGetEventProfilingInfo": (Int, (Handle, UInt, Size, Handle, Handle)),
    "clReleaseEvent": (Int, (Handle,)),
}


class DriverError(DeviceError):
    """A call that the driver refused; `args` are the message and the driver's code."""

    def __str__(self) -> str:
        return str(self.args[0])


class Driver:
    """The functions of a library. `library` has them as attributes, as a `ctypes.CDLL` does."""

    def __init__(self, library: Any) -> None:
        for name, (result, types) in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise DeviceError(f"the OpenCL library has no {name}; {INSTALL}")
            if isinstance(library, ctypes.CDLL):
                function.argtypes, function.restype = types, result
            setattr(self, name, function)

    # how mypy sees the functions that `__init__` puts there
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"OpenCL has no function {name} that weft knows")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a code."""
        self.check(getattr(self, name)(*arguments), name)

    def create(self, name: str, *arguments: Any) -> Handle:
        """Calls a function that returns a handle and takes a place for its code."""
        code = Int()
        handle = getattr(self, name)(*arguments, ctypes.byref(code))
        self.check(code.value, name)
        return Handle(handle)

    def check(self, code: int, what: str) -> None:
        """Raises what a result code stands for."""
        if code == 0:
            return
        if code in _OUT_OF_MEMORY:
            raise MemoryError(f"{what}: {describe(code)}")
        raise DriverError(f"{what}: {describe(code)}", code)

    def info(self, name: str, *arguments: Any) -> bytes:
        """What a function of information knows; `arguments` end with the number of the fact."""
        size = Size()
        self.call(name, *arguments, 0, None, ctypes.byref(size))
        found = ctypes.create_string_buffer(max(1, size.value))
        self.call(name, *arguments, size.value, found, None)
        return found.raw[: size.value]

    def devices(self) -> list[tuple[Handle, Handle]]:
        """Platform and device, of all vendors, in the order of the library."""
        count = UInt()
        code = self.clGetPlatformIDs(0, None, ctypes.byref(count))
        if code == _NO_PLATFORM or (code == 0 and count.value == 0):
            return []
        self.check(code, "clGetPlatformIDs")
        platforms = (Handle * count.value)()
        self.call("clGetPlatformIDs", count.value, platforms, None)
        found = []
        for platform in platforms:
            code = self.clGetDeviceIDs(platform, ALL_DEVICES, 0, None, ctypes.byref(count))
            if code == _NO_DEVICE or count.value == 0:
                continue
            self.check(code, "clGetDeviceIDs")
            devices = (Handle * count.value)()
            self.call("clGetDeviceIDs", platform, ALL_DEVICES, count.value, devices, None)
            found += [(Handle(platform), Handle(device)) for device in devices]
        return found


def describe(code: int) -> str:
    """A result code in words."""
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    return f"error {code} ({_NAMES.get(code, 'unknown')}){advice}"


def _libraries() -> list[str]:
    if sys.platform == "win32":
        return ["OpenCL.dll"]
    if sys.platform == "darwin":
        return ["/System/Library/Frameworks/OpenCL.framework/OpenCL"]
    found = ctypes.util.find_library("OpenCL")
    return ["libOpenCL.so.1", "libOpenCL.so", *([found] if found else [])]


@functools.cache
def open_driver() -> Driver:
    """The machine's library; a `DeviceError` in one sentence where there is none.

    Asked once: what keeps a library from loading does not go away while a process runs.
    """
    reasons = []
    for name in _libraries():
        try:
            return Driver(ctypes.CDLL(name))
        except OSError as error:
            reasons.append(str(error))
    raise DeviceError(f"no OpenCL: {reasons[0]}; {INSTALL}")
