"""Sums and products of ints in one canonical form.

What comes in: ADD, MUL, NEG, SHL of ints. What goes out: index expressions (weakint) multiplied
out, like terms combined, terms in order, the constant last; concrete ints only with like terms
and constants combined, since multiplying out would cost instructions there.
Where it sits: after `fold`; divmod and compare rely on the form.
The one invariant: equality modulo 2**width, which is all that wrapping ints and weakint need.
"""

from __future__ import annotations

from weft.dtype import dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.rules import polynomial as poly
from weft.uop.rules.polynomial import Monomial, Polynomial
from weft.uop.rules.shaped import constant_like, shaped_like

# how far back in a chain of additions a like term is looked for
_LOOK_BACK = 32


# ------------------------------------------------------------ index expressions
def normalise_sum(node: UOp) -> UOp | None:
    """(r1 + r0*3)*4 + 2 + r1 -> r0*12 + r1*5 + 2"""
    if node.dtype.count > 1 or _is_in_order(node):
        return None
    moved = _move_constant(node)
    if moved is not None:
        return shaped_like(node, moved)
    terms = poly.polynomial(node)
    terms = merge_digits(terms)
    if not poly.fits(terms):
        return None
    result = poly.build(terms, node.dtype)
    return None if result is node else shaped_like(node, result)


def _is_in_order(node: UOp) -> bool:
    """Whether a look at the end is enough: sources are in canonical form, and one term was added.

    Most sums grow like that, and reading long ones again and again would be quadratic.
    """
    if node.op is not Ops.ADD:
        return _plain_term(node) is not None
    before, last = node.src
    if before.op is Ops.ADD:
        before = before.src[1]
    if before.op is Ops.CONST or last.op is Ops.ADD:
        return False
    if last.op is Ops.CONST:
        return last.arg != 0 and before.op is not Ops.ADD
    previous, own = _plain_term(before), _plain_term(last)
    if previous is None or own is None or own.op in _DIGITS:
        return False
    return poly.monomial_key((previous,)) < poly.monomial_key((own,))


def _move_constant(node: UOp) -> UOp | None:
    """(x + 2) + 3 -> x + 5 and (x + 2) + y -> (x + y) + 2, where the order of x + y is right.

    What the copies of an index ask for: written here, it need not be multiplied out again.
    """
    if node.op is not Ops.ADD or node.src[0].op is not Ops.ADD:
        return None
    (rest, constant), last = node.src[0].src, node.src[1]
    if constant.op is not Ops.CONST or rest.op is Ops.CONST:
        return None
    if last.op is not Ops.CONST:
        moved = UOp(Ops.ADD, node.dtype, (rest, last))
        return UOp(Ops.ADD, node.dtype, (moved, constant)) if _is_in_order(moved) else None
    total = constant.arg + last.arg
    if not poly.fits({(): total}):
        return None
    return UOp(Ops.ADD, node.dtype, (rest, UOp.const(node.dtype, total))) if total else rest


_DIGITS = frozenset({Ops.IDIV, Ops.MOD})


def _plain_term(node: UOp) -> UOp | None:
    """The atom of a canonical term with one atom: x, x*3 or -x."""
    if node.op is Ops.MUL:
        if node.src[1].op is not Ops.CONST or node.src[1].arg in (-1, 0, 1):
            return None
        node = node.src[0]
    elif node.op is Ops.NEG:
        node = node.src[0]
    return None if node.op in poly.NOT_ATOMS else node


def merge_digits(terms: Polynomial) -> Polynomial:
    """(x//4)*4 + x%4 -> x,  (x//4%3)*4 + x%4 -> x%12,  x - (x//4)*4 -> x%4"""
    while True:
        for term, coefficient in terms.items():
            merged = _merge_digit(terms, term, coefficient)
            if merged is not None:
                terms = merged
                break
        else:
            return terms


def _merge_digit(terms: Polynomial, term: Monomial, coefficient: int) -> Polynomial | None:
    for place, atom in enumerate(term):
        if atom.op not in _DIGITS or atom.tag is not None or atom.src[1].vmin <= 0:
            continue
        rest = term[:place] + term[place + 1 :]
        merge = _merge_remainder if atom.op is Ops.MOD else _merge_quotient
        merged = merge(terms, term, coefficient, atom, rest)
        if merged is not None:
            return merged
    return None


