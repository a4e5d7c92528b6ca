"""Opt: one optimisation of a kernel as a value that can be named, stored and applied again.

In: nothing. Out: `OptOps` (which action), `Opt` (action, axis, argument) and `OptError` (a
refusal). First file of the optimiser; the search keeps lists of these, and a kernel carries those
applied to it.
Invariant: an Opt holds plain values only, so it is hashable and can be written to a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from weft.errors import WeftError

# an axis is named by its number (a tuple, longer after splits), or by its place among all axes
AxisName = int | tuple[int, ...] | None


class OptOps(Enum):
    """The actions; `actions.py` shows each one before -> after."""

    SPLIT = auto()  # an axis in two
    SWAP = auto()  # two output axes change places
    MERGE = auto()  # two axes that are always used together become one
    UPCAST = auto()  # part of an output axis in registers
    UNROLL = auto()  # part of a reduce axis written out
    VECTOR = auto()  # part of an axis as lanes
    BLOCK = auto()  # a reduction in two levels
    THREAD = auto()  # output axes shared by the cores
    LOCAL = auto()  # part of an output axis over the threads of a group
    GROUP = auto()  # part of a reduce axis over the threads of a group
    STAGE = auto()  # a value copied to fast memory
    SWEEP = auto()  # sums of many outputs side by side in fast memory, the reduced loops outside
    KEEP = auto()  # a row of costly values computed once for several loops
    PADTO = auto()  # an axis made longer, the rest masked
    TC = auto()  # a fragment of a tensor core
    PREFIX = auto()  # an output axis whose reductions over the elements before a group does once
    CHAIN = auto()  # fragments of products, and of products of these

    def __repr__(self) -> str:
        return f"OptOps.{self.name}"

    # members are singletons, and hashing by identity is several times faster than Enum's own
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Opt:
    """One action on one axis. What `arg` is depends on the action: mostly a size."""

    op: OptOps
    axis: AxisName = None
    arg: int | tuple[int | tuple[int, ...], ...] | None = None

    def __repr__(self) -> str:
        return f"Opt(op={self.op!r}, axis={self.axis!r}, arg={self.arg!r})"


class OptError(WeftError, ValueError):
    """An optimisation that is not legal for this kernel, or not possible on this target."""
