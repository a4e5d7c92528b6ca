"""Operands to bytes: fills the fields of a row.

In: a row's shape, values in its order, modifiers by name. Out: the instruction's bytes, or a
`Misfit` that says why these operands are not this row's. The assembler and the DSL try rows with
it. Invariant: what is encoded here decodes to the same row, operands and modifiers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.amd import names
from weft.amd.images import address_registers, data_registers
from weft.amd.modifiers import bit_list, encode_modifier
from weft.amd.operands import INLINE_FLOATS, INVERSE_TWO_PI, SPECIAL_SOURCES
from weft.amd.shape import Shape
from weft.amd.table import Slot, Type
from weft.amd.targets import CDNA, RDNA4, Target
from weft.amd.values import Label, Number, Register, Value
from weft.errors import ArgumentError

LITERAL = 255
_RESULT_HALF, _SOURCE_HALF = 8, 4


class Misfit(ArgumentError):
    """Operands that a row does not take; `depth` says how many did fit."""

    def __init__(self, message: str, depth: int = 0):
        super().__init__(message)
        self.depth = depth


@dataclass
class Encoder:
    """One instruction being encoded."""

    shape: Shape
    gpu: Target
    wave: int
    lenience: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    literal: int | None = None
    halves: dict[str, int] = field(default_factory=dict)

    def encode(self, values: Sequence[Value], modifiers: Mapping[str, object]) -> bytes:
        """The bytes; labels must have become numbers before."""
        self._check_words(modifiers)
        expected = self.shape.positional
        if len(values) == len(expected) - 1 and self._is_optional(expected[-1]):
            values = (*values, Number(0))
        if len(values) != len(expected):
            raise Misfit(_count_message(self.shape, len(values)), min(len(values), len(expected)))
        for depth, (name, value) in enumerate(zip(expected, values, strict=True)):
            try:
                self._operand(name, value)
            except Misfit as error:
                error.depth = depth
                raise
            except ArgumentError as error:
                raise Misfit(str(error), depth) from None
        try:
            self._modifiers(modifiers)
        except ArgumentError as error:
            raise Misfit(str(error), len(expected)) from None
        self._complete()
        return self._bytes()

    def _is_optional(self, name: str) -> bool:
        slot = self.shape.slots.get(name)
        return slot is not None and slot.type.printer == "printEndpgm"

    def _check_words(self, modifiers: Mapping[str, object]) -> None:
        for word in self.shape.words:
            if not modifiers.get(word):
                raise Misfit(f"this form needs {word}")
        unknown = [n for n in modifiers if n not in self.shape.accepts and modifiers[n]]
        if unknown:
            raise Misfit(f"there is no modifier {unknown[0]} here", 1)

    def _operand(self, name: str, value: Value) -> None:
        if name.startswith("="):
            wanted = name[1:]
            if str(value) != wanted:
                raise Misfit(f"{wanted} is expected where {value} stands")
            return
        if name == "vaddr*":
            self._addresses(value)
            return
        slot = self.shape.slots[name]
        printer = slot.type.printer
        if printer == "printInterpAttr":
            attribute, _, channel = str(value).partition(".")
            self.fields[name] = names.number(attribute.removeprefix("attr"))
            if channel not in ("x", "y", "z", "w"):
                raise Misfit(f"{value}: an attribute is written attr0.x")
            self.fields["attrchan"] = "xyzw".index(channel)
            return
        if printer in _NAMED:
            self.fields[name] = _NAMED[printer](str(_plain(value)), self.gpu)
            return
        if slot.type.operand_type.startswith("KIMM"):
            self._mandatory_literal(slot, value)
        elif slot.type.is_register or slot.type.takes_constants:
            self._register_or_constant(slot, value)
        else:
            self._number(slot, value)

    def _addresses(self, value: Value) -> None:
        registers = value if isinstance(value, tuple) else (value,)
        slots = [name for name in self.shape.slots if name.startswith("vaddr")]
        if len(registers) > len(slots):
            raise Misfit(f"{len(registers)} addresses are given; {len(slots)} are the most")
        if len(slots) > 1 and not isinstance(value, tuple) and self.shape.row.encoding == "mimg":
            raise Misfit("the addresses of this form are written [v1, v2, ...]")
        for number, name in enumerate(slots):
            if number >= len(registers):
                self.fields[name] = 0
                continue
            register = registers[number]
            if not isinstance(register, Register) or register.kind != "v":
                raise Misfit(f"{register} is no vector register")
            self.fields[name] = register.index
            self.counts[name] = register.count

    def _number(self, slot: Slot, value: Value) -> None:
        number = _plain(value)
        if isinstance(number, str) and slot.type.printer == "printU16ImmOperand":
            number = _version(number)
        if not isinstance(number, int):
            raise Misfit(f"{value} is no whole number, which {slot.name} is")
        found = self.shape.row.layout.fields.get(slot.name)
        if found is None:
            if number:
                raise Misfit(f"{slot.name} must be 0 here")
            return
        low, high = _range_of(slot, found.width, self.gpu)
        if not low <= number <= high:
            raise Misfit(f"{slot.name} is {number}; {low} to {high} fit")
        self.fields[slot.name] = number & found.mask

    def _mandatory_literal(self, slot: Slot, value: Value) -> None:
        if not isinstance(value, Number):
            raise Misfit(f"{value} is no number, which {slot.name} is")
        element = "f16" if slot.type.operand_type == "KIMM16" else "f32"
        self._set_literal(literal_of(value.value, element))
        self.fields["imm"] = self.literal or 0

    def _set_literal(self, literal: int) -> None:
        if self.literal is not None and self.literal != literal:
            raise Misfit("an instruction holds one literal; two different ones are given")
        self.literal = literal

    def _register_or_constant(self, slot: Slot, value: Value) -> None:
        name = slot.name
        if isinstance(value, Label | str | tuple):
            if (
                isinstance(value, str)
                and value == "off"
                and slot.type.printer.startswith("printExp")
            ):
                self.fields[name] = 0
                return
            raise Misfit(f"{value} is no {_files(slot.type)}")
        if value.neg or value.abs or value.sext:
            self._source_modifiers(slot, value)
        if isinstance(value, Number):
            self.fields[name] = self._constant(slot.type, value, name)
            return
        if slot.type.printer.startswith("printExp"):
            self.fields["en"] = self.fields.get("en", 0) | 1 << int(name[-1])
        self.fields[name] = self._register(slot, value)

    def _source_modifiers(self, slot: Slot, value: Register | Number) -> None:
        key = f"{slot.name}_modifiers"
        kind = self.shape.slots.get(key)
        found = self.shape.row.layout.fields.get(key)
        bits = value.neg * 1 | value.abs * 2 | value.sext * 16
        is_float = kind is not None and kind.type.printer == "printOperandAndFPInputMods"
        is_integer = kind is not None and kind.type.printer == "printOperandAndIntInputMods"
        allowed = 3 if is_float else 16 if is_integer else 0
        if found is None or bits & ~(allowed & found.mask):
            shown = "sign extension" if value.sext else "negation or absolute value"
            raise Misfit(f"{slot.name} takes no {shown} in this form")
        self.fields[key] = self.fields.get(key, 0) | bits

    def _register(self, slot: Slot, register: Register) -> int:
        """The field of a register, or a complaint in the user's terms."""
        kind = slot.type
        bits = self._bits(slot)
        count = max(1, bits // 32)
        is_image = self.shape.row.encoding in ("mimg", "vimage", "vsample")
        if is_image and slot.name in ("vdata", "vdst") or "_f8f6f4" in self.shape.row.mnemonic:
            self.counts[slot.name] = register.count
            count = register.count
        if is_image and slot.name.startswith("vaddr"):
            self.counts[slot.name] = register.count
            count = register.count
        if register.count and register.count != count:
            raise Misfit(f"{slot.name} is {_many(count)}; {register} is {_many(register.count)}")
        if register.index > 127 and register.kind == "s":
            takes = kind.is_source and ("s" in kind.files or "OrLds" in kind.register_class)
            if kind.decoder.startswith("decodeSDWASrc"):
                return register.index | 256
            if not takes:
                raise Misfit(f"{slot.name} is no source that takes {register}")
            return register.index
        is_barrier = kind.decoder == "decodeSplitBarrier" and register.name == "m0"
        if register.kind not in kind.files and self.lenience < 2 and not is_barrier:
            raise Misfit(f"{slot.name} is a {_files(kind)}; {register} is none")
        if kind.alignment > 1 and register.kind in "va" and count > 1 and not self.lenience:
            if register.index % kind.alignment:
                raise Misfit(f"{self.gpu} wants {register} to begin at an even register")
        if register.kind == "s" and count > 1 and register.index < 106:
            step = 2 if count == 2 else 4
            if register.index % step and register.count:
                raise Misfit(f"{register} must begin at a multiple of {step}")
        return self._place(slot, register, kind)

    def _place(self, slot: Slot, register: Register, kind: Type) -> int:
        """The number by which a field knows a register."""
        index = register.index
        is_half = "VGPR_16" in kind.register_class or "VS_16" in kind.register_class
        if is_half and register.kind == "v":
            if register.half is None:
                raise Misfit(f"{slot.name} is half a register: {register}.l or {register}.h")
            if "Lo128" in kind.register_class:
                if index > 127:
                    raise Misfit(f"{slot.name}: {register} is above v127, which this form reaches")
                index |= register.half << 7
            else:
                self.halves[slot.name] = register.half
        elif register.half is not None:
            raise Misfit(f"{slot.name} is a whole register; {register} is half of one")
        elif "Lo128" in kind.register_class and register.kind == "v" and index > 127:
            if not self.lenience:
                raise Misfit(f"{slot.name}: {register} is above v127, which this form reaches")
        if kind.decoder == "decodeSDWAVopcDst":
            return 0 if index == 106 else index | 128
        if kind.decoder.startswith("decodeSDWASrc"):
            return index | (256 if register.kind == "s" else 0)
        if kind.decoder.startswith(("decodeAVLdSt", "decodeAV10")) or "Align2_RegOp" in kind.name:
            return index | (512 if register.kind == "a" else 0)
        if kind.decoder.startswith("decodeSrcAV10"):
            return index | 256 | (512 if register.kind == "a" else 0)
        if kind.is_source and register.kind in "va":
            return index | 256
        if kind.decoder == "decodeOperandVOPDDstY":
            if not (index ^ self.fields["vdstX"]) & 1:
                raise Misfit("of the two results one must be an even register, one an odd one")
        return index

    def _bits(self, slot: Slot) -> int:
        if slot.type.decoder in ("decodeBoolReg", "decodeSDWAVopcDst"):
            return self.wave
        if slot.type.printer == "printAVLdSt32Align2RegOp":
            return 32
        return slot.type.bits

    def _constant(self, kind: Type, number: Number, name: str) -> int:
        """The source number of a constant; 255 where a literal must follow."""
        if not kind.takes_constants:
            raise Misfit(f"{name} is a {_files(kind)}; {number} is none")
        is_splat = kind.operand_type.endswith("SPLAT") and isinstance(number.value, int)
        if not number.forced and not (is_splat and not -16 <= number.value <= 64):
            inline = inline_number(number.value, kind.element, kind.bits)
            if inline is not None:
                return inline | (256 if kind.decoder.startswith("decodeSDWASrc") else 0)
        row = self.shape.row
        is_long = row.size > 4 and "imm" not in row.layout.fields
        if (
            not kind.takes_literals
            or row.modifier_encoding
            or (is_long and self.gpu.family == CDNA)
        ):
            raise Misfit(f"{name}: {number} is no inline constant, and this form has no literal")
        self._set_literal(literal_of(number.value, kind.element))
        return LITERAL

    def _modifiers(self, modifiers: Mapping[str, object]) -> None:
        for slot in self.shape.optional.values():
            encode_modifier(self.shape, slot, modifiers, self.fields, self.gpu)
        self._selections(modifiers)

    def _selections(self, modifiers: Mapping[str, object]) -> None:
        """Bits of all sources' modifiers: halves that are read, negations of packed values."""
        row = self.shape.row
        sources = [n for n in range(3) if f"src{n}_modifiers" in self.shape.slots]
        if row.flags & {"wmma", "swmmac", "dot", "mai"} or "v_dot4" in row.mnemonic:
            sources = [n for n in range(3) if f"src{n}" in self.shape.slots]
        for name, bit in (("op_sel", 4), ("op_sel_hi", 8), ("neg_lo", 1), ("neg_hi", 2)):
            if name not in self.shape.accepts:
                continue
            default = 1 if name == "op_sel_hi" and "packed" in row.flags else 0
            given = bit_list(modifiers.get(name), name)
            bits = given or [default] * len(sources)
            has_result = name == "op_sel" and "op_sel" in row.flags and len(bits) > len(sources)
            if has_result and bits.pop():
                self._or("src0_modifiers", _RESULT_HALF)
            if len(bits) > max(len(sources), 2):
                raise Misfit(f"{name} has {len(bits)} bits; there are {len(sources)} sources")
            for number, value in zip(sources, bits, strict=False):
                if value:
                    self._or(f"src{number}_modifiers", bit)
        for name, half in self.halves.items():
            if half:
                is_result = self.shape.slots[name].is_result
                key = "src0_modifiers" if is_result else f"{name}_modifiers"
                self._or(key, _RESULT_HALF if is_result else _SOURCE_HALF)

    def _or(self, key: str, bit: int) -> None:
        found = self.shape.row.layout.fields.get(key)
        if found is None or not found.mask & bit:
            raise Misfit(f"{key.removesuffix('_modifiers')} has no such half in this form")
        self.fields[key] = self.fields.get(key, 0) | bit

    def _complete(self) -> None:
        """What is the same for every use of a form, and what depends on all operands."""
        row = self.shape.row
        if row.encoding in ("mimg", "vimage", "vsample") and "dmask" in self.fields:
            self._check_image()
        if "_f8f6f4" in row.mnemonic and "cbsz" in row.layout.fields:
            widths = (8, 8, 6, 6, 4, 8, 8, 8)
            for name, key in (("src0", "cbsz"), ("src1", "blgp")):
                want = widths[self.fields.get(key, 0)]
                if self.counts.get(name) != want:
                    raise Misfit(f"{name} is {_many(want)} with this {key}")

    def _check_image(self) -> None:
        row = self.shape.row
        name = next(each for each in ("vdata", "vdst") if each in self.fields)
        want = data_registers(row.mnemonic, self.fields)
        if self.counts.get(name, want) != want:
            raise Misfit(f"{name} is {_many(want)} with this mask; {self.counts[name]} are given")
        total = address_registers(row.mnemonic, self.fields)
        given = sum(count for key, count in self.counts.items() if key.startswith("vaddr"))
        single = any(key in self.counts for key in ("vaddr", "vaddr0")) and total > 12
        if given and given != total and not (single and given == 16):
            raise Misfit(f"{total} registers of addresses are expected; {given} are given")

    def _bytes(self) -> bytes:
        row = self.shape.row
        word = row.value
        for name, value in self.fields.items():
            found = row.layout.fields.get(name)
            if found is not None:
                if value & ~found.mask and not (name == "vdstY"):
                    raise Misfit(f"{name} does not fit its field", len(self.shape.positional))
                word |= found.insert(value)
            elif value and name != "en":
                raise Misfit(f"this form has no {name}", len(self.shape.positional))
        if row.size > 4 and self.gpu.family != CDNA and "cmpx" in row.mnemonic:
            if row.trait.encoding == "vop3":
                word |= 126
        word |= _implicit_high_halves(self.shape)
        data = word.to_bytes(row.size, "little")
        if self.literal is not None and "imm" not in row.layout.fields:
            data += self.literal.to_bytes(4, "little")
        return data


def _plain(value: Value) -> Value | int | float:
    """A number without modifiers as itself."""
    if isinstance(value, Number) and not (value.neg or value.abs or value.sext):
        return value.value
    return value


def _implicit_high_halves(shape: Shape) -> int:
    """VOP3P forms say 1 for the high half of sources that they do not have."""
    row = shape.row
    if row.trait.encoding != "vop3p" and "mai" not in row.flags or row.size != 8:
        return 0
    if "mai" in row.flags and "accvgpr" not in row.mnemonic:
        return 0
    word = 0
    has_list = "op_sel_hi" in shape.slots
    for number, bit in ((0, 59), (1, 60), (2, 14)):
        if not has_list or f"src{number}" not in shape.slots:
            if not row.layout.mask >> bit & 1 and not any(
                run[0] <= bit < run[0] + run[2]
                for found in row.layout.fields.values()
                for run in found.runs
            ):
                word |= 1 << bit
    return word


def _range_of(slot: Slot, width: int, gpu: Target) -> tuple[int, int]:
    """What a plain number may be."""
    if slot.type.name == "SOPPBrTarget" or slot.type.name in ("s16imm", "i16imm", "i32imm"):
        return -(1 << width - 1), (1 << width) - 1
    if slot.type.name.startswith(("SMEMOffset", "OptSMEM")):
        bits = 24 if gpu.family == RDNA4 else 21
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << width) - 1


