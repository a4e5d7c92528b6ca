"""LLVM IR as text, for CPUs.

In: a linear program. Out: the text of one function `void name(ptr args, i64 begin, i64 end)`; args
points to 8-byte slots: the buffers' addresses, then the variables' values. The runtime compiles it
without any IR pass, so what stands here is what runs: vectors are explicit, and registers that a
loop changes are phis. On top of `llvm_base.py`.
Invariant: an invalid load or store touches no memory of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import Renderer, program_params, program_variables
from weft.renderer.llvm_base import NATIVE, LLVMFunction, memory_name, symbol
from weft.renderer.llvm_survey import LINE_BYTES, streamed_stores
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


class LLVMRenderer(Renderer):
    """Prints LLVM IR."""

    name = "llvm"
    suffix = "ll"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        native = set(NATIVE)
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
        f"define void {symbol(name)}{given} #0 {{",
        "entry:",
        *choice,
        f"  %low = and i64 {bits}, {LINE_BYTES - 1}",
        "  %is.aligned = icmp eq i64 %low, 0",
        "  br i1 %is.aligned, label %streamed, label %kept",
        "streamed:",
        f"  call void {symbol(streamed.name)}{given}",
        # what went past the caches is seen by nobody before this
        "  call void @llvm.x86.sse.sfence()",
        "  ret void",
        "kept:",
        f"  call void {symbol(kept.name)}{given}",
        "  ret void",
        "}",
        *{**kept.declared, **streamed.declared, "declare void @llvm.x86.sse.sfence()": None},
        "!0 = !{i32 1}",
        *_ATTRIBUTES,
    ]
    return "\n".join(lines)


class _Function(LLVMFunction):
    """One function of the CPU while it is written."""

    def __init__(
        self,
        name: str,
        uops: Sequence[UOp],
        native: frozenset[DType],
        streamed: AbstractSet[UOp] = frozenset(),
    ) -> None:
        super().__init__(name, uops, native)
        self.streamed = streamed  # stores that go past the caches
        self.zeros_bytes = 0  # of the constant that invalid loads read
        self.spill_bytes = 0  # of the scratch that invalid stores write

    # ------------------------------------------------------------ the frame
    def text(self) -> str:
        """The whole module."""
        self.write()
        return "\n".join([*self.constants(), *self.function(), *self.declared, *_ATTRIBUTES])

    def write(self) -> None:
        """All that is inside."""
        self.load_arguments()
        super().write()
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
        head = f"define {linkage}void {symbol(self.name)}(ptr %args, i64 %begin, i64 %end) #0 {{"
        return [head, "entry:", *self.entry, *self.lines, "  ret void", "}"]

    def load_arguments(self) -> None:
        """Addresses and variables from the slots of %args."""
        params = program_params(self.uops)
        for param in params:
            self.names[param] = f"%buf{param.arg.slot}.{memory_name(param.dtype)}"
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

    def span(self, uop: UOp) -> tuple[str, str, bool]:
        """A call runs the part of the THREAD axis that it was given."""
        if uop.arg.kind is not AxisType.THREAD:
            return super().span(uop)
        kind = self.type(uop.dtype)
        if kind == "i64":
            return "%begin", "%end", True
        start = self.emit(f"trunc i64 %begin to {kind}")
        return start, self.emit(f"trunc i64 %end to {kind}"), True

    # ------------------------------------------------------------ memory
    def value_load(self, uop: UOp) -> str:
        place = uop.src[0]
        if place.op is Ops.ACC:
            return self.registers[place, 0]
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
