"""LLVM IR as text, for CPUs.

In: a linear program. Out: the text of one function `void name(ptr args, i64 begin, i64 end)`; args
points to 8-byte slots: the buffers' addresses, then the variables' values. The runtime compiles it
without any IR pass, so what stands here is what runs: vectors are explicit, and registers that a
loop changes are phis. Invariant: an invalid load or store touches no memory of a buffer.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from weft.dtype import DType, bits_of, dtypes
from weft.errors import CompileError
from weft.renderer.base import Renderer, Target, program_params, program_variables
from weft.renderer.llvm_survey import (
    LINE_BYTES,
    crowded,
    offsets,
    registers_changed,
    streamed_stores,
)
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

_FLOATS = {dtypes.float64: "double", dtypes.float32: "float", dtypes.float16: "half"}
_INTRINSIC_SUFFIX = {"double": "f64", "float": "f32", "half": "f16"}

# (float, signed, unsigned or bool) instruction of each op that is one
_INSTRUCTIONS: dict[Ops, tuple[str | None, str, str]] = {
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
_INTRINSICS: dict[Ops, tuple[str, str, str]] = {
    Ops.SQRT: ("sqrt", "", ""),
    Ops.TRUNC: ("trunc", "", ""),
    Ops.MULACC: ("fma", "", ""),
    Ops.MAX: ("maximum", "smax", "umax"),
}
# IDIV, MOD, SHL, SHR and CAST are printed in their raw forms only
_NATIVE = (
    frozenset({Ops.NEG, Ops.WHERE, Ops.BITCAST, *_INSTRUCTIONS, *_INTRINSICS})
    - {Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR}
)  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


class LLVMRenderer(Renderer):
    """Prints LLVM IR."""

    name = "llvm"
    suffix = "ll"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        native = set(_NATIVE)
        # LLVM would call libm for every lane
        if not self.target.has_rounding:
            native.discard(Ops.TRUNC)
        self.code_for_op = dict.fromkeys(sorted(native, key=lambda op: op.name), True)
        half = (dtypes.float16,) if self.target.has_half_conversion else ()
        self.native_dtypes = frozenset(
            (dtypes.bool, *dtypes.ints, dtypes.float32, dtypes.float64, *half)
        )

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        streamed = streamed_stores(uops, self.target)
        if not streamed:
            return _Function(name, uops, self.native_dtypes).text()
        kept = _Function(f"{name}_kept", uops, self.native_dtypes)
        past = _Function(f"{name}_streamed", uops, self.native_dtypes, streamed)
        return _either(name, kept, past)


# 512: use the widest registers where the program has vectors that wide
_ATTRIBUTES = ('attributes #0 = { nounwind "no-builtins" "min-legal-vector-width"="512" }', "")


def _either(name: str, kept: _Function, streamed: _Function) -> str:
    """A module of two functions that do the same, and one that calls the streamed one if all memory
    it writes begins where a vector may."""
    for function in (kept, streamed):
        function.write()
    slots = sorted({store.src[0].src[0].arg.slot for store in streamed.streamed})
    choice = []
    bits = "0"
    for slot in slots:
        choice += [
            f"  %slot{slot} = getelementptr inbounds i64, ptr %args, i64 {slot}",
            f"  %address{slot} = load i64, ptr %slot{slot}, align 8",
            f"  %bits{slot} = or i64 {bits}, %address{slot}",
        ]
        bits = f"%bits{slot}"
    given = "(ptr %args, i64 %begin, i64 %end)"
    lines = [
        *(kept.constants() or streamed.constants()),
        *kept.function("internal "),
        *streamed.function("internal "),
        f"define void {_symbol(name)}{given} #0 {{",
        "entry:",
        *choice,
        f"  %low = and i64 {bits}, {LINE_BYTES - 1}",
        "  %is.aligned = icmp eq i64 %low, 0",
        "  br i1 %is.aligned, label %streamed, label %kept",
        "streamed:",
        f"  call void {_symbol(streamed.name)}{given}",
        # what went past the caches is seen by nobody before this
        "  call void @llvm.x86.sse.sfence()",
        "  ret void",
        "kept:",
        f"  call void {_symbol(kept.name)}{given}",
        "  ret void",
        "}",
        *{**kept.declared, **streamed.declared, "declare void @llvm.x86.sse.sfence()": None},
        "!0 = !{i32 1}",
        *_ATTRIBUTES,
    ]
    return "\n".join(lines)


class _Region:
    """A loop or a conditional that is being written: which registers it changes, where it began."""

    __slots__ = ("before", "exit", "guarded", "head", "phi_line", "registers", "size", "start")

    def __init__(self, head: str, exit_label: str, registers: list[UOp]) -> None:
        self.head = head
        self.exit = exit_label
        self.registers = registers
        self.before: list[str] = []  # the registers' values on entry
        self.start = ""  # the block that enters it
        self.guarded = False
        self.phi_line = 0
        self.size = ""


class _Function:
    """One function while it is written. `names` holds each value's name or literal."""

    def __init__(
        self,
        name: str,
        uops: Sequence[UOp],
        native: frozenset[DType],
        streamed: AbstractSet[UOp] = frozenset(),
    ) -> None:
        self.name = name
        self.uops = uops
        self.streamed = streamed  # stores that go past the caches
        self.native = native
        self.types: dict[DType, str] = {}
        self.names: dict[UOp, str] = {}
        self.registers: dict[UOp, str] = {}  # the current value of each ACC
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.count = 0
        self.block = "entry"
        self.regions: dict[UOp, _Region] = {}
        self.zeros_bytes = 0  # of the constant that invalid loads read
        self.spill_bytes = 0  # of the scratch that invalid stores write
        self.changed = registers_changed(uops)
        self.offsets = offsets(uops)
        self.opaque = crowded(uops)
        self.bases: dict[tuple[UOp, UOp], str] = {}  # addresses that offsets are added to

    # ------------------------------------------------------------ the frame
    def text(self) -> str:
        """The whole module."""
        self.write()
        return "\n".join([*self.constants(), *self.function(), *self.declared, *_ATTRIBUTES])

    def write(self) -> None:
        """All that is inside."""
        self.load_arguments()
        write = {op: getattr(self, f"write_{op.name.lower()}") for op in _STATEMENTS}
        for uop in self.uops:
            statement = write.get(uop.op)
            if statement is not None:
                statement(uop)
            elif uop.op not in _SILENT and uop not in self.offsets:
                self.names[uop] = self.value(uop)
        if self.spill_bytes:
            self.entry.append(f"  %spill = alloca [{self.spill_bytes} x i8], align 64")

    def constants(self) -> list[str]:
        """What stands before the function."""
        if not self.zeros_bytes:
            return []
        zeros = f"[{self.zeros_bytes} x i8] zeroinitializer, align 64"
        return [f"@zeros = private unnamed_addr constant {zeros}"]

    def function(self, linkage: str = "") -> list[str]:
        """The function."""
        head = f"define {linkage}void {_symbol(self.name)}(ptr %args, i64 %begin, i64 %end) #0 {{"
        return [head, "entry:", *self.entry, *self.lines, "  ret void", "}"]

    def load_arguments(self) -> None:
        """Addresses and variables from the slots of %args."""
        params = program_params(self.uops)
        for param in params:
            self.names[param] = f"%buf{param.arg.slot}.{_memory_name(param.dtype)}"
            self.load_slot(self.names[param], "ptr", param.arg.slot)
        first = 1 + max((param.arg.slot for param in params), default=-1)
        for position, variable in enumerate(program_variables(self.uops)):
            self.names[variable] = name = f"%var{position}"
            kind = self.type(variable.dtype)
            wide = name if kind == "i64" else f"{name}.wide"
            self.load_slot(wide, "i64", first + position)
            if kind != "i64":
                self.entry.append(f"  {name} = trunc i64 {wide} to {kind}")

    def load_slot(self, name: str, kind: str, slot: int) -> None:
        place = f"{name}.slot"
        self.entry.append(f"  {place} = getelementptr inbounds i64, ptr %args, i64 {slot}")
        self.entry.append(f"  {name} = load {kind}, ptr {place}, align 8")

    # ------------------------------------------------------------ small helpers
    def type(self, dtype: DType) -> str:
        """The type of a value in registers."""
        found = self.types.get(dtype)
        if found is None:
            found = self.scalar_type(dtype.scalar())
            if dtype.count > 1:
                found = f"<{dtype.count} x {found}>"
            self.types[dtype] = found
        return found

    def scalar_type(self, dtype: DType) -> str:
        if dtype.kind == "bool":
            return "i1"
        if dtype.kind == "float" and dtype in self.native:
            return _FLOATS[dtype]
        if dtype in dtypes.weaks or dtype.kind == "void":
            raise CompileError(f"LLVM IR has no type for {dtype}; lowering must have replaced it")
        return f"i{dtype.bitsize}"

    def memory_type(self, dtype: DType) -> str:
        """The type of a value in memory, where a bool takes a byte."""
        if dtype.kind != "bool":
            return self.type(dtype)
        return "i8" if dtype.count == 1 else f"<{dtype.count} x i8>"

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

    def literal(self, value: Any, dtype: DType) -> str:
        """A constant of a scalar dtype."""
        if dtype.kind == "bool":
            return "true" if value else "false"
        if dtype.kind != "float":
            return str(int(value))
        if dtype not in self.native:
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
        if op in _INSTRUCTIONS:
            return self.binary(uop)
        if op in _INTRINSICS:
            return self.intrinsic(uop)
        special = _VALUES.get(op)
        if special is None:
            raise CompileError(
                f"LLVM IR for {op.name} was asked for; the LLVM renderer prints "
                f"{', '.join(sorted(o.name for o in _NATIVE))} and decomposed forms of the others"
            )
        return special(self, uop)

    def binary(self, uop: UOp) -> str:
        left, right = uop.src
        kind = left.dtype.kind
        names = _INSTRUCTIONS[uop.op]
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
        name = f"@llvm.{_INTRINSICS[uop.op][column]}.{self.mangle(dtype)}"
        self.declare(f"{kind} {name}({', '.join([kind] * len(uop.src))})")
        operands = ", ".join(f"{kind} {self.operand(s)}" for s in uop.src)
        return self.emit(f"call {kind} {name}({operands})")

    def mangle(self, dtype: DType, memory: bool = False) -> str:
        """A type as intrinsics spell it in their names."""
        scalar = dtype.scalar()
        kind = self.memory_type(scalar) if memory else self.type(scalar)
        kind = _INTRINSIC_SUFFIX.get(kind, kind)
        return kind if dtype.count == 1 else f"v{dtype.count}{kind}"

    def value_const(self, uop: UOp) -> str:
        return self.literal(uop.arg, uop.dtype)

    def value_neg(self, uop: UOp) -> str:
        kind, operand = self.type(uop.dtype), self.operand(uop.src[0])
        if uop.dtype.kind == "float":
            return self.emit(f"fneg {kind} {operand}")
        zero = "zeroinitializer" if uop.dtype.count > 1 else "0"
        return self.emit(f"sub {kind} {zero}, {operand}")

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
            zero = "zeroinitializer" if source.count > 1 else self.literal(0, source.scalar())
            name = "fcmp une" if source.kind == "float" else "icmp ne"
            return operand if source.kind == "bool" else self.emit(
                f"{name} {before} {operand}, {zero}"
            )  # fmt: skip
        name = _conversion(source, target)
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
            zero = "zeroinitializer" if source.count > 1 else "0"
            return self.emit(f"icmp ne {before} {operand}, {zero}")
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

    # ------------------------------------------------------------ memory
    def value_index(self, uop: UOp) -> str:
        """The address, or a vector of addresses. Validity is the business of load and store."""
        memory, idx = uop.src[:2]
        element = self.memory_type(memory.dtype)
        if idx in self.offsets:
            rest, constant = idx.src
            base = self.base(memory, rest, uop in self.opaque)
            return self.emit(f"getelementptr {element}, ptr {base}, i64 {constant.arg}")
        return self.emit(
            f"getelementptr inbounds {element}, ptr {self.operand(memory)}, "
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
            if is_opaque:
                at = self.emit(f"freeze i64 {at}")
            element = self.memory_type(memory.dtype)
            # not inbounds: only with its offset it is the address of something
            base = self.emit(f"getelementptr {element}, ptr {self.operand(memory)}, i64 {at}")
            self.bases[memory, rest] = base
        return base

    def value_load(self, uop: UOp) -> str:
        place = uop.src[0]
        if place.op is Ops.ACC:
            return self.registers[place]
        kind = self.memory_type(uop.dtype)
        align = uop.dtype.scalar().itemsize
        idx, valid = place.src[1], place.src[2] if len(place.src) > 2 else None
        if idx.dtype.count > 1 or (valid is not None and valid.dtype.count > 1):
            value = self.masked_load(uop.dtype, place, valid)
        else:
            address = self.operand(place)
            if valid is not None:
                # reading zeros instead needs no branch
                self.zeros_bytes = max(self.zeros_bytes, uop.dtype.itemsize, 64)
                address = self.emit(f"select i1 {self.operand(valid)}, ptr {address}, ptr @zeros")
            value = self.emit(f"load {kind}, ptr {address}, align {align}")
        if uop.dtype.kind != "bool":
            return value
        zero = "zeroinitializer" if uop.dtype.count > 1 else "0"
        return self.emit(f"icmp ne {kind} {value}, {zero}")

    def masked_load(self, dtype: DType, place: UOp, valid: UOp | None) -> str:
        kind, align = self.memory_type(dtype), dtype.scalar().itemsize
        mask_kind, mask = self.mask(valid, dtype.count)
        gather = place.src[1].dtype.count > 1
        pointer = f"<{dtype.count} x ptr>" if gather else "ptr"
        suffix = f"v{dtype.count}p0" if gather else "p0"
        name = f"@llvm.masked.{'gather' if gather else 'load'}"
        name = f"{name}.{self.mangle(dtype, memory=True)}.{suffix}"
        self.declare(f"{kind} {name}({pointer}, i32, {mask_kind}, {kind})")
        return self.emit(
            f"call {kind} {name}({pointer} {self.operand(place)}, i32 {align}, "
            f"{mask_kind} {mask}, {kind} zeroinitializer)"
        )

    def mask(self, valid: UOp | None, count: int) -> tuple[str, str]:
        """Type and name of the lanes that take part."""
        kind = f"<{count} x i1>"
        if valid is None:
            return kind, f"<{', '.join(['i1 true'] * count)}>"
        if valid.dtype.count > 1:
            return kind, self.operand(valid)
        one = self.emit(f"insertelement {kind} poison, i1 {self.operand(valid)}, i64 0")
        every = f"<{count} x i32> zeroinitializer"
        return kind, self.emit(f"shufflevector {kind} {one}, {kind} poison, {every}")

    def write_store(self, uop: UOp) -> None:
        place, source = uop.src[:2]
        dtype = source.dtype
        kind, align = self.memory_type(dtype), str(dtype.scalar().itemsize)
        value = self.operand(source)
        if dtype.kind == "bool":
            value = self.emit(f"zext {self.type(dtype)} {value} to {kind}")
        address = self.operand(place)
        idx, valid = place.src[1], place.src[2] if len(place.src) > 2 else None
        scatter = idx.dtype.count > 1
        if scatter or (valid is not None and valid.dtype.count > 1):
            mask_kind, mask = self.mask(valid, dtype.count)
            pointer = f"<{dtype.count} x ptr>" if scatter else "ptr"
            suffix = f"v{dtype.count}p0" if scatter else "p0"
            name = f"@llvm.masked.{'scatter' if scatter else 'store'}"
            name = f"{name}.{self.mangle(dtype, memory=True)}.{suffix}"
            self.declare(f"void {name}({kind}, {pointer}, i32, {mask_kind})")
            self.lines.append(
                f"  call void {name}({kind} {value}, {pointer} {address}, i32 {align}, "
                f"{mask_kind} {mask})"
            )
            return
        if valid is not None:
            self.spill_bytes = max(self.spill_bytes, dtype.itemsize, 64)
            address = self.emit(f"select i1 {self.operand(valid)}, ptr {address}, ptr %spill")
        if uop in self.streamed:
            align = f"{dtype.itemsize}, !nontemporal !0"
        self.lines.append(f"  store {kind} {value}, ptr {address}, align {align}")

    def write_local(self, uop: UOp) -> None:
        self.names[uop] = name = f"%local{uop.arg.number}"
        kind = f"[{uop.arg.size} x {self.memory_type(uop.dtype)}]"
        self.entry.append(f"  {name} = alloca {kind}, align 64")

    # ------------------------------------------------------------ registers and control
    def write_acc(self, uop: UOp) -> None:
        self.registers[uop] = self.operand(uop.src[0])

    def write_acc_set(self, uop: UOp) -> None:
        self.registers[uop.src[0]] = self.operand(uop.src[1])

    def open_region(self, uop: UOp) -> _Region:
        self.count += 1
        word = "loop" if uop.op is Ops.RANGE else "if"
        registers = [r for r in self.changed[uop] if r in self.registers]
        region = _Region(f"{word}{self.count}", f"{word}{self.count}.end", registers)
        region.before = [self.registers[r] for r in registers]
        region.start = self.block
        self.regions[uop] = region
        return region

    def write_range(self, uop: UOp) -> None:
        """Opens a loop that tests at its end; one that may not run at all is tested before too."""
        region = self.open_region(uop)
        kind = self.type(uop.dtype)
        start, region.size = "0", self.operand(uop.src[0])
        if uop.arg.kind is AxisType.THREAD:
            start, region.size = "%begin", "%end"
            if kind != "i64":
                start = self.emit(f"trunc i64 %begin to {kind}")
                region.size = self.emit(f"trunc i64 %end to {kind}")
        region.guarded = uop.arg.kind is AxisType.THREAD or uop.src[0].vmin < 1
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
            self.lines.append(f"  {name} = phi {self.type(register.dtype)} {entry}")

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
        self.lines.append(f"  br i1 {test}, label %{region.head}, label %{region.exit}")
        last = self.block
        self.label(region.exit)
        if region.guarded:
            self.join(region, region.start, last)

    def join(self, region: _Region, skipped: str, last: str) -> None:
        """After a region that may not have run, its registers are what they were, or became."""
        for number, register in enumerate(region.registers):
            before, after = region.before[number], self.registers[register]
            self.registers[register] = self.emit(
                f"phi {self.type(register.dtype)} [ {before}, %{skipped} ], [ {after}, %{last} ]"
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


# ops that have no value of their own, and ops that need no text where they stand
_STATEMENTS = (
    Ops.STORE, Ops.LOCAL, Ops.ACC, Ops.ACC_SET, Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF,
)  # fmt: skip
_SILENT = frozenset({Ops.PARAM, Ops.VARIABLE, Ops.CONST, Ops.SINK})
_VALUES: dict[Ops, Callable[[_Function, UOp], str]] = {
    Ops.CONST: _Function.value_const,
    Ops.NEG: _Function.value_neg,
    Ops.WHERE: _Function.value_where,
    Ops.CAST: _Function.value_cast,
    Ops.BITCAST: _Function.value_bitcast,
    Ops.VECTORIZE: _Function.value_vectorize,
    Ops.GEP: _Function.value_gep,
    Ops.INDEX: _Function.value_index,
    Ops.LOAD: _Function.value_load,
}


@functools.lru_cache(maxsize=1024)
def _mask(lanes: tuple[int, ...]) -> str:
    """The lanes of a shuffle as LLVM writes them; kernels repeat a few."""
    return ", ".join([f"i32 {lane}" for lane in lanes])


def _conversion(source: DType, target: DType) -> str:
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


def _memory_name(dtype: DType) -> str:
    return dtype.scalar().name


def _symbol(name: str) -> str:
    """A function's name as LLVM IR spells it."""
    if _PLAIN_NAME.match(name):
        return f"@{name}"
    escaped = "".join(
        chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:02X}" for b in name.encode()
    )
    return f'@"{escaped}"'
