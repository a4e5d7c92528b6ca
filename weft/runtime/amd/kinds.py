"""Kinds of instructions, by what they keep busy: counters and traces share them.

In: a line of a program. Out: its kind. Below counters and thread traces.
Invariant: every instruction has one kind; what is not known to any is "other".
"""

from __future__ import annotations

from weft.runtime.amd.accesses import access_of, atomic_of
from weft.runtime.amd.forms import name_of
from weft.runtime.amd.program import Line


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
