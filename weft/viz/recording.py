"""The recorder: notes what a program becomes and when it runs, into a trace file.

What comes in: every rewrite (as a `Tracer`), and what `attach` sees of schedules, passes, programs,
launches and memory. What goes out: a trace (see trace_file.py).
Where it sits: loaded by name when VIZ asks for it, or used as `with recording(path):`.
The one invariant: a unit (one schedule, or the lowering of one kernel) is written when it ends, so
no UOp outlives it here, and what a long program notes is bounded.
"""

from __future__ import annotations

import atexit
import contextlib
import linecache
import os
import platform
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.disk import cache_folder
from weft.knobs import CCACHE, JIT, VIZ, VIZ_TRACE, child_environment
from weft.uop import trace
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.viz.attach import attach
from weft.viz.events import Launches, MemoryUse, Spans
from weft.viz.listing import axes_of, listing
from weft.viz.node_table import NOTHING, NodeTable
from weft.viz.shelf import flush_output, newest, path_for
from weft.viz.trace_file import FORMAT, SUFFIX, VERSION, TraceWriter

# Rewrites outside of any schedule or kernel: shapes and indices while a program builds its graph.
LOOSE_STEPS = 20_000
# A program that makes new kernels without end is watched up to here; the rest is only counted.
MOST_ITEMS = 100_000
MOST_UNITS = 30_000
# Kernels whose threads are shown over time; of others only what was counted is kept.
MOST_TRACES = 64
# Lines of source shown before and after the one that made a kernel.
AROUND = 3


# Passes that are a single rewrite do not say it themselves.
_WHY = {"prepare": "what is only a wish or a convenience becomes plain graph"}


class Rewrite:
    """One run of `graph_rewrite`."""

    __slots__ = ("name", "result", "root", "steps")

    def __init__(self, name: str, root: UOp) -> None:
        self.name = name
        self.root = root
        self.result: UOp | None = None
        self.steps: list[tuple[UOp, UOp, int]] = []


class Stage:
    """A pass: the graphs before and after it, and the rewrites in it."""

    __slots__ = ("after", "before", "name", "pairs", "rewrites", "seconds", "silent", "why")

    def __init__(self, name: str, why: str, before: UOp) -> None:
        self.name = name
        self.why = why
        self.before = before
        self.after: UOp | None = None
        self.rewrites: list[Rewrite] = []
        self.silent = 0  # rewrites in which no rule fired
        self.pairs: list[tuple[UOp, UOp]] = []  # of rewrites that are a pass by themselves
        self.seconds = 0.0

    def settle(self) -> None:
        """Rewrites of one name in a row are one pass, from all their roots to all their results."""
        if len(self.pairs) == 1:
            self.before, self.after = self.pairs[0]
        elif self.pairs:
            pairs = dict.fromkeys(pair for pair in self.pairs if pair[0] is not pair[1])
            self.why = f"{len(self.pairs)} expressions, each by itself"
            self.after = self.before
            if pairs:
                self.before = UOp(Ops.SINK, src=tuple(root for root, _ in pairs))
                self.after = UOp(Ops.SINK, src=tuple(result for _, result in pairs))


class Unit:
    """What is lowered as a whole: a schedule, or one kernel."""

    __slots__ = ("code", "facts", "key", "kind", "name", "number", "stages", "started")

    def __init__(self, number: int, kind: str, name: str, key: str = "") -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.key = key
        self.stages: list[Stage] = []
        self.code: dict[str, Any] | None = None
        self.facts: dict[str, Any] = {}
        self.started = time.perf_counter()

    def stage_for(self, name: str, root: UOp) -> Stage:
        """The pass that a rewrite is, or the one that rewrites of its name before it began."""
        if self.stages and self.stages[-1].name == name and self.stages[-1].pairs:
            return self.stages[-1]
        self.stages.append(Stage(name, _WHY.get(name, ""), root))
        return self.stages[-1]


