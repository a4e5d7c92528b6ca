"""Structured `arg`s: small frozen dataclasses, so that nobody has to remember tuple positions.

What comes in: plain values. What goes out: hashable arguments of UOps.
Where it sits: right after the op table; every stage builds and reads these.
The one invariant: an arg is immutable and hashable, and holds no UOp (a UOp that matters is a
source).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from weft.dtype import DType, python_number
from weft.errors import ArgumentError
from weft.uop.layout import Layout
from weft.uop.opset import Ops

# Tags of a kernel's STORE. Which of its rounds write to one element: none (where the index alone
# does not show it), or those of tiles that overlap, which write the same.
DISTINCT, OVERLAPPING = "distinct", "overlapping"


class AxisType(Enum):
    """How an axis runs."""

    GLOBAL = auto()  # GPU grid
    LOCAL = auto()  # GPU threads of a group
    WARP = auto()  # lanes of a warp
    THREAD = auto()  # split over CPU cores, outermost
    LOOP = auto()  # an ordinary loop
    GROUP_REDUCE = auto()  # a reduction shared by the threads of a group
    REDUCE = auto()  # the loop of a reduction
    UPCAST = auto()  # output axis written out in registers
    UNROLL = auto()  # reduce axis written out
    VECTOR = auto()  # lanes of a vector
    WEAK = LOOP  # tinygrad's name of an axis that nobody said anything about

    def __repr__(self) -> str:
        return f"AxisType.{self.name}"

    def __lt__(self, other: AxisType) -> bool:
        return bool(self.value < other.value)

    __hash__ = object.__hash__


@dataclass(frozen=True)
class BufferArg:
    """Storage: a number that no other storage has, how many elements, where."""

    number: int
    size: int
    device: str | tuple[str, ...]
    # on several devices: how the elements are cut; None: each has all of them
    layout: Layout | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ParamArg:
    """A kernel's buffer: its place among the parameters, and how many elements it has."""

    slot: int
    size: int


@dataclass(frozen=True)
class VariableArg:
    """A run-time number with inclusive bounds; each value is a multiple of `multiple_of`."""

    name: str
    lo: Any
    hi: Any
    multiple_of: int = 1


def variable_arg(name: str, lo: Any, hi: Any, dtype: DType, multiple_of: int = 1) -> VariableArg:
    """A checked VariableArg; infinite bounds of what cannot be infinite are those of its dtype."""
    bounds = []
    for given in (lo, hi):
        bound = python_number(given)
        if isinstance(bound, float) and dtype.kind != "float":
            bound = dtype.min if bound == -math.inf else dtype.max if bound == math.inf else bound
            bound = int(bound) if bound == bound and int(bound) == bound else bound
        if not isinstance(bound, int) and not (isinstance(bound, float) and dtype.kind == "float"):
            raise ArgumentError(
                f"variable {name!r} of {dtype} needs numbers of that type as bounds, found "
                f"{lo!r} and {hi!r}"
            )
        bounds.append(bound)
    if not bounds[0] <= bounds[1]:
        raise ArgumentError(f"variable {name!r} needs lo <= hi, found {lo!r} and {hi!r}")
    if not isinstance(multiple_of, int) or multiple_of < 1:
        raise ArgumentError(f"variable {name!r} is a multiple of 1 or more, not {multiple_of!r}")
    return VariableArg(name, bounds[0], bounds[1], multiple_of)


def bound_value(variable: VariableArg, value: Any) -> Any:
    """`value` if the variable may have it, else an error that says what it may have."""
    plain = value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        plain = value.__index__()
    is_number = isinstance(plain, int) or (isinstance(plain, float) and type(variable.lo) is float)
    in_range = is_number and variable.lo <= plain <= variable.hi
    if not in_range or (variable.multiple_of != 1 and plain % variable.multiple_of):
        kind = "an int" if isinstance(variable.lo, int) else "a number"
        step = f" in steps of {variable.multiple_of}" if variable.multiple_of != 1 else ""
        raise ArgumentError(
            f"{variable.name} takes {kind} from {variable.lo} to {variable.hi}{step}, "
            f"found {value!r}"
        )
    return plain


@dataclass(frozen=True)
class RangeArg:
    """An axis: a number that is unique inside its kernel (a tuple after splits) and its type."""

    number: tuple[int, ...]
    kind: AxisType

    def __getitem__(self, place: Any) -> Any:
        """The parts of the number, then the type: how programs for tinygrad read it."""
        return (*self.number, self.kind)[place]


