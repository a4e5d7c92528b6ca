"""A kernel as records: one for each instruction that does anything.

In: machine code of one architecture. Out: `Program`: records in memory, and which instruction each
is. On top of forms and helpers; the emulator runs it.
Invariant: a record before each block counts how often it is entered, and one before a place where
the user wants to stop stops there; jumps to an instruction go to the first of its records.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Collection
from dataclasses import dataclass, field

from weft.amd.decode import Instruction, decoder
from weft.amd.operands import Operand
from weft.errors import CompileError, DataError
from weft.runtime.amd import state
from weft.runtime.amd.accesses import access_of, atomic_of
from weft.runtime.amd.control import BRANCHES
from weft.runtime.amd.exchange import swizzled_lanes
from weft.runtime.amd.forms import (
    Form,
    UnsupportedInstruction,
    Words,
    dual_form,
    given_sources,
    in_mode,
    name_of,
    names_of,
    scalar_form,
    vector_form,
)
from weft.runtime.amd.helpers import HELPERS
from weft.runtime.amd.matrix import product_of
from weft.runtime.amd.memory import NOWHERE

# instructions whose effect nobody can see here: waits are over at once, caches are always current
_SILENT_PREFIXES = ("s_wait", "s_delay_alu", "s_clause", "s_nop", "s_sleep", "s_setprio",
                    "s_set_inst_prefetch", "s_inst_prefetch", "s_sendmsg", "s_icache", "s_dcache",
                    "s_barrier_signal", "buffer_gl", "buffer_inv",
                    "buffer_wb", "global_inv", "global_wb", "s_ttrace", "s_version", "s_code_end",
                    "s_incperflevel", "s_decperflevel",
                    "s_prefetch", "s_endpgm_saved")  # fmt: skip
_LANES = ("v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32")
_JUMPS = ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64")
# the number of the register that holds the mode of floats
_MODE_REGISTER = 1
_ENDS = {"s_endpgm": state.ENDED, "s_barrier": state.AT_BARRIER, "s_barrier_wait": state.AT_BARRIER}


@dataclass
class Line:
    """An instruction in its place, or bytes that are none."""

    offset: int
    size: int
    instruction: Instruction | None
    problem: str = ""

    def __str__(self) -> str:
        if self.instruction is None:
            return self.problem
        try:
            return str(self.instruction)
        except NotImplementedError:
            return self.instruction.mnemonic


def read_lines(code: bytes, arch: str, lanes: int) -> list[Line]:
    """All instructions; what cannot be decoded is an error only where it is reached."""
    reader = decoder(arch, lanes)
    found: list[Line] = []
    offset = 0
    while offset + 4 <= len(code):
        try:
            instruction = reader.decode(code, offset)
            found.append(Line(offset, instruction.size, instruction))
        except DataError as error:
            found.append(Line(offset, 4, None, str(error)))
        offset += found[-1].size
    return found


@dataclass
class _Record:
    form: Form
    words: list[int]
    line: int
    target: int | None = None  # the offset of the instruction that it jumps to


@dataclass
class Program:
    """Records of a kernel's code."""

    arch: str
    shape: state.Shape
    lines: list[Line]
    code_bytes: int
    counts_conflicts: bool = False
    mode: int = state.DEFAULT_MODE  # of floats, when a wave begins
    is_traced: bool = False  # each instruction is noted before it runs
    problems: dict[int, str] = field(default_factory=dict)  # by line
    records: ctypes.Array[ctypes.c_char] = field(init=False)
    line_of_record: list[int] = field(init=False)
    first_record: dict[int, int] = field(init=False)  # of the instruction at an offset
    counters: list[int] = field(init=False)  # records that count blocks
    record_of_word: array[int] = field(init=False)

    def build(self, stops: Collection[int] = (), every: bool = False) -> Program:
        """Makes the records; `stops` are offsets of instructions to stop before, or all."""
        leaders = self._leaders()
        made: list[_Record] = []
        self.first_record = {}
        self._index_mode = 0
        self._mode = self.mode
        modes: dict[int, int] = {}
        for number, line in enumerate(self.lines):
            self.first_record[line.offset] = len(made)
            if line.offset in leaders:
                made.append(_Record(Form("count", "", self.shape.lanes), [0, 0], number))
            if self.is_traced:
                made.append(_Record(Form("trace", "", self.shape.lanes), [number, 0], number))
            if every or line.offset in stops:
                made.append(_Record(self._stop_form(state.STOPPED), [], number))
            modes[line.offset] = self._mode
            record = self._record(number, line)
            if record is not None:
                made.append(record)
        self._check_modes(made, modes)
        end = len(self.lines)
        made.append(_Record(self._stop_form(state.BAD_JUMP), [], end))
        self.first_record[self.code_bytes] = len(made) - 1
        self._place(made)
        return self

    def _check_modes(self, made: list[_Record], modes: dict[int, int]) -> None:
        """The mode of floats is known for each line: a jump must not come with another one."""
        for position, record in enumerate(made):
            if record.target is None or record.line >= len(self.lines):
                continue
            here = modes.get(self.lines[record.line].offset, self.mode)
            if modes.get(record.target, here) != here:
                self.problems[record.line] = "a jump into code with another mode of floats"
                made[position] = _Record(self._stop_form(state.UNSUPPORTED), [], record.line)

    def _changed_mode(self, instruction: Instruction) -> bool:
        """Whether an instruction sets the mode of floats to what it names itself."""
        name = name_of(instruction)
        operands = instruction.operands
        value = operands["simm16"].value if "simm16" in operands else 0
        if name == "s_round_mode":
            self._mode = self._mode & ~0xF | value & 0xF
            return True
        if name == "s_denorm_mode":
            self._mode = self._mode & 0xF | (value & 0xF) << 4
            return True
        if name != "s_setreg_imm32_b32":
            return False
        register = instruction.fields.get("simm16", 0)
        first, count = register >> 6 & 31, (register >> 11 & 31) + 1
        if register & 63 != _MODE_REGISTER:
            raise UnsupportedInstruction(f"hardware register {register & 63}")
        mask = ((1 << count) - 1) << first
        wanted = (self._mode & ~mask) | ((operands["imm"].value << first) & mask)
        self._mode = wanted & 0xFF
        return True

    def _stop_form(self, status: int) -> Form:
        return Form("stop", "", self.shape.lanes, extra=(status,))

    def _leaders(self) -> set[int]:
        """Offsets where blocks begin."""
        found = {0}
        for line in self.lines:
            instruction = line.instruction
            if instruction is None:
                continue
            name = name_of(instruction)
            if instruction.branch_target is not None:
                found.add(instruction.branch_target)
            if name in BRANCHES or name in _JUMPS or name in _ENDS:
                found.add(line.offset + line.size)
        return found

    def _record(self, number: int, line: Line) -> _Record | None:
        instruction = line.instruction
        if instruction is None:
            self.problems[number] = line.problem
            return _Record(self._stop_form(state.UNSUPPORTED), [], number)
        try:
            return self._known_record(number, instruction)
        except (DataError, KeyError, ValueError, IndexError) as error:
            # an encoding whose operands are not those of its instruction is as unknown as another
            self.problems[number] = f"{name_of(instruction)}: {error}"
            return _Record(self._stop_form(state.UNSUPPORTED), [], number)

    def _known_record(self, number: int, instruction: Instruction) -> _Record | None:
        name = name_of(instruction)
        lanes = self.shape.lanes
        if name in _ENDS:
            return _Record(self._stop_form(_ENDS[name]), [], number)
        if name in BRANCHES:
            target = instruction.branch_target
            assert target is not None
            is_back = target <= instruction.offset
            return _Record(Form("branch", name, lanes, extra=(is_back,)), [], number, target)
        if name.startswith(_SILENT_PREFIXES):
            return None
        if name.startswith("s_set_gpr_idx") or self._index_mode:
            return self._indexed(number, instruction)
        if self._changed_mode(instruction):
            return None
        form, words = form_of(instruction, self.shape, self.counts_conflicts)
        form = in_mode(form, self._mode)
        target = instruction.branch_target if name == "s_call_b64" else None
        return _Record(form, words, number, target)

    def _indexed(self, number: int, instruction: Instruction) -> _Record | None:
        """CDNA numbers registers at run time between two instructions, which stand in one block."""
        name = name_of(instruction)
        words = Words(self.shape)
        if name == "s_set_gpr_idx_off":
            self._index_mode = 0
            return None
        if name in ("s_set_gpr_idx_on", "s_set_gpr_idx_idx"):
            places = (words.place(given_sources(instruction)[0], 32),)
            if name == "s_set_gpr_idx_on":
                immediates = [o for o in instruction.operands.values() if o.kind == "immediate"]
                self._index_mode = immediates[0].value
            form = Form("index_mode", name, self.shape.lanes, places, extra=(self._index_mode,))
            return _Record(form, words.words, number)
        if not name.startswith("v_"):
            form, found = form_of(instruction, self.shape)
            return _Record(form, found, number)
        if name != "v_mov_b32" or self._index_mode & ~9:
            raise UnsupportedInstruction("registers by number in other than a move")
        moved = (bool(self._index_mode & 1), bool(self._index_mode & 8))
        form, found = _relative_form(instruction, self.shape, state.M0_CDNA, *moved, 8)
        return _Record(form, found, number)

    def _place(self, made: list[_Record]) -> None:
        addresses = self._addresses(made)
        words = array("Q", bytes(len(made) * state.RECORD_BYTES))
        per_record = state.RECORD_BYTES // 8
        self.records = (ctypes.c_char * (len(made) * state.RECORD_BYTES + 64))()
        base = -(-ctypes.addressof(self.records) // 64) * 64
        self.base = base
        self.line_of_record = [record.line for record in made]
        self.counters = [i for i, record in enumerate(made) if record.form.kind == "count"]
        last = len(made) - 1
        for position, record in enumerate(made):
            at = position * per_record
            words[at] = addresses[record.form]
            if record.target is not None:
                goal = self.first_record.get(record.target, last)
                words[at + 1] = base + goal * state.RECORD_BYTES
            padded = [*record.words, *[0] * (state.WORD_COUNT - len(record.words))]
            if len(padded) > state.WORD_COUNT:
                raise DataError("an instruction has too many operands for a record")
            for pair in range(state.WORD_COUNT // 2):
                low, high = padded[2 * pair], padded[2 * pair + 1]
                words[at + 2 + pair] = (low & 0xFFFFFFFF) | (high & 0xFFFFFFFF) << 32
            words[at + 6], words[at + 7] = NOWHERE, NOWHERE + 4096
        ctypes.memmove(base, words.buffer_info()[0], len(words) * 8)
        self.record_of_word = array("I", [0xFFFFFFFF] * (self.code_bytes // 4 + 1))
        for offset, goal in self.first_record.items():
            if offset < self.code_bytes:
                self.record_of_word[offset // 4] = goal
        self.record_count = len(made)

    def _addresses(self, made: list[_Record]) -> dict[Form, int]:
        """Where helpers are; an instruction that has none stops the wave."""
        stop = self._stop_form(state.UNSUPPORTED)
        found = HELPERS.addresses([stop])
        for record in made:
            if record.form in found:
                continue
            try:
                found.update(HELPERS.addresses([record.form]))
            except CompileError as error:
                self.problems[record.line] = str(error).splitlines()[0]
                found[record.form] = found[stop]
        return found

    # ------------------------------------------------------------ what records are
    def address_of(self, offset: int) -> int:
        """The record that an instruction begins with."""
        return self.base + self.first_record[offset] * state.RECORD_BYTES

    def line_at(self, record: int) -> int:
        """The number of the line that a record's address belongs to."""
        return self.line_of_record[(record - self.base) // state.RECORD_BYTES]

    def forget_allocations(self) -> None:
        """What was found in allocations that may be gone."""
        view = (ctypes.c_uint64 * (self.record_count * state.RECORD_BYTES // 8)).from_address(
            self.base
        )
        count = self.record_count
        view[6::8] = [NOWHERE] * count
        view[7::8] = [NOWHERE + 4096] * count

    def line_counts(self) -> list[int]:
        """How often each line was run, since the records were made."""
        found = [0] * (len(self.lines) + 1)
        places = {self.line_of_record[record]: record for record in self.counters}
        current = 0
        for number in range(len(self.lines)):
            if number in places:
                at = self.base + places[number] * state.RECORD_BYTES + state.WORDS
                current = ctypes.c_uint64.from_address(at).value
            found[number] = current
        return found


# ------------------------------------------------------------ forms of all instructions
def form_of(
    instruction: Instruction, shape: state.Shape, counts: bool = False
) -> tuple[Form, list[int]]:
    """The form of an instruction, and the words of its record."""
    name = name_of(instruction)
    if len(names_of(instruction)) == 2:
        return dual_form(instruction, shape)
    if name in _LANES:
        return _lane_form(instruction, shape)
    if name in _JUMPS:
        return _jump_form(instruction, shape)
    if name.startswith("v_movrel"):
        moved = ("s" in name[8:10], "d" in name[8:10])
        return _relative_form(instruction, shape, state.M0, *moved, 0)
    if name.startswith("v_mbcnt"):
        return _sourced("below", instruction, shape)
    if name.startswith(("v_wmma", "v_mfma")):
        return _matrix_form(instruction, shape)
    access = access_of(name)
    if access is not None:
        if access.memory == "s":
            return _scalar_load_form(instruction, shape)
        if access.memory == "ds":
            return _shared_form(instruction, shape, counts)
        return _access_form(instruction, shape)
    if name in ("ds_bpermute_b32", "ds_permute_b32"):
        words = Words(shape)
        for key in ("addr", "data0"):
            words.place(instruction.operands[key], 32)
        words.result(instruction.operands["vdst"], 32)
        offset = instruction.operands["offset"].value
        return Form("permute", name, shape.lanes, extra=(offset,)), words.words
    if name == "ds_swizzle_b32":
        words = Words(shape)
        words.place(instruction.operands["addr"], 32)
        words.result(instruction.operands["vdst"], 32)
        places = swizzled_lanes(instruction.operands["offset"].value, shape.lanes)
        return Form("swizzle", name, shape.lanes, extra=tuple(places)), words.words
    if atomic_of(name) is not None:
        return _atomic_form(instruction, shape)
    if name.startswith("v_"):
        return vector_form(instruction, shape)
    if name.startswith("s_"):
        return scalar_form(instruction, shape)
    raise UnsupportedInstruction("the emulator does not know it")


def _sourced(kind: str, instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    words = Words(shape)
    places = tuple([words.place(o, 32) for o in given_sources(instruction)])
    out = words.result(instruction.results[0], 32)
    return Form(kind, name_of(instruction), shape.lanes, places, (out,)), words.words


def _relative_form(
    instruction: Instruction, shape: state.Shape, place: int, source: bool, target: bool, bits: int
) -> tuple[Form, list[int]]:
    """Words: source, target, then how many registers there are from each on."""
    words = Words(shape)
    operand, out = instruction.operands["src0"], instruction.operands["vdst"]
    where = words.place(operand, 32)
    words.result(out, 32)
    words.words += [state.VGPR_COUNT - operand.index, state.VGPR_COUNT - out.index]
    if source and where.kind != "v":
        raise UnsupportedInstruction("a scalar register by number")
    extra = (place, source, target, bits)
    return Form("relative", "", shape.lanes, (where,), extra=extra), words.words


def _lane_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    return _sourced("lane", instruction, shape)


def _jump_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """Words: the offset after it (64 bits), the register that is written, the one that is read."""
    following = instruction.offset + instruction.size
    words = Words(shape)
    words.words += [following & 0xFFFFFFFF, following >> 32]
    if instruction.results:
        words.result(instruction.results[0], 64)
    else:
        words.words.append(state.BIN)
    sources = given_sources(instruction)
    if sources:
        words.place(sources[0], 64)
    return Form("jump", name_of(instruction), shape.lanes), words.words


def _matrix_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    product = product_of(name_of(instruction), instruction.target.family)
    if product is None:
        raise UnsupportedInstruction("this product of matrices")
    operands = instruction.operands
    words = Words(shape)
    given = [operands[name] for name in ("src0", "src1")]
    for operand in given:
        words.place(operand, 32)
    c = operands["src2"]
    has_c = c.kind in ("v", "a")
    if has_c:
        words.place(c, 32)
    elif c.value == 0:
        words.words.append(0)
    else:
        raise UnsupportedInstruction("a product of matrices added to a constant")
    words.result(operands["vdst"], 32)
    if any([o.op_sel or o.neg for o in given]) or c.neg_lo or c.neg_hi:
        raise UnsupportedInstruction("a product of matrices with modifiers")
    is_mfma = name_of(instruction).startswith("v_mfma")
    signs = [is_mfma or bool(operand.neg_lo) for operand in given]
    for extra in ("cbsz", "abid", "blgp"):
        if extra in operands and operands[extra].value:
            raise UnsupportedInstruction("a product of matrices that permutes blocks")
    form = Form(
        "matrix", name_of(instruction), shape.lanes, extra=(product, signs[0], signs[1], has_c)
    )
    return form, words.words


def _offset_of(instruction: Instruction) -> int:
    found = instruction.operands.get("offset")
    return found.value if found is not None else 0


def _is_register(operand: Operand | None) -> bool:
    return operand is not None and operand.kind == "s" and operand.register not in ("null", "off")


def _access_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """Words: offset, data, then vaddr and saddr where there are."""
    access = access_of(name_of(instruction))
    assert access is not None
    operands = instruction.operands
    words = Words(shape)
    words.words.append(_offset_of(instruction) & 0xFFFFFFFF)
    data = operands.get("vdst") if access.is_load else operands.get("vdata")
    if data is None:
        raise UnsupportedInstruction("an access that moves no data to registers")
    words.words.append(words.vector(data))
    vector, scalar = operands.get("vaddr"), operands.get("saddr")
    has_vector = vector is not None and vector.kind == "v"
    has_scalar = _is_register(scalar)
    if has_vector and vector is not None:
        words.place(vector, 32)
    elif access.memory != "scratch":
        raise UnsupportedInstruction("an access without an address")
    if has_scalar and scalar is not None:
        words.place(scalar, 32)
    if not access.is_load and data.half is not None and access.bits == 16:
        raise UnsupportedInstruction("a store of a named half")
    form = Form(
        "access", _access_name(instruction), shape.lanes, extra=(access, has_vector, has_scalar)
    )
    return form, words.words


def _access_name(instruction: Instruction) -> str:
    """Accesses that mean the same share a helper."""
    return "load" if access_of(name_of(instruction)).is_load else "store"  # type: ignore[union-attr]


def _shared_form(
    instruction: Instruction, shape: state.Shape, counts: bool
) -> tuple[Form, list[int]]:
    """Words: address, data, second data, an offset for each part."""
    access = access_of(name_of(instruction))
    assert access is not None
    operands = instruction.operands
    if operands.get("gds") is not None and operands["gds"].value:
        raise UnsupportedInstruction("global data share")
    words = Words(shape)
    words.place(operands["addr"], 32)
    data = operands["vdst"] if access.is_load else operands["data0"]
    words.words.append(words.vector(data))
    second = operands.get("data1")
    words.words.append(words.vector(second) if second is not None else 0)
    if access.parts == 2:
        words.words += [operands[n].value * access.stride for n in ("offset0", "offset1")]
    else:
        words.words.append(_offset_of(instruction))
    form = Form(
        "access", _access_name(instruction), shape.lanes, extra=(access, True, False, counts)
    )
    return form, words.words


def _scalar_load_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """Words: offset, result, base, then a register with a further offset."""
    access = access_of(name_of(instruction))
    assert access is not None
    operands = instruction.operands
    if name_of(instruction).startswith("s_buffer"):
        raise UnsupportedInstruction("a load through a descriptor")
    words = Words(shape)
    words.words.append(_offset_of(instruction) & 0xFFFFFFFF)
    words.result(operands["sdst"], access.bits)
    words.place(operands["sbase"], 64)
    further = operands.get("soffset")
    has_register = _is_register(further)
    if has_register and further is not None:
        words.place(further, 32)
    is_null = operands["sdst"].register == "null"
    form = Form("scalar_load", "load", shape.lanes, extra=(access, has_register, is_null))
    return form, words.words


def _atomic_form(instruction: Instruction, shape: state.Shape) -> tuple[Form, list[int]]:
    """Words: offset, data, address, scalar base, second data, result."""
    atomic = atomic_of(name_of(instruction))
    assert atomic is not None
    operands = instruction.operands
    words = Words(shape)
    words.words.append(_offset_of(instruction) & 0xFFFFFFFF)
    names = ("addr", "data0", "data1") if atomic.memory == "ds" else ("vaddr", "vdata", "")
    words.words.append(words.vector(operands[names[1]]))
    words.words.append(words.vector(operands[names[0]]))
    scalar = operands.get("saddr")
    has_scalar = _is_register(scalar)
    words.words.append(shape.scalar(scalar.index) if has_scalar and scalar is not None else 0)
    second = operands.get(names[2])
    words.words.append(words.vector(second) if second is not None else 0)
    out = operands.get("vdst")
    words.words.append(words.vector(out) if out is not None else 0)
    form = Form("atomic", "", shape.lanes, extra=(atomic, has_scalar, out is not None))
    return form, words.words
