"""Writes to equal places as ints that are joined in any order: exact, and the same every time.

The interpreter of a GPU runs them in random order and finds races.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.pipeline import lower
from weft.renderer.cuda import SM_90, CUDARenderer
from weft.renderer.nvptx import NVPTXRenderer
from weft.schedule.join_writes import is_joined
from weft.uop.args import Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops

GPU = "PYTHON:sm_90"
random = np.random.default_rng(8)
INDEX = random.integers(0, 9, 61).astype(np.int32)


def gpu(data: Any, dtype: str | None = None) -> Tensor:
    made = Tensor(data, device=GPU)
    return (made if dtype is None else made.cast(dtype)).contiguous().realize()


def stores_of(value: Tensor) -> list[UOp]:
    return [store for item in value.schedule() for store in item.kernel.src]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("how", ["sum", "amax"])
def test_ints_are_joined_by_one_instruction(dtype: str, how: str) -> None:
    values = random.integers(0, 1 << 20, 61)
    start = gpu(np.arange(9), dtype)
    found = start.scatter_reduce(0, gpu(INDEX), gpu(values, dtype), how)
    op = Ops.ADD if how == "sum" else Ops.MAX
    assert [s.arg for s in stores_of(found) if s.arg is not None] == [Unordered(op)]
    expected = np.arange(9).astype(dtype)
    (np.add if how == "sum" else np.maximum).at(expected, INDEX, values.astype(dtype))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sums_of_floats_are_exact(dtype: str) -> None:
    """Each sum is the one of real numbers, rounded once, whatever cancels."""
    scale = 10.0 ** random.integers(-4, 4, 61)
    values = gpu(random.standard_normal(61) * scale, dtype)
    start = gpu(np.zeros(9), dtype)
    found = start.scatter_reduce(0, gpu(INDEX), values, "sum").float().numpy()
    numbers = values.float().numpy().astype(np.float64)
    for place in range(9):
        exact = math.fsum(numbers[INDEX == place])
        rounded = Tensor([exact], dtype="float64").cast(dtype).float().item()
        assert found[place] == rounded


def test_extremes_of_floats() -> None:
    """Denormals, both infinities and nan go into sums as into those of real numbers."""
    tiny, huge = 2.0**-149, 3e38
    values = np.array([tiny, tiny, huge, huge, -huge, np.inf, -np.inf, np.inf, np.nan, 1.0])
    index = np.array([0, 0, 1, 1, 1, 2, 3, 4, 5, 6])
    more = np.concatenate([index, [4, 5, 6]])
    values = np.concatenate([values, [-np.inf, 2.0, -1.0]]).astype(np.float32)
    found = gpu(np.zeros(7, np.float32)).scatter_reduce(0, gpu(more), gpu(values), "sum").numpy()
    expected = np.array([2 * tiny, huge, np.inf, -np.inf, np.nan, np.nan, 0.0], np.float32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
def test_the_greatest_of_other_numbers(dtype: str) -> None:
    values = random.integers(-90, 90, (61, 2)).astype(np.float32)
    start = np.full((9, 2), -50.0)
    place = np.repeat(INDEX[:, None], 2, 1)
    found = gpu(start, dtype).scatter_reduce(0, gpu(place), gpu(values, dtype), "amax")
    np.maximum.at(start, INDEX, values)
    np.testing.assert_array_equal(found.float().numpy(), start)


def test_the_last_write_wins() -> None:
    values = random.standard_normal((61, 3)).astype(np.float32)
    target = gpu(np.zeros((9, 3), np.float32))
    target[gpu(np.where(INDEX == 4, 99, INDEX))] = gpu(values)
    expected = np.zeros((9, 3), np.float32)
    for place, value in zip(INDEX, values, strict=True):
        if place != 4:
            expected[place] = value
    np.testing.assert_array_equal(target.numpy(), expected)


def test_what_is_joined() -> None:
    place = UOp.new_buffer("CPU", 4, Tensor([1]).cast("int32").dtype)
    store = place.store(UOp.const(place.dtype, 1))
    assert is_joined(store.replace(arg=Ops.ADD)) and is_joined(store.replace(arg=Ops.MAX))
    assert not is_joined(store.replace(arg=Ops.MUL)) and not is_joined(store)


@pytest.mark.parametrize("renderer", [NVPTXRenderer(SM_90), CUDARenderer(SM_90)])
def test_the_instruction_is_printed(renderer: Any) -> None:
    found = gpu(np.zeros(9, np.int32)).scatter_reduce(0, gpu(INDEX), gpu(INDEX), "sum")
    texts = [lower(item.kernel, renderer).src for item in found.schedule()]
    assert any([("atomicrmw add" in text) or ("atomicAdd(" in text) for text in texts])
