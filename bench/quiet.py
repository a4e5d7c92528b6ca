"""How quiet the cores are: whether others use them too, which on a virtual machine nobody tells.

In: nothing. Out: how much longer than at its best work takes that is always the same: additions in
registers, and reading what lies in the cache that cores share. Used where a deviation is of
interest rather than a ratio.
Invariant: it says nothing about the code that is timed, so choosing runs by it favours none.

A virtual CPU is often one of two threads of a core. While the other one works, for someone else,
instructions that could begin together wait for each other: chains of additions feel that, while
multiply-adds of whole vectors do not. The last cache belongs to more cores than those that are
lent; what others do there only readers feel. And no time counts as stolen.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy

from weft.runtime.llvm import compile_own, load, usable_cores
from weft.runtime.pool import pool

# values of a loop that do not wait for each other
CHAINS = 8
# rounds of additions: over before much else can happen
ADDED_ROUNDS = 30_000
# bytes that each core reads: more than fits into a cache of its own, less than what is shared
READ_BYTES, VECTOR_BYTES = 4 << 20, 64
# how much longer than at its best the work may take on quiet cores
QUIET = 1.06


def _loop(name: str, dtype: str, rounds: int, body: list[str]) -> str:
    """IR of a kernel with one loop, in which a0, a1 ... become b0, b1 ...

    Its argument is memory, of which piece `begin` is its own.
    """
    chains = range(CHAINS)
    first = [
        f"  %a{i} = phi {dtype} [ zeroinitializer, %entry ], [ %b{i}, %round ]" for i in chains
    ]
    total = [f"  %s{i} = add {dtype} %{'s' if i > 1 else 'b'}{i - 1}, %b{i}" for i in chains if i]
    lines = [
        f"define void @{name}(ptr %args, i64 %begin, i64 %end) {{",
        "entry:",
        "  %memory = load ptr, ptr %args",
        f"  %offset = mul i64 %begin, {READ_BYTES}",
        "  %own = getelementptr i8, ptr %memory, i64 %offset",
        "  br label %round",
        "round:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %round ]",
        *first,
        *body,
        "  %i.next = add i64 %i, 1",
        f"  %more = icmp slt i64 %i.next, {rounds}",
        "  br i1 %more, label %round, label %done",
        "done:",
        *total,
        f"  store {dtype} %s{CHAINS - 1}, ptr %own, align {VECTOR_BYTES}",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _adding() -> str:
    body = [
        line
        for i in range(CHAINS)
        for line in (f"  %m{i} = xor i64 %a{i}, {7 * i + 1}", f"  %b{i} = add i64 %m{i}, %i")
    ]
    return _loop("adding", "i64", ADDED_ROUNDS, body)


def _reading() -> str:
    dtype, step = f"<{VECTOR_BYTES // 8} x i64>", CHAINS * VECTOR_BYTES
    body = [f"  %at = mul i64 %i, {step}", "  %here = getelementptr i8, ptr %own, i64 %at"]
    for i in range(CHAINS):
        body += [
            f"  %p{i} = getelementptr i8, ptr %here, i64 {i * VECTOR_BYTES}",
            f"  %x{i} = load {dtype}, ptr %p{i}, align {VECTOR_BYTES}",
            f"  %b{i} = add {dtype} %a{i}, %x{i}",
        ]
    return _loop("reading", dtype, READ_BYTES // step, body)


Pace = tuple[float, ...]  # seconds of each piece of work


class Cores:
    """The cores that kernels run on."""

    def __init__(self) -> None:
        self.count = usable_cores()
        sources = {"adding": _adding(), "reading": _reading()}
        self._codes = [load(compile_own(text, opt_level=1), name) for name, text in sources.items()]
        self._memory = numpy.zeros(self.count * READ_BYTES + VECTOR_BYTES, numpy.uint8)
        address = self._memory.ctypes.data
        self._arguments = (ctypes.c_int64 * 1)(address + -address % VECTOR_BYTES)
        self.best: Pace = (float("inf"),) * len(self._codes)
        for _ in range(100):
            self.pace()

    def pace(self) -> Pace:
        """Seconds of the same work on all of them now."""
        found = []
        for code in self._codes:
            # once before: what ran there may have taken its place in the cache
            for _ in range(2):
                started = time.perf_counter()
                pool.run(code.address, ctypes.addressof(self._arguments), self.count)
            found.append(time.perf_counter() - started)
        self.best = tuple([min(pair) for pair in zip(self.best, found, strict=True)])
        return tuple(found)

    def noise(self, paces: Sequence[Pace]) -> float:
        """How much longer than at its best any of it took, at its slowest."""
        return max([s / best for pace in paces for s, best in zip(pace, self.best, strict=True)])


def quietest(noises: Sequence[float], wanted: int) -> tuple[list[int], bool]:
    """Of runs with so much noise the quietest that are wanted, and whether all of them were quiet.

    >>> quietest([1.0, 2.0, 1.01], 2), quietest([1.0, 2.0, 1.01], 3)
    (([0, 2], True), ([0, 2, 1], False))
    """
    order = sorted(range(len(noises)), key=lambda i: noises[i])[:wanted]
    return order, all([noises[i] <= QUIET for i in order])
