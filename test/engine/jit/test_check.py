"""Check: what a call did is undone, and what two executions left behind is compared."""

from __future__ import annotations

from weft import Tensor
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.check import Outcome, Snapshot
from weft.engine.jit.places import Place


def test_a_snapshot_undoes_writes_names_and_random_numbers() -> None:
    x = Tensor([1.0, 2.0]).realize()
    state = {"count": Tensor([0]).realize(), "names": [x]}
    places = [Place("object", state, None, "state")]
    snapshot = Snapshot(Arguments((x,), True), places)
    first = Tensor.rand(3).tolist()
    x.assign(x + 1).realize()
    state["count"] = Tensor([9])
    state["names"].append(x)
    snapshot.restore()
    assert x.tolist() == [1.0, 2.0] and state["count"].tolist() == [0]
    assert len(state["names"]) == 1 and state["names"][0] is x
    assert Tensor.rand(3).tolist() == first


def outcome(result: object) -> Outcome:
    return Outcome(result, Arguments((), True), [])


def test_outcomes_are_equal_up_to_rounding() -> None:
    one = outcome([Tensor([1.0, 2.0]), {"k": Tensor([3])}])
    assert one.difference(outcome([Tensor([1.0 + 1e-7, 2.0]), {"k": Tensor([3])}])) is None


def test_differences_are_said_in_words() -> None:
    one = outcome([Tensor([1.0, 2.0])])
    assert "the values 2.0 and 2.5" in str(one.difference(outcome([Tensor([1.0, 2.5])])))
    assert "of two kinds" in str(one.difference(outcome([Tensor([1, 2])])))
    assert "in one of them only" in str(one.difference(outcome([])))
    nan = outcome(Tensor([float("nan")]))
    assert nan.difference(outcome(Tensor([float("nan")]))) is None
