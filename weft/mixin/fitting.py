"""Numbers beside ints: what becomes of one that the dtype does not hold.

In: numbers and tensors without a dtype of their own, and the int dtype that they meet. Out: what an
op gives beside such a number where that is certain, or a DTypeError that says what would do.
Sits below all method families; imports no UOp, and knows a tensor by the `uop` that it has.
Invariant: a number is never replaced by another, unless it is a pattern of bits that is as wide as
the dtype (`x & 0xFFFFFFFF` of int32, -1 for unsigned ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import DTypeError
from weft.uop.opset import GroupOp, Ops

# results that depend on the number itself, not on its bits
_BY_VALUE = frozenset((Ops.MAX, Ops.IDIV, Ops.MOD))
# a constant is still one after these
_MOVED = GroupOp.View | {Ops.CONST, Ops.EXPAND, Ops.PAD, Ops.CAT}


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


def check_number(what: str, operand: Any, dtype: DType, op: Ops | None = None) -> None:
    """Refuse a number that an int dtype cannot stand for; `op` is what it is an operand of.

    >>> check_number("full", 0xFF, dtypes.int8)
    """
    found = extent(operand) if dtype.kind in ("int", "uint") else None
    if found is None or (op is Ops.AND and dtype.kind == "uint"):
        # there is nothing to mask above the width of unsigned ints
        return
    low, high = found
    least, greatest = -(1 << dtype.bitsize - 1), (1 << dtype.bitsize) - 1
    if op in _BY_VALUE:
        least, greatest = int(dtype.min), int(dtype.max)
    elif op is Ops.ADD:
        # x - 0xFF comes as x + -0xFF
        least = -greatest
    if (least <= low and high <= greatest) or not _is_known(operand):
        return
    number = high if high > greatest else low
    raise DTypeError(
        f"{what} of {dtype} and the number {number}, which does not fit: {dtype} holds {dtype.min} "
        f"to {dtype.max}; {_advice(number)}"
    )


def _is_known(operand: Any) -> bool:
    """Whether the extent of an operand is made of its values: not of a variable's bounds."""
    if isinstance(operand, int) or operand.uop.vmin == operand.uop.vmax:
        return True
    return all(part.op in _MOVED for part in operand.uop.toposort())


def _advice(number: int) -> str:
    for wider in (dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64):
        if wider.min <= number <= wider.max:
            return f"take a dtype that holds both, such as {wider}: x.cast({wider})"
    return "no int dtype holds it, a float does roughly: x.cast(dtypes.float64)"
