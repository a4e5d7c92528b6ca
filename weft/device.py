"""The contracts of a device (Buffer, Allocator, Compiler, Program, Queue, Graph) and the registry.

In: device names and requests for memory. Out: `Device[...]`, which opens devices found by file name
(`runtime/ops_<device>.py`), and `Buffer`, the memory of a tensor. Sits between codegen, which knows
no device, and the runtimes, which implement these contracts.
Invariant: one object per canonical name, and every byte in use is counted exactly once.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from weft.dtype import DType, to_numpy_dtype
from weft.errors import ArgumentError, DeviceError, OutOfMemory
from weft.helpers import GlobalCounters
from weft.knobs import DEBUG, requested_device
from weft.uop.node import sint


def hold_across_fork(lock: threading.RLock) -> None:
    """Lets no fork happen while another thread holds `lock`.

    The child has only the forking thread: it would wait for ever for a lock that another thread
    held, over data that the other thread left half changed.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


# *** memory ***


class _Ledger:
    """Serialises all allocation and counting, and takes frees from anywhere, finalizers included.

    A garbage collection may run a Buffer's finalizer at any bytecode, also inside an allocation of
    the same thread. So a free only queues, and whoever can take the lock settles the queue.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        self.pending: collections.deque[tuple[Allocator, Any, int]] = collections.deque()

    def __enter__(self) -> None:
        self.lock.acquire()
        self.depth += 1

    def __exit__(self, *exception: object) -> None:
        self.depth -= 1
        self.lock.release()
        # Between the last look at the queue and the release another thread may have queued.
        self.settle()

    def settle(self) -> None:
        """Gives the queued memory back, unless a settling or allocating thread will do it."""
        while self.pending and self.lock.acquire(blocking=False):
            try:
                if self.depth:
                    return
                self.depth += 1
                try:
                    self.drain()
                finally:
                    self.depth -= 1
            finally:
                self.lock.release()

    def drain(self) -> None:
        while self.pending:
            allocator, opaque, nbytes = self.pending.popleft()
            allocator._count(-nbytes)
            allocator._free(opaque, nbytes)


_ledger = _Ledger()
hold_across_fork(_ledger.lock)


class Allocator(ABC):
    """Memory of one device. A subclass implements the underscored methods and the copies.

    `opaque` is whatever the device names its memory by. Only `alloc` and `free` count.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.in_use = 0

    def alloc(self, nbytes: int) -> Any:
        """Memory for `nbytes` bytes, its contents undefined, or `OutOfMemory`."""
        with _ledger:
            # What was freed a moment ago is the best to take now: it is still in the CPU's cache.
            _ledger.drain()
            try:
                opaque = self._alloc(nbytes)
            except MemoryError:
                self.release_cache()
                try:
                    opaque = self._alloc(nbytes)
                except MemoryError as error:
                    raise self._out_of_memory(nbytes, error) from None
            self._count(nbytes)
            return opaque

    def free(self, opaque: Any, nbytes: int) -> None:
        """Gives memory back. May be called from a finalizer, in any thread."""
        _ledger.pending.append((self, opaque, nbytes))
        _ledger.settle()

    def _count(self, nbytes: int) -> None:
        self.in_use += nbytes
        GlobalCounters.mem_used += nbytes
        used = GlobalCounters.mem_used_per_device
        used[self.device] = used.get(self.device, 0) + nbytes

    def _out_of_memory(self, nbytes: int, error: MemoryError) -> OutOfMemory:
        reason = f" ({error})" if str(error) else ""
        return OutOfMemory(
            f"{self.device} cannot give {_bytes_text(nbytes)}{reason}: {_bytes_text(self.in_use)} "
            f"are in use and {_bytes_text(self.cached_bytes)} cached; free tensors, use a smaller "
            "batch or a smaller dtype"
        )

    @property
    def cached_bytes(self) -> int:
        """Bytes that are free but kept for reuse; they do not count as used."""
        return 0

    def release_cache(self) -> None:  # noqa: B027
        """Gives the free bytes that are kept for reuse back to the system."""

    @abstractmethod
    def _alloc(self, nbytes: int) -> Any:
        """Takes memory; raises MemoryError, with the reason if there is one, when it cannot."""

    @abstractmethod
    def _free(self, opaque: Any, nbytes: int) -> None: ...

    @abstractmethod
    def copyin(self, opaque: Any, source: memoryview) -> None:
        """Copies bytes from the host to the start of `opaque`."""

    @abstractmethod
    def copyout(self, target: memoryview, opaque: Any) -> None:
        """Copies bytes from the start of `opaque` to the host."""

    @abstractmethod
    def offset(self, opaque: Any, nbytes: int) -> Any:
        """Names the memory that starts `nbytes` after `opaque`."""

    def address(self, opaque: Any) -> int:
        """Where the host finds the memory. Only asked of devices with `is_host`."""
        raise DeviceError(f"memory of {self.device} has no address on the host; copy it out")

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        """Copies between two devices of a kind without the host; False if this cannot be done."""
        return False


def _bytes_text(nbytes: int) -> str:
    """
    >>> _bytes_text(3 << 20), _bytes_text(10)
    ('3145728 bytes (3.00 MiB)', '10 bytes')
    """
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes} bytes ({nbytes / unit:.2f} {name})"
    return f"{nbytes} bytes"


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
        self, device: str, size: int, dtype: DType, base: Buffer | None = None, offset: int = 0
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

        For devices with `is_host`, `opaque` is the address of the memory.
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

    def _take(self, opaque: Any) -> None:
        device = Device[self.device]
        # The address first: whoever sees the memory must also see where it is.
        self._address = device.allocator.address(opaque) if device.is_host else 0
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
        """Where the memory is on the host, for devices with `is_host`; allocated if need be."""
        base = self if self._base is None else self._base
        if base._opaque is None:
            base.allocate()
        if base._address == 0 and not Device[self.device].is_host:
            raise DeviceError(f"{self} has no address on the host; copy it out")
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
            self.copyin(source.as_memoryview())
        return self

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
        return self.copyout(bytearray(self.nbytes))

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


