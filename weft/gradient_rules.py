"""The gradient of each op: one named rule each, for arithmetic, movement, reductions and copies.

In: the gradient of a node, and the node. Out: a gradient for each source; None says that nothing
flows there, which is an exact zero. Sits under `gradient`, whose sweep applies them; the rules of
writes are in `gradient_writes`.
Invariant: rules only build UOps, so the gradient of a gradient needs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import NARROW_FLOATS, DType, computing_dtype, dtypes
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.mixin.dtype import sum_dtype
from weft.slopes import times_power
from weft.uop.args import FunctionArg
from weft.uop.layout import ShardArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.scatter import flat_index, new_state, put, wrapped

Gradients = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Gradients]

LN_2 = math.log(2)


# ------------------------------------------------------------ shapes
def shaped_like(value: UOp, shape: tuple[Any, ...]) -> UOp:
    """A value in a shape; a scalar is repeated."""
    if value.shape == shape:
        return value
    return value.expand(shape)


def filled(number: float, dtype: DType, shape: tuple[Any, ...]) -> UOp:
    return shaped_like(UOp.const(dtype, number), shape)


def zeros_like(node: UOp) -> UOp | None:
    return filled(0.0, node.dtype, node.shape) if dtypes.is_float(node.dtype) else None


def _in_wide_floats(function: Callable[..., UOp], *operands: UOp) -> UOp:
    """A function with constants in it, computed in at least float32 and rounded once."""
    dtype = operands[0].dtype
    if dtype not in NARROW_FLOATS:
        return function(*operands)
    wide = computing_dtype(dtype)
    return function(*[operand.cast(wide) for operand in operands]).cast(dtype)


# ------------------------------------------------------------ arithmetic
def add_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x + y: both get it."""
    return gradient, gradient


def mul_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x * y: each gets it times the other."""
    x, y = node.src
    return gradient * y, gradient * x


def mulacc_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x * y + z: as a product and a sum."""
    x, y, _ = node.src
    return gradient * y, gradient * x, gradient


def neg_gradient(gradient: UOp, node: UOp) -> Gradients:
    """-x."""
    return (-gradient,)


def fdiv_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x / y: 1/y and -(x/y)/y, which does not overflow where y*y would."""
    _, y = node.src
    return gradient / y, _in_wide_floats(lambda g, q, d: -g * (q / d), gradient, node, y)


def max_gradient(gradient: UOp, node: UOp) -> Gradients:
    """max(x, y): to the greater; where they are equal, half to each."""
    x, y = node.src
    shared = x.eq(y).where(gradient * 0.5, gradient)
    return x.lt(y).where(0.0, shared), y.lt(x).where(0.0, shared)


def pow_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x**y: y * x**(y-1) and x**y * log(x).

    x**0 is 1 whatever x is, so it has no slope there; 0**y is 0 for all y > 0, likewise.
    """
    x, y = node.src

    def base_slope(g: UOp, base: UOp, exponent: UOp) -> UOp:
        return g * (exponent * base.alu(Ops.POW, exponent - 1.0))

    def exponent_slope(g: UOp, power: UOp, base: UOp) -> UOp:
        return g * (power * (base.alu(Ops.LOG2) * LN_2))

    to_base = y.eq(0.0).where(0.0, _in_wide_floats(base_slope, gradient, x, y))
    flat = x.eq(0.0) & y.ge(0.0)
    return to_base, flat.where(0.0, _in_wide_floats(exponent_slope, gradient, node, x))


def where_gradient(gradient: UOp, node: UOp) -> Gradients:
    """x where c else y: to the chosen one."""
    condition = node.src[0]
    return None, condition.where(gradient, 0.0), condition.where(0.0, gradient)


# ------------------------------------------------------------ functions
def sqrt_gradient(gradient: UOp, node: UOp) -> Gradients:
    """1 / (2 * sqrt(x)); infinite at 0."""
    return (gradient / (node * 2.0),)


