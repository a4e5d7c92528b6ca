"""AMD's GPUs through HSA's runtime library, as its specification documents it.

In: what `agent.py` asks for. Out: memory, code and a queue of the hardware. The AMD device opens it
where libhsa-runtime64 finds a GPU.
Invariant: a slot of the queue is written but for its header, then the header, then the doorbell
rings; a slot is used again only when the queue has read it.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from weft.errors import CompileError, DeviceError
from weft.runtime.amd.agent import Kernel
from weft.runtime.amd.aql import DISPATCH_HEADER, INVALID, PACKET_BYTES, Dispatch

Handle = ctypes.c_uint64
_LIBRARIES = ("libhsa-runtime64.so.1", "libhsa-runtime64.so", "/opt/rocm/lib/libhsa-runtime64.so.1")
_BREAK = 1
_OUT_OF_RESOURCES = 0x1008
# questions about an agent, a pool and a symbol
_NAME, _DEVICE_KIND, _UNITS, _PRODUCT = 0, 17, 0xA002, 0xA009
_CPU, _GPU = 0, 1
_SEGMENT, _FLAGS, _ALLOCATES = 0, 1, 5
_ARGUMENTS, _FINE, _COARSE = 1, 2, 4
_KERNEL_OBJECT, _KERNARG_BYTES, _GROUP_BYTES, _PRIVATE_BYTES = 22, 11, 13, 14
_PROFILE_FULL, _QUEUE_SINGLE = 1, 1
_LESS, _BLOCKED = 2, 0
_SLOTS = 256
_ARGUMENT_ROOM = 1 << 20
_FOREVER = (1 << 64) - 1


class _Queue(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("features", ctypes.c_uint32),
        ("base", ctypes.c_uint64),
        ("doorbell", Handle),
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("number", ctypes.c_uint64),
    )


class _Times(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("end", ctypes.c_uint64))


_EACH = ctypes.CFUNCTYPE(ctypes.c_uint32, Handle, ctypes.c_void_p)
_QUEUE_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)


class HSALibrary:
    """Calls of the library; an error is a DeviceError with the library's words."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status."""
        status = getattr(self.library, name)(*arguments)
        if status not in (0, _BREAK):
            raise DeviceError(f"{name}: {self.describe(status)}")

    def value(self, name: str, *arguments: Any) -> int:
        """Calls a function that returns a number of 64 bits."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_uint64
        return int(function(*arguments))

    def describe(self, status: int) -> str:
        text = ctypes.c_char_p()
        self.library.hsa_status_string(status, ctypes.byref(text))
        said = text.value.decode(errors="replace") if text.value else "unknown"
        return f"status {status:#x} ({said})"

    def agents(self) -> list[int]:
        """All agents, CPUs too."""
        found: list[int] = []

        def note(agent: int, _: Any) -> int:
            found.append(agent)
            return 0

        self.call("hsa_iterate_agents", _EACH(note), None)
        return found

    def pools(self, agent: int) -> list[int]:
        found: list[int] = []

        def note(pool: int, _: Any) -> int:
            found.append(pool)
            return 0

        self.call("hsa_amd_agent_iterate_memory_pools", Handle(agent), _EACH(note), None)
        return found

    def number_of(self, name: str, handle: int, question: int) -> int:
        """A fact that is a number of 32 bits."""
        answer = ctypes.c_uint32()
        self.call(name, Handle(handle), question, ctypes.byref(answer))
        return answer.value

    def text_of(self, agent: int, question: int) -> str:
        answer = ctypes.create_string_buffer(64)
        self.call("hsa_agent_get_info", Handle(agent), question, answer)
        return answer.value.decode(errors="replace")


class HSAAgent:
    """A GPU of the machine."""

    def __init__(self, library: HSALibrary, unit: int) -> None:
        self.library = library
        agents = library.agents()
        kinds = [library.number_of("hsa_agent_get_info", a, _DEVICE_KIND) for a in agents]
        gpus = [a for a, kind in zip(agents, kinds, strict=True) if kind == _GPU]
        hosts = [a for a, kind in zip(agents, kinds, strict=True) if kind == _CPU]
        if unit >= len(gpus) or not hosts:
            raise DeviceError(f"HSA shows {len(gpus)} GPUs; number {unit} was asked for")
        self.agent, self.host = gpus[unit], hosts[0]
        self.arch = library.text_of(self.agent, _NAME)
        self.cores = library.number_of("hsa_agent_get_info", self.agent, _UNITS)
        product = library.text_of(self.agent, _PRODUCT)
        self.description = f"{self.arch} {product}, {self.cores} compute units, HSA"
        self.pool = self._pool(self.agent, _COARSE)
        self.argument_pool = self._pool(self.host, _ARGUMENTS)
        self.failed = ""
        self._lock = threading.Lock()
        self._error = _QUEUE_ERROR(self._note_error)
        pointer = ctypes.POINTER(_Queue)()
        library.call(
            "hsa_queue_create", Handle(self.agent), _SLOTS, _QUEUE_SINGLE, self._error, None,
            ctypes.c_uint32(0xFFFFFFFF), ctypes.c_uint32(0xFFFFFFFF), ctypes.byref(pointer),
        )  # fmt: skip
        self.queue = pointer
        for slot in range(_SLOTS):
            at = pointer.contents.base + slot * PACKET_BYTES
            ctypes.c_uint16.from_address(at).value = INVALID
        library.call("hsa_amd_profiling_set_profiler_enabled", pointer, 1)
        self._room = self._allocate(self.argument_pool, _ARGUMENT_ROOM)
        self._next_argument = 0
        self._submitted = 0
        self._signals: dict[int, int] = {}
        self._elapsed: dict[int, float] = {}

    def _note_error(self, status: int, queue: Any, data: Any) -> None:
        self.failed = self.library.describe(status)

    # ------------------------------------------------------------ memory
    def _pool(self, agent: int, wanted: int) -> int:
        name = "hsa_amd_memory_pool_get_info"
        for pool in self.library.pools(agent):
            if self.library.number_of(name, pool, _SEGMENT) != 0:
                continue
            allowed = ctypes.c_bool()
            self.library.call(name, Handle(pool), _ALLOCATES, ctypes.byref(allowed))
            if allowed.value and self.library.number_of(name, pool, _FLAGS) & wanted:
                return pool
        raise DeviceError(f"HSA shows no memory of kind {wanted} for an agent")

    def _allocate(self, pool: int, nbytes: int) -> int:
        address = ctypes.c_void_p()
        self.library.call(
            "hsa_amd_memory_pool_allocate", Handle(pool), ctypes.c_size_t(nbytes), 0,
            ctypes.byref(address),
        )  # fmt: skip
        agents = (Handle * 2)(self.agent, self.host)
        self.library.call("hsa_amd_agents_allow_access", 2, agents, None, address)
        return int(address.value or 0)

    def allocate(self, nbytes: int) -> int:
        try:
            return self._allocate(self.pool, max(1, nbytes))
        except DeviceError as error:
            raise MemoryError(str(error)) from None

    def free(self, address: int) -> None:
        self.wait(-1)
        self.library.call("hsa_amd_memory_pool_free", ctypes.c_void_p(address))

    def copy_in(self, address: int, source: memoryview) -> None:
        self.wait(-1)
        contents = ctypes.create_string_buffer(bytes(source), source.nbytes)
        self._copy(address, ctypes.addressof(contents), source.nbytes)

    def copy_out(self, target: memoryview, address: int) -> None:
        self.wait(-1)
        window = (ctypes.c_char * target.nbytes).from_buffer(target)
        self._copy(ctypes.addressof(window), address, target.nbytes)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        self.library.call(
            "hsa_memory_copy",
            ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes),
        )  # fmt: skip

    # ------------------------------------------------------------ code
    def load(self, name: str, code: bytes) -> Kernel:
        executable = _Executable(self.library, self.agent, code)
        symbol = Handle()
        try:
            agent = Handle(self.agent)
            self.library.call(
                "hsa_executable_get_symbol_by_name", executable.handle, f"{name}.kd".encode(),
                ctypes.byref(agent), ctypes.byref(symbol),
            )  # fmt: skip
        except DeviceError as error:
            raise CompileError(f"a code object has no kernel {name}: {error}") from None
        question = "hsa_executable_symbol_get_info"
        handle = ctypes.c_uint64()
        self.library.call(question, symbol, _KERNEL_OBJECT, ctypes.byref(handle))
        sizes = [
            self.library.number_of(question, symbol.value, which)
            for which in (_KERNARG_BYTES, _GROUP_BYTES, _PRIVATE_BYTES)
        ]
        return Kernel(name, handle.value, sizes[0], sizes[1], sizes[2], executable)

    # ------------------------------------------------------------ the queue
    def arguments(self, contents: bytes) -> int:
        size = -(-max(1, len(contents)) // 64) * 64
        if size > _ARGUMENT_ROOM:
            raise DeviceError(f"a kernel has {len(contents)} bytes of arguments")
        with self._lock:
            if self._next_argument + size > _ARGUMENT_ROOM:
                # what is at the beginning may still be read
                self._wait_all()
                self._next_argument = 0
            address = self._room + self._next_argument
            self._next_argument += size
        ctypes.memmove(address, contents, len(contents))
        return address

    def submit(self, dispatch: Dispatch, name: str) -> int:
        library, queue = self.library, self.queue
        signal = Handle()
        library.call("hsa_signal_create", ctypes.c_int64(1), 0, None, ctypes.byref(signal))
        packet = Dispatch(
            dispatch.group, dispatch.grid, dispatch.kernel_object, dispatch.kernarg,
            dispatch.private_bytes, dispatch.group_bytes, signal.value,
        ).pack()  # fmt: skip
        with self._lock:
            index = library.value(
                "hsa_queue_add_write_index_scacq_screl", queue, ctypes.c_uint64(1)
            )
            while index - library.value("hsa_queue_load_read_index_scacquire", queue) >= _SLOTS:
                self._raise_failure(name)
            at = queue.contents.base + index % queue.contents.size * PACKET_BYTES
            ctypes.memmove(at + 4, packet[4:], PACKET_BYTES - 4)
            setup = int.from_bytes(packet[2:4], "little")
            # header and setup in one store, last
            ctypes.c_uint32.from_address(at).value = DISPATCH_HEADER | setup << 16
            library.library.hsa_signal_store_screlease(
                Handle(queue.contents.doorbell), ctypes.c_int64(index)
            )
            number = self._submitted
            self._submitted += 1
            self._signals[number] = signal.value
        return number

    def wait(self, number: int) -> None:
        with self._lock:
            if number < 0:
                self._wait_all()
            else:
                self._finish(number)

    def _wait_all(self) -> None:
        for number in list(self._signals):
            self._finish(number)

    def _finish(self, number: int) -> None:
        signal = self._signals.pop(number, None)
        if signal is None:
            return
        library = self.library
        library.library.hsa_signal_wait_scacquire(
            Handle(signal), _LESS, ctypes.c_int64(1), ctypes.c_uint64(_FOREVER), _BLOCKED
        )
        self._raise_failure("a kernel")
        times = _Times()
        library.call(
            "hsa_amd_profiling_get_dispatch_time", Handle(self.agent), Handle(signal),
            ctypes.byref(times),
        )  # fmt: skip
        self._elapsed = {number: (times.end - times.start) / 1e9}
        library.call("hsa_signal_destroy", Handle(signal))

    def _raise_failure(self, name: str) -> None:
        if self.failed:
            raise DeviceError(f"{self.arch}: {name} failed: {self.failed}")

    def elapsed(self, number: int) -> float:
        return self._elapsed.get(number, 0.0)


class _Executable:
    """A code object that HSA has loaded."""

    def __init__(self, library: HSALibrary, agent: int, code: bytes) -> None:
        self.library = library
        self.code = ctypes.create_string_buffer(code, len(code))
        reader = Handle()
        library.call(
            "hsa_code_object_reader_create_from_memory", self.code, ctypes.c_size_t(len(code)),
            ctypes.byref(reader),
        )  # fmt: skip
        self.handle = Handle()
        library.call("hsa_executable_create_alt", _PROFILE_FULL, 0, None, ctypes.byref(self.handle))
        try:
            library.call(
                "hsa_executable_load_agent_code_object", self.handle, Handle(agent), reader, None,
                None,
            )  # fmt: skip
            library.call("hsa_executable_freeze", self.handle, None)
        except DeviceError as error:
            raise CompileError(f"HSA does not load a code object: {error}") from None
        finally:
            library.call("hsa_code_object_reader_destroy", reader)


def open_agent(unit: int, library: Any = None) -> HSAAgent:
    """A GPU of the machine, or DeviceError that says why there is none."""
    found = HSALibrary(library if library is not None else _open_library())
    status = found.library.hsa_init()
    if status:
        reason = "no GPU answers" if status == _OUT_OF_RESOURCES else found.describe(status)
        raise DeviceError(f"HSA does not start: {reason}")
    return HSAAgent(found, unit)


def _open_library() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("libhsa-runtime64 is not here: it comes with AMD's driver (ROCm)")
