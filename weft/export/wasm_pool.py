"""Threads of a WebAssembly export, as LLVM IR: parts of a kernel that several instances share.

In: kernels that are shared, and where the words of the pool are. Out: `pool_run`, which `run` calls
for each of them, and `work`, in which the instance of every worker stays.
Sits under `wasm_code`; the loader starts workers over one shared memory.
Invariant: a part runs once, and all of them have run when `pool_run` returns, however many workers
there are: with none the caller runs them all. The caller never waits (a page's thread may not): it
takes parts as workers do, then spins for those that are still running.
"""

from __future__ import annotations

from collections.abc import Sequence

# words of the pool, by their byte
_LOCK, _ROUND, _NEXT, _TOTAL, _STEP, _KERNEL, _CALL, _RUNNING = range(0, 32, 4)
POOL_BYTES = 64
# looks at the round before a worker sleeps: kernels follow one another within microseconds
_PATIENCE = 4000
# a kernel is cut into so many pieces for each thread, so that one that is late holds up little
_PIECES = 4

DECLARED = (
    "declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)",
    "declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)",
)


def pool_ir(kernels: Sequence[str], at: int, threads: int) -> list[str]:
    """The functions of the pool whose words are at an address."""

    def word(offset: int) -> str:
        return f"ptr inttoptr (i32 {at + offset} to ptr)"

    return [
        *DECLARED,
        *_dispatch(kernels),
        "define internal void @pool_lock() {",
        "entry:",
        "  br label %again",
        "again:",
        f"  %found = cmpxchg {word(_LOCK)}, i32 0, i32 1 seq_cst seq_cst",
        "  %taken = extractvalue { i32, i1 } %found, 1",
        "  br i1 %taken, label %done, label %again",
        "done:",
        "  ret void",
        "}",
        "define internal void @pool_unlock() {",
        f"  store atomic i32 0, {word(_LOCK)} seq_cst, align 4",
        "  ret void",
        "}",
        # takes parts until there are none
        "define internal void @pool_take() noinline {",
        "entry:",
        "  br label %again",
        "again:",
        "  call void @pool_lock()",
        f"  %begin = load i32, {word(_NEXT)}",
        f"  %total = load i32, {word(_TOTAL)}",
        "  %left = icmp slt i32 %begin, %total",
        "  br i1 %left, label %part, label %none",
        "part:",
        f"  %step = load i32, {word(_STEP)}",
        "  %sum = add i32 %begin, %step",
        "  %fits = icmp slt i32 %sum, %total",
        "  %end = select i1 %fits, i32 %sum, i32 %total",
        f"  store i32 %end, {word(_NEXT)}",
        f"  %kernel = load i32, {word(_KERNEL)}",
        f"  %call = load ptr, {word(_CALL)}",
        f"  %before = atomicrmw add {word(_RUNNING)}, i32 1 seq_cst",
        "  call void @pool_unlock()",
        "  %begin64 = zext i32 %begin to i64",
        "  %end64 = zext i32 %end to i64",
        "  call void @pool_part(i32 %kernel, ptr %call, i64 %begin64, i64 %end64)",
        f"  %after = atomicrmw sub {word(_RUNNING)}, i32 1 seq_cst",
        "  br label %again",
        "none:",
        "  call void @pool_unlock()",
        "  ret void",
        "}",
        "define internal void @pool_run(i32 %kernel, ptr %call, i32 %total) noinline {",
        "entry:",
        "  call void @pool_lock()",
        f"  store i32 %kernel, {word(_KERNEL)}",
        f"  store ptr %call, {word(_CALL)}",
        f"  store i32 %total, {word(_TOTAL)}",
        f"  %share = udiv i32 %total, {_PIECES * threads}",
        "  %step = add i32 %share, 1",
        f"  store i32 %step, {word(_STEP)}",
        f"  store i32 0, {word(_NEXT)}",
        "  call void @pool_unlock()",
        f"  %round = atomicrmw add {word(_ROUND)}, i32 1 seq_cst",
        f"  %woken = call i32 @llvm.wasm.memory.atomic.notify({word(_ROUND)}, i32 -1)",
        "  call void @pool_take()",
        "  br label %again",
        "again:",
        f"  %running = load atomic i32, {word(_RUNNING)} seq_cst, align 4",
        "  %busy = icmp ne i32 %running, 0",
        "  br i1 %busy, label %again, label %done",
        "done:",
        "  ret void",
        "}",
        # the round is read before parts are looked for, so none that comes after is slept through
        "define void @work() {",
        "entry:",
        "  br label %again",
        "again:",
        f"  %seen = load atomic i32, {word(_ROUND)} seq_cst, align 4",
        "  call void @pool_take()",
        "  br label %look",
        "look:",
        "  %looks = phi i32 [ 0, %again ], [ %more, %still ]",
        f"  %now = load atomic i32, {word(_ROUND)} seq_cst, align 4",
        "  %same = icmp eq i32 %now, %seen",
        "  br i1 %same, label %still, label %again",
        "still:",
        "  %more = add i32 %looks, 1",
        f"  %patient = icmp ult i32 %more, {_PATIENCE}",
        "  br i1 %patient, label %look, label %sleep",
        "sleep:",
        f"  %w = call i32 @llvm.wasm.memory.atomic.wait32({word(_ROUND)}, i32 %seen, i64 -1)",
        "  br label %again",
        "}",
    ]


def _dispatch(kernels: Sequence[str]) -> list[str]:
    """The kernel of a number, over a part of its outermost axis."""
    cases = " ".join(f"i32 {n}, label %kernel{n}" for n in range(len(kernels)))
    lines = [
        "define internal void @pool_part(i32 %kernel, ptr %call, i64 %begin, i64 %end) noinline {",
        "entry:",
        f"  switch i32 %kernel, label %none [ {cases} ]",
    ]
    for number, name in enumerate(kernels):
        lines += [
            f"kernel{number}:",
            f"  call void @{name}(ptr %call, i64 %begin, i64 %end)",
            "  ret void",
        ]
    return [*lines, "none:", "  ret void", "}"]
