"""One lane of an instruction with its modifiers, as one expression of whole registers.

In: a row, and what an encoding adds to it: signs and halves of sources, clamp and scaling of the
result, which half is written, packed pairs. Out: `Lane`: leaves of 32 or 64 bits (or bools), and
results of the same. On top of the tables; compiled helpers and the reference stepper both use it.
Invariant: a result is the whole register that is written; what an instruction leaves alone is taken
from the leaf `old`.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.amd.semantics.rows import (
    FORMATS,
    TYPES,
    Row,
    as_bits,
    both,
    by,
    const,
    differs,
    either,
    f16,
    f32,
    f64,
    fused,
    i32,
    i64,
    is_nan,
    leaf,
    less,
    maximum,
    minimum,
    of_bits,
    same,
    u16,
    u32,
    u64,
)
from weft.amd.semantics.scalar import SCALAR
from weft.amd.semantics.vector import VECTOR
from weft.dtype import DType, dtypes
from weft.uop.node import UOp

# parts of a register that SDWA selects: bits and their first
_SELECTED = {0: (8, 0), 1: (8, 8), 2: (8, 16), 3: (8, 24), 4: (16, 0), 5: (16, 16), 6: (32, 0)}
PADDED, EXTENDED, PRESERVED = 0, 1, 2
DWORD = 6


@dataclass(frozen=True)
class Source:
    """How a source is read."""

    neg: bool = False
    abs: bool = False
    half: int = 0  # of 16-bit sources: which half of the register
    select: int = DWORD  # SDWA's part
    sext: bool = False
    # of packed sources: the half of the first and of the second result, and their signs
    op_sel: int = 0
    op_sel_hi: int = 1
    neg_lo: bool = False
    neg_hi: bool = False


@dataclass(frozen=True)
class Result:
    """How the first result is written."""

    clamp: bool = False
    omod: int = 0  # 1: times 2, 2: times 4, 3: halved
    half: int | None = None  # of 16-bit results: the half that is written; None: the rest is 0
    select: int = DWORD
    unused: int = PADDED
    # the mode: two bits of float32, then two of the others; bit 0: denormal sources are kept, bit
    # 1: denormal results are
    denormals: int = 15
    rounding: int = 0  # to the nearest, up, down, to zero

    def keeps(self, dtype: DType) -> int:
        """The two bits of a float's type."""
        return (self.denormals >> (0 if dtype is f32 else 2)) & 3


@dataclass(frozen=True)
class Lane:
    """Leaves by name with their bits (1: a lane's bit of a mask), and results in order."""

    leaves: tuple[tuple[str, UOp], ...]
    results: tuple[UOp, ...]

    @property
    def reads_old(self) -> bool:
        return any([name == "old" for name, _ in self.leaves])


def register_bits(kind: str) -> int:
    """Bits of the registers that an operand of a type takes; 1 for masks and conditions."""
    if kind in ("m", "scc"):
        return 1
    return 64 if TYPES[kind].bitsize == 64 else 32


def lane_of(row: Row, sources: tuple[Source, ...], result: Result) -> Lane:
    """One lane of an instruction that is not packed."""
    leaves: list[tuple[str, UOp]] = []
    values: list[UOp] = []
    for number, kind in enumerate(row.sources):
        bits = register_bits(kind)
        node = leaf(f"s{number}", {1: dtypes.bool, 32: u32, 64: u64}[bits])
        leaves.append((f"s{number}", node))
        how = sources[number] if number < len(sources) else Source()
        value = _typed(node, TYPES[kind], how) if bits > 1 else node
        values.append(_flushed(value, not result.keeps(value.dtype) & 1))
    results = list(row.compute(values))
    first = results[0]
    if first.dtype.kind != "bool":
        first = _flushed(first, not result.keeps(first.dtype) & 2)
        first = _modified(first, row, values, result)
        word, old = _merged(first, result)
        if old is not None:
            leaves.append(("old", old))
        results[0] = word
    return Lane(tuple(leaves), tuple([r if r.dtype.kind == "bool" else _word(r) for r in results]))


def _flushed(value: UOp, is_flushed: bool) -> UOp:
    """A float whose denormals are zeros of their sign, if the mode says so."""
    form = FORMATS.get(value.dtype)
    if form is None or not is_flushed:
        return value
    bits = as_bits(value)
    zero = of_bits(bits & const(form.sign_mask, bits), value.dtype)
    return form.is_denormal(value).where(zero, value)