class _Here(threading.local):
    """What one thread is in the middle of."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.stages: list[Stage] = []
        self.rewrites: list[tuple[Rewrite, Stage | None, bool]] = []
        self.schedule: int = NOTHING


class Recorder:
    """Listens to everything, from `start` to `close`."""

    def __init__(self, path: Path, rewrites: bool = True) -> None:
        self.writer = TraceWriter(path)
        self.rewrites = rewrites  # without: what happens when, and no graphs
        self.began = time.perf_counter()
        self.began_at = time.time()
        self.lock = threading.RLock()
        self.here = _Here()
        self.rules: dict[Any, int] = {}
        self.units: list[dict[str, Any]] = []
        self.unit_count = 0
        self.loose = self._new_unit("other", "outside of kernels")
        self.loose_steps = 0
        self.schedules: list[dict[str, Any]] = []
        self.items: list[dict[str, Any]] = []
        self.launches = Launches(self.began)
        self.memory = MemoryUse(self.began)
        self.spans = Spans(self.began)
        self.threads: dict[tuple[str, str], dict[str, Any]] = {}
        self.lines: dict[tuple[str, int], None] = {}
        self.is_open = True
        self.detach = attach(self)
        trace.recorders.append(self)
        if rewrites:
            trace.tracers.append(self)

    # ------------------------------------------------------------ rewrites (a Tracer)
    def start(self, name: str, root: UOp) -> None:
        """A rewrite begins."""
        here = self.here
        rewrite = Rewrite(name, root)
        implicit = False
        if here.stages:
            stage: Stage | None = here.stages[-1]
        elif here.units:
            # a unit without passes of its own, as a schedule is: the rewrite is the pass
            stage = here.units[-1].stage_for(name, root)
            here.stages.append(stage)
            implicit = True
        else:
            stage = None
        here.rewrites.append((rewrite, stage, implicit))

    def step(self, name: str, before: UOp, after: UOp, rule: trace.Rule) -> None:
        """A rule fired."""
        here = self.here
        if not here.rewrites:
            return
        number = self.rules.get(rule)
        if number is None:
            with self.lock:
                number = self.rules.setdefault(rule, len(self.rules))
        here.rewrites[-1][0].steps.append((before, after, number))

    def finish(self, name: str, result: UOp) -> None:
        """A rewrite came to rest."""
        here = self.here
        if not here.rewrites:
            return
        rewrite, stage, implicit = here.rewrites.pop()
        rewrite.result = result
        if stage is None:
            self._add_loose(rewrite, result)
        elif rewrite.steps:
            stage.rewrites.append(rewrite)
        else:
            stage.silent += 1
        if implicit and stage is not None:
            stage.pairs.append((rewrite.root, result))
            here.stages.pop()

    def _add_loose(self, rewrite: Rewrite, result: UOp) -> None:
        if not rewrite.steps or self.loose_steps >= LOOSE_STEPS:
            return
        with self.lock:
            self.loose_steps += len(rewrite.steps)
            stage = self.loose.stage_for(rewrite.name, rewrite.root)
            stage.rewrites.append(rewrite)
            stage.pairs.append((rewrite.root, result))

    # ------------------------------------------------------------ units and passes
    def _new_unit(self, kind: str, name: str, key: str = "") -> Unit:
        with self.lock:
            unit = Unit(self.unit_count, kind, name, key)
            self.unit_count += 1
        return unit

    @contextlib.contextmanager
    def unit(self, kind: str, name: str, key: str = "") -> Iterator[Unit]:
        """The rewrites and passes of this thread belong to one unit; it is written at its end."""
        here = self.here
        unit = self._new_unit(kind, name, key)
        kept = here.stages, here.rewrites
        here.stages, here.rewrites = [], []
        here.units.append(unit)
        try:
            yield unit
        finally:
            here.units.pop()
            # what a rewrite that raised left there goes with it
            here.stages, here.rewrites = kept
            try:
                self._write_unit(unit, time.perf_counter() - unit.started)
            except Exception as error:
                # watching a program must not break it
                warnings.warn(f"VIZ did not record {unit.name}: {error!r}", stacklevel=2)

    @contextlib.contextmanager
    def stage(self, name: str, why: str, before: UOp) -> Iterator[Stage]:
        """One pass of the current unit; the caller notes what it made in `after`."""
        here = self.here
        stage = Stage(name, why, before)
        if here.units:
            here.units[-1].stages.append(stage)
        here.stages.append(stage)
        started = time.perf_counter()
        try:
            yield stage
        finally:
            stage.seconds = time.perf_counter() - started
            here.stages.pop()

    @staticmethod
    def key_of(kernel: UOp, device: Any) -> str:
        """Names a kernel on a device: what is lowered once, however many items are such kernels."""
        return f"{kernel.key.hex()}@{device}"

    def note_program(self, unit: Unit, spec: Any, language: str, assembly: str) -> None:
        """What a kernel became."""
        unit.facts["applied"] = [str(opt) for opt in spec.applied]
        unit.facts["ops"] = spec.ops if isinstance(spec.ops, int) else None
        unit.facts["mem"] = spec.mem if isinstance(spec.mem, int) else None
        unit.facts["threads"] = spec.threads_n
        unit.code = {
            "listing": listing(spec.uops),
            "source": spec.src,
            "language": language,
            "assembly": assembly,
            "axes": axes_of(spec.uops),
        }

    def _write_unit(self, unit: Unit, seconds: float) -> None:
        if not (self.is_open and self.rewrites) or len(self.units) >= MOST_UNITS:
            return
        table = NodeTable()
        passes = []
        steps = 0
        for stage in unit.stages:
            stage.settle()
            rewrites = [_rewrite_data(rewrite, table) for rewrite in stage.rewrites]
            steps += sum(len(rewrite.steps) for rewrite in stage.rewrites)
            passes.append(
                {
                    "name": stage.name,
                    "why": stage.why,
                    "before": table.number(stage.before),
                    "after": NOTHING if stage.after is None else table.number(stage.after),
                    "seconds": round(stage.seconds, 7),
                    "silent": stage.silent,
                    "rewrites": rewrites,
                }
            )
        lines = [list(origin) for origin in table.origins]
        self.lines.update(dict.fromkeys(table.origins))
        self.writer.write(
            f"unit/{unit.number}.json",
            {
                "strings": table.strings,
                "origins": lines,
                "nodes": table.rows,
                "passes": passes,
            },
        )
        if unit.code is not None:
            self.writer.write(f"code/{unit.number}.json", unit.code)
        fused: dict[Any, None] = {}
        if unit.kind == "kernel" and unit.stages:
            # leaves are shared by lines that have nothing else in common; the result comes first
            nodes = reversed(unit.stages[0].before.toposort())
            fused = dict.fromkeys(n.origin for n in nodes if n.origin and n.src)
        with self.lock:
            self.units.append(
                {
                    "number": unit.number,
                    "kind": unit.kind,
                    "name": unit.name,
                    "key": unit.key,
                    "passes": len(passes),
                    "steps": steps,
                    "nodes": len(table.rows),
                    "seconds": round(seconds, 6),
                    "code": unit.code is not None,
                    "lines": [list(origin) for origin in fused][:40],
                    **unit.facts,
                }
            )

    # ------------------------------------------------------------ schedules
    def note_schedule(self, unit: Unit, schedule: Any, device: str) -> int:
        """The kernels of a schedule, in order; its number, or NOTHING where there are too many."""
        with self.lock:
            if len(self.items) + len(schedule.items) > MOST_ITEMS:
                return NOTHING
            number = len(self.schedules)
            first = len(self.items)
            for position, item in enumerate(schedule.items):
                is_copy = item.kernel is None
                sizes = [a.size * a.memory.dtype.itemsize for a in item.arguments]
                if item.origin is not None:
                    self.lines.setdefault(item.origin)
                self.items.append(
                    {
                        "schedule": number,
                        "position": position,
                        "name": "copy" if is_copy else item.kernel.arg.name,
                        "key": "" if is_copy else self.key_of(item.kernel, item.device),
                        "device": str(item.device),
                        "origin": list(item.origin) if item.origin else None,
                        "buffers": len(item.arguments),
                        "bytes": sum(sizes),
                    }
                )
            self.schedules.append(
                {
                    "unit": unit.number,
                    "device": str(device),
                    "first": first,
                    "count": len(schedule.items),
                    "runs": 0,
                    "began": round(unit.started - self.began, 6),
                }
            )
        return number

    # ------------------------------------------------------------ devices that count
    def note_report(self, item: int, report: Any) -> None:
        """What a device counted in a launch; of the first of a kernel, what its threads did."""
        with self.lock:
            row = self.threads.get((self.items[item]["device"], report.name))
            if row is not None:
                row["launches"] += 1
                return
            number = len(self.threads)
            row = {
                "number": number,
                "item": item,
                "name": report.name,
                "device": self.items[item]["device"],
                "counters": report.counters,
                "launches": 1,
                "traced": False,
            }
            self.threads[row["device"], report.name] = row
        shown = report.threads() if number < MOST_TRACES and self.is_open else None
        if shown is not None:
            self.writer.write(f"threads/{number}.json", shown)
            self.writer.write(f"streams/{number}.json", report.streams())
            row["traced"] = True

    # ------------------------------------------------------------ the end
    def close(self) -> Path:
        """Stop listening and complete the file."""
        self._stop()
        ended = time.perf_counter()
        self._write_unit(self.loose, 0.0)
        self.is_open = False
        self.units.sort(key=lambda unit: unit["number"])
        counts, seconds, best = self.launches.totals(len(self.items))
        for item, count, total, least in zip(self.items, counts, seconds, best, strict=True):
            item.update(launches=count, seconds=round(total, 9), best=round(least, 9))
        self.writer.write(
            "timeline.json",
            {
                "launches": self.launches.data(),
                "memory": self.memory.data(),
                "spans": self.spans.data(),
                "seconds": round(ended - self.began, 6),
            },
        )
        self.writer.write(
            "index.json",
            {
                "format": FORMAT,
                "version": VERSION,
                "program": _program(self.began_at, ended - self.began),
                "schedules": self.schedules,
                "items": self.items,
                "units": self.units,
                "rules": [_rule(rule) for rule in self.rules],
                "lines": _source_lines(self.lines),
                "dropped": self.launches.dropped,
                "threads": list(self.threads.values()),
            },
        )
        return self.writer.close()

    def forget(self) -> None:
        """In a forked child: stop listening, and leave the file to the parent."""
        if self.is_open:
            self._stop()
            self.is_open = False
            self.writer.forget()

    def discard(self) -> None:
        """Stop listening and leave no file."""
        self._stop()
        self.is_open = False
        self.writer.abandon()

    def _stop(self) -> None:
        for watchers in (trace.tracers, trace.recorders):
            if self in watchers:
                watchers.remove(self)
        self.detach()


def _rewrite_data(rewrite: Rewrite, table: NodeTable) -> dict[str, Any]:
    flat: list[int] = []
    root = table.number(rewrite.root)
    for before, after, rule in rewrite.steps:
        flat += (table.number(before), table.number(after), rule)
    result = NOTHING if rewrite.result is None else table.number(rewrite.result)
    return {"name": rewrite.name, "root": root, "result": result, "steps": flat}


def _rule(rule: trace.Rule) -> list[Any]:
    """Name, file, line, and the line's text: for a lambda that says more than its name."""
    path, line = rule.location
    return [rule.name, path, line, linecache.getline(path, line).strip()[:200]]