def _merge_remainder(
    terms: Polynomial, term: Monomial, coefficient: int, atom: UOp, rest: Monomial
) -> Polynomial | None:
    """The term is coefficient * rest * (x % base): looks for its higher digits."""
    x, base = atom.src
    factors = _only_term(base)
    if factors is None:
        return None
    weight = coefficient * factors[1]
    for other, found in terms.items():
        if found != weight:
            continue
        for digit in other:
            if digit.op not in _DIGITS or digit.tag is not None:
                continue
            if other != poly.monomial((*rest, *factors[0], digit)):
                continue
            whole = _whole(x, base, digit)
            if whole is not None:
                value = poly.multiply({rest: coefficient}, whole)
                return poly.add(_without(terms, term, other), value)
    return None


def _whole(x: UOp, base: UOp, digit: UOp) -> Polynomial | None:
    """digit * base + x % base, where that is simpler: x, or x % (base * size)."""
    if digit.op is Ops.IDIV:
        dividend = _dividend(x, base, digit)
        return None if dividend is None else poly.polynomial(dividend)
    dividend = _dividend(x, base, digit.src[0])
    size = digit.src[1]
    both = poly.multiply(poly.polynomial(base), poly.polynomial(size))
    if dividend is None or size.vmin <= 0 or not poly.fits(both):
        return None
    return {(UOp(Ops.MOD, x.dtype, (dividend, poly.build(both, base.dtype))),): 1}


def _dividend(x: UOp, base: UOp, quotient: UOp) -> UOp | None:
    """The number whose quotient by `base` this is and whose remainder is that of x."""
    if quotient is _quotient(x, base):
        return x
    if quotient.op is not Ops.IDIV or quotient.tag is not None or quotient.src[1] is not base:
        return None
    if base.op is not Ops.CONST:
        return None
    # (x*3 + y) % 2 was simplified to (x + y) % 2, its quotient was not
    difference = poly.add(poly.polynomial(quotient.src[0]), poly.polynomial(x), -1)
    same = all(coefficient % base.arg == 0 for coefficient in difference.values())
    return quotient.src[0] if same else None


def _merge_quotient(
    terms: Polynomial, term: Monomial, coefficient: int, atom: UOp, rest: Monomial
) -> Polynomial | None:
    """The term is coefficient * rest * (x // base): looks for the x it is taken from."""
    x, base = atom.src
    factors = _only_term(base)
    if factors is None or coefficient % factors[1]:
        return None
    remaining = poly.without(rest, factors[0])
    if remaining is None:
        return None
    whole = poly.monomial((*remaining, x))
    scale = -coefficient // factors[1]
    if terms.get(whole) != scale:
        return None
    value = {poly.monomial((*remaining, UOp(Ops.MOD, atom.dtype, (x, base)))): scale}
    return poly.add(_without(terms, term, whole), value)


def _only_term(node: UOp) -> tuple[Monomial, int] | None:
    found = poly.polynomial(node)
    return next(iter(found.items())) if len(found) == 1 else None


def _quotient(x: UOp, base: UOp) -> UOp:
    """x // base in the form that the division rules give it."""
    if x.op is Ops.IDIV and x.tag is None and x.src[1].op is Ops.CONST and base.op is Ops.CONST:
        return UOp(Ops.IDIV, x.dtype, (x.src[0], x.src[1].const_like(x.src[1].arg * base.arg)))
    return UOp(Ops.IDIV, x.dtype, (x, base))


def _without(terms: Polynomial, *removed: Monomial) -> Polynomial:
    return {term: coefficient for term, coefficient in terms.items() if term not in removed}