def _word(x: UOp) -> UOp:
    bits = as_bits(x)
    return bits if bits.dtype in (u32, u64) else bits.cast(u32)


def _typed(register: UOp, dtype: DType, how: Source) -> UOp:
    """A source of a row's type, out of a register."""
    bits = register
    if how.select != DWORD:
        width, first = _SELECTED[how.select]
        bits = by(register, first) & const((1 << width) - 1, register)
        if how.sext and width < 32:
            sign = const(1 << (width - 1), bits)
            bits = (bits ^ sign) - sign
    elif how.half and dtype.bitsize == 16:
        bits = by(register, 16)
    if dtype.bitsize == 16:
        bits = bits.cast(u16)
    if how.abs or how.neg:
        # a sign is that of a float, also where bits are only chosen
        top = 1 << (dtype.bitsize - 1)
        if how.abs:
            bits = bits & const(top - 1, bits)
        if how.neg:
            bits = bits ^ const(top, bits)
    return of_bits(bits, dtype)


def _modified(value: UOp, row: Row, values: list[UOp], result: Result) -> UOp:
    if value.dtype.kind == "float":
        if result.omod:
            value = value * const((1.0, 2.0, 4.0, 0.5)[result.omod], value)
        if result.clamp:
            bounded = minimum(maximum(value, const(0.0, value)), const(1.0, value))
            value = is_nan(value).where(const(0.0, value), bounded)
        return value
    return _saturated(value, row, values) if result.clamp else value


_WIDER = {32: i64, 16: i32}


def _saturated(value: UOp, row: Row, values: list[UOp]) -> UOp:
    """Of sums, differences and products of at most 32 bits: computed wider, then bounded."""
    dtype = value.dtype
    if dtype.bitsize == 64:
        return value
    wider = _WIDER[dtype.bitsize]
    wide = row.compute([v.cast(wider) if v.dtype.kind != "bool" else v for v in values])[0]
    low, high = const(dtype.min, wide), const(dtype.max, wide)
    return minimum(maximum(wide, low), high).cast(dtype)


def _merged(value: UOp, result: Result) -> tuple[UOp, UOp | None]:
    """The register that is written, and the leaf of what it was before."""
    bits = as_bits(value)
    if result.select != DWORD:
        width, first = _SELECTED[result.select]
        part = bits.cast(u32) & UOp.const(u32, (1 << width) - 1)
        moved = by(part, first, left=True)
        if result.unused == PADDED:
            return moved, None
        if result.unused == EXTENDED:
            sign = UOp.const(u32, 1 << (width - 1))
            return by((part ^ sign) - sign, first, left=True), None
        old = leaf("old", u32)
        return moved | (old & UOp.const(u32, ~(((1 << width) - 1) << first) & 0xFFFFFFFF)), old
    if value.dtype.bitsize != 16 or result.half is None:
        return _word(value), None
    old = leaf("old", u32)
    word = bits.cast(u32)
    if result.half:
        return by(word, 16, left=True) | (old & UOp.const(u32, 0xFFFF)), old
    return word | (old & UOp.const(u32, 0xFFFF0000)), old


# ------------------------------------------------------------ pairs in one register
_PACKED_NAMES = {
    "v_pk_add_u16": "v_add_nc_u16", "v_pk_add_i16": "v_add_nc_i16", "v_pk_sub_u16": "v_sub_nc_u16",
    "v_pk_sub_i16": "v_sub_nc_i16", "v_pk_mov_b32": "v_mov_b32",
}  # fmt: skip


def packed_row(mnemonic: str) -> Row | None:
    """The row of one half of a packed instruction."""
    if not mnemonic.startswith("v_pk_"):
        return None
    return VECTOR.get(_PACKED_NAMES.get(mnemonic, "v_" + mnemonic[5:]))


