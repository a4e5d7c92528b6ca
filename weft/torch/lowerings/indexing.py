"""Reading and writing at places that are values: gathers, scatters, sorts.

In: Tensors, and Tensors of places. Out: Tensors. A family of the table of lowerings.
Invariant: a negative place counts from the end; where places coincide, sums take all values.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.helpers import prod
from weft.mixin.movement import broadcast_shape
from weft.tensor import Tensor
from weft.torch.lowerings.elementwise import as_tensor
from weft.torch.table import lowers, refuse


@lowers("index", "_unsafe_index")
def index(x: Tensor, places: Any) -> Tensor:
    if any(place is not None and place.dtype is dtypes.bool for place in places):
        raise refuse("an index of bools takes as many elements as are true")
    found = [slice(None) if place is None else place for place in places]
    return x[tuple(found)]


@lowers("index_select")
def index_select(x: Tensor, axis: int, places: Tensor) -> Tensor:
    if x.ndim == 0:
        return x
    parts: list[Any] = [slice(None)] * x.ndim
    parts[axis] = places
    return x[tuple(parts)]


@lowers("gather")
def gather(x: Tensor, axis: int, places: Tensor, *, sparse_grad: bool = False) -> Tensor:
    return x.gather(axis, places) if x.ndim else x.expand(places.shape)


@lowers("take")
def take(x: Tensor, places: Tensor) -> Tensor:
    return x.flatten()[places]


@lowers("embedding")
def embedding(
    weight: Tensor, places: Tensor, padding: int = -1, by_count: bool = False, sparse: bool = False
) -> Tensor:
    return weight[places]


@lowers("embedding_dense_backward")
def embedding_backward(
    gradient: Tensor, places: Tensor, count: int, padding: int, by_count: bool
) -> Tensor:
    if by_count:
        raise refuse("gradients of an embedding divided by how often a word comes")
    width = gradient.shape[-1]
    rows = gradient.reshape((-1, width))
    flat = places.reshape((-1,))
    if padding >= 0:
        rows = flat.eq(padding).unsqueeze(1).where(0, rows)
    return _add_rows(Tensor.zeros(count, width, dtype=gradient.dtype), flat, rows)


def _add_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """x with rows added at places along the first axis."""
    spread = places.reshape((-1, *[1] * (x.ndim - 1))).expand(rows.shape)
    return x.scatter_reduce(0, spread, rows, "sum")


@lowers("scatter.src", "scatter.value")
def scatter(x: Tensor, axis: int, places: Tensor, source: Any) -> Tensor:
    return _scatter(x, axis, places, source, None)


@lowers("scatter.reduce", "scatter.value_reduce")
def scatter_with(x: Tensor, axis: int, places: Tensor, source: Any, *, reduce: str) -> Tensor:
    return _scatter(x, axis, places, source, reduce)


def _scatter(x: Tensor, axis: int, places: Tensor, source: Any, reduce: str | None) -> Tensor:
    if isinstance(source, Tensor):
        source = source.cast(x.dtype)
    if x.ndim == 0:
        return _scatter(
            x.reshape((1,)), 0, places.reshape((1,)), as_tensor(source).reshape((1,)), reduce
        ).reshape(())
    return x.scatter(axis, places, source, reduce)


@lowers("scatter_add")
def scatter_add(x: Tensor, axis: int, places: Tensor, source: Tensor) -> Tensor:
    return x.scatter_reduce(axis, places, source, "sum")


@lowers("scatter_reduce")
def scatter_reduce(
    x: Tensor, axis: int, places: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    return x.scatter_reduce(axis, places, source, reduce, include_self)


@lowers("index_add")
def index_add(x: Tensor, axis: int, places: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    values = source if alpha == 1 else source * alpha
    shape = [1] * x.ndim
    shape[axis] = -1
    spread = places.reshape(tuple(shape)).expand(values.shape)
    return x.scatter_reduce(axis, spread, values, "sum")


@lowers("index_copy")
def index_copy(x: Tensor, axis: int, places: Tensor, source: Tensor) -> Tensor:
    shape = [1] * x.ndim
    shape[axis] = -1
    return x.scatter(axis, places.reshape(tuple(shape)).expand(source.shape), source.cast(x.dtype))


@lowers("index_fill")
def index_fill(x: Tensor, axis: int, places: Tensor, value: Any) -> Tensor:
    shape = list(x.shape)
    shape[axis] = places.shape[0]
    filled = as_tensor(value).cast(x.dtype).expand(tuple(shape))
    return index_copy(x, axis, places, filled)


@lowers("index_put", "_unsafe_index_put")
def index_put(x: Tensor, places: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Over one flat axis: the axes that are indexed, joined, before those that are not."""
    if any(place is not None and place.dtype is dtypes.bool for place in places):
        return _masked_put(x, places, values, accumulate)
    axes = [axis for axis, place in enumerate(places) if place is not None]
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    shape: tuple[Any, ...] = ()
    for axis in axes:
        shape = broadcast_shape(shape, places[axis].shape)
    flat: Any = 0
    for axis in axes:
        size = x.shape[axis]
        place = places[axis]
        flat = flat * size + (place < 0).where(place + size, place)
    flat = flat.expand(shape).reshape((-1,))
    # values are shaped as x[places] is: the indexed axes where the first stands if they are
    # neighbours, in front if they are not
    are_neighbours = axes == list(range(axes[0], axes[0] + len(axes)))
    before = len([axis for axis in rest if axis < axes[0]]) if are_neighbours else 0
    kept = tuple(x.shape[axis] for axis in rest)
    whole = (*kept[:before], *shape, *kept[before:])
    values = values.cast(x.dtype).expand(whole)
    order = (
        *range(before, before + len(shape)),
        *range(before),
        *range(before + len(shape), len(whole)),
    )
    rows = values.permute(order).reshape((flat.shape[0], prod(kept)))
    table = x.permute((*axes, *rest))
    joined = table.reshape((prod([x.shape[axis] for axis in axes]), prod(kept)))
    spread = flat.unsqueeze(1).expand(rows.shape)
    if accumulate:
        made = joined.scatter_reduce(0, spread, rows, "sum")
    else:
        made = joined.scatter(0, spread, rows)
    back = sorted(range(x.ndim), key=lambda axis: (*axes, *rest)[axis])
    return made.reshape(table.shape).permute(tuple(back))


