"""Random numbers: other ones in every call, the same ones for a seed of PyTorch's.

In: shapes, and random bits that come from a seed which PyTorch's generator draws at each call. Out:
Tensors. A family of the table of lowerings.
Invariant: numbers are not PyTorch's own, but of the same distribution: one seed, one sequence.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import dtypes
from weft.helpers import prod
from weft.tensor import Tensor
from weft.torch.table import Call, lowers


def _uniform(call: Call, shape: Any) -> Tensor:
    """Numbers of [0, 1) with the 24 bits that a float32 has."""
    bits = call.random_bits(prod(shape))
    return ((bits >> 8).cast(dtypes.float32) * 2.0**-24).reshape(shape)


@lowers("rand", "rand_like", "uniform", call=True)
def rand(*args: Any, call: Call, **kwargs: Any) -> Tensor:
    found = _uniform(call, call.shape)
    if call.name.startswith("uniform"):
        low, high = (*args[1:], *(0.0, 1.0)[len(args) - 1 :])[:2]
        return found * (high - low) + low
    return found


@lowers("randn", "randn_like", "normal_functional", "normal.float_float", call=True)
def randn(*args: Any, call: Call, **kwargs: Any) -> Tensor:
    # Box and Muller, 1958; 1 - u is never 0
    radius = ((1 - _uniform(call, call.shape)).log() * -2).sqrt()
    found = radius * (_uniform(call, call.shape) * (2 * math.pi)).cos()
    if call.name.startswith("normal"):
        mean, deviation = (
            (args[1], args[2]) if call.name == "normal_functional.default" else args[:2]
        )
        return found * deviation + mean
    return found


@lowers("randint", "randint.default", "randint_like", call=True)
def randint(*args: Any, call: Call, **kwargs: Any) -> Tensor:
    return _integers(call, 0, args[-2] if "like" not in call.name else args[1])


@lowers("randint.low", call=True)
def randint_low(low: int, high: int, size: Any, *, call: Call, **kwargs: Any) -> Tensor:
    return _integers(call, low, high)


@lowers("randint_like.low_dtype", call=True)
def randint_like_low(x: Any, low: int, high: int, *, call: Call, **kwargs: Any) -> Tensor:
    return _integers(call, low, high)


def _integers(call: Call, low: int, high: int) -> Tensor:
    wide = call.random_bits(prod(call.shape)).cast(dtypes.uint64) * (high - low)
    return (wide >> 32).cast(dtypes.int64).reshape(call.shape) + low


@lowers("bernoulli", "bernoulli.default", call=True)
def bernoulli(x: Tensor, *, call: Call, **kwargs: Any) -> Tensor:
    return _uniform(call, call.shape).lt(x).cast(x.dtype)


@lowers("bernoulli.p", call=True)
def bernoulli_p(x: Tensor, p: float = 0.5, *, call: Call, **kwargs: Any) -> Tensor:
    return _uniform(call, call.shape).lt(p).cast(x.dtype)


@lowers("native_dropout", call=True)
def native_dropout(x: Tensor, p: float, is_training: Any = True, *, call: Call) -> Any:
    if is_training is False or p == 0:
        return x, Tensor.ones(*x.shape, dtype=dtypes.bool)
    if p == 1:
        return x * 0, Tensor.zeros(*x.shape, dtype=dtypes.bool)
    kept = _uniform(call, x.shape).ge(p)
    return kept.where(x * (1 / (1 - p)), 0), kept


@lowers("randperm", call=True)
def randperm(count: int, *, call: Call, **kwargs: Any) -> Tensor:
    return call.random_bits(count).argsort()
