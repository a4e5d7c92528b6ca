"""Activations and softmaxes against PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, dtypes

torch = optional("torch")
F = optional("torch.nn.functional")

DATA = np.concatenate([random(200, low=-12, high=12), np.float32([0, -0.0, 1e-6, 30, -30])])

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "silu": F.silu,
    "swish": F.silu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "selu": lambda x: 1.0507 * torch.where(x > 0, x, 1.67326 * (torch.exp(x) - 1)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str) -> None:
    wanted = ACTIVATIONS[name](torch.tensor(DATA, dtype=torch.float64))
    check(getattr(Tensor(DATA), name)(), wanted.numpy())


def test_exact_gelu() -> None:
    wanted = F.gelu(torch.tensor(DATA, dtype=torch.float64))
    check(Tensor(DATA).gelu(approximate="none"), wanted.numpy())


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmaxes(name: str, axis: int) -> None:
    data = random(3, 4, 5, low=-50, high=50)
    wanted = getattr(F, name)(torch.tensor(data, dtype=torch.float64), dim=axis)
    check(getattr(Tensor(data), name)(axis), wanted.numpy())


def test_softmax_of_half_and_ints() -> None:
    data = random(4, 6).astype(np.float16)
    result = Tensor(data).softmax()
    assert result.dtype is dtypes.float16
    check(result, F.softmax(torch.tensor(data, dtype=torch.float64), -1).numpy())
    assert Tensor([1, 2]).softmax().dtype is dtypes.default_float
    assert Tensor([1.0]).softmax(dtype=dtypes.float64).dtype is dtypes.float64


def test_softmax_with_masked_entries() -> None:
    values = Tensor([0.0, -math.inf, 0.0]).softmax().tolist()
    assert values == [0.5, 0.0, 0.5]
