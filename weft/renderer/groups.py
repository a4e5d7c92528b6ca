"""What the languages of machines with groups of threads share, on top of C.

In: a linear program with SPECIAL indices, shared LOCAL memory and BARRIERs. Out: parts of its text.
Between `cstyle.py` and the languages themselves (CUDA C, OpenCL C, Metal, WGSL).
Invariant: a program that the target cannot run (a dtype, too many buffers) is refused by name, not
printed.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.fragment import SWIZZLED_BYTES, SWIZZLED_ROWS
from weft.renderer.base import Renderer, program_params, program_size, program_variables
from weft.renderer.cstyle import CStyle, Template, strip
from weft.uop.node import UOp
from weft.uop.opset import Ops

AXES = "xyz"
# what OpenCL C and Metal call the types that both have
TYPE_NAMES: dict[DType, str] = {
    dtypes.bool: "bool",
    dtypes.int8: "char",
    dtypes.uint8: "uchar",
    dtypes.int16: "short",
    dtypes.uint16: "ushort",
    dtypes.int32: "int",
    dtypes.uint32: "uint",
    dtypes.int64: "long",
    dtypes.uint64: "ulong",
    dtypes.float32: "float",
}
# An argument of a launch inside a graph is the number of a word, and above this many bits below it
# what is added to that: memory of 16 TiB, and a million words.
WORD_SHIFT = 44
WORD_LIMIT = 1 << (64 - WORD_SHIFT)
LONGS = frozenset({dtypes.int64, dtypes.uint64})
# What follows the name of a variable of 64 bits in programs of words: the low and the high one.
WORD_NAMES = ("__low", "__high")
# What an entry takes, in order: ("words", bytes), ("buffer", slot), ("value", bytes of a variable),
# ("groups", axis whose number of groups is known at run time only).
Layout = tuple[tuple[str, int], ...]


def word_layout(uops: Sequence[UOp]) -> Layout:
    """The arguments of a kernel that takes them by value, or from a table of 64-bit words.

    `words` is 0, and all others are what they say; or it is the address of the table, and a buffer
    is words[argument >> WORD_SHIFT] plus the bits below, a variable or number of groups is
    words[argument]. So one kernel is launched with arguments of its own, and replayed in a graph
    whose nodes never change: only the table does. A grid in a graph may be larger than asked for,
    so that a group beyond the run-time number of groups does nothing.
    """
    buffers = [("buffer", param.arg.slot) for param in program_params(uops)]
    values = [("value", variable.dtype.itemsize) for variable in program_variables(uops)]
    sizes = program_size(uops, "gidx")
    groups = [("groups", axis) for axis, size in enumerate(sizes) if isinstance(size, UOp)]
    return (("words", 8), *buffers, *values, *groups)


class GroupStyle(CStyle):
    """A language whose functions one thread of many runs."""

    # how indices of the hardware are called along an axis: {axis} is x, y or z, {place} 0, 1 or 2
    group_index = ""
    thread_index = ""
    # what stands before memory that a group shares
    shared_prefix = ""
    # how many lanes the language's own vectors have; (): any number
    lane_counts: tuple[int, ...] = ()
    # what keeps a compiler from fusing products with sums, if it is a line of its own
    no_fusing = ""

    def supported_dtypes(self) -> frozenset[DType]:
        """What has a type of its own, narrow floats, which are their bits, and 64-bit integers,
        which are pairs of words where there are no others."""
        floats = [dtype for dtype in dtypes.all if dtype.kind == "float" and dtype.itemsize < 4]
        return frozenset((*self.type_names, *floats, *LONGS))

    def special(self, uop: UOp) -> str:
        place = int(uop.arg[-1])
        form = self.group_index if uop.arg.startswith("g") else self.thread_index
        return form.format(axis=AXES[place], place=place)

    def stored(self, dtype: DType) -> str:
        """A type in memory."""
        return self.type(dtype)

    def local_memory(self, memory: UOp, name: str) -> str | None:
        where = self.shared_prefix if memory.arg.memory == "shared" else ""
        return f"{where}{self.stored(memory.dtype)} {name}[{memory.arg.size}];"

    def checked_lanes(self, dtype: DType) -> int:
        """How many lanes a vector has, if the language has such vectors."""
        if dtype.count not in self.lane_counts:
            raise CompileError(
                f"{self.name} has vectors of {self.lane_counts} lanes, found {dtype}"
            )
        return dtype.count

    def rounding_lines(self, uops: Sequence[UOp]) -> list[str]:
        """A product rounds where it stands: the compiler must not fuse it with its sum."""
        is_product = [u.op is Ops.MUL and u.dtype.kind == "float" for u in uops]
        return [self.no_fusing] if any(is_product) else []

    def extra_buffers(self, uops: Sequence[UOp]) -> int:
        """Buffers beside those of the kernel."""
        return 0

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        self.check(name, uops)
        return super().render(name, uops)

    def check(self, name: str, uops: Sequence[UOp]) -> None:
        """Refuses what the target cannot run."""
        check_program(self, name, uops, self.extra_buffers(uops))


def check_program(renderer: Renderer, name: str, uops: Sequence[UOp], extra: int = 0) -> None:
    """Refuses a program that the renderer's target cannot run; `extra` buffers come along."""
    supported = renderer.supported_dtypes() - (LONGS if not renderer.has_longs else frozenset())
    lacking = [u for u in uops if u.dtype.kind != "void" and u.dtype.scalar() not in supported]
    # float64 first: what else is lacking may be only a step towards it
    for uop in sorted(lacking, key=lambda u: u.dtype.scalar() is not dtypes.float64):
        dtype = uop.dtype.scalar()
        advice = ""
        if dtype is dtypes.float64:
            advice = "; compute in float32 there, or in float64 on a device that has it (CPU)"
        raise CompileError(
            f"{name}: {renderer.name} has no {dtype}, which {uop.op.name} asks for; "
            f"it has {', '.join(sorted(map(str, supported)))}{advice}"
        )
    count, target = len(program_params(uops)) + extra, renderer.target
    if count > target.max_buffers:
        raise CompileError(
            f"{name} has {count} buffers, {target.name} takes at most {target.max_buffers}"
        )


