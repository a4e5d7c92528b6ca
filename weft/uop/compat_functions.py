"""Functions that programs written for tinygrad import from `tinygrad.uop.ops`.

What comes in: nodes, numbers, shapes. What goes out: the same, as those programs expect.
Where it sits: right below the facade `ops.py`, which passes the names on.
The one invariant: nothing in weft itself needs these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from weft.dtype import DType, dtypes, least_upper_dtype
from weft.mixin.movement import broadcast_shape
from weft.uop import evaluate
from weft.uop.args import AxisType
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat, caller_location
from weft.uop.text import range_name

Function = TypeVar("Function", bound=Callable[..., Any])

# ---------------------------------------------------------------- sizes


def sint_to_uop(x: Any, dtype: DType = dtypes.weakint) -> UOp:
    """A size as a node."""
    return UOp.const(dtype, x)


def ssimplify(uop: Any) -> Any:
    """A size, simplified; a number where it is one."""
    return uop.ssimplify() if isinstance(uop, UOp) else uop


def srender(x: Any) -> str:
    """A size as text."""
    return x.render() if isinstance(x, UOp) else str(x)


def smax(*sizes: Any) -> Any:
    """The greatest of some sizes, given one by one or as a sequence."""
    return _fold(sizes, max, lambda x, y: x.maximum(y))


def smin(*sizes: Any) -> Any:
    """The least of some sizes."""
    return _fold(sizes, min, lambda x, y: x.minimum(y))


def _fold(sizes: tuple[Any, ...], plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Any:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if not any(isinstance(size, UOp) for size in given):
        return plain(given)
    nodes = [sint_to_uop(size) for size in given]
    return functools.reduce(symbolic, nodes).ssimplify()


def to_max_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape with every symbolic size at its greatest."""
    return tuple(size.vmax if isinstance(size, UOp) else size for size in shape)


_broadcast_shape = broadcast_shape


def _align_left(*shapes: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """The shapes with axes of size 1 in front, so that all have as many."""
    rank = max(len(shape) for shape in shapes)
    return tuple((1,) * (rank - len(shape)) + shape for shape in shapes)


def broadcast_axes(src_shape: tuple[Any, ...], out_shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The axes that are repeated when the first shape is expanded to the second."""
    aligned = _align_left(src_shape, out_shape)[0]
    return tuple(i for i, (a, b) in enumerate(zip(aligned, out_shape, strict=True)) if a != b)


# ---------------------------------------------------------------- values


# what sums, products and maxima of truth values are
_LOGICAL = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}


def exec_alu(op: Ops, dtype: DType, operands: Iterable[Any], truncate_output: bool = True) -> Any:
    """The value of an op for numbers; unbounded if it is not to be truncated."""
    if op is Ops.SUB:  # type: ignore[attr-defined]
        first, second = operands
        return exec_alu(Ops.ADD, dtype, (first, -second), truncate_output)
    if dtype is dtypes.bool and op in _LOGICAL:
        op = _LOGICAL[op]
    unbounded = {"int": dtypes.weakint, "uint": dtypes.weakint, "float": dtypes.float64}
    held = dtype if truncate_output else unbounded.get(dtype.kind, dtype)
    return evaluate.evaluate(op, held, *operands)


python_alu: dict[Ops, Callable[..., Any]] = {
    op: functools.partial(exec_alu, op, dtypes.float64 if op in GroupOp.Unary else dtypes.weakint)
    for op in GroupOp.ALU
}


def identity_element(op: Ops, dt: DType) -> Any:
    """What changes nothing when it is reduced with others."""
    return dt.const({Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dt.min}[op])


def promo_dtype(src: tuple[UOp, ...]) -> DType:
    """The dtype that nodes have together."""
    return least_upper_dtype(*[node.dtype for node in src])


# ---------------------------------------------------------------- graphs


def consumer_map_from_toposort(nodes: Iterable[UOp]) -> dict[UOp, dict[UOp, None]]:
    """Which nodes read a node, for all of an order with sources first."""
    consumers: dict[UOp, dict[UOp, None]] = {}
    for node in nodes:
        consumers.setdefault(node, {})
        for source in node.src:
            consumers.setdefault(source, {})[node] = None
    return consumers


def do_unbind(ctx: dict[UOp, int], x: UOp) -> UOp:
    """A rule: a bound variable as a free one, its value kept in the context."""
    variable, value = x.unbind()
    ctx[variable] = value
    return variable


pm_unbind = PatternMatcher([(UPat(Ops.BIND, name="x"), do_unbind)])
remove_all_tags = PatternMatcher(
    [(UPat(name="x"), lambda x: None if x.tag is None else x.replace(tag=None))]
)
# what tinygrad calls the matcher that can be watched: here each one can
TrackedPatternMatcher = PatternMatcher


def rewrite_group(
    name: Any = True, replay: bool = False, new_ctx: bool = True
) -> Callable[[Function], Function]:
    """Decorates a function whose rewrites tinygrad's viewer shows together.

    weft's viewer groups by the `name` of each rewrite, so the function stays as it is.
    """
    return lambda function: function


track_rewrites = rewrite_group


def get_location() -> tuple[str, int]:
    """File and line of the caller."""
    return caller_location()


# ---------------------------------------------------------------- axes

axis_letters: dict[AxisType, str] = {
    AxisType.GLOBAL: "g",
    AxisType.THREAD: "t",
    AxisType.LOCAL: "l",
    AxisType.WARP: "w",
    AxisType.LOOP: "L",
    AxisType.UPCAST: "u",
    AxisType.VECTOR: "v",
    AxisType.GROUP_REDUCE: "G",
    AxisType.REDUCE: "R",
    AxisType.UNROLL: "r",
}


def range_str(u: UOp, color: bool = False) -> str:
    """The number of an axis as text."""
    return range_name(u.arg.number)[1:]


def multirange_str(rngs: Iterable[UOp], color: bool = False, pad: int | None = None) -> str:
    """The numbers of several axes as text."""
    text = ",".join(range_str(axis) for axis in sorted(rngs, key=lambda axis: axis.arg.number))
    return text if pad is None else text.ljust(pad)
