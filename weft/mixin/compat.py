"""Names that programs written for tinygrad use, in terms of weft's own.

In: what they are called with there. Out: what the methods of weft give for it.
Sits above all families, right below Tensor. Invariant: nothing here is used by weft itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from weft.device import Buffer, Device
from weft.download import fetch
from weft.dtype import (
    DType,
    PyConst,
    from_numpy_dtype,
    least_upper_dtype,
    strong_dtype,
    to_numpy_dtype,
)
from weft.engine.linear import Call, Copy, Linear
from weft.errors import ArgumentError
from weft.helpers import disable_gc, getenv
from weft.mixin.check import some_text, tensors
from weft.mixin.conv import per_axis
from weft.mixin.movement import broadcast_shape
from weft.mixin.shard import ShardMixin
from weft.uop.node import Variable, sint
from weft.uop.opset import Ops

# what programs also import from the module of Tensor
NAMES: dict[str, Any] = {
    "Buffer": Buffer,
    "ConstType": PyConst,
    "DTypeLike": str | DType,
    "Variable": Variable,
    "_from_np_dtype": from_numpy_dtype,
    "_to_np_dtype": to_numpy_dtype,
    "all_int": lambda sizes: all(isinstance(size, int) for size in sizes),
    "canonicalize_device": Device.canonicalize,
    "cast": cast,
    "disable_gc": disable_gc,
    "fetch": fetch,
    "getenv": getenv,
    "least_upper_dtype": least_upper_dtype,
    "sint": sint,
    "strong_dtype": strong_dtype,
}


class CompatMixin(ShardMixin):
    """One short method for each name."""

    __slots__ = ()

    def schedule_linear(self, *lst: Any) -> Linear:
        """`schedule` with the kernels as calls, and with what runs them.

        >>> len(Tensor([1, 2]).add(1).schedule_linear().src)
        1
        """
        tensors("each of the tensors of schedule_linear", lst)
        items = self.schedule(*lst)
        calls = [
            Call(
                (Copy() if item.kernel is None else item.kernel, *item.arguments), str(item.device)
            )
            for item in items
        ]
        return Linear(tuple(calls), functools.partial(self.realize, *lst))

    def linear_with_vars(self, *lst: Any) -> tuple[Linear, dict[str, int]]:
        """`schedule_linear`, and the values that variables have.

        >>> Tensor([1, 2]).add(1).linear_with_vars()[1]
        {}
        """
        tensors("each of the tensors of linear_with_vars", lst)
        nodes = {node: None for tensor in (self, *lst) for node in tensor.uop.toposort()}
        bound = [node.src for node in nodes if node.op is Ops.BIND]
        return self.schedule_linear(*lst), {name.arg.name: value.arg for name, value in bound}

    def ufix(self, x: Any) -> Self:
        """A number as a Tensor that this can be combined with.

        >>> Tensor([1, 2]).ufix(3).item()
        3
        """
        found: Self = self._operand(x)
        return found

    def usum(self, *src: Any) -> Self:
        """This and the others added up.

        >>> Tensor([1, 2]).usum(Tensor([3, 4]), 1).tolist()
        [5, 7]
        """
        return functools.reduce(lambda total, x: total + x, src, self)

    def uprod(self, *src: Any) -> Self:
        """This and the others multiplied.

        >>> Tensor([1, 2]).uprod(Tensor([3, 4]), 2).tolist()
        [6, 16]
        """
        return functools.reduce(lambda total, x: total * x, src, self)

    @classmethod
    def from_url(cls, url: str, gunzip: bool = False, **kwargs: Any) -> Self:
        """The bytes of a file that is fetched, or was before.

        >>> import sys
        >>> Tensor.from_url(sys.executable).dtype
        dtypes.uchar
        """
        return cls(fetch(some_text("the url of from_url", url), gunzip=gunzip), **kwargs)

    def _pool(
        self,
        k_: Sequence[int],
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Self:
        rank = len(k_)
        steps, gaps = per_axis(stride, rank, "stride", 1), per_axis(dilation, rank, "dilation", 1)
        return self._pooled(per_axis(k_, rank, "k_", 1), steps, gaps)

    def _broadcast_to(self, new_shape: Sequence[Any]) -> Self:
        return self.expand(tuple(new_shape))

    # ------------------------------------------------------------ private there, and used
    def _broadcasted(self, y: Any, reverse: bool = False) -> tuple[Self, Self]:
        """Both operands as an elementwise op sees them."""
        other = self._operand(y)
        dtype = least_upper_dtype(self.dtype, other.dtype)
        shape = broadcast_shape(self.shape, other.shape)
        pair = (self.cast(dtype).expand(shape), other.cast(dtype).expand(shape))
        return pair[::-1] if reverse else pair

    def _resolve_dim(self, dim: int, *, extra: bool = False) -> int:
        return self._axis(dim, int(extra))

    def _apply_uop(self, fxn: Callable[..., Any], *x: Any, **kwargs: Any) -> Self:
        return type(self)(fxn(self.uop, *[each.uop for each in x], **kwargs))

    @classmethod
    def _wrap_uop(cls, u: Any) -> Self:
        return cls(u)

    def _rop(self, op: Ops, axis: tuple[int, ...]) -> Self:
        return self._reduce(op, axis, False)

    def _do_reduction(self, reduction: str = "mean") -> Self:
        known = {"none": lambda: self, "sum": self.sum, "mean": self.mean}
        if reduction not in known:
            raise ArgumentError(f"a reduction is one of {', '.join(known)}, found {reduction!r}")
        return known[reduction]()

    def _softmax(self, axis: Any, dtype: Any = None) -> tuple[Self, Self, Self]:
        """x - max, its exponential, and the sum of that."""
        given = self if dtype is None else self.cast(dtype)
        falling = given - cast(Any, given.max(axis, keepdim=True)).detach()
        powers = falling.exp()
        return falling, powers, powers.sum(axis, keepdim=True)

    def _inverse(self) -> Self:
        return self.inverse()

    def _data(self) -> memoryview:
        return self._buffer().as_memoryview()

    @classmethod
    def _tri(cls, r: sint, c: sint, diagonal: int = 0) -> Self:
        return cls.ones(r, c, dtype="bool").triu(diagonal)
