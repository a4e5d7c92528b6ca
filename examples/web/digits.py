"""A page that reads a digit that you draw: `python examples/web/digits.py`, then open digits.html.

In: the 1,797 digits that come with weft. Out: digits.html in --out, which runs the trained convnet
on WebGPU, or as WebAssembly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from weft import Tensor, TinyJit, export, nn


class Net:
    """Two convolutions and a linear layer for images of 8 by 8 pixels."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 24, 3, padding=1)
        self.conv2 = nn.Conv2d(24, 32, 3, padding=1)
        self.linear = nn.Linear(32 * 4 * 4, 10)

    def __call__(self, image: Tensor) -> Tensor:
        x = self.conv1(image).relu()
        x = self.conv2(x).relu().max_pool2d()
        return self.linear(x.flatten(1))


def train(steps: int, batch: int = 64) -> tuple[Net, float]:
    """A trained net, and the share of test images that it knows."""
    Tensor.manual_seed(0)
    images, labels, test_images, test_labels = nn.datasets.digits()
    # a margin of one pixel: a drawing is not always in the middle
    padded = (images.float() / 16).pad((1, 1, 1, 1)).contiguous().realize()
    net = Net()
    optimizer = nn.optim.AdamW(nn.state.get_parameters(net), lr=2e-3, weight_decay=0.02)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        chosen = Tensor.randint(batch, 1, 1, 1, high=padded.shape[0])
        rows = Tensor.randint(batch, 1, 1, 1, high=3) + Tensor.arange(8).reshape(1, 1, 8, 1)
        columns = Tensor.randint(batch, 1, 1, 1, high=3) + Tensor.arange(8).reshape(1, 1, 1, 8)
        x = padded[chosen, 0, rows, columns] + Tensor.randn(batch, 1, 8, 8) * 0.05
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(labels[chosen.reshape(batch)]).backward()
        return loss.realize(*optimizer.schedule_step())

    for _ in range(steps):
        step()
    guesses = net(test_images.float() / 16).argmax(1)
    return net, float(guesses.eq(test_labels).mean().item())


def main() -> int:
    """Trains and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    net, known = train(options.steps)
    count = sum(int(parameter.numel()) for parameter in nn.state.get_parameters(net))

    def classify(image: Tensor) -> Tensor:
        return net(image).softmax()

    [page] = export.web(
        classify,
        (Tensor.zeros(1, 1, 8, 8),),
        options.out / "digits.html",
        title="Draw a digit",
        about=f"A convolutional net of {count:,} weights that weft trained on 1,437 handwritten "
        "digits. "
        f"It knows {100 * known:.1f} % of those that it never saw.",
        labels=list("0123456789"),
    )
    print(f"{page}: {page.stat().st_size / 1e3:.0f} kB, test accuracy {100 * known:.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
