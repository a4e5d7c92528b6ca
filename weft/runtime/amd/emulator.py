"""The emulator: allocations, launches of kernels, and what went wrong.

In: programs made of machine code, memory of the host that was registered, grids. Out: changed
memory, counters, or an `EmulatorError` that names the instruction and the address. On top of
`program.py`; the queue of the AMD device gives it packets.
Invariant: the memory that a kernel can touch is what was registered, its group's shared memory and
its lanes' scratch. Everything else is an error, never a fault of the process.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from array import array
from dataclasses import dataclass

from weft.errors import DeviceError
from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.control import LAUNCH_WORDS
from weft.runtime.amd.helpers import HELPERS
from weft.runtime.amd.program import Program

_ENDLESS = 1 << 62
_POISON = 0xA5


class EmulatorError(DeviceError):
    """What a kernel did that it must not do."""


class Allocations:
    """Memory that kernels may touch, sorted, for the search by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._lock = threading.Lock()
        self.turn = 0  # grows whenever something changes
        self._table: tuple[int, array[int]] = (-1, array("Q"))

    def register(self, address: int, nbytes: int) -> None:
        """Lets kernels touch so many bytes."""
        with self._lock:
            place = bisect.bisect_left(self._starts, address)
            self._starts.insert(place, address)
            self._sizes.insert(place, nbytes)
            self.turn += 1

    def forget(self, address: int) -> None:
        with self._lock:
            place = bisect.bisect_left(self._starts, address)
            if place < len(self._starts) and self._starts[place] == address:
                del self._starts[place]
                del self._sizes[place]
                self.turn += 1

    def table(self) -> array[int]:
        """Pairs of start and end."""
        with self._lock:
            turn, found = self._table
            if turn != self.turn:
                pairs = zip(self._starts, self._sizes, strict=True)
                found = array("Q", [x for start, size in pairs for x in (start, start + size)])
                self._table = (self.turn, found)
            return found

    def nearest(self, address: int) -> str:
        """What is near an address, for messages."""
        with self._lock:
            place = bisect.bisect_right(self._starts, address) - 1
            if place < 0:
                return "below all memory of the device"
            start, size = self._starts[place], self._sizes[place]
            distance = address - start
            where = (
                f"{distance} bytes into" if distance < size else f"{distance - size} bytes after"
            )
            return f"{where} an allocation of {size} bytes at {start:#x}"


@dataclass(frozen=True)
class Start:
    """How waves of a kernel begin: what the kernel's descriptor says."""

    scalars: tuple[int, ...]  # user registers from 0 on
    # offsets of the words that the group's numbers go to; BIN: nowhere
    group_x: int = state.BIN
    group_y: int = state.BIN + 4
    group_z: int = state.BIN + 8
    packed_yz: int = 0
    scratch_bytes: int = 0  # of a lane
    shared_bytes: int = 0
    mode: int = 0xF0
    entry: int = 0  # the offset of the first instruction


