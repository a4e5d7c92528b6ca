"""Constructors: zeros, ones, full, arange, linspace, eye and their likes.

In: shapes and numbers. Out: tensors that take no memory until they are written or realized.
Sits above the engine, first of the Tensor families; the others build on it.
Invariant: all but `empty` are constants with a strong dtype and, unless it is asked for, no device.
"""

from __future__ import annotations

import math
from typing import Any, Self

from weft.device import Device
from weft.dtype import DType, dtypes, python_number, strong_dtype, to_dtype
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.helpers import argfix, prod
from weft.mixin.check import described, real_number, whole_number
from weft.mixin.movement import is_int
from weft.mixin.rearrange import RearrangeMixin
from weft.mixin.reduce import ReduceMixin
from weft.mixin.trigonometry import TrigonometryMixin
from weft.uop.node import UOp
from weft.uop.opset import Ops

Devices = str | tuple[str, ...] | None


def checked_shape(*shape: Any) -> tuple[Any, ...]:
    """A shape given as one sequence or as numbers; sizes are ints or symbolic, not negative."""
    sizes = argfix(*shape)
    for size in sizes:
        if not isinstance(size, (int, UOp)) and not _is_numpy_int(size):
            raise ShapeError(f"a shape has ints, found {described(size)}")
        if is_int(size) and size < 0:
            raise ShapeError(f"a shape has no negative sizes, found {sizes}")
    return tuple([size if isinstance(size, (int, UOp)) else int(size) for size in sizes])


def _is_numpy_int(size: Any) -> bool:
    return type(size).__module__ == "numpy" and hasattr(size, "__index__") and not size.ndim


