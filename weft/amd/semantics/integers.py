"""Moves, bits and whole numbers of lanes.

In: nothing. Out: `INTEGERS`, rows by mnemonic. One of the parts of `vector.py`.
Invariant: shifts take the low bits of their count, and sums wrap.
"""

from __future__ import annotations

from weft.amd.semantics.rows import (
    Table,
    as_bits,
    both,
    by,
    const,
    differs,
    either,
    i32,
    i64,
    less,
    maximum,
    minimum,
    same,
    shift_left,
    shift_right,
    u32,
    u64,
)
from weft.dtype import DType
from weft.uop.node import UOp
from weft.uop.opset import Ops

INTEGERS = Table()
_add = INTEGERS.add


# ------------------------------------------------------------ moves and bits
_add("v_mov_b32 v_mov_b32_e32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32",
     "u32 <- u32", lambda x: x)  # fmt: skip
_add("v_mov_b16", "u16 <- u16", lambda x: x)
_add("v_mov_b64", "u64 <- u64", lambda x: x)
_add("v_cndmask_b32", "u32 <- u32 u32 m", lambda x, y, m: m.where(y, x))
_add("v_cndmask_b16", "u16 <- u16 u16 m", lambda x, y, m: m.where(y, x))
for _bits in ("b16", "b32"):
    _kind = "u" + _bits[1:]
    _add(f"v_and_{_bits}", f"{_kind} <- {_kind} {_kind}", lambda x, y: x & y)
    _add(f"v_or_{_bits}", f"{_kind} <- {_kind} {_kind}", lambda x, y: x | y)
    _add(f"v_xor_{_bits}", f"{_kind} <- {_kind} {_kind}", lambda x, y: x ^ y)
    _add(f"v_not_{_bits}", f"{_kind} <- {_kind}", lambda x: x ^ const(x.dtype.max, x))
_add("v_xnor_b32", "u32 <- u32 u32", lambda x, y: x ^ y ^ const(0xFFFFFFFF, x))
_add("v_and_or_b32", "u32 <- u32 u32 u32", lambda x, y, z: (x & y) | z)
_add("v_or3_b32", "u32 <- u32 u32 u32", lambda x, y, z: x | y | z)
_add("v_xor3_b32", "u32 <- u32 u32 u32", lambda x, y, z: x ^ y ^ z)
_add("v_xad_u32", "u32 <- u32 u32 u32", lambda x, y, z: (x ^ y) + z)
_add("v_lshl_add_u32", "u32 <- u32 u32 u32", lambda x, y, z: shift_left(x, y) + z)
_add("v_add_lshl_u32", "u32 <- u32 u32 u32", lambda x, y, z: shift_left(x + y, z))
_add("v_lshl_or_b32", "u32 <- u32 u32 u32", lambda x, y, z: shift_left(x, y) | z)
_add("v_lshl_add_u64", "u64 <- u64 u32 u64",
     lambda x, y, z: x.alu(Ops.SHL, (y & const(7, y)).cast(u64)) + z)  # fmt: skip
_add("v_lshlrev_b32", "u32 <- u32 u32", lambda x, y: shift_left(y, x))
_add("v_lshrrev_b32", "u32 <- u32 u32", lambda x, y: shift_right(y, x))
_add("v_ashrrev_i32", "i32 <- u32 i32", lambda x, y: shift_right(y, x))
_add("v_lshlrev_b64", "u64 <- u32 u64", lambda x, y: shift_left(y, x))
_add("v_lshrrev_b64", "u64 <- u32 u64", lambda x, y: shift_right(y, x))
_add("v_ashrrev_i64", "i64 <- u32 i64", lambda x, y: shift_right(y, x))
_add("v_lshlrev_b16", "u16 <- u16 u16", lambda x, y: shift_left(y, x))
_add("v_lshrrev_b16", "u16 <- u16 u16", lambda x, y: shift_right(y, x))
_add("v_ashrrev_i16", "i16 <- u16 i16", lambda x, y: shift_right(y, x))


def _ones(count: UOp) -> UOp:
    """So many low bits, of 32."""
    return shift_left(const(1, count), count) - const(1, count)


def _field_signed(x: UOp, start: UOp, count: UOp) -> UOp:
    """A field of bits as a signed number; of none, 0."""
    size = count & const(31, count)
    found = shift_right(x, start) & _ones(count).cast(i32)
    top = shift_left(const(1, size), size - const(1, size)).cast(i32)
    return same(size, const(0, size)).where(const(0, x), (found ^ top) - top)


_add("v_bfe_u32", "u32 <- u32 u32 u32", lambda x, y, z: shift_right(x, y) & _ones(z))
_add("v_bfe_i32", "i32 <- i32 u32 u32", _field_signed)
_add("v_bfi_b32", "u32 <- u32 u32 u32", lambda x, y, z: (x & y) | ((x ^ const(0xFFFFFFFF, x)) & z))
_add("v_bfm_b32", "u32 <- u32 u32", lambda x, y: shift_left(_ones(x), y))