def packed_lane(mnemonic: str, row: Row, sources: tuple[Source, ...], result: Result) -> Lane:
    """Both halves: the first from the halves that `op_sel` names, the second from `op_sel_hi`."""
    element = TYPES[row.results[0]]
    size = element.bitsize
    whole = u64 if size == 32 else u32
    if mnemonic == "v_pk_mov_b32":
        leaves = [leaf(f"s{i}", u64) for i in range(2)]
        parts = [
            by(node, 32 * (how.op_sel if place == 0 else how.op_sel)).cast(u32)
            for place, (node, how) in enumerate(zip(leaves, sources, strict=True))
        ]
        word = parts[0].cast(u64) | by(parts[1].cast(u64), 32, left=True)
        return Lane(tuple([(f"s{i}", n) for i, n in enumerate(leaves)]), (word,))
    leaves = [leaf(f"s{i}", whole) for i in range(len(row.sources))]
    halves: list[UOp] = []
    for place in range(2):
        values = []
        for kind, node, how in zip(row.sources, leaves, sources, strict=True):
            chosen = how.op_sel_hi if place else how.op_sel
            bits = by(node, size * chosen).cast(u32 if size == 32 else u16)
            if how.neg_hi if place else how.neg_lo:
                bits = bits ^ const(1 << (size - 1), bits)
            values.append(of_bits(bits, TYPES[kind]))
        halves.append(as_bits(_modified(row.compute(values)[0], row, values, result)))
    word = halves[0].cast(whole) | by(halves[1].cast(whole), size, left=True)
    return Lane(tuple([(f"s{i}", n) for i, n in enumerate(leaves)]), (word,))


def mixed_lane(mnemonic: str, sources: tuple[Source, ...], result: Result) -> Lane:
    """v_fma_mix: each source is a float32, or one half of a register as `op_sel_hi` says."""
    leaves = [leaf(f"s{i}", u32) for i in range(3)]
    values = []
    for node, how in zip(leaves, sources, strict=True):
        value = of_bits(node, f32)
        if how.op_sel_hi:
            value = by(node, 16 * how.op_sel).cast(u16).bitcast(f16).cast(f32)
        bits = as_bits(value)
        if how.abs:
            bits = bits & const(0x7FFFFFFF, bits)
        if how.neg:
            bits = bits ^ const(0x80000000, bits)
        values.append(of_bits(bits, f32))
    total = fused(*values)
    if mnemonic not in ("v_fma_mix_f32", "v_mad_mix_f32"):
        # rounded once, to a half: of any floats, unlike the sum of halves
        total = fused_odd(*values).cast(f16)
    row = Row(("f16" if total.dtype is f16 else "f32",), (), lambda: total)
    total = _modified(total, row, [], result)
    named = [(f"s{i}", n) for i, n in enumerate(leaves)]
    word, old = _merged(total, Result(half=1 if "hi" in mnemonic else 0))
    if old is not None:
        named.append(("old", old))
    return Lane(tuple(named), (word,))


def fused_odd(x: UOp, y: UOp, z: UOp) -> UOp:
    """x * y + z of float32 in double, rounded to odd, then to a float32 that is odd where inexact.

    The product is exact in double. See `fused_wide`.
    """
    product = x.cast(f64) * y.cast(f64)
    addend = z.cast(f64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    near = total.cast(f32)
    rest = (total - near.cast(f64)) + lost
    bits = as_bits(near)
    even = same(bits & const(1, bits), const(0, bits))
    grows = same(less(rest, const(0.0, rest)), less(near, const(0.0, near)))
    nudged = grows.where(bits + const(1, bits), bits - const(1, bits))
    inexact = both(either(less(rest, const(0.0, rest)), less(const(0.0, rest), rest)), even)
    finite = less(bits & const(0x7FFFFFFF, bits), const(0x7F800000, bits))
    nonzero = differs(bits & const(0x7FFFFFFF, bits), const(0, bits))
    return of_bits(both(both(inexact, finite), nonzero).where(nudged, bits), f32)


def ternary_lane(table: int, bits: int, result: Result) -> Lane:
    """Any function of three bits: `table` is its value for each combination."""
    leaves = [leaf(f"s{i}", u32) for i in range(3)]
    found = UOp.const(u32, 0)
    for number in range(8):
        if table >> number & 1:
            term = UOp.const(u32, 0xFFFFFFFF)
            for place, node in enumerate(leaves):
                is_set = number >> (2 - place) & 1
                term = term & (node if is_set else node ^ UOp.const(u32, 0xFFFFFFFF))
            found = found | term
    named = [(f"s{i}", n) for i, n in enumerate(leaves)]
    if bits == 32:
        return Lane(tuple(named), (found,))
    word, old = _merged(found.cast(u16), result)
    if old is not None:
        named.append(("old", old))
    return Lane(tuple(named), (word,))


def vector_row(mnemonic: str) -> Row | None:
    """The row of a vector instruction; of half of a dual one too."""
    if mnemonic.startswith("v_dual_"):
        mnemonic = "v_" + mnemonic[7:]
    return VECTOR.get(mnemonic)


def scalar_row(mnemonic: str) -> Row | None:
    return SCALAR.get(mnemonic)
