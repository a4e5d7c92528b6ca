"""Shapes: views, slices, joins, padding, and tensors made of numbers.

In: Tensors. Out: Tensors of other shapes. A family of the table of lowerings.
Invariant: graphs are functional when they come here, so a view is a value like any other; what
strides it has in PyTorch's memory matters to nobody but inputs and outputs.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.helpers import prod
from weft.tensor import Tensor
from weft.torch.lowerings.elementwise import as_tensor
from weft.torch.table import Call, lowers, refuse


@lowers("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy", call=True)
def view(x: Tensor, shape: Any, *, call: Call) -> Tensor:
    return x.reshape(call.shape)


@lowers("permute", "permute_copy")
def permute(x: Tensor, order: Any) -> Tensor:
    return x.permute(tuple(order))


@lowers("t", "t_copy", "numpy_T")
def t(x: Tensor) -> Tensor:
    return x if x.ndim < 2 else x.transpose(0, 1)


@lowers("transpose", "transpose_copy")
def transpose(x: Tensor, first: int, second: int) -> Tensor:
    return x.transpose(first, second)


@lowers("expand", "expand_copy", call=True)
def expand(x: Tensor, shape: Any, *, implicit: bool = False, call: Call) -> Tensor:
    return x.expand(call.shape)


@lowers("unsqueeze", "unsqueeze_copy")
def unsqueeze(x: Tensor, axis: int) -> Tensor:
    return x.unsqueeze(axis)


@lowers("squeeze", "squeeze_copy", call=True)
def squeeze(x: Tensor, axis: Any = None, *, call: Call) -> Tensor:
    return x.reshape(call.shape)


@lowers("slice", "slice_copy")
def slice_(x: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    parts: list[Any] = [slice(None)] * x.ndim
    size = x.shape[axis]
    if isinstance(size, int):
        first = 0 if start is None else start
        last = size if end is None else end
        if isinstance(first, int) and isinstance(last, int):
            first = max(0, first + size) if first < 0 else min(first, size)
            last = max(0, last + size) if last < 0 else min(last, size)
            parts[axis] = slice(first, max(first, last), step)
            return x[tuple(parts)]
    if isinstance(end, int) and end >= 1 << 62:
        end = size
    if isinstance(end, int) and end < 0:
        end = size + end
    parts[axis] = slice(start, end, step)
    return x[tuple(parts)]


@lowers("select", "select_copy")
def select(x: Tensor, axis: int, index: Any) -> Tensor:
    parts: list[Any] = [slice(None)] * x.ndim
    parts[axis] = index
    return x[tuple(parts)]


@lowers("split", "split_copy", "unsafe_split")
def split(x: Tensor, size: Any, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.split(size if isinstance(size, int) else list(size), axis))


@lowers("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes")
def split_with_sizes(x: Tensor, sizes: Any, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.split(list(sizes), axis))


@lowers("unbind", "unbind_copy")
def unbind(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(select(x, axis, index) for index in range(x.shape[axis]))


@lowers("chunk")
def chunk(x: Tensor, count: int, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.chunk(count, axis))


@lowers("cat", "concat")
def cat(parts: Any, axis: int = 0) -> Tensor:
    # an empty tensor of one axis goes with anything
    real = [part for part in parts if part.shape != (0,)]
    if not real:
        found: Tensor = parts[0]
        return found
    return real[0].cat(*real[1:], dim=axis) if len(real) > 1 else real[0]


@lowers("stack")
def stack(parts: Any, axis: int = 0) -> Tensor:
    return parts[0].stack(*parts[1:], dim=axis)


@lowers("flip")
def flip(x: Tensor, axes: Any) -> Tensor:
    return x.flip(tuple(axes)) if axes else x


@lowers("roll")
def roll(x: Tensor, shifts: Any, axes: Any = ()) -> Tensor:
    return x.roll(tuple(shifts), tuple(axes)) if axes else x.roll(tuple(shifts)[0])


@lowers("repeat")
def repeat(x: Tensor, times: Any) -> Tensor:
    return x.repeat(tuple(times))


@lowers("repeat_interleave.self_int")
def repeat_interleave(
    x: Tensor, times: int, axis: Any = None, *, output_size: Any = None
) -> Tensor:
    return x.repeat_interleave(times, axis)


@lowers("unfold", "unfold_copy")
def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    return x.unfold(axis, size, step)


@lowers("diagonal", "diagonal_copy")
def diagonal(x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    return x.diagonal(offset, first, second)


@lowers("as_strided", "as_strided_copy", call=True)
def as_strided(x: Tensor, shape: Any, strides: Any, offset: Any = None, *, call: Call) -> Tensor:
    source = call.arguments[0]
    if not source.is_contiguous():
        raise refuse("as_strided of a tensor that does not lie in memory in order")
    return strided(x.flatten(), call.shape, strides, offset or 0)


def strided(flat: Tensor, shape: Any, strides: Any, offset: Any = 0) -> Tensor:
    """A view of flat memory by its strides: a permutation of it where it is one."""
    pairs = list(zip(shape, strides, strict=True))
    order = sorted(range(len(pairs)), key=lambda axis: (-pairs[axis][1], axis))
    sizes = [pairs[axis][0] for axis in order]
    if offset == 0 and prod(sizes) == flat.shape[0] and _is_dense(pairs, order):
        back = sorted(range(len(order)), key=lambda place: order[place])
        return flat.reshape(tuple(sizes)).permute(tuple(back))
    index: Any = offset
    for axis, (count, step) in enumerate(pairs):
        sizes = [count if i == axis else 1 for i in range(len(pairs))]
        index = index + (Tensor.arange(count) * step).reshape(tuple(sizes))
    return flat[as_tensor(index).expand(tuple(shape)).cast(dtypes.int32)]


def _is_dense(pairs: list[tuple[int, int]], order: list[int]) -> bool:
    expected = 1
    for axis in reversed(order):
        size, step = pairs[axis]
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


@lowers("constant_pad_nd")
def constant_pad_nd(x: Tensor, padding: Any, value: Any = 0) -> Tensor:
    return x.pad(_per_axis(x, padding), value=value)


@lowers("pad", call=True)
def pad(
    x: Tensor, padding: Any, mode: str = "constant", value: Any = None, *, call: Call
) -> Tensor:
    return x.pad(_per_axis(x, padding), mode=mode, value=value or 0.0)


def _per_axis(x: Tensor, padding: Any) -> tuple[Any, ...]:
    """PyTorch's padding, the last axis first, as (before, after) for each axis."""
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)][::-1]
    return (*[(0, 0)] * (x.ndim - len(pairs)), *pairs)


