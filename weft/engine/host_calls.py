"""Values that the host computes: functions of NumPy in the place of kernels.

In: a function of arrays and the kernels that would compute the same. Out: HOST nodes, which are as
lazy as any other; when they are realized, either their memory or a graph without them.
Sits beside `known`, under realize, which asks here for what stands in its way. Sorting and the
decompositions of matrices build HOST nodes.
Invariant: no schedule ever sees a HOST node. Where the host may compute it, its result is in memory
before anything is scheduled; everywhere else kernels take its place.

Why and what else was thought of: docs/decisions/0021.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import DType, to_numpy_dtype
from weft.engine import record
from weft.engine.cell import Cell
from weft.engine.check import active_checks
from weft.engine.known import known_to, remember
from weft.engine.prepared import Step
from weft.engine.storage import buffer_of, shaped, store_bytes
from weft.helpers import prod
from weft.knobs import HOST_CALLS
from weft.uop.args import HostArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

# what a value may be wrapped in without being anything else than its storage
_WRAPPED = (Ops.RESHAPE, Ops.CONTIGUOUS, Ops.DETACH)


def is_possible(device: Any) -> bool:
    """Whether functions of the host may compute values of a device: they share their memory."""
    if not isinstance(device, str):
        return False
    opened = Device[device]
    return opened.is_host and opened.executes


def call(
    name: str,
    inputs: Sequence[UOp],
    results: Sequence[tuple[tuple[int, ...], DType]],
    compute: Callable[..., Any],
    kernels: Callable[..., Any],
    static: tuple[Any, ...] = (),
) -> list[UOp]:
    """The results of a function, one node each; see HostArg for `compute` and `kernels`.

    Of devices whose memory the host does not share, they are those of the kernels right away.
    """
    nodes = tuple(inputs)
    if not is_possible(nodes[0].device):
        return list(kernels(nodes, *static))
    arg = HostArg(name, compute, kernels, tuple(results), static)
    return _results(nodes, arg)


def _key(src: tuple[UOp, ...], arg: HostArg) -> tuple[Any, ...]:
    """Of all results of a call the same."""
    return src, replace(arg, number=0)


def _results(src: tuple[UOp, ...], arg: HostArg) -> list[UOp]:
    return [
        UOp(Ops.HOST, dtype, src, replace(arg, number=number))
        for number, (_, dtype) in enumerate(arg.results)
    ]


class CallTable:
    """What became of calls while some values are realized, by their inputs and what is called."""

    def __init__(self) -> None:
        self.expansions: dict[tuple[Any, ...], list[UOp]] = {}  # nodes of kernels in their place
        self.declined: set[tuple[Any, ...]] = set()


Pairs = list[tuple[UOp, UOp]]


def may_run() -> bool:
    """Whether the host may compute something now.

    What is recorded has to contain every step from its inputs to its outputs: it is replayed
    without Python. What is checked kernel by kernel has to be kernels.
    """
    return bool(HOST_CALLS.value) and record.active() is None and active_checks() is None


# ------------------------------------------------------------ in memory
def compute_calls(
    wanted: Sequence[Cell],
    table: CallTable,
    realize: Callable[[list[Cell]], None],
    launch: Callable[[Step, list[Buffer], dict[str, int]], None],
) -> None:
    """Compute the HOST nodes that the wanted values need, inputs first, and remember where.

    Nothing among these is a write, so that computing a part of them first changes nothing.
    """
    is_known, since = known_to(wanted)

    def is_pending(node: UOp) -> bool:
        return not is_known(node)

    values = UOp.sink(*[cell.value for cell in wanted])
    needed = _needed(values)
    for node in values.toposort(gate=is_pending):
        if node.op is not Ops.HOST or node not in needed:
            continue
        key = _key(node.src, node.arg)
        # it may have come along with another result of the same call
        if not is_pending(node) or key in table.declined:
            continue
        inputs = [_input(source, is_pending) for source in node.src]
        cells = [found for found in inputs if isinstance(found, Cell)]
        for cell in cells:
            # it finds what those find that want it
            cell.born = since
        if cells:
            realize(cells)
        storages = [found.storage if isinstance(found, Cell) else found for found in inputs]
        memories = [buffer_of(storage) for storage in storages if storage is not None]
        if not _run(node, memories, launch):
            table.declined.add(key)


def _input(source: UOp, is_pending: Callable[[UOp], bool]) -> UOp | Cell:
    """The BUFFER that holds an input in order, or a cell that will have one."""
    while True:
        if not is_pending(source):
            source = source.held.storage
        elif source.op not in _WRAPPED:
            break
        else:
            source = source.src[0]
    if source.op is Ops.BUFFER:
        return source
    return Cell(UOp(Ops.CONTIGUOUS, source.dtype, (source,)))


def _run(
    node: UOp,
    memories: list[Buffer],
    launch: Callable[[Step, list[Buffer], dict[str, int]], None],
) -> bool:
    """One call: its results in memory of their own, unless it declines."""
    device = str(node.device)
    runner = HostRunner(node.arg, [source.shape for source in node.src])
    step = Step((), device, None, False, node.origin, runner)  # type: ignore[arg-type]
    launch(step, [memory.ensure_allocated() for memory in memories], {})
    # whoever watches launches keeps the step, which must not keep the results
    found, runner.found = runner.found, None
    if found is None:
        return False
    for result, array in zip(_results(node.src, node.arg), found, strict=True):
        storage = store_bytes(array, result.dtype, device)
        remember(result, shaped(storage, result.shape), storage)
        # what is written down after this is computed again, as everything is
        result.held.since = result.held.found
    return True


class HostRunner:
    """A call of the host as what a step runs: it is counted and shown as kernels are."""

    def __init__(self, arg: HostArg, shapes: list[tuple[int, ...]]) -> None:
        self.name = f"host_{arg.name}"
        self.ops = 0
        self.mem = sum(prod(shape) * dtype.itemsize for shape, dtype in arg.results)
        self.found: list[memoryview] | None = None
        self._arg = arg
        self._shapes = shapes

    def __call__(
        self,
        buffers: Sequence[Buffer],
        values: dict[str, int],
        wait: bool,
        origin: Any = None,
    ) -> float | None:
        """Run it; how long that took, which is known at once. Errors come here, with their line."""
        import numpy

        started = time.perf_counter()
        arrays = []
        for buffer, shape in zip(buffers, self._shapes, strict=True):
            memory = buffer.as_memoryview(allow_zero_copy=True)
            arrays.append(numpy.frombuffer(memory, to_numpy_dtype(buffer.dtype)).reshape(shape))
        arg = self._arg
        results = arg.compute(arrays, *arg.static)
        if results is not None:
            pairs = zip(results, arg.results, strict=True)
            self.found = [_bytes(array, *described) for array, described in pairs]
        return time.perf_counter() - started


def _bytes(array: Any, shape: tuple[int, ...], dtype: DType) -> memoryview:
    import numpy

    exact = numpy.ascontiguousarray(array, to_numpy_dtype(dtype)).reshape(shape)
    raw: Any = exact.reshape(-1).view(numpy.uint8)
    return memoryview(raw)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, NumPy's OpenBLAS computes on one thread; with another library nothing changes.

    Its threads wait for each other many times in the decomposition of a small matrix, and on a busy
    machine each time for a time slice: svd of 64x64 takes 90 ms on two threads and 0.4 on one.
    """
    found = _blas_threads()
    if found is None:
        yield
        return
    count, set_count = found
    # the setting is the process's: two that change it at once would restore each other's
    with _blas_lock:
        before = count()
        set_count(1)
        try:
            yield
        finally:
            set_count(before)


