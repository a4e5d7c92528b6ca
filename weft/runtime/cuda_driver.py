"""NVIDIA's driver, by ctypes: its functions with their types, and its errors in words.

In: calls by name. Out: results, or a `DeviceError` (a `MemoryError` where memory ran out) that says
what the driver said and what to do. First of the files of the CUDA device.
Invariant: every result code is looked at. Nothing is loaded before a device is opened, and nothing
but the driver is needed.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from weft.errors import DeviceError

Pointer = ctypes.c_void_p
Address = ctypes.c_uint64
U32, U64, Size, Int = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int

OUT_OF_MEMORY = 2
NOT_READY = 600
# After these the context is lost: every later call gives the same error.
STICKY = frozenset({214, 219, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720})
# CUDA 11.4, the first whose functions below all exist
LEAST_VERSION = 11040

# What a result of opening means to whoever reads it.
_ADVICE = {
    3: "the driver is shutting down",
    35: "the driver is older than this program needs; install a newer one",
    46: "the GPU is in use by another process in exclusive mode; ask with nvidia-smi",
    100: "the driver finds no GPU (are CUDA_VISIBLE_DEVICES and the container's devices as meant?)",
    101: "there is no GPU of that number",
    201: "the GPU's context is broken; restart the process",
    304: "the system refuses; is /dev/nvidia* there, and may this user read and write it?",
    802: "the system is not ready yet; is nvidia-fabricmanager running?",
    803: "the driver's library and kernel module are of different versions; restart the machine",
    804: "this GPU lacks the compatibility mode that was asked for; install the full driver",
    999: "the driver failed without a reason; is its kernel module loaded (nvidia-smi)?",
}

# The functions and the types of their arguments; each returns a result code.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (U32,),
    "cuDriverGetVersion": (Pointer,),
    "cuGetErrorName": (Int, Pointer),
    "cuGetErrorString": (Int, Pointer),
    "cuDeviceGetCount": (Pointer,),
    "cuDeviceGet": (Pointer, Int),
    "cuDeviceGetName": (Pointer, Int, Int),
    "cuDeviceGetAttribute": (Pointer, Int, Int),
    "cuDeviceTotalMem_v2": (Pointer, Int),
    "cuDeviceCanAccessPeer": (Pointer, Int, Int),
    "cuDevicePrimaryCtxRetain": (Pointer, Int),
    "cuCtxSetCurrent": (Pointer,),
    "cuCtxEnablePeerAccess": (Pointer, U32),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (Pointer, U32),
    "cuStreamSynchronize": (Pointer,),
    "cuStreamQuery": (Pointer,),
    "cuStreamWaitEvent": (Pointer, Pointer, U32),
    "cuEventCreate": (Pointer, U32),
    "cuEventRecord": (Pointer, Pointer),
    "cuEventQuery": (Pointer,),
    "cuEventSynchronize": (Pointer,),
    "cuEventElapsedTime": (Pointer, Pointer, Pointer),
    "cuEventDestroy_v2": (Pointer,),
    "cuMemGetInfo_v2": (Pointer, Pointer),
    "cuMemAlloc_v2": (Pointer, Size),
    "cuMemFree_v2": (Address,),
    "cuMemHostAlloc": (Pointer, Size, U32),
    "cuPointerGetAttribute": (Pointer, Int, Address),
    "cuMemFreeHost": (Pointer,),
    "cuMemcpyHtoDAsync_v2": (Address, Pointer, Size, Pointer),
    "cuMemcpyDtoHAsync_v2": (Pointer, Address, Size, Pointer),
    "cuMemcpyDtoDAsync_v2": (Address, Address, Size, Pointer),
    "cuMemcpyPeerAsync": (Address, Pointer, Address, Pointer, Size, Pointer),
    "cuModuleLoadData": (Pointer, Pointer),
    "cuModuleUnload": (Pointer,),
    "cuModuleGetFunction": (Pointer, Pointer, ctypes.c_char_p),
    "cuFuncGetAttribute": (Pointer, Int, Pointer),
    "cuFuncSetAttribute": (Pointer, Int, Int),
    "cuLaunchKernel": (Pointer, U32, U32, U32, U32, U32, U32, U32, Pointer, Pointer, Pointer),
    "cuLinkCreate_v2": (U32, Pointer, Pointer, Pointer),
    "cuLinkAddData_v2": (Pointer, Int, Pointer, Size, ctypes.c_char_p, U32, Pointer, Pointer),
    "cuLinkComplete": (Pointer, Pointer, Pointer),
    "cuLinkDestroy": (Pointer,),
    "cuGraphCreate": (Pointer, U32),
    "cuGraphAddKernelNode_v2": (Pointer, Pointer, Pointer, Size, Pointer),
    "cuGraphExecKernelNodeSetParams_v2": (Pointer, Pointer, Pointer),
    "cuGraphInstantiateWithFlags": (Pointer, Pointer, U64),
    "cuGraphUpload": (Pointer, Pointer),
    "cuGraphLaunch": (Pointer, Pointer),
    "cuGraphExecDestroy": (Pointer,),
    "cuGraphDestroy": (Pointer,),
}
# Since CUDA 12 the node of a kernel has one more function; older drivers have those without _v2.
_OLDER = {
    "cuGraphAddKernelNode_v2": "cuGraphAddKernelNode",
    "cuGraphExecKernelNodeSetParams_v2": "cuGraphExecKernelNodeSetParams",
}


class DriverError(DeviceError):
    """A call that the driver refused; `args` are the message and the driver's code."""

    def __str__(self) -> str:
        return str(self.args[0])


