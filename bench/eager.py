"""Eager: what one op and one training step cost that nobody jitted, in microseconds of CPU time.

usage: python -m bench.eager [--with weft torch jax] [--only add,mlp] [--rounds N] [--threads N]
In: a process for each framework, which stays. Out: a table of medians with the spread of the middle
half, in CPU time of all threads and on the wall, and the ratio of the CPU times.
Invariant: frameworks take turns, slice by slice; shapes are the same again and again, and each
result is waited for. What the rows are stands in `bench/eager_child.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from typing import Any

from bench import frameworks
from bench.eager_child import ROWS
from bench.speed import locked, markdown

DEFAULT = ["weft", "torch", "jax"]


class Peer:
    """A process of one framework that runs slices when asked."""

    def __init__(self, framework: str, options: Any) -> None:
        self.name = framework
        self._process = subprocess.Popen(
            [frameworks.python(framework), "-m", "bench.eager_child", framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=frameworks.environment(framework, options.threads),
        )

    def ask(self, row: str, calls: int) -> dict[str, float] | None:
        """Microseconds per call of one slice; None if it cannot do this row."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"row": row, "calls": calls}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        found: dict[str, float] = json.loads(line) if line else {"error": 1.0}
        return None if "error" in found else found

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def text(values: list[float]) -> str:
    """The median, and how far the middle half of the slices lies apart.

    >>> text([10.0, 11.0, 12.0, 13.0, 14.0]), text([])
    ('12.0 ±1.5', '-')
    """
    if not values:
        return "-"
    if len(values) < 4:
        return f"{statistics.median(values):.1f}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):.1f} ±{(high - low) / 2:.1f}"


def main() -> None:
    """All rows, in turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.eager", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--with", dest="frameworks", nargs="+", default=DEFAULT, help="the first is the subject")
    add("--only", default=",".join(ROWS), help="rows, separated by commas")
    add("--rounds", type=int, default=15, help="slices of each")
    add("--threads", type=int, default=2)
    add("--lock", help="a file to hold an exclusive lock on during a round")
    options = parser.parse_args()
    frameworks.pin(options.threads)
    peers = [Peer(framework, options) for framework in options.frameworks]
    names = [peer.name for peer in peers]
    head = [f"{name}, {kind}" for kind in ("CPU us", "wall us") for name in names]
    rows = [["", *head, *[f"{name}/{names[0]}" for name in names[1:]]]]
    for row in options.only.split(","):
        calls = ROWS[row]
        cpu: dict[str, list[float]] = {name: [] for name in names}
        wall: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(options.rounds + 1):
            with locked(options.lock):
                for peer in peers:
                    found = peer.ask(row, calls)
                    # the first turn compiles
                    if found is not None and turn:
                        cpu[peer.name].append(found["cpu"])
                        wall[peer.name].append(found["wall"])
        middle = [statistics.median(cpu[name]) if cpu[name] else None for name in names]
        ratios = [
            "-" if m is None or middle[0] is None else f"{m / middle[0]:.2f}" for m in middle[1:]
        ]
        times = [text(kind[name]) for kind in (cpu, wall) for name in names]
        rows.append([row, *times, *ratios])
    for peer in peers:
        peer.end()
    print(markdown(rows))


if __name__ == "__main__":
    main()
