"""Gradients of every differentiable row, first and second order, against finite differences.

First order: the gradient of a weighted sum of the results, against differences of the reference in
NumPy, in float64, for every element. Second order: the derivative of that gradient along a
direction, against differences of the gradient itself. Differences are of fourth order, so that
their own error is far below the tolerance of float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from test.methods.compare import TOLERANCES
from test.methods.row import FLOATS, Array, Case, Input, Row, tensors_of
from test.methods.run import EVERYTHING, names, skip_if_absent
from test.methods.table import TABLE
from weft import Tensor

STEP = 2.0**-13
# f(x + step * k) - f(x - step * k), weighted: the derivative but for terms of fifth order
STENCIL = ((1, 2 / 3), (2, -1 / 12))


def _is_smooth(row: Row, asked: Case) -> bool:
    """Whether a gradient is defined: floats go in, and no input holds an edge of the function."""
    floats = [i for i in asked.inputs if i.dtype is None]
    return bool(floats) and all(i.data is None for i in floats)


def _reduced(each: Input) -> Input:
    """Fewer elements: (3, 35) is there for vectors and tails, which derivatives do not need."""
    if each.dtype is None and each.shape == (3, 35):
        return replace(each, shape=(3, 5))
    return each


def _cases(row: Row) -> list[Case]:
    """Every case with elements, or the first two."""
    if not row.gradient or not any(dtype in FLOATS for dtype in row.dtypes):
        return []
    found = [asked for asked in row.cases if _is_smooth(row, asked)]
    found = [asked for asked in found if all(0 not in each.shape for each in asked.inputs)]
    return found if EVERYTHING else found[:2]


PLANS = [(row, asked) for row in TABLE for asked in _cases(row)]


class Function:
    """A row's method and reference as functions of its float inputs alone, in float64."""

    def __init__(self, row: Row, asked: Case) -> None:
        self.row, self.asked = row, asked
        self.arrays = asked.arrays(row.name, "float64")
        self.places = [i for i, each in enumerate(asked.inputs) if each.dtype is None]
        results = row.expected(self.arrays, asked)
        rules = row.rules(len(results))
        self.floats = [i for i, rule in enumerate(rules) if rule("float64") in FLOATS]
        generator = np.random.default_rng(17)
        self.weights = [generator.uniform(0.5, 1.5, results[i].shape) for i in self.floats]
        self.directions = [
            generator.uniform(-1, 1, self.arrays[i].shape) for i in self.places
        ]

    def values(self, arrays: list[Array]) -> list[Array]:
        """The weighted results of the reference."""
        results = self.row.expected(arrays, self.asked)
        return [results[i] * weight for i, weight in zip(self.floats, self.weights, strict=True)]

    def differences(self, place: int) -> Array:
        """The gradient with respect to one input, by differences."""
        found = np.zeros(self.arrays[place].shape)
        for at in np.ndindex(*found.shape):
            for offset, factor in STENCIL:
                ends = []
                for distance in (offset * STEP, -offset * STEP):
                    moved = list(self.arrays)
                    moved[place] = self.arrays[place].copy()
                    moved[place][at] += distance
                    ends.append(self.values(moved))
                # what does not depend on this element goes out before it is summed
                change = sum((after - before).sum() for after, before in zip(*ends, strict=True))
                found[at] += factor * change / STEP
        return found

    def gradients(self, arrays: list[Array]) -> tuple[list[Tensor], list[Tensor]]:
        """(the float inputs, their gradients), not computed yet."""
        tensors = tensors_of(arrays, self.asked, "float64", "CPU")
        results = self.row.run(tensors, self.asked)
        total: Any = None
        for i, weight in zip(self.floats, self.weights, strict=True):
            result = results[i].cast("float64")
            part = (result * Tensor(weight, device=result.device)).sum().to("CPU")
            total = part if total is None else total + part
        inputs = [tensors[i] for i in self.places]
        return inputs, total.gradient(*inputs)

    def along(self, distance: float) -> list[Array]:
        """The inputs, moved along the direction."""
        moved = list(self.arrays)
        for place, direction in zip(self.places, self.directions, strict=True):
            moved[place] = self.arrays[place] + distance * direction
        return moved

    def second_differences(self) -> list[Array]:
        """How the gradients change along the direction, by differences."""
        found = [np.zeros(self.arrays[i].shape) for i in self.places]
        for offset, factor in STENCIL:
            _, after = self.gradients(self.along(offset * STEP))
            _, before = self.gradients(self.along(-offset * STEP))
            for total, high, low in zip(found, after, before, strict=True):
                total += factor * (high.numpy() - low.numpy()) / STEP
        return found


def _narrowest(row: Row) -> str:
    """The least exact dtype that a gradient passes on its way back: that of a result."""
    found = {rule("float64") for rule in row.rules(1)} & set(FLOATS)
    return max(found, key=lambda dtype: TOLERANCES[dtype][0])


def _assert_near(found: Tensor, wanted: Array, dtype: str = "float64") -> None:
    assert tuple(found.shape) == wanted.shape and found.dtype.name == "float64"
    relative, absolute = TOLERANCES[dtype]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=relative, atol=absolute)


def _function(row: Row, asked: Case) -> Function:
    skip_if_absent(row)
    small = replace(asked, inputs=tuple(_reduced(each) for each in asked.inputs))
    return Function(row, small if _fits(row, small) else asked)


def _fits(row: Row, asked: Case) -> bool:
    """Whether the other arguments suit the smaller shape."""
    try:
        row.expected(asked.arrays(row.name, "float64"), asked)
    except (ValueError, IndexError, AssertionError):
        return False
    return True


@pytest.mark.parametrize(("row", "asked"), PLANS, ids=names(PLANS))
def test_gradient(row: Row, asked: Case) -> None:
    function = _function(row, asked)
    inputs, gradients = function.gradients(function.arrays)
    assert len(inputs) == len(gradients)
    for place, gradient in zip(function.places, gradients, strict=True):
        _assert_near(gradient, function.differences(place), _narrowest(row))


def _second() -> list[tuple[Row, Case]]:
    """The first case of each row; of what rounds, the differences would be those of rounding."""
    exact = [each for each in PLANS if _narrowest(each[0]) == "float64"]
    if EVERYTHING:
        return exact
    return [each for i, each in enumerate(exact) if not i or exact[i - 1][0] is not each[0]]


SECOND = _second()


@pytest.mark.parametrize(("row", "asked"), SECOND, ids=names(SECOND))
def test_second_gradient(row: Row, asked: Case) -> None:
    function = _function(row, asked)
    inputs, gradients = function.gradients(function.arrays)
    total: Any = None
    for gradient, direction in zip(gradients, function.directions, strict=True):
        part = (gradient * Tensor(direction)).sum()
        total = part if total is None else total + part
    found = total.gradient(*inputs)
    for gradient, wanted in zip(found, function.second_differences(), strict=True):
        _assert_near(gradient, wanted)
