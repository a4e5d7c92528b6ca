"""Templates: what is written down of results, and that two of one kind are equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import Tensor, Variable
from weft.engine.jit.templates import (
    Again,
    Array,
    CellOf,
    Known,
    Label,
    New,
    Plain,
    Same,
    Source,
    Symbolic,
    TemplateMaker,
    View,
)

ARGUMENT = Label("argument", (0,))


def maker(*known: Tensor) -> TemplateMaker:
    labels = {id(tensor): ARGUMENT for tensor in known}

    def classify(values: dict[str, int]) -> tuple[Source, ...]:
        return tuple(Source(name, "fixed", value) for name, value in values.items())

    return TemplateMaker(labels, {}, lambda cell: CellOf(ARGUMENT), classify)


def test_plain_values_keep_their_types() -> None:
    make = maker().make
    assert make(1) != make(True) != make(1.0) and make(float("nan")) == make(float("nan"))
    assert make(0.0) != make(-0.0)
    for value in (1, True, 2.5, "text", None):
        template = make(value)
        assert isinstance(template, Plain) and template.value == value


def test_tensors_are_known_or_views() -> None:
    x = Tensor([1.0])
    make = maker(x)
    view = x.reshape(1, 1)
    assert make.make(x) == Known(ARGUMENT)
    template = make.make([view, view, x])
    assert isinstance(template, New)
    (_, first), (_, second), (_, third) = template.children
    assert isinstance(first, View) and first.cell == CellOf(ARGUMENT) and third == Known(ARGUMENT)
    assert second == Again(first.number)
    assert len(make.tensors) == 1 and make.tensors[0] is view


def test_other_objects() -> None:
    make = maker().make
    assert make(np.arange(3)) == Array(str(np.arange(3).dtype), (3,), np.arange(3).tobytes())
    assert make(print) == Same(print)
    symbolic = make(Variable("n", 1, 8).bind(3))
    assert isinstance(symbolic, Symbolic) and symbolic.sources == (Source("n", "fixed", 3),)


def test_containers_of_equal_contents_are_equal() -> None:
    def shape(value: Any) -> Any:
        return maker().make(value)

    assert shape({"a": [1, (2,)]}) == shape({"a": [1, (2,)]})
    assert shape({"a": [1]}) != shape({"a": (1,)}) and shape([1]) != shape([2])


def test_labels_are_equal_by_what_they_name() -> None:
    assert Label("state", (0, "w")) == Label("state", (0, "w"))
    assert Label("state", (0,)) != Label("container", (0,))
    assert len({Label("state", (0,)), Label("state", (0,))}) == 1
