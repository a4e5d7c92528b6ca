"""Prepare a tensor graph for scheduling: what is only a wish or a convenience becomes plain graph.

What comes in: the graph as the user built it. What goes out: the same values without DETACH, idle
copies, states hidden under views, huge CATs, or reductions too long for one core.
Where it sits: the first pass of the schedule.
The one invariant: every value keeps its meaning; only sums may be taken in another order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.budgets import CHOICES, KERNEL_OPS
from weft.dtype import DType, bits_of, dtypes
from weft.helpers import ceildiv, prod
from weft.knobs import SPLIT_REDUCEOP
from weft.machine import Machines, generic
from weft.schedule.place import is_whole_storage
from weft.schedule.split_axes import split_reduced_axes
from weft.uop.args import BufferArg, ReduceArg
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat
from weft.uop.rules.movement import movement as movement_rules
from weft.uop.symbolic import symbolic_simple

# numbers that are chosen between per element; more become a table
INLINE_CONSTANTS = 64
MOST_TABLE = 1 << 20
# A matrix so tall is summed along its rows in parts as well, each of them one piece of memory, if
# it is that narrow.
TALL = 1 << 22
# elements of a part beside which it costs nothing to add up its lanes, or a partial product; parts
# that a second step adds up, at most
LONG_PART = 1 << 12
# partial results of a product that are summed up, at most
MOST_PARTIAL = 1 << 22
# products per element of an operand from which on they are worth a register tile
PRODUCT_REUSE = 16
# what only gradients look at
_TRANSPARENT = (Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.FUNCTION)


@dataclass
class PrepareContext:
    """Numbers for storage that the graph itself needs."""

    next_number: int
    device: Any
    machines: Machines = generic
    tables: dict[UOp, bytes] = field(default_factory=dict)  # storage with contents of its own
    is_mixed: bool = False  # whether there are several devices
    spreads: list[Any] = field(default_factory=list)  # of values on several devices, see shard.py

    def new_buffer(self, device: Any, size: int, dtype: Any) -> UOp:
        """Temporary storage of this schedule; canonical numbers are negative."""
        self.next_number -= 1
        return UOp(Ops.BUFFER, dtype, (), BufferArg(self.next_number, size, device or self.device))


def drop_idle_copy(x: UOp) -> UOp | None:
    """COPY(x on d, d) -> x; COPY(numbers, d) -> numbers: they are computed where they are used."""
    source = x.src[0]
    return source if source.device is None or source.device == x.arg else None


def store_copied(x: UOp) -> UOp | None:
    """COPY(expression) -> COPY(CONTIGUOUS(expression)): only memory can be transferred."""
    source = x.src[0]
    if source.op in (Ops.CONTIGUOUS, Ops.COPY) or is_whole_storage(source):
        return None
    return x.replace(src=(UOp(Ops.CONTIGUOUS, source.dtype, (source,)),))


def drop_idle_contiguous(x: UOp) -> UOp | None:
    """CONTIGUOUS(whole storage) -> the storage; what is transferred is stored in order anyway."""
    source = x.src[0]
    stored = is_whole_storage(source) or source.op in (Ops.CONTIGUOUS, Ops.COPY)
    return source if stored else None


def sink_after(x: UOp) -> UOp | None:
    """AFTER(view(s), effects) -> view(AFTER(s, effects)): a state belongs to the storage.

    AFTER(s, STORE of no elements) -> s.
    """
    view, *effects = x.src
    kept = [e for e in effects if e.op is not Ops.STORE or 0 not in e.src[0].shape]
    if len(kept) < len(effects):
        return view.after(*kept) if kept else view
    if not effects:
        return view
    if view.op not in GroupOp.Movement:
        return None
    state = view.src[0].after(*x.src[1:])
    return view.with_src((state, *view.src[1:]))


def reduce_nothing(x: UOp) -> UOp | None:
    """Reduce over axes of size 1 -> the source; over no elements -> the neutral element."""
    source = x.src[0]
    if any(isinstance(s, int) and s == 0 for s in source.shape):
        identity = x.dtype.min if x.arg.op is Ops.MAX else (0 if x.arg.op is Ops.ADD else 1)
        return _filled(UOp.const(x.dtype, identity), x.shape)
    axes = tuple(
        a for a in x.arg.axes if not (isinstance(source.shape[a], int) and source.shape[a] == 1)
    )
    if axes and axes == x.arg.axes:
        return None
    return x.replace(arg=ReduceArg(x.arg.op, axes)) if axes else source


def _filled(const: UOp, shape: tuple[Any, ...]) -> UOp:
    if not shape:
        return const
    ones = const._mop(Ops.RESHAPE, (1,) * len(shape))
    return ones._mop(Ops.EXPAND, shape)


def reduce_constant(x: UOp) -> UOp | None:
    """Sum of n equal numbers -> n * number; their maximum -> the number. Floats only where that is
    exact."""
    const = x.src[0].base
    if const.op is not Ops.CONST or any(u.op is Ops.PAD for u in _chain(x.src[0])):
        return None
    shape = x.src[0].shape
    if not all(isinstance(s, int) for s in shape):
        return None
    count = prod(shape[a] for a in x.arg.axes)
    if x.arg.op is Ops.ADD:
        exact = const.arg * count
        if dtypes.is_float(x.dtype) and exact != x.dtype.const(exact):
            return None
        return _filled(UOp.const(x.dtype, exact), x.shape)
    return _filled(const, x.shape) if x.arg.op is Ops.MAX else None


def _chain(node: UOp) -> list[UOp]:
    chain = [node]
    while chain[-1].op in GroupOp.Movement:
        chain.append(chain[-1].src[0])
    return chain


def write_long_cat(ctx: PrepareContext, x: UOp) -> UOp | None:
    """CAT of many sources -> each is written into its part of one storage."""
    if len(x.src) <= CHOICES or not all(isinstance(s, int) for s in x.shape):
        return None
    if ctx.is_mixed and x.device is None:
        # it would be on one device, and be read by others
        return None
    if all(s.base.op is Ops.CONST for s in x.src):
        return _constant_table(ctx, x)
    home = ctx.new_buffer(x.device, prod(x.shape), x.dtype)
    whole = home._mop(Ops.RESHAPE, x.shape)
    effects = []
    start = 0
    for source in x.src:
        stop = start + source.shape[x.arg]
        box = tuple((0, s) if a != x.arg else (start, stop) for a, s in enumerate(x.shape))
        effects.append(UOp(Ops.STORE, dtypes.void, (whole._mop(Ops.SHRINK, box), source)))
        start = stop
    return home.after(*effects)._mop(Ops.RESHAPE, x.shape)


def _stored(value: Any, dtype: DType) -> bytes:
    return bits_of(value, dtype).to_bytes(dtype.itemsize, "little")


def _constant_table(ctx: PrepareContext, x: UOp) -> UOp | None:
    """CAT of many different numbers -> a table of them, read by position."""
    length = x.shape[x.arg]
    if len(x.src) <= INLINE_CONSTANTS or length > MOST_TABLE or x.dtype in dtypes.weaks:
        return None
    if any(u.op is Ops.PAD for s in x.src for u in _chain(s)):
        return None
    parts = [_stored(s.base.arg, x.dtype) * s.shape[x.arg] for s in x.src]
    table = ctx.new_buffer(None, length, x.dtype)
    ctx.tables[table] = b"".join(parts)
    ones = tuple(length if axis == x.arg else 1 for axis in range(len(x.shape)))
    return table._mop(Ops.RESHAPE, ones)._mop(Ops.EXPAND, x.shape)


def split_long_reduction(ctx: PrepareContext, x: UOp) -> UOp | None:
    """Few outputs of a long reduction -> partial results on all cores, then a short reduction."""
    shape = x.src[0].shape
    if not SPLIT_REDUCEOP.value or x.tag == "part" or not all(isinstance(s, int) for s in shape):
        return None
    if x.src[0].base.op is Ops.CONST or x.src[0].device is None:
        return None
    length, outputs = prod(shape[a] for a in x.arg.axes), prod(x.shape)
    target = ctx.machines(x.device)
    wanted = target.parallel_parts
    along_rows = len(shape) - 1 not in x.arg.axes
    is_narrow = outputs * x.dtype.itemsize <= target.page_bytes
    is_tall = along_rows and is_narrow and length * outputs >= TALL
    if is_tall or (length >= 4 * target.launch_elements and outputs < wanted):
        leading = _leading_parts(shape, x.arg.axes, wanted)
        if leading:
            few = _few_parts(shape[leading[0]], length, wanted) if len(leading) == 1 else None
            if few is not None:
                return _in_two_steps(x, leading[0], few)
            is_short = length < LONG_PART * prod(shape[a] for a in leading)
            if is_short and (flat := _in_flat_parts(x, length, wanted)) is not None:
                return flat
            return _outer_axes_last(x, leading)
        axis = max(x.arg.axes, key=lambda a: shape[a])
        parts = _parts(shape[axis], wanted)
    elif length >= 2 * LONG_PART and _multiplies_with_reuse(x):
        axis, parts = _product_parts(shape, x.arg.axes, outputs, wanted)
    else:
        return None
    return None if parts is None else _in_two_steps(x, axis, parts)


def _leading_parts(shape: tuple[int, ...], axes: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """The first axes of a sum, if they are enough parts for all cores: each part is then one
    piece of memory."""
    chosen: list[int] = []
    parts = 1
    for axis in axes[:-1]:
        if parts >= wanted // 2 or parts * shape[axis] > LONG_PART:
            break
        chosen.append(axis)
        parts *= shape[axis]
    return tuple(chosen) if parts >= wanted // 8 else ()


def _few_parts(size: int, length: int, wanted: int) -> int | None:
    """Rather than one part for each step of an axis, so that all are short: how many larger ones,
    of several steps each."""
    if length // size >= LONG_PART:
        return None
    found = _divisors(size, wanted // 8, min(2 * wanted, size - 1))
    return min(found, key=lambda parts: abs(parts - wanted // 2), default=None)


def _in_flat_parts(x: UOp, length: int, wanted: int) -> UOp | None:
    """sum(x, (0, 1)) -> sum(store(sum(x as rows of any length, 1)), 0), if x is one piece of memory
    whose own rows are short and many."""
    parts = _few_parts(length, length, wanted)
    if parts is None or len(x.arg.axes) < len(x.src[0].shape) or not _is_in_order(x.src[0]):
        return None
    view = x.src[0]._mop(Ops.RESHAPE, (parts, length // parts))
    return _twice(x, view, (1,), (0,))._mop(Ops.RESHAPE, x.shape)


def _is_in_order(value: UOp) -> bool:
    """Whether a value is computed element by element from memory in the same order."""
    pending, seen = [value], {value}
    while pending:
        node = pending.pop()
        is_number = node.base.op is Ops.CONST and all([u.op is not Ops.PAD for u in _chain(node)])
        if is_number or is_whole_storage(node) or node.op in (Ops.CONTIGUOUS, Ops.COPY):
            continue
        if len(seen) > KERNEL_OPS or not (node.op in GroupOp.Elementwise or node.op is Ops.RESHAPE):
            return False
        new = [source for source in node.src if source not in seen]
        seen.update(new)
        pending += new
    return True


def _outer_axes_last(x: UOp, outer: tuple[int, ...]) -> UOp:
    """sum(x, (0, 1, 2)) -> sum(store(sum(x, (1, 2))), 0)."""
    inner = tuple([axis for axis in x.arg.axes if axis not in outer])
    return _twice(x, x.src[0], inner, outer)


def _twice(x: UOp, view: UOp, inner: tuple[int, ...], outer: tuple[int, ...]) -> UOp:
    """The reduction of a view along its inner axes, stored, and of that along the outer ones; both
    come from the line that `x` comes from."""
    partial = x.replace(src=(view,), arg=ReduceArg(x.arg.op, inner), tag="part")
    stored = UOp(Ops.CONTIGUOUS, x.dtype, (partial,))
    return x.replace(src=(stored,), arg=ReduceArg(x.arg.op, outer), tag="part")


def _in_two_steps(x: UOp, axis: int, parts: int) -> UOp:
    """sum(x, (0, 1)) -> sum(store(sum(x in parts, (1, 2))), 0): the parts are outermost."""
    shape = x.src[0].shape
    split = (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])
    order = (axis, *[a for a in range(len(split)) if a != axis])
    view = x.src[0]._mop(Ops.RESHAPE, split)._mop(Ops.PERMUTE, order)
    inner = tuple([a + 1 for a in x.arg.axes])
    whole = _twice(x, view, inner, (0,))
    return whole._mop(Ops.RESHAPE, x.shape)


def _parts(size: int, wanted: int) -> int | None:
    """The number of parts of an axis, as near as can be to what is wanted: long ones, or else
    shorter ones."""
    for length in (4 * wanted, wanted):
        found = _divisors(size, wanted // 8, min(4 * wanted, size // length))
        if found:
            return min(found, key=lambda parts: max(parts / wanted, wanted / parts))
    return None


def _divisors(size: int, least: int, most: int) -> list[int]:
    return [parts for parts in range(least, most + 1) if size % parts == 0]


def _multiplies_with_reuse(x: UOp) -> bool:
    """Whether it sums products of two operands that are each read many times, as a matmul does."""
    terms = x.src[0]
    while terms.op is Ops.CAST or terms.op in GroupOp.Movement:
        terms = terms.src[0]
    if x.arg.op is not Ops.ADD or terms.op is not Ops.MUL:
        return False
    reads = max(prod(operand.base.shape) for operand in terms.src)
    return bool(prod(x.src[0].shape) >= PRODUCT_REUSE * reads)


def _product_parts(
    shape: tuple[int, ...], axes: tuple[int, ...], outputs: int, wanted: int
) -> tuple[int, int | None]:
    """The first summed axis that can be cut into parts whose operands stay in a cache."""
    length = prod(shape[a] for a in axes)
    for axis in axes:
        for parts in range(ceildiv(length, LONG_PART), wanted + 1):
            if shape[axis] % parts == 0 and outputs * parts <= MOST_PARTIAL:
                return axis, parts
    return axes[0], None


prepare = (
    PatternMatcher(
        [
            (UPat(_TRANSPARENT, name="x"), lambda x: x.src[0]),
            (UPat(Ops.COPY, name="x"), drop_idle_copy),
            (UPat(Ops.COPY, name="x"), store_copied),
            (UPat(Ops.CONTIGUOUS, name="x"), drop_idle_contiguous),
            (UPat(Ops.AFTER, name="x"), sink_after),
            (UPat(Ops.REDUCE_AXIS, name="x"), reduce_nothing),
            (UPat(Ops.REDUCE_AXIS, name="x"), reduce_constant),
            (UPat(Ops.CAT, name="x"), write_long_cat),
            # the shorter axes first: long ones are cut along them
            (UPat(Ops.REDUCE_AXIS, name="x"), split_reduced_axes),
            (UPat(Ops.REDUCE_AXIS, name="x"), split_long_reduction),
        ]
    )
    + movement_rules
    + symbolic_simple
)
