"""prepare: long sums in two steps; what is padded in memory and what is asked for each time."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Context, Tensor
from weft.uop.ops import Ops, UOp


def data(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernels(tensor: Tensor) -> list[UOp]:
    return [item.kernel for item in tensor.schedule() if item.kernel is not None]


def reduced(kernel: UOp) -> int:
    """How many terms the longest sum of a kernel has."""
    lengths = [0]
    for node in kernel.toposort():
        if node.op is Ops.REDUCE:
            lengths.append(int(np.prod([axis.src[0].arg for axis in node.src[1:]])))
    return max(lengths)


def masked_loads(kernel: UOp) -> list[UOp]:
    return [node for node in kernel.toposort() if node.op is Ops.LOAD and len(node.src[0].src) > 2]


def test_a_long_product_is_summed_in_parts() -> None:
    x, y = data(16384, 24), data(16384, 40)

    def product() -> Tensor:
        return Tensor(x).realize().T @ Tensor(y).realize()

    found = kernels(product())
    assert len(found) == 2 and max(reduced(k) for k in found) <= 4096
    with Context(SPLIT_REDUCEOP=0):
        assert len(kernels(product())) == 1
    expected = x.T.astype(np.float64) @ y
    np.testing.assert_allclose(product().numpy(), expected, rtol=1e-4, atol=2e-3)


def test_a_long_sum_without_reuse_is_left_alone() -> None:
    """Products of which each operand is read once: memory is the limit, not registers."""
    x, y = data(100, 16384), data(100, 16384, seed=1)
    assert len(kernels((Tensor(x).realize() * Tensor(y).realize()).sum(1))) == 1


def test_parts_of_a_convolution_gradient_are_outermost() -> None:
    x, w = Tensor(data(64, 8, 20, 20)).realize(), Tensor(data(16, 8, 3, 3)).realize()
    above = Tensor(data(64, 16, 18, 18)).realize()
    (gradient,) = x.conv2d(w).gradient(w, gradient=above)
    first = max(kernels(gradient), key=reduced)
    axes = next(node for node in first.src if node.op is Ops.STORE).src[2:]
    assert reduced(first) <= 4096 and 64 * 18 * 18 == reduced(first) * axes[0].src[0].arg


def test_a_convolution_reads_zeros_from_memory() -> None:
    x, w = Tensor(data(1, 8, 20, 20)).realize(), Tensor(data(16, 8, 3, 3)).realize()
    found = kernels(x.conv2d(w, padding=1))
    assert len(found) == 2 and not masked_loads(found[-1])


def test_few_reads_of_an_element_are_asked_for_each_time() -> None:
    """Depthwise: padding in memory would cost as much traffic as the convolution itself."""
    x, w = Tensor(data(1, 8, 20, 20)).realize(), Tensor(data(8, 1, 3, 3)).realize()
    found = kernels(x.conv2d(w, padding=1, groups=8))
    assert len(found) == 1 and masked_loads(found[0])


@pytest.mark.parametrize("name", ["conv", "pool"])
def test_windows_with_steps_are_padded_in_memory(name: str) -> None:
    x, w = Tensor(data(1, 8, 20, 20)).realize(), Tensor(data(8, 1, 3, 3)).realize()
    if name == "conv":
        found = kernels(x.conv2d(w, padding=1, groups=8, stride=2))
    else:
        found = kernels(x.max_pool2d((3, 3), stride=2, padding=1))
    assert len(found) == 2 and not masked_loads(found[-1])


def test_a_convolution_is_computed_over_its_own_axes() -> None:
    """What is behind a convolution reads it in another order: it is stored in its own first."""
    x, w = Tensor(data(2, 8, 12, 12)).realize(), Tensor(data(16, 8, 3, 3)).realize()
    blocks = x.conv2d(w).reshape(2, 4, 2, 2, 10, 10).permute(0, 1, 4, 2, 5, 3)
    found = kernels((blocks.reshape(2, 4, 20, 20) + 1).contiguous())
    heavy = next(k for k in found if reduced(k))
    assert not any(u.op in (Ops.IDIV, Ops.MOD) for u in heavy.toposort())


@pytest.mark.device("CPU")  # as many parts as suit its cores
@pytest.mark.parametrize("name", ["sum", "max"])
def test_the_first_axes_of_a_long_reduction_are_its_parts(name: str) -> None:
    """So every part is one piece of memory, not a strip of each row."""
    x = data(72, 6, 2208)
    reduction = getattr(Tensor(x).realize(), name)()
    first, second = kernels(reduction)
    axes = first.src[0].src[2:]
    assert [axis.src[0].arg for axis in axes] == [72] and reduced(second) == 72
    expected = getattr(x.astype(np.float64), name)()
    np.testing.assert_allclose(reduction.numpy(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.device("CPU")  # as many parts as suit its cores
@pytest.mark.parametrize("shape", [(2348, 208), (2, 648, 392), (47, 3410)])
def test_many_short_rows_are_parts_of_any_length(shape: tuple[int, ...]) -> None:
    """A part for each row would be mostly the end of a sum."""
    x = data(*shape)
    stored = Tensor(x).realize()
    wide = x.astype(np.float64)
    for value, expected in ((stored.max(), wide.max()), ((stored * stored).sum(), (wide**2).sum())):
        first, second = kernels(value)
        assert 8 <= reduced(second) <= 128 and reduced(first) * reduced(second) == x.size
        assert not any(u.op in (Ops.IDIV, Ops.MOD) for u in first.toposort())
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5)


def test_rows_that_share_something_stay_rows() -> None:
    """Of a place in memory nobody has to compute which row it is in."""
    x, row = data(2348, 208), data(208)
    for value in (Tensor(x).realize() * Tensor(row).realize(), Tensor(x).realize().T):
        first, _ = kernels((value + 1).sum())
        assert not any(u.op in (Ops.IDIV, Ops.MOD) for u in first.toposort())


def test_a_long_row_is_cut() -> None:
    found = kernels(Tensor(data(1 << 20)).realize().sum())
    assert len(found) == 2 and reduced(found[1]) > 1


@pytest.mark.device("CPU")  # as many parts as suit its cores
@pytest.mark.parametrize(
    ("shape", "parts"), [((65536, 64), 64), ((8192, 1000), 32), ((16, 4096, 96), 16)]
)
def test_a_tall_matrix_is_summed_in_parts(shape: tuple[int, ...], parts: int) -> None:
    """Every part is one piece of memory, not a strip of all rows."""
    x = data(*shape)
    axes = tuple(range(len(shape) - 1))
    first, second = kernels(Tensor(x).realize().sum(axes))
    stored = [axis.src[0].arg for axis in first.src[0].src[2:]]
    assert stored == [parts, shape[-1]] and reduced(second) == parts
    found = Tensor(x).sum(axes).numpy()
    np.testing.assert_allclose(found, x.sum(axes, dtype=np.float64), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("shape", "axis"), [((4096, 512), 0), ((4096, 4096), 0), ((96, 65536), 1)])
def test_short_and_wide_matrices_are_summed_at_once(shape: tuple[int, int], axis: int) -> None:
    assert len(kernels(Tensor(data(*shape)).realize().sum(axis))) == 1


def test_what_does_not_move_along_an_axis_is_not_asked_about_it() -> None:
    """The parameters of a channel, of what is padded: in no loop but its own, and no gather."""
    x, scale, bias = (Tensor(data(*shape)).realize() for shape in ((6, 9, 9), (6, 1, 1), (6, 1, 1)))
    padded = (x * scale + bias).relu().pad(((0, 0), (1, 1), (1, 1)))
    (found,) = kernels(padded.contiguous())
    loads = {u.src[0].src[0].arg.slot: u.src[0] for u in found.toposort() if u.op is Ops.LOAD}
    guards = {slot: len(index.src) - 2 for slot, index in loads.items()}
    assert guards == {1: 1, 2: 0, 3: 0}
    expected = np.pad(
        np.maximum(x.numpy() * scale.numpy() + bias.numpy(), 0), ((0, 0), (1, 1), (1, 1))
    )
    np.testing.assert_allclose(padded.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_guard_that_an_address_needs_stays() -> None:
    """Elements in front of the memory and behind it; others that are found at run time."""
    x, at = Tensor(data(5)).realize(), Tensor(np.array([4, 0, 2], np.int32)).realize()
    moved = x.pad(((2, 3),))
    np.testing.assert_array_equal(moved.numpy(), np.pad(x.numpy(), (2, 3)))
    (found,) = kernels((x[at].reshape(3, 1).expand(3, 4).pad(((1, 1), (2, 0)))).contiguous())
    assert masked_loads(found)
    taken = x[at].reshape(3, 1).expand(3, 4).pad(((1, 1), (2, 0)))
    expected = np.pad(np.repeat(x.numpy()[[4, 0, 2]][:, None], 4, 1), ((1, 1), (2, 0)))
    np.testing.assert_array_equal(taken.numpy(), expected)
