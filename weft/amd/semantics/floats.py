"""Floats of lanes: arithmetic, functions of the hardware, division in steps.

In: nothing. Out: `FLOATS`, rows by mnemonic. One of the parts of `vector.py`.
Invariant: arithmetic is rounded once. Functions of the hardware are computed as EXP2, LOG2, SIN and
SQRT are everywhere, within the error that their rows state; the hardware differs in its last place.
"""

from __future__ import annotations

from weft.amd.semantics.rows import (
    FORMATS,
    Table,
    as_bits,
    both,
    ceil,
    const,
    differs,
    either,
    f16,
    f32,
    f64,
    floor,
    fused,
    i16,
    i32,
    is_nan,
    less,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    negated,
    of_bits,
    round_even,
    same,
    scale,
    wide,
)
from weft.uop.node import UOp
from weft.uop.opset import Ops

FLOATS = Table()
_add, _each = FLOATS.add, FLOATS.each
_TURN = 6.283185307179586


# ------------------------------------------------------------ floats
for _t in ("f16", "f32", "f64"):
    _two, _three = f"{_t} <- {_t} {_t}", f"{_t} <- {_t} {_t} {_t}"
    _add(f"v_add_{_t}", _two, lambda x, y: x + y)
    _add(f"v_sub_{_t}", _two, lambda x, y: x - y)
    _add(f"v_subrev_{_t}", _two, lambda x, y: y - x)
    _add(f"v_mul_{_t}", _two, lambda x, y: x * y)
    _add(f"v_max_{_t} v_max_num_{_t}", _two, maximum_number)
    _add(f"v_min_{_t} v_min_num_{_t}", _two, minimum_number)
    _add(f"v_maximum_{_t}", _two, maximum)
    _add(f"v_minimum_{_t}", _two, minimum)
    _add(
        f"v_fma_{_t} v_fmac_{_t} v_fmaak_{_t} v_fmamk_{_t} v_mad_{_t}" if _t != "f16" else
        f"v_fma_{_t} v_fmac_{_t} v_fmaak_{_t} v_fmamk_{_t}",
        _three, fused,
    )  # fmt: skip
    _add(
        f"v_max3_{_t} v_max3_num_{_t}",
        _three,
        lambda x, y, z: maximum_number(maximum_number(x, y), z),
    )
    _add(
        f"v_min3_{_t} v_min3_num_{_t}",
        _three,
        lambda x, y, z: minimum_number(minimum_number(x, y), z),
    )
    _add(f"v_maximum3_{_t}", _three, lambda x, y, z: maximum(maximum(x, y), z))
    _add(f"v_minimum3_{_t}", _three, lambda x, y, z: minimum(minimum(x, y), z))
    _add(
        f"v_maxmin_{_t} v_maxmin_num_{_t}",
        _three,
        lambda x, y, z: minimum_number(maximum_number(x, y), z),
    )
    _add(
        f"v_minmax_{_t} v_minmax_num_{_t}",
        _three,
        lambda x, y, z: maximum_number(minimum_number(x, y), z),
    )
    _add(f"v_trunc_{_t}", f"{_t} <- {_t}", lambda x: x.alu(Ops.TRUNC))
    _add(f"v_floor_{_t}", f"{_t} <- {_t}", floor)
    _add(f"v_ceil_{_t}", f"{_t} <- {_t}", ceil)
    _add(f"v_rndne_{_t}", f"{_t} <- {_t}", round_even)


def _middle(x: UOp, y: UOp, z: UOp) -> UOp:
    """The median of three; where one is NaN, the least."""
    low, high = minimum_number(x, y), maximum_number(x, y)
    found = maximum_number(low, minimum_number(high, z))
    nan = either(is_nan(x), either(is_nan(y), is_nan(z)))
    return nan.where(minimum_number(low, z), found)


_each("v_med3_{t} ", "f32 f16", "t <- t t t", _middle)
_each("v_med3_num_{t}", "f32 f16", "t <- t t t", _middle)


