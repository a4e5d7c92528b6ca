"""Winograd's convolution: values within a bound of their own, gradients, any shape, few operations.

Its sums have terms far larger than the result, so its error is that of a plain convolution times a
factor; the references are float64 convolutions of PyTorch on the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bench.winograd as bench
from test.optional import optional
from weft import Context, Tensor, TinyJit, dtypes
from weft.mixin import winograd
from weft.uop.opset import Ops

torch = optional("torch")

functional: Any = torch.nn.functional

# how much larger the error of F(4, 3) in two axes may be than the bound of a plain sum
AMPLIFIED = 8.0

ROUNDED = {dtypes.float32: 0.0, dtypes.float16: 2.0**-11, dtypes.bfloat16: 2.0**-8}


def signed(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def plain(x: np.ndarray, w: np.ndarray, **options: Any) -> np.ndarray:
    name = f"conv{w.ndim - 2}d"
    found = getattr(functional, name)(torch.tensor(x), torch.tensor(w), **options)
    return np.asarray(found.numpy())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1, 4, 4, 9, 11), (2, 32, 8, 40, 40), (1, 8, 16, 12, 72)])
def test_error_is_bounded_for_each_dtype(dtype: Any, shape: tuple[int, ...]) -> None:
    batch, inner, outer, *space = shape
    x, w = Tensor(signed(batch, inner, *space)), Tensor(signed(outer, inner, 3, 3, seed=1))
    x, w = x.cast(dtype).realize(), w.cast(dtype).realize()
    with Context(WINO=1):
        result = x.conv2d(w, padding=1).realize()
    assert result.dtype is dtype
    exact_x, exact_w = x.cast(dtypes.float64).numpy(), w.cast(dtypes.float64).numpy()
    exact = plain(exact_x, exact_w, padding=1)
    sizes = plain(np.abs(exact_x), np.abs(exact_w), padding=1)
    # sums are float32 whatever the dtype; a half is then rounded once
    bound = AMPLIFIED * 4 * 2.0**-23 * (9 * inner) ** 0.5 * sizes.max()
    bound = bound + np.abs(exact) * ROUNDED[dtype]
    assert (np.abs(result.cast(dtypes.float64).numpy() - exact) <= bound).all()


GEOMETRY: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "whole tiles": ((2, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}),
    "no padding": ((1, 2, 10, 7), (3, 2, 3, 3), {}),
    "padding beyond the window": ((1, 2, 5, 6), (3, 2, 3, 3), {"padding": 3}),
    "one output": ((2, 2, 3, 3), (2, 2, 3, 3), {}),
    "groups": ((2, 6, 7, 9), (9, 2, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise": ((1, 4, 8, 6), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "one axis": ((2, 3, 13), (4, 3, 3), {"padding": 1}),
    "three axes": ((1, 2, 5, 4, 6), (3, 2, 3, 3, 3), {"padding": 1}),
    "kernel of 5": ((2, 3, 9, 8), (4, 3, 5, 5), {"padding": 2}),
    "kernel of 5 by 3": ((1, 3, 6, 20), (4, 3, 5, 3), {"padding": (2, 1)}),
    "kernel of 3 by 1": ((1, 2, 9, 5), (3, 2, 3, 1), {}),
    "kernel of 1 by 3": ((1, 2, 5, 9), (3, 2, 1, 3), {}),
    "panels": ((2, 3, 8, 64), (4, 3, 3, 3), {"padding": 1}),
    "panels that overlap": ((1, 3, 6, 76), (4, 3, 3, 3), {"padding": 1}),
    "panels of eight": ((1, 3, 6, 44), (4, 3, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", GEOMETRY)
def test_values_and_gradients(name: str) -> None:
    shape, kernel, options = GEOMETRY[name]
    x, w = signed(*shape), signed(*kernel, seed=1)
    peers = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    expected = getattr(functional, f"conv{w.ndim - 2}d")(*peers, **options)
    weights = signed(*expected.shape, seed=2)
    wanted = torch.autograd.grad((expected**2 * torch.tensor(weights)).sum(), peers)
    with Context(WINO=1):
        tensors = [Tensor(x), Tensor(w)]
        found = tensors[0].conv2d(tensors[1], **options)
        gradients = (found**2 * Tensor(weights)).sum().gradient(*tensors)
        torch.testing.assert_close(torch.as_tensor(found.numpy()), expected.detach())
        for left, right in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(left.numpy()), right)


@pytest.mark.device("CPU")
def test_followed_by_arithmetic_it_is_two_kernels() -> None:
    """One for the weights, one for everything else, with what is done to the result inside."""
    x, w = Tensor.ones(2, 8, 64, 64).contiguous().realize(), Tensor.ones(16, 8, 3, 3)
    w, bias = w.contiguous().realize(), Tensor.ones(16).contiguous().realize()
    with Context(WINO=1):
        result = x.conv2d(w, bias, padding=1).relu()
        assert len(result.schedule()) == 2
        assert result[0, 0, 1, 1].item() == 73.0


@pytest.mark.device("CPU")
def test_knob_and_model() -> None:
    def kernels(side: int, channels: int, **knobs: int) -> int:
        x, w = Tensor.empty(4, channels, side, side), Tensor.empty(channels, channels, 3, 3)
        with Context(**knobs):
            return len(x.conv2d(w).schedule())

    plain_count = kernels(66, 32, WINO=0)
    assert kernels(66, 32) == kernels(66, 32, WINO=1) != plain_count
    # too few tiles in a row, too few products
    assert kernels(9, 32) == kernels(9, 32, WINO=0)
    assert kernels(66, 1) == kernels(66, 1, WINO=0)


@pytest.mark.parametrize("options", [{"stride": 2}, {"dilation": 2}], ids=["stride", "dilation"])
def test_what_it_is_not_for_is_computed_plainly(options: dict[str, Any]) -> None:
    x, w = signed(1, 2, 9, 9), signed(2, 2, 3, 3)
    with Context(WINO=1):
        found = Tensor(x).conv2d(Tensor(w), **options).numpy()
        whole = Tensor(np.arange(50).reshape(1, 2, 5, 5)).conv2d(Tensor(np.ones((1, 2, 3, 3), int)))
        assert whole.numpy()[0, 0, 0, 0] == 2 * 9 * 6 + 9 * 25
    np.testing.assert_allclose(found, plain(x, w, **options), atol=1e-12)


@pytest.mark.parametrize(
    ("matrix", "parts", "operations"),
    [
        # 16 sums and 24 products with the matrix as it stands, then 15 and 20
        (winograd.INPUTS[6], winograd.PARITY, 13),
        (winograd.outputs_of(6, 4), winograd.PAIRS, 10),
    ],
    ids=["inputs", "outputs"],
)
def test_matrices_are_numbers_that_fold(matrix: Any, parts: Any, operations: int) -> None:
    """Nothing is multiplied with zeros and ones, pairs of rows share what they sum, and most
    products are added as they are made."""
    rows = winograd.combine(matrix, [Tensor.empty(3) for _ in range(6)], parts)
    order = Tensor.stack(*rows).uop.toposort()
    numbers = [u.src[1].base.arg for u in order if u.op in (Ops.MUL, Ops.MULADD)]
    assert not {0, 1, -1} & set(numbers)
    assert sum(u.op in (Ops.ADD, Ops.MUL, Ops.MULADD) for u in order) == operations


def test_under_jit_with_new_inputs() -> None:
    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return x.conv2d(w, padding=1).relu().realize()

    with Context(WINO=1):
        for seed in range(4):
            x, w = signed(1, 4, 12, 64, seed=seed), signed(4, 4, 3, 3, seed=seed + 9)
            found = step(Tensor(x).realize(), Tensor(w).realize()).numpy()
            np.testing.assert_allclose(found, np.maximum(plain(x, w, padding=1), 0), atol=1e-12)


@pytest.mark.parametrize(("tile", "width"), [(2, 3), (4, 3), (2, 5)])
def test_the_matrices_are_a_convolution(tile: int, width: int) -> None:
    """A^T ((G g) * (B^T d)) is the correlation of d with g, for all of both."""
    points = tile + width - 1
    inputs, weights = np.array(winograd.INPUTS[points]), winograd.weights_at(points, width)
    d, g = signed(points), signed(width, seed=1)
    found = np.array(winograd.outputs_of(points, tile)) @ ((weights @ g) * (inputs @ d))
    np.testing.assert_allclose(found, np.correlate(d, g, "valid"), atol=1e-12)


@pytest.mark.parametrize("width", [3, 5])
def test_matrices_as_tensors_give_the_same(width: int) -> None:
    """The other form of bench/winograd.py is a convolution too."""
    x, w = signed(1, 2, 8, 8), signed(2, 2, width, width)
    found = bench.materialised(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_allclose(found, plain(x, w, padding=width // 2), rtol=1e-5, atol=1e-5)