def _masked_put(x: Tensor, places: Any, values: Tensor, accumulate: bool) -> Tensor:
    """One number where a mask of the first axes is true."""
    if len(places) != 1 or prod(values.shape) != 1:
        raise refuse("writing several values where a mask is true")
    mask = places[0].reshape((*places[0].shape, *[1] * (x.ndim - places[0].ndim)))
    value = values.reshape(()).cast(x.dtype)
    return mask.where(x + value if accumulate else value, x)


@lowers("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    spread = mask.expand(x.shape).flatten()
    number = (spread.cast(dtypes.int32).cumsum(0) - 1).clip(0, None)
    return spread.where(source.flatten()[number], x.flatten()).reshape(x.shape)


# ------------------------------------------------------------ order
@lowers("sort")
def sort(x: Tensor, axis: int = -1, descending: bool = False, **kwargs: Any) -> Any:
    if x.ndim == 0:
        return x, x.zeros_like()
    return tuple(x.sort(axis, descending))


@lowers("sort.stable")
def sort_stable(x: Tensor, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return sort(x, dim, descending)


@lowers("argsort")
def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    return x.argsort(axis, descending)


@lowers("topk")
def topk(
    x: Tensor, count: int, axis: int = -1, largest: bool = True, is_sorted: bool = True
) -> Any:
    return tuple(x.topk(count, axis, largest, True))


# comparisons up to which each value is compared with all boundaries
_MOST_COMPARED = 1 << 24


@lowers("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    boundaries: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor:
    """How many boundaries are less than each value; with `right`, those that are equal too."""
    wanted = as_tensor(values)
    if sorter is not None or prod(wanted.shape) * boundaries.shape[-1] > _MOST_COMPARED:
        raise refuse("a search among many boundaries, or in an order given apart")
    inner = boundaries.unsqueeze(-2) if wanted.ndim else boundaries
    outer = wanted.unsqueeze(-1)
    is_right = side == "right" if side is not None else right
    return (inner <= outer if is_right else inner < outer).sum(-1)


@lowers("bucketize.Tensor", "bucketize.Scalar")
def bucketize(values: Any, boundaries: Tensor, *, right: bool = False, **kwargs: Any) -> Tensor:
    return searchsorted(boundaries, values, right=right)


@lowers("one_hot")
def one_hot(x: Tensor, classes: int = -1) -> Tensor:
    if classes < 0:
        raise refuse("one_hot of as many classes as there are")
    return x.one_hot(classes)