for _count in (1, 2, 3):

    @lowers(f"reflection_pad{_count}d")
    def reflection_pad(x: Tensor, padding: Any) -> Tensor:
        return x.pad(_per_axis(x, padding), mode="reflect")

    @lowers(f"replication_pad{_count}d")
    def replication_pad(x: Tensor, padding: Any) -> Tensor:
        return x.pad(_per_axis(x, padding), mode="replicate")

    @lowers(f"reflection_pad{_count}d_backward")
    def reflection_pad_backward(gradient: Tensor, x: Tensor, padding: Any) -> Tensor:
        source = x.detach()
        return source.pad(_per_axis(x, padding), mode="reflect").gradient(
            source, gradient=gradient
        )[0]

    @lowers(f"replication_pad{_count}d_backward")
    def replication_pad_backward(gradient: Tensor, x: Tensor, padding: Any) -> Tensor:
        source = x.detach()
        return source.pad(_per_axis(x, padding), mode="replicate").gradient(
            source, gradient=gradient
        )[0]


@lowers("tril")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.tril(diagonal)


@lowers("triu")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.triu(diagonal)


@lowers("pixel_shuffle", call=True)
def pixel_shuffle(x: Tensor, factor: int, *, call: Call) -> Tensor:
    *batch, channels, height, width = x.shape
    inner = channels // (factor * factor)
    parts = x.reshape((*batch, inner, factor, factor, height, width))
    at = len(batch)
    order = (*range(at), at, at + 3, at + 1, at + 4, at + 2)
    return parts.permute(order).reshape(call.shape)


