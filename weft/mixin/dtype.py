"""Casts by name, shared by `UOp` and `Tensor`.

In: a class with `cast` and `dtype`. Out: `.float()`, `.half()`, ... and the widening that sums and
functions compute in. Sits below both users; imports no UOp.
Invariant: a cast to the dtype it has already is the same object.
"""

from __future__ import annotations

import builtins
from typing import Any, Self

from weft.dtype import NARROW_FLOATS, DType, dtypes, least_upper_float
from weft.mixin.arith import ArithMixin


def sum_dtype(dtype: DType) -> DType:
    """The type in which sums of this dtype accumulate: wide enough not to lose them.

    >>> sum_dtype(dtypes.uint8), sum_dtype(dtypes.float16), sum_dtype(dtypes.bool)
    (dtypes.uint, dtypes.float, dtypes.int)
    """
    if dtype in NARROW_FLOATS:
        return dtypes.float32
    if dtype is dtypes.bool:
        return dtypes.default_int
    if dtypes.is_int(dtype) and dtype is not dtypes.weakint and dtype.itemsize < 4:
        return dtypes.uint32 if dtypes.is_unsigned(dtype) else dtypes.int32
    return dtype


def product_dtype(dtype: DType) -> DType:
    """The type of products that are summed: exact for half types, whose sums are wide anyway.

    >>> product_dtype(dtypes.bfloat16), product_dtype(dtypes.int8)
    (dtypes.float, dtypes.char)
    """
    return sum_dtype(dtype) if dtype in NARROW_FLOATS else dtype


class DTypeMixin(ArithMixin):
    """Casts by name."""

    __slots__ = ()

    def _float_operand(self) -> Self:
        """The value as a float: floats stay, ints and bools become one."""
        return self.cast(least_upper_float(self.dtype))

    def is_floating_point(self) -> builtins.bool:
        """Whether the dtype is a float.

        >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
        (True, False)
        """
        return dtypes.is_float(self.dtype)

    def element_size(self) -> builtins.int:
        """Bytes of one element.

        >>> Tensor([1.0]).element_size()
        4
        """
        size: Any = self.dtype.itemsize
        return builtins.int(size)

    def float(self) -> Self:
        """Cast to float32.

        >>> Tensor([1, 2]).float().dtype
        dtypes.float
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Cast to float16.

        >>> Tensor([1, 2]).half().dtype
        dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        >>> Tensor([1, 2]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast to float64.

        >>> Tensor([1, 2]).double().dtype
        dtypes.double
        """
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """Cast to int32, towards zero.

        >>> Tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64.

        >>> Tensor([1, 2]).long().dtype
        dtypes.long
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Cast to int16.

        >>> Tensor([1, 2]).short().dtype
        dtypes.short
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """True where the value is not zero.

        >>> Tensor([0, 2]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)
