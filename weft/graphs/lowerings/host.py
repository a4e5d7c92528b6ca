"""Operators on arrays of the host: the sizes and indices of a graph, known before it runs.

In: NumPy arrays. Out: NumPy arrays. A family of the table `host_ops`; the operators are those of
the other families, where all inputs are known. Strings pass through here too.
Invariant: values and types are those of the lowering of the same name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy

from weft.graphs.lowerings.movement import slices_of
from weft.graphs.table import Call, Host, axes_of, axis_of, host_lowers, one_of, refuse, sizes_of

# elements of a result; what is larger is left to the other table, which computes when asked
_MOST = 1 << 20


def _sized(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _MOST:
        raise refuse(f"a result of shape {shape} is too large for a table of sizes")


def _two(name: str, function: Callable[[Host, Host], Any], since: int = 7) -> None:
    def lowered(a: Host, b: Host) -> Host:
        if a.dtype == object or b.dtype == object:
            return numpy.asarray(function(a, b), dtype=object if name in _ARITHMETIC else bool)
        with numpy.errstate(all="ignore"):
            found = numpy.asarray(function(a, b))
        return found.astype(a.dtype) if name in _ARITHMETIC else found.astype(bool)

    host_lowers(name, since=since)(lowered)


def _quotient(a: Host, b: Host) -> Host:
    if a.dtype == object or b.dtype == object:
        return a // b
    if a.dtype.kind == "f":
        return a / b
    if not numpy.all(b):
        raise refuse("a division by zero")
    found: Host = (numpy.abs(a) // numpy.abs(b)) * numpy.sign(a) * numpy.sign(b)
    return found


_ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
_TWO: dict[str, Any] = {
    "Add": numpy.add,
    "Sub": numpy.subtract,
    "Mul": numpy.multiply,
    "Div": _quotient,
    "And": numpy.logical_and,
    "Or": numpy.logical_or,
    "Equal": numpy.equal,
    "Greater": numpy.greater,
    "Less": numpy.less,
}
for _name, _function in _TWO.items():
    _two(_name, _function)
for _name, _function in {
    "GreaterOrEqual": numpy.greater_equal,
    "LessOrEqual": numpy.less_equal,
}.items():
    _two(_name, _function, since=12)


def _one(name: str, function: Callable[[Host], Any]) -> None:
    def lowered(x: Host) -> Host:
        return numpy.asarray(function(x)).astype(x.dtype)

    host_lowers(name)(lowered)


_ONE: dict[str, Any] = {
    "Neg": numpy.negative,
    "Abs": numpy.abs,
    "Floor": numpy.floor,
    "Ceil": numpy.ceil,
    "Identity": lambda x: x,
    "Not": numpy.logical_not,
}
for _name, _single in _ONE.items():
    _one(_name, _single)


@host_lowers("Max", "Min")
def extreme(*values: Host, call: Call) -> Host:
    function = numpy.maximum if call.op_type == "Max" else numpy.minimum
    return functools.reduce(function, values)


@host_lowers("Where", since=9)
def where(condition: Host, x: Host, y: Host) -> Host:
    return numpy.where(condition, x, y)


@host_lowers("Concat")
def concat(*parts: Host, axis: int = 1) -> Host:
    return numpy.concatenate(parts, axis=axis_of(axis, parts[0].ndim))


@host_lowers("Gather")
def gather(x: Host, indices: Host, *, axis: int = 0) -> Host:
    return numpy.asarray(numpy.take(x, indices.astype(numpy.int64), axis=axis_of(axis, x.ndim)))


@host_lowers("Slice", since=10)
def sliced(
    x: Host, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None
) -> Host:
    return x[
        slices_of(
            x.ndim,
            sizes_of(starts),
            sizes_of(ends),
            None if axes is None else sizes_of(axes),
            None if steps is None else sizes_of(steps),
        )
    ]


@host_lowers("Slice")
def sliced_by_attributes(
    x: Host, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Host:
    return x[slices_of(x.ndim, list(starts), list(ends), axes, None)]


@host_lowers("Squeeze", since=13)
def squeeze(x: Host, axes: Host | None = None) -> Host:
    return numpy.squeeze(x, None if axes is None else tuple(axes_of(sizes_of(axes), x.ndim)))


@host_lowers("Squeeze")
def squeeze_by_attribute(x: Host, *, axes: list[int] | None = None) -> Host:
    return numpy.squeeze(x, None if axes is None else tuple(axes_of(axes, x.ndim)))


@host_lowers("Unsqueeze", since=13)
def unsqueeze(x: Host, axes: Host) -> Host:
    places = sizes_of(axes)
    return numpy.expand_dims(x, tuple(axes_of(places, x.ndim + len(places))))


@host_lowers("Unsqueeze")
def unsqueeze_by_attribute(x: Host, *, axes: list[int]) -> Host:
    return numpy.expand_dims(x, tuple(axes_of(axes, x.ndim + len(axes))))


@host_lowers("Reshape", since=5)
def reshape(x: Host, shape: Host, *, allowzero: int = 0) -> Host:
    sizes = sizes_of(shape)
    return x.reshape(
        [x.shape[i] if n == 0 and not allowzero and i < x.ndim else n for i, n in enumerate(sizes)]
    )


@host_lowers("Transpose")
def transpose(x: Host, *, perm: list[int] | None = None) -> Host:
    return numpy.transpose(x, None if perm is None else axes_of(perm, x.ndim))


@host_lowers("Expand", since=8)
def expand(x: Host, shape: Host) -> Host:
    sizes = numpy.broadcast_shapes(x.shape, tuple(sizes_of(shape)))
    _sized(sizes)
    return numpy.broadcast_to(x, sizes)


@host_lowers("Tile", since=6)
def tile(x: Host, repeats: Host) -> Host:
    times = sizes_of(repeats)
    _sized(tuple(n * t for n, t in zip(x.shape, times, strict=True)))
    return numpy.tile(x, times)


@host_lowers("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", since=1)
def reduced(
    x: Host,
    axes_input: Host | None = None,
    *,
    axes: list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
    call: Call,
) -> Host:
    found = axes if axes_input is None else sizes_of(axes_input)
    if not found and noop_with_empty_axes:
        return x
    places = tuple(axes_of(found, x.ndim)) if found else None
    function: Any = {
        "ReduceProd": numpy.prod,
        "ReduceSum": numpy.sum,
        "ReduceMax": numpy.max,
        "ReduceMin": numpy.min,
    }[call.op_type]
    return numpy.asarray(function(x, axis=places, keepdims=bool(keepdims))).astype(x.dtype)


@host_lowers("Split", since=13)
def split(
    x: Host,
    split: Host | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    call: Call,
) -> tuple[Host, ...]:
    place = axis_of(axis, x.ndim)
    count = num_outputs or call.outputs
    each = -(-x.shape[place] // count)
    sizes = [each] * (count - 1) if split is None else sizes_of(split)[:-1]
    return tuple(numpy.split(x, numpy.cumsum(sizes), axis=place))


@host_lowers("Pad", since=11)
def pad(
    x: Host,
    pads: Host,
    value: Host | None = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> Host:
    places = list(range(x.ndim)) if axes is None else axes_of(sizes_of(axes), x.ndim)
    numbers = sizes_of(pads)
    pairs = [(0, 0)] * x.ndim
    for i, place in enumerate(places):
        pairs[place] = (numbers[i], numbers[i + len(places)])
    _sized(tuple(n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True)))
    box = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, pairs, strict=True))
    around = [(max(0, a), max(0, b)) for a, b in pairs]
    if mode == "constant":
        return numpy.pad(x[box], around, constant_values=one_of(value, 0))
    grown = numpy.pad(x, around, mode=mode)  # type: ignore[call-overload]
    end = [n + a + b for n, (a, b) in zip(x.shape, around, strict=True)]
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(end, pairs, strict=True))
    found: Host = grown[cut]
    return found
