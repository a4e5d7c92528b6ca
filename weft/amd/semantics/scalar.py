"""What scalar instructions compute.

In: nothing. Out: `SCALAR`, rows by mnemonic. Sources "scc" and "exec" are implicit; results "scc"
and "exec" go there. On top of `rows.py`, beside `vector.py`.
Invariant: as there. A row that reads its own destination names it last among its sources, as the
table of instructions does for those that are tied.
"""

from __future__ import annotations

from weft.amd.semantics.compare import FLOATS, INTEGERS
from weft.amd.semantics.integers import (
    count_bits,
    first_one,
    leading_signs,
    leading_zeros,
    reversed_bits,
)
from weft.amd.semantics.rows import (
    Table,
    as_bits,
    by,
    ceil,
    const,
    differs,
    either,
    f16,
    f32,
    floor,
    fused,
    i32,
    i64,
    less,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    round_even,
    same,
    shift_left,
    shift_right,
    u32,
    u64,
)
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

SCALAR = Table()
_add = SCALAR.add


def _flagged(value: UOp) -> tuple[UOp, UOp]:
    """With whether it is not zero."""
    return value, differs(value, const(0, value))


def _inverted(x: UOp) -> UOp:
    return x ^ const(x.dtype.max, x)


# ------------------------------------------------------------ moves
for _bits in ("32", "64"):
    _t = f"u{_bits}"
    _add(f"s_mov_b{_bits}", f"{_t} <- {_t}", lambda x: x)
    _add(f"s_cmov_b{_bits}", f"{_t} <- {_t} {_t} scc", lambda x, old, scc: scc.where(x, old))
    _add(f"s_cselect_b{_bits}", f"{_t} <- {_t} {_t} scc", lambda x, y, scc: scc.where(x, y))
    _add(f"s_not_b{_bits}", f"{_t} scc <- {_t}", lambda x: _flagged(_inverted(x)))
    for _name, _function in (
        ("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y),
        ("nand", lambda x, y: _inverted(x & y)), ("nor", lambda x, y: _inverted(x | y)),
        ("xnor", lambda x, y: _inverted(x ^ y)), ("andn2", lambda x, y: x & _inverted(y)),
        ("and_not1", lambda x, y: x & _inverted(y)), ("orn2", lambda x, y: x | _inverted(y)),
        ("or_not1", lambda x, y: x | _inverted(y)), ("andn1", lambda x, y: _inverted(x) & y),
        ("and_not0", lambda x, y: _inverted(x) & y), ("orn1", lambda x, y: _inverted(x) | y),
        ("or_not0", lambda x, y: _inverted(x) | y),
    ):  # fmt: skip
        _add(
            f"s_{_name}_b{_bits}",
            f"{_t} scc <- {_t} {_t}",
            lambda x, y, _f=_function: _flagged(_f(x, y)),
        )
        _add(
            f"s_{_name}_saveexec_b{_bits}",
            f"{_t} exec scc <- {_t} exec",
            lambda x, lanes, _f=_function: (lanes, *_flagged(_f(x, lanes))),
        )
    # "n2" of a saved mask inverts the mask, "n1" the operand
    _add(f"s_lshl_b{_bits}", f"{_t} scc <- {_t} u32", lambda x, y: _flagged(shift_left(x, y)))
    _add(f"s_lshr_b{_bits}", f"{_t} scc <- {_t} u32", lambda x, y: _flagged(shift_right(x, y)))
    _i = f"i{_bits}"
    _add(f"s_ashr_{_i}", f"{_i} scc <- {_i} u32", lambda x, y: _flagged(shift_right(x, y)))
_add("s_movk_i32", "i32 <- i32", lambda x: x)
_add("s_cmovk_i32", "i32 <- i32 i32 scc", lambda old, x, scc: scc.where(x, old))
for _count in (1, 2, 3, 4):
    _add(
        f"s_lshl{_count}_add_u32",
        "u32 scc <- u32 u32",
        lambda x, y, _c=_count: _shifted_sum(x, y, _c),
    )


def _shifted_sum(x: UOp, y: UOp, count: int) -> tuple[UOp, UOp]:
    total = by(x.cast(u64), count, left=True) + y.cast(u64)
    return total.cast(u32), less(UOp.const(u64, 0xFFFFFFFF), total)


# ------------------------------------------------------------ whole numbers
def _sum(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    total = x + y
    return total, less(total, x)


def _sum_carry(x: UOp, y: UOp, carry: UOp) -> tuple[UOp, UOp]:
    total = x + y
    more = total + carry.cast(u32)
    return more, either(less(total, x), less(more, total))


def _difference_carry(x: UOp, y: UOp, borrow: UOp) -> tuple[UOp, UOp]:
    wide = x.cast(u64) - y.cast(u64) - borrow.cast(u64)
    return wide.cast(u32), less(UOp.const(u64, 0xFFFFFFFF), wide)


def _overflowing(x: UOp, y: UOp, is_sum: bool) -> tuple[UOp, UOp]:
    total = x + y if is_sum else x - y
    other = y if is_sum else _inverted_sign(y)
    bits = (total ^ x) & (total ^ other)
    return total, less(bits, const(0, bits))


def _inverted_sign(y: UOp) -> UOp:
    return y ^ const(-1, y)


_add("s_add_u32 s_add_co_u32", "u32 scc <- u32 u32", _sum)
_add("s_sub_u32 s_sub_co_u32", "u32 scc <- u32 u32", lambda x, y: (x - y, less(x, y)))
_add("s_add_i32 s_add_co_i32", "i32 scc <- i32 i32", lambda x, y: _overflowing(x, y, True))
_add("s_sub_i32 s_sub_co_i32", "i32 scc <- i32 i32", lambda x, y: _overflowing(x, y, False))
_add("s_addk_i32 s_addk_co_i32", "i32 scc <- i32 i32", lambda x, y: _overflowing(x, y, True))
_add("s_addc_u32 s_add_co_ci_u32", "u32 scc <- u32 u32 scc", _sum_carry)
_add("s_subb_u32 s_sub_co_ci_u32", "u32 scc <- u32 u32 scc", _difference_carry)
_add("s_add_nc_u64 s_add_u64", "u64 <- u64 u64", lambda x, y: x + y)
_add("s_sub_nc_u64 s_sub_u64", "u64 <- u64 u64", lambda x, y: x - y)
_add("s_mul_i32 s_mulk_i32", "i32 <- i32 i32", lambda x, y: x * y)
_add("s_mul_u64", "u64 <- u64 u64", lambda x, y: x * y)
_add("s_mul_hi_u32", "u32 <- u32 u32", lambda x, y: by(x.cast(u64) * y.cast(u64), 32).cast(u32))
_add("s_mul_hi_i32", "i32 <- i32 i32", lambda x, y: by(x.cast(i64) * y.cast(i64), 32).cast(i32))
for _t in ("i32", "u32"):
    _add(f"s_min_{_t}", f"{_t} scc <- {_t} {_t}", lambda x, y: (minimum(x, y), less(x, y)))
    _add(f"s_max_{_t}", f"{_t} scc <- {_t} {_t}", lambda x, y: (maximum(x, y), less(y, x)))
_add("s_abs_i32", "i32 scc <- i32", lambda x: _flagged(less(x, const(0, x)).where(-x, x)))
_add("s_absdiff_i32", "i32 scc <- i32 i32",
     lambda x, y: _flagged(less(x - y, const(0, x)).where(y - x, x - y)))  # fmt: skip
_add("s_sext_i32_i8", "i32 <- i32", lambda x: by(by(x, 24, left=True), 24))
_add("s_sext_i32_i16", "i32 <- i32", lambda x: by(by(x, 16, left=True), 16))


# ------------------------------------------------------------ fields of bits
def _field(x: UOp, where: UOp) -> tuple[UOp, UOp]:
    """`where`: the first bit below 5 or 6 bits, how many from bit 16 on."""
    unsigned = x.dtype if x.dtype.kind == "uint" else {i32: u32, i64: u64}[x.dtype]
    width = x.dtype.bitsize
    start = where & const(width - 1, where)
    count = minimum(by(where, 16) & const(0x7F, where), const(width, where))
    none = same(count, const(0, count))
    moved = shift_right(x, start)
    # bits above the field are shifted out at the top, and others in from there
    spare = none.where(const(0, count), const(width, count) - count).cast(unsigned)
    bits = as_bits(moved).alu(Ops.SHL, spare & const(width - 1, spare))
    signed = bits.bitcast(x.dtype) if x.dtype is not unsigned else bits
    found = signed.alu(Ops.SHR, (spare & const(width - 1, spare)).cast(x.dtype))
    return _flagged(none.where(const(0, x), found))


_add("s_bfe_u32", "u32 scc <- u32 u32", _field)
_add("s_bfe_i32", "i32 scc <- i32 u32", _field)
_add("s_bfe_u64", "u64 scc <- u64 u32", _field)
_add("s_bfe_i64", "i64 scc <- i64 u32", _field)
_add("s_bfm_b32", "u32 <- u32 u32",
     lambda x, y: shift_left(shift_left(const(1, x), x) - const(1, x), y))  # fmt: skip
_add("s_brev_b32", "u32 <- u32", reversed_bits)
_add("s_bcnt1_i32_b32", "u32 scc <- u32", lambda x: _flagged(count_bits(x)))
_add("s_bcnt0_i32_b32", "u32 scc <- u32", lambda x: _flagged(count_bits(_inverted(x))))
_add("s_bcnt1_i32_b64", "u32 scc <- u64",
     lambda x: _flagged(count_bits(x.cast(u32)) + count_bits(by(x, 32).cast(u32))))  # fmt: skip
_add("s_ff1_i32_b32 s_ctz_i32_b32", "u32 <- u32", first_one)
_add("s_flbit_i32_b32 s_clz_i32_u32", "u32 <- u32", leading_zeros)
_add("s_flbit_i32 s_cls_i32", "u32 <- i32", leading_signs)


def _first_of_pair(x: UOp) -> UOp:
    low, high = x.cast(u32), by(x, 32).cast(u32)
    upper = same(high, const(0, high)).where(
        const(0xFFFFFFFF, high), first_one(high) + const(32, high)
    )
    return same(low, const(0, low)).where(upper, first_one(low))


def _leading_of_pair(x: UOp) -> UOp:
    low, high = x.cast(u32), by(x, 32).cast(u32)
    lower = same(low, const(0, low)).where(
        const(0xFFFFFFFF, low), leading_zeros(low) + const(32, low)
    )
    return same(high, const(0, high)).where(lower, leading_zeros(high))


_add("s_ff1_i32_b64 s_ctz_i32_b64", "u32 <- u64", _first_of_pair)
_add("s_flbit_i32_b64 s_clz_i32_u64", "u32 <- u64", _leading_of_pair)
_add("s_pack_ll_b32_b16", "u32 <- u32 u32",
     lambda x, y: (x & const(0xFFFF, x)) | by(y, 16, left=True))  # fmt: skip
_add("s_pack_lh_b32_b16", "u32 <- u32 u32",
     lambda x, y: (x & const(0xFFFF, x)) | (y & const(0xFFFF0000, y)))  # fmt: skip
_add("s_pack_hh_b32_b16", "u32 <- u32 u32", lambda x, y: by(x, 16) | (y & const(0xFFFF0000, y)))
_add("s_pack_hl_b32_b16", "u32 <- u32 u32", lambda x, y: by(x, 16) | by(y, 16, left=True))
_add("s_bitset0_b32", "u32 <- u32 u32",
     lambda x, old: old & _inverted(shift_left(const(1, x), x)))  # fmt: skip
_add("s_bitset1_b32", "u32 <- u32 u32", lambda x, old: old | shift_left(const(1, x), x))


def _bit(x: UOp, place: UOp) -> UOp:
    return shift_right(x, place) & const(1, x)


for _bits in ("32", "64"):
    _t = f"u{_bits}"
    _add(f"s_bitcmp0_b{_bits}", f"scc <- {_t} u32", lambda x, y: same(_bit(x, y), const(0, x)))
    _add(f"s_bitcmp1_b{_bits}", f"scc <- {_t} u32", lambda x, y: differs(_bit(x, y), const(0, x)))

# ------------------------------------------------------------ comparisons
for _t in ("i32", "u32", "u64"):
    for _name, _test in INTEGERS.items():
        _add(f"s_cmp_{_name}_{_t}", f"scc <- {_t} {_t}", _test)
        if _t != "u64":
            _add(f"s_cmpk_{_name}_{_t}", f"scc <- {_t} {_t}", _test)
for _t in ("f16", "f32"):
    for _name, _test in FLOATS.items():
        _add(f"s_cmp_{_name}_{_t}", f"scc <- {_t} {_t}", _test)

# ------------------------------------------------------------ floats (RDNA 3.5 and later)
for _t in ("f16", "f32"):
    _two = f"{_t} <- {_t} {_t}"
    _add(f"s_add_{_t}", _two, lambda x, y: x + y)
    _add(f"s_sub_{_t}", _two, lambda x, y: x - y)
    _add(f"s_mul_{_t}", _two, lambda x, y: x * y)
    _add(f"s_min_{_t} s_min_num_{_t}", _two, minimum_number)
    _add(f"s_max_{_t} s_max_num_{_t}", _two, maximum_number)
    _add(f"s_minimum_{_t}", _two, minimum)
    _add(f"s_maximum_{_t}", _two, maximum)
    _add(f"s_fmac_{_t} s_fmaak_{_t} s_fmamk_{_t}", f"{_t} <- {_t} {_t} {_t}", fused)
    _add(f"s_ceil_{_t}", f"{_t} <- {_t}", ceil)
    _add(f"s_floor_{_t}", f"{_t} <- {_t}", floor)
    _add(f"s_trunc_{_t}", f"{_t} <- {_t}", lambda x: x.alu(Ops.TRUNC))
    _add(f"s_rndne_{_t}", f"{_t} <- {_t}", round_even)
_CAST = {"f16": f16, "f32": f32, "i32": i32, "u32": u32}
for _to, _of in (
    ("f32", "i32"), ("f32", "u32"), ("i32", "f32"), ("u32", "f32"), ("f16", "f32"), ("f32", "f16"),
):  # fmt: skip
    _add(f"s_cvt_{_to}_{_of}", f"{_to} <- {_of}", lambda x, _d=_to: x.cast(_CAST[_d]))
_add("s_cvt_hi_f32_f16", "f32 <- u32",
     lambda x: by(x, 16).cast(dtypes.uint16).bitcast(f16).cast(f32))  # fmt: skip
