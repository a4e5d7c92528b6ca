"""Capture: a recorded run leaves the world as a plain call would, and says what it did."""

from __future__ import annotations

import pytest

from weft import Tensor
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.capture import run_recorded
from weft.engine.jit.guards import Watch
from weft.engine.jit.templates import Fill, Input, Move, Rebind, SetChild, View
from weft.engine.jit.trace import Run
from weft.errors import JitError


def recorded(function: object, *args: object, is_strict: bool = False) -> tuple[object, Run]:
    arguments = Arguments(args, True)
    watch = Watch(function)
    watch.predict(arguments.extra)
    guards = watch.now(arguments.extra)
    assert callable(function)
    return run_recorded(function, args, {}, arguments, guards, is_strict, watch.observed)


def test_the_memory_of_arguments_is_an_input() -> None:
    x = Tensor([1.0, 2.0]).realize()
    storage = x._cell.storage
    result, run = recorded(lambda a: a + 1, x)
    assert isinstance(result, Tensor) and result.tolist() == [2.0, 3.0]
    (execution,) = run.executions
    assert [type(role) for role in execution.roles] == [Input]
    assert isinstance(run.result, View) and run.leaks is None
    assert x._cell.storage is storage


def test_changes_are_effects() -> None:
    state = {"x": Tensor([1.0]).realize(), "all": [Tensor([5.0]).realize()]}

    def change(a: Tensor) -> Tensor:
        state["x"] = state["x"] + a
        state["all"].append(a * 2)
        return state["x"]

    _, run = recorded(change, Tensor([2.0]).realize())
    assert {type(effect) for effect in run.effects} == {SetChild, Fill}
    assert state["x"].tolist() == [3.0] and [t.item() for t in state["all"]] == [5.0, 4.0]


def test_tensors_that_are_made_others_are_rebound() -> None:
    x, other = Tensor([1.0]).realize(), Tensor([7.0]).realize()
    _, run = recorded(lambda a, b: a.replace(b), x, other)
    assert [type(effect) for effect in run.effects] == [Rebind] and x.tolist() == [7.0]


def test_an_assigned_storage_is_written_or_moves() -> None:
    x = Tensor([1.0, 2.0]).realize()
    _, run = recorded(lambda a: a.assign(a * 2), x)
    assert x.tolist() == [2.0, 4.0]
    assert all(isinstance(effect, Move) for effect in run.effects)


def test_reading_a_value_is_refused_in_a_strict_run() -> None:
    x = Tensor([1.0]).realize()
    _, run = recorded(lambda a: a.item(), x)
    assert run.has_read
    with pytest.raises(JitError, match="while it is captured"):
        recorded(lambda a: a.item(), x, is_strict=True)


def test_an_error_gives_memory_back() -> None:
    x = Tensor([1.0]).realize()
    cell = x._cell

    def fails(a: Tensor) -> Tensor:
        raise ValueError(a.shape)

    with pytest.raises(ValueError, match="1"):
        recorded(fails, x)
    assert x._cell is cell and x.tolist() == [1.0]


def test_a_tensor_that_is_kept_unseen_is_a_leak() -> None:
    hidden = iter([])
    kept = []

    def leaks(a: Tensor) -> Tensor:
        nonlocal hidden
        hidden = iter([a + 1])
        return a * 2

    _, run = recorded(leaks, Tensor([1.0]).realize())
    kept.append(hidden)
    assert run.leaks is not None and "does not see" in run.leaks
