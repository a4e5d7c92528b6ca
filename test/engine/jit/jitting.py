"""What the tests of TinyJit share: a program that takes the decorator runs once with `TinyJit` and
once with nothing, and what it collects must be equal.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from weft import Tensor, TinyJit

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
CALLS = 6


def numbers(value: Any) -> Any:
    """Whatever a program collected, as plain Python."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: numbers(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(child) for child in value]
    if dataclasses.is_dataclass(value):
        return numbers(vars(value))
    return value


def same(program: Callable[[Decorator], Any], python_runs: int | None = None) -> None:
    """The program gives the same with and without TinyJit; its function ran so many times."""
    runs = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            runs.append(1)
            return function(*args, **kwargs)

        return TinyJit(inner)

    Tensor.manual_seed(3)
    plain = numbers(program(lambda function: function))
    Tensor.manual_seed(3)
    jitted = numbers(program(counted if python_runs is not None else TinyJit))
    assert jitted == plain
    if python_runs is not None:
        assert len(runs) == python_runs


def vector(i: float, n: int = 3) -> Tensor:
    return Tensor([float(i + k) for k in range(n)])


class Plain:
    def __init__(self, value: Tensor) -> None:
        self.value = value


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.weight = Tensor([1.0, 2.0, 3.0])

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.weight * self.factor


class Net:
    def __init__(self, factor: float = 1.0) -> None:
        self.layers = [Scale(factor), Scale(2.0)]
        self.last = Scale(3.0)
        self.bias = 0.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        final = self.last
        return final(x) + self.bias

    @TinyJit
    def jitted(self, x: Tensor) -> Tensor:
        return self.forward(x)
