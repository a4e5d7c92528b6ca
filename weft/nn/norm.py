"""Normalisations: batch, group, instance, layer, root mean square.

In: Tensors whose axis 1 (batch, group, instance) or last axes (layer, root mean square) are the
features. Out: the same shape with mean 0 and variance 1, scaled and shifted by parameters.
Sits above Tensor's `batchnorm` and `layernorm`.
Invariant: names and shapes of parameters and running statistics are PyTorch's. Running statistics
change only while training, and are not trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import (
    DType,
    computing_dtype,
    dtypes,
    least_upper_dtype,
    least_upper_float,
    python_number,
)
from weft.errors import ArgumentError, ShapeError
from weft.knobs import TRAINING
from weft.nn.initial import also_called, buffer
from weft.tensor import Tensor


class _RunningNorm:
    """A normalisation that may keep running statistics of what it saw while training."""

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
    ) -> None:
        if isinstance(momentum, bool):
            raise ArgumentError(
                f"momentum is a number or None, found {momentum}; affine and track_running_stats "
                "are given by name: affine=True"
            )
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.weight = Tensor.ones(num_features) if affine else None
        self.bias = Tensor.zeros(num_features) if affine else None
        # the count first: optimisers keep buffers in this order, as tinygrad's do
        self.num_batches_tracked: Tensor | None = None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        if track_running_stats:
            self.running_mean = buffer(Tensor.zeros(num_features))
            self.running_var = buffer(Tensor.ones(num_features))
            self.num_batches_tracked = buffer(Tensor.zeros((), dtype=dtypes.int64))

    def _check(self, x: Tensor) -> None:
        if x.ndim < 2 or x.shape[1] != self.num_features:
            raise ShapeError(
                f"a normalisation of {self.num_features} features takes them as axis 1, found "
                f"shape {x.shape}"
            )

    def _track(self, mean: Tensor, var: Tensor, count: int, share: Any) -> None:
        """Moves the running statistics by a share towards the batch's; `var` is over count."""
        if self.running_mean is None or self.running_var is None:
            return
        # what a sample tells about its population: divided by count - 1
        unbiased = var * (count / (count - 1))
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            moved = running + (new.detach().cast(running.dtype) - running) * share
            running.assign(moved.detach())


class BatchNorm(_RunningNorm):
    """Each feature (axis 1) normalised over the batch and space, as PyTorch's BatchNorm1d to 3d.

    While training it uses the statistics of the batch, else the running ones.

    >>> BatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    @also_called(sz="num_features")
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        if isinstance(momentum, bool):
            # tinygrad's order: affine, track_running_stats, momentum
            last = 0.1 if isinstance(track_running_stats, bool) else track_running_stats
            affine, track_running_stats, momentum = momentum, affine, last
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        if TRAINING or self.running_mean is None or self.running_var is None:
            mean, var = self._batch_statistics(x)
        else:
            mean, var = self.running_mean, self.running_var
        # statistics are no parameters: they are in a wide type, whatever the result has
        wide = x.cast(computing_dtype(x.dtype))
        result = wide.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())
        return result.cast(_result_dtype(x, self.weight, self.bias))

    def _batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        count = 1
        for axis in axes:
            count *= x.shape[axis]
        if TRAINING and count == 1:
            raise ShapeError(
                f"batch normalisation cannot train on shape {x.shape}: there is one value for "
                "each feature, so no variance"
            )
        wide = x.cast(computing_dtype(x.dtype))
        mean = wide.mean(axes)
        centred = wide - mean.reshape(1, -1, *[1] * (x.ndim - 2))
        var = (centred * centred).mean(axes)
        if TRAINING and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            share: Any = self.momentum
            if share is None:
                share = 1 / self.num_batches_tracked.cast(mean.dtype)
            self._track(mean, var, count, share)
        return mean, var


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class InstanceNorm(_RunningNorm):
    """Each feature of each sample normalised over space.

    >>> InstanceNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,
        momentum: float | None = 0.1,
        track_running_stats: bool = False,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        if x.ndim < 3:
            raise ShapeError(f"InstanceNorm takes (batch, features, *space), found {x.shape}")
        wide = x.cast(computing_dtype(x.dtype))
        kept = (x.shape[0], self.num_features, *[1] * (x.ndim - 2))
        if TRAINING or self.running_mean is None or self.running_var is None:
            axes = tuple(range(2, x.ndim))
            mean = wide.mean(axes)
            var = (wide - mean.reshape(kept)).square().mean(axes)
            if TRAINING and self.running_mean is not None:
                count = 1
                for axis in axes:
                    count *= x.shape[axis]
                # as in PyTorch, no batches are counted here
                self._track(mean.mean(0), var.mean(0), count, self.momentum or 0.0)
        else:
            mean = self.running_mean.expand(x.shape[0], self.num_features)
            var = self.running_var.expand(x.shape[0], self.num_features)
        result = (wide - mean.reshape(kept)) * (var + self.eps).rsqrt().reshape(kept)
        scaled = _scaled(result, self.weight, self.bias)
        return scaled.cast(_result_dtype(x, self.weight, self.bias))


