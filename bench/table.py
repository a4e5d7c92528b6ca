"""The table of the README: weft against the best of its peers and against the machine.

usage: python -m bench.speed --with weft torch torch-compile jax machine --json FILE
       python -m bench.table FILE [--write docs/bench.md]
In: results that `bench.speed` kept. Out: a table in Markdown, and the geometric mean.
Invariant: nothing is measured here; a workload that is not in the file is not in the table.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from bench.speed import Results, markdown, milliseconds

# name pattern -> ratio that must be reached, ratio to aim for: the first that fits
GOALS = {
    "skinny*": (1.0, 2.0),
    "gemv*": (1.0, 2.0),
    "matmul*": (0.9, 1.05),
    "conv_large": (1.0, 2.0),
    "conv_*": (1.0, 1.5),
    "elementwise*": (1.0, 1.5),
    "sum*": (1.0, 1.5),
    "softmax*": (1.0, 1.5),
    "layernorm*": (1.0, 1.5),
    "attention*": (0.9, 1.1),
    "block": (0.9, 1.2),
    "resnet*": (0.9, 1.2),
    "mnist_train": (0.9, 1.2),
    "gpt2_train": (0.9, 1.2),
    "decode*": (1.0, 1.0),
}
# of a page that holds the table
_HEAD = """# Speed beside its peers

    KEPT=MALLOC_MMAP_THRESHOLD_=8589934592,MALLOC_TRIM_THRESHOLD_=8589934592
    python -m bench.speed --with weft torch torch@$KEPT torch-compile jax machine --json FILE
    python -m bench.table FILE --write docs/bench.md

What each workload is stands in `bench/workloads.py`, how they are timed in `bench/README.md`. "Kept
memory" is PyTorch with a malloc that gives nothing back to the system between calls. FILE is added
to: rows during which the machine was busy are measured again, with `--only`, in a run of their own.
"""
# names that run nobody's code
_NOT_PEERS = ("machine",)


class Row(NamedTuple):
    """One workload; None where nothing was measured."""

    name: str
    own: float
    peer: str | None
    peer_time: float | None
    floor: float | None
    is_noisy: bool

    @property
    def ratio(self) -> float | None:
        """The best peer's time over weft's: above 1 weft is faster."""
        return None if self.peer_time is None else self.peer_time / self.own

    @property
    def share(self) -> float | None:
        """Of what the machine can do."""
        return None if self.floor is None else self.floor / self.own


def row_of(name: str, found: Results, subject: str = "weft") -> Row | None:
    """What a workload's results say; None if the subject has none."""
    timed = {who: result for who, result in found.items() if "median" in result}
    if subject not in timed:
        return None
    peers = {
        who: result["median"]
        for who, result in timed.items()
        if who != subject and who not in _NOT_PEERS and (result.get("error of result") or 0) <= 1
    }
    peer = min(peers, key=lambda who: peers[who], default=None)
    floor = timed.get("machine", {}).get("median")
    noisy = any(result.get("noisy") for result in timed.values())
    return Row(
        name, timed[subject]["median"], peer, None if peer is None else peers[peer], floor, noisy
    )


def shown(peer: str | None) -> str:
    """
    >>> shown("jax"), shown("torch@MALLOC_TRIM_THRESHOLD_=1")
    ('jax', 'torch, kept memory')
    """
    name, _, options = (peer or "-").partition("@")
    return f"{name}, kept memory" if "MALLOC_" in options else peer or "-"


def goal_of(name: str) -> tuple[float, float] | None:
    """
    >>> goal_of("conv_large"), goal_of("unet")
    ((1.0, 2.0), None)
    """
    return next((goal for fits, goal in GOALS.items() if fnmatch.fnmatch(name, fits)), None)


def cells(row: Row) -> list[str]:
    """A row as text."""
    goal = goal_of(row.name) if row.peer is not None else None
    marks = "".join(
        mark
        for mark, is_shown in (
            (" (below)", goal is not None and (row.ratio or 0) < goal[0]),
            (" ~", row.is_noisy),
        )
        if is_shown
    )
    return [
        row.name,
        milliseconds(row.own),
        "-" if row.peer_time is None else f"{milliseconds(row.peer_time)} ({shown(row.peer)})",
        "-" if row.ratio is None else f"{row.ratio:.2f}{marks}",
        "-" if goal is None else f"{goal[0]} / {goal[1]}",
        "-" if row.share is None else f"{row.share:.0%}",
    ]


def table(known: dict[str, Any]) -> str:
    """All that is in a file of results."""
    rows = [row for name, found in known.get("speed", {}).items() if (row := row_of(name, found))]
    head = ["workload", "weft, ms", "best peer, ms", "ratio", "must / aim", "of the machine"]
    lines = [markdown([head, *[cells(row) for row in rows]])]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"\nGeometric mean of {len(ratios)} ratios: **{mean:.2f}**.")
    machine = known.get("machine", {})
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    if known.get("commits"):
        facts += f", commits {' and '.join(known['commits'])}"
    lines.append(
        f"\nMedians; {facts}. Ratio: the best peer's time over weft's, above 1 weft is faster. "
        '"Of the machine": the time of as much reading or as many multiply-adds as the workload '
        "needs at least, over weft's. `~`: the machine was not quiet."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.table", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", help="what bench.speed --json wrote")
    parser.add_argument("--write", help="a Markdown file that will hold the table")
    options = parser.parse_args()
    text = table(json.loads(Path(options.file).read_text()))
    if options.write:
        Path(options.write).write_text(f"{_HEAD}\n{text}")
    else:
        print(text)


if __name__ == "__main__":
    main()
