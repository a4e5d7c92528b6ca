"""Counters: what launches did, by kind of instruction, bytes, conflicts, waits and occupancy.

In: a program and a launch that is done. Out: `Counters`. On top of the emulator; the device, the
viewer and `python -m weft.amd.trace` read them.
Invariant: counts are exact: a block of instructions runs as a whole, and each entry of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from weft.amd.operands import Operand
from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.emulator import Launch
from weft.runtime.amd.kinds import kind_of
from weft.runtime.amd.program import Line, Program

# waves that a unit holds at most, and what its registers and memory are shared by
_MOST_WAVES = {"gfx9": 32, "gfx1": 32}
_SIMDS = {"gfx9": 4, "gfx1": 2}
_REGISTERS = {"gfx9": 512, "gfx1": 1536}
_SHARED = 1 << 16  # bytes of shared memory of a unit
_GRANULE = {"gfx9": 8, "gfx1": 24}


@dataclass
class Counters:
    """What launches did."""

    launches: int = 0
    groups: int = 0
    waves: int = 0
    instructions: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    shared_bytes: int = 0
    shared_conflicts: int = 0
    barriers: int = 0
    occupancy: int = 0  # waves that a unit holds at once, of the launch that holds most
    seconds: float = 0.0
    by_kind: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counters) -> None:
        for entry in fields(self):
            if entry.name == "occupancy":
                self.occupancy = max(self.occupancy, other.occupancy)
            elif entry.name != "by_kind":
                total = getattr(self, entry.name) + getattr(other, entry.name)
                setattr(self, entry.name, total)
        for kind, count in other.by_kind.items():
            self.by_kind[kind] = self.by_kind.get(kind, 0) + count

    def as_dict(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


def block_entries(program: Program) -> list[int]:
    """How often each line was run, so far."""
    return program.line_counts()


def counted(launch: Launch, before: list[int], seconds: float) -> Counters:
    """What a launch did, given the counts of lines before it."""
    program = launch.program
    by_kind: dict[str, int] = {}
    total = 0
    after = program.line_counts()
    for line, new, old in zip(program.lines, after, before, strict=False):
        if new > old:
            kind = kind_of(line)
            by_kind[kind] = by_kind.get(kind, 0) + new - old
            total += new - old
    groups = prod(launch.grid)
    registers = _registers(program)
    held = occupancy(program.arch, registers, launch.shared_bytes, launch.waves, _SHARED)
    return Counters(
        1, groups, groups * launch.waves, total, launch.total(state.BYTES_READ),
        launch.total(state.BYTES_WRITTEN), launch.total(state.LDS_BYTES_MOVED),
        launch.total(state.LDS_CONFLICTS), launch.total(state.BARRIERS), held, seconds, by_kind,
    )  # fmt: skip


def _registers(program: Program) -> int:
    """Vector registers that the code names."""
    operands = [o for line in program.lines if line.instruction for o in _operands(line)]
    return max([o.index + o.count for o in operands if o.kind == "v"], default=1)


def _operands(line: Line) -> list[Operand]:
    return [] if line.instruction is None else list(line.instruction.operands.values())


def occupancy(arch: str, registers: int, shared_bytes: int, waves: int, most_shared: int) -> int:
    """Waves that one unit holds of a kernel: by its registers, shared memory and groups."""
    family = arch[:4]
    granule = _GRANULE[family]
    taken = max(granule, -(-registers // granule) * granule)
    by_registers = _SIMDS[family] * (_REGISTERS[family] // taken)
    groups = min(by_registers, _MOST_WAVES[family]) // max(1, waves)
    if shared_bytes:
        groups = min(groups, most_shared // shared_bytes)
    return max(1, groups) * waves