def exp2_gradient(gradient: UOp, node: UOp) -> Gradients:
    """2**x * ln(2)."""
    wide = computing_dtype(node.dtype) if node.dtype in NARROW_FLOATS else node.dtype
    return ((times_power(gradient.cast(wide), node) * LN_2).cast(node.dtype),)


def log2_gradient(gradient: UOp, node: UOp) -> Gradients:
    """1 / (x * ln(2))."""
    return (_in_wide_floats(lambda g, x: g / (x * LN_2), gradient, node.src[0]),)


def sin_gradient(gradient: UOp, node: UOp) -> Gradients:
    """cos(x), as 1 - 2*sin(x/2)**2: exact for large x too, where adding pi/2 would round x."""

    def times_cosine(g: UOp, x: UOp) -> UOp:
        half = (x * 0.5).alu(Ops.SIN)
        return g * (half * half * -2.0 + 1.0)

    return (_in_wide_floats(times_cosine, gradient, node.src[0]),)


def trunc_gradient(gradient: UOp, node: UOp) -> Gradients:
    """Steps: flat wherever there is a slope."""
    return (None,)


def cast_gradient(gradient: UOp, node: UOp) -> Gradients:
    """From a float to a float: cast back. An int has no gradient."""
    source = node.src[0].dtype
    return (gradient.cast(source) if dtypes.is_float(source) else None,)


# ------------------------------------------------------------ movement
def _with_sizes(gradient: UOp, node: UOp, *gradients: UOp | None) -> Gradients:
    """The symbolic sizes of a movement op are sources too, and ints."""
    return (*gradients, *[None] * (len(node.src) - len(gradients)))


def reshape_gradient(gradient: UOp, node: UOp) -> Gradients:
    """The source's shape again."""
    return _with_sizes(gradient, node, gradient._mop(Ops.RESHAPE, node.src[0].shape))


def permute_gradient(gradient: UOp, node: UOp) -> Gradients:
    """The inverse permutation."""
    inverse = sorted(range(len(node.arg)), key=lambda axis: node.arg[axis])
    return (gradient._mop(Ops.PERMUTE, tuple(inverse)),)


def expand_gradient(gradient: UOp, node: UOp) -> Gradients:
    """The sum over what was repeated; half types add up in float32."""
    source = node.src[0]
    axes = tuple(
        axis
        for axis, (before, after) in enumerate(zip(source.shape, node.shape, strict=True))
        if _is_one(before) and not _is_one(after)
    )
    return _with_sizes(gradient, node, gradient.sum(axes, keepdim=True))


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def pad_gradient(gradient: UOp, node: UOp) -> Gradients:
    """What the zeros would get is cut off."""
    sizes = node.src[0].shape
    box = tuple((before, before + size) for (before, _), size in zip(node.marg, sizes, strict=True))
    return _with_sizes(gradient, node, gradient._mop(Ops.SHRINK, box))


def shrink_gradient(gradient: UOp, node: UOp) -> Gradients:
    """Zeros for what was cut off."""
    sizes = node.src[0].shape
    around = tuple(
        (start, size - stop) for (start, stop), size in zip(node.marg, sizes, strict=True)
    )
    return _with_sizes(gradient, node, gradient._mop(Ops.PAD, around))


def flip_gradient(gradient: UOp, node: UOp) -> Gradients:
    """Reversed again."""
    return (gradient._mop(Ops.FLIP, node.arg),)


def stride_gradient(gradient: UOp, node: UOp) -> Gradients:
    """Zeros for what was stepped over: (m,) -> (m, 1) -> pad (m, step) -> (m*step,) -> (n,)."""
    sizes = node.src[0].shape
    apart, zeros, together = [], [], []
    for count, step in zip(node.shape, node.arg, strict=True):
        apart += [count, 1]
        zeros += [(0, 0), (0, step - 1)]
        together.append(count * step)
    filled = gradient._mop(Ops.RESHAPE, tuple(apart))._mop(Ops.PAD, tuple(zeros))
    joined = filled._mop(Ops.RESHAPE, tuple(together))
    return (joined._mop(Ops.SHRINK, tuple((0, size) for size in sizes)),)


