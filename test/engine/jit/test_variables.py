"""TinyJit: random numbers fresh in every call, symbolic variables with new values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from test.engine.jit.jitting import CALLS, Decorator, same, vector
from weft import Tensor, TinyJit, UOp, Variable


def test_random_numbers_are_fresh_and_the_same_as_without() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> Any:
            return x + Tensor.rand(3), Tensor.randn(2).realize(), Tensor.randint(4)

        out = []
        for i in range(CALLS):
            out += [*f(vector(i)), Tensor.rand(2)]
        return out

    same(program, 2)
    first = TinyJit(lambda: Tensor.rand(4))
    drawn = [tuple(first().tolist()) for _ in range(CALLS)]
    assert len(set(drawn)) == CALLS


def test_a_seed_inside() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f() -> Any:
            a = Tensor.rand(2)
            Tensor.manual_seed(5)
            return a, Tensor.rand(2)

        return [[f(), Tensor.rand(1)] for _ in range(CALLS)]

    same(program, 2)


def test_random_state_is_drawn_once() -> None:
    def program(decorate: Decorator) -> Any:
        weight = Tensor.rand(3)
        f = decorate(lambda x: x * weight)
        return [f(vector(i)) for i in range(CALLS)] + [weight, Tensor.rand(2)]

    same(program, 2)


# ------------------------------------------------------------ symbolic variables
def test_variables_with_new_values() -> None:
    def program(decorate: Decorator) -> Any:
        data = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).realize()
        size = Variable("size", 1, 8)

        @decorate
        def total(x: Tensor) -> Tensor:
            return x.sum(0) + x.max()

        return [total(data[: size.bind(i % 7 + 1)]) for i in range(2 * CALLS)]

    same(program, 2)


def test_variables_as_arguments() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(0, 8).realize()
        start = Variable("start", 0, 5)

        @decorate
        def f(x: Tensor, at: Any) -> Any:
            return x[at : at + 3] * 2, x + at, at + 1

        out = []
        for i in range(CALLS):
            a, b, c = f(data, start.bind(i % 6))
            assert c.simplify().op is not None
            out += [a, b]
        return out

    same(program, 2)


def test_variables_in_pads_and_reshapes() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(1, 8).realize()
        size = Variable("size", 1, 8)

        @decorate
        def f(x: Tensor, n: Any) -> Any:
            part = x[:n]
            square = part.reshape(n, 1) + part.reshape(1, n)
            return square.sum(), part.pad(((2, 8 - n),)).sum(), (part * 2).realize().sum()

        return [f(data, size.bind(i % 8 + 1)) for i in range(2 * CALLS)]

    same(program, 2)


def test_a_symbolic_output_is_fed_on() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(1, 8).realize()
        size = Variable("size", 1, 8)
        double = decorate(lambda x: x * 2)
        total = decorate(lambda x: x.sum())
        out = []
        for i in range(2 * CALLS):
            y = double(data[: size.bind(i % 8 + 1)])
            out += [y, total(y)]
        return out

    same(program)


def test_a_growing_cache() -> None:
    def program(decorate: Decorator) -> Any:
        cache = Tensor.zeros(8, 2).contiguous().realize()
        position = Variable("position", 0, 7)

        @decorate
        def step(x: Tensor, at: Any) -> Tensor:
            cache[at : at + 1] = x.reshape(1, 2)
            return cache[: at + 1].sum(0)

        out = []
        for i in range(8):
            out.append(step(vector(i, 2), position.bind(i)))
        return [*out, cache]

    same(program, 2)


def test_the_value_of_a_variable_used_as_a_number() -> None:
    def program(decorate: Decorator) -> Any:
        size = Variable("size", 1, 8)
        data = vector(1, 8).realize()

        @decorate
        def f(x: Tensor, n: UOp) -> Tensor:
            return x[:n].sum() * n.unbind()[1]

        return [f(data, size.bind(i % 8 + 1)) for i in range(2 * CALLS)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_values_outside_a_variables_bounds_are_refused() -> None:
    size = Variable("size", 1, 8)
    f = TinyJit(lambda x: x.sum())
    data = vector(0, 8).realize()
    for i in (1, 2, 3):
        f(data[: size.bind(i)])
    with pytest.raises(ValueError, match="size takes an int from 1 to 8"):
        f(data[: size.bind(9)])


def test_bounds_are_asked_of_every_replay() -> None:
    position = Variable("position", 0, 40)
    data = Tensor.arange(16).float().realize()

    @TinyJit
    def window(x: Tensor, i: UOp) -> Tensor:
        return x[i : i + 4].sum()

    for i in (0, 3, 12, 5):
        assert window(data, position.bind(i)).item() == 4 * i + 6
    assert window.captured is not None
    with pytest.raises(IndexError, match="from 13 to 17 of an axis of 16 elements, with position"):
        window(data, position.bind(13))
    assert [window(data, position.bind(i)).item() for i in (1, 2)] == [10, 14]
