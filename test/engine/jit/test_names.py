"""Names that a function reads: found in its bytecode, without running any of its code."""

from __future__ import annotations

import functools
import math
from typing import Any

from weft.engine.jit.names import MISSING, Chain, find_names

rate = 1.0
counter = 0
unused = 5


class Config:
    def __init__(self) -> None:
        self.eps = 1e-5
        self.inner: Any = None
        self.touched = 0

    @property
    def half(self) -> float:
        self.touched += 1
        return self.eps / divisor


divisor = 2
config = Config()
config.inner = Config()


class Layer:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: float) -> float:
        return x * self.scale * rate

    def forward(self, x: float) -> float:
        return x + self.scale


def names(function: Any) -> set[str]:
    """Chains as text, the values' own classes for roots that are objects."""
    return {str(chain) for chain in find_names(function)}


def values(function: Any) -> list[Any]:
    return [chain.find()[2] for chain in find_names(function)]


def test_globals_closures_and_attributes() -> None:
    local = 3.0

    def f(x: float) -> float:
        return x * rate + local + config.eps + config.inner.eps

    assert names(f) == {"rate", "cell", "config.eps", "config.inner.eps"}
    assert 3.0 in values(f)


def test_modules_builtins_and_libraries_are_not_state() -> None:
    def f(x: float) -> float:
        return math.sqrt(len([x])) + functools.reduce(max, [x])

    assert names(f) == set()


def test_functions_that_are_called_by_name() -> None:
    def inner(x: float) -> float:
        return x * config.eps

    def outer(x: float) -> float:
        return inner(x) + rate

    found = names(outer)
    assert {"config.eps", "rate"} <= found and "unused" not in found


def test_wrapped_functions_and_partials() -> None:
    def inner(x: float, y: float) -> float:
        return x * rate + y

    wrapped = functools.lru_cache(inner)
    bound = functools.partial(inner, y=3.0)
    assert "rate" in names(lambda x: bound(x))
    assert "rate" in names(functools.wraps(inner)(lambda x: inner(x, 1)))
    assert wrapped is not None


def test_methods_and_callable_objects() -> None:
    layer = Layer(2.0)
    assert {"Layer.scale", "rate"} <= names(lambda x: layer(x))
    assert "Layer.scale" in names(lambda x: layer.forward(x))
    assert "Layer.scale" in names(layer.forward)


def test_local_names_of_chains_and_loops_over_them() -> None:
    class Net:
        def __init__(self) -> None:
            self.layers = [Layer(1.0), Layer(2.0)]
            self.last = Layer(3.0)

        def forward(self, x: float) -> float:
            for layer in self.layers:
                x = layer(x)
            last = self.last
            return last.forward(x)

    found = find_names(Net().forward)
    scales = sorted(c.find()[2] for c in found if c.attributes == ("scale",))
    assert scales == [1.0, 2.0, 3.0]


def test_a_pure_counter_is_not_read() -> None:
    calls = 0

    def f(x: float) -> float:
        nonlocal calls
        global counter
        calls += 1
        counter += 1
        return x

    def g(x: float) -> float:
        nonlocal calls
        calls += 1
        return x * calls

    assert names(f) == set()
    assert names(g) == {"cell"}


def test_places_that_are_written() -> None:
    def f(x: float) -> None:
        config.eps = x
        config.fresh = x  # type: ignore[attr-defined]

    written = {str(chain) for chain in find_names(f) if chain.is_written}
    assert written == {"config.eps", "config.fresh"}


def test_lambdas_and_comprehensions_inside() -> None:
    def f(x: float) -> list[float]:
        scale = [v * rate for v in [x]]
        return list(map(lambda v: v + config.eps, scale))

    assert {"rate", "config.eps"} <= names(f)


def test_properties_are_looked_into_and_not_run() -> None:
    before = config.touched
    assert {"divisor", "Config.eps"} <= names(lambda: config.half)
    assert config.touched == before


def test_what_is_missing() -> None:
    def f(x: float) -> float:
        return x + not_there  # type: ignore[name-defined] # noqa: F821

    assert values(f) == [MISSING]


def test_chains_compare_by_place() -> None:
    one, other = find_names(lambda: rate), find_names(lambda: rate)
    assert one == other and isinstance(one[0], Chain)
    assert find_names(lambda: config.eps) != find_names(lambda: config.inner)


def test_circles_of_functions_end() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1) and bool(rate)

    assert "rate" in names(even)
