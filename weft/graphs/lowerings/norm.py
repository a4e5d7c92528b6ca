"""Normalisations, dropout and losses.

In: Tensors, their scales and biases. Out: Tensors. A family of the table of lowerings.
Invariant: means and variances are computed in a type that is wide enough, whatever comes in.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import computing_dtype, dtypes
from weft.graphs.lowerings.random import uniform_numbers
from weft.graphs.table import Call, Host, axis_of, lowers, one_of, refuse
from weft.graphs.types import data_type
from weft.helpers import prod
from weft.tensor import Tensor


def _per_channel(value: Tensor, rank: int) -> Tensor:
    return value.reshape((1, -1, *[1] * (rank - 2))) if rank >= 2 else value


def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    wide = computing_dtype(x.dtype)
    factor = scale.cast(wide) * (variance.cast(wide) + epsilon).rsqrt()
    centred = x.cast(wide) - _per_channel(mean.cast(wide), x.ndim)
    found = centred * _per_channel(factor, x.ndim) + _per_channel(bias.cast(wide), x.ndim)
    return found.cast(x.dtype)


@lowers("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_test: int = 1,
    spatial: int = 1,
    training_mode: int = 0,
    consumed_inputs: Any = None,
    call: Call,
) -> Any:
    if not spatial:
        flat = x.reshape((x.shape[0], prod(x.shape[1:])))
        parts = [part.flatten() for part in (scale, bias, mean, variance)]
        return _batch_norm(flat, parts[0], parts[1], parts[2], parts[3], epsilon).reshape(x.shape)
    if not training_mode and (is_test or call.outputs == 1 or call.opset >= 9):
        return _batch_norm(x, scale, bias, mean, variance, epsilon)
    axes = (0, *range(2, x.ndim))
    wide = x.cast(computing_dtype(x.dtype))
    own_mean, own_variance = wide.mean(axes), wide.var(axes, correction=0)
    y = _batch_norm(x, scale, bias, own_mean, own_variance, epsilon)
    new_mean = mean * momentum + own_mean.cast(mean.dtype) * (1 - momentum)
    new_variance = variance * momentum + own_variance.cast(variance.dtype) * (1 - momentum)
    return (y, new_mean, new_variance, own_mean, own_variance)[: max(1, call.outputs)]


@lowers("InstanceNormalization")
def instance_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    consumed_inputs: Any = None,
) -> Tensor:
    wide = computing_dtype(x.dtype)
    found = x.cast(wide).layernorm(tuple(range(2, x.ndim)), epsilon)
    scaled = found * _per_channel(scale.cast(wide), x.ndim)
    return (scaled + _per_channel(bias.cast(wide), x.ndim)).cast(x.dtype)


@lowers("GroupNormalization", since=18)
def group_norm_by_group(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    return grouped_norm(x, scale, bias, epsilon, num_groups, per_group=True)


@lowers("GroupNormalization", since=21)
def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    return grouped_norm(x, scale, bias, epsilon, num_groups, per_group=False)


def grouped_norm(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float, groups: int, per_group: bool
) -> Tensor:
    """Each group of channels less its mean, divided by its deviation."""
    if groups < 1 or x.shape[1] % groups:
        raise refuse(f"{x.shape[1]} channels in {groups} groups")
    wide = computing_dtype(x.dtype)
    inner = x.cast(wide).reshape((x.shape[0], groups, -1)).layernorm(-1, epsilon)
    if per_group and scale.shape[0] == groups:
        times = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(times), bias.repeat_interleave(times)
    found = inner.reshape(x.shape) * _per_channel(scale.cast(wide), x.ndim)
    return (found + _per_channel(bias.cast(wide), x.ndim)).cast(x.dtype)


def layer_norm_parts(
    x: Tensor, scale: Tensor | None, bias: Tensor | None, axis: int, epsilon: float, stash: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised value, the means, and one over the deviations."""
    place = axis_of(axis, x.ndim)
    axes = tuple(range(place, x.ndim))
    wide = x.cast(stash)
    mean = wide.mean(axes, keepdim=True)
    inverse = (wide.var(axes, keepdim=True, correction=0) + epsilon).rsqrt()
    found = ((wide - mean) * inverse).cast(x.dtype)
    found = found if scale is None else found * scale
    return (found if bias is None else found + bias).cast(x.dtype), mean, inverse


