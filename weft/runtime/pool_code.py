"""The native code of the pool: the loop of the workers, waking and joining, as LLVM IR.

In: nothing. Out: the text, with places for what differs between machines, and where the fields of
its state are. Used by `pool`, which compiles it with `pool_interrupts` and makes the threads.
Invariant: the text and the offsets here describe the same memory.
"""

from __future__ import annotations

# The state of a pool, in cache lines of their own where several threads write:
#   0 fn   8 args   16 size   24 slices   32 limit (i32, helpers allowed in)   36 stop (i32)
#   40 spin (i32)   44 placed (i32): threads in the last row   48 busy (i32)
#   52 the caller's core (i32)   56 share (i64): what part of the slices left a claim takes
#   64 claimed (i64): slices claimed from the front (low half) and from the back (high half)
#   128 gate (i64): low half = open bit (31) + workers inside, high half = generation of the region
#   192 sleepers (i32)   196 joiner (i32): whether the caller sleeps on the gate
#   256 cores the process may use, one bit each   384 the workers' pthread_t, as many as are placed
# All targets are little-endian: the generation is the i32 at 132.
SPIN, PLACED, CALLER_CORE, CORES, HANDLES = 40, 44, 52, 256, 384
CORES_BYTES = 128
# Placing takes a system call a worker. On large machines the scheduler finds idle cores by itself.
MOST_PLACED = 16
STATE_BYTES = HANDLES + 8 * MOST_PLACED

