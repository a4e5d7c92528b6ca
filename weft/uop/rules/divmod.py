"""Floor division and modulo of ints: the arithmetic that reshapes leave behind.

What comes in: IDIV and MOD with a positive divisor, constant or symbolic. What goes out: the digits
themselves where bounds prove them, else a smaller division.
Where it sits: after `algebra`, whose polynomials it divides.
The one invariant: floor semantics (as Python's), and only where the dividend is exact: for a
concrete dtype every rule asks that nothing wraps, and so may not use "equal modulo 2**width".
"""

from __future__ import annotations

from math import gcd

from weft.dtype import dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.rules import polynomial as poly
from weft.uop.rules.polynomial import Monomial, Polynomial
from weft.uop.rules.shaped import INTS, constant_like, shaped_like


def simplify_division(node: UOp) -> UOp | None:
    """(r0*12 + r1*4 + r2) // 12 -> r0, where r1 < 3 and r2 < 4"""
    x, divisor = node.src
    if node.tag is not None or node.dtype.count > 1:
        return None
    if divisor.vmin <= 0:
        return _flip_divisor(node)
    found = node._min_max
    if found[0] == found[1]:
        return constant_like(node, found[0])
    if x is divisor:
        return constant_like(node, 1)
    dividend, by = poly.exact(x), poly.exact(divisor)
    if dividend is None or by is None:
        return _merge_divisions(node, {(x,): 1})
    result = _divide(node, dividend, by)
    if result is None or result is node:
        return None
    return shaped_like(node, result)


def simplify_modulo(node: UOp) -> UOp | None:
    """(r0*12 + r1*4 + r2) % 12 -> r1*4 + r2, where r1 < 3 and r2 < 4"""
    x, divisor = node.src
    if node.tag is not None or node.dtype.count > 1:
        return None
    if divisor.vmin <= 0:
        return _flip_divisor(node)
    if 0 <= x.vmin and x.vmax < divisor.vmin:
        return shaped_like(node, x)
    found = node._min_max
    if found[0] == found[1]:
        return constant_like(node, found[0])
    dividend, by = poly.exact(x), poly.exact(divisor)
    if dividend is None or by is None:
        return None
    result = _modulo(node, dividend, by)
    if result is None or result is node:
        return None
    return shaped_like(node, result)


def _flip_divisor(node: UOp) -> UOp | None:
    """x // -3 -> (-x) // 3,  x % -3 -> -((-x) % 3)"""
    x, divisor = node.src
    if node.dtype is not dtypes.weakint or divisor.op is not Ops.CONST or divisor.arg >= 0:
        return None
    minus = UOp(Ops.NEG, x.dtype, (x,))
    flipped = UOp(node.op, node.dtype, (minus, UOp.const(divisor.dtype, -divisor.arg)))
    return flipped if node.op is Ops.IDIV else UOp(Ops.NEG, node.dtype, (flipped,))


# ------------------------------------------------------------ division
def _divide(node: UOp, dividend: Polynomial, by: Polynomial) -> UOp | None:
    if len(by) != 1:
        return _divide_by_sum(node, dividend, by)
    factors, size = next(iter(by.items()))
    quotient, rest = _split(dividend, factors, size)
    if not factors:
        rest, carry = _shift_into(rest, size)
        if poly.bounds_of(rest)[1] < size:
            return _sum(node, poly.add(quotient, {(): carry}))
        rest, carry = _least_constant(poly.add(rest, {(): carry * size}), size)
        quotient = poly.add(quotient, {(): carry})
    elif poly.is_below(rest, by):
        return _sum(node, quotient)
    if quotient:
        return _quotient_plus_division(node, quotient, rest)
    smaller = _divide_common(node, rest, factors, size)
    return smaller if smaller is not None else _merge_divisions(node, rest)


def _split(dividend: Polynomial, factors: Monomial, size: int) -> tuple[Polynomial, Polynomial]:
    """dividend = quotient * (size * factors) + rest, term by term."""
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for term, coefficient in dividend.items():
        remaining = poly.without(term, factors) if coefficient % size == 0 else None
        if remaining is None or not (term or factors):
            rest[term] = coefficient
        else:
            quotient[remaining] = coefficient // size
    return quotient, rest


def _shift_into(rest: Polynomial, size: int) -> tuple[Polynomial, int]:
    """rest = (another rest that starts in [0, size)) + carry * size."""
    carry = poly.bounds_of(rest)[0] // size
    return poly.add(rest, {(): carry}, -size), carry