@lowers("LayerNormalization", since=17)
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    stash = data_type(stash_type, "stash_type").to_dtype()
    if x.dtype is dtypes.float64:
        stash = dtypes.float64
    return layer_norm_parts(x, scale, bias, axis, epsilon, stash)


@lowers("RMSNormalization", since=23)
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    wide = x.cast(data_type(stash_type, "stash_type").to_dtype())
    found = wide * (wide.square().mean(axes, keepdim=True) + epsilon).rsqrt()
    return (found.cast(x.dtype) * scale).cast(scale.dtype)


@lowers("LRN")
def local_response_norm(
    x: Tensor, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int
) -> Tensor:
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    wide = x.cast(computing_dtype(x.dtype))
    pads = ((0, 0), (before, after), *[(0, 0)] * (x.ndim - 2))
    squares = wide.square().pad(pads).unfold(1, size, 1).sum(-1)
    return (wide / (squares * (alpha / size) + bias).pow(beta)).cast(x.dtype)


@lowers("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    if p not in (1, 2):
        raise refuse(f"p is 1 or 2, found {p}")
    wide = x.cast(computing_dtype(x.dtype))
    size = wide.abs().sum(axis, keepdim=True)
    if p == 2:
        size = wide.square().sum(axis, keepdim=True).sqrt()
    return size.eq(0).where(0, wide / size).cast(x.dtype)


@lowers("MeanVarianceNormalization", since=9)
def mean_variance_norm(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    places = (0, 2, 3) if axes is None else tuple(axis_of(a, x.ndim) for a in axes)
    mean = x.mean(places, keepdim=True)
    deviation = (x.square().mean(places, keepdim=True) - mean.square()).sqrt()
    return (x - mean) / (deviation + 1e-9)


# ------------------------------------------------------------ dropout
@lowers("Dropout")
def dropout_attributes(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Any = None, call: Call
) -> Any:
    # below version 7 an attribute says whether it is training; models that run are not
    ones = Tensor.ones(*x.shape, dtype=x.dtype if call.opset < 10 else dtypes.bool)
    return (x, ones)[: max(1, call.outputs)]


@lowers("Dropout", since=12)
def dropout(
    x: Tensor,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    call: Call,
) -> Any:
    share = float(one_of(ratio, 0.5))
    if not one_of(training_mode, False) or share == 0:
        return (x, Tensor.ones(*x.shape, dtype=dtypes.bool))[: max(1, call.outputs)]
    if not 0 <= share < 1:
        raise refuse(f"the ratio is from 0 to below 1, found {share}")
    kept = (uniform_numbers(x.shape, seed, call) >= share).contiguous()
    return (kept.where(x / (1 - share), 0).cast(x.dtype), kept)[: max(1, call.outputs)]


# ------------------------------------------------------------ losses
def _negative_log_likelihood(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignored: int | None
) -> Tensor:
    """Scores are (batch, classes, *space), targets (batch, *space)."""
    index = target.cast(dtypes.int64)
    kept = None if ignored is None else index.ne(ignored)
    # an ignored class may be no class at all
    safe = index if kept is None else kept.where(index, 0)
    chosen = -scores.gather(1, safe.unsqueeze(1)).squeeze(1)
    factor = Tensor.ones(*target.shape, dtype=scores.dtype) if weight is None else weight[safe]
    factor = factor if kept is None else kept.where(factor, 0)
    loss = chosen * factor if kept is None else kept.where(chosen * factor, 0)
    if reduction == "none":
        return loss.cast(scores.dtype)
    if reduction == "sum":
        return loss.sum().cast(scores.dtype)
    if reduction != "mean":
        raise refuse(f"reduction is none, sum or mean, found {reduction!r}")
    return (loss.sum() / factor.sum()).cast(scores.dtype)


@lowers("NegativeLogLikelihoodLoss", since=12)
def nll_loss(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    return _negative_log_likelihood(scores, target, weight, reduction, ignore_index)


@lowers("SoftmaxCrossEntropyLoss", since=12)
def cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    call: Call,
) -> Any:
    log = scores.log_softmax(1).cast(scores.dtype)
    loss = _negative_log_likelihood(log, labels, weights, reduction, ignore_index)
    return (loss, log)[: max(1, call.outputs)]
