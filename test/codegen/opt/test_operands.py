"""Operands that are computed out of less memory: staged in panels, with the same values."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import run_for, run_plain
from test.codegen.opt.test_heuristic import TARGETS, WIDE
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import OptOps
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

GROUP = 16  # columns side by side in memory
WORDS = 4  # bytes of a block


def product(
    rows: int, columns: int, blocks: int, is_grouped: bool = True
) -> tuple[UOp, list[np.ndarray]]:
    """A product with numbers of four bits, with a scale of a byte for each block of eight."""
    rng = np.random.default_rng(rows * columns)
    terms = blocks * 2 * WORDS
    arrays: list[np.ndarray] = [
        np.zeros(rows * columns, np.float32),
        rng.integers(-4, 5, rows * terms).astype(np.float32),
        rng.integers(0, 256, columns * blocks * WORDS).astype(np.uint8),
        rng.integers(0, 8, columns * blocks).astype(np.uint8),
    ]
    out, x, words, scales = params(*arrays)
    a = Axes()
    m, n, b, f, r = a.loop(rows), a.loop(columns), a.reduce(blocks), a.reduce(2), a.reduce(WORDS)
    place = (n * blocks + b) * WORDS + r
    if is_grouped:
        place = ((n // GROUP * blocks + b) * WORDS + r) * GROUP + n % GROUP
    bits = (load(words, place) >> (f * 4).cast(dtypes.uint8)) & UOp.const(dtypes.uint8, 15)
    weight = bits.cast(dtypes.float32) * load(scales, n * blocks + b).cast(dtypes.float32)
    term = load(x, m * terms + (b * 2 + f) * WORDS + r) * weight
    ast = kernel(out.index(m * columns + n).store(term.reduce(Ops.ADD, b, f, r), m, n))
    return ast, arrays


def stages(ast: UOp, target: Target = WIDE) -> int:
    return [opt.op for opt in optimise(ast, target).arg.applied].count(OptOps.STAGE)


@pytest.mark.parametrize("is_grouped", [True, False])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("rows, columns, blocks", [(18, 32, 2), (20, 48, 3), (9, 16, 1)])
def test_panels_have_the_same_values(
    rows: int, columns: int, blocks: int, target: Target, is_grouped: bool
) -> None:
    ast, arrays = product(rows, columns, blocks, is_grouped)
    found, expected = run_for(ast, arrays, target), run_plain(ast, arrays)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_many_rows_have_panels(target: Target) -> None:
    assert stages(product(64, 64, 8)[0], target) == 1


def test_the_rows_of_one_tile_have_none() -> None:
    assert stages(product(4, 64, 8)[0]) == 0


def test_tiles_begin_where_groups_do() -> None:
    """In tiles of 32 the last one of 80 columns would overlap: nobody knows where it begins."""
    for opt in optimise(product(64, 80, 8)[0], WIDE).arg.applied:
        if opt.op in (OptOps.UPCAST, OptOps.VECTOR) and opt.axis in ((1,), (1, 1)):
            assert isinstance(opt.arg, int) and 80 % opt.arg == 0