def _program(began_at: float, seconds: float) -> dict[str, Any]:
    return {
        "command": [Path(sys.argv[0]).name or "python", *sys.argv[1:]] if sys.argv else [],
        "began": began_at,
        "seconds": round(seconds, 6),
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {platform.system()}",
    }


def _source_lines(origins: dict[tuple[str, int], None]) -> dict[str, dict[str, str]]:
    """The text of the lines that made something, and of those around them."""
    found: dict[str, dict[str, str]] = {}
    for path, line in origins:
        texts = found.setdefault(path, {})
        for number in range(max(1, line - AROUND), line + AROUND + 1):
            text = linecache.getline(path, number)
            if text:
                texts[str(number)] = text.rstrip("\n")[:300]
    return found


# ---------------------------------------------------------------- starting and ending


def trace_folder() -> Path:
    """Where traces are kept that were not asked for by name."""
    return cache_folder() / "traces"


def last_trace() -> Path | None:
    """The newest trace of the folder."""
    return newest(trace_folder(), SUFFIX)


@contextlib.contextmanager
def recording(path: str | os.PathLike[str]) -> Iterator[Recorder]:
    """Record what the block computes into a trace, which `weft viz PATH` shows.

    Within it kernels are compiled anew, and a jit replays them one by one, so that each is seen.
    """
    recorder = Recorder(Path(path))
    before = _show_every_kernel()
    try:
        yield recorder
    finally:
        CCACHE.value, JIT.value = before
        recorder.close()


