"""Many kernels compiled at once: LLVM on threads, while Python goes on making the next kernel.

In: sources, as they are made. Out: their object bytes, in order, the same as one after the other.
Sits over `llvm.py`; it is the CPU's compiler. llvmlite puts one lock around every call, and a
thread that comes back from a short call waits for the interpreter. So one call of our own, a few
lines of IR over llvmlite's library, does all of one kernel: the thread leaves Python once.
Invariant: a thread has an LLVM context and a target machine of its own and shares nothing else;
what fails here is compiled again by `LLVMCompiler`, which knows how to say what is wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft.device import hold_across_fork
from weft.errors import CompileError
from weft.runtime.llvm import (
    LLVMCompiler,
    LoadedCode,
    compiling,
    create_target_machine,
    load,
    usable_cores,
)

# More do not pay: Python makes kernels no faster than a few threads compile them.
_MOST_THREADS = 8
# LLVM recurses over large functions. What is not touched takes no memory.
_STACK_BYTES = 64 << 20
# A thread that waits for the interpreter gets it after this long, instead of 5 ms: kernels that
# are ready wait no longer than that for their compiler, and it asks a few times a kernel.
_SWITCH_SECONDS = 5e-4
# Sources of so many characters may take LLVM more than a second.
_LONG_SOURCE = 100_000
# How long an interrupted compilation is waited for. Most kernels take a few milliseconds.
_PATIENCE_SECONDS = 0.05

# In: a target machine, IR text, a place for three messages. Out: a memory buffer, or null.
_IR = """
define ptr @weft_compile(ptr %machine, ptr %text, ptr %messages) {{
entry:
  %parsing = getelementptr ptr, ptr %messages, i64 0
  %verifying = getelementptr ptr, ptr %messages, i64 1
  %emitting = getelementptr ptr, ptr %messages, i64 2
  %create = inttoptr i64 {LLVMPY_ContextCreate} to ptr
  %parse = inttoptr i64 {LLVMPY_ParseAssembly} to ptr
  %verify = inttoptr i64 {LLVMPY_VerifyModule} to ptr
  %emit = inttoptr i64 {LLVMPY_TargetMachineEmitToMemory} to ptr
  %close.module = inttoptr i64 {LLVMPY_DisposeModule} to ptr
  %close.context = inttoptr i64 {LLVMPY_ContextDispose} to ptr
  %context = call ptr %create()
  %module = call ptr %parse(ptr %context, ptr %text, ptr %parsing)
  %unread = icmp eq ptr %module, null
  br i1 %unread, label %closed, label %read
read:
  %broken = call i8 %verify(ptr %module, ptr %verifying)
  %whole = icmp eq i8 %broken, 0
  br i1 %whole, label %good, label %close
good:
  %emitted = call ptr %emit(ptr %machine, ptr %module, i32 signext 1, ptr %emitting)
  br label %close
close:
  %found = phi ptr [ null, %read ], [ %emitted, %good ]
  call void %close.module(ptr %module)
  br label %closed
closed:
  %result = phi ptr [ null, %entry ], [ %found, %close ]
  call void %close.context(ptr %context)
  ret ptr %result
}}
"""
_CALLED = (
    "LLVMPY_ContextCreate",
    "LLVMPY_ParseAssembly",
    "LLVMPY_VerifyModule",
    "LLVMPY_TargetMachineEmitToMemory",
    "LLVMPY_DisposeModule",
    "LLVMPY_ContextDispose",
)


class _Driver:
    """llvmlite's library without its lock: one call compiles one kernel."""

    def __init__(self) -> None:
        name = importlib.import_module("llvmlite.binding.ffi").lib._name
        library = ctypes.CDLL(name)
        addresses = {
            symbol: ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
            for symbol in _CALLED
        }
        # Short calls keep the interpreter's lock: taking it again would take longer than they do.
        short = ctypes.PyDLL(name)
        pointer = ctypes.c_void_p
        self._start = _declare(short.LLVMPY_GetBufferStart, pointer)
        self._size = _declare(short.LLVMPY_GetBufferSize, ctypes.c_size_t)
        self._free_buffer = _declare(short.LLVMPY_DisposeMemoryBuffer, None)
        self._free_text = _declare(short.LLVMPY_DisposeString, None)
        source = _IR.format(**addresses)
        # Keeps the code in memory.
        self._code: LoadedCode = load(LLVMCompiler(opt_level=0).compile(source), "weft_compile")
        signature = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_char_p, pointer)
        self._compile = signature(self._code.address)

    def compile(self, machine: int, source: bytes) -> bytes | None:
        """Object bytes, or None for what LLVM refuses."""
        messages = (ctypes.c_void_p * 3)()
        buffer = self._compile(machine, source, messages)
        for message in messages:
            if message:
                self._free_text(message)
        if not buffer:
            return None
        try:
            return ctypes.string_at(self._start(buffer), self._size(buffer))
        finally:
            self._free_buffer(buffer)


def _declare(function: Any, result: Any) -> Any:
    function.argtypes = [ctypes.c_void_p]
    function.restype = result
    return function


