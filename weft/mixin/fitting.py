"""Numbers beside ints: what becomes of one that the dtype does not hold.

In: numbers and tensors without a dtype of their own, and the int dtype that they meet. Out: what an
op gives beside such a number where that is certain whatever the ints are.
Sits below all method families; imports no UOp, and knows a tensor by the `uop` that it has.
Invariant: comparisons, limits and remainders are those of the number itself; where a result of the
dtype is computed with it, its low bits are taken, as of any int that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.opset import Ops


def extent(operand: Any) -> tuple[int, int] | None:
    """The least and the greatest value of a number without a dtype, or of a tensor of such numbers.

    None for all others: they have a dtype that says it.

    >>> extent(3), extent(True), extent(0.5)
    ((3, 3), None, None)
    """
    if isinstance(operand, int):
        return None if isinstance(operand, bool) else (operand, operand)
    node = getattr(operand, "uop", None)
    if node is None or node.dtype is not dtypes.weakint:
        return None
    return node.vmin, node.vmax


def misfit(operands: Sequence[Any], dtype: DType) -> int | None:
    """The position of the first operand that may have values which an int dtype does not hold."""
    least, greatest = dtype.min, dtype.max
    for position, operand in enumerate(operands):
        found = extent(operand)
        if found is not None and not (least <= found[0] and found[1] <= greatest):
            return position
    return None


def side_of(operand: Any, dtype: DType) -> int:
    """Where the operand lies: 1 above all values of the dtype, -1 below them, 0 not outside.

    >>> side_of(300, dtypes.int8), side_of(-1, dtypes.uint8), side_of(5, dtypes.int8)
    (1, -1, 0)
    """
    found = extent(operand)
    if found is None:
        return 0
    return 1 if found[0] > dtype.max else -1 if found[1] < dtype.min else 0


def certain(op: Ops, side: int, first: bool, dtype: DType) -> Ops | None:
    """What an op gives for every value of an int dtype beside a number on one side of them all.

    As an op that gives it for the value and itself: CMPEQ is True, CMPNE is False, XOR is 0, MAX is
    the value. None where there is none. `first` says that the number is the first operand.

    >>> certain(Ops.CMPLT, 1, False, dtypes.int8), certain(Ops.MOD, 1, False, dtypes.uint8)
    (Ops.CMPEQ, Ops.MAX)
    """
    if op is Ops.CMPLT:
        return Ops.CMPNE if (side > 0) is first else Ops.CMPEQ
    if op in (Ops.CMPEQ, Ops.CMPNE):
        return Ops.CMPNE if op is Ops.CMPEQ else Ops.CMPEQ
    if op is Ops.MAX and side < 0:
        return Ops.MAX
    if dtype.kind == "uint" and side > 0 and not first:
        return {Ops.IDIV: Ops.XOR, Ops.MOD: Ops.MAX}.get(op)
    return None
