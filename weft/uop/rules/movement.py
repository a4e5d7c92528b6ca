"""Movement ops of the tensor graph: no-ops vanish, neighbours merge, constants have no layout.

What comes in: RESHAPE, PERMUTE, EXPAND, PAD, SHRINK, FLIP, STRIDE, CONTIGUOUS and elementwise ops
on constants. What goes out: fewer of them.
Where it sits: beside the arithmetic rules; the scheduler runs it before it turns movement into
index arithmetic.
The one invariant: the result has the node's shape. Symbolic parts of an argument are sources, so
arguments are read through `marg` and written through `_mop`.
"""

from __future__ import annotations

from typing import Any

from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat
from weft.uop.rules.shaped import constant_like, is_number, shaped_like


def drop_no_op(node: UOp) -> UOp | None:
    """RESHAPE, EXPAND to the shape it has, PERMUTE in order, PAD by 0, ... -> the source"""
    source, op = node.src[0], node.op
    if op in (Ops.RESHAPE, Ops.EXPAND, Ops.SHRINK, Ops.PAD):
        if source.shape != node.shape:
            return None
        # of one shape a box is the whole, unless it is moved: a PAD of -1 and 1
        moved = op is Ops.PAD and any(_is_not_zero(side) for pair in node.marg for side in pair)
        shifted = op is Ops.SHRINK and any(_is_not_zero(start) for start, _ in node.marg)
        return None if moved or shifted else source
    if op is Ops.PERMUTE:
        return source if node.arg == tuple(range(len(node.arg))) else None
    if op is Ops.FLIP:
        return None if any(node.arg) else source
    return source if all(step == 1 for step in node.arg) else None


def _is_not_zero(size: Any) -> bool:
    return not isinstance(size, int) or size != 0


def merge_movement(node: UOp, inner: UOp) -> UOp | None:
    """An op on the same op, as one: RESHAPE of RESHAPE, PERMUTE of PERMUTE, ..."""
    if node.op is not inner.op:
        return None
    return inner.src[0]._mop(node.op, _merged(node.op, inner.marg, node.marg))


def _merged(op: Ops, first: tuple[Any, ...], then: tuple[Any, ...]) -> tuple[Any, ...]:
    if op in (Ops.RESHAPE, Ops.EXPAND):
        return then
    if op is Ops.PERMUTE:
        return tuple([first[axis] for axis in then])
    pairs = list(zip(first, then, strict=True))
    if op is Ops.SHRINK:
        return tuple([(_plus(a[0], b[0]), _plus(a[0], b[1])) for a, b in pairs])
    if op is Ops.PAD:
        return tuple([(_plus(a[0], b[0]), _plus(a[1], b[1])) for a, b in pairs])
    if op is Ops.FLIP:
        return tuple([bool(a) != bool(b) for a, b in pairs])
    return tuple([a * b for a, b in pairs])


def _plus(left: Any, right: Any) -> Any:
    total = left + right
    return total.ssimplify() if isinstance(total, UOp) else total


# ------------------------------------------------------------ constants
def constant_of(value: UOp) -> UOp | None:
    """The CONST that a value is everywhere: movement on a constant, but for PAD, moves nothing."""
    while value.op in GroupOp.Movement and value.op is not Ops.PAD:
        value = value.src[0]
    return value if value.op is Ops.CONST else None


def move_constant(node: UOp) -> UOp | None:
    """PERMUTE(EXPAND(RESHAPE(3))) -> EXPAND(RESHAPE(3)) of the new shape; PAD of 0 -> 0"""
    constant = constant_of(node.src[0])
    if constant is None:
        return None
    if node.op is Ops.PAD and not is_number(constant, 0):
        return None
    shaped = constant_like(node, constant.arg)
    # an EXPAND that repeats nothing is a RESHAPE, see drop_no_op
    if shaped.op is Ops.EXPAND and shaped.src[0].shape == shaped.shape:
        shaped = shaped.src[0]
    return None if shaped is node else shaped


def unwrap_constants(node: UOp) -> UOp | None:
    """x + EXPAND(RESHAPE(3)) -> x + 3: a scalar operand stands beside any shape"""
    if node.op is Ops.BITCAST and node.src[0].dtype.itemsize != node.dtype.itemsize:
        return None
    src = []
    for source in node.src:
        constant = constant_of(source) if source.op in GroupOp.Movement else None
        src.append(source if constant is None else constant)
    if tuple(src) == node.src:
        return None
    return shaped_like(node, node.with_src(tuple(src)))


movement = PatternMatcher(
    [
        (UPat(GroupOp.Movement, name="node"), drop_no_op),
        (
            UPat(
                GroupOp.Movement,
                src=(UPat(GroupOp.Movement, name="inner"),),
                name="node",
                allow_any_len=True,
            ),
            merge_movement,
        ),
        (UPat(GroupOp.Movement, name="node"), move_constant),
        (UPat(GroupOp.Elementwise, name="node"), unwrap_constants),
        (UPat(Ops.CONTIGUOUS, src=(UPat(Ops.CONTIGUOUS, name="x"),)), lambda x: x),
        (UPat(Ops.DETACH, src=(UPat(Ops.DETACH, name="x"),)), lambda x: x),
    ]
)
