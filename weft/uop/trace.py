"""Watching rewrites: who wants to see every step, and what each rule cost.

What comes in: the steps of `graph_rewrite`, the attempts of `PatternMatcher`. What goes out: calls
of the active tracers, and the table of `TRACK_MATCH_STATS`.
Where it sits: under the matcher and the rewriter, which look here once per rewrite.
The one invariant: when nobody watches, nothing here runs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from weft.knobs import TRACK_MATCH_STATS
from weft.uop.node import UOp


class Rule(Protocol):
    """What a watcher may know about a rule."""

    @property
    def name(self) -> str:
        """The name of the rule's function."""
        ...

    @property
    def location(self) -> tuple[str, int]:
        """File and line where the rule was written."""
        ...


class Tracer(Protocol):
    """Sees every rewrite from its first graph to its last."""

    def start(self, name: str, root: UOp) -> None:
        """A rewrite called `name` begins with this graph."""
        ...

    def step(self, name: str, before: UOp, after: UOp, rule: Rule) -> None:
        """A rule made one node into another."""
        ...

    def finish(self, name: str, result: UOp) -> None:
        """The rewrite came to rest (not called when it raised)."""
        ...


# Rewrites look here once, at their start.
tracers: list[Tracer] = []
# Those who want to see every schedule and launch: while there are some, nothing is looked up that
# would pass them by.
recorders: list[object] = []


@contextlib.contextmanager
def tracing(tracer: Tracer) -> Generator[Tracer, None, None]:
    """Within the block `tracer` sees every rewrite of every thread."""
    tracers.append(tracer)
    try:
        yield tracer
    finally:
        tracers.remove(tracer)


@dataclass
class MatchStats:
    """What one rule did; times are nanoseconds."""

    matches: int = 0
    attempts: int = 0
    match_time: int = 0
    total_time: int = 0

    def count(self, matched: bool, time: int) -> None:
        """One attempt that took `time`."""
        self.attempts += 1
        self.total_time += time
        if matched:
            self.matches += 1
            self.match_time += time


_stats: dict[Any, MatchStats] = {}


def stats_of(rule: Rule) -> MatchStats:
    """The counters of a rule, zero at its first attempt."""
    found = _stats.get(rule)
    if found is None:
        if not _stats:
            atexit.register(_print_at_exit)
        found = _stats.setdefault(rule, MatchStats())
    return found


def clear_match_stats() -> None:
    """Start counting anew."""
    _stats.clear()


def short_location(location: tuple[str, int]) -> str:
    """File and line as a person would write them."""
    path, line = location
    folder, file = os.path.split(path)
    return f"{os.path.basename(folder)}/{file}:{line}"


def match_stats_table() -> str:
    """`matches / attempts -- match time / total time -- where the rule stands`, slowest last."""
    rows = sorted(_stats.items(), key=lambda item: item[1].total_time)
    total = MatchStats(
        sum(stats.matches for _, stats in rows),
        sum(stats.attempts for _, stats in rows),
        sum(stats.match_time for _, stats in rows),
        sum(stats.total_time for _, stats in rows),
    )
    lines = [_row(stats, f"{short_location(rule.location)} {rule.name}") for rule, stats in rows]
    return "\n".join([*lines, _row(total, f"all {len(rows)} rules")])


def _row(stats: MatchStats, where: str) -> str:
    return (
        f"{stats.matches:7d} / {stats.attempts:8d} -- "
        f"{stats.match_time / 1e6:9.2f} / {stats.total_time / 1e6:9.2f} ms -- {where}"
    )


def _print_at_exit() -> None:
    if TRACK_MATCH_STATS.value >= 2 and _stats:
        print(match_stats_table(), file=sys.stderr)
