"""Sorting against NumPy and PyTorch: stable, nan last, every dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import optional
from weft import Context, GlobalCounters, Tensor, dtypes
from weft.mixin import sort

torch = optional("torch")


@pytest.fixture(autouse=True, params=["by the host", "by kernels"])
def way(request: Any) -> Iterator[str]:
    with Context(HOST_CALLS=int(request.param == "by the host")):
        yield request.param


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(axis: int, descending: bool) -> None:
    data = np.random.default_rng(0).integers(0, 6, (4, 7, 5)).astype(np.float32)
    wanted = torch.tensor(data).sort(dim=axis, descending=descending, stable=True)
    values, places = Tensor(data).sort(axis, descending)
    check(values, wanted.values.numpy())
    check(places, wanted.indices.numpy())
    check(Tensor(data).argsort(axis, descending), wanted.indices.numpy())


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "uint32", "int64", "float16", "float64", "bool"]
)
def test_every_kind_of_number(dtype: str) -> None:
    data = np.random.default_rng(1).integers(0, 200, 50).astype(dtype)
    check(Tensor(data).sort()[0], np.sort(data))


def test_edges() -> None:
    data = np.float32([math.nan, 1, -math.inf, -0.0, 0.0, math.inf, -1])
    check(Tensor(data).argsort(), np.argsort(data, kind="stable"))
    extremes = np.int32([2**31 - 1, -(2**31), 0])
    check(Tensor(extremes).sort()[0], np.sort(extremes))


LONG_DTYPES = ["int8", "uint8", "bool", "int16", "float16", "int32", "float32", "int64", "float64"]


@pytest.mark.parametrize("dtype", [*LONG_DTYPES, "uint64"])
@pytest.mark.parametrize(("shape", "axis"), [((1025,), 0), ((2, 1500), 1), ((1100, 3), 0)])
def test_long_axes_are_sorted_by_digits(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    data = long_data(shape, dtype)
    check(Tensor(data).argsort(axis), np.argsort(data, axis, kind="stable"))
    values, places = Tensor(data).sort(axis, descending=True)
    wanted = np.argsort(backwards(data), axis, kind="stable")
    check(places, wanted)
    check(values, np.take_along_axis(data, wanted, axis))


def long_data(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers over the whole range of a dtype, some of them equal."""
    generator = np.random.default_rng(2)
    if dtype.startswith("float"):
        return np.round(generator.standard_normal(shape) * 100).astype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    data = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(generator.random(shape) < 0.1, limits.max, data).astype(dtype)


def backwards(data: Any) -> Any:
    """Keys of the reverse order."""
    return -data if data.dtype.kind == "f" else ~data


def test_a_long_axis_costs_linear_work() -> None:
    operations = []
    for count in (1 << 13, 1 << 15):
        values = Tensor(np.random.default_rng(0).standard_normal(count).astype(np.float32))
        values.realize()
        GlobalCounters.reset()
        Tensor.realize(*values.sort())
        operations.append(GlobalCounters.global_ops / count)
    assert operations[1] < 1.2 * operations[0] and operations[1] < 5000


TOP = [((5000,), 0, 1), ((5000,), 0, 5), ((3, 20000), 1, 7), ((20000, 2), 0, 100)]


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "axis", "k"), [*TOP, ((6000,), 0, 1000), ((3000,), 0, 2000)])
def test_topk_of_long_axes(shape: tuple[int, ...], axis: int, k: int, dtype: str) -> None:
    data = long_data(shape, dtype)
    for largest in (True, False):
        wanted = np.argsort(backwards(data) if largest else data, axis, kind="stable")
        wanted = np.take(wanted, range(k), axis)
        values, places = Tensor(data).topk(k, axis, largest)
        check(places, wanted)
        check(values, np.take_along_axis(data, wanted, axis))


def test_topk_of_a_long_axis_does_little() -> None:
    values = Tensor(np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)).realize()
    for k, most in ((1, 50), (50, 300), (2000, 500)):
        GlobalCounters.reset()
        Tensor.realize(*values.topk(k))
        assert GlobalCounters.global_ops / (1 << 18) < most


