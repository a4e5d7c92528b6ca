"""Prefixes: reductions over the elements before each one, done once by a group of threads.

In: a nest whose outputs along an axis each reduce the same elements, those before them or all that
are equal. Out: an action, and the kernel after it: the group holds the elements of a row, several a
thread, and SCAN, RANK or MOVE gives each what its reduction is. Beside the other plans of `gpu.py`.
Invariant: a reduction is replaced only where its value is proven to be of that form, for all
elements; every element is read once instead of once for each output.

    STORE(p[b, i], REDUCE(WHERE(i < j, 0, x[b, j]), j ADD), b, i)
    -> STORE(p[b, t*4 + k], SCAN(x[b, t*4 + k], ADD), b, t LOCAL, k VECTOR)
    STORE(p[b, i], REDUCE((x[b, j] == x[b, i]) & (j < i), j ADD), b, i)
    -> STORE(p[b, w*64 + k*32 + l], RANK(x[...]) & 0xffff, b, w LOCAL, k VECTOR, l WARP)
    STORE(p[b, i], REDUCE(WHERE(at[b, j] == i, x[b, j], 0), j ADD), b, i)
    -> STORE(p[b, ...], MOVE(x[b, ...], at[b, ...]), b, ...)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.codegen.opt.axes import closed_axes, find_axis, piece, replace_axes, size_of
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

# elements of a row from which on a group shares it
_LEAST = 128
# elements of a thread: neighbours that are scanned, and rounds in which digits are counted
_SCANNED = (8, 4, 2, 1)
_RANKED = (16, 8, 4, 2, 1)
# threads that count digits: more of them have more to add up at the end
_COUNTING = 256
# digits that are counted, and the bits of a count of them
MOST_DIGITS = 256
COUNT_BITS = 16


@dataclass(frozen=True)
class Prefix:
    """What stands for a reduction: a function of a SCAN, RANK or MOVE of `value`."""

    axis: UOp  # the output axis
    value: UOp  # of an element of it
    op: Ops  # SCAN, RANK or MOVE
    arg: Any  # of a SCAN the op; of a RANK the bits of its digits
    weights: tuple[int, int] = (0, 0)  # of an equal element before, and of any other
    is_before: bool = True  # or they are those behind
    place: UOp | None = None  # of a MOVE: where an element goes


def prefix_of(reduce: UOp, outputs: tuple[UOp, ...]) -> Prefix | None:
    """The form of a reduction, if it is one over elements before the outputs of an axis."""
    axes = closed_axes(reduce)
    if len(axes) != 1 or axes[0].src[0].op is not Ops.CONST:
        return None
    other = axes[0]
    for axis in outputs:
        if axis.arg.kind is AxisType.LOOP and axis.src[0] is other.src[0]:
            for form in (_scan_of, _rank_of, _move_of):
                found = form(reduce, axis, other)
                if found is not None:
                    return found
    return None


def _scan_of(reduce: UOp, axis: UOp, other: UOp) -> Prefix | None:
    """Elements behind the output add nothing, and the others do not depend on it."""
    value, op = reduce.src[0], reduce.arg
    behind = [node for node in value.toposort() if _compares(node, axis, other)]
    if not behind:
        return None
    neutral = OPSET[op].identity
    neutral = reduce.dtype.min if neutral is None else neutral
    nothing = _with(value, behind, True)
    if nothing is not UOp.const(reduce.dtype, neutral):
        return None
    element = _with(value, behind, False)
    if axis in element.ranges or reduce.dtype not in _FOLDED:
        return None
    return Prefix(axis, element.substitute({other: axis}), Ops.SCAN, op)


def _rank_of(reduce: UOp, axis: UOp, other: UOp) -> Prefix | None:
    """Elements that are equal to the output's are counted, with one weight for those before it (or
    behind it) and one for the others."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or not dtypes.is_int(reduce.dtype):
        return None
    nodes = value.toposort()
    equal = [node for node in nodes if node.op is Ops.CMPEQ and _is_pair(node, axis, other)]
    if len(equal) != 1:
        return None
    digit = next(s for s in equal[0].src if other not in s.ranges)
    if digit.dtype.kind not in ("int", "uint") or digit.vmin < 0 or digit.vmax >= MOST_DIGITS:
        return None
    before = [node for node in nodes if _compares(node, other, axis)]
    behind = [node for node in nodes if _compares(node, axis, other)]
    if before and behind:
        return None
    chosen = before or behind
    others = [_with(_with(value, equal, False), chosen, holds) for holds in (True, False)]
    if any([node.op is not Ops.CONST or node.arg != 0 for node in others]):
        return None
    weights = [_with(_with(value, equal, True), chosen, holds) for holds in (True, False)]
    if any([node.op is not Ops.CONST for node in weights]):
        return None
    first, second = [int(node.arg) for node in weights]
    bits = max(1, int(digit.vmax).bit_length())
    return Prefix(axis, digit, Ops.RANK, bits, (first, second), not behind)


