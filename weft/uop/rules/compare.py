"""Comparisons of ints, and conditions made of them.

What comes in: CMPLT, CMPEQ, CMPNE, MAX and the logic around them. What goes out: the answer where
bounds give it, else one canonical form: positive terms left, negative ones right, divided by their
common factor, `not (x < c)` as `c - 1 < x`; several conditions on one expression as one interval.
Where it sits: after `divmod`; validity reads facts from these forms.
The one invariant: ints only. A float comparison is never turned around, since nan makes both false.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf

from weft.dtype import dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat
from weft.uop.rules import polynomial as poly
from weft.uop.rules.polynomial import Polynomial
from weft.uop.rules.shaped import INTS, INTS_AND_BOOL, clauses, constant_like, shaped_like

# more clauses than this are not compared with each other
_CLAUSES_AT_MOST = 64


def fold_decided(node: UOp) -> UOp | None:
    """x < 5 -> True, where x is never more than 4; and any other op whose bounds meet"""
    low, high = node._min_max
    if low != high:
        return None
    return constant_like(node, low)


def choose_maximum(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """max(x, y) -> x, where x is never less than y"""
    if x.vmin >= y.vmax:
        return shaped_like(node, x)
    return shaped_like(node, y) if y.vmin >= x.vmax else None


# ------------------------------------------------------------ less than
_AXIS_AND_NUMBER = {Ops.RANGE, Ops.CONST}


def simplify_less(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """r0*4 + r1 + 3 < 11 -> r0 < 2, where r1 < 4"""
    if {x.op, y.op} == _AXIS_AND_NUMBER:
        # as plain as it gets: bounds have not decided it
        return None
    difference = _difference(node, x, y)
    if difference is None:
        return None
    if poly.is_negative(difference):
        return constant_like(node, True)
    if poly.is_negative(_at_least_zero(difference)):
        return constant_like(node, False)
    if len(difference) > 2 and x.dtype is not dtypes.weakint:
        # multiplied out, a comparison of concrete ints may cost more than it did
        return None
    difference = _divide_common(difference)
    difference = _drop_small(difference)
    difference = _compare_dividend(difference)
    result = _less_than_zero(difference, node, x)
    return None if result is None or result is node else shaped_like(node, result)


def _difference(node: UOp, x: UOp, y: UOp) -> Polynomial | None:
    """x - y as integers, where nothing wraps."""
    if node.dtype.count > 1:
        return None
    left, right = poly.exact(x), poly.exact(y)
    if left is None or right is None:
        return None
    return poly.add(left, right, -1)


def _at_least_zero(difference: Polynomial) -> Polynomial:
    """What is negative exactly where the difference is not."""
    minus = {term: -coefficient for term, coefficient in difference.items()}
    return poly.add(minus, {(): 1}, -1)


def _divide_common(difference: Polynomial) -> Polynomial:
    """6*x + 4 < 0 -> x + 0 < 0: dividing by a positive number and rounding down keeps the sign"""
    common = gcd(*[coefficient for term, coefficient in difference.items() if term])
    if common < 2:
        return difference
    divided = {term: coefficient // common for term, coefficient in difference.items()}
    return {term: coefficient for term, coefficient in divided.items() if coefficient}


def _drop_small(difference: Polynomial) -> Polynomial:
    """r0*4 + r1 - 8 < 0 -> r0 - 2 < 0, where r1 < 4: rounding down hides r1"""
    for unit in sorted({abs(k) for term, k in difference.items() if term}, reverse=True):
        if unit < 2:
            continue
        low = {term: k for term, k in difference.items() if not term or k % unit}
        least, most = poly.bounds_of(low)
        if len(low) > (() in low) and least // unit == most // unit:
            high = {term: k // unit for term, k in difference.items() if term not in low}
            return poly.add(high, {(): least // unit})
    return difference


def _compare_dividend(difference: Polynomial) -> Polynomial:
    """x//4 - 3 < 0 -> x - 12 < 0,  3 - x//4 < 0 -> 15 - x < 0"""
    terms = [term for term in difference if term]
    if len(terms) != 1 or len(terms[0]) != 1 or abs(difference[terms[0]]) != 1:
        return difference
    atom, constant = terms[0][0], difference.get((), 0)
    if atom.op is not Ops.IDIV or atom.tag is not None or atom.src[1].op is not Ops.CONST:
        return difference
    base = atom.src[1].arg
    dividend = poly.exact(atom.src[0])
    if base <= 0 or dividend is None:
        return difference
    if difference[terms[0]] == 1:
        return poly.add(dividend, {(): constant * base})
    # -(x//base) + constant < 0  is  (constant + 1)*base <= x
    minus = {term: -coefficient for term, coefficient in dividend.items()}
    return poly.add(minus, {(): (constant + 1) * base - 1})