def _least_constant(rest: Polynomial, size: int) -> tuple[Polynomial, int]:
    """rest = (the same with a constant in [0, size)) + carry * size."""
    carry = rest.get((), 0) // size
    return poly.add(rest, {(): carry}, -size), carry


def _quotient_plus_division(node: UOp, quotient: Polynomial, rest: Polynomial) -> UOp | None:
    """(x*8 + y) // 4 -> x*2 + y//4"""
    left, inner = _sum(node, quotient), _sum(node, rest)
    if left is None or inner is None:
        return None
    division = UOp(Ops.IDIV, node.dtype, (inner, node.src[1]))
    return UOp(Ops.ADD, node.dtype, (left, division))


def _divide_by_sum(node: UOp, dividend: Polynomial, by: Polynomial) -> UOp | None:
    """(r0*(n+1) + r1) // (n+1) -> r0, where r1 < n+1"""
    quotient, rest = _divide_leading(dividend, by)
    return _sum(node, quotient) if poly.is_below(rest, by) else None


def _divide_leading(dividend: Polynomial, by: Polynomial) -> tuple[Polynomial, Polynomial]:
    """One step of long division by the leading term of `by`."""
    factors = max(by, key=lambda term: (len(term), poly.monomial_key(term)))
    quotient, _ = _split(dividend, factors, by[factors])
    return quotient, poly.add(dividend, poly.multiply(quotient, by), -1)


