"""Which tiles run at a time: patches that are about as high as wide."""

from __future__ import annotations

from weft.codegen.opt.patches import patch_of, tiles_of
from weft.dtype import dtypes
from weft.uop.args import AxisType, RangeArg
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_patches_of_many_tiles_are_about_square() -> None:
    # 132 cores, tiles of 128 x 256: 16 of them are 2048 rows, and 9 columns of them 2304
    assert patch_of((32, 128), (16, 256), 132) == 16
    assert patch_of((64, 128), (32, 256), 132) == 16
    assert patch_of((64, 128), (64, 128), 132) in (8, 16)


def test_a_patch_divides_the_tiles() -> None:
    assert patch_of((31, 128), (31, 128), 132) in (1, 31)
    assert patch_of((1, 128), (31, 128), 132) == 1
    for tiles in range(1, 80):
        assert tiles % patch_of((tiles, 128), (12, 256), 132) == 0


def test_tiles_of_flattened_axes_are_counted_up() -> None:
    axes = [
        UOp(Ops.RANGE, dtypes.weakint, (UOp.const(dtypes.weakint, size),), RangeArg((i,), kind))
        for i, (size, kind) in enumerate(((3, AxisType.LOOP), (50, AxisType.LOOP)))
    ]
    assert tiles_of(axes, 64) == 3
