"""Instructions as text, in the syntax of LLVM's assembler.

In: an `Instruction`. Out: the line that `llvm-mc` prints for it. `str` of an instruction,
listings and traces use it. Invariant: what is printed here, `assemble` reads back to the same
bytes. A row's template says what comes in which order; LLVM's names of print methods, which the
table keeps, say how each operand is spelled.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.amd import names
from weft.amd.operands import INLINE_FLOATS, Operand
from weft.amd.table import Row, Slot, Type
from weft.amd.targets import CDNA, RDNA4

if TYPE_CHECKING:
    from weft.amd.decode import Instruction

_PIECE = re.compile(r"\$(\w+)|([^$]+)")
_INVERSE = {"f64": "0.15915494309189532"}

# bits of a source's modifiers
NEGATE, ABSOLUTE, SELECT_LOW, SELECT_HIGH, SIGN_EXTEND = 1, 2, 4, 8, 16


@functools.cache
def pieces(template: str) -> tuple[tuple[str, str], ...]:
    """A template as (operand, "") and ("", words) in order."""
    template = re.sub(r"\{([^}|]*)(?:\|[^}]*)?\}", r"\1", template)
    # LLVM prints a format after the offset that it stands before
    template = template.replace(",$format $soffset", ", $soffset$format")
    return tuple((match[1] or "", match[2] or "") for match in _PIECE.finditer(template))


def suffix(row: Row) -> str:
    """What a mnemonic says of its encoding where the same name has several."""
    if row.trait.encoding in ("vop3", "vop3p", "vinterp"):
        if "dpp" in row.flags:
            return "_e64_dpp"
        return "" if "single" in row.flags else "_e64"
    if "dpp" in row.flags:
        return "_dpp"
    if "sdwa" in row.flags:
        return "_sdwa"
    return "" if "single" in row.flags or row.trait.encoding not in ("vop1", "vop2") else "_e32"


def show(instruction: Instruction) -> str:
    """The instruction as LLVM prints it."""
    printer = _Printer(instruction)
    return printer.line()


class _Printer:
    """One instruction being printed."""

    def __init__(self, instruction: Instruction):
        self.instruction = instruction
        self.row = instruction.row
        self.fields = instruction.fields
        self.operands = instruction.operands
        self.gpu = instruction.target
        self.slots = {slot.name: slot for slot in self.row.slots}

    def line(self) -> str:
        words = [self.row.mnemonic]
        for place, (name, text) in enumerate(pieces(self.row.template)):
            if name.startswith("vaddr") and name not in self.operands:
                # an address that an image of this dimension does not have
                words[-1] = words[-1].removesuffix(", ")
            elif name:
                if place <= 1 and self.row.trait.encoding == "vopc":
                    words.append(self.implied_mask())
                words.append(self.operand(self.slots[name], place == 0))
            else:
                words.append(text)
        line = "".join(words)
        if self.row.encoding in ("vimage", "vsample"):
            line = re.sub(r"\[(v\d+)\]", r"\1", line)
        return line.rstrip()

    @property
    def counts_all_sources(self) -> bool:
        """Whether lists of bits have one for a source that has no modifiers, too."""
        matrix = self.row.flags & {"wmma", "swmmac", "dot", "mai"}
        return bool(matrix) or "v_dot4" in self.row.mnemonic

    @property
    def mask(self) -> str:
        return "vcc" if self.instruction.wave == 64 else "vcc_lo"

    def implied_mask(self) -> str:
        """The mask that a short comparison writes without a field for it."""
        if "VCC" in self.row.defs and "sdst" not in self.slots and "vcc" not in self.row.template:
            return f"{self.mask}, "
        return ""

    def implied_carry(self, slot: Slot, registers: tuple[str, ...], after: str) -> str:
        """The mask that a short select or add with carry has without a field for it."""
        is_short = self.row.trait.encoding == "vop2" and "vcc" not in self.row.template
        if is_short and slot.name.startswith(after) and "VCC" in registers:
            return f", {self.mask}"
        return ""

    def operand(self, slot: Slot, is_first: bool = False) -> str:
        """One slot, with what stands around it without a slot."""
        text = suffix(self.row) + " " if slot.type.printer == "printVOPDst" and is_first else ""
        text += self.spelled(slot) + self.implied_carry(slot, self.row.defs, "vdst")
        return text + self.implied_carry(slot, self.row.uses, "src1")

    def spelled(self, slot: Slot) -> str:
        """One slot, by the print method that LLVM names for its type."""
        method, _, arguments = slot.type.printer.partition(":")
        if method == "printNamedBit":
            # rows of ray intersections fix the bit
            fixed = slot.name == "a16" and "_a16_" in self.row.name
            if slot.name == "gds" and self.gpu.family == CDNA and "gws" not in self.row.mnemonic:
                return ""
            return f" {arguments}" if self.fields.get(slot.name) or fixed else ""
        if method == "printNamedInt":
            return self.named_number(slot, *arguments.split(":"))
        maker = _METHODS.get(method)
        if maker is not None:
            return maker(self, slot)
        return self.regular(slot)

    def named_number(self, slot: Slot, name: str, is_hex: str, always: str) -> str:
        operand = self.operands.get(slot.name)
        value = operand.value if operand else 0
        if not value and always == "false":
            return ""
        if is_hex == "true":
            shown = f"-{-value:#x}" if value < 0 else f"{value:#x}"
            return f" {name}:{shown}"
        return f" {name}:{value}"

    def regular(self, slot: Slot) -> str:
        """A register, a constant, a literal or a plain number."""
        operand = self.operands.get(slot.name)
        if operand is None:
            return "0"
        if operand.kind in ("v", "s", "a"):
            return operand.register + self.complaint(slot.type, operand)
        if operand.kind == "special":
            return operand.register
        if operand.kind == "label":
            return str(operand.value & 0xFFFF)
        if operand.kind == "immediate":
            return str(operand.value) if -16 <= operand.value <= 64 else hex(operand.value)
        if operand.kind == "literal":
            return self.literal(slot.type)
        if slot.type.element == "i16" and operand.index >= 240 and self.gpu.family != CDNA:
            return hex(operand.value)
        return constant_text(operand.index, slot.type.element, slot.type.bits)

    def literal(self, kind: Type) -> str:
        value = self.instruction.literal
        if value is None:
            value = self.fields.get("imm", 0)
        return literal_text(value, kind.element)

    def complaint(self, kind: Type, operand: Operand) -> str:
        """LLVM's comment on a register that the operand's class does not hold."""
        wrong = operand.kind not in kind.files
        if kind.alignment > 1 and operand.kind in "va" and operand.count > 1:
            wrong = wrong or operand.index % kind.alignment != 0
        if "Lo128" in kind.register_class and operand.kind == "v":
            wrong = wrong or operand.index > 127
        if not wrong or not kind.register_class:
            return ""
        known = kind.register_class
        return f"/*Invalid register, operand has '{known}' register class*/"

    def with_float_modifiers(self, slot: Slot) -> str:
        """`-|v1|`; a source's modifiers are an operand of their own before it."""
        source = slot.name.removesuffix("_modifiers")
        value = self.fields.get(slot.name, 0)
        text = self.regular(self.slots[source])
        operand = self.operands.get(source)
        if value & ABSOLUTE:
            text = f"|{text}|"
        if value & NEGATE:
            is_number = operand is not None and operand.kind in ("constant", "literal")
            text = f"neg({text})" if is_number and not value & ABSOLUTE else f"-{text}"
        return text

    def with_integer_modifiers(self, slot: Slot) -> str:
        source = slot.name.removesuffix("_modifiers")
        text = self.regular(self.slots[source])
        return f"sext({text})" if self.fields.get(slot.name, 0) & SIGN_EXTEND else text

    def packed(self, name: str, bit: int) -> str:
        """` op_sel:[0,1]`: one bit of every source's modifiers."""
        values = []
        for number in range(3):
            key = f"src{number}_modifiers"
            if key in self.slots:
                values.append(self.fields.get(key, 0))
            elif f"src{number}" in self.slots and self.counts_all_sources:
                values.append(0)
        has_result = bit == SELECT_LOW and "op_sel" in self.row.flags and bool(values)
        has_result = has_result and any(slot.is_result for slot in self.row.slots)
        default = bit if "packed" in self.row.flags and bit == SELECT_HIGH else 0
        if all(value & bit == default for value in values):
            if not has_result or not values[0] & SELECT_HIGH:
                return ""
        bits = [str(int(bool(value & bit))) for value in values]
        if has_result:
            bits.append(str(int(bool(values[0] & SELECT_HIGH))))
        return f" {name}:[{','.join(bits)}]"

    def select(self, slot: Slot) -> str:
        if "permlane" in self.row.mnemonic and "16" in self.row.mnemonic:
            bits = (
                self.fields.get("src0_modifiers", 0) >> 2 & 1,
                self.fields.get("src1_modifiers", 0) >> 2 & 1,
            )
            return f" op_sel:[{bits[0]},{bits[1]}]" if any(bits) else ""
        return self.packed("op_sel", SELECT_LOW)

    def cache_policy(self, slot: Slot) -> str:
        value = self.fields.get("cpol", 0) | self._fixed_policy(slot)
        if self.gpu.family == RDNA4:
            return self._policy_of_rdna4(value)
        new = self.gpu.name in ("gfx942", "gfx950")
        text = ""
        if value & 1:
            text += " sc0" if new and self.row.encoding != "smem" else " glc"
        if value & 2:
            text += " nt" if new else " slc"
        if value & 4 and self.gpu.family != CDNA:
            text += " dlc"
        if value & 16 and self.gpu.family == CDNA:
            text += " sc1" if new else " scc"
        return text

    def _fixed_policy(self, slot: Slot) -> int:
        """Atomics that return a value have their bit fixed in the encoding."""
        if slot.type.name.startswith("CPol_GLC"):
            return 1
        return 0

    def _policy_of_rdna4(self, value: int) -> str:
        text = " scale_offset" if value & 0x800 else ""
        hint, scope = value & 7, value >> 3 & 3
        if hint:
            text += " th:" + self._hint(hint, scope)
        if scope:
            text += f" scope:SCOPE_{('CU', 'SE', 'DEV', 'SYS')[scope]}"
        return text + (" nv" if value & 0x20 else "")

    def _hint(self, hint: int, scope: int) -> str:
        if self.row.flags & {"atomic", "atomic_return"}:
            if hint & 4:
                shown = "CASCADE" + ("_NT" if hint & 2 else "_RT") if scope >= 2 else hex(hint)
            elif hint & 2:
                shown = "NT" + ("_RETURN" if hint & 1 else "")
            else:
                shown = "RETURN"
            return "TH_ATOMIC_" + shown
        is_store = "store" in self.row.flags
        if hint == 7 and not is_store:
            return hex(hint)
        last = "BYPASS" if scope == 3 else ("WB" if is_store else "LU")
        shown = ("", "NT", "HT", last, "NT_RT", "RT_NT", "NT_HT", "NT_WB")[hint]
        return ("TH_STORE_" if is_store else "TH_LOAD_") + shown

    def lanes(self, slot: Slot) -> str:
        """The pattern of a DPP form."""
        return dpp_text(self.fields["dpp_ctrl"], self.row, self.gpu.family)

    def export_source(self, slot: Slot) -> str:
        enabled = self.fields.get("en", 0)
        number = int(slot.name[-1])
        if self.fields.get("compr"):
            number = number // 2 * 2
            enabled = enabled if enabled >> number & 1 else 0
        return self.regular(slot) if enabled >> number & 1 else "off"

    def value(self, slot: Slot) -> int:
        operand = self.operands.get(slot.name)
        return operand.value if operand else 0

    def version(self, slot: Slot) -> str:
        """s_version takes a generation with bits for wave widths."""
        value = self.value(slot)
        if self.row.mnemonic != "s_version" or self.gpu.family != RDNA4:
            return hex(value)
        code, bits = value & 255, value & 0xE000
        if value & 0x1F00:
            return hex(value)
        known = {0: "UC_VERSION_GFX7", 1: "UC_VERSION_GFX8", 2: "UC_VERSION_GFX9"}
        known |= {4: "UC_VERSION_GFX10", 6: "UC_VERSION_GFX11", 9: "UC_VERSION_GFX12"}
        text = known.get(code, str(code))
        for bit, name in ((0x2000, "W64_BIT"), (0x4000, "W32_BIT"), (0x8000, "MDP_BIT")):
            if bits & bit:
                text = f"({text})" if "|" in text else text
                text += f"|UC_VERSION_{name}"
        return text


