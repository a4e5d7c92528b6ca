"""The text of one helper while it is written, in LLVM IR.

In: operands as positions of words of the record. Out: `HelperText`: reads and writes of a wave's
registers, and expressions of UOps for all lanes at once. On top of the renderer of LLVM IR; the
helpers of vectors, scalars and memory are written with it.
Invariant: a helper is `void (ptr wave, ptr record)` that ends in a jump to the helper of the next
record, so that the stack does not grow; one that stops the wave returns.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from weft.amd.semantics.lane import Lane
from weft.codegen.decompose.decompose import decompose
from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.llvm_base import LLVMFunction
from weft.renderer.llvmir import LLVMRenderer
from weft.runtime.amd import state
from weft.runtime.llvm import target as host
from weft.uop.node import UOp
from weft.uop.opset import Ops

_SIGNATURE = "(ptr %wave, ptr %record)"
ATTRIBUTES = 'attributes #0 = { nounwind "no-builtins" "min-legal-vector-width"="512" }'


@functools.cache
def renderer() -> LLVMRenderer:
    """Of the host: it says which ops are decomposed."""
    facts = host()
    return LLVMRenderer(
        Target(
            name=facts.cpu,
            vector_bytes=facts.vector_bytes,
            has_fma=facts.has_fma,
            has_half_conversion=facts.has_half_conversion,
            has_max=facts.has_max,
            has_rounding=facts.has_rounding,
        )
    )


class HelperText(LLVMFunction):
    """One helper while it is written."""

    def __init__(self, lanes: int) -> None:
        super().__init__("helper", [], renderer().native_dtypes)
        self.lane_count = lanes
        self.mask_type = f"i{lanes}"
        self.vector_type = f"<{lanes} x i32>"
        self.wide_type = f"<{lanes} x i64>"
        self.bool_type = f"<{lanes} x i1>"
        self.functions: dict[str, str] = {}
        self.active = ""

    # ------------------------------------------------------------ the frame
    def finish(self, name: str) -> str:
        """The module, whose helper goes on with the next record."""
        after = self.emit(f"getelementptr i8, ptr %record, i64 {state.RECORD_BYTES}")
        self.jump(after)
        return self.module(name)

    def finish_rounded(self, name: str, rounding: int) -> str:
        """As `finish`, but all of it happens with the host's floats rounded otherwise."""
        inner = [*self.lines, "  ret void"]
        self.functions["compute"] = "\n".join(
            [f"define internal void @compute{_SIGNATURE} noinline #0 {{", "entry:", *inner, "}"]
        )
        self.lines = []
        self.declare("void @llvm.set.rounding(i32)")
        self.lines.append(f"  call void @llvm.set.rounding(i32 {rounding})")
        self.lines.append("  call void @compute(ptr %wave, ptr %record)")
        self.lines.append("  call void @llvm.set.rounding(i32 1)")
        return self.finish(name)

    def module(self, name: str) -> str:
        return "\n".join(
            [
                f"define void @{name}{_SIGNATURE} #0 {{",
                "entry:",
                *self.lines,
                "}",
                *self.functions.values(),
                *self.declared,
                ATTRIBUTES,
                "",
            ]
        )

    def jump(self, record: str) -> None:
        """Goes on with another record."""
        helper = self.emit(f"load ptr, ptr {record}, align 8")
        self.lines.append(f"  musttail call void {helper}(ptr %wave, ptr {record})")
        self.lines.append("  ret void")

    def stop(self, status: int, at: str = "%record") -> None:
        """Leaves the wave with a status; `at` is what it stopped at, or goes on with."""
        self.store_state(state.STATUS, "i64", str(status))
        self.store_state(state.FAULT_RECORD, "ptr", "%record")
        self.store_state(state.NEXT, "ptr", at)
        self.lines.append("  ret void")

    # ------------------------------------------------------------ state and record
    def place(self, offset: int | str, base: str = "%wave") -> str:
        return self.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load_state(self, offset: int, kind: str) -> str:
        return self.emit(f"load {kind}, ptr {self.place(offset)}, align 4")

    def store_state(self, offset: int, kind: str, value: str) -> None:
        self.lines.append(f"  store {kind} {value}, ptr {self.place(offset)}, align 4")

    def word(self, number: int, kind: str = "i32") -> str:
        """A word of the record."""
        at = self.place(state.WORDS + 4 * number, "%record")
        return self.emit(f"load {kind}, ptr {at}, align 4")

    def register(self, number: int) -> str:
        """The address of the register whose offset a word holds."""
        offset = self.emit(f"zext i32 {self.word(number)} to i64")
        return self.place(offset)

    # ------------------------------------------------------------ scalars
    def read_scalar(self, number: int, bits: int, is_constant: bool = False) -> str:
        kind = f"i{bits}"
        if is_constant:
            return self.word(number, kind)
        return self.emit(f"load {kind}, ptr {self.register(number)}, align 4")

    def write_scalar(self, number: int, bits: int, value: str) -> None:
        self.lines.append(f"  store i{bits} {value}, ptr {self.register(number)}, align 4")

    def read_condition(self) -> str:
        return self.emit(f"icmp ne i32 {self.load_state(state.SCC, 'i32')}, 0")

    def write_condition(self, value: str) -> None:
        self.store_state(state.SCC, "i32", self.emit(f"zext i1 {value} to i32"))

    # ------------------------------------------------------------ vectors
    def splat(self, value: str, kind: str) -> str:
        vector = f"<{self.lane_count} x {kind}>"
        one = self.emit(f"insertelement {vector} poison, {kind} {value}, i64 0")
        zeros = f"<{self.lane_count} x i32> zeroinitializer"
        return self.emit(f"shufflevector {vector} {one}, {vector} poison, {zeros}")

    def read_vector(self, number: int, bits: int) -> str:
        """A register of all lanes, or two of them as numbers of 64 bits."""
        return self.read_at(self.register(number), bits)

    def read_at(self, at: str, bits: int) -> str:
        low = self.emit(f"load {self.vector_type}, ptr {at}, align 64")
        if bits == 32:
            return low
        above = self.place(4 * self.lane_count, at)
        high = self.emit(f"load {self.vector_type}, ptr {above}, align 64")
        return self.joined(low, high)

    def joined(self, low: str, high: str) -> str:
        """Words of 64 bits out of their halves."""
        vector, wide = self.vector_type, self.wide_type
        lower = self.emit(f"zext {vector} {low} to {wide}")
        upper = self.emit(f"zext {vector} {high} to {wide}")
        upper = self.emit(f"shl {wide} {upper}, splat (i64 32)")
        return self.emit(f"or {wide} {lower}, {upper}")

    def write_vector(self, number: int, bits: int, value: str) -> None:
        """Writes the active lanes."""
        self.write_at(self.register(number), bits, value)

    def write_at(self, at: str, bits: int, value: str) -> None:
        if bits == 32:
            self.store_masked(value, at)
            return
        vector, wide = self.vector_type, self.wide_type
        self.store_masked(self.emit(f"trunc {wide} {value} to {vector}"), at)
        upper = self.emit(f"lshr {wide} {value}, splat (i64 32)")
        upper = self.emit(f"trunc {wide} {upper} to {vector}")
        self.store_masked(upper, self.place(4 * self.lane_count, at))

    def store_masked(self, value: str, at: str) -> None:
        name = f"@llvm.masked.store.v{self.lane_count}i32.p0"
        vector, mask = self.vector_type, self.bool_type
        self.declare(f"void {name}({vector}, ptr, i32, {mask})")
        given = f"{vector} {value}, ptr {at}, i32 64, {mask} {self.active_lanes()}"
        self.lines.append(f"  call void {name}({given})")

    # ------------------------------------------------------------ masks
    def active_lanes(self) -> str:
        """The lanes that instructions work on, as bools."""
        if not self.active:
            self.active = self.mask_at(4 * state.EXEC)
        return self.active

    def mask_at(self, offset: int) -> str:
        bits = self.load_state(offset, self.mask_type)
        return self.emit(f"bitcast {self.mask_type} {bits} to {self.bool_type}")

    def read_mask(self, number: int, is_constant: bool = False) -> str:
        bits = self.read_scalar(number, self.lane_count, is_constant)
        return self.emit(f"bitcast {self.mask_type} {bits} to {self.bool_type}")

    def mask_bits(self, lanes: str) -> str:
        """A mask of active lanes as a number."""
        held = self.emit(f"and {self.bool_type} {lanes}, {self.active_lanes()}")
        return self.emit(f"bitcast {self.bool_type} {held} to {self.mask_type}")

    # ------------------------------------------------------------ expressions
    def compute(self, lane: Lane, leaves: Mapping[str, str], is_vector: bool) -> list[str]:
        """The results of a lane's expression, given what its leaves are."""
        lanes = self.lane_count if is_vector else 1
        given = {node: leaves[name] for name, node in lane.leaves}
        return self.expressions(lane.results, given, lanes)

    def expressions(
        self, results: Sequence[UOp], leaves: Mapping[UOp, str], lanes: int
    ) -> list[str]:
        # leaves of other expressions have the same names
        self.names = {}
        sink = UOp(Ops.SINK, dtypes.void, tuple(results))
        plain = decompose(sink, renderer())
        spread: dict[UOp, UOp] = {}
        for node in plain.toposort():
            if node.op is Ops.SINK:
                continue
            if node.op is Ops.VARIABLE:
                self.names[node] = leaves[node]
                # the name is the node's, the type that of all lanes
                wide = UOp(Ops.VARIABLE, _lanes_of(node.dtype, lanes), (), node.arg)
                self.names[wide] = leaves[node]
            elif node.op is Ops.CONST and lanes > 1:
                wide = UOp(Ops.VECTORIZE, _lanes_of(node.dtype, lanes), (node,) * lanes)
            else:
                src = tuple([spread[source] for source in node.src])
                wide = UOp(node.op, _lanes_of(node.dtype, lanes), src, node.arg, node.tag)
            spread[node] = wide
            self.operand(wide)
        return [self.operand(spread[node]) for node in plain.src]


def _lanes_of(dtype: DType, lanes: int) -> DType:
    return dtype.vec(lanes) if lanes > 1 else dtype