def _show_every_kernel() -> tuple[int, int]:
    """In all threads: kernels are lowered though they are kept on disk, and launched one by one."""
    before = CCACHE.value, JIT.value
    CCACHE.value, JIT.value = 0, min(JIT.value, 1) * 2
    return before


def start() -> None:
    """Record until the program ends; then say where the trace is, and with VIZ > 0 show it."""
    is_plain = VIZ.value == -2  # what ran and what devices counted, without the graphs
    recorder = Recorder(path_for(VIZ_TRACE, trace_folder(), SUFFIX), rewrites=not is_plain)
    if is_plain:
        JIT.value = min(JIT.value, 1) * 2
    else:
        _show_every_kernel()
    owner = os.getpid()
    atexit.register(_finish, recorder, owner)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.forget)


def _finish(recorder: Recorder, owner: int) -> None:
    if os.getpid() != owner or not recorder.is_open:
        return
    path = recorder.close()
    flush_output()
    if VIZ.value < 0:
        print(f"weft: the trace is {path}; `weft viz {path}` shows it", file=sys.stderr)
        return
    package = Path(__file__).resolve().parent.parent.parent
    # a process of its own: at exit this one may start no threads any more
    environment = child_environment({"VIZ": "0"}, first_on_path=str(package))
    with contextlib.suppress(KeyboardInterrupt):
        subprocess.call([sys.executable, "-m", "weft", "viz", str(path)], env=environment)