def _selection(name: str, words: tuple[str, ...]) -> Callable[[_Printer, Slot], str]:
    """`dst_sel:BYTE_0`"""

    def show_selection(printer: _Printer, slot: Slot) -> str:
        value = printer.value(slot)
        return f"{name}:{words[value] if value < len(words) else value}"

    return show_selection


def _optional(text: str) -> Callable[[_Printer, Slot], str]:
    """Words that are there where a field is not zero; `{}` is its value."""

    def show_optional(printer: _Printer, slot: Slot) -> str:
        value = printer.value(slot)
        return text.format(value) if value else ""

    return show_optional


def _blgp(printer: _Printer, slot: Slot) -> str:
    """Swaps of an MFMA's second source; negations of its sources where they are doubles."""
    value = printer.value(slot)
    if not value:
        return ""
    if "_f64_" in printer.row.mnemonic and printer.gpu.name in ("gfx942", "gfx950"):
        return f" neg:[{value & 1},{value >> 1 & 1},{value >> 2 & 1}]"
    return f" blgp:{value}"


def _short(value: int) -> str:
    return str(value) if value < 10 else hex(value)


def _smem_offset(printer: _Printer, slot: Slot) -> str:
    value = printer.value(slot)
    return f"-{-value:#x}" if value < 0 else f"{value:#x}"


