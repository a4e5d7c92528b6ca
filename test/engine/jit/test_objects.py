"""Python objects as containers: children, walks, and what is a leaf."""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from weft import Tensor, dtypes
from weft.engine.forms import CallCache
from weft.engine.jit.objects import (
    MOST_CONTAINERS,
    Reachable,
    child_of,
    children_of,
    holds_tensor,
    is_fixed,
    is_leaf,
    remove_child,
    set_child,
)


@dataclass(frozen=True)
class Frozen:
    x: Any


class Slotted:
    __slots__ = ("__secret", "x")

    def __init__(self, x: Any) -> None:
        self.x = x
        self.__secret = x


@pytest.mark.parametrize("make", [list, deque, lambda items: dict(enumerate(items))])
def test_children_of_containers_are_set_and_removed(make: Any) -> None:
    container = make([1, 2, 3])
    assert children_of(container) == {0: 1, 1: 2, 2: 3}
    set_child(container, 1, 9)
    assert child_of(container, 1) == 9
    if isinstance(container, dict):
        remove_child(container, 1)
        assert children_of(container) == {0: 1, 2: 3}


def test_attributes_are_children_too() -> None:
    frozen, slotted = Frozen(1), Slotted(2)
    set_child(frozen, "x", 5)
    assert frozen.x == 5 and children_of(frozen) == {"x": 5}
    assert children_of(slotted) == {"_Slotted__secret": 2, "x": 2}
    remove_child(slotted, "x")
    assert children_of(slotted) == {"_Slotted__secret": 2}


def test_functions_hold_what_they_close_over() -> None:
    tensor = Tensor([1.0])

    def closes(x: Any, y: Any = 3) -> Any:
        return tensor

    assert holds_tensor(closes) and holds_tensor(functools.partial(print, tensor))
    children = children_of(closes)
    assert children is not None and children["__defaults__"] == (3,)
    assert is_fixed(closes) and is_fixed((1,)) and not is_fixed([1])


def test_leaves() -> None:
    for value in (3, "text", dtypes.int32, Tensor, np.arange(3), Tensor([1]).uop, __import__("os")):
        assert is_leaf(value) and children_of(value) is None
    assert children_of(Tensor([1])) == {}


def test_a_walk_finds_each_thing_once_and_every_way_to_it() -> None:
    tensor = Tensor([1.0])
    state: dict[str, Any] = {"a": [tensor], "b": Frozen(tensor)}
    state["self"] = state
    found = Reachable([("root", None, None, state)])
    assert len(found.found) == 1 and found.found[0].tensor is tensor
    assert found.found[0].label == ("root", "a", 0)
    assert {(way, key) for way, key, _ in found.again} == {
        (("root", "b"), "x"),
        (("root",), "self"),
    }
    assert all(not is_fixed(container) for container, _ in found.snapshot())


def test_a_large_data_set_does_not_hide_what_comes_after_it() -> None:
    data = [(number, str(number)) for number in range(MOST_CONTAINERS + 1)]
    model = {"weight": Tensor([1.0])}
    walk = Reachable([("data", None, None, data), ("model", None, None, model)])
    assert [found.label for found in walk.found] == [("model", "weight")]


def test_a_cache_of_calls_is_no_state() -> None:
    cache = CallCache(most=2)
    cache.keep("key", [Tensor([1.0])])
    assert is_leaf(cache) and not holds_tensor(cache)