def reversed_bits(x: UOp) -> UOp:
    """Swaps neighbours, then pairs, and so on."""
    for count, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        keep = const(mask, x)
        x = (by(x, count) & keep) | by(x & keep, count, left=True)
    return by(x, 16) | by(x, 16, left=True)


def count_bits(x: UOp) -> UOp:
    """How many bits of 32 are set."""
    x = x - (by(x, 1) & const(0x55555555, x))
    x = (x & const(0x33333333, x)) + (by(x, 2) & const(0x33333333, x))
    x = (x + by(x, 4)) & const(0x0F0F0F0F, x)
    return by(x * const(0x01010101, x), 24)


def first_one(x: UOp) -> UOp:
    """The place of the lowest bit that is set; all ones where none is."""
    lowest = x & (const(0, x) - x)
    place = count_bits(lowest - const(1, x))
    return same(x, const(0, x)).where(const(0xFFFFFFFF, x), place)


def leading_zeros(x: UOp) -> UOp:
    """Zeros above the highest bit that is set; all ones where none is."""
    spread = x
    for count in (1, 2, 4, 8, 16):
        spread = spread | by(spread, count)
    found = const(32, x) - count_bits(spread)
    return same(x, const(0, x)).where(const(0xFFFFFFFF, x), found)


def leading_signs(x: UOp) -> UOp:
    """Bits above the highest that differs from the sign; all ones where none does."""
    bits = as_bits(x)
    return leading_zeros(less(x, const(0, x)).where(bits ^ const(0xFFFFFFFF, bits), bits))


_add("v_bfrev_b32", "u32 <- u32", reversed_bits)
_add("v_bcnt_u32_b32", "u32 <- u32 u32", lambda x, y: count_bits(x) + y)
_add("v_ctz_i32_b32 v_ffbl_b32", "u32 <- u32", first_one)
_add("v_clz_i32_u32 v_ffbh_u32", "u32 <- u32", leading_zeros)
_add("v_cls_i32 v_ffbh_i32", "u32 <- i32", leading_signs)


def _pair(high: UOp, low: UOp) -> UOp:
    return by(high.cast(u64), 32, left=True) | low.cast(u64)


_add("v_alignbit_b32", "u32 <- u32 u32 u32",
     lambda x, y, z: _pair(x, y).alu(Ops.SHR, (z & const(31, z)).cast(u64)).cast(u32))  # fmt: skip
_add("v_alignbyte_b32", "u32 <- u32 u32 u32",
     lambda x, y, z: _pair(x, y).alu(Ops.SHR, by((z & const(3, z)).cast(u64), 3, left=True))
     .cast(u32))  # fmt: skip


def _permute(x: UOp, y: UOp, selector: UOp) -> UOp:
    """Each byte of the result is one of the eight of both, a sign spread over a byte, 0 or 255."""
    pair = _pair(x, y)
    found = const(0, x)
    for place in range(4):
        chosen = by(selector, 8 * place) & const(0xFF, selector)
        at = by((chosen & const(7, chosen)).cast(u64), 3, left=True)
        byte = pair.alu(Ops.SHR, at).cast(u32) & const(0xFF, x)
        word = by((chosen & const(3, chosen)).cast(u64), 4, left=True) + const(15, pair)
        sign = pair.alu(Ops.SHR, word).cast(u32) & const(1, x)
        spread = const(0, x) - sign
        high = less(const(12, chosen), chosen).where(const(0xFF, x), const(0, x))
        beyond = less(chosen, const(12, chosen)).where(spread & const(0xFF, x), high)
        byte = less(chosen, const(8, chosen)).where(byte, beyond)
        found = found | by(byte, 8 * place, left=True)
    return found


_add("v_perm_b32", "u32 <- u32 u32 u32", _permute)


# ------------------------------------------------------------ whole numbers
_add("v_add_nc_u32 v_add_u32", "u32 <- u32 u32", lambda x, y: x + y)
_add("v_sub_nc_u32 v_sub_u32", "u32 <- u32 u32", lambda x, y: x - y)
_add("v_subrev_nc_u32 v_subrev_u32", "u32 <- u32 u32", lambda x, y: y - x)
_add("v_add_nc_i32 v_add_i32", "i32 <- i32 i32", lambda x, y: x + y)
_add("v_sub_nc_i32 v_sub_i32", "i32 <- i32 i32", lambda x, y: x - y)
_add("v_add_nc_u16 v_add_u16", "u16 <- u16 u16", lambda x, y: x + y)
_add("v_sub_nc_u16 v_sub_u16", "u16 <- u16 u16", lambda x, y: x - y)
_add("v_subrev_u16", "u16 <- u16 u16", lambda x, y: y - x)
_add("v_add_nc_i16 v_add_i16", "i16 <- i16 i16", lambda x, y: x + y)
_add("v_sub_nc_i16 v_sub_i16", "i16 <- i16 i16", lambda x, y: x - y)
_add("v_add3_u32", "u32 <- u32 u32 u32", lambda x, y, z: x + y + z)
_add("v_add_nc_u64 v_add_u64", "u64 <- u64 u64", lambda x, y: x + y)
_add("v_sub_nc_u64", "u64 <- u64 u64", lambda x, y: x - y)


