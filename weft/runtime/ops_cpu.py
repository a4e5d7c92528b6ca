"""CPU: the host's processor, through LLVM in process.

In: object code of kernels, buffers. Out: results in the host's memory. Opened by the registry, also
as CPU:1, CPU:2, ...: devices that count their own memory and share cores, code and cache.
Invariant: a call returns when its work is done, so there is nothing to synchronise.

Every kernel is `void name(ptr args, i64 begin, i64 end)`. `args` points to 8-byte slots: the
addresses of the buffers in slot order, then the values of the variables. [begin, end) is the part
of the parallel axis to run; a kernel without one is called with (0, 1).
"""

from __future__ import annotations

import ctypes
import functools
import time
from array import array
from collections.abc import Sequence

from weft.contracts import BaseDevice, Origin, Program
from weft.device import Buffer
from weft.errors import ArgumentError
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.runtime.llvm import CPUFacts, LoadedCode, compile_own, load, target, usable_cores
from weft.runtime.llvm_parallel import ParallelLLVMCompiler
from weft.runtime.memory import HostAllocator
from weft.runtime.pool import KernelFunction, pool

# One for all devices of this kind: target machines are costly and the result is the same.
_compiler = ParallelLLVMCompiler(prepare=pool.prepare)


# What runs longer than this can be stopped by Ctrl-C, at the price of three system calls.
_LONG_SECONDS = 0.01
# A kernel on one thread that touches no more is short: the pool's code is not made for it alone.
_SMALL_BYTES = 64 << 10


def _is_worth_a_pool(bufs: Sequence[Buffer]) -> bool:
    return pool.is_prepared or any(buf.nbytes > _SMALL_BYTES for buf in bufs)


