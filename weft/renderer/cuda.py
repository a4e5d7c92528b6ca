"""CUDA C, as NVRTC takes it without any header.

In: a linear program. Out: `extern "C" __global__ void name(words, buffers by slot, variables)`, see
`groups.word_layout`. One of the languages on top of `groups.py`.
Invariant: what rounds does so as on every device: nothing is flushed, divisions and roots are those
of IEEE (NVRTC's defaults), and only products and sums that may be fused are left to the compiler.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import program_variables
from weft.renderer.cstyle import Template, strip
from weft.renderer.cuda_fragments import (
    SEEN_BY_PRODUCTS,
    fragment_helpers,
    own_statement,
    products_go_on,
)
from weft.renderer.cuda_prefixes import prefix_helpers, prefix_statement
from weft.renderer.groups import (
    AXES,
    WORD_SHIFT,
    GroupStyle,
    Layout,
    group_sizes,
    is_written,
    padded_size,
    shared_alignment,
    shared_offsets,
    word_layout,
)
from weft.renderer.mma import mma_fragments
from weft.renderer.wgmma import wgmma_fragments
from weft.uop.node import UOp
from weft.uop.opset import Ops

# names in `Target.features`: conversions that the chip has as instructions
BF16, FP8 = "bf16", "fp8"
# bytes of shared memory that a kernel may declare; above that the launch gives it
STATIC_SHARED = 48 << 10
# bytes at whose multiples memory that a group shares begins and ends
_SHARED_ALIGN = 16
# where it is not what most of a generation have
_CORE_THREADS = {(7, 5): 1024, (8, 0): 2048}
# shared memory that a group may have if the launch asks for it
_MOST_SHARED = {
    (7, 5): 64 << 10,
    (8, 0): 163 << 10,
    (8, 6): 99 << 10,
    (8, 7): 163 << 10,
    (8, 9): 99 << 10,
    (9, 0): 227 << 10,
    (10, 0): 227 << 10,
    (12, 0): 99 << 10,
}


def cuda_target(
    major: int,
    minor: int,
    cores: int,
    l2: int,
    l1: int = 128 << 10,
    shared_bytes: int = 48 << 10,
    most_shared_bytes: int = 0,
) -> Target:
    """A GPU of a compute capability: what its attributes say, and what all of its kind have.

    `cores` are its multiprocessors, `shared_bytes` what a group may have without permission,
    `most_shared_bytes` what it may have with it.
    """
    features = [BF16] if major >= 8 else []
    if (major, minor) >= (8, 9):
        features.append(FP8)
    return Target(
        name=f"sm_{major}{minor}",
        cores=cores,
        vector_bytes=16,
        vector_registers=64,
        has_fma=True,
        l1=l1,
        l2=l2,
        l3=l2,
        has_local=True,
        max_buffers=256,  # 4 KiB of arguments, and room for variables
        index_dtype=dtypes.int32,
        has_half_conversion=True,
        group_threads=1024,
        group_limits=(1024, 1024, 64),
        grid_limits=((1 << 31) - 1, 65535, 65535),
        shared_bytes=shared_bytes,
        warp_size=32,
        thread_lanes=16,  # an access of 16 bytes, also of single bytes
        core_threads=_CORE_THREADS.get((major, minor), 1536 if major in (8, 12) else 2048),
        thread_registers=255,
        most_shared_bytes=most_shared_bytes or _MOST_SHARED.get((major, minor), shared_bytes),
        # each group takes another KiB
        core_shared_bytes=_MOST_SHARED.get((major, minor), shared_bytes) + (1 << 10),
        core_registers=64 << 10,
        fragments=(*mma_fragments(major, minor), *wgmma_fragments(major, minor)),
        async_copies=(4, 8, 16) if major >= 8 else (),
        has_atomics=True,
        has_prefixes=True,
        has_matrix_loads=(major, minor) >= (7, 5),
        features=tuple(features),
    )


SM_90 = cuda_target(9, 0, cores=132, l2=50 << 20, l1=256 << 10)

_WORD = "unsigned long long"
_BELOW = hex((1 << WORD_SHIFT) - 1)
_HALF = dtypes.float16
# the bits of a half are moved by instructions, since NVRTC has the type in a header only
_HALF_TO_FLOAT = (
    "static __device__ __forceinline__ float half_to_float(unsigned short x) "
    '{ float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }'
)
_FLOAT_TO_HALF = (
    "static __device__ __forceinline__ unsigned short float_to_half(float x) "
    '{ unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }'
)
# A buffer may be a part of another one and begin anywhere, so alignment is asked at run time; all
# threads of a warp agree on the answer.
_LOAD_LANES = """template <typename V, typename T>
static __device__ __forceinline__ V load_lanes(const T* p) {
  if (((unsigned long long)p & (alignof(V) - 1)) == 0) return *(const V*)p;
  V v;
  for (unsigned k = 0; k < sizeof(v.lane) / sizeof(T); k++) v.lane[k] = p[k];
  return v;
}"""
_STORE_LANES = """template <typename V, typename T>
static __device__ __forceinline__ void store_lanes(T* p, V v) {
  if (((unsigned long long)p & (alignof(V) - 1)) == 0) { *(V*)p = v; return; }
  for (unsigned k = 0; k < sizeof(v.lane) / sizeof(T); k++) p[k] = v.lane[k];
}"""


def _call(name: str) -> Template:
    """A function of CUDA's library, with the suffix f for float."""

    def write(operands: tuple[str, ...], dtype: DType) -> str:
        suffix = "f" if dtype is dtypes.float32 else ""
        return f"{name}{suffix}({', '.join(map(strip, operands))})"

    return write


