"""What Tensor builds graphs with: operands brought to one dtype and shape, views of storage.

In: tensors and numbers. Out: UOps that stand beside each other in one node.
Sits below Tensor, which it knows only by its `uop`, `shape`, `dtype` and cell.
Invariant: a number takes the dtype of what it meets, as a constant of that dtype and not as a cast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes, least_upper_dtype, strong_dtype, weak_dtype
from weft.mixin.movement import broadcast_shape
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

NUMBERS = (bool, int, float)
Move = tuple[Ops, Any]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# a constant is still one after these
_CONSTANT_OPS = GroupOp.View | {Ops.CONST, Ops.EXPAND, Ops.PAD, Ops.CAT}


def user_line() -> tuple[str, int] | None:
    """Where the user's code is: the first frame outside this package."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def apply_moves(value: UOp, moves: Sequence[Move], writing: bool = False) -> UOp:
    """A view of a storage's value; DETACH is a matter of reading only, not of writing."""
    for op, arg in moves:
        if op is not Ops.DETACH:
            value = value._mop(op, arg)
        elif not writing:
            value = UOp(Ops.DETACH, value.dtype, (value,))
    return value


def _is_moved_constant(node: UOp) -> bool:
    """Whether it is made of constants that were only moved about; the first other op says no."""
    seen = {node}
    pending = [node]
    while pending:
        found = pending.pop()
        if found.op not in _CONSTANT_OPS:
            return False
        fresh = [source for source in found.src if source not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return True


def cast_value(node: UOp, dtype: DType) -> UOp:
    """A cast; a weak constant that was only moved about becomes a constant of the dtype itself."""
    if node.dtype is dtype:
        return node
    if node.op is not Ops.CONST and node.dtype in (dtypes.weakint, dtypes.weakfloat, dtypes.bool):
        if _is_moved_constant(node):
            done: dict[UOp, UOp] = {}
            for u in node.toposort():
                if u.op is Ops.CONST:
                    done[u] = u.cast(dtype)
                else:
                    done[u] = UOp(u.op, dtype, tuple([done[s] for s in u.src]), u.arg, u.tag)
            return done[node]
    return node.cast(dtype)


def promote(operands: Sequence[Any]) -> tuple[DType, bool]:
    """The dtype that operands meet in, and whether all are pure constants.

    Numbers are weak. What is not a pure constant is data, and data is never weak.
    """
    pure = True
    types = []
    for x in operands:
        if isinstance(x, NUMBERS):
            types.append(weak_dtype(x))
        else:
            pure = pure and x._cell.pure
            types.append(x.dtype)
    dtype = least_upper_dtype(*types)
    return (dtype if pure else strong_dtype(dtype)), pure


def broadcast(operands: Sequence[Any], dtype: DType, first: DType | None = None) -> tuple[UOp, ...]:
    """The operands' nodes in one dtype and one shape; scalars stay scalars.

    `first` is the dtype of the first operand where it differs (the condition of WHERE).
    """
    shapes = [x.shape for x in operands if not isinstance(x, NUMBERS)]
    # mostly there is one, or all are alike
    shape = shapes[0]
    if any(other != shape for other in shapes[1:]):
        shape = broadcast_shape(*shapes)
    nodes = []
    for position, x in enumerate(operands):
        target = first if first is not None and position == 0 else dtype
        if isinstance(x, NUMBERS):
            nodes.append(UOp.const(target, x))
            continue
        node = cast_value(x.uop, target)
        nodes.append(node if not x.shape or x.shape == shape else node.expand(shape))
    return tuple(nodes)
