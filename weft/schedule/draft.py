"""What the scheduler knows about a kernel while it is being decided.

What comes in: nothing. What goes out: `Draft` (a kernel to be), `Demand` (one use of a value
inside it).
Where it sits: shared by the passes decide, build and order.
The one invariant: a demand is a value's element, named by index expressions over the draft's
ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from weft.helpers import prod
from weft.schedule.index import ZERO, Index
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def size_of(axis: UOp) -> int:
    """The (greatest) number of steps of a range."""
    return int(axis.src[0].vmax)


def volume(axes: frozenset[UOp] | tuple[UOp, ...]) -> int:
    """How many points several ranges span."""
    return prod(size_of(axis) for axis in axes)


@dataclass(eq=False)
class Draft:
    """A kernel to be: its outputs over common ranges, and the values computed inside."""

    root: UOp
    position: int  # of the root in the order of the graph: dependencies point to smaller ones
    device: Any
    ranges: tuple[UOp, ...] = ()
    index: Index = ()  # of the root: ranges, and zeros for axes of size 1
    outputs: list[tuple[UOp, Index]] = field(default_factory=list)
    count: int = 0  # ops so far
    buffers: set[UOp] = field(default_factory=set)
    heavy: bool = False  # holds a reduction with reuse (a matmul): its tile owns the registers
    reductions: list[frozenset[UOp]] = field(default_factory=list)
    next_number: int = 0
    # ranges that choose between computed pieces: they are written out, all pieces side by side
    written: set[UOp] = field(default_factory=set)
    # values that are unpacked panel by panel, which nothing else may stage rows beside
    panels: list[UOp] = field(default_factory=list)

    def new_index(self, shape: tuple[Any, ...], kind: AxisType) -> Index:
        """Fresh ranges over a shape; axes of size 1 need none."""
        result: list[UOp] = []
        for size in shape:
            if isinstance(size, int) and size == 1:
                result.append(ZERO)
                continue
            result.append(UOp.range(size, self.next_number, kind))
            self.next_number += 1
        return tuple(result)

    def open(self, shape: tuple[Any, ...], tiles: dict[int, int] | None = None) -> None:
        """Give the root its output ranges: two for an axis that is computed in tiles."""
        tiles = tiles or {}
        index: list[UOp] = []
        ranges: list[UOp] = []
        for axis, size in enumerate(shape):
            tile = tiles.get(axis, size)
            if tile is size:
                index += self.new_index((size,), AxisType.LOOP)
                ranges += [] if index[-1] is ZERO else [index[-1]]
                continue
            pair = self.new_index((size // tile, tile), AxisType.LOOP)
            index.append((pair[0] * tile + pair[1]).simplify())
            ranges += [part for part in pair if part is not ZERO]
        self.index, self.ranges = tuple(index), tuple(ranges)


@dataclass(frozen=True, eq=False, slots=True)
class Demand:
    """One use of a value: in which kernel, which element, under which condition, inside which
    loops."""

    draft: Draft
    index: Index
    valid: UOp | None
    loops: frozenset[UOp]  # the ranges open where the value is used
    inside: bool = False  # of a reduction with reuse
    unpacked: bool = False  # for a value that is larger than all it is made of
    summed: bool = False  # by an addition, as it is
    is_factor: bool = False  # of products that an addition sums up

    @property
    def key(self) -> tuple[Any, ...]:
        """Uses with equal keys are one computation."""
        return (id(self.draft), self.index, self.valid)

    @property
    def depends(self) -> frozenset[UOp]:
        """The ranges the element's position depends on."""
        found: frozenset[UOp] = frozenset()
        for position in self.index:
            found = found | position.ranges
        return found if self.valid is None else found | self.valid.ranges

    def at(self, index: Index, valid: UOp | None) -> Demand:
        """The same of another element."""
        # thousands of them are made: without what `replace` has to find out each time
        return Demand(
            self.draft,
            index,
            valid,
            self.loops,
            self.inside,
            self.unpacked,
            self.summed,
            self.is_factor,
        )

    def below(self, op: Ops) -> Demand:
        """What an op asks for in turn: only a product of what is summed up has factors."""
        if not self.summed and not self.is_factor:
            return self
        return replace(self, summed=False, is_factor=self.summed and op is Ops.MUL)