class _InstanceNormNd(InstanceNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
    ) -> None:
        super().__init__(num_features, eps, affine, momentum, track_running_stats)


class InstanceNorm1d(_InstanceNormNd):
    """As InstanceNorm, with PyTorch's arguments: no parameters unless `affine=True`.

    >>> InstanceNorm1d(3)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """


class InstanceNorm2d(_InstanceNormNd):
    """As InstanceNorm, with PyTorch's arguments: no parameters unless `affine=True`.

    >>> InstanceNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """


class InstanceNorm3d(_InstanceNormNd):
    """As InstanceNorm, with PyTorch's arguments: no parameters unless `affine=True`.

    >>> InstanceNorm3d(3)(Tensor.ones(2, 3, 2, 2, 2)).shape
    (2, 3, 2, 2, 2)
    """


def _result_dtype(x: Tensor, *parameters: Tensor | None) -> DType:
    """What the input and the parameters promote to: a half input with float32 weights gives
    float32, as an expression of the three would."""
    dtype = least_upper_float(x.dtype)
    for parameter in parameters:
        if parameter is not None:
            dtype = least_upper_dtype(dtype, parameter.dtype)
    return dtype


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Parameters of axis 1 applied."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


class GroupNorm:
    """The channels (axis 1) in groups, each normalised over its channels and space.

    >>> GroupNorm(2, 4)(Tensor.ones(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm of {num_channels} channels in {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                f"GroupNorm of {self.num_channels} channels takes them as axis 1, found {x.shape}"
            )
        wide = x.cast(computing_dtype(x.dtype))
        grouped = wide.reshape(x.shape[0], self.num_groups, -1).layernorm(-1, self.eps)
        result = _scaled(grouped.reshape(x.shape), self.weight, self.bias)
        return result.cast(_result_dtype(x, self.weight, self.bias))


class LayerNorm:
    """The last axes normalised together.

    >>> LayerNorm(4)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine and bias else None

    @property
    def axis(self) -> tuple[int, ...]:
        """The axes that are normalised, from the end."""
        return tuple(range(-len(self.normalized_shape), 0))

    def __call__(self, x: Tensor) -> Tensor:
        axes = _last_axes("LayerNorm", x, self.normalized_shape)
        result = x.cast(computing_dtype(x.dtype)).layernorm(axes, self.eps)
        result = result if self.weight is None else result * self.weight
        result = result if self.bias is None else result + self.bias
        return result.cast(_result_dtype(x, self.weight, self.bias))


class LayerNorm2d(LayerNorm):
    """The channels (axis 1) of each pixel normalised.

    >>> LayerNorm2d(3)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 3, 4, 4)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """The last axes divided by their root mean square; eps=None is the dtype's own.

    >>> RMSNorm(4)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    @also_called(dim="normalized_shape")
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        axes = _last_axes("RMSNorm", x, self.normalized_shape)
        wide = x.cast(computing_dtype(x.dtype))
        # the spacing of numbers at 1 in the type that it is computed in
        eps = 2.0 ** -dtypes.finfo(wide.dtype)[1] if self.eps is None else self.eps
        result = wide * ((wide * wide).mean(axes, keepdim=True) + eps).rsqrt()
        result = result if self.weight is None else result * self.weight
        return result.cast(_result_dtype(x, self.weight))


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    normalized_shape = python_number(normalized_shape)
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)


def _last_axes(name: str, x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{name} of {shape} takes it as the last axes, found shape {x.shape}")
    return tuple(range(-len(shape), 0))
