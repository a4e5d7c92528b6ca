"""Integer expressions as polynomials: what the rules on sums, divisions and comparisons think in.

What comes in: an int expression. What goes out: {monomial: coefficient}, where a monomial is the
sorted tuple of its factors and the empty one is the constant; and expressions made from them.
Where it sits: below the rule files algebra, divmod, compare and validity.
The one invariant: the polynomial equals the expression modulo 2**width of its dtype; `exact` gives
only polynomials that equal it as plain integers, which is what division and order need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

Monomial: TypeAlias = tuple[UOp, ...]
Polynomial: TypeAlias = dict[Monomial, int]

_WORD = 1 << 63
# products of sums are multiplied out; beyond this many terms they are not worth it
_TERMS_AT_MOST = 2048


# ------------------------------------------------------------ order
def order_key(atom: UOp) -> tuple[Any, ...]:
    """A total order that is the same in every process: loop-invariant first, then outer axes."""
    op = atom.op
    if op is Ops.RANGE:
        return atom.arg.number, "", b""
    if op is Ops.VARIABLE:
        return (), atom.arg.name, b""
    innermost = max([axis.arg.number for axis in atom.ranges], default=())
    if op is Ops.SPECIAL and atom.arg[0] == "place":
        # stand-ins for run-time indices, in the order in which the schedule met them
        return innermost, op.name, b"%09d %09d " % atom.arg[1:] + atom.key
    return innermost, op.name, atom.key


def monomial(factors: Iterable[UOp]) -> Monomial:
    """The product of some atoms, in their order."""
    listed = tuple(factors)
    return listed if len(listed) < 2 else tuple(sorted(listed, key=order_key))


def monomial_key(term: Monomial) -> tuple[Any, ...]:
    """Orders the terms of a sum."""
    if len(term) == 1:
        key = order_key(term[0])
        return key[0], 1, key
    keys = [order_key(atom) for atom in term]
    return max([key[0] for key in keys], default=()), len(term), *keys


# ------------------------------------------------------------ reading
def polynomial(node: UOp) -> Polynomial:
    """The node multiplied out. What is no sum, product or constant is an atom."""
    found: Polynomial = {}
    stack: list[tuple[UOp, int, tuple[UOp, ...]]] = [(node, 1, ())]
    while stack:
        part, coefficient, factors = stack.pop()
        op = part.op
        if op is Ops.ADD:
            if len(found) + len(stack) > _TERMS_AT_MOST:
                return {(node,): 1}
            stack.append((part.src[1], coefficient, factors))
            stack.append((part.src[0], coefficient, factors))
        elif op is Ops.NEG:
            stack.append((part.src[0], -coefficient, factors))
        elif op is Ops.CONST:
            _finish(part.arg * coefficient, factors, found, stack)
        elif op is Ops.MUL:
            first, second = part.src
            if second.op is Ops.CONST:
                stack.append((first, coefficient * second.arg, factors))
            else:
                stack.append((first, coefficient, (*factors, second)))
        else:
            _finish(coefficient, (*factors, part), found, stack)
    return {term: coefficient for term, coefficient in found.items() if coefficient}


def _finish(
    coefficient: int,
    factors: tuple[UOp, ...],
    found: Polynomial,
    stack: list[tuple[UOp, int, tuple[UOp, ...]]],
) -> None:
    """A product whose left spine is read: goes to `found`, or back where a factor is no atom."""
    for place, factor in enumerate(factors):
        if factor.op in NOT_ATOMS:
            stack.append((factor, coefficient, factors[:place] + factors[place + 1 :]))
            return
    term = monomial(factors)
    found[term] = found.get(term, 0) + coefficient


NOT_ATOMS = frozenset({Ops.ADD, Ops.MUL, Ops.NEG, Ops.CONST})


def exact(node: UOp) -> Polynomial | None:
    """The polynomial if it equals the node as plain integers: wherever nothing wraps."""
    dtype = node.dtype
    if dtype is dtypes.weakint:
        return polynomial(node)
    if not dtypes.is_int(dtype) or dtype.count > 1:
        return None
    found = polynomial(node)
    low, high = bounds_of(found)
    # equal modulo 2**width, and both in the dtype's range
    return found if dtype.min <= low and high <= dtype.max else None


# ------------------------------------------------------------ arithmetic
def add(left: Polynomial, right: Polynomial, scale: int = 1) -> Polynomial:
    """left + scale * right."""
    total = dict(left)
    for term, coefficient in right.items():
        value = total.get(term, 0) + scale * coefficient
        if value:
            total[term] = value
        else:
            total.pop(term, None)
    return total


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """left * right."""
    total: Polynomial = {}
    for term, coefficient in left.items():
        for other, factor in right.items():
            product = monomial(term + other)
            total[product] = total.get(product, 0) + coefficient * factor
    return {term: coefficient for term, coefficient in total.items() if coefficient}


def without(term: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by another, or None where it does not divide."""
    if not factors:
        return term
    rest = list(term)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


