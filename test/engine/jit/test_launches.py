"""Launches: memory that outlives a replay is new, everything else is planned once."""

from __future__ import annotations

from weft import Context, GlobalCounters, Tensor, TinyJit
from weft.engine.jit.launches import Launches


def launches_of(function: TinyJit, *args: Tensor) -> Launches:
    for _ in range(4):
        function(*args)
    assert function.captured is not None
    return function.captured.launches


def kinds(launches: Launches) -> list[str]:
    return sorted(place.kind for place in launches.places)


def test_kinds_of_memory() -> None:
    weights = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    x = Tensor([1.0] * 4).realize()
    found = launches_of(TinyJit(lambda a: (a + weights).contiguous().sum()), x)
    assert kinds(found) == ["arena", "fresh", "input", "input"]
    assert [place.label.kind for place in found.inputs if place.label] == ["argument", "state"]


def test_values_in_between_share_memory_unless_the_planner_is_off() -> None:
    def chain(a: Tensor) -> Tensor:
        for _ in range(6):
            a = (a + 1).contiguous()
        return a.sum()

    x = Tensor.ones(1 << 10).contiguous().realize()
    planned = launches_of(TinyJit(chain), x).arena_bytes
    with Context(NO_MEMORY_PLANNER=1):
        apart = launches_of(TinyJit(chain), x).arena_bytes
    assert planned <= 3 << 12 and apart >= 6 << 12


def test_results_are_new_memory_and_come_back() -> None:
    function = TinyJit(lambda a: a + 1)
    x = Tensor([1.0, 2.0]).realize()
    launches = launches_of(function, x)
    kept = [function(x) for _ in range(3)]
    buffers = {id(result._buffer()) for result in kept}
    assert len(buffers) == 3
    del kept
    assert launches.spare_bytes > 0
    launches.free()
    assert launches.spare_bytes == 0 and function(x).tolist() == [2.0, 3.0]


def test_steps_that_nothing_changes_run_once() -> None:
    weights = Tensor.ones(16, 16).contiguous().realize()
    function = TinyJit(lambda a: a @ weights.T.contiguous(), prune=True)
    x = Tensor.ones(2, 16).contiguous().realize()
    launches = launches_of(function, x)
    assert len(launches.once) == 1 and len(launches.steps) == 2
    GlobalCounters.reset()
    function(x)
    assert GlobalCounters.kernel_count == 1
