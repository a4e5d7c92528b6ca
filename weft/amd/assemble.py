"""Text to machine code: reads LLVM's assembly and finds the row that each line asks for.

In: lines as `llvm-mc` takes them, with labels. Out: the bytes. Stands on the encoder; the DSL
shares its search for a row. Invariant: what the printer prints assembles to the same bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.amd.encode import Encoder, Misfit
from weft.amd.shape import Shape, shape
from weft.amd.table import table
from weft.amd.targets import Target, target
from weft.amd.values import Label, Number, Register, Value, named_registers
from weft.errors import ArgumentError

_REGISTER = re.compile(r"(v|s|a|ttmp)(\d+)(?:\.([lh]))?")
_RANGE = re.compile(r"(v|s|a|ttmp)\[\s*(\d+)\s*(?::\s*(\d+)\s*)?\]")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)")
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*)\s*:\s*(.*)")
_COMMENT = re.compile(r"/\*.*?\*/|//.*|;.*")


@dataclass(frozen=True)
class Line:
    """An instruction as it is asked for: a name, operands, modifiers."""

    mnemonic: str
    values: tuple[Value, ...]
    modifiers: Mapping[str, object] = field(default_factory=dict)
    lenient: bool = False
    text: str = ""

    def __str__(self) -> str:
        return self.text or f"{self.mnemonic} {', '.join(map(str, self.values))}".rstrip()


class Assembler:
    """The rows of one target by name, ready to be tried."""

    def __init__(self, name: str | Target, wave: int | None = None):
        self.target = target(name)
        self.wave = wave or self.target.wave
        found = table(self.target.family)
        mode = found.mode(self.target, self.wave)
        self.shapes: dict[str, list[Shape]] = {}
        self.elsewhere: dict[str, str] = {}
        for row in found.rows:
            if "parser_only" in row.flags:
                continue
            made = shape(row, self.wave)
            if not row.modes & mode:
                self.elsewhere.setdefault(row.mnemonic, row.name)
                continue
            for each in made.names:
                self.shapes.setdefault(each, []).append(made)
        for shapes in self.shapes.values():
            shapes.sort(key=_preference)
        for old, new, _ in found.aliases:
            if new in self.shapes:
                self.shapes.setdefault(old, self.shapes[new])
        self.registers = named_registers(self.target)
        self._flags: dict[str, frozenset[str]] = {}

    def encode(self, line: Line) -> bytes:
        """The bytes of an instruction whose labels are resolved."""
        shapes = self.candidates(line)
        best: Misfit | None = None
        for lenience in (1, 2) if line.lenient else (0,):
            for each in shapes:
                encoder = Encoder(each, self.target, self.wave, lenience)
                try:
                    return encoder.encode(line.values, line.modifiers)
                except Misfit as error:
                    if best is None or error.depth >= best.depth:
                        best = error
        raise ArgumentError(f"{line}: {best}")

    def candidates(self, line: Line) -> Sequence[Shape]:
        """The rows that go by the line's name."""
        found = self.shapes.get(line.mnemonic)
        if found is None:
            raise ArgumentError(f"{line}: {self._unknown(line.mnemonic)}")
        seconds = [value for value in line.values if isinstance(value, str)]
        second = next((word for word in seconds if word.startswith("::")), "")
        if second:
            found = [each for each in found if f"={second}" in each.positional]
            if not found:
                raise ArgumentError(f"{line}: {line.mnemonic} does not pair with {second[2:]}")
        return found

    def _unknown(self, mnemonic: str) -> str:
        if mnemonic in self.elsewhere:
            return f"{self.target} has no {mnemonic}; other targets of its family have it"
        close = [name for name in self.shapes if name.startswith(mnemonic.rpartition("_")[0])]
        hint = f"; there are {', '.join(sorted(close)[:5])}" if mnemonic and close else ""
        return f"{self.target} has no instruction {mnemonic!r}{hint}"

    def parse(self, text: str) -> Line:
        """One line without a label."""
        lenient = "/*Invalid" in text
        plain = _COMMENT.sub("", text).strip()
        mnemonic, _, rest = plain.partition(" ")
        shapes = self.shapes.get(mnemonic, [])
        rest = rest.strip()
        if shapes and shapes[0].takes_whole:
            values: tuple[Value, ...] = (rest,) if rest else ()
            return Line(mnemonic, values, {}, lenient, plain)
        flags = self.flags(mnemonic)
        first, separator, second = rest.partition("::")
        operands, modifiers = self._split(first, flags)
        if separator:
            other, _, tail = second.strip().partition(" ")
            more, modifiers = self._split(tail, flags)
            operands = [*operands, f"::{other}", *more]
        made = tuple(self.value(word, lenient) for word in operands)
        return Line(mnemonic, made, modifiers, lenient, plain)

    def flags(self, mnemonic: str) -> frozenset[str]:
        """The words that modify an instruction of this name."""
        found = self._flags.get(mnemonic)
        if found is None:
            shapes = self.shapes.get(mnemonic, ())
            found = frozenset(word for each in shapes for word in each.accepts)
            self._flags[mnemonic] = found
        return found

    def _split(self, text: str, flags: frozenset[str]) -> tuple[list[str], dict[str, object]]:
        """Operands between commas, and the modifiers after the last."""
        operands: list[str] = []
        modifiers: dict[str, object] = {}
        chunks = _top_level(text, ",")
        for number, chunk in enumerate(chunks):
            words = _top_level(chunk, " ")
            is_last = number == len(chunks) - 1
            for place, word in enumerate(words):
                name, colon, value = word.partition(":")
                is_named = bool(colon) and name.isidentifier()
                may_be_flag = place > 0 or len(chunks) == 1
                if is_last and (is_named or (may_be_flag and word in flags)):
                    modifiers[name] = value if colon else True
                else:
                    operands.append(word)
        return operands, modifiers

    def value(self, word: str, lenient: bool = False) -> Value:
        """What one operand says."""
        word = word.strip()
        if word.startswith("[") and word.endswith("]"):
            registers = [self.value(each, lenient) for each in _top_level(word[1:-1], ",")]
            return tuple(each for each in registers if isinstance(each, Register))
        for opening, closing, marks in _WRAPPERS:
            if word.startswith(opening) and word.endswith(closing) and len(word) > len(opening):
                inner = self.value(word[len(opening) : len(word) - len(closing)], lenient)
                if isinstance(inner, (Register, Number)):
                    return _marked(inner, marks)
        if word.startswith("-") and not _FLOAT.fullmatch(word) and not _NUMBER.fullmatch(word):
            inner = self.value(word[1:], lenient)
            if isinstance(inner, (Register, Number)):
                return _marked(inner, {"neg": True})
        if word in self.registers:
            return self.registers[word]
        register = self._register(word, lenient)
        if register is not None:
            return register
        forced = re.fullmatch(r"lit\((.*)\)", word)
        if forced and _NUMBER.fullmatch(forced[1].strip()):
            return Number(int(forced[1], 0), forced=True)
        if _NUMBER.fullmatch(word):
            return Number(int(word, 0) if not re.fullmatch(r"[+-]?0\d+", word) else int(word))
        if _FLOAT.fullmatch(word):
            return Number(float(word))
        return word

    def _register(self, word: str, lenient: bool) -> Register | None:
        single = _REGISTER.fullmatch(word)
        if single:
            kind, index = single[1], int(single[2])
            half = None if single[3] is None else "lh".index(single[3])
            return self._checked(Register(kind, index, 1, half), word, lenient)
        several = _RANGE.fullmatch(word)
        if several:
            start, stop = int(several[2]), int(several[3] or several[2])
            made = Register(several[1], start, stop - start + 1)
            return self._checked(made, word, lenient)
        return None

    def _checked(self, register: Register, word: str, lenient: bool) -> Register:
        kind, index, count = register.kind, register.index, register.count
        most = {"ttmp": 16, "s": 106}.get(kind, 256)
        if count < 1 or (index + count > most and not lenient) or index >= most:
            raise ArgumentError(f"{word}: there are {kind}0 to {kind}{most - 1}")
        if kind == "ttmp":
            return Register("s", 108 + index, count, name=word)
        return register


