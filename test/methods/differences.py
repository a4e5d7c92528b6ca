"""Gradients by finite differences in float64: what the table's and the random tests share.

In: a row and a case. Out: nothing, or an AssertionError.
Sits beside `run.py`, below the tests.
Invariant: differences are of fourth order, so that their own error is far below the tolerance of
float64. First order: differences of the reference, for every element. Second order: differences of
the gradient, along a direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from test.methods.compare import TOLERANCES
from test.methods.row import FLOATS, Array, Case, Row, tensors_of
from test.methods.run import skip_if_absent
from weft import Device, Tensor

STEP = 2.0**-13
# f(x + step * k) - f(x - step * k), weighted: the derivative but for terms of fifth order
STENCIL = ((1, 2 / 3), (2, -1 / 12))


class Function:
    """A row's method and reference as functions of its float inputs alone, in float64."""

    def __init__(self, row: Row, asked: Case, seed: str = "") -> None:
        self.row, self.asked = row, asked
        self.arrays = asked.arrays(row.name + seed, "float64")
        self.places = [i for i, each in enumerate(asked.inputs) if each.dtype is None]
        results = row.expected(self.arrays, asked)
        rules = row.rules(len(results))
        self.floats = [i for i, rule in enumerate(rules) if rule("float64") in FLOATS]
        generator = np.random.default_rng(17)
        self.weights = [generator.uniform(0.5, 1.5, results[i].shape) for i in self.floats]
        self.directions = [generator.uniform(-1, 1, self.arrays[i].shape) for i in self.places]

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
        tensors = tensors_of(arrays, self.asked, "float64", Device.DEFAULT)
        results = self.row.run(tensors, self.asked)
        total: Any = None
        for i, weight in zip(self.floats, self.weights, strict=True):
            result = results[i].cast("float64")
            part = (result * Tensor(weight, device=result.device)).sum().to(Device.DEFAULT)
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


def narrowest(row: Row) -> str:
    """The least exact dtype that a gradient passes on its way back: that of a result."""
    found = {rule("float64") for rule in row.rules(1)} & set(FLOATS)
    return max(found, key=lambda dtype: TOLERANCES[dtype][0])


def assert_near(found: Tensor, wanted: Array, dtype: str = "float64") -> None:
    assert tuple(found.shape) == wanted.shape and found.dtype.name == "float64"
    relative, absolute = TOLERANCES[dtype]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=relative, atol=absolute)


def check_gradient(row: Row, asked: Case, seed: str = "") -> None:
    """The gradients of all float inputs are those of the reference."""
    skip_if_absent(row)
    function = Function(row, asked, seed)
    _, gradients = function.gradients(function.arrays)
    for place, gradient in zip(function.places, gradients, strict=True):
        assert_near(gradient, function.differences(place), narrowest(row))


def check_second_gradient(row: Row, asked: Case) -> None:
    """The gradients of the gradients are how these change."""
    skip_if_absent(row)
    function = Function(row, asked)
    inputs, gradients = function.gradients(function.arrays)
    total: Any = None
    for gradient, direction in zip(gradients, function.directions, strict=True):
        part = (gradient * Tensor(direction)).sum()
        total = part if total is None else total + part
    found = total.gradient(*inputs)
    for gradient, wanted in zip(found, function.second_differences(), strict=True):
        assert_near(gradient, wanted)
