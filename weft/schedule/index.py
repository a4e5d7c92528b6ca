"""Movement as index arithmetic: where the element (i, j, ...) of a view is found in its source.

What comes in: a movement node and the index expressions of one of its elements. What goes out: the
index expressions of the source's element, and for PAD the condition under which there is one.
Where it sits: under the scheduler's passes; movement ops never move data because of this file.
The one invariant: an index that comes in inside the view's shape goes out inside the source's
shape, or under a guard.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rules.shaped import clauses, conjunction
from weft.uop.rules.validity import simplify_index_under

Index = tuple[UOp, ...]
ZERO = UOp.const(dtypes.weakint, 0)
# what is inside of a memory under its whole guard alone
_UNSURE = frozenset({Ops.VARIABLE, Ops.LOAD})


def as_index(value: Any) -> UOp:
    """A size or offset as a node."""
    return value if isinstance(value, UOp) else UOp.const(dtypes.weakint, value)


def _is_const(node: UOp, value: int) -> bool:
    return node.op is Ops.CONST and node.arg == value


def _plus(x: UOp, offset: Any) -> UOp:
    if isinstance(offset, int):
        if offset == 0:
            return x
        if x.op is Ops.CONST:
            return as_index(x.arg + offset)
    return (x + offset).simplify()


def flatten_index(idx: Index, shape: tuple[Any, ...]) -> UOp:
    """The row-major position of an element."""
    flat: UOp = ZERO
    stride: Any = 1
    for position, size in zip(reversed(idx), reversed(shape), strict=True):
        if not _is_const(position, 0):
            term = position if isinstance(stride, int) and stride == 1 else position * stride
            flat = term if flat is ZERO else term + flat
        stride = stride * size
    return flat if flat.op in (Ops.CONST, Ops.RANGE) else flat.simplify()


def unflatten_index(flat: UOp, shape: tuple[Any, ...]) -> Index:
    """The element at a row-major position."""
    result: list[UOp] = []
    stride: Any = 1
    for position in range(len(shape) - 1, -1, -1):
        size = shape[position]
        if isinstance(size, int) and size == 1:
            result.append(ZERO)
            continue
        digit = flat if isinstance(stride, int) and stride == 1 else flat // stride
        stride = stride * size
        # the first axis needs no modulo: the position is inside the shape
        if any(not (isinstance(s, int) and s == 1) for s in shape[:position]):
            digit = digit % size
        result.append(digit.simplify())
    return tuple(reversed(result))


def reshape_index(idx: Index, shape: tuple[Any, ...], source: tuple[Any, ...]) -> Index:
    """Element of `shape` -> element of `source`, group by group of axes with the same number of
    elements.

    (6, 4) seen as (2, 3, 4): the axis of 4 passes untouched, only 6 <-> (2, 3) costs arithmetic.
    """
    if not all(isinstance(s, int) for s in (*shape, *source)):
        return _reshape_symbolic(idx, shape, source)
    result: list[UOp] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        start_i, start_j = i, j
        if i < len(shape) and j < len(source) and shape[i] == source[j]:
            result.append(idx[i])
            i, j = i + 1, j + 1
            continue
        left = right = 1
        while True:
            if left == right and (i > start_i or j > start_j) and left != 1:
                break
            if left <= right and i < len(shape):
                left *= shape[i]
                i += 1
            elif j < len(source):
                right *= source[j]
                j += 1
            elif i < len(shape):
                left *= shape[i]
                i += 1
            else:
                break
        group_in, group_out = shape[start_i:i], source[start_j:j]
        result.extend(unflatten_index(flatten_index(idx[start_i:i], group_in), group_out))
    return tuple(result)


def _reshape_symbolic(idx: Index, shape: tuple[Any, ...], source: tuple[Any, ...]) -> Index:
    """With symbolic sizes only equal leading and trailing axes are recognised."""
    head = 0
    while head < min(len(shape), len(source)) and shape[head] is source[head]:
        head += 1
    while head < min(len(shape), len(source)) and shape[head] == source[head]:
        head += 1
    tail = 0
    while (
        tail < min(len(shape), len(source)) - head
        and type(shape[-1 - tail]) is type(source[-1 - tail])
        and shape[-1 - tail] == source[-1 - tail]
    ):
        tail += 1
    stop_in, stop_out = len(shape) - tail, len(source) - tail
    flat = flatten_index(idx[head:stop_in], shape[head:stop_in])
    middle = unflatten_index(flat, source[head:stop_out])
    return (*idx[:head], *middle, *idx[stop_in:])


def pad_guard(node: UOp, idx: Index) -> tuple[Index, UOp | None]:
    """PAD: the source's element, and the condition that there is one (None: always)."""
    guard: UOp | None = None
    result: list[UOp] = []
    for position, size, (before, after) in zip(idx, node.src[0].shape, node.marg, strict=True):
        inner = _plus(position, -before if isinstance(before, int) else before * -1)
        if not (isinstance(before, int) and before == 0) and inner.vmin < 0:
            guard = _and(guard, inner >= 0)
        if not (isinstance(after, int) and after == 0):
            low = size if isinstance(size, int) else size.vmin
            if inner.vmax >= low:
                guard = _and(guard, inner < size)
        result.append(inner)
    return tuple(result), guard


