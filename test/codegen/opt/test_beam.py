"""Beam: the search goes downhill, measures nothing twice, and ends in time."""

from __future__ import annotations

from weft.codegen.opt.beam import Beam


def downhill(width: int, budget: int = 1000) -> tuple[Beam[int], list[int]]:
    """Numbers whose time is their distance from 37, reached by steps of 1 and 5."""
    asked: list[int] = []

    def measure(point: int, best: float) -> float | None:
        asked.append(point)
        return None if point == 20 else 1.0 + abs(point - 37)

    found = Beam(
        lambda point: [point + step for step in (-5, -1, 1, 5)],
        lambda point: 1.0,
        measure,
        lambda: len(asked) >= budget,
    )
    return found, asked


def test_a_search_goes_downhill_and_measures_nothing_twice() -> None:
    search_, asked = downhill(2)
    results = search_.search([0, 10], 2)
    assert results[0].point == 37 and results[0].seconds == 1.0
    assert len(asked) == len(set(asked)) == search_.tried
    assert {0, 10} <= {known.point for known in results}
    # what could not be measured is no result
    assert 20 not in {known.point for known in results}


def test_a_search_ends_when_its_time_is_over() -> None:
    search_, asked = downhill(2, budget=5)
    results = search_.search([0, 10], 2)
    assert asked == [0, 10, 5, 9, 11] and results[0].point == 11


def test_hopeless_estimates_are_not_measured() -> None:
    asked: list[int] = []
    search_ = Beam(
        lambda point: [1, 2, 3],
        lambda point: 100.0 if point == 2 else 1.0,
        lambda point, best: asked.append(point) or float(point + 1),
        lambda: False,
    )
    search_.search([0], 1)
    assert asked == [0, 1, 3]