def is_written(uops: Sequence[UOp], param: UOp) -> bool:
    """Whether the program stores to a buffer."""
    return any([u.op is Ops.STORE and u.src[0].src[0] is param for u in uops])


def group_sizes(uops: Sequence[UOp]) -> tuple[int, int, int]:
    """Threads of a group along x, y and z."""
    sizes = program_size(uops, "lidx") or (1, 1, 1)
    x, y, z = [int(size) for size in sizes]
    return x, y, z


def shared_alignment(memory: UOp, align: int) -> int:
    """Bytes at whose multiples a memory begins: `align`, or where patterns of rows do."""
    return SWIZZLED_BYTES * SWIZZLED_ROWS if memory.arg.is_swizzled else align


def shared_offsets(uops: Sequence[UOp], align: int) -> tuple[dict[UOp, int], int]:
    """Where each memory that a group shares begins, and the bytes of all of them.

    Those that begin at multiples of more come first.
    """
    found: dict[UOp, int] = {}
    total = 0
    shared = [u for u in uops if u.op is Ops.LOCAL and u.arg.memory == "shared"]
    for uop in sorted(dict.fromkeys(shared), key=lambda u: -shared_alignment(u, align)):
        own = shared_alignment(uop, align)
        found[uop] = total
        size = uop.arg.size * uop.dtype.itemsize
        total += -(-size // own) * own
    return found, total


def padded_size(memory: UOp, align: int) -> int:
    """Elements of a memory that takes a multiple of so many bytes.

    Compilers make wide accesses of loops over it, and the last may read beyond what is asked for.
    """
    nbytes = memory.arg.size * memory.dtype.itemsize
    return int(-(-nbytes // align) * align // memory.dtype.itemsize)


def word_of(name: str) -> tuple[str, int]:
    """The variable that a word of a program is part of, and which of its words it is.

    >>> word_of("n"), word_of("key__low"), word_of("key__high")
    (('n', 0), ('key', 0), ('key', 1))
    """
    for number, suffix in enumerate(WORD_NAMES):
        if name.endswith(suffix):
            return name.removesuffix(suffix), number
    return name, 0


def call(name: str) -> Template:
    """A function of the language, called by this name for every dtype."""

    def write(operands: tuple[str, ...], dtype: DType) -> str:
        return f"{name}({', '.join(map(strip, operands))})"

    return write
