"""A training step of ResNet-50, to be recorded: `VIZ=-1 python -m test.viz.resnet [image size]`."""

from __future__ import annotations

import sys

from weft import Tensor, nn

LAYERS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


class Bottleneck:
    """Three convolutions and a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * 4
        self.reduce = nn.Conv2d(inputs, width, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(width)
        self.spatial = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(width)
        self.widen = nn.Conv2d(width, outputs, 1, bias=False)
        self.widen_norm = nn.BatchNorm2d(outputs)
        self.around = None
        if stride != 1 or inputs != outputs:
            around = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.around = [around, nn.BatchNorm2d(outputs)]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.reduce_norm(self.reduce(x)).relu()
        y = self.spatial_norm(self.spatial(y)).relu()
        y = self.widen_norm(self.widen(y))
        return (y + (x if self.around is None else x.sequential(self.around))).relu()


class ResNet50:
    """The network."""

    def __init__(self) -> None:
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.blocks = []
        inputs = 64
        for width, count, stride in LAYERS:
            for number in range(count):
                self.blocks.append(Bottleneck(inputs, width, stride if number == 0 else 1))
                inputs = width * 4
        self.head = nn.Linear(2048, 1000)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        x = x.pad((1, 1, 1, 1)).max_pool2d((3, 3), 2)
        return self.head(x.sequential(self.blocks).mean((2, 3)))


def main(size: int = 32) -> None:
    """One step."""
    model = ResNet50()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01, momentum=0.9)
    image = Tensor.rand(2, 3, size, size).realize()
    label = Tensor([1, 2]).realize()
    with Tensor.train():
        optimizer.zero_grad()
        loss = model(image).sparse_categorical_crossentropy(label)
        loss.backward()
        optimizer.step()
    loss.realize()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
