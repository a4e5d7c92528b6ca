"""Bytes to instructions: finds the row that fits, and reads its fields and operands.

In: machine code of a target. Out: `Instruction`s, whose operands are registers, constants and
fields by name. Stands on `table`; the assembler and the emulator stand on it.
Invariant: nothing outside the given bytes is read, and bytes that are no instruction raise a
`DataError`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.amd.images import address_registers, data_registers
from weft.amd.operands import Operand, read_operand
from weft.amd.table import Row, table
from weft.amd.targets import CDNA, Target, target
from weft.amd.text import show
from weft.errors import DataError

SIZES = (16, 12, 8, 4)
LITERAL = 255
_KEY_SHIFT = 23
_KEY_MASK = 0x1FF
_DUAL = re.compile(r" :: (\w+)")


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction: what it is, where it was, and what its operands are."""

    row: Row
    target: Target
    wave: int
    offset: int
    data: bytes
    literal: int | None
    fields: dict[str, int]
    operands: dict[str, Operand]

    @property
    def size(self) -> int:
        """Bytes, with the literal."""
        return len(self.data)

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """The base names: two for a dual issue, one for everything else."""
        return (self.row.mnemonic.removesuffix("_e32"), *_DUAL.findall(self.row.template))

    @property
    def mnemonic(self) -> str:
        """The base name without the encoding's suffix."""
        return " :: ".join(self.mnemonics)

    @property
    def encoding(self) -> str:
        """The encoding's name: "vop3"."""
        return self.row.encoding

    @property
    def modifier_encoding(self) -> str:
        """ "dpp16", "dpp8", "sdwa" or ""."""
        return self.row.modifier_encoding

    @property
    def results(self) -> tuple[Operand, ...]:
        """The registers that it names and writes."""
        return tuple(each for each in self.operands.values() if each.is_result)

    @property
    def sources(self) -> tuple[Operand, ...]:
        """The registers, constants and literals that it names and reads."""
        return tuple(
            each
            for each in self.operands.values()
            if not each.is_result and each.kind not in ("immediate", "label")
        )

    @property
    def branch_target(self) -> int | None:
        """Where a branch goes, as an offset like `offset`."""
        for each in self.operands.values():
            if each.kind == "label":
                return self.offset + 4 + 4 * each.value
        return None

    def __str__(self) -> str:
        return show(self)

    def __repr__(self) -> str:
        return f"Instruction({self.row.name}, {self.data.hex()}, offset={self.offset})"


class Decoder:
    """The rows of one target and wave width, ready to be searched."""

    def __init__(self, name: str | Target, wave: int | None = None):
        self.target = target(name)
        self.wave = wave or self.target.wave
        found = table(self.target.family)
        mode = found.mode(self.target, self.wave)
        self.buckets: dict[int, dict[int, list[Row]]] = {size: {} for size in SIZES}
        rows = [
            row for row in found.rows if row.modes & mode and "parser_only" not in row.trait.flags
        ]
        # the special first: a namespace before the next, then more fixed bits before fewer
        rows.sort(key=lambda row: (row.namespace, -row.layout.mask.bit_count()))
        for row in rows:
            for key in _keys(row):
                self.buckets[row.size].setdefault(key, []).append(row)

    def find(self, word: int, available: int) -> Row | None:
        """The row of the instruction at the low end of `word`, if it fits in `available` bytes."""
        key = word >> _KEY_SHIFT & _KEY_MASK
        for size in SIZES:
            if size <= available:
                for row in self.buckets[size].get(key, ()):
                    if not (word ^ row.value) & row.layout.mask and _acceptable(row, word):
                        return row
        return None

    def may_have_literal(self, row: Row) -> bool:
        """Whether a literal may follow: not what ends in one, nor long forms before RDNA."""
        if "imm" in row.layout.fields or row.modifier_encoding:
            return False
        return row.size == 4 or (row.size == 8 and self.target.family != CDNA)

    def decode(self, data: bytes | memoryview, offset: int = 0) -> Instruction:
        """The instruction at `offset`."""
        rest = bytes(data[offset : offset + 20])
        if not 0 <= offset < len(data):
            raise DataError(f"no instruction at offset {offset}: the code has {len(data)} bytes")
        word = int.from_bytes(rest, "little")
        row = self.find(word, len(rest))
        if row is None:
            raise DataError(
                f"{self.target}: the bytes {rest[:8].hex(' ')} at offset {offset} are no "
                "instruction of this target"
            )
        fields = {name: field.extract(word) for name, field in row.layout.fields.items()}
        size, literal = row.size, None
        if self.may_have_literal(row) and _names_literal(row, fields):
            if size + 4 > len(rest):
                raise DataError(
                    f"{self.target}: {row.mnemonic} at offset {offset} ends before its literal"
                )
            literal = int.from_bytes(rest[size : size + 4], "little")
            size += 4
        operands = read_operands(row, fields, literal, self.target, self.wave)
        return Instruction(
            row, self.target, self.wave, offset, rest[:size], literal, fields, operands
        )


