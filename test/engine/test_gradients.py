"""gradients.py: which nodes of a graph are a tensor, now or before it was realized."""

from __future__ import annotations

import pytest

from weft import Tensor
from weft.engine.gradients import TensorGraph
from weft.errors import WeftError


def test_a_tensor_is_its_node() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = (x * 3).sum()
    assert TensorGraph(y.uop).nodes_of(x) == [x.uop]


def test_one_that_is_not_in_the_graph_has_no_nodes() -> None:
    x, other = Tensor([1.0, 2.0]).realize(), Tensor([1.0]).realize()
    assert TensorGraph((x * 3).sum().uop).nodes_of(other) == []


def test_a_constant_is_no_tensor_of_a_graph() -> None:
    x, number = Tensor([1.0, 2.0]).realize(), Tensor(3.0)
    assert TensorGraph((x * number).sum().uop).nodes_of(number) == []


def test_one_that_was_realized_meanwhile_is_found() -> None:
    x = Tensor([1.0, 2.0]).realize()
    middle = x * 3
    loss = middle.square().sum()
    middle.realize()
    assert TensorGraph(loss.uop).nodes_of(middle)
    assert loss.gradient(middle)[0].tolist() == [6.0, 12.0]


def test_a_view_is_found_as_the_view() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    row = x[1]
    loss = (row * row).sum()
    assert loss.gradient(row)[0].tolist() == [6.0, 8.0]
    assert loss.gradient(x)[0].tolist() == [[0.0, 0.0], [6.0, 8.0]]


def test_parts_of_one_tensor_add_up() -> None:
    x = Tensor([1.0, 2.0]).realize()
    assert (x * x + x).sum().gradient(x)[0].tolist() == [3.0, 5.0]


def test_what_is_asked_for_must_be_a_float() -> None:
    x = Tensor([1, 2]).realize()
    with pytest.raises(WeftError, match="int"):
        (x.float() * 2).sum().gradient(x)