def _version(text: str) -> int:
    """`UC_VERSION_GFX12|UC_VERSION_W32_BIT`"""
    codes = {"GFX7": 0, "GFX8": 1, "GFX9": 2, "GFX10": 4, "GFX11": 6, "GFX12": 9}
    codes |= {"W64_BIT": 0x2000, "W32_BIT": 0x4000, "MDP_BIT": 0x8000}
    value = 0
    for word in text.replace("(", "").replace(")", "").split("|"):
        name = word.strip().removeprefix("UC_VERSION_")
        value |= codes[name] if name in codes else names.number(word)
    return value


def _many(count: int) -> str:
    return "one register" if count == 1 else f"{count} registers"


def _files(kind: Type) -> str:
    words = {"v": "vector register", "s": "scalar register", "a": "accumulation register"}
    shown = [words[letter] for letter in kind.files]
    if kind.takes_constants:
        shown.append("constant")
    return " or ".join(shown) or "number"


def _count_message(shape: Shape, given: int) -> str:
    expected = ", ".join(name.lstrip("=") for name in shape.positional) or "none"
    return f"{given} operands are given; {len(shape.positional)} are expected: {expected}"


def inline_number(value: int | float, element: str, bits: int) -> int | None:
    """The source number of an inline constant with this value, if there is one."""
    scalar = element.removeprefix("v2")
    kind = {"i16": "", "i32": "f32", "i64": "f64", "": "f64" if bits == 64 else "f32"}.get(
        scalar, scalar
    )
    if isinstance(value, float):
        if value in INLINE_FLOATS:
            return 240 + INLINE_FLOATS.index(value)
        if value == 0.0 and not struct.pack("<d", value)[7]:
            return 128
        return 248 if abs(value - 0.15915494309189532) < 1e-8 else None
    if -16 <= value <= 64:
        return 128 + value if value >= 0 else 192 - value
    width = {"f16": 16, "bf16": 16, "i16": 16}.get(scalar, 32)
    if 0 < value < 1 << width and value >= (1 << width) - 16 and scalar != "f64":
        if element not in ("i64", "v2f16", "v2i16", "v2bf16"):
            return 192 - (value - (1 << width))
    if kind in ("f16", "bf16", "f32"):
        for number, each in enumerate(INLINE_FLOATS):
            if float_bits(each, kind) == value:
                return 240 + number
        if value == INVERSE_TWO_PI[kind]:
            return 248
    if kind == "f64" and scalar == "f64":
        for number, each in enumerate(INLINE_FLOATS):
            if float_bits(each, "f64") == value << 32:
                return 240 + number
    return None