def _preference(each: Shape) -> tuple[int, bool, bool, int]:
    """Short forms first; of two spellings of one scalar load the one that gfx8 had."""
    name = each.row.name
    return each.row.size, "_SGPR_IMM" in name, "_alt_" in name, each.row.namespace


_WRAPPERS: tuple[tuple[str, str, dict[str, bool]], ...] = (
    ("-|", "|", {"neg": True, "abs": True}),
    ("|", "|", {"abs": True}),
    ("neg(", ")", {"neg": True}),
    ("abs(", ")", {"abs": True}),
    ("sext(", ")", {"sext": True}),
)


def _marked(value: Register | Number, marks: Mapping[str, bool]) -> Register | Number:
    kept = {name: True for name in ("neg", "abs", "sext") if getattr(value, name)}
    kept |= dict(marks)
    if isinstance(value, Register):
        return Register(value.kind, value.index, value.count, value.half, value.name, **kept)
    return Number(value.value, value.forced, **kept)


def _top_level(text: str, separator: str) -> list[str]:
    """Parts between separators that are in no brackets, parentheses or quotes."""
    parts, depth, current, quoted = [], 0, "", False
    for letter in text:
        if letter == '"':
            quoted = not quoted
        depth += (letter in "[(") - (letter in "])")
        if letter == separator and depth == 0 and not quoted:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    parts.append(current.strip())
    return [part for part in parts if part]


