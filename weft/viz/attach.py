"""Where the recorder listens: functions of the engine, wrapped while a recording runs.

What comes in: a recorder. What goes out: a function that takes the wrappers off again.
Where it sits: under the recorder; the only file of the viewer that knows the engine's insides.
The one invariant: when nothing is recorded nothing is wrapped, so watching costs nothing at all
then; a wrapper passes arguments, results and errors through unchanged.

Rewrites and passes need none of this: they are seen by a tracer (weft/uop/trace.py) and a watcher
(weft/uop/passes.py).
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.codegen import pipeline as codegen
from weft.device import Allocator, Buffer, Device
from weft.engine import programs, realize
from weft.engine import schedule as engine_schedule
from weft.errors import WeftError
from weft.schedule import pipeline as scheduling
from weft.uop.passes import watchers
from weft.viz.node_table import NOTHING

Function = Callable[..., Any]


def attach(recorder: Any) -> Callable[[], None]:
    """Wrap everything; the returned function undoes it."""
    undo: list[Callable[[], None]] = []
    steps = _Steps(recorder)
    # what is known already would not be seen being made
    engine_schedule.clear_schedules()
    programs.clear_programs()
    # a function, and what makes its wrapper
    functions: list[tuple[Function, Callable[[Function], Function]]] = [
        (codegen.lower, functools.partial(_watch_lower, recorder)),
        (scheduling.make_schedule, functools.partial(_watch_make_schedule, recorder)),
        (engine_schedule.prepare_schedule, steps.watch_prepare),
        (realize.launch, steps.watch_launch),
        (programs.runner_for, functools.partial(_watch_span, recorder, "compile")),
        (programs.make_runners, functools.partial(_watch_span, recorder, "compile")),
        (realize.realize_cells, functools.partial(_watch_span, recorder, "realize")),
    ]
    watchers.append(recorder.stage)
    undo.append(lambda: watchers.remove(recorder.stage))
    for original, wrap in functions:
        undo.append(_replace_function(original, wrap(original)))
    undo.append(_replace_method(programs.Runner, "__call__", steps.watch_runner))
    for name, what in (("copyin", "copy from the host"), ("copyout", "copy to the host")):
        undo.append(_replace_method(Buffer, name, functools.partial(steps.watch_copy, what)))
    undo.append(steps.unwatch)
    undo.append(_replace_method(Allocator, "_count", functools.partial(_watch_memory, recorder)))

    def detach() -> None:
        while undo:
            undo.pop()()

    return detach


def _replace_function(original: Function, wrapper: Function) -> Callable[[], None]:
    """Every module of weft that imported the function has the wrapper under its name instead."""
    functools.update_wrapper(wrapper, original)
    _swap(original, wrapper)
    return lambda: _swap(wrapper, original)


def _swap(old: Function, new: Function) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("weft.") and not name.startswith("weft.viz"):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def _replace_method(
    owner: type, name: str, wrapper: Callable[[Function], Function]
) -> Callable[[], None]:
    original = getattr(owner, name)
    wrapped = wrapper(original)
    functools.update_wrapper(wrapped, original)
    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original)


# ---------------------------------------------------------------- making


def _watch_lower(recorder: Any, original: Function) -> Function:
    def lower(ast: Any, renderer: Any, *arguments: Any, **named: Any) -> Any:
        name = getattr(ast.arg, "name", "kernel")
        device = _device_of(renderer)
        start = recorder.spans.enter()
        try:
            with recorder.unit("kernel", name, recorder.key_of(ast, device)) as unit:
                spec = original(ast, renderer, *arguments, **named)
                if recorder.rewrites:
                    assembly = _assembly(device, spec.src)
                    recorder.note_program(unit, spec, renderer.suffix, assembly)
        finally:
            recorder.spans.leave(start, "lower", name)
        return spec

    return lower


def _device_of(renderer: Any) -> str:
    """The device whose renderer this is."""
    for name, device in list(Device._opened.items()):
        if vars(device).get("renderer") is renderer:
            return name
    return ""


def _assembly(device: str, source: str) -> str:
    """The machine code as text, as the device's compiler makes it."""
    try:
        return str(Device[device].compiler.assembly(source)) if device else ""
    except WeftError as error:
        return f"; {error}"


def _watch_make_schedule(recorder: Any, original: Function) -> Function:
    def make_schedule(
        sink: Any, next_number: int, device: Any, *arguments: Any, **named: Any
    ) -> Any:
        start = recorder.spans.enter()
        try:
            with recorder.unit("schedule", f"schedule of {len(sink.src)}") as unit:
                schedule = original(sink, next_number, device, *arguments, **named)
                recorder.here.schedule = recorder.note_schedule(unit, schedule, device)
        finally:
            recorder.spans.leave(start, "schedule", f"{len(sink.src)} values")
        return schedule

    return make_schedule


def _watch_span(recorder: Any, name: str, original: Function) -> Function:
    def watched(*arguments: Any, **named: Any) -> Any:
        start = recorder.spans.enter()
        try:
            return original(*arguments, **named)
        finally:
            first = arguments[0] if arguments else None
            kernel = getattr(getattr(first, "arg", None), "name", "")
            recorder.spans.leave(start, name, kernel)

    return watched


# ---------------------------------------------------------------- running