@dataclass(frozen=True)
class ReduceArg:
    """Which op folds which axes (ascending)."""

    op: Ops
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Unique:
    """The arg of a STORE through indices that name each place at most once, so in no order."""

    combine: Ops | None = None  # the reduce op that joins a value with what is there


@dataclass(frozen=True)
class Unordered:
    """The arg of a STORE of ints that are joined with what is there in any order, each in one step
    that nothing comes between: whatever comes first, the result is the same."""

    combine: Ops  # ADD or MAX


def combines_with(arg: Any) -> Ops | None:
    """The reduce op by which a STORE with this arg joins a value with what is there, if it does."""
    found: Ops | None = arg.combine if isinstance(arg, (Unique, Unordered)) else arg
    return found


@dataclass(frozen=True)
class StageArg:
    """A staged value: its number in the kernel and the kind of memory that holds it."""

    number: int
    memory: str = "scratch"  # "scratch" on CPUs, "shared" on GPUs
    sweep: bool = False  # of a REDUCE: its loops run outside of those that fill
    # of one row in tiles: where it ends; the last tile starts early enough to end there too
    length: int | None = None
    # elements from one to the next along each axis that it fills, where not row-major
    strides: tuple[int, ...] | None = None
    depth: int = 1  # rounds of its loop that are in memory at a time
    is_swizzled: bool = False  # see LocalArg


@dataclass(frozen=True)
class MatrixArg:
    """Of a LOAD: a warp reads matrices of 8 rows of 16 bytes. Lane 8*i + r names row r of the i-th,
    and has four bytes of each: lane 4*g + t those at 4*t of row g, or, of the transposed, element g
    of rows 2*t and 2*t + 1."""

    count: int
    transposed: bool = False


@dataclass(frozen=True)
class TileArg:
    """Of a LOAD: what a fragment reads of shared memory by itself, from this place on. Element i
    along its side (rows of A, columns of B) and k of its terms lies at
    i // run * far + i % run * near + k * term."""

    count: int  # elements along the side
    terms: int
    run: int
    near: int
    far: int
    term: int

    def place(self, i: int, k: int) -> int:
        return i // self.run * self.far + i % self.run * self.near + k * self.term

    @property
    def span(self) -> int:
        """Elements from the first to the last."""
        return self.place(self.count - 1, self.terms - 1) + 1


@dataclass(frozen=True)
class LocalArg:
    """Fast memory of a linear program: its number, elements, and kind.

    Elements of swizzled memory are numbered as those of any other; where each of them lies is up to
    the renderer, and known to what reads it (see `fragment.SWIZZLED_BYTES`).
    """

    number: int
    size: int
    memory: str = "scratch"
    is_swizzled: bool = False


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel is called and what was done to it; `estimates` are filled in by codegen."""

    name: str = "kernel"
    applied: tuple[object, ...] = ()
    optimise: bool = True
    origins: tuple[str, ...] = field(default=(), compare=False)
    # tinygrad's way to say `optimise=False`: no actions are to be applied
    opts_to_apply: tuple[object, ...] | None = None

    def __post_init__(self) -> None:
        if self.opts_to_apply == ():
            object.__setattr__(self, "optimise", False)

    @property
    def applied_opts(self) -> tuple[object, ...]:
        """What was done to it, under tinygrad's name."""
        return self.applied

    @property
    def axis_types(self) -> tuple[object, ...]:
        """None are given: a kernel's ranges know their own."""
        return ()

    @property
    def function_name(self) -> str:
        """The name as that of a function."""
        return "".join(c if c.isalnum() else "_" for c in self.name)


@dataclass(frozen=True)
class HostArg:
    """Result `number` of a function that the host computes, or kernels do in its place.

    `compute(arrays, *static)` takes the inputs as NumPy arrays and gives an array for each of
    `results`, or None where it cannot. `kernels(nodes, *static)` gives nodes that compute the same.
    """

    name: str
    compute: Callable[..., Any] = field(repr=False)
    kernels: Callable[..., Any] = field(repr=False)
    results: tuple[tuple[tuple[int, ...], DType], ...]  # shape and dtype of each
    static: tuple[Any, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class FunctionArg:
    """Whose gradient is a rule of its own: `rule(gradient, node, static)`, one part per input.

    `static` is what else the function was called with. Equal rules over equal arguments are equal.
    """

    name: str
    rule: Callable[..., tuple[Any, ...]] = field(repr=False)
    static: tuple[Any, ...] = ()
