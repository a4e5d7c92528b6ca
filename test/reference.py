"""What graphs mean, computed straight from their definition and as slowly as that is.

In: an expression of a kernel, a whole kernel, or a tensor graph, with the contents of its memory.
Out: its value. Shared by the tests that compare a graph before and after something was done to it.
It knows nothing of schedules, loops or lowering: only the op table's reference values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.dtype import DType, convert, dtypes
from weft.runtime.steps import raw_function
from weft.uop.args import KernelInfo, combines_with
from weft.uop.evaluate import evaluate_uop, function_for
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# (memory, element) -> value
Memory = Callable[[UOp, int], Any]
Values = dict[UOp, Any]


class NoMeaning(Exception):
    """A node whose meaning is not known here."""


def zero_of(dtype: DType) -> Any:
    return convert(0, dtypes.weakint, dtype.scalar())


# ------------------------------------------------------------ expressions of kernels


class Expressions:
    """Values of kernel expressions over some memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.touched: set[tuple[UOp, int]] = set()
        self.values: Values = {}  # of the nodes of the last expression

    def value(self, root: UOp, given: Mapping[UOp, Any]) -> Any:
        """The value where `given` says what axes, variables and other leaves are."""
        found: Values = dict(given)
        for node in root.toposort(gate=lambda u: u not in found and u.op not in _SCOPES):
            if node not in found:
                found[node] = self._node(node, found, given)
        self.values = found
        return found[root]

    def _node(self, node: UOp, found: Values, given: Mapping[UOp, Any]) -> Any:
        op = node.op
        if op is Ops.CONST:
            return float(node.arg) if isinstance(node.arg, float) else node.arg
        if op is Ops.BIND:
            return found[node.src[1]]
        if op in (Ops.PARAM, Ops.STAGE, Ops.LOCAL):
            return node
        if op is Ops.INDEX:
            return [found[s] for s in node.src]
        if op is Ops.LOAD:
            return self._load(node, found[node.src[0]], given)
        if op is Ops.REDUCE:
            return self._reduce(node, given)
        if op is Ops.VECTORIZE:
            lanes = [found[s] for s in node.src]
            return lanes if len(lanes) > 1 else lanes[0]
        if op is Ops.GEP:
            vectors = [lane for s in node.src for lane in found[s]]
            lanes = [vectors[lane] for lane in node.arg]
            return lanes if len(lanes) > 1 else lanes[0]
        if op in GroupOp.Elementwise:
            return _elementwise(node, [found[s] for s in node.src])
        raise NoMeaning(f"{node!r} was given no value")

    def _load(self, node: UOp, place: list[Any], given: Mapping[UOp, Any]) -> Any:
        memory, index = place[0], place[1]
        if len(place) > 2 and not place[2]:
            return zero_of(node.dtype)
        if memory.op is Ops.STAGE:
            return self._staged(memory, index, given)
        self.touched.add((memory, index))
        return self.memory(memory, index)

    def _staged(self, stage: UOp, index: int, given: Mapping[UOp, Any]) -> Any:
        inner = dict(given)
        for axis in reversed(stage.src[1:]):
            index, inner[axis] = divmod(index, axis.src[0].arg)
        return self.value(stage.src[0], inner)

    def _reduce(self, node: UOp, given: Mapping[UOp, Any]) -> Any:
        function = function_for(node.arg, node.dtype)
        total: Any = None
        for inner in self.points(node.src[1:], given):
            value = self.value(node.src[0], inner)
            total = value if total is None else function(total, value)
        if total is not None:
            return total
        identity = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: node.dtype.min}[node.arg]
        return convert(identity, dtypes.from_py(identity), node.dtype)

    def points(self, axes: Sequence[UOp], given: Mapping[UOp, Any]) -> Any:
        """Every combination of the axes' values, the last axis fastest."""
        if not axes:
            yield dict(given)
            return
        first, *rest = axes
        if first.op is not Ops.RANGE:
            yield from self.points(rest, given)
            return
        for position in range(self.value(first.src[0], given)):
            yield from self.points(rest, {**given, first: position})


# evaluated once per point, not once
_SCOPES = frozenset({Ops.REDUCE, Ops.STAGE})


