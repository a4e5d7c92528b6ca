"""LLVM IR for AMD GPUs: `amdgpu_kernel` functions that LLVM's AMDGPU target takes.

In: a linear program. Out: a module whose entry takes its arguments as `groups.word_layout` says,
with the grid in the workgroup's ids and the group in the workitem's. One of the targets on top of
`llvm_groups.py`.
Invariant: every op has the op table's meaning: LLVM divides and takes roots as IEEE says, fuses
nothing and flushes nothing as long as no fast-math flag and no denormal attribute asks for it.
Memory may be read at any address: the hardware is in its unaligned mode on amdhsa, so a wide access
of a buffer needs no alignment and no second function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.fragment import Fragment
from weft.helpers import prod
from weft.machine import Target
from weft.renderer.base import Renderer
from weft.renderer.groups import (
    AXES,
    Layout,
    check_program,
    group_sizes,
    padded_size,
    shared_offsets,
    word_layout,
)
from weft.renderer.llvm_base import NATIVE
from weft.renderer.llvm_groups import WIDEST_ACCESS, GroupFunction, Names
from weft.renderer.mfma import amd_fragments
from weft.uop.node import UOp
from weft.uop.opset import FALLING, Ops

TRIPLE = "amdgcn-amd-amdhsa"
_INDICES = {"gidx": "workgroup.id", "lidx": "workitem.id"}
_f16, _bf16, _f32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
# what a kernel could ask the launch for, and does not; so it is not loaded into registers
_UNUSED = (
    "dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr", "completion-action",
    "default-queue", "heap-ptr", "hostcall-ptr", "lds-kernel-id", "multigrid-sync-arg",
    "flat-scratch-init",
)  # fmt: skip
_WORD_BITS = 32


@dataclass(frozen=True)
class Chip:
    """What differs between the chips whose kernels are printed here. Sizes are in bytes."""

    cores: int  # compute units
    l1: int
    l2: int
    l3: int
    lds: int  # that a group may have, and that a core has
    wave: int
    registers: int  # of 32 bits, that a thread may have


# what the vendor says of the chips with most cores of each architecture
CHIPS = {
    "gfx90a": Chip(110, 16 << 10, 8 << 20, 8 << 20, 64 << 10, 64, 512),
    "gfx942": Chip(304, 32 << 10, 4 << 20, 256 << 20, 64 << 10, 64, 512),
    "gfx950": Chip(256, 32 << 10, 4 << 20, 256 << 20, 160 << 10, 64, 512),
    "gfx1100": Chip(96, 32 << 10, 6 << 20, 96 << 20, 64 << 10, 32, 256),
    "gfx1151": Chip(40, 32 << 10, 2 << 20, 32 << 20, 64 << 10, 32, 256),
    "gfx1200": Chip(32, 32 << 10, 4 << 20, 32 << 20, 64 << 10, 32, 256),
    "gfx1201": Chip(64, 32 << 10, 8 << 20, 64 << 20, 64 << 10, 32, 256),
}


def amd_target(arch: str, cores: int = 0) -> Target:
    """A chip in codegen's terms; `cores` where the machine says how many it has."""
    chip = CHIPS.get(arch)
    if chip is None:
        raise CompileError(f"kernels for {arch!r} were asked for; there are {', '.join(CHIPS)}")
    return Target(
        name=arch,
        cores=cores or chip.cores,
        vector_bytes=16,
        vector_registers=64,
        has_fma=True,
        l1=chip.l1,
        l2=chip.l2,
        l3=chip.l3,
        has_local=True,
        max_buffers=256,
        index_dtype=dtypes.int32,
        has_half_conversion=True,
        group_threads=1024,
        group_limits=(1024, 1024, 1024),
        grid_limits=((1 << 31) - 1, 65535, 65535),
        shared_bytes=min(chip.lds, 64 << 10),
        warp_size=chip.wave,
        thread_lanes=16,
        core_threads=2048 if chip.wave == 64 else 1024,
        thread_registers=chip.registers,
        most_shared_bytes=chip.lds,
        core_shared_bytes=chip.lds,
        core_registers=128 << 10,
        fragments=amd_fragments(arch),
    )


