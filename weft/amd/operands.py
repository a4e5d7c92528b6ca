"""What an operand's field means: a register, a constant, a literal, or a plain number.

In: a slot of a row and the fields of an instruction. Out: an `Operand`. Between `table` and
`decode`. Invariant: an operand says the same whichever encoding held it: the accumulation bit, the
halves of true16 registers and the modifier bits are taken apart here and nowhere else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.amd.table import Row, Slot
from weft.amd.targets import CDNA, RDNA3, RDNA4, Target
from weft.errors import DataError

INLINE_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
INVERSE_TWO_PI = {
    "f16": 0x3118,
    "bf16": 0x3E22,
    "f32": 0x3E22F983,
    "f64": 0x3FC45F306DC9C882,
}
SPECIAL_SOURCES = {
    230: "src_flat_scratch_base_lo",
    231: "src_flat_scratch_base_hi",
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
    254: "src_lds_direct",
}
SIGNED_FIELDS = {"SOPPBrTarget": 16}


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: see `docs/amd.md` for what each kind holds."""

    name: str
    kind: str
    index: int = 0
    count: int = 1
    bits: int = 32
    value: int = 0
    type: str = ""
    half: int | None = None
    register: str = ""
    neg: bool = False
    abs: bool = False
    sext: bool = False
    op_sel: int = 0
    op_sel_hi: int = 0
    neg_lo: int = 0
    neg_hi: int = 0
    tied: str = ""
    is_result: bool = False

    def widened(self, count: int, gpu: Target) -> Operand:
        """The same first register with `count` of them."""
        shown = register_name(self.kind, self.index, count, self.half, gpu)
        return replace(self, count=count, bits=32 * count, register=shown)


def scalar_names(gpu: Target) -> dict[int, tuple[str, str]]:
    """Scalar registers with names of their own: number -> (name of one, name of the pair)."""
    names = {106: ("vcc_lo", "vcc"), 107: ("vcc_hi", ""), 126: ("exec_lo", "exec")}
    names[127] = ("exec_hi", "")
    if gpu.family in (RDNA3, RDNA4):
        names |= {124: ("null", "null"), 125: ("m0", "")}
    else:
        names |= {124: ("m0", ""), 125: ("null", "null"), 102: ("flat_scratch_lo", "flat_scratch")}
        names |= {103: ("flat_scratch_hi", ""), 104: ("xnack_mask_lo", "xnack_mask")}
        names |= {105: ("xnack_mask_hi", "")}
    return names


def register_name(kind: str, index: int, count: int, half: int | None, gpu: Target) -> str:
    """What LLVM calls a register or a range of them."""
    if kind == "s":
        named = scalar_names(gpu).get(index)
        if named and (count == 1 or (count == 2 and named[1]) or named[0] == "null"):
            return named[0] if count == 1 else named[1]
        if 108 <= index <= 123:
            kind, index = "ttmp", index - 108
    if count == 1:
        return f"{kind}{index}" + ("" if half is None else ".lh"[0] + "lh"[half])
    return f"{kind}[{index}:{index + count - 1}]"


def constant_bits(number: int, element: str, bits: int) -> int:
    """What a source of an element type reads from inline constant `number`."""
    width = {"f16": 16, "bf16": 16, "i16": 16}.get(element, 32 if element.startswith("v2") else 0)
    width = width or {"f64": 64, "i64": 64}.get(element, min(bits, 64) if not element else 32)
    mask = (1 << width) - 1
    if 128 <= number <= 192:
        return number - 128
    if 193 <= number <= 208:
        return (192 - number) & mask
    scalar = element.removeprefix("v2")
    # integers read the pattern of a float32, or of a float64 where they are that wide
    scalar = {"i64": "f64", "i32": "f32", "i16": "f32", "": "f64" if bits == 64 else "f32"}.get(
        scalar, scalar
    )
    if number == 248:
        return INVERSE_TWO_PI[scalar] & mask
    value = INLINE_FLOATS[number - 240]
    if scalar == "bf16":
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[scalar]
    return int.from_bytes(struct.pack(code, value), "little") & mask


def literal_bits(literal: int, element: str, bits: int) -> int:
    """What a source of an element type reads from a 32-bit literal."""
    if element == "f64":
        return literal << 32
    if element == "i64" or (not element and bits == 64):
        return literal | (0xFFFFFFFF << 32 if literal >> 31 else 0)
    if element in ("f16", "bf16", "i16"):
        return literal & 0xFFFF
    return literal


