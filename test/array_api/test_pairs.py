"""Complex numbers as pairs: exact against NumPy, with gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft.array_api as xp
from test.optional import optional
from weft import Tensor
from weft.array_api import pairs

torch = optional("torch")

UNARY = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atanh": "arctanh", "cos": "cos", "cosh": "cosh", "exp": "exp", "log": "log", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip


@pytest.mark.parametrize("name", ["sqrt", "asinh", "atanh", "tanh"])
def test_parts_are_exact_over_all_magnitudes(name: str) -> None:
    rng = np.random.default_rng(0)
    line = np.concatenate([[0.0, -0.0, 1.0, -1.0, 1e-30, 1e30], rng.standard_normal(20)])
    real, imaginary = (part.copy() for part in np.meshgrid(line, line))
    z = real + 1j * imaginary
    z.real, z.imag = real, imaginary
    found = getattr(pairs, name)((Tensor(real), Tensor(imaginary)))
    with np.errstate(divide="ignore"):
        wanted = getattr(np, UNARY[name])(z)
    for mine, right in zip(found, (wanted.real, wanted.imag), strict=True):
        values = mine.numpy()
        assert (np.signbit(values) == np.signbit(right)).all()
        np.testing.assert_allclose(values, right, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "atan", "sin"])
def test_gradients_of_the_parts_are_those_of_torch(name: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal(6), rng.standard_normal(6)
    real, imaginary = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    first, second = getattr(pairs, name)((real, imaginary))
    (first * 2 + second * 3).sum().backward()
    x = torch.tensor(a, requires_grad=True)
    y = torch.tensor(b, requires_grad=True)
    z = getattr(torch, name)(torch.complex(x, y))
    (z.real * 2 + z.imag * 3).sum().backward()
    assert real.grad is not None and imaginary.grad is not None
    np.testing.assert_allclose(real.grad.numpy(), x.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(imaginary.grad.numpy(), y.grad.numpy(), rtol=1e-9)


def test_a_complex_scalar_makes_floats_complex() -> None:
    x = xp.asarray([1.0, 2.0]) * 1j
    assert x.dtype == xp.complex64
    assert np.asarray(x).tolist() == [1j, 2j]


def test_products_of_pairs_along_an_axis() -> None:
    z = np.random.default_rng(2).standard_normal((3, 5, 2)) @ np.array([1, 1j])
    x = xp.asarray(z)
    np.testing.assert_allclose(np.asarray(xp.prod(x, axis=1)), z.prod(1), rtol=1e-13)
    found = np.asarray(xp.cumulative_prod(x, axis=1))
    np.testing.assert_allclose(found, z.cumprod(1), rtol=1e-13)


@pytest.mark.parametrize("n", [1, 12, 60, 67, 331])
def test_transforms_of_any_length(n: int) -> None:
    rng = np.random.default_rng(n)
    z = rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))
    x = xp.asarray(z)
    wanted = np.fft.fft(z)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(np.asarray(xp.fft.fft(x)), wanted, rtol=0, atol=1e-13 * scale)
    back = np.asarray(xp.fft.ifft(xp.fft.fft(x)))
    np.testing.assert_allclose(back, z, rtol=0, atol=1e-13)


def test_a_transform_has_a_gradient() -> None:
    values = np.random.default_rng(3).standard_normal(12)
    x = Tensor(values, requires_grad=True)
    power = xp.abs(xp.fft.rfft(xp.asarray(x)))
    xp.sum(power * power).tensor.backward()
    other = torch.tensor(values, requires_grad=True)
    torch.fft.rfft(other).abs().square().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-9)


MATRIX = np.random.default_rng(4).standard_normal((4, 4)) + 4 * np.eye(4)
SYMMETRIC = MATRIX @ MATRIX.T
DECOMPOSITIONS = {
    "inv": (MATRIX, lambda m, x: m.linalg.inv(x).sum()),
    "det": (MATRIX, lambda m, x: m.linalg.det(x)),
    "slogdet": (MATRIX, lambda m, x: m.linalg.slogdet(x)[1]),
    "cholesky": (SYMMETRIC, lambda m, x: (m.linalg.cholesky(x) ** 3.0).sum()),
    "eigvalsh": (SYMMETRIC, lambda m, x: (m.linalg.eigvalsh(x) ** 3.0).sum()),
    "eigh": (SYMMETRIC, lambda m, x: (m.linalg.eigh(x)[1] ** 4.0).sum()),
    "solve": (MATRIX, lambda m, x: (m.linalg.solve(x, x[:, 0]) ** 2.0 + x[0]).sum()),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_gradients_of_decompositions_are_those_of_torch(name: str) -> None:
    values, function = DECOMPOSITIONS[name]
    x = Tensor(values, requires_grad=True)
    _weft_value(name, xp.asarray(x)).backward()
    other = torch.tensor(values, requires_grad=True)
    wanted = function(torch, other)
    wanted.backward()
    assert x.grad is not None
    mine, right = x.grad.numpy(), other.grad.numpy()
    if name in ("cholesky", "eigvalsh", "eigh"):
        mine, right = mine + mine.T, right + right.T
    np.testing.assert_allclose(mine, right, rtol=1e-7, atol=1e-9 * np.abs(right).max())


def _weft_value(name: str, x: xp.Array) -> Tensor:
    linalg = xp.linalg
    found = {
        "inv": lambda: xp.sum(linalg.inv(x)),
        "det": lambda: linalg.det(x),
        "slogdet": lambda: linalg.slogdet(x).logabsdet,
        "cholesky": lambda: xp.sum(linalg.cholesky(x) ** 3.0),
        "eigvalsh": lambda: xp.sum(linalg.eigvalsh(x) ** 3.0),
        "eigh": lambda: xp.sum(linalg.eigh(x).eigenvectors ** 4.0),
        "solve": lambda: xp.sum(linalg.solve(x, x[:, 0]) ** 2.0 + x[0, :]),
    }[name]()
    return found.tensor


def test_the_principal_value_is_on_the_side_of_the_zero() -> None:
    above, below = xp.asarray(complex(-1.0, 0.0)), xp.asarray(complex(-1.0, -0.0))
    assert complex(xp.log(above)).imag == pytest.approx(math.pi)
    assert complex(xp.log(below)).imag == pytest.approx(-math.pi)
