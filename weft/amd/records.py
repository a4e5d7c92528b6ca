"""Reads what `llvm-tblgen --print-records` prints, a record at a time.

In: the program's output as lines, 383 MB of it. Out: the records of the classes that are asked
for, as their fields in TableGen's own spelling. Used by `generate` only. Invariant: nothing but the
wanted records is held in memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

_DEFINITION = re.compile(r"def (\S+) \{(?:\t// (.*))?$")
_FIELD = re.compile(r"  (?:field )?(\S+) (\w+) = (.*);$")
_OPERAND = re.compile(r"([\w.]+)(?::\$(\w+))?")


@dataclass(slots=True)
class Record:
    """One `def`: its name, the classes that it derives from, its fields as text."""

    name: str
    classes: tuple[str, ...]
    fields: dict[str, str]

    def flag(self, name: str) -> bool:
        """Whether a field of one bit is set."""
        return self.fields.get(name) == "1"

    def text(self, name: str) -> str:
        """A string field without its quotes; nothing where it is not given."""
        value = self.fields.get(name, "?")
        return value[1:-1] if value.startswith('"') else ""

    def items(self, name: str) -> tuple[str, ...]:
        """The elements of a list of records."""
        value = self.fields.get(name, "[]")
        return tuple(part.strip() for part in value[1:-1].split(",") if part.strip())

    def operands(self, name: str) -> tuple[tuple[str, str], ...]:
        """(name, type) of each operand in a dag such as `(ins VSrc_f32:$src0, Clamp0:$clamp)`."""
        body = self.fields[name].strip("()").partition(" ")[2]
        found = (_OPERAND.fullmatch(part.strip()) for part in body.split(",") if part.strip())
        return tuple((match[2] or "", match[1]) for match in found if match)

    def bits(self, name: str) -> tuple[str, ...]:
        """The elements of `{ 0, src0{1}, ? }`, the lowest bit first."""
        return tuple(reversed([part.strip() for part in self.fields[name][1:-1].split(",")]))


def read(lines: Iterable[str], wanted: Collection[str]) -> Iterator[Record]:
    """The records that derive from a class in `wanted`, in the order of the file."""
    record: Record | None = None
    began = False
    for line in lines:
        if line.startswith("---"):
            began = "Defs" in line
        elif began and line.startswith("def "):
            match = _DEFINITION.match(line)
            classes = tuple((match[2] or "").split()) if match else ()
            keep = match and not set(classes).isdisjoint(wanted)
            record = Record(match[1], classes, {}) if match and keep else None
        elif record is not None:
            if line.startswith("}"):
                yield record
                record = None
            else:
                field = _FIELD.match(line)
                if field:
                    record.fields[field[2]] = field[3]