def _modifiers(row: Row, slot: Slot, fields: Mapping[str, int]) -> dict[str, int | bool]:
    """Negations, absolute values and half selections of a source."""
    value = fields.get(f"{slot.name}_modifiers")
    if value is None:
        return {}
    kind = next(each.type for each in row.slots if each.name == f"{slot.name}_modifiers")
    if row.trait.encoding == "vop3p" and "Packed" in kind.name or "packed" in row.flags:
        return {
            "neg_lo": value & 1,
            "neg_hi": value >> 1 & 1,
            "op_sel": value >> 2 & 1,
            "op_sel_hi": value >> 3 & 1,
        }
    if "Int" in kind.name or "Bin" in kind.name:
        return {"sext": bool(value & 16 or value & 1), "op_sel": value >> 2 & 1}
    found: dict[str, int | bool] = {"neg": bool(value & 1), "abs": bool(value & 2)}
    found["op_sel"] = value >> 2 & 1
    found["op_sel_hi"] = value >> 3 & 1
    return found


def read_operand(
    row: Row,
    slot: Slot,
    fields: Mapping[str, int],
    literal: int | None,
    gpu: Target,
    wave: int,
    known: Mapping[str, Operand],
) -> Operand | None:
    """The operand of a slot; None for one that the encoding does not hold."""
    kind = slot.type
    tied = row.tied.get(slot.name, "")
    value = fields.get(slot.name)
    if value is None:
        if not tied:
            tied = next((source for source, result in row.tied.items() if result == slot.name), "")
        if kind.is_register and tied in known:
            twin = known[tied]
            return Operand(
                slot.name,
                twin.kind,
                twin.index,
                twin.count,
                twin.bits,
                half=twin.half,
                register=twin.register,
                tied=tied,
                is_result=slot.is_result,
            )
        return None
    if not kind.is_register and not kind.takes_constants:
        return _plain(row, slot, value, gpu)
    return _register(row, slot, value, fields, literal, gpu, wave, tied)


def _plain(row: Row, slot: Slot, value: int, gpu: Target) -> Operand:
    """A field that is a number."""
    kind = slot.type
    if gpu.family == RDNA4 and row.encoding in ("mubuf", "mtbuf") and kind.name == "Offset":
        if value >> 23:
            raise DataError(f"{row.mnemonic}: a buffer's offset is not negative")
    if kind.name == "SOPPBrTarget":
        return Operand(slot.name, "label", value=signed(value, 16), bits=16)
    if kind.name == "flat_offset":
        # in the flat address space offsets only go up, but on RDNA 4
        bits = flat_offset_bits(gpu)
        is_signed = row.encoding != "flat" or gpu.family == RDNA4
        return Operand(slot.name, "immediate", value=signed(value, bits) if is_signed else value)
    if kind.name in ("SMEMOffset", "SMEMOffsetMod", "OptSMEMOffsetMod"):
        found = signed(value, 24 if gpu.family == RDNA4 else 21)
        if found < 0 and gpu.family == RDNA4 and "_buffer_" in row.mnemonic:
            raise DataError(f"{row.mnemonic}: a buffer's offset is not negative")
        return Operand(slot.name, "immediate", value=found)
    return Operand(slot.name, "immediate", value=value)


def flat_offset_bits(gpu: Target) -> int:
    """Bits of the offset of flat, global and scratch instructions, with the sign."""
    return 24 if gpu.family == RDNA4 else 13


