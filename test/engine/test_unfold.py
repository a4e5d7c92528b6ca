"""Unfolding: memory replaced by what it was computed from, and back."""

from __future__ import annotations

import pytest

from weft import Tensor
from weft.engine.unfold import Unfolded
from weft.errors import ArgumentError
from weft.uop.opset import Ops


def test_a_graph_without_a_past_is_itself() -> None:
    x = Tensor([1.0, 2.0]).realize()
    root = (x * 2).uop
    unfolded = Unfolded(root)
    assert unfolded.root is root and unfolded.folded([root]) == (root,)


def test_realized_values_lead_to_what_they_were_computed_from() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True).realize()
    middle = (x * 3).realize()
    root = (middle + 1).uop
    unfolded = Unfolded(root)
    assert x.uop in unfolded.root.toposort()
    assert middle.uop in unfolded.now and unfolded.now[middle.uop].op is not Ops.BUFFER
    (again,) = unfolded.folded([unfolded.root])
    assert again is root


def test_gradients_pass_through_realized_values() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).realize()
    (y * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0, 12.0]


def test_memory_that_was_overwritten_is_an_error_not_a_number() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True).realize()
    factor = Tensor([3.0, 4.0]).realize()
    y = (x * factor).realize()
    factor.assign(factor + 1).realize()
    with pytest.raises(ArgumentError, match="overwritten|before"):
        y.sum().backward()