def _move_of(reduce: UOp, axis: UOp, other: UOp) -> Prefix | None:
    """Elements are added up where each of them says, which does not depend on the output."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or not dtypes.is_int(reduce.dtype) or reduce.dtype.itemsize < 4:
        return None
    found = [node for node in value.toposort() if node.op is Ops.CMPEQ and axis in node.ranges]
    if len(found) != 1 or axis not in [_plain(s) for s in found[0].src]:
        return None
    place = next(s for s in found[0].src if _plain(s) is not axis)
    elsewhere, here = [_with(value, found, holds) for holds in (False, True)]
    if elsewhere.op is not Ops.CONST or elsewhere.arg != 0:
        return None
    if axis in place.ranges or axis in here.ranges or place.dtype.kind not in ("int", "uint"):
        return None
    moved = {other: axis}
    return Prefix(axis, here.substitute(moved), Ops.MOVE, None, place=place.substitute(moved))


_FOLDED = frozenset((dtypes.float32, dtypes.float64, *[d for d in dtypes.ints if d.itemsize >= 4]))


def _plain(node: UOp) -> UOp:
    """An index, whatever int it is cast to."""
    while node.op is Ops.CAST and node.dtype.kind in ("int", "weakint"):
        node = node.src[0]
    return node


def _compares(node: UOp, left: UOp, right: UOp) -> bool:
    return node.op is Ops.CMPLT and [_plain(s) for s in node.src] == [left, right]


def _is_pair(node: UOp, axis: UOp, other: UOp) -> bool:
    """Whether the same is asked of the elements at both axes."""
    for mine, its in (node.src, node.src[::-1]):
        if axis in mine.ranges and other not in mine.ranges and axis not in its.ranges:
            if its.substitute({other: axis}).simplify() is mine.simplify():
                return True
    return False


def _with(value: UOp, conditions: list[UOp], holds: bool) -> UOp:
    """The value where conditions hold, or do not."""
    const = UOp.const(dtypes.bool, holds)
    return value.substitute(dict.fromkeys(conditions, const)).simplify()


# ------------------------------------------------------------ planning
def plan_prefixes(stores: list[UOp], target: Target) -> Opt | None:
    """The action for a nest that has such reductions, all along one axis."""
    outputs = closed_axes(stores[0])
    if any([closed_axes(store) != outputs for store in stores]):
        return None
    found = _prefixes(stores, outputs)
    axes = {prefix.axis for prefix in found.values()}
    if len(axes) != 1 or len(found) != _count_reduces(stores):
        return None
    (axis,) = axes
    size = int(axis.src[0].arg)
    ranks = any([prefix.op is not Ops.SCAN for prefix in found.values()])
    if any([(prefix.op is not Ops.SCAN) != ranks for prefix in found.values()]):
        return None
    most = min(_COUNTING if ranks else target.group_threads, target.group_threads)
    for elements in _RANKED if ranks else _SCANNED:
        threads = size // elements
        if size % elements or threads % target.warp_size or threads > most:
            continue
        return Opt(OptOps.PREFIX, axis.arg.number, (threads, elements)) if size >= _LEAST else None
    return None


def _prefixes(stores: list[UOp], outputs: tuple[UOp, ...]) -> dict[UOp, Prefix]:
    found: dict[UOp, Prefix] = {}
    for node in UOp.sink(*stores).toposort():
        if node.op is Ops.REDUCE:
            prefix = prefix_of(node, outputs)
            if prefix is not None:
                found[node] = prefix
    return found


def _count_reduces(stores: list[UOp]) -> int:
    return sum(node.op is Ops.REDUCE for node in UOp.sink(*stores).toposort())


# ------------------------------------------------------------ the action
def share_prefixes(ast: UOp, opt: Opt, target: Target) -> UOp:
    """The kernel whose reductions over elements before each one a group does together."""
    if not target.has_prefixes or not isinstance(opt.arg, tuple):
        raise OptError(f"{target.name} has no prefixes of groups, as {opt!r} asks for")
    axis = find_axis(ast, opt.axis)
    threads, elements = [int(part) for part in opt.arg]  # type: ignore[arg-type]
    stores = list(ast.src)
    outputs = closed_axes(stores[0])
    if axis not in outputs or any([closed_axes(store) != outputs for store in stores]):
        raise OptError(f"axis {axis.arg.number} is not one of all outputs of the kernel")
    if size_of(axis) != threads * elements or threads % target.warp_size:
        raise OptError(f"axis {axis.arg.number} of {size_of(axis)} is not {threads} x {elements}")
    found = {r: p for r, p in _prefixes(stores, outputs).items() if p.axis is axis}
    if len({prefix.op is Ops.SCAN for prefix in found.values()}) > 1:
        raise OptError("elements that are scanned are in another order than those that are counted")
    if not found or len(found) != _count_reduces(stores):
        raise OptError("not all reductions of the kernel are over elements before an output")
    ast = _replaced(ast, found)
    pieces, place = _pieces(axis, threads, elements, target, found)
    return replace_axes(ast, {axis: place}, {axis: pieces})


def _replaced(ast: UOp, found: dict[UOp, Prefix]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        prefix = found.get(node)
        done[node] = new if prefix is None else _standing_in(node, prefix)
    return done[ast]


def _standing_in(reduce: UOp, prefix: Prefix) -> UOp:
    if prefix.op is Ops.SCAN:
        return UOp(Ops.SCAN, reduce.dtype, (prefix.value, prefix.axis), prefix.arg)
    if prefix.op is Ops.MOVE:
        assert prefix.place is not None
        place = prefix.place.cast(dtypes.int64).maximum(-1)
        # what is outside of the row stays outside
        most = int(prefix.axis.src[0].arg)
        number = place.lt(0).where(most, place.minimum(most)).cast(dtypes.uint32)
        return UOp(Ops.MOVE, reduce.dtype, (prefix.value, number, prefix.axis))
    source = (prefix.value.cast(dtypes.uint32), prefix.axis)
    rank = UOp(Ops.RANK, dtypes.uint32, source, prefix.arg)
    earlier, equal = rank & ((1 << COUNT_BITS) - 1), rank >> COUNT_BITS
    chosen = earlier if prefix.is_before else equal - earlier - 1
    first, second = prefix.weights
    counts = chosen.cast(reduce.dtype) * first, (equal - chosen).cast(reduce.dtype) * second
    return (counts[0] + counts[1]).simplify()


def _pieces(
    axis: UOp, threads: int, elements: int, target: Target, found: dict[UOp, Prefix]
) -> tuple[tuple[UOp, ...], UOp]:
    """The axes of threads and of a thread's elements, and the place that they stand for."""
    sizes = [UOp.const(dtypes.weakint, n) for n in (threads, elements)]
    if all([prefix.op is Ops.SCAN for prefix in found.values()]):
        thread = piece(axis, 0, sizes[0], AxisType.LOCAL)
        if elements == 1:
            return (thread,), thread
        lanes = piece(axis, 1, sizes[1], AxisType.VECTOR)
        return (thread, lanes), thread * elements + lanes
    warps, width = threads // target.warp_size, target.warp_size
    lane = piece(axis, 2, UOp.const(dtypes.weakint, width), AxisType.WARP)
    parts, place = [lane], lane
    if elements > 1:
        parts.insert(0, piece(axis, 1, sizes[1], AxisType.VECTOR))
        place = parts[0] * width + place
    if warps > 1:
        parts.insert(0, piece(axis, 0, UOp.const(dtypes.weakint, warps), AxisType.LOCAL))
        place = parts[0] * (width * elements) + place
    return tuple(parts), place
