"""Devices by name, and the memory of a tensor on one of them.

In: device names and requests for memory. Out: `Device[...]`, which opens devices found by file name
(`runtime/ops_<device>.py`), and `Buffer`. Sits between the contracts of a device, whose names it
passes on, and the engine. Invariant: one object per canonical name.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from weft.compat_helpers import Target
from weft.contracts import (
    Allocator,
    BaseDevice,
    Compiler,
    Graph,
    ImmediateQueue,
    Program,
    ProgramFacts,
    Queue,
    hold_across_fork,
)
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.errors import ArgumentError, CompileError, DeviceError, UnknownDeviceError
from weft.knobs import DEBUG, DEV, ContextVar, requested_device

__all__ = [
    "Allocator",
    "BaseDevice",
    "Buffer",
    "CompileError",
    "Compiled",
    "Compiler",
    "Device",
    "DeviceRegistry",
    "Graph",
    "ImmediateQueue",
    "Program",
    "ProgramFacts",
    "Queue",
    "canonicalize_device",
    "enumerate_devices_str",
    "hold_across_fork",
]

# the most bytes of a copy between two devices that the host holds at once
_PIECE = 64 << 20


class Buffer:
    """`size` elements of `dtype` on a device, or a part of another Buffer (a view).

    Memory is taken by `allocate` and goes back when the Buffer is no longer referenced. A view
    shares the memory of its base and keeps it alive. `offset` is in bytes from the base's start.
    """

    __slots__ = (
        "device",
        "size",
        "dtype",
        "offset",
        "_base",
        "_opaque",
        "_address",
        "_owner",
        "__weakref__",
    )

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        base: Buffer | None = None,
        offset: int = 0,
        *,
        initial_value: bytes | None = None,
        preallocate: bool = False,
    ) -> None:
        # Set first: a Buffer that is refused below is finalized all the same.
        self._opaque: Any = None
        self._owner: Any = None
        self._address = 0
        self._base: Buffer | None = None
        if size < 0 or offset < 0:
            raise ArgumentError(
                f"a Buffer of size {size} at offset {offset}: both must be at least 0"
            )
        self.device = Device.canonicalize(device)
        self.size = size
        self.dtype = dtype
        self.offset = offset
        if base is None:
            if offset:
                raise ArgumentError(f"offset {offset} without a base: only a view has an offset")
            if initial_value is not None:
                self.copyin(initial_value)
            elif preallocate:
                self.allocate()
            return
        if base._base is not None:
            self.offset += base.offset
            base = base._base
        if self.device != base.device:
            raise DeviceError(f"a view on {self.device} of a Buffer that is on {base.device}")
        if self.offset + self.nbytes > base.nbytes:
            raise ArgumentError(
                f"a view of {self.nbytes} bytes at byte {self.offset} does not fit its base of "
                f"{base.nbytes} bytes"
            )
        self._base = base

    @classmethod
    def from_opaque(
        cls, device: str, size: int, dtype: DType, opaque: Any, owner: Any = None
    ) -> Buffer:
        """A Buffer over memory that something else owns; `owner` is kept alive with it.

        For devices with `has_address`, `opaque` is the address of the memory.
        """
        buffer = cls(device, size, dtype)
        buffer._owner = owner if owner is not None else opaque
        buffer._take(opaque)
        return buffer

    @property
    def base(self) -> Buffer:
        """The Buffer that holds the memory: itself, unless it is a view."""
        return self if self._base is None else self._base

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def allocator(self) -> Allocator:
        return Device[self.device].allocator

    def __repr__(self) -> str:
        place = f" offset:{self.offset} of {self._base.nbytes} bytes" if self._base else ""
        state = "" if self.is_allocated() else " not allocated"
        return f"<Buffer {self.device} size:{self.size} {self.dtype}{place}{state}>"

    def is_allocated(self) -> bool:
        return self.base._opaque is not None

    is_initialized = is_allocated  # tinygrad's name, for views too

    def _take(self, opaque: Any) -> None:
        device = Device[self.device]
        # The address first: whoever sees the memory must also see where it is.
        self._address = device.allocator.address(opaque) if device.has_address else 0
        self._opaque = opaque

    def allocate(self) -> Buffer:
        """Takes the memory; an error if there is some already, because that would lose it."""
        if self.is_allocated():
            raise DeviceError(f"{self} has its memory already; use ensure_allocated()")
        base = self.base
        base._take(base.allocator.alloc(base.nbytes))
        return self

    def ensure_allocated(self) -> Buffer:
        """Takes the memory unless it is there."""
        return self if self.base._opaque is not None else self.allocate()

    def deallocate(self) -> None:
        """Gives the memory back now; views of it then have none either. Does nothing for a view."""
        opaque, self._opaque, self._address = self._opaque, None, 0
        owner, self._owner = self._owner, None
        if opaque is not None and owner is None:
            self.allocator.free(opaque, self.nbytes)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At exit the registry may be gone; the process returns the memory anyway.
        if self._opaque is not None and not finalizing():
            self.deallocate()

    @property
    def opaque(self) -> Any:
        """The device's own name of the memory, which is allocated if need be."""
        base = self.ensure_allocated().base
        return self.allocator.offset(base._opaque, self.offset) if self.offset else base._opaque

    @property
    def address(self) -> int:
        """Where programs find the memory, for devices with `has_address`; allocated if need be."""
        base = self if self._base is None else self._base
        if base._opaque is None:
            base.allocate()
        if base._address == 0 and not Device[self.device].has_address:
            raise DeviceError(f"{self} has no address; copy it out")
        return base._address + self.offset

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A part of this Buffer: `size` elements of `dtype` from byte `offset` on."""
        return Buffer(self.device, size, dtype, base=self, offset=offset)

    def copyin(self, source: memoryview | bytes | bytearray) -> Buffer:
        """Fills the Buffer with bytes of the host, allocating it if need be."""
        source = self._checked_bytes(source, "copyin")
        self.ensure_allocated()
        if self.nbytes:
            self.allocator.copyin(self.opaque, source)
        return self

    def copyout(self, target: memoryview | bytearray) -> memoryview:
        """Copies all bytes to `target`, which must be exactly as large."""
        target = self._checked_bytes(target, "copyout")
        self._require_contents("copyout")
        if target.readonly:
            raise ArgumentError("copyout to read-only memory; give a bytearray or writable array")
        if self.nbytes:
            self.allocator.copyout(target, self.opaque)
        return target

    def _checked_bytes(self, data: memoryview | bytes | bytearray, what: str) -> memoryview:
        data = memoryview(data)
        if not data.c_contiguous or data.nbytes != self.nbytes:
            raise ArgumentError(
                f"{what} of {data.nbytes} {'' if data.c_contiguous else 'non-contiguous '}bytes "
                f"with {self}, which takes {self.nbytes} contiguous bytes"
            )
        return data.cast("B") if data.nbytes else memoryview(b"" if data.readonly else bytearray())

    def _require_contents(self, what: str) -> None:
        if not self.is_allocated():
            raise DeviceError(f"{what} of {self}, which has no contents yet")

    def copy_from(self, source: Buffer) -> Buffer:
        """Copies the bytes of another Buffer, on whatever device it is."""
        if source.nbytes != self.nbytes:
            raise ArgumentError(f"copy of {source.nbytes} bytes into {self.nbytes} bytes")
        source._require_contents("copy")
        if self.nbytes == 0:
            self.ensure_allocated()
        elif Device[source.device].is_host:
            self.copyin(source.as_memoryview(allow_zero_copy=True))
        elif Device[self.device].is_host:
            source.copyout(self.ensure_allocated().as_memoryview(allow_zero_copy=True))
        elif not self.allocator.transfer(self.opaque, source.opaque, self.nbytes, source.allocator):
            self._copy_in_pieces(source)
        return self

    def _copy_in_pieces(self, source: Buffer) -> None:
        """Through the host, which need not hold all of it at once."""
        piece = source.allocator.host_memory(min(_PIECE, self.nbytes))
        for start in range(0, self.nbytes, _PIECE):
            part = piece[: min(_PIECE, self.nbytes - start)]
            source.view(part.nbytes, dtypes.uint8, start).copyout(part)
            self.view(part.nbytes, dtypes.uint8, start).copyin(part)

    def as_memoryview(self, allow_zero_copy: bool = False) -> memoryview:
        """The bytes: a copy, or with `allow_zero_copy` the memory itself where the host sees it.

        A memoryview of the memory itself keeps the Buffer alive.
        """
        self._require_contents("as_memoryview")
        if allow_zero_copy and self.nbytes and Device[self.device].is_host:
            Device[self.device].synchronize()
            window = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
            window._weft_buffer = self  # type: ignore[attr-defined]
            return memoryview(window).cast("B")
        return self.copyout(self.allocator.host_memory(self.nbytes))

    def numpy(self) -> Any:
        """A one-dimensional NumPy array with a copy of the contents.

        Types that NumPy lacks come as integers of their size.
        """
        import numpy

        return numpy.frombuffer(self.as_memoryview(), dtype=to_numpy_dtype(self.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling and copying copy the contents; views of one base still share it afterwards."""
        if self._base is not None:
            return Buffer, (self.device, self.size, self.dtype, self._base, self.offset)
        contents = None
        if self.is_allocated():
            contents = bytes(self.as_memoryview(allow_zero_copy=True))
        return _restore_buffer, (self.device, self.size, self.dtype, contents)


