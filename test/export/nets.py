"""The nets that exports are tried on, with random weights: small and whole.

In: nothing. Out: by name, a function, its inputs as arrays, the sizes of each call. `CASES` are
small enough for `make test`; `LARGE` are ResNet-18 and MobileNet as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft import Tensor, Variable, nn


@dataclass
class Case:
    """A function with the inputs of several calls; `reset` brings its state back."""

    function: Callable[..., Any]
    calls: list[tuple[tuple[np.ndarray, ...], tuple[int, ...]]]
    variables: list[Any] = field(default_factory=list)
    reset: Callable[[], None] = lambda: None

    def given(self, number: int = 0) -> tuple[Any, ...]:
        """The inputs of a call, as weft takes them."""
        arrays, sizes = self.calls[number]
        bound = [v.bind(n) for v, n in zip(self.variables, sizes, strict=True)]
        return (*[Tensor(array) for array in arrays], *bound)

    def expected(self) -> list[list[np.ndarray]]:
        """What weft gives, call after call."""
        self.reset()
        found = []
        for number in range(len(self.calls)):
            out = self.function(*self.given(number))
            outs = out if isinstance(out, (tuple, list)) else [out]
            found.append([t.numpy() for t in outs])
        self.reset()
        return found


def seeded(seed: int) -> np.random.Generator:
    """NumPy's and weft's random numbers from here on."""
    Tensor.manual_seed(seed)
    return np.random.default_rng(seed)


# ------------------------------------------------------------ digits
class Digits:
    """Two convolutions and a product: handwritten digits."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.linear = nn.Linear(16 * 49, 10)

    def __call__(self, image: Tensor) -> Tensor:
        x = self.conv1(image).relu().max_pool2d()
        x = self.conv2(x).relu().max_pool2d()
        return self.linear(x.flatten(1)).softmax()


def digits() -> Case:
    """The digits net."""
    random = seeded(1)
    net = Digits()
    calls = [((random.random((1, 1, 28, 28), np.float32),), ()) for _ in range(2)]
    return Case(net.__call__, calls)


# ------------------------------------------------------------ LSTM
class Recurrent:
    """An LSTM that keeps its state between calls."""

    def __init__(self, inputs: int = 12, hidden: int = 16) -> None:
        self.cell = nn.LSTMCell(inputs, hidden)
        self.out = nn.Linear(hidden, 5)
        self.hidden = hidden
        self.reset()

    def reset(self) -> None:
        """The state of the beginning."""
        self.h = Tensor.zeros(1, self.hidden).contiguous().realize()
        self.c = Tensor.zeros(1, self.hidden).contiguous().realize()

    def step(self, x: Tensor) -> Tensor:
        """One element of a sequence."""
        self.h, self.c = self.cell(x, (self.h, self.c))
        return self.out(self.h)


def lstm() -> Case:
    """The LSTM."""
    random = seeded(2)
    net = Recurrent()
    calls = [((random.standard_normal((1, 12), np.float32),), ()) for _ in range(4)]
    return Case(net.step, calls, reset=net.reset)


# ------------------------------------------------------------ GPT
class Block:
    """Attention over a cache, and a perceptron."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        self.heads, self.length = heads, length
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        shape = (2, heads, length, width // heads)
        self.cache = Tensor.zeros(*shape).contiguous().realize()

    def __call__(self, x: Tensor, position: Any) -> Tensor:
        width = x.shape[-1]
        qkv = self.qkv(self.norm1(x)).reshape(3, self.heads, 1, width // self.heads)
        self.cache[:, :, position : position + 1].assign(qkv[1:])
        keys, values = self.cache[0][:, : position + 1], self.cache[1][:, : position + 1]
        scores = (qkv[0] @ keys.transpose(1, 2)) / (width // self.heads) ** 0.5
        x = x + self.out((scores.softmax() @ values).reshape(1, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    """A language model of characters, one at a time."""

    def __init__(self, vocabulary: int = 32, width: int = 32, layers: int = 2) -> None:
        self.length = 16
        self.embedding = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(self.length, width)
        self.blocks = [Block(width, 4, self.length) for _ in range(layers)]
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def step(self, token: Tensor, position: Any) -> Tensor:
        """The scores of what follows a token at a position."""
        place = self.places.weight[position : position + 1]
        x = self.embedding(token) + place
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.norm(x))

    def reset(self) -> None:
        """An empty cache."""
        for block in self.blocks:
            block.cache.assign(Tensor.zeros(*block.cache.shape)).realize()


def gpt() -> Case:
    """The language model."""
    random = seeded(3)
    net = GPT()
    position = Variable("position", 0, net.length - 1)
    calls = []
    for number in range(5):
        token = random.integers(0, 32, (1,)).astype(np.int32)
        calls.append(((token,), (number,)))
    return Case(net.step, calls, [position], net.reset)


# ------------------------------------------------------------ convolutional nets
def lively(net: Any) -> None:
    """Weights with which signals keep their size from layer to layer, through rectifiers: with
    smaller ones nothing but the last bias is left of a deep net's input."""
    for value in nn.state.get_state_dict(net).values():
        if len(value.shape) == 4:
            value.assign(value * 6**0.5).realize()


