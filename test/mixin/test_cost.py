"""What methods cost: operations and bytes in proportion to what they touch, in few kernels.

Counted, not timed: `GlobalCounters` of two sizes. Work that is the product of two sizes would show
as four times the share per element of the larger one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import Context, Device, GlobalCounters, Tensor

Build = Callable[[int], tuple[Any, ...]]
WIDTH = 16
SIZES = (1 << 12, 1 << 14)


def vector(count: int, dtype: str = "float32") -> Tensor:
    return Tensor(np.random.default_rng(0).permutation(count).astype(dtype)).realize()


def places(count: int, below: int | None = None) -> Tensor:
    found = np.random.default_rng(1).integers(0, below or count, count)
    return Tensor(found.astype(np.int32)).realize()


def table(count: int) -> Tensor:
    return vector(count * WIDTH).reshape(count, WIDTH)


def mask(count: int) -> Tensor:
    return Tensor(np.arange(count) % 3 == 0).realize()


def gathered_gradient(count: int) -> Tensor:
    weight = table(count)
    return weight[places(count)].square().sum().gradient(weight)[0]


def scanned_gradient(count: int) -> Tensor:
    values = vector(count)
    return values.cumsum(0).square().sum().gradient(values)[0]


# name, what is computed of a size, operations and bytes per element at most, kernels at most
COSTS: list[tuple[str, Callable[[int], Any], int, int, int]] = [
    ("embedding", lambda n: table(n)[places(n)], 200, 140, 1),
    ("embedding gradient", gathered_gradient, 400, 600, 3),
    ("gather", lambda n: vector(n).gather(0, places(n)), 20, 12, 1),
    ("take of rows", lambda n: table(n)[:, places(WIDTH)], 400, 140, 1),
    ("one_hot", lambda n: places(n, WIDTH).one_hot(WIDTH), 50, 80, 1),
    ("arange", lambda n: Tensor.arange(3, 3 + 2 * n, 2).contiguous(), 5, 8, 1),
    ("eye", lambda n: Tensor.eye(n // 64, 64).contiguous(), 10, 8, 1),
    ("scatter", lambda n: vector(n).scatter(0, places(n), vector(n)), 20, 40, 2),
    ("scatter sum", lambda n: vector(n).scatter_reduce(0, places(n), vector(n), "sum"), 20, 40, 2),
    ("masked_fill", lambda n: vector(n).masked_fill(mask(n), 0), 10, 12, 1),
    ("masked_select", lambda n: vector(n).masked_select(mask(n), size=n // 2), 500, 100, 16),
    ("nonzero", lambda n: mask(n).nonzero(size=n // 2), 500, 100, 16),
    ("cumsum", lambda n: vector(n).cumsum(0), 60, 20, 9),
    ("cumsum gradient", scanned_gradient, 200, 60, 20),
    ("cummax", lambda n: vector(n).cummax(0)[1], 150, 60, 16),
    ("sort", lambda n: vector(n).sort()[0], 3000, 300, 90),
    ("topk", lambda n: vector(n).topk(10)[0], 700, 60, 40),
    ("interpolate", lambda n: vector(n).interpolate((2 * n,)), 200, 60, 1),
    ("write at indices", lambda n: vector(n).scatter(0, places(n), 1.0), 20, 40, 2),
    ("randperm", lambda n: Tensor.randperm(n), 3000, 300, 90),
    ("multinomial", lambda n: vector(n).multinomial(WIDTH, replacement=True), 700, 80, 30),
]


@pytest.mark.device("CPU")  # where writes have no order, indices are sorted instead
@pytest.mark.parametrize(
    ("build", "operations", "size", "kernels"),
    [each[1:] for each in COSTS],
    ids=[each[0] for each in COSTS],
)
def test_cost_is_in_proportion(
    build: Callable[[int], Any], operations: int, size: int, kernels: int
) -> None:
    shares = []
    for count in SIZES:
        result = build(count)
        GlobalCounters.reset()
        # what a function of the host costs is not counted
        with Context(HOST_CALLS=0):
            result.realize()
        shares.append((GlobalCounters.global_ops / count, GlobalCounters.global_mem / count))
        assert GlobalCounters.kernel_count <= kernels
    for (before, after), most in zip(zip(*shares, strict=True), (operations, size), strict=True):
        assert after <= most
        # a recursion may have one level more
        assert after <= 1.5 * before + 5


def peak(build: Callable[[], Any]) -> int:
    """The most bytes that were in use at one time beside what was there."""
    allocator = Device[Device.DEFAULT].allocator
    before, most, plain = allocator.in_use, 0, allocator.alloc

    def alloc(nbytes: int) -> Any:
        nonlocal most
        opaque = plain(nbytes)
        most = max(most, allocator.in_use - before)
        return opaque

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocator, "alloc", alloc)
        build().realize()
    return most


@pytest.mark.device("CPU")
def test_memory_is_near_that_of_the_result() -> None:
    count = 1 << 16
    values, index, weight = vector(count), places(count), table(count)
    rows = places(count, count)
    assert peak(lambda: values.cumsum(0)) <= 4 * count * 1.25
    assert peak(lambda: values.topk(100)[0]) <= 4 * count * 1.5
    assert peak(lambda: values.scatter(0, index, values)) <= 4 * count * 1.01
    assert peak(lambda: weight[rows]) <= 4 * WIDTH * count * 1.01
    gradient = peak(lambda: weight[rows].sum().gradient(weight)[0])
    # the indices are stored beside it
    assert gradient <= 4 * (WIDTH + 2) * count * 1.01
