"""LLVM IR for NVIDIA GPUs: `ptx_kernel` functions that LLVM's NVPTX target takes.

In: a linear program. Out: a module whose entry takes its arguments as `groups.word_layout` says,
with the grid in ctaid and the group in tid. One of the targets on top of `llvm_groups.py`.
Invariant: every op has the op table's meaning. LLVM prints `add.rn` and `mul.rn`, which ptxas never
fuses, divides and takes roots as IEEE says, and flushes nothing, as long as no fast-math flag, no
denormal attribute and no option asks for it. The printed forms hold for LLVM 20 and later.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import DType, bits_of, dtypes
from weft.errors import CompileError
from weft.renderer.base import Renderer, Target
from weft.renderer.cuda import BF16, FP8, SM_90, STATIC_SHARED
from weft.renderer.groups import (
    AXES,
    Layout,
    check_program,
    group_sizes,
    padded_size,
    shared_alignment,
    shared_offsets,
    word_layout,
)
from weft.renderer.llvm_base import NATIVE, symbol
from weft.renderer.llvm_groups import WIDEST_ACCESS, Names
from weft.renderer.nvptx_prefixes import PrefixFunction
from weft.uop.node import UOp
from weft.uop.opset import BOUNDED, FALLING, Ops

_REGISTERS = {"gidx": "ctaid", "lidx": "tid"}
_f16, _bf16, _f32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
# how LLVM's intrinsics call them, and what infinity is there
_FP8 = {dtypes.fp8e4m3: "e4m3x2", dtypes.fp8e5m2: "e5m2x2"}


class NVPTXRenderer(Renderer):
    """Prints LLVM IR for NVPTX."""

    name = "nvptx"
    suffix = "ll"
    has_falling_exp2 = True

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target or SM_90)
        self.code_for_op = dict.fromkeys(sorted(NATIVE, key=lambda op: op.name), True)
        narrow = {_f16}
        if BF16 in self.target.features:
            narrow.add(_bf16)
        if FP8 in self.target.features:
            narrow.update(_FP8)
        self.native_dtypes = frozenset((dtypes.bool, *dtypes.ints, _f32, dtypes.float64, *narrow))

    def layout(self, uops: Sequence[UOp]) -> Layout:
        return word_layout(uops)

    def shared_bytes(self, uops: Sequence[UOp]) -> int:
        total = shared_offsets(uops, WIDEST_ACCESS)[1]
        return total if total > STATIC_SHARED else 0

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        check_program(self, name, uops)
        return _Kernel(name, uops, self.native_dtypes).text()


class _Kernel(PrefixFunction):
    """One kernel while it is written."""

    def __init__(self, name: str, uops: Sequence[UOp], native: frozenset[DType]) -> None:
        super().__init__(name, uops, native)
        self.special[Ops.EXP2] = self.value_exp2
        self.special[Ops.SCAN] = self.value_scan
        self.special[Ops.RANK] = self.value_rank
        self.special[Ops.MOVE] = self.value_move
        self.special[Ops.SHUFFLE] = self.value_shuffle
        self.shared, total = shared_offsets(uops, WIDEST_ACCESS)
        self.is_dynamic = total > STATIC_SHARED
        aligned = [shared_alignment(memory, WIDEST_ACCESS) for memory in self.shared]
        self.shared_align = max(aligned, default=WIDEST_ACCESS)

    def text(self) -> str:
        functions = self.functions("ptx_kernel", "#0")
        sizes = zip(AXES, group_sizes(self.uops), strict=True)
        bounds = ", ".join(f'!"maxntid{axis}", i32 {size}' for axis, size in sizes)
        head = 'target triple = "nvptx64-nvidia-cuda"'
        return "\n".join(
            [
                head,
                *self.shared_memory(),
                *functions,
                *self.declared,
                'attributes #0 = { nounwind "no-builtins" }',
                "!nvvm.annotations = !{!1}",
                "!0 = !{}",
                *self.loops,
                f"!1 = !{{ptr {symbol(self.name)}, {bounds}}}",
                "",
            ]
        )

    # ------------------------------------------------------------ the machine
    def hardware_index(self, kind: str, axis: int, most: int) -> str:
        name = f"@llvm.nvvm.read.ptx.sreg.{_REGISTERS[kind]}.{AXES[axis]}"
        self.declare(f"i32 {name}()")
        bounds = f"range(i32 0, {most}) " if 0 < most < 1 << 31 else ""
        return self.emit(f"call {bounds}i32 {name}()")

    def write_barrier(self, uop: UOp) -> None:
        if self.has_tiles:
            # what threads wrote is seen by products that read it by themselves
            self.effect("fence.proxy.async.shared::cta;")
        self.declare("void @llvm.nvvm.barrier0()")
        self.lines.append("  call void @llvm.nvvm.barrier0()")

    def shared_memory(self) -> list[str]:
        """Declarations of all that a group shares: of a fixed size, or given by the launch."""
        if self.is_dynamic:
            return [
                f"@shared = external addrspace(3) global [0 x i8], align {self.shared_align}",
            ]
        return [
            f"@shared{memory.arg.number} = internal addrspace(3) global "
            f"[{padded_size(memory, WIDEST_ACCESS)} x {self.memory_type(memory.dtype)}] undef, "
            f"align {shared_alignment(memory, WIDEST_ACCESS)}"
            for memory in self.shared
        ]

    def place_shared(self, uop: UOp) -> str:
        if not self.is_dynamic:
            return f"@shared{uop.arg.number}"
        return f"getelementptr (i8, {self.shared_pointer} @shared, i32 {self.shared[uop]})"

    # ------------------------------------------------------------ functions
    def value_exp2(self, uop: UOp) -> str:
        """The instruction, which gives 0 where the result is not a normal number."""
        if uop.tag != FALLING:
            raise CompileError("NVPTX has no EXP2 but that of operands which are at most 0")
        name = "@llvm.nvvm.ex2.approx.ftz.f"
        self.declare(f"float {name}(float)")
        return self.emit(f"call float {name}(float {self.operand(uop.src[0])})")

    def binary(self, uop: UOp) -> str:
        if uop.tag != BOUNDED or uop.dtype.scalar() is not _f32:
            return super().binary(uop)
        name = "@llvm.nvvm.div.approx.ftz.f"
        self.declare(f"float {name}(float, float)")
        left, right = [self.operand(source) for source in uop.src]
        return self.emit(f"call float {name}(float {left}, float {right})")

    def value_shuffle(self, uop: UOp) -> str:
        """The value of another lane: words of 32 bits, of the whole warp."""
        if uop.dtype not in (_f32, dtypes.int32, dtypes.uint32):
            raise CompileError(f"NVPTX exchanges words of 32 bits between lanes, found {uop.dtype}")
        kind, short = ("float", "f32") if uop.dtype is _f32 else ("i32", "i32")
        name = f"@llvm.nvvm.shfl.sync.bfly.{short}"
        self.declare(f"{kind} {name}(i32, {kind}, i32, i32)")
        value = self.operand(uop.src[0])
        return self.emit(f"call {kind} {name}(i32 -1, {kind} {value}, i32 {uop.arg}, i32 31)")

    # ------------------------------------------------------------ conversions of narrow floats
    def value_cast(self, uop: UOp) -> str:
        if not self.is_own_cast(uop):
            return super().value_cast(uop)
        return self.convert((self.operand(uop.src[0]),), uop)[0]

    def cast_lanes(self, uop: UOp) -> Names | None:
        return self.convert(self.vector(uop.src[0]), uop) if self.is_own_cast(uop) else None

    def is_own_cast(self, uop: UOp) -> bool:
        """Whether a CAST is between float32 and a float with instructions of NVPTX's own; LLVM's
        widen a float16."""
        source, target = uop.src[0].dtype.scalar(), uop.dtype.scalar()
        if not self.native.issuperset((source, target)):
            return False
        if target is _f32:
            return source is _bf16 or source in _FP8
        return source is _f32 and (target in (_f16, _bf16) or target in _FP8)

    def convert(self, names: Names, uop: UOp) -> Names:
        """Lanes between float32 and a narrow float, two at a time where the machine does so."""
        source, target = uop.src[0].dtype.scalar(), uop.dtype.scalar()
        if source is _bf16:
            return tuple([self.from_bf16(name) for name in names])
        # chips without bfloat16 convert to float16 one at a time
        step = 2 if _bf16 in self.native else 1
        pairs = [names[first : first + step] for first in range(0, len(names), step)]
        found: list[str] = []
        for pair in pairs:
            if source in _FP8:
                found += self.from_fp8(pair, source)
            elif target in _FP8:
                found += self.to_fp8(pair, target)
            else:
                found += self.to_half(pair, target)
        return tuple(found)

    def from_bf16(self, name: str) -> str:
        wide = self.emit(f"zext i16 {name} to i32")
        return self.emit(f"bitcast i32 {self.emit(f'shl i32 {wide}, 16')} to float")

    def to_half(self, pair: Names, target: DType) -> list[str]:
        kind, short = ("bfloat", "bf16") if target is _bf16 else ("half", "f16")
        if len(pair) == 1:
            found = [self.emit(f"fptrunc float {pair[0]} to {kind}")]
        else:
            name = f"@llvm.nvvm.ff2{short}x2.rn"
            self.declare(f"<2 x {kind}> {name}(float, float)")
            # the first operand is the upper half
            both = self.emit(f"call <2 x {kind}> {name}(float {pair[1]}, float {pair[0]})")
            found = [self.emit(f"extractelement <2 x {kind}> {both}, i32 {k}") for k in range(2)]
        # a bfloat16 is its bits everywhere else
        return found if target is _f16 else [
            self.emit(f"bitcast bfloat {name} to i16") for name in found
        ]  # fmt: skip

    def from_fp8(self, pair: Names, source: DType) -> list[str]:
        bits = self.emit(f"zext i8 {pair[0]} to i16")
        if len(pair) == 2:
            upper = self.emit(f"shl i16 {self.emit(f'zext i8 {pair[1]} to i16')}, 8")
            bits = self.emit(f"or i16 {bits}, {upper}")
        name = f"@llvm.nvvm.{_FP8[source]}.to.f16x2.rn"
        self.declare(f"<2 x half> {name}(i16)")
        both = self.emit(f"call <2 x half> {name}(i16 {bits})")
        halves = [f"extractelement <2 x half> {both}, i32 {k}" for k in range(len(pair))]
        return [self.emit(f"fpext half {self.emit(half)} to float") for half in halves]

    def to_fp8(self, pair: Names, target: DType) -> list[str]:
        """The instruction makes infinity the largest number; here it is infinite, or NaN."""
        name = f"@llvm.nvvm.ff.to.{_FP8[target]}.rn"
        self.declare(f"i16 {name}(float, float)")
        self.declare("float @llvm.fabs.f32(float)")
        upper = pair[1] if len(pair) == 2 else self.literal(0, _f32)
        both = self.emit(f"call i16 {name}(float {upper}, float {pair[0]})")
        found = []
        for lane, value in enumerate(pair):
            byte = both if lane == 0 else self.emit(f"lshr i16 {both}, 8")
            byte = self.emit(f"trunc i16 {byte} to i8")
            size = self.emit(f"call float @llvm.fabs.f32(float {value})")
            infinity = self.literal(float("inf"), _f32)
            test = self.emit(f"fcmp oeq float {size}, {infinity}")
            sign = self.emit(f"and i8 {byte}, -128")
            special = bits_of(float("inf"), target)
            signed = self.emit(f"or i8 {sign}, {special}")
            found.append(self.emit(f"select i1 {test}, i8 {signed}, i8 {byte}"))
        return found