def cat_gradient(gradient: UOp, node: UOp) -> Gradients:
    """To each source its part."""
    axis, parts = node.arg, []
    start: Any = 0
    for source in node.src:
        stop = start + source.shape[axis]
        box = tuple(
            (start, stop) if i == axis else (0, size) for i, size in enumerate(source.shape)
        )
        parts.append(gradient._mop(Ops.SHRINK, box))
        start = stop
    return tuple(parts)


def gather_gradient(gradient: UOp, node: UOp) -> Gradients:
    """What was read several times gets the sum; what was outside gets nothing."""
    source, *indices = node.src
    scattered = scatter_add(gradient, tuple(indices), node.arg, source.shape)
    return (scattered, *[None] * len(indices))


def scatter_add(
    values: UOp, indices: tuple[UOp, ...], axes: tuple[int, ...], shape: tuple[Any, ...]
) -> UOp:
    """Zeros of `shape` with the values added at the indices: the reverse of GATHER.

    A storage is filled with zeros, and a STORE through a GATHER adds to it. Where there is none to
    be had, because the values belong to no device or the size is not known, places look for what
    is meant for them.
    """
    places = tuple([shape[axis] for axis in axes])
    kept = tuple([size for axis, size in enumerate(shape) if axis not in axes])
    if isinstance(values.device, str) and all(isinstance(size, int) for size in shape):
        wide = sum_dtype(values.dtype)
        zeros = new_state(UOp.const(wide, 0), values.device, (prod(places), *kept))
        flat = flat_index(indices, places)
        total = put(zeros, (flat,), (0,), values.cast(wide), Ops.ADD)
        total = total.cast(values.dtype).reshape((*places, *kept))
    else:
        total = _collect(values, indices, places, kept)
    order = (*axes, *[axis for axis in range(len(shape)) if axis not in axes])
    return total.permute(sorted(range(len(order)), key=lambda axis: order[axis]))


def _collect(
    values: UOp, indices: tuple[UOp, ...], places: tuple[Any, ...], kept: tuple[Any, ...]
) -> UOp:
    """As `scatter_add`, without storage: each place looks at every index and sums what is its own.

    That is indices x places steps.
    """
    index_shape = indices[0].shape
    everything = (*index_shape, *places, *kept)
    ones = [1] * (len(places) + len(kept))
    chosen = values._mop(Ops.RESHAPE, (*index_shape, *ones[: len(places)], *kept))
    chosen = chosen.expand(everything)
    for number, (index, size) in enumerate(zip(indices, places, strict=True)):
        asked = wrapped(index.cast(dtypes.int64), _as_node(size, dtypes.int64))
        asked = asked._mop(Ops.RESHAPE, (*index_shape, *ones)).expand(everything)
        alone = [1] * len(everything)
        alone[len(index_shape) + number] = size
        here = iota(size, dtypes.int64)._mop(Ops.RESHAPE, tuple(alone)).expand(everything)
        chosen = asked.eq(here).where(chosen, 0.0)
    return chosen.sum(tuple(range(len(index_shape)))) if index_shape else chosen


def _as_node(size: Any, dtype: DType) -> UOp:
    return size.cast(dtype) if isinstance(size, UOp) else UOp.const(dtype, size)


def iota(size: Any, dtype: DType) -> UOp:
    if isinstance(size, UOp):
        return UOp(Ops.IOTA, dtype, (size,))
    return UOp(Ops.IOTA, dtype, (), size)


# ------------------------------------------------------------ reductions
def reduce_axis_gradient(gradient: UOp, node: UOp) -> Gradients:
    """By the op that folds."""
    return (_REDUCE_RULES[node.arg.op](gradient, node),)


def sum_gradient(gradient: UOp, node: UOp) -> UOp:
    """Each term gets the gradient of the sum."""
    return shaped_like(gradient, node.src[0].shape)


