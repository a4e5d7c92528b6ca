"""Numbers that change from call to call, as parameters of kernels instead of constants in them.

In: a number. Out: `Number`, which a function may compute with as with the number itself; what it
computes is written down, done again on the host for other values, and given to the kernels.
Sits above Tensor, beside the other rooms of the JIT.
Invariant: whoever wants to know the number itself (a condition, a size, an index) is refused: then
it is used as more than a value, and every value needs a graph of its own.
"""

from __future__ import annotations

import operator
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft.dtype import dtypes
from weft.engine.cell import Cell
from weft.errors import JitError
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops

PREFIX = "jitn"
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
# ("given", position) or (name of a function, *operands); an operand is the number of an expression
# or a _Constant
Expression = tuple[Any, ...]
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow neg pos abs".split()
}


class _Constant:
    """A number in an expression; 1, 1.0 and True are different, NaN is like NaN."""

    __slots__ = ("text", "value")

    def __init__(self, value: int | float) -> None:
        self.value = value
        self.text = repr(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class UsedAsMore(JitError):
    """A number is used as more than a value."""


class NumberBook:
    """The expressions of one run."""

    def __init__(self) -> None:
        self.expressions: dict[Expression, int] = {}
        self.kinds: list[type] = []
        self.cells: weakref.WeakSet[Cell] = weakref.WeakSet()

    def given(self, position: int, value: int | float) -> Number:
        """A number that the caller gives."""
        return self.number(("given", position), value)

    def number(self, expression: Expression, value: Any) -> Number:
        """The result of an expression."""
        kind = type(value)
        if not _fits(value):
            raise UsedAsMore(f"an expression of numbers gives {value!r}, which no kernel can take")
        number = self.expressions.setdefault(expression, len(self.expressions))
        if number == len(self.kinds):
            self.kinds.append(kind)
        made = Number.standing_for(self, number, value)
        self.cells.add(made._cell)
        return made

    def written(self) -> tuple[tuple[Expression, type], ...]:
        """The expressions in order, with the types of their results."""
        return tuple(zip(self.expressions, self.kinds, strict=True))


def evaluate(
    expressions: Sequence[tuple[Expression, type]], given: dict[int, Any]
) -> list[int] | None:
    """What the kernels get; None where the values have other types than before, or none at all."""
    values: list[Any] = []
    value: Any
    for expression, kind in expressions:
        if expression[0] == "given":
            value = given[expression[1]]
        else:
            operands = [
                values[operand] if isinstance(operand, int) else operand.value
                for operand in expression[1:]
            ]
            try:
                value = _FUNCTIONS[expression[0]](*operands)
            except (ArithmeticError, TypeError, ValueError):
                return None
        if type(value) is not kind or not _fits(value):
            return None
        values.append(value)
    return [_bits(value) for value in values]


def _fits(value: Any) -> bool:
    return type(value) is float or (type(value) is int and _LOW <= value <= _HIGH)


def _bits(value: int | float) -> int:
    """A number as the 64 bits that a kernel gets."""
    if isinstance(value, int):
        return value
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _variable(number: int, value: int | float) -> UOp:
    """The number as a node: a variable; floats travel as their bits."""
    name = f"{PREFIX}{number}"
    if isinstance(value, int):
        return UOp.variable(name, _LOW, _HIGH).bind(value)
    bound = UOp(
        Ops.BIND,
        dtypes.int64,
        (
            UOp.variable(name, _LOW, _HIGH, dtypes.int64),
            UOp.const(dtypes.int64, _bits(value)),
        ),
    )
    return bound.bitcast(dtypes.float64).cast(dtypes.weakfloat)


class Number(Tensor):
    """Stands for a number. With numbers it gives numbers, with tensors tensors."""

    __slots__ = ("book", "number", "value")
    book: NumberBook
    number: int
    value: int | float

    @classmethod
    def standing_for(cls, book: NumberBook, number: int, value: int | float) -> Number:
        """The result of an expression, which is this value now."""
        made = object.__new__(cls)
        made._cell = Cell(_variable(number, value), pure=True)
        made._moves = ()
        made._uop = None
        made.grad = None
        made.requires_grad = None
        made.book, made.number, made.value = book, number, value
        return made

    # what is made of it by the methods of Tensor is a Tensor
    @classmethod
    def _from_uop(cls, node: UOp, pure: bool = False) -> Any:
        return Tensor._from_uop(node, pure)

    @classmethod
    def _view_of(cls, cell: Cell, moves: tuple[Any, ...]) -> Any:
        return Tensor._view_of(cell, moves)

    def _operate(self, name: str, *operands: Any) -> Number:
        parts: list[Any] = []
        values: list[Any] = []
        for operand in operands:
            if isinstance(operand, Number):
                parts.append(operand.number)
                values.append(operand.value)
            else:
                parts.append(_Constant(operand))
                values.append(operand)
        return self.book.number((name, *parts), _FUNCTIONS[name](*values))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UsedAsMore("a number that changes from call to call is used as more than a value")

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __round__ = _refuse
    __trunc__ = __floor__ = __ceil__ = __format__ = __str__ = __repr__ = __divmod__ = _refuse
    __hash__ = __rdivmod__ = __len__ = __iter__ = __array__ = __contains__ = _refuse
    item = tolist = numpy = data = _refuse

    def __neg__(self) -> Any:
        return self._operate("neg", self)

    def __pos__(self) -> Any:
        return self._operate("pos", self)

    def __abs__(self) -> Any:
        return self._operate("abs", self)


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or type(value) in (int, float, bool)


def _two_sided(name: str) -> None:
    """`number op x` and `x op number`: on the host if x is a number too."""
    forward, backward = f"__{name}__", f"__r{name}__"
    function = _FUNCTIONS[name]

    def left(self: Number, x: Any) -> Any:
        return self._operate(name, self, x) if _is_number(x) else getattr(Tensor, forward)(self, x)

    def right(self: Number, x: Any) -> Any:
        if _is_number(x):
            return self._operate(name, x, self)
        # Python asks the subclass first: the tensor on the left does it as it always does
        plain = Tensor._view_of(self._cell, ())
        return function(x, plain)

    setattr(Number, forward, left)
    setattr(Number, backward, right)


def _comparison(name: str) -> None:
    """With a number it would decide what Python does next."""

    def compare(self: Number, x: Any) -> Any:
        if _is_number(x) or not isinstance(x, Tensor):
            self._refuse()
        return getattr(Tensor, name)(self, x)

    setattr(Number, name, compare)


for _name in "add sub mul truediv floordiv mod pow".split():
    _two_sided(_name)
for _name in "__lt__ __le__ __gt__ __ge__ __eq__ __ne__".split():
    _comparison(_name)
