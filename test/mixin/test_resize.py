"""interpolate against PyTorch: every mode, growing and shrinking, one to three axes."""

from __future__ import annotations

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import optional
from weft import Tensor
from weft.errors import ArgumentError, ShapeError

torch = optional("torch")
functional = optional("torch.nn.functional")

SIZES = [
    ((2, 3, 7), [(5,), (14,), (1,), (7,), (20,)]),
    ((1, 2, 5, 6), [(3, 9), (10, 12), (1, 1), (5, 7)]),
    ((1, 1, 3, 4, 5), [(6, 2, 7)]),
]
CASES = [(shape, size) for shape, sizes in SIZES for size in sizes]
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@pytest.mark.parametrize(("shape", "size"), CASES)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "linear", "cubic"])
def test_agrees_with_pytorch(shape: tuple[int, ...], size: tuple[int, ...], mode: str) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    own = {"linear": LINEAR[len(size)], "cubic": "bicubic"}.get(mode, mode)
    if own == "bicubic" and len(size) != 2:
        return
    for corners in (False, True) if mode in ("linear", "cubic") else (None,):
        wanted = functional.interpolate(
            torch.from_numpy(array), size=size, mode=own, align_corners=corners
        )
        check(Tensor(array).interpolate(size, mode, bool(corners)), wanted.numpy())
        check(Tensor(array).interpolate(size, own, bool(corners)), wanted.numpy())


def test_other_dtypes() -> None:
    ints = Tensor([[0, 10]], dtype="uint8").interpolate((4,))
    assert ints.dtype.name == "uint8" and ints.tolist() == [[0, 3, 8, 10]]
    half = Tensor([[1.0, 3.0]], dtype="float16").interpolate((4,))
    assert half.dtype.name == "float16" and half.tolist() == [[1.0, 1.5, 2.5, 3.0]]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_round_to_the_bit_as_in_pytorch(mode: str, corners: bool) -> None:
    # a byte between: halves go up, and the rows are rounded before the columns are weighed
    generator = np.random.default_rng(0)
    for size in ((4, 4), (10, 12), (7, 5), (3, 9), (16, 2), (5, 11), (13, 6)):
        array = generator.integers(0, 256, (2, 3, 5, 6), dtype=np.uint8)
        image = torch.from_numpy(array)
        wanted = functional.interpolate(image, size=size, mode=mode, align_corners=corners)
        found = Tensor(array).interpolate(size, mode, corners)
        assert found.dtype.name == "uint8"
        np.testing.assert_array_equal(found.numpy(), wanted.numpy(), err_msg=str(size))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic", "area"])
def test_gradient(mode: str) -> None:
    array = np.random.default_rng(0).standard_normal((1, 1, 4, 5))
    weight = np.random.default_rng(1).standard_normal((1, 1, 6, 3))
    values = Tensor(array)
    found = (values.interpolate((6, 3), mode) * Tensor(weight)).sum().gradient(values)[0]
    own = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    leaf = torch.from_numpy(array).requires_grad_()
    resized = functional.interpolate(leaf, size=(6, 3), mode=own)
    check(found, torch.autograd.grad((resized * torch.from_numpy(weight)).sum(), leaf)[0].numpy())


def test_errors() -> None:
    image = Tensor.zeros(1, 1, 4, 4)
    with pytest.raises(ArgumentError, match="\"nearest\".*found 'lanczos'"):
        image.interpolate((2, 2), "lanczos")
    with pytest.raises(ArgumentError, match="resizes 2 axes"):
        image.interpolate((2,), "bilinear")
    with pytest.raises(ArgumentError, match="align_corners"):
        image.interpolate((2, 2), "nearest", True)
    with pytest.raises(ShapeError, match="at least 1"):
        image.interpolate((0, 2))
    with pytest.raises(ShapeError, match="to the sizes"):
        Tensor.zeros(3).interpolate((2, 2))