def reduce_max_gradient(gradient: UOp, node: UOp) -> UOp:
    """To the greatest element; several that are equal share it. A nan is the greatest."""
    source = node.src[0]
    is_greatest = source.eq(shaped_like(node, source.shape)) | source.ne(source)
    count = is_greatest.cast(dtypes.int32)._reduce_axis(Ops.ADD, node.arg.axes)
    share = _in_wide_floats(lambda g: g / count.cast(g.dtype), gradient)
    return is_greatest.where(shaped_like(share, source.shape), 0.0)


def product_gradient(gradient: UOp, node: UOp) -> UOp:
    """To each factor the gradient times the product of the others, also where factors are zero."""
    source, axes = node.src[0], node.arg.axes
    kept = [axis for axis in range(source.ndim) if axis not in axes]
    order = (*kept, *axes)
    kept_shape = tuple([source.shape[axis] for axis in kept])
    count = prod(source.shape[axis] for axis in axes)
    factors = source.permute(order)._mop(Ops.RESHAPE, (*kept_shape, count))
    outer = gradient._mop(Ops.RESHAPE, (*kept_shape, 1))
    if isinstance(count, UOp):
        result = outer.expand(factors.shape) * _products_of_others(factors)
    else:
        result = _product_tree_gradient(outer, factors)
    apart = result._mop(Ops.RESHAPE, tuple([source.shape[axis] for axis in order]))
    return apart.permute(sorted(range(len(order)), key=lambda axis: order[axis]))


