"""How quiet the cores are: whether others run on them, which on a virtual machine nobody tells.

In: nothing. Out: how long a piece of work takes that is always the same, and all in registers.
Used where a deviation is of interest rather than a ratio.
Invariant: it says nothing about the code that is timed, so choosing runs by it favours none.

A virtual CPU is often one of two threads of a core. While the other one works, for someone else,
instructions that could begin together wait for each other: everything takes longer, and no time
counts as stolen. Chains of additions feel that; multiply-adds of whole vectors do not.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from weft.runtime.llvm import compile_own, load, usable_cores
from weft.runtime.pool import pool

# additions that can begin together, and rounds of them: over before much else can happen
CHAINS, ROUNDS = 8, 30_000
# how much longer than at its best the work may take on quiet cores
QUIET = 1.05


def _adding() -> str:
    """IR of a kernel that adds in registers, whatever its piece of the work."""
    first = [f"  %a{i} = phi i64 [ {i}, %entry ], [ %b{i}, %round ]" for i in range(CHAINS)]
    body = [
        line
        for i in range(CHAINS)
        for line in (f"  %m{i} = xor i64 %a{i}, {7 * i + 1}", f"  %b{i} = add i64 %m{i}, %i")
    ]
    total = [f"  %s{i} = add i64 %{'s' if i > 1 else 'b'}{i - 1}, %b{i}" for i in range(1, CHAINS)]
    lines = [
        "define void @adding(ptr %args, i64 %begin, i64 %end) {",
        "entry:",
        "  br label %round",
        "round:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %round ]",
        *first,
        *body,
        "  %i.next = add i64 %i, 1",
        f"  %more = icmp slt i64 %i.next, {ROUNDS}",
        "  br i1 %more, label %round, label %done",
        "done:",
        *total,
        "  %place = getelementptr i64, ptr %args, i64 %begin",
        f"  store i64 %s{CHAINS - 1}, ptr %place",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


class Cores:
    """The cores that kernels run on."""

    def __init__(self) -> None:
        self.count = usable_cores()
        self._code = load(compile_own(_adding(), opt_level=1), "adding")
        self._memory = (ctypes.c_int64 * max(1, self.count))()
        self.best = min(self.pace() for _ in range(100))

    def pace(self) -> float:
        """Seconds of the same work on all of them now."""
        started = time.perf_counter()
        pool.run(self._code.address, ctypes.addressof(self._memory), self.count)
        return time.perf_counter() - started


def quietest(paces: Sequence[float], wanted: int, best: float) -> tuple[list[int], bool]:
    """Of runs with these paces the quietest that are wanted, and whether all of them were quiet.

    >>> quietest([1.0, 2.0, 1.01], 2, 1.0), quietest([1.0, 2.0, 1.01], 3, 1.0)
    (([0, 2], True), ([0, 2, 1], False))
    """
    order = sorted(range(len(paces)), key=lambda i: paces[i])[:wanted]
    return order, all([paces[i] <= QUIET * best for i in order])
