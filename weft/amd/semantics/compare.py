"""Comparisons, of lanes and of scalars.

In: nothing. Out: functions by the name that mnemonics have in the middle ("lt", "nge"), and
`classified`, which tells kinds of floats apart. Between the rows and the tables.
Invariant: a comparison with NaN is false, and its negation ("n..") true.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.amd.semantics.rows import (
    FORMATS,
    as_bits,
    both,
    const,
    differs,
    either,
    is_nan,
    less,
    negated,
    same,
)
from weft.dtype import dtypes
from weft.uop.node import UOp

Test = Callable[[UOp, UOp], UOp]


def _less_equal(x: UOp, y: UOp) -> UOp:
    return either(less(x, y), same(x, y))


def _never(x: UOp, y: UOp) -> UOp:
    return UOp.const(dtypes.bool, False)


def _always(x: UOp, y: UOp) -> UOp:
    return UOp.const(dtypes.bool, True)


def _unordered(x: UOp, y: UOp) -> UOp:
    return either(is_nan(x), is_nan(y))


def _not(test: Test) -> Test:
    return lambda x, y: negated(test(x, y))


_GREATER: Test = lambda x, y: less(y, x)  # noqa: E731
_GREATER_EQUAL: Test = lambda x, y: _less_equal(y, x)  # noqa: E731
_LESS_GREATER: Test = lambda x, y: either(less(x, y), less(y, x))  # noqa: E731

INTEGERS: dict[str, Test] = {
    "f": _never, "lt": less, "eq": same, "le": _less_equal, "gt": _GREATER, "ne": differs,
    "lg": differs, "ge": _GREATER_EQUAL, "t": _always,
}  # fmt: skip
FLOATS: dict[str, Test] = {
    "f": _never, "lt": less, "eq": same, "le": _less_equal, "gt": _GREATER, "lg": _LESS_GREATER,
    "ge": _GREATER_EQUAL, "o": _not(_unordered), "u": _unordered, "nge": _not(_GREATER_EQUAL),
    "nlg": _not(_LESS_GREATER), "ngt": _not(_GREATER), "nle": _not(_less_equal), "neq": differs,
    "nlt": _not(less), "t": _always, "tru": _always,
}  # fmt: skip


def classified(x: UOp, wanted: UOp) -> UOp:
    """Whether a float is of one of the kinds whose bits are set in `wanted`.

    From bit 0: signalling NaN, quiet NaN, then -infinity, -normal, -denormal, -0, and the positive
    ones from 0 up.
    """
    form = FORMATS[x.dtype]
    bits = as_bits(x)
    size = bits & const(form.sign_mask - 1, bits)
    quiet = differs(bits & const(1 << (form.mantissa - 1), bits), const(0, bits))
    nan = less(const(form.infinity, size), size)
    infinite = same(size, const(form.infinity, size))
    zero = same(size, const(0, size))
    denormal = both(negated(zero), less(size, const(1 << form.mantissa, size)))
    sign = form.sign(x)

    def bit(negative: int, positive: int) -> UOp:
        return sign.where(const(1 << negative, wanted), const(1 << positive, wanted))

    kind = infinite.where(bit(2, 9), zero.where(bit(5, 6), denormal.where(bit(4, 7), bit(3, 8))))
    kind = nan.where(quiet.where(const(2, wanted), const(1, wanted)), kind)
    return differs(kind & wanted, const(0, wanted))
