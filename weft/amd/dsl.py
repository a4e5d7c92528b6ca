"""Instructions as Python calls: what `from weft.amd.rdna3 import *` brings.

In: calls with registers, numbers and modifiers. Out: `Line`s, and of lists of them machine code,
text and code objects. Above the assembler; one module for each family is made of it. Invariant: a
call that returns has operands that at least one target of the family encodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from weft.amd.assemble import Assembler, Line, assemble_lines, assembler
from weft.amd.assemble import assemble as assemble_text
from weft.amd.codeobject import Argument, KernelCode, build
from weft.amd.decode import Instruction, decode_all
from weft.amd.names import wait_counters
from weft.amd.shape import Shape, shape
from weft.amd.table import table
from weft.amd.targets import CDNA, FAMILIES, TARGETS, Target, target
from weft.amd.values import File, Label, Number, Register, Value, named_registers
from weft.errors import ArgumentError
from weft.machine import MachineKernel

Operand = Register | Number | Label | int | float | str | Sequence[Register]
Program = Iterable[Line | Label]


def lit(value: int) -> Number:
    """A literal, even where an inline constant has this value."""
    return Number(value, forced=True)


def neg(value: Register | int | float) -> Register | Number:
    """The negation that an instruction applies: `-` of a register, `neg(1.0)` of a constant."""
    return -value if isinstance(value, Register) else Number(value, neg=True)


def sext(value: Register) -> Register:
    """The sign extension that an SDWA form applies."""
    return replace(value, sext=True)


def label(name: str) -> Label:
    """A place in a program; branches take it, or its name."""
    return Label(name)


def dual(first: Line, second: Line) -> Line:
    """Two instructions of dual issue as one: `dual(v_dual_mul_f32(...), v_dual_add_f32(...))`."""
    values = (*first.values, f"::{second.mnemonic}", *second.values)
    return Line(first.mnemonic, values, {})


class Mnemonic:
    """An instruction by its name: call it with operands and modifiers."""

    def __init__(self, name: str, family: Family):
        self.__name__ = self.__qualname__ = name
        self.family = family

    def __call__(self, *operands: Operand, **modifiers: object) -> Line:
        values = tuple(_value(each) for each in operands)
        counters = wait_counters(self.family.default)
        given = {name: modifiers.pop(name) for name in counters if name in modifiers}
        if given:
            words = " ".join(f"{name}({count})" for name, count in given.items())
            values = (*values, words)
        line = Line(self.__name__, values, modifiers)
        if not self.__name__.startswith("v_dual_"):
            self.family.check(line)
        return line

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.family.describe(self.__name__)

    def __repr__(self) -> str:
        return f"<instruction {self.__name__} of {self.family.name}>"


def _value(operand: Operand) -> Value:
    if isinstance(operand, bool):
        raise ArgumentError(f"{operand} is no operand: registers, numbers and labels are")
    if isinstance(operand, (int, float)):
        return Number(operand)
    if isinstance(operand, (Register, Number, Label, str)):
        return operand
    if isinstance(operand, (list, tuple)) and all(isinstance(one, Register) for one in operand):
        return tuple(operand)
    raise ArgumentError(
        f"{operand!r} is no operand: registers (v[0], s[4:5], vcc), numbers, labels and lists of "
        "registers are"
    )


class Family:
    """The instructions of a family, and what is done with programs of them."""

    def __init__(self, name: str):
        self.name = name
        self.default = TARGETS[FAMILIES[name][0]]

    @functools.cached_property
    def shapes(self) -> dict[str, list[Shape]]:
        """All shapes by mnemonic, whichever target of the family has them."""
        found: dict[str, list[Shape]] = {}
        for row in table(self.name).rows:
            if "parser_only" not in row.flags:
                made = shape(row, self.default.wave)
                for name in made.names:
                    found.setdefault(name, []).append(made)
        return found

    @functools.cache  # noqa: B019 - one for each family, for good
    def mnemonic(self, name: str) -> Mnemonic:
        """The instruction of that name."""
        if name not in self.shapes:
            raise AttributeError(f"{self.name} has no instruction {name}")
        return Mnemonic(name, self)

    def check(self, line: Line) -> None:
        """An error unless a target of the family encodes the line."""
        line = _without_labels(line)
        first: ArgumentError | None = None
        for name in FAMILIES[self.name]:
            for wave in (None, 64):
                try:
                    assembler(TARGETS[name], wave).encode(line)
                    return
                except ArgumentError as error:
                    first = first or error
        assert first is not None
        raise first

    def describe(self, name: str) -> str:
        """What an instruction takes, in each of its forms."""
        lines = [f"{name} of {self.name}: its forms, the shortest first.", ""]
        seen = set()
        for each in sorted(self.shapes[name], key=lambda one: one.row.size):
            operands = ", ".join(_operand_text(each, slot) for slot in each.positional)
            row = each.row
            kind = " ".join(word for word in (row.encoding, row.modifier_encoding) if word)
            text = f"    {name} {operands}".rstrip()
            options = sorted(each.accepts - each.words)
            text += "".join(f" {word}" for word in sorted(each.words))
            text += f" [{' '.join(options)}]" if options else ""
            text = f"{text}  ({kind}, {row.size} bytes)"
            if text not in seen:
                seen.add(text)
                lines.append(text)
        return "\n".join(lines)

    def assemble(
        self, program: Program | str, name: str | Target = "", wave: int | None = None
    ) -> bytes:
        """The machine code of a program, or of a text in LLVM's syntax."""
        gpu = self.target(name)
        if isinstance(program, str):
            return assemble_text(program, gpu, wave)
        return assemble_lines(_checked(program), assembler(gpu, wave))

    def disassemble(
        self, data: bytes, name: str | Target = "", wave: int | None = None
    ) -> list[Instruction]:
        """The instructions of machine code; `str` of each is LLVM's text."""
        return decode_all(data, self.target(name), wave)

    def text(self, program: Program, name: str | Target = "", wave: int | None = None) -> str:
        """The program in LLVM's syntax, labels included."""
        items = list(_checked(program))
        reader = assembler(self.target(name), wave)
        code = assemble_lines(items, reader)
        decoded = iter(decode_all(code, reader.target, reader.wave))
        lines = []
        for item in items:
            if isinstance(item, Label):
                lines.append(f"{item.name}:")
            else:
                lines.append(f"    {_with_label(str(next(decoded)), item)}")
        return "\n".join(lines)

    def kernel(
        self,
        kernel_name: str,
        program: Program | str,
        arguments: Sequence[Argument | str] = (),
        name: str | Target = "",
        **needs: int,
    ) -> bytes:
        """A code object with one kernel; registers are counted unless `vgprs`, `sgprs` say more."""
        gpu = self.target(name)
        code = self.assemble(program, gpu, needs.get("wave"))
        counts = registers_used(decode_all(code, gpu, needs.get("wave")))
        made = [Argument(each) if isinstance(each, str) else each for each in arguments]
        return build(gpu, KernelCode(kernel_name, code, made, **{**counts, **needs}))  # type: ignore[arg-type]

    def custom(
        self,
        kernel_name: str,
        program: Program | str,
        arguments: Sequence[Argument | str],
        groups: tuple[int, int, int],
        threads: tuple[int, int, int],
        writes: Sequence[int] = (0,),
        name: str | Target = "",
        **needs: int,
    ) -> MachineKernel:
        """A kernel for `Tensor.custom_kernel`: `arguments` names its tensors in their order,
        `writes` are the numbers of those that it writes, `groups` and `threads` its grid."""
        code = self.kernel(kernel_name, program, arguments, name, **needs)
        gpu = str(self.target(name))
        count = len(arguments)
        return MachineKernel(kernel_name, code, gpu, count, groups, threads, tuple(writes))

    def target(self, name: str | Target) -> Target:
        """The target of that name, which must be of this family."""
        found = target(name) if name else self.default
        if found.family != self.name:
            known = ", ".join(FAMILIES[self.name])
            raise ArgumentError(f"{found} is no target of {self.name}; those are {known}")
        return found


