"""How many kernels a program takes: fusion by traffic and recompute cost."""

from __future__ import annotations

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, dtypes
from weft.uop.ops import Ops


def kernels(*tensors: Tensor) -> int:
    """Realize, and count launches."""
    GlobalCounters.reset()
    Tensor.realize(*tensors)
    return GlobalCounters.kernel_count


def data(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_elementwise_chain_is_one_kernel() -> None:
    x = data(33, 65)
    t = ((Tensor(x) * 2 + 1).relu() - 0.5).abs()
    assert kernels(t) == 1
    np.testing.assert_allclose(t.numpy(), np.abs(np.maximum(x * 2 + 1, 0) - 0.5), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 8), (64, 1000), (3, 5, 77)])
def test_softmax_is_one_kernel(shape: tuple[int, ...]) -> None:
    x = data(*shape)
    t = Tensor(x).softmax(-1)
    assert kernels(t) == 1
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(t.numpy(), e / e.sum(-1, keepdims=True), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(4, 8), (64, 1000)])
def test_layernorm_is_one_kernel(shape: tuple[int, ...]) -> None:
    x = data(*shape)
    t = Tensor(x).layernorm()
    assert kernels(t) == 1
    wide = x.astype(np.float64)
    centered = wide - wide.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(t.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_matmul_bias_gelu_is_one_kernel() -> None:
    a, b, c = data(64, 96), data(96, 80, seed=1), data(80, seed=2)
    t = (Tensor(a) @ Tensor(b) + Tensor(c)).gelu()
    assert kernels(t) == 1
    h = a.astype(np.float64) @ b + c
    expected = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    np.testing.assert_allclose(t.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_sum_after_ten_movement_ops_is_one_kernel() -> None:
    x = data(4, 6, 10)
    t = Tensor(x)
    t = t.permute(2, 0, 1).reshape(10, 24).flip(1).pad(((1, 2), (0, 3)))
    t = t.shrink(((0, 12), (1, 26))).transpose(0, 1).reshape(5, 5, 12).expand(5, 5, 12)
    t = t[::2, :, 1:].unsqueeze(0).expand(2, 3, 5, 11).sum()
    assert kernels(t) == 1
    n = np.flip(x.transpose(2, 0, 1).reshape(10, 24), 1)
    n = np.pad(n, ((1, 2), (0, 3)))[0:12, 1:26].T.reshape(5, 5, 12)[::2, :, 1:]
    np.testing.assert_allclose(t.item(), 2 * n.astype(np.float64).sum(), rtol=1e-5)


def test_two_outputs_over_the_same_rows_share_a_kernel() -> None:
    x = data(64, 100)
    t = Tensor(x).realize()
    mean, total = t.mean(-1), (t * t).sum(-1)
    assert kernels(mean, total) == 1
    np.testing.assert_allclose(mean.numpy(), x.mean(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(total.numpy(), (x * x).sum(-1), rtol=1e-5)


def test_value_and_its_function_are_one_kernel() -> None:
    a, b = data(32, 48), data(48, 40, seed=1)
    h = Tensor(a).realize() @ Tensor(b).realize()
    g = h.relu()
    assert kernels(h, g) == 1
    np.testing.assert_allclose(h.numpy(), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(g.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def test_expensive_value_with_two_readers_is_stored_once() -> None:
    a, b = data(32, 48), data(48, 40, seed=1)
    h = Tensor(a).realize() @ Tensor(b).realize()
    rows, columns = h.sum(0), h.sum(1)
    assert kernels(rows, columns) <= 3
    np.testing.assert_allclose(rows.numpy(), (a @ b).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(columns.numpy(), (a @ b).sum(1), rtol=1e-4, atol=1e-4)


def test_realized_value_is_not_computed_again_by_older_graphs() -> None:
    a, b = data(32, 48), data(48, 40, seed=1)
    h = Tensor(a).realize() @ Tensor(b).realize()
    later = h + 1
    h.realize()
    items = later.schedule()
    assert len(items) == 1
    assert not any(u.op is Ops.REDUCE for u in items[0].kernel.toposort())
    np.testing.assert_allclose(later.numpy(), a @ b + 1, rtol=1e-4, atol=1e-5)


def test_constants_need_no_kernel() -> None:
    assert kernels(Tensor(3.0) * 2 + 1) == 0
    assert kernels(Tensor.zeros(4, 0).sum()) <= 1


def test_movement_of_a_realized_tensor_needs_no_kernel() -> None:
    t = Tensor(data(4, 6)).realize()
    assert kernels(t.reshape(24), t.permute(1, 0), t[1:3], t.flip(0)) == 0


def test_batchnorm_like_reduction_over_outer_axes() -> None:
    x = data(8, 32, 5, 5)
    t = Tensor(x).realize()
    mean = t.mean((0, 2, 3), keepdim=True)
    var = ((t - mean) * (t - mean)).mean((0, 2, 3), keepdim=True)
    y = (t - mean) / (var + 1e-5).sqrt()
    assert kernels(y) <= 3
    wide = x.astype(np.float64)
    m = wide.mean((0, 2, 3), keepdims=True)
    v = ((wide - m) ** 2).mean((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(y.numpy(), (wide - m) / np.sqrt(v + 1e-5), rtol=1e-4, atol=1e-5)


def test_long_sum_is_split_over_the_cores() -> None:
    x = data(1 << 20)
    t = Tensor(x).realize().sum()
    assert kernels(t) == 2
    np.testing.assert_allclose(t.item(), x.astype(np.float64).sum(), rtol=1e-3, atol=1e-1)


def test_cat_of_few_is_inside_its_consumer() -> None:
    a, b = data(3, 4), data(5, 4, seed=1)
    t = Tensor(a).realize().cat(Tensor(b).realize(), dim=0) * 2
    assert kernels(t) == 1
    np.testing.assert_array_equal(t.numpy(), np.concatenate([a, b]) * 2)


def test_cat_of_many_writes_each_once() -> None:
    parts = [data(2, 3, seed=i) for i in range(40)]
    t = Tensor.cat(*[Tensor(p).realize() for p in parts], dim=0)
    np.testing.assert_array_equal(t.numpy(), np.concatenate(parts))


def test_slices_at_other_offsets_share_the_program() -> None:
    t = Tensor(data(64, 16)).realize()
    first = (t[0:8] + 1).schedule()[0].kernel
    second = (t[8:16] + 1).schedule()[0].kernel
    third = (t[16:24] + 1).schedule()[0].kernel
    assert second is third
    np.testing.assert_array_equal((t[8:16] + 1).numpy(), t.numpy()[8:16] + 1)
    assert first is not None


def test_budget_cuts_a_chain_into_kernels() -> None:
    t = Tensor(data(4)).realize()
    y = t
    for _ in range(2500):
        y = (y * 1.0001).sin()
    count = kernels(y)
    assert 4 <= count <= 10


def test_sum_of_many_tensors() -> None:
    parts = [Tensor(data(5, seed=i)).realize() for i in range(300)]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    count = kernels(total)
    assert count <= 10
    expected = sum(data(5, seed=i).astype(np.float64) for i in range(300))
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_first_element_of_a_stored_value_does_not_stand_for_all() -> None:
    x = Tensor(data(2, 2)).realize()
    rows = x.sum(1)
    first = rows[0].cast(dtypes.int32)
    Tensor.realize(rows, first)
    np.testing.assert_allclose(rows.numpy(), data(2, 2).sum(1), rtol=1e-6)


def test_equality_of_overlapping_windows_is_not_stored() -> None:
    """The gradient of a maximum over windows compares again instead of keeping what was equal."""
    x = Tensor(data(2, 3, 12, 12)).realize()
    gradient = x.max_pool2d(3, 2, padding=1).sum().gradient(x)[0]
    buffers = [argument.memory for item in gradient.schedule() for argument in item.arguments]
    assert not any(memory.dtype is dtypes.bool for memory in buffers)


def test_gradient_of_windows_that_adjoin_is_stored_in_order() -> None:
    """Neither its kernels nor whoever reads it take places apart, and what all elements of a window
    share is computed once."""
    x = Tensor(data(8, 16, 20, 24)).realize()
    pooled = x.max_pool2d()
    gradient = (pooled * pooled).sum().gradient(x)[0]
    sums = (gradient * x).sum((0, 2, 3)) + gradient.sum((0, 2, 3))
    asts = [item.kernel for item in sums.schedule() if item.kernel is not None]
    assert not any(u.op in (Ops.IDIV, Ops.MOD) for ast in asts for u in ast.toposort())
    wide = data(8, 16, 20, 24).astype(np.float64)
    windows = wide.reshape(8, 16, 10, 2, 12, 2)
    top = windows.max((3, 5), keepdims=True)
    exact = np.where(windows == top, 2 * top, 0).reshape(wide.shape)
    expected = (exact * wide).sum((0, 2, 3)) + exact.sum((0, 2, 3))
    np.testing.assert_allclose(sums.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy(), exact, rtol=1e-6)


def test_loops_that_would_tear_rows_apart() -> None:
    """What inner sums need outermost leaves pieces of a row: then the sums are stored first."""
    x = Tensor(data(64, 2560)).realize()
    # of rows of two elements nothing is left, of rows of sixteen all is
    pairs, rows = [x.reshape(64, 2, 1280 // n, n).contiguous().realize() for n in (2, 16)]
    assert kernels(pairs / pairs.sum((1, 3), keepdim=True)) == 2
    assert kernels(rows / rows.sum((1, 3), keepdim=True)) == 1


def test_value_over_a_stored_reduction_is_computed_by_each_of_its_kernels() -> None:
    x = Tensor(data(64, 64)).realize()
    centred = x - x.mean(1, keepdim=True)
    up, down = centred.max(0), (centred * 2).sum(0)
    items = [item for tensor in (up, down) for item in tensor.schedule()]
    Tensor.realize(up, down)
    assert all(argument.memory.arg.size <= 64 * 64 for item in items for argument in item.arguments)
    exact = data(64, 64).astype(np.float64)
    exact -= exact.mean(1, keepdims=True)
    np.testing.assert_allclose(up.numpy(), exact.max(0), rtol=1e-5)
    np.testing.assert_allclose(down.numpy(), 2 * exact.sum(0), rtol=1e-4, atol=1e-4)


def test_what_is_read_twice_counts_once() -> None:
    """Windows that overlap are of one storage: the sum of three of them is not worth storing."""
    x = Tensor(data(8, 66)).realize()
    smooth = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    assert kernels(smooth.relu().sum(1), smooth.abs().sum(0)) == 1


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_stack_of_computed_pieces_is_one_kernel(dim: int) -> None:
    """Each piece computes its own, what they share once."""
    x = data(5, 40)
    t = Tensor(x).realize()
    shared = t * 3 + 1
    found = Tensor.stack(shared + t, shared - t, shared, dim=dim).relu()
    assert kernels(found) == 1
    wanted = np.stack([x * 4 + 1, x * 2 + 1, x * 3 + 1], axis=dim)
    np.testing.assert_allclose(found.numpy(), np.maximum(wanted, 0), rtol=1e-5, atol=1e-6)