def _restore_buffer(device: str, size: int, dtype: DType, contents: bytes | None) -> Buffer:
    buffer = Buffer(device, size, dtype)
    return buffer if contents is None else buffer.copyin(contents)


# *** the registry ***

# Tried in this order when nobody asks for a device. All others open only when asked for.
RANKED_DEVICES = ("CUDA", "AMD", "METAL", "CPU")
# Of these, what opens only when asked for: as long as its kernels are slower than they shall be, or
# nobody has run it.
OPT_IN_DEVICES = ("CUDA", "AMD", "METAL")


class DeviceRegistry:
    """Opens devices by name, once each. A device is a file `runtime/ops_<device>.py`.

    The file's class `<Device>Device` (in any case) is called with the canonical name.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        hold_across_fork(self._lock)
        self._opened: dict[str, BaseDevice] = {}
        self._canonical: dict[str, str] = {}
        self._default: str | None = None

    @overload
    def canonicalize(self, device: str | None) -> str: ...

    @overload
    def canonicalize(self, device: tuple[str, ...] | list[str]) -> tuple[str, ...]: ...

    def canonicalize(
        self, device: str | tuple[str, ...] | list[str] | None
    ) -> str | tuple[str, ...]:
        """The one spelling of a device's name; None is the default device.

        >>> Device.canonicalize("cpu:0"), Device.canonicalize(("cpu", "CPU:1"))
        ('CPU', ('CPU', 'CPU:1'))
        """
        if device is None:
            return self.DEFAULT
        if isinstance(device, str):
            known = self._canonical.get(device)
            return known if known is not None else self._canonicalize_new(device)
        if isinstance(device, (tuple, list)):
            return tuple(self.canonicalize(name) for name in device)
        raise ArgumentError(
            f"{device!r} is no device: give a name such as 'CPU' or 'CPU:1', a tuple of names, "
            "or None for the default"
        )

    def _canonicalize_new(self, device: str) -> str:
        kind, separator, rest = device.strip().partition(":")
        if not kind:
            raise ArgumentError(f"{device!r} is no device name: write for example 'CPU' or 'CPU:1'")
        # What follows the colon of a storage device is a path, which keeps its spelling.
        canonical = kind.upper() + (f":{rest}" if separator and rest != "0" else "")
        self._canonical[device] = canonical
        return canonical

    def __getitem__(self, name: str | None) -> BaseDevice:
        if name is not None:
            opened = self._opened.get(name)
            if opened is not None:
                return opened
        canonical = self.canonicalize(name)
        opened = self._opened.get(canonical)
        return opened if opened is not None else self._open(canonical)

    def _open(self, name: str) -> BaseDevice:
        with self._lock:
            if name in self._opened:
                return self._opened[name]
            device = _create_device(name, self.names)
            self._opened[name] = device
            if DEBUG >= 1:
                print(f"opened device {name} in process {os.getpid()}")
            return device

    def with_memory(self, kind: tuple[int, int], wanted: str | None = None) -> BaseDevice | None:
        """The device whose memory DLPack calls so: `wanted` or the default one if it is theirs,
        else one that is open, else one that opens."""
        chosen = [self[wanted], self.default, *self.opened()]
        for device in chosen:
            if device.memory_kind == kind:
                return device
        unit = f":{kind[1]}" if kind[1] else ""
        for name in self.names:
            try:
                device = self[name + unit]
            except DeviceError:
                continue
            if device.memory_kind == kind:
                return device
        return None

    def opened(self) -> list[BaseDevice]:
        """The devices in use, in the order in which they were opened."""
        return list(self._opened.values())

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Kinds of devices this installation has a runtime for, the ranked ones first."""
        package = importlib.util.find_spec("weft.runtime")
        places = package.submodule_search_locations if package is not None else None
        found = {
            module.name.removeprefix("ops_").upper()
            for module in pkgutil.iter_modules(places or [])
            if module.name.startswith("ops_")
        }
        ranked = [name for name in RANKED_DEVICES if name in found]
        return (*ranked, *sorted(found - set(ranked)))

    @property
    def DEFAULT(self) -> str:
        """Name of the device that is used when none is given. Assign to it to change it."""
        asked = DEV.override
        if asked:
            return self[_plain_name(asked)].name
        return self._default if self._default is not None else self._choose_default()

    @DEFAULT.setter
    def DEFAULT(self, device: str) -> None:
        self._default = self[device].name
        # it is a knob like others
        ContextVar.turns += 1

    @property
    def default(self) -> BaseDevice:
        """The default device, opened."""
        return self[self.DEFAULT]

    def _choose_default(self) -> str:
        """The device asked for in the environment, else the highest-ranked one that opens."""
        with self._lock:
            if self._default is not None:
                return self._default
            requested = requested_device(dict.fromkeys((*self.names, *RANKED_DEVICES)))
            if requested is not None:
                asked, how = requested
                try:
                    name = self[asked].name
                except DeviceError as error:
                    raise DeviceError(f"{how} in the environment: {error}") from None
                self._announce(name, f"because of {how}", [])
                return name
            absent = [kind for kind in RANKED_DEVICES if kind not in self.names]
            refusals = [f"not {', '.join(absent)}: not in this installation"] if absent else []
            for kind in self.names[: len(RANKED_DEVICES) - len(absent)]:
                if kind in OPT_IN_DEVICES:
                    refusals.append(f"not {kind}: only when asked for, as in DEVICE={kind}")
                    continue
                try:
                    name = self[kind].name
                except DeviceError as error:
                    refusals.append(f"not {kind}: {error}")
                    continue
                self._announce(name, "the highest-ranked device that opens", refusals)
                return name
            raise DeviceError("no device opens. " + "; ".join(refusals))

    def _announce(self, name: str, why: str, refusals: list[str]) -> None:
        self._default = name
        if DEBUG >= 1:
            print(f"default device {name}: {why}")
            for refusal in refusals:
                print(f"  {refusal}")

    def get_available_devices(self) -> list[str]:
        """Kinds of devices that open here and compute."""
        return [name for name, device, _ in self._try_all() if device and device.executes]

    def _try_all(self) -> Iterator[tuple[str, BaseDevice | None, str]]:
        """Opens each kind of device: its name, the device if it opens, the reason if not."""
        for name in self.names:
            try:
                yield name, self[name], ""
            except DeviceError as error:
                yield name, None, str(error)


