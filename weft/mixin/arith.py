"""Arithmetic, comparison and bit operators, shared by `UOp` and `Tensor`.

What comes in: a class with the tiny protocol below. What goes out: Python's operators and their
named forms. Where it sits: below both users; it imports no UOp.
The one invariant: every operator ends in `alu(op, *operands)` of the class, which owns promotion
and broadcast.
"""

from __future__ import annotations

import math
from typing import Any, Self

from weft.dtype import DType, computing_dtype, dtypes, least_upper_dtype, least_upper_float
from weft.errors import ArgumentError
from weft.uop.opset import Ops

Number = int | float | bool
# the ints that a number without a dtype can be
_HELD = dtypes.weakint


def _is_float(dtype: Any) -> bool:
    # a pattern has no dtype, or several
    return isinstance(dtype, DType) and dtype.kind == "float"


class ArithMixin:
    """Operators over the protocol `dtype`, `alu`, `const_like`, `cast`."""

    __slots__ = ()
    dtype: Any

    def alu(self, op: Ops, *src: Any) -> Self:
        """One elementwise op; operands may be numbers. Provided by the class."""
        raise NotImplementedError

    def _marked(self, tag: str) -> Self:
        """The same, with what a decomposition may know about it. Provided by the class."""
        raise NotImplementedError

    def const_like(self, b: Any, dtype: DType | None = None) -> Self:
        """A constant that can stand beside `self`. Provided by the class."""
        raise NotImplementedError

    def cast(self, dtype: Any) -> Self:
        """The value in another dtype. Provided by the class."""
        raise NotImplementedError

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true, else y. Provided by the class."""
        raise NotImplementedError

    def _operand(self, x: Any) -> Self:
        """The other operand of an operator as one of this class."""
        return x if isinstance(x, type(self)) else self.const_like(x)

    def _other(self, x: Any) -> Any:
        """The other operand, but an int beside an int stays as it is: a dtype might not hold it."""
        return x if isinstance(x, int) and not _is_float(self.dtype) else self._operand(x)

    def _constant(self, b: Any) -> Self:
        """A scalar constant of exactly this dtype: no promotion will happen beside it."""
        return self.const_like(b)

    def _unchanged(self) -> Self:
        """The result of an op that changes nothing. A Tensor's is new: no result is a view."""
        return self

    def _limit(self, x: Any, side: int) -> Any:
        """x as the least (side -1) or greatest (1) value allowed; None for a number that none is
        beyond."""
        return x

    def _binop(self, op: Ops, x: Any, reverse: bool) -> Self:
        return self._operand(x).alu(op, self) if reverse else self.alu(op, x)

    # ------------------------------------------------------------ arithmetic
    def add(self, x: Any, reverse: bool = False) -> Self:
        """`x + y`, as `+`.

        >>> Tensor([1, 2]).add(3).tolist()
        [4, 5]
        """
        return self._binop(Ops.ADD, x, reverse)

    def mul(self, x: Any, reverse: bool = False) -> Self:
        """`x * y`, as `*`.

        >>> Tensor([1, 2]).mul(Tensor([3, 4])).tolist()
        [3, 8]
        """
        return self._binop(Ops.MUL, x, reverse)

    def neg(self) -> Self:
        """`-x`; of a bool, the other one.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        if self.dtype.scalar() is dtypes.bool:
            return self.logical_not()
        return self.alu(Ops.NEG)

    def logical_not(self) -> Self:
        """True where the value is zero.

        >>> Tensor([0, 5]).logical_not().tolist()
        [True, False]
        """
        return self.alu(Ops.CMPEQ, self._constant(0))

    def sub(self, x: Any, reverse: bool = False) -> Self:
        """`x - y`, as `-`.

        It is `x + (-y)`, exact for floats and for wrapping ints.

        >>> Tensor([5, 6]).sub(2).tolist()
        [3, 4]
        """
        if isinstance(x, (int, float)) and not isinstance(x, bool) and not reverse:
            return self.alu(Ops.ADD, -x)
        other = self._operand(x)
        left, right = (other, self) if reverse else (self, other)
        if left.dtype is not right.dtype and isinstance(left.dtype, DType):
            # promoted before it is negated: the negative of an unsigned int would have wrapped
            right = right.cast(least_upper_dtype(left.dtype, right.dtype))
        return left.alu(Ops.ADD, right.alu(Ops.NEG))

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """`x / y` as a float, or rounded: `rounding_mode` is "floor" or "trunc".

        >>> Tensor([7, -7]).div(2).tolist()
        [3.5, -3.5]
        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        if rounding_mode == "floor":
            return self.idiv(x, reverse)
        if rounding_mode not in (None, "trunc"):
            raise ArgumentError(
                f'div has rounding_mode None, "floor" or "trunc", found {rounding_mode!r}'
            )
        if isinstance(x, int) and rounding_mode is None and not _HELD.min <= x <= _HELD.max:
            # as an int it would not be itself
            x = dtypes.weakfloat.const(x)
        other = self._operand(x)
        left, right = (other, self) if reverse else (self, other)
        if not isinstance(left.dtype, DType):
            return left.alu(Ops.FDIV, right)
        common = least_upper_dtype(left.dtype, right.dtype)
        if rounding_mode is None:
            target = least_upper_float(common)
            return left.cast(target).alu(Ops.FDIV, right.cast(target))
        left, right = left.cast(common), right.cast(common)
        if dtypes.is_float(common):
            wide = computing_dtype(common)
            return left.cast(wide).alu(Ops.FDIV, right.cast(wide)).alu(Ops.TRUNC).cast(common)
        # floor division of a negative quotient with a remainder is one too low
        floor = left.alu(Ops.IDIV, right)
        inexact = floor.alu(Ops.MUL, right).alu(Ops.CMPNE, left)
        return floor.alu(Ops.ADD, inexact.alu(Ops.AND, floor.alu(Ops.CMPLT, 0)).cast(common))

    def idiv(self, x: Any, reverse: bool = False) -> Self:
        """`floor(x / y)`, as `//`: Python's, also for negative numbers.

        >>> Tensor([7, -7]).idiv(2).tolist()
        [3, -4]
        """
        other = self._other(x)
        if _is_float(self.dtype) or _is_float(getattr(other, "dtype", None)):
            left, right = (other, self) if reverse else (self, other)
            return left._float_divmod(right)[0]
        return self._binop(Ops.IDIV, other, reverse)

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """The rest of `//`, as `%`: it has the sign of the divisor, as in Python.

        >>> Tensor([7, -7]).mod(3).tolist()
        [1, 2]
        """
        other = self._other(x)
        if _is_float(self.dtype) or _is_float(getattr(other, "dtype", None)):
            left, right = (other, self) if reverse else (self, other)
            return left._float_divmod(right)[1]
        return self._binop(Ops.MOD, other, reverse)

    def _float_divmod(self, x: Any) -> tuple[Self, Self]:
        """Python's divmod of floats.

        Each rest is computed with one rounding (MULACC), which makes it exact; a second step takes
        away what is left where the quotient has more digits than a float. The rest then corrects
        the quotient where the division rounded up to a whole number.
        """
        common = least_upper_dtype(self.dtype, x.dtype)
        wide = computing_dtype(common)
        if wide is not common:
            parts = self.cast(wide)._float_divmod(x.cast(wide))
            return parts[0].cast(common), parts[1].cast(common)
        left, right = self.cast(common), x.cast(common)
        zero = right._constant(0)
        first = left.alu(Ops.FDIV, right).alu(Ops.TRUNC)
        rest = first.alu(Ops.NEG).alu(Ops.MULACC, right, left)
        # a finite number divided by an infinite one is its own rest; 0 * inf would be nan
        infinite = right.alu(Ops.MUL, zero).alu(Ops.CMPNE, zero)
        rest = infinite.alu(Ops.AND, first.alu(Ops.CMPEQ, zero)).where(left, rest)
        second = rest.alu(Ops.FDIV, right).alu(Ops.TRUNC)
        less = second.alu(Ops.NEG).alu(Ops.MULACC, right, rest)
        # not nan, as after a division by zero, and not zero
        more = zero.alu(Ops.CMPLT, second.alu(Ops.MUL, second))
        # of a quotient that is too large nobody knows the rest
        nothing = first.alu(Ops.MUL, zero)
        more = more.alu(Ops.AND, nothing.alu(Ops.CMPEQ, zero))
        rest = more.where(less, rest).alu(Ops.ADD, nothing)
        quotient = more.where(first.alu(Ops.ADD, second), first)
        # an infinite number has no whole part, unless it is divided by zero
        lost = left.alu(Ops.MUL, zero).alu(Ops.CMPNE, zero).alu(Ops.AND, right.alu(Ops.CMPNE, zero))
        quotient = lost.where(math.nan, quotient)
        negative = rest.alu(Ops.CMPLT, rest._constant(0))
        below = negative.alu(Ops.CMPNE, right.alu(Ops.CMPLT, right._constant(0)))
        wrong = below.alu(Ops.AND, rest.alu(Ops.CMPNE, rest._constant(0)))
        quotient = wrong.where(quotient.alu(Ops.ADD, -1), quotient)
        return quotient, wrong.where(rest.alu(Ops.ADD, right), rest)

    def fdiv(self, x: Any, reverse: bool = False) -> Self:
        """`x / y`, as `/`.

        >>> Tensor([1, 2]).fdiv(4).tolist()
        [0.25, 0.5]
        """
        return self.div(x, reverse)

    def maximum(self, x: Any) -> Self:
        """The greater of two values; nan if one is nan.

        >>> Tensor([1, 5]).maximum(3).tolist()
        [3, 5]
        """
        limit = self._limit(x, -1)
        return self._unchanged() if limit is None else self.alu(Ops.MAX, limit)

    def minimum(self, x: Any) -> Self:
        """The lesser of two values; nan if one is nan.

        There is no MIN op: it is max between two order-reversing involutions.

        >>> Tensor([1, 5]).minimum(3).tolist()
        [1, 3]
        """
        limit = self._limit(x, 1)
        if limit is None:
            return self._unchanged()
        left, right = self, self._operand(limit)
        if left.dtype is not right.dtype and isinstance(left.dtype, DType):
            common = least_upper_dtype(left.dtype, right.dtype)
            left, right = left.cast(common), right.cast(common)
        return left.inverse().maximum(right.inverse()).inverse()

    def inverse(self) -> Self:
        """The order-reversing involution: -x for floats, bitwise not for ints, not for bools.

        >>> Tensor([0, 5]).inverse().tolist()
        [-1, -6]
        """
        return self.neg() if _is_float(self.dtype) else self.bitwise_not()

    # ------------------------------------------------------------ bits
    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """`x & y`.

        >>> Tensor([6, 5]).bitwise_and(3).tolist()
        [2, 1]
        """
        return self._binop(Ops.AND, x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """`x | y`.

        >>> Tensor([6, 5]).bitwise_or(1).tolist()
        [7, 5]
        """
        return self._binop(Ops.OR, x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """`x ^ y`.

        >>> Tensor([6, 5]).bitwise_xor(3).tolist()
        [5, 6]
        """
        return self._binop(Ops.XOR, x, reverse)

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """`x << y`; 0 where y is the width or more.

        >>> Tensor([1, 3]).lshift(2).tolist()
        [4, 12]
        """
        return self._binop(Ops.SHL, x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """`x >> y`, keeping the sign.

        >>> Tensor([8, -8]).rshift(1).tolist()
        [4, -4]
        """
        return self._binop(Ops.SHR, x, reverse)

    def bitwise_not(self) -> Self:
        """`~x`: every bit the other way round.

        >>> Tensor([0, 5]).bitwise_not().tolist()
        [-1, -6]
        """
        if self.dtype.scalar() is dtypes.bool:
            return self.logical_not()
        return self.alu(Ops.XOR, self._constant(-1))

    # ------------------------------------------------------------ comparison
    def ne(self, x: Any) -> Self:
        """`x != y`.

        >>> Tensor([1, 2]).ne(2).tolist()
        [True, False]
        """
        return self.alu(Ops.CMPNE, x)

    def eq(self, x: Any) -> Self:
        """`x == y`.

        >>> Tensor([1, 2]).eq(2).tolist()
        [False, True]
        """
        return self.alu(Ops.CMPEQ, x)

    def lt(self, x: Any) -> Self:
        """`x < y`.

        >>> Tensor([1, 2]).lt(2).tolist()
        [True, False]
        """
        return self.alu(Ops.CMPLT, x)

    def gt(self, x: Any) -> Self:
        """`x > y`.

        >>> Tensor([1, 2]).gt(1).tolist()
        [False, True]
        """
        return self._binop(Ops.CMPLT, x, True)

    def ge(self, x: Any) -> Self:
        """`x >= y`.

        >>> Tensor([1, 2]).ge(2).tolist()
        [False, True]
        """
        return self._not_less(x, False)

    def le(self, x: Any) -> Self:
        """`x <= y`.

        >>> Tensor([1, 2]).le(1).tolist()
        [True, False]
        """
        return self._not_less(x, True)

    def _not_less(self, x: Any, reverse: bool) -> Self:
        """`x >= y`. Not `not (x < y)` for floats: that would be True for nan."""
        other = self._other(x)
        if _is_float(self.dtype) or _is_float(getattr(other, "dtype", None)):
            greater = self._binop(Ops.CMPLT, other, not reverse)
            return greater.alu(Ops.OR, self._binop(Ops.CMPEQ, other, reverse))
        return self._binop(Ops.CMPLT, other, reverse).logical_not()

    # ------------------------------------------------------------ operators
    def __add__(self, x: Any) -> Self:
        return self.add(x)

    def __radd__(self, x: Any) -> Self:
        return self.add(x, True)

    def __sub__(self, x: Any) -> Self:
        return self.sub(x)

    def __rsub__(self, x: Any) -> Self:
        return self.sub(x, True)

    def __mul__(self, x: Any) -> Self:
        return self.mul(x)

    def __rmul__(self, x: Any) -> Self:
        return self.mul(x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self.idiv(x)

    def __rfloordiv__(self, x: Any) -> Self:
        return self.idiv(x, True)

    def __truediv__(self, x: Any) -> Self:
        return self.div(x)

    def __rtruediv__(self, x: Any) -> Self:
        return self.div(x, True)

    def __mod__(self, x: Any) -> Self:
        return self.mod(x)

    def __rmod__(self, x: Any) -> Self:
        return self.mod(x, True)

    def __and__(self, x: Any) -> Self:
        return self.bitwise_and(x)

    def __rand__(self, x: Any) -> Self:
        return self.bitwise_and(x, True)

    def __or__(self, x: Any) -> Self:
        return self.bitwise_or(x)

    def __ror__(self, x: Any) -> Self:
        return self.bitwise_or(x, True)

    def __xor__(self, x: Any) -> Self:
        return self.bitwise_xor(x)

    def __rxor__(self, x: Any) -> Self:
        return self.bitwise_xor(x, True)

    def __lshift__(self, x: Any) -> Self:
        return self.lshift(x)

    def __rlshift__(self, x: Any) -> Self:
        return self.lshift(x, True)

    def __rshift__(self, x: Any) -> Self:
        return self.rshift(x)

    def __rrshift__(self, x: Any) -> Self:
        return self.rshift(x, True)

    def __neg__(self) -> Self:
        return self.neg()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __lt__(self, x: Any) -> Self:
        return self.lt(x)

    def __gt__(self, x: Any) -> Self:
        return self.gt(x)

    def __le__(self, x: Any) -> Self:
        return self.le(x)

    def __ge__(self, x: Any) -> Self:
        return self.ge(x)