def test_gradient_of_sort_and_topk() -> None:
    data = np.random.default_rng(0).permutation(2000).astype(np.float32)
    weight = np.arange(2000, dtype=np.float32)
    values = Tensor(data)
    found = (values.sort()[0] * Tensor(weight)).sum().gradient(values)[0]
    check(found, weight[np.argsort(np.argsort(data))])
    found = values.topk(3)[0].sum().gradient(values)[0]
    check(found, (data >= 1997).astype(np.float32))


def test_topk() -> None:
    data = np.random.default_rng(3).permutation(40).reshape(4, 10).astype(np.int32)
    for largest in (True, False):
        wanted = torch.tensor(data).topk(3, largest=largest)
        values, places = Tensor(data).topk(3, largest=largest)
        check(values, wanted.values.numpy())
        check(places, wanted.indices.numpy())
    assert Tensor([1, 2]).topk(0)[0].shape == (0,)
    assert Tensor([1, 2]).argsort().dtype is dtypes.default_int


@pytest.mark.parametrize("count", [7, 1500])
@pytest.mark.parametrize("descending", [False, True])
def test_the_extremes_of_int64_are_in_order(count: int, descending: bool) -> None:
    low, high = -(2**63), 2**63 - 1
    values = np.random.default_rng(0).integers(low, high, count, endpoint=True)
    values[:6], values[-1] = [low, high, 0, -1, high, low], low
    # ~x reverses the order without an overflow, which -x has
    order = np.argsort(~values if descending else values, kind="stable")
    found, places = Tensor(values).sort(descending=descending)
    assert found.tolist() == values[order].tolist() and places.tolist() == order.tolist()
    top, at = Tensor(values).topk(5, largest=descending)
    assert top.tolist() == values[order][:5].tolist()
    assert values[at.numpy()].tolist() == top.tolist()
    assert Tensor(values).argmax().item() == values.argmax()


def sorted_both_ways(data: Any, descending: bool) -> list[tuple[bytes, bytes]]:
    """The bytes of values and places, by the host and by kernels."""
    found = []
    for by_host in (1, 0):
        with Context(HOST_CALLS=by_host):
            values, places = Tensor(data).sort(descending=descending)
            found.append((values.numpy().tobytes(), places.numpy().tobytes()))
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_both_ways_agree_to_the_bit_on_what_compares_oddly(dtype: str, descending: bool) -> None:
    generator = np.random.default_rng(4)
    odd = np.array([math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1e-7, -1.5, 1.5], dtype)
    host, kernels = sorted_both_ways(generator.choice(odd, (2, 1500)), descending)
    assert host == kernels


SPREADS: dict[str, Callable[[Any], Any]] = {
    "every bit": lambda generator: generator.integers(-(2**63), 2**63 - 1, (2, 3000)),
    "a few far ones": lambda generator: np.where(
        generator.random((2, 3000)) < 0.01, 2**62, generator.integers(0, 9, (2, 3000))
    ),
    "some equal in their highest bits": lambda generator: np.where(
        generator.random((2, 3000)) < 0.9,
        generator.integers(-(2**63), 2**63 - 1, (2, 3000)),
        generator.integers(-3, 3, (2, 3000)),
    ),
    "all equal": lambda generator: np.full((2, 3000), -(2**63)),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
def test_both_ways_agree_to_the_bit_however_keys_are_spread(spread: str, descending: bool) -> None:
    data = SPREADS[spread](np.random.default_rng(5))
    host, kernels = sorted_both_ways(data, descending)
    assert host == kernels


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 2048, 5000])
@pytest.mark.parametrize("spread", [1, 200, 1 << 15, 1 << 17, (1 << 31) - 1, (1 << 62)])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_the_host_finds_a_stable_order(count: int, spread: int, dtype: str) -> None:
    """Whatever way it takes, by the number of keys and how far they are apart."""
    rng = np.random.default_rng(count)
    lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for first in (lowest, max(lowest, -spread // 2), highest - min(spread, highest)):
        last = min(first + spread, highest)
        keys = rng.integers(first, last, (3, count), dtype=dtype, endpoint=True)
        (found,) = sort._host_order([keys], Tensor)
        np.testing.assert_array_equal(found, np.argsort(keys, 1, kind="stable"))
