"""`python -m bench.trees BASE [--threads N] [--cpu]`: this checkout beside another one, row by row.

In: a folder with another checkout of weft, names of workloads. Out: a line per workload: the best
and median time of this tree, of the other one and of PyTorch, and the ratios. One process for each
of them serves all workloads, so that a table takes minutes; `bench.speed` compares results too, and
starts a process for each workload.
Invariant: they take turns in short slices, as in `bench.speed`, and are stopped in between. With
`--cpu` times are of the CPU, of all threads together: on a machine that others use, only one
thread's mean anything.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import frameworks, workloads

WARM_UP = 4  # calls before TinyJit replays
LEFT_OUT = ("decode_1b", "matmul4096", "eager_op")  # gigabytes, minutes, and nothing to replay
# a call that takes longer is timed once a round
LONG_SECONDS = 0.5


def serve(framework: str) -> None:
    """Answers lines of JSON: {"row": name} with how long a call takes, {"calls": n} with times."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    step: Callable[[], Any] = time.time
    for line in sys.stdin:
        asked = json.loads(line)
        clock = time.process_time if asked.get("cpu") else time.perf_counter
        if "row" in asked:
            del step
            gc.collect()
            try:
                step, _, _ = frameworks.prepare(framework, workloads.make(asked["row"]))
                for _ in range(WARM_UP):
                    started = clock()
                    step()
                    seconds = clock() - started
                print(json.dumps({"seconds": seconds}), file=answers)
            except Exception as error:
                step = time.time
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
            continue
        times = []
        step()  # refills the caches after another tree's turn
        for _ in range(asked["calls"]):
            started = clock()
            step()
            times.append(clock() - started)
        print(json.dumps({"times": times}), file=answers)


class Tree:
    """A process that serves one checkout, or PyTorch."""

    def __init__(self, label: str, root: Path, framework: str, threads: int) -> None:
        self.label = label
        env = frameworks.environment(framework, threads)
        env["PYTHONPATH"] = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve", framework]
        self.process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
            stderr=subprocess.DEVNULL, cwd=root,
        )  # fmt: skip

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            return {"error": f"exit {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer


def time_row(row: str, trees: list[Tree], options: Any) -> dict[str, list[float]]:
    """Seconds of calls by tree; none for one that failed."""
    once = {tree: tree.ask(row=row, cpu=options.cpu) for tree in trees}
    times: dict[str, list[float]] = {tree.label: [] for tree in trees}
    rounds = options.rounds
    for _ in range(rounds):
        for tree in trees:
            if (seconds := once[tree].get("seconds")) is None:
                print(f"# {tree.label} {row}: {once[tree]['error']}", file=sys.stderr)
                continue
            if seconds > LONG_SECONDS and len(times[tree.label]) >= 2:
                continue
            calls = max(1, min(200, int(options.slice / max(seconds, 1e-6))))
            times[tree.label] += tree.ask(calls=calls, cpu=options.cpu).get("times", [])
    return times


def main() -> None:
    """All rows that were asked for."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("base", type=Path, help="the root of another checkout")
    add("--only", default="*", help="names of workloads, with wildcards, separated by commas")
    add("--threads", type=int, default=2)
    add("--rounds", type=int, default=5)
    add("--slice", type=float, default=0.05, help="seconds of calls per tree and round")
    add("--cpu", action="store_true", help="CPU time instead of wall time")
    add("--without-torch", action="store_true")
    add("--json", type=Path)
    options = parser.parse_args()
    frameworks.pin(options.threads)
    trees = [
        Tree("this", frameworks.ROOT, "weft", options.threads),
        Tree("base", options.base.resolve(), "weft", options.threads),
    ]
    if not options.without_torch:
        trees.append(Tree("torch", frameworks.ROOT, "torch", options.threads))
    for tree in trees:
        # imports are done before the first row
        tree.ask(calls=1)
    rows = [
        name
        for name in workloads.CASES
        if any([fnmatch.fnmatch(name, pattern) for pattern in options.only.split(",")])
        and (name not in LEFT_OUT or name in options.only)
    ]
    ratios: dict[str, list[float]] = {}
    kept: dict[str, Any] = {}
    for row in rows:
        times = time_row(row, trees, options)
        cells = [f"{row:22}"]
        for tree in trees:
            found = times[tree.label]
            middle, best = (statistics.median(found), min(found)) if found else (math.nan,) * 2
            cells.append(f"{tree.label} {middle * 1e3:9.3f} ({best * 1e3:9.3f})")
            if tree is not trees[0] and found and times["this"]:
                ratio = middle / statistics.median(times["this"])
                ratios.setdefault(tree.label, []).append(ratio)
                cells.append(f"x{ratio:.2f} ({best / min(times['this']):.2f})")
        kept[row] = times
        print("  ".join(cells), flush=True)
        if options.json:
            options.json.write_text(json.dumps(kept))
    for label, found in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, found)))
        print(f"{label}: {mean:.3f} times this tree's time, geometric mean of {len(found)} rows")
    for tree in trees:
        assert tree.process.stdin is not None
        tree.process.send_signal(signal.SIGCONT)
        tree.process.stdin.close()
        tree.process.wait(20)


if __name__ == "__main__":
    main()
