"""How Ctrl-C leaves a kernel: the native code of the pool's interrupts, as LLVM IR.

In: nothing. Out: the text, to be compiled behind that of `pool_code`, and the words that it shares
with Python.
Invariant: the text and the words here describe the same memory.
"""

from __future__ import annotations

import signal

IR = """
; What a guarded call and the handler of its interrupts share: see `WORDS` below.
@weft_pool_interrupts = global [{interrupt_words} x i64] zeroinitializer, align 64

; Runs Python's handlers of signals; whether one of them raised something, which is kept.
define internal i32 @ask_python() {{
entry:
  %ensure.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_ensure}
  %check.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_check}
  %fetch.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_fetch}
  %release.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_release}
  %ensure = load ptr, ptr %ensure.p
  %check = load ptr, ptr %check.p
  %fetch = load ptr, ptr %fetch.p
  %release = load ptr, ptr %release.p
  %lock = call i32 %ensure()
  %raised = call i32 %check()
  %has.raised = icmp ne i32 %raised, 0
  br i1 %has.raised, label %keep, label %done
keep:
  %type.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_error}
  %value.p = getelementptr i64, ptr %type.p, i64 1
  %traceback.p = getelementptr i64, ptr %type.p, i64 2
  call void %fetch(ptr %type.p, ptr %value.p, ptr %traceback.p)
  br label %done
done:
  call void %release(i32 %lock)
  ret i32 %raised
}}

; SIGINT, while a guarded table runs. Kernels hold no locks and allocate nothing, so one can be
; left where it stands; before that Python's handlers decide, as between two of its instructions.
define void @weft_pool_on_interrupt(i32 %signal, ptr %info, ptr %context) {{
entry:
  %self = call i64 @pthread_self()
  %thread.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_thread}
  %thread = load volatile i64, ptr %thread.p
  %is.ours = icmp eq i64 %self, %thread
  br i1 %is.ours, label %ours, label %other
other:
  %sent = call i32 @pthread_kill(i64 %thread, i32 %signal)
  ret void
ours:
  ; Python's handler in C: it notes that there is something to do
  %before.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_before}
  %before = load ptr, ptr %before.p
  call void %before(i32 %signal, ptr %info, ptr %context)
  %phase = load volatile i64, ptr @weft_pool_interrupts
  %can.leave = icmp ne i64 %phase, 0
  br i1 %can.leave, label %ask, label %wait
wait:
  %pending.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_pending}
  store volatile i64 1, ptr %pending.p
  ret void
ask:
  store volatile i64 0, ptr @weft_pool_interrupts
  %stop = call i32 @ask_python()
  ; a handler may have set another one
  %action.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_action}
  %now.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_now}
  %set = call i32 @sigaction(i32 %signal, ptr %action.p, ptr %now.p)
  %now = load ptr, ptr %now.p
  %is.same = icmp eq ptr %now, @weft_pool_on_interrupt
  br i1 %is.same, label %decide, label %changed
changed:
  %action.before = load [{action_words} x i64], ptr %now.p
  store [{action_words} x i64] %action.before, ptr %before.p
  br label %decide
decide:
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %leave, label %go.on
leave:
  %left.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_left}
  store volatile i64 %phase, ptr %left.p
  %jump.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_jump}
  call void @longjmp(ptr %jump.p, i32 1)
  unreachable
go.on:
  store volatile i64 %phase, ptr @weft_pool_interrupts
  ret void
}}

; Runs a table that Ctrl-C can stop; what was left then: 0 nothing, all is done, 1 a kernel, 2 a
; region that is still open.
define i64 @weft_pool_run_guarded(ptr %state, ptr %table, i64 %count, i32 %threads) {{
entry:
  %self = call i64 @pthread_self()
  %thread.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_thread}
  %pending.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_pending}
  %before.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_before}
  %action.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_action}
  %jump.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_jump}
  %left.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_left}
  store volatile i64 %self, ptr %thread.p
  store volatile i64 0, ptr %pending.p
  store volatile i64 0, ptr %left.p
  ; a table that is stopped between two rows leaves nothing but what it has not begun
  %asked = call i32 @sigaction(i32 {interrupt}, ptr null, ptr %before.p)
  %handler = load i64, ptr %before.p
  ; the default ends the process, and who ignores it wants no end: neither is Python's
  %is.handled = icmp ugt i64 %handler, 1
  br i1 %is.handled, label %guard, label %plain
plain:
  call void @weft_pool_run_table(ptr %state, ptr %table, i64 0, i64 %count, i32 %threads)
  ret i64 0
guard:
  %set = call i32 @sigaction(i32 {interrupt}, ptr %action.p, ptr null)
  %jumped = call i32 @_setjmp(ptr %jump.p) returns_twice
  %is.first = icmp eq i32 %jumped, 0
  br i1 %is.first, label %go, label %stopped
go:
  %between = call i32 @run_table(ptr %state, ptr %table, i64 0, i64 %count, i32 %threads,
                                 ptr @weft_pool_interrupts)
  %between.wide = zext i32 %between to i64
  %reset = call i32 @sigaction(i32 {interrupt}, ptr %before.p, ptr null)
  ret i64 %between.wide
stopped:
  %reset.stopped = call i32 @sigaction(i32 {interrupt}, ptr %before.p, ptr null)
  %left = load volatile i64, ptr %left.p
  ret i64 %left
}}

; Tells a worker to leave the kernel that it runs.
define void @weft_pool_on_stop(i32 %signal) {{
entry:
  %key.p = getelementptr i64, ptr @weft_pool_interrupts, i64 {word_key}
  %key = load i32, ptr %key.p
  %place = call ptr @pthread_getspecific(i32 %key)
  %is.worker = icmp ne ptr %place, null
  br i1 %is.worker, label %worker, label %nothing
worker:
  %works = load volatile i64, ptr %place
  %is.working = icmp ne i64 %works, 0
  br i1 %is.working, label %leave, label %nothing
leave:
  store volatile i64 0, ptr %place
  %jump.p = getelementptr i64, ptr %place, i64 8
  call void @longjmp(ptr %jump.p, i32 1)
  unreachable
nothing:
  ret void
}}
"""

# The words of `weft_pool_interrupts`: the phase of a guarded call, the thread that makes it, a
# signal that came in no phase, the phase that was left, the key under which workers keep their
# place, four functions of Python, what it raised (three words), the row of the table that runs (or
# is next: a signal between two rows), `struct sigaction`s (ours, the one
# before, the one that is set now), a jump buffer. The layouts are Linux's on the machines above.
ACTION_WORDS = 19
JUMP_WORDS = 64
WORDS = {
    "thread": 1,
    "pending": 2,
    "left": 3,
    "key": 4,
    "ensure": 5,
    "check": 6,
    "fetch": 7,
    "release": 8,
    "error": 9,
    "row": 12,
    "action": 16,
    "before": 40,
    "now": 64,
    "jump": 96,
}
INTERRUPT_WORDS = WORDS["jump"] + JUMP_WORDS
PYTHON_FUNCTIONS = {
    "ensure": "PyGILState_Ensure",
    "check": "PyErr_CheckSignals",
    "fetch": "PyErr_Fetch",
    "release": "PyGILState_Release",
}
FLAGS_OFFSET = 136
# SA_SIGINFO, and SA_NODEFER: a jump out of a handler leaves no signal blocked
INTERRUPT_FLAGS, STOP_FLAGS = 0x40000004, 0x40000000
# Sent to workers. Whoever does not expect it ignores it; Go's runtime uses it to the same end.
STOP_SIGNAL = getattr(signal, "SIGURG", 0)
