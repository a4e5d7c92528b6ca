"""The fragments of NVIDIA's tensor cores: `mma.sync`, as the PTX ISA manual lays them out.

In: a compute capability. Out: the fragments that its targets list. Beside the renderers, which
print their names. All of them are 16 rows by 16 columns: two instructions of 8 columns each, so
that four matrices of 8 rows (one `ldmatrix`) are an operand of either side.
Invariant: maps are those of the manual's figures ("Matrix Fragments for mma.m16n8k16" and so on),
with groupID = lane // 4 and threadID_in_group = lane % 4.
"""

from __future__ import annotations

from weft.dtype import DType, dtypes
from weft.fragment import Digit, Fragment, OperandMap

_SIDE = 16
# columns of one instruction
_COLUMNS = 8

# how the instructions call dtypes
NAMES = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "tf32",
    dtypes.int8: "s8",
    dtypes.uint8: "u8",
    dtypes.fp8e4m3: "e4m3",
    dtypes.fp8e5m2: "e5m2",
}
_GROUP, _IN_GROUP = 8, 4


def _fragment(a: DType, b: DType, total: DType, exact: bool = True) -> Fragment:
    """A lane has words of 4 bytes of both operands, two groups of them along the terms."""
    word = 4 // a.itemsize
    terms = 2 * _IN_GROUP * word
    half = _IN_GROUP * word
    rows = OperandMap(
        (Digit(_GROUP, row=1), Digit(_IN_GROUP, column=word)),
        _digits(Digit(2, column=half), Digit(2, row=_GROUP), Digit(word, column=1)),
    )
    columns = OperandMap(
        (Digit(_GROUP, column=1), Digit(_IN_GROUP, row=word)),
        _digits(Digit(2, column=_COLUMNS), Digit(2, row=half), Digit(word, row=1)),
    )
    sums = OperandMap(
        (Digit(_GROUP, row=1), Digit(_IN_GROUP, column=2)),
        (Digit(2, column=_COLUMNS), Digit(2, row=_GROUP), Digit(2, column=1)),
    )
    kinds = f"{NAMES[a]}.{NAMES[b]}"
    result = "s32" if total is dtypes.int32 else "f32"
    name = f"mma.sync.aligned.m16n8k{terms}.row.col.{result}.{kinds}.{result}"
    return Fragment(name, _SIDE, _SIDE, terms, a, b, total, rows, columns, sums, 2, exact)


def _digits(*digits: Digit) -> tuple[Digit, ...]:
    return tuple([digit for digit in digits if digit.size > 1])


def mma_fragments(major: int, minor: int) -> tuple[Fragment, ...]:
    """What a chip of this compute capability has, from 8.0 on; 8-bit floats from 8.9 on."""
    if major < 8:
        return ()
    half, brain, f32, i32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32
    found = [_fragment(kind, kind, f32) for kind in (half, brain)]
    found += [_fragment(kind, kind, i32) for kind in (dtypes.int8, dtypes.uint8)]
    if (major, minor) >= (8, 9):
        eights = (dtypes.fp8e4m3, dtypes.fp8e5m2)
        found += [_fragment(a, b, f32) for a in eights for b in eights]
    return (*found, _fragment(f32, f32, f32, exact=False))
