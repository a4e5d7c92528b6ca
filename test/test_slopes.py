"""Slopes at the edges: outside of domains, at infinities and zeros, where a step overflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import Tensor, dtypes

MODERATE = [0.0, 1e-3, 0.5, 0.625, 0.99999994, 1.0, 1.0000001, 2.0, 3.0, 6.0, 10.0, 20.0, 50.0]
LARGE = [88.0, 89.0, 100.0, 104.0, 1e4, 1.5e4, 1e10, 1e19, 1e20, 1e30, 3e38]
SMALL = [1e-10, 1e-30, 1e-38, 1e-40]
SIZES = np.array([*MODERATE, *LARGE, *SMALL, np.inf], np.float32)
POINTS = np.concatenate([SIZES, -SIZES])

METHODS = (
    "sqrt rsqrt reciprocal square exp exp2 log log2 log10 sigmoid tanh sinh cosh asinh acosh atanh "
    "erf sin cos tan asin acos atan abs relu relu6 leaky_relu elu celu selu silu mish softplus "
    "softsign logsigmoid hardswish hardsigmoid hardtanh floor ceil trunc round neg"
).split()
# where PyTorch itself is infinite minus infinite, or has another decision that is documented
EXCEPT = {"mish": [np.inf], "tan": [np.inf, -np.inf]}


@pytest.mark.parametrize("name", METHODS)
def test_slopes_at_edges_agree_with_pytorch(name: str) -> None:
    torch = need("torch")
    reference = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    x = np.array([point for point in POINTS if point not in EXCEPT.get(name, [])], np.float32)
    tensor = Tensor(x)
    found = getattr(tensor, name)().sum().gradient(tensor)[0].numpy()
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    with np.errstate(over="ignore"):
        wanted = torch.autograd.grad(reference(leaf).sum(), leaf)[0].numpy().astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_slopes_outside_of_a_domain_are_those_of_the_formula(dtype: str) -> None:
    x = Tensor([-3.0, -2.0, 2.0, 3.0], dtype=dtype)
    acosh = x.acosh().sum().gradient(x)[0]
    atanh = x.atanh().sum().gradient(x)[0]
    sizes = np.array([3.0, 2.0, 2.0, 3.0])
    tolerance = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(acosh.numpy(), 1 / np.sqrt(sizes**2 - 1), rtol=tolerance)
    np.testing.assert_allclose(atanh.numpy(), 1 / (1 - sizes**2), rtol=tolerance)
    ends = Tensor([-1.0, 1.0], dtype=dtype)
    assert ends.atanh().sum().gradient(ends)[0].tolist() == [np.inf, np.inf]


WRITTEN_OUT: dict[str, Callable[[Any], Any]] = {
    "1 / (1 + exp(-x))": lambda x: 1 / (1 + (-x).exp()),
    "exp(x) / (1 + exp(x))": lambda x: x.exp() / (1 + x.exp()),
    "exp(x) / (exp(x) + 1)": lambda x: x.exp() / (x.exp() + 1),
    "reciprocal": lambda x: (1 + (-x).exp()).reciprocal(),
    "exp2": lambda x: 1 / ((x * -1.4426950408889634).exp2() + 1),
    "scaled": lambda x: (1 / (1 + (-x).exp())) * 3 / 3,
    "masked": lambda x: (x > -1e30).where(1 / (1 + (-x).exp()), 0.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_sigmoid_that_is_written_out_has_the_slope_of_one(name: str, dtype: str) -> None:
    x = Tensor([-1e4, -800.0, -100.0, -12.0, -2.0, 0.0, 2.0, 12.0, 100.0, 800.0, 1e4], dtype=dtype)
    found = WRITTEN_OUT[name](x).sum().gradient(x)[0].cast(dtypes.float64).numpy()
    values = x.cast(dtypes.float64).numpy()
    wanted = 1 / (2 + np.exp(np.clip(values, -700, 700)) + np.exp(np.clip(-values, -700, 700)))
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance / 10)


def test_a_softplus_that_is_written_out_has_the_slope_of_one() -> None:
    x = Tensor([-200.0, -1.0, 0.0, 1.0, 200.0])
    found = (1 + x.exp()).log().sum().gradient(x)[0].numpy()
    np.testing.assert_allclose(found, x.sigmoid().numpy(), rtol=1e-6, atol=1e-7)


def test_the_slope_of_a_slope_of_a_written_out_sigmoid_is_finite() -> None:
    x = Tensor([-200.0, -1.0, 0.5, 200.0])
    first = (1 / (1 + (-x).exp())).sum().gradient(x)[0]
    second = first.sum().gradient(x)[0].numpy()
    s = x.sigmoid().numpy().astype(np.float64)
    np.testing.assert_allclose(second, s * (1 - s) * (1 - 2 * s), rtol=1e-5, atol=1e-7)


def test_the_gradient_of_exp_is_one_product() -> None:
    x = Tensor.empty(4)
    gradient = x.exp().sum().gradient(x)[0]
    assert gradient.uop.op.name == "MUL" or gradient.uop is x.exp().uop
