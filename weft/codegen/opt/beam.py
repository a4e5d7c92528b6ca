"""Beam: the search for the fastest of the candidates, by measuring them.

In: candidates to start from, what their neighbours are, what a candidate is estimated to cost, and
a function that measures one. Out: all that were measured, the fastest first. Sits above the moves;
the engine brings the measuring.
Invariant: nothing is measured twice, and the starts are among the results, so that what is found
is never slower than the best start.

Round after round the `width` fastest are changed by one move each. Estimates order the neighbours
and leave out those far above the best; a round that wins nothing is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Point = TypeVar("Point", bound=Hashable)

# an estimate this many times the least one so far is not worth a measurement
HOPELESS = 3.0
# neighbours of one point that are measured in one round
NEIGHBOURS_AT_MOST = 48
# of moves from a start: what is further away is hardly ever better
ROUNDS_AT_MOST = 12


@dataclass(frozen=True)
class Measured(Generic[Point]):
    """A candidate and the seconds of one run."""

    point: Point
    seconds: float


class Beam(Generic[Point]):
    """One search; `tried` counts what was measured or failed to be."""

    def __init__(
        self,
        neighbours: Callable[[Point], Iterable[Point]],
        cost: Callable[[Point], float],
        measure: Callable[[Point, float], float | None],
        is_over: Callable[[], bool],
    ) -> None:
        """`measure(point, best)` may stop early at what takes far longer than `best`."""
        self._neighbours = neighbours
        self._cost = cost
        self._measure = measure
        self._is_over = is_over
        self._seen: set[Point] = set()
        self.found: list[Measured[Point]] = []
        self.tried = 0

    def add(self, known: Measured[Point]) -> None:
        """A start that was measured before."""
        self._seen.add(known.point)
        self.found.append(known)
        self.tried += 1

    def search(self, starts: Iterable[Point], width: int) -> list[Measured[Point]]:
        """Everything that was measured, the fastest first."""
        for start in starts:
            self._try(start)
        self._sort()
        for _ in range(ROUNDS_AT_MOST):
            if not self.found or self._is_over():
                break
            before = self.found[0].seconds
            for known in self.found[:width]:
                self._widen(known.point)
            self._sort()
            if self.found[0].seconds >= before:
                break
        return self.found

    def _widen(self, point: Point) -> None:
        """Measures the neighbours of a point, those with the least estimates first."""
        fresh = dict.fromkeys(self._neighbours(point))
        costs = {other: self._cost(other) for other in fresh if other not in self._seen}
        least = min((*costs.values(), self._cost(point)))
        hopeful = [other for other in costs if costs[other] <= HOPELESS * least]
        for other in sorted(hopeful, key=lambda o: costs[o])[:NEIGHBOURS_AT_MOST]:
            if self._is_over():
                return
            self._try(other)

    def _try(self, point: Point) -> None:
        if point in self._seen:
            return
        self._seen.add(point)
        self.tried += 1
        best = min([known.seconds for known in self.found], default=float("inf"))
        seconds = self._measure(point, best)
        if seconds is not None:
            self.found.append(Measured(point, seconds))

    def _sort(self) -> None:
        self.found.sort(key=lambda known: known.seconds)
