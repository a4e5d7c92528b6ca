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
from weft.renderer.base import program_params, program_size
from weft.renderer.cstyle import CStyle, Template, strip
from weft.uop.node import UOp
from weft.uop.opset import Ops

_AXES = "xyz"


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
        """What has a type of its own, and narrow floats, which are their bits."""
        floats = [dtype for dtype in dtypes.all if dtype.kind == "float" and dtype.itemsize < 4]
        return frozenset((*self.type_names, *floats))

    def special(self, uop: UOp) -> str:
        place = int(uop.arg[-1])
        form = self.group_index if uop.arg.startswith("g") else self.thread_index
        return form.format(axis=_AXES[place], place=place)

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
        supported = self.supported_dtypes()
        for uop in uops:
            dtype = uop.dtype.scalar()
            if dtype.kind != "void" and dtype not in supported:
                raise CompileError(
                    f"{name}: {self.name} has no {dtype}, which {uop.op.name} asks for; "
                    f"it has {', '.join(sorted(map(str, supported)))}"
                )
        count = len(program_params(uops)) + self.extra_buffers(uops)
        if count > self.target.max_buffers:
            raise CompileError(
                f"{name} has {count} buffers, {self.target.name} takes at most "
                f"{self.target.max_buffers}"
            )


def is_written(uops: Sequence[UOp], param: UOp) -> bool:
    """Whether the program stores to a buffer."""
    return any([u.op is Ops.STORE and u.src[0].src[0] is param for u in uops])


def group_sizes(uops: Sequence[UOp]) -> tuple[int, int, int]:
    """Threads of a group along x, y and z."""
    sizes = program_size(uops, "lidx") or (1, 1, 1)
    x, y, z = [int(size) for size in sizes]
    return x, y, z


def call(name: str) -> Template:
    """A function of the language, called by this name for every dtype."""

    def write(operands: tuple[str, ...], dtype: DType) -> str:
        return f"{name}({', '.join(map(strip, operands))})"

    return write
