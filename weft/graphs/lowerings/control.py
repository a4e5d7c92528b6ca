"""Control flow, sequences and optionals.

In: graphs, Tensors, lists (sequences), None (an empty optional). Out: the same.
A family of the table of lowerings. Invariant: branches and loops are decided on the host; a
condition or a count that is known before running costs no read and stays inside of one program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes
from weft.graphs.model import Graph
from weft.graphs.table import Call, Either, Host, axis_of, lowers, one_of, refuse
from weft.graphs.types import OnnxValue
from weft.tensor import Tensor


@lowers("If")
def if_else(condition: Host, *, then_branch: Graph, else_branch: Graph, call: Call) -> Any:
    return tuple(call.run(then_branch if one_of(condition) else else_branch, []))


def _stacked(values: list[Any], described: OnnxValue, call: Call, axis: int = 0) -> Any:
    """The values of all turns along a new axis; of no turns, an empty tensor."""
    if not values:
        sizes = [n if isinstance(n, int) else 0 for n in described.shape or ()]
        return Tensor.empty(0, *sizes, dtype=described.dtype or dtypes.float32)
    if all(isinstance(value, numpy.ndarray) for value in values):
        return numpy.stack(values, axis=axis)
    tensors = [call.tensor(value) for value in values]
    return tensors[0].stack(*tensors[1:], dim=axis)


@lowers("Loop")
def loop(
    count: Host | None = None,
    condition: Host | None = None,
    *states: Any,
    body: Graph,
    call: Call,
) -> Any:
    turns = math.inf if count is None else int(one_of(count))
    goes_on = True if condition is None else bool(one_of(condition))
    carried = list(states)
    names = list(body.outputs)
    kept: list[list[Any]] = [[] for _ in names[1 + len(carried) :]]
    turn = 0
    while goes_on and turn < turns:
        number = numpy.array(turn, dtype=numpy.int64)
        results = call.run(body, [number, numpy.array(goes_on), *carried])
        if len(results) < 1 + len(carried):
            raise refuse(f"the body gives {len(results)} outputs for {len(carried)} states")
        goes_on = bool(one_of(call.fetch(results[0])))
        carried = call.turned(results[1 : 1 + len(carried)])
        for values, value in zip(kept, results[1 + len(carried) :], strict=True):
            values.append(value)
        turn += 1
    described = [body.outputs[name] for name in names[1 + len(carried) :]]
    scans = [_stacked(v, d, call) for v, d in zip(kept, described, strict=True)]
    return (*carried, *scans)


def _at(value: Any, axis: int, place: int) -> Any:
    if isinstance(value, numpy.ndarray):
        return numpy.take(value, place, axis=axis)
    return value[(*[slice(None)] * axis, place)]


def scanned(
    states: list[Any],
    inputs: list[Any],
    body: Graph,
    call: Call,
    in_axes: list[int],
    in_directions: list[int],
    out_axes: list[int],
    out_directions: list[int],
) -> tuple[Any, ...]:
    """The body for each place along the axes of the inputs."""
    names = list(body.outputs)
    axes = [axis_of(a, x.ndim) for a, x in zip(in_axes, inputs, strict=True)]
    lengths = {x.shape[a] for x, a in zip(inputs, axes, strict=True)}
    if len(lengths) != 1:
        raise refuse(f"the inputs have the lengths {sorted(lengths)}; one is wanted")
    length = lengths.pop()
    kept: list[list[Any]] = [[] for _ in names[len(states) :]]
    carried = list(states)
    for turn in range(length):
        parts = [
            _at(x, a, length - 1 - turn if backwards else turn)
            for x, a, backwards in zip(inputs, axes, in_directions, strict=True)
        ]
        results = call.run(body, [*carried, *parts])
        carried = call.turned(results[: len(states)])
        for values, value in zip(kept, results[len(states) :], strict=True):
            values.append(value)
    scans = []
    for i, values in enumerate(kept):
        values = values[::-1] if out_directions[i] else values
        rank = (values[0].ndim if values else 0) + 1
        described = body.outputs[names[len(states) + i]]
        scans.append(_stacked(values, described, call, axis_of(out_axes[i], rank)))
    return (*carried, *scans)


@lowers("Scan")
def scan_batched(
    lengths: Tensor | None = None,
    *values: Any,
    body: Graph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
    call: Call,
) -> tuple[Any, ...]:
    """Version 8: every input has the batch first, and each sample is scanned for itself."""
    count = len(values) - num_scan_inputs
    states, inputs = list(values[:count]), list(values[count:])
    outputs = len(body.outputs) - count
    results = []
    for sample in range(inputs[0].shape[0]):
        results.append(
            scanned(
                [_at(s, 0, sample) for s in states],
                [_at(x, 0, sample) for x in inputs],
                body,
                call,
                [0] * len(inputs),
                list(directions or [0] * len(inputs)),
                [0] * outputs,
                [0] * outputs,
            )
        )
    described = list(body.outputs.values())
    return tuple(
        _stacked([result[i] for result in results], described[i], call)
        for i in range(len(results[0]))
    )


@lowers("Scan", since=9)
def scan(
    *values: Any,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    call: Call,
) -> tuple[Any, ...]:
    count = len(values) - num_scan_inputs
    if num_scan_inputs < 1 or count < 0:
        raise refuse(f"{num_scan_inputs} of {len(values)} inputs are scanned")
    outputs = len(body.outputs) - count
    return scanned(
        list(values[:count]),
        list(values[count:]),
        body,
        call,
        list(scan_input_axes or [0] * num_scan_inputs),
        list(scan_input_directions or [0] * num_scan_inputs),
        list(scan_output_axes or [0] * outputs),
        list(scan_output_directions or [0] * outputs),
    )


# ------------------------------------------------------------ sequences
def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise refuse("a sequence is wanted")
    return value


def _place(sequence: list[Any], position: Host | None, more: int = 0) -> int:
    count = len(sequence) + more
    place = count - 1 if position is None else int(one_of(position))
    if not -count <= place < max(count, 1) + (more and 0):
        raise refuse(f"position {place} of a sequence of {len(sequence)}")
    return place % count if place < 0 else place


@lowers("SequenceConstruct", since=11)
def sequence_construct(*values: Either) -> list[Any]:
    return list(values)


@lowers("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[Any]:
    return []


@lowers("SequenceInsert", since=11)
def sequence_insert(sequence: Any, value: Either, position: Host | None = None) -> list[Any]:
    found = list(_list(sequence))
    place = len(found) if position is None else int(one_of(position))
    if not -len(found) <= place <= len(found):
        raise refuse(f"position {place} of a sequence of {len(found)}")
    found.insert(place, value)
    return found


@lowers("SequenceErase", since=11)
def sequence_erase(sequence: Any, position: Host | None = None) -> list[Any]:
    found = list(_list(sequence))
    del found[_place(found, position)]
    return found


@lowers("SequenceAt", since=11)
def sequence_at(sequence: Any, position: Host) -> Any:
    found = _list(sequence)
    return found[_place(found, position)]


@lowers("SequenceLength", since=11)
def sequence_length(sequence: Any) -> Host:
    return numpy.array(len(_list(sequence)), dtype=numpy.int64)


@lowers("SplitToSequence", since=11)
def split_to_sequence(
    x: Tensor, split: Host | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Any]:
    place = axis_of(axis, x.ndim)
    size = x.shape[place]
    if split is None:
        sizes = [1] * size
    elif split.ndim == 0:
        each = int(split)
        if each < 1:
            raise refuse(f"pieces of {each} elements")
        sizes = [each] * (size // each) + ([size % each] if size % each else [])
    else:
        sizes = [int(n) for n in split]
    parts, start = [], 0
    for n in sizes:
        part = x.shrink([None if i != place else (start, start + n) for i in range(x.ndim)])
        drop = split is None and not keepdims
        shape = tuple(s for i, s in enumerate(part.shape) if i != place)
        parts.append(part.reshape(shape) if drop else part)
        start += n
    return parts


@lowers("ConcatFromSequence", since=11)
def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0, call: Call) -> Any:
    found = _list(sequence)
    if not found:
        raise refuse("the sequence is empty")
    if all(isinstance(one, numpy.ndarray) for one in found):
        return (numpy.stack if new_axis else numpy.concatenate)(found, axis=axis)
    tensors = [call.tensor(one) for one in found]
    place = axis_of(axis, tensors[0].ndim + (1 if new_axis else 0))
    if new_axis:
        return tensors[0].stack(*tensors[1:], dim=place)
    return tensors[0].cat(*tensors[1:], dim=place) if len(tensors) > 1 else tensors[0]


@lowers("SequenceMap", since=17)
def sequence_map(sequence: Any, *others: Any, body: Graph, call: Call) -> Any:
    found = _list(sequence)
    results = [
        call.run(body, [one, *[o[i] if isinstance(o, list) else o for o in others]])
        for i, one in enumerate(found)
    ]
    return tuple([result[i] for result in results] for i in range(len(body.outputs)))


# ------------------------------------------------------------ optionals
@lowers("Optional", since=15)
def optional(value: Any = None, *, type: OnnxValue | None = None) -> Any:  # noqa: A002
    return value


@lowers("OptionalGetElement", since=15)
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise refuse("the optional is empty")
    return value


@lowers("OptionalHasElement", since=15)
def optional_has_element(value: Any = None) -> Host:
    return numpy.array(value is not None)
