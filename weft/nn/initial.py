"""Initial values of parameters, as PyTorch's layers draw them.

In: shapes. Out: Tensors that nobody has computed yet: a model whose weights are loaded next never
draws its random numbers. Sits under the layers.
Invariant: every parameter is one storage of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from weft.dtype import DType
from weft.helpers import prod
from weft.tensor import Tensor


def uniform(*shape: int, bound: float, dtype: DType | str | None = None) -> Tensor:
    """Between -bound and bound, all equally likely.

    >>> uniform(2, 3, bound=0.1).shape
    (2, 3)
    """
    made: Tensor = Tensor.uniform(*shape, low=-bound, high=bound, dtype=dtype, contiguous=False)
    # one kernel that stores the final numbers, and nobody computes them twice
    return made.contiguous()


def fan_in_uniform(*shape: int, fan_in: int) -> Tensor:
    """What linear layers and convolutions start with: at most one over the root of the inputs.

    >>> fan_in_uniform(4, 100, fan_in=100).abs().max().item() <= 0.1
    True
    """
    return uniform(*shape, bound=1 / math.sqrt(fan_in) if fan_in > 0 else 0.0)


def glorot_uniform(rows: int, columns: int) -> Tensor:
    """As Glorot and Bengio (2010) have it: attention's projections start with it.

    >>> glorot_uniform(4, 100).shape
    (4, 100)
    """
    return uniform(rows, columns, bound=math.sqrt(6 / (rows + columns)))


def glorot_normal(*shape: int) -> Tensor:
    """The same spread, of the normal distribution; axes after the second are space.

    >>> glorot_normal(1, 1, 8).shape
    (1, 1, 8)
    """
    fans = (shape[0] + shape[1]) * prod(shape[2:])
    return (Tensor.randn(*shape) * math.sqrt(2 / fans)).contiguous()


def normal(*shape: int) -> Tensor:
    """Of the normal distribution with mean 0 and standard deviation 1.

    >>> normal(2, 3).shape
    (2, 3)
    """
    return Tensor.randn(*shape)


def buffer(made: Any) -> Tensor:
    """A part of a layer's state that is not trained.

    >>> buffer(Tensor.zeros(2)).requires_grad
    False
    """
    tensor: Tensor = made
    return tensor.requires_grad_(False)


def also_called(**names: str) -> Callable[[Any], Any]:
    """Names that an argument has elsewhere: `@also_called(sz="num_features")`."""

    def decorated(method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return method(self, *args, **{names.get(key, key): kwargs[key] for key in kwargs})

        return call

    return decorated
