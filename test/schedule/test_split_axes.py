"""split_reduced_axes: sums over blocks are sums over the axes that the blocks have."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, dtypes
from weft.schedule.split_axes import split_reduced_axes
from weft.uop.ops import Ops, UOp


def reduction(value: Tensor) -> UOp:
    """The first reduction below a tensor."""
    return next(u for u in reversed(value.uop.toposort()) if u.op is Ops.REDUCE_AXIS)


def sizes(value: Tensor) -> tuple[int, ...]:
    """Of the axes that the rule reduces over; () where it leaves the reduction alone."""
    after = split_reduced_axes(reduction(value))
    if after is None:
        return ()
    split = next(u for u in after.toposort() if u.op is Ops.REDUCE_AXIS)
    assert after.shape == reduction(value).shape
    return tuple(split.src[0].shape[axis] for axis in split.arg.axes)


def scaled(rows: int, blocks: int, length: int) -> Tensor:
    """Weights in blocks with a scale each."""
    weights = Tensor.rand(rows, blocks, length).realize()
    return (weights * Tensor.rand(rows, blocks, 1).realize()).reshape(rows, blocks * length)


def test_blocks_with_a_scale() -> None:
    x = Tensor.rand(1, 128).realize()
    assert sizes(x @ scaled(8, 4, 32).T) == (4, 32)
    assert sizes(scaled(8, 4, 32).sum(1)) == (4, 32)


def test_blocks_that_rows_are_cut_from() -> None:
    blocks = (Tensor.rand(32, 16).realize() * Tensor.rand(32, 1).realize()).reshape(8, 64)
    assert sizes(blocks.sum(1)) == (4, 16)
    assert sizes(blocks.reshape(4, 2, 64).sum((1, 2))) == (2, 4, 16)


def test_blocks_in_blocks() -> None:
    inner = Tensor.rand(6, 2, 4).realize() * Tensor.rand(6, 1, 4).realize()
    outer = inner.reshape(6, 8) * Tensor.rand(6, 1).realize()
    assert sizes(outer.reshape(2, 24).sum(1)) == (3, 2, 4)


def test_sizes_that_do_not_divide_each_other_are_left_alone() -> None:
    first = (Tensor.rand(2, 4, 6).realize() * Tensor.rand(2, 4, 1).realize()).reshape(2, 24)
    second = (Tensor.rand(2, 6, 4).realize() * Tensor.rand(2, 6, 1).realize()).reshape(2, 24)
    assert sizes((first * second).sum(1)) == (6, 4)


@pytest.mark.parametrize(
    "value",
    [
        lambda: (Tensor.rand(4, 8, 16).realize() * 2).reshape(4, 128).sum(1),
        lambda: (Tensor.rand(4, 8, 16).realize() + Tensor.arange(8).reshape(8, 1)).flatten().sum(),
        lambda: (Tensor.rand(4, 1).realize().expand(4, 8)).sum(1),
        lambda: (scaled(4, 8, 16).contiguous() * 2).sum(1),
        lambda: scaled(4, 8, 16)[:, 1:].sum(1),
    ],
)
def test_other_reductions_stay(value: object) -> None:
    assert callable(value)
    assert sizes(value()) == ()


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_the_values_are_the_same(rows: int) -> None:
    generator = np.random.default_rng(rows)
    q = generator.integers(-127, 128, (24, 6, 32)).astype(np.int8)
    s = generator.standard_normal((24, 6, 1)).astype(np.float32)
    x = generator.standard_normal((rows, 192)).astype(np.float32)
    weights = (Tensor(q).cast(dtypes.float32) * Tensor(s)).reshape(24, 192)
    found = Tensor(x) @ weights.T
    expected = x.astype(np.float64) @ (q * s.astype(np.float64)).reshape(24, 192).T
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-3)


def test_blocks_are_unpacked_inside_of_the_product() -> None:
    q = Tensor(np.ones((512, 8, 32), np.int8)).realize()
    s = Tensor.rand(512, 8, 1).realize()
    x = Tensor.rand(1, 256).realize()
    assert len((x @ (q.cast(dtypes.float32) * s).reshape(512, 256).T).schedule()) == 1
