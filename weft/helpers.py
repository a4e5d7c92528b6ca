"""Small pure helpers: numbers, text, memory; and every name that users import from here.

In: Python values. Out: Python values; nothing here knows a node, a device or a dtype. Sits above
the knobs, `sequences` and `watching`, whose public names it passes on, and below everything else.
Invariant: nothing that is imported or called here loads a third-party library.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
from weft.sequences import (
    all_same,
    argfix,
    argsort,
    count,
    dedup,
    flatten,
    fully_flatten,
    get_shape,
    get_single_element,
    merge_dicts,
    partition,
    unwrap,
)
from weft.watching import GlobalCounters, Profiling, Timing, disable_gc

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