def _fraction(x: UOp) -> UOp:
    """x - floor(x), below 1."""
    most = {f16: 1 - 2.0**-11, f32: 1 - 2.0**-24, f64: 1 - 2.0**-53}[x.dtype]
    return minimum(x - floor(x), const(most, x))


_each("v_fract_{t}", "f16 f32 f64", "t <- t", _fraction)
_add("v_ldexp_f32", "f32 <- f32 i32", scale)
_add("v_ldexp_f64", "f64 <- f64 i32", scale)
_add("v_ldexp_f16", "f16 <- f16 i16", lambda x, y: scale(x, y.cast(i32)))


def _fraction_of(x: UOp) -> UOp:
    """The mantissa, from a half to below 1."""
    form = FORMATS[x.dtype]
    lift = form.mantissa + 1
    value = form.is_denormal(x).where(x * const(2.0**lift, x), x)
    bits = as_bits(value)
    rest = bits & const((1 << form.bits) - 1 - form.infinity, bits)
    found = of_bits(rest | const((form.bias - 1) << form.mantissa, bits), x.dtype)
    special = same(form.exponent(x), UOp.const(i32, form.most))
    return either(special, same(x, const(0.0, x))).where(x, found)


def _exponent_of(x: UOp) -> UOp:
    """By which power of two the mantissa is multiplied."""
    form = FORMATS[x.dtype]
    lift = form.mantissa + 1
    low = form.is_denormal(x)
    lifted = form.exponent(x * const(2.0**lift, x)) - UOp.const(i32, lift)
    found = low.where(lifted, form.exponent(x)) - UOp.const(i32, form.bias - 1)
    special = same(form.exponent(x), UOp.const(i32, form.most))
    return either(special, same(x, const(0.0, x))).where(UOp.const(i32, 0), found)


_each("v_frexp_mant_{t}", "f16 f32 f64", "t <- t", _fraction_of)
_add("v_frexp_exp_i32_f32", "i32 <- f32", _exponent_of)
_add("v_frexp_exp_i32_f64", "i32 <- f64", _exponent_of)
_add("v_frexp_exp_i16_f16", "i16 <- f16", lambda x: _exponent_of(x).cast(i16))


# ------------------------------------------------------------ functions of the hardware
def _inverse(x: UOp) -> UOp:
    return const(1.0, x).alu(Ops.FDIV, x)


def _root(x: UOp) -> UOp:
    return x.alu(Ops.SQRT)


def _inverse_root(x: UOp) -> UOp:
    """In double, so that it is right to the last place for float32."""
    value = x.cast(f64)
    return const(1.0, value).alu(Ops.FDIV, value.alu(Ops.SQRT)).cast(x.dtype)


def _turned(x: UOp) -> UOp:
    """sin(2*pi*x)."""
    whole = x - floor(x)
    return (whole.cast(f64) * UOp.const(f64, _TURN)).cast(x.dtype).alu(Ops.SIN)


def _turned_cosine(x: UOp) -> UOp:
    return _turned(x - floor(x) + const(0.25, x))


for _name, _function in (
    ("rcp", _inverse), ("sqrt", _root), ("rsq", _inverse_root), ("sin", _turned),
    ("exp", lambda x: x.alu(Ops.EXP2)), ("log", lambda x: x.alu(Ops.LOG2)), ("cos", _turned_cosine),
):  # fmt: skip
    _add(f"v_{_name}_f32 v_s_{_name}_f32", "f32 <- f32", _function)
    _add(f"v_{_name}_f16 v_s_{_name}_f16", "f16 <- f16", wide(_function))
_add("v_rcp_iflag_f32", "f32 <- f32", _inverse)
_add("v_rcp_f64", "f64 <- f64", _inverse)
_add("v_sqrt_f64", "f64 <- f64", _root)
_add("v_rsq_f64", "f64 <- f64", lambda x: const(1.0, x).alu(Ops.FDIV, x.alu(Ops.SQRT)))


