"""Kernels that can run: lowered, compiled and loaded once per structure and device.

What comes in: a kernel's SINK and a device. What goes out: a `Runner`. Where it sits: between the
schedule and its execution. Equal kernels over other buffers share one program.
The one invariant: the cache key is the content of the kernel, the device and the knobs that
change code; no UOp is kept alive by it.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.contracts import Origin
from weft.device import BaseDevice, Buffer, Device, Program, ProgramFacts
from weft.engine import kept
from weft.errors import WeftError
from weft.helpers import colored, disable_gc
from weft.knobs import (
    ALLOW_TF32,
    BEAM,
    DEBUG,
    NOOPT,
    NUM_CPU_THREADS,
    SPEC,
    TRANSCENDENTAL,
    USE_TC,
)
from weft.renderer.base import ProgramSpec, Renderer
from weft.uop.node import UOp
from weft.uop.opset import Ops


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
        self,
        buffers: Sequence[Buffer],
        values: dict[str, int],
        wait: bool,
        origin: Origin | None = None,
    ) -> float | None:
        """Submit it; seconds if `wait`. An error that comes later names the `origin`."""
        given = [values[name] for name in self.variables]
        return Device[self.device].queue.submit(self.program, buffers, given, wait, origin)


def lower(kernel: UOp, renderer: Renderer) -> ProgramSpec:
    """The kernel as a program. The compiler is loaded by name, when a kernel is not on disk:
    a process that finds all its kernels there never needs it."""
    found: ProgramSpec = importlib.import_module("weft.codegen.pipeline").lower(kernel, renderer)
    return found


# copies of the same op in a kernel with a reduction, against one without
_COPIES = 3
_runners: dict[tuple[Any, ...], Runner] = {}
_lock = threading.RLock()


def code_knobs() -> tuple[Any, ...]:
    """The knobs that change code; SPEC too, for a kernel that is known was perhaps not verified."""
    knobs = (NOOPT, BEAM, TRANSCENDENTAL, NUM_CPU_THREADS, SPEC, ALLOW_TF32, USE_TC)
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
            _make([_Job(key, kernel)])
            found = _runners[key]
    return found


def make_runners(wanted: Iterable[tuple[UOp, str]]) -> None:
    """The programs of many kernels made together, so that `runner_for` finds them.

    Compilers may work on several at once.
    """
    knobs = code_knobs()
    with _lock:
        missing: dict[tuple[Any, ...], _Job] = {}
        for kernel, device in wanted:
            key = (kernel.key, device, knobs)
            if key not in _runners and key not in missing:
                missing[key] = _Job(key, kernel)
        _make(list(missing.values()))


def kept_runner(content: bytes, device: str) -> Runner | None:
    """The program of a kernel with this content: known, or kept on disk, but never made."""
    key = (content, device, code_knobs())
    with _lock:
        if key not in _runners:
            _load_kept(key, _kept_key(key))
        return _runners.get(key)


@dataclass
class _Job:
    """A kernel without a program yet."""

    key: tuple[Any, ...]  # in `_runners`: content, device, knobs
    kernel: UOp
    kept_key: str | None = None  # on disk; None: it is not kept
    facts: ProgramFacts | None = None

    @property
    def device(self) -> str:
        return str(self.key[1])


def _make(jobs: list[_Job]) -> None:
    """Programs from disk where they are kept, the others compiled, those of a device together."""
    absent: dict[str, list[_Job]] = {}
    for job in jobs:
        job.kept_key = _kept_key(job.key)
        if not _load_kept(job.key, job.kept_key):
            absent.setdefault(job.device, []).append(job)
    for device, left in absent.items():
        _compile(left, Device[device])


def _kept_key(key: tuple[Any, ...]) -> str | None:
    """What a program is kept under on disk, if it is."""
    content, device, knobs = key
    opened = Device[device]
    return kept.key_of(content, opened.renderer, opened.compiler, knobs)


def _load_kept(key: tuple[Any, ...], kept_key: str | None) -> bool:
    found = kept.load(kept_key)
    if found is None:
        return False
    try:
        _load(key, *found)
    except WeftError:
        # it was made where libraries were that this process lacks
        return False
    return True


def _load(key: tuple[Any, ...], facts: ProgramFacts, library: bytes) -> None:
    device = str(key[1])
    program = Device[device].load(facts, library)
    _runners[key] = Runner(facts.name, program, device, facts.variables, facts.ops, facts.mem)


def _compile(jobs: list[_Job], opened: BaseDevice) -> None:
    # those that compile longest first, so that in the end nobody waits for one of them
    jobs = sorted(jobs, key=lambda job: -_weight(job.kernel))
    with disable_gc():
        if len(jobs) == 1:
            libraries = [opened.compiler.compile(_source(jobs[0], opened))]
        else:
            libraries = opened.compiler.compile_all(_source(job, opened) for job in jobs)
    for job, library in zip(jobs, libraries, strict=True):
        assert job.facts is not None, "a job has facts once its source is made"
        kept.keep(job.kept_key, job.facts, library)
        _load(job.key, job.facts, library)


def _weight(kernel: UOp) -> int:
    """Grows with the time a kernel will take: what is around a reduction is copied for a tile."""
    order = kernel.toposort()
    copied = any([node.op is Ops.REDUCE for node in order])
    return len(order) * (_COPIES if copied else 1)


def _source(job: _Job, opened: BaseDevice) -> str:
    """The text of the job's kernel; its facts are filled in."""
    kept.set_provisional(False)
    spec = lower(job.kernel, opened.renderer)
    if kept.is_provisional():
        job.kept_key = None
    if DEBUG >= 4:
        print(colored(f"--- source of {spec.name}", "cyan"))
        print(spec.src)
    if DEBUG >= 7:
        print(colored(f"--- assembly of {spec.name}", "cyan"))
        print(opened.compiler.assembly(spec.src))
    job.facts = facts_of(spec)
    return spec.src


def facts_of(spec: ProgramSpec) -> ProgramFacts:
    """What a device needs to know of a lowered kernel."""
    return ProgramFacts(
        name=spec.name,
        threads_n=spec.threads_n,
        buffer_count=spec.buffer_count,
        variables=tuple([v.arg.name for v in spec.variables]),
        ops=spec.ops,
        mem=spec.mem,
        global_size=spec.global_size,
        local_size=spec.local_size,
        layout=spec.layout,
        shared_bytes=spec.shared_bytes,
    )


# each loaded program takes a few of the memory mappings that the operating system allows
MOST_PROGRAMS = 6000


def too_many_programs() -> bool:
    """Whether it is time to forget programs, and the schedules that hold them."""
    return len(_runners) >= MOST_PROGRAMS


def clear_programs() -> None:
    """Forget every program (they are made again when needed)."""
    with _lock:
        _runners.clear()
