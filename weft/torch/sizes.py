"""Sizes that are not known when a graph is compiled: SymInts, as numbers or as Variables.

In: SymInts and the expressions behind them. Out: ints or symbolic sizes of weft. Sits below
`lower`.
Invariant: a size is never taken for the number it was traced with. It is an expression of symbols,
each of which has either a value of the call or a Variable with bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weft.errors import UnsupportedError
from weft.uop.node import UOp, Variable

# sizes below this share one program from the beginning
_LEAST_BOUND = 16


def expression_of(size: Any) -> Any:
    """What is behind a size: an int, or an expression of symbols."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


def is_at_most(first: Any, second: Any) -> bool:
    """Whether one size is at most another whatever positive values their symbols have."""
    if isinstance(first, int) and isinstance(second, int):
        return first <= second
    difference: Any = (second - first).expand()
    terms: Any = getattr(difference, "as_coefficients_dict", dict)()
    return all(coefficient >= 0 for coefficient in terms.values())


def is_same(first: Any, second: Any) -> bool:
    """Whether two sizes are equal whatever values their symbols have."""
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    difference: Any = first - second
    return bool(difference.expand() == 0)


class Sizes:
    """The values of symbols: ints, or bound Variables."""

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = dict(values)
        self._known: dict[Any, Any] = {}

    def __call__(self, size: Any) -> Any:
        """A size as weft takes it."""
        if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return size
        return self.evaluated(size.node.expr)

    def shape(self, sizes: Any) -> tuple[Any, ...]:
        """Several sizes."""
        return tuple([self(size) for size in sizes])

    def evaluated(self, expression: Any) -> Any:
        """An expression of symbols, or a number."""
        if isinstance(expression, int):
            return expression
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = self._evaluate(expression)
        return found

    def _evaluate(self, expression: Any) -> Any:
        if expression.is_Symbol:
            if expression not in self.values:
                raise UnsupportedError(f"the size {expression} is known only after it is computed")
            return self.values[expression]
        if expression.is_Integer:
            return int(expression)
        if expression.is_Number:
            return float(expression)
        parts = [self.evaluated(part) for part in expression.args]
        function = _FUNCTIONS.get(type(expression).__name__)
        if function is None:
            raise UnsupportedError(f"a size of {type(expression).__name__}: {expression}")
        return function(*parts)


class Numbers(Sizes):
    """The values that the free sizes have in one call. `key` tells such values apart, `by_name`
    has them under the names of Variables."""

    def __init__(self, values: Mapping[Any, int]) -> None:
        super().__init__(values)
        self.key = tuple(self.values.values())
        self.by_name = {variable_name(symbol): value for symbol, value in values.items()}

    def of(self, sizes: Any) -> tuple[int, ...]:
        """Several expressions."""
        return tuple([self.evaluated(size) for size in sizes])


def variable_name(symbol: Any) -> str:
    """What the Variable of a symbol is called."""
    return f"size_{symbol}"


def _product(*parts: Any) -> Any:
    total: Any = 1
    for part in parts:
        total = total * part
    return total


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnsupportedError("a size that is divided by another")
    return _product(*[base] * exponent)


def _extreme(parts: Any, pick: Any) -> Any:
    if any(isinstance(part, UOp) for part in parts):
        raise UnsupportedError("the greater of two free sizes")
    return pick(parts)


_FUNCTIONS: dict[str, Any] = {
    "Add": lambda *parts: sum(parts[1:], parts[0]),
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda x, y: x // y,
    "CleanDiv": lambda x, y: x // y,
    "CeilDiv": lambda x, y: (x + y - 1) // y,
    "Mod": lambda x, y: x % y,
    "PythonMod": lambda x, y: x % y,
    "Max": lambda *parts: _extreme(parts, max),
    "Min": lambda *parts: _extreme(parts, min),
    "ToFloat": float,
    "FloatTrueDiv": lambda x, y: x / y,
    "IntTrueDiv": lambda x, y: x / y,
    "TruncToInt": int,
    "Identity": lambda x: x,
    "Relational": None,
}


def bound_for(value: int, most: int | None) -> int:
    """The greatest size of a program that is compiled for this one."""
    room = max(_LEAST_BOUND, 1 << (value - 1).bit_length())
    return room if most is None else min(room, most)


def variable(name: str, least: int, most: int, value: int) -> UOp:
    """A Variable with a value."""
    made: UOp = Variable(name, least, most).bind(value)
    return made
