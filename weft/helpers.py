"""Small pure helpers, and the counters that `DEBUG` and the tests read.

In: Python values. Out: Python values; nothing here knows a node, a device or a dtype. Sits above
the knobs, whose public names it passes on, and below everything else. Invariant: nothing that is
imported or called here loads a third-party library.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from weft.compat_helpers import (
    CHUNK_SIZE,
    Metadata,
    ProfileEvent,
    ProfilePointEvent,
    ProfileRangeEvent,
    Target,
    TracingKey,
    all_int,
    ansipad,
    canonicalize_strides,
    colorize_float,
    cpu_events,
    cpu_profile,
    data64,
    data64_le,
    flat_mv,
    flat_to_grouped,
    floordiv,
    floormod,
    fromimport,
    get_child,
    hi32,
    i2u,
    is_image_shape,
    lo32,
    make_tuple,
    next_power2,
    pad_bytes,
    panic,
    perf_counter_us,
    pluralize,
    printable,
    profile_marker,
    resolve_pool_pads,
    round_down,
    size_to_str,
    stderr_log,
    strides_for_shape,
    suppress_finalizing,
    system,
    to_be32,
    to_be64,
    to_function_name,
    to_tuple,
    wait_cond,
)
from weft.disk import diskcache, diskcache_clear, diskcache_get, diskcache_put
from weft.download import fetch
from weft.errors import ArgumentError, DataError
from weft.knobs import (
    ALL2ALL,
    ALLOW_DEVICE_USAGE,
    ALLOW_TF32,
    ALLREDUCE_CAST,
    BEAM,
    CACHELEVEL,
    CAPTURE_PROCESS_REPLAY,
    CAPTURING,
    CCACHE,
    CHECK_OOB,
    DEBUG,
    DEBUG_RANGEIFY,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    DEV,
    DISABLE_FAST_IDIV,
    DISALLOW_BROADCAST,
    EMULATED_DTYPES,
    FLOAT16,
    FUSE_OPTIM,
    IGNORE_BEAM_CACHE,
    IMAGE,
    JIT,
    JIT_BATCH_SIZE,
    LRU,
    MAX_BUFFER_SIZE,
    MAX_KERNEL_BUFFERS,
    NO_COLOR,
    NO_MEMORY_PLANNER,
    NOLOCALS,
    NOOPT,
    NULL_ALLOW_COPYOUT,
    NUM_CPU_THREADS,
    OPENPILOT_HACKS,
    PARALLEL,
    PCONTIG,
    PROFILE,
    RING,
    SCACHE,
    SPEC,
    SPLIT_REDUCEOP,
    TC_OPT,
    TC_SELECT,
    TRACEMETA,
    TRAINING,
    TRANSCENDENTAL,
    TUPLE_ORDER,
    USE_ATOMICS,
    USE_TC,
    VALIDATE,
    VIZ,
    WINO,
    Context,
    ContextVar,
    getenv,
)
from weft.progress import ansilen, ansistrip, colored, split_ansi, time_to_str, tqdm, trange

__all__ = [
    "ALL2ALL",
    "ALLOW_DEVICE_USAGE",
    "ALLOW_TF32",
    "ALLREDUCE_CAST",
    "BEAM",
    "CACHELEVEL",
    "CAPTURE_PROCESS_REPLAY",
    "CAPTURING",
    "CCACHE",
    "CHECK_OOB",
    "CHUNK_SIZE",
    "Context",
    "ContextVar",
    "DEBUG",
    "DEBUG_RANGEIFY",
    "DEFAULT_FLOAT",
    "DEFAULT_INT",
    "DEV",
    "DISABLE_FAST_IDIV",
    "DISALLOW_BROADCAST",
    "EMULATED_DTYPES",
    "FLOAT16",
    "FUSE_OPTIM",
    "GlobalCounters",
    "IGNORE_BEAM_CACHE",
    "IMAGE",
    "JIT",
    "JIT_BATCH_SIZE",
    "LRU",
    "MAX_BUFFER_SIZE",
    "MAX_KERNEL_BUFFERS",
    "Metadata",
    "NOLOCALS",
    "NOOPT",
    "NO_COLOR",
    "NO_MEMORY_PLANNER",
    "NULL_ALLOW_COPYOUT",
    "NUM_CPU_THREADS",
    "OPENPILOT_HACKS",
    "OSX",
    "PARALLEL",
    "PCONTIG",
    "PROFILE",
    "ProfileEvent",
    "ProfilePointEvent",
    "ProfileRangeEvent",
    "Profiling",
    "RING",
    "SCACHE",
    "SPEC",
    "SPLIT_REDUCEOP",
    "TC_OPT",
    "TC_SELECT",
    "TRACEMETA",
    "TRAINING",
    "TRANSCENDENTAL",
    "TUPLE_ORDER",
    "Target",
    "Timing",
    "TracingKey",
    "USE_ATOMICS",
    "USE_TC",
    "VALIDATE",
    "VALIDATE_WITH_CPU",
    "VIZ",
    "WIN",
    "WINO",
    "all_int",
    "all_same",
    "ansilen",
    "ansipad",
    "ansistrip",
    "argfix",
    "argsort",
    "canonicalize_strides",
    "cdiv",
    "ceildiv",
    "cmod",
    "colored",
    "colorize_float",
    "count",
    "cpu_events",
    "cpu_profile",
    "data64",
    "data64_le",
    "dedup",
    "disable_gc",
    "diskcache",
    "diskcache_clear",
    "diskcache_get",
    "diskcache_put",
    "fetch",
    "flat_mv",
    "flat_to_grouped",
    "flatten",
    "floordiv",
    "floormod",
    "from_mv",
    "fromimport",
    "fully_flatten",
    "get_child",
    "get_shape",
    "get_single_element",
    "getbits",
    "getenv",
    "hi32",
    "i2u",
    "is_image_shape",
    "lo32",
    "make_tuple",
    "merge_dicts",
    "mv_address",
    "next_power2",
    "pad_bytes",
    "panic",
    "partition",
    "perf_counter_us",
    "pluralize",
    "polyN",
    "printable",
    "prod",
    "profile_marker",
    "resolve_pool_pads",
    "round_down",
    "round_up",
    "size_to_str",
    "stderr_log",
    "strides_for_shape",
    "strip_parens",
    "suppress_finalizing",
    "system",
    "temp",
    "time_to_str",
    "to_be32",
    "to_be64",
    "to_function_name",
    "to_mv",
    "to_tuple",
    "tqdm",
    "trange",
    "unwrap",
    "wait_cond",
    "word_wrap",
]

Item = TypeVar("Item")
Key = TypeVar("Key")
Value = TypeVar("Value")

VALIDATE_WITH_CPU = VALIDATE
OSX = sys.platform == "darwin"
WIN = sys.platform == "win32"


# Numbers. The operands may be symbolic, so these use operators only, and no comparison.


def prod(factors: Iterable[Any]) -> Any:
    """The product, 1 for none.

    >>> prod((2, 3, 4))
    24
    """
    product: Any = 1
    for factor in factors:
        # Keeps `1 * symbol` out of shapes.
        product = factor if isinstance(product, int) and product == 1 else product * factor
    return product


def ceildiv(number: Any, divisor: Any) -> Any:
    """`number / divisor`, rounded up.

    >>> ceildiv(7, 2), ceildiv(-7, 2)
    (4, -3)
    """
    if isinstance(number, int) and isinstance(divisor, int):
        return -(-number // divisor)
    if isinstance(number, float) or isinstance(divisor, float):
        return int(-(-number // divisor))
    # of symbols the form that simplifies better
    return (number + divisor - 1) // divisor


def round_up(number: Any, multiple: Any) -> Any:
    """The first multiple that is not below `number`.

    >>> round_up(7, 4)
    8
    """
    return ceildiv(number, multiple) * multiple


def cdiv(number: int, divisor: int) -> int:
    """Division that cuts towards zero, as C's; 0 for a divisor of 0.

    >>> cdiv(-7, 2), cdiv(7, 0)
    (-3, 0)
    """
    if divisor == 0:
        return 0
    quotient = abs(number) // abs(divisor)
    return quotient if (number < 0) == (divisor < 0) else -quotient


def cmod(number: int, divisor: int) -> int:
    """The rest of `cdiv`, with the sign of `number`; 0 for a divisor of 0.

    >>> cmod(-7, 2), cmod(7, 0)
    (-1, 0)
    """
    return number - cdiv(number, divisor) * divisor if divisor else 0


def getbits(value: int, start: int, end: int) -> int:
    """Bits `start` to `end` of a value, both included.

    >>> bin(getbits(0b110100, 2, 4))
    '0b101'
    """
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def polyN(x: Any, coefficients: Sequence[Any]) -> Any:
    """The polynomial with these coefficients, that of the highest power first, by Horner's rule.

    >>> polyN(2.0, [1.0, 0.0, 3.0])
    7.0
    """
    return functools.reduce(lambda sum_so_far, c: sum_so_far * x + c, coefficients, 0.0)


# Sequences.


def dedup(items: Iterable[Item]) -> list[Item]:
    """The items without repetitions, in order of their first appearance."""
    return list(dict.fromkeys(items))


def flatten(parts: Iterable[Iterable[Item]]) -> list[Item]:
    """One list of the items of all parts."""
    return [item for part in parts for item in part]


def fully_flatten(nested: Any) -> list[Any]:
    """One list of everything in nested lists, tuples and arrays, whatever the depth.

    >>> fully_flatten([1, [2, (3, [])]])
    [1, 2, 3]
    """
    flat: list[Any] = []
    pending = [nested]
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
        elif hasattr(item, "__array__") and hasattr(item, "flatten"):
            flat.extend(item.flatten())
        else:
            flat.append(item)
    return flat


def get_shape(nested: Any) -> tuple[int, ...]:
    """The shape of nested lists or tuples of numbers.

    >>> get_shape([[1, 2, 3], [4, 5, 6]])
    (2, 3)
    """
    if hasattr(nested, "shape"):
        return tuple(nested.shape)
    shape: list[int] = []
    level = [nested]
    while level and any(isinstance(item, (list, tuple)) for item in level):
        lengths = {len(item) if isinstance(item, (list, tuple)) else -1 for item in level}
        if len(lengths) != 1:
            found = ", ".join("a number" if n < 0 else f"length {n}" for n in sorted(lengths))
            raise DataError(
                f"the data is ragged: beside each other at depth {len(shape)} stand {found}; "
                "a tensor needs equal lengths"
            )
        shape.append(lengths.pop())
        level = [item for part in level for item in part]
    return tuple(shape)


def argfix(*args: Any) -> tuple[Any, ...]:
    """Arguments given one by one or as a single sequence, as a tuple.

    >>> argfix(1, 2) == argfix((1, 2)) == argfix([1, 2])
    True
    """
    if args and isinstance(args[0], (tuple, list)):
        if len(args) != 1:
            raise ArgumentError(f"give one sequence or separate values, not both: {args}")
        return tuple(args[0])
    return args


def argsort(items: Sequence[Any]) -> Any:
    """The positions that sort `items`; of a permutation, its inverse. As the type of `items`.

    >>> argsort((2, 0, 1))
    (1, 2, 0)
    """
    order = sorted(range(len(items)), key=items.__getitem__)
    return tuple(order) if isinstance(items, tuple) else order


def all_same(items: Sequence[Any]) -> bool:
    """Whether all items are equal; true for none."""
    return all(item == items[0] for item in items)


def partition(
    items: Iterable[Item], condition: Callable[[Item], Any]
) -> tuple[list[Item], list[Item]]:
    """The items that meet the condition, and the others."""
    meeting: list[Item] = []
    others: list[Item] = []
    for item in items:
        (meeting if condition(item) else others).append(item)
    return meeting, others


def get_single_element(items: Iterable[Item]) -> Item:
    """The only item of a collection that has one."""
    found = list(items)
    if len(found) != 1:
        raise ArgumentError(f"exactly one element was expected, but there are {len(found)}")
    return found[0]


def merge_dicts(mappings: Iterable[Mapping[Key, Value]]) -> dict[Key, Value]:
    """One dict of all; a key that comes twice must come with the same value."""
    merged: dict[Key, Value] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            if key in merged and merged[key] != value:
                raise ArgumentError(f"{key} is given as {merged[key]} and as {value}")
            merged[key] = value
    return merged


def unwrap(value: Item | None) -> Item:
    """The value, which the caller knows not to be None."""
    if value is None:
        raise ArgumentError("a value was expected here, but there is None")
    return value


class count:
    """Counts up from `start`, as `itertools.count`, but can be pickled and looked at."""

    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.n = start
        self.step = step

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        current = self.n
        self.n += self.step
        return current


# Text.


def strip_parens(text: str) -> str:
    """`text` without a pair of parentheses that encloses all of it.

    >>> strip_parens("(a+b)"), strip_parens("(a)+(b)")
    ('a+b', '(a)+(b)')
    """
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position != len(text) - 1:
            return text
    return text[1:-1]


def word_wrap(text: str, wrap: int = 80) -> str:
    """`text` in lines of at most `wrap` visible characters; colours cost no width."""
    wrapped: list[str] = []
    width = 0
    for piece in split_ansi(text):
        if piece == "\n":
            width = 0
        elif len(piece) == 1:
            if width == wrap:
                wrapped.append("\n")
                width = 0
            width += 1
        wrapped.append(piece)
    return "".join(wrapped)


def temp(name: str, append_user: bool = False) -> str:
    """Path of a file of that name in the folder for temporary files."""
    import getpass
    import tempfile

    full_name = f"{name}.{getpass.getuser()}" if append_user else name
    return (Path(tempfile.gettempdir()) / full_name).as_posix()


# Memory.


def to_mv(address: int, size: int) -> memoryview:
    """A view of `size` bytes of memory at an address. The caller keeps that memory alive."""
    return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")


def from_mv(view: memoryview, to_type: Any = ctypes.c_char) -> Any:
    """A ctypes pointer to the memory of a writable view."""
    return ctypes.cast(mv_address(view), ctypes.POINTER(to_type))


def mv_address(view: memoryview) -> int:
    """The address of the memory of a writable view."""
    if view.nbytes == 0:
        return 0
    return ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B")))


# Watching.


class Counters:
    """What has run so far in this process."""

    __slots__ = (
        "global_mem",
        "global_ops",
        "kernel_count",
        "mem_used",
        "mem_used_per_device",
        "time_sum_s",
    )

    def __init__(self) -> None:
        self.mem_used = 0
        self.mem_used_per_device: defaultdict[str, int] = defaultdict(int)
        self.reset()

    def reset(self) -> None:
        """Sets the counters of work to zero. Memory in use stays in use, so its counters stay."""
        self.global_ops = 0
        self.global_mem = 0
        self.time_sum_s = 0.0
        self.kernel_count = 0


# an object and no class: to set something of a class makes Python forget what it knows of it
GlobalCounters = Counters()


class Timing(contextlib.ContextDecorator):
    """Prints how long a block took. `on_exit` may add to the line; it is given nanoseconds."""

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix = prefix
        self.on_exit = on_exit
        self.enabled = enabled

    def __enter__(self) -> Timing:
        self.start = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.et = time.perf_counter_ns() - self.start
        if self.enabled:
            addition = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{addition}")


class Profiling(contextlib.ContextDecorator):
    """Prints where the Python time of a block went, or saves the profile to the file `fn`."""

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ) -> None:
        self.enabled = enabled
        self.sort = sort
        self.frac = frac
        self.fn = fn
        self.ts = ts

    def __enter__(self) -> Profiling:
        import cProfile

        # In milliseconds, or in units of `ts` of them: seconds would print as zeros.
        self.profile = cProfile.Profile(time.perf_counter_ns, 1e-6 / self.ts)
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.enabled:
            return
        import pstats

        self.profile.disable()
        if self.fn:
            self.profile.dump_stats(self.fn)
        pstats.Stats(self.profile).strip_dirs().sort_stats(self.sort).print_stats(self.frac)


@contextlib.contextmanager
def disable_gc() -> Generator[None, None, None]:
    """Runs a block, or a decorated function, without garbage collection."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