@functools.cache
def assembler(name: str | Target, wave: int | None = None) -> Assembler:
    """The assembler of a target; built once."""
    return Assembler(name, wave)


def assemble_lines(lines: Iterable[Line | Label], reader: Assembler) -> bytes:
    """The bytes of instructions with labels between them."""
    items = list(lines)
    places: dict[str, int] = {}
    sizes: list[int] = []
    at = 0
    for item in items:
        if isinstance(item, Label):
            if item.name in places:
                raise ArgumentError(f"the label {item.name} stands twice")
            places[item.name] = at
            sizes.append(0)
            continue
        size = len(reader.encode(_resolved(item, {}, at, 0)))
        sizes.append(size)
        at += size
    out = bytearray()
    for item, size in zip(items, sizes, strict=True):
        if isinstance(item, Line):
            out += reader.encode(_resolved(item, places, len(out), size))
    return bytes(out)


def _resolved(line: Line, places: Mapping[str, int], at: int, size: int) -> Line:
    """The line with numbers for its labels; before they are known, with zeros."""
    if not line.mnemonic.startswith(("s_branch", "s_cbranch", "s_call")):
        return line
    values: list[Value] = []
    for value in line.values:
        name = value.name if isinstance(value, Label) else value if isinstance(value, str) else ""
        if not name:
            values.append(value)
        elif not size:
            values.append(Number(0))
        elif name in places:
            distance = (places[name] - at - 4) // 4
            if not -(1 << 15) <= distance < 1 << 15:
                raise ArgumentError(f"{line}: {name} is {distance} words away; 32767 are the most")
            values.append(Number(distance))
        else:
            raise ArgumentError(f"{line}: there is no label {name}")
    return Line(line.mnemonic, tuple(values), line.modifiers, line.lenient, line.text)


def assemble(text: str, name: str | Target, wave: int | None = None) -> bytes:
    """The machine code of a text in LLVM's syntax, with labels and comments."""
    reader = assembler(target(name), wave)
    items: list[Line | Label] = []
    for number, raw in enumerate(text.splitlines(), 1):
        rest = raw
        plain = _COMMENT.sub("", raw).strip()
        while True:
            label = _LABEL.fullmatch(plain)
            if label is None:
                break
            items.append(Label(label[1]))
            plain = rest = label[2]
        if plain and not plain.startswith("."):
            try:
                items.append(reader.parse(rest))
            except ArgumentError as error:
                raise ArgumentError(f"line {number}: {error}") from None
    return assemble_lines(items, reader)