def float_bits(value: float, element: str) -> int:
    """The pattern of a float of an element type."""
    try:
        if element == "bf16":
            return int.from_bytes(struct.pack("<f", value), "little") >> 16
        code = {"f16": "<e", "f64": "<d"}.get(element, "<f")
        return int.from_bytes(struct.pack(code, value), "little")
    except OverflowError:
        raise Misfit(f"{value} is out of the range of {element or 'f32'}") from None


def literal_of(value: int | float, element: str) -> int:
    """The 32 bits that say a value in an operand of an element type."""
    scalar = element.removeprefix("v2")
    if isinstance(value, float):
        if scalar == "f64":
            bits = float_bits(value, "f64")
            if bits & 0xFFFFFFFF:
                raise Misfit(f"a literal holds the high half of a double; {value} needs all of it")
            return bits >> 32
        return float_bits(value, scalar if scalar in ("f16", "bf16") else "f32")
    if not -(1 << 31) <= value < 1 << 32:
        raise Misfit(f"the literal {value} needs more than 32 bits")
    return value & 0xFFFFFFFF


_NAMED = {
    "printSWaitCnt": names.parse_wait,
    "printSendMsg": names.parse_message,
    "printHwreg": names.parse_hardware_register,
    "printSDelayALU": lambda text, gpu: names.parse_delay(text),
    "printDepCtr": lambda text, gpu: names.parse_dependencies(text),
    "printExpTgt": lambda text, gpu: names.parse_export(text),
    "printGPRIdxMode": lambda text, gpu: _index_mode(text),
}


def _index_mode(text: str) -> int:
    """`gpr_idx(SRC0,DST)`"""
    if not text.startswith("gpr_idx"):
        return names.number(text)
    words = text.removeprefix("gpr_idx").strip("()").split(",")
    order = ("SRC0", "SRC1", "SRC2", "DST")
    return sum(1 << order.index(word.strip()) for word in words if word.strip() in order)


__all__ = ["SPECIAL_SOURCES", "Encoder", "Misfit", "float_bits", "inline_number", "literal_of"]