# *** compiling and running ***


class Compiler(ABC):
    """Turns a renderer's text into the bytes that a device loads."""

    @property
    @abstractmethod
    def cachekey(self) -> str | None:
        """Names all but the source that decides the bytes; None: never keep them on disk."""

    @abstractmethod
    def compile(self, src: str) -> bytes:
        """The program's bytes, or `CompileError` with the compiler's message."""

    def compile_all(self, sources: Iterable[str]) -> list[bytes]:
        """The bytes of several programs, in order.

        The sources are made while they are asked for, so that a compiler may work on one while
        Python makes the next.
        """
        return [self.compile(source) for source in sources]

    def assembly(self, src: str) -> str:
        """The machine code as text, for DEBUG=7."""
        return "this compiler shows no assembly"


@dataclass(frozen=True)
class ProgramFacts:
    """What loading, launching and accounting for a kernel needs besides its compiled bytes.

    Sizes and costs are numbers, or expressions of the variables.
    """

    name: str
    threads_n: int = 1  # size of the axis that threads share; 1: not parallel
    buffer_count: int = 0
    variables: tuple[str, ...] = ()
    ops: sint = 0  # estimate of arithmetic operations
    mem: sint = 0  # estimate of bytes touched
    global_size: tuple[sint, ...] = ()  # groups along x, y, z
    local_size: tuple[int, ...] = ()  # threads of a group along x, y, z; (): no groups


class Program(ABC):
    """A loaded kernel."""

    name: str

    @abstractmethod
    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        """Runs with buffers in slot order and the values of its variables; seconds if `wait`."""


class Queue(Protocol):
    """Work that a device does in order. A signal is a number that only grows."""

    def submit(self, program: Program, bufs: Sequence[Buffer], vals: Sequence[int]) -> None: ...

    def copy(self, target: Buffer, source: Buffer) -> None: ...

    def signal(self) -> int:
        """Marks this point; `wait` with the returned number returns when all before it is done."""

    def wait(self, value: int) -> None: ...


class Graph(Protocol):
    """Recorded launches that replay with one call from Python.

    What differs between replays is in `words`, 64-bit numbers: addresses of memory and values of
    variables. An argument of a launch is one of the words plus a number.
    """

    def __init__(self, words: int) -> None:
        """A graph over so many words."""

    def record(self, program: Program, arguments: Sequence[tuple[int, int]]) -> None:
        """Adds a launch; its buffers, then its variables, are (word, what is added to it)."""

    def replay(self, words: Sequence[int]) -> None:
        """Runs all launches in order, with these words."""


class ImmediateQueue:
    """The queue of a device whose calls return when the work is done."""

    def __init__(self) -> None:
        self._signals = 0

    def submit(self, program: Program, bufs: Sequence[Buffer], vals: Sequence[int]) -> None:
        program(bufs, vals)

    def copy(self, target: Buffer, source: Buffer) -> None:
        target.copy_from(source)

    def signal(self) -> int:
        self._signals += 1
        return self._signals

    def wait(self, value: int) -> None:
        pass


class BaseDevice:
    """An opened device. Capabilities are attributes, so that nobody compares device names.

    is_host: its memory has an address that the host can read and write.
    executes: its programs compute; false for a device that only compiles or only stores.
    graph: records launches and replays them with one call, if the device can.
    """

    is_host = False
    executes = True
    graph: type[Graph] | None = None

    def __init__(
        self,
        name: str,
        allocator: Allocator,
        compiler: Compiler | None = None,
        make_renderer: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name
        self.allocator = allocator
        self._compiler = compiler
        self._make_renderer = make_renderer
        self.queue: Queue = ImmediateQueue()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def compiler(self) -> Compiler:
        if self._compiler is None:
            raise DeviceError(f"{self.name} compiles nothing: it has no compiler")
        return self._compiler

    @functools.cached_property
    def renderer(self) -> Any:
        """Prints programs for `compiler`. Made on first use, because it asks for the target."""
        if self._make_renderer is None:
            raise DeviceError(f"{self.name} renders nothing: it has no renderer")
        return self._make_renderer()

    @property
    def arch(self) -> str:
        """The name of the target, as its compiler knows it."""
        return ""

    def runtime(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> Program:
        """Loads a compiled program."""
        raise DeviceError(f"{self.name} runs no programs, but was asked to load {name}")

    def load(self, facts: ProgramFacts, lib: bytes) -> Program:
        """Loads a compiled program; devices whose programs run in groups read their sizes here."""
        return self.runtime(
            facts.name, lib, facts.threads_n, facts.buffer_count, len(facts.variables)
        )

    def synchronize(self) -> None:
        """Returns when all work that was submitted is done."""


# *** the registry ***

# Tried in this order when nobody asks for a device. All others open only when asked for.
RANKED_DEVICES = ("CUDA", "AMD", "METAL", "CPU")


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
        return self._default if self._default is not None else self._choose_default()

    @DEFAULT.setter
    def DEFAULT(self, device: str) -> None:
        self._default = self[device].name

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
            refusals = []
            for kind in RANKED_DEVICES:
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
        raise DeviceError(
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


Device = DeviceRegistry()
