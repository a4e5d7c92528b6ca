"""Reductions, extremes and running sums.

In: Tensors, and axes as attributes (below opset 18, ReduceSum below 13) or as an input.
Out: Tensors. A family of the table of lowerings.
Invariant: a reduction of no elements is the identity of its operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import computing_dtype, dtypes
from weft.graphs.table import Host, axes_of, axis_of, lowers, one_of, refuse
from weft.tensor import Tensor

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _is_empty(x: Tensor, axes: tuple[int, ...]) -> bool:
    return any(isinstance(x.shape[i], int) and x.shape[i] == 0 for i in axes)


def _filled(x: Tensor, axes: tuple[int, ...], keep: bool, value: Any) -> Tensor:
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    return Tensor.full(tuple(shape), value, dtype=x.dtype)


def _total(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axes, keep, dtype=x.dtype)


def _in_wide(function: Reduction) -> Reduction:
    def reduced(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        wide = computing_dtype(x.dtype) if dtypes.is_float(x.dtype) else dtypes.float64
        return function(x.cast(wide), axes, keep).cast(x.dtype)

    return reduced


def _extreme(is_max: bool) -> Reduction:
    def reduced(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if _is_empty(x, axes):
            worst: Any = (-math.inf if is_max else math.inf) if dtypes.is_float(x.dtype) else None
            if worst is None:
                worst = x.dtype.min if is_max else x.dtype.max
            return _filled(x, axes, keep, worst)
        if x.dtype is dtypes.bool:
            return x.any(axes, keep) if is_max else x.all(axes, keep)
        return x.max(axes, keep) if is_max else x.min(axes, keep)

    return reduced


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if _is_empty(x, axes):
        return _filled(x, axes, keep, -math.inf)
    return x.logsumexp(axes, keep)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if dtypes.is_float(x.dtype):
        return x.mean(axes, keep)
    count = math.prod(x.shape[i] for i in axes)
    return x.sum(axes, keep, dtype=dtypes.int64).div(count, rounding_mode="trunc").cast(x.dtype)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _total,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keep, dtype=x.dtype),
    "ReduceMax": _extreme(True),
    "ReduceMin": _extreme(False),
    "ReduceL1": lambda x, axes, keep: _total(x.abs(), axes, keep),
    "ReduceL2": _in_wide(lambda x, axes, keep: x.square().sum(axes, keep).sqrt()),
    "ReduceSumSquare": lambda x, axes, keep: _total(x * x, axes, keep),
    "ReduceLogSum": _in_wide(lambda x, axes, keep: x.sum(axes, keep).log()),
    "ReduceLogSumExp": _in_wide(_log_sum_exp),
}


def _reduced(function: Reduction, x: Tensor, axes: Any, keepdims: int, noop: int = 0) -> Tensor:
    if axes is None or len(axes) == 0:
        if noop:
            # the element-wise part of the operation is still done
            return function(x.unsqueeze(0), (0,), False) if function is not _total else x
        axes = range(x.ndim)
    places = tuple(axes_of(list(axes), x.ndim))
    return x if x.ndim == 0 and function is _total else function(x, places, bool(keepdims))


def _enter(name: str, function: Reduction) -> None:
    def by_attribute(x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Tensor:
        return _reduced(function, x, axes, keepdims)

    def by_input(
        x: Tensor, axes: Host | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        found = None if axes is None else axes.reshape(-1).tolist()
        return _reduced(function, x, found, keepdims, noop_with_empty_axes)

    lowers(name)(by_attribute)
    lowers(name, since=13 if name == "ReduceSum" else 18)(by_input)


for _name, _function in REDUCTIONS.items():
    _enter(_name, _function)


# ------------------------------------------------------------ places of extremes
def _place(x: Tensor, axis: int, keepdims: int, last: int, is_max: bool) -> Tensor:
    place = axis_of(axis, x.ndim)
    source = x.flip(place) if last else x
    found = source.argmax(place, bool(keepdims)) if is_max else source.argmin(place, bool(keepdims))
    found = (x.shape[place] - 1) - found if last else found
    return found.cast(dtypes.int64)


@lowers("ArgMax")
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place(x, axis, keepdims, select_last_index, True)


@lowers("ArgMin")
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place(x, axis, keepdims, select_last_index, False)


@lowers("TopK")
def top_k_attribute(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return top_k_of(x, k, axis, True)


@lowers("TopK", since=10)
def top_k(
    x: Tensor,
    k: Host,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    return top_k_of(x, int(one_of(k)), axis, bool(largest))


def top_k_of(x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The k greatest or least elements in order, and their places; of equal ones the first."""
    place = axis_of(axis, x.ndim)
    values, places = x.topk(k, place, largest)
    return values, places.cast(dtypes.int64)


# ------------------------------------------------------------ running sums
@lowers("CumSum", since=11)
def cum_sum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(x, axis_of(one_of(axis), x.ndim), exclusive, reverse, Tensor.cumsum, 0)


@lowers("CumProd", since=26)
def cum_prod(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(x, axis_of(one_of(axis), x.ndim), exclusive, reverse, Tensor.cumprod, 1)


def _running(
    x: Tensor,
    place: int,
    exclusive: int,
    reverse: int,
    function: Callable[[Tensor, int], Tensor],
    first: int,
) -> Tensor:
    if x.ndim == 0:
        raise refuse("a scalar has no axis to run along")
    source = x.flip(place) if reverse else x
    if exclusive:
        pairs = [(1, -1) if i == place else (0, 0) for i in range(x.ndim)]
        source = source.pad(tuple(pairs), value=first)
    total = function(source, place).cast(x.dtype)
    return total.flip(place) if reverse else total
