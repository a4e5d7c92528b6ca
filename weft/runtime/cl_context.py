"""One OpenCL device: what it says of itself, the queue that all work goes to, and its errors.

In: the number of a device. Out: handles for the library's calls, the device as a `Target`, errors
that name kernels and the user's lines. Between the library and the rest of the CL device.
Invariant: all work goes to one queue in order, so what is submitted later sees what came before; a
call happens in the process that opened the device.
"""

from __future__ import annotations

import functools
import os
import struct
import threading
import weakref
from collections import deque
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from weft.contracts import Origin
from weft.errors import DeviceError
from weft.machine import Target
from weft.renderer.opencl import OPENCL, OPENCL_CPU
from weft.runtime.cl_driver import INSTALL, Driver, DriverError, Handle, describe

# facts of a device, by the library's numbers
_TYPE, _UNITS, _GROUP_THREADS, _ITEM_SIZES = 0x1000, 0x1002, 0x1004, 0x1005
_ALLOC_BYTES, _PARAMETER_BYTES, _FLOAT_CONFIG = 0x1010, 0x1017, 0x101B
_LINE_BYTES, _CACHE_BYTES, _MEMORY_BYTES = 0x101D, 0x101E, 0x101F
_LOCAL_TYPE, _LOCAL_BYTES, _LITTLE_ENDIAN, _HAS_COMPILER = 0x1022, 0x1023, 0x1026, 0x1028
_NAME, _VENDOR, _DRIVER_VERSION, _VERSION, _EXTENSIONS = 0x102B, 0x102C, 0x102D, 0x102F, 0x1030
_DOUBLE_CONFIG, _NATIVE_FLOATS = 0x1032, 0x103A
_PLATFORM_NAME, _PLATFORM_VERSION = 0x0902, 0x0901
# how wide a group runs in step: OpenCL 3's own fact, NVIDIA's, AMD's
_GROUP_MULTIPLE, _WARP_SIZE, _WAVEFRONT = 0x1067, 0x4003, 0x4043
_KIND_CPU = 2
_LOCAL_IS_MEMORY = 2
_HAS_FMA, _ROUNDS_DIVISIONS = 1 << 5, 1 << 7
_PROFILING = 2
# a pointer and the element that it starts at, for each buffer of a kernel
_BUFFER_ARGUMENT = 16
# how many launches an error can name
_NAMED = 8

_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


