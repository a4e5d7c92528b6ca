"""Counters: what launches did, by kind of instruction, bytes, conflicts, waits and occupancy.

In: a program and a launch that is done. Out: `Counters`. On top of the emulator; the device, the
viewer and `python -m weft.amd.trace` read them.
Invariant: counts are exact: a block of instructions runs as a whole, and each entry of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from weft.helpers import prod
from weft.runtime.amd import state
from weft.runtime.amd.accesses import access_of, atomic_of
from weft.runtime.amd.emulator import Launch
from weft.runtime.amd.forms import name_of
from weft.runtime.amd.program import Line, Program

# waves that a unit holds at most, and what its registers and memory are shared by
_MOST_WAVES = {"gfx9": 32, "gfx1": 32}
_SIMDS = {"gfx9": 4, "gfx1": 2}
_REGISTERS = {"gfx9": 512, "gfx1": 1536}
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
    seconds: float = 0.0
    by_kind: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counters) -> None:
        for entry in fields(self):
            if entry.name != "by_kind":
                total = getattr(self, entry.name) + getattr(other, entry.name)
                setattr(self, entry.name, total)
        for kind, count in other.by_kind.items():
            self.by_kind[kind] = self.by_kind.get(kind, 0) + count

    def as_dict(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


def kind_of(line: Line) -> str:
    """What an instruction is, by what it keeps busy."""
    if line.instruction is None:
        return "unknown"
    name = name_of(line.instruction)
    if name.startswith("s_wait"):
        return "wait"
    if name.startswith(("s_barrier", "s_cbranch", "s_branch", "s_endpgm", "s_setpc", "s_swappc")):
        return "control"
    if name.startswith(("s_delay", "s_nop", "s_clause", "s_sleep", "s_set_inst")):
        return "hint"
    if name.startswith(("v_wmma", "v_mfma")):
        return "matrix"
    if " :: " in name:
        return "dual"
    access = access_of(name)
    if access is not None:
        kinds = {"ds": "shared", "s": "scalar memory", "scratch": "scratch"}
        return kinds.get(access.memory, "memory")
    if atomic_of(name) is not None:
        return "shared" if name.startswith("ds_") else "memory"
    return "vector" if name.startswith("v_") else "scalar" if name.startswith("s_") else "other"


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
    return Counters(
        1, groups, groups * launch.waves, total, launch.total(state.BYTES_READ),
        launch.total(state.BYTES_WRITTEN), launch.total(state.LDS_BYTES_MOVED),
        launch.total(state.LDS_CONFLICTS), launch.total(state.BARRIERS), seconds, by_kind,
    )  # fmt: skip


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