def shift_to_product(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x << 3 -> x * 8, so that addresses are sums and products only"""
    if node.tag is not None or not 0 <= c.arg < 63:
        return None
    return UOp(Ops.MUL, node.dtype, (x, UOp.const(node.dtype, 1 << c.arg)))


# ------------------------------------------------------------ concrete ints
def combine_terms(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """x*2 + a + x*3 -> x*5 + a,  x + a + -x -> a; looks back only so far, chains may be long"""
    if node.dtype.count > 1 or y.op is Ops.CONST:
        return None
    atom, coefficient = _scaled(y)
    passed: list[UOp] = []
    chain = x
    for _ in range(_LOOK_BACK):
        part = chain.src[1] if chain.op is Ops.ADD else chain
        other, factor = _scaled(part)
        if other is atom:
            return _combined(node, chain, passed, atom, coefficient + factor)
        if chain.op is not Ops.ADD:
            return None
        passed.append(part)
        chain = chain.src[0]
    return None


def _scaled(part: UOp) -> tuple[UOp, int]:
    """A term as atom and coefficient."""
    if part.op is Ops.NEG:
        atom, coefficient = _scaled(part.src[0]) if part.src[0].op is Ops.MUL else (part.src[0], 1)
        return atom, -coefficient
    if part.op is Ops.MUL and part.src[1].op is Ops.CONST:
        return part.src[0], part.src[1].arg
    return part, 1


def _combined(node: UOp, chain: UOp, passed: list[UOp], atom: UOp, coefficient: int) -> UOp:
    parts = [chain.src[0]] if chain.op is Ops.ADD else []
    parts.extend(reversed(passed))
    scale = UOp.const(node.dtype, coefficient)
    if scale.arg:
        parts.append(UOp(Ops.MUL, node.dtype, (atom, scale)))
    if not parts:
        return constant_like(node, 0)
    total = parts[0]
    for part in parts[1:]:
        total = UOp(Ops.ADD, node.dtype, (total, part))
    return shaped_like(node, total)


def add_constants(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    """(x + 3) + 5 -> x + 8"""
    return UOp(Ops.ADD, node.dtype, (x, UOp.const(node.dtype, c.arg + d.arg)))


def add_constant_last(node: UOp, x: UOp, c: UOp, y: UOp) -> UOp:
    """(x + 3) + y -> (x + y) + 3"""
    return UOp(Ops.ADD, node.dtype, (UOp(Ops.ADD, node.dtype, (x, y)), c))


def multiply_constants(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    """(x * 3) * 5 -> x * 15"""
    return UOp(Ops.MUL, node.dtype, (x, UOp.const(node.dtype, c.arg * d.arg)))


def distribute_constant(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    """(x + 3) * 5 -> x*5 + 15"""
    scaled = UOp(Ops.MUL, node.dtype, (x, d))
    return UOp(Ops.ADD, node.dtype, (scaled, UOp.const(node.dtype, c.arg * d.arg)))


def negate_constant(node: UOp, inner: UOp, x: UOp, c: UOp) -> UOp:
    """-(x * 3) -> x * -3,  -(x + 3) -> -x + -3"""
    minus = UOp.const(node.dtype, -c.arg)
    if inner.op is Ops.MUL:
        return UOp(Ops.MUL, node.dtype, (x, minus))
    return UOp(Ops.ADD, node.dtype, (UOp(Ops.NEG, node.dtype, (x,)), minus))


_x, _y, _c, _d = UPat.var("x"), UPat.var("y"), UPat.cvar("c"), UPat.cvar("d")

algebra = PatternMatcher(
    [
        (UPat((Ops.ADD, Ops.MUL, Ops.NEG), dtypes.weakint, name="node"), normalise_sum),
        (UPat(Ops.SHL, dtypes.weakint, src=(_x, _c), name="node"), shift_to_product),
        # the constant of a chain travels to its end before like terms are looked for
        (
            UPat(Ops.ADD, dtypes.ints, src=(UPat(Ops.ADD, src=(_x, _c)), _d), name="node"),
            add_constants,
        ),
        (
            UPat(Ops.ADD, dtypes.ints, src=[UPat(Ops.ADD, src=(_x, _c)), _y], name="node"),
            add_constant_last,
        ),
        (
            UPat(Ops.MUL, dtypes.ints, src=(UPat(Ops.MUL, src=(_x, _c)), _d), name="node"),
            multiply_constants,
        ),
        (
            UPat(Ops.MUL, dtypes.ints, src=(UPat(Ops.ADD, src=(_x, _c)), _d), name="node"),
            distribute_constant,
        ),
        (
            UPat(
                Ops.NEG,
                dtypes.ints,
                src=(UPat((Ops.MUL, Ops.ADD), src=(_x, _c), name="inner"),),
                name="node",
            ),
            negate_constant,
        ),
        (UPat(Ops.ADD, dtypes.ints, src=(_x, _y), name="node"), combine_terms),
    ]
)
