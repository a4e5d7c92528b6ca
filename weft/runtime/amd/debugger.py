"""Stepping: one instruction after another, breakpoints, and a trace of every register.

In: a launch whose program stops before each instruction, or before some. Out: `Debugger`: the
registers of each wave, and what each step changed. Beside the emulator, whose helpers it runs.
Invariant: a step runs the same helpers as a launch; only what runs between them differs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from weft.errors import ArgumentError
from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.emulator import Launch
from weft.runtime.amd.program import Line

_HELPER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_SCALARS = state.SGPR_COUNT + 1  # and the condition


@dataclass(frozen=True)
class Step:
    """One instruction of one wave, and the registers that it changed: name -> values."""

    group: tuple[int, int, int]
    wave: int
    line: Line
    changes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        changed = ", ".join(
            f"{name}={' '.join(f'{v:x}' for v in values[:4])}{'...' if len(values) > 4 else ''}"
            for name, values in self.changes.items()
        )
        return f"wave {self.wave} {self.line.offset:#06x} {self.line}  {changed}".rstrip()


class Debugger:
    """Groups of a launch one after another, under the user's control.

    `breakpoints` are offsets of instructions; without any, every instruction is one.
    """

    def __init__(self, launch: Launch, breakpoints: Collection[int] = ()) -> None:
        offsets = {line.offset for line in launch.program.lines}
        unknown = [offset for offset in breakpoints if offset not in offsets]
        if unknown:
            raise ArgumentError(f"no instruction begins at {', '.join(map(hex, unknown))}")
        launch.program.build(stops=breakpoints, every=not breakpoints)
        self.launch = launch
        launch.renew()
        self.groups = self._all_groups()
        self.group = (0, 0, 0)
        self.is_done = prod(launch.grid) == 0
        if not self.is_done:
            self._next_group()

    def _all_groups(self) -> Iterator[tuple[int, int, int]]:
        x, y, z = self.launch.grid
        for k in range(z):
            for j in range(y):
                for i in range(x):
                    yield i, j, k

    def _next_group(self) -> bool:
        group = next(self.groups, None)
        if group is None:
            self.is_done = True
            return False
        self.group = group
        self.launch.begin_group(group)
        self.current = 0
        return True

    # ------------------------------------------------------------ registers
    def scalar(self, index: int, wave: int | None = None) -> int:
        """A scalar register; 128 is the condition."""
        base = self.launch.wave(self.current if wave is None else wave)
        offset = state.SCC if index == state.SGPR_COUNT else 4 * index
        return int(ctypes.c_uint32.from_address(base + offset).value)

    def vector(self, index: int, wave: int | None = None) -> tuple[int, ...]:
        """A vector register, lane by lane."""
        shape = self.launch.program.shape
        base = self.launch.wave(self.current if wave is None else wave) + shape.vector(index)
        return tuple((ctypes.c_uint32 * shape.lanes).from_address(base))

    def _snapshot(self) -> bytes:
        return ctypes.string_at(
            self.launch.wave(self.current), self.launch.program.shape.wave_bytes
        )

    def _changes(self, before: bytes) -> dict[str, tuple[int, ...]]:
        after = self._snapshot()
        found: dict[str, tuple[int, ...]] = {}
        if after == before:
            return found
        for index in range(_SCALARS):
            at = state.SCC if index == state.SGPR_COUNT else 4 * index
            if before[at : at + 4] != after[at : at + 4]:
                found[_scalar_name(index)] = (int.from_bytes(after[at : at + 4], "little"),)
        shape = self.launch.program.shape
        size = shape.register_bytes
        for number in range((shape.wave_bytes - state.VGPRS) // size):
            at = state.VGPRS + number * size
            if before[at : at + size] != after[at : at + size]:
                words = memoryview(after[at : at + size]).cast("I")
                name = f"v{number}" if number < state.VGPR_COUNT else f"a{number - 256}"
                found[name] = tuple(words)
        return found

    # ------------------------------------------------------------ going on
    def step(self) -> Step | None:
        """Runs from a breakpoint to the next one; None when the grid is done.

        Without breakpoints that is one instruction. The step says what was changed until then.
        """
        while not self.is_done:
            launch = self.launch
            wave = self.current
            if launch.field(wave, state.STATUS) in (state.ENDED, state.AT_BARRIER):
                if not self._turn():
                    return None
                continue
            if launch.field(wave, state.STATUS) != state.STOPPED:
                # at the beginning and after a barrier: to the first place to stop at
                self._run(wave)
                continue
            line = self._line()
            before = self._snapshot()
            self._run(wave)
            return Step(self.group, wave, line, self._changes(before))
        return None

    def stop_at_first(self) -> Line | None:
        """Runs to the first breakpoint, and returns the line that it stands before."""
        while not self.is_done:
            status = self.launch.field(self.current, state.STATUS)
            if status == state.STOPPED:
                return self._line()
            if status in (state.ENDED, state.AT_BARRIER):
                if not self._turn():
                    return None
                continue
            self._run(self.current)
        return None

    def trace(self, limit: int = 1 << 30) -> Iterator[Step]:
        """Every step, up to a limit."""
        for _ in range(limit):
            step = self.step()
            if step is None:
                return
            yield step

    def _line(self) -> Line:
        """The line that the current wave stands before."""
        launch = self.launch
        record = launch.field(self.current, state.FAULT_RECORD)
        number = launch.program.line_at(record)
        lines = launch.program.lines
        return lines[min(number, len(lines) - 1)]

    def _run(self, wave: int) -> None:
        launch = self.launch
        base = launch.wave(wave)
        ctypes.c_uint64.from_address(base + state.STATUS).value = state.RUNNING
        record = launch.field(wave, state.NEXT)
        helper = ctypes.c_uint64.from_address(record).value
        _HELPER(helper)(base, record)
        status = launch.field(wave, state.STATUS)
        if status not in (state.STOPPED, state.ENDED, state.AT_BARRIER):
            raise launch.error()

    def _turn(self) -> bool:
        """Another wave of the group, all of them after a barrier, or the next group."""
        launch = self.launch
        for wave in range(self.current + 1, launch.waves):
            if launch.field(wave, state.STATUS) not in (state.ENDED, state.AT_BARRIER):
                self.current = wave
                return True
        waiting = [
            w for w in range(launch.waves) if launch.field(w, state.STATUS) == state.AT_BARRIER
        ]
        if not waiting:
            return self._next_group()
        for wave in waiting:
            at = launch.wave(wave) + state.STATUS
            ctypes.c_uint64.from_address(at).value = state.RUNNING
        self.current = waiting[0]
        return True


def _scalar_name(index: int) -> str:
    named = {106: "vcc_lo", 107: "vcc_hi", 126: "exec_lo", 127: "exec_hi", 128: "scc"}
    return named.get(index, f"s{index}")