def _index_mode(printer: _Printer, slot: Slot) -> str:
    value = printer.value(slot)
    if value & ~15:
        return hex(value)
    words = [n for i, n in enumerate(("SRC0", "SRC1", "SRC2", "DST")) if value >> i & 1]
    return f"gpr_idx({','.join(words)})"


def _lane_list(printer: _Printer, slot: Slot) -> str:
    value = printer.value(slot)
    return f"dpp8:[{','.join(str(value >> 3 * i & 7) for i in range(8))}]"


def _fetch_inactive(printer: _Printer, slot: Slot) -> str:
    return " fi:1" if printer.value(slot) in (1, 0xEA) else ""


def _interpolation(printer: _Printer, slot: Slot) -> str:
    return f"attr{printer.value(slot)}"


def _channel(printer: _Printer, slot: Slot) -> str:
    return "." + "xyzw"[printer.value(slot) & 3]


_METHODS: dict[str, Callable[[_Printer, Slot], str]] = {
    "printOperandAndFPInputMods": _Printer.with_float_modifiers,
    "printOperandAndIntInputMods": _Printer.with_integer_modifiers,
    "printOpSel": _Printer.select,
    "printOpSelHi": lambda self, slot: self.packed("op_sel_hi", SELECT_HIGH),
    "printNegLo": lambda self, slot: self.packed("neg_lo", NEGATE),
    "printNegHi": lambda self, slot: self.packed("neg_hi", ABSOLUTE),
    "printCPol": _Printer.cache_policy,
    "printDPPCtrl": _Printer.lanes,
    "printDPP8": _lane_list,
    "printDppFI": _fetch_inactive,
    "printDppBoundCtrl": _optional(" bound_ctrl:1"),
    "printOModSI": lambda self, slot: ("", " mul:2", " mul:4", " div:2")[self.value(slot)],
    "printU16ImmOperand": _Printer.version,
    "printU32ImmOperand": lambda self, slot: literal_hex(self.fields.get("imm", 0)),
    "printSwizzle": lambda self, slot: names.show_swizzle(self.value(slot), self.gpu),
    "printSendMsg": lambda self, slot: names.show_message(self.value(slot), self.gpu),
    "printSWaitCnt": lambda self, slot: names.show_wait(self.value(slot), self.gpu),
    "printHwreg": lambda self, slot: names.show_hardware_register(self.value(slot), self.gpu),
    "printSDelayALU": lambda self, slot: names.show_delay(self.value(slot)),
    "printDepCtr": lambda self, slot: names.show_dependencies(self.value(slot)),
    "printFORMAT": lambda self, slot: names.show_format(self.value(slot), self.gpu),
    "printExpTgt": lambda self, slot: " " + names.show_export(self.value(slot)),
    "printExpSrc0": _Printer.export_source,
    "printExpSrc1": _Printer.export_source,
    "printExpSrc2": _Printer.export_source,
    "printExpSrc3": _Printer.export_source,
    "printSMEMOffset": _smem_offset,
    "printOffset": _optional(" offset:{}"),
    "printFlatOffset": _optional(" offset:{}"),
    "printR128A16": lambda self, slot: (
        "" if not self.value(slot) else " a16" if self.gpu.family == CDNA else " r128"
    ),
    "printDim": lambda self, slot: f" dim:SQ_RSRC_IMG_{names.DIMENSIONS[self.value(slot) & 7]}",
    "printEndpgm": _optional(" {}"),
    "printSDWADstSel": _selection("dst_sel", names.SUB_DWORD),
    "printSDWASrc0Sel": _selection("src0_sel", names.SUB_DWORD),
    "printSDWASrc1Sel": _selection("src1_sel", names.SUB_DWORD),
    "printSDWADstUnused": _selection("dst_unused", names.UNUSED),
    "printBLGP": _blgp,
    "printBitOp3": lambda self, slot: (
        f" bitop3:{_short(self.value(slot))}" if self.value(slot) else ""
    ),
    "printGPRIdxMode": _index_mode,
    "printInterpAttr": _interpolation,
    "printInterpAttrChan": _channel,
    "printIndexKey16bit": _optional(" index_key:{}"),
}


