"""Sorting against NumPy and PyTorch: stable, nan last, every dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from test.mixin.compare import check
from weft import Tensor, dtypes


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


@pytest.mark.parametrize("count", [1025, 1500])
def test_long_axes_use_the_network(count: int) -> None:
    data = np.random.default_rng(2).integers(0, 100, count).astype(np.int32)
    check(Tensor(data).argsort(), np.argsort(data, kind="stable"))


def test_topk() -> None:
    data = np.random.default_rng(3).permutation(40).reshape(4, 10).astype(np.int32)
    for largest in (True, False):
        wanted = torch.tensor(data).topk(3, largest=largest)
        values, places = Tensor(data).topk(3, largest=largest)
        check(values, wanted.values.numpy())
        check(places, wanted.indices.numpy())
    assert Tensor([1, 2]).topk(0)[0].shape == (0,)
    assert Tensor([1, 2]).argsort().dtype is dtypes.default_int
