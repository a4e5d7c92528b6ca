"""The fragments of Hopper's warp groups: `wgmma.mma_async`, as the PTX ISA manual lays them out.

In: a compute capability. Out: the fragments that its targets list after those of `mma.py`. Beside
the renderers, which print their names. A group is four warps; each of its warps has 16 rows of 64.
Invariant: the map of sums is that of the manual's figure for D of m64nNk16, and operands are rows
of 128 bytes in shared memory, swizzled, as many terms at once as such a row has: one WMMA is
several instructions, one after the other along the terms.
"""

from __future__ import annotations

from weft.dtype import DType, dtypes
from weft.fragment import NOT_HELD, SWIZZLED_BYTES, Digit, Fragment, OperandMap
from weft.renderer.mma import NAMES

_ROWS = 64
# bytes of terms of one instruction
_TERM_BYTES = 32
# columns that are offered; the machine has every multiple of 8
_COLUMNS = (256, 192, 128, 64, 32)
_CAPABILITY = (9, 0)
# of one core and cycle: products of words of 32 bits, and bytes of shared memory
_RATE, _READ_BYTES = 1024.0, 128.0


def wgmma_fragments(major: int, minor: int) -> tuple[Fragment, ...]:
    """What chips of this compute capability have; no other has these instructions."""
    if (major, minor) != _CAPABILITY:
        return ()
    f32, i32 = dtypes.float32, dtypes.int32
    found: list[Fragment] = []
    for columns in _COLUMNS:
        found += [_fragment(kind, kind, f32, columns) for kind in (dtypes.float16, dtypes.bfloat16)]
        if columns % 32 == 0:
            eights = (dtypes.int8, dtypes.uint8)
            found += [_fragment(kind, kind, i32, columns) for kind in eights]
        floats = (dtypes.fp8e4m3, dtypes.fp8e5m2)
        found += [_fragment(a, b, f32, columns) for a in floats for b in floats]
        # nothing is done to operands on their way: what tf32 has no room for is cut off
        found.append(_fragment(f32, f32, f32, columns, exact=False))
    return tuple(found)


def _fragment(a: DType, b: DType, total: DType, columns: int, exact: bool = True) -> Fragment:
    sums = OperandMap(
        (Digit(4, row=16), Digit(8, row=1), Digit(4, column=2)),
        (Digit(columns // 8, column=8), Digit(2, row=8), Digit(2, column=1)),
    )
    terms = SWIZZLED_BYTES // a.itemsize
    kinds = f"{NAMES[a]}.{NAMES[b]}"
    result = "s32" if total is dtypes.int32 else "f32"
    step = _TERM_BYTES // a.itemsize
    name = f"wgmma.mma_async.sync.aligned.m{_ROWS}n{columns}k{step}.{result}.{kinds}"
    return Fragment(
        *(name, _ROWS, columns, terms, a, b, total, NOT_HELD, NOT_HELD, sums),
        repeats=SWIZZLED_BYTES // _TERM_BYTES,
        exact=exact,
        in_shared=True,
        takes_turned=a.itemsize == 2,
        rate=_RATE,
        read_bytes=_READ_BYTES,
    )
