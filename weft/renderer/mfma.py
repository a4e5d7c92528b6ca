"""The fragments of AMD's matrix units: WMMA of RDNA 3 and 4, MFMA of CDNA.

In: the name of an architecture. Out: the fragments that its target lists. Beside the renderers,
which call the intrinsics that bear their names. All are 16 rows by 16 columns.
Invariant: maps say which element a lane holds, as LLVM's intrinsics take them: RDNA 3 holds every
element of A and B in two lanes, RDNA 4 and CDNA in one.
"""

from __future__ import annotations

from weft.dtype import DType, dtypes
from weft.fragment import Digit, Fragment, OperandMap

_SIDE = 16

# how intrinsics call what they multiply
_NAMES = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.int8: "iu8",
    dtypes.uint8: "iu8",
    dtypes.fp8e4m3: "fp8",
    dtypes.fp8e5m2: "bf8",
}


def amd_fragments(arch: str) -> tuple[Fragment, ...]:
    """What an architecture multiplies; () where it has no matrix unit that is described here."""
    half, brain, f32, i32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32
    eights = (dtypes.fp8e4m3, dtypes.fp8e5m2)
    if arch.startswith("gfx11"):
        narrow = [_doubled(kind, f32) for kind in (half, brain)]
        return (*narrow, *[_doubled(kind, i32) for kind in (dtypes.int8, dtypes.uint8)])
    if arch.startswith("gfx12"):
        found = [_shared(kind, kind, f32) for kind in (half, brain)]
        found += [_shared(kind, kind, i32) for kind in (dtypes.int8, dtypes.uint8)]
        return (*found, *[_shared(a, b, f32) for a in eights for b in eights])
    if arch == "gfx90a":
        return (_blocked(half, 16, "16x16x16f16"), _blocked(brain, 16, "16x16x16bf16.1k"))
    if arch in ("gfx942", "gfx950"):
        wide = arch == "gfx950"
        terms = 32 if wide else 16
        names = ("16x16x32.f16", "16x16x32.bf16") if wide else ("16x16x16f16", "16x16x16bf16.1k")
        found = [_blocked(kind, terms, n) for kind, n in zip((half, brain), names, strict=True)]
        found.append(_blocked(dtypes.int8, 32, "16x16x32.i8", total=i32))
        pairs = [(a, b) for a in eights for b in eights] if wide else []
        return (
            *found,
            *[_blocked(a, 32, f"16x16x32.{_NAMES[a]}.{_NAMES[b]}", b) for a, b in pairs],
        )
    return ()


def _doubled(kind: DType, total: DType) -> Fragment:
    """RDNA 3: a lane has a whole row or column, and so has the lane 16 after it."""
    rows = OperandMap((Digit(2), Digit(_SIDE, row=1)), (Digit(_SIDE, column=1),))
    columns = OperandMap((Digit(2), Digit(_SIDE, column=1)), (Digit(_SIDE, row=1),))
    sums = OperandMap((Digit(2, row=1), Digit(_SIDE, column=1)), (Digit(8, row=2),))
    name = f"wmma.{_result(total)}.16x16x16.{_NAMES[kind]}"
    return Fragment(name, _SIDE, _SIDE, _SIDE, kind, kind, total, rows, columns, sums)


def _shared(a: DType, b: DType, total: DType) -> Fragment:
    """RDNA 4: lanes 16 to 31 have the second eight of the terms, and of the rows of sums."""
    rows = OperandMap((Digit(2, column=8), Digit(_SIDE, row=1)), (Digit(8, column=1),))
    columns = OperandMap((Digit(2, row=8), Digit(_SIDE, column=1)), (Digit(8, row=1),))
    sums = OperandMap((Digit(2, row=8), Digit(_SIDE, column=1)), (Digit(8, row=1),))
    kinds = f"{_NAMES[a]}.{_NAMES[b]}" if a.itemsize == 1 and a.kind == "float" else _NAMES[a]
    name = f"wmma.{_result(total)}.16x16x16.{kinds}"
    return Fragment(name, _SIDE, _SIDE, _SIDE, a, b, total, rows, columns, sums)


def _blocked(
    a: DType, terms: int, name: str, b: DType | None = None, total: DType = dtypes.float32
) -> Fragment:
    """CDNA: each sixteen of the 64 lanes have a quarter of the terms, and of the rows of sums."""
    quarter = terms // 4
    rows = OperandMap((Digit(4, column=quarter), Digit(_SIDE, row=1)), (Digit(quarter, column=1),))
    columns = OperandMap((Digit(4, row=quarter), Digit(_SIDE, column=1)), (Digit(quarter, row=1),))
    sums = OperandMap((Digit(4, row=4), Digit(_SIDE, column=1)), (Digit(4, row=1),))
    full = f"mfma.{_result(total)}.{name}"
    return Fragment(full, _SIDE, _SIDE, terms, a, b or a, total, rows, columns, sums)


def _result(total: DType) -> str:
    return "i32" if total is dtypes.int32 else "f32"
