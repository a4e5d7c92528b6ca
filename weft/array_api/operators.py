"""The operators of Array: each is a function of the table.

In: an array and another operand. Out: an array; NotImplemented for what is no operand.
Sits below Array, which provides `_with` and `_into`.
"""

from __future__ import annotations

from typing import Any


class Operators:
    """Operators over the protocol `_with`, `_into`."""

    __slots__ = ()

    def _with(self, name: str, other: Any, reverse: bool = False) -> Any:
        """A function of this and another operand. Provided by the class."""
        raise NotImplementedError

    def _into(self, name: str, other: Any) -> Any:
        """A function whose result this becomes. Provided by the class."""
        raise NotImplementedError

    def __lt__(self, other: Any, /) -> Any:
        return self._with("less", other)

    def __le__(self, other: Any, /) -> Any:
        return self._with("less_equal", other)

    def __eq__(self, other: Any, /) -> Any:
        return self._with("equal", other)

    def __ne__(self, other: Any, /) -> Any:
        return self._with("not_equal", other)

    def __gt__(self, other: Any, /) -> Any:
        return self._with("greater", other)

    def __ge__(self, other: Any, /) -> Any:
        return self._with("greater_equal", other)

    def __add__(self, other: Any, /) -> Any:
        return self._with("add", other)

    def __radd__(self, other: Any, /) -> Any:
        return self._with("add", other, True)

    def __iadd__(self, other: Any, /) -> Any:
        return self._into("add", other)

    def __sub__(self, other: Any, /) -> Any:
        return self._with("subtract", other)

    def __rsub__(self, other: Any, /) -> Any:
        return self._with("subtract", other, True)

    def __isub__(self, other: Any, /) -> Any:
        return self._into("subtract", other)

    def __mul__(self, other: Any, /) -> Any:
        return self._with("multiply", other)

    def __rmul__(self, other: Any, /) -> Any:
        return self._with("multiply", other, True)

    def __imul__(self, other: Any, /) -> Any:
        return self._into("multiply", other)

    def __truediv__(self, other: Any, /) -> Any:
        return self._with("divide", other)

    def __rtruediv__(self, other: Any, /) -> Any:
        return self._with("divide", other, True)

    def __itruediv__(self, other: Any, /) -> Any:
        return self._into("divide", other)

    def __floordiv__(self, other: Any, /) -> Any:
        return self._with("floor_divide", other)

    def __rfloordiv__(self, other: Any, /) -> Any:
        return self._with("floor_divide", other, True)

    def __ifloordiv__(self, other: Any, /) -> Any:
        return self._into("floor_divide", other)

    def __mod__(self, other: Any, /) -> Any:
        return self._with("remainder", other)

    def __rmod__(self, other: Any, /) -> Any:
        return self._with("remainder", other, True)

    def __imod__(self, other: Any, /) -> Any:
        return self._into("remainder", other)

    def __pow__(self, other: Any, /) -> Any:
        return self._with("pow", other)

    def __rpow__(self, other: Any, /) -> Any:
        return self._with("pow", other, True)

    def __ipow__(self, other: Any, /) -> Any:
        return self._into("pow", other)

    def __lshift__(self, other: Any, /) -> Any:
        return self._with("bitwise_left_shift", other)

    def __rlshift__(self, other: Any, /) -> Any:
        return self._with("bitwise_left_shift", other, True)

    def __ilshift__(self, other: Any, /) -> Any:
        return self._into("bitwise_left_shift", other)

    def __rshift__(self, other: Any, /) -> Any:
        return self._with("bitwise_right_shift", other)

    def __rrshift__(self, other: Any, /) -> Any:
        return self._with("bitwise_right_shift", other, True)

    def __irshift__(self, other: Any, /) -> Any:
        return self._into("bitwise_right_shift", other)

    def __and__(self, other: Any, /) -> Any:
        return self._with("bitwise_and", other)

    def __rand__(self, other: Any, /) -> Any:
        return self._with("bitwise_and", other, True)

    def __iand__(self, other: Any, /) -> Any:
        return self._into("bitwise_and", other)

    def __or__(self, other: Any, /) -> Any:
        return self._with("bitwise_or", other)

    def __ror__(self, other: Any, /) -> Any:
        return self._with("bitwise_or", other, True)

    def __ior__(self, other: Any, /) -> Any:
        return self._into("bitwise_or", other)

    def __xor__(self, other: Any, /) -> Any:
        return self._with("bitwise_xor", other)

    def __rxor__(self, other: Any, /) -> Any:
        return self._with("bitwise_xor", other, True)

    def __ixor__(self, other: Any, /) -> Any:
        return self._into("bitwise_xor", other)