class AMDGCNRenderer(Renderer):
    """Prints LLVM IR for AMDGPU."""

    name = "amdgcn"
    suffix = "ll"
    has_falling_exp2 = True

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target or amd_target("gfx1100"))
        self.code_for_op = dict.fromkeys(sorted(NATIVE, key=lambda op: op.name), True)
        self.native_dtypes = frozenset((dtypes.bool, *dtypes.ints, _f32, dtypes.float64, _f16))

    def layout(self, uops: Sequence[UOp]) -> Layout:
        return word_layout(uops)

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        check_program(self, name, uops)
        return _Kernel(name, uops, self.native_dtypes, self.target).text()


class _Kernel(GroupFunction):
    """One kernel while it is written."""

    private_pointer = "ptr addrspace(5)"

    def __init__(
        self, name: str, uops: Sequence[UOp], native: frozenset[DType], target: Target
    ) -> None:
        super().__init__(name, uops, native)
        self.target = target
        self.special[Ops.EXP2] = self.value_exp2
        self.shared, total = shared_offsets(uops, WIDEST_ACCESS)
        if total > target.most_shared_bytes:
            raise CompileError(
                f"{name} shares {total} bytes in a group, {target.name} has "
                f"{target.most_shared_bytes}"
            )

    def text(self) -> str:
        functions = _hoisted(self.functions("amdgpu_kernel", "#0"))
        threads = prod(group_sizes(self.uops))
        facts = [f'"amdgpu-flat-work-group-size"="{threads},{threads}"']
        facts += [f'"amdgpu-no-{name}"' for name in _UNUSED]
        facts.append('"uniform-work-group-size"="true"')
        return "\n".join(
            [
                f'target triple = "{TRIPLE}"',
                *self.shared_memory(),
                *functions,
                *self.declared,
                f'attributes #0 = {{ nounwind "no-builtins" {" ".join(facts)} }}',
                "!llvm.module.flags = !{!1}",
                "!0 = !{}",
                '!1 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
                *self.loops,
                "",
            ]
        )

    # ------------------------------------------------------------ the machine
    def hardware_index(self, kind: str, axis: int, most: int) -> str:
        name = f"@llvm.amdgcn.{_INDICES[kind]}.{AXES[axis]}"
        self.declare(f"i32 {name}()")
        bounds = f"range(i32 0, {most}) " if 0 < most < 1 << 31 else ""
        return self.emit(f"call {bounds}i32 {name}()")

    def write_barrier(self, uop: UOp) -> None:
        self.declare("void @llvm.amdgcn.s.barrier()")
        scope = 'syncscope("workgroup")'
        self.lines += [
            f"  fence {scope} release",
            "  call void @llvm.amdgcn.s.barrier()",
            f"  fence {scope} acquire",
        ]

    def shared_memory(self) -> list[str]:
        """Declarations of all that a group shares."""
        return [
            f"@shared{memory.arg.number} = internal addrspace(3) global "
            f"[{padded_size(memory, WIDEST_ACCESS)} x {self.memory_type(memory.dtype)}] undef, "
            f"align {WIDEST_ACCESS}"
            for memory in self.shared
        ]

    def place_shared(self, uop: UOp) -> str:
        return f"@shared{uop.arg.number}"

    def write_local(self, uop: UOp) -> None:
        super().write_local(uop)
        if uop.arg.memory != "shared":
            self.entry[-1] += ", addrspace(5)"

    def chunks(self, place: UOp, dtype: DType) -> list[tuple[int, int, int]]:
        """Buffers are read and written 16 bytes at a time wherever they begin."""
        size = dtype.scalar().itemsize
        if dtype.count == 1 or place.src[0].op is not Ops.PARAM:
            return super().chunks(place, dtype)
        found: list[tuple[int, int, int]] = []
        first = 0
        while first < dtype.count:
            left = dtype.count - first
            count = min(max(1, WIDEST_ACCESS // size), 1 << (left.bit_length() - 1))
            found.append((first, count, size))
            first += count
        return found

    # ------------------------------------------------------------ functions
    def value_exp2(self, uop: UOp) -> str:
        """The instruction, off by one unit in the last place, that flushes what is not normal."""
        if uop.tag != FALLING:
            raise CompileError("AMDGPU has no EXP2 but that of operands which are at most 0")
        self.declare("float @llvm.amdgcn.exp2.f32(float)")
        return self.emit(f"call float @llvm.amdgcn.exp2.f32(float {self.operand(uop.src[0])})")

    # ------------------------------------------------------------ products
    def compute_lanes(self, uop: UOp) -> Names:
        return self.multiply(uop) if uop.op is Ops.WMMA else super().compute_lanes(uop)

    def multiply(self, uop: UOp) -> Names:
        """One intrinsic, which takes vectors of what each lane holds."""
        fragment: Fragment = uop.arg
        sums = self.vector(uop.src[2])
        kind = "float" if fragment.c_dtype is _f32 else "i32"
        c_type = f"<{len(sums)} x {kind}>"
        c = self.gathered(c_type, kind, sums)
        operands = [self.packed(source) for source in uop.src[:2]]
        call = self.wave32_call if fragment.name.startswith("wmma") else self.wave64_call
        given, suffix = call(fragment, operands, f"{c_type} {c}", len(sums))
        name = f"@llvm.amdgcn.{fragment.name}{suffix}"
        self.declare(f"{c_type} {name}({', '.join([kind for kind, _ in given])})")
        texts = ", ".join([text for _, text in given])
        found = self.emit(f"call {c_type} {name}({texts}) convergent")
        lanes = [f"extractelement {c_type} {found}, i32 {i}" for i in range(len(sums))]
        return tuple([self.emit(text) for text in lanes])

    def wave32_call(
        self, fragment: Fragment, operands: list[tuple[str, str]], c: str, count: int
    ) -> tuple[list[tuple[str, str]], str]:
        """(type, argument) of a WMMA, and how its name ends: the types that it is overloaded on."""
        kinds = [kind for kind, _ in operands]
        given = [(kind, f"{kind} {name}") for kind, name in operands]
        c_type = c.partition(">")[0] + ">"
        result = "f32" if fragment.c_dtype is _f32 else "i32"
        suffix = f".v{count}{result}.{_mangled(kinds[0])}"
        if ".iu8" not in fragment.name:
            return [*given, (c_type, c)], suffix
        signs = [
            ("i1", f"i1 {_truth(d.kind == 'int')}") for d in (fragment.a_dtype, fragment.b_dtype)
        ]
        full = [signs[0], given[0], signs[1], given[1], (c_type, c), ("i1", "i1 false")]
        return full, suffix

    def wave64_call(
        self, fragment: Fragment, operands: list[tuple[str, str]], c: str, count: int
    ) -> tuple[list[tuple[str, str]], str]:
        """(type, argument) of an MFMA: three further numbers permute blocks, and are 0."""
        given = [(kind, f"{kind} {name}") for kind, name in operands]
        c_type = c.partition(">")[0] + ">"
        return [*given, (c_type, c), *[("i32", "i32 0")] * 3], ""

    def packed(self, uop: UOp) -> tuple[str, str]:
        """(type, name) of an operand as intrinsics take it: halves in a vector, bytes in words."""
        names, dtype = self.vector(uop), uop.dtype.scalar()
        if dtype.itemsize == 2:
            kind = self.memory_type(dtype)
            vector = f"<{len(names)} x {kind}>"
            name = self.gathered(vector, kind, names)
            if dtype is _bf16 and self.target.name == "gfx950":
                wanted = f"<{len(names)} x bfloat>"
                return wanted, self.emit(f"bitcast {vector} {name} to {wanted}")
            return vector, name
        vector = f"<{len(names)} x i8>"
        name = self.gathered(vector, "i8", names)
        is_word = self.target.warp_size == 64
        wanted = f"i{8 * len(names)}" if is_word else f"<{len(names) // 4} x i32>"
        return wanted, self.emit(f"bitcast {vector} {name} to {wanted}")

    def gathered(self, vector: str, kind: str, names: Names) -> str:
        value = "poison"
        for place, name in enumerate(names):
            value = self.emit(f"insertelement {vector} {value}, {kind} {name}, i32 {place}")
        return value


def _hoisted(lines: list[str]) -> list[str]:
    """A thread's own memory is made in the first block: elsewhere its size is not known before."""
    made = [line for line in lines if " = alloca " in line]
    rest = [line for line in lines if " = alloca " not in line]
    first = rest.index("entry:") + 1
    return [*rest[:first], *made, *rest[first:]]


def _mangled(vector: str) -> str:
    """<16 x half> -> v16f16."""
    count, _, kind = vector.strip("<>").partition(" x ")
    return f"v{count}{ {'half': 'f16', 'bfloat': 'bf16'}.get(kind, kind) }"


def _truth(value: bool) -> str:
    return "true" if value else "false"