def _carry_add(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    total = x + y
    return total, less(total, x)


def _carry_add_in(x: UOp, y: UOp, carry: UOp) -> tuple[UOp, UOp]:
    total = x + y
    more = total + carry.cast(u32)
    return more, either(less(total, x), less(more, total))


def _borrow(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    return x - y, less(x, y)


def _borrow_in(x: UOp, y: UOp, borrow: UOp) -> tuple[UOp, UOp]:
    less_one = borrow.cast(u32)
    return x - y - less_one, either(less(x, y), both(same(x, y), borrow))


_add("v_add_co_u32", "u32 m <- u32 u32", _carry_add)
_add("v_sub_co_u32", "u32 m <- u32 u32", _borrow)
_add("v_subrev_co_u32", "u32 m <- u32 u32", lambda x, y: _borrow(y, x))
_add("v_add_co_ci_u32 v_addc_co_u32", "u32 m <- u32 u32 m", _carry_add_in)
_add("v_sub_co_ci_u32 v_subb_co_u32", "u32 m <- u32 u32 m", _borrow_in)
_add("v_subrev_co_ci_u32 v_subbrev_co_u32", "u32 m <- u32 u32 m",
     lambda x, y, borrow: _borrow_in(y, x, borrow))  # fmt: skip


def _wide_product(x: UOp, y: UOp, dtype: DType) -> UOp:
    return x.cast(dtype) * y.cast(dtype)


def _low24(x: UOp) -> UOp:
    return x & const(0xFFFFFF, x)


def _signed24(x: UOp) -> UOp:
    return by(by(x, 8, left=True), 8)


_add("v_mul_lo_u32 v_mul_lo_i32", "u32 <- u32 u32", lambda x, y: x * y)
_add("v_mul_hi_u32", "u32 <- u32 u32", lambda x, y: by(_wide_product(x, y, u64), 32).cast(u32))
_add("v_mul_hi_i32", "i32 <- i32 i32", lambda x, y: by(_wide_product(x, y, i64), 32).cast(i32))
_add("v_mul_u32_u24", "u32 <- u32 u32", lambda x, y: _low24(x) * _low24(y))
_add("v_mul_hi_u32_u24", "u32 <- u32 u32",
     lambda x, y: by(_wide_product(_low24(x), _low24(y), u64), 32).cast(u32))  # fmt: skip
_add("v_mul_i32_i24", "i32 <- i32 i32", lambda x, y: _signed24(x) * _signed24(y))
_add("v_mad_u32_u24", "u32 <- u32 u32 u32", lambda x, y, z: _low24(x) * _low24(y) + z)
_add("v_mad_i32_i24", "i32 <- i32 i32 i32", lambda x, y, z: _signed24(x) * _signed24(y) + z)
_add("v_mul_lo_u16", "u16 <- u16 u16", lambda x, y: x * y)
_add("v_mad_u16 v_mad_legacy_u16", "u16 <- u16 u16 u16", lambda x, y, z: x * y + z)
_add("v_mad_i16 v_mad_legacy_i16", "i16 <- i16 i16 i16", lambda x, y, z: x * y + z)
_add("v_mad_u32_u16", "u32 <- u16 u16 u32", lambda x, y, z: x.cast(u32) * y.cast(u32) + z)
_add("v_mad_i32_i16", "i32 <- i16 i16 i32", lambda x, y, z: x.cast(i32) * y.cast(i32) + z)


def _mad_wide(x: UOp, y: UOp, z: UOp) -> tuple[UOp, UOp]:
    total = x.cast(z.dtype) * y.cast(z.dtype) + z
    if z.dtype is u64:
        return total, less(total, z)
    product = total - z
    grew = less(total, z)
    return total, differs(grew, less(product, const(0, product)))


_add("v_mad_u64_u32 v_mad_co_u64_u32", "u64 m <- u32 u32 u64", _mad_wide)
_add("v_mad_i64_i32 v_mad_co_i64_i32", "i64 m <- i32 i32 i64", _mad_wide)
_add("v_mad_nc_u64_u32", "u64 <- u32 u32 u64", lambda x, y, z: _mad_wide(x, y, z)[0])
for _t in ("u16", "i16", "u32", "i32"):
    _add(f"v_max_{_t}", f"{_t} <- {_t} {_t}", maximum)
    _add(f"v_min_{_t}", f"{_t} <- {_t} {_t}", minimum)
    _add(f"v_max3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda x, y, z: maximum(maximum(x, y), z))
    _add(f"v_min3_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda x, y, z: minimum(minimum(x, y), z))
    _add(
        f"v_med3_{_t}",
        f"{_t} <- {_t} {_t} {_t}",
        lambda x, y, z: maximum(minimum(x, y), minimum(maximum(x, y), z)),
    )
    _add(f"v_maxmin_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda x, y, z: minimum(maximum(x, y), z))
    _add(f"v_minmax_{_t}", f"{_t} <- {_t} {_t} {_t}", lambda x, y, z: maximum(minimum(x, y), z))
_add("v_sad_u32", "u32 <- u32 u32 u32", lambda x, y, z: less(x, y).where(y - x, x - y) + z)