@functools.cache
def _make_driver() -> _Driver | None:
    try:
        return _Driver()
    except (AttributeError, OSError, CompileError):
        return None


_making_driver = threading.RLock()
hold_across_fork(_making_driver)


def _driver() -> _Driver | None:
    """None where llvmlite's library does not have what we call."""
    with _making_driver:
        return _make_driver()


class _Job:
    """One source, and its object bytes once it is compiled."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.code: bytes | None = None


class _Team:
    """Threads that compile jobs in the order in which they come, until there are no more."""

    def __init__(
        self,
        prepare: Callable[[], None],
        compile_one: Callable[[int, _Job], None],
        machines: list[Any],
    ) -> None:
        self._prepare = prepare
        self._compile_one = compile_one
        self._machines = machines
        # None: there are no more
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        # The first machine is of use when all sources are made.
        self._threads = _start_threads([functools.partial(self._serve, m) for m in machines[1:]])
        # by thread, in the order in which they were started
        self._used = machines[1 : 1 + len(self._threads)]

    def put(self, job: _Job) -> None:
        self._waiting.put(job)

    def _serve(self, machine: Any) -> None:
        try:
            if machine is self._machines[1]:
                # before the first kernel is made there is nothing else to do
                self._prepare()
            while (job := self._waiting.get()) is not None:
                self._compile_one(machine, job)
        except BaseException as error:
            self._errors.append(error)

    def finish(self) -> None:
        """Returns when all jobs are done; raises what went wrong in any thread.

        This thread only waits: Ctrl-C ends a wait at once, but LLVM hears no signals.
        """
        if not self._threads or not self._waiting.empty():
            started = _start_threads([functools.partial(self._serve, self._machines[0])])
            self._threads += started
            self._used += self._machines[: len(started)]
        if not self._threads:
            # the system allows none
            with contextlib.suppress(queue.Empty):
                while (job := self._waiting.get_nowait()) is not None:
                    self._compile_one(self._machines[0], job)
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def dismiss(self) -> list[Any]:
        """Ends the threads, whether all is done or not. The machines that nobody uses any more.

        A thread that is in the middle of a kernel, which may take long, is left to itself.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)
        busy = [m for t, m in zip(self._threads, self._used, strict=True) if t.is_alive()]
        self._threads, self._used = [], []
        return [machine for machine in self._machines if machine not in busy]


def _start_threads(targets: list[Callable[[], None]]) -> list[threading.Thread]:
    """Threads with a stack that is large enough, as many as the system allows."""
    started: list[threading.Thread] = []
    before = threading.stack_size(_STACK_BYTES)
    try:
        with contextlib.suppress(RuntimeError):
            for target in targets:
                thread = threading.Thread(target=target, name="weft-compile", daemon=True)
                thread.start()
                started.append(thread)
    finally:
        threading.stack_size(before)
    return started


@contextlib.contextmanager
def _quick_switches() -> Iterator[None]:
    """Threads that need the interpreter for a moment get it soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ParallelLLVMCompiler(LLVMCompiler):
    """Compiles one kernel as its base does, and several on all cores.

    `prepare` makes what kernels need to run, in a thread, while the first of them is made.
    """

    def __init__(self, opt_level: int = 2, prepare: Callable[[], None] | None = None) -> None:
        super().__init__(opt_level)
        self._idle_machines: list[Any] = []
        self._prepare_more = prepare

    def compile(self, src: str) -> bytes:
        """What may take long is left to a thread: Ctrl-C does not wait for it."""
        return super().compile(src) if len(src) < _LONG_SOURCE else self.compile_all([src])[0]

    def compile_all(self, sources: Iterable[str]) -> list[bytes]:
        """Threads compile what has come while `sources` makes the next."""
        threads = max(1, min(usable_cores() - 1, _MOST_THREADS))
        with _quick_switches():
            team = _Team(self._prepare, self._compile_job, self._take_machines(1 + threads))
            jobs: list[_Job] = []
            try:
                for source in sources:
                    jobs.append(_Job(source))
                    team.put(jobs[-1])
                team.finish()
            finally:
                self._idle_machines += team.dismiss()
        return [self._checked(job) for job in jobs]

    def _prepare(self) -> None:
        _driver()
        if self._prepare_more is not None:
            # whoever needs it tries again, and says what is wrong
            with contextlib.suppress(CompileError, OSError):
                self._prepare_more()

    def _compile_job(self, machine: Any, job: _Job) -> None:
        driver = _driver()
        if driver is None:
            # what a team leaves is compiled by the base, one after the other
            return
        text = self.complete(job.source).encode()
        with compiling():
            job.code = driver.compile(machine._ptr, text)

    def _checked(self, job: _Job) -> bytes:
        """What a thread made, if it can be loaded; else what the base says about the source."""
        if job.code is None:
            return super().compile(job.source)
        self.check(job.source, job.code)
        return job.code

    def _take_machines(self, count: int) -> list[Any]:
        """Target machines that nobody else uses meanwhile."""
        taken: list[Any] = []
        with contextlib.suppress(IndexError):
            while len(taken) < count:
                taken.append(self._idle_machines.pop())
        return taken + [create_target_machine(self.opt_level) for _ in range(count - len(taken))]
