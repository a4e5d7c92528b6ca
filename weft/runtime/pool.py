"""Runs a kernel on all cores: native threads that wake in a microsecond.

In: addresses of kernels `void fn(ptr args, i64 begin, i64 end)`, the size of their parallel axis.
Out: the same work done in pieces by the calling thread and the workers. Used by the CPU's runtime.
The loop of the workers, the wake-up and the join are LLVM IR on futexes, and the threads are made
with pthread_create: they hold no GIL state and cannot stop the interpreter from exiting.
Invariant: the fields of a region change only while it is closed and no worker is inside.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.runtime import pool_interrupts
from weft.runtime.llvm import LoadedCode, compile_own, load_all, machine_name, usable_cores
from weft.runtime.pool_code import (
    CALLER_CORE,
    CORES,
    CORES_BYTES,
    HANDLES,
    IR,
    MOST_PLACED,
    PAUSE,
    PLACED,
    SPIN,
    STATE_BYTES,
)
from weft.runtime.pool_interrupts import (
    ACTION_WORDS,
    FLAGS_OFFSET,
    INTERRUPT_FLAGS,
    INTERRUPT_WORDS,
    JUMP_WORDS,
    PYTHON_FUNCTIONS,
    STOP_FLAGS,
    STOP_SIGNAL,
    WORDS,
)
from weft.runtime.python_pool import KernelFunction, PythonPool

_STACK_BYTES = 16 << 20
# Long enough to catch the next call of a jitted function, also where its kernels have left nothing
# of the interpreter in the caches; too short to take a core from anybody. Waking up a sleeping
# thread takes as long as a small kernel.
_SPIN_SECONDS = 150e-6
_FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}


class NativePool:
    """Worker threads that run no Python. Starts on first use, grows on demand, stops at exit.

    Several threads may call `run` at once: one gets the workers, the others work alone. A forked
    child has none of the threads, so it begins anew.
    """

    def __init__(self) -> None:
        self._code: list[LoadedCode] = []
        self._forget_workers()
        os.register_at_fork(after_in_child=self._forget_workers)
        atexit.register(self.stop)

    @staticmethod
    def is_supported() -> bool:
        """Whether there are futexes, and their number is known."""
        return sys.platform == "linux" and machine_name() in _FUTEX_SYSCALL

    def _forget_workers(self) -> None:
        """State of a pool without workers: the one to begin with, and that of a forked child."""
        self._lock = threading.Lock()
        self._threads: list[ctypes.c_ulong] = []
        self._memory = ctypes.create_string_buffer(STATE_BYTES + 64)
        self._state = -(-ctypes.addressof(self._memory) // 64) * 64
        self._stopped = False
        # Thread counts up to this one need no more workers than there are.
        self._ready = 0
        self._is_guarding = False
        self._main = threading.main_thread().ident

    def run(self, function: int, args: int, size: int) -> None:
        """Calls `function(args, begin, end)` over [0, size); returns when all of it is done."""
        threads = usable_cores()
        if threads > self._ready:
            self._start(threads)
        self._run(self._state, function, args, size, threads)

    def run_table(self, table: int, count: int, threads: int) -> None:
        """Runs `count` rows of three 64-bit words (function, args, size), one after the other."""
        if threads > self._ready:
            self._start(threads)
        self._run_table(self._state, table, 0, count, threads)

    @property
    def is_prepared(self) -> bool:
        """Whether a call needs no code to be made first."""
        return bool(self._code)

    def run_guarded(self, table: int, count: int, threads: int) -> None:
        """As `run_table`; on the main thread a signal whose handler raises, as Ctrl-C does, ends
        it where it stands. Then nothing of it runs any more, and what it wrote is undefined."""
        if threads > self._ready:
            self._start(threads)
        if self._is_guarding or threading.get_ident() != self._main or not self._raise:
            # a handler that computes something, inside of a kernel, waits for it
            self._row.value = count
            self._run_table(self._state, table, 0, count, threads)
            return
        self._is_guarding = True
        self._row.value = 0
        try:
            left = self._run_guarded(self._state, table, count, threads)
        finally:
            self._is_guarding = False
        if left:
            try:
                if left == 2:
                    self._abandon()
            finally:
                self._raise()

    @property
    def rows_begun(self) -> int:
        """The row of the last guarded table that runs now, or the last one of it."""
        return self._row.value

    def _abandon(self) -> None:
        """Takes the workers out of the kernels that they run, in a region that its caller left."""
        libc = _libc()
        action, before = [ctypes.create_string_buffer(8 * ACTION_WORDS) for _ in range(2)]
        ctypes.c_uint64.from_buffer(action).value = self._on_stop
        ctypes.c_int32.from_buffer(action, FLAGS_OFFSET).value = STOP_FLAGS
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            libc.sigaction(STOP_SIGNAL, action, before)
            # again: one may have entered but not begun when it was told
            while self._close_abandoned(self._state):
                for thread in self._threads:
                    libc.pthread_kill(thread, STOP_SIGNAL)
                time.sleep(0.001)
            libc.sigaction(STOP_SIGNAL, before, None)
            self._release(self._state)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def begin_table(self, table: int, threads: int) -> int:
        """Runs the first row, and lets the workers begin with the second; `finish_table`, which
        has to follow, gets what this returns. Until then the workers belong to this table."""
        if threads > self._ready:
            self._start(threads)
        return self._state if self._begin_table(self._state, table, threads) else 0

    def finish_table(self, table: int, count: int, threads: int, begun: int) -> None:
        """Runs what is left of a table that was begun; returns when all of it is done."""
        # not open any more in a process that was forked in between: it has none of the workers
        self._finish_table(self._state, table, count, threads, begun == self._state)

    def prepare(self) -> None:
        """Makes the code of the workers, so that the first call need not wait for it."""
        with self._lock:
            if not self._code:
                self._compile()

    def _start(self, threads: int) -> None:
        with self._lock:
            if threads <= self._ready:
                return
            if not self._code:
                self._compile()
            self._set(SPIN, self._spin)
            while len(self._threads) < threads - 1 and not self._stopped:
                thread = _create_thread(self._code[0].address, self._state)
                if thread is None:
                    # The system allows no more threads. Fewer workers do the same work.
                    break
                self._threads.append(thread)
            self._prepare_placing()
            self._ready = threads

    def _set(self, offset: int, value: int) -> None:
        ctypes.c_int32.from_address(self._state + offset).value = value

    def _prepare_placing(self) -> None:
        """Writes down the workers and the cores for `place_workers`."""
        if len(self._threads) > MOST_PLACED:
            self._set(PLACED, 0)
            return
        cores = sum(1 << core for core in os.sched_getaffinity(0) if core < 8 * CORES_BYTES)
        ctypes.memmove(self._state + CORES, cores.to_bytes(CORES_BYTES, "little"), CORES_BYTES)
        for index, thread in enumerate(self._threads):
            ctypes.c_uint64.from_address(self._state + HANDLES + 8 * index).value = thread.value
        self._set(PLACED, len(self._threads))
        # No core: the next caller places them.
        self._set(CALLER_CORE, -1)

    def _compile(self) -> None:
        machine = machine_name()
        declare_pause, call_pause = PAUSE[machine]
        futex = _FUTEX_SYSCALL[machine]
        source = (IR + pool_interrupts.IR).format(
            declare_pause=declare_pause,
            call_pause=call_pause,
            futex=futex,
            interrupt=int(signal.SIGINT),
            interrupt_words=INTERRUPT_WORDS,
            action_words=ACTION_WORDS,
            place_words=8 + JUMP_WORDS,
            **{f"word_{name}": word for name, word in WORDS.items()},
        )
        code = compile_own(source, opt_level=0)
        names = ("worker", "run", "run_table", "begin_table", "finish_table", "stop", "calibrate")
        more = ("interrupts", "on_interrupt", "on_stop", "run_guarded", "abandon", "release")
        loaded = load_all(code, [f"weft_pool_{name}" for name in (*names, *more)])
        addresses = [part.address for part in loaded]
        _, run, run_table, begin, finish, stop, calibrate = addresses[: len(names)]
        self._prepare_interrupts(*addresses[len(names) :])
        self._code = loaded
        pointer, number, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        state_and_table = (pointer, pointer)
        self._run = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, number, word)(run)
        self._run_table = ctypes.CFUNCTYPE(None, *state_and_table, number, number, word)(run_table)
        self._begin_table = ctypes.CFUNCTYPE(word, *state_and_table, word)(begin)
        self._finish_table = ctypes.CFUNCTYPE(None, *state_and_table, number, word, word)(finish)
        self._stop = ctypes.CFUNCTYPE(None, pointer)(stop)
        self._spin = _count_pauses(KernelFunction(calibrate))

    def _prepare_interrupts(
        self, words: int, on_interrupt: int, on_stop: int, guarded: int, abandon: int, release: int
    ) -> None:
        """Writes down what a guarded call needs."""
        pointer, number, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32

        def put(name: str, value: int) -> None:
            ctypes.c_uint64.from_address(words + 8 * WORDS[name]).value = value

        key = ctypes.c_uint32()
        failed = _libc().pthread_key_create(ctypes.byref(key), None)
        put("key", key.value)
        put("action", on_interrupt)
        flags = words + 8 * WORDS["action"] + FLAGS_OFFSET
        ctypes.c_int32.from_address(flags).value = INTERRUPT_FLAGS
        self._on_stop = on_stop
        self._run_guarded = ctypes.CFUNCTYPE(number, pointer, pointer, number, word)(guarded)
        self._close_abandoned = ctypes.CFUNCTYPE(word, pointer)(abandon)
        self._release = ctypes.CFUNCTYPE(None, pointer)(release)
        self._row = ctypes.c_int64.from_address(words + 8 * WORDS["row"])
        self._raise: Callable[[], None] | None = None
        python: Any = getattr(ctypes, "pythonapi", None)
        if failed or python is None:
            return
        for name, function in PYTHON_FUNCTIONS.items():
            put(name, ctypes.cast(getattr(python, function), pointer).value or 0)
        error = (pointer * 3).from_address(words + 8 * WORDS["error"])
        restore = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer)(("PyErr_Restore", python))
        # gives the references back, and what it sets is raised here
        self._raise = lambda: restore(*error)

    def stop(self) -> None:
        """Ends the workers. Later calls of `run` do the work in the calling thread."""
        with self._lock:
            self._stopped = True
            threads, self._threads = self._threads, []
            self._set(PLACED, 0)
            if threads:
                self._stop(self._state)
                for thread in threads:
                    _libc().pthread_join(thread, None)


def _count_pauses(spin: Any) -> int:
    """Pauses in the time a worker spins: from 5 to 50 ns each, depending on the CPU."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        spin(None, 0, 1000)
        times.append(time.perf_counter() - start)
    return max(1, int(_SPIN_SECONDS * 1000 / min(times)))


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)


def _create_thread(start: int, argument: int) -> ctypes.c_ulong | None:
    """A native thread with a large stack and all signals blocked, or None if there can be none."""
    libc = _libc()
    thread = ctypes.c_ulong()
    # Larger than pthread_attr_t of any C library.
    attributes = ctypes.create_string_buffer(256)
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
    # A signal that a worker receives would not interrupt the main thread's sleep or read. Faults
    # stay open, because they belong to the thread that made them.
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    blocked = signal.valid_signals() - faults - {STOP_SIGNAL}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        failed = libc.pthread_create(
            ctypes.byref(thread), attributes, ctypes.c_void_p(start), ctypes.c_void_p(argument)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        libc.pthread_attr_destroy(attributes)
    return None if failed else thread


pool: NativePool | PythonPool = NativePool() if NativePool.is_supported() else PythonPool()
