"""Products of tensors against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from test.mixin.compare import check, random
from weft import Tensor, dtypes
from weft.errors import ArgumentError, ShapeError

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((17, 33), (33, 9)),
]


@pytest.mark.parametrize("left, right", SHAPES)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = random(*left), random(*right, seed=1)
    check(Tensor(a) @ Tensor(b), a.astype(np.float64) @ b.astype(np.float64))


def test_matmul_of_ints_and_halves() -> None:
    a = np.random.default_rng(0).integers(-50, 50, (4, 5)).astype(np.int8)
    assert (Tensor(a) @ Tensor(a.T)).dtype is dtypes.int8
    wide = Tensor(a).matmul(Tensor(a.T), dtype=dtypes.int32)
    check(wide, a.astype(np.int32) @ a.T.astype(np.int32))
    half = Tensor.ones(8, 2048, dtype=dtypes.float16)
    result = half @ (half.T * 0.25)
    assert result.dtype is dtypes.float16
    check(result, np.full((8, 8), 512.0))


EINSUMS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("ijk,ikl->ijl", [(2, 3, 4), (2, 4, 5)]),
    ("i,j->ij", [(3,), (4,)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
    ("b...,b->b...", [(2, 3, 4), (2,)]),
    ("ij,ij,ij->", [(2, 3), (2, 3), (2, 3)]),
    ("abc->b", [(2, 3, 4)]),
]


@pytest.mark.parametrize("formula, shapes", EINSUMS)
def test_einsum(formula: str, shapes: list[tuple[int, ...]]) -> None:
    data = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    wanted = np.einsum(formula, *[x.astype(np.float64) for x in data])
    check(Tensor.einsum(formula, *[Tensor(x) for x in data]), wanted)


def test_linear_and_outer() -> None:
    x, weight, bias = random(2, 3), random(3, 4), random(4)
    check(Tensor(x).linear(Tensor(weight), Tensor(bias)), x.astype(float) @ weight + bias)
    check(Tensor(x).linear(Tensor(x[0])), x * x[0])
    check(Tensor([1, 2]).outer(Tensor([3, 4])), np.outer([1, 2], [3, 4]))


def test_wrong_products() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(4, 5\).*3 and 4"):
        Tensor.zeros(2, 3) @ Tensor.zeros(4, 5)
    with pytest.raises(ShapeError, match="at least one axis"):
        Tensor(1.0) @ Tensor([1.0])
    with pytest.raises(ArgumentError, match="names 2 operands"):
        Tensor.einsum("ij,jk", Tensor.zeros(2, 2))
    with pytest.raises(ShapeError, match="sizes 2 and 3"):
        Tensor.einsum("i,i->i", Tensor.zeros(2), Tensor.zeros(3))


@pytest.mark.parametrize(
    "formula", ["..i->i", "...i...->i", "....ij->i", "i.j->i", "i1->i", "ij->i-"]
)
def test_a_wrong_ellipsis_is_named(formula: str) -> None:
    with pytest.raises(ArgumentError, match=r"no list of axes.*one\s+ellipsis"):
        Tensor.einsum(formula, Tensor.zeros(2, 2))


def test_an_ellipsis_of_more_axes_than_letters() -> None:
    assert Tensor.einsum("...a->...", Tensor.ones(*[1] * 30)).shape == (1,) * 29
    with pytest.raises(ShapeError, match="names 3 axes, but the operand has 2"):
        Tensor.einsum("abc...->a", Tensor.zeros(2, 2))
