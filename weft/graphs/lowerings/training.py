"""Gradients and steps of optimisers, as operators of ai.onnx.preview.training.

In: the rate, the step, and for each parameter its value, gradient and state. Out: the new ones.
A family of the table of lowerings. Invariant: outputs are all new values, then all new states.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.graphs.table import Call, lowers, refuse
from weft.graphs.types import Domain
from weft.tensor import Tensor

_DOMAIN = Domain.ONNX_TRAINING


def _groups(values: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, ...]]:
    """Values, gradients and states, `count` of each parameter."""
    if len(values) % count:
        raise refuse(f"{len(values)} tensors in groups of {count}")
    each = len(values) // count
    return [tuple(values[i + k * each] for k in range(count)) for i in range(each)]


@lowers("Adagrad", domain=_DOMAIN)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> tuple[Any, ...]:
    actual = rate / (step.cast(dtypes.float32) * decay_factor + 1)
    news, states = [], []
    for x, gradient, squares in _groups(values, 3):
        total = gradient + x * norm_coefficient
        new = squares + total * total
        news.append((x - actual * total / (new.sqrt() + epsilon)).cast(x.dtype))
        states.append(new.cast(x.dtype))
    return (*news, *states)


@lowers("Adam", domain=_DOMAIN)
def adam(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Any, ...]:
    time = step.cast(dtypes.float32)
    first_step = step.eq(0)
    powers = [Tensor.full((), v, dtype=dtypes.float32).pow(time) for v in (alpha, beta)]
    corrected = rate * (1 - powers[1]).sqrt() / (1 - powers[0])
    actual = first_step.where(rate, corrected)
    news, means, squares = [], [], []
    for x, gradient, mean, square in _groups(values, 4):
        total = gradient + x * norm_coefficient
        new_mean = mean * alpha + total * (1 - alpha)
        new_square = square * beta + total * total * (1 - beta)
        moved = x - actual * new_mean / (new_square.sqrt() + epsilon)
        news.append((moved * (1 - norm_coefficient_post)).cast(x.dtype))
        means.append(new_mean.cast(x.dtype))
        squares.append(new_square.cast(x.dtype))
    return (*news, *means, *squares)


@lowers("Momentum", domain=_DOMAIN)
def momentum(
    rate: Tensor,
    step: Tensor,
    *values: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Any, ...]:
    if mode not in ("standard", "nesterov"):
        raise refuse(f"mode is standard or nesterov, found {mode!r}")
    factor = (step > 0).where(beta, 1.0)
    news, states = [], []
    for x, gradient, velocity in _groups(values, 3):
        total = gradient + x * norm_coefficient
        new = velocity * alpha + total * factor
        used = total + new * alpha if mode == "nesterov" else new
        news.append((x - rate * used).cast(x.dtype))
        states.append(new.cast(x.dtype))
    return (*news, *states)


@lowers("Gradient", domain=_DOMAIN)
def gradient(
    *values: Tensor, xs: list[str], y: str, zs: list[str] | None = None, call: Call
) -> tuple[Any, ...]:
    target = call.value(y)
    if not isinstance(target, Tensor) or len(xs) > len(values):
        raise refuse(f"the gradient of {y!r} to {xs}: computed tensors are wanted")
    return tuple(target.sum().gradient(*values[: len(xs)]))
