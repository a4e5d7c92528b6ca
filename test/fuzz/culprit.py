"""Who is to blame for a wrong result: a rule, a pass, an action, the memory planner, a renderer.

In: a program that gives a wrong result. Out: one line that names the culprit as closely as it can
be known. It asks the verifier, then every single rewrite step, then every launch: the kernel by
definition, after each pass, interpreted, and as the device ran it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from test.reference import NoMeaning, run_kernel, same
from test.steps import StepChecker
from weft.codegen import pipeline
from weft.codegen.opt.actions import apply_opt
from weft.device import Buffer, Device
from weft.dtype import DType, dtypes, value_of_bits
from weft.engine import realize
from weft.engine.check import Checks, Launch, where_text
from weft.engine.prepared import Step
from weft.engine.programs import clear_programs
from weft.engine.schedule import clear_schedules
from weft.errors import SpecError, WeftError
from weft.knobs import Context
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.symbolic import clear_simplified
from weft.uop.trace import tracing

# more points than this are not computed by definition
POINTS_AT_MOST = 20_000
Memory = dict[int, list[Any]]


def forget_everything() -> None:
    """Nothing that was compiled, scheduled or simplified before is used again."""
    clear_programs()
    clear_schedules()
    clear_simplified()


def find_culprit(run: Callable[[], Any], is_right: Callable[[], bool], units: float = 0.0) -> str:
    """Who is to blame: `run` computes, `is_right` computes and looks at the result.

    Floats may differ by `units` in the last place of the largest number of a buffer.
    """
    for search in (_by_spec, _by_step):
        found = search(run)
        if found is not None:
            return found
    with Context(SCACHE=0, CCACHE=0):
        launches = _launches(run, units)
        for launch in launches:
            found = _blame_launch(launch)
            if found is not None:
                return found
        for knob, who in _SUSPECTS.items():
            forget_everything()
            with Context(**{knob: 0 if knob in ("SCACHE", "SPLIT_REDUCEOP") else 1}):
                if is_right():
                    return f"{who}: with {knob} switched the result is right"
    kernels = ", ".join(f"{launch.name} of {launch.where}" for launch in launches[:8])
    return f"the schedule: every kernel does what it says, but these are the wrong ones: {kernels}"


_SUSPECTS = {"NO_MEMORY_PLANNER": "the memory planner", "SPLIT_REDUCEOP": "split_long_reduction"}


# ------------------------------------------------------------ the verifier, and every step


def _by_spec(run: Callable[[], Any]) -> str | None:
    forget_everything()
    with Context(SPEC=2, SCACHE=0, CCACHE=0):
        try:
            run()
        except SpecError as error:
            lines = str(error).splitlines()
            made_by = [line for line in lines if line.startswith("made by")]
            return " ".join([lines[0], *made_by])
        except WeftError as error:
            return f"{type(error).__name__}: {error}"
    return None


def _by_step(run: Callable[[], Any]) -> str | None:
    forget_everything()
    checker = StepChecker()
    trouble = None
    with Context(SCACHE=0, CCACHE=0), tracing(checker):
        try:
            run()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
    if not checker.wrong:
        return trouble
    rule, rewrite, difference = checker.wrong[0]
    return f"{rule} in the rewrite {rewrite!r}: {difference}"


# ------------------------------------------------------------ launches


@dataclass
class Recorded:
    """One launch: the kernel, and memory before and after it."""

    kernel: UOp
    name: str
    where: str
    device: str
    values: dict[str, int]
    before: Memory
    after: Memory
    shared: str | None  # buffers that overlap, one of them written
    units: float = 0.0  # that floats may be off

    def differ(self, found: Memory, expected: Memory) -> bool:
        """Whether two contents of memory differ by more than floats may."""
        params = {u.arg.slot: u for u in self.kernel.toposort() if u.op is Ops.PARAM}
        return any(
            _differ(values, expected[slot], params[slot].dtype, self.units)
            for slot, values in found.items()
        )


@dataclass
class Recorder(Checks):
    """Stands where the checks of launches stand."""

    launches: list[Recorded] = field(default_factory=list)
    units: float = 0.0

    def run(
        self, step: Step, arguments: list[Buffer], values: dict[str, int], launch: Launch
    ) -> None:
        """Launch, and keep what it did."""
        if step.kernel is None:
            launch(step, arguments, values)
            return
        before = {slot: numbers_in(buffer) for slot, buffer in enumerate(arguments)}
        launch(step, arguments, values)
        after = {slot: numbers_in(buffer) for slot, buffer in enumerate(arguments)}
        name, where = step.kernel.arg.name, where_text(step.origin)
        outs = _written(step.kernel)
        self.launches.append(
            Recorded(
                step.kernel,
                name,
                where,
                step.device,
                dict(values),
                before,
                {slot: after[slot] for slot in outs},
                _overlap(arguments, outs),
                self.units,
            )
        )


def _written(kernel: UOp) -> list[int]:
    return sorted({store.src[0].src[0].arg.slot for store in kernel.src})


def _overlap(arguments: list[Buffer], outs: list[int]) -> str | None:
    """Two buffers of one launch in the same memory, at least one of which is written."""
    for out in outs:
        for slot, other in enumerate(arguments):
            mine = arguments[out]
            if slot == out or mine.base is not other.base:
                continue
            if (
                mine.offset < other.offset + other.nbytes
                and other.offset < mine.offset + mine.nbytes
            ):
                return f"buffers {out} and {slot}"
    return None


def numbers_in(buffer: Buffer) -> list[Any]:
    """The contents as Python numbers."""
    found = buffer.numpy()
    if buffer.dtype.kind == "float" and found.dtype.kind != "f":
        return [float(value_of_bits(int(bits), buffer.dtype)) for bits in found]
    result: list[Any] = found.tolist()
    return result


@contextmanager
def _recording(units: float) -> Iterator[Recorder]:
    recorder = Recorder(units=units)
    before = realize.active_checks
    realize.active_checks = lambda: recorder
    try:
        yield recorder
    finally:
        realize.active_checks = before


def _launches(run: Callable[[], Any], units: float) -> list[Recorded]:
    forget_everything()
    with _recording(units) as recorder:
        run()
    return recorder.launches


def _blame_launch(launch: Recorded) -> str | None:
    """Which stage of a kernel's way is wrong; None if the launch did what the kernel says."""
    try:
        expected = _by_definition(launch.kernel, launch)
    except NoMeaning:
        return None
    if not launch.differ(launch.after, expected):
        return None
    kernel = f"kernel {launch.name} of {launch.where}"
    if launch.shared is not None:
        return f"the memory planner: {launch.shared} of {kernel} are in the same memory"
    renderer = Device[launch.device].renderer
    sink = launch.kernel
    for step in pipeline.KERNEL_PASSES:
        changed = step.run(sink, renderer)
        if launch.differ(_by_definition(changed, launch), expected):
            action = _blame_action(sink, changed, launch, expected, renderer.target)
            return f"pass {step.name!r} in {kernel}{action}"
        sink = changed
    found = _interpreted(launch)
    if launch.differ(found, expected):
        return f"a pass from expand to linearize in {kernel}"
    return f"the renderer or compiler of {launch.device} in {kernel}"


