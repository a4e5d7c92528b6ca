"""Gradients of Tensor's methods, against PyTorch: ordinary values, and the edges of each function.

A method is an expression of ops whose rules are tested in `test_gradient.py`. Here it is tested
that the expression is one whose derivative is exact and finite wherever the function has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.optional import optional
from weft import Tensor, dtypes

torch = optional("torch")

functional: Any = torch.nn.functional

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def signed(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def check(function: Function, peer: Function, *arrays: Array, **bounds: float) -> None:
    """The gradients of a weighted sum of both functions, for every float argument."""
    tensors = [Tensor(a) for a in arrays]
    peers = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    result, expected = function(*tensors), peer(*peers)
    weights = signed(*result.shape, seed=93).astype(arrays[0].dtype)
    found = (result * Tensor(weights)).sum().gradient(
        *[x for x in tensors if x.is_floating_point()]
    )  # fmt: skip
    (expected * torch.tensor(weights)).sum().backward()
    wanted = [x.grad for x in peers if x.requires_grad]
    for gradient, value in zip(found, wanted, strict=True):
        left = torch.as_tensor(gradient.numpy())
        torch.testing.assert_close(left, value, equal_nan=True, **bounds)


# *** functions of one value ***

ANY, POSITIVE, UNIT, ABOVE_ONE = (-3.0, 3.0), (0.1, 4.0), (-0.95, 0.95), (1.05, 5.0)
UNARY: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("abs", "neg", "square", "sign", "floor", "ceil", "trunc", "round"), ANY),
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan"), ANY),
    **dict.fromkeys(("exp", "exp2", "erf", "sigmoid", "relu", "reciprocal"), ANY),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), UNIT),
    "acosh": ABOVE_ONE,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: Any) -> None:
    array = uniform(*UNARY[name], 200).astype(dtype)
    check(lambda x: getattr(x, name)(), lambda x: getattr(x, name)(), array)


ACTIVATIONS: dict[str, Function] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "celu": functional.celu,
    "silu": functional.silu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "mish": functional.mish,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardtanh": functional.hardtanh,
    "softplus": functional.softplus,
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "softmax": lambda x: x.softmax(-1),
    "softmin": lambda x: functional.softmin(x, -1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str, dtype: Any) -> None:
    array = (signed(6, 40) * 3).astype(dtype)
    check(lambda x: getattr(x, name)(), ACTIVATIONS[name], array)


def test_gelu_by_the_error_function() -> None:
    array = (signed(100) * 2).astype(np.float32)
    check(lambda x: x.gelu("none"), functional.gelu, array)


FAR = [-1e30, -1e4, -200.0, -100.0, -50.0, -12.0, 12.0, 50.0, 100.0, 200.0, 1e4, 1e30]


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if "soft" not in name])
def test_activation_far_from_zero(name: str) -> None:
    check(lambda x: getattr(x, name)(), ACTIVATIONS[name], np.array(FAR, dtype=np.float32))


@pytest.mark.parametrize(
    "name", ["softplus", "softsign", "softmax", "log_softmax", "erf", "atan", "asinh"]
)
def test_function_far_from_zero(name: str) -> None:
    peer = ACTIVATIONS.get(name, lambda x: getattr(x, name)())
    check(lambda x: getattr(x, name)(), peer, np.array(FAR, dtype=np.float32))


@pytest.mark.parametrize("name", ["exp", "sinh", "cosh"])
def test_function_that_overflows(name: str) -> None:
    array = np.array([-1e4, -200.0, -80.0, 80.0, 200.0, 1e4], dtype=np.float32)
    check(lambda x: getattr(x, name)(), lambda x: getattr(x, name)(), array)


KINKS = {
    "relu": (functional.relu, [-0.0, 0.0]),
    "relu6": (functional.relu6, [0.0, 6.0]),
    "leaky_relu": (functional.leaky_relu, [0.0]),
    "hardtanh": (functional.hardtanh, [-1.0, 1.0]),
    "hardsigmoid": (functional.hardsigmoid, [-3.0, 3.0]),
    "hardswish": (functional.hardswish, [-3.0, 3.0]),
    "abs": (torch.abs, [-0.0, 0.0]),
    "sign": (torch.sign, [-0.0, 0.0]),
    "sinh": (torch.sinh, [0.0]),
    "tanh": (torch.tanh, [0.0]),
    "asinh": (torch.asinh, [0.0]),
    "atan": (torch.atan, [0.0, 1.0, -1.0]),
    "asin": (torch.asin, [0.0, 0.5]),
    "acos": (torch.acos, [0.0, 0.5]),
    "atanh": (torch.atanh, [0.0]),
    "erf": (torch.erf, [0.0, 1.0, -1.0]),
    "elu": (functional.elu, [0.0]),
    "softplus": (functional.softplus, [0.0]),
    "sqrt": (torch.sqrt, [0.0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_at_a_kink(name: str) -> None:
    peer, points = KINKS[name]
    check(lambda x: getattr(x, name)(), peer, np.array(points, dtype=np.float32))


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, None), (None, 0.5)])
def test_clip(bounds: tuple[float | None, float | None]) -> None:
    array = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0], dtype=np.float32)
    check(lambda x: x.clip(*bounds), lambda x: x.clamp(*bounds), array)


@pytest.mark.parametrize("name", ["copysign", "fmod", "logaddexp"])
def test_binary(name: str) -> None:
    arrays = signed(50), signed(50, seed=1)
    check(lambda x, y: getattr(x, name)(y), lambda x, y: getattr(torch, name)(x, y), *arrays)


def test_copysign_of_zeros() -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0], dtype=np.float32)
    y = np.array([-1.0, 1.0, -0.0, 0.0, -3.0], dtype=np.float32)
    check(lambda x, y: x.copysign(y), torch.copysign, x, y)


def test_remainders() -> None:
    arrays = signed(50) * 3, signed(50, seed=1) + 2
    check(lambda x, y: x % y, torch.remainder, *arrays)


def test_lerp() -> None:
    arrays = signed(9), signed(9, seed=1), uniform(0, 1, 9)
    check(lambda x, y, w: x.lerp(y, w), torch.lerp, *arrays)


# *** movement and indexing ***

MOVEMENT: dict[str, tuple[Function, Function]] = {
    "pad reflect": (
        lambda x: x.pad((1, 2, 1, 1), mode="reflect"),
        lambda x: functional.pad(x[None], (1, 2, 1, 1), mode="reflect")[0],
    ),
    "pad replicate": (
        lambda x: x.pad((1, 2, 1, 1), mode="replicate"),
        lambda x: functional.pad(x[None], (1, 2, 1, 1), mode="replicate")[0],
    ),
    "pad circular": (
        lambda x: x.pad((1, 2, 1, 1), mode="circular"),
        lambda x: functional.pad(x[None], (1, 2, 1, 1), mode="circular")[0],
    ),
    "pad with a value": (
        lambda x: x.pad((1, 2), value=3.0),
        lambda x: functional.pad(x, (1, 2), value=3.0),
    ),
    "repeat": (lambda x: x.repeat(2, 3), lambda x: x.repeat(2, 3)),
    "repeat_interleave": (
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.repeat_interleave(2, 1),
    ),
    "roll": (lambda x: x.roll(2, 1), lambda x: x.roll(2, 1)),
    "stack": (lambda x: x.stack(x * x, dim=1), lambda x: torch.stack([x, x * x], 1)),
    "split": (lambda x: x.split(2, 1)[1] * 2.0, lambda x: x.split(2, 1)[1] * 2.0),
    "unfold": (lambda x: x.unfold(1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "diagonal": (lambda x: x.diagonal(), lambda x: x.diagonal()),
    "tril": (lambda x: x.tril(), lambda x: x.tril()),
    "triu": (lambda x: x.triu(1), lambda x: x.triu(1)),
    "steps": (lambda x: x[::2, ::-1][:, 1::3], lambda x: x[::2].flip(1)[:, 1::3]),
    "new axes": (lambda x: x[None, 1:, :, None], lambda x: x[None, 1:, :, None]),
    "an int": (lambda x: x[1, 2:], lambda x: x[1, 2:]),
    "indices": (
        lambda x: x[Tensor([0, 3, 3, 1]), Tensor([2, 0, 0, 5])],
        lambda x: x[torch.tensor([0, 3, 3, 1]), torch.tensor([2, 0, 0, 5])],
    ),
    "gather": (
        lambda x: x.gather(1, Tensor([[0, 1, 1], [2, 2, 2], [0, 5, 0], [1, 2, 3]])),
        lambda x: x.gather(1, torch.tensor([[0, 1, 1], [2, 2, 2], [0, 5, 0], [1, 2, 3]])),
    ),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 0.5), lambda x: x.masked_fill(x > 0, 0.5)),
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name: str) -> None:
    check(*MOVEMENT[name], signed(4, 6))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scatter_reduce(reduce: str) -> None:
    index = [[0, 1, 1, 3], [2, 2, 2, 0]]
    check(
        lambda x, y: x.scatter_reduce(1, Tensor(index), y, reduce),
        lambda x, y: x.scatter_reduce(1, torch.tensor(index), y, reduce),
        *(signed(2, 4), signed(2, 4, seed=1)),
    )


def test_scatter() -> None:
    index = [[0, 2, 1], [3, 1, 0]]
    check(
        lambda x, y: x.scatter(1, Tensor(index), y),
        lambda x, y: x.scatter(1, torch.tensor(index), y),
        *(signed(2, 4), signed(2, 3, seed=1)),
    )


# *** reductions and scans ***

REDUCTIONS: dict[str, tuple[Function, Function]] = {
    "sum": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "mean": (lambda x: x.mean((0, 2)), lambda x: x.mean((0, 2))),
    "prod": (lambda x: x.prod(1), lambda x: x.prod(1)),
    "max": (lambda x: x.max(2), lambda x: x.amax(2)),
    "min": (lambda x: x.min(), lambda x: x.amin()),
    "var": (lambda x: x.var(1), lambda x: x.var(1)),
    "std": (lambda x: x.std((0, 1)), lambda x: x.std((0, 1))),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: x.logsumexp(1)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "cumprod": (lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    "cummax": (lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0]),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda x: x.logcumsumexp(1)),
    "normalize": (lambda x: x.normalize(), lambda x: functional.normalize(x)),
    "sort": (lambda x: x.sort(1)[0], lambda x: x.sort(1)[0]),
    "topk": (lambda x: x.topk(2, 1)[0], lambda x: x.topk(2, 1)[0]),
    "layernorm": (lambda x: x.layernorm(), lambda x: functional.layer_norm(x, (4,))),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str) -> None:
    check(*REDUCTIONS[name], signed(3, 5, 4))


# *** linear algebra, convolutions, layers, losses ***


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 3))],
    ids=str,
)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: Any) -> None:
    arrays = [signed(*shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)]
    check(lambda x, y: x @ y, lambda x, y: x @ y, *arrays)


def test_einsum() -> None:
    formula = "bij,bjk,ik->bi"
    arrays = signed(2, 3, 4), signed(2, 4, 5, seed=1), signed(3, 5, seed=2)
    check(lambda *xs: Tensor.einsum(formula, *xs), lambda *xs: torch.einsum(formula, *xs), *arrays)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"padding": 1},
        {"dilation": 2},
        {"groups": 2},
        {"stride": 2, "padding": 1},
    ],
    ids=str,
)
def test_conv2d(options: dict[str, int]) -> None:
    groups = options.get("groups", 1)
    arrays = signed(2, 4, 7, 6), signed(6, 4 // groups, 3, 2, seed=1), signed(6, seed=2)
    check(
        lambda x, w, b: x.conv2d(w, b, **options),
        lambda x, w, b: functional.conv2d(x, w, b, **options),
        *arrays,
    )


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}], ids=str)
def test_conv_transpose2d(options: dict[str, int]) -> None:
    arrays = signed(2, 3, 5, 4), signed(3, 4, 3, 2, seed=1), signed(4, seed=2)
    check(
        lambda x, w, b: x.conv_transpose2d(w, b, **options),
        lambda x, w, b: functional.conv_transpose2d(x, w, b, **options),
        *arrays,
    )


def test_pooling() -> None:
    check(lambda x: x.avg_pool2d(), lambda x: functional.avg_pool2d(x, 2), signed(2, 3, 6, 8))
    check(lambda x: x.max_pool2d(), lambda x: functional.max_pool2d(x, 2), signed(2, 3, 6, 8))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    arrays = [signed(2, 2, 5, 4, seed=seed) for seed in range(3)]
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=is_causal),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        *arrays,
    )


def test_batchnorm() -> None:
    def ours(x: Any, w: Any, b: Any) -> Any:
        mean = x.mean((0, 2, 3))
        variance = x.var((0, 2, 3), correction=0)
        return x.batchnorm(w, b, mean, (variance + 1e-5).rsqrt())

    def theirs(x: Any, w: Any, b: Any) -> Any:
        return functional.batch_norm(x, None, None, w, b, training=True)

    check(ours, theirs, signed(4, 3, 5, 2), signed(3, seed=1), signed(3, seed=2))


LABELS = np.array([0, 2, 1, 4, 3, 3])
LOSSES: dict[str, tuple[Function, Function]] = {
    "cross_entropy": (
        lambda x: x.cross_entropy(Tensor(LABELS)),
        lambda x: functional.cross_entropy(x, torch.tensor(LABELS)),
    ),
    "cross_entropy with smoothing": (
        lambda x: x.cross_entropy(Tensor(LABELS), label_smoothing=0.1),
        lambda x: functional.cross_entropy(x, torch.tensor(LABELS), label_smoothing=0.1),
    ),
    "sparse_categorical_crossentropy": (
        lambda x: x.sparse_categorical_crossentropy(Tensor(LABELS)),
        lambda x: functional.cross_entropy(x, torch.tensor(LABELS)),
    ),
    "nll_loss": (
        lambda x: x.log_softmax().nll_loss(Tensor(LABELS)),
        lambda x: functional.nll_loss(x.log_softmax(1), torch.tensor(LABELS)),
    ),
    "binary_crossentropy": (
        lambda x: x.sigmoid().binary_crossentropy((x > 0.3).float().detach()),
        lambda x: functional.binary_cross_entropy(x.sigmoid(), (x > 0.3).to(x.dtype)),
    ),
    "binary_crossentropy_logits": (
        lambda x: x.binary_crossentropy_logits((x > 0.3).float().detach()),
        lambda x: functional.binary_cross_entropy_with_logits(x, (x > 0.3).to(x.dtype)),
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str, dtype: Any) -> None:
    check(*LOSSES[name], signed(6, 5).astype(dtype))


def test_losses_with_extreme_logits() -> None:
    logits = np.array([[200.0, -200.0, 0.0], [1e4, 0.0, -1e4]], dtype=np.float32)
    labels = np.array([1, 0])
    check(
        lambda x: x.cross_entropy(Tensor(labels)),
        lambda x: functional.cross_entropy(x, torch.tensor(labels)),
        logits,
    )
    targets = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 0.0]], dtype=np.float32)
    check(
        lambda x: x.binary_crossentropy_logits(Tensor(targets)),
        lambda x: functional.binary_cross_entropy_with_logits(x, torch.tensor(targets)),
        logits,
    )


def test_half_precision_layers() -> None:
    arrays = [signed(8, 16).astype(np.float16), signed(16, 8, seed=1).astype(np.float16)]
    check(
        lambda x, w: (x @ w).relu().softmax(),
        lambda x, w: (x @ w).relu().softmax(-1),
        *arrays,
        rtol=2e-3,
        atol=2e-3,
    )
    assert math.isfinite(Tensor(arrays[0]).cast(dtypes.bfloat16).sum().item())
