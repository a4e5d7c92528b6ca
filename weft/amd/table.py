"""The instruction tables in memory: rows, layouts and operand types of one family.

In: `tables/FAMILY.txt`. Out: `Row`s, which say what an encoding is: fixed bits, fields, operands,
assembly template, implicit registers. Read by the decoder, the printer, the assembler and the
DSL. Invariant: a table is read once, when its family is first asked for, and never changed.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

from weft.amd.targets import Target, target
from weft.errors import ArgumentError, DataError

TABLES = Path(__file__).resolve().parent / "tables"

_ELEMENTS = {"FP16": "f16", "FP32": "f32", "FP64": "f64", "BF16": "bf16"}
_ELEMENTS |= {"INT16": "i16", "INT32": "i32", "INT64": "i64"}


@dataclass(frozen=True, slots=True)
class Type:
    """What may stand in an operand: its register class, and how LLVM reads and prints it.

    `element` is the element type that LLVM gives a source ("f32", "v2f16"), or "".
    """

    name: str
    register_class: str
    bits: int
    files: str
    alignment: int
    operand_type: str
    decoder: str
    printer: str
    encoder: str
    element: str

    @property
    def is_register(self) -> bool:
        """Whether registers may stand here."""
        return bool(self.register_class)

    @property
    def is_source(self) -> bool:
        """Whether its field is a source number: 0-127 scalar, constants, 256 and up vector."""
        return self.decoder.startswith(_SOURCE_DECODERS)

    @property
    def takes_constants(self) -> bool:
        """Whether inline constants may stand here."""
        return self.operand_type.startswith(("REG_IMM", "REG_INLINE", "INLINE_SPLIT"))

    @property
    def takes_literals(self) -> bool:
        """Whether a 32-bit literal may follow the instruction."""
        return self.operand_type.startswith("REG_IMM")


_SOURCE_DECODERS = (
    "decodeSrc",
    "decodeOperand_VSrc",
    "decodeOperand_VGPR_16",
    "decodeSplitBarrier",
)


def element_of(operand_type: str) -> str:
    """REG_IMM_V2FP16 is v2f16."""
    found = re.search(r"_(V2)?(FP|INT|BF)(16|32|64)(?:_SPLAT)?$", operand_type)
    if found is None:
        return "i32" if operand_type.startswith("INLINE_SPLIT") else ""
    return (found[1] or "").lower() + _ELEMENTS[found[2] + found[3]]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an encoding: runs of (bit in the instruction, bit in the value, width)."""

    name: str
    runs: tuple[tuple[int, int, int], ...]

    @property
    def width(self) -> int:
        """Bits of the value, with those that the encoding leaves out."""
        return max(start + width for _, start, width in self.runs)

    @property
    def mask(self) -> int:
        """The bits of the value that the encoding holds."""
        return sum(((1 << width) - 1) << start for _, start, width in self.runs)

    def extract(self, word: int) -> int:
        """The value in an instruction."""
        value = 0
        for bit, start, width in self.runs:
            value |= (word >> bit & (1 << width) - 1) << start
        return value

    def insert(self, value: int) -> int:
        """An instruction with nothing but the value."""
        word = 0
        for bit, start, width in self.runs:
            word |= (value >> start & (1 << width) - 1) << bit
        return word


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the fields of an encoding are, and which bits are fixed."""

    size: int
    mask: int
    fields: dict[str, Field]


@dataclass(frozen=True, slots=True)
class Slot:
    """An operand of a row: its name, type, and whether the instruction writes it."""

    name: str
    type: Type
    is_result: bool


@dataclass(frozen=True, slots=True)
class Trait:
    """What rows share: encoding, flags, implicit registers and ties."""

    encoding: str
    flags: frozenset[str]
    uses: tuple[str, ...]
    defs: tuple[str, ...]
    tied: dict[str, str]
    variant: str


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One encoding of one instruction."""

    name: str
    mnemonic: str
    value: int
    modes: int
    namespace: int
    layout: Layout
    slots: tuple[Slot, ...]
    trait: Trait
    template: str

    @property
    def size(self) -> int:
        """Bytes without a literal."""
        return self.layout.size

    @property
    def encoding(self) -> str:
        """The encoding's name, in small letters: "vop3"."""
        encoding = self.trait.encoding
        if encoding == "flat":
            for each in ("global", "scratch"):
                if each in self.trait.flags:
                    return each
        return encoding

    @property
    def modifier_encoding(self) -> str:
        """ "dpp16", "dpp8" or "sdwa" where the row extends its encoding that way."""
        if "sdwa" in self.trait.flags:
            return "sdwa"
        if "dpp" in self.trait.flags:
            return "dpp8" if "dpp8" in self.layout.fields else "dpp16"
        return ""

    @property
    def flags(self) -> frozenset[str]:
        """What LLVM says of it: "load", "store", "branch" and so on."""
        return self.trait.flags

    @property
    def uses(self) -> tuple[str, ...]:
        """Registers that are read without being named."""
        return self.trait.uses

    @property
    def defs(self) -> tuple[str, ...]:
        """Registers that are written without being named."""
        return self.trait.defs

    @property
    def tied(self) -> dict[str, str]:
        """Operands that must be the register of another."""
        return self.trait.tied

    def __repr__(self) -> str:
        return f"Row({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """All rows of a family."""

    family: str
    modes: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]
    aliases: tuple[tuple[str, str, str], ...]
    header: dict[str, str] = field(default_factory=dict)

    def mode(self, name: str | Target, wave: int | None = None) -> int:
        """The bit of a target with waves of `wave` lanes."""
        found = target(name)
        wave = wave or found.wave
        if (found.name, wave) not in self.modes:
            known = ", ".join(f"{each} wave{lanes}" for each, lanes in self.modes)
            raise ArgumentError(f"{found.name} has no waves of {wave} lanes; the table has {known}")
        return 1 << self.modes.index((found.name, wave))


def _sections(text: str) -> tuple[dict[str, str], dict[str, list[list[str]]]]:
    """The header's words, and each section as lists of fields."""
    header: dict[str, str] = {}
    sections: dict[str, list[list[str]]] = {}
    current: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("# "):
            key, _, value = line[2:].partition(" ")
            header[key] = value
        elif line.startswith("[") and line.endswith("]") and "\t" not in line:
            current = sections.setdefault(line[1:-1], [])
        else:
            current.append(line.split("\t"))
    return header, sections


