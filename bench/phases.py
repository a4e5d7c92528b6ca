"""Where the time between a graph and its first result goes: the compiler's own functions, timed.

In: the Tensors of one step of weft. Out: seconds of scheduling, optimising, lowering, rendering and
of LLVM, and counts. The only file of this folder that knows weft's inside.
Sits under `bench.compile` and `bench.latency`. Seconds are the processor's, which others on the
machine lengthen least.
Invariant: nothing is looked up in a cache, and kernels are made one after another in this process,
so that the parts add up to the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Compiled:
    """What one step takes."""

    nodes: int = 0  # of the tensor graph
    kernels: int = 0
    distinct: int = 0
    operations: int = 0  # of the linear programs of all distinct kernels
    seconds: dict[str, float] = field(default_factory=dict)


def sink_of(tensors: Sequence[Any]) -> Any:
    """The graph of some Tensors, as realizing would schedule it."""
    from weft.engine.known import with_known

    cells = dict.fromkeys(t._cell for t in tensors)
    return with_known([cell for cell in cells if not cell.is_realized and not cell.pure])


def schedule_seconds(tensors: Sequence[Any]) -> float:
    """Seconds from the graph to its kernels, none of them known."""
    from weft import Context, Device
    from weft.engine.schedule import prepare_schedule
    from weft.helpers import disable_gc

    sink = sink_of(tensors)
    # as realizing does it: the collector would look at the whole graph again and again
    with Context(SCACHE=0), disable_gc():
        started = time.process_time()
        prepare_schedule(sink, Device.DEFAULT)
        return time.process_time() - started


@contextmanager
def timed(owner: Any, name: str, into: dict[str, float], label: str) -> Iterator[None]:
    """Within the block every call of `owner.name` adds its seconds to `into[label]`."""
    plain: Callable[..., Any] = getattr(owner, name)
    into.setdefault(label, 0.0)

    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        try:
            return plain(*args, **kwargs)
        finally:
            into[label] += time.process_time() - started

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, plain)


def compile_step(function: Callable[..., Sequence[Any]], arguments: Sequence[Any]) -> Compiled:
    """Build the graph of a step and make its kernels, each distinct one once."""
    from weft import Context, Device
    from weft.codegen import pipeline
    from weft.engine.schedule import prepare_schedule
    from weft.helpers import disable_gc

    result = Compiled()
    seconds = result.seconds
    started = time.process_time()
    tensors = function(*arguments)
    seconds["graph"] = time.process_time() - started
    sink = sink_of(tensors)
    result.nodes = len(sink.toposort())
    opened: Any = Device[Device.DEFAULT]
    with Context(SCACHE=0), disable_gc():
        started = time.process_time()
        prepared, _, _ = prepare_schedule(sink, Device.DEFAULT)
        seconds["schedule"] = time.process_time() - started
    kernels = [step.kernel for step in prepared.steps if step.kernel is not None]
    result.kernels = len(prepared.steps)
    distinct = list({kernel.key: kernel for kernel in kernels}.values())
    result.distinct = len(distinct)
    renderer = opened.renderer
    with (
        disable_gc(),
        timed(pipeline, "optimise", seconds, "optimise"),
        _rendering(renderer, seconds),
    ):
        started = time.process_time()
        specs = [pipeline.lower(kernel, renderer) for kernel in distinct]
        whole = time.process_time() - started
    seconds["lower"] = whole - seconds["optimise"] - seconds["render"]
    result.operations = sum(len(spec.uops) for spec in specs)
    started = time.process_time()
    for spec in specs:
        opened.compiler.compile(spec.src)
    seconds["llvm"] = time.process_time() - started
    return result


@contextmanager
def _rendering(renderer: Any, seconds: dict[str, float]) -> Iterator[None]:
    with timed(type(renderer), "render", seconds, "render"):
        yield


def slowest_rules(
    function: Callable[..., Sequence[Any]], arguments: Sequence[Any], count: int
) -> list[str]:
    """The rules of the simplifier and of the passes that took most, as the table shows them."""
    from weft import Context
    from weft.uop.trace import clear_match_stats, match_stats_table

    clear_match_stats()
    with Context(TRACK_MATCH_STATS=1):
        compile_step(function, arguments)
    lines = match_stats_table().splitlines()
    return lines[-1 - count :]
