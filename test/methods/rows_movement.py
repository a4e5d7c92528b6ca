"""Movement: shapes, views, padding, joining and splitting; every result is exact.

In: shapes and arguments. Out: `ROWS`.
Sits above `row.py`. Invariant: what moves elements gives them unchanged in every dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.row import ALL, FLOATS, NUMBERS, Case, Input, Row, Shape, case, same
from weft import Tensor

Function = Callable[..., Any]


def plain(*calls: tuple[Any, ...]) -> tuple[Case, ...]:
    """Cases of (shape, argument, ...)."""
    return tuple(Case((Input(shape),), tuple(args)) for shape, *args in calls)


def move(name: str, reference: Function, *cases: Case, **options: Any) -> Row:
    """A row of a movement, in every dtype."""
    return Row(name, reference, cases, ALL, **options)


def _sizes(x: Any, shape: Any) -> Any:
    asked = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return tuple(n if want is None else want for n, want in zip(
        [*x.shape, *[0] * len(asked)], asked, strict=False))  # fmt: skip


def _expand(x: Any, *shape: Any) -> Any:
    asked = shape[0] if isinstance(shape[0], tuple) else shape
    padded = (1,) * (len(asked) - x.ndim) + x.shape
    return np.broadcast_to(x, [n if want in (-1, None) else want
                               for n, want in zip(padded, asked, strict=True)])  # fmt: skip


RESHAPES = plain(
    ((3, 35), 5, 21),
    ((3, 4), (2, -1)),
    ((3, 4), None, 2, 2),
    ((), 1, 1),
    ((1, 1), ()),
    ((0, 4), 2, 0),
    ((2, 3), 6),
)

SHAPES = (
    move("reshape", lambda x, *shape: x.reshape(_sizes(x, shape)), *RESHAPES),
    move("view", lambda x, *shape: x.reshape(_sizes(x, shape)), *RESHAPES),
    move(
        "expand",
        _expand,
        *plain(((3, 1), 3, 35), ((4,), (2, 4)), ((1, 3), -1, 3), ((), 2, 2), ((1, 0), 4, 0)),
        *plain(((2, 1), 2, None)),
    ),
    move(
        "permute",
        lambda x, *order: x.transpose(order[0] if isinstance(order[0], tuple) else order),
        *plain(((3, 35), 1, 0), ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), -1, 0, 1), ((0, 2), 1, 0)),
        Case((Input(()),), ((),)),
    ),
    move(
        "flip",
        lambda x, *axes: np.flip(x, axes[0] if isinstance(axes[0], tuple) else axes),
        *plain(((3, 35), 1), ((2, 3, 4), 0, -1), ((2, 3, 4), (1, 2)), ((0, 2), 0), ((), ())),
    ),
    move(
        "shrink",
        lambda x, arg: x[tuple(slice(None) if a is None else slice(*a) for a in arg)],
        *[case((4, 35), arg=((1, 3), None)), case((3, 4), arg=((0, 0), (1, 2))), case((), arg=())],
        case((5,), arg=((4, 5),)),
    ),
    move(
        "shrink_to",
        lambda x, *shape: x[tuple(slice(n) for n in shape)],
        *plain(((4, 35), 2, None), ((3, 4), 3, 1), ((3,), 0)),
    ),
    move(
        "T",
        lambda x: x.T,
        case((3, 35)),
        case((2, 3, 4)),
        case((4,)),
        case(()),
        case((0, 2)),
        call=lambda x: x.T,
    ),
    move(
        "transpose",
        lambda x, dim0=1, dim1=0: np.swapaxes(x, dim0, dim1),
        case((3, 35)),
        case((2, 3, 4), dim0=0, dim1=-1),
        case((2, 3, 4), dim0=1, dim1=1),
        case((0, 2)),
    ),
    move(
        "squeeze",
        lambda x, dim=None: x if dim is not None and x.shape[dim] != 1 else np.squeeze(x, dim),
        case((3, 1, 35)),
        case((1, 3, 1), dim=-1),
        case((1, 3), dim=1),
        case(()),
        case((1, 0)),
    ),
    move(
        "unsqueeze",
        lambda x, dim: np.expand_dims(x, dim),
        *[case((3, 35), dim=d) for d in (1, 0, 2, -1, -3)],
        case((), dim=0),
        case((0,), dim=-1),
    ),
    move(
        "flatten",
        lambda x, start_dim=0, end_dim=-1: _flatten(x, start_dim, end_dim),
        case((3, 5, 7), start_dim=1),
        case((2, 3, 4)),
        case((2, 3, 4), start_dim=-3, end_dim=-2),
        case((2, 3), start_dim=1, end_dim=1),
        case(()),
        case((0, 3)),
    ),
    move(
        "unflatten",
        lambda x, dim, sizes: x.reshape(
            x.shape[:dim] + tuple(sizes) + (x.shape[dim + 1 :] if dim != -1 else ())
        ),
        case((3, 35), dim=1, sizes=(5, -1)),
        case((4, 3), dim=0, sizes=(2, 2)),
        case((4, 6), dim=-1, sizes=(1, 2, 3)),
        case((0, 6), dim=1, sizes=(2, 3)),
    ),
)


def _flatten(x: Any, start: int, end: int) -> Any:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    merged = int(np.prod(x.shape[start : end + 1]))
    return x.reshape(x.shape[:start] + (merged,) + x.shape[end + 1 :])


# ------------------------------------------------------------ repeating
REPEATS = (
    move(
        "repeat",
        lambda x, *times: np.tile(x, times[0] if isinstance(times[0], tuple) else times),
        *plain(((3, 35), 2, 1), ((3,), (2, 3)), ((2, 3), 0, 1), ((), 3), ((0, 2), 2, 2)),
    ),
    move(
        "repeat_interleave",
        lambda x, repeats, dim=None: np.repeat(x, repeats, axis=dim),
        case((3, 35), repeats=2, dim=1),
        case((3, 4), repeats=3),
        case((3, 4), repeats=2, dim=-2),
        case((3, 4), repeats=0, dim=0),
        case((), repeats=3),
        case((0, 2), repeats=2, dim=0),
    ),
    move(
        "roll",
        lambda x, shifts, dims=None: np.roll(x, shifts, dims),
        case((3, 35), shifts=4, dims=1),
        case((3, 4), shifts=-1),
        case((3, 4), shifts=(1, -2), dims=(0, 1)),
        case((3, 4), shifts=9, dims=-1),
        case((0, 2), shifts=1, dims=0),
        case((), shifts=1),
    ),
)


# ------------------------------------------------------------ joining and splitting
def _joined(function: Function) -> Function:
    def reference(*arrays: Any, dim: int = 0) -> Any:
        return function(arrays, axis=dim)

    return reference


def _split(x: Any, sizes: Any, dim: int = 0) -> Any:
    total = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=dim))


def _chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _several(*shapes: Shape, **kwargs: Any) -> Case:
    return case(*shapes, **kwargs)


JOINS = (
    move(
        "cat",
        _joined(np.concatenate),
        _several((3, 20), (3, 15), dim=1),
        _several((2, 3), (1, 3), (4, 3)),
        _several((2, 3, 1), (2, 3, 2), dim=-1),
        _several((0, 3), (2, 3)),
        _several((2, 3)),
        elsewhere={"args": "the other tensors"},
    ),
    move(
        "stack",
        _joined(np.stack),
        _several((3, 35), (3, 35)),
        _several((2, 3), (2, 3), (2, 3), dim=-1),
        _several((2, 3), (2, 3), dim=1),
        _several((), ()),
        _several((0, 2), (0, 2)),
        elsewhere={"args": "the other tensors"},
    ),
    move(
        "meshgrid",
        lambda *arrays, indexing="ij": tuple(np.meshgrid(*arrays, indexing=indexing)),
        _several((5,), (7,)),
        _several((2,), (3,), (4,), indexing="xy"),
        _several((2,), (3,), (1,)),
        _several((3,)),
        _several((0,), (3,)),
        elsewhere={"args": "the other tensors"},
    ),
    move(
        "split",
        _split,
        case((3, 35), sizes=20, dim=1),
        case((5, 2), sizes=2),
        case((5, 2), sizes=[1, 0, 4]),
        case((2, 6), sizes=[1, 2, 3], dim=-1),
        case((4, 0), sizes=2),
    ),
    move(
        "chunk",
        _chunk,
        case((3, 35), chunks=2, dim=1),
        case((5, 2), chunks=3),
        case((2, 6), chunks=4, dim=-1),
        case((5,), chunks=1),
    ),
)


# ------------------------------------------------------------ padding and windows
def _pairs(x: Any, padding: Any) -> list[Any]:
    if all(p is None or isinstance(p, tuple) for p in padding):
        return [(0, 0) if p is None else p for p in padding]
    last_first = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    return [(0, 0)] * (x.ndim - len(last_first)) + last_first[::-1]


def _pad(x: Any, padding: Any, mode: str = "constant", value: float = 0.0) -> Any:
    pairs = _pairs(x, padding)
    kept = x[
        tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, x.shape, strict=True))
    ]
    grow = [(max(0, a), max(0, b)) for a, b in pairs] or 0
    if mode == "constant":
        return np.pad(kept, grow, constant_values=np.asarray(value).astype(x.dtype))
    # NumPy cuts first, PyTorch copies first: the cut does not reach what is copied here
    return np.pad(kept, grow, mode={"replicate": "edge", "circular": "wrap"}.get(mode, mode))


def _pad_to(x: Any, *shape: Any, value: float = 0) -> Any:
    grow = [(0, 0 if want is None else want - n) for n, want in zip(x.shape, shape, strict=True)]
    return np.pad(x, grow, constant_values=np.asarray(value).astype(x.dtype))


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    return np.moveaxis(np.moveaxis(windows, dim if dim >= 0 else dim - 1, 0)[::step], 0, dim
                       if dim >= 0 else dim - 1)  # fmt: skip


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return np.diagonal(x, offset, dim1, dim2)


def _triangle(function: Function) -> Function:
    return lambda x, diagonal=0: function(x, diagonal)


PADS = (
    move(
        "pad",
        _pad,
        case((3, 35), padding=(1, 2)),
        case((3, 4), padding=(1, 0, 0, 2)),
        case((3, 4), padding=((1, 2), None)),
        case((3, 4), padding=(-1, 2)),
        case((3, 4), padding=((-1, -1), (0, -2))),
        case((), padding=()),
        case((0, 2), padding=(1, 1, 1, 0)),
    ),
    Row(
        "pad",
        _pad,
        (
            case((3, 35), padding=(1, 2), value=2.0),
            case((3, 4), padding=(-1, 2, 1, -1), value=1),
            *[case((3, 5), padding=(2, 1), mode=m) for m in ("reflect", "replicate", "circular")],
            *[case((3, 5), padding=(0, 3, 1, 2), mode=m) for m in ("replicate", "circular")],
            case((3, 5), padding=(0, 3, 1, 2), mode="reflect"),
            case((1, 2), padding=(3, 4), mode="replicate"),
            *[case((3, 6), padding=(-2, 3), mode=m) for m in ("replicate", "circular")],
            *[case((3, 6), padding=(2, -3, 1, -1), mode=m) for m in ("reflect", "circular")],
        ),
        NUMBERS,
    ),
    Row(
        "pad_to",
        _pad_to,
        (
            Case((Input((3, 35)),), (4, 40)),
            Case((Input((3, 4)),), (None, 6), {"value": 2}),
            Case((Input((0, 4)),), (2, 4)),
            Case((Input((3,)),), (3,)),
        ),
        NUMBERS,
    ),
    move(
        "unfold",
        _unfold,
        case((3, 35), dim=1, size=4, step=3),
        case((5, 2), dim=0, size=2, step=1),
        case((5, 2), dim=-2, size=5, step=1),
        case((2, 6), dim=-1, size=1, step=2),
        case((2, 6), dim=-1, size=2, step=4),
        case((0, 6), dim=1, size=2, step=2),
    ),
    move("diag", np.diag, case((7,)), case((1,)), case((0,)), case((3, 5)), case((0, 2))),
    move(
        "diagonal",
        _diagonal,
        case((7, 7)),
        case((3, 5), offset=1),
        case((3, 5), offset=-2),
        case((2, 3, 4), dim1=1, dim2=2),
        case((2, 3, 4), offset=1, dim1=-1, dim2=0),
        case((2, 0, 3, 3), dim1=2, dim2=3),
        case((3, 0)),
        case((2, 3, 4), offset=5, dim1=1, dim2=2),
    ),
    *[
        move(
            name,
            _triangle(function),
            case((7, 9)),
            case((2, 3, 4), diagonal=1),
            case((4, 3), diagonal=-2),
            case((3, 3), diagonal=5),
            case((0, 3)),
        )
        for name, function in (("tril", np.tril), ("triu", np.triu))
    ],
)


def _rearrange(x: Any, formula: str, **sizes: int) -> Any:
    steps: dict[str, Function] = {
        "a b -> b a": lambda: x.T,
        "a (b c) -> c (a b)": lambda: (
            x.reshape(x.shape[0], sizes["b"], -1)
            .transpose(2, 0, 1)
            .reshape(-1, x.shape[0] * sizes["b"])
        ),
        "b h w -> b (h w)": lambda: x.reshape(x.shape[0], -1),
        "... a b -> ... b a": lambda: np.swapaxes(x, -1, -2),
        "a 1 b -> a b 1": lambda: x.reshape(x.shape[0], x.shape[2], 1),
        "a b -> (a b)": lambda: x.reshape(-1),
        "a () -> a": lambda: x.reshape(-1),
    }
    return steps[formula]()


REARRANGE = (
    move(
        "rearrange",
        _rearrange,
        case((3, 35), formula="a b -> b a"),
        case((2, 6), formula="a (b c) -> c (a b)", b=3),
        case((2, 3, 4), formula="b h w -> b (h w)"),
        case((5, 2, 3, 4), formula="... a b -> ... b a"),
        case((2, 1, 3), formula="a 1 b -> a b 1"),
        case((0, 3), formula="a b -> (a b)"),
        case((3, 1), formula="a () -> a"),
        elsewhere={"sizes": "given by their names"},
    ),
)


# ------------------------------------------------------------ the same elements
def _unchanged(x: Any, **kwargs: Any) -> Any:
    return x


COPIES = (
    move(
        "contiguous",
        _unchanged,
        case((3, 35)),
        case(()),
        case((0, 2)),
        call=lambda x: x.T.contiguous().T.contiguous(),
        elsewhere={"kwargs": "ignored"},
    ),
    move("contiguous_backward", _unchanged, case((3, 35)), case(()), case((0, 2))),
    move("detach", _unchanged, case((3, 35)), case(()), case((0, 2)), gradient=False),
    move("clone", _unchanged, case((3, 35)), case(()), case((0, 2)), case((3, 4), device="PYTHON")),
    move(
        "to",
        _unchanged,
        case((3, 35), device="PYTHON"),
        case((), device="PYTHON"),
        case((0, 2), device="PYTHON"),
        case((3, 4), device=None),
    ),
    Row(
        "to_",
        _unchanged,
        (case((3, 35), device="PYTHON"),),
        FLOATS,
        same,
        call=lambda x, device: x.clone().to_(device),
        gradient=False,
    ),
    move(
        "shard",
        _unchanged,
        case((3, 35), devices=("CPU:1", "CPU:2"), axis=1),
        case((3, 35), devices=("CPU:1", "CPU:2"), axis=None),
        case((2, 3), devices=("CPU:1", "CPU:2", "CPU:3"), axis=-2),
        case((3, 3), devices=("CPU:1", "CPU:2"), axis=0, sizes=(3, 0)),
    ),
    Row(
        "shard_",
        _unchanged,
        (
            case((3, 35), devices=("CPU:1", "CPU:2"), axis=0),
            case((3, 3), devices=("CPU:1", "CPU:2"), axis=0, sizes=(1, 2)),
        ),
        FLOATS,
        same,
        call=lambda x, **how: x.clone().shard_(**how),
        gradient=False,
    ),
    move(
        "shard_like",
        _unchanged,
        case((3, 35)),
        call=lambda x: x.shard_like(Tensor.zeros(*x.shape).shard(("CPU:1", "CPU:2"), 1)),
        elsewhere={"y": "given by the call"},
    ),
    move(
        "sequential",
        lambda x: x.T,
        case((3, 35)),
        case(()),
        call=lambda x: x.sequential([Tensor.contiguous, lambda y: y.T]),
        elsewhere={"ll": "given by the call"},
    ),
)

ROWS = (*SHAPES, *REPEATS, *JOINS, *PADS, *REARRANGE, *COPIES)
