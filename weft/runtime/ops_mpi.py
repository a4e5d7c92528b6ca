"""MPI: one process of several as a device, `MPI:0`, `MPI:1`, ... under `mpirun -n 2 python ...`.

In: what the CPU gets. Out: programs and memory of the own process's device; of the others neither:
they are there to be named. Opened by the registry, only when asked for; needs `mpi4py`.
Invariant: all processes run the same program and so the same steps, in the same order. Each does
those of its own device, and a transfer is a message between the two that it concerns. Before a
schedule runs, its steps are compared: a process that does something else is an error, not a hang.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from typing import Any

from weft.contracts import Allocator
from weft.device import Buffer
from weft.errors import DeviceError, RankError
from weft.knobs import RANK_SECONDS
from weft.runtime.ops_cpu import CPUDevice
from weft.runtime.ops_null import NullAllocator

# bytes of one message: counts of MPI are ints
_PIECE = 1 << 30
# seconds between two looks at a message that was not there at once
_NAP = 2e-5
# of the line that a rank is at, in what ranks compare
_LINE_BYTES = 160


class Ranks:
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
        if self.count > 1:
            self._end_together()

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
        self._finish(request, lambda: f"all ranks to come to {line}")
        rows = [everybody[i * len(mine) : (i + 1) * len(mine)] for i in range(self.count)]
        if any([bytes(row[: len(digest)]) != digest for row in rows]):
            lines = [bytes(row[len(digest) :]).decode(errors="replace").strip() for row in rows]
            said = "; ".join([f"rank {i}: {text}" for i, text in enumerate(lines)])
            raise RankError(
                f"the ranks compute different things: {said}. All of them run one program; what "
                "depends on the rank must not decide what is computed"
            )

    def send(self, source: Buffer, rank: int) -> None:
        """The bytes of a memory, to another rank."""
        data = source.as_memoryview(allow_zero_copy=True)
        for start in range(0, data.nbytes, _PIECE):
            piece = [data[start : start + _PIECE], self._mpi.BYTE]
            self._finish(self.comm.Isend(piece, dest=rank), lambda: f"rank {rank} to take data")

    def receive(self, target: Buffer, rank: int) -> None:
        """The bytes of a memory, from another rank."""
        data = target.ensure_allocated().as_memoryview(allow_zero_copy=True)
        for start in range(0, data.nbytes, _PIECE):
            piece = [data[start : start + _PIECE], self._mpi.BYTE]
            self._finish(self.comm.Irecv(piece, source=rank), lambda: f"data of rank {rank}")

    def broadcast(self, memory: Buffer, rank: int) -> None:
        """The bytes that one rank has, in the memory of all."""
        data = memory.ensure_allocated().as_memoryview(allow_zero_copy=True)
        for start in range(0, data.nbytes, _PIECE):
            piece = [data[start : start + _PIECE], self._mpi.BYTE]
            self._finish(self.comm.Ibcast(piece, root=rank), lambda: f"data of rank {rank}")

    def barrier(self) -> None:
        """Returns when all ranks have come here."""
        self._finish(self.comm.Ibarrier(), lambda: "all ranks to come to a barrier")

    def _finish(self, request: Any, what: Callable[[], str]) -> None:
        """Wait for a message, but not for ever."""
        started = 0.0
        while not request.Test():
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
            elif now - started > 0.001:
                time.sleep(_NAP)


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
        if not self.is_here:
            self.allocator: Allocator = NullAllocator(name)
            self.is_host = self.has_address = False
            self.memory_kind = None  # type: ignore[assignment]
            self.graph = None  # type: ignore[assignment]