def _less_than_zero(difference: Polynomial, node: UOp, x: UOp) -> UOp | None:
    """P - N + k < 0 as P < N - k, or k < N without P"""
    left, right = _sides(difference)
    constant = difference.get((), 0)
    if left:
        right = poly.add(right, {(): -constant})
    else:
        left = {(): constant} if constant else {}
    return _comparison(Ops.CMPLT, left, right, node, x)


def _sides(difference: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The positive terms, and the negative ones with their sign turned; no constant."""
    left = {term: k for term, k in difference.items() if term and k > 0}
    right = {term: -k for term, k in difference.items() if term and k < 0}
    return left, right


def _comparison(op: Ops, left: Polynomial, right: Polynomial, node: UOp, x: UOp) -> UOp | None:
    for side in (left, right):
        low, high = poly.bounds_of(side)
        wraps = x.dtype is not dtypes.weakint and (low < x.dtype.min or high > x.dtype.max)
        if wraps or not poly.fits(side):
            return None
    return UOp(op, node.dtype, (poly.build(left, x.dtype), poly.build(right, x.dtype)))


def negate_less(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """not (x < y) -> y < x + 1, written without the addition where one side is a constant"""
    dtype = x.dtype
    if y.op is Ops.CONST:
        if dtype is not dtypes.weakint and y.arg == dtype.min:
            return constant_like(node, True)
        return UOp(Ops.CMPLT, node.dtype, (UOp.const(dtype, y.arg - 1), x))
    if x.op is Ops.CONST:
        if dtype is not dtypes.weakint and x.arg == dtype.max:
            return constant_like(node, True)
        return UOp(Ops.CMPLT, node.dtype, (y, UOp.const(dtype, x.arg + 1)))
    if dtype is not dtypes.weakint:
        return None
    return UOp(Ops.CMPLT, node.dtype, (y, UOp(Ops.ADD, dtype, (x, UOp.const(dtype, 1)))))


# ------------------------------------------------------------ equality
def simplify_equal(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """r0*2 + 4 == 10 -> r0 == 3,  r0*2 == 5 -> False,  r0 + 7 == r1 -> False, where r1 < 7"""
    difference = _difference(node, x, y)
    if difference is None:
        return None
    minus = {term: -coefficient for term, coefficient in difference.items()}
    constant = difference.get((), 0)
    common = gcd(*[coefficient for term, coefficient in difference.items() if term])
    never = poly.is_negative(difference) or poly.is_negative(minus)
    if never or (common == 0 and constant) or (common and constant % common):
        return constant_like(node, node.op is Ops.CMPNE)
    if common == 0:
        return constant_like(node, node.op is Ops.CMPEQ)
    if len(difference) > 2 and x.dtype is not dtypes.weakint:
        return None
    divided = {term: coefficient // common for term, coefficient in difference.items()}
    left, right = _sides(divided)
    if not left:
        left, right, constant = right, left, -constant
    right = poly.add(right, {(): -constant // common})
    result = _comparison(node.op, left, right, node, x)
    if result is None or result.src == (y, x):
        return None
    return None if result is node else shaped_like(node, result)


def equal_after_constant(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    """x + 3 == 5 -> x == 2: right for wrapping ints as well"""
    return UOp(node.op, node.dtype, (x, UOp.const(x.dtype, d.arg - c.arg)))


# ------------------------------------------------------------ several conditions on one expression
@dataclass(frozen=True)
class Interval:
    """low <= value <= high, ends included; an open end is infinite."""

    value: UOp
    low: float
    high: float


def interval_of(clause: UOp) -> Interval | None:
    """What a comparison with a constant says about its other side."""
    if clause.op not in (Ops.CMPLT, Ops.CMPEQ):
        return None
    x, y = clause.src
    if x.dtype.count > 1 or not dtypes.is_int(x.dtype):
        return None
    if y.op is Ops.CONST:
        if clause.op is Ops.CMPEQ:
            return Interval(x, y.arg, y.arg)
        return Interval(x, -inf, y.arg - 1)
    if x.op is Ops.CONST and clause.op is Ops.CMPLT:
        return Interval(y, x.arg + 1, inf)
    return None


def intervals_of(condition: UOp) -> dict[UOp, Interval]:
    """What all clauses of a condition together say, by expression."""
    found: dict[UOp, Interval] = {}
    for clause in clauses(condition):
        part = interval_of(clause)
        if part is None:
            continue
        old = found.get(part.value, part)
        low, high = max(part.low, old.low), min(part.high, old.high)
        found[part.value] = Interval(part.value, low, high)
    return found


def _excluded(clause: UOp) -> bool:
    return clause.op is Ops.CMPNE and clause.src[1].op is Ops.CONST


def merge_conjunction(node: UOp) -> UOp | None:
    """x < 5 & x < 3 -> x < 3,  1 < x & x < 3 -> x == 2

    x < 2 & 4 < x -> False,  a & not a -> False
    """
    parts = clauses(node)
    if len(parts) > _CLAUSES_AT_MOST or node.dtype.count > 1:
        return None
    if _has_contradiction(parts):
        return constant_like(node, False)
    found = intervals_of(node)
    if len(found) == len(parts):
        return None
    kept: dict[UOp, None] = {}
    for part in parts:
        own = interval_of(part)
        if own is None:
            excluded = found.get(part.src[0]) if _excluded(part) else None
            if excluded is None:
                kept[part] = None
                continue
            number = part.src[1].arg
            if excluded.low <= number <= excluded.high:
                if excluded.low == excluded.high:
                    return constant_like(node, False)
                kept[part] = None
            continue
        whole = found[own.value]
        if whole.low > whole.high:
            return constant_like(node, False)
        for clause in _write_interval(whole):
            kept[clause] = None
    if len(kept) >= len(parts):
        return None
    return shaped_like(node, _chain(Ops.AND, list(kept)))


def _write_interval(interval: Interval) -> list[UOp]:
    value, low, high = interval.value, interval.low, interval.high
    boolean = dtypes.bool
    if low == high:
        return [UOp(Ops.CMPEQ, boolean, (value, UOp.const(value.dtype, int(low))))]
    found = []
    if low != -inf:
        found.append(UOp(Ops.CMPLT, boolean, (UOp.const(value.dtype, int(low) - 1), value)))
    if high != inf:
        found.append(UOp(Ops.CMPLT, boolean, (value, UOp.const(value.dtype, int(high) + 1))))
    return found


def _chain(op: Ops, parts: list[UOp]) -> UOp:
    total = parts[0]
    for part in parts[1:]:
        total = UOp(op, total.dtype, (total, part))
    return total


def _has_contradiction(parts: list[UOp]) -> bool:
    """Whether a condition and its opposite are both among the parts."""
    present = set(parts)
    for part in parts:
        if part.op not in (Ops.CMPEQ, Ops.CMPNE):
            continue
        x, y = part.src
        if y.op is Ops.CONST and y.dtype.kind == "bool" and not y.arg and part.op is Ops.CMPEQ:
            if x in present:
                return True
        other = Ops.CMPNE if part.op is Ops.CMPEQ else Ops.CMPEQ
        if UOp(other, part.dtype, part.src) in present:
            return True
    return False


def merge_disjunction(node: UOp) -> UOp | None:
    """x < 5 | x < 3 -> x < 5,  x < 5 | 2 < x -> True,  a | not a -> True"""
    parts = clauses(node, Ops.OR)
    if len(parts) > _CLAUSES_AT_MOST or node.dtype.count > 1:
        return None
    if _has_contradiction(parts):
        return constant_like(node, True)
    below: dict[UOp, float] = {}
    above: dict[UOp, float] = {}
    for part in parts:
        own = interval_of(part)
        if own is None or part.op is not Ops.CMPLT:
            continue
        if own.low == -inf:
            below[own.value] = max(below.get(own.value, -inf), own.high)
        else:
            above[own.value] = min(above.get(own.value, inf), own.low)
    for value, low in above.items():
        if below.get(value, -inf) >= low - 1:
            return constant_like(node, True)
    kept: dict[UOp, None] = {}
    for part in parts:
        own = interval_of(part)
        if own is not None and part.op is Ops.CMPLT:
            weaker = own.high < below[own.value] if own.low == -inf else own.low > above[own.value]
            if weaker:
                continue
        kept[part] = None
    if len(kept) == len(parts):
        return None
    return shaped_like(node, _chain(Ops.OR, list(kept)))


_x, _y = UPat.var("x", INTS), UPat.var("y", INTS)
_decidable = GroupOp.Comparison | {Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.SHR, Ops.SHL}

compare = PatternMatcher(
    [
        (UPat(_decidable, INTS_AND_BOOL, name="node"), fold_decided),
        (UPat(Ops.MAX, INTS, src=(_x, _y), name="node"), choose_maximum),
        (UPat(Ops.CMPLT, src=(_x, _y), name="node"), simplify_less),
        (
            UPat(
                Ops.CMPEQ,
                src=(UPat(Ops.CMPLT, src=(_x, _y)), UPat.const(dtypes.bool, False)),
                name="node",
            ),
            negate_less,
        ),
        (
            UPat(
                (Ops.CMPEQ, Ops.CMPNE),
                src=(UPat(Ops.ADD, dtypes.ints, src=(_x, UPat.cvar("c"))), UPat.cvar("d")),
                name="node",
            ),
            equal_after_constant,
        ),
        (UPat((Ops.CMPEQ, Ops.CMPNE), src=(_x, _y), name="node"), simplify_equal),
        (UPat(Ops.AND, dtypes.bool, name="node"), merge_conjunction),
        (UPat(Ops.OR, dtypes.bool, name="node"), merge_disjunction),
    ]
)
