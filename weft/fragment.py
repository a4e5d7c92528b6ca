"""Fragment: a small product of matrices that the lanes of a warp compute together.

In: what a machine's manual says of one instruction. Out: `Fragment`, a frozen description: its
size, its dtypes, and for each operand which element each lane holds in which register. Beside the
target, which lists its fragments; the optimiser, the renderers and the interpreter read the same
maps.
Invariant: a map is made of digits. The number of a lane and the number of a register are taken
apart into digits, the slowest first, and each digit moves the element along rows and columns.

    C of 16x8, lane 4*g + t, register 0 to 3: row g + 8*(register//2), column 2*t + register%2
    lanes      Digit(8, row=1), Digit(4, column=2)
    registers  Digit(2, row=8), Digit(2, column=1)

Maps whose lanes hold an element twice (a digit that moves nothing) are maps as well, as are those
of warps of 64 lanes, so that other vendors' instructions are described the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.dtype import DType
from weft.helpers import prod

# bytes of a swizzled row, and rows after which its pattern repeats: 16 bytes that are numbered c in
# row r of memory lie where c ^ (r % 8) would
SWIZZLED_BYTES, SWIZZLED_ROWS = 128, 8


@dataclass(frozen=True)
class Digit:
    """One digit of a lane's or a register's number: how many values, and what a step moves."""

    size: int
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class OperandMap:
    """Which element of an operand a lane has in a register."""

    lanes: tuple[Digit, ...]
    registers: tuple[Digit, ...]

    @property
    def count(self) -> int:
        """Registers of a lane, one for each element."""
        return prod(digit.size for digit in self.registers)

    @property
    def lane_count(self) -> int:
        return prod(digit.size for digit in self.lanes)

    def place(self, lane: Any, register: Any) -> tuple[Any, Any]:
        """(row, column) of the element; of numbers, or of index expressions."""
        row: Any = 0
        column: Any = 0
        for digits, number in ((self.lanes, lane), (self.registers, register)):
            inner = prod(digit.size for digit in digits)
            for position, digit in enumerate(digits):
                inner //= digit.size
                value = number // inner if inner > 1 else number
                value = value % digit.size if position else value
                row = row + value * digit.row if digit.row else row
                column = column + value * digit.column if digit.column else column
        return row, column


# the map of an operand that no lane holds
NOT_HELD = OperandMap((), ())


@dataclass(frozen=True)
class Fragment:
    """C[m, n] + A[m, k] @ B[k, n], in one or more instructions of a warp."""

    name: str  # the instruction, as the renderer prints it
    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    a: OperandMap
    b: OperandMap
    c: OperandMap
    # instructions, each of a part of B's and C's registers, in order; where operands are in shared
    # memory, each of a part of the terms
    repeats: int = 1
    # whether products are of the operands as they are; else these are rounded first, and cut where
    # they are in shared memory
    exact: bool = True
    # whether the instruction reads operands out of shared memory by itself, and goes on by itself
    # until the lanes settle it; they have no maps then, and lie there in swizzled rows
    in_shared: bool = False
    # whether neighbours there may also be along rows of A and columns of B, not along terms
    takes_turned: bool = False
    # products of 32-bit words that a core begins in a cycle, and bytes of shared memory that its
    # warps read for them in a cycle
    rate: float = 736.0
    read_bytes: float = 92.0

    @property
    def lanes(self) -> int:
        """Lanes of the warp, or of several warps, that it needs."""
        return self.c.lane_count
