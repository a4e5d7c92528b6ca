"""Walks: everything that executed code can reach is in the structure, or refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from weft import Tensor
from weft.engine.jit.scope import Scope, root_codes
from weft.engine.jit.walk import Walk


def walked(function: Any) -> Walk:
    walk = Walk(Scope(root_codes(function)))
    walk.run(function, ())
    return walk


def test_numbers_tensors_and_names_on_the_way() -> None:
    config = SimpleNamespace(width=3, unused=4, weights=[Tensor([1.0])])
    walk = walked(lambda: config.width * config.weights[0])
    assert walk.raw == [3] and len(walk.tensor_places) == 1 and walk.refused is None
    assert str(walk.number_places[0]) == "SimpleNamespace.width"


def test_structures_differ_where_a_value_does() -> None:
    config: dict[str, Any] = {"mode": "a", "flags": {1, 2}, "array": np.arange(3)}

    def structure() -> Any:
        return walked(function).structure()

    def function() -> Any:
        return config["mode"], config["flags"], config["array"]

    seen = [structure()]
    for change in (
        lambda: config.update(mode="b"),
        lambda: config["flags"].add(3),
        lambda: config["array"].__setitem__(0, 9),
        lambda: config.update(more=1),
    ):
        change()
        seen.append(structure())
    assert len(set(seen)) == len(seen) and structure() == seen[-1]


def test_what_holds_tensors_is_known_by_its_identity() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor([1.0])

    model = Model()

    def function() -> Any:
        return model.weight

    before = walked(function).structure()
    model.weight = Tensor([2.0])
    assert walked(function).structure() == before
    model = Model()
    assert walked(function).structure() != before


def test_what_hides_its_state_is_refused() -> None:
    numbers = iter([1, 2, 3])
    refused = walked(lambda: next(numbers)).refused
    assert refused is not None and "every call may take from it" in refused
    objects = np.array([object()])
    assert "array of Python objects" in str(walked(lambda: objects[0]).refused)


def test_a_circle_is_walked_once() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    walk = walked(lambda: ring[1])
    assert walk.raw == [1] and walk.refused is None
    assert [token[0] for token in walk.tokens].count("again") == 1