# ------------------------------------------------------------ gradients of views
@lowers("slice_scatter")
def slice_scatter(
    x: Tensor, source: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = axis % x.ndim
    size = x.shape[axis]
    first = 0 if start is None else start
    last = size if end is None else end
    first = max(0, first + size) if first < 0 else min(first, size)
    last = max(first, max(0, last + size) if last < 0 else min(last, size))
    if first == 0 and last == size and step == 1:
        return source.cast(x.dtype).expand(x.shape)
    if step != 1:
        return _scatter_steps(x, source, axis, range(first, last, step))
    before, after = _part(x, axis, 0, first), _part(x, axis, last, size)
    parts = [part for part in (before, source.cast(x.dtype), after) if part.shape[axis]]
    return parts[0].cat(*parts[1:], dim=axis) if len(parts) > 1 else parts[0]


def _part(x: Tensor, axis: int, first: int, last: int) -> Tensor:
    return x.shrink(tuple([(first, last) if i == axis else None for i in range(x.ndim)]))


def _scatter_steps(x: Tensor, source: Tensor, axis: int, places: range) -> Tensor:
    """The elements at places that are apart, each with zeros up to the next, and a mask of them."""
    step, size = places.step, x.shape[axis]

    def spread(part: Tensor) -> Tensor:
        shape = list(part.shape)
        apart = part.unsqueeze(axis + 1).pad(
            tuple([(0, step - 1) if i == axis + 1 else (0, 0) for i in range(part.ndim + 1)])
        )
        shape[axis] *= step
        flat = apart.reshape(tuple(shape))
        room = size - places.start
        flat = _part(flat, axis, 0, min(room, shape[axis]))
        after = size - places.start - flat.shape[axis]
        padding = [(places.start, after) if i == axis else (0, 0) for i in range(x.ndim)]
        return flat.pad(tuple(padding))

    mask = spread(Tensor.ones(*source.shape, dtype=dtypes.bool))
    return mask.where(spread(source.cast(x.dtype)), x)


@lowers("select_scatter")
def select_scatter(x: Tensor, source: Tensor, axis: int, index: int) -> Tensor:
    axis = axis % x.ndim
    place = index % x.shape[axis]
    return slice_scatter(x, source.unsqueeze(axis), axis, place, place + 1)


@lowers("slice_backward")
def slice_backward(
    gradient: Tensor, shape: Any, axis: int, start: int, end: int, step: int
) -> Tensor:
    empty = Tensor.zeros(*shape, dtype=gradient.dtype)
    return slice_scatter(empty, gradient, axis, start, end, step)


@lowers("select_backward")
def select_backward(gradient: Tensor, shape: Any, axis: int, index: int) -> Tensor:
    return select_scatter(Tensor.zeros(*shape, dtype=gradient.dtype), gradient, axis, index)


@lowers("diagonal_scatter")
def diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, first: int = 0, second: int = 1
) -> Tensor:
    ones = Tensor.zeros(*x.shape, dtype=dtypes.float32)
    diagonal_part = ones.diagonal(offset, first, second)
    mask = diagonal_part.gradient(ones, gradient=diagonal_part.ones_like())[0]
    wide = Tensor.zeros(*x.shape, dtype=source.dtype)
    spread = wide.diagonal(offset, first, second).gradient(wide, gradient=source)[0]
    return mask.ne(0).where(spread, x)


# ------------------------------------------------------------ made of numbers
@lowers("full", "zeros", "ones", "empty", "new_full", "new_zeros", "new_ones", call=True)
def full(*args: Any, call: Call, **kwargs: Any) -> Tensor:
    name = call.name.partition(".")[0]
    value: Any = {"zeros": 0, "new_zeros": 0, "empty": 0, "ones": 1, "new_ones": 1}.get(name)
    if value is None:
        value = args[-1]
    return _filled(value, call)


@lowers("full_like", "zeros_like", "ones_like", "empty_like", call=True)
def full_like(x: Tensor, value: Any = None, *, call: Call, **kwargs: Any) -> Tensor:
    name = call.name.partition(".")[0]
    found = {"zeros_like": 0, "empty_like": 0, "ones_like": 1}.get(name, value)
    return _filled(found, call)


@lowers("scalar_tensor", call=True)
def scalar_tensor(value: Any, *, call: Call, **kwargs: Any) -> Tensor:
    return _filled(value, call)


@lowers("empty_strided", "new_empty", "new_empty_strided", "empty_permuted", call=True)
def empty(*args: Any, call: Call, **kwargs: Any) -> Tensor:
    return _filled(0, call)


def _filled(value: Any, call: Call) -> Tensor:
    dtype = call.dtype_of(call.meta.dtype)
    number = value if isinstance(value, Tensor) else Tensor(value)
    return number.cast(dtype).reshape((1,) * len(call.shape)).expand(call.shape)


@lowers("arange.start_step", "arange.start", call=True)
def arange_start(start: Any, end: Any, step: Any = 1, *, call: Call, **kwargs: Any) -> Tensor:
    count = call.shape[0]
    dtype = call.dtype_of(call.meta.dtype)
    if dtypes.is_float(dtype):
        wide = Tensor.arange(count).cast(dtype)
        return wide * step + start
    return (Tensor.arange(count) if isinstance(count, int) else _counted(count)).cast(
        dtype
    ) * step + start


def _counted(count: Any) -> Tensor:
    return Tensor.ones(count, dtype=dtypes.int32).cumsum(0) - 1


@lowers("arange", "arange.default", call=True)
def arange(end: Any, *, call: Call, **kwargs: Any) -> Tensor:
    return arange_start(0, end, 1, call=call)


@lowers("prims.iota", call=True)
def iota(length: Any, *, start: Any = 0, step: Any = 1, call: Call, **kwargs: Any) -> Tensor:
    return arange_start(start, None, step, call=call)


@lowers("linspace", call=True)
def linspace(start: Any, end: Any, steps: int, *, call: Call, **kwargs: Any) -> Tensor:
    return Tensor.linspace(start, end, steps, dtype=call.dtype_of(call.meta.dtype))


@lowers("eye", call=True)
def eye(rows: int, columns: Any = None, *, call: Call, **kwargs: Any) -> Tensor:
    if not isinstance(columns, int):
        columns = rows
    return Tensor.eye(rows, columns, dtype=call.dtype_of(call.meta.dtype))