def dpp_text(value: int, row: Row, family: str) -> str:
    """The lanes of a DPP form."""
    if "64" in row.mnemonic.replace("e64", "") and family == CDNA and not 0x150 <= value <= 0x15F:
        if re.search(r"_[fiub]64", row.mnemonic):
            return " /* DP ALU dpp only supports row_newbcast */"
    if value <= 0xFF:
        return f"quad_perm:[{','.join(str(value >> 2 * i & 3) for i in range(4))}]"
    group, count = value & 0x1F0, value & 15
    shifts = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror"}
    if group in shifts and count:
        return f"{shifts[group]}:{count}"
    whole = {0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1"}
    whole |= {0x140: "row_mirror", 0x141: "row_half_mirror"}
    whole |= {0x142: "row_bcast:15", 0x143: "row_bcast:31"}
    if value in whole:
        name = whole[value].partition(":")[0]
        if family != CDNA and name.startswith(("wave", "row_bcast")):
            return f"/* {name} is not supported starting from GFX10 */"
        return whole[value]
    if group == 0x150:
        return f"{'row_newbcast' if family == CDNA else 'row_share'}:{count}"
    if group == 0x160:
        if family == CDNA:
            return "/* row_xmask is not supported on ASICs earlier than GFX10 */"
        return f"row_xmask:{count}"
    return "/* Invalid dpp_ctrl value */"


def constant_text(index: int, element: str, bits: int) -> str:
    """An inline constant by its source number."""
    if 128 <= index <= 192:
        return str(index - 128)
    if 193 <= index <= 208:
        return str(192 - index)
    if index == 248:
        wide = element in ("f64", "i64") or (not element and bits == 64)
        return _INVERSE["f64"] if wide else "0.15915494"
    return f"{INLINE_FLOATS[index - 240]:.1f}"


def literal_text(value: int, element: str) -> str:
    """A literal: in `lit()` where its value has an inline constant, which is shorter."""
    if _has_constant(value, element):
        return f"lit({value:#x})"
    return f"{value & 0xFFFF if element == 'i16' else value:#x}"


def literal_hex(value: int) -> str:
    """A literal that an encoding always holds."""
    return f"{value:#x}"


def _has_constant(value: int, element: str) -> bool:
    """Whether an assembler would take an inline constant for this value."""
    narrow = element in ("f16", "bf16")
    if narrow:
        value &= 0xFFFF
    width = 16 if narrow else 32
    signed = value - (1 << width) if value >> (width - 1) else value
    if element == "f64":
        return False
    if -16 <= signed <= 64:
        return not (element == "i64" and signed < 0)
    scalar = element.removeprefix("v2")
    code = "<e" if scalar == "f16" else "<f"
    floats = {int.from_bytes(struct.pack(code, x), "little") for x in INLINE_FLOATS}
    if scalar == "bf16":
        floats = {value >> 16 for value in floats}
    inverse = {"f16": 0x3118, "bf16": 0x3E22}.get(scalar, 0x3E22F983)
    return value in floats or value == inverse
