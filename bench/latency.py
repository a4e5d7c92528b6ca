"""Latency: how long one waits for an import, a first result, a replay, an op, a schedule.

usage: python -m bench.latency [--with weft jax ...] [--what import,first,block] [--starts N]
In: fresh processes, with empty and with warm caches on disk. Out: a table of medians, what must be
reached and what is aimed for, and ratios to the peers of the same run; then replay, one op, and
scheduling against the number of steps of an LSTM.
Invariant: frameworks take turns, start by start, and the first result counts from the first call:
imports and weights are excluded. Python's own bytecode caches are warm in all cases.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from bench import frameworks
from bench.speed import keep, locked, markdown

DEFAULT = ["weft", "jax", "torch"]
STARTS = ("import", "first", "block", "mnist_train", "resnet50", "resnet50_train")
EXTRA = ("replay", "eager", "schedule")


@dataclass(frozen=True)
class Row:
    """A line of the table: what is done, which figure of it, and the bars in seconds."""

    title: str
    what: str
    figure: str
    cache: str
    must: float | None
    aim: float | None
    peer: str = ""  # the bar is this peer's figure, times `factor`
    factor: float = 1.0


ROWS = (
    Row("import", "import", "import", "cold", 0.12, 0.06),
    Row("process start to a tiny op, cold", "first", "process", "cold", 0.6, 0.35),
    Row("process start to a tiny op, warm", "first", "process", "warm", 0.4, 0.2),
    Row("transformer block, cold", "block", "result", "cold", None, 0.25, "jax", 1.5),
    Row("transformer block, warm", "block", "result", "warm", None, 0.08, "jax", 1.5),
    Row("MNIST training step, cold", "mnist_train", "result", "cold", None, 2.0, "jax"),
    Row("MNIST training step, warm", "mnist_train", "result", "warm", None, 0.5, "jax"),
    Row("ResNet-50 forward, cold", "resnet50", "result", "cold", None, 1.0, "jax"),
    Row("ResNet-50 forward, warm", "resnet50", "result", "warm", None, 0.3, "jax"),
    Row("ResNet-50 training step, cold", "resnet50_train", "result", "cold", None, 2.0, "jax"),
    Row("ResNet-50 training step, cold, CPU", "resnet50_train", "cpu", "cold", None, 4.0, "jax"),
    Row("ResNet-50 training step, warm", "resnet50_train", "result", "warm", None, 1.0, "jax"),
    Row("replay: per kernel, 100 to 1,000", "replay", "slope", "warm", 0.3e-6, 0.03e-6),
    Row("replay: fixed cost of a call", "replay", "fixed", "warm", 30e-6, 10e-6),
    Row("one op that is not jitted", "eager", "op", "warm", 150e-6, 40e-6),
)
Runs = dict[tuple[str, str, str], list[dict[str, Any]]]


def measure(framework: str, what: str, cache: str, options: Any) -> dict[str, Any]:
    """One start; `process` is the wall time of the whole of it, seen from outside."""
    watch = frameworks.Interference()
    started = time.perf_counter()
    command = [frameworks.python(framework), "-m", "bench.latency_child", framework, what]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=frameworks.environment(framework, options.threads, cache),
            preexec_fn=frameworks.prioritise(options.nice),
            timeout=options.timeout,
        )
    except subprocess.TimeoutExpired:
        return {"error": "timeout"}
    seconds = time.perf_counter() - started
    if child.returncode:
        said = child.stderr.strip().splitlines()
        return {"error": said[-1][:200] if said else f"exit {child.returncode}"}
    return {"process": seconds, "others": watch.share(), **json.loads(child.stdout)}


def start_all(what: str, options: Any) -> Runs:
    """Some starts of every framework, in turns, each from an empty cache and then from a warm."""
    runs: Runs = {}
    only_weft = what == "schedule"
    chosen = [f for f in options.frameworks if not only_weft or frameworks.split(f)[0] == "weft"]
    starts = options.starts if what in STARTS else 1
    for _ in range(starts):
        for framework in chosen:
            with locked(options.lock), tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    found = measure(framework, what, cache, options)
                    runs.setdefault((what, framework, state), []).append(found)
                    if what in ("import", *EXTRA) and state == "cold":
                        runs.setdefault((what, framework, "warm"), []).append(found)
                        break
    return runs


def median(found: list[dict[str, Any]], figure: str) -> float | None:
    """Over the starts that went well."""
    values = [run[figure] for run in found if figure in run]
    return statistics.median(values) if values else None


def seconds_text(value: float | None) -> str:
    """
    >>> seconds_text(0.12), seconds_text(3e-7), seconds_text(None)
    ('0.120 s', '0.300 us', '-')
    """
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.3f} us" if value < 1e-6 else f"{value * 1e6:.1f} us"
    return f"{value:.3f} s"


def table(runs: Runs, names: list[str]) -> str:
    """All rows that were measured."""
    peers = names[1:]
    rows = [["", *names, *[f"{names[0]}/{peer}" for peer in peers], "must reach", "aim for"]]
    for row in ROWS:
        found = [runs.get((row.what, name, row.cache)) for name in names]
        if not any(found):
            continue
        values = [median(each or [], row.figure) for each in found]
        ratios = [_ratio(values[0], value) for value in values[1:]]
        bar = row.must
        if row.peer in names:
            peer = values[names.index(row.peer)]
            bar = None if peer is None else row.factor * peer
        texts = [seconds_text(value) for value in values]
        rows.append([row.title, *texts, *ratios, seconds_text(bar), seconds_text(row.aim)])
    return markdown(rows)


def _ratio(one: float | None, other: float | None) -> str:
    return "-" if one is None or not other else f"{one / other:.2f}"


def schedule_table(found: dict[str, Any]) -> str:
    """Scheduling time against the number of steps: linear if the time of a step is the same."""
    rows = [["steps of the LSTM", "scheduling, ms", "us per step"]]
    for steps, seconds in found.items():
        if steps.isdigit():
            each = seconds / int(steps) * 1e6
            rows.append([steps, f"{seconds * 1e3:.1f}", f"{each:.1f}"])
    return markdown(rows)


def main() -> None:
    """Everything asked for, then the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--with", dest="frameworks", nargs="+", default=DEFAULT, help="the first is the subject")
    add("--what", default=",".join((*STARTS, *EXTRA)), help="what to start, separated by commas")
    add("--starts", type=int, default=3, help="starts of each; medians are shown")
    add("--threads", type=int, default=2)
    add("--timeout", type=float, default=280)
    add("--lock", help="a file to hold an exclusive lock on during a start")
    add("--nice", type=int, default=0)
    add("--json", help="write results here; an existing file is added to")
    options = parser.parse_args()
    frameworks.pin(options.threads)
    runs: Runs = {}
    for what in options.what.split(","):
        new = start_all(what, options)
        runs |= new
        for (_, framework, state), found in new.items():
            keep(options.json, "latency", f"{what} {framework} {state}", found, options)
            print(f"# {what} {framework} {state}: {found[-1]}", file=sys.stderr, flush=True)
    print(table(runs, options.frameworks))
    for (what, _, state), found in runs.items():
        if what == "schedule" and state == "warm" and "error" not in found[0]:
            print("\n" + schedule_table(found[0]))


if __name__ == "__main__":
    main()
