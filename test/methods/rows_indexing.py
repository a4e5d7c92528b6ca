"""Reading and writing at indices, and order: getitem, setitem, gather, scatter, sort, topk.

In: shapes and places. Out: `ROWS`.
Sits above `row.py`. Invariant: places count from either end, and the order is stable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.row import (
    ALL,
    FLOATS,
    INTS,
    NUMBERS,
    Input,
    Row,
    case,
    given,
    index,
    places,
    same,
)
from weft import Tensor

Function = Callable[..., Any]


# ------------------------------------------------------------ brackets
class Key:
    """What stands between brackets, as one argument that prints shortly."""

    def __getitem__(self, item: Any) -> Any:
        return item


K = Key()
BASIC = (
    ((3, 35), K[1]),
    ((3, 35), K[-1, 3:30:4]),
    ((4, 5), K[::-1, ::2]),
    ((4, 5), K[..., -2]),
    ((4, 5), K[None, 1:, None]),
    ((4, 5), K[3:1]),
    ((4, 5), K[5:1:-2, 4:0:-3]),
    ((2, 3, 4), K[1, ..., 2]),
    ((2, 3, 4), K[:, -1:-9:-1]),
    ((), K[...]),
    ((), K[None]),
    ((0, 4), K[:, 1]),
    ((4, 5), K[-100:100]),
)
LISTS = (
    ((4, 5), K[[0, 2, -1]]),
    ((4, 5), K[:, [4, 0]]),
    ((4, 5), K[[0, 1], [2, -3]]),
    ((2, 3, 4), K[[1, 0], :, [0, 3]]),
    ((2, 3, 4), K[1, [[0, 2], [1, 1]]]),
    ((4, 5), K[[True, False, True, True]]),
    ((4, 5), K[1:3, [0, 0, 2]]),
    ((4, 5), K[[]]),
)


def _taken(x: Any, key: Any) -> Any:
    return x[key]


def _key(x: Any, places: Any) -> Any:
    return x[:, places]


def _masked(x: Any, mask: Any) -> Any:
    return x[mask]


READS = (
    Row(
        "__getitem__",
        _taken,
        tuple(case(shape, key=key) for shape, key in (*BASIC, *LISTS)),
        ALL,
        call=_taken,
        elsewhere={"indices": "given by the call"},
    ),
    Row(
        "__getitem__",
        _key,
        (
            case((3, 35), index((2, 3), 35, -35)),
            case((3, 4), index((), 4)),
            case((3, 4, 2), index((2,), 4)),
            case((3, 4), index((0,), 4)),
        ),
        ALL,
        call=_key,
        elsewhere={"indices": "given by the call"},
    ),
    Row(
        "__getitem__",
        _masked,
        (
            case((3, 35), Input((3, 35), dtype="bool")),
            case((3, 4), given([True, False, True], "bool")),
            case((3, 4), given(np.zeros((3, 4), bool), "bool")),
        ),
        ALL,
        call=_masked,
        elsewhere={"indices": "given by the call"},
    ),
)


def _written(x: Any, value: Any, key: Any) -> Any:
    result = x.copy() if isinstance(x, np.ndarray) else x.clone()
    result[key] = value
    return result


def _written_places(x: Any, place: Any, value: Any) -> Any:
    return _written(x, value, place)


WRITES = (
    Row(
        "__setitem__",
        _written,
        (
            case((3, 35), (35,), key=K[1]),
            case((3, 35), (3, 7), key=K[:, 3:30:4]),
            case((4, 5), (4, 3), key=K[::-1, ::2]),
            case((4, 5), (), key=K[..., -2]),
            case((4, 5), (1, 5), key=K[1:3]),
            case((4, 5), (0, 5), key=K[3:1]),
            case((), (), key=K[...]),
            case((4, 5), (3, 5), key=K[[0, 2, -1]]),
            case((4, 5), (4, 2), key=K[:, [4, 0]]),
            case((4, 5), (2,), key=K[[0, 1], [2, -3]]),
            case((2, 3, 4), (2, 4), key=K[1, [0, 2]]),
            case((4, 5), (2,), key=K[[1, 1], [2, 2]]),
            case((4, 5), (5,), key=K[[True, False, True, True]]),
        ),
        ALL,
        call=_written,
        elsewhere={"indices": "given by the call"},
    ),
    Row(
        "__setitem__",
        lambda x, key: _written(x, 2, key),
        (case((3, 35), key=K[1]), case((4, 5), key=K[:, [0, 3]])),
        NUMBERS,
        call=lambda x, key: _written(x, 2, key),
        gradient=False,
        elsewhere={"indices": "given by the call", "value": "given by the call"},
    ),
    Row(
        "__setitem__",
        _written_places,
        (case((9, 7), index((4,), 9, -9), (4, 7)), case((4, 5), index((2, 2), 4), ())),
        ALL,
        call=_written_places,
        elsewhere={"indices": "given by the call"},
    ),
)


# ------------------------------------------------------------ gather and scatter
def _boxed(x: Any, place: Any, dim: int) -> Any:
    """The part of x that an index of this shape can reach."""
    box = tuple(slice(None) if i == dim % x.ndim else slice(n) for i, n in enumerate(place.shape))
    return x[box]


def _gather(x: Any, place: Any, dim: int) -> Any:
    return np.take_along_axis(_boxed(x, place, dim), place, dim)


def _each(place: Any, dim: int) -> Any:
    """(where it goes, where it comes from) for each place, in order."""
    for at in np.ndindex(*place.shape):
        target = list(at)
        target[dim] = place[at]
        yield tuple(target), at


def _scatter(x: Any, place: Any, src: Any, dim: int, reduce: str | None = None) -> Any:
    result = x.copy()
    values = np.broadcast_to(src, place.shape) if np.ndim(src) == 0 else src
    for target, at in _each(place, dim):
        if reduce == "add":
            result[target] += values[at]
        elif reduce == "multiply":
            result[target] *= values[at]
        else:
            result[target] = values[at]
    return result


def _scatter_reduce(
    x: Any, place: Any, src: Any, dim: int, reduce: str, include_self: bool = True
) -> Any:
    found: dict[Any, list[Any]] = {}
    for target, at in _each(place, dim):
        found.setdefault(
            tuple(int(i) % n for i, n in zip(target, x.shape, strict=True)), []
        ).append(src[at])
    result = x.copy()
    folds: dict[str, Function] = {
        "sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min, "mean": np.mean,
    }  # fmt: skip
    for target, values in found.items():
        everything = [x[target], *values] if include_self else values
        folded = folds[reduce](np.array(everything, dtype=x.dtype))
        result[target] = np.floor(folded) if x.dtype.kind != "f" else folded
    return result


GATHERS = tuple(
    case(shape, index(where, shape[dim], low), dim=dim)
    for shape, where, dim, low in (
        ((3, 35), (3, 8), 1, 0),
        ((4, 5), (6, 5), 0, -4),
        ((4, 5), (2, 3), 0, 0),
        ((2, 3, 4), (2, 3, 2), -1, 0),
        ((5,), (7,), 0, 0),
        ((4, 5), (0, 5), 0, 0),
        ((4, 5), (4, 0), 1, 0),
    )
)

# no two places are the same: what a write without a combination gives does not depend on order
APART = given([[0, 3, 2], [4, 1, 0]], "int32")
SOME = given([[0, 1, 1, 0], [2, 2, 2, -1]], "int32")


def _placed(function: Function) -> Function:
    """The arguments in the order of the method."""

    def call(x: Any, place: Any, *rest: Any, dim: int, **kwargs: Any) -> Any:
        return function(x, dim, place, *rest, **kwargs)

    return call


PLACED = {"index": "the second tensor", "src": "the third tensor"}

GATHER_SCATTER = (
    Row("gather", _gather, GATHERS, ALL, call=_placed(Tensor.gather), elsewhere=PLACED),
    Row(
        "scatter",
        _scatter,
        (
            case((2, 5), APART, (2, 3), dim=1),
            case((3, 7), APART, (3, 4), dim=-1),
            case((5, 3), APART, (2, 3), dim=0),
            case((4, 5), index((0, 5), 4), (0, 5), dim=0),
            case((2, 5), APART, dim=1, src=2),
        ),
        NUMBERS,
        call=_placed(Tensor.scatter),
    ),
    Row(
        "scatter",
        _scatter,
        tuple(
            case(Input(shape, 0.5, 2), SOME, Input((2, 4), 0.5, 2), dim=dim, reduce=reduce)
            for reduce in ("add", "multiply")
            for shape, dim in (((2, 3), 1), ((3, 5), 0))
        ),
        (*FLOATS, "int32", "uint8", "int64"),
        call=_placed(Tensor.scatter),
    ),
    Row(
        "scatter",
        lambda x, place, dim: _scatter(x, place, np.ones(()), dim, "add"),
        (case((2, 3), SOME, dim=1),),
        ("float32", "int32"),
        call=lambda x, place, dim: x.scatter(dim, place, 1, "add"),
    ),
    *[
        Row(
            "scatter_reduce",
            _scatter_reduce,
            tuple(
                case(
                    Input(shape, 0.5, 2),
                    SOME,
                    Input((2, 4), 0.5, 2),
                    dim=dim,
                    reduce=reduce,
                    include_self=own,
                )
                for shape, dim, own in (((2, 3), 1, True), ((3, 5), 0, True), ((2, 4), -1, False))
            ),
            (*FLOATS, "int32", "int64"),
            call=_placed(Tensor.scatter_reduce),
            elsewhere=PLACED,
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
    ],
)


# ------------------------------------------------------------ masks and classes
def _select(x: Any, mask: Any, size: int | None = None, fill_value: Any = 0) -> Any:
    found = x[np.broadcast_to(mask, x.shape)]
    if size is None:
        return found
    rest = np.full(max(0, size - len(found)), fill_value, dtype=x.dtype)
    return np.concatenate([found[:size], rest])


def _nonzero(x: Any, size: int | None = None, fill_value: int = 0) -> Any:
    found = np.argwhere(x).astype(np.int32)
    if size is None:
        return found
    rest = np.full((max(0, size - len(found)), x.ndim), fill_value, dtype=np.int32)
    return np.concatenate([found[:size], rest])


MASKS = (
    Row(
        "masked_select",
        _select,
        (
            case((3, 35), Input((3, 35), dtype="bool")),
            case((3, 4), Input((4,), dtype="bool")),
            case((3, 4), Input((3, 4), dtype="bool"), size=20, fill_value=3),
            case((3, 4), Input((3, 4), dtype="bool"), size=2),
            case((0, 4), Input((4,), dtype="bool")),
            case((), given(True, "bool")),
        ),
        NUMBERS,
    ),
    Row(
        "nonzero",
        _nonzero,
        (
            case(Input((3, 35), 0, 1)),
            case(given([[0.0, 2.0], [3.0, 0.0]])),
            case(given([0.0, 2.0, 3.0]), size=5, fill_value=-1),
            case(given([0.0, 2.0, 3.0]), size=1),
            case((0, 4)),
            case(given(2.0)),
            case(given(0.0)),
        ),
        ALL,
        places,
        gradient=False,
    ),
    Row(
        "one_hot",
        lambda x, num_classes=-1: (
            x[..., None] == np.arange(num_classes if num_classes >= 0 else x.max() + 1)
        ).astype(np.int32),
        (
            case(Input((3, 7), 0, 8), num_classes=9),
            case(Input((5,), 0, 3)),
            case(given(2), num_classes=3),
            case(Input((0, 2), 0, 3), num_classes=4),
            case(given([5, 1]), num_classes=3),
        ),
        INTS,
        places,
        gradient=False,
    ),
)


# ------------------------------------------------------------ order
def _order(x: Any, dim: int, descending: bool) -> Any:
    """The stable order along an axis; nan is the greatest."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    turned = np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)
    return x.shape[dim] - 1 - turned


