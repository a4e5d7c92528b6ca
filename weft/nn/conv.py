"""Convolution layers over one, two or three axes of space, and their transposes.

In: Tensors (batch, channels, *space), or without the batch. Out: the same with other channels.
Sits above the initial values and Tensor's conv2d, which takes any number of axes.
Invariant: names and shapes of parameters are PyTorch's, so its state dicts load.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import python_number
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.mixin.check import whole_number
from weft.nn.amp import computing
from weft.nn.initial import fan_in_uniform
from weft.tensor import Tensor

Sizes = int | Sequence[int]
_MODES = ("zeros", "reflect", "replicate", "circular")


def _sizes(value: Sizes, rank: int, name: str) -> tuple[int, ...]:
    value = python_number(value)
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank:
        raise ArgumentError(f"{name} is one number or {rank} of them, found {value}")
    return sizes


class _Convolution:
    """What all convolutions have: geometry and parameters."""

    rank = 2

    def __init__(
        self,
        rank: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        groups: int,
    ) -> None:
        in_channels = whole_number("in_channels", in_channels, least=1)
        out_channels = whole_number("out_channels", out_channels, least=1)
        groups = whole_number("groups", groups)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"a convolution from {in_channels} to {out_channels} channels in {groups} groups: "
                "both must be divisible by the groups"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _sizes(kernel_size, rank, "kernel_size")
        self.stride = _sizes(stride, rank, "stride")
        self.dilation = _sizes(dilation, rank, "dilation")
        self.groups = groups

    @classmethod
    def _rank_of(cls, kernel_size: Sizes) -> int:
        """How many axes of space: as many as the kernel has, in the classes for images too."""
        given: Sizes = python_number(kernel_size)
        if cls.rank == 2 and not isinstance(given, int):
            return len(tuple(given))
        return cls.rank

    def _parameters(self, outer: int, inner: int, bias: bool) -> tuple[Tensor, Tensor | None]:
        """Weights (outer, inner, *kernel); one output sums over inner * kernel of them."""
        fan_in = inner * prod(self.kernel_size)
        weight = fan_in_uniform(outer, inner, *self.kernel_size, fan_in=fan_in)
        return weight, fan_in_uniform(self.out_channels, fan_in=fan_in) if bias else None

    def _apply(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        # as in PyTorch, one image may come without its batch
        if x.ndim == len(self.kernel_size) + 1:
            return self._apply(x.unsqueeze(0)).squeeze(0)
        return self._apply(x)


class _ConvNd(_Convolution):
    rank = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        self.rank = self._rank_of(kernel_size)
        super().__init__(
            self.rank, in_channels, out_channels, kernel_size, stride, dilation, groups
        )
        if padding_mode not in _MODES:
            raise ArgumentError(f"padding_mode is one of {_MODES}, found {padding_mode!r}")
        self.padding_mode = padding_mode
        self.padding = self._padding_of(padding)
        self.weight, self.bias = self._parameters(out_channels, in_channels // groups, bias)

    def _padding_of(self, padding: Sizes | str) -> tuple[int, ...]:
        """Before and after each axis, the last axis first, as `pad` takes it."""
        if padding == "same":
            if any(step != 1 for step in self.stride):
                raise ArgumentError(f'padding "same" needs stride 1, found {self.stride}')
            reach = [g * (k - 1) for g, k in zip(self.dilation, self.kernel_size, strict=True)]
            return tuple(n for total in reach[::-1] for n in (total // 2, total - total // 2))
        if isinstance(padding, str):
            if padding != "valid":
                raise ArgumentError(f'padding is numbers, "same" or "valid", found {padding!r}')
            padding = 0
        given: Sizes = python_number(padding)
        if not isinstance(given, int) and len(given) == 2 * self.rank:
            return tuple(given)
        return tuple(n for size in _sizes(given, self.rank, "padding")[::-1] for n in (size, size))

    def _apply(self, x: Tensor) -> Tensor:
        values, weight, bias = computing(x, self.weight, self.bias)
        padding: Sequence[int] | int = self.padding
        if self.padding_mode != "zeros" and any(self.padding):
            values = values.pad(self.padding, mode=self.padding_mode)
            padding = 0
        result: Tensor = values.conv2d(
            weight, bias, self.groups, self.stride, self.dilation, padding
        )
        return result


class Conv1d(_ConvNd):
    """A convolution over one axis of space.

    >>> Conv1d(2, 4, 3, padding=1)(Tensor.ones(1, 2, 8)).shape
    (1, 4, 8)
    """

    rank = 1


class Conv2d(_ConvNd):
    """A convolution over images, or over as many axes as kernel_size has.

    >>> Conv2d(3, 8, 3, stride=2, padding=1)(Tensor.ones(1, 3, 8, 8)).shape
    (1, 8, 4, 4)
    """

    rank = 2


class Conv3d(_ConvNd):
    """A convolution over volumes.

    >>> Conv3d(1, 2, 3)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3


class _ConvTransposeNd(_Convolution):
    rank = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
    ) -> None:
        self.rank = self._rank_of(kernel_size)
        super().__init__(
            self.rank, in_channels, out_channels, kernel_size, stride, dilation, groups
        )
        self.padding = _sizes(padding, self.rank, "padding")
        self.output_padding = _sizes(output_padding, self.rank, "output_padding")
        for more, step, gap in zip(self.output_padding, self.stride, self.dilation, strict=True):
            if more >= max(step, gap):
                raise ArgumentError(
                    f"output_padding {self.output_padding} must be smaller than the stride "
                    f"{self.stride} or the dilation {self.dilation}"
                )
        self.weight, self.bias = self._parameters(in_channels, out_channels // groups, bias)

    def _apply(self, x: Tensor) -> Tensor:
        values, weight, bias = computing(x, self.weight, self.bias)
        result: Tensor = values.conv_transpose2d(
            weight,
            bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )
        return result


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of a convolution over one axis.

    >>> ConvTranspose1d(2, 4, 2, stride=2)(Tensor.ones(1, 2, 8)).shape
    (1, 4, 16)
    """

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of a convolution over images: it makes them larger.

    >>> ConvTranspose2d(2, 4, 2, stride=2)(Tensor.ones(1, 2, 8, 8)).shape
    (1, 4, 16, 16)
    """

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of a convolution over volumes.

    >>> ConvTranspose3d(1, 2, 2, stride=2)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 2, 4, 4, 4)
    """

    rank = 3
