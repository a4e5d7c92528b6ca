"""Conversions, packed pairs, comparisons and dot products of lanes.

In: nothing. Out: `CONVERSIONS`, rows by mnemonic. One of the parts of `vector.py`.
Invariant: floats become ints by cutting off, and stay within the range; NaN is 0.
"""

from __future__ import annotations

from weft.amd.semantics import compare
from weft.amd.semantics.rows import (
    FORMATS,
    Table,
    as_bits,
    by,
    const,
    f16,
    f32,
    f64,
    floor,
    fused,
    i8,
    i16,
    i32,
    is_nan,
    less,
    maximum,
    minimum,
    of_bits,
    u8,
    u16,
    u32,
)
from weft.dtype import DType
from weft.uop.node import UOp

CONVERSIONS = Table()
_add = CONVERSIONS.add


# ------------------------------------------------------------ conversions
_CAST = {"f16": f16, "f32": f32, "f64": f64, "i16": i16, "u16": u16, "i32": i32, "u32": u32}
for _to, _of in (
    ("f32", "i32"), ("f32", "u32"), ("i32", "f32"), ("u32", "f32"), ("f64", "f32"), ("f32", "f64"),
    ("f64", "i32"), ("f64", "u32"), ("i32", "f64"), ("u32", "f64"), ("f32", "f16"), ("f16", "f32"),
    ("f16", "u16"), ("f16", "i16"), ("u16", "f16"), ("i16", "f16"),
):  # fmt: skip
    _add(f"v_cvt_{_to}_{_of}", f"{_to} <- {_of}", lambda x, _d=_to: x.cast(_CAST[_d]))
for _place in range(4):
    _add(
        f"v_cvt_f32_ubyte{_place}",
        "f32 <- u32",
        lambda x, _p=_place: (by(x, 8 * _p) & const(0xFF, x)).cast(f32),
    )
_add("v_cvt_nearest_i32_f32 v_cvt_rpi_i32_f32", "i32 <- f32",
     lambda x: floor(x + const(0.5, x)).cast(i32))  # fmt: skip
_add("v_cvt_floor_i32_f32 v_cvt_flr_i32_f32", "i32 <- f32", lambda x: floor(x).cast(i32))
_add("v_cvt_i32_i16", "i32 <- i16", lambda x: x.cast(i32))
_add("v_cvt_u32_u16", "u32 <- u16", lambda x: x.cast(u32))
_add("v_sat_pk_u8_i16", "u16 <- u32", lambda x: _saturated(x))


def _saturated(x: UOp) -> UOp:
    """Two signed 16-bit numbers as two bytes."""
    found = UOp.const(u16, 0)
    for place in range(2):
        part = by(x, 16 * place).cast(u16).bitcast(i16)
        bounded = minimum(maximum(part, const(0, part)), const(255, part))
        found = found | by(bounded.bitcast(u16), 8 * place, left=True)
    return found


def _packed(low: UOp, high: UOp) -> UOp:
    """Two values of 16 bits in a word."""
    return as_bits(low).cast(u32) | by(as_bits(high).cast(u32), 16, left=True)


def _cut(x: UOp) -> UOp:
    """A float32 as a half, towards zero."""
    near = x.cast(f16)
    form = FORMATS[f16]
    beyond = less(FORMATS[f32].magnitude(x), form.magnitude(near).cast(f32))
    bits = as_bits(near)
    return of_bits(beyond.where(bits - const(1, bits), bits), f16)


_add("v_pack_b32_f16", "u32 <- u16 u16", _packed)
_add("v_cvt_pk_rtz_f16_f32 v_cvt_pkrtz_f16_f32", "u32 <- f32 f32",
     lambda x, y: _packed(_cut(x), _cut(y)))  # fmt: skip
_add("v_cvt_pk_f16_f32", "u32 <- f32 f32", lambda x, y: _packed(x.cast(f16), y.cast(f16)))


def _brain(x: UOp) -> UOp:
    """A float32 as a bfloat16, to the nearest, as bits."""
    bits = as_bits(x)
    odd = by(bits, 16) & const(1, bits)
    near = by(bits + const(0x7FFF, bits) + odd, 16)
    quiet = by(bits, 16) | const(0x40, bits)
    return is_nan(x).where(quiet, near).cast(u16)


_add("v_cvt_pk_bf16_f32", "u32 <- f32 f32", lambda x, y: _packed(_brain(x), _brain(y)))


def _narrowed(x: UOp, low: int, high: int, dtype: DType) -> UOp:
    return minimum(maximum(x, const(low, x)), const(high, x)).cast(dtype)


def _signed_pair(x: UOp, y: UOp) -> UOp:
    return _packed(_narrowed(x, -32768, 32767, i16), _narrowed(y, -32768, 32767, i16))


def _unsigned_pair(x: UOp, y: UOp) -> UOp:
    return _packed(*[minimum(v, const(65535, v)).cast(u16) for v in (x, y)])


_add("v_cvt_pk_i16_i32", "u32 <- i32 i32", _signed_pair)
_add("v_cvt_pk_u16_u32", "u32 <- u32 u32", _unsigned_pair)
_add("v_cvt_pk_i16_f32", "u32 <- f32 f32", lambda x, y: _packed(x.cast(i16), y.cast(i16)))
_add("v_cvt_pk_u16_f32", "u32 <- f32 f32", lambda x, y: _packed(x.cast(u16), y.cast(u16)))

# ------------------------------------------------------------ comparisons
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _test in compare.INTEGERS.items():
        _add(f"v_cmp_{_name}_{_t} v_cmpx_{_name}_{_t}", f"m <- {_t} {_t}", _test)
for _t in ("f16", "f32", "f64"):
    for _name, _test in compare.FLOATS.items():
        _add(f"v_cmp_{_name}_{_t} v_cmpx_{_name}_{_t}", f"m <- {_t} {_t}", _test)
    _kind = "u16" if _t == "f16" else "u32"
    _add(f"v_cmp_class_{_t} v_cmpx_class_{_t}", f"m <- {_t} {_kind}", compare.classified)

# ------------------------------------------------------------ dot products
_add("v_dot2_f32_f16 v_dot2c_f32_f16 v_dot2acc_f32_f16", "f32 <- u32 u32 f32",
     lambda x, y, z: _dot_halves(x, y, z))  # fmt: skip


def _half_of(x: UOp, place: int) -> UOp:
    return by(x, 16 * place).cast(u16).bitcast(f16).cast(f32)


def _dot_halves(x: UOp, y: UOp, z: UOp) -> UOp:
    found = z
    for place in range(2):
        found = fused(_half_of(x, place), _half_of(y, place), found)
    return found


def _byte_of(x: UOp, place: int, signed: bool) -> UOp:
    byte = by(x, 8 * place).cast(u8)
    return byte.bitcast(i8).cast(i32) if signed else byte.cast(i32)


def _dot_bytes(signed: bool) -> object:
    def dot(x: UOp, y: UOp, z: UOp) -> UOp:
        found = z
        for place in range(4):
            found = found + _byte_of(x, place, signed) * _byte_of(y, place, signed)
        return found

    return dot


_add("v_dot4_i32_i8 v_dot4c_i32_i8", "i32 <- u32 u32 i32", _dot_bytes(True))  # type: ignore[arg-type]
_add("v_dot4_u32_u8", "i32 <- u32 u32 i32", _dot_bytes(False))  # type: ignore[arg-type]