def _keys(row: Row) -> Iterator[int]:
    """All values of the nine high bits of the first word that the row allows."""
    fixed = row.layout.mask >> _KEY_SHIFT & _KEY_MASK
    value = row.value >> _KEY_SHIFT & _KEY_MASK
    free = _KEY_MASK & ~fixed
    subset = free
    while True:
        yield value | subset
        if not subset:
            return
        subset = (subset - 1) & free


def _acceptable(row: Row, word: int) -> bool:
    """Whether fields that are wider than what they may hold are within it."""
    if "dpp8" in row.layout.fields and row.layout.fields["fi"].width > 1:
        # DPP8 forms say so, and `fi`, in the field of the first source
        return row.layout.fields["fi"].extract(word) in (0xE9, 0xEA)
    if "saddr" in row.layout.fields and row.trait.encoding == "flat":
        # gfx9 says in this field that there is no scalar address, which is a form of its own
        return row.namespace < 2 or row.layout.fields["saddr"].extract(word) & 127 != 127
    return True


def _names_literal(row: Row, fields: Mapping[str, int]) -> bool:
    """Whether a source names the literal that follows."""
    return any(
        slot.type.is_source and fields.get(slot.name, 0) & 0x1FF == LITERAL for slot in row.slots
    )


def read_operands(
    row: Row, fields: Mapping[str, int], literal: int | None, gpu: Target, wave: int
) -> dict[str, Operand]:
    """The operands of a row by name, results first."""
    if literal is None and "imm" in row.layout.fields:
        literal = fields["imm"]
    found: dict[str, Operand] = {}
    for slot in row.slots:
        if slot.type.operand_type == "INPUT_MODS":
            continue
        operand = read_operand(row, slot, fields, literal, gpu, wave, found)
        if operand is not None:
            found[slot.name] = operand
    if row.encoding in ("mimg", "vimage", "vsample") and "dmask" in fields:
        _widen_images(row, fields, found, gpu)
    if "_f8f6f4" in row.mnemonic and "cbsz" in fields:
        for name, choice in (("src0", fields["cbsz"]), ("src1", fields["blgp"])):
            found[name] = found[name].widened(_REGISTERS_OF_FORMAT[choice], gpu)
    return found


# what a row of a small-float matrix holds: fp8 and bf8, fp6 and bf6, fp4; others are reserved
_REGISTERS_OF_FORMAT = (8, 8, 6, 6, 4, 8, 8, 8)


def _widen_images(
    row: Row, fields: Mapping[str, int], found: dict[str, Operand], gpu: Target
) -> None:
    """Give the data and address registers of an image instruction their real widths."""
    data = data_registers(row.mnemonic, fields)
    for name in ("vdst", "vdata"):
        if name in found:
            found[name] = found[name].widened(data, gpu)
    if "dim" not in fields:
        return
    total = address_registers(row.mnemonic, fields)
    parts = [name for name in found if name.startswith("vaddr")]
    if len(parts) == 1 and row.encoding == "mimg":
        found[parts[0]] = found[parts[0]].widened(total if total <= 12 else 16, gpu)
        return
    for name in parts[total:]:
        del found[name]
    if total > len(parts) > 1:
        found[parts[-1]] = found[parts[-1]].widened(total - len(parts) + 1, gpu)


@functools.cache
def decoder(name: str | Target, wave: int | None = None) -> Decoder:
    """The decoder of a target; built once."""
    return Decoder(name, wave)


def decode(
    data: bytes | memoryview, name: str | Target, offset: int = 0, wave: int | None = None
) -> Instruction:
    """The instruction at `offset` of the machine code of a target."""
    return decoder(target(name), wave).decode(data, offset)


def decode_all(
    data: bytes | memoryview, name: str | Target, wave: int | None = None
) -> list[Instruction]:
    """All instructions from the first byte to the last."""
    found = []
    offset = 0
    reader = decoder(target(name), wave)
    while offset < len(data):
        instruction = reader.decode(data, offset)
        found.append(instruction)
        offset += instruction.size
    return found