IR = """
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @pthread_self()
declare i32 @pthread_kill(i64, i32)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @_setjmp(ptr) returns_twice
declare void @longjmp(ptr, i32) noreturn
{declare_pause}

define internal void @pause() {{
  {call_pause}
  ret void
}}

define internal void @sleep_while_equal(ptr %word, i32 %value) {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 128, i32 %value, ptr null)
  ret void
}}

define internal void @wake(ptr %word, i32 %count) {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 129, i32 %count)
  ret void
}}

; Keeps the workers off the caller's core when the caller has moved. The kernel likes to wake a
; thread where its waker runs; there it waits for milliseconds behind the work it should share.
define internal void @place_workers(ptr %state) {{
entry:
  %without = alloca [16 x i64], align 8
  %core = call i32 @sched_getcpu()
  %core.p = getelementptr i8, ptr %state, i64 52
  %known = load i32, ptr %core.p
  %same = icmp eq i32 %core, %known
  %outside = icmp ugt i32 %core, 1023
  %nothing = or i1 %same, %outside
  br i1 %nothing, label %done, label %moved
moved:
  store i32 %core, ptr %core.p
  %cores.p = getelementptr i8, ptr %state, i64 256
  %cores = load <16 x i64>, ptr %cores.p, align 8
  store <16 x i64> %cores, ptr %without, align 8
  %core.wide = zext i32 %core to i64
  %word.index = lshr i64 %core.wide, 6
  %bit.index = and i64 %core.wide, 63
  %bit = shl i64 1, %bit.index
  %others = xor i64 %bit, -1
  %word.p = getelementptr i64, ptr %without, i64 %word.index
  %word = load i64, ptr %word.p
  %word.less = and i64 %word, %others
  store i64 %word.less, ptr %word.p
  %placed.p = getelementptr i8, ptr %state, i64 44
  %placed = load i32, ptr %placed.p
  %handles.p = getelementptr i8, ptr %state, i64 384
  br label %test
test:
  %i = phi i32 [ 0, %moved ], [ %i.next, %place ]
  %more = icmp slt i32 %i, %placed
  br i1 %more, label %place, label %done
place:
  %handle.p = getelementptr i64, ptr %handles.p, i32 %i
  %handle = load i64, ptr %handle.p
  %r = call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %without)
  %i.next = add i32 %i, 1
  br label %test
done:
  ret void
}}

; Claims slices until none is left: the caller (side 0) from the first on, helpers (side 32: the
; upper half of the word) from the last on. So a core meets the same part of a tensor in kernel
; after kernel, still in its cache. A claim takes half a thread's share of what is left: large
; pieces first, small ones at the end, where they even out a slow core (guided self-scheduling,
; Polychronopoulos and Kuck 1987).
define internal void @work(ptr %state, i64 %side) {{
entry:
  %fn = load ptr, ptr %state
  %args.p = getelementptr i8, ptr %state, i64 8
  %args = load ptr, ptr %args.p
  %size.p = getelementptr i8, ptr %state, i64 16
  %size = load i64, ptr %size.p
  %slices.p = getelementptr i8, ptr %state, i64 24
  %slices = load i64, ptr %slices.p
  %share.p = getelementptr i8, ptr %state, i64 56
  %share = load i64, ptr %share.p
  %from.end = icmp ne i64 %side, 0
  %claimed.p = getelementptr i8, ptr %state, i64 64
  %claimed.first = load atomic i64, ptr %claimed.p monotonic, align 8
  br label %claim
claim:
  %claimed = phi i64 [ %claimed.first, %entry ], [ %claimed.now, %lost ], [ %claimed.next, %call ]
  %low = and i64 %claimed, 4294967295
  %high = lshr i64 %claimed, 32
  %taken = add i64 %low, %high
  %rest = sub i64 %slices, %taken
  %left = icmp sgt i64 %rest, 0
  br i1 %left, label %try, label %done
try:
  %part = udiv i64 %rest, %share
  %count = call i64 @llvm.smax.i64(i64 %part, i64 1)
  %step = shl i64 %count, %side
  %more = add i64 %claimed, %step
  %swap = cmpxchg ptr %claimed.p, i64 %claimed, i64 %more monotonic monotonic
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %won, label %call, label %lost
lost:
  %claimed.now = extractvalue {{ i64, i1 }} %swap, 0
  br label %claim
call:
  %end.back = sub i64 %slices, %high
  %begin.back = sub i64 %end.back, %count
  %first = select i1 %from.end, i64 %begin.back, i64 %low
  %next = add i64 %first, %count
  ; Slices of equal size, or one more: a short one at the end would leave the others too long.
  %begin.share = mul i64 %first, %size
  %begin = udiv i64 %begin.share, %slices
  %end.share = mul i64 %next, %size
  %end = udiv i64 %end.share, %slices
  call void %fn(ptr %args, i64 %begin, i64 %end)
  %claimed.next = load atomic i64, ptr %claimed.p monotonic, align 8
  br label %claim
done:
  ret void
}}

define ptr @weft_pool_worker(ptr %state) {{
entry:
  ; where it stands when it is told to stop: a flag, then a jump buffer
  %place = alloca [{place_words} x i64], align 64
  store volatile i64 0, ptr %place
  %jump.p = getelementptr i64, ptr %place, i64 8
  %key.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_key}
  %key = load i32, ptr %key.p
  %known = call i32 @pthread_setspecific(i32 %key, ptr %place)
  %limit.p = getelementptr i8, ptr %state, i64 32
  %stop.p = getelementptr i8, ptr %state, i64 36
  %spin.p = getelementptr i8, ptr %state, i64 40
  %gate.p = getelementptr i8, ptr %state, i64 128
  %generation.p = getelementptr i8, ptr %state, i64 132
  %sleepers.p = getelementptr i8, ptr %state, i64 192
  %joiner.p = getelementptr i8, ptr %state, i64 196
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %enter ], [ %now, %open ], [ %now, %leave ],
                  [ %now, %wake.caller ], [ %now, %last ]
  %spin = load i32, ptr %spin.p
  br label %spinning
spinning:
  %i = phi i32 [ 0, %idle ], [ %i.next, %spin.more ]
  %now.spin = load atomic i32, ptr %generation.p acquire, align 4
  %is.new = icmp ne i32 %now.spin, %seen
  br i1 %is.new, label %awake, label %spin.check
spin.check:
  %spin.left = icmp slt i32 %i, %spin
  br i1 %spin.left, label %spin.more, label %sleep
spin.more:
  call void @pause()
  %i.next = add i32 %i, 1
  br label %spinning
sleep:
  %s0 = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  call void @sleep_while_equal(ptr %generation.p, i32 %seen)
  %s1 = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  %now.sleep = load atomic i32, ptr %generation.p acquire, align 4
  %still = icmp eq i32 %now.sleep, %seen
  br i1 %still, label %sleep, label %awake
awake:
  %now = phi i32 [ %now.spin, %spinning ], [ %now.sleep, %sleep ]
  %stop = load atomic i32, ptr %stop.p acquire, align 4
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %end, label %enter
enter:
  ; A region that closed in the meantime, or has enough helpers, is none of our business.
  %gate = load atomic i64, ptr %gate.p acquire, align 8
  %open.bit = and i64 %gate, 2147483648
  %is.open = icmp ne i64 %open.bit, 0
  br i1 %is.open, label %open, label %idle
open:
  %limit = load atomic i32, ptr %limit.p monotonic, align 4
  %gate.low = trunc i64 %gate to i32
  %inside = and i32 %gate.low, 2147483647
  %has.room = icmp slt i32 %inside, %limit
  br i1 %has.room, label %try, label %idle
try:
  %more = add i64 %gate, 1
  %swap = cmpxchg ptr %gate.p, i64 %gate, i64 %more seq_cst seq_cst
  %entered = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %entered, label %inside.region, label %enter
inside.region:
  %stopped = call i32 @_setjmp(ptr %jump.p) returns_twice
  %goes.on = icmp eq i32 %stopped, 0
  br i1 %goes.on, label %working, label %leave
working:
  store volatile i64 1, ptr %place
  call void @work(ptr %state, i64 32)
  store volatile i64 0, ptr %place
  br label %leave
leave:
  %before = atomicrmw sub ptr %gate.p, i64 1 seq_cst
  %before.low = trunc i64 %before to i32
  ; 1: closed, and we were the last inside.
  %was.last = icmp eq i32 %before.low, 1
  br i1 %was.last, label %last, label %idle
last:
  %joiner = load atomic i32, ptr %joiner.p seq_cst, align 4
  %caller.sleeps = icmp ne i32 %joiner, 0
  br i1 %caller.sleeps, label %wake.caller, label %idle
wake.caller:
  call void @wake(ptr %gate.p, i32 1)
  br label %idle
end:
  ret ptr null
}}

; Opens a region of fn over [0, size) to the workers. Safe from any thread, native ones too: who
; finds it busy, or has nothing to share, has to work alone.
define internal i1 @open(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads) {{
entry:
  %parallel.size = icmp sgt i64 %size, 1
  %parallel.threads = icmp sgt i32 %threads, 1
  %parallel = and i1 %parallel.size, %parallel.threads
  br i1 %parallel, label %lock, label %alone
lock:
  %busy.p = getelementptr i8, ptr %state, i64 48
  %lock.swap = cmpxchg ptr %busy.p, i32 0, i32 1 acquire monotonic
  %locked = extractvalue {{ i32, i1 }} %lock.swap, 1
  br i1 %locked, label %open, label %alone
alone:
  ret i1 false
open:
  call void @place_workers(ptr %state)
  %args.p = getelementptr i8, ptr %state, i64 8
  %size.p = getelementptr i8, ptr %state, i64 16
  %slices.p = getelementptr i8, ptr %state, i64 24
  %limit.p = getelementptr i8, ptr %state, i64 32
  %share.p = getelementptr i8, ptr %state, i64 56
  %claimed.p = getelementptr i8, ptr %state, i64 64
  %gate.p = getelementptr i8, ptr %state, i64 128
  %generation.p = getelementptr i8, ptr %state, i64 132
  %sleepers.p = getelementptr i8, ptr %state, i64 192
  ; Fine enough that nobody waits for more than a thirty-second of a thread's work, and no more
  ; than about eight claims a thread.
  %threads.wide = zext i32 %threads to i64
  %parts = mul i64 %threads.wide, 32
  %slices = call i64 @llvm.smin.i64(i64 %size, i64 %parts)
  %slices.last = sub i64 %slices, 1
  %share = mul i64 %threads.wide, 2
  %helpers.all = sub i64 %threads.wide, 1
  %useful = call i64 @llvm.smin.i64(i64 %slices.last, i64 %helpers.all)
  %helpers = trunc i64 %useful to i32
  store ptr %fn, ptr %state
  store ptr %args, ptr %args.p
  store i64 %size, ptr %size.p
  store i64 %slices, ptr %slices.p
  store i64 %share, ptr %share.p
  store atomic i32 %helpers, ptr %limit.p monotonic, align 4
  store atomic i64 0, ptr %claimed.p monotonic, align 8
  ; The next generation, open: 2^32 + 2^31.
  %g = atomicrmw add ptr %gate.p, i64 6442450944 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %any.sleeps = icmp ne i32 %sleepers, 0
  br i1 %any.sleeps, label %wake.workers, label %opened
wake.workers:
  call void @wake(ptr %generation.p, i32 %helpers)
  br label %opened
opened:
  ret i1 true
}}

; The caller's share of an open region, until all of it is done.
define internal void @close(ptr %state, ptr %phase) {{
entry:
  %spin.p = getelementptr i8, ptr %state, i64 40
  %busy.p = getelementptr i8, ptr %state, i64 48
  %gate.p = getelementptr i8, ptr %state, i64 128
  %joiner.p = getelementptr i8, ptr %state, i64 196
  store volatile i64 2, ptr %phase
  call void @work(ptr %state, i64 0)
  ; Closing keeps late workers out, so that nobody waits for one that has not even woken up.
  %closed.from = atomicrmw and ptr %gate.p, i64 -2147483649 seq_cst
  %spin = load i32, ptr %spin.p
  br label %join
join:
  %i = phi i32 [ 0, %entry ], [ %i.next, %join.more ]
  %low = load atomic i32, ptr %gate.p seq_cst, align 8
  %empty = icmp eq i32 %low, 0
  br i1 %empty, label %finish, label %join.wait
join.wait:
  %spin.left = icmp slt i32 %i, %spin
  br i1 %spin.left, label %join.more, label %join.sleep
join.more:
  call void @pause()
  %i.next = add i32 %i, 1
  br label %join
join.sleep:
  store atomic i32 1, ptr %joiner.p seq_cst, align 4
  %low.again = load atomic i32, ptr %gate.p seq_cst, align 8
  %empty.again = icmp eq i32 %low.again, 0
  br i1 %empty.again, label %join.end, label %join.futex
join.futex:
  call void @sleep_while_equal(ptr %gate.p, i32 %low.again)
  br label %join.sleep
join.end:
  store atomic i32 0, ptr %joiner.p seq_cst, align 4
  br label %finish
finish:
  store volatile i64 0, ptr %phase
  store atomic i32 0, ptr %busy.p release, align 4
  ret void
}}

; Runs fn over [0, size). The phase says what an interrupt finds: 0 nothing that can be left, 1 a
; kernel, 2 a region that is open.
define internal void @run(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads, ptr %phase) {{
entry:
  %opened = call i1 @open(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads)
  br i1 %opened, label %shared, label %alone
shared:
  call void @close(ptr %state, ptr %phase)
  ret void
alone:
  %has.work = icmp sgt i64 %size, 0
  br i1 %has.work, label %alone.call, label %nothing
alone.call:
  store volatile i64 1, ptr %phase
  call void %fn(ptr %args, i64 0, i64 %size)
  store volatile i64 0, ptr %phase
  br label %nothing
nothing:
  ret void
}}

define void @weft_pool_run(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads) {{
  %phase = alloca i64
  call void @run(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads, ptr %phase)
  ret void
}}

; Runs a table of (fn, args, size) from one row on, one after the other: a replay is one call from
; Python.
define void @weft_pool_run_table(ptr %state, ptr %table, i64 %first, i64 %count, i32 %threads) {{
  %phase = alloca i64
  %stopped = call i32 @run_table(ptr %state, ptr %table, i64 %first, i64 %count, i32 %threads,
                                 ptr %phase)
  ret void
}}

; The same; whether an interrupt that came between two rows stopped it.
define internal i32 @run_table(ptr %state, ptr %table, i64 %first, i64 %count, i32 %threads,
                               ptr %phase) {{
entry:
  %pending.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_pending}
  %row.number.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_row}
  %is.guarded = icmp eq ptr %phase, @weft_pool_interrupts
  br label %test
test:
  %i = phi i64 [ %first, %entry ], [ %i.next, %row ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %done
look:
  br i1 %is.guarded, label %pending, label %row
pending:
  ; before it is asked whether to go on: what is asked may want to know
  store volatile i64 %i, ptr %row.number.p
  %came = load volatile i64, ptr %pending.p
  %is.pending = icmp ne i64 %came, 0
  br i1 %is.pending, label %ask, label %row
ask:
  store volatile i64 0, ptr %pending.p
  %stop = call i32 @ask_python()
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %stopped, label %row
stopped:
  ret i32 1
row:
  %row.p = getelementptr [3 x i64], ptr %table, i64 %i
  %args.p = getelementptr i8, ptr %row.p, i64 8
  %size.p = getelementptr i8, ptr %row.p, i64 16
  %fn = load ptr, ptr %row.p
  %args = load ptr, ptr %args.p
  %size = load i64, ptr %size.p
  call void @run(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads, ptr %phase)
  %i.next = add i64 %i, 1
  br label %test
done:
  ret i32 0
}}

; Runs the first row of a table and opens the second to the workers; whether that is so. The caller
; may do something else before it finishes.
define i32 @weft_pool_begin_table(ptr %state, ptr %table, i32 %threads) {{
  %row.p = getelementptr [3 x i64], ptr %table, i64 1
  %args.p = getelementptr i8, ptr %row.p, i64 8
  %size.p = getelementptr i8, ptr %row.p, i64 16
  call void @weft_pool_run_table(ptr %state, ptr %table, i64 0, i64 1, i32 1)
  %fn = load ptr, ptr %row.p
  %args = load ptr, ptr %args.p
  %size = load i64, ptr %size.p
  %opened = call i1 @open(ptr %state, ptr %fn, ptr %args, i64 %size, i32 %threads)
  %result = zext i1 %opened to i32
  ret i32 %result
}}

; What is left of a table that was begun so.
define void @weft_pool_finish_table(ptr %state, ptr %table, i64 %count, i32 %threads,
                                    i32 %opened) {{
entry:
  %phase = alloca i64
  %is.open = icmp ne i32 %opened, 0
  br i1 %is.open, label %shared, label %rest
shared:
  call void @close(ptr %state, ptr %phase)
  br label %rest
rest:
  %first = phi i64 [ 1, %entry ], [ 2, %shared ]
  call void @weft_pool_run_table(ptr %state, ptr %table, i64 %first, i64 %count, i32 %threads)
  ret void
}}

; Closes a region that was left: no slice is claimed any more, nobody enters. How many are inside.
define i32 @weft_pool_abandon(ptr %state) {{
  %slices.p = getelementptr i8, ptr %state, i64 24
  %claimed.p = getelementptr i8, ptr %state, i64 64
  %gate.p = getelementptr i8, ptr %state, i64 128
  %joiner.p = getelementptr i8, ptr %state, i64 196
  %slices = load i64, ptr %slices.p
  store atomic i64 %slices, ptr %claimed.p seq_cst, align 8
  store atomic i32 0, ptr %joiner.p seq_cst, align 4
  %open = atomicrmw and ptr %gate.p, i64 -2147483649 seq_cst
  %low = load atomic i32, ptr %gate.p seq_cst, align 8
  ret i32 %low
}}

; The workers of a region that was left are free again.
define void @weft_pool_release(ptr %state) {{
  %busy.p = getelementptr i8, ptr %state, i64 48
  store atomic i32 0, ptr %busy.p release, align 4
  ret void
}}

; Ends the workers: they wake up, see the flag and return.
define void @weft_pool_stop(ptr %state) {{
  %stop.p = getelementptr i8, ptr %state, i64 36
  %gate.p = getelementptr i8, ptr %state, i64 128
  %generation.p = getelementptr i8, ptr %state, i64 132
  store atomic i32 1, ptr %stop.p seq_cst, align 4
  %g = atomicrmw add ptr %gate.p, i64 4294967296 seq_cst
  call void @wake(ptr %generation.p, i32 2147483647)
  ret void
}}

; Spins for a while, so that Python can measure how long a pause is on this machine.
define void @weft_pool_calibrate(ptr %args, i64 %begin, i64 %end) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %loop ]
  call void @pause()
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""

PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "riscv64": ("", ""),
}
