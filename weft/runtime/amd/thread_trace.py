"""Thread traces of the emulator: what waves ran, when a GPU might have run it, as SQTT.

In: a launch whose program notes each instruction. Out: `ThreadTrace`: a stream of packets for each
SIMD, as hardware writes them, and what the decoder reads in them. On top of the emulator; the
viewer and `python -m weft.amd.trace` show it.
Invariant: which instructions a wave ran, and in which order, is what the emulator ran. Times are
those of a model, which is written down here: no hardware was measured for them.

The model: four SIMDs issue one instruction a cycle each. The waves of a group are dealt to them in
turn; a group begins once all its waves have slots. A wave issues in order: after an instruction it
is ready again when `_CYCLES` have passed. What memory brings comes `_LATENCY` later, which only
waits notice; a barrier ends when all waves of the group are there.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import heapq
import re
from array import array
from dataclasses import dataclass, field
from typing import Any

from weft.amd.sqtt import OPERATIONS, family_of, follow, waves
from weft.amd.sqtt_write import Place, StreamWriter
from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.accesses import access_of
from weft.runtime.amd.control import BRANCHES
from weft.runtime.amd.emulator import Launch
from weft.runtime.amd.forms import name_of
from weft.runtime.amd.kinds import kind_of
from weft.runtime.amd.program import Line

_SIMDS = 4
_SLOTS = {"cdna": 8, "rdna3": 16, "rdna4": 16}
# cycles from an instruction to the wave's next one, by kind
_CYCLES = {"matrix": 16, "control": 4, "scalar memory": 1, "memory": 2, "shared": 2, "scratch": 2}
_CDNA_VECTOR = 4  # 64 lanes on 16 units
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
# cycles until memory has answered: what counts it, what it takes
_LATENCY = {
    "memory": ("vm", 400), "scratch": ("vm", 400), "scalar memory": ("lgkm", 120),
    "shared": ("lgkm", 64),
}  # fmt: skip
_STORES = 200
_WAITS = re.compile(r"(vmcnt|lgkmcnt|vscnt|expcnt)\((\d+)\)")
_WAIT_NAMES = {
    "s_wait_loadcnt": "vm", "s_wait_kmcnt": "lgkm", "s_wait_dscnt": "lgkm",
    "s_wait_storecnt": "vs", "s_waitcnt_vscnt": "vs",
}  # fmt: skip


class Entries:
    """Memory that traced helpers write to while a launch runs."""

    def __init__(self, launch: Launch, most: int) -> None:
        self.launch = launch
        self._memory = array("Q", bytes(16 * (most + 2)))
        self.start = self._memory.buffer_info()[0] + 16
        self._memory[0], self._memory[1] = self.start, self.start + 16 * most
        for wave in range(launch.waves):
            at = ctypes.c_uint64.from_address(launch.wave(wave) + state.TRACE)
            at.value = self._memory.buffer_info()[0]

    def runs(self) -> list[WaveRun]:
        """The waves that were traced to their end, group after group."""
        launch, count = self.launch, (self._memory[0] - self.start) // 16
        size, base = launch.program.shape.wave_bytes, launch.states
        lines = launch.program.lines
        ends = {n for n, line in enumerate(lines) if _name(line).startswith("s_endpgm")}
        found: list[WaveRun] = []
        group, current, left = 0, _new_group(0, launch.waves), launch.waves
        for entry in range(2, 2 + 2 * count, 2):
            wave, line = (self._memory[entry] - base) // size, self._memory[entry + 1]
            current[wave].lines.append(line)
            if line in ends:
                left -= 1
                if not left:
                    found += current
                    group += 1
                    current, left = _new_group(group, launch.waves), launch.waves
        return found


def _new_group(group: int, waves: int) -> list[WaveRun]:
    return [WaveRun(group, wave) for wave in range(waves)]


@dataclass
class WaveRun:
    """One wave: its group, its number there, the lines that it ran."""

    group: int
    wave: int
    lines: list[int] = field(default_factory=list)


@dataclass
class _Running:
    """A wave on its SIMD."""

    run: WaveRun
    place: Place
    position: int = 0
    answers: dict[str, list[int]] = field(default_factory=lambda: {"vm": [], "lgkm": [], "vs": []})


@dataclass(frozen=True)
class _Cost:
    """What the model asks about a line."""

    packet: str
    operation: int
    cycles: int
    counter: str = ""  # that an answer of memory is counted by
    latency: int = 0
    waits: tuple[tuple[str, int], ...] = ()
    is_barrier: bool = False
    is_end: bool = False
    is_branch: bool = False


class ThreadTrace:
    """What a launch did, wave by wave; the streams are made when they are asked for."""

    def __init__(self, name: str, launch: Launch, entries: Entries) -> None:
        self.name = name
        self._entries = entries
        self.arch = launch.program.arch
        self.lines = launch.program.lines
        self.entry = launch.start.entry
        self.groups = prod(launch.grid)
        self._waves = launch.waves

    @functools.cached_property
    def runs(self) -> list[WaveRun]:
        """The waves of whole groups, in the order in which the emulator ran them."""
        return self._entries.runs()

    @functools.cached_property
    def streams(self) -> list[bytes]:
        """The packets of each SIMD."""
        return _Model(self).run()

    def listing(self) -> list[tuple[int, int, str, int]]:
        """Offset, bytes, text and the offset that it branches to (or -1) of each line."""
        found = []
        for line in self.lines:
            target = None if line.instruction is None else line.instruction.branch_target
            found.append((line.offset, line.size, str(line), -1 if target is None else target))
        return found

    def recorded(self) -> dict[str, Any]:
        """As one run of a file of recorded traces."""
        return {
            "name": f"{self.arch}/{self.name}",
            "traces": [
                {"se": number, "blob": base64.b64encode(data).decode()}
                for number, data in enumerate(self.streams)
            ],
            "kernel": {"entry": self.entry, "lines": self.listing()},
        }

    def shown(self) -> dict[str, Any]:
        """What the viewer draws: waves as the decoder reads them in the streams.

        `waves` are rows of SIMD, slot, start, end, first instruction and how many; `times` and
        `at` are all instructions in order: when, and which line.
        """
        listing = self.listing()
        numbers = {offset: number for number, (offset, *_) in enumerate(listing)}
        rows: list[tuple[int, ...]] = []
        times: list[int] = []
        at: list[int] = []
        for simd, data in enumerate(self.streams):
            for wave in waves(data, self.arch):
                offsets = follow(listing, self.entry, wave.issued, self.arch)
                end = wave.start if wave.end is None else wave.end
                rows.append((simd, wave.place[3], wave.start, end, len(times), len(offsets)))
                times += [time for time, *_ in wave.issued[: len(offsets)]]
                at += [numbers[offset] for offset in offsets]
        return {
            "arch": self.arch,
            "groups": [len(self.runs) // max(1, self._waves), self.groups],
            "offsets": [offset for offset, *_ in listing],
            "lines": [text for _, _, text, _ in listing],
            "kinds": [kind_of(line) for line in self.lines],
            "waves": rows,
            "times": times,
            "at": at,
        }


class _Model:
    """When waves issue what: see the top of this file."""

    def __init__(self, trace: ThreadTrace) -> None:
        self.family = family_of(trace.arch)
        self.costs = [_cost_of(line, self.family) for line in trace.lines]
        self.writers = [StreamWriter(trace.arch) for _ in range(_SIMDS)]
        self.free = [0] * _SIMDS  # the cycle in which a SIMD may issue next
        self.slots = [list(range(_SLOTS[self.family])) for _ in range(_SIMDS)]
        groups: dict[int, list[WaveRun]] = {}
        for run in trace.runs:
            groups.setdefault(run.group, []).append(run)
        self.groups = list(groups.values())
        self.next_group = 0
        self.ready: list[tuple[int, int, _Running]] = []
        self.turn = 0
        self.alive: dict[int, int] = {}  # waves of a group that have not ended
        self.waiting: dict[int, list[_Running]] = {}

    def run(self) -> list[bytes]:
        self._begin(0)
        while self.ready:
            time, _, running = heapq.heappop(self.ready)
            simd = running.place.simd
            if self.free[simd] > time:
                self._queue(self.free[simd], running)
            else:
                self._step(time, running)
        return [writer.data() for writer in self.writers]

    def _queue(self, time: int, running: _Running) -> None:
        self.turn += 1
        heapq.heappush(self.ready, (time, self.turn, running))

    def _begin(self, time: int) -> None:
        """Groups begin while there are slots for all their waves."""
        while self.next_group < len(self.groups):
            group = self.groups[self.next_group]
            taken: list[tuple[WaveRun, int]] = []
            wanted = [0] * _SIMDS
            for run in group:
                simd = (run.group * len(group) + run.wave) % _SIMDS
                wanted[simd] += 1
                taken.append((run, simd))
            if any([w > len(slots) for w, slots in zip(wanted, self.slots, strict=True)]):
                return
            self.next_group += 1
            self.alive[group[0].group] = len(group)
            for run, simd in taken:
                place = Place(0, 0, simd, self.slots[simd].pop(0))
                self.writers[simd].start(time, place)
                self._queue(time + 1, _Running(run, place))

    def _step(self, time: int, running: _Running) -> None:
        run = running.run
        cost = self.costs[run.lines[running.position]]
        for counter, most in cost.waits:
            answers = running.answers[counter]
            late = answers[: len(answers) - most] if most else answers
            if late and max(late) > time:
                self._queue(max(late), running)
                return
        simd = running.place.simd
        self.free[simd] = time + 1
        running.position += 1
        if cost.is_end:
            self._end(time, running)
            return
        operation = cost.operation
        if cost.is_branch:
            following = run.lines[running.position]
            is_taken = following != run.lines[running.position - 1] + 1
            operation = OPERATIONS[self.family]["taken" if is_taken else "not taken"]
        self.writers[simd].issue(time, running.place, cost.packet, operation)
        if cost.counter:
            running.answers[cost.counter].append(time + cost.latency)
        for counter, most in cost.waits:
            answers = running.answers[counter]
            del answers[: len(answers) - most]
        if cost.is_barrier:
            self.waiting.setdefault(run.group, []).append(running)
            self._open_barrier(time, run.group)
        else:
            self._queue(time + cost.cycles, running)

    def _end(self, time: int, running: _Running) -> None:
        simd, group = running.place.simd, running.run.group
        self.writers[simd].end(time, running.place)
        self.slots[simd].append(running.place.slot)
        self.slots[simd].sort()
        self.alive[group] -= 1
        self._open_barrier(time, group)
        self._begin(time)

    def _open_barrier(self, time: int, group: int) -> None:
        waiting = self.waiting.get(group, [])
        if waiting and len(waiting) == self.alive[group]:
            del self.waiting[group]
            for running in waiting:
                self._queue(time + 1, running)


def _name(line: Line) -> str:
    return "" if line.instruction is None else name_of(line.instruction)


def _cost_of(line: Line, family: str) -> _Cost:
    name, kind = _name(line), kind_of(line)
    operations = OPERATIONS[family]
    if name.startswith("s_endpgm"):
        return _Cost("", 0, 1, is_end=True)
    if name in ("s_barrier", "s_barrier_wait"):
        return _Cost("immediate", operations["other"], 1, is_barrier=True)
    if name in BRANCHES:
        return _Cost("instruction", 0, _CYCLES["control"], is_branch=True)
    if kind == "wait":
        return _Cost("immediate", operations["other"], 1, waits=_waits_of(name, str(line)))
    if kind == "hint" or name.startswith("s_barrier"):
        return _Cost("immediate", operations["other"], 1)
    if kind in ("vector", "dual", "matrix"):
        cycles = _CDNA_VECTOR if family == "cdna" else 4 if _TRANSCENDENTAL.match(name) else 1
        return _Cost("valu", operations["vector"], _CYCLES.get(kind, cycles))
    if kind not in _LATENCY:
        return _Cost("instruction", operations["scalar"], _CYCLES.get(kind, 1))
    counter, latency = _LATENCY[kind]
    access = access_of(name)
    is_store = access is not None and not access.is_load
    if is_store and counter == "vm":
        counter, latency = ("vm" if family == "cdna" else "vs"), _STORES
    words = {"scalar memory": "scalar memory", "shared": "shared"}.get(kind, "memory")
    operation = words if words == "scalar memory" else f"{words} {'store' if is_store else 'load'}"
    return _Cost("instruction", operations[operation], _CYCLES[kind], counter, latency)


def _waits_of(name: str, text: str) -> tuple[tuple[str, int], ...]:
    """Which answers a wait waits for: the counter, and how many may be left."""
    if name == "s_waitcnt":
        short = {"vmcnt": "vm", "lgkmcnt": "lgkm", "vscnt": "vs"}
        found = [(short.get(key, ""), int(count)) for key, count in _WAITS.findall(text)]
        return tuple([pair for pair in found if pair[0]])
    counters = [_WAIT_NAMES[name]] if name in _WAIT_NAMES else []
    if "loadcnt_dscnt" in name or "storecnt_dscnt" in name:
        counters = ["vm" if "loadcnt" in name else "vs", "lgkm"]
    number = re.search(r"(0x[0-9a-f]+|\d+)$", text)
    value = int(number[1], 0) if number else 0
    if len(counters) == 2:
        return ((counters[0], value >> 8 & 63), (counters[1], value & 63))
    return tuple([(counter, value) for counter in counters])
