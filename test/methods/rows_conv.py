"""Windows over space: convolution, pooling, resizing.

In: shapes and geometries. Out: `ROWS`.
Sits above `row.py`. Invariant: the references follow the definitions, one place after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from test.methods.row import FLOATS, Case, Row, case, given, places, same
from test.optional import need
from weft import dtypes


# ------------------------------------------------------------ convolution
def _many(value: Any, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value)


def padding_pairs(padding: Any, rank: int) -> list[tuple[int, int]]:
    if not isinstance(padding, int) and len(padding) == 2 * rank:
        return [(padding[i], padding[i + 1]) for i in range(0, 2 * rank, 2)][::-1]
    return [(n, n) for n in _many(padding, rank)]


def _conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    groups: int = 1,
    stride: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    dtype: Any = None,
) -> Any:
    """Convolution in as many axes as the kernel has, straight from its definition."""
    kernel = weight.shape[2:]
    rank = len(kernel)
    steps, gaps = _many(stride, rank), _many(dilation, rank)
    padded = np.pad(x, [(0, 0), (0, 0), *padding_pairs(padding, rank)])
    sizes = [
        (n - gap * (k - 1) - 1) // step + 1
        for n, gap, k, step in zip(padded.shape[2:], gaps, kernel, steps, strict=True)
    ]
    batch, outer = x.shape[0], weight.shape[0]
    total = np.zeros((batch, groups, outer // groups, *sizes), dtype=padded.dtype)
    split = padded.reshape(batch, groups, x.shape[1] // groups, *padded.shape[2:])
    grouped = weight.reshape(groups, outer // groups, *weight.shape[1:])
    for at in np.ndindex(*kernel):
        window = split[
            (
                ...,
                *[
                    slice(k * gap, k * gap + (n - 1) * step + 1, step)
                    for k, gap, n, step in zip(at, gaps, sizes, steps, strict=True)
                ],
            )
        ]
        part = grouped[(..., *at)]
        total += np.einsum("ngi...,goi->ngo...", window, part)
    result = total.reshape(batch, outer, *sizes)
    return result if bias is None else result + bias.reshape(1, -1, *[1] * rank)  # fmt: skip


def _conv_terms(x: Any, weight: Any, bias: Any = None, **kwargs: Any) -> tuple[int, Any]:
    added = None if bias is None else np.abs(bias)
    total = _conv2d(np.abs(x), np.abs(weight), added, **kwargs)
    return int(np.prod(weight.shape[1:])) + 1, total


def _conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    groups: int = 1,
    stride: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
) -> Any:
    """Each element spreads the kernel over the result, straight from the definition."""
    kernel = weight.shape[2:]
    rank = len(kernel)
    steps, gaps, more = (_many(v, rank) for v in (stride, dilation, output_padding))
    cut = padding_pairs(padding, rank)
    full = [
        (n - 1) * s + gap * (k - 1) + 1 + extra
        for n, s, gap, k, extra in zip(x.shape[2:], steps, gaps, kernel, more, strict=True)
    ]
    split = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    total = np.zeros((x.shape[0], groups, weight.shape[1], *full), dtype=x.dtype)
    for at in np.ndindex(*kernel):
        where = [
            slice(k * gap, k * gap + (n - 1) * s + 1, s)
            for k, gap, n, s in zip(at, gaps, x.shape[2:], steps, strict=True)
        ]
        total[(..., *where)] += np.einsum("ngi...,gio->ngo...", split, grouped[(..., *at)])
    result = total.reshape(x.shape[0], -1, *full)
    result = result[(..., *[slice(a, n - b) for (a, b), n in zip(cut, full, strict=True)])]
    return result if bias is None else result + bias.reshape(1, -1, *[1] * rank)  # fmt: skip


def _transpose_terms(x: Any, weight: Any, bias: Any = None, **kwargs: Any) -> tuple[int, Any]:
    added = None if bias is None else np.abs(bias)
    total = _conv_transpose2d(np.abs(x), np.abs(weight), added, **kwargs)
    return int(weight.size // max(1, weight.shape[1])) + 1, total


CONVOLUTION = (
    Row(
        "conv2d",
        _conv2d,
        (
            case((2, 3, 9, 9), (5, 3, 3, 3), (5,), padding=1),
            case((1, 2, 7, 6), (4, 2, 3, 2)),
            case((1, 4, 7, 7), (6, 2, 3, 3), (6,), groups=2, stride=2, padding=(1, 0)),
            case((1, 4, 5, 5), (4, 1, 3, 3), groups=4, padding=(1, 0, 2, 1)),
            case((1, 2, 9, 9), (3, 2, 3, 3), dilation=(2, 1), stride=(1, 2)),
            case((2, 3, 10), (4, 3, 3), (4,), stride=2, padding=1),
            case((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (3,)),
            case((1, 2, 3, 3), (2, 2, 3, 3)),
            case((0, 2, 4, 4), (3, 2, 2, 2)),
        ),
        (*FLOATS, "int32"),
        terms=_conv_terms,
    ),
    Row(
        "conv2d",
        _conv2d,
        (case((1, 2, 4, 4), (3, 2, 2, 2), dtype=dtypes.float32),),
        ("float16",),
        lambda dtype: "float32",
        terms=_conv_terms,
    ),
    Row(
        "conv_transpose2d",
        _conv_transpose2d,
        (
            case((1, 3, 4, 4), (3, 2, 3, 3), (2,)),
            case((1, 3, 4, 4), (3, 2, 3, 3), (2,), stride=2, padding=1, output_padding=1),
            case((1, 4, 3, 3), (4, 2, 3, 3), groups=2, stride=(2, 1), padding=(0, 1)),
            case((1, 2, 3, 3), (2, 2, 2, 2), dilation=2),
            case((2, 2, 5), (2, 3, 3), (3,), stride=3, output_padding=2),
            case((1, 2, 2, 2, 2), (2, 1, 2, 2, 2), stride=2),
            case((1, 2, 4, 4), (2, 2, 3, 3), padding=(1, 0, 2, 1)),
        ),
        FLOATS,
        terms=_transpose_terms,
    ),
)


# ------------------------------------------------------------ pooling
POOL_DEFAULTS = {
    "kernel_size": (2, 2),
    "stride": None,
    "dilation": 1,
    "padding": 0,
    "ceil_mode": False,
}


def _pool_shape(x: Any, options: dict[str, Any]) -> tuple[list[int], ...]:
    kernel = list(options["kernel_size"])
    rank = len(kernel)
    steps = _many(kernel if options["stride"] is None else options["stride"], rank)
    gaps = _many(options["dilation"], rank)
    pairs = padding_pairs(options["padding"], rank)
    sizes = []
    for n, k, step, gap, (before, after) in zip(
        x.shape[-rank:], kernel, steps, gaps, pairs, strict=True
    ):
        room = n + before + after - gap * (k - 1) - 1
        count = (-(-room // step) if options["ceil_mode"] else room // step) + 1
        # PyTorch: the last window must start inside the input or the padding before it
        if options["ceil_mode"] and (count - 1) * step >= n + before:
            count -= 1
        sizes.append(count)
    return kernel, steps, gaps, [p[0] for p in pairs], sizes


def _windows(x: Any, **given_options: Any) -> Any:
    """Per window: how many there are, its places inside the image, all its places."""
    options = {**POOL_DEFAULTS, **given_options}
    kernel, steps, gaps, before, sizes = _pool_shape(x, options)
    space = x.shape[-len(kernel) :]
    for at in np.ndindex(*sizes):
        places = [
            tuple(
                i * step + o * gap - b
                for i, step, o, gap, b in zip(at, steps, offset, gaps, before, strict=True)
            )
            for offset in np.ndindex(*kernel)
        ]
        inside = [
            place for place in places if all(0 <= p < n for p, n in zip(place, space, strict=True))
        ]
        yield sizes, inside, places


def _max_pool(x: Any, return_indices: bool = False, **options: Any) -> Any:
    values: list[Any] = []
    found: list[Any] = []
    sizes: list[int] = []
    for sizes, inside, _ in _windows(x, **options):  # noqa: B007
        window = np.stack([x[(..., *place)] for place in inside], axis=-1)
        flat = np.array([np.ravel_multi_index(p, x.shape[-len(sizes) :]) for p in inside])
        first = np.argmax(window, axis=-1)
        values.append(np.take_along_axis(window, first[..., None], -1)[..., 0])
        found.append(flat[first].astype(np.int32))
    shape = (*x.shape[: x.ndim - len(sizes)], *sizes)
    result = np.stack(values, -1).reshape(shape)
    return (result, np.stack(found, -1).reshape(shape)) if return_indices else result


def _avg_pool(x: Any, count_include_pad: bool = True, **options: Any) -> Any:
    parts: list[Any] = []
    sizes: list[int] = []
    rank = len(options.get("kernel_size", (2, 2)))
    pairs = padding_pairs(options.get("padding", 0), rank)
    # padding counts as zeros; what ceil_mode adds beyond it never counts
    padded = [n + a + b for n, (a, b) in zip(x.shape[-rank:], pairs, strict=True)]
    first = [a for a, _ in pairs]
    for sizes, inside, reached in _windows(x, **options):  # noqa: B007
        total = sum(x[(..., *place)] for place in inside)
        counted = [
            place
            for place in reached
            if all(p + a < n for p, a, n in zip(place, first, padded, strict=True))
        ]
        parts.append(total / len(counted if count_include_pad else inside))
    return np.stack(parts, -1).reshape(*x.shape[: x.ndim - rank], *sizes)


def _unpool(x: Any, where: Any, **options: Any) -> Any:
    sizes = options["output_size"][-2:]
    flat = np.zeros((*x.shape[:-2], sizes[0] * sizes[1]), dtype=x.dtype)
    np.put_along_axis(flat, where.reshape(*x.shape[:-2], -1), x.reshape(*x.shape[:-2], -1), -1)
    return flat.reshape(*x.shape[:-2], *sizes)


POOL_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"kernel_size": (3, 2), "stride": 1},
    {"kernel_size": (3, 3), "stride": 2, "padding": 1},
    {"kernel_size": (2, 2), "dilation": 2, "stride": (1, 2)},
    {"kernel_size": (3, 3), "stride": 2, "ceil_mode": True},
    {"kernel_size": (2, 2), "stride": 3, "padding": 1, "ceil_mode": True},
    {"kernel_size": (2, 2), "padding": (1, 0, 0, 1)},
)
POOLED = tuple(case((2, 2, 8, 7), **options) for options in POOL_OPTIONS)
# a window of each place, so that no two of them meet
UNPOOLED = given([[[[0, 7], [14, 11]], [[1, 2], [8, 15]]]], "int32")

POOLING = (
    Row("max_pool2d", _max_pool, (*POOLED, case((2, 9), kernel_size=(3,)), case((1, 4, 4))),
        (*FLOATS, "int32", "uint8", "int8")),
    Row(
        "max_pool2d",
        lambda x, **kwargs: _max_pool(x, **kwargs),
        tuple(Case(c.inputs, (), {**c.kwargs, "return_indices": True}) for c in POOLED),
        (*FLOATS, "int32"),
        (same, places),
    ),
    Row(
        "avg_pool2d",
        _avg_pool,
        (
            *POOLED,
            case((1, 1, 8, 7), kernel_size=(3, 3), stride=2, padding=1, count_include_pad=False),
            case((1, 1, 8, 7), kernel_size=(3, 3), stride=2, padding=1, count_include_pad=False,
                 ceil_mode=True),
            case((2, 9), kernel_size=(3,)),
        ),
        FLOATS,
    ),
    Row(
        "max_unpool2d",
        _unpool,
        (
            case((1, 2, 2, 2), UNPOOLED, output_size=(4, 4)),
            case((1, 2, 2, 2), UNPOOLED, kernel_size=(3, 2), stride=2, padding=0, dilation=1,
                 output_size=(1, 2, 5, 4)),
        ),
        (*FLOATS, "int32"),
    ),
)  # fmt: skip


def _interpolate(x: Any, size: Any, mode: str = "linear", align_corners: bool = False) -> Any:
    torch = need("torch")
    rank = len(size)
    tensor = torch.tensor(x)
    kept = tensor.shape[: tensor.ndim - rank]
    flat = tensor.reshape(1, -1, *tensor.shape[tensor.ndim - rank :])
    names = {1: "linear", 2: "bilinear", 3: "trilinear"}
    chosen = {"linear": names[rank], "cubic": "bicubic"}.get(mode, mode)
    options = {"align_corners": align_corners} if mode in ("linear", "cubic") else {}
    result = torch.nn.functional.interpolate(flat, size=tuple(size), mode=chosen, **options)
    return result.reshape(*kept, *size).numpy()


INTERPOLATE = (
    Row(
        "interpolate",
        _interpolate,
        (
            case((1, 2, 5, 7), size=(9, 4)),
            *[
                case((1, 2, 5, 7), size=(9, 4), mode=m)
                for m in ("nearest", "nearest-exact", "cubic")
            ],
            case((1, 2, 5, 7), size=(9, 4), align_corners=True),
            case((1, 2, 5, 7), size=(9, 4), mode="cubic", align_corners=True),
            case((2, 1, 7), size=(15,)),
            case((1, 1, 3, 4, 5), size=(2, 6, 5)),
            case((1, 2, 5, 7), size=(1, 1)),
            case((1, 2, 5, 7), size=(1, 1), align_corners=True),
        ),
        FLOATS,
        needs="torch",
    ),
)

ROWS = (*CONVOLUTION, *POOLING, *INTERPOLATE)