class Launch:
    """The states of one group's waves, ready to run a grid."""

    def __init__(
        self,
        program: Program,
        start: Start,
        grid: tuple[int, int, int],
        local: tuple[int, int, int],
        code_address: int,
        allocations: Allocations,
        budget: int = _ENDLESS,
        shared_bytes: int = 0,
    ) -> None:
        self.program = program
        self.start = start
        self.grid = grid
        self.local = local
        shape = program.shape
        lanes = shape.lanes
        threads = prod(local)
        self.waves = -(-threads // lanes)
        self.allocations = allocations
        self.turn = allocations.turn
        self.table = allocations.table()
        self._states = _aligned(self.waves * shape.wave_bytes)
        self.states = self._states[1]
        self.shared_bytes = max(start.shared_bytes, shared_bytes)
        self._shared = _aligned(max(64, self.shared_bytes))
        ctypes.memset(self._shared[1], _POISON, max(64, self.shared_bytes))
        scratch = start.scratch_bytes
        self._scratch = _aligned(max(64, scratch * 64 * self.waves))
        self._code_address, self._budget = code_address, budget
        self.template = self._template(code_address, budget)
        self.vectors = _thread_numbers(local, self.waves, lanes)
        self.masks = array("Q", [_mask(threads - lanes * w, lanes) for w in range(self.waves)])
        self.words = self._words()

    def _template(self, code_address: int, budget: int) -> ctypes.Array[ctypes.c_char]:
        """The scalars and fields that every wave begins with."""
        found = (ctypes.c_char * state.VGPRS)()
        base = ctypes.addressof(found)
        for number, value in enumerate(self.start.scalars):
            ctypes.c_uint32.from_address(base + 4 * number).value = value & 0xFFFFFFFF
        program = self.program
        for offset, value in (
            (state.STATUS, state.RUNNING),
            (state.LDS, self._shared[1]),
            (state.LDS_BYTES, self.shared_bytes),
            (state.ALLOCATIONS, self.table.buffer_info()[0]),
            (state.ALLOCATION_COUNT, len(self.table) // 2),
            (state.BUDGET, budget),
            (state.SCRATCH, self._scratch[1]),
            (state.SCRATCH_BYTES, self.start.scratch_bytes),
            (state.MODE, self.start.mode),
            (state.CODE, code_address),
            (state.CODE_BYTES, program.code_bytes),
            (state.RECORD_OF_WORD, program.record_of_word.buffer_info()[0]),
            (state.RECORDS, program.base),
            (state.FIND, HELPERS.find.address),
            (state.CONFLICTS, HELPERS.conflicts.address if program.counts_conflicts else 0),
        ):
            ctypes.c_uint64.from_address(base + offset).value = value
        return found

    def _words(self) -> array[int]:
        start, shape = self.start, self.program.shape
        values = {
            "groups_x": self.grid[0], "groups_y": self.grid[1], "groups_z": self.grid[2],
            "waves": self.waves, "states": self.states, "state_bytes": shape.wave_bytes,
            "template": ctypes.addressof(self.template),
            "vectors": self.vectors.buffer_info()[0], "vector_bytes": shape.register_bytes,
            "masks": self.masks.buffer_info()[0],
            "first": self.program.address_of(start.entry),
            "id_x": start.group_x, "id_y": start.group_y, "id_z": start.group_z,
            "id_packed": start.packed_yz, "head_bytes": state.HEAD_BYTES,
        }  # fmt: skip
        return array("Q", [values.get(name, 0) for name in LAUNCH_WORDS])

    def run(self) -> None:
        """Runs all groups, or raises what stopped a wave."""
        if prod(self.grid) == 0:
            return
        if self.turn != self.allocations.turn:
            self.renew()
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(HELPERS.launch.address)
        if function(self.words.buffer_info()[0]):
            raise self.error()

    def renew(self) -> None:
        """Its program was made anew, or memory: what was given back must not be touched."""
        self.turn, self.table = self.allocations.turn, self.allocations.table()
        self.program.forget_allocations()
        self.template = self._template(self._code_address, self._budget)
        self.words = self._words()

    def begin_group(self, group: tuple[int, int, int]) -> None:
        """What `launch` does before the waves of a group run."""
        shape, start = self.program.shape, self.start
        for axis, number in zip("xyz", group, strict=True):
            self.words[LAUNCH_WORDS.index(f"at_{axis}")] = number
        for wave in range(self.waves):
            base = self.wave(wave)
            ctypes.memmove(base, self.template, state.HEAD_BYTES)
            ctypes.c_uint64.from_address(base + 4 * state.EXEC).value = self.masks[wave]
            source = self.vectors.buffer_info()[0] + wave * shape.register_bytes
            ctypes.memmove(base + state.VGPRS, source, shape.register_bytes)
            scratch = ctypes.c_uint64.from_address(base + state.SCRATCH)
            scratch.value += wave * start.scratch_bytes * 64
            places = (start.group_x, start.group_y, start.group_z)
            for place, number in zip(places, group, strict=True):
                ctypes.c_uint32.from_address(base + place).value = number
            if start.packed_yz:
                packed = group[1] | group[2] << 16
                ctypes.c_uint32.from_address(base + start.packed_yz).value = packed
            entry = self.program.address_of(start.entry)
            ctypes.c_uint64.from_address(base + state.NEXT).value = entry

    # ------------------------------------------------------------ what a wave holds
    def wave(self, number: int) -> int:
        return self.states + number * self.program.shape.wave_bytes

    def field(self, wave: int, offset: int) -> int:
        return int(ctypes.c_uint64.from_address(self.wave(wave) + offset).value)

    def total(self, offset: int) -> int:
        """What all waves counted together."""
        return sum([self.field(wave, offset) for wave in range(self.waves)])

    def stopped_wave(self) -> int | None:
        for wave in range(self.waves):
            if self.field(wave, state.STATUS) not in (
                state.RUNNING,
                state.ENDED,
                state.AT_BARRIER,
            ):
                return wave
        return None

    def error(self) -> EmulatorError:
        """What stopped a wave, in the user's terms."""
        wave = self.stopped_wave()
        if wave is None:
            return EmulatorError("a wave stopped, but none says why")
        program = self.program
        status = self.field(wave, state.STATUS)
        number = program.line_at(self.field(wave, state.FAULT_RECORD))
        at = self.field(wave, state.FAULT_ADDRESS)
        group = tuple(self.words[LAUNCH_WORDS.index(f"at_{axis}")] for axis in "xyz")
        if number >= len(program.lines):
            where = "the end of the code"
        else:
            line = program.lines[number]
            where = f"{line} at offset {line.offset:#x}"
        what = {
            state.BAD_ADDRESS: f"touches address {at:#x}, {self.allocations.nearest(at)}",
            state.BAD_LDS: f"touches byte {at} of {self.shared_bytes} that its group shares",
            state.BAD_SCRATCH: f"touches byte {at} of {self.start.scratch_bytes} of its scratch",
            state.BAD_JUMP: f"jumps to {at:#x}, where no instruction begins",
            state.UNSUPPORTED: f"is not emulated: {program.problems.get(number, '')}",
            state.OUT_OF_BUDGET: "has jumped backwards more often than the limit allows",
            state.STOPPED: "is a breakpoint",
            state.BAD_REGISTER: f"names a register {at} further than its own, beyond the last",
        }.get(status, f"stopped with status {status}")
        if number >= len(program.lines):
            what = "was reached without s_endpgm"
        return EmulatorError(f"{program.arch}: {where} {what} (group {group}, wave {wave})")


def _aligned(nbytes: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Memory that begins at a multiple of 64 bytes, and its address."""
    memory = (ctypes.c_char * (nbytes + 64))()
    return memory, -(-ctypes.addressof(memory) // 64) * 64


def _mask(threads: int, lanes: int) -> int:
    return (1 << max(0, min(threads, lanes))) - 1


def _thread_numbers(local: tuple[int, int, int], waves: int, lanes: int) -> array[int]:
    """The first vector register of each wave: x, y and z in ten bits each."""
    found = array("I", bytes(4 * waves * lanes))
    x_size, y_size, z_size = local
    for number in range(min(waves * lanes, x_size * y_size * z_size)):
        x, rest = number % x_size, number // x_size
        found[number] = x | (rest % y_size) << 10 | (rest // y_size) << 20
    return found
