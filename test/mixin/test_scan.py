"""Scans along an axis: cumsum, cumprod, cummax, cummin, logcumsumexp, over blocks and in one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import optional
from weft import GlobalCounters, Tensor, dtypes

torch = optional("torch")

SHAPES = [((0,), 0), ((1,), 0), ((5,), -1), ((17,), 0), ((3, 40), 1), ((40, 3), 0)]
LONG = [((700,), 0), ((2, 1100), 1), ((1100, 3), 0), ((2, 600, 3), 1), ((5000,), 0)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES + LONG)
def test_sums_and_products(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    check(Tensor(array).cumsum(axis), np.cumsum(array, axis))
    near_one = np.abs(array) ** 0.01
    check(Tensor(near_one).cumprod(axis), np.cumprod(near_one, axis))
    single = array.astype(np.float32)
    found = Tensor(single).cumsum(axis).numpy()
    bound = 4 * np.finfo(np.float32).eps * np.cumsum(np.abs(array), axis) * math.sqrt(64)
    assert (np.abs(found - np.cumsum(array, axis)) <= bound + 1e-6).all()


@pytest.mark.parametrize(("shape", "axis"), [s for s in SHAPES if 0 not in s[0]] + LONG)
def test_extremes_and_their_places(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(0).integers(-50, 50, shape).astype(np.float32)
    for name in ("cummax", "cummin"):
        values, places = getattr(Tensor(array), name)(axis)
        wanted = getattr(torch.from_numpy(array), name)(axis)
        check(values, wanted.values.numpy())
        check(places, wanted.indices.numpy())


@pytest.mark.parametrize(("shape", "axis"), SHAPES + LONG)
def test_logcumsumexp(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(0).standard_normal(shape) * 30
    check(Tensor(array).logcumsumexp(axis), torch.from_numpy(array).logcumsumexp(axis).numpy())


def test_logcumsumexp_of_far_apart_and_infinite_values() -> None:
    check(Tensor([-1000.0, 0.0]).logcumsumexp(), np.array([-1000.0, 0.0]))
    infinite = np.array([-np.inf, -np.inf, 1.0, np.inf, 1.0])
    check(Tensor(infinite).logcumsumexp(), np.array([-np.inf, -np.inf, 1.0, np.inf, np.inf]))


def test_ints_bools_and_halves() -> None:
    ints = np.random.default_rng(0).integers(-128, 128, 2000).astype(np.int8)
    check(Tensor(ints).cumsum(0), np.cumsum(ints.astype(np.int32)))
    flags = ints > 0
    check(Tensor(flags).cumsum(0), np.cumsum(flags.astype(np.int32)))
    assert Tensor.ones(4096, dtype=dtypes.float16).cumsum(0)[-1].item() == 4096.0
    wide = np.full(100, 2**40, np.int64)
    check(Tensor(wide).cumsum(0), np.cumsum(wide))


def test_scalars_are_their_own_scan() -> None:
    assert Tensor(3.0).cumsum(0).item() == 3.0
    assert Tensor(3.0).logcumsumexp(0).item() == 3.0


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "logcumsumexp"])
def test_the_work_is_linear(name: str) -> None:
    operations = []
    for count in (1 << 14, 1 << 16):
        values = Tensor(np.ones(count, np.float32)).realize()
        GlobalCounters.reset()
        result = getattr(values, name)(0)
        Tensor.realize(*(result if isinstance(result, tuple) else (result,)))
        operations.append(GlobalCounters.global_ops / count)
        assert GlobalCounters.kernel_count < 30
    assert operations[1] < 1.2 * operations[0] + 10 and operations[1] < 2000


def test_gradient_of_a_long_scan() -> None:
    array, weight = np.random.default_rng(0).standard_normal((2, 1500))
    values = Tensor(array)
    found = (values.cumsum(0) * Tensor(weight)).sum().gradient(values)[0]
    check(found, np.cumsum(weight[::-1])[::-1])
