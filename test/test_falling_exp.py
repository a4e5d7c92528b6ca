"""The exponential of what is at most 0: half of the operations, 0 below the least normal number."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor

ODD = np.array([0x7FC00001, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(dtype: type) -> None:
    least = np.log(np.finfo(dtype).tiny)
    values = np.linspace(least * 1.1, 0, 20001).astype(dtype)
    found = Tensor(values)._falling_exp().numpy()
    # the product rounds, which is why the relative error grows with the value
    power = np.exp2((values * dtype(np.log2(np.e))).astype(np.longdouble))
    is_normal = power >= np.finfo(dtype).tiny
    error = np.abs(found[is_normal] - power[is_normal])
    assert (error <= 1.01 * np.spacing(power[is_normal].astype(dtype))).all()
    assert (found[~is_normal] <= np.finfo(dtype).tiny).all() and (found >= 0).all()
    assert found[-1] == 1


def test_edges() -> None:
    values = np.array([-np.inf, -1e30, -88.0, -0.0, 0.0, np.nan, *ODD], np.float32)
    found = Tensor(values)._falling_exp().numpy()
    assert found[:5].tolist() == [0, 0, 0, 1, 1]
    assert np.isnan(found[5:]).all()


def test_what_is_masked_is_nothing() -> None:
    scores = Tensor([[1.0, -float("inf"), 2.0], [-1e30, 0.0, -200.0]])
    assert scores.softmax().numpy()[0, 1] == 0
    assert scores.softmax().tolist()[1] == [0, 1, 0]


def test_its_gradient_is_itself() -> None:
    x = Tensor([-2.0, -0.5, 0.0], requires_grad=True)
    x._falling_exp().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy()), rtol=1e-6)
