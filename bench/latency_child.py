"""One start of one framework, measured from inside.

usage: python -m bench.latency_child FRAMEWORK WHAT
In: what to do: `import`, `first` (a tiny op), `replay`, `eager`, `schedule`, or a workload.
Out: one JSON line of seconds. Sits under `bench.latency`, which starts it again and again.
Invariant: nothing is imported before the clock runs but what Python itself needs.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = (64, 128, 256, 512, 1024, 2048, 4096)


def tiny_op(name: str) -> Any:
    """Import, and compute three numbers."""
    module: Any = importlib.import_module(name)
    if name == "torch":
        return (module.rand(3) + 1).tolist()
    if name == "jax":
        return (module.random.uniform(module.random.key(0), (3,)) + 1).tolist()
    return (module.Tensor.rand(3) + 1).tolist()


def first_result(framework: str, what: str) -> dict[str, float]:
    """The first and the second call of a workload; inputs and weights are in memory before."""
    from bench import frameworks, workloads

    step, _, _ = frameworks.prepare(framework, workloads.make(what))
    times, work = [], []
    for _ in range(2):
        started, worked = time.perf_counter(), cpu_seconds()
        step()
        times.append(time.perf_counter() - started)
        work.append(cpu_seconds() - worked)
    return {"result": times[0], "second": times[1], "cpu": work[0], "cpu of second": work[1]}


def cpu_seconds() -> float:
    """What all threads of this process worked, and its children that have ended: on a machine
    that others use too, this says more than the clock on the wall."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def median_time(step: Callable[[], Any], seconds: float = 2.0) -> float:
    """The median over so many seconds of calls, the first few left out."""
    for _ in range(10):
        step()
    times = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        step()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def replay(framework: str) -> dict[str, float]:
    """Replays of 100 and of 1,000 tiny kernels: what a kernel costs, and what a call does."""
    from bench import frameworks, workloads

    counts = (100, 1000)
    seconds = []
    for count in counts:
        step, _, _ = frameworks.prepare(framework, workloads.make(f"dispatch{count}"))
        seconds.append(median_time(step))
    slope = (seconds[1] - seconds[0]) / (counts[1] - counts[0])
    return {"slope": slope, "fixed": max(0.0, seconds[0] - counts[0] * slope)}


def eager(framework: str) -> dict[str, float]:
    """One op that is not jitted, again and again: its schedule is known."""
    from bench import frameworks, workloads

    step, _, _ = frameworks.prepare(framework, workloads.make("eager_op"))
    return {"op": median_time(step)}


def schedule() -> dict[str, float]:
    """Milliseconds of scheduling an LSTM of so many steps, for each of them."""
    from bench import in_weft, workloads
    from bench.phases import schedule_seconds

    module = in_weft.load("weft")
    result = {}
    for steps in STEPS:
        case = workloads.make(f"lstm{steps}")
        function, arguments = in_weft.lazy(module, case)
        result[str(steps)] = schedule_seconds(function(*arguments))
    return result


def main() -> None:
    """Do it and say how long it took."""
    framework, what = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name = framework.partition("@")[0].removesuffix("-compile")
    result: dict[str, float]
    started = time.perf_counter()
    if what == "import":
        importlib.import_module(name)
        result = {"import": time.perf_counter() - started}
    elif what == "first":
        numbers = tiny_op(name)
        result = {"first": time.perf_counter() - started}
        if not all(1 <= number <= 2 for number in numbers):
            raise RuntimeError(f"{name} computed {numbers}")
    elif what == "replay":
        result = replay(framework)
    elif what == "eager":
        result = eager(framework)
    elif what == "schedule":
        result = schedule()
    else:
        result = first_result(framework, what)
    print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
