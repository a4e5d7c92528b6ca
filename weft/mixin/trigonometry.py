"""Trigonometric functions, shared by `UOp` and `Tensor`.

In: a class with the protocol of `ArithMixin`. Out: sin, cos, tan and their inverses.
Sits below both users; imports no UOp.
Invariant: every result is within a few units in the last place, also near the zeros of cos.
"""

from __future__ import annotations

import math
from typing import Self

from weft.mixin.unary import UnaryMixin, in_wide_floats, polynomial
from weft.uop.opset import Ops

# pi/2 as a sum of three floats, and up to where they are enough to take multiples of it away
_HALF_PI_SHORT = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100059816e-15, 1e5)
_HALF_PI_LONG = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33, 1e9)
# atan(x) / x in powers of x*x, for |x| < tan(pi/8); relative error 6e-10 and 4e-18
_ATAN_SHORT = (
    0.9999999993712282, -0.33333306893048514, 0.19998183041083206, -0.14239532669648974,
    0.10569828806414448, -0.06026305227658459,
)  # fmt: skip
_ATAN_LONG = (
    1.0, -0.3333333333333312, 0.19999999999940893, -0.14285714279250245, 0.11111110744919658,
    -0.09090896809064027, 0.07692045330902225, -0.06662951813629191, 0.05846878297330872,
    -0.05035102456601552, 0.03796525745386593, -0.017805397205419446,
)  # fmt: skip
# asin(x) / x in powers of x*x, for |x| < 0.5; relative error 5e-9 and 3e-17
_ASIN_SHORT = (
    0.999999995983738, 0.16666782005775338, 0.07494696687423973, 0.045520635631714566,
    0.02399399965364759, 0.04241737375979984,
)  # fmt: skip
_ASIN_LONG = (
    1.0, 0.16666666666664942, 0.07500000000385201, 0.044642856805998936, 0.03038195969768514,
    0.022371749733164054, 0.01735977964134998, 0.01388484282640208, 0.012170138592391726,
    0.0065293020047365695, 0.019513468251252167, -0.016187392271599134, 0.03187962140081284,
)  # fmt: skip


class TrigonometryMixin(UnaryMixin):
    """Angles are in radians."""

    __slots__ = ()

    def sin(self) -> Self:
        """The sine.

        >>> Tensor([0.0]).sin().tolist()
        [0.0]
        """
        return self._float_operand().alu(Ops.SIN)

    @in_wide_floats
    def cos(self) -> Self:
        """The cosine.

        cos(x) is +-sin(x - (k + 1/2) pi), with k chosen so that the argument is small; of a huge x,
        where a multiple of pi cannot be taken away with a few floats, 1 - 2 sin(x/2)**2.

        >>> Tensor([0.0]).cos().tolist()
        [1.0]
        """
        first, second, third, limit = _HALF_PI_SHORT if self._is_single else _HALF_PI_LONG
        size = self.abs()
        turns = (size * (1 / math.pi)).trunc()
        halves = turns.neg() * 2 - 1
        rest = halves.alu(Ops.MULACC, self._constant(first), size)
        rest = halves.alu(Ops.MULACC, self._constant(second), rest)
        rest = halves.alu(Ops.MULACC, self._constant(third), rest)
        moderate = size.lt(limit)
        sine = moderate.where(rest, size * 0.5).sin()
        odd = (turns * 0.5).trunc().ne(turns * 0.5)
        result = moderate.where(odd.where(sine, sine.neg()), 1 - sine * sine * 2)
        return result._sloped("cos", self)

    @in_wide_floats
    def tan(self) -> Self:
        """The tangent.

        >>> Tensor([0.0]).tan().tolist()
        [0.0]
        """
        return self.sin() / self.cos()

    @in_wide_floats
    def atan(self) -> Self:
        """The inverse of `tan`, between -pi/2 and pi/2.

        >>> Tensor([0.0]).atan().tolist()
        [0.0]
        """
        size = self.abs()
        large = size.gt(1.0)
        # atan(x) = pi/2 - atan(1/x), and pi/4 + atan((x-1)/(x+1))
        # the reciprocal is taken of what is large only: that of 0 would make the gradient nan
        inner = large.where(large.where(size, size._constant(1)).reciprocal(), size)
        middle = inner.gt(math.tan(math.pi / 8))
        inner = middle.where((inner - 1) / (inner + 1), inner)
        table = _ATAN_SHORT if self._is_single else _ATAN_LONG
        angle = inner * polynomial(inner * inner, table)
        angle = middle.where(angle + math.pi / 4, angle)
        angle = large.where(math.pi / 2 - angle, angle)
        return self.lt(0).where(angle.neg(), self.eq(0).where(self, angle))

    def _asin_of_half(self) -> Self:
        """asin of what is between -0.5 and 0.5."""
        return self * polynomial(self * self, _ASIN_SHORT if self._is_single else _ASIN_LONG)

    @in_wide_floats
    def asin(self) -> Self:
        """The inverse of `sin`, between -pi/2 and pi/2; nan outside -1 to 1.

        >>> Tensor([0.0]).asin().tolist()
        [0.0]
        """
        size = self.abs()
        outer = ((1 - size) * 0.5).sqrt()._asin_of_half()
        angle = size.lt(0.5).where(size._asin_of_half(), math.pi / 2 - outer * 2)
        return self.lt(0).where(angle.neg(), self.eq(0).where(self, angle))

    @in_wide_floats
    def acos(self) -> Self:
        """The inverse of `cos`, between 0 and pi; nan outside -1 to 1.

        >>> Tensor([1.0]).acos().tolist()
        [0.0]
        """
        size = self.abs()
        outer = ((1 - size) * 0.5).sqrt()._asin_of_half() * 2
        inner = math.pi / 2 - self._asin_of_half()
        return size.lt(0.5).where(inner, self.lt(0).where(math.pi - outer, outer))
