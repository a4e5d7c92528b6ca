"""Reductions and statistics against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, dtypes
from weft.errors import ShapeError

scipy = optional("scipy")
torch = optional("torch")

DATA = random(3, 4, 5)
AXES: list[Any] = [None, 0, 1, -1, (0, 2)]

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "any": np.any,
    "all": np.all,
    "logsumexp": scipy.special.logsumexp,
    "var": lambda x, axis, keepdims: np.var(x, axis=axis, keepdims=keepdims, ddof=1),
    "std": lambda x, axis, keepdims: np.std(x, axis=axis, keepdims=keepdims, ddof=1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_reduction(name: str, axis: Any) -> None:
    wide = DATA.astype(np.float64)
    for keepdim in (False, True):
        result = getattr(Tensor(DATA), name)(axis=axis, keepdim=keepdim)
        check(result, REDUCTIONS[name](wide, axis=axis, keepdims=keepdim))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_places_of_extremes(axis: int | None) -> None:
    data = np.random.default_rng(1).integers(0, 4, (3, 4, 5)).astype(np.int32)
    check(Tensor(data).argmax(axis), np.argmax(data, axis))
    check(Tensor(data).argmin(axis), np.argmin(data, axis))


def test_argmax_finds_nan() -> None:
    data = np.float32([1, math.nan, 5, math.nan])
    assert Tensor(data).argmax().item() == np.argmax(data)
    assert Tensor(data).argmin().item() == np.argmin(data)


def test_dtypes_of_sums() -> None:
    for given, result in [
        (dtypes.bool, dtypes.int32),
        (dtypes.int8, dtypes.int32),
        (dtypes.uint16, dtypes.uint32),
        (dtypes.int64, dtypes.int64),
        (dtypes.float16, dtypes.float16),
        (dtypes.float64, dtypes.float64),
    ]:
        assert Tensor.ones(3, dtype=given).sum().dtype is result
        assert Tensor.ones(3, dtype=given).max().dtype is given
    assert Tensor([1, 2]).mean().dtype is dtypes.default_float
    assert Tensor([1, 2]).sum(dtype=dtypes.float64).dtype is dtypes.float64


def test_half_accumulates_in_float32() -> None:
    ones = Tensor.ones(4096, dtype=dtypes.float16).contiguous()
    assert ones.sum().item() == 4096
    assert (ones * 30).mean().item() == 30


def test_small_ints_do_not_wrap() -> None:
    assert Tensor([100, 100, 100], dtype=dtypes.int8).sum().item() == 300
    assert Tensor([True, True, False]).sum().item() == 2


def test_reductions_of_nothing() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.sum(0).tolist() == [0.0, 0.0, 0.0]
    assert empty.prod(0).tolist() == [1.0, 1.0, 1.0]
    assert empty.any().item() is False
    assert empty.all().item() is True
    assert empty.max(0).tolist() == [-math.inf] * 3 and empty.min(0).tolist() == [math.inf] * 3
    assert empty.cast("int8").max().item() == -128 and empty.cast("uint8").min().item() == 255
    assert empty.bool().max().item() is False and empty.bool().min().item() is True
    with pytest.raises(ShapeError, match="which is empty"):
        empty.argmax(0)
    assert empty.sum(1).shape == (0,)


def test_max_propagates_nan_and_infinity() -> None:
    assert math.isnan(Tensor([1.0, math.nan]).max().item())
    assert Tensor([-math.inf, -math.inf]).max().item() == -math.inf
    assert Tensor([math.inf, -math.inf]).logsumexp().item() == math.inf
    assert Tensor([-math.inf, -math.inf]).logsumexp().item() == -math.inf


@pytest.mark.parametrize("count", [1, 5, 256, 700])
def test_scans(count: int) -> None:
    data = random(2, count, low=0.9, high=1.1)
    wide = data.astype(np.float64)
    total = Tensor(data).cumsum(1).numpy()
    np.testing.assert_allclose(total, np.cumsum(wide, 1), rtol=4e-7 * math.sqrt(count))
    check(Tensor(data).cummax(1)[0], np.maximum.accumulate(wide, 1))
    check(Tensor(data).cummin(1)[0], np.minimum.accumulate(wide, 1))
    if count <= 256:
        check(Tensor(data).cumprod(1), np.cumprod(wide, 1))


def test_cummax_places_and_logcumsumexp() -> None:
    data = random(3, 6)
    theirs = torch.tensor(data).cummax(1)
    check(Tensor(data).cummax(1)[1], theirs.indices.numpy())
    check(
        Tensor(data).logcumsumexp(1),
        torch.logcumsumexp(torch.tensor(data, dtype=torch.float64), 1).numpy(),
    )


def test_int_scans_are_exact() -> None:
    data = np.arange(1000, dtype=np.int32)
    check(Tensor(data).cumsum(), np.cumsum(data))


def test_normalize_and_isclose() -> None:
    check(
        Tensor(DATA).normalize(),
        torch.nn.functional.normalize(torch.tensor(DATA, dtype=torch.float64)).numpy(),
    )
    assert Tensor([1.0, math.nan]).isclose(Tensor([1.0, math.nan])).tolist() == [True, False]
    assert Tensor([math.inf]).allclose(Tensor([math.inf]))
    assert Tensor([math.nan]).allclose(Tensor([math.nan]), equal_nan=True)