def _elementwise(node: UOp, values: list[Any]) -> Any:
    if node.tag == "raw":
        function = raw_function(node.op, node.dtype, node.src[0].dtype, repr(node))
    else:
        function = function_for(node.op, node.dtype, tuple(s.dtype for s in node.src))
    count = node.dtype.count
    lanes = [v if isinstance(v, list) else [v] * count for v in values]
    result = [function(*lane) for lane in zip(*lanes, strict=True)]
    if node.op is Ops.BITCAST and any(v != v for v in (*lanes[0], *result)):
        raise NoMeaning("the bits of a NaN, which Python's floats do not keep")
    return result if count > 1 else result[0]


# ------------------------------------------------------------ kernels


def run_kernel(
    sink: UOp, memory: Mapping[int, Sequence[Any]], variables: Mapping[str, int] | None = None
) -> dict[int, list[Any]]:
    """What the buffers of a kernel hold afterwards, by slot.

    Values are functions of what memory held before; only a kernel whose places are known at run
    time runs in order, each step on what the ones before it wrote.
    """
    result = {slot: list(values) for slot, values in memory.items()}
    in_order = isinstance(sink.arg, KernelInfo) and not sink.arg.optimise
    source = result if in_order else {slot: list(values) for slot, values in memory.items()}

    def read(buffer: UOp, index: int) -> Any:
        if not 0 <= index < buffer.arg.size:
            raise IndexError(f"element {index} of {buffer.text()}, which has {buffer.arg.size}")
        return source[buffer.arg.slot][index]

    expressions = Expressions(read)
    given = {v: (variables or {})[v.arg.name] for v in sink.variables()}
    for store in sink.src:
        for point in expressions.points(store.src[2:], given):
            place = [expressions.value(s, point) for s in store.src[0].src]
            if len(place) > 2 and not place[2]:
                continue
            buffer, index = place[0], place[1]
            if not 0 <= index < buffer.arg.size:
                raise IndexError(f"element {index} of {buffer.text()} is written")
            result[buffer.arg.slot][index] = expressions.value(store.src[1], point)
    return result


# ------------------------------------------------------------ tensor graphs


