"""Forms: what of an instruction a helper is compiled for, and what its record holds.

In: decoded instructions. Out: a `Form`, which names a helper, and the words of the record: where
registers are and what constants are. Between the decoder and the writers of helpers.
Invariant: two instructions of one form differ in the words of their records only; everything else
that decides what they do is in the form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from weft.amd.decode import Instruction
from weft.amd.operands import Operand
from weft.amd.semantics.lane import (
    PRESERVED,
    Result,
    Source,
    packed_row,
    register_bits,
    scalar_row,
    vector_row,
)
from weft.amd.semantics.rows import Row
from weft.errors import DataError
from weft.runtime.amd import state

_NULL = "null"
_SUFFIX = re.compile(r"_e(32|64)\Z")
_MIXED = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_mad_mix_f32",
          "v_mad_mixlo_f16", "v_mad_mixhi_f16")  # fmt: skip
_SPECIAL = {235: "zero", 236: "zero", 237: "zero", 238: "zero", 251: "vccz", 252: "execz",
            253: "scc"}  # fmt: skip
_KEEPS = ("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32", "s_bitset0_b32", "s_bitset1_b32")
# operands that say what a register held before
_TIED_NAMES = ("old", "vdst_in", "vdst_old")


def names_of(instruction: Instruction) -> tuple[str, ...]:
    """The mnemonics without what only names their encodings."""
    return tuple([_SUFFIX.sub("", name) for name in instruction.mnemonics])


def name_of(instruction: Instruction) -> str:
    """The mnemonic, or both of a dual issue."""
    return " :: ".join(names_of(instruction))


class UnsupportedInstruction(DataError):
    """An instruction that the emulator does not know; it is an error where it is reached."""


@dataclass(frozen=True)
class Place:
    """Where an operand is: "v", "s", "mask" and "c" (a constant) take words of the record."""

    kind: str
    bits: int = 32

    @property
    def words(self) -> int:
        if self.kind == "c":
            return self.bits // 32
        return 1 if self.kind in ("v", "s", "mask", "exec+s") else 0


@dataclass(frozen=True)
class Form:
    """What a helper is compiled for."""

    kind: str
    name: str
    lanes: int
    sources: tuple[Place, ...] = ()
    results: tuple[Place, ...] = ()
    reads: tuple[Source, ...] = ()
    writes: Result = field(default_factory=Result)
    extra: tuple[object, ...] = ()


class Words:
    """The words of a record while they are collected."""

    def __init__(self, shape: state.Shape) -> None:
        self.shape = shape
        self.words: list[int] = []

    def place(self, operand: Operand, bits: int) -> Place:
        """Where a source is; its words are added."""
        kind = operand.kind
        if kind in ("v", "a"):
            self.words.append(self.vector(operand))
            return Place("v", bits)
        if kind == "s":
            if operand.register == _NULL:
                return Place("zero", bits)
            self.check_scalar(operand, bits)
            self.words.append(self.shape.scalar(operand.index))
            return Place("s", bits)
        if kind in ("constant", "literal", "immediate"):
            return self.constant(operand.value, bits)
        if kind == "special" and operand.index in _SPECIAL:
            return Place(_SPECIAL[operand.index], bits)
        raise UnsupportedInstruction(f"operand {operand.name} ({operand.register or kind})")

    def constant(self, value: int, bits: int) -> Place:
        self.words += [value >> 32 * i & 0xFFFFFFFF for i in range(max(1, bits // 32))]
        return Place("c", max(32, bits))

    def result(self, operand: Operand, bits: int) -> Place:
        """Where a result goes; its words are added."""
        if operand.kind in ("v", "a"):
            self.words.append(self.vector(operand))
            return Place("v", bits)
        if operand.register == _NULL:
            self.words.append(state.BIN)
            return Place("s", bits)
        if operand.kind != "s":
            raise UnsupportedInstruction(f"result {operand.name} ({operand.kind})")
        self.check_scalar(operand, bits)
        self.words.append(self.shape.scalar(operand.index))
        return Place("s", bits)

    def vector(self, operand: Operand) -> int:
        if operand.index + max(1, operand.count) > state.VGPR_COUNT:
            raise DataError(f"{operand.register} is beyond the vector registers")
        shape = self.shape
        if operand.kind == "a":
            return shape.accumulator(operand.index)
        return shape.vector(operand.index)

    def check_scalar(self, operand: Operand, bits: int) -> None:
        count = max(operand.count, bits // 32)
        if operand.index + count > state.SGPR_COUNT:
            raise DataError(f"{operand.register} is beyond the scalar registers")


# ------------------------------------------------------------ vectors
def in_mode(form: Form, mode: int) -> Form:
    """The form in a mode of floats: four bits of rounding, four of denormals."""
    if mode == state.DEFAULT_MODE or not _is_float(form):
        return form
    writes = replace(form.writes, denormals=mode >> 4 & 15, rounding=mode & 15)
    return replace(form, writes=writes)


def _is_float(form: Form) -> bool:
    """Whether a form computes floats; others have no mode."""
    if form.kind == "dual":
        return True
    row = vector_row(form.name) if form.kind == "vector" else None
    return row is not None and any([kind[0] == "f" for kind in (*row.sources, *row.results)])


def vector_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """The form of a vector instruction that computes lanes one by one."""
    name = name_of(instruction)
    words = Words(shape)
    if name in _MIXED:
        return _plain_form("mixed", instruction, words, ("u32",) * 3, "u32")
    packed = packed_row(name)
    if packed is not None:
        kind = "u64" if name.endswith("32") else "u32"
        return _plain_form("packed", instruction, words, (kind,) * len(packed.sources), kind)
    if name.startswith("v_bitop3"):
        form, found = _plain_form("ternary", instruction, words, ("u32",) * 3, "u32")
        table = instruction.operands["bitop3"].value
        bits = 16 if name.endswith("b16") else 32
        return replace(form, extra=(table, bits)), found
    row = vector_row(name)
    if row is None:
        raise UnsupportedInstruction(name)
    return _row_form(instruction, row, words)


def _plain_form(
    kind: str, instruction: Instruction, words: Words, sources: tuple[str, ...], result: str
) -> tuple[Form, list[int]]:
    explicit = given_sources(instruction)
    places = [words.place(o, register_bits(t)) for o, t in zip(explicit, sources, strict=True)]
    reads = tuple([read_of(instruction, operand) for operand in explicit])
    out = words.result(instruction.operands["vdst"], register_bits(result))
    form = Form(
        kind, name_of(instruction), words.shape.lanes, tuple(places), (out,), reads,
        write_of(instruction, is_half=kind == "ternary"),
    )  # fmt: skip
    return form, words.words


def given_sources(instruction: Instruction) -> list[Operand]:
    """What an instruction names to be read, in order; a constant in the middle of it too."""
    return [
        operand
        for operand in instruction.operands.values()
        if operand.name == "imm"
        or not operand.is_result
        and operand.kind not in ("immediate", "label")
        and operand.name not in _TIED_NAMES
    ]


def _row_form(instruction: Instruction, row: Row, words: Words) -> tuple[Form, list[int]]:
    explicit = given_sources(instruction)
    places: list[Place] = []
    reads: list[Source] = []
    for kind in row.sources:
        if not explicit:
            if kind != "m":
                raise UnsupportedInstruction(f"{name_of(instruction)}: a source is missing")
            places.append(Place("vcc", 1))
            reads.append(Source())
            continue
        operand = explicit.pop(0)
        if kind == "m":
            places.append(_mask_place(operand, words))
            reads.append(Source())
            continue
        places.append(words.place(operand, register_bits(kind)))
        reads.append(read_of(instruction, operand))
    is_half = any([kind in ("u16", "i16", "f16") for kind in row.results[:1]])
    results = _result_places(instruction, row, words)
    extra: tuple[object, ...] = ()
    if instruction.modifier_encoding.startswith("dpp"):
        extra = _exchange_of(instruction)
    form = Form(
        "vector", name_of(instruction), words.shape.lanes, tuple(places), tuple(results),
        tuple(reads), write_of(instruction, is_half), extra,
    )  # fmt: skip
    return form, words.words


def _mask_place(operand: Operand, words: Words) -> Place:
    place = words.place(operand, words.shape.lanes)
    if place.kind not in ("s", "zero"):
        raise UnsupportedInstruction(f"a mask that is no register ({operand.kind})")
    return Place("mask", 1) if place.kind == "s" else Place("none", 1)


def _result_places(instruction: Instruction, row: Row, words: Words) -> list[Place]:
    found: list[Place] = []
    name = name_of(instruction)
    operands = list(instruction.results)
    for kind in row.results:
        if kind != "m":
            found.append(words.result(operands.pop(0), register_bits(kind)))
            continue
        scalar = [o for o in operands if o.kind == "s"]
        if name.startswith("v_cmpx"):
            both = bool(scalar) and scalar[0].register not in ("exec", "exec_lo")
            if instruction.target.family == "cdna":
                found.append(words.result(scalar[0], 32) if both else Place("vcc", 1))
                found[-1] = Place("exec+" + found[-1].kind, 1)
            else:
                found.append(Place("exec", 1))
        elif scalar:
            place = words.result(scalar[0], words.shape.lanes)
            found.append(Place(place.kind, 1))
        else:
            found.append(Place("vcc", 1))
    return found


def _dst_is_high(instruction: Instruction) -> bool:
    """Whether a long form writes the upper half of a register that has no name of its own."""
    source = instruction.operands.get("src0")
    return bool(source is not None and source.op_sel_hi and instruction.encoding == "vop3")


def read_of(instruction: Instruction, operand: Operand) -> Source:
    """How a source is read."""
    number = operand.name[-1:] if operand.name.startswith("src") else ""
    select = instruction.operands.get(f"src{number}_sel") if number else None
    is_sdwa = instruction.modifier_encoding == "sdwa" and select is not None
    half = operand.half if operand.half is not None else operand.op_sel
    return Source(
        neg=operand.neg or bool(operand.neg_lo and name_of(instruction) in _MIXED),
        abs=operand.abs or bool(operand.neg_hi and name_of(instruction) in _MIXED),
        half=half,
        select=select.value if is_sdwa and select is not None else 6,
        sext=operand.sext and is_sdwa,
        op_sel=operand.op_sel,
        op_sel_hi=operand.op_sel_hi,
        neg_lo=bool(operand.neg_lo),
        neg_hi=bool(operand.neg_hi),
    )


def write_of(instruction: Instruction, is_half: bool) -> Result:
    """How the result is written."""
    operands = instruction.operands

    def number(name: str) -> int:
        return operands[name].value if name in operands else 0

    half: int | None = None
    out = operands.get("vdst")
    if is_half:
        if out is not None and out.half is not None:
            half = out.half
        elif _dst_is_high(instruction):
            half = 1
        elif instruction.target.family != "cdna":
            half = 0
    is_sdwa = instruction.modifier_encoding == "sdwa" and "dst_sel" in operands
    return Result(
        clamp=bool(number("clamp")),
        omod=number("omod"),
        half=None if is_sdwa else half,
        select=number("dst_sel") if is_sdwa else 6,
        unused=number("dst_unused") if is_sdwa else PRESERVED,
    )


def _exchange_of(instruction: Instruction) -> tuple[object, ...]:
    """How DPP moves the first source between lanes."""
    operands = instruction.operands
    names = ("dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl", "fi", "dpp8")
    values = [operands[name].value if name in operands else None for name in names]
    return (instruction.modifier_encoding, instruction.target.family, *values)


# ------------------------------------------------------------ dual issue
def dual_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """Two instructions that read before either writes."""
    words = Words(shape)
    parts: list[object] = []
    for letter, name in zip("XY", names_of(instruction), strict=True):
        row = vector_row(name)
        if row is None:
            raise UnsupportedInstruction(name)
        takes_constant = name.endswith(("fmaak_f32", "fmamk_f32"))
        given = [
            operand
            for operand in given_sources(instruction)
            if operand.name.endswith(letter) or (operand.name == "imm" and takes_constant)
        ]
        places = []
        for kind in row.sources:
            if kind == "m":
                places.append(Place("vcc", 1))
                continue
            if not given:
                raise UnsupportedInstruction(f"{name}: a source is missing")
            places.append(words.place(given.pop(0), register_bits(kind)))
        out = words.result(instruction.operands[f"vdst{letter}"], register_bits(row.results[0]))
        parts.append((name, tuple(places), out))
    if len(words.words) > state.WORD_COUNT:
        raise UnsupportedInstruction(f"{name_of(instruction)} with two long constants")
    return Form("dual", name_of(instruction), shape.lanes, extra=tuple(parts)), words.words


# ------------------------------------------------------------ scalars
def scalar_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """The form of a scalar instruction that computes."""
    name = name_of(instruction)
    row = scalar_row(name)
    if row is None:
        raise UnsupportedInstruction(name)
    words = Words(shape)
    explicit = given_sources(instruction)
    if name in _KEEPS and not any([operand.tied for operand in explicit]):
        # what it was before is a source too
        explicit.append(instruction.operands["sdst"])
    places: list[Place] = []
    for kind in row.sources:
        if kind in ("scc", "exec"):
            places.append(Place(kind, shape.lanes))
            continue
        if explicit:
            places.append(words.place(explicit.pop(0), register_bits(kind)))
            continue
        immediate = instruction.operands.get("simm16")
        if immediate is None:
            raise UnsupportedInstruction(f"{name}: a source is missing")
        value = immediate.value & 0xFFFF
        if not name.endswith("u32") and value >> 15:
            value |= 0xFFFF0000
        places.append(words.constant(value, 32))
    results: list[Place] = []
    outs = list(instruction.results)
    for kind in row.results:
        if kind in ("scc", "exec"):
            results.append(Place(kind, shape.lanes))
        elif outs:
            results.append(words.result(outs.pop(0), register_bits(kind)))
    form = Form("scalar", name, shape.lanes, tuple(places), tuple(results))
    return form, words.words