def _type(line: list[str]) -> Type:
    """Name, class, width, files, alignment, kind and the names of three methods."""
    name, known, bits, files, alignment, kind, decoder, printer, encoder = line
    shape = (int(bits), files, int(alignment))
    return Type(name, known, *shape, kind, decoder, printer, encoder, element_of(kind))


def _layout(line: list[str]) -> Layout:
    """`8 MASK vdst=0.0.8 src0=...`"""
    fields = {}
    for each in line[2].split():
        name, _, runs = each.partition("=")
        triples = [tuple(map(int, run.split("."))) for run in runs.split(",")]
        fields[name] = Field(name, tuple((bit, start, width) for bit, start, width in triples))
    return Layout(int(line[0]), int(line[1], 16), fields)


def _with_addresses(layout: Layout, slots: tuple[Slot, ...], encoding: str) -> Layout:
    """Image instructions whose addresses are not consecutive: a byte for each after the first.

    The records leave out the words that hold them.
    """
    rest = [slot.name for slot in slots if re.fullmatch(r"vaddr\d+", slot.name)]
    rest = [name for name in rest if name not in layout.fields]
    if encoding != "mimg" or not rest:
        return layout
    bit = layout.size * 8
    fields = {name: Field(name, ((bit + 8 * i, 0, 8),)) for i, name in enumerate(rest)}
    size = layout.size + (len(rest) + 3) // 4 * 4
    return Layout(size, layout.mask, layout.fields | fields)


def _trait(line: list[str]) -> Trait:
    """Encoding, flags, uses, defs, constraints, variant."""
    tied = {}
    for constraint in line[4].split(","):
        result, equal, source = constraint.replace("$", "").strip().partition("=")
        if equal:
            tied[source] = result
    flags = frozenset(line[1].split())
    return Trait(line[0], flags, tuple(line[2].split()), tuple(line[3].split()), tied, line[5])


def _slots(line: str, types: list[Type]) -> tuple[Slot, ...]:
    """`vdst:3;src0:4 src1:5`: results before the semicolon."""
    slots = []
    for place, part in enumerate(line.split(";")):
        for each in part.split():
            name, _, number = each.partition(":")
            slots.append(Slot(name, types[int(number)], place == 0))
    return tuple(slots)


@functools.cache
def table(family: str) -> Table:
    """The table of a family."""
    path = TABLES / f"{family}.txt"
    try:
        header, sections = _sections(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(
            f"the instruction table {path} cannot be read ({error}); install weft again"
        ) from error
    types = [_type(line) for line in sections["types"]]
    layouts = [_layout(line) for line in sections["layouts"]]
    signatures = [_slots(line[0], types) for line in sections["signatures"]]
    traits = [_trait(line) for line in sections["traits"]]
    templates = [line[0] for line in sections["templates"]]
    rows = []
    for name, mnemonic, value, modes, namespace, *numbers in sections["rows"]:
        layout, signature, trait, template = map(int, numbers)
        slots, shared = signatures[signature], traits[trait]
        fields = _with_addresses(layouts[layout], slots, shared.encoding)
        fixed = (int(value, 16), int(modes, 16), int(namespace))
        rows.append(Row(name, mnemonic, *fixed, fields, slots, shared, templates[template]))
    lanes = tuple((name, int(wave)) for name, wave in sections["modes"])
    aliases = tuple((old, new, variant) for old, new, variant in sections["aliases"])
    return Table(family, lanes, tuple(rows), aliases, header)