class _Steps:
    """Which item of which schedule a step is. A jit makes steps of its own from those it saw."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        # the step itself is kept, so that its id stays its own
        self.items: dict[int, tuple[Any, int]] = {}
        self.by_runner: dict[int, tuple[Any, list[int]]] = {}
        self.copies: dict[tuple[int, Any], int] = {}
        self.unknown: dict[tuple[str, str, tuple[str, int] | None], int] = {}
        self.timing = threading.local()
        self.watched: dict[str, Callable[[], None]] = {}

    def watch_device(self, name: str) -> None:
        """What a device counts in a launch belongs to the step that is being launched."""
        if name in self.watched:
            return

        def note(report: Any) -> None:
            if getattr(self.timing, "in_step", False):
                self.timing.reports.append(report)
                return
            with self.recorder.lock:
                number = self._unknown(report.name, name, None)
            self.recorder.note_report(number, report)

        self.watched[name] = Device[name].watch(note)

    def unwatch(self) -> None:
        """Devices count no more."""
        while self.watched:
            self.watched.popitem()[1]()

    def watch_prepare(self, original: Function) -> Function:
        """A schedule that was just made: its steps stand in the order of its items."""

        def prepare_schedule(*arguments: Any, **named: Any) -> Any:
            recorder = self.recorder
            recorder.here.schedule = NOTHING
            found = original(*arguments, **named)
            number = recorder.here.schedule
            if number != NOTHING:
                first = recorder.schedules[number]["first"]
                for position, step in enumerate(found[0].steps):
                    self.items[id(step)] = (step, first + position)
            elif found[0].steps and (known := self.items.get(id(found[0].steps[0]))) is not None:
                number = recorder.items[known[1]]["schedule"]
            if number != NOTHING:
                recorder.schedules[number]["runs"] += 1
            return found

        return prepare_schedule

    def watch_runner(self, original: Function) -> Function:
        """A device gives the exact time of a launch if it is asked to wait."""

        def call(
            runner: Any, buffers: Any, values: Any, wait: bool = False, origin: Any = None
        ) -> float | None:
            seconds: float | None = original(runner, buffers, values, True, origin)
            self.timing.seconds = seconds
            return seconds

        return call

    def watch_copy(self, what: str, original: Function) -> Function:
        """A copy between the host and a device with memory of its own, outside of schedules."""

        def copy(buffer: Any, *arguments: Any, **named: Any) -> Any:
            device = Device[buffer.device]
            if device.is_host or not device.executes or getattr(self.timing, "in_step", False):
                return original(buffer, *arguments, **named)
            device.synchronize()
            start = time.perf_counter()
            result = original(buffer, *arguments, **named)
            device.synchronize()
            with self.recorder.lock:
                number = self._unknown(what, buffer.device, None)
            self.recorder.items[number].update(ops=0, mem=None)
            self.recorder.launches.add(number, start, time.perf_counter() - start)
            return result

        return copy

    def watch_launch(self, original: Function) -> Function:
        """One launch of a step."""

        def launch(step: Any, *arguments: Any, **named: Any) -> Any:
            self.timing.seconds = None
            self.timing.in_step = True
            self.timing.reports = []
            self.watch_device(step.device)
            start = time.perf_counter()
            try:
                result = original(step, *arguments, **named)
                if step.runner is None:
                    Device[step.device].synchronize()
            finally:
                self.timing.in_step = False
            seconds = self.timing.seconds
            if seconds is None:
                seconds = time.perf_counter() - start
            else:
                # by the device's clock, and it is done now
                start = time.perf_counter() - seconds
            number = self._item_of(step)
            self._note_costs(number, step.runner)
            self.recorder.launches.add(number, start, seconds)
            for report in self.timing.reports:
                self.recorder.note_report(number, report)
            return result

        return launch

    def _note_costs(self, number: int, runner: Any) -> None:
        """What a launch computes and moves, where that does not depend on variables."""
        item = self.recorder.items[number]
        if "ops" not in item:
            item["ops"] = getattr(runner, "ops", None) if runner is not None else 0
            item["mem"] = getattr(runner, "mem", None) if runner is not None else item["bytes"]
            for key in ("ops", "mem"):
                if not isinstance(item[key], int):
                    item[key] = None

    def _item_of(self, step: Any) -> int:
        known = self.items.get(id(step))
        if known is not None:
            if step.runner is not None:
                pair = self.by_runner.setdefault(id(step.runner), (step.runner, []))
                if known[1] not in pair[1]:
                    pair[1].append(known[1])
            return known[1]
        with self.recorder.lock:
            item = self._like(step)
            self.items[id(step)] = (step, item)
        return item

    def _like(self, step: Any) -> int:
        """The item that a jit's step repeats: same program, same line, in order."""
        items = self.recorder.items
        origin = list(step.origin) if step.origin else None
        runner_items = self.by_runner.get(id(step.runner), (None, []))[1]
        alike = [i for i in runner_items if items[i]["origin"] == origin] or runner_items
        if alike:
            turn = self.copies.get((id(step.runner), step.origin), 0)
            self.copies[(id(step.runner), step.origin)] = turn + 1
            return alike[turn % len(alike)]
        name = "copy" if step.runner is None else step.runner.name
        return self._unknown(name, str(step.device), step.origin)

    def _unknown(self, name: str, device: str, origin: tuple[str, int] | None) -> int:
        """The item of launches that no noted schedule has, as those that come from disk: one for
        each name, device and line."""
        items = self.recorder.items
        if origin is not None:
            self.recorder.lines.setdefault(origin)
        if (name, device, origin) not in self.unknown:
            self.unknown[name, device, origin] = len(items)
            items.append(
                {
                    "schedule": NOTHING,
                    "position": 0,
                    "name": name,
                    "key": "",
                    "device": device,
                    "origin": list(origin) if origin else None,
                    "buffers": 0,
                    "bytes": 0,
                }
            )
        return self.unknown[name, device, origin]


def _watch_memory(recorder: Any, original: Function) -> Function:
    def count(allocator: Any, nbytes: int) -> None:
        original(allocator, nbytes)
        recorder.memory.add(allocator.device, allocator.in_use)

    return count