def signed(value: int, bits: int) -> int:
    """Two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _register(
    row: Row,
    slot: Slot,
    value: int,
    fields: Mapping[str, int],
    literal: int | None,
    gpu: Target,
    wave: int,
    tied: str,
) -> Operand:
    """A field that names a register, a constant or the literal."""
    kind = slot.type
    bits = kind.bits
    if kind.decoder in ("decodeBoolReg", "decodeSDWAVopcDst"):
        bits = wave
    if kind.printer == "printAVLdSt32Align2RegOp":
        bits = 32
    count = max(1, bits // 32)
    half: int | None = None
    letter, index = _place(kind.decoder, kind.files, value, row.modifier_encoding)
    modifiers = _modifiers(row, slot, fields)
    if "VGPR_16" in kind.register_class or "VS_16" in kind.register_class:
        bits = 16
        if letter == "v":
            half, index = _half(row, slot, value, index, fields)
    if kind.decoder == "decodeSDWAVopcDst":
        letter, index = ("s", value & 127) if value & 128 else ("s", 106)
    if kind.decoder == "decodeOperandVOPDDstY":
        index = value & 0xFE | (~fields["vdstX"] & 1)
    if kind.files == "s" and kind.decoder != "decodeSDWAVopcDst" and value > 255:
        raise DataError(f"operand {slot.name} is a scalar register; {value} is none")
    if kind.decoder.startswith("decodeSrcAV10") and not value & 256:
        raise DataError(f"operand {slot.name} is a vector register; source {value & 255} is none")
    if letter == "s" and index > 127:
        if not kind.takes_constants and index not in SPECIAL_SOURCES:
            raise DataError(f"operand {slot.name} is a register; {index} is none")
        return _constant(slot, index, bits, literal, modifiers, gpu)
    if letter == "s" and count > 1:
        index = _scalar_tuple(slot.name, index, count, gpu)
    return Operand(
        slot.name,
        letter,
        index,
        count,
        bits,
        type=kind.element,
        half=half,
        register=register_name(letter, index, count, half, gpu),
        tied=tied,
        is_result=slot.is_result,
        **modifiers,  # type: ignore[arg-type]
    )


def _scalar_tuple(name: str, index: int, count: int, gpu: Target) -> int:
    """The first of several scalar registers: low bits are ignored, and all must be there."""
    start = index & ~(1 if count == 2 else 3)
    last = 102 if gpu.family == CDNA else 106
    if start + count <= last or (108 <= start and start + count <= 124):
        return start
    if index == (125 if gpu.family == CDNA else 124) and (count == 2 or gpu.family != CDNA):
        return index  # null has as many as are asked for
    if count == 2 and start in (102, 104, 106, 126):
        return start
    raise DataError(f"operand {name}: there are no {count} scalar registers from {index} on")


def _place(decoder: str, files: str, value: int, extended: str) -> tuple[str, int]:
    """Register file and number of a field, by the way that LLVM reads it."""
    if decoder.startswith("decodeSrcA9") or decoder.startswith("decodeSrcRegOrImmA9"):
        return ("a", value & 255) if value & 256 else ("s", value & 255)
    if decoder.startswith(("decodeAV", "decodeSrcAV")) or (not decoder and files == "va"):
        return ("a" if value & 512 else "v"), value & 255
    if decoder.startswith("decodeSDWASrc"):
        return ("s" if value & 256 else "v"), value & 255
    if decoder.startswith(("decodeSrc", "decodeOperand_VSrc")):
        return ("v", value & 255) if value & 256 else ("s", value & 255)
    if decoder.startswith("decodeSplitBarrier") or files == "s":
        return "s", value & 255
    return ("a" if files == "a" else "v"), value & 255


def _half(
    row: Row, slot: Slot, value: int, index: int, fields: Mapping[str, int]
) -> tuple[int, int]:
    """Which half of which register a 16-bit operand is."""
    if "Lo128" in slot.type.register_class:
        return value >> 7 & 1, index & 127
    if slot.is_result:
        return fields.get("src0_modifiers", 0) >> 3 & 1, index
    return fields.get(f"{slot.name}_modifiers", 0) >> 2 & 1, index


def _constant(
    slot: Slot,
    number: int,
    bits: int,
    literal: int | None,
    modifiers: Mapping[str, int | bool],
    gpu: Target,
) -> Operand:
    """A source number that is no register: inline constants, the literal, special sources."""
    element = slot.type.element
    if number in SPECIAL_SOURCES:
        name = SPECIAL_SOURCES[number]
        return Operand(
            slot.name,
            "special",
            number,
            bits=bits,
            type=element,
            register=name,
            **modifiers,  # type: ignore[arg-type]
        )
    if number == 255:
        # an encoding without literals that asks for one reads none: 0 stands for it
        kind, value = "literal", literal_bits(literal or 0, element, bits)
    elif 128 <= number <= 208 or 240 <= number <= 248:
        # 16-bit integers read the pattern of a float16 from RDNA on, as LLVM has it
        read_as = "f16" if element == "i16" and gpu.family != CDNA and number >= 240 else element
        kind, value = "constant", constant_bits(number, read_as, bits)
    else:
        raise DataError(f"operand {slot.name}: {number} is no source of this target")
    return Operand(
        slot.name,
        kind,
        number,
        bits=bits,
        value=value,
        type=element,
        **modifiers,  # type: ignore[arg-type]
    )
