"""LLVM IR as text: what all of its targets have in common.

In: a linear program. Out: parts of a function's text; `llvmir.py` (CPUs) and `llvm_groups.py`
(machines with groups of threads) complete them. A target says how a function begins, where its
memory is, and how an access under a condition is written.
Invariant: what stands here is what runs: registers that a loop changes are phis, every float op
rounds where it stands (no fast-math flag is ever printed), and raw ops are plain instructions.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.dtype import DType, bits_of, dtypes
from weft.errors import CompileError
from weft.renderer.llvm_survey import crowded, offsets, registers_changed
from weft.uop.node import UOp
from weft.uop.opset import Ops

_INTRINSIC_SUFFIX = {"double": "f64", "float": "f32", "half": "f16"}

# (float, signed, unsigned or bool) instruction of each op that is one
INSTRUCTIONS: dict[Ops, tuple[str | None, str, str]] = {
    Ops.ADD: ("fadd", "add", "add"),
    Ops.MUL: ("fmul", "mul", "mul"),
    Ops.FDIV: ("fdiv", "", ""),
    Ops.IDIV: (None, "sdiv", "udiv"),
    Ops.MOD: (None, "srem", "urem"),
    Ops.SHL: (None, "shl", "shl"),
    Ops.SHR: (None, "ashr", "lshr"),
    Ops.AND: (None, "and", "and"),
    Ops.OR: (None, "or", "or"),
    Ops.XOR: (None, "xor", "xor"),
    Ops.CMPLT: ("fcmp olt", "icmp slt", "icmp ult"),
    Ops.CMPEQ: ("fcmp oeq", "icmp eq", "icmp eq"),
    Ops.CMPNE: ("fcmp une", "icmp ne", "icmp ne"),
}
# intrinsics, which are named after the type
INTRINSICS: dict[Ops, tuple[str, str, str]] = {
    Ops.SQRT: ("sqrt", "", ""),
    Ops.TRUNC: ("trunc", "", ""),
    Ops.MULACC: ("fma", "", ""),
    Ops.MAX: ("maximum", "smax", "umax"),
}
# IDIV, MOD, SHL, SHR and CAST are printed in their raw forms only
NATIVE = (
    frozenset({Ops.NEG, Ops.WHERE, Ops.BITCAST, *INSTRUCTIONS, *INTRINSICS})
    - {Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR}
)  # fmt: skip
# ops that have no value of their own, ops that need no text where they stand, and the other ops
# with a method of their own
_STATEMENTS = (
    Ops.STORE, Ops.LOCAL, Ops.ACC, Ops.ACC_SET, Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF,
)  # fmt: skip
_SILENT = frozenset({Ops.PARAM, Ops.VARIABLE, Ops.CONST, Ops.SINK})
_VALUES = (
    Ops.CONST, Ops.NEG, Ops.WHERE, Ops.CAST, Ops.BITCAST, Ops.VECTORIZE, Ops.GEP, Ops.INDEX,
    Ops.LOAD,
)  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")

# a register of the program, or one lane of it
Register = tuple[UOp, int]


class Region:
    """A loop or a conditional that is being written: which registers it changes, where it began."""

    __slots__ = ("before", "exit", "guarded", "head", "phi_line", "registers", "size", "start")

    def __init__(self, head: str, exit_label: str, registers: list[Register]) -> None:
        self.head = head
        self.exit = exit_label
        self.registers = registers
        self.before: list[str] = []  # the registers' values on entry
        self.start = ""  # the block that enters it
        self.guarded = False
        self.phi_line = 0
        self.size = ""


class LLVMFunction:
    """One function while it is written. `names` holds each value's name or literal."""

    statements: tuple[Ops, ...] = _STATEMENTS
    floats: Mapping[DType, str] = {
        dtypes.float64: "double", dtypes.float32: "float", dtypes.float16: "half",
    }  # fmt: skip
    # of sums whose constants become part of addresses
    index_dtypes: tuple[DType, ...] = (dtypes.int64,)

    def __init__(self, name: str, uops: Sequence[UOp], native: frozenset[DType]) -> None:
        self.name = name
        self.uops = uops
        self.native = native
        self.types: dict[DType, str] = {}
        self.names: dict[UOp, str] = {}
        self.registers: dict[Register, str] = {}  # the current value of each ACC
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.count = 0
        self.block = "entry"
        self.regions: dict[UOp, Region] = {}
        self.changed = registers_changed(uops)
        self.offsets = offsets(uops, self.index_dtypes)
        self.opaque = crowded(uops)
        self.bases: dict[tuple[UOp, UOp], str] = {}  # addresses that offsets are added to
        self.writers: dict[Ops, Callable[[UOp], None]] = {
            op: getattr(self, f"write_{op.name.lower()}") for op in self.statements
        }
        self.special: dict[Ops, Callable[[UOp], str]] = {
            op: getattr(self, f"value_{op.name.lower()}") for op in _VALUES
        }

    # ------------------------------------------------------------ what a target says
    def value_load(self, uop: UOp) -> str:
        """Reads memory, 0 where the place is not valid, or a register."""
        raise CompileError(f"{type(self).__name__} does not say how memory is read")

    def write_store(self, uop: UOp) -> None:
        """Writes memory where the place is valid."""
        raise CompileError(f"{type(self).__name__} does not say how memory is written")

    def write_local(self, uop: UOp) -> None:
        """Makes memory of the function's own."""
        raise CompileError(f"{type(self).__name__} does not say where local memory is")

    def pointer(self, memory: UOp) -> str:
        """The type of the addresses of a memory."""
        return "ptr"

    def lanes(self, dtype: DType) -> int:
        """How many elements a value's LLVM vector has; 1: it is none."""
        return dtype.count

    def span(self, uop: UOp) -> tuple[str, str, bool]:
        """Where a loop starts, where it ends, and whether it may be empty."""
        return "0", self.operand(uop.src[0]), bool(uop.src[0].vmin < 1)

    def loop_facts(self, loop: UOp, body: Sequence[str]) -> str:
        """What LLVM is told of a loop with these lines, at the end of its branch."""
        return ""

    # ------------------------------------------------------------ the frame
    def write(self) -> None:
        """All statements and values of the program."""
        self.write_some(self.uops)

    def write_some(self, uops: Sequence[UOp]) -> None:
        """A part of them."""
        writers = self.writers
        for uop in uops:
            statement = writers.get(uop.op)
            if statement is not None:
                statement(uop)
            elif uop.op not in _SILENT and uop not in self.offsets:
                self.define(uop)

    def define(self, uop: UOp) -> None:
        """Writes a value where it stands in the program."""
        self.names[uop] = self.value(uop)

    # ------------------------------------------------------------ small helpers
    def type(self, dtype: DType) -> str:
        """The type of a value in registers."""
        found = self.types.get(dtype)
        if found is None:
            found = self.scalar_type(dtype.scalar())
            if self.lanes(dtype) > 1:
                found = f"<{dtype.count} x {found}>"
            self.types[dtype] = found
        return found

    def scalar_type(self, dtype: DType) -> str:
        if dtype.kind == "bool":
            return "i1"
        if self.is_float(dtype):
            return self.floats[dtype]
        if dtype in dtypes.weaks or dtype.kind == "void":
            raise CompileError(f"LLVM IR has no type for {dtype}; lowering must have replaced it")
        return f"i{dtype.bitsize}"

    def is_float(self, dtype: DType) -> bool:
        """Whether values of a scalar dtype are LLVM's floats; other narrow floats are bits."""
        return dtype in self.floats and dtype in self.native

    def memory_type(self, dtype: DType) -> str:
        """The type of a value in memory, where a bool takes a byte."""
        if dtype.kind != "bool":
            return self.type(dtype)
        return "i8" if self.lanes(dtype) == 1 else f"<{dtype.count} x i8>"

    def emit(self, text: str) -> str:
        """Writes an instruction and returns the name of its value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name
        # an address is known in its own block; whether it is in the next is not looked at
        self.bases = {}

    def declare(self, signature: str) -> None:
        self.declared[f"declare {signature}"] = None

    def operand(self, uop: UOp) -> str:
        """The name of a source, or its literal. Constants need not stand in the program."""
        name = self.names.get(uop)
        if name is None:
            name = self.names[uop] = self.value(uop)
        return name

    def zero(self, dtype: DType) -> str:
        """0 in every lane."""
        return "zeroinitializer" if self.lanes(dtype) > 1 else self.literal(0, dtype.scalar())

    def literal(self, value: Any, dtype: DType) -> str:
        """A constant of a scalar dtype."""
        if dtype.kind == "bool":
            return "true" if value else "false"
        if dtype.kind != "float":
            return str(int(value))
        if not self.is_float(dtype):
            return str(bits_of(value, dtype))
        if dtype is dtypes.float16:
            return f"0xH{bits_of(value, dtype):04X}"
        # LLVM writes the constants of float as the double of the same value
        bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
        return f"0x{0x7FF8000000000000 if value != value else bits:016X}"

    # ------------------------------------------------------------ values
    def value(self, uop: UOp) -> str:
        """Writes what computes `uop` and returns its name."""
        op = uop.op
        if op in INSTRUCTIONS:
            return self.binary(uop)
        if op in INTRINSICS:
            return self.intrinsic(uop)
        special = self.special.get(op)
        if special is None:
            raise CompileError(
                f"LLVM IR for {op.name} was asked for; the LLVM renderer prints "
                f"{', '.join(sorted(o.name for o in NATIVE))} and decomposed forms of the others"
            )
        return special(uop)

    def binary(self, uop: UOp) -> str:
        left, right = uop.src
        kind = left.dtype.kind
        names = INSTRUCTIONS[uop.op]
        if kind == "float":
            name = names[0]
        else:
            name = names[1] if kind == "int" else names[2]
        return self.emit(
            f"{name} {self.type(left.dtype)} {self.operand(left)}, {self.operand(right)}"
        )

    def intrinsic(self, uop: UOp) -> str:
        dtype = uop.dtype
        if dtype.kind == "bool":
            return self.emit(
                f"or {self.type(dtype)} {self.operand(uop.src[0])}, {self.operand(uop.src[1])}"
            )
        column = {"float": 0, "int": 1, "uint": 2}[dtype.kind]
        kind = self.type(dtype)
        name = f"@llvm.{INTRINSICS[uop.op][column]}.{self.mangle(dtype)}"
        self.declare(f"{kind} {name}({', '.join([kind] * len(uop.src))})")
        operands = ", ".join(f"{kind} {self.operand(s)}" for s in uop.src)
        return self.emit(f"call {kind} {name}({operands})")

    def mangle(self, dtype: DType, memory: bool = False) -> str:
        """A type as intrinsics spell it in their names."""
        scalar = dtype.scalar()
        kind = self.memory_type(scalar) if memory else self.type(scalar)
        kind = _INTRINSIC_SUFFIX.get(kind, kind)
        return kind if self.lanes(dtype) == 1 else f"v{dtype.count}{kind}"

    def value_const(self, uop: UOp) -> str:
        return self.literal(uop.arg, uop.dtype)

    def value_neg(self, uop: UOp) -> str:
        kind, operand = self.type(uop.dtype), self.operand(uop.src[0])
        if uop.dtype.kind == "float":
            return self.emit(f"fneg {kind} {operand}")
        return self.emit(f"sub {kind} {self.zero(uop.dtype)}, {operand}")

    def value_where(self, uop: UOp) -> str:
        condition, yes, no = uop.src
        kind = self.type(uop.dtype)
        return self.emit(
            f"select {self.type(condition.dtype)} {self.operand(condition)}, "
            f"{kind} {self.operand(yes)}, {kind} {self.operand(no)}"
        )

    def value_cast(self, uop: UOp) -> str:
        source, target = uop.src[0].dtype, uop.dtype
        operand = self.operand(uop.src[0])
        before, after = self.type(source), self.type(target)
        for dtype in (source.scalar(), target.scalar()):
            if dtype not in self.native:
                raise CompileError(
                    f"a cast from {source} to {target} reached LLVM IR, but {dtype} is stored as "
                    "bits on this target; decompose the cast first"
                )
        if target.kind == "bool":
            zero = self.zero(source)
            name = "fcmp une" if source.kind == "float" else "icmp ne"
            return operand if source.kind == "bool" else self.emit(
                f"{name} {before} {operand}, {zero}"
            )  # fmt: skip
        name = conversion(source, target)
        return self.emit(f"{name} {before} {operand} to {after}") if name else operand

    def value_bitcast(self, uop: UOp) -> str:
        source, target = uop.src[0].dtype, uop.dtype
        operand = self.operand(uop.src[0])
        before, after = self.type(source), self.type(target)
        if before == after:
            return operand
        # a bool is a byte to the outside
        if source.kind == "bool":
            return self.emit(f"zext {before} {operand} to {after}")
        if target.kind == "bool":
            return self.emit(f"icmp ne {before} {operand}, {self.zero(source)}")
        return self.emit(f"bitcast {before} {operand} to {after}")

    def value_vectorize(self, uop: UOp) -> str:
        kind, lane = self.type(uop.dtype), self.type(uop.dtype.scalar())
        first = uop.src[0]
        if first.op is Ops.CONST and all(s is first for s in uop.src):
            # the same lane in all places, in a form that parses quickly
            return f"splat ({lane} {self.literal(first.arg, first.dtype)})"
        if all(s.op is Ops.CONST for s in uop.src):
            lanes = ", ".join(f"{lane} {self.literal(s.arg, s.dtype)}" for s in uop.src)
            return f"<{lanes}>"
        if all(s is first for s in uop.src):
            one = self.emit(f"insertelement {kind} poison, {lane} {self.operand(first)}, i64 0")
            count = uop.dtype.count
            return self.emit(
                f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer"
            )
        vector = "poison"
        for position, source in enumerate(uop.src):
            item = f"{lane} {self.operand(source)}"
            vector = self.emit(f"insertelement {kind} {vector}, {item}, i64 {position}")
        return vector

    def value_gep(self, uop: UOp) -> str:
        source, more = uop.src[0], uop.src[-1]
        kind, count = self.type(source.dtype), source.dtype.count
        if len(uop.arg) == 1:
            lane = uop.arg[0]
            vector = self.operand(source if lane < count else more)
            return self.emit(f"extractelement {kind} {vector}, i64 {lane % count}")
        second = self.operand(more) if len(uop.src) == 2 else "poison"
        return self.emit(
            f"shufflevector {kind} {self.operand(source)}, {kind} {second}, "
            f"<{len(uop.arg)} x i32> <{_mask(uop.arg)}>"
        )

    # ------------------------------------------------------------ addresses
    def value_index(self, uop: UOp) -> str:
        """The address, or a vector of addresses. Validity is the business of load and store."""
        memory, idx = uop.src[:2]
        element = self.memory_type(memory.dtype)
        if idx in self.offsets:
            rest, constant = idx.src
            base = self.base(memory, rest, uop in self.opaque)
            return self.emit(
                f"getelementptr {element}, {self.pointer(memory)} {base}, i64 {constant.arg}"
            )
        return self.emit(
            f"getelementptr inbounds {element}, {self.pointer(memory)} {self.operand(memory)}, "
            f"{self.type(idx.dtype)} {self.operand(idx)}"
        )

    def base(self, memory: UOp, rest: UOp, is_opaque: bool) -> str:
        """The address that offsets are added to.

        Neighbours share all but a constant. LLVM finds that out by itself, but the time it takes
        for it grows with the square of their number.
        """
        base = self.bases.get((memory, rest))
        if base is None:
            at = self.operand(rest)
            kind = self.type(rest.dtype)
            if is_opaque:
                at = self.emit(f"freeze {kind} {at}")
            element = self.memory_type(memory.dtype)
            # not inbounds: only with its offset it is the address of something
            place = f"{self.pointer(memory)} {self.operand(memory)}"
            base = self.emit(f"getelementptr {element}, {place}, {kind} {at}")
            self.bases[memory, rest] = base
        return base

    # ------------------------------------------------------------ registers and control
    def write_acc(self, uop: UOp) -> None:
        self.registers[uop, 0] = self.operand(uop.src[0])

    def write_acc_set(self, uop: UOp) -> None:
        self.registers[uop.src[0], 0] = self.operand(uop.src[1])

    def parts(self, register: UOp) -> list[Register]:
        """The registers that an ACC is, once it has begun."""
        return [(register, 0)] if (register, 0) in self.registers else []

    def open_region(self, uop: UOp) -> Region:
        self.count += 1
        word = "loop" if uop.op is Ops.RANGE else "if"
        registers = [part for r in self.changed[uop] for part in self.parts(r)]
        region = Region(f"{word}{self.count}", f"{word}{self.count}.end", registers)
        region.before = [self.registers[r] for r in registers]
        region.start = self.block
        self.regions[uop] = region
        return region

    def write_range(self, uop: UOp) -> None:
        """Opens a loop that tests at its end; one that may not run at all is tested before too."""
        region = self.open_region(uop)
        kind = self.type(uop.dtype)
        start, region.size, region.guarded = self.span(uop)
        if region.guarded:
            test = self.emit(f"icmp slt {kind} {start}, {region.size}")
            self.lines.append(f"  br i1 {test}, label %{region.head}, label %{region.exit}")
        else:
            self.lines.append(f"  br label %{region.head}")
        self.label(region.head)
        self.names[uop] = counter = f"%{region.head}.i"
        region.phi_line = len(self.lines)
        # the values from the loop's end are known there: its lines are completed then
        self.lines.append(f"  {counter} = phi {kind} [ {start}, %{region.start} ]")
        for number, register in enumerate(region.registers):
            self.registers[register] = name = f"%{region.head}.r{number}"
            entry = f"[ {region.before[number]}, %{region.start} ]"
            self.lines.append(f"  {name} = phi {self.type(register[0].dtype)} {entry}")

    def write_end(self, uop: UOp) -> None:
        loop = uop.src[0]
        region = self.regions[loop]
        kind = self.type(loop.dtype)
        counter = self.names[loop]
        following = self.emit(f"add nuw nsw {kind} {counter}, 1")
        test = self.emit(f"icmp slt {kind} {following}, {region.size}")
        self.lines[region.phi_line] += f", [ {following}, %{self.block} ]"
        after = [self.registers[r] for r in region.registers]
        for number, value in enumerate(after):
            self.lines[region.phi_line + 1 + number] += f", [ {value}, %{self.block} ]"
        facts = self.loop_facts(loop, self.lines[region.phi_line :])
        self.lines.append(f"  br i1 {test}, label %{region.head}, label %{region.exit}{facts}")
        last = self.block
        self.label(region.exit)
        if region.guarded:
            self.join(region, region.start, last)

    def join(self, region: Region, skipped: str, last: str) -> None:
        """After a region that may not have run, its registers are what they were, or became."""
        for number, register in enumerate(region.registers):
            before, after = region.before[number], self.registers[register]
            self.registers[register] = self.emit(
                f"phi {self.type(register[0].dtype)} [ {before}, %{skipped} ], [ {after}, %{last} ]"
            )

    def write_if(self, uop: UOp) -> None:
        region = self.open_region(uop)
        condition = self.operand(uop.src[0])
        self.lines.append(f"  br i1 {condition}, label %{region.head}, label %{region.exit}")
        self.label(region.head)

    def write_endif(self, uop: UOp) -> None:
        region = self.regions[uop.src[0]]
        last = self.block
        self.lines.append(f"  br label %{region.exit}")
        self.label(region.exit)
        self.join(region, region.start, last)


@functools.lru_cache(maxsize=1024)
def _mask(lanes: tuple[int, ...]) -> str:
    """The lanes of a shuffle as LLVM writes them; kernels repeat a few."""
    return ", ".join([f"i32 {lane}" for lane in lanes])


def conversion(source: DType, target: DType) -> str:
    """The instruction of a cast that is not to bool; empty where the bits stay."""
    if source.kind == "float":
        if target.kind == "float":
            wider = target.scalar().bitsize > source.scalar().bitsize
            return "fpext" if wider else "fptrunc"
        return "fptosi" if target.kind == "int" else "fptoui"
    if target.kind == "float":
        return "sitofp" if source.kind == "int" else "uitofp"
    before, after = source.scalar().bitsize, target.scalar().bitsize
    if before == after:
        return ""
    if after < before:
        return "trunc"
    return "sext" if source.kind == "int" else "zext"


def memory_name(dtype: DType) -> str:
    return dtype.scalar().name


def symbol(name: str) -> str:
    """A function's name as LLVM IR spells it."""
    if _PLAIN_NAME.match(name):
        return f"@{name}"
    escaped = "".join(
        chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:02X}" for b in name.encode()
    )
    return f'@"{escaped}"'
