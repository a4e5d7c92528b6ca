"""Rows of floats: their greatest, NaN and zeros included, and rows of any length."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor

ODD = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001], np.uint32).view(np.float32)
SHAPES = [(1,), (3, 5), (33, 17), (7, 1000), (512, 100)]


def _values(shape: tuple[int, ...], kind: str) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return {"mixed": drawn, "below": -np.abs(drawn), "tiny": drawn * np.float32(1e-40)}[kind]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["mixed", "below", "tiny"])
def test_numbers_infinities_and_nans_of_both_signs(shape: tuple[int, ...], kind: str) -> None:
    plain = _values(shape, kind)
    for number, odd in enumerate([None, *ODD, np.inf, -np.inf, 3.4028235e38, -3.4028235e38]):
        values = plain.copy()
        if odd is not None:
            values.flat[number * 7919 % values.size] = odd
        for axis in range(len(shape)):
            for name in ("max", "min"):
                found = getattr(Tensor(values), name)(axis).numpy()
                np.testing.assert_array_equal(found, getattr(values, name)(axis))


def test_zero_is_above_its_negative() -> None:
    values = np.full((3, 64), -0.0, np.float32)
    values[1, 5] = 0.0
    assert np.signbit(Tensor(values).max(1).numpy()).tolist() == [True, False, True]


def test_nothing_is_above_negative_infinity() -> None:
    values = np.full((4, 64), -np.inf, np.float32)
    assert (Tensor(values).max(1).numpy() == -np.inf).all()


@pytest.mark.parametrize("size", [2, 3])
def test_windows(size: int) -> None:
    values = _values((2, 3, 12, 12), "mixed")
    values[0, 0, 3, 3] = ODD[1]
    found = Tensor(values).max_pool2d((size, size), stride=1).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(values, (size, size), (2, 3))
    np.testing.assert_array_equal(found, windows.max((-1, -2)))


@pytest.mark.parametrize("size", [8, 9, 15, 17, 23, 39, 100, 571, 844])
def test_rows_that_do_not_divide_into_vectors(size: int) -> None:
    """The last tile of a row that is kept overlaps; the rest of a sum has empty lanes."""
    values = _values((5, size), "mixed")
    values[2, size // 2] = 50.0
    power = np.exp(values.astype(np.float64) - values.max(1, keepdims=True))
    expected = power / power.sum(1, keepdims=True)
    np.testing.assert_allclose(Tensor(values).softmax().numpy(), expected, rtol=2e-6, atol=1e-12)
    logs = np.log(power.sum(1, keepdims=True))
    found = Tensor(values).log_softmax().numpy()
    expected = values - values.max(1, keepdims=True) - logs
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)
