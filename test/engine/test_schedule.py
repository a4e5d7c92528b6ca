"""The schedule cache: what has the structure of something known is scheduled and compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft import Context, Tensor, TinyJit, Variable, nn
from weft.engine.programs import _runners
from weft.engine.schedule import _prepared, clear_schedules


def hits(step: Callable[[int], Any], capsys: Any, warm_up: int = 1, count: int = 4) -> None:
    """After some steps every further one is known, and `DEBUG=1` says so."""
    clear_schedules()
    for i in range(warm_up):
        step(i)
    schedules, programs = len(_prepared), len(_runners)
    capsys.readouterr()
    with Context(DEBUG=1):
        for i in range(warm_up, warm_up + count):
            step(i)
    printed = capsys.readouterr().out
    assert "cache hit" in printed and "scheduled:" not in printed
    assert (len(_prepared), len(_runners)) == (schedules, programs)


def test_another_step_of_an_optimiser(capsys: Any) -> None:
    model = nn.Linear(4, 3)
    optimiser = nn.optim.Adam(nn.state.get_parameters(model), lr=0.125)
    x = Tensor.arange(8).reshape(2, 4).float().realize()

    @Tensor.train()
    def step(i: int) -> None:
        optimiser.zero_grad()
        model(x + 1.0).square().sum().backward()
        optimiser.step()

    # the first step finds the optimiser's storage not yet in memory
    hits(step, capsys, warm_up=2)


def test_another_position_of_a_cache_of_keys(capsys: Any) -> None:
    position = Variable("position", 0, 15)
    cache = Tensor.zeros(16, 4).contiguous().realize()
    key = Tensor.ones(1, 4).contiguous().realize()
    seen = []

    def step(i: int) -> None:
        here = position.bind(i)
        cache[here : here + 1].assign(key * 2).realize()
        seen.append((key @ cache[: here + 1].T).softmax(-1).sum().item())

    hits(step, capsys)
    assert seen == pytest.approx([1.0] * len(seen))


def test_another_parameter_of_the_same_shape(capsys: Any) -> None:
    tensors = [Tensor([float(i), 2.0]).realize() for i in range(8)]
    hits(lambda i: (tensors[i] * 3).realize(), capsys)


def test_draws_of_random_numbers_whatever_slot_they_take(capsys: Any) -> None:
    """A draw that is still pending keeps its slot, so that the next one takes another."""
    kept: list[Tensor] = []
    x = Tensor.ones(8).contiguous().realize()

    @Tensor.train()
    def step(i: int) -> None:
        kept.append(Tensor.rand(3))
        hidden = x.dropout(0.5) + x.dropout(0.25)
        hidden.realize()

    hits(step, capsys)
    Tensor.manual_seed(1)
    first = [Tensor.rand(2) for _ in range(3)]
    together = Tensor.cat(first[2], first[0], first[1]).tolist()
    Tensor.manual_seed(1)
    plain = [Tensor.rand(2).tolist() for _ in range(3)]
    assert together == [*plain[2], *plain[0], *plain[1]]


def test_a_captured_function_runs_the_programs_that_plain_execution_made() -> None:
    def draw(x: Tensor) -> Tensor:
        return (x + Tensor.rand(5)).realize()

    x = Tensor.ones(5).contiguous().realize()
    kept = [Tensor.rand(2), draw(x)]
    programs = len(_runners)
    jitted = TinyJit(draw)
    found = [jitted(x).tolist() for _ in range(4)]
    assert len(_runners) == programs and len({tuple(row) for row in found}) == 4 and kept
