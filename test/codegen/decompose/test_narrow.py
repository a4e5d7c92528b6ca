"""Narrow floats against `weft.dtype.convert`: all bits one way, ties and edges the other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from test.codegen.decompose.harness import HALF, PLAIN, compute, interpret, random
from weft.dtype import NARROW_FLOATS, DType, bits_of, convert, dtypes, to_numpy_dtype, value_of_bits
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.uop.node import UOp

narrow = pytest.mark.parametrize("dtype", sorted(NARROW_FLOATS), ids=lambda d: d.name)
renderers = pytest.mark.parametrize(
    "renderer", [PLAIN, HALF, CRenderer()], ids=["llvm", "llvm half", "c"]
)


def bits_kind(dtype: DType) -> type:
    return np.uint16 if dtype.itemsize == 2 else np.uint8


def all_values(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Every pattern of bits, as it lies in memory, and what it means."""
    bits = np.arange(1 << dtype.bitsize).astype(bits_kind(dtype))
    meaning = np.array([value_of_bits(int(b), dtype) for b in bits], np.float64)
    return bits.view(to_numpy_dtype(dtype)), meaning


def bits_of_all(values: np.ndarray, source: DType, dtype: DType) -> np.ndarray:
    return np.array([bits_of(convert(v.item(), source, dtype), dtype) for v in values])


@narrow
@renderers
def test_every_pattern_is_read(dtype: DType, renderer: Renderer) -> None:
    stored, meaning = all_values(dtype)
    found = compute(lambda x: x.cast(dtypes.float32), [stored], [dtype], renderer)
    np.testing.assert_array_equal(found, meaning.astype(np.float32))
    zeros = meaning == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(meaning[zeros]))


@narrow
def test_every_pattern_as_other_types(dtype: DType) -> None:
    stored, meaning = all_values(dtype)
    for target in (dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.bool):
        found = compute(lambda x, to=target: x.cast(to), [stored], [dtype], PLAIN)
        expected = [convert(float(v), dtype, target) for v in meaning]
        np.testing.assert_array_equal(found, np.array(expected, found.dtype))


def rounding_cases(dtype: DType) -> np.ndarray:
    """All values, the ties between them, what is next to the ties, and what is out of range."""
    _, meaning = all_values(dtype)
    values = np.unique(meaning[np.isfinite(meaning)])
    ties = (values[1:] + values[:-1]) / 2
    largest = values[-1]
    out = largest + (largest - values[-2]) * np.array([0.49, 0.5, 0.51, 0.75, 1.0, 2.0])
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 1e-300, -5e-324, 3.4e38]
    return np.concatenate(
        [values, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), out, -out, special]
        + [np.exp2(random.uniform(-160, 140, 2000)) * random.choice([-1, 1], 2000)]
    )


@narrow
@renderers
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_floats_round_once(dtype: DType, renderer: Renderer, source: DType) -> None:
    with np.errstate(all="ignore"):
        x = rounding_cases(dtype).astype(to_numpy_dtype(source))
    found = compute(lambda v: v.cast(dtype), [x], [source], renderer).view(bits_kind(dtype))
    expected = bits_of_all(x, source, dtype)
    # a NaN's sign and payload mean nothing where the machine converts
    known = ~np.isnan(x) | (dtype not in renderer.native_dtypes)
    np.testing.assert_array_equal(found[known], expected[known])


@narrow
@pytest.mark.parametrize("source", (*dtypes.ints, dtypes.bool), ids=lambda d: d.name)
def test_integers_round_once(dtype: DType, source: DType) -> None:
    """2**30 + 2**22 + 1 is above a tie of bfloat16, and must not be seen as one."""
    kind = to_numpy_dtype(source)
    if source is dtypes.bool:
        x = np.array([False, True])
    else:
        sums = [
            sign * ((1 << a) + (1 << b) + c)
            for a in range(1, 64)
            for b in range(a)
            for c in (-1, 0, 1)
            for sign in (1, -1)
        ]
        x = np.array([v for v in sums if source.min <= v <= source.max] + [0, source.max], kind)
    found = compute(lambda v: v.cast(dtype), [x], [source], PLAIN).view(bits_kind(dtype))
    np.testing.assert_array_equal(found, bits_of_all(x, source, dtype))


@narrow
@renderers
def test_rounding_in_place_is_there_and_back(dtype: DType, renderer: Renderer) -> None:
    """CAST(CAST(x, narrow), float32), which need not leave the register."""
    cases = np.concatenate([rounding_cases(dtype), np.array([math.nan, math.inf, -math.inf])])
    values = np.unique(cases.astype(np.float32))
    values = np.concatenate([values, -values])
    build = lambda x: x.cast(dtype).cast(dtypes.float32)  # noqa: E731
    found = compute(build, [values], [dtypes.float32], renderer)
    wide, narrow_type = dtypes.float32, dtype
    wanted = [convert(convert(v.item(), wide, narrow_type), narrow_type, wide) for v in values]
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


@narrow
def test_the_interpreter_agrees(dtype: DType) -> None:
    x = random.permutation(rounding_cases(dtype))[:300]

    def build(v: UOp) -> UOp:
        return v.cast(dtype).cast(dtypes.float64)

    found = interpret(build, [x], [dtypes.float64], PLAIN)
    expected = [convert(float(v), dtypes.float64, dtype) for v in x]
    np.testing.assert_array_equal(found, np.array(expected))


def test_between_two_narrow_types() -> None:
    stored, meaning = all_values(dtypes.bfloat16)
    found = compute(lambda x: x.cast(dtypes.fp8e5m2), [stored], [dtypes.bfloat16], PLAIN)
    expected = bits_of_all(meaning, dtypes.bfloat16, dtypes.fp8e5m2)
    np.testing.assert_array_equal(found.view(np.uint8), expected)
