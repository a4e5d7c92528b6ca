"""qr, svd and newton_schulz: factors are orthogonal, products give the matrix back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import optional
from weft import Tensor, TinyJit, dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.mixin.decompose import _with_signs

torch = optional("torch")

SHAPES = [(1, 1), (2, 2), (3, 5), (5, 3), (4, 1), (1, 4), (2, 3, 3), (9, 6)]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def matrix(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def check_orthogonal(found: Any, tolerance: float) -> None:
    """Its columns are."""
    product = np.swapaxes(found, -1, -2) @ found
    wanted = np.broadcast_to(np.eye(found.shape[-1]), product.shape)
    np.testing.assert_allclose(product, wanted, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...], dtype: str) -> None:
    array = matrix(shape, dtype)
    q, r = [factor.numpy() for factor in Tensor(array).qr()]
    assert q.shape == (*shape[:-1], shape[-2]) and r.shape == shape
    np.testing.assert_allclose(q @ r, array, atol=TOLERANCE[dtype])
    check_orthogonal(q, TOLERANCE[dtype])
    assert (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("full_matrices", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape: tuple[int, ...], full_matrices: bool) -> None:
    array = matrix(shape)
    u, s, v = [factor.numpy() for factor in Tensor(array).svd(full_matrices)]
    wanted = np.linalg.svd(array, full_matrices=full_matrices)
    assert [u.shape, s.shape, v.shape] == [part.shape for part in wanted]
    count = min(shape[-2:])
    np.testing.assert_allclose(s, wanted[1], atol=1e-12)
    product = (u[..., :count] * s[..., None, :]) @ v[..., :count, :]
    np.testing.assert_allclose(product, array, atol=1e-12)
    check_orthogonal(u, 1e-12)
    check_orthogonal(np.swapaxes(v, -1, -2), 1e-12)


def test_rank_deficient_matrices_still_have_orthogonal_factors() -> None:
    array = matrix((5, 5))
    array[:, 2] = array[:, 1]
    array[:, 3] = 0
    u, s, v = [factor.numpy() for factor in Tensor(array).svd()]
    np.testing.assert_allclose((u * s) @ v, array, atol=1e-12)
    check_orthogonal(u, 1e-12)
    check_orthogonal(v.T, 1e-12)
    np.testing.assert_allclose(s[3:], 0, atol=1e-12)
    q, r = [factor.numpy() for factor in Tensor(np.zeros((3, 2))).qr()]
    assert (q == np.eye(3)).all() and (r == 0).all()


def test_lengths_neither_overflow_nor_vanish() -> None:
    for scale in (1e30, 1e-30):
        array = (matrix((3, 3)) * scale).astype(np.float32)
        q, r = [factor.numpy() for factor in Tensor(array).qr()]
        np.testing.assert_allclose(q @ (r / scale), array / scale, atol=1e-5)


def test_matrices_without_elements() -> None:
    for shape in ((2, 0), (0, 2), (3, 0, 2)):
        for full_matrices in (True, False):
            found = Tensor(np.zeros(shape)).svd(full_matrices)
            wanted = np.linalg.svd(np.zeros(shape), full_matrices=full_matrices)
            assert [part.shape for part in found] == [part.shape for part in wanted]


def test_gradient_of_qr() -> None:
    array = matrix((3, 4))
    values, leaf = Tensor(array), torch.from_numpy(array).requires_grad_()
    found = (values.qr()[1].abs() ** 3).sum().gradient(values)[0]
    wanted = torch.autograd.grad((torch.linalg.qr(leaf)[1].abs() ** 3).sum(), leaf)[0]
    check(found, wanted.numpy())


def weighed(q: Any, r: Any) -> Any:
    """Of qr's factors something that depends on each of their elements, and on both at once."""
    first, second = [np.sin(1 + np.arange(f.numel())).reshape(f.shape) for f in (q, r)]
    parts = (q**3 * Tensor(first)).sum() + (r**3 * Tensor(second)).sum()
    return parts + q.sum() * r.sum()


QR_SHAPES = [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (4, 1), (1, 4), (7, 2)]


@pytest.mark.parametrize("shape", QR_SHAPES)
def test_gradient_of_qr_is_that_of_its_reflections(shape: tuple[int, ...]) -> None:
    values = Tensor(matrix(shape))
    found = weighed(*values.qr()).gradient(values)[0].numpy()
    wanted = weighed(*values._qr_factors()).gradient(values)[0].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11 * abs(wanted).max())


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_second_gradient_of_qr(shape: tuple[int, ...]) -> None:
    array, way = matrix(shape), np.cos(np.arange(np.prod(shape))).reshape(shape)

    def slope(point: Any) -> tuple[Tensor, Tensor]:
        values = Tensor(point)
        first = weighed(*values.qr()).gradient(values)[0]
        return values, (first * first).sum()

    values, squares = slope(array)
    found = (squares.gradient(values)[0].numpy() * way).sum()
    above, below = [slope(array + step * way)[1].item() for step in (1e-6, -1e-6)]
    assert found == pytest.approx((above - below) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("shape", [*QR_SHAPES, (3, 0), (0, 3), (2, 0, 3), (0, 2, 2)])
def test_qr_by_kernels_agrees_with_that_of_the_host(shape: tuple[int, ...]) -> None:
    values = Tensor(matrix(shape))
    for host, kernels in zip(values.qr(), values._qr_factors(), strict=True):
        np.testing.assert_allclose(host.numpy(), kernels.numpy(), atol=1e-13)


@pytest.mark.parametrize(
    "array", [np.eye(3), -np.eye(3), np.triu(np.ones((4, 3))), np.zeros((3, 2)), np.diag([1, 0, 2])]
)
def test_columns_with_zeros_below_are_left_alone(array: Any) -> None:
    values = Tensor(array.astype(np.float64))
    for factors in (values.qr(), values._qr_factors()):
        q, r = [factor.numpy() for factor in factors]
        np.testing.assert_array_equal(q, np.eye(len(array)))
        np.testing.assert_array_equal(r, array)
    assert np.isfinite(weighed(*values.qr()).gradient(values)[0].numpy()).all()


def test_qr_on_another_device() -> None:
    array = matrix((4, 3), "float32")
    there = Tensor(array, device="PYTHON")
    for found, wanted in zip(there.qr(), Tensor(array).qr(), strict=True):
        assert found.device == "PYTHON"
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)