class Residual:
    """Two convolutions around which the input goes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm(outputs)
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.norm1(self.conv1(x)).relu()
        y = self.norm2(self.conv2(y))
        return (y + (x if self.short is None else self.short(x))).relu()


class ResNet18:
    """ResNet-18."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        self.stem = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm(width)
        self.blocks = []
        inputs = width
        for stage in range(4):
            outputs = width << stage
            for number in range(2):
                self.blocks.append(Residual(inputs, outputs, 2 if stage and not number else 1))
                inputs = outputs
        self.head = nn.Linear(inputs, classes)

    def __call__(self, image: Tensor) -> Tensor:
        x = self.norm(self.stem(image)).relu()
        x = x.pad((1, 1, 1, 1)).max_pool2d(3, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def resnet18(width: int = 64, size: int = 224, classes: int = 1000) -> Case:
    """ResNet-18, or a narrow one of small images."""
    random = seeded(4)
    net = ResNet18(width, classes)
    lively(net)
    calls = [((random.standard_normal((1, 3, size, size), np.float32),), ())]
    return Case(net.__call__, calls)


class Inverted:
    """A block of MobileNetV2: expand, one filter a channel, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        hidden = inputs * expand
        self.is_added = stride == 1 and inputs == outputs
        self.up = nn.Conv2d(inputs, hidden, 1, bias=False) if expand > 1 else None
        self.norm0 = nn.BatchNorm(hidden)
        self.depth = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.norm1 = nn.BatchNorm(hidden)
        self.down = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm(outputs)

    def __call__(self, x: Tensor) -> Tensor:
        y = x if self.up is None else self.norm0(self.up(x)).relu6()
        y = self.norm1(self.depth(y)).relu6()
        y = self.norm2(self.down(y))
        return x + y if self.is_added else y


# expansion, channels, blocks, stride: table 2 of Sandler et al., MobileNetV2 (2018)
STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


class MobileNet:
    """MobileNetV2; `share` of its channels."""

    def __init__(self, share: float = 1.0, classes: int = 1000, stages: Any = STAGES) -> None:
        def wide(channels: int) -> int:
            return max(8, int(channels * share))

        self.stem = nn.Conv2d(3, wide(32), 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm(wide(32))
        self.blocks = []
        inputs = wide(32)
        for expand, channels, count, stride in stages:
            for number in range(count):
                first = stride if number == 0 else 1
                self.blocks.append(Inverted(inputs, wide(channels), first, expand))
                inputs = wide(channels)
        self.last = nn.Conv2d(inputs, wide(1280), 1, bias=False)
        self.last_norm = nn.BatchNorm(wide(1280))
        self.head = nn.Linear(wide(1280), classes)

    def __call__(self, image: Tensor) -> Tensor:
        x = self.norm(self.stem(image)).relu6()
        for block in self.blocks:
            x = block(x)
        x = self.last_norm(self.last(x)).relu6()
        return self.head(x.mean((2, 3)))


def mobilenet(
    share: float = 1.0, size: int = 224, classes: int = 1000, stages: Any = STAGES
) -> Case:
    """MobileNetV2, or a narrow one of small images."""
    random = seeded(5)
    net = MobileNet(share, classes, stages)
    lively(net)
    calls = [((random.standard_normal((1, 3, size, size), np.float32),), ())]
    return Case(net.__call__, calls)


CASES: dict[str, Callable[[], Case]] = {
    "digits": digits,
    "lstm": lstm,
    "gpt": gpt,
    "resnet18_small": lambda: resnet18(8, 32, 10),
    "mobilenet_small": lambda: mobilenet(0.25, 32, 10, STAGES[:4]),
}
LARGE: dict[str, Callable[[], Case]] = {"resnet18": resnet18, "mobilenet": mobilenet}
