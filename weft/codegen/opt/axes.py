"""Axes of a kernel: find them, see who ends them, put others in their place.

In: a kernel AST. Out: facts about its RANGEs, and the kernel with axes replaced. Sits under the
actions, which are all made of `replace_axes`.
Invariant: an axis is replaced at once in every expression and in every closer (STORE, REDUCE,
STAGE) that ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.codegen.opt.opt import AxisName, OptError
from weft.dtype import dtypes
from weft.uop.args import AxisType, RangeArg
from weft.uop.infer import CLOSES
from weft.uop.node import UOp
from weft.uop.opset import Ops

LOOP_KINDS = (AxisType.LOOP, AxisType.REDUCE)
# the first number of a copy of an axis: those before it are the pieces of a split
FRESH = 3


def index_const(value: int) -> UOp:
    """A number of the index dtype."""
    return UOp.const(dtypes.weakint, value)


def all_axes(ast: UOp) -> list[UOp]:
    """The axes of a kernel by number."""
    return sorted((u for u in ast.toposort() if u.op is Ops.RANGE), key=lambda u: u.arg.number)


def find_axis(ast: UOp, name: AxisName) -> UOp:
    """The axis with this number, or at this place among all axes."""
    if isinstance(name, tuple):
        # outputs first: it saves a walk over the whole kernel
        for store in ast.src:
            for axis in closed_axes(store):
                if axis.arg.number == name:
                    return axis
    axes = all_axes(ast)
    if isinstance(name, tuple):
        for axis in axes:
            if axis.arg.number == name:
                return axis
        numbers = [axis.arg.number for axis in axes]
        raise OptError(f"the kernel has no axis numbered {name}; it has {numbers}")
    if not isinstance(name, int) or not 0 <= name < len(axes):
        raise OptError(f"the kernel has axes 0 to {len(axes) - 1}, found {name!r}")
    return axes[name]


def size_of(axis: UOp) -> int:
    """The size of an axis, which must be a constant."""
    size = axis.src[0]
    if size.op is not Ops.CONST:
        raise OptError(
            f"axis {axis.arg.number} has the run-time size {size.text()}; "
            "only an axis of constant size can be optimised"
        )
    return int(size.arg)


def closed_axes(closer: UOp) -> tuple[UOp, ...]:
    """The axes that end at a STORE, REDUCE or STAGE."""
    return closer.src[CLOSES[closer.op] :]


def closers_of(ast: UOp, axis: UOp) -> list[UOp]:
    """Who ends the axis: all its STOREs or all its REDUCEs, in order."""
    stores = [store for store in ast.src if axis in closed_axes(store)]
    if stores:
        return stores
    found = [u for u in ast.toposort() if u.op in CLOSES and axis in closed_axes(u)]
    if not found:
        raise OptError(f"axis {axis.arg.number} is ended nowhere in the kernel")
    return found


def is_reduced(ast: UOp, axis: UOp) -> bool:
    """Whether the axis belongs to reductions rather than to outputs."""
    return closers_of(ast, axis)[0].op is Ops.REDUCE


def piece(axis: UOp, position: int, size: UOp, kind: AxisType) -> UOp:
    """Part `position` of a split axis."""
    return UOp(Ops.RANGE, axis.dtype, (size,), RangeArg((*axis.arg.number, position), kind))


def with_kind(axis: UOp, kind: AxisType) -> UOp:
    """The axis, run in another way."""
    return axis.replace(arg=RangeArg(axis.arg.number, kind))


def fresh_axes(ast: UOp, axes: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each axis, one of the same size and kind with a number nobody has.

    They begin with the axis's own number, so they are new even if `ast` is a part of a kernel.
    """
    taken = {axis.arg.number for axis in all_axes(ast)}
    fresh: dict[UOp, UOp] = {}
    for axis in axes:
        place = FRESH
        number = (*axis.arg.number, place)
        while any([other[: len(number)] == number for other in taken]):
            place += 1
            number = (*axis.arg.number, place)
        taken.add(number)
        fresh[axis] = axis.replace(arg=RangeArg(number, axis.arg.kind))
    return fresh


def replace_axes(
    root: UOp,
    values: Mapping[UOp, UOp],
    pieces: Mapping[UOp, tuple[UOp, ...]],
    order: Iterable[UOp] | None = None,
) -> UOp:
    """Axes in `values` become these expressions, and where they end, `pieces` end instead.

    STORE(p[r], x[r], r) with r -> o*4 + i and pieces (o, i) -> STORE(p[o*4 + i], x[o*4 + i], o, i)

    `order`: all nodes of the root, sources first, from whoever has them already.
    """
    done: dict[UOp, UOp] = dict(values)
    for node in root.toposort() if order is None else order:
        if node in done:
            continue
        src = tuple([done[s] for s in node.src])
        start = CLOSES.get(node.op)
        if start is not None:
            ended: list[UOp] = []
            for old, new in zip(node.src[start:], src[start:], strict=True):
                ended.extend(pieces.get(old, (new,)))
            src = (*src[:start], *ended)
        done[node] = node if src == node.src else fold_index(node.with_src(src))
    return done[root]


def fold_index(node: UOp) -> UOp:
    """Index sums and products with constants, made plain: 0*5 + x is x, (x + 1) + 2 is x + 3."""
    if node.dtype is not dtypes.weakint or node.op not in (Ops.ADD, Ops.MUL):
        return node
    x, y = node.src
    if x.op is Ops.CONST:
        x, y = y, x
    if y.op is not Ops.CONST:
        return node
    if x.op is Ops.CONST:
        return index_const(x.arg + y.arg if node.op is Ops.ADD else x.arg * y.arg)
    if y.arg == (0 if node.op is Ops.ADD else 1):
        return x
    if node.op is Ops.MUL and y.arg == 0:
        return y
    if x.op is node.op and x.src[1].op is Ops.CONST:
        inner = x.src[1].arg
        both = inner + y.arg if node.op is Ops.ADD else inner * y.arg
        return fold_index(node.with_src((x.src[0], index_const(both))))
    return node.with_src((x, y))
