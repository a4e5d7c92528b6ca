"""SQRT, TRUNC, MAX where they lack, and THREEFRY."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from test.codegen.decompose.harness import (
    WIDER,
    Lacking,
    alu,
    any_bits,
    compute,
    f32,
    f64,
    interpret,
    random,
    worst_ulp,
)
from test.codegen.decompose.test_transcendental import edges
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.renderer.c import CRenderer
from weft.uop.opset import Ops

LACKING = Lacking(Ops.SQRT, Ops.TRUNC, Ops.MAX)
both = pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)


@both
def test_sqrt(dtype: DType) -> None:
    x = np.concatenate([edges(dtype), any_bits(dtype, 200_000)])
    with np.errstate(all="ignore"):
        expected = np.sqrt(x.astype(WIDER[dtype]))
    assert worst_ulp(compute(alu(Ops.SQRT), [x], [dtype], LACKING), expected) < 0.7


@both
def test_trunc(dtype: DType) -> None:
    around = random.normal(0, 1, 1000) + np.exp2(random.uniform(0, 60, 1000))
    x = np.concatenate(
        [edges(dtype), any_bits(dtype, 50_000), around.astype(to_numpy_dtype(dtype))]
    )
    found = compute(alu(Ops.TRUNC), [x], [dtype], LACKING)
    with np.errstate(invalid="ignore"):
        assert worst_ulp(found, np.trunc(x)) == 0
    interpret(alu(Ops.TRUNC), [x[:200].copy()], [dtype], LACKING)


@both
def test_max(dtype: DType) -> None:
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40]
    pairs = np.array(list(itertools.product(values, values)), to_numpy_dtype(dtype))
    x, y = pairs[:, 0].copy(), pairs[:, 1].copy()
    expected = np.maximum(x, y)
    zeros = (x == 0) & (y == 0)
    expected[zeros] = x[zeros] + y[zeros]
    for renderer in (LACKING, CRenderer()):
        found = compute(alu(Ops.MAX), [x, y], [dtype, dtype], renderer)
        assert worst_ulp(found, expected) == 0


@pytest.mark.parametrize("dtype", (*dtypes.ints, dtypes.bool), ids=lambda d: d.name)
def test_max_of_integers(dtype: DType) -> None:
    kind = to_numpy_dtype(dtype)
    x, y = (random.integers(0, 255, 64).astype(np.uint8).astype(kind) for _ in range(2))
    found = compute(alu(Ops.MAX), [x, y], [dtype, dtype], LACKING)
    np.testing.assert_array_equal(found, np.maximum(x, y))


def words(low: int, high: int) -> int:
    return low | high << 32


def test_threefry_known_answers() -> None:
    """The vectors of Random123's kat_vectors for threefry2x32 with 20 rounds."""
    counters = [words(0, 0), words(0xFFFFFFFF, 0xFFFFFFFF), words(0x243F6A88, 0x85A308D3)]
    keys = [words(0, 0), words(0xFFFFFFFF, 0xFFFFFFFF), words(0x13198A2E, 0x03707344)]
    answers = [
        words(0x6B200159, 0x99BA4EFE),
        words(0x1CB996FC, 0xBB002BE7),
        words(0xC4923A9C, 0x483DF7A0),
    ]
    x, key = np.array(counters, np.uint64), np.array(keys, np.uint64)
    u64 = dtypes.uint64
    for renderer in (LACKING, CRenderer()):
        found = compute(alu(Ops.THREEFRY), [x, key], [u64, u64], renderer, lanes=1)
        assert found.tolist() == answers
    assert interpret(alu(Ops.THREEFRY), [x, key], [u64, u64]).tolist() == answers
