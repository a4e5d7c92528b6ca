"""Metal's shading language.

In: a linear program. Out: `kernel void name(buffers by slot, variables)`. One of the languages on
top of `groups.py`. Compile without fast math.
Invariant: what Metal lacks (float64) is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import program_params, program_variables
from weft.renderer.cstyle import Template, strip
from weft.renderer.groups import (
    TYPE_NAMES,
    GroupStyle,
    Layout,
    call,
    group_sizes,
    is_written,
)
from weft.uop.node import UOp
from weft.uop.opset import Ops

METAL = Target(
    name="metal",
    cores=16,
    vector_bytes=16,
    vector_registers=32,
    has_fma=True,
    has_local=True,
    max_buffers=31,  # places in a table of arguments
    index_dtype=dtypes.int32,
    has_half_conversion=True,
    group_threads=1024,
    group_limits=(1024, 1024, 1024),
    grid_limits=((1 << 31) - 1, (1 << 31) - 1, (1 << 31) - 1),
    shared_bytes=32 << 10,
    warp_size=32,
)


class MetalRenderer(GroupStyle):
    """Metal Shading Language."""

    name = "metal"
    suffix = "metal"
    type_names = {**TYPE_NAMES, dtypes.float16: "half"}
    vector_ops = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.AND, Ops.OR, Ops.XOR})
    vector_kinds = ("float", "uint")
    long_suffix = "l"
    group_index = "group.{axis}"
    thread_index = "thread_index.{axis}"
    shared_prefix = "threadgroup "
    lane_counts = (2, 3, 4)
    no_fusing = "#pragma clang fp contract(off)"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target or METAL)

    def function_templates(self) -> dict[Ops, Template]:
        names = {Ops.SQRT: "precise::sqrt", Ops.TRUNC: "trunc", Ops.MULACC: "fma"}
        names |= {Ops.EXP2: "precise::exp2", Ops.LOG2: "precise::log2"}
        names |= {Ops.SIN: "precise::sin", Ops.POW: "precise::pow"}
        return {op: call(name) for op, name in names.items()}

    def extra_buffers(self, uops: Sequence[UOp]) -> int:
        # variables stand in the same table
        return len(program_variables(uops))

    def layout(self, uops: Sequence[UOp]) -> Layout:
        """("buffer", slot), each at the place of its slot, then ("value", bytes) at the next."""
        buffers = [("buffer", param.arg.slot) for param in program_params(uops)]
        values = [("value", variable.dtype.itemsize) for variable in program_variables(uops)]
        return (*buffers, *values)

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        lines = ["#include <metal_stdlib>", "using namespace metal;"]
        lines += self.rounding_lines(uops)
        arguments = []
        for param in params:
            const, slot = "" if is_written(uops, param) else "const ", param.arg.slot
            kind = self.type(param.dtype)
            arguments.append(f"{const}device {kind}* data{slot} [[buffer({slot})]]")
        first = 1 + max((param.arg.slot for param in params), default=-1)
        for place, variable in enumerate(program_variables(uops), first):
            kind = self.type(variable.dtype)
            arguments.append(f"constant {kind}& {variable.arg.name} [[buffer({place})]]")
        arguments.append("uint3 group [[threadgroup_position_in_grid]]")
        arguments.append("uint3 thread_index [[thread_position_in_threadgroup]]")
        x, y, z = group_sizes(uops)
        lines.append(f"[[max_total_threads_per_threadgroup({x * y * z})]]")
        lines.append(f"kernel void {name}({', '.join(arguments)}) {{")
        return lines

    def type(self, dtype: DType) -> str:
        if dtype.count == 1:
            return super().type(dtype)
        return f"{super().type(dtype.scalar())}{self.checked_lanes(dtype)}"

    def float_literal(self, value: float, dtype: DType) -> str:
        text = super().float_literal(value, dtypes.float32)
        return f"half({text})" if dtype is dtypes.float16 else text

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        if source.itemsize < 4:
            # what is computed from narrow integers is an int, whose size is another
            return f"as_type<{self.type(target)}>(({self.type(source)}){text})"
        return f"as_type<{self.type(target)}>({strip(text)})"

    # ------------------------------------------------------------ memory and lanes
    def barrier(self) -> str:
        return "threadgroup_barrier(mem_flags::mem_threadgroup);"

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        return f"{self.type(dtype)}({', '.join(lanes)})"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        packed = self.packed(dtype, memory)
        if packed is None:
            return super().vector_load(name, dtype, memory, base, idx)
        return [self.declare(dtype, name, f"*(const {packed}*)({base} + {idx})")]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        packed = self.packed(dtype, memory)
        if packed is None:
            return super().vector_store(name, dtype, memory, base, idx)
        return [f"*({packed}*)({base} + {idx}) = {name};"]

    def packed(self, dtype: DType, memory: UOp) -> str | None:
        """The type of neighbours in memory that need no alignment; long and bool have none."""
        if dtype.scalar().kind == "bool" or dtype.scalar().itemsize > 4:
            return None
        shared = memory.op is Ops.LOCAL and memory.arg.memory == "shared"
        where = "device" if memory.op is Ops.PARAM else "threadgroup" if shared else "thread"
        return f"{where} packed_{self.type(dtype)}"