class CreationMixin(ReduceMixin, RearrangeMixin, TrigonometryMixin):
    """Constructors over the protocol `_from_uop`, `to`, which Tensor provides."""

    __slots__ = ()

    def __init__(
        self,
        data: Any = None,
        device: Devices = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def uop(self) -> UOp:
        """The expression behind. Provided by the class."""
        raise NotImplementedError

    @property
    def device(self) -> Devices:
        """Where it lives. Provided by the class."""
        raise NotImplementedError

    @classmethod
    def _from_uop(cls, node: UOp, pure: bool = False) -> Self:
        raise NotImplementedError

    def to(self, device: Devices) -> Self:
        """On a device. Provided by the class."""
        raise NotImplementedError

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Marked as a parameter or not. Provided by the class."""
        raise NotImplementedError

    def contiguous(self, **kwargs: Any) -> Self:
        """Stored in order. Provided by the class."""
        raise NotImplementedError

    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        """Computed now. Provided by the class."""
        raise NotImplementedError

    @classmethod
    def _made(cls, node: UOp, device: Devices, requires_grad: bool | None = None) -> Self:
        """A constructor's result: a storage of its own, pinned if a device was asked for."""
        made = cls._from_uop(node)
        if device is not None:
            place = Device.canonicalize(device)
            made = cls._from_uop(UOp(Ops.COPY, node.dtype, (node,), place))
        made.requires_grad_(requires_grad)
        return made

    # ------------------------------------------------------------ one value
    @classmethod
    def const(cls, b: Any, dtype: DType | str | None = None) -> Self:
        """A pure constant: no device, no memory, and unless given no dtype of its own.

        >>> Tensor.const(3.0).dtype
        dtypes.weakfloat
        """
        return cls(b, dtype=dtype)

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: Devices = None,
        buffer: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Every element the same. With `buffer=False` a pure constant, which never takes memory.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        sizes = checked_shape(shape)
        if isinstance(fill_value, UOp):
            fill_value = cls(fill_value).cast(strong_dtype(fill_value.dtype))
        if isinstance(fill_value, CreationMixin):
            value = fill_value if dtype is None else fill_value.cast(dtype)
            return cls._made(value.uop.expand(sizes), device, requires_grad)
        chosen = to_dtype(dtype) if dtype is not None else dtypes.from_py(fill_value)
        if not buffer and dtype is None:
            return cls(fill_value, device=device, requires_grad=requires_grad).expand(sizes)
        node = UOp.const(chosen, fill_value)
        if not buffer:
            return cls._from_uop(node, pure=True).expand(sizes)
        return cls._made(node.expand(sizes), device, requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """Zeros.

        >>> Tensor.zeros(2, 3).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        """
        return cls.full(argfix(*shape), 0.0, **{"dtype": dtypes.default_float, **_given(kwargs)})

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """Ones.

        >>> Tensor.ones(3, dtype=dtypes.int32).tolist()
        [1, 1, 1]
        """
        return cls.full(argfix(*shape), 1.0, **{"dtype": dtypes.default_float, **_given(kwargs)})

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: Devices = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Memory whose contents are whatever they are.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        sizes = checked_shape(*shape)
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        place = Device.canonicalize(device)
        buffer = UOp.new_buffer(place, prod(sizes), chosen)
        made = cls._from_uop(buffer.reshape(sizes))
        made.requires_grad_(requires_grad)
        return made

    @classmethod
    def invalids(
        cls, *shape: Any, device: Devices = None, dtype: DType | str | None = None
    ) -> Self:
        """Memory that must be written before it is read; another name of `empty`.

        >>> Tensor.invalids(2).shape
        (2,)
        """
        return cls.empty(*shape, device=device, dtype=dtype)

    # ------------------------------------------------------------ the same shape as another
    def full_like(
        self,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: Devices = None,
        buffer: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Every element the same, in this shape, dtype and device.

        >>> Tensor([1, 2]).full_like(7).tolist()
        [7, 7]
        """
        made = self.full(
            self.shape,
            fill_value,
            dtype=strong_dtype(self.dtype) if dtype is None else dtype,
            device=self.device if device is None else device,
            buffer=buffer,
            requires_grad=requires_grad,
        )
        return made if device is not None else self._cut_alike(made)

    def _cut_alike(self, made: Self) -> Self:
        """What was made for the devices of this tensor, cut as this is."""
        is_cut = type(self.device) is tuple and self.uop.layout is not None
        return made.shard_like(self) if is_cut else made

    def shard_like(self, y: Any) -> Self:
        """On the devices of another tensor. Provided by the class."""
        raise NotImplementedError

    def zeros_like(self, **kwargs: Any) -> Self:
        """Zeros in this shape, dtype and device.

        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """Ones in this shape, dtype and device.

        >>> Tensor([1, 2]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, **kwargs)

    def empty_like(self, dtype: DType | str | None = None, device: Devices = None) -> Self:
        """Memory in this shape, dtype and device, whose contents are whatever they are.

        >>> Tensor([1, 2]).empty_like().shape
        (2,)
        """
        return self.empty(
            self.shape,
            dtype=strong_dtype(self.dtype) if dtype is None else dtype,
            device=self.device if device is None else device,
        )

    # ------------------------------------------------------------ sequences
    @classmethod
    def _iota(cls, count: Any) -> Self:
        """0, 1, ... count-1 as default_int (int64 where that is too small)."""
        dtype = dtypes.default_int
        if is_int(count) and count > dtype.max:
            dtype = dtypes.int64
        if is_int(count):
            return cls._from_uop(UOp(Ops.IOTA, dtype, (), count))
        return cls._from_uop(UOp(Ops.IOTA, dtype, (count,), None))

    @classmethod
    def arange(
        cls,
        start: Any,
        stop: Any = None,
        step: Any = 1,
        dtype: DType | str | None = None,
        device: Devices = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers from start to before stop, step apart; with one argument from 0.

        >>> Tensor.arange(2, 8, 2).tolist()
        [2, 4, 6]
        """
        start, stop, step = [python_number(number) for number in (start, stop, step)]
        first, last = (0, start) if stop is None else (start, stop)
        numbers = (first, last, step)
        for name, given in zip(("start", "stop", "step"), numbers, strict=True):
            if not isinstance(given, UOp):
                real_number(f"{name} of arange", given)
        if is_int(step) and step == 0:
            raise ArgumentError(f"arange from {first} to {last} needs a step that is not 0")
        if any(isinstance(n, float) for n in numbers):
            chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
            steps = (last - first) / step
            if not math.isfinite(steps):
                raise ArgumentError(f"arange from {first} to {last} by {step} has no end")
            count = max(0, math.ceil(steps))
            wide = dtypes.float64 if chosen is dtypes.float64 else dtypes.float32
        else:
            chosen, wide, count = cls._int_range(first, last, step, dtype)
        sequence = cls._iota(count).cast(wide)
        if not (is_int(step) and step == 1):
            sequence = sequence * step
        if not (is_int(first) and first == 0):
            sequence = sequence + first
        made = sequence.cast(chosen)
        made = made if device is None else made.to(device)
        made.requires_grad_(requires_grad)
        return made

    @staticmethod
    def _int_range(first: Any, last: Any, step: Any, dtype: Any) -> tuple[DType, DType, Any]:
        """The dtype, the dtype to compute in, and the count of a range of ints."""
        if all(is_int(n) for n in (first, last, step)):
            # not len(range(...)), which is limited
            count = max(0, -((first - last) // step))
            ends = [first, first + step * max(0, count - 1)]
            found = dtypes.from_py(ends)
        else:
            count, found = (last - first + step - 1) // step, dtypes.default_int
            ends = [0]
        chosen = found if dtype is None else to_dtype(dtype)
        held = chosen.kind == "float" or all(chosen.min <= end <= chosen.max for end in ends)
        if is_int(count) and count and not held:
            raise OutOfRangeError(
                f"arange from {first} to {last} by {step} does not fit {chosen}, which holds "
                f"{chosen.min} to {chosen.max}"
            )
        return chosen, (chosen if dtypes.is_int(chosen) else found), count

    @classmethod
    def linspace(
        cls,
        start: Any,
        stop: Any,
        steps: int,
        dtype: DType | str | None = None,
        device: Devices = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`steps` numbers from start to stop, both included, at equal distances.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        start, stop, steps = [python_number(number) for number in (start, stop, steps)]
        if not is_int(steps) or steps < 0:
            raise ArgumentError(f"linspace needs a number of steps of at least 0, found {steps!r}")
        for name, given in (("start", start), ("stop", stop)):
            real_number(f"{name} of linspace", given)
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        if chosen is dtypes.bool:
            raise DTypeError("linspace gives numbers, found dtype dtypes.bool")
        wide = dtypes.float64 if chosen is dtypes.float64 else dtypes.float32
        if steps == 1:
            return cls.full((1,), start, dtype=chosen, device=device, requires_grad=requires_grad)
        position = cls._iota(steps).cast(wide)
        distance = (stop - start) / max(1, steps - 1)
        # counted from the nearer end, so that both ends are exact
        front = position * distance + start
        back = (position - (steps - 1)) * distance + stop
        made = (position < steps // 2).where(front, back).cast(chosen)
        made = made if device is None else made.to(device)
        made.requires_grad_(requires_grad)
        return made

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DType | str | None = None,
        device: Devices = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Ones on the diagonal of an n by m matrix of zeros.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        n, columns = python_number(n), python_number(n if m is None else m)
        if not is_int(n) or not is_int(columns) or n < 0 or columns < 0:
            raise ArgumentError(f"eye takes sizes of at least 0, found {n!r} and {m!r}")
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        made = cls._iota(n).unsqueeze(1).eq(cls._iota(columns)).cast(chosen)
        made = made if device is None else made.to(device)
        made.requires_grad_(requires_grad)
        return made

    def one_hot(self, num_classes: int = -1) -> Self:
        """A new last axis with 1 at the place of each index and 0 elsewhere.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not dtypes.is_int(self.dtype):
            raise ArgumentError(f"one_hot takes ints, found {self.dtype}")
        num_classes = whole_number("num_classes", num_classes, least=-1)
        if num_classes == -1:
            num_classes = int(self.max().item()) + 1  # type: ignore[attr-defined]
        return self.unsqueeze(-1).eq(self._iota(num_classes)).cast(dtypes.default_int)

    # ------------------------------------------------------------ triangles
    def _below(self, diagonal: int) -> Self:
        """True on and below a diagonal of the last two axes."""
        rows, columns = self.shape[-2:]
        diagonal = whole_number("diagonal", diagonal)
        return (self._iota(rows).unsqueeze(1) + diagonal).ge(self._iota(columns))

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle of the last two axes, zeros above.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        if self.ndim < 2:
            raise ShapeError(f"tril takes matrices, found shape {self.shape}")
        return self._below(diagonal).where(self, self._constant(0))

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle of the last two axes, zeros below.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        if self.ndim < 2:
            raise ShapeError(f"triu takes matrices, found shape {self.shape}")
        return self._below(whole_number("diagonal", diagonal) - 1).where(self._constant(0), self)


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments that were given something: `dtype=None` means the default."""
    return {key: value for key, value in kwargs.items() if value is not None}
