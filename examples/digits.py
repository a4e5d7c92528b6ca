"""The main job: train a small convnet on handwritten digits, save it, load it in a new process.

In: the 1,797 digits that come with weft. Out: digits.safetensors, digits.checkpoint.safetensors and
digits.png in --out. The new process classifies the test images with the loaded weights only, must
reach the same accuracy, and draws some of them with what it thinks they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from common import (
    BAD,
    GOOD,
    Training,
    arguments,
    canvas,
    draw_digit,
    draw_image,
    table,
    write_png,
)

from weft import Tensor, TinyJit, nn


class Net:
    """Two blocks of convolution, normalisation and pooling, then a linear layer."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm(32)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm(32)
        self.linear = nn.Linear(32 * 2 * 2, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu().max_pool2d()
        x = self.norm3(self.conv3(x)).relu().max_pool2d()
        return self.linear(x.flatten(1).dropout(0.2))


def accuracy(model: Net, images: Tensor, labels: Tensor) -> tuple[float, list[int]]:
    """The share of images that it knows, and what it takes each for."""
    guesses = model(images / 16).argmax(1)
    return float(guesses.eq(labels).mean().item()), guesses.tolist()


def train(options: argparse.Namespace) -> float:
    """Trains, saves, and gives the accuracy on the test images."""
    Tensor.manual_seed(options.seed)
    images, labels, test_images, test_labels = nn.datasets.digits()
    # one pixel of margin, so that a batch can be cut out at any of nine places
    padded = (images.float() / 16).pad((1, 1, 1, 1)).contiguous().realize()
    model = Net()
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model), weight_decay=0.02)
    training = Training("digits", options, model, optimizer)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        chosen = Tensor.randint(options.batch, high=padded.shape[0])
        rows, columns = (
            Tensor.randint(options.batch, 1, 1, 1, high=3) + Tensor.arange(8).reshape(shape)
            for shape in ((1, 1, 8, 1), (1, 1, 1, 8))
        )
        x = padded[chosen.reshape(-1, 1, 1, 1), 0, rows, columns]
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(labels[chosen], label_smoothing=0.05)
        loss.backward()
        return loss.realize(*optimizer.schedule_step(), *training.schedule.schedule_step())

    training.run(step)
    known, _ = accuracy(model, test_images, test_labels)
    nn.state.safe_save(nn.state.get_state_dict(model), options.out / "digits.safetensors")
    share = f"{100 * known:.2f} % of {test_labels.shape[0]} images"
    table({**training.rows(), "test accuracy": share})
    return known


def classify(weights: Path, picture: Path) -> float:
    """Loads saved weights into a new model: its accuracy, and a picture of the first images."""
    _, _, images, labels = nn.datasets.digits()
    model = Net()
    nn.state.load_state_dict(model, nn.state.safe_load(weights), verbose=False)
    known, guesses = accuracy(model, images, labels)
    truth = labels.tolist()
    # the wrong ones first: they are the interesting ones
    order = sorted(range(len(truth)), key=lambda i: guesses[i] == truth[i])[:48]
    sheet = canvas(4 * 66 + 10, 12 * 58 + 10)
    for place, number in enumerate(order):
        top, left = 10 + place // 12 * 66, 10 + place % 12 * 58
        draw_image(sheet, top, left, images[number, 0].numpy() / 16)
        color = GOOD if guesses[number] == truth[number] else BAD
        draw_digit(sheet, top + 50, left + 20, guesses[number], color)
    write_png(picture, np.ascontiguousarray(sheet))
    return known


def main() -> int:
    """Trains, then checks the saved weights in a process of their own."""
    parser = arguments(__doc__, steps=400, batch=64, lr=0.02)
    parser.add_argument("--classify", type=Path, help="only load these weights and classify")
    options = parser.parse_args()
    picture = options.out / "digits.png"
    if options.classify:
        print(classify(options.classify, picture))
        return 0
    known = train(options)
    weights = options.out / "digits.safetensors"
    command = [sys.executable, __file__, "--classify", str(weights), "--out", str(options.out)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    again = float(output.splitlines()[-1])  # after what DEBUG may print
    print(f"  new process    {100 * again:.2f} % from {weights}; see {picture}")
    if again != known:
        print(f"the loaded weights reach {again}, but had {known} when they were saved")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
