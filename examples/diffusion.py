"""A diffusion toy: it learns to take noise away from digits, then makes new ones out of noise.

In: the digits that come with weft. Out: diffusion.png, a grid with one row of new digits for each
class, and diffusion.checkpoint.safetensors, in --out. Ho, Jain and Abbeel (2020), with a network
that is a few linear layers over the 64 pixels, the time and the class.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from common import Training, arguments, canvas, draw_image, table, write_png

from weft import Tensor, TinyJit, nn

TIMES = 60  # steps from a digit to noise


def kept_signal() -> list[float]:
    """The share of a digit's variance that is left at each time, along a cosine."""

    def left(t: float) -> float:
        return math.cos((t / TIMES + 0.008) / 1.008 * math.pi / 2) ** 2

    return [max(left(t + 1) / left(0), 1e-4) for t in range(TIMES)]


class Denoiser:
    """Noisy pixels, the time and the class in; the noise out."""

    def __init__(self, width: int) -> None:
        self.enter = nn.Linear(64, width)
        self.time = nn.Embedding(TIMES, width)
        self.digit = nn.Embedding(10, width)
        self.norms = [nn.LayerNorm(width) for _ in range(3)]
        self.ups = [nn.Linear(width, 2 * width) for _ in range(3)]
        self.downs = [nn.Linear(2 * width, width) for _ in range(3)]
        self.leave = nn.Linear(width, 64)

    def __call__(self, pixels: Tensor, time: Tensor, digit: Tensor) -> Tensor:
        known = self.time(time) + self.digit(digit)
        x = self.enter(pixels)
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(up(norm(x + known)).silu())
        return self.leave(x)


def generate(model: Denoiser, each: int) -> Tensor:
    """New digits, `each` of every class: from noise back to a digit, a step at a time."""
    signal = kept_signal()
    digit = Tensor.arange(10).reshape(10, 1).expand(10, each).reshape(10 * each).contiguous()
    digit.realize()

    @TinyJit
    def denoise(x: Tensor, noise: Tensor, time: Tensor, numbers: Tensor) -> Tensor:
        left, before, spread = numbers[0], numbers[1], numbers[2]
        guess = model(x, time, digit)
        # the digit that this noise would have come from; pixels are between -1 and 1
        clean = ((x - (1 - left).sqrt() * guess) / left.sqrt()).clip(-1, 1)
        ratio = left / before
        mean = before.sqrt() * (1 - ratio) / (1 - left) * clean
        mean = mean + ratio.sqrt() * (1 - before) / (1 - left) * x
        return (mean + spread * noise).realize()

    x = Tensor.randn(10 * each, 64).realize()
    for t in reversed(range(TIMES)):
        before = signal[t - 1] if t else 1.0
        ratio = signal[t] / before
        spread = math.sqrt((1 - before) / (1 - signal[t]) * (1 - ratio)) if t else 0.0
        time = Tensor([t]).expand(10 * each).contiguous().realize()
        numbers = Tensor([signal[t], min(before, 1 - 1e-6), spread]).realize()
        x = denoise(x, Tensor.randn(10 * each, 64).realize(), time, numbers)
    return x


def draw(path: Path, digits: Tensor, each: int) -> None:
    """A row for each class."""
    images = (digits.numpy().reshape(10, each, 8, 8) + 1) / 2
    sheet = canvas(10 * 38 + 6, each * 38 + 6)
    for row in range(10):
        for column in range(each):
            draw_image(sheet, 6 + row * 38, 6 + column * 38, images[row, column], scale=4)
    write_png(path, sheet)


def main() -> int:
    """Trains, saves, and draws new digits."""
    options = arguments(__doc__, steps=1500, batch=128, lr=3e-3, width=192, each=16).parse_args()
    Tensor.manual_seed(options.seed)
    images, labels, _, _ = nn.datasets.digits()
    pixels = (images.float() / 8 - 1).reshape(-1, 64).realize()
    signal = Tensor(kept_signal()).realize()
    model = Denoiser(options.width)
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model))
    training = Training("diffusion", options, model, optimizer, pct_start=0.1)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        chosen = Tensor.randint(options.batch, high=pixels.shape[0])
        time = Tensor.randint(options.batch, high=TIMES)
        left = signal[time].reshape(-1, 1)
        noise = Tensor.randn(options.batch, 64)
        noisy = (left.sqrt() * pixels[chosen] + (1 - left).sqrt() * noise).detach()
        optimizer.zero_grad()
        loss = (model(noisy, time, labels[chosen]) - noise.detach()).square()
        loss = loss.mean().backward()
        return loss.realize(*optimizer.schedule_step(), *training.schedule.schedule_step())

    training.run(step)
    draw(options.out / "diffusion.png", generate(model, options.each), options.each)
    table({**training.rows(), "new digits": options.out / "diffusion.png"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
