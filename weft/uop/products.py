"""Products: which sums of products a fragment computes as the kernel says.

In: a REDUCE of a kernel, and a fragment. Out: its operands in the dtypes of the fragment, or None.
Asked by the schedule, which lets such products stand where others may not, and by the optimiser.
Invariant: an operand is a number that the fragment holds exactly, unless the user allowed tf32.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.dtype import DType
from weft.fragment import Fragment
from weft.knobs import ALLOW_TF32
from weft.uop.infer import CLOSES
from weft.uop.node import UOp
from weft.uop.opset import Ops

# of numbers of a narrow type these give one of that type
_EXACT = frozenset({Ops.NEG, Ops.MAX, Ops.WHERE})


@dataclass(frozen=True)
class Product:
    """A sum of products of two operands in the dtypes of a fragment."""

    reduce: UOp
    left: UOp
    right: UOp

    @property
    def terms(self) -> tuple[UOp, ...]:
        """The axes that are summed over."""
        return self.reduce.src[CLOSES[Ops.REDUCE] :]


def product_of(reduce: UOp, fragment: Fragment) -> Product | None:
    """The operands of a sum of products, if the fragment computes it as the kernel says."""
    if reduce.op is not Ops.REDUCE or reduce.arg is not Ops.ADD:
        return None
    if reduce.dtype is not fragment.c_dtype or reduce.src[0].op is not Ops.MUL:
        return None
    if not fragment.exact and not ALLOW_TF32:
        return None
    left, right = reduce.src[0].src
    a, b = narrowed(left, fragment.a_dtype), narrowed(right, fragment.b_dtype)
    return None if a is None or b is None else Product(reduce, a, b)


def narrowed(value: UOp, dtype: DType) -> UOp | None:
    """The value in a dtype that holds it exactly; None if it may not."""
    if value.dtype is dtype:
        return value
    if value.op is Ops.CAST and value.src[0].dtype is dtype:
        return value.src[0]
    pending, seen = [value], {value}
    while pending:
        node = pending.pop()
        if node.op is Ops.CAST and node.src[0].dtype is dtype:
            continue
        if node.op is Ops.CONST and _holds(dtype, node.arg):
            continue
        if node.op not in _EXACT:
            return None
        sources = node.src[1:] if node.op is Ops.WHERE else node.src
        pending += [s for s in sources if s not in seen]
        seen.update(sources)
    return value.cast(dtype)


def _holds(dtype: DType, number: float) -> bool:
    return bool(dtype.const(number) == number)
