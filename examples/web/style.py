"""A page that redraws a picture: `python examples/web/style.py`, then open style.html.

In: nothing. Out: style.html in --out: drop an image, and a convolutional net draws it as a print in
three inks. The net never saw that filter's rules: it learned them from random scenes and their
prints, which NumPy made.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from weft import Tensor, TinyJit, export, nn

PAPER, INK, TINT = (0.98, 0.94, 0.86), (0.10, 0.13, 0.30), (0.93, 0.42, 0.30)


class Net:
    """Convolutions at half the size, with a shortcut for the details."""

    def __init__(self, width: int = 16) -> None:
        self.begin = nn.Conv2d(3, width, 5, padding=2)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.inner1 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.inner2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.join = nn.Conv2d(3 * width, width, 3, padding=1)
        self.end = nn.Conv2d(width, 3, 3, padding=1)

    def __call__(self, image: Tensor) -> Tensor:
        first = self.begin(image).relu()
        x = self.down(first).relu()
        x = x + self.inner2(self.inner1(x).relu())
        batch, channels, height, width = x.shape
        wide = x.reshape(batch, channels, height, 1, width, 1).expand(-1, -1, -1, 2, -1, 2)
        x = wide.reshape(batch, channels, 2 * height, 2 * width)
        return self.end(self.join(x.cat(first, dim=1)).relu()).sigmoid()


def scene(random: np.random.Generator, size: int) -> np.ndarray:
    """A random picture: a gradient, discs and bars of random colours, a little noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    turn = random.uniform(0, 2 * np.pi)
    along = ((x - 0.5) * np.cos(turn) + (y - 0.5) * np.sin(turn) + 0.7) / 1.4
    colors = random.random((2, 3))
    picture = along[..., None] * colors[0] + (1 - along[..., None]) * colors[1]
    for _ in range(random.integers(4, 12)):
        cx, cy, r = random.random(), random.random(), random.uniform(0.04, 0.3)
        shape = (x - cx) ** 2 + (y - cy) ** 2 < r * r
        if random.random() < 0.5:
            shape = (abs(x - cx) < r) & (abs(y - cy) < r * random.uniform(0.1, 1))
        picture = np.where(shape[..., None], random.random(3) * random.uniform(0.6, 1), picture)
    picture = picture + random.normal(0, 0.02, picture.shape)
    return np.clip(picture, 0, 1).transpose(2, 0, 1).astype(np.float32)


def blurred(grey: np.ndarray, times: int) -> np.ndarray:
    """Smoothed by neighbours."""
    for _ in range(times):
        padded = np.pad(grey, 1, mode="edge")
        grey = (
            padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] + 2 * grey
        ) / 6
    return grey


def print_of(picture: np.ndarray) -> np.ndarray:
    """The picture as a print: paper, a tint where it is dim, ink in the dark and along edges."""
    grey = blurred(np.tensordot([0.3, 0.59, 0.11], picture, 1), 2)
    dx, dy = np.gradient(grey)
    edge = np.clip(np.hypot(dx, dy) * 14 - 0.25, 0, 1)
    dim = 1 / (1 + np.exp((grey - 0.55) * 22))
    dark = np.maximum(1 / (1 + np.exp((grey - 0.27) * 26)), edge)
    paper, ink, tint = (np.array(color).reshape(3, 1, 1) for color in (PAPER, INK, TINT))
    mixed = paper * (1 - dim) + tint * dim
    return (mixed * (1 - dark) + ink * dark).astype(np.float32)


def train(steps: int, batch: int = 4, size: int = 48) -> tuple[Net, float]:
    """A net that prints, and its last error."""
    Tensor.manual_seed(0)
    random = np.random.default_rng(0)
    pictures = np.stack([scene(random, size) for _ in range(256)])
    prints = Tensor(np.stack([print_of(picture) for picture in pictures])).realize()
    data = Tensor(pictures).realize()
    net = Net()
    optimizer = nn.optim.AdamW(nn.state.get_parameters(net), lr=3e-3, weight_decay=1e-4)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        chosen = Tensor.randint(batch, high=256)
        optimizer.zero_grad()
        loss = (net(data[chosen]) - prints[chosen]).square().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    error = 0.0
    for number in range(steps):
        found = step()
        if number % 100 == 99 or number == steps - 1:
            error = float(found.item())
            print(f"step {number + 1}: error {error:.4f}", flush=True)
    return net, error


def main() -> int:
    """Trains and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--size", type=int, default=256, help="height and width of the picture")
    options = parser.parse_args()
    net, _ = train(options.steps)
    count = sum(int(parameter.numel()) for parameter in nn.state.get_parameters(net))
    [page] = export.web(
        net.__call__,
        (Tensor.zeros(1, 3, options.size, options.size),),
        options.out / "style.html",
        title="A print in three inks",
        about=f"Drop a picture: a convolutional net of {count:,} weights draws it as a print. It "
        "learned how from random scenes, and runs in this page.",
    )
    print(f"{page}: {page.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
