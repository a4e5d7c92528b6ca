"""Captured graphs: when they can be replayed, and why not."""

from __future__ import annotations

import pytest

from weft import Tensor, TinyJit
from weft.engine.jit.graph import MISS, CapturedGraph


def captured(function: TinyJit, *args: Tensor) -> CapturedGraph:
    for _ in range(4):
        function(*args)
    assert function.captured is not None
    return function.captured


def test_a_graph_over_arguments_alone_is_plain() -> None:
    x = Tensor([1.0, 2.0]).realize()
    weights = Tensor([3.0, 4.0]).realize()
    assert captured(TinyJit(lambda a: [a * 2, 5]), x).is_plain
    assert not captured(TinyJit(lambda a: a * weights), x).is_plain
    assert not captured(TinyJit(lambda a: a.assign(a * 2).realize()), x).is_plain
    assert not captured(TinyJit(lambda a: a + Tensor.rand(2)), x).is_plain


def test_what_is_captured_can_be_counted_and_looked_at() -> None:
    graph = captured(TinyJit(lambda a: (a + 1).contiguous().sum()), Tensor.ones(8).realize())
    assert len(graph) == 2 and len(graph.linear.src) == 2
    assert graph.arena_bytes > 0 and "of 2 kernels" in repr(graph)
    graph.free_intermediates()


@pytest.mark.parametrize("change", ["shape", "gone", "kind"])
def test_a_state_that_is_not_as_it_was_is_a_miss(change: str) -> None:
    state = {"w": Tensor([3.0, 4.0]).realize()}
    function = TinyJit(lambda a: a.sum() * state["w"].sum())
    x = Tensor([1.0, 2.0]).realize()
    graph = captured(function, x)
    assert function(x).item() == 21.0
    if change == "shape":
        state["w"] = Tensor([1.0, 1.0, 1.0]).realize()
        assert function(x).item() == 9.0
    elif change == "gone":
        del state["w"]
        with pytest.raises(KeyError):
            function(x)
    else:
        state["w"] = Tensor([2, 2]).realize()
        assert function(x).item() == 12.0
    assert repr(MISS) == "MISS" and isinstance(graph.missed, str)