def _argsort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    if x.ndim == 0:
        return np.zeros((), np.int32)
    return _order(x, dim, descending).astype(np.int32)


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    order = _argsort(x, dim, descending)
    return (x, order) if x.ndim == 0 else (np.take_along_axis(x, order.astype(int), dim), order)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True) -> Any:
    values, order = _sort(x, dim, largest)
    first = range(k)
    return np.take(values, first, axis=dim), np.take(order, first, axis=dim)


SORTS = (
    case((3, 35)),
    case((5, 4), dim=0),
    case((5, 4), dim=-2, descending=True),
    case((2, 1)),
    case(()),
    case((0, 3)),
    case((3, 0)),
    case(given([2.0, 1.0, 2.0, 1.0, 0.0, -0.0])),
    case(given([2.0, np.nan, -np.inf, 1.0, np.inf, np.nan])),
    case(given([2.0, np.nan, -np.inf, 1.0, np.inf, np.nan]), descending=True),
    case((2, 1500)),
)

ORDER = (
    Row("argsort", _argsort, SORTS, ALL, places, gradient=False),
    Row("sort", _sort, SORTS, ALL, (same, places)),
    Row(
        "topk",
        _topk,
        (
            case((3, 35), k=4),
            case((5, 4), k=2, dim=0),
            case((5, 4), k=4, dim=-1, largest=False),
            case((5, 4), k=0),
            case((3, 35), k=3, sorted_=True),
            case((0, 3), k=2),
            case(given([2.0, 1.0, 2.0, 1.0, np.nan]), k=4),
        ),
        ALL,
        (same, places),
    ),
)

ROWS = (*READS, *WRITES, *GATHER_SCATTER, *MASKS, *ORDER)
