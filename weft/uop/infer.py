"""Shape, device and open ranges of every op: derived facts, computed from the sources' facts.

What comes in: a node whose sources know their facts. What goes out: its shape, device or ranges.
Where it sits: between the op table and the node, which calls these lazily and caches the answers.
The one invariant: a rule reads sources' cached facts only; it never walks the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.errors import DeviceError, ShapeError
from weft.uop.layout import Placement, ShardArg, plan
from weft.uop.opset import OPSET, Ops, Shape

# a node is duck-typed here (op, dtype, src, arg, shape, device): this file sits above UOp
ShapeTuple = tuple[Any, ...]

# a fact that nobody asked for yet
UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()

# ops whose trailing sources are ranges that end there: from which source on
CLOSES: dict[Ops, int] = {Ops.REDUCE: 1, Ops.STAGE: 1, Ops.STORE: 2, Ops.END: 0, Ops.WMMA: 3}


def infer_shape(node: Any) -> ShapeTuple | None:
    """The shape, or None for what has no value."""
    rule = OPSET[node.op].shape
    if rule is Shape.SCALAR:
        return ()
    if rule is Shape.ELEMENTWISE:
        return _elementwise_shape(node)
    if rule is Shape.SAME:
        shape: ShapeTuple | None = node.src[0].shape
        return shape
    if rule is Shape.NONE:
        return None
    return _own_shape(node)


def _elementwise_shape(node: Any) -> ShapeTuple:
    shape: ShapeTuple = ()
    for source in node.src:
        other = source.shape
        if not other or other is shape:
            continue
        if not shape:
            shape = other
        elif shape != other:
            raise ShapeError(
                f"{node.op.name} needs operands of one shape, found {shape} and {other}; "
                "expand them first"
            )
    return shape


def _own_shape(node: Any) -> ShapeTuple | None:
    op = node.op
    if op in (Ops.BUFFER, Ops.PARAM, Ops.LOCAL):
        return (node.arg.size,)
    if op is Ops.HOST:
        result: ShapeTuple = node.arg.results[node.arg.number][0]
        return result
    if op is Ops.IOTA:
        return (node.arg if node.arg is not None else node.src[0],)
    if op in (Ops.RESHAPE, Ops.EXPAND):
        return tuple([_simple(size) for size in node.marg])
    source: ShapeTuple = node.src[0].shape
    if op is Ops.PERMUTE:
        return tuple(source[axis] for axis in node.arg)
    if op is Ops.FLIP:
        return source
    if op is Ops.STRIDE:
        return tuple(
            size if step == 1 else _simple((size + step - 1) // step)
            for size, step in zip(source, node.arg, strict=True)
        )
    if op is Ops.PAD:
        return tuple(
            size if _is_zero(before) and _is_zero(after) else _simple(size + before + after)
            for size, (before, after) in zip(source, node.marg, strict=True)
        )
    if op is Ops.SHRINK:
        return tuple(_simple(stop - start) for start, stop in node.marg)
    if op is Ops.REDUCE_AXIS:
        return tuple(1 if axis in node.arg.axes else size for axis, size in enumerate(source))
    if op is Ops.CAT:
        total = sum((s.shape[node.arg] for s in node.src[1:]), node.src[0].shape[node.arg])
        return (*source[: node.arg], _simple(total), *source[node.arg + 1 :])
    if op is Ops.GATHER:
        kept = tuple(size for axis, size in enumerate(source) if axis not in node.arg)
        return (*node.src[1].shape, *kept)
    if op is Ops.BITCAST:
        return _bitcast_shape(node, source)
    if op is Ops.STAGE:
        size: Any = 1
        if node.arg.strides is not None:
            steps = zip(node.arg.strides, node.src[1:], strict=True)
            return (1 + sum(step * (int(axis.src[0].vmax) - 1) for step, axis in steps),)
        for axis in node.src[1:]:
            size = size * int(axis.src[0].vmax)
        return (size,)
    raise ShapeError(f"{op.name} has no shape rule")


def _simple(size: Any) -> Any:
    """A size; a symbolic one as simple as it gets, so that n + 2 - n is the number 2."""
    return size if isinstance(size, int) else size.ssimplify()


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def _bitcast_shape(node: Any, source: ShapeTuple) -> ShapeTuple:
    before, after = node.src[0].dtype.itemsize, node.dtype.itemsize
    if before == after or not source:
        return source
    total = source[-1] * before
    if total % after:
        raise ShapeError(
            f"bitcast from {node.src[0].dtype.name} to {node.dtype.name} needs a last axis whose "
            f"bytes divide by {after}, found {source[-1]} elements of {before} bytes"
        )
    return (*source[:-1], total // after)


Devices = str | tuple[str, ...] | None


def infer_device(node: Any) -> str | Placement | None:
    """Where the value lives: None for what is computed from numbers alone (M1, M3)."""
    if node.op is Ops.BUFFER:
        device: Devices = node.arg.device
        return device if type(device) is str else _spread(node, device)
    if node.op is Ops.COPY:
        target: Any = node.arg
        if type(target) is str:
            return target
        return _spread(node, target.devices if type(target) is ShardArg else target)
    found: Any = None
    for source in node.src:
        other = source.device
        if other is None or other == found:
            continue
        if found is not None:
            raise DeviceError(
                f"{node.op.name} has operands on different devices, {found} and {other}; "
                f"move one of them first: {_moved_to(found)}"
            )
        found = other
    return found if found is None or type(found) is str else _spread(node, found)


def _spread(node: Any, devices: Any) -> Placement:
    has_value = OPSET[node.op].shape is not Shape.NONE
    return Placement(tuple(devices), plan(node).result if has_value else None)


def _moved_to(device: Any) -> str:
    if isinstance(device, str):
        return f'x.to("{device}")'
    return f"x.to({tuple(device)}), or x.shard({tuple(device)}, axis)"


_NONE_OPEN: frozenset[Any] = frozenset()


def open_ranges(node: Any) -> frozenset[Any]:
    """The ranges that a value depends on and that do not end in it."""
    if node.op is Ops.RANGE:
        return frozenset((node,)) | node.src[0]._ranges
    found = _NONE_OPEN
    for s in node.src:
        other = s._ranges
        if other and other is not found and not other <= found:
            found = found | other if found else other
    closing = CLOSES.get(node.op)
    if closing is not None and found:
        found = found - frozenset(node.src[closing:])
    return found


def derive_ranges(order: Iterable[Any]) -> None:
    """Fill in `ranges` of all nodes of an order with sources first: faster than asking for each."""
    for node in order:
        if node._ranges is UNSET:
            node._ranges = open_ranges(node)
