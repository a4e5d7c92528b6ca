"""What the machine itself can do, as one more framework: it takes its turn in the same rounds.

In: a Case. Out: a step that reads as many bytes as the case has to move, or does as many
multiply-adds as it has to compute, whichever takes longer, on all cores and nothing else.
Sits beside the frameworks, under the name `machine`; its time is the floor of everybody's.
Invariant: the loops are written by hand, so that no compiler of ours is measured with itself.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from bench.frameworks import Prepared
from bench.workloads import Case
from weft.device import Buffer
from weft.dtype import dtypes
from weft.runtime.llvm import compile_own, load, target
from weft.runtime.pool import pool

# vectors that are under way at once: enough to hide what a load or a multiply-add takes
STREAMS, CHAINS = 8, 12
# bytes and rounds of one piece of work; threads take them one after another
PIECE_BYTES, PIECE_ROUNDS = 1 << 16, 1 << 12
# multiply-adds for each byte from which on arithmetic takes longer than reading
BALANCE = 8


def _loop(body: list[str], names: list[str], start: list[str], rounds: int, count: int) -> str:
    """IR of a kernel: for each piece of work, `rounds` times `body` over vectors in registers."""
    kind = f"<{count} x float>"
    phis = [
        f"  %{name} = phi {kind} [ {first}, %piece ], [ %{name}.next, %round ]"
        for name, first in zip(names, start, strict=True)
    ]
    total = [f"  %t{i} = fadd {kind} %t{i - 1}, %{names[i]}.next" for i in range(1, len(names))]
    total[0] = f"  %t1 = fadd {kind} %{names[0]}.next, %{names[1]}.next"
    lines = [
        f"declare {kind} @llvm.fma.v{count}f32({kind}, {kind}, {kind})",
        "define void @ceiling(ptr %args, i64 %begin, i64 %end) {",
        "entry:",
        "  %memory = load ptr, ptr %args",
        "  %out.at = getelementptr i8, ptr %args, i64 8",
        "  %out = load ptr, ptr %out.at",
        "  %any = icmp slt i64 %begin, %end",
        "  br i1 %any, label %piece, label %done",
        "piece:",
        "  %p = phi i64 [ %begin, %entry ], [ %p.next, %after ]",
        f"  %first = mul i64 %p, {PIECE_BYTES}",
        "  %start = getelementptr i8, ptr %memory, i64 %first",
        "  br label %round",
        "round:",
        "  %i = phi i64 [ 0, %piece ], [ %i.next, %round ]",
        *phis,
        *body,
        "  %i.next = add i64 %i, 1",
        f"  %more = icmp slt i64 %i.next, {rounds}",
        "  br i1 %more, label %round, label %after",
        "after:",
        *total,
        f"  store {kind} %t{len(names) - 1}, ptr %out, align 4",
        "  %p.next = add i64 %p, 1",
        "  %again = icmp slt i64 %p.next, %end",
        "  br i1 %again, label %piece, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def reading(count: int) -> str:
    """IR that adds up all that it reads."""
    kind, step = f"<{count} x float>", STREAMS * count * 4
    body = [f"  %at = mul i64 %i, {step}", "  %line = getelementptr i8, ptr %start, i64 %at"]
    names = [f"a{i}" for i in range(STREAMS)]
    for i, name in enumerate(names):
        body += [
            f"  %at{i} = getelementptr i8, ptr %line, i64 {i * count * 4}",
            f"  %x{i} = load {kind}, ptr %at{i}, align 4",
            f"  %{name}.next = fadd {kind} %{name}, %x{i}",
        ]
    return _loop(body, names, ["zeroinitializer"] * STREAMS, PIECE_BYTES // step, count)


def computing(count: int) -> str:
    """IR of independent chains of multiply-adds."""
    kind = f"<{count} x float>"
    values = {name: ", ".join([f"float {x}"] * count) for name, x in (("x", 0.5), ("y", 0.25))}
    names = [f"a{i}" for i in range(CHAINS)]
    body = [
        f"  %{name}.next = call {kind} @llvm.fma.v{count}f32({kind} %{name}, "
        f"{kind} <{values['x']}>, {kind} <{values['y']}>)"
        for name in names
    ]
    return _loop(body, names, ["zeroinitializer"] * CHAINS, PIECE_ROUNDS, count)


def is_bound_by_reading(case: Case) -> bool:
    """Whether a case has to wait for memory rather than for arithmetic."""
    return bool(case.traffic) and case.operations < BALANCE * case.traffic


def prepare(case: Case) -> Prepared:
    """A step that takes as long as the case must take at least."""
    if not case.traffic and not case.operations:
        raise RuntimeError(f"nothing is known about what {case.name} has to move or compute")
    count = max(4, target().vector_bytes // 4)
    reads = is_bound_by_reading(case)
    if reads:
        pieces = int(-(-case.traffic // PIECE_BYTES))
        source, size = reading(count), pieces * PIECE_BYTES // 4
    else:
        pieces = int(-(-case.operations // (2 * CHAINS * count * PIECE_ROUNDS)))
        source, size = computing(count), count
    code = load(compile_own(source, opt_level=2), "ceiling")
    memory = Buffer("CPU", size, dtypes.float32).ensure_allocated()
    ctypes.memset(memory.address, 0, size * 4)
    out = Buffer("CPU", 64, dtypes.float32).ensure_allocated()
    arguments = (ctypes.c_int64 * 2)(memory.address, out.address)

    def step() -> Any:
        pool.run(code.address, ctypes.addressof(arguments), pieces)
        return memory, out, code

    what = "bytes" if reads else "operations"
    amount = case.traffic if reads else case.operations
    return step, lambda _: np.zeros(1, np.float32), lambda: {"bound by": what, "amount": amount}
