"""What kernels are built of: axes, parameters, indices, loads, stores, lanes.

What comes in: nodes (the mixin's `self`), numbers. What goes out: nodes.
Where it sits: under `node.py`, whose UOp derives from it; it imports no UOp, `type(self)` is one.
The one invariant: a number that stands where a node is expected is an index, and so a weakint.
"""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, Self

from weft.dtype import DType, dtypes
from weft.uop.args import AxisType, BufferArg, ParamArg, RangeArg
from weft.uop.layout import Layout
from weft.uop.opset import Ops

_buffer_numbers = itertools.count()


class BuildMixin:
    """Methods that make the nodes of a kernel and its memory."""

    __slots__ = ()
    op: Any
    dtype: Any
    src: Any
    arg: Any
    ndim: Any
    is_invalid: Any
    const: Any
    const_like: Any
    __getitem__: Any

    def __new__(cls, *fields: Any) -> Self:
        """The node with these contents. Provided by the class."""
        raise NotImplementedError

    @classmethod
    def range(
        cls,
        end: Any,
        number: int | tuple[int, ...],
        kind: AxisType = AxisType.LOOP,
        *more: int,
        axis_type: AxisType | None = None,
    ) -> Self:
        """An axis of a kernel; `more` are further parts of its number, `axis_type` is `kind`."""
        size = end if isinstance(end, cls) else cls.const(dtypes.weakint, end)
        numbers = ((number,) if isinstance(number, int) else number) + more
        return cls(Ops.RANGE, dtypes.weakint, (size,), RangeArg(numbers, axis_type or kind))

    @classmethod
    def param(cls, slot: int, dtype: DType, size: int | tuple[int, ...]) -> Self:
        """A kernel's buffer, of so many elements or of a shape."""
        if isinstance(size, int):
            return cls(Ops.PARAM, dtype, (), ParamArg(slot, size))
        whole = cls(Ops.PARAM, dtype, (), ParamArg(slot, prod(size)))
        return whole if len(size) == 1 else cls(Ops.RESHAPE, dtype, (whole,), size)

    @classmethod
    def new_buffer(
        cls,
        device: str | tuple[str, ...],
        size: int,
        dtype: DType,
        layout: Layout | None = None,
    ) -> Self:
        """New storage (memory comes when it is first needed)."""
        return cls(Ops.BUFFER, dtype, (), BufferArg(next(_buffer_numbers), size, device, layout))

    def index(self, idx: Any, valid: Any = None, *more: Any) -> Self:
        """The element `idx` of this memory, or none where `valid` is false. Several numbers are
        an index of each axis."""
        if isinstance(valid, int):
            valid = type(self).const(dtypes.weakint, valid)
        if more or (valid is not None and valid.dtype.kind != "bool" and self.ndim > 1):
            return self[(idx, valid, *more)]
        if isinstance(idx, int):
            idx = type(self).const(dtypes.weakint, idx)
        if valid is None and idx.op is Ops.WHERE and idx.src[2].is_invalid:
            valid, idx = idx.src[0], idx.src[1]
        src = (self, idx) if valid is None else (self, idx, valid)
        return type(self)(Ops.INDEX, self.dtype, src)

    def load(self) -> Self:
        """The value of an INDEX."""
        return type(self)(Ops.LOAD, self.dtype, (self,))

    def store(self, value: Any, *ranges: Self) -> Self:
        """Write value to this place."""
        if not isinstance(value, type(self)):
            value = self.const_like(value)
        return type(self)(Ops.STORE, dtypes.void, (self, value, *ranges))

    def after(self, *effects: Self) -> Self:
        """This value once the effects happened."""
        return type(self)(Ops.AFTER, self.dtype, (self, *effects)) if effects else self

    def reduce(self, op: Ops | Self, *ranges: Self, arg: Any = None) -> Self:
        """Fold over ranges of a kernel: `x.reduce(Ops.ADD, i)` or `x.reduce(i, arg=Ops.ADD)`."""
        if isinstance(op, type(self)):
            ranges = (op, *ranges)
            op = arg if isinstance(arg, Ops) else arg[0]
        return type(self)(Ops.REDUCE, self.dtype, (self, *ranges), op)

    def gep(self, lanes: int | tuple[int, ...], more: Self | None = None) -> Self:
        """Lanes of a vector, or of two: those of `more` are counted on from this one's."""
        lanes = (lanes,) if isinstance(lanes, int) else lanes
        scalar = self.dtype.scalar()
        dtype = scalar if len(lanes) == 1 else scalar.vec(len(lanes))
        return type(self)(Ops.GEP, dtype, (self,) if more is None else (self, more), lanes)

    def broadcast(self, count: int) -> Self:
        """The scalar in every lane of a vector."""
        if count == 1 or self.dtype.count == count:
            return self
        if self.op is Ops.GEP:
            return type(self)(Ops.GEP, self.dtype.vec(count), self.src, self.arg * count)
        return type(self)(Ops.VECTORIZE, self.dtype.vec(count), (self,) * count)
