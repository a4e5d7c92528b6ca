"""Kernels that can run: lowered, compiled and loaded once per structure and device.

What comes in: a kernel's SINK and a device. What goes out: a `Runner`. Where it sits: between the
schedule and its execution. Equal kernels over other buffers share one program.
The one invariant: the cache key is the content of the kernel, the device and the knobs that
change code; no UOp is kept alive by it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.codegen.pipeline import lower
from weft.device import Buffer, Device, Program
from weft.engine import kept
from weft.helpers import colored, disable_gc
from weft.knobs import BEAM, DEBUG, NOOPT, NUM_CPU_THREADS, SPEC, TRANSCENDENTAL
from weft.uop.node import UOp


@dataclass
class Runner:
    """A loaded kernel and what it costs."""

    name: str
    program: Program
    device: str
    variables: tuple[str, ...]
    ops: Any  # estimates: a number, or an expression over variables
    mem: Any

    def __call__(
        self, buffers: Sequence[Buffer], values: dict[str, int], wait: bool
    ) -> float | None:
        """Run it; seconds if `wait`."""
        return self.program(buffers, [values[name] for name in self.variables], wait=wait)


_runners: dict[tuple[Any, ...], Runner] = {}
_lock = threading.RLock()


def code_knobs() -> tuple[Any, ...]:
    """The knobs that change code; SPEC too, for a kernel that is known was perhaps not verified."""
    knobs = (NOOPT, BEAM, TRANSCENDENTAL, NUM_CPU_THREADS, SPEC)
    return tuple([knob.value for knob in knobs])


def runner_for(kernel: UOp, device: str) -> Runner:
    """The program of a kernel on a device: known, kept on disk, or made now."""
    knobs = code_knobs()
    key = (kernel.key, device, knobs)
    found = _runners.get(key)
    if found is not None:
        return found
    with _lock:
        found = _runners.get(key)
        if found is None:
            found = _runners[key] = _make(kernel, device, knobs)
    return found


def _make(kernel: UOp, device: str, knobs: tuple[Any, ...]) -> Runner:
    opened = Device[device]
    key = kept.key_of(kernel.key, opened.renderer, opened.compiler, knobs)
    found = kept.load(key)
    if found is None:
        found = _compile(kernel, opened)
        kept.keep(key, *found)
    facts, library = found
    program = opened.runtime(
        facts.name, library, facts.threads_n, facts.buffer_count, len(facts.variables)
    )
    return Runner(facts.name, program, device, facts.variables, facts.ops, facts.mem)


def _compile(kernel: UOp, opened: Any) -> tuple[kept.Kept, bytes]:
    with disable_gc():
        spec = lower(kernel, opened.renderer)
    if DEBUG >= 4:
        print(colored(f"--- source of {spec.name}", "cyan"))
        print(spec.src)
    library = opened.compiler.compile(spec.src)
    if DEBUG >= 7:
        print(colored(f"--- assembly of {spec.name}", "cyan"))
        print(opened.compiler.assembly(spec.src))
    names = tuple(v.arg.name for v in spec.variables)
    costs: Any = (spec.ops, spec.mem)
    return kept.Kept(spec.name, spec.threads_n, spec.buffer_count, names, *costs), library


# each loaded program takes a few of the memory mappings that the operating system allows
MOST_PROGRAMS = 6000


def too_many_programs() -> bool:
    """Whether it is time to forget programs, and the schedules that hold them."""
    return len(_runners) >= MOST_PROGRAMS


def clear_programs() -> None:
    """Forget every program (they are made again when needed)."""
    with _lock:
        _runners.clear()
