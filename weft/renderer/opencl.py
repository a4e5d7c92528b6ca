"""OpenCL C 1.2.

In: a linear program. Out: `__kernel void name(buffers by slot, variables)`. One of the languages on
top of `groups.py`. Compile with `-cl-fp32-correctly-rounded-divide-sqrt` where the device has it.
A buffer is two arguments, an object of memory and the element of it to start at: parts of objects
have alignments that views of memory need not have. See `OpenCLRenderer.layout`.
Invariant: only what OpenCL 1.2 has on every device is used, and float64 and float16 where the
target says so ("fp64", "fp16" among its features).
"""

from __future__ import annotations

import math
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
from weft.uop.args import AxisType
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
    features=("fp64",),
)
# a CPU: groups of threads would only cost, so a group is one thread that runs a part of a loop
OPENCL_CPU = Target(
    name="opencl cpu",
    cores=4,
    vector_bytes=32,
    vector_registers=16,
    has_fma=True,
    has_threads=True,
    max_buffers=48,
    features=("fp64",),
)


class OpenCLRenderer(GroupStyle):
    """OpenCL C."""

    name = "opencl"
    suffix = "cl"
    vector_ops = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.AND, Ops.OR, Ops.XOR})
    long_suffix = "l"
    group_index = "get_group_id({place})"
    thread_index = "get_local_id({place})"
    shared_prefix = "__local "
    lane_counts = (2, 3, 4, 8, 16)
    no_fusing = "#pragma OPENCL FP_CONTRACT OFF"

    def __init__(self, target: Target | None = None) -> None:
        self.features = frozenset((target or OPENCL).features)
        names = dict(TYPE_NAMES)
        if "fp64" in self.features:
            names[dtypes.float64] = "double"
        if "fp16" in self.features:
            names[dtypes.float16] = "half"
        self.type_names = names
        self.has_own_functions = not (target or OPENCL).has_local and "fp64" in self.features
        super().__init__(target or OPENCL)

    def function_templates(self) -> dict[Ops, Template]:
        names = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.MULACC: "fma"}
        if not self.has_own_functions:
            # sines and powers of ours need float64, which a device may lack or be slow at
            names |= {Ops.SIN: "sin", Ops.POW: "pow"}
        return {op: call(name) for op, name in names.items()}

    def layout(self, uops: Sequence[UOp]) -> Layout:
        """("buffer", slot) and ("start", bytes of an element) for each, ("value", bytes)."""
        found: list[tuple[str, int]] = []
        for param in program_params(uops):
            found += [("buffer", param.arg.slot), ("start", param.dtype.itemsize)]
        values = [("value", variable.dtype.itemsize) for variable in program_variables(uops)]
        return (*found, *values)

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        lines = []
        if any([u.dtype.scalar() is dtypes.float64 for u in uops]):
            lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
        if "half" in [self.type_names.get(u.dtype.scalar()) for u in uops]:
            lines.append("#pragma OPENCL EXTENSION cl_khr_fp16 : enable")
        lines += self.rounding_lines(uops)
        lines += self.own_vectors(uops)
        arguments = []
        for param in params:
            const = "" if is_written(uops, param) else "const "
            kind = self.stored(param.dtype)
            slot = param.arg.slot
            arguments += [f"__global {const}{kind}* data{slot}", f"const ulong start{slot}"]
        for variable in program_variables(uops):
            arguments.append(f"const {self.type(variable.dtype)} {variable.arg.name}")
        size = ", ".join(map(str, group_sizes(uops)))
        lines.append(f"__attribute__((reqd_work_group_size({size})))")
        lines.append(f"__kernel void {name}({', '.join(arguments)}) {{")
        lines += [f"  data{param.arg.slot} += start{param.arg.slot};" for param in params]
        shared = [u for u in uops if u.op is Ops.RANGE and u.arg.kind is AxisType.THREAD]
        for size in {u.src[0].arg for u in shared}:
            # each group runs its part of the loop
            for bound, group in (("begin", "get_group_id(0)"), ("end", "(get_group_id(0) + 1)")):
                part = f"(long)({size}ul * {group} / get_num_groups(0))"
                lines.append(f"  const long {bound} = {part};")
        return lines

    def stored(self, dtype: DType) -> str:
        """A type in memory; what size a bool has is the device's business."""
        return "uchar" if dtype is dtypes.bool else self.type(dtype)

    def type(self, dtype: DType) -> str:
        if dtype.count == 1:
            return super().type(dtype)
        joint = "" if self.has_vectors(dtype) else "x"
        return f"{self.stored(dtype.scalar())}{joint}{dtype.count}"

    def has_vectors(self, dtype: DType) -> bool:
        return dtype.count in self.lane_counts

    def own_vectors(self, uops: Sequence[UOp]) -> list[str]:
        """Vectors of lanes that the language lacks: structures whose members are named alike."""
        # several dtypes may be one type: bools are bytes, narrow floats are their bits
        found: dict[str, str] = {}
        for dtype in {u.dtype for u in uops}:
            if dtype.count > 1 and not self.has_vectors(dtype):
                members = ", ".join([f"s{lane:x}" for lane in range(dtype.count)])
                found[self.type(dtype)] = f"{self.stored(dtype.scalar())} {members}"
        return [f"typedef struct {{ {found[name]}; }} {name};" for name in sorted(found)]

    def float_literal(self, value: float, dtype: DType) -> str:
        if dtype is dtypes.float16:
            return f"(half)({super().float_literal(value, dtypes.float32)})"
        if dtype is dtypes.float64 and not math.isfinite(value):
            # these are floats in OpenCL C, whose bits are not a double's
            return f"((double){super().float_literal(value, dtype)})"
        return super().float_literal(value, dtype)

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        if source.itemsize < 4:
            # what is computed from narrow integers is an int, whose size is another
            return f"as_{self.type(target)}(({self.type(source)}){text})"
        return f"as_{self.type(target)}({strip(text)})"

    # ------------------------------------------------------------ memory and lanes
    def barrier(self) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        text = ", ".join(lanes)
        return f"({self.type(dtype)})" + (f"({text})" if self.has_vectors(dtype) else f"{{{text}}}")

    def lane(self, name: str, lane: int) -> str:
        return f"{name}.s{lane:x}"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        if not self.has_vectors(dtype):
            return super().vector_load(name, dtype, memory, base, idx)
        return [self.declare(dtype, name, f"vload{dtype.count}(0, {base} + {idx})")]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        if not self.has_vectors(dtype):
            return super().vector_store(name, dtype, memory, base, idx)
        return [f"vstore{dtype.count}({name}, 0, {base} + {idx});"]