_blas_lock = threading.Lock()


@functools.cache
def _blas_threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Functions that tell and set how many threads OpenBLAS uses, if NumPy has it."""
    import numpy

    try:
        library = ctypes.CDLL(numpy.linalg._umath_linalg.__file__)
    except (AttributeError, OSError):
        return None
    for name in ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads"):
        # found in what that file is linked with, where the system looks there
        if hasattr(library, name.format("get")) and hasattr(library, name.format("set")):
            return library[name.format("get")], library[name.format("set")]
    return None


# ------------------------------------------------------------ as kernels
def with_kernels(sink: UOp, table: CallTable) -> tuple[UOp, Pairs]:
    """A graph without HOST nodes: kernels compute their results. A call has one expansion in
    the table, however often it is asked for.

    The pairs are nodes as they were and as they are now, below what a walk down both graphs finds.
    """
    pairs: Pairs = []
    # kernels may themselves be written with functions of the host
    while any([node.op is Ops.HOST for node in sink.toposort()]):
        sink = _expanded(sink, table, pairs)
    return sink, pairs


def _expanded(sink: UOp, table: CallTable, pairs: Pairs) -> UOp:
    needed = _needed(sink)
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        if node not in needed:
            continue
        if node.op is Ops.FUNCTION:
            # its other sources are for gradients, and not part of the computation
            done[node] = done[node.src[0]]
            pairs.append((node.src[0], done[node]))
            continue
        src = tuple([done[source] for source in node.src])
        if node.op is not Ops.HOST:
            done[node] = node if src == node.src else node.with_src(src)
            continue
        key = _key(src, node.arg)
        if key not in table.expansions:
            table.expansions[key] = list(node.arg.kernels(src, *node.arg.static))
        pairs.extend(zip(node.src, src, strict=True))
        done[node] = table.expansions[key][node.arg.number]
    return done[sink]


def _needed(sink: UOp) -> set[UOp]:
    """The nodes that a graph computes."""
    found = {sink}
    pending = [sink]
    while pending:
        node = pending.pop()
        sources = node.src[:1] if node.op is Ops.FUNCTION else node.src
        new = [source for source in sources if source not in found]
        found.update(new)
        pending += new
    return found
