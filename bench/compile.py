"""Compile time: what each stage between a graph and machine code takes, for some programs.

usage: python -m bench.compile [--only resnet50,...] [--starts N] [--rules N] [--json FILE]
In: names of workloads. Out: a row for each: nodes, kernels, distinct kernels, and milliseconds of
building the graph, scheduling, optimising, lowering, rendering and LLVM; then the slowest rules.
Invariant: every row is the median of fresh processes that find nothing in a cache, and kernels are
made one after another, so that the parts add up to the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from bench import frameworks
from bench.speed import keep, locked, markdown

PROGRAMS = {
    "resnet50": "ResNet-50, forward",
    "block": "transformer block",
    "gpt2": "GPT-2 small, 64 tokens",
    "lstm512": "LSTM, 512 steps",
    "mnist_train": "MNIST training step",
    "resnet50_train": "ResNet-50 training step",
}
PHASES = ("graph", "schedule", "optimise", "lower", "render", "llvm")
COUNTS = ("nodes", "kernels", "distinct", "operations")


def child(name: str, rules: int) -> None:
    """One start, measured from inside: a JSON line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from bench import in_weft, workloads
    from bench.phases import compile_step, slowest_rules

    module = in_weft.load("weft")
    function, arguments = in_weft.lazy(module, workloads.make(name))
    if rules:
        print(json.dumps(slowest_rules(function, arguments, rules)), file=answers, flush=True)
        return
    found = compile_step(function, arguments)
    print(json.dumps(dataclasses.asdict(found)), file=answers, flush=True)


def start(name: str, rules: int, options: Any) -> Any:
    """A fresh process; what it answers."""
    command = [sys.executable, "-m", "bench.compile", "--child", name, "--rules", str(rules)]
    with locked(options.lock):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**frameworks.environment("weft", options.threads), "CCACHE": "0"},
            preexec_fn=frameworks.prioritise(options.nice),
        )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def row(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """Counts, then medians of milliseconds and their sum."""
    counts = [str(runs[0][count]) for count in COUNTS]
    medians = [statistics.median(run["seconds"][phase] for run in runs) for phase in PHASES]
    times = [f"{seconds * 1e3:.1f}" for seconds in (*medians, sum(medians))]
    return [PROGRAMS[name], *counts, *times]


def main() -> None:
    """All programs asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.compile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--only", default=",".join(PROGRAMS), help="names of programs, separated by commas")
    add("--starts", type=int, default=3, help="starts of each; medians are shown")
    add("--rules", type=int, default=8, help="how many of the slowest rules to show")
    add("--threads", type=int, default=2)
    add("--lock", help="a file to hold an exclusive lock on during a start")
    add("--nice", type=int, default=0)
    add("--json", help="write results here; an existing file is added to")
    add("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.rules)
        return
    frameworks.pin(options.threads)
    names = options.only.split(",")
    rows = [["program", *COUNTS, *[f"{phase}, ms" for phase in PHASES], "sum, ms"]]
    for name in names:
        runs = [start(name, 0, options) for _ in range(options.starts)]
        rows.append(row(name, runs))
        keep(options.json, "compile", name, runs, options)
        print(f"# {' | '.join(rows[-1])}", file=sys.stderr, flush=True)
    print(markdown(rows))
    for name in names if options.rules else ():
        print(f"\nslowest rules of {PROGRAMS[name]} (with counting, which costs time itself)")
        print("matches / attempts -- time of matches / of all attempts -- where the rule stands")
        print("\n".join(start(name, options.rules, options)))


if __name__ == "__main__":
    main()
