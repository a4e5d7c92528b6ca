"""The contracts that a device implements: Allocator, Compiler, Program, Queue, Graph, BaseDevice.

In: requests for memory, source texts, launches. Out: abstract classes, and what all devices share:
counting of memory, frees from finalizers. Sits between codegen, which knows no device, and
`device`, which opens devices and gives them to everybody else; the runtimes implement these.
Invariant: every byte in use is counted exactly once.
"""

from __future__ import annotations

import collections
import functools
import gc
import os
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from weft.errors import DeviceError, OutOfMemory
from weft.helpers import GlobalCounters
from weft.uop.node import sint

if TYPE_CHECKING:
    from weft.device import Buffer


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


# Held by whoever changes an allocator's books.
ledger = _Ledger()
hold_across_fork(ledger.lock)


class Allocator(ABC):
    """Memory of one device. A subclass implements the underscored methods and the copies.

    `opaque` is whatever the device names its memory by. Only `alloc` and `free` count.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.in_use = 0

    def alloc(self, nbytes: int) -> Any:
        """Memory for `nbytes` bytes, its contents undefined, or `OutOfMemory`."""
        with ledger:
            # What was freed a moment ago is the best to take now: it is still in the CPU's cache.
            ledger.drain()
            try:
                opaque = self._alloc(nbytes)
            except MemoryError:
                # what is garbage may hold memory too
                gc.collect()
                ledger.drain()
                self.release_cache()
                try:
                    opaque = self._alloc(nbytes)
                except MemoryError as error:
                    raise self._out_of_memory(nbytes, error) from None
            self._count(nbytes)
            return opaque

    def free(self, opaque: Any, nbytes: int) -> None:
        """Gives memory back. May be called from a finalizer, in any thread."""
        ledger.pending.append((self, opaque, nbytes))
        ledger.settle()

    def _count(self, nbytes: int) -> None:
        self.in_use += nbytes
        GlobalCounters.mem_used += nbytes
        used = GlobalCounters.mem_used_per_device
        used[self.device] = used.get(self.device, 0) + nbytes

    def _out_of_memory(self, nbytes: int, error: MemoryError) -> OutOfMemory:
        reason = f" ({error})" if str(error) else ""
        held = "".join([f" ({text})" for holders in _holders if (text := holders(self.device))])
        return OutOfMemory(
            f"{self.device} cannot give {bytes_text(nbytes)}{reason}: {bytes_text(self.in_use)} "
            f"are in use{held} and {bytes_text(self.cached_bytes)} cached; free tensors, use a "
            "smaller batch or a smaller dtype"
        )

    @property
    def cached_bytes(self) -> int:
        """Bytes that are free but kept for reuse; they do not count as used."""
        return 0

    def release_cache(self) -> None:  # noqa: B027
        """Gives the free bytes that are kept for reuse back to the system, in any thread."""

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
        """Where programs of the device find the memory. Only asked of those with `has_address`."""
        raise DeviceError(f"memory of {self.device} has no address; copy it out")

    def host_memory(self, nbytes: int) -> memoryview:
        """New memory of the host, of the kind that `copyout` fills fastest."""
        return memoryview(bytearray(nbytes))

    def transfer(self, target: Any, source: Any, nbytes: int, source_allocator: Allocator) -> bool:
        """Copies between two devices of a kind without the host; False if this cannot be done."""
        return False


# who can say what holds the memory of a device
_holders: list[Callable[[str], str]] = []


def register_holders(text_of: Callable[[str], str]) -> None:
    """Lets an error out of memory say who holds it; `text_of` takes the device's name."""
    _holders.append(text_of)


def bytes_text(nbytes: int) -> str:
    """
    >>> bytes_text(3 << 20), bytes_text(10)
    ('3145728 bytes (3.00 MiB)', '10 bytes')
    """
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes} bytes ({nbytes / unit:.2f} {name})"
    return f"{nbytes} bytes"


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
    layout: tuple[tuple[str, int], ...] = ()  # arguments of the entry; (): buffers, then variables
    shared_bytes: int = 0  # shared memory that a launch has to ask for


class Program(ABC):
    """A loaded kernel."""

    name: str

    @abstractmethod
    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        """Runs with buffers in slot order and the values of its variables; seconds if `wait`."""


