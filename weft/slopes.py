"""Derivatives of functions that are not differentiated the way they are computed.

In: the gradient of a function's value, its operand, its value. Out: the gradient of the operand.
Sits below `gradient`, which uses `times_power`; Tensor methods name the other rules.
Invariant: a slope is finite wherever that of the function is, also where a step of the way to its
value overflows, and it is what PyTorch gives outside of the function's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import FALLING, Ops

# how far into a gradient a division is looked for: a sigmoid that is written out takes 4 steps,
# its slope 12
_DEPTH = 16
_MOST_STEPS = 200


# ------------------------------------------------------------ powers that overflow
def times_power(gradient: UOp, power: UOp) -> UOp:
    """gradient * power, where a division by `power + c` inside the gradient comes first.

        (g / (e + 1)) * e  ->  g * (e / (e + 1))

    1 / (1 + e) has no slope where e overflows, but the product on the left is 0 * inf there.
    """
    # of those that are at most 1 nothing overflows
    if power.tag != FALLING:
        moved = _Mover(power).times(gradient, _DEPTH)
        if moved is not None:
            return moved
    return gradient * power.cast(gradient.dtype)


class _Mover:
    """Moves a factor into a gradient. What is shared there is looked at once."""

    def __init__(self, power: UOp) -> None:
        self.power = power
        self.known: dict[UOp, UOp | None] = {}

    def times(self, value: UOp, depth: int) -> UOp | None:
        """value * power if a division by `power + c` is found in the value, else None."""
        if value in self.known:
            return self.known[value]
        if depth == 0 or value.op not in _INSIDE or len(self.known) > _MOST_STEPS:
            return None
        found = self.divided(value, depth) if value.op is Ops.FDIV else self.inside(value, depth)
        self.known[value] = found
        return found

    def inside(self, value: UOp, depth: int) -> UOp | None:
        """Through what only passes a factor on."""
        sources = value.src[1:] if value.op is Ops.WHERE else value.src
        parts = [self.times(source, depth - 1) for source in sources]
        moved = next((part for part in reversed(parts) if part is not None), None)
        if moved is None:
            return None
        if value.op is Ops.CAST:
            return moved.cast(value.dtype)
        if value.op is Ops.NEG:
            return -moved
        if value.op is Ops.MUL:
            # into the nearer of the factors: -g * (y / d) is how the gradient of a division is
            # written, and that of e / d needs y = e / d to be replaced too
            return moved * sources[1] if parts[1] is None else sources[0] * moved
        both = [
            self.plain(source) if part is None else part
            for source, part in zip(sources, parts, strict=True)
        ]
        return both[0] + both[1] if value.op is Ops.ADD else value.src[0].where(both[0], both[1])

    def plain(self, value: UOp) -> UOp:
        # what a condition left out is no product with an infinite power
        return value if _constant(value) == 0 else value * self.power.cast(value.dtype)

    def divided(self, value: UOp, depth: int) -> UOp | None:
        above, below = value.src
        factor: UOp | None = None
        if below.op is Ops.MUL and any(_constant(source) is not None for source in below.src):
            # log2 divides by x * ln(2)
            below, factor = below.src if _constant(below.src[1]) is not None else below.src[::-1]
        # of half types the quotient is computed in a wide type, and so are its parts
        form = _form_in(_uncast(below), self.power)
        if form is None:
            inner = self.times(above, depth - 1)
            return None if inner is None else inner / value.src[1]
        share = form.eq(math.inf).where(1.0, form.cast(below.dtype) / below)
        quotient = _uncast(above)
        if quotient.op is Ops.FDIV and quotient.src == (form, _uncast(below)):
            above = share
        product = above * share
        return product if factor is None else product / factor


_INSIDE = frozenset({Ops.ADD, Ops.MUL, Ops.NEG, Ops.WHERE, Ops.CAST, Ops.FDIV})


def _uncast(node: UOp) -> UOp:
    """A float without its conversions to other floats."""
    while node.op is Ops.CAST and dtypes.is_float(node.src[0].dtype):
        node = node.src[0]
    return node


def _form_in(total: UOp, power: UOp) -> UOp | None:
    """The power, perhaps rounded to another dtype, in a sum of it and a number."""
    if total.op is not Ops.ADD:
        return None
    for form, other in (total.src, total.src[::-1]):
        is_power = form is power or (form.op is Ops.CAST and form.src[0] is power)
        number = _constant(other)
        if is_power and number is not None and math.isfinite(number):
            return form
    return None


def _constant(node: UOp) -> float | None:
    """The number that a node repeats, if it is one."""
    while node.op in (Ops.CAST, Ops.EXPAND, Ops.RESHAPE) and dtypes.is_float(node.dtype):
        node = node.src[0]
    return float(node.arg) if node.op is Ops.CONST else None


# ------------------------------------------------------------ functions
def slope_rule(gradient: UOp, node: UOp, static: tuple[str]) -> tuple[UOp]:
    """The rule of a FUNCTION(value, operand) whose slope is in the table."""
    return (SLOPES[static[0]](gradient, node.src[1], node),)


def _acosh(gradient: UOp, x: UOp, _: UOp) -> UOp:
    """1 / sqrt(x*x - 1), of two roots: the square of a large x is infinite."""
    size = x.abs()
    return gradient / ((size - 1.0).sqrt() * (size + 1.0).sqrt())


def _erf(gradient: UOp, x: UOp, _: UOp) -> UOp:
    """2 / sqrt(pi) * exp(-x*x)."""
    return gradient * ((x * x).neg()._bounded_exp() * (2 / math.sqrt(math.pi)))


SLOPES: dict[str, Callable[[UOp, UOp, UOp], UOp]] = {
    "exp": lambda gradient, x, value: times_power(gradient, value),
    "sinh": lambda gradient, x, value: gradient * x.cosh(),
    "cosh": lambda gradient, x, value: gradient * x.sinh(),
    "acosh": _acosh,
    "atanh": lambda gradient, x, value: gradient / ((1.0 - x) * (x + 1.0)),
    "erf": _erf,
    "cos": lambda gradient, x, value: gradient * x.sin().neg(),
}
