"""Constructors against NumPy; none but `empty` takes memory."""

from __future__ import annotations

import numpy as np
import pytest

from test.mixin.compare import check
from weft import GlobalCounters, Tensor, Variable, dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 7), (0, 10, 3), (10, 0, -3), (5, 5), (0, 1, 0.25), (1.5, 4), (3, 0)]
)
def test_arange(arguments: tuple[float, ...]) -> None:
    check(Tensor.arange(*arguments), np.arange(*arguments))


def test_arange_dtypes() -> None:
    assert Tensor.arange(3).dtype is dtypes.default_int
    assert Tensor.arange(3.0).dtype is dtypes.default_float
    assert Tensor.arange(3, dtype=dtypes.int8).dtype is dtypes.int8
    assert Tensor.arange(2**33, 2**33 + 2).tolist() == [2**33, 2**33 + 1]
    with pytest.raises(ArgumentError, match="step that is not 0"):
        Tensor.arange(0, 5, 0)


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 100])
def test_linspace(steps: int) -> None:
    check(Tensor.linspace(-1, 3, steps), np.linspace(-1, 3, steps))


def test_linspace_has_exact_ends() -> None:
    values = Tensor.linspace(0.1, 0.7, 7).numpy()
    assert values[0] == np.float32(0.1) and values[-1] == np.float32(0.7)


def test_eye_and_one_hot() -> None:
    check(Tensor.eye(3), np.eye(3))
    check(Tensor.eye(2, 4), np.eye(2, 4))
    assert Tensor([0, 2]).one_hot(3).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_fills() -> None:
    check(Tensor.zeros(2, 3), np.zeros((2, 3)))
    check(Tensor.ones((2, 3), dtype=dtypes.int8), np.ones((2, 3), np.int8))
    check(Tensor.full((2,), 3.5), [3.5, 3.5])
    assert Tensor.full((2,), 3).dtype is dtypes.default_int
    assert Tensor.full((2,), True).dtype is dtypes.bool
    check(Tensor.full((2, 2), Tensor(4.0)), np.full((2, 2), 4.0))


def test_likes_take_shape_dtype_and_device() -> None:
    source = Tensor([[1, 2]], dtype=dtypes.int16)
    for made in (source.zeros_like(), source.ones_like(), source.full_like(7), source.empty_like()):
        assert (made.shape, made.dtype, made.device) == ((1, 2), dtypes.int16, source.device)
    assert source.zeros_like(dtype=dtypes.float32).dtype is dtypes.float32
    assert Tensor.zeros(3).ones_like().device is None


def test_nothing_is_allocated() -> None:
    before = GlobalCounters.mem_used
    kept = [Tensor.zeros(1000, 1000), Tensor.arange(10**6), Tensor.eye(1000), Tensor.ones(10**6)]
    assert GlobalCounters.mem_used == before
    assert len(kept) == 4


def test_wrong_shapes() -> None:
    with pytest.raises(ShapeError, match="negative"):
        Tensor.zeros(-1)
    with pytest.raises(ShapeError, match="a shape has ints"):
        Tensor.zeros(2.5)


def test_numbers_that_no_int64_holds() -> None:
    assert Tensor(2**63).item() == 2**63
    assert Tensor(-(2**63)).item() == -(2**63)
    with pytest.raises(DTypeError, match="fit no dtype"):
        Tensor(2**70)
    assert (Tensor([1.0]) + 2**70).tolist() == [2.0**70]


def test_full_of_a_variable() -> None:
    x = Tensor.full((2,), Variable("n", 1, 5).bind(3))
    assert x.tolist() == [3, 3] and x.dtype is dtypes.int32


def test_a_range_that_the_dtype_does_not_hold_is_refused() -> None:
    for arguments, dtype in (((300,), "int8"), ((-1, 5), "uint8"), ((5,), "bool")):
        with pytest.raises(OverflowError, match="does not fit"):
            Tensor.arange(*arguments, dtype=dtype)
    assert Tensor.arange(-128, 128, dtype="int8").tolist() == list(range(-128, 128))
    assert Tensor.arange(5, 0, dtype="uint8").tolist() == []
    with pytest.raises(ValueError, match="bool"):
        Tensor.linspace(0, 1, 3, dtype="bool")
