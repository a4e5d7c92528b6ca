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


@pytest.mark.parametrize("zeros", [(), (2,), (2, 4), (0, 1, 7)])
@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((3, 40), 1), ((40, 3), 0)])
def test_gradients_of_products_with_zeros(
    shape: tuple[int, ...], axis: int, zeros: tuple[int, ...]
) -> None:
    """First and second order, also where several elements of an axis are zero."""
    if torch is None:
        pytest.skip("the reference is PyTorch's: .venv/bin/pip install -e '.[torch]'")
    draw = np.random.default_rng(0)
    array = draw.uniform(0.5, 1.5, shape) * draw.choice([-1, 1], shape)
    np.moveaxis(array, axis, 0)[list(zeros)] = 0
    weight, direction = draw.standard_normal(shape), draw.standard_normal(shape)
    x, reference = Tensor(array), torch.tensor(array, requires_grad=True)
    slope = (x.cumprod(axis) * Tensor(weight)).sum().gradient(x)[0]
    loss = (reference.cumprod(axis) * torch.tensor(weight)).sum()
    (wanted,) = torch.autograd.grad(loss, reference, create_graph=True)
    check(slope, wanted.detach().numpy())
    curvature = (slope * Tensor(direction)).sum().gradient(x)[0]
    (wanted,) = torch.autograd.grad((wanted * torch.tensor(direction)).sum(), reference)
    check(curvature, wanted.numpy())


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_gradients_of_extremes_go_to_their_places(name: str) -> None:
    array = np.round(np.random.default_rng(0).standard_normal((4, 40)))
    x = Tensor(array)
    values, places = getattr(x, name)(1)
    weight = np.arange(160.0).reshape(4, 40)
    found = (values * Tensor(weight)).sum().gradient(x)[0]
    wanted = np.zeros_like(array)
    for row, column in np.ndindex(array.shape):
        wanted[row, places.numpy()[row, column]] += weight[row, column]
    check(found, wanted)


def test_gradients_of_sums_of_exponentials_do_not_overflow() -> None:
    """x[j] gets sum of g[i] * exp(x[j] - y[i]): also where exp(x) and exp(-y) are beyond floats."""
    array = np.random.default_rng(0).standard_normal((3, 40)) * 500
    weight = np.random.default_rng(1).standard_normal((3, 40))
    x = Tensor(array)
    found = (x.logcumsumexp(1) * Tensor(weight)).sum().gradient(x)[0]
    sums = np.logaddexp.accumulate(array, 1)
    seen = np.tril(np.ones((40, 40), bool))
    with np.errstate(over="ignore"):
        shares = np.where(seen, np.exp(array[:, None, :] - sums[:, :, None]), 0)
    check(found, (weight[:, :, None] * shares).sum(1))


def test_gradients_store_as_much_as_the_scan() -> None:
    x = Tensor(np.random.default_rng(0).uniform(0.5, 1.5, (3, 100)).astype(np.float32))
    for scan in (x.cumprod(1), x.logcumsumexp(1), x.cummax(1)[0], x.cummin(1)[0]):
        (gradient,) = scan.square().sum().gradient(x)
        sizes = [each.size for item in gradient.schedule() for each in item.arguments]
        assert max(sizes) <= 2 * x.numel()