def registers_used(instructions: Iterable[Instruction]) -> dict[str, int]:
    """The registers that a program names, by the names of a kernel's needs."""
    highest = {"v": 0, "s": 0, "a": 0}
    for instruction in instructions:
        for operand in instruction.operands.values():
            if operand.kind in highest and not (operand.kind == "s" and operand.index > 105):
                end = operand.index + operand.count
                highest[operand.kind] = max(highest[operand.kind], end)
    # the mask of lanes takes two scalar registers more where there is no room of its own for it
    return {"vgprs": max(1, highest["v"]), "sgprs": highest["s"] + 6, "agprs": highest["a"]}


def _checked(program: Program) -> Iterable[Line | Label]:
    for number, item in enumerate(program):
        if not isinstance(item, (Line, Label)):
            raise ArgumentError(
                f"item {number} of the program is {item!r}; instructions and labels are expected"
            )
        yield item


def _is_branch(line: Line) -> bool:
    return line.mnemonic.startswith(("s_branch", "s_cbranch", "s_call"))


def _without_labels(line: Line) -> Line:
    if not _is_branch(line):
        return line
    values = tuple(Number(0) if isinstance(each, (Label, str)) else each for each in line.values)
    return replace(line, values=values)


def _with_label(text: str, line: Line) -> str:
    goal = next((each for each in line.values if isinstance(each, (Label, str))), None)
    if goal is None or not _is_branch(line):
        return text
    return f"{text.rpartition(' ')[0]} {goal}"


def _operand_text(each: Shape, name: str) -> str:
    if name.startswith("="):
        return name[1:]
    if name == "vaddr*":
        return "[vaddr...]"
    kind = each.slots[name].type
    count = max(1, kind.bits // 32)
    many = "" if count == 1 else f"[0:{count - 1}]"
    letters = "|".join(f"{letter}{many}" for letter in kind.files)
    if kind.takes_constants:
        letters += "|constant" if not kind.takes_literals else "|constant|literal"
    return f"{name}: {letters}" if letters else name


def namespace(name: str) -> tuple[dict[str, object], Callable[[str], Mnemonic], list[str]]:
    """What a family's module holds, how it finds instructions, and all names."""
    family = Family(name)
    found: dict[str, object] = {
        "v": File("v", 256, "vector registers"),
        "s": File("s", 106 if name != CDNA else 102, "scalar registers"),
        "ttmp": File("s", 16, "trap registers", 108),
        **named_registers(family.default),
        "off": "off",
        "lit": lit,
        "neg": neg,
        "sext": sext,
        "label": label,
        "dual": dual,
        "Argument": Argument,
        "assemble": family.assemble,
        "disassemble": family.disassemble,
        "text": family.text,
        "kernel": family.kernel,
        "custom": family.custom,
    }
    if name == CDNA:
        found["a"] = File("a", 256, "accumulation registers")
    return found, family.mnemonic, [*found, *sorted(family.shapes)]


__all__ = ["Assembler", "Family", "Mnemonic", "namespace"]