def _blame_action(sink: UOp, changed: UOp, launch: Recorded, expected: Memory, target: Any) -> str:
    """Which of the optimiser's actions it is."""
    before = len(sink.arg.applied)
    for opt in changed.arg.applied[before:]:
        sink = apply_opt(sink, opt, target)
        if launch.differ(_by_definition(sink, launch), expected):
            return f", action {opt!r}"
    return ""


def _by_definition(sink: UOp, launch: Recorded) -> Memory:
    axes = [u for u in sink.toposort() if u.op is Ops.RANGE]
    points = 1
    for axis in axes:
        points *= int(axis.src[0].vmax)
    if points > POINTS_AT_MOST:
        raise NoMeaning("too many points")
    return run_kernel(sink, launch.before, launch.values)


def _interpreted(launch: Recorded) -> Memory:
    """What the interpreter makes of the linear program, as the device's own target has it."""
    target = Device[launch.device].renderer.target
    program = pipeline.lower(launch.kernel, PythonRenderer(target))
    memory: dict[int, Any] = {}
    for param in program.params:
        data = bytearray(param.arg.size * param.dtype.itemsize)
        view = view_memory(memoryview(data), param.dtype, param.arg.size)
        for place, value in enumerate(launch.before[param.arg.slot][: param.arg.size]):
            view[place] = value
        memory[param.arg.slot] = view
    values = [launch.values[v.arg.name] for v in program.variables]
    Interpreter(program.name, program.uops).run(memory, values)
    return {p.arg.slot: [memory[p.arg.slot][i] for i in range(p.arg.size)] for p in program.params}


def _differ(found: list[Any], expected: list[Any], dtype: DType, units: float) -> bool:
    wrong = [(x, y) for x, y in zip(found, expected, strict=False) if not same(x, y)]
    if not wrong or dtype.kind != "float" or not units:
        return bool(wrong)
    largest = max(abs(y) for y in expected if math.isfinite(y))
    unit = largest * 2.0 ** -dtypes.finfo(dtype)[1]
    return any(not abs(x - y) <= units * unit for x, y in wrong)
