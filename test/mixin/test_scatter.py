"""Writes through indices: scatter, scatter_reduce, assignment through tensors, nonzero.

References are NumPy's assignment (in order, the last one wins) and PyTorch's scatters. Costs are
counted, not timed: the work is that of the indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import optional
from weft import Context, GlobalCounters, Tensor, dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError

torch = optional("torch")

REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]


def cost(*tensors: Tensor) -> tuple[int, int]:
    """Kernels and operations of computing tensors."""
    GlobalCounters.reset()
    Tensor.realize(*tensors)
    return GlobalCounters.kernel_count, int(GlobalCounters.global_ops)


def scatter_arguments(seed: int) -> tuple[Any, int, Any, Any]:
    """Small random (array, axis, index, values) with repeated indices."""
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(1, 4))
    shape = [int(size) for size in generator.integers(1, 5, rank)]
    axis = int(generator.integers(0, rank))
    index_shape = [
        int(generator.integers(1, 7)) if i == axis else int(generator.integers(1, size + 1))
        for i, size in enumerate(shape)
    ]
    array = generator.integers(0, 4, shape)
    values = generator.integers(0, 4, index_shape)
    return array, axis, generator.integers(0, shape[axis], index_shape), values


# ------------------------------------------------------------ scatter
@pytest.mark.parametrize("seed", range(12))
def test_scatter_writes_in_order(seed: int) -> None:
    array, axis, index, values = scatter_arguments(seed)
    wanted = array.copy()
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[axis] = index[place]
        wanted[tuple(target)] = values[place]
    check(Tensor(array).scatter(axis, Tensor(index), Tensor(values)), wanted)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_reduce_agrees_with_pytorch(reduce: str, dtype: str, include_self: bool) -> None:
    if (reduce, dtype) == ("mean", "bool"):
        return
    for seed in range(3):
        array, axis, index, values = scatter_arguments(seed)
        array, values = array.astype(dtype), values.astype(dtype)
        wanted = torch.from_numpy(array).scatter_reduce(
            axis,
            torch.from_numpy(index),
            torch.from_numpy(values),
            reduce,
            include_self=include_self,
        )
        found = Tensor(array).scatter_reduce(
            axis, Tensor(index), Tensor(values), reduce, include_self
        )
        assert found.dtype is Tensor(array).dtype
        check(found, wanted.numpy())


def test_half_types_add_up_in_float32() -> None:
    ones = Tensor.ones(4096, dtype=dtypes.float16)
    index = Tensor.zeros(4096, dtype=dtypes.int32)
    total = Tensor.zeros(1, dtype=dtypes.float16).scatter_reduce(0, index, ones, "sum")
    assert total.tolist() == [4096.0]


def test_outside_writes_nothing_and_negative_indices_wrap() -> None:
    index = Tensor([-1, 7, -9, 0])
    found = Tensor.zeros(3).scatter(0, index, Tensor([1.0, 2.0, 3.0, 4.0]))
    assert found.tolist() == [4.0, 0.0, 1.0]


def test_an_axis_of_one_place_takes_every_index_in_turn() -> None:
    """The place is known, only whether the index is inside is not: still one after another."""
    index, values = Tensor([[0, 0, 0, 0]]), Tensor([[2.0, 0.0, 1.0, 2.0]])
    assert Tensor([[2.0]]).scatter_reduce(1, index, values, "sum").tolist() == [[7.0]]
    assert Tensor([[2.0]]).scatter_reduce(1, index, values, "sum", False).tolist() == [[5.0]]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_indices_that_are_known_beforehand_may_be_equal(step: int) -> None:
    """Without a memory access in the index the kernel is still not free to run in any order."""
    index = Tensor.arange(64) * step // 2
    values = np.random.default_rng(0).integers(0, 9, 64).astype(np.float32)
    wanted = np.zeros(64, np.float32)
    np.add.at(wanted, np.arange(64) * step // 2, values)
    check(Tensor.zeros(64).scatter_reduce(0, index, Tensor(values), "sum"), wanted)
    last = np.zeros(64, np.float32)
    last[np.arange(64) * step // 2] = values
    check(Tensor.zeros(64).scatter(0, index, Tensor(values)), last)


def test_one_index_for_many_values_combines_them_all() -> None:
    index = Tensor([1]).realize().expand(5)
    values = Tensor([1.0, 2.0, 3.0, 4.0, 5.0]).realize()
    assert Tensor.zeros(3).scatter_reduce(0, index, values, "sum").tolist() == [0.0, 15.0, 0.0]
    rows = Tensor([[1], [0]]).realize().expand(2, 3)
    table = Tensor.zeros(2, 3).scatter_reduce(0, rows, Tensor.ones(2, 3), "sum")
    assert table.tolist() == [[1.0] * 3] * 2
    table = Tensor.zeros(2, 3).scatter_reduce(1, rows, Tensor.ones(2, 3), "sum")
    assert table.tolist() == [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0]]


def test_scalars_and_constants() -> None:
    assert Tensor(3.0).scatter(0, Tensor(0), 5.0).tolist() == 5.0
    assert Tensor(3.0).scatter_reduce(0, Tensor(0), Tensor(5.0), "sum").item() == 8.0
    assert Tensor.zeros(3).scatter(0, Tensor.arange(2), 1.0).tolist() == [1.0, 1.0, 0.0]
    assert Tensor.zeros(2).scatter(0, Tensor([1, 1]), Tensor([1.0, 2.0]), "add").tolist() == [0, 3]
    assert Tensor([1, 2]).scatter(0, Tensor([], dtype=dtypes.int32), Tensor([])).tolist() == [1, 2]


def test_scatter_leaves_its_source_alone() -> None:
    source = Tensor([1.0, 2.0]).realize()
    assert source.scatter(0, Tensor([0]), Tensor([9.0])).tolist() == [9.0, 2.0]
    assert source.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_scatter_is_the_same_on_every_device(device: str) -> None:
    base = Tensor([1.0, 2.0, 3.0], device=device)
    index = Tensor([2, 0, 2], device=device)
    values = Tensor([10.0, 20.0, 30.0], device=device)
    assert base.scatter(0, index, values).tolist() == [20.0, 2.0, 30.0]
    assert base.scatter_reduce(0, index, values, "sum").tolist() == [21.0, 2.0, 43.0]


@pytest.mark.device("CPU")  # where it is not written in order, indices are sorted
def test_the_work_is_that_of_the_indices() -> None:
    count = 20_000
    base, values = Tensor(np.zeros(count, np.float32)), Tensor(np.ones(count, np.float32))
    index = Tensor(np.random.default_rng(0).integers(0, count, count))
    Tensor.realize(base, values, index)
    kernels, operations = cost(base.scatter(0, index, values))
    assert kernels == 2 and operations < 20 * count
    for reduce, most in (("sum", 2), ("amax", 3)):
        kernels, operations = cost(base.scatter_reduce(0, index, values, reduce))
        assert kernels <= most and operations < 20 * count
    kernels, operations = cost(base.scatter_reduce(0, index, values, "mean"))
    assert operations < 60 * count


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_gradients_agree_with_pytorch(reduce: str, include_self: bool) -> None:
    generator = np.random.default_rng(1)
    # small ints: zeros for the product, equal values for the extremes
    ties = include_self or reduce not in ("amax", "amin")
    draw = (lambda s: generator.integers(-2, 3, s) * 1.0) if ties else generator.standard_normal
    array, values = draw((3, 4)), draw((5, 4))
    index, weight = generator.integers(0, 3, (5, 4)), generator.standard_normal((3, 4))
    own, source = Tensor(array), Tensor(values)
    result = own.scatter_reduce(0, Tensor(index), source, reduce, include_self)
    found = (result * Tensor(weight)).sum().gradient(own, source)
    torch_own = torch.from_numpy(array).requires_grad_()
    torch_source = torch.from_numpy(values).requires_grad_()
    total = torch_own.scatter_reduce(
        0, torch.from_numpy(index), torch_source, reduce, include_self=include_self
    )
    wanted = torch.autograd.grad(
        (total * torch.from_numpy(weight)).sum(), (torch_own, torch_source)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        check(ours, theirs.numpy())


def test_errors_name_what_was_asked() -> None:
    base = Tensor.zeros(2, 3)
    with pytest.raises(ArgumentError, match='"sum", "prod", "mean", "amax" or "amin"'):
        base.scatter_reduce(0, Tensor([[0]]), Tensor([[1.0]]), "median")
    with pytest.raises(ArgumentError, match='None, "add" or "multiply"'):
        base.scatter(0, Tensor([[0]]), Tensor([[1.0]]), "sum")
    with pytest.raises(DTypeError, match="Tensor of ints as index"):
        base.scatter(0, Tensor([[0.5]]), Tensor([[1.0]]))
    with pytest.raises(ShapeError, match="a value for each index"):
        base.scatter(0, Tensor([[0, 1]]), Tensor([[1.0]]))


# ------------------------------------------------------------ assignment
def index_of(generator: np.random.Generator, shape: list[int]) -> tuple[Any, ...] | None:
    common = tuple(generator.integers(1, 4, generator.integers(0, 3)))
    items: list[Any] = []
    for size in shape:
        kind = generator.integers(0, 3)
        if kind == 0:
            items.append(slice(None))
        elif kind == 1:
            items.append(generator.integers(-size, size, common))
        else:
            items.append(slice(0, max(1, size - 1)))
    return tuple(items) if any(isinstance(item, np.ndarray) for item in items) else None


@pytest.mark.parametrize("seed", range(30))
def test_assignment_through_tensors_agrees_with_numpy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = [int(size) for size in generator.integers(1, 5, generator.integers(1, 4))]
    index = index_of(generator, shape)
    if index is None:
        return
    array = generator.integers(0, 100, shape).astype(np.int32)
    values = generator.integers(100, 200, array[index].shape).astype(np.int32)
    tensor = Tensor(array.copy())
    tensor[tuple(Tensor(i) if isinstance(i, np.ndarray) else i for i in index)] = Tensor(values)
    array[index] = values
    check(tensor, array)


def test_views_see_what_is_written_through_indices() -> None:
    whole = Tensor.zeros(4, 4)
    part = whole[1:3, ::2]
    part[Tensor([0, 1]), Tensor([1, 0])] = Tensor([5.0, 6.0])
    assert whole[1].tolist() == [0, 0, 5.0, 0] and whole[2].tolist() == [6.0, 0, 0, 0]
    assert part.tolist() == [[0, 5.0], [6.0, 0]]


def test_indices_may_be_read_from_what_they_write_to() -> None:
    own = Tensor([3, 1, 2, 0]).realize()
    own[own] = Tensor([10, 11, 12, 13])
    assert own.tolist() == [13, 11, 12, 10]
    values = Tensor([1, 2, 3, 4]).realize()
    values[Tensor([0, 1])] = values[Tensor([2, 3])] + values[0:2]
    assert values.tolist() == [4, 6, 3, 4]


def test_assignment_happens_every_time_it_is_written_down() -> None:
    counter = Tensor([0.0, 0.0]).realize()
    index = Tensor([1])
    for _ in range(3):
        counter[index] = counter[index] + 1
        counter.realize()
    assert counter.tolist() == [0.0, 3.0]


def test_masks() -> None:
    rows = Tensor.zeros(3, 2)
    rows[Tensor([True, False, True])] = 1.0
    assert rows.tolist() == [[1, 1], [0, 0], [1, 1]]
    rows[Tensor([False, True, True])] = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert rows.tolist() == [[1, 1], [1, 2], [3, 4]]
    rows[rows > 2] = Tensor([7.0, 8.0])
    assert rows.tolist() == [[1, 1], [1, 2], [7, 8]]
    rows[Tensor([True, False, False])] = Tensor([5.0, 6.0])
    assert rows.tolist() == [[5, 6], [1, 2], [7, 8]]


def test_a_masked_number_needs_no_counting() -> None:
    values = Tensor(np.arange(6, dtype=np.float32)).realize()
    mask = (values > 2).realize()
    GlobalCounters.reset()
    values[mask] = 0.0
    assert GlobalCounters.kernel_count == 0
    assert values.tolist() == [0, 1, 2, 0, 0, 0]


@pytest.mark.device("CPU")
def test_assignment_costs_what_is_written() -> None:
    table = Tensor(np.zeros((5000, 8), np.float32)).realize()
    index = Tensor([3, 77, 4999]).realize()
    table[index] = Tensor(np.ones((3, 8), np.float32)).realize()
    kernels, operations = cost(table)
    assert kernels == 1 and operations < 1000
    assert table.sum().item() == 24.0


def test_assignment_errors() -> None:
    values = Tensor([1, 2, 3])
    with pytest.raises(ShapeError, match="shape \\(2,\\) of one of shape \\(3,\\)"):
        values[Tensor([0, 1])] = Tensor([1, 2, 3])
    with pytest.raises(DTypeError, match="cannot hold"):
        values[Tensor([0])] = Tensor([1.5])
    with pytest.raises(ArgumentError, match="expanded view"):
        Tensor([1.0]).expand(3)[Tensor([0])] = 2.0


def test_gradient_of_an_assignment_through_indices() -> None:
    base, value = Tensor([1.0, 2.0, 3.0]), Tensor([5.0, 6.0])
    state = base * 1
    state[Tensor([1, 1])] = value
    found = (state * Tensor([1.0, 10.0, 100.0])).sum().gradient(base, value)
    assert found[0].tolist() == [1.0, 0.0, 100.0]
    assert found[1].tolist() == [0.0, 10.0]


# ------------------------------------------------------------ places of what is not zero
def test_nonzero_and_masked_select() -> None:
    array = np.array([[0, 5], [7, 6]])
    check(Tensor(array).nonzero(), np.argwhere(array))
    assert Tensor(array).nonzero(size=5, fill_value=-1).tolist()[3:] == [[-1, -1], [-1, -1]]
    mask = Tensor([[True, False], [True, True]])
    assert Tensor(array).masked_select(mask).tolist() == [0, 7, 6]
    assert Tensor(array).masked_select(mask, size=5, fill_value=9).tolist() == [0, 7, 6, 9, 9]
    assert Tensor(array).masked_select(mask, size=2).tolist() == [0, 7]
    assert Tensor([0, 0]).nonzero().shape == (0, 1)
    assert Tensor([]).nonzero().shape == (0, 1)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("size", [0, 1, 4, 9])
def test_nonzero_of_a_size_holds_the_first_and_a_filling(size: int, device: str) -> None:
    array = np.array([[0, 5, 0], [7, 6, 1]])
    places = np.concatenate([np.argwhere(array), np.full((9, 2), -1)])[:size]
    values = np.concatenate([array[array > 0], np.full(9, -1)])[:size]
    tensor = Tensor(array, device=device)
    # what finds no place on purpose is no index outside
    with Context(CHECK_OOB=1):
        assert tensor.nonzero(size=size, fill_value=-1).tolist() == places.tolist()
        found = tensor.masked_select(tensor > 0, size=size, fill_value=-1)
        assert found.tolist() == values.tolist()


def test_a_filling_does_not_change_the_dtype() -> None:
    found = Tensor([0, 5]).nonzero(size=2, fill_value=-1.0)
    assert found.dtype is dtypes.int32 and found.tolist() == [[1], [-1]]
    selected = Tensor([1, 2]).masked_select(Tensor([True, False]), size=2, fill_value=7.0)
    assert selected.dtype is dtypes.int32 and selected.tolist() == [1, 7]


def test_nonzero_is_linear() -> None:
    flags = Tensor(np.random.default_rng(0).random(30_000) < 0.5).realize()
    _, operations = cost(flags.nonzero(size=20_000))
    assert operations < 200 * 30_000


def test_gather_and_one_hot_read_what_they_name() -> None:
    table = Tensor(np.zeros((10_000, 16), np.float32)).realize()
    index = Tensor(np.arange(0, 10_000, 100)).realize()
    kernels, operations = cost(table[index])
    assert kernels == 1 and operations < 20 * 100 * 16
    assert GlobalCounters.global_mem < 10 * 100 * 16 * 4
    kernels, operations = cost(index.one_hot(64))
    assert kernels == 1 and operations < 20 * 100 * 64