def test_qr_in_a_jit_computes_what_it_is_given() -> None:
    def step(x: Tensor) -> list[Tensor]:
        q, r = x.qr()
        (slope,) = (q**3).sum().gradient(x)
        q.realize(r, slope)
        return [q, r, slope]

    jitted = TinyJit(step)
    for seed in range(4):
        array = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        found = [part.numpy() for part in jitted(Tensor(array).realize())]
        np.testing.assert_allclose(found[0] @ found[1], array, rtol=1e-4, atol=1e-5)
        wanted = step(Tensor(array).realize())[2].numpy()
        np.testing.assert_allclose(found[2], wanted, rtol=1e-3, atol=1e-4 * abs(wanted).max())
    assert jitted.captured is not None


def test_qr_of_halves_is_computed_in_float32() -> None:
    array = matrix((5, 3)).astype(np.float16)
    q, r = Tensor(array).qr()
    wanted = np.linalg.qr(array.astype(np.float32), mode="complete")
    for found, factor in zip((q, r), wanted, strict=True):
        assert found.dtype is dtypes.float16
        np.testing.assert_array_equal(found.numpy(), factor.astype(np.float16))


def total(u: Any, s: Any, v: Any, weight: Any) -> Any:
    """Of svd's factors something that does not depend on their signs."""
    product = (u * weight) @ v
    return (product * product * product).sum() + (s * s * s).sum()


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 3, 2)])
def test_gradient_of_svd(shape: tuple[int, ...]) -> None:
    array = matrix(shape)
    weight = np.arange(1.0, min(shape[-2:]) + 1)
    values, leaf = Tensor(array), torch.from_numpy(array).requires_grad_()
    found = total(*values.svd(False), Tensor(weight)).gradient(values)[0]
    factors = torch.linalg.svd(leaf, full_matrices=False)
    wanted = torch.autograd.grad(total(*factors, torch.from_numpy(weight)), leaf)[0]
    check(found, wanted.numpy())


def test_second_gradient_of_svd() -> None:
    array = matrix((2, 2))
    weight = Tensor([1.0, 2.0], dtype="float64")

    def slope(point: Any) -> tuple[Tensor, Tensor]:
        values = Tensor(point)
        first = total(*values.svd(), weight).gradient(values)[0]
        return values, (first * first).sum()

    values, squares = slope(array)
    found = squares.gradient(values)[0].numpy()
    for place in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[place] = 1e-6
        above, below = [slope(array + way * step)[1].item() for way in (1, -1)]
        assert found[place] == pytest.approx((above - below) / 2e-6, rel=1e-5)


def test_newton_schulz() -> None:
    for shape in ((3, 5), (5, 3), (2, 4, 4)):
        array = matrix(shape)
        found = Tensor(array).newton_schulz(40, (1.5, -0.5)).numpy()
        u, _, v = np.linalg.svd(array, full_matrices=False)
        np.testing.assert_allclose(found, u @ v, atol=1e-6)
    array = matrix((3, 4))
    scaled = array / (np.sqrt((array**2).sum()) + 1e-7)
    square = scaled @ scaled.T
    wanted = 2 * scaled - 1.5 * square @ scaled + 0.5 * square @ square @ scaled
    check(Tensor(array).newton_schulz(1, (2.0, -1.5, 0.5)), wanted)


def test_errors() -> None:
    with pytest.raises(ShapeError, match="qr takes matrices"):
        Tensor([1.0]).qr()
    with pytest.raises(DTypeError, match="svd takes numbers"):
        Tensor([[True]]).svd()
    with pytest.raises(ArgumentError, match="at least one coefficient"):
        Tensor([[1.0]]).newton_schulz(1, ())


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (3, 5), (2, 4, 3)])
def test_svd_by_kernels_agrees_with_that_of_the_host(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    tensor = Tensor(array)
    own = _with_signs(*tensor._svd_factors(False))
    host = tensor.svd(full_matrices=False)
    for left, right in zip(own, host, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=1e-4, atol=1e-5)


def test_svd_in_a_jit_computes_what_it_is_given() -> None:
    step = TinyJit(lambda x: [factor.realize() for factor in x.svd(full_matrices=False)])
    for seed in range(4):
        array = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        u, s, v = [factor.numpy() for factor in step(Tensor(array).realize())]
        np.testing.assert_allclose(u * s @ v, array, rtol=1e-4, atol=1e-5)


def test_svd_of_what_is_not_finite_is_nan() -> None:
    assert np.isnan(Tensor([[np.nan, 1.0], [2.0, 3.0]]).svd()[1].numpy()).all()
