"""Nets for `torch.compile`, written after their papers: classifiers, parts of detectors,
transformers, recurrent nets, a U-Net; each in a size to measure and in one to test.

`NETS` maps a name to a function `(is_small) -> (module, inputs)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]
NETS: dict[str, Callable[[bool], Made]] = {}


def net(name: str) -> Callable[[Callable[[bool], Made]], Callable[[bool], Made]]:
    """Enters a net."""

    def enter(make: Callable[[bool], Made]) -> Callable[[bool], Made]:
        NETS[name] = make
        return make

    return enter


def image(is_small: bool, large: int = 128, small: int = 32, batch: int = 2) -> torch.Tensor:
    """A batch of images."""
    return torch.randn(batch, 3, small if is_small else large, small if is_small else large)


def conv_bn(
    inner: int, outer: int, size: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution without bias, and what normalises it."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    )


# ------------------------------------------------------------ classifiers
class BasicBlock(nn.Module):
    """Two convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(inner, outer, 3, stride)
        self.second = conv_bn(outer, outer)
        self.shortcut = (
            nn.Identity() if inner == outer and stride == 1 else conv_bn(inner, outer, 1, stride)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    """One by one, three by three, one by one."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            conv_bn(inner, width, 1), nn.ReLU(), conv_bn(width, width, 3, stride), nn.ReLU(),
            conv_bn(width, outer, 1),
        )  # fmt: skip
        self.shortcut = (
            nn.Identity() if inner == outer and stride == 1 else conv_bn(inner, outer, 1, stride)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Residual nets of 18 or 50 layers."""

    def __init__(self, layers: tuple[int, ...], width: int, is_deep: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        inner = width
        for number, count in enumerate(layers):
            for place in range(count):
                stride = 2 if place == 0 and number else 1
                outer = width * 2**number
                blocks.append(
                    Bottleneck(inner, outer, stride)
                    if is_deep
                    else BasicBlock(inner, outer, stride)
                )
                inner = outer * 4 if is_deep else outer
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inner, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


@net("resnet18")
def resnet18(is_small: bool) -> Made:
    return ResNet((1, 1) if is_small else (2, 2, 2, 2), 8 if is_small else 64), (image(is_small),)


@net("resnet50")
def resnet50(is_small: bool) -> Made:
    layers = (1, 1) if is_small else (3, 4, 6, 3)
    return ResNet(layers, 8 if is_small else 64, True), (image(is_small),)


@net("vgg11")
def vgg11(is_small: bool) -> Made:
    plan = (8, 0, 16, 0) if is_small else (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
    layers: list[nn.Module] = []
    inner = 3
    for outer in plan:
        if outer:
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(inplace=True)]
            inner = outer
        else:
            layers.append(nn.MaxPool2d(2, 2))
    hidden = 32 if is_small else 1024
    layers += [
        nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(inner * 4, hidden),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers), (image(is_small),)


class InvertedResidual(nn.Module):
    """Wide inside, one filter a channel (Sandler et al., 2018)."""

    def __init__(
        self, inner: int, outer: int, stride: int, times: int, excites: bool = False
    ) -> None:
        super().__init__()
        wide = inner * times
        act: type[nn.Module] = nn.SiLU if excites else nn.ReLU6
        parts: list[nn.Module] = []
        if times != 1:
            parts += [conv_bn(inner, wide, 1), act()]
        parts += [conv_bn(wide, wide, 3, stride, wide), act()]
        if excites:
            parts.append(Excite(wide, max(1, inner // 4)))
        parts.append(conv_bn(wide, outer, 1))
        self.body = nn.Sequential(*parts)
        self.adds = stride == 1 and inner == outer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class Excite(nn.Module):
    """Channels weighed by what is in all of the image (Hu et al., 2018)."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, inner, 1)
        self.up = nn.Conv2d(inner, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.up(F.silu(self.down(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(share)


def _mobile(is_small: bool, excites: bool) -> nn.Module:
    # times, channels, how many, stride
    rows = (
        [(1, 8, 1, 1), (4, 16, 2, 2)]
        if is_small
        else [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1)]
    )  # fmt: skip
    act: type[nn.Module] = nn.SiLU if excites else nn.ReLU6
    inner = 8 if is_small else 32
    layers: list[nn.Module] = [conv_bn(3, inner, 3, 2), act()]
    for times, outer, count, stride in rows:
        for place in range(count):
            step = stride if place == 0 else 1
            layers.append(InvertedResidual(inner, outer, step, times, excites))
            inner = outer
    last = 32 if is_small else 1280
    layers += [conv_bn(inner, last, 1), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(last, 10))


@net("mobilenet_v2")
def mobilenet_v2(is_small: bool) -> Made:
    return _mobile(is_small, False), (image(is_small),)


@net("efficientnet")
def efficientnet(is_small: bool) -> Made:
    return _mobile(is_small, True), (image(is_small),)


class Fire(nn.Module):
    """Squeeze, then expand in two ways (Iandola et al., 2016)."""

    def __init__(self, inner: int, squeeze: int, outer: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeeze, 1)
        self.one = nn.Conv2d(squeeze, outer, 1)
        self.three = nn.Conv2d(squeeze, outer, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


@net("squeezenet")
def squeezenet(is_small: bool) -> Made:
    if is_small:
        body = [nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 4, 8)]
        last = 16
    else:
        body = [
            nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(64, 16, 64), Fire(128, 16, 64), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(128, 32, 128), Fire(256, 32, 128), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        ]  # fmt: skip
        last = 512
    head = [nn.Dropout(), nn.Conv2d(last, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, *head), (image(is_small),)


class DenseBlock(nn.Module):
    """Each layer sees all before it (Huang et al., 2017)."""

    def __init__(self, inner: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inner + i * growth), nn.ReLU(),
                nn.Conv2d(inner + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(count)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


@net("densenet")
def densenet(is_small: bool) -> Made:
    growth, counts, width = (4, (2, 2), 8) if is_small else (24, (6, 8, 8), 48)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for count in counts:
        layers.append(DenseBlock(width, growth, count))
        wide = width + count * growth
        width = wide // 2
        layers += [nn.BatchNorm2d(wide), nn.ReLU(), nn.Conv2d(wide, width, 1), nn.AvgPool2d(2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers), (image(is_small),)


class ConvNextBlock(nn.Module):
    """A wide depthwise convolution and a perceptron (Liu et al., 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.down(F.gelu(self.up(inner))) * self.scale
        return x + inner.permute(0, 3, 1, 2)


@net("convnext")
def convnext(is_small: bool) -> Made:
    width, count = (8, 1) if is_small else (64, 4)
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 4), *[ConvNextBlock(width) for _ in range(count)],
        nn.Conv2d(width, 2 * width, 2, 2), *[ConvNextBlock(2 * width) for _ in range(count)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    ), (image(is_small),)  # fmt: skip


class Shuffle(nn.Module):
    """Half of the channels pass, then all are mixed (Ma et al., 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            conv_bn(half, half, 1), nn.ReLU(), conv_bn(half, half, 3, 1, half),
            conv_bn(half, half, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed, changed = x.chunk(2, 1)
        whole = torch.cat([passed, self.body(changed)], 1)
        batch, channels, height, width = whole.shape
        mixed = whole.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return mixed.reshape(batch, channels, height, width)


@net("shufflenet")
def shufflenet(is_small: bool) -> Made:
    width, count = (8, 1) if is_small else (116, 6)
    return nn.Sequential(
        conv_bn(3, width, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        *[Shuffle(width) for _ in range(count)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    ), (image(is_small),)  # fmt: skip


# ------------------------------------------------------------ parts of detectors, segmentation
class FeaturePyramid(nn.Module):
    """A pyramid of features and a head that all its levels share (Lin et al., 2017)."""

    def __init__(self, widths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            conv_bn(a, b, 3, 2) for a, b in zip((3, *widths[:-1]), widths, strict=True)
        )
        self.side = nn.ModuleList(nn.Conv2d(w, width, 1) for w in widths)
        self.head = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(),
            nn.Conv2d(width, 9 * 4, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for down, side in zip(self.down, self.side, strict=True):
            x = F.relu(down(x))
            levels.append(side(x))
        found = [levels[-1]]
        for level in reversed(levels[:-1]):
            found.append(level + F.interpolate(found[-1], size=level.shape[-2:], mode="nearest"))
        boxes = []
        for level in found:
            y = self.head(level)
            boxes.append(y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, 4))
        return torch.cat(boxes, 1)


@net("pyramid")
def pyramid(is_small: bool) -> Made:
    widths, width = ((8, 8, 16), 8) if is_small else ((32, 64, 128, 256), 64)
    return FeaturePyramid(widths, width), (image(is_small, 128),)


class Detector(nn.Module):
    """Boxes and scores out of a grid, the best of them kept: the end of a one-stage detector."""

    def __init__(self, width: int, keep: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, width, 3, 2), nn.SiLU(), conv_bn(width, width, 3, 2))
        self.up = nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False)
        self.head = nn.Conv2d(2 * width, 6, 1)
        self.first = nn.Conv2d(3, width, 3, 2, 1)
        self.keep = keep

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.head(torch.cat([self.first(x), self.up(F.silu(self.body(x)))], 1))
        batch, _, height, width = y.shape
        rows, columns = torch.meshgrid(
            torch.arange(height, device=y.device),
            torch.arange(width, device=y.device),
            indexing="ij",
        )
        grid = torch.stack([columns, rows], 0).to(y.dtype)
        centre = (torch.sigmoid(y[:, :2]) * 2 - 0.5 + grid) * 4
        size = (torch.sigmoid(y[:, 2:4]) * 2) ** 2 * 8
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1).flatten(2).transpose(1, 2)
        score = torch.sigmoid(y[:, 4:]).flatten(2).amax(1)
        best, place = score.topk(self.keep, 1)
        return torch.gather(boxes, 1, place.unsqueeze(-1).expand(-1, -1, 4)), best


@net("detector")
def detector(is_small: bool) -> Made:
    return Detector(8 if is_small else 32, 10 if is_small else 100), (image(is_small, 96),)


class UNet(nn.Module):
    """Down and up again, with bridges (Ronneberger et al., 2015)."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()

        def double(inner: int, outer: int) -> nn.Sequential:
            return nn.Sequential(conv_bn(inner, outer), nn.ReLU(), conv_bn(outer, outer), nn.ReLU())

        pairs = list(zip((3, *widths[:-1]), widths, strict=True))
        self.down = nn.ModuleList(double(a, b) for a, b in pairs)
        steps = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in steps)
        self.join = nn.ModuleList(double(2 * b, b) for _, b in steps)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bridges = []
        for number, down in enumerate(self.down):
            x = down(x if number == 0 else F.max_pool2d(x, 2))
            bridges.append(x)
        for up, join, bridge in zip(self.up, self.join, bridges[-2::-1], strict=True):
            x = join(torch.cat([bridge, up(x)], 1))
        return self.head(x)


@net("unet")
def unet(is_small: bool) -> Made:
    return UNet((8, 16) if is_small else (16, 32, 64, 128)), (image(is_small, 96),)


# ------------------------------------------------------------ transformers
class Attention(nn.Module):
    """Several heads (Vaswani et al., 2017)."""

    def __init__(self, width: int, heads: int, is_causal: bool = False) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.inner(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.is_causal)
        return self.outer(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a perceptron, normalised before (GPT-2, ViT) or after (BERT)."""

    def __init__(
        self, width: int, heads: int, is_causal: bool = False, is_after: bool = False,
        gelu: str = "none",
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention = Attention(width, heads, is_causal)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)
        self.is_after, self.gelu = is_after, gelu

    def perceptron(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.down(F.gelu(self.up(x), approximate=self.gelu)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.is_after:
            x = self.first(x + self.attention(x, mask))
            return self.second(x + self.perceptron(x))
        x = x + self.attention(self.first(x), mask)
        return x + self.perceptron(self.second(x))


class VisionTransformer(nn.Module):
    """Patches as words (Dosovitskiy et al., 2021)."""

    def __init__(self, size: int, patch: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        count = (size // patch) ** 2
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, count + 1, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


@net("vit")
def vit(is_small: bool) -> Made:
    if is_small:
        return VisionTransformer(32, 8, 16, 2, 1), (image(True),)
    return VisionTransformer(128, 16, 192, 3, 6), (image(False),)


class Language(nn.Module):
    """Words in, words out: GPT-2 (causal) or BERT (with a mask of what is padding)."""

    def __init__(
        self, words: int, length: int, width: int, heads: int, depth: int, is_causal: bool
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.kinds = None if is_causal else nn.Embedding(2, width)
        gelu = "tanh" if is_causal else "none"
        self.blocks = nn.ModuleList(
            Block(width, heads, is_causal, not is_causal, gelu) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: torch.Tensor, attended: torch.Tensor | None = None) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        mask = None
        if self.kinds is not None:
            x = self.norm(x + self.kinds(torch.zeros_like(tokens)))
            assert attended is not None
            mask = (1.0 - attended[:, None, None, :].to(x.dtype)) * -1e9
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, mask)
        if self.kinds is None:
            return self.norm(x) @ self.words.weight.t()
        return x


@net("bert")
def bert(is_small: bool) -> Made:
    words, length, width, heads, depth = (50, 16, 16, 2, 1) if is_small else (1000, 64, 256, 4, 4)
    tokens = torch.randint(0, words, (2, length))
    attended = torch.ones(2, length, dtype=torch.int64)
    attended[1, length // 2 :] = 0
    return Language(words, length, width, heads, depth, False), (tokens, attended)


@net("gpt2")
def gpt2(is_small: bool) -> Made:
    words, length, width, heads, depth = (50, 16, 16, 2, 1) if is_small else (1000, 64, 256, 4, 4)
    tokens = torch.randint(0, words, (2, length))
    return Language(words, length, width, heads, depth, True), (tokens,)


class LlamaBlock(nn.Module):
    """Rotated positions, shared keys, a gated perceptron (Touvron et al., 2023)."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, shared * self.size, bias=False)
        self.v = nn.Linear(width, shared * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up, self.down = (
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(2 * width, width, bias=False),
        )
        self.first, self.second = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = self.size // 2
        place = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
        rate = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = place[:, None] * rate[None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(y).view(batch, length, self.shared, self.size).transpose(1, 2)
        v = self.v(y).view(batch, length, self.shared, self.size).transpose(1, 2)
        q, k = self.rotated(q), self.rotated(k)
        times = self.heads // self.shared
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@net("llama")
def llama(is_small: bool) -> Made:
    width, heads, shared, depth, length = (16, 2, 1, 1, 8) if is_small else (256, 8, 2, 4, 64)
    blocks = nn.Sequential(*[LlamaBlock(width, heads, shared) for _ in range(depth)])
    return blocks, (torch.randn(2, length, width),)


# ------------------------------------------------------------ others
class Recurrent(nn.Module):
    """Words, a recurrent layer, and what comes out of its last step."""

    def __init__(
        self, kind: type[nn.RNNBase], words: int, width: int, layers: int, both: bool
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = kind(width, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (1 + both), 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.words(tokens))[0][:, -1])


@net("lstm")
def lstm(is_small: bool) -> Made:
    words, width, layers, length = (20, 8, 1, 5) if is_small else (500, 128, 1, 24)
    return Recurrent(nn.LSTM, words, width, layers, False), (torch.randint(0, words, (4, length)),)


@net("gru")
def gru(is_small: bool) -> Made:
    words, width, layers, length = (20, 8, 1, 5) if is_small else (500, 96, 1, 16)
    return Recurrent(nn.GRU, words, width, layers, True), (torch.randint(0, words, (4, length)),)


@net("mlp")
def mlp(is_small: bool) -> Made:
    width = 16 if is_small else 512
    layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (torch.randn(8, width),)


class AutoEncoder(nn.Module):
    """Convolutions down to a code with noise, and transposed ones up again (Kingma, 2014)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.ELU(),
        )  # fmt: skip
        self.up = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.InstanceNorm2d(width), nn.Softplus(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x))


@net("autoencoder")
def autoencoder(is_small: bool) -> Made:
    return AutoEncoder(8 if is_small else 32), (image(is_small, 64, 16),)


class Recommender(nn.Module):
    """Tables of features, their products, a perceptron (Naumov et al., 2019)."""

    def __init__(self, rows: int, tables: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.head = nn.Sequential(
            nn.Linear(pairs + width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 1)
        )
        self.register_buffer("places", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        first = self.dense(numbers)
        parts = [table(kinds[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([first, *parts], 1)
        products = features @ features.transpose(1, 2)
        pairs = products[:, self.places[0], self.places[1]]
        return torch.sigmoid(self.head(torch.cat([first, pairs], 1))).squeeze(1)


@net("recommender")
def recommender(is_small: bool) -> Made:
    rows, tables, width = (20, 3, 4) if is_small else (1000, 8, 32)
    batch = 4 if is_small else 64
    inputs = (torch.randn(batch, 13), torch.randint(0, rows, (batch, tables)))
    return Recommender(rows, tables, width), inputs


def scale_of(tensor: torch.Tensor) -> float:
    """The size of the numbers of a tensor, to compare differences with."""
    return max(1.0, float(tensor.detach().abs().max())) if tensor.numel() else math.nan