def _product_tree_gradient(gradient: UOp, factors: UOp) -> UOp:
    """The product of the last axis as a tree of pairs, walked back: x*y gives y and x.

    Linear in the number of factors, no division (so zeros are no special case), and made of plain
    products, so higher orders are right as well.
    """
    *kept, count = factors.shape
    if count == 0:
        return filled(0.0, factors.dtype, factors.shape)
    levels: list[tuple[UOp, int]] = []
    while count > 1:
        if count % 2:
            one = filled(1.0, factors.dtype, (*kept, 1))
            factors = UOp(Ops.CAT, factors.dtype, (factors, one), len(kept))
        pairs = factors._mop(Ops.RESHAPE, (*kept, (count + 1) // 2, 2))
        levels.append((pairs, count))
        left, right = [_last(pairs, place) for place in (0, 1)]
        count = (count + 1) // 2
        factors = (left * right)._mop(Ops.RESHAPE, (*kept, count))
    for pairs, count in reversed(levels):
        swapped = pairs._mop(Ops.FLIP, (*[False] * (len(kept) + 1), True))
        both = gradient._mop(Ops.RESHAPE, (*pairs.shape[:-1], 1)).expand(pairs.shape) * swapped
        padded = both._mop(Ops.RESHAPE, (*kept, pairs.shape[-2] * 2))
        gradient = padded.shrink([*[None] * len(kept), (0, count)])
    return gradient


def _last(pairs: UOp, place: int) -> UOp:
    """One element of the last axis, which stays with size 1."""
    return pairs.shrink([*[None] * (pairs.ndim - 1), (place, place + 1)])


def _products_of_others(factors: UOp) -> UOp:
    """The product of the others for each element of the last axis, whose size is symbolic."""
    *kept, count = factors.shape
    square = (*kept, count, count)
    numbers = iota(count, dtypes.int64)
    rows = numbers._mop(Ops.RESHAPE, (*[1] * len(kept), count, 1)).expand(square)
    columns = numbers._mop(Ops.RESHAPE, (*[1] * len(kept), 1, count)).expand(square)
    across = factors._mop(Ops.RESHAPE, (*kept, 1, count)).expand(square)
    others = rows.eq(columns).where(1.0, across)
    return others._reduce_axis(Ops.MUL, (len(kept) + 1,))._mop(Ops.RESHAPE, factors.shape)


_REDUCE_RULES: dict[Ops, Callable[[UOp, UOp], UOp]] = {
    Ops.ADD: sum_gradient,
    Ops.MAX: reduce_max_gradient,
    Ops.MUL: product_gradient,
}


# ------------------------------------------------------------ storage and devices
def same_gradient(gradient: UOp, node: UOp) -> Gradients:
    """CONTIGUOUS: the same value, so the same gradient."""
    return (gradient,)


def contiguous_backward_gradient(gradient: UOp, node: UOp) -> Gradients:
    """The gradient is stored, which is what the op is for."""
    return (UOp(Ops.CONTIGUOUS, gradient.dtype, (gradient,)),)


def function_gradient(gradient: UOp, node: UOp) -> Gradients:
    """A function with a rule of its own: nothing passes the way the value was computed."""
    parts = node.arg.rule(gradient, node, node.arg.static)
    if len(parts) != len(node.src) - 1:
        raise ArgumentError(
            f"the gradient of {node.arg.name} gave {len(parts)} gradients, it must give one or "
            f"None for each of its {len(node.src) - 1} inputs"
        )
    return (None, *parts)


def of_nothing(value: UOp, source: UOp) -> UOp:
    """What a reduction of no elements gives, as a function of what it was to reduce."""
    return UOp(Ops.FUNCTION, value.dtype, (value, source), _OF_NOTHING)


def _of_nothing_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> Gradients:
    return (zeros_like(node.src[1]),)


_OF_NOTHING = FunctionArg("reduce of nothing", _of_nothing_rule)


def copy_gradient(gradient: UOp, node: UOp) -> Gradients:
    """Copied back. What belongs to no device takes it where it is."""
    source = node.src[0]
    home: Any = source.device
    if home is None or gradient.device is None:
        return (gradient,)
    layout = source.layout
    if gradient.device == home and (layout is None or gradient.layout is not None):
        return (gradient,)
    if layout is not None and layout.shape == gradient.shape:
        home = ShardArg(home, layout.axis, layout.bounds)
    return (UOp(Ops.COPY, gradient.dtype, (gradient,), home),)


def allreduce_gradient(gradient: UOp, node: UOp) -> Gradients:
    """A sum over shards: each gets the gradient of the sum, which all devices have."""
    if node.arg is not Ops.ADD:
        raise ArgumentError(
            f"the gradient of an all-reduce is known for ADD, found {node.arg.name}; reduce on one "
            "device instead, or detach() the result"
        )
    return (gradient,)


# ------------------------------------------------------------ the tables
# movement, and elements that are picked: views, which writes undo
VIEW_RULES: dict[Ops, Rule] = {
    Ops.RESHAPE: reshape_gradient,
    Ops.PERMUTE: permute_gradient,
    Ops.EXPAND: expand_gradient,
    Ops.PAD: pad_gradient,
    Ops.SHRINK: shrink_gradient,
    Ops.FLIP: flip_gradient,
    Ops.STRIDE: stride_gradient,
    Ops.GATHER: gather_gradient,
}
VALUE_RULES: dict[Ops, Rule] = {
    Ops.ADD: add_gradient,
    Ops.MUL: mul_gradient,
    Ops.MULACC: mulacc_gradient,
    Ops.MULADD: mulacc_gradient,
    Ops.NEG: neg_gradient,
    Ops.FDIV: fdiv_gradient,
    Ops.MAX: max_gradient,
    Ops.POW: pow_gradient,
    Ops.WHERE: where_gradient,
    Ops.SQRT: sqrt_gradient,
    Ops.EXP2: exp2_gradient,
    Ops.LOG2: log2_gradient,
    Ops.SIN: sin_gradient,
    Ops.TRUNC: trunc_gradient,
    Ops.CAST: cast_gradient,
    Ops.CAT: cat_gradient,
    Ops.REDUCE_AXIS: reduce_axis_gradient,
    Ops.CONTIGUOUS: same_gradient,
    Ops.CONTIGUOUS_BACKWARD: contiguous_backward_gradient,
    Ops.FUNCTION: function_gradient,
    Ops.COPY: copy_gradient,
    Ops.ALLREDUCE: allreduce_gradient,
}