class Context:
    """A device that is open. `number` counts the devices of all vendors."""

    def __init__(self, driver: Driver, name: str, number: int) -> None:
        self.driver = driver
        self.name = name
        found = driver.devices()
        if not found:
            raise DeviceError(f"{name}: OpenCL is here, but no driver shows a device; {INSTALL}")
        if number >= len(found):
            raise DeviceError(
                f"{name}: there {'is 1 device' if len(found) == 1 else f'are {len(found)} devices'}"
                f" of OpenCL, so the last one is CL:{len(found) - 1}"
            )
        self.platform, self.device = found[number]
        if not self.number(_LITTLE_ENDIAN, 1) or not self.number(_HAS_COMPILER, 1):
            raise DeviceError(
                f"{name} is a {self.model}, which is big-endian or has no compiler of OpenCL C"
            )
        devices = (Handle * 1)(self.device)
        self.handle = driver.create("clCreateContext", None, 1, devices, None, None)
        self.queue = driver.create("clCreateCommandQueue", self.handle, self.device, 0)
        self._timed: Handle | None = None
        self._is_forked = False
        self._lock = threading.RLock()
        self.submitted = 0
        self.completed = 0
        self._recent: deque[tuple[str, Origin | None]] = deque(maxlen=64)
        _contexts.add(self)

    # ------------------------------------------------------------ facts
    def fact(self, number: int) -> bytes:
        """What the device says, as bytes; b"" where it does not know the question."""
        try:
            return self.driver.info("clGetDeviceInfo", self.device, number)
        except DriverError:
            return b""

    def number(self, number: int, default: int = 0) -> int:
        """A fact that is a number of any width."""
        found = self.fact(number)
        return int.from_bytes(found, "little") if found else default

    def text(self, number: int) -> str:
        """A fact that is a text."""
        return self.fact(number).rstrip(b"\0").decode(errors="replace").strip()

    def _platform_text(self, number: int) -> str:
        found = self.driver.info("clGetPlatformInfo", self.platform, number)
        return found.rstrip(b"\0").decode(errors="replace").strip()

    @property
    def model(self) -> str:
        """The device's name."""
        return self.text(_NAME) or "device without a name"

    @property
    def identity(self) -> str:
        """All that decides what the compiler makes of a source."""
        parts = [self._platform_text(_PLATFORM_NAME), self._platform_text(_PLATFORM_VERSION)]
        parts += [self.text(n) for n in (_NAME, _VENDOR, _DRIVER_VERSION, _VERSION)]
        return "; ".join(parts)

    @property
    def description(self) -> str:
        """The device in a few words."""
        return (
            f"{self.model} of {self._platform_text(_PLATFORM_NAME)}, {self.text(_VERSION)}, "
            f"{self.units} units, {self.number(_MEMORY_BYTES) / 2**30:.0f} GiB"
        )

    @property
    def extensions(self) -> frozenset[str]:
        """What the device has beyond the standard."""
        return frozenset(self.text(_EXTENSIONS).split())

    @functools.cached_property
    def units(self) -> int:
        """Cores that run groups at the same time."""
        return max(1, self.number(_UNITS, 1))

    @property
    def most_bytes(self) -> int:
        """The largest memory that can be had in one piece."""
        return self.number(_ALLOC_BYTES, 1 << 62)

    @property
    def memory_bytes(self) -> int:
        """All memory of the device."""
        return self.number(_MEMORY_BYTES, 1 << 62)

    @property
    def rounds_divisions(self) -> bool:
        """Whether quotients and roots of float32 can be rounded correctly."""
        return bool(self.number(_FLOAT_CONFIG) & _ROUNDS_DIVISIONS)

    def target(self) -> Target:
        """The device in codegen's terms.

        Where the memory of a group is ordinary memory, as on CPUs, groups only cost: kernels are
        then loops over vectors, and a group is one thread that runs a part of the outermost.
        """
        is_cpu = bool(self.number(_TYPE) & _KIND_CPU)
        no_local = self.number(_LOCAL_TYPE, _LOCAL_IS_MEMORY) == _LOCAL_IS_MEMORY
        features = []
        if self.number(_DOUBLE_CONFIG) or "cl_khr_fp64" in self.extensions:
            features.append("fp64")
        if "cl_khr_fp16" in self.extensions:
            features.append("fp16")
        base = replace(
            OPENCL_CPU if is_cpu or no_local else OPENCL,
            name=f"opencl {self.model}",
            cores=self.units,
            has_fma=bool(self.number(_FLOAT_CONFIG) & _HAS_FMA),
            line_bytes=self.number(_LINE_BYTES) or 64,
            # a kilobyte is what every device takes; some stays for variables
            max_buffers=min(255, (self.number(_PARAMETER_BYTES, 1024) - 256) // _BUFFER_ARGUMENT),
            features=tuple(sorted(features)),
        )
        if not base.has_local:
            # vectors of 16 lanes are the widest of the language, also those of bytes
            lanes = min(16, max(4, self.number(_NATIVE_FLOATS, 4)))
            return replace(base, vector_bytes=4 * lanes, has_half_conversion="fp16" in features)
        sizes = self.fact(_ITEM_SIZES)
        limits = struct.unpack(f"<{len(sizes) // 8}Q", sizes)[:3]
        warp = next(
            (n for n in map(self.number, (_WARP_SIZE, _WAVEFRONT, _GROUP_MULTIPLE)) if n), 32
        )
        return replace(
            base,
            l2=self.number(_CACHE_BYTES) or base.l2,
            group_threads=min(1024, self.number(_GROUP_THREADS, 256)),
            group_limits=tuple([min(1024, limit) for limit in limits]),
            shared_bytes=self.number(_LOCAL_BYTES, 16 << 10),
            warp_size=warp,
        )

    # ------------------------------------------------------------ work
    def use(self) -> None:
        """Before every call: refuses what a forked child cannot do."""
        if self._is_forked:
            raise DeviceError(
                f"{self.name} was opened before this process was forked, and a forked process "
                'cannot use a device of its parent; start it with multiprocessing\'s "spawn", or '
                f"use {self.name} in the child only"
            )

    @property
    def is_usable(self) -> bool:
        """Whether calls can be made at all."""
        return not self._is_forked

    def call(self, name: str, *arguments: Any) -> None:
        """A call by name; `use` comes before."""
        code = getattr(self.driver, name)(*arguments)
        if code:
            self.driver.check(code, name)

    def submit(self, code: int, name: str, origin: Origin | None, over: str) -> None:
        """Counts a launch, or says why it was refused."""
        if code:
            raise DriverError(
                f"{self.name} refuses {name}{place_text(origin)} over {over}: {describe(code)}",
                code,
            )
        with self._lock:
            self.submitted += 1
            self._recent.append((name, origin))

    def synchronize(self) -> None:
        """Returns when all that was submitted is done."""
        self.use()
        before = self.submitted
        code = self.driver.clFinish(self.queue)
        if code:
            raise DriverError(f"{self.name}: {describe(code)}. {self._suspects()}", code)
        with self._lock:
            self.completed = max(self.completed, before)

    def _suspects(self) -> str:
        """The launches that may have failed, the last first."""
        count = min(self.submitted - self.completed, len(self._recent))
        recent = list(self._recent)[-min(count, _NAMED) :] if count else []
        if not recent:
            return "No kernel of weft was running."
        named = [f"{name}{place_text(origin)}" for name, origin in reversed(recent)]
        return f"It was one of the last launches: {', '.join(named)}."

    @property
    def timed_queue(self) -> Handle:
        """A queue whose commands have times. Used alone, when the other one is empty."""
        if self._timed is None:
            self._timed = self.driver.create(
                "clCreateCommandQueue", self.handle, self.device, _PROFILING
            )
        return self._timed


def place_text(origin: Origin | None) -> str:
    """A line of the user's, as it follows a kernel's name."""
    return "" if origin is None else f" ({PurePath(origin[0]).name}:{origin[1]})"


def _forget_in_child() -> None:
    for context in list(_contexts):
        context._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
