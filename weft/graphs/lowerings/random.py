"""Random numbers.

In: shapes and seeds. Out: Tensors. A family of the table of lowerings.
Invariant: a node with a seed gives the same numbers in every run, whatever else is drawn: those of
NumPy's `RandomState` of this seed, as in ONNX's reference evaluator. One without draws from weft's
generator (`Tensor.manual_seed`).
"""

from __future__ import annotations

import numpy

from weft.graphs.table import Call, lowers, refuse
from weft.graphs.types import data_type
from weft.helpers import prod
from weft.tensor import Tensor

# elements that one node draws on the host
_MOST = 1 << 28


def _state(shape: tuple[int, ...], seed: float) -> numpy.random.RandomState:
    if not 0 <= prod(shape) <= _MOST or not all(isinstance(n, int) for n in shape):
        raise refuse(f"random numbers of shape {shape} with a seed")
    return numpy.random.RandomState(int(seed) & 0xFFFFFFFF)


def uniform_numbers(shape: tuple[int, ...], seed: float | None, call: Call) -> Tensor:
    """Numbers from 0 to below 1."""
    if seed is None:
        return Tensor.rand(*shape)
    return call.constant(("rand", seed, shape), lambda: _state(shape, seed).random_sample(shape))


def normal_numbers(shape: tuple[int, ...], seed: float | None, call: Call) -> Tensor:
    """Numbers of the standard normal distribution."""
    if seed is None:
        return Tensor.randn(*shape)
    return call.constant(("randn", seed, shape), lambda: _state(shape, seed).standard_normal(shape))


@lowers("RandomNormal")
def random_normal(
    *,
    shape: list[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: Call,
) -> Tensor:
    kind = data_type(dtype, "dtype").to_dtype()
    return (normal_numbers(tuple(shape), seed, call) * scale + mean).cast(kind)


@lowers("RandomNormalLike")
def random_normal_like(
    x: Tensor,
    *,
    dtype: int = 0,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: Call,
) -> Tensor:
    kind = data_type(dtype, "dtype").to_dtype() if dtype else x.dtype
    return (normal_numbers(x.shape, seed, call) * scale + mean).cast(kind)


@lowers("RandomUniform")
def random_uniform(
    *,
    shape: list[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: Call,
) -> Tensor:
    kind = data_type(dtype, "dtype").to_dtype()
    return (uniform_numbers(tuple(shape), seed, call) * (high - low) + low).cast(kind)


@lowers("RandomUniformLike")
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int = 0,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: Call,
) -> Tensor:
    kind = data_type(dtype, "dtype").to_dtype() if dtype else x.dtype
    return (uniform_numbers(x.shape, seed, call) * (high - low) + low).cast(kind)


@lowers("Bernoulli", since=15)
def bernoulli(x: Tensor, *, dtype: int = 0, seed: float | None = None, call: Call) -> Tensor:
    kind = data_type(dtype, "dtype").to_dtype() if dtype else x.dtype
    return (uniform_numbers(x.shape, seed, call) < x).cast(kind)


@lowers("Multinomial", since=7)
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, call: Call
) -> Tensor:
    if x.ndim != 2:
        raise refuse(f"two axes are wanted, found shape {x.shape}")
    ends = x.softmax(1).cumsum(1)
    drawn = uniform_numbers((x.shape[0], sample_size), seed, call)
    places = (drawn.unsqueeze(2) >= ends.unsqueeze(1)).sum(2).minimum(x.shape[1] - 1)
    return places.cast(data_type(dtype, "dtype").to_dtype())
