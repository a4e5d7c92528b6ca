"""Replays: results and effects made anew, over the memory of another call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft import Tensor, TinyJit
from weft.engine.jit.replay import simple_maker
from weft.engine.jit.templates import Again, Known, Label, New, Plain, Same, _Blank


@dataclass
class Pair:
    left: Any
    right: Any


def test_objects_are_made_anew_and_shared_parts_stay_shared() -> None:
    def function(x: Tensor) -> dict[str, Any]:
        part = [x + 1]
        return {"pair": Pair(part, part), "number": 2.5, "x": x, "shape": (x.shape, None)}

    jitted = TinyJit(function)
    for value in range(6):
        x = Tensor([float(value)]).realize()
        result = jitted(x)
        assert result["pair"].left is result["pair"].right and result["x"] is x
        assert result["pair"].left[0].tolist() == [value + 1.0]
        assert result["number"] == 2.5 and result["shape"] == ((1,), None)


def test_effects_happen_in_the_places_of_the_call() -> None:
    def function(state: dict[str, Any], x: Tensor) -> Tensor:
        state["sum"] = state["sum"] + x
        state["all"][:] = [x, state["sum"]]
        state.pop("old", None)
        x.replace(x * 2)
        return state["sum"]

    jitted = TinyJit(function)
    for _ in range(6):
        x = Tensor([1.0]).realize()
        state = {"sum": Tensor([10.0]).realize(), "all": [x], "old": Tensor([0.0]).realize()}
        jitted(state, x)
        assert state["sum"].tolist() == [11.0] and "old" not in state
        assert [t.item() for t in state["all"]] == [2.0, 11.0] and x.tolist() == [2.0]


def test_simple_results_have_a_maker_and_others_none() -> None:
    def words(role: Any) -> int:
        raise AssertionError(role)

    plain = Plain(float, "2.5")
    both = New(0, list, _Blank([]), ((0, plain), (1, Plain(type(None), None))))
    maker = simple_maker(both, words)
    assert maker is not None and maker({}, {}) == [2.5, None]
    for part in (Same(words), Again(0), Known(Label("argument", (0,)))):
        assert simple_maker(part, words) is None
        assert simple_maker(New(0, tuple, _Blank(()), ((0, part),)), words) is None
    assert simple_maker(New(0, dict, _Blank({}), ((0, plain),)), words) is None