# ------------------------------------------------------------ bounds
def monomial_bounds(term: Monomial) -> tuple[int, int]:
    """The interval of a product."""
    low = high = 1
    for atom in term:
        least, most = atom._min_max
        corners = (low * least, low * most, high * least, high * most)
        low, high = min(corners), max(corners)
    return low, high


def bounds_of(poly: Polynomial) -> tuple[int, int]:
    """The interval of a sum, its terms taken as independent."""
    low = high = 0
    for term, coefficient in poly.items():
        least, most = monomial_bounds(term)
        if coefficient > 0:
            low, high = low + coefficient * least, high + coefficient * most
        else:
            low, high = low + coefficient * most, high + coefficient * least
    return low, high


def at_extreme(poly: Polynomial, upper: bool) -> Polynomial:
    """A bound of the polynomial in which axes are replaced by their first or last value.

    r0*n + r1, with r0 < 4 and r1 < n  ->  4*n - 1 as the upper one. Only an axis whose co-factors
    cannot be negative is replaced, so the result bounds the polynomial for all values of the rest.
    """
    result: Polynomial = {}
    for term, coefficient in poly.items():
        product: Polynomial = {(): coefficient}
        for place, atom in enumerate(term):
            others = term[:place] + term[place + 1 :]
            if atom.op is not Ops.RANGE or any(other._min_max[0] < 0 for other in others):
                product = multiply(product, {(atom,): 1})
            elif (coefficient > 0) == upper:
                product = multiply(product, add(polynomial(atom.src[0]), {(): 1}, -1))
            else:
                product = {}
        result = add(result, product)
    return result


def is_negative(poly: Polynomial) -> bool:
    """Whether it is provably below 0."""
    if bounds_of(poly)[1] < 0:
        return True
    return has_symbolic_axis(poly) and bounds_of(at_extreme(poly, True))[1] < 0


def has_symbolic_axis(poly: Polynomial) -> bool:
    """Whether an axis of unknown size is in it: only then `at_extreme` says more than bounds."""
    return any(
        atom.op is Ops.RANGE and atom.src[0].op is not Ops.CONST for term in poly for atom in term
    )


def is_below(poly: Polynomial, limit: Polynomial) -> bool:
    """Whether 0 <= poly < limit, provably."""
    minus = {term: -coefficient for term, coefficient in poly.items()}
    return is_negative(add(minus, {(): 1}, -1)) and is_negative(add(poly, limit, -1))


# ------------------------------------------------------------ writing
def fits(poly: Polynomial) -> bool:
    """Whether its numbers can be constants."""
    return all(-_WORD <= coefficient < _WORD for coefficient in poly.values())


def build(poly: Polynomial, dtype: DType) -> UOp:
    """The expression: terms in their order, the constant last."""
    ordered = [term for term in poly if term]
    if len(ordered) > 1:
        ordered.sort(key=monomial_key)
    total: UOp | None = None
    for term in ordered:
        part = build_term(term, poly[term], dtype)
        total = part if total is None else UOp(Ops.ADD, dtype, (total, part))
    constant = poly.get((), 0)
    if total is None:
        return UOp.const(dtype, constant)
    if constant:
        total = UOp(Ops.ADD, dtype, (total, UOp.const(dtype, constant)))
    return total


def build_term(term: Monomial, coefficient: int, dtype: DType) -> UOp:
    """One term of a sum."""
    product = term[0]
    for atom in term[1:]:
        product = UOp(Ops.MUL, dtype, (product, atom))
    if coefficient == 1:
        return product
    if coefficient == -1:
        return UOp(Ops.NEG, dtype, (product,))
    return UOp(Ops.MUL, dtype, (product, UOp.const(dtype, coefficient)))