def _divide_common(node: UOp, dividend: Polynomial, factors: Monomial, size: int) -> UOp | None:
    """(r0*12 + r1*4 + r2) // 8 -> (r0*3 + r1) // 2, where r2 < 4"""
    for common, unit in _common_parts(dividend, factors, size):
        high, low = _split_at(dividend, common, unit)
        if not poly.is_below(low, {common: unit}):
            continue
        remaining = poly.without(factors, common)
        inner = _sum(node, high)
        divisor = _sum(node, {remaining: size // unit}) if remaining is not None else None
        if inner is None or divisor is None:
            return None
        return UOp(Ops.IDIV, node.dtype, (inner, divisor))
    return None


def _common_parts(dividend: Polynomial, factors: Monomial, size: int) -> list[tuple[Monomial, int]]:
    """What the divisor has in common with single terms of the dividend, the largest first."""
    found: dict[tuple[Monomial, int], None] = {}
    for term, coefficient in dividend.items():
        if not term:
            continue
        shared = tuple([factor for factor in factors if factor in term])
        unit = gcd(coefficient, size)
        if (shared or unit > 1) and (shared, unit) != (factors, size):
            found[shared, unit] = None
    return sorted(found, key=lambda part: (len(part[0]), part[1]), reverse=True)


def _split_at(dividend: Polynomial, common: Monomial, unit: int) -> tuple[Polynomial, Polynomial]:
    """dividend = high * (unit * common) + low, with low starting in [0, unit) where it can."""
    high, low = _split(dividend, common, unit)
    if common:
        return high, low
    low, carry = _shift_into(low, unit)
    return poly.add(high, {(): carry}), low


def _merge_divisions(node: UOp, dividend: Polynomial) -> UOp | None:
    """(x//3 + 2) // 4 -> (x + 6) // 12,  (x % 12) // 4 -> (x // 4) % 3"""
    divisor = node.src[1]
    atoms = [term for term in dividend if term]
    if divisor.op is not Ops.CONST or len(atoms) != 1 or len(atoms[0]) != 1:
        return None
    atom, constant = atoms[0][0], dividend.get((), 0)
    if dividend[atoms[0]] != 1 or atom.tag is not None or atom.dtype is not node.dtype:
        return None
    if atom.op not in (Ops.IDIV, Ops.MOD) or atom.src[1].op is not Ops.CONST:
        return None
    x, inner = atom.src[0], atom.src[1].arg
    if inner <= 0:
        return None
    if atom.op is Ops.IDIV:
        return _join_divisions(node, x, inner, divisor.arg, constant)
    if constant or inner % divisor.arg:
        return None
    digit = UOp(Ops.IDIV, node.dtype, (x, divisor))
    return UOp(Ops.MOD, node.dtype, (digit, UOp.const(node.dtype, inner // divisor.arg)))


def _join_divisions(node: UOp, x: UOp, inner: int, outer: int, constant: int) -> UOp | None:
    both, offset = inner * outer, constant * inner
    if max(both, abs(offset)) > node.dtype.max:
        return None
    if offset:
        if node.dtype is not dtypes.weakint:
            return None
        x = UOp(Ops.ADD, x.dtype, (x, UOp.const(x.dtype, offset)))
    return UOp(Ops.IDIV, node.dtype, (x, UOp.const(node.dtype, both)))


# ------------------------------------------------------------ modulo
def _modulo(node: UOp, dividend: Polynomial, by: Polynomial) -> UOp | None:
    if len(by) != 1:
        _, rest = _divide_leading(dividend, by)
        return _sum(node, rest) if poly.is_below(rest, by) else None
    factors, size = next(iter(by.items()))
    dividend = _drop_inner_modulo(dividend, factors, size)
    _, rest = _split(dividend, factors, size)
    if not factors:
        rest = {term: _smaller(k, size) if term else k for term, k in rest.items()}
        rest = {term: k for term, k in rest.items() if k}
        shifted, _ = _shift_into(rest, size)
        if poly.bounds_of(shifted)[1] < size:
            return _sum(node, shifted)
        rest, _ = _least_constant(rest, size)
    elif poly.is_below(rest, by):
        return _sum(node, rest)
    common = _modulo_common(node, rest, factors, size)
    if common is not None:
        return common
    inner = _sum(node, rest)
    return None if inner is None else UOp(Ops.MOD, node.dtype, (inner, node.src[1]))


def _smaller(coefficient: int, size: int) -> int:
    """The coefficient modulo size; small negative ones stay, for `11 - r` is better than `r*11`."""
    return coefficient % size if coefficient >= 0 else -(-coefficient % size)


def _drop_inner_modulo(dividend: Polynomial, factors: Monomial, size: int) -> Polynomial:
    """(x % 12 + y) % 4 -> (x + y) % 4: only what is left over by 4 counts"""
    if factors:
        return dividend
    result = dividend
    for term, coefficient in dividend.items():
        for place, atom in enumerate(term):
            if atom.op is not Ops.MOD or atom.tag is not None or atom.src[1].op is not Ops.CONST:
                continue
            if atom.src[1].arg <= 0 or (coefficient * atom.src[1].arg) % size:
                continue
            value = poly.exact(atom.src[0])
            if value is None:
                continue
            rest = term[:place] + term[place + 1 :]
            result = poly.add(result, {term: coefficient}, -1)
            result = poly.add(result, poly.multiply({rest: coefficient}, value))
            break
    return result


def _modulo_common(node: UOp, dividend: Polynomial, factors: Monomial, size: int) -> UOp | None:
    """(r0*4 + r1) % 12 -> (r0 % 3)*4 + r1, where r1 < 4"""
    for common, unit in _common_parts(dividend, factors, size):
        high, low = _split_at(dividend, common, unit)
        if not poly.is_below(low, {common: unit}):
            continue
        remaining = poly.without(factors, common)
        if remaining is None:
            continue
        inner, divisor = _sum(node, high), _sum(node, {remaining: size // unit})
        scale, right = _sum(node, {common: unit}), _sum(node, low)
        if inner is None or divisor is None or scale is None or right is None:
            return None
        digit = UOp(Ops.MOD, node.dtype, (inner, divisor))
        scaled = UOp(Ops.MUL, node.dtype, (digit, scale))
        return UOp(Ops.ADD, node.dtype, (scaled, right))
    return None


def _sum(node: UOp, terms: Polynomial) -> UOp | None:
    """The polynomial as an expression, if the dtype holds it."""
    if not poly.fits(terms):
        return None
    if node.dtype is not dtypes.weakint:
        low, high = poly.bounds_of(terms)
        if low < node.dtype.min or high > node.dtype.max:
            return None
    return poly.build(terms, node.dtype)


# ------------------------------------------------------------ bit forms of index expressions
def shift_to_division(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x >> 3 -> x // 8"""
    if node.tag is not None or not 0 <= c.arg < 63:
        return None
    return UOp(Ops.IDIV, node.dtype, (x, UOp.const(node.dtype, 1 << c.arg)))


def mask_to_modulo(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x & 7 -> x % 8, for negative x as well"""
    if c.arg <= 0 or c.arg & (c.arg + 1) or c.arg == dtypes.int64.max:
        return None
    return UOp(Ops.MOD, node.dtype, (x, UOp.const(node.dtype, c.arg + 1)))


_x, _c = UPat.var("x"), UPat.cvar("c")

divmod = PatternMatcher(
    [
        (UPat(Ops.SHR, dtypes.weakint, src=(_x, _c), name="node"), shift_to_division),
        (UPat(Ops.AND, dtypes.weakint, src=(_x, _c), name="node"), mask_to_modulo),
        (UPat(Ops.IDIV, INTS, name="node"), simplify_division),
        (UPat(Ops.MOD, INTS, name="node"), simplify_modulo),
    ]
)
