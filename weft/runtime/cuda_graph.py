"""Captured launches as a graph of the driver, replayed with one copy and one call.

In: programs with arguments that are words of a table. Out: `replay`, which copies the words as they
are now and launches everything. The CUDA device's Graph.
Invariant: nodes do not change between replays. Kernels find their arguments in the table of words
(see `word_layout`), which lies in the GPU's memory and is written in the order of the stream. The
exception is a grid whose size depends on variables: it is laid out larger than asked for, groups
beyond its end do nothing, and only when it must grow its node changes.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from weft.contracts import Origin, Program
from weft.errors import ArgumentError
from weft.renderer.groups import WORD_LIMIT, WORD_SHIFT
from weft.runtime.cuda_context import Context, place_text
from weft.runtime.cuda_driver import U32, Pointer
from weft.runtime.cuda_memory import CUDAAllocator
from weft.runtime.cuda_program import CUDAProgram

# kernels of a graph that an error names
_NAMED = 8


class _NodeParams(ctypes.Structure):
    _fields_ = (
        ("function", Pointer),
        ("grid", U32 * 3),
        ("block", U32 * 3),
        ("shared_bytes", U32),
        ("arguments", Pointer),
        ("extra", Pointer),
        ("kernel", Pointer),
        ("context", Pointer),
    )


class _Launch:
    """One kernel of the graph."""

    def __init__(
        self,
        program: CUDAProgram,
        arguments: tuple[tuple[int, int], ...],
        origin: Origin | None,
    ) -> None:
        self.program = program
        self.arguments = arguments
        self.name = f"{program.name}{place_text(origin)}"
        self.node = Pointer()
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self.group_words: dict[int, int] = {}  # word of the number of groups along an axis

    def values(self, words: array[int]) -> list[int]:
        """The variables' values now."""
        return [words[word] for word, _ in self.arguments[self.program.buffer_count :]]


