"""MPI: one process of several as a device, `MPI:0`, `MPI:1`, ... under `mpirun -n 2 python ...`.

In: what the CPU gets. Out: programs and memory of the own process's device; of the others neither:
they are there to be named. Opened by the registry, only when asked for; needs `mpi4py`.
Invariant: all processes run the same program and so the same steps, in the same order. Each does
those of its own device, and a transfer is a message between the two that it concerns. Before a
schedule runs, its steps are compared: a process that does something else is an error, not a hang.

Ranks of one machine see each other's memory (`shared_memory.py`): what MPI carries between them is
where the bytes are, and that they were read. Between machines it carries the bytes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from weft.collective import Collective, Message, check
from weft.device import Buffer
from weft.errors import DeviceError, RankError
from weft.knobs import NUM_CPU_THREADS, RANK_SECONDS
from weft.runtime.llvm import usable_cores
from weft.runtime.memory import HostAllocator
from weft.runtime.ops_cpu import CPUDevice
from weft.runtime.ops_null import NullAllocator
from weft.runtime.shared_memory import SharedMemory, Window

# bytes of one message: counts of MPI are ints
_PIECE = 1 << 30
# seconds between two looks at a message that was not there at once
_NAP = 2e-5
# before that it is asked for without a break, unless ranks share their cores
_SPIN = 2e-4
# of the line that a rank is at, in what ranks compare
_LINE_BYTES = 160
# kinds of messages
_PLACE, _READ, _BYTES = 1, 2, 3


class Ranks(Collective):
    """The processes that were started together, and messages between them."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise DeviceError(
                f"MPI needs the package mpi4py and an MPI library ({error}): pip install "
                "'weft[mpi]', then mpirun -n 2 python ..."
            ) from error
        self._mpi: Any = MPI
        self.comm: Any = MPI.COMM_WORLD.Dup()
        self.rank: int = self.comm.Get_rank()
        self.count: int = self.comm.Get_size()
        self.memory: SharedMemory | None = None
        self._windows: dict[int, Window] = {}
        if self.count > 1:
            self._end_together()
            self._share()

    def _share(self) -> None:
        """Show the own memory to the ranks of this machine, and see theirs."""
        try:
            self.memory = SharedMemory()
            where = (socket.gethostname(), _boot())
            own = (*where, os.getpid(), self.memory.file, self.memory.length)
        except (OSError, DeviceError):
            own = None
        everybody = self.comm.allgather(own)
        failed = own is None
        for rank, row in enumerate(everybody):
            if own is None or row is None or rank == self.rank or row[:2] != own[:2]:
                continue
            try:
                self._windows[rank] = Window(*row[2:])
            except OSError:
                failed = True
        # both sides of a message have to agree on how it comes
        if any(self.comm.allgather(failed)):
            self._windows.clear()
        self._share_cores(self.comm.allgather((socket.gethostname(), _boot(), _cores())))

    def _share_cores(self, rows: list[Any]) -> None:
        """Ranks that run on the same cores take as many threads each as leaves some to the
        others."""
        if not NUM_CPU_THREADS.value:
            NUM_CPU_THREADS.value = max(1, usable_cores() // rows.count(rows[self.rank]))

    def _end_together(self) -> None:
        """An error in one process ends all: the others would wait for it."""
        before = sys.excepthook

        def say_and_abort(kind: Any, value: Any, trace: Any) -> None:
            before(kind, value, trace)
            print(f"weft: rank {self.rank} of {self.count} ends all others", file=sys.stderr)
            sys.stderr.flush()
            self.comm.Abort(1)

        sys.excepthook = say_and_abort
        atexit.register(sys.stdout.flush)

    def agree(self, digest: bytes, line: str) -> None:
        """An error that names everybody's line if the ranks are about to do different things."""
        if self.count == 1:
            return
        mine = digest + line.encode()[-_LINE_BYTES:].ljust(_LINE_BYTES)
        everybody = bytearray(len(mine) * self.count)
        request = self.comm.Iallgather([mine, self._mpi.BYTE], [everybody, self._mpi.BYTE])
        self._finish([(request, mine)], lambda: f"all ranks to come to {line}")
        rows = [everybody[i * len(mine) : (i + 1) * len(mine)] for i in range(self.count)]
        if any([bytes(row[: len(digest)]) != digest for row in rows]):
            lines = [bytes(row[len(digest) :]).decode(errors="replace").strip() for row in rows]
            said = "; ".join([f"rank {i}: {text}" for i, text in enumerate(lines)])
            raise RankError(
                f"the ranks compute different things: {said}. All of them run one program; what "
                "depends on the rank must not decide what is computed"
            )

    def is_here(self, place: int) -> bool:
        return place == self.rank

    def exchange(self, messages: Sequence[Message]) -> None:
        check(messages)
        self._copy_own(messages)
        with self._placed(messages) as incoming:
            for message, address in incoming:
                target = message.target.ensure_allocated()
                if address:
                    ctypes.memmove(target.address, address, target.nbytes)

    @contextmanager
    def lend(self, messages: Sequence[Message]) -> Iterator[list[Buffer]]:
        check(messages)
        self._copy_own(messages)
        with self._placed(messages) as incoming:
            found: dict[int, Buffer] = {}
            for message, address in incoming:
                target = message.target
                found[id(message)] = (
                    Buffer.from_opaque(target.device, target.size, target.dtype, address)
                    if address
                    else target
                )
            mine = [message for message in messages if message.receiver == self.rank]
            yield [found.get(id(message), message.target) for message in mine]

    def _copy_own(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.sender == message.receiver == self.rank:
                message.target.copy_from(message.source)

    @contextmanager
    def _placed(self, messages: Sequence[Message]) -> Iterator[Iterator[tuple[Message, int]]]:
        """What comes to this rank, and at which address it is here; 0: it is in its target. Inside,
        what is sent stays as it is."""
        given: dict[int, list[Message]] = {}
        taken: dict[int, list[Message]] = {}
        for message in messages:
            if message.sender != message.receiver and message.source.nbytes:
                if message.sender == self.rank:
                    given.setdefault(message.receiver, []).append(message)
                elif message.receiver == self.rank:
                    taken.setdefault(message.sender, []).append(message)
        pending: list[Any] = []
        for rank, sent in given.items():
            places = array("q", [self._place_of(m.source, rank) for m in sent])
            if rank in self._windows:
                pending.append(self._start(self.comm.Isend, places, rank, _PLACE))
            for message, place in zip(sent, places, strict=True):
                if place < 0:
                    pending += self._start_bytes(self.comm.Isend, message.source, rank)

        def come() -> Iterator[tuple[Message, int]]:
            for rank, received in taken.items():
                places = array("q", [-1] * len(received))
                window = self._windows.get(rank)
                if window is not None:
                    request = self._start(self.comm.Irecv, places, rank, _PLACE)
                    self._finish([request], partial("data of rank {}".format, rank))
                late = []
                for message, place in zip(received, places, strict=True):
                    if place < 0:
                        target = message.target.ensure_allocated()
                        late += self._start_bytes(self.comm.Irecv, target, rank)
                self._finish(late, partial("data of rank {}".format, rank))
                for message, place in zip(received, places, strict=True):
                    yield message, 0 if window is None or place < 0 else window.base + place

        incoming = come()
        yield incoming
        for _ in incoming:
            pass
        nothing = array("q")
        for rank in taken:
            if rank in self._windows:
                pending.append(self._start(self.comm.Isend, nothing, rank, _READ))
        for rank in given:
            if rank in self._windows:
                pending.append(self._start(self.comm.Irecv, array("q"), rank, _READ))
        self._finish(pending, lambda: f"ranks {sorted(given)} to take data")

    def _place_of(self, source: Buffer, rank: int) -> int:
        """Where a rank finds a memory; -1: it has to be sent."""
        if self.memory is None or rank not in self._windows:
            return -1
        return self.memory.offset_of(source.address)

    def _start(self, way: Any, numbers: array[int], rank: int, kind: int) -> Any:
        # the array is kept with its request
        return way([numbers, self._mpi.INT64_T], rank, kind), numbers

    def _start_bytes(self, way: Any, memory: Buffer, rank: int) -> list[Any]:
        data = memory.as_memoryview(allow_zero_copy=True)
        pieces = [data[start : start + _PIECE] for start in range(0, data.nbytes, _PIECE)]
        return [(way([piece, self._mpi.BYTE], rank, _BYTES), piece) for piece in pieces]

    def barrier(self) -> None:
        """Returns when all ranks have come here."""
        self._finish([(self.comm.Ibarrier(), None)], lambda: "all ranks to come to a barrier")

    def _finish(self, requests: Sequence[Any], what: Callable[[], str]) -> None:
        """Wait for messages, but not for ever."""
        started = 0.0
        waiting = [request for request, _ in requests]
        while not self._mpi.Request.Testall(waiting):
            now = time.monotonic()
            if not started:
                started = now
            elif now - started > RANK_SECONDS.value:
                print(
                    f"weft: rank {self.rank} waited {RANK_SECONDS.value} seconds for {what()}; it "
                    "ends all others (RANK_SECONDS is the limit)",
                    file=sys.stderr,
                    flush=True,
                )
                self.comm.Abort(1)
            elif now - started > _SPIN:
                time.sleep(_NAP)


def _cores() -> tuple[int, ...]:
    """Which cores this process may run on, where the system says so."""
    found = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return tuple(sorted(found))


def _boot() -> str:
    """Which start of which machine this is: names of hosts repeat."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


_ranks: list[Ranks] = []


def ranks() -> Ranks:
    """Those of this program."""
    if not _ranks:
        _ranks.append(Ranks())
    return _ranks[0]


class MPIDevice(CPUDevice):
    """The processor of one rank."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ranks = ranks()
        unit = name.partition(":")[2] or "0"
        if not unit.isdigit() or int(unit) >= self.ranks.count:
            raise DeviceError(
                f"{name} is the device of a rank, of which there are {self.ranks.count}: start as "
                f"many with mpirun -n {int(unit) + 1 if unit.isdigit() else 2} python ..."
            )
        self.rank = int(unit)
        self.is_here = self.rank == self.ranks.rank
        self.reads_at = "CPU"
        if self.is_here and self.ranks.memory is not None:
            self.allocator = HostAllocator(name, self.ranks.memory)
        if not self.is_here:
            self.allocator = NullAllocator(name)
            self.is_host = self.has_address = False
            self.memory_kind = None  # type: ignore[assignment]
            self.graph = None  # type: ignore[assignment]