class Driver:
    """The functions of a library. `library` has them as attributes, as a `ctypes.CDLL` does."""

    def __init__(self, library: Any) -> None:
        for name, types in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None and name in _OLDER:
                function = getattr(library, _OLDER[name], None)
            if function is None:
                raise DeviceError(
                    f"the NVIDIA driver has no {name}: it is older than CUDA "
                    f"{LEAST_VERSION // 1000}.{LEAST_VERSION % 1000 // 10}; install a newer one"
                )
            if isinstance(library, ctypes.CDLL):
                function.argtypes, function.restype = types, Int
            setattr(self, name, function)
        self.check(self.cuInit(0), "cuInit")
        if self.version < LEAST_VERSION:
            raise DeviceError(
                f"the NVIDIA driver is for CUDA {self.version // 1000}.{self.version % 1000 // 10},"
                f" at least {LEAST_VERSION // 1000}.{LEAST_VERSION % 1000 // 10} is needed; install"
                " a newer one"
            )

    # how mypy sees the functions that `__init__` puts there
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the driver has no function {name} that weft knows")

    @functools.cached_property
    def version(self) -> int:
        """1000 * major + 10 * minor of the newest CUDA that the driver knows."""
        found = Int()
        self.check(self.cuDriverGetVersion(ctypes.byref(found)), "cuDriverGetVersion")
        return found.value

    def device_count(self) -> int:
        """How many GPUs there are."""
        found = Int()
        self.check(self.cuDeviceGetCount(ctypes.byref(found)), "cuDeviceGetCount")
        return found.value

    def check(self, code: int, what: str) -> None:
        """Raises what a result code stands for."""
        if code == 0:
            return
        if code == OUT_OF_MEMORY:
            raise MemoryError(f"{what}: {self.describe(code)}")
        raise DriverError(f"{what}: {self.describe(code)}", code)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function by name."""
        self.check(getattr(self, name)(*arguments), name)

    def describe(self, code: int) -> str:
        """A result code in words."""
        parts = []
        for function in (self.cuGetErrorName, self.cuGetErrorString):
            text = ctypes.c_char_p()
            if function(code, ctypes.byref(text)) == 0 and text.value:
                parts.append(text.value.decode(errors="replace"))
        found = ", ".join(parts) or "unknown"
        advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
        return f"error {code} ({found}){advice}"


_LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


@functools.cache
def open_driver() -> Driver:
    """The machine's driver; a `DeviceError` in one sentence where there is none, or a broken one.

    Asked once: what keeps a driver from loading does not go away while a process runs.
    """
    reasons = []
    for name in _LIBRARIES:
        try:
            return Driver(ctypes.CDLL(name))
        except OSError as error:
            reasons.append(str(error))
    raise DeviceError(
        f"no NVIDIA driver: {reasons[0]}; install the driver (nothing else is needed), and in a "
        "container pass the GPU through"
    )