class CUDAGraph:
    """Launches that replay together. Not for two threads at once: they share the words."""

    def __init__(self, allocator: CUDAAllocator, words: array[int]) -> None:
        self._context: Context = allocator.context
        self._allocator = allocator
        self._words = words
        self._launches: list[_Launch] = []
        self._symbolic: list[_Launch] = []
        self._exec: Any = None
        self._graph: Any = None
        self._table: Any = None
        self._lock = threading.Lock()
        self._sent: array[int] = array("q")  # what the table holds
        self._last_values: list[Any] = []

    def record(
        self,
        program: Program,
        arguments: Sequence[tuple[int, int]],
        origin: Origin | None = None,
    ) -> None:
        """Adds a launch; its buffers, then its variables, are (word, what is added to it)."""
        expected = program.argument_count if isinstance(program, CUDAProgram) else -1
        if not isinstance(program, CUDAProgram) or len(arguments) != expected:
            raise ArgumentError(f"cannot record {program.name} with {len(arguments)} arguments")
        self._launches.append(_Launch(program, tuple(arguments), origin))
        self._drop()

    @property
    def begun(self) -> int:
        """All of them: they are submitted together."""
        return len(self._launches)

    def begin(self) -> None:
        """Submits everything; the host need not wait."""
        self.replay()

    def finish(self) -> None:
        """Nothing to wait for: what comes after is in order."""

    def replay(self) -> None:
        """Runs all launches in order, with the words as they are now."""
        context = self._context
        context.use()
        with self._lock:
            if self._exec is None:
                self._build()
            context.note_launch(self._name, None)
            # the same words as last time are in the table already
            code = 0 if self._words == self._sent else self._send()
            if not code:
                code = self._launch(self._exec, context.stream)
        if code:
            context.check(code, f"replaying {self._name}")
        context.count_launch()

    def _send(self) -> int:
        """Copies the words to the table, in the order of the stream."""
        words = self._words
        self._sent = words[:]
        ctypes.memmove(self._host, words.buffer_info()[0], 8 * len(words))
        if self._symbolic:
            self._count_groups()
        # ordinary memory: the driver has taken the words when it returns
        code: int = self._copy(self._table.address, self._host, self._nbytes, self._context.stream)
        return code

    # ------------------------------------------------------------ building
    def _build(self) -> None:
        context = self._context
        words = len(self._words)
        self._symbolic = [launch for launch in self._launches if launch.program.is_symbolic]
        for launch in self._symbolic:
            for axis in launch.program.symbolic_axes:
                launch.group_words[axis] = words
                words += 1
        if words > WORD_LIMIT:
            raise ArgumentError(f"a graph of {words} words, at most {WORD_LIMIT} can be numbered")
        self._nbytes = 8 * max(1, words)
        self._cells = (ctypes.c_int64 * max(1, words))()
        self._host = ctypes.addressof(self._cells)
        self._table = self._allocator.alloc(self._nbytes)
        self._copy = context.driver.cuMemcpyHtoDAsync_v2
        self._launch = context.driver.cuGraphLaunch
        names = list(dict.fromkeys(launch.name for launch in self._launches))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        self._name = f"a graph of {', '.join(names[:_NAMED])}{more}"
        self._last_values = [None] * len(self._symbolic)
        graph, made = Pointer(), Pointer()
        context.call("cuGraphCreate", ctypes.byref(graph), 0)
        self._graph = graph
        before: Pointer | None = None
        for launch in self._launches:
            if launch.program.is_symbolic:
                launch.grid = launch.program.grid(launch.values(self._words))
            params, keep = self._params(launch)
            context.call(
                "cuGraphAddKernelNode_v2",
                ctypes.byref(launch.node),
                graph,
                None if before is None else ctypes.byref(before),
                0 if before is None else 1,
                ctypes.byref(params),
            )
            del keep
            before = launch.node
        context.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
        context.call("cuGraphUpload", made, context.stream)
        self._exec = made
        self._sent = array("q")

    def _params(self, launch: _Launch) -> tuple[_NodeParams, Any]:
        """What the driver copies of a node, and what has to live until then."""
        program = launch.program
        cells = (ctypes.c_uint64 * len(program.layout))()
        given = launch.arguments
        buffers, values = given[: program.buffer_count], iter(given[program.buffer_count :])
        for place, (kind, detail) in enumerate(program.layout):
            if kind == "words":
                cells[place] = self._table.address
            elif kind == "buffer":
                word, addend = buffers[detail]
                if addend >> WORD_SHIFT:
                    raise ArgumentError(f"{program.name}: byte {addend} of a memory is too far")
                cells[place] = word << WORD_SHIFT | addend
            elif kind == "value":
                cells[place] = next(values)[0]
            else:
                cells[place] = launch.group_words[detail]
        pointers = _pointers(cells)
        # an empty grid is refused; its groups find that they are none
        grid = launch.grid if program.is_symbolic else program.grid(())
        made = _NodeParams(
            program.function,
            (U32 * 3)(*[max(1, size) for size in grid]),
            (U32 * 3)(*program.block),
            program.shared_bytes,
            ctypes.addressof(pointers),
        )
        return made, (cells, pointers)

    def _count_groups(self) -> None:
        """The run-time numbers of groups go into their words; grids that are too small grow."""
        for number, launch in enumerate(self._symbolic):
            values = launch.values(self._words)
            if values != self._last_values[number]:
                needed = launch.program.grid(values)
                if any(n > has for n, has in zip(needed, launch.grid, strict=True)):
                    # twice as large: sizes that grow step by step change the node rarely
                    limits = launch.program.most_groups
                    pairs = zip(needed, launch.grid, limits, strict=True)
                    x, y, z = [has if n <= has else min(2 * n, most) for n, has, most in pairs]
                    launch.grid = (x, y, z)
                    params, keep = self._params(launch)
                    self._context.call(
                        "cuGraphExecKernelNodeSetParams_v2",
                        self._exec,
                        launch.node,
                        ctypes.byref(params),
                    )
                    del keep
                self._last_values[number] = values
            else:
                needed = launch.program.grid(values)
            for axis, word in launch.group_words.items():
                self._cells[word] = needed[axis]

    def _drop(self) -> None:
        """Forgets what was built."""
        if self._exec is not None and self._context.is_usable:
            self._context.use()
            self._context.driver.cuGraphExecDestroy(self._exec)
            self._context.driver.cuGraphDestroy(self._graph)
        if self._table is not None:
            self._allocator.free(self._table, self._nbytes)
        self._exec = self._graph = self._table = None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():
            self._drop()


def _pointers(cells: Any) -> Any:
    """The address of each cell, as the driver takes arguments."""
    first = ctypes.addressof(cells)
    return (ctypes.c_void_p * len(cells))(*[first + 8 * place for place in range(len(cells))])