def _create_device(name: str, known: Sequence[str]) -> BaseDevice:
    """A new device, from the file that bears its name."""
    kind = name.split(":")[0]
    if kind not in known:
        raise UnknownDeviceError(
            f"there is no device {kind} in this installation; it has {', '.join(known)}"
        )
    # Whatever stops a driver from loading is a reason not to use it, not a reason to crash.
    try:
        module = importlib.import_module(f"weft.runtime.ops_{kind.lower()}")
        classes = {key.upper(): member for key, member in vars(module).items()}
        device: BaseDevice = classes[f"{kind}DEVICE"](name)
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(f"{name} does not open: {type(error).__name__}: {error}") from error
    return device


def enumerate_devices_str() -> Iterator[str]:
    """One line per kind of device: whether it opens, why not, which is the default."""
    default = Device.DEFAULT
    for name, device, reason in Device._try_all():
        if device is None:
            yield f"{name:8} not available: {reason}"
        else:
            mark = " (default)" if Device.canonicalize(default).split(":")[0] == name else ""
            yield f"{name:8} available{mark} {device.arch}".rstrip()


def _plain_name(asked: str) -> str:
    """The device of a `DEV`, which may name an interface and a renderer beside it."""
    target = Target.parse(asked)
    return f"{target.device}:{target.indices}" if target.indices else target.device


Device = DeviceRegistry()
# tinygrad's names
Compiled = BaseDevice


def canonicalize_device(device: str | None) -> str:
    """The name of a device as weft writes it; the default device's for None."""
    return Device.canonicalize(device)