# ------------------------------------------------------------ division in steps
# 2**span is what operands near the ends of the exponents are scaled by, so that Newton's steps in
# between neither overflow nor lose bits; `far` is the distance of exponents from which a quotient
# is near the end of the range.
_SPAN = {f32: (64, 96), f64: (128, 768)}


def _division_scale(x: UOp, bottom: UOp, top: UOp) -> tuple[UOp, UOp]:
    """x, which is the numerator or the denominator, scaled; and whether the quotient has to be
    scaled back."""
    form = FORMATS[x.dtype]
    span, far = _SPAN[x.dtype]
    up, down = const(2.0**span, x), const(2.0**-span, x)
    top_exponent, bottom_exponent = form.exponent(top), form.exponent(bottom)
    distance = top_exponent - bottom_exponent

    def number(value: int) -> UOp:
        return UOp.const(i32, value)

    zero = either(same(top, const(0.0, x)), same(bottom, const(0.0, x)))
    is_far = less(number(far - 1), distance)
    low_bottom = form.is_denormal(bottom)
    # 1 / bottom has an exponent below the normal ones
    inverse = _inverse(bottom)
    quotient = top.alu(Ops.FDIV, bottom)
    low_inverse, low_quotient = form.is_denormal(inverse), form.is_denormal(quotient)
    small_top = less(top_exponent, number(form.mantissa + 1))
    is_bottom = same(as_bits(x), as_bits(bottom))
    is_top = same(as_bits(x), as_bits(top))
    scaled = is_far.where(
        is_bottom.where(x * up, x),
        low_bottom.where(
            x * up,
            low_inverse.where(
                low_quotient.where(is_bottom.where(x * up, x), x * down),
                low_quotient.where(is_top.where(x * up, x), small_top.where(x * up, x)),
            ),
        ),
    )
    back = either(is_far, both(negated(low_bottom), low_quotient))
    found = zero.where(const(float("nan"), x), scaled)
    return found, both(negated(zero), back)


def _division_step(x: UOp, y: UOp, z: UOp, back: UOp) -> UOp:
    """A fused product and sum, scaled back where the operands were scaled."""
    form = FORMATS[x.dtype]
    span, _ = _SPAN[x.dtype]
    found = fused(x, y, z)
    high = less(UOp.const(i32, form.bias), form.exponent(z))
    scaled = high.where(found * const(2.0**span, x), found * const(2.0**-span, x))
    return back.where(scaled, found)


def _division_end(quotient: UOp, bottom: UOp, top: UOp) -> UOp:
    """The quotient where it is an ordinary one; else what IEEE 754 says."""
    form = FORMATS[quotient.dtype]
    sign = differs(form.sign(bottom), form.sign(top))
    zero, infinite = const(0.0, quotient), const(float("inf"), quotient)
    size_top, size_bottom = form.magnitude(top), form.magnitude(bottom)
    top_zero, bottom_zero = same(size_top, zero), same(size_bottom, zero)
    top_far, bottom_far = same(size_top, infinite), same(size_bottom, infinite)
    nan = either(is_nan(top), is_nan(bottom))
    nan = either(nan, either(both(top_zero, bottom_zero), both(top_far, bottom_far)))
    size = form.magnitude(quotient)
    size = either(bottom_zero, top_far).where(
        infinite, either(top_zero, bottom_far).where(zero, size)
    )
    signed = form.with_sign(size, sign)
    return nan.where(const(float("nan"), quotient), signed)


for _t in ("f32", "f64"):
    _add(f"v_div_scale_{_t}", f"{_t} m <- {_t} {_t} {_t}", _division_scale)
    _add(f"v_div_fmas_{_t}", f"{_t} <- {_t} {_t} {_t} m", _division_step)
    _add(f"v_div_fixup_{_t}", f"{_t} <- {_t} {_t} {_t}", _division_end)
_add("v_div_fixup_f16", "f16 <- f16 f16 f16", _division_end)