class CPUProgram(Program):
    """A kernel in memory. `threads_n` is the size of its parallel axis; 1: it has none."""

    def __init__(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> None:
        self.name = name
        self.threads_n = threads_n
        self.n_bufs = n_bufs
        self.n_vars = n_vars
        # Keeps the code in memory as long as the program can be called.
        self._code = load(lib, name)
        self.address = self._code.address
        self._function = KernelFunction(self.address)
        self._args_type = ctypes.c_int64 * (n_bufs + n_vars)
        self._may_be_long = True

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        if len(bufs) != self.n_bufs or len(vals) != self.n_vars:
            raise ArgumentError(
                f"{self.name} takes {self.n_bufs} buffers and {self.n_vars} values, but got "
                f"{len(bufs)} and {len(vals)}"
            )
        # New for each call: several threads may run one program at once.
        args = self._args_type(*[buf.address for buf in bufs], *vals)
        start = time.perf_counter()
        if self._may_be_long and (self.threads_n > 1 or _is_worth_a_pool(bufs)):
            row = (ctypes.c_int64 * 3)(self.address, ctypes.addressof(args), self.threads_n)
            pool.run_guarded(ctypes.addressof(row), 1, usable_cores())
            # without variables the next call does the same
            is_long = time.perf_counter() - start > _LONG_SECONDS
            self._may_be_long = is_long or self.n_vars > 0
        elif self.threads_n > 1:
            pool.run(self.address, ctypes.addressof(args), self.threads_n)
        else:
            self._function(ctypes.addressof(args), 0, 1)
        return time.perf_counter() - start if wait else None


# Before the first launch of a replay: fills in the arguments of all, (place, word, addend) each.
_FILL_IR = """
define void @weft_graph_fill(ptr %args, i64 %begin, i64 %end) {
entry:
  %rows.p = load ptr, ptr %args
  %count.p = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.p
  %words.p = getelementptr i8, ptr %args, i64 16
  %words = load ptr, ptr %words.p
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %row, label %done
row:
  %row.p = getelementptr [3 x i64], ptr %rows.p, i64 %i
  %word.p = getelementptr i8, ptr %row.p, i64 8
  %addend.p = getelementptr i8, ptr %row.p, i64 16
  %place = load ptr, ptr %row.p
  %word = load i64, ptr %word.p
  %addend = load i64, ptr %addend.p
  %value.p = getelementptr i64, ptr %words, i64 %word
  %value = load i64, ptr %value.p
  %sum = add i64 %value, %addend
  store i64 %sum, ptr %place
  %i.next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""


@functools.cache
def _fill_code() -> LoadedCode:
    return load(compile_own(_FILL_IR, opt_level=1), "weft_graph_fill")


class CPUGraph:
    """Launches as a table that the pool runs in one native call, its first row fills in the rest.

    Not for two threads at once: the table is written by every replay.
    """

    def __init__(self, words: array[int]) -> None:
        self._words = words
        self._launches: list[tuple[CPUProgram, Sequence[tuple[int, int]]]] = []
        self._rows = 0
        self._may_be_long = True

    def record(
        self,
        program: Program,
        arguments: Sequence[tuple[int, int]],
        origin: Origin | None = None,
    ) -> None:
        """Adds a launch; its buffers, then its variables, are (word, what is added to it)."""
        if not isinstance(program, CPUProgram) or len(arguments) != program.n_bufs + program.n_vars:
            raise ArgumentError(f"cannot record {program.name} with {len(arguments)} arguments")
        self._launches.append((program, tuple(arguments)))
        self._rows = 0
        self._may_be_long = True

    def _build(self) -> None:
        count = sum(len(arguments) for _, arguments in self._launches)
        self._arguments = (ctypes.c_int64 * max(1, count))()
        self._fills = (ctypes.c_int64 * max(1, 3 * count))()
        self._fill = (ctypes.c_int64 * 3)(
            ctypes.addressof(self._fills), count, self._words.buffer_info()[0]
        )
        table = [_fill_code().address, ctypes.addressof(self._fill), 1]
        place = ctypes.addressof(self._arguments)
        fills: list[ctypes.c_int64 | int] = []
        for program, arguments in self._launches:
            table += [program.address, place, program.threads_n]
            for word, addend in arguments:
                fills += [place, word, addend]
                place += 8
        self._fills[: len(fills)] = fills
        self._table = (ctypes.c_int64 * len(table))(*table)
        self._address = ctypes.addressof(self._table)
        self._rows = len(self._launches) + 1
        # a graph belongs to code that was made for so many
        self._threads = usable_cores()

    def replay(self) -> None:
        """Runs all launches in order, with the words as they are now."""
        if not self._rows:
            self._build()
        if not self._may_be_long:
            pool.run_table(self._address, self._rows, self._threads)
            return
        start = time.perf_counter()
        pool.run_guarded(self._address, self._rows, self._threads)
        # without variables the next replay does the same
        is_long = time.perf_counter() - start > _LONG_SECONDS
        self._may_be_long = is_long or any([program.n_vars for program, _ in self._launches])

    @property
    def begun(self) -> int:
        """How many launches of the last replay may have begun; only a guarded one tells."""
        return pool.rows_begun if self._may_be_long else len(self._launches)

    def begin(self) -> None:
        """As `replay`, but may return before all is done: `finish` has to follow."""
        if not self._rows:
            self._build()
        if not self._may_be_long:
            self._begun = pool.begin_table(self._address, self._threads)

    def finish(self) -> None:
        """Returns when all of what was begun is done."""
        if self._may_be_long:
            # nothing was begun: this can be interrupted
            self.replay()
        else:
            pool.finish_table(self._address, self._rows, self._threads, self._begun)


def describe_target(facts: CPUFacts) -> Target:
    """The host's CPU in codegen's terms."""
    return Target(
        name=facts.cpu,
        cores=facts.cores,
        vector_bytes=facts.vector_bytes,
        vector_registers=facts.vector_registers,
        has_fma=facts.has_fma,
        products=facts.products,
        l1=facts.caches.l1,
        l2=facts.caches.l2,
        l3=facts.caches.l3,
        line_bytes=facts.caches.line,
        page_bytes=facts.page_bytes,
        alias_bytes=facts.caches.alias,
        # instructions of the widest x86 vectors broadcast an operand as they read it, which costs
        # nothing where a core begins more loads than products (emeraldrapids: products of 1000 in
        # 30 ms instead of 8 as if it did; `python -m bench.trees`)
        broadcast_cycles=1 / 4 if facts.vector_bytes == 64 and facts.products == 1 else 1.0,
        has_threads=True,
        has_half_conversion=facts.has_half_conversion,
        has_max=facts.has_max,
        has_streaming=facts.has_streaming,
        has_rounding=facts.has_rounding,
        features=tuple(sorted(facts.features)),
    )


class CPUDevice(BaseDevice):
    """The host's processor."""

    is_host = True
    has_address = True
    memory_kind = (1, 0)  # DLPack's kDLCPU
    graph = CPUGraph

    def __init__(self, name: str) -> None:
        super().__init__(name, HostAllocator(name), _compiler, self._create_renderer)

    def _create_renderer(self) -> LLVMRenderer:
        return LLVMRenderer(describe_target(self.facts))

    @property
    def arch(self) -> str:
        """The name LLVM has for this CPU."""
        return self.facts.cpu

    @property
    def facts(self) -> CPUFacts:
        """Vector width, registers, caches, cores: what codegen and the renderer may know."""
        return target()

    def runtime(
        self, name: str, lib: bytes, threads_n: int = 1, n_bufs: int = 0, n_vars: int = 0
    ) -> Program:
        return CPUProgram(name, lib, threads_n, n_bufs, n_vars)