class CUDARenderer(GroupStyle):
    """CUDA C for NVRTC."""

    name = "cuda"
    suffix = "cu"
    type_names = {
        dtypes.bool: "bool",
        dtypes.int8: "signed char",
        dtypes.uint8: "unsigned char",
        dtypes.int16: "short",
        dtypes.uint16: "unsigned short",
        dtypes.int32: "int",
        dtypes.uint32: "unsigned int",
        dtypes.int64: "long long",
        dtypes.uint64: "unsigned long long",
        dtypes.float32: "float",
        dtypes.float64: "double",
    }
    group_index = "blockIdx.{axis}"
    thread_index = "threadIdx.{axis}"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target or SM_90)
        self.native_dtypes = frozenset((*self.type_names, _HALF))
        self.places: dict[UOp, int] = {}
        self.has_tiles = False  # of the program that is printed, see `products_go_on`

    def function_templates(self) -> dict[Ops, Template]:
        names = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.MULACC: "fma", Ops.EXP2: "exp2"}
        names |= {Ops.LOG2: "log2", Ops.SIN: "sin", Ops.POW: "pow"}
        return {op: _call(name) for op, name in names.items()}

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        arguments = [f"const {_WORD}* words"]
        lines = []
        for param in params:
            const = "" if is_written(uops, param) else "const "
            kind, data = f"{const}{self.type(param.dtype)}*", f"data{param.arg.slot}"
            arguments.append(f"{kind} {data}")
            word = f"words[({_WORD}){data} >> {WORD_SHIFT}]"
            lines.append(f"    {data} = ({kind})({word} + (({_WORD}){data} & {_BELOW}));")
        for variable in program_variables(uops):
            kind = self.type(variable.dtype)
            arguments.append(f"{kind} {variable.arg.name}")
            lines.append(f"    {variable.arg.name} = ({kind})words[{variable.arg.name}];")
        axes = [AXES[axis] for kind, axis in self.layout(uops) if kind == "groups"]
        for axis in axes:
            arguments.append(f"unsigned int groups_{axis}")
            lines.append(f"    groups_{axis} = (unsigned int)words[groups_{axis}];")
        x, y, z = group_sizes(uops)
        bounds = f"__launch_bounds__({x * y * z})"
        align = max([shared_alignment(memory, _SHARED_ALIGN) for memory in self.places], default=0)
        dynamic = f"extern __shared__ __align__({align}) unsigned char shared[];"
        return [
            *self.helpers(uops),
            *([dynamic] if self.places else []),
            f'extern "C" __global__ void {bounds} {name}({", ".join(arguments)}) {{',
            *(["  if (words) {", *lines, "  }"] if lines else []),
            # or every access would ask at run time in which memory it is
            *[f"  __builtin_assume(__isGlobal(data{param.arg.slot}));" for param in params],
            *[f"  if (blockIdx.{axis} >= groups_{axis}) return;" for axis in axes],
        ]

    def layout(self, uops: Sequence[UOp]) -> Layout:
        return word_layout(uops)

    def helpers(self, uops: Sequence[UOp]) -> list[str]:
        """Vector types and functions that the program uses."""
        lines = []
        for name, dtype in sorted({self.type(u.dtype): u.dtype for u in uops}.items()):
            if dtype.count > 1:
                size = dtype.count * dtype.scalar().itemsize
                align = min(16, size & -size)
                element = self.type(dtype.scalar())
                lines.append(
                    f"struct __align__({align}) {name} {{ {element} lane[{dtype.count}]; }};"
                )
        if any([u.op is Ops.CAST and u.src[0].dtype.scalar() is _HALF for u in uops]):
            lines.append(_HALF_TO_FLOAT)
        if any([u.op is Ops.CAST and u.dtype.scalar() is _HALF for u in uops]):
            lines.append(_FLOAT_TO_HALF)
        accesses = [u for u in uops if u.op in (Ops.LOAD, Ops.STORE) and _is_straight(u)]
        if any([u.op is Ops.LOAD for u in accesses]):
            lines.append(_LOAD_LANES)
        if any([u.op is Ops.STORE for u in accesses]):
            lines.append(_STORE_LANES)
        return [*lines, *fragment_helpers(uops, self.type), *prefix_helpers(uops)]

    def own_statement(self, uop: UOp, name: str, operands: Sequence[tuple[str, str | None]]) -> str:
        if uop.op in (Ops.SCAN, Ops.RANK, Ops.MOVE):
            texts = [text for text, _ in operands]
            least = self.literal(uop.dtype.scalar().min, uop.dtype.scalar())
            return prefix_statement(uop, name, texts, self.type, least)
        return own_statement(uop, name, operands, self.type)

    def shared_bytes(self, uops: Sequence[UOp]) -> int:
        total = shared_offsets(uops, _SHARED_ALIGN)[1]
        return total if total > STATIC_SHARED else 0

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        # what is shared has a place in memory that the launch gives, where it is too much
        own = copy.copy(self)
        own.places = shared_offsets(uops, _SHARED_ALIGN)[0] if self.shared_bytes(uops) else {}
        own.has_tiles = products_go_on(uops)
        return super(CUDARenderer, own).render(name, uops)

    def type(self, dtype: DType) -> str:
        return "void" if dtype is dtypes.void else super().type(dtype)

    def float_literal(self, value: float, dtype: DType) -> str:
        if math.isfinite(value):
            return super().float_literal(value, dtype)
        sign = "-" if value < 0 else ""
        if dtype is dtypes.float64:
            bits = "0x7ff8000000000000ll" if math.isnan(value) else "0x7ff0000000000000ll"
            return f"({sign}__longlong_as_double({bits}))"
        bits = "0x7fc00000" if math.isnan(value) else "0x7f800000"
        return f"({sign}__int_as_float({bits}))"

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        text = strip(text)
        if source is dtypes.float32:
            function = "__float_as_int" if target.kind == "int" else "__float_as_uint"
            return f"{function}({text})"
        if target is dtypes.float32:
            return f"{'__int_as_float' if source.kind == 'int' else '__uint_as_float'}({text})"
        if source is dtypes.float64:
            return f"({self.type(target)})__double_as_longlong({text})"
        if target is dtypes.float64:
            return f"__longlong_as_double((long long)({text}))"
        return f"({self.type(target)})({text})"

    def convert(self, text: str, source: DType, target: DType) -> str:
        if source is _HALF:
            return f"half_to_float({strip(text)})"
        if target is _HALF:
            return f"float_to_half({strip(text)})"
        return super().convert(text, source, target)

    def own_form(self, uop: UOp, operands: tuple[str, ...]) -> str | None:
        """A product rounds where it stands: the compiler fuses no intrinsic with its sum."""
        if uop.op is not Ops.MUL or uop.dtype.kind != "float":
            return None
        letter = "f" if uop.dtype.scalar() is dtypes.float32 else "d"
        return f"__{letter}mul_rn({', '.join(map(strip, operands))})"

    # ------------------------------------------------------------ memory and lanes
    def local_memory(self, memory: UOp, name: str) -> str | None:
        if memory.arg.memory != "shared":
            return super().local_memory(memory, name)
        if memory in self.places:
            kind = f"{self.stored(memory.dtype)}*"
            return f"{kind} {name} = ({kind})(shared + {self.places[memory]});"
        size = padded_size(memory, _SHARED_ALIGN)
        align = shared_alignment(memory, _SHARED_ALIGN)
        return f"__shared__ __align__({align}) {self.stored(memory.dtype)} {name}[{size}];"

    def number_of(self, memory: UOp, idx: str) -> str:
        if memory.op is not Ops.LOCAL or not memory.arg.is_swizzled:
            return idx
        return f"swizzled<{memory.dtype.itemsize}>({strip(idx)})"

    def combined(self, place: str, value: str, dtype: DType, op: Ops) -> str:
        function = {Ops.ADD: "atomicAdd", Ops.MAX: "atomicMax"}[op]
        # a sum wraps, so that one type does for both
        kind = self.type(dtype.scalar())
        if op is Ops.ADD and dtype.scalar() is dtypes.int64:
            kind = _WORD
        return f"{function}(({kind}*)&{place}, ({kind}){value});"

    def barrier(self) -> str:
        return f"{SEEN_BY_PRODUCTS} __syncthreads();" if self.has_tiles else "__syncthreads();"

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        if dtype.kind == "bool":
            # C++ takes no int for a bool in braces, and that is what `a & b` is
            lanes = [f"bool({lane})" if set(lane) & set("&|^") else lane for lane in lanes]
        return f"{self.type(dtype)}{{{', '.join(lanes)}}}"

    def lane(self, name: str, lane: int) -> str:
        return f"{name}.lane[{lane}]"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        kind = self.type(dtype)
        return [self.declare(dtype, name, f"load_lanes<{kind}>({base} + {idx})")]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        return [f"store_lanes({base} + {idx}, {name});"]


def _is_straight(uop: UOp) -> bool:
    """Whether a LOAD or STORE is of several neighbours, all valid."""
    dtype = uop.dtype if uop.op is Ops.LOAD else uop.src[1].dtype
    place = uop.src[0]
    if dtype.count == 1 or place.op is not Ops.INDEX:
        return False
    return len(place.src) == 2 and place.src[1].dtype.count == 1
