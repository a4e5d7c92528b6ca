"""What stands in an instruction's operands: registers, numbers with modifiers, labels.

In: what a program or a line of assembly says. Out: small values that the encoder takes. Below the
encoder, the assembler and the DSL. Invariant: a register is told by file, number and count; names
such as `vcc` are only other spellings of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.amd.operands import SPECIAL_SOURCES, register_name
from weft.amd.targets import CDNA, Target
from weft.errors import ArgumentError

FILE_SIZES = {"v": 256, "a": 256, "s": 128}


@dataclass(frozen=True)
class Register:
    """A register or a range of them: `v[4]`, `s[0:1]`, `vcc`; `v[1].h` is its high half."""

    kind: str
    index: int
    count: int = 1
    half: int | None = None
    name: str = ""
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def __neg__(self) -> Register:
        return replace(self, neg=not self.neg)

    def __abs__(self) -> Register:
        return replace(self, abs=True)

    @property
    def l(self) -> Register:  # noqa: E743 - LLVM's spelling
        """The low half of a vector register."""
        return self._half(0)

    @property
    def h(self) -> Register:
        """The high half of a vector register."""
        return self._half(1)

    def _half(self, half: int) -> Register:
        if self.kind != "v" or self.count != 1:
            raise ArgumentError(f"{self} has no halves: only single vector registers do")
        return replace(self, half=half)

    def __str__(self) -> str:
        ends = "" if self.half is None else ".lh"[0] + "lh"[self.half]
        one = f"{self.kind}{self.index}{ends}"
        text = self.name or (
            one if self.count == 1 else f"{self.kind}[{self.index}:{self.index + self.count - 1}]"
        )
        text = f"sext({text})" if self.sext else f"|{text}|" if self.abs else text
        return f"-{text}" if self.neg else text

    __repr__ = __str__


@dataclass(frozen=True)
class Number:
    """A constant: an integer, or a float. `forced` ones are literals whatever their value."""

    value: int | float
    forced: bool = False
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def __str__(self) -> str:
        text = f"lit({self.value:#x})" if self.forced else str(self.value)
        text = f"|{text}|" if self.abs else text
        return f"neg({text})" if self.neg else text


@dataclass(frozen=True)
class Label:
    """A place in a program: a branch's goal."""

    name: str

    def __str__(self) -> str:
        return self.name


Value = Register | Number | Label | str | tuple[Register, ...]


class File:
    """A file of registers: `v[3]`, `v[0:1]` with both ends, as LLVM writes them."""

    def __init__(self, kind: str, size: int, what: str, first: int = 0):
        self.kind, self.size, self.what, self.first = kind, size, what, first

    def __getitem__(self, place: int | slice) -> Register:
        if isinstance(place, slice):
            if place.step is not None or place.start is None or place.stop is None:
                raise ArgumentError(f"a range of {self.what} is written [first:last]")
            start, count = place.start, place.stop - place.start + 1
        else:
            start, count = place, 1
        if not isinstance(start, int) or not isinstance(count, int):
            raise ArgumentError(f"{self.what} are numbered: {place!r} is no number")
        if start < 0 or count < 1 or start + count > self.size:
            raise ArgumentError(
                f"{self.what} {start} to {start + count - 1}: there are 0 to {self.size - 1}"
            )
        name = ""
        if self.first:
            name = f"ttmp{start}" if count == 1 else f"ttmp[{start}:{start + count - 1}]"
        return Register(self.kind, self.first + start, count, name=name)

    def __repr__(self) -> str:
        return f"<{self.what} 0 to {self.size - 1}>"


def named_registers(gpu: Target) -> dict[str, Register]:
    """Registers with names of their own on a target."""
    is_cdna = gpu.family == CDNA
    null = 125 if is_cdna else 124
    found = {
        "vcc": Register("s", 106, 2, name="vcc"),
        "vcc_lo": Register("s", 106, name="vcc_lo"),
        "vcc_hi": Register("s", 107, name="vcc_hi"),
        "exec": Register("s", 126, 2, name="exec"),
        "exec_lo": Register("s", 126, name="exec_lo"),
        "exec_hi": Register("s", 127, name="exec_hi"),
        "m0": Register("s", 124 if is_cdna else 125, name="m0"),
        "null": Register("s", null, 0, name="null"),
    }
    if is_cdna:
        found["flat_scratch"] = Register("s", 102, 2, name="flat_scratch")
        found["flat_scratch_lo"] = Register("s", 102, name="flat_scratch_lo")
        found["flat_scratch_hi"] = Register("s", 103, name="flat_scratch_hi")
        found["xnack_mask"] = Register("s", 104, 2, name="xnack_mask")
        found["xnack_mask_lo"] = Register("s", 104, name="xnack_mask_lo")
        found["xnack_mask_hi"] = Register("s", 105, name="xnack_mask_hi")
    for number, name in SPECIAL_SOURCES.items():
        found[name] = Register("s", number, 0, name=name)
    found["scc"] = Register("s", 253, 0, name="src_scc")
    return found


def canonical(register: Register, gpu: Target) -> str:
    """What LLVM calls it."""
    if register.name:
        return register.name
    return register_name(register.kind, register.index, register.count, register.half, gpu)
