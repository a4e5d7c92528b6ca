"""OpenCL C 1.2.

In: a linear program. Out: `__kernel void name(buffers by slot, variables)`. One of the languages on
top of `groups.py`. Compile with `-cl-fp32-correctly-rounded-divide-sqrt` where the device has it.
Invariant: only what OpenCL 1.2 has on every device is used, and float64 where a program needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import program_variables
from weft.renderer.cstyle import Template, strip
from weft.renderer.groups import TYPE_NAMES, GroupStyle, call, group_sizes, is_written
from weft.uop.node import UOp
from weft.uop.opset import Ops

OPENCL = Target(
    name="opencl",
    cores=16,
    vector_bytes=16,
    vector_registers=32,
    has_fma=True,
    has_local=True,
    max_buffers=64,  # 1 KiB of arguments is what every device takes
    index_dtype=dtypes.int32,
    group_threads=256,
    group_limits=(256, 256, 64),
    grid_limits=((1 << 31) - 1, 65535, 65535),
    shared_bytes=32 << 10,
    warp_size=32,
)


class OpenCLRenderer(GroupStyle):
    """OpenCL C."""

    name = "opencl"
    suffix = "cl"
    type_names = {**TYPE_NAMES, dtypes.float64: "double"}
    vector_ops = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.AND, Ops.OR, Ops.XOR})
    long_suffix = "l"
    group_index = "get_group_id({place})"
    thread_index = "get_local_id({place})"
    shared_prefix = "__local "
    lane_counts = (2, 3, 4, 8, 16)
    no_fusing = "#pragma OPENCL FP_CONTRACT OFF"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target or OPENCL)

    def function_templates(self) -> dict[Ops, Template]:
        # sines and powers of ours need float64, which a device may lack
        names = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.MULACC: "fma"}
        names |= {Ops.SIN: "sin", Ops.POW: "pow"}
        return {op: call(name) for op, name in names.items()}

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        lines = []
        if any([u.dtype.scalar() is dtypes.float64 for u in uops]):
            lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
        lines += self.rounding_lines(uops)
        arguments = []
        for param in params:
            const = "" if is_written(uops, param) else "const "
            kind = self.stored(param.dtype)
            arguments.append(f"__global {const}{kind}* data{param.arg.slot}")
        for variable in program_variables(uops):
            arguments.append(f"const {self.type(variable.dtype)} {variable.arg.name}")
        size = ", ".join(map(str, group_sizes(uops)))
        lines.append(f"__attribute__((reqd_work_group_size({size})))")
        lines.append(f"__kernel void {name}({', '.join(arguments)}) {{")
        return lines

    def stored(self, dtype: DType) -> str:
        """A type in memory; what size a bool has is the device's business."""
        return "uchar" if dtype is dtypes.bool else self.type(dtype)

    def type(self, dtype: DType) -> str:
        if dtype.count == 1:
            return super().type(dtype)
        return f"{self.stored(dtype.scalar())}{self.checked_lanes(dtype)}"

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        return f"as_{self.type(target)}({strip(text)})"

    # ------------------------------------------------------------ memory and lanes
    def barrier(self) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        return f"({self.type(dtype)})({', '.join(lanes)})"

    def lane(self, name: str, lane: int) -> str:
        return f"{name}.s{lane:x}"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        return [self.declare(dtype, name, f"vload{dtype.count}(0, {base} + {idx})")]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        return [f"vstore{dtype.count}({name}, 0, {base} + {idx});"]
