"""Reductions: sums, extremes, statistics, running sums, softmax.

In: Tensors. Out: Tensors with fewer elements, or the same number of them. A family of the table.
Invariant: NaN is the greatest and the least there is, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes, least_upper_float
from weft.helpers import prod
from weft.tensor import Tensor
from weft.torch.table import Call, lowers


def axes_of(x: Tensor, axes: Any) -> tuple[int, ...]:
    """Axes as PyTorch names them: none or an empty list are all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(x.ndim))
    given = axes if isinstance(axes, (list, tuple)) else (axes,)
    return tuple(axis % max(1, x.ndim) for axis in given) if x.ndim else ()


@lowers("sum", call=True)
def sum_(x: Tensor, axes: Any = None, keep: bool = False, *, call: Call, **kwargs: Any) -> Tensor:
    dtype = call.dtype_of(call.meta.dtype)
    wide = x if dtypes.is_float(dtype) and dtypes.is_float(x.dtype) else x.cast(dtype)
    if kwargs.get("dtype") is not None:
        wide = x.cast(dtype)
    return wide.sum(axes_of(x, axes), keep)


@lowers("mean", call=True)
def mean(x: Tensor, axes: Any = None, keep: bool = False, *, call: Call, **kwargs: Any) -> Tensor:
    if kwargs.get("dtype") is not None:
        x = x.cast(call.dtype_of(kwargs["dtype"]))
    return x.mean(axes_of(x, axes), keep)


@lowers("prod", "prod.dim_int", call=True)
def prod_(x: Tensor, axis: Any = None, keep: bool = False, *, call: Call, **kwargs: Any) -> Tensor:
    return x.cast(call.dtype_of(call.meta.dtype)).prod(axes_of(x, axis), keep)


@lowers("amax")
def amax(x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return x.max(axes_of(x, axes), keep)


@lowers("amin")
def amin(x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return x.min(axes_of(x, axes), keep)


@lowers("max", "max.default")
def max_(x: Tensor) -> Tensor:
    return x.max()


@lowers("min", "min.default")
def min_(x: Tensor) -> Tensor:
    return x.min()


@lowers("max.other")
def max_other(x: Tensor, y: Tensor) -> Tensor:
    return x.maximum(y)


@lowers("min.other")
def min_other(x: Tensor, y: Tensor) -> Tensor:
    return x.minimum(y)


@lowers("max.dim")
def max_dim(x: Tensor, axis: int, keep: bool = False) -> tuple[Tensor, Tensor]:
    return (x, x.zeros_like()) if x.ndim == 0 else (x.max(axis, keep), _argmax(x, axis, keep))


@lowers("min.dim")
def min_dim(x: Tensor, axis: int, keep: bool = False) -> tuple[Tensor, Tensor]:
    return (x, x.zeros_like()) if x.ndim == 0 else (x.min(axis, keep), _argmin(x, axis, keep))


def _argmax(x: Tensor, axis: Any, keep: bool) -> Tensor:
    return x.argmax(axis, keep)


def _argmin(x: Tensor, axis: Any, keep: bool) -> Tensor:
    return x.argmin(axis, keep)


@lowers("argmax", call=True)
def argmax(x: Tensor, axis: Any = None, keep: bool = False, *, call: Call) -> Tensor:
    if x.ndim == 0:
        return x.zeros_like()
    return _argmax(x, axis, keep).reshape(call.shape)


@lowers("argmin", call=True)
def argmin(x: Tensor, axis: Any = None, keep: bool = False, *, call: Call) -> Tensor:
    if x.ndim == 0:
        return x.zeros_like()
    return _argmin(x, axis, keep).reshape(call.shape)


@lowers("any")
def any_(x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return x.any(axes_of(x, axes), keep)


@lowers("all")
def all_(x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return x.all(axes_of(x, axes), keep)


@lowers("var.correction")
def var(x: Tensor, axes: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return x.var(axes_of(x, axes), keepdim, 1 if correction is None else correction)


@lowers("var_mean.correction")
def var_mean(
    x: Tensor, axes: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    places = axes_of(x, axes)
    return var(x, axes, correction=correction, keepdim=keepdim), x.mean(places, keepdim)


@lowers("var", "var.dim")
def var_dim(x: Tensor, axes: Any = None, unbiased: bool = True, keep: bool = False) -> Tensor:
    return x.var(axes_of(x, axes), keep, int(unbiased))


@lowers("std.correction")
def std(x: Tensor, axes: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return x.std(axes_of(x, axes), keepdim, 1 if correction is None else correction)


@lowers("linalg_vector_norm")
def vector_norm(
    x: Tensor, order: Any = 2, axes: Any = None, keep: bool = False, *, dtype: Any = None
) -> Tensor:
    places = axes_of(x, axes)
    wide = x.cast(least_upper_float(x.dtype)).abs()
    if order == float("inf"):
        return wide.max(places, keep)
    if order == float("-inf"):
        return wide.min(places, keep)
    if order == 0:
        return wide.ne(0).sum(places, keep)
    if order == 1:
        return wide.sum(places, keep)
    if order == 2:
        return (wide * wide).sum(places, keep).sqrt()
    return wide.pow(order).sum(places, keep).pow(1 / order)


# ------------------------------------------------------------ along an axis
@lowers("cumsum", call=True)
def cumsum(x: Tensor, axis: int, *, dtype: Any = None, call: Call) -> Tensor:
    wide = x.cast(call.dtype_of(call.meta.dtype))
    return wide.cumsum(axis) if x.ndim else wide


@lowers("cumprod", call=True)
def cumprod(x: Tensor, axis: int, *, dtype: Any = None, call: Call) -> Tensor:
    wide = x.cast(call.dtype_of(call.meta.dtype))
    return wide.cumprod(axis) if x.ndim else wide


@lowers("cummax")
def cummax(x: Tensor, axis: int) -> Any:
    return tuple(x.cummax(axis))


@lowers("cummin")
def cummin(x: Tensor, axis: int) -> Any:
    return tuple(x.cummin(axis))


@lowers("logcumsumexp")
def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    return x.logcumsumexp(axis)


@lowers("logsumexp", call=True)
def logsumexp(x: Tensor, axes: Any, keep: bool = False, *, call: Call) -> Tensor:
    return x.logsumexp(axes_of(x, axes), keep)


@lowers("_softmax", "softmax", call=True)
def softmax(x: Tensor, axis: int, half_to_float: bool = False, *, call: Call) -> Tensor:
    wide = x.cast(call.dtype_of(call.meta.dtype))
    return wide.softmax(axis) if x.ndim else wide.ones_like()


@lowers("_log_softmax", "log_softmax", call=True)
def log_softmax(x: Tensor, axis: int, half_to_float: bool = False, *, call: Call) -> Tensor:
    wide = x.cast(call.dtype_of(call.meta.dtype))
    return wide.log_softmax(axis) if x.ndim else wide.zeros_like()


@lowers("_softmax_backward_data")
def softmax_backward(gradient: Tensor, y: Tensor, axis: int, dtype: Any) -> Tensor:
    product = gradient * y
    return product - y * product.sum(axis, True)


@lowers("_log_softmax_backward_data")
def log_softmax_backward(gradient: Tensor, y: Tensor, axis: int, dtype: Any) -> Tensor:
    return gradient - y.exp() * gradient.sum(axis, True)


@lowers("nonzero_static", call=True)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1, call: Call) -> Tensor:
    return x.nonzero(size=size, fill_value=fill_value)


def count_of(x: Tensor, axes: tuple[int, ...]) -> Any:
    """How many elements a reduction over axes takes together."""
    return prod([x.shape[axis] for axis in axes])
