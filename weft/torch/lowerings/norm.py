"""Normalisation: over batches, layers and groups; and what their gradients are made of.

In: Tensors. Out: the normalised Tensor with the statistics that PyTorch keeps for its gradient. A
family of the table of lowerings.
Invariant: statistics of half types are in float32.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.helpers import prod
from weft.tensor import Tensor
from weft.torch.table import lowers


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype in (dtypes.float32, dtypes.float64) else x.cast(dtypes.float32)


def _channels(value: Tensor, rank: int) -> Tensor:
    return value.reshape((1, -1, *[1] * (rank - 2)))


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    is_training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """The result, mean and inverse deviation of the batch, and the new running statistics."""
    wide = _wide(x)
    axes = tuple([axis for axis in range(x.ndim) if axis != 1])
    if is_training:
        mean_now = wide.mean(axes)
        centred = wide - _channels(mean_now, x.ndim)
        variance_now = (centred * centred).mean(axes)
        inverse = (variance_now + eps).rsqrt()
        count = prod([x.shape[axis] for axis in axes])
        new_mean = new_variance = None
        if mean is not None and variance is not None:
            unbiased = variance_now * (count / max(1, count - 1))
            new_mean = mean * (1 - momentum) + mean_now * momentum
            new_variance = variance * (1 - momentum) + unbiased * momentum
        found = centred * _channels(inverse, x.ndim)
        saved = (mean_now, inverse)
    else:
        assert mean is not None and variance is not None
        inverse = (_wide(variance) + eps).rsqrt()
        new_mean, new_variance = mean, variance
        saved = (Tensor.zeros(0), Tensor.zeros(0))
        if weight is not None and bias is not None:
            # one multiplication and one addition an element, of numbers of each channel
            scale = inverse * weight
            shift = bias - mean * scale
            found = wide * _channels(scale, x.ndim) + _channels(shift, x.ndim)
            return found, *saved, new_mean, new_variance
        found = (wide - _channels(mean, x.ndim)) * _channels(inverse, x.ndim)
    if weight is not None:
        found = found * _channels(weight, x.ndim)
    if bias is not None:
        found = found + _channels(bias, x.ndim)
    return found, *saved, new_mean, new_variance


@lowers("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, is_training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    return batch_norm(x, weight, bias, mean, variance, is_training, momentum, eps)


@lowers("_native_batch_norm_legit", "native_batch_norm")
def batch_norm_legit(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, is_training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    return batch_norm(x, weight, bias, mean, variance, is_training, momentum, eps)[:3]


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Tensor, weight: Any, bias: Any, is_training: bool, momentum: float, eps: float
) -> Any:
    return batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@lowers("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, momentum: float, eps: float
) -> Any:
    return batch_norm(x, weight, bias, mean, variance, False, momentum, eps)[:3]


@lowers("native_batch_norm_backward")
def batch_norm_backward(
    gradient: Tensor, x: Tensor, weight: Any, mean: Any, variance: Any, saved_mean: Any,
    saved_inverse: Any, is_training: bool, eps: float, wanted: Any,
) -> Any:  # fmt: skip
    axes = tuple([axis for axis in range(x.ndim) if axis != 1])
    count = prod([x.shape[axis] for axis in axes])
    wide, slope = _wide(x), _wide(gradient)
    if is_training:
        middle, inverse = saved_mean, saved_inverse
    else:
        middle, inverse = mean, (variance + eps).rsqrt()
    centred = wide - _channels(middle, x.ndim)
    to_bias = slope.sum(axes)
    product = (slope * centred).sum(axes)
    scale = inverse if weight is None else inverse * weight
    if is_training:
        share = _channels(product * inverse * inverse / count, x.ndim)
        to_x = (slope - centred * share - _channels(to_bias / count, x.ndim)) * _channels(
            scale, x.ndim
        )
    else:
        to_x = slope * _channels(scale, x.ndim)
    to_weight = product * inverse if wanted[1] else None
    return to_x, to_weight, to_bias if wanted[2] else None


@lowers("native_layer_norm")
def layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()
    found = centred * inverse
    if weight is not None:
        found = found * weight
    if bias is not None:
        found = found + bias
    return found, mean, inverse


@lowers("native_layer_norm_backward")
def layer_norm_backward(
    gradient: Tensor, x: Tensor, shape: Any, mean: Tensor, inverse: Tensor, weight: Any,
    bias: Any, wanted: Any,
) -> Any:  # fmt: skip
    inner = tuple(range(x.ndim - len(shape), x.ndim))
    outer = tuple(range(x.ndim - len(shape)))
    slope = _wide(gradient)
    normal = (_wide(x) - mean) * inverse
    scaled = slope if weight is None else slope * weight
    to_x = None
    if wanted[0]:
        middle = scaled.mean(inner, keepdim=True)
        share = (scaled * normal).mean(inner, keepdim=True)
        to_x = (scaled - middle - normal * share) * inverse
    to_weight = (slope * normal).sum(outer) if wanted[1] and weight is not None else None
    to_bias = slope.sum(outer) if wanted[2] and bias is not None else None
    return to_x, to_weight, to_bias


@lowers("native_group_norm")
def group_norm(
    x: Tensor, weight: Any, bias: Any, batch: int, channels: int, space: int, groups: int,
    eps: float,
) -> Any:  # fmt: skip
    wide = _wide(x).reshape((batch, groups, -1))
    mean = wide.mean(2, keepdim=True)
    centred = wide - mean
    inverse = ((centred * centred).mean(2, keepdim=True) + eps).rsqrt()
    found = (centred * inverse).reshape(x.shape)
    if weight is not None:
        found = found * _channels(weight, x.ndim)
    if bias is not None:
        found = found + _channels(bias, x.ndim)
    return found, mean.reshape((batch, groups)), inverse.reshape((batch, groups))


@lowers("native_group_norm_backward")
def group_norm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Any, batch: int,
    channels: int, space: int, groups: int, wanted: Any,
) -> Any:  # fmt: skip
    split = (batch, groups, channels // groups, space)
    wide, slope = _wide(x).reshape(split), _wide(gradient).reshape(split)
    normal = (wide - mean.reshape((batch, groups, 1, 1))) * inverse.reshape((batch, groups, 1, 1))
    scaled = slope
    if weight is not None:
        scaled = slope * weight.reshape((1, groups, channels // groups, 1))
    to_x = None
    if wanted[0]:
        middle = scaled.mean((2, 3), keepdim=True)
        share = (scaled * normal).mean((2, 3), keepdim=True)
        to_x = (scaled - middle - normal * share) * inverse.reshape((batch, groups, 1, 1))
        to_x = to_x.reshape(x.shape)
    to_weight = (slope * normal).sum((0, 3)).reshape((channels,)) if wanted[1] else None
    to_bias = slope.sum((0, 3)).reshape((channels,)) if wanted[2] else None
    return to_x, to_weight, to_bias
