"""Notes of state: what is on the way to it, and several ways to one thing."""

from __future__ import annotations

from typing import Any

from test.engine.jit.test_capture import recorded
from weft import Tensor
from weft.engine.jit.templates import Label
from weft.engine.jit.trace import Expectation


class Layer:
    def __init__(self) -> None:
        self.weight = Tensor([2.0, 3.0]).realize()
        self.tied: Any = None


def test_the_way_to_a_tensor_is_noted() -> None:
    layers = [Layer()]
    _, run = recorded(lambda x: x * layers[0].weight, Tensor([1.0, 1.0]).realize())
    paths = sorted(run.tree, key=len)
    assert run.tree[paths[0]] == Expectation(list, 1, None)
    assert paths[-1][-1] == "weight" and run.tree[paths[-1]].kind is Tensor
    assert [label for label in run.groups if label.kind == "state"] == [Label("state", paths[-1])]
    assert run.tree[paths[1]].identity == id(layers[0]) and run.kept == [layers[0]]


def test_two_ways_to_one_tensor_are_tied() -> None:
    layer = Layer()
    layer.tied = layer.weight
    _, run = recorded(lambda x: x * layer.weight + layer.tied, Tensor([1.0, 1.0]).realize())
    assert [tie.way for tie in run.ties] == ["child"]


def test_state_that_is_an_argument_too_is_tied() -> None:
    layer = Layer()
    _, run = recorded(lambda x: x * layer.weight, layer.weight)
    assert "argument" in [tie.way for tie in run.ties]
