"""Convolution and pooling against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, dtypes
from weft.errors import ShapeError

torch = optional("torch")
F = optional("torch.nn.functional")


def wide(data: Any) -> Any:
    return torch.tensor(data, dtype=torch.float64)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stride": 2, "padding": 1},
        {"dilation": 2},
        {"groups": 2, "stride": (2, 1), "padding": (0, 2)},
        {"stride": 3},
    ],
    ids=str,
)
def test_conv2d(settings: dict[str, Any]) -> None:
    data, bias = random(2, 4, 9, 8), random(6)
    weight = random(6, 4 // settings.get("groups", 1), 3, 2, seed=1)
    wanted = F.conv2d(wide(data), wide(weight), wide(bias), **settings)
    check(Tensor(data).conv2d(Tensor(weight), Tensor(bias), **settings), wanted.numpy())


def test_conv_of_other_ranks() -> None:
    data, weight = random(2, 3, 10), random(4, 3, 3)
    check(Tensor(data).conv2d(Tensor(weight)), F.conv1d(wide(data), wide(weight)).numpy())
    data, weight = random(1, 2, 5, 5, 5), random(3, 2, 2, 2, 2)
    check(Tensor(data).conv2d(Tensor(weight)), F.conv3d(wide(data), wide(weight)).numpy())


def test_half_in_half_out() -> None:
    data = Tensor(random(1, 2, 5, 5)).half()
    assert data.conv2d(data[:, :, :3, :3]).dtype is dtypes.float16


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2, "dilation": 2},
    ],
    ids=str,
)
def test_conv_transpose2d(settings: dict[str, Any]) -> None:
    data, weight = random(2, 4, 5, 4), random(4, 3, 3, 2, seed=1)
    wanted = F.conv_transpose2d(wide(data), wide(weight), **settings)
    check(Tensor(data).conv_transpose2d(Tensor(weight), **settings), wanted.numpy())


POOLS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1)},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1},
]


@pytest.mark.parametrize("settings", POOLS, ids=str)
def test_pools(settings: dict[str, Any]) -> None:
    data = random(2, 3, 9, 8)
    check(Tensor(data).max_pool2d(**settings), F.max_pool2d(wide(data), **settings).numpy())
    for include in (True, False):
        wanted = F.avg_pool2d(wide(data), **settings, count_include_pad=include)
        found = Tensor(data).avg_pool2d(**settings, count_include_pad=include)
        check(found, wanted.numpy())


def test_max_pool_places_and_back() -> None:
    data = random(2, 3, 6, 6)
    values, places = F.max_pool2d(wide(data), 2, return_indices=True)
    ours, our_places = Tensor(data).max_pool2d(return_indices=True)
    check(ours, values.numpy())
    check(our_places, places.numpy())
    check(ours.max_unpool2d(our_places), F.max_unpool2d(values, places, 2).numpy())


def test_max_pool_of_ints() -> None:
    data = Tensor([[[[-5, -6], [-7, -8]]]])
    assert data.max_pool2d(2, padding=1, stride=2).tolist() == [[[[-5, -6], [-7, -8]]]]


def test_wrong_convolutions() -> None:
    with pytest.raises(ShapeError, match="3 channels, the weights are for 4"):
        Tensor.zeros(1, 3, 5, 5).conv2d(Tensor.zeros(2, 4, 3, 3))
    with pytest.raises(ShapeError, match="does not fit"):
        Tensor.zeros(1, 3, 2, 2).conv2d(Tensor.zeros(2, 3, 3, 3))