@dataclass(frozen=True)
class LaunchReport:
    """What a device counted in a launch, and what its threads did when.

    `threads()` are rows for the viewer, None where the device traces none; `streams()` is the same
    as the device recorded it.
    """

    name: str
    counters: dict[str, Any]
    threads: Callable[[], dict[str, Any] | None]
    streams: Callable[[], Any]


# a line of the user's program: file and number
Origin = tuple[str, int]


class Queue(Protocol):
    """Work that a device does in order. A signal is a number that only grows."""

    def submit(
        self,
        program: Program,
        bufs: Sequence[Buffer],
        vals: Sequence[int],
        wait: bool = False,
        origin: Origin | None = None,
    ) -> float | None:
        """Launches; seconds if `wait`. An error that comes later names `origin`, a user's line."""

    def copy(self, target: Buffer, source: Buffer) -> None: ...

    def signal(self) -> int:
        """Marks this point; `wait` with the returned number returns when all before it is done."""

    def wait(self, value: int) -> None: ...


class Graph(Protocol):
    """Recorded launches that replay with one call from Python.

    What differs between replays is in `words`, 64-bit numbers that the caller writes: addresses of
    memory and values of variables. An argument of a launch is one of the words plus a number.
    """

    def __init__(self, words: array[int]) -> None:
        """A graph over these words, which keep their place."""

    def record(
        self,
        program: Program,
        arguments: Sequence[tuple[int, int]],
        origin: Origin | None = None,
    ) -> None:
        """Adds a launch; its buffers, then its variables, are (word, what is added to it).

        An error of the launch names `origin`, the user's line.
        """

    def replay(self) -> None:
        """Runs all launches in order, with the words as they are now."""

    @property
    def begun(self) -> int:
        """How many launches of the last replay may have begun, asked while it runs too."""

    def begin(self) -> None:
        """As `replay`, but may return before all is done: `finish` has to follow."""

    def finish(self) -> None:
        """Returns when all of what was begun is done."""


class ImmediateQueue:
    """The queue of a device whose calls return when the work is done."""

    def __init__(self) -> None:
        self._signals = 0

    def submit(
        self,
        program: Program,
        bufs: Sequence[Buffer],
        vals: Sequence[int],
        wait: bool = False,
        origin: Origin | None = None,
    ) -> float | None:
        return program(bufs, vals, wait=wait)

    def copy(self, target: Buffer, source: Buffer) -> None:
        target.copy_from(source)

    def signal(self) -> int:
        self._signals += 1
        return self._signals

    def wait(self, value: int) -> None:
        pass


class BaseDevice:
    """An opened device. Capabilities are attributes, so that nobody compares device names.

    is_host: its memory is the host's, which can read and write it.
    has_address: its memory has an address, a number that its programs take; the host's has.
    memory_kind: what DLPack calls the kind of its memory and which of that kind; None: not shared.
    executes: its programs compute; false for a device that only compiles or only stores.
    graph: records launches and replays them with one call, if the device can.
    rank: the process that the device belongs to, of several that run one program; None: each of
        them has one of its own. is_here: whether that is this process. ranks: messages to others.
    reads_at: the device on which values are read that are on several of these; None: the first.
    """

    is_host = False
    has_address = False
    memory_kind: tuple[int, int] | None = None
    executes = True
    graph: type[Graph] | None = None
    rank: int | None = None
    is_here = True
    ranks: Any = None
    reads_at: str | None = None

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

    def watch(self, note: Callable[[LaunchReport], None]) -> Callable[[], None]:
        """Tells of every launch from now on, where the device counts; the function ends it."""
        return lambda: None

    def check_address(self, address: int) -> None:
        """Raises a `DeviceError` if programs of the device cannot reach memory at an address."""

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

    @property
    def description(self) -> str:
        """The device in a few words, for `weft doctor`."""
        return self.arch

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
        self.queue.wait(self.queue.signal())

    # ------------------------------------------------------------ memory shared with others
    @property
    def stream(self) -> int | None:
        """The handle of what work is submitted to, for others who share memory; None: none."""
        return None

    def let_wait(self, stream: Any) -> None:
        """Lets work that others submit to their stream wait for all work submitted here."""
        self.synchronize()

    def problems(self) -> list[tuple[str, str]]:
        """What is not as it should be, and what to do about it."""
        return []
