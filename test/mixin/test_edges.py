"""Values at the edges of methods, where random comparison with PyTorch found others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft import Tensor


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_a_negative_power_of_an_int_is_the_whole_part(dtype: str) -> None:
    base = Tensor([-7, 0, 7, 1, -1, 2], dtype=dtype)
    for exponent, sign in ((-2, 1), (-3, -1)):
        wanted = [0, 0, 0, 1, sign, 0]
        assert (base ** Tensor([exponent], dtype=dtype)).tolist() == wanted
    assert (base ** Tensor([3], dtype=dtype)).tolist()[3:] == [1, -1, 8]


def test_bools_are_close_where_they_are_equal() -> None:
    left, right = Tensor([True, True, False]), Tensor([True, False, False])
    assert left.isclose(right).tolist() == [True, False, True]
    assert left.isclose(Tensor([1.0, 0.0, 1e-9])).tolist() == [True, False, True]


def test_the_rest_of_a_division_towards_zero_has_the_sign_of_the_dividend() -> None:
    x = np.array([-0.0, 0.0, -4.0, 4.0, -2.5, math.nan], np.float32)
    found = Tensor(x).fmod(2.0).numpy()
    np.testing.assert_array_equal(found, np.fmod(x, np.float32(2)))
    np.testing.assert_array_equal(np.signbit(found[:5]), np.signbit(x[:5]))


def test_a_whole_quotient_that_is_too_large_is_infinite() -> None:
    x, y = Tensor([3e38, -3e38, 7.0, 1.0]), Tensor([1e-38, 1e-38, -1e-40, 0.0])
    assert (x // y).tolist() == [math.inf, -math.inf, -math.inf, math.inf]


@pytest.mark.parametrize("is_tensor", [False, True])
def test_lerp_ends_at_its_end(is_tensor: bool) -> None:
    start, end = Tensor([1e30, -1e30, 0.1]), Tensor([-1.0, 1e-8, 0.3])
    for weight, wanted in ((1.0, end), (0.0, start)):
        share = Tensor([weight]).expand(3) if is_tensor else weight
        assert start.lerp(end, share).tolist() == wanted.tolist()
    assert Tensor([0.0, 10.0]).lerp(Tensor([1.0, 20.0]), 0.75).tolist() == [0.75, 17.5]


def test_no_padding_changes_nothing() -> None:
    assert Tensor([1.0, 2.0]).pad(()).tolist() == [1.0, 2.0]
    assert Tensor(3.0).pad(()).item() == 3.0


def test_a_number_is_its_own_transpose() -> None:
    assert Tensor(2.0).transpose(0, -1).item() == 2.0
    with pytest.raises(IndexError):
        Tensor(2.0).transpose(0, 1)