class Tensors:
    """Values of tensor graphs, as arrays of Python numbers."""

    def __init__(self, buffers: Mapping[UOp, np.ndarray], variables: Mapping[str, int]) -> None:
        self.found: Values = {}
        self.variables = variables
        self.buffers = buffers

    def value(self, root: UOp) -> np.ndarray:
        """The array of a node's elements."""
        for node in root.toposort():
            if node not in self.found:
                self.found[node] = self._node(node)
        array: np.ndarray = self.found[root]
        return array

    def _size(self, part: Any) -> int:
        if isinstance(part, int):
            return part
        given = {v: self.variables[v.arg.name] for v in part.variables()}
        return int(evaluate_uop(part, given))

    def _sizes(self, shape: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self._size(part) for part in shape)

    def _node(self, node: UOp) -> Any:
        op = node.op
        if op in (Ops.SINK, Ops.STORE):
            return None
        if op is Ops.CONST:
            return _array(float(node.arg) if isinstance(node.arg, float) else node.arg, ())
        if op is Ops.VARIABLE:
            return _array(self.variables[node.arg.name], ())
        if op is Ops.BIND:
            return self.found[node.src[1]]
        if op is Ops.BUFFER:
            return self.buffers[node]
        if op is Ops.IOTA:
            size = node.arg if node.arg is not None else self._size(node.src[0])
            return np.array([convert(i, dtypes.weakint, node.dtype) for i in range(size)], object)
        first = self.found[node.src[0]]
        if op in GroupOp.Movement:
            return self._move(node, first)
        if op is Ops.REDUCE_AXIS:
            return _reduce(node, first)
        if op is Ops.CAT:
            return np.concatenate([self.found[s] for s in node.src], axis=node.arg)
        if op is Ops.GATHER:
            return self._gather(node, first, zero_of(node.dtype))
        if op is Ops.AFTER:
            return self._after(node, first)
        if op in (Ops.COPY, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH):
            return first
        if op in GroupOp.Elementwise:
            return self._elementwise(node)
        raise NoMeaning(f"{node!r} has no meaning here")

    def _elementwise(self, node: UOp) -> np.ndarray:
        if node.op is Ops.BITCAST and node.dtype.itemsize != node.src[0].dtype.itemsize:
            raise NoMeaning("BITCAST to another size")
        function = function_for(node.op, node.dtype, tuple(s.dtype for s in node.src))
        values = [self.found[s] for s in node.src]
        result = np.frompyfunc(function, len(values), 1)(*values)
        return np.asarray(result, object)

    def _move(self, node: UOp, source: np.ndarray) -> np.ndarray:
        op, arg = node.op, node.marg
        if op is Ops.RESHAPE:
            return source.reshape(self._sizes(arg))
        if op is Ops.PERMUTE:
            return source.transpose(arg)
        if op is Ops.EXPAND:
            return np.broadcast_to(source, self._sizes(arg))
        if op is Ops.FLIP:
            return np.flip(source, [axis for axis, flipped in enumerate(arg) if flipped])
        if op is Ops.STRIDE:
            return source[tuple(slice(None, None, step) for step in arg)]
        pairs = [self._sizes(pair) for pair in arg]
        if op is Ops.SHRINK:
            return source[tuple(slice(start, stop) for start, stop in pairs)]
        fill = _array(zero_of(node.dtype), ())
        return np.pad(source, pairs, constant_values=fill) if pairs else source

    def _gather(self, node: UOp, source: np.ndarray, outside: Any) -> np.ndarray:
        axes = node.arg
        common = self.found[node.src[1]].shape
        rest = [size for axis, size in enumerate(source.shape) if axis not in axes]
        result = np.full((*common, *rest), outside, object)
        for point in itertools.product(*[range(size) for size in common]):
            place: list[Any] = [slice(None)] * source.ndim
            for axis, index in zip(axes, node.src[1:], strict=True):
                position, size = self.found[index][point], source.shape[axis]
                place[axis] = position + size if position < 0 else position
            if all(0 <= place[axis] < source.shape[axis] for axis in axes):
                result[point] = source[tuple(place)]
        return result

    def _after(self, node: UOp, state: np.ndarray) -> np.ndarray:
        """The state with its STOREs done, one after another."""
        places: np.ndarray = np.arange(state.size).astype(object).reshape(state.shape)
        result = np.array(state, object).reshape(-1)
        for store in node.src[1:]:
            if store.op is not Ops.STORE:
                continue
            where = self._places(store.src[0], node.src[0], places)
            value = np.broadcast_to(self.found[store.src[1]], where.shape)
            op = combines_with(store.arg)
            combine = None if op is None else function_for(op, store.src[0].dtype)
            for position, new in zip(where.reshape(-1), value.reshape(-1), strict=True):
                if position >= 0:
                    result[position] = new if combine is None else combine(result[position], new)
        return result.reshape(state.shape)

    def _places(self, view: UOp, state: UOp, places: np.ndarray) -> np.ndarray:
        """Which element of the state each element of a view of it is; -1 for none."""
        chain = []
        while view is not state and view.op not in (Ops.BUFFER, Ops.AFTER):
            chain.append(view)
            view = view.src[0]
        places = places.reshape(-1) if view.op is Ops.BUFFER else places
        for node in reversed(chain):
            if node.op is Ops.GATHER:
                places = self._gather(node, places, -1)
            else:
                places = self._move(node, places)
        return places


def _array(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    result = np.empty(shape, object)
    result[...] = value
    return result


def _reduce(node: UOp, source: np.ndarray) -> np.ndarray:
    op, axes = node.arg.op, node.arg.axes
    function = np.frompyfunc(function_for(op, node.dtype), 2, 1)
    if not source.size:
        identity = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: node.dtype.min}[op]
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
        return _array(convert(identity, dtypes.from_py(identity), node.dtype), shape)
    for axis in axes:
        source = np.asarray(function.reduce(source, axis=axis, keepdims=True), object)
    return source


# ------------------------------------------------------------ comparing


def same(x: Any, y: Any) -> bool:
    """Whether two values are the same to the bit; every NaN is the same."""
    if isinstance(x, list) or isinstance(y, list):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, float) and isinstance(y, float):
        if math.isnan(x) or math.isnan(y):
            return math.isnan(x) and math.isnan(y)
        return x == y and math.copysign(1, x) == math.copysign(1, y)
    return bool(x == y)