def _and(x: UOp | None, y: UOp) -> UOp:
    return y if x is None else x & y


def both(x: UOp | None, y: UOp | None) -> UOp | None:
    """The conjunction of two conditions, either of which may be absent."""
    if x is None or y is None:
        return x if y is None else y
    return x if x is y else (x & y).simplify()


def needed_guard(idx: UOp, guard: UOp | None, size: int) -> UOp | None:
    """What of a guard a load of memory of this size needs, whose value only counts where all of the
    guard holds.

    r1 >= 1 & r2 < 9 around x[r2] -> r2 < 9: what depends on other axes than the address does would
    keep the load inside their loops, and make a vector of one element a gather.
    """
    if guard is None:
        return None
    parts = clauses(guard)
    kept = [part for part in parts if part.ranges <= idx.ranges]
    if len(kept) == len(parts) or any([u.op in _UNSURE for u in idx.toposort()]):
        return guard
    needed = conjunction(*kept) if kept else None
    if idx.vmin < 0 or not idx.vmax < size:
        if needed is None:
            return guard
        inside = simplify_index_under(needed, (idx >= 0) & (idx < size))
        if inside.op is not Ops.CONST or not inside.arg:
            return guard
    return needed


class Views:
    """`source_index` and its relatives with a memory.

    What is decided is then built, and layers of a model repeat: most of what one schedule asks was
    asked before.
    """

    def __init__(self) -> None:
        self._sources: dict[tuple[Any, ...], tuple[Index, UOp | None]] = {}
        self._positions: dict[tuple[Index, tuple[Any, ...]], UOp] = {}
        self._conditions: dict[tuple[UOp, UOp], UOp | None] = {}

    def source(self, node: UOp, idx: Index) -> tuple[Index, UOp | None]:
        """`source_index`."""
        key = (node.op, node.arg, node.src[1:], node.src[0].shape, idx)
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = source_index(node, idx)
        return found

    def flatten(self, idx: Index, shape: tuple[Any, ...]) -> UOp:
        """`flatten_index`."""
        found = self._positions.get((idx, shape))
        if found is None:
            found = self._positions[idx, shape] = flatten_index(idx, shape)
        return found

    def both(self, x: UOp | None, y: UOp | None) -> UOp | None:
        """`both`."""
        if x is None or y is None:
            return x if y is None else y
        found = self._conditions.get((x, y))
        if found is None:
            found = self._conditions[x, y] = both(x, y)
        return found


def source_index(node: UOp, idx: Index) -> tuple[Index, UOp | None]:
    """The source's element behind element `idx` of a movement node, and PAD's guard."""
    op, source = node.op, node.src[0].shape
    if op is Ops.RESHAPE:
        return reshape_index(idx, node.shape, source), None
    if op is Ops.EXPAND:
        return tuple(
            ZERO if isinstance(size, int) and size == 1 else position
            for position, size in zip(idx, source, strict=True)
        ), None
    if op is Ops.PERMUTE:
        result: list[UOp] = [ZERO] * len(idx)
        for position, axis in zip(idx, node.arg, strict=True):
            result[axis] = position
        return tuple(result), None
    if op is Ops.SHRINK:
        return tuple(_plus(p, start) for p, (start, _) in zip(idx, node.marg, strict=True)), None
    if op is Ops.FLIP:
        return tuple(
            (position * -1 + (size - 1)).simplify() if flipped else position
            for position, flipped, size in zip(idx, node.arg, source, strict=True)
        ), None
    if op is Ops.STRIDE:
        return tuple(
            position if step == 1 else (position * step).simplify()
            for position, step in zip(idx, node.arg, strict=True)
        ), None
    assert op is Ops.PAD, op
    return pad_guard(node, idx)
