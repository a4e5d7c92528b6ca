"""What the examples share: arguments, the training loop, checkpoints, tables, pictures.

In: models, optimisers, arrays of pixels. Out: files, and lines on stdout. Uses the public names of
weft only. Invariant: a checkpoint holds everything that training needs to go on, and is never seen
half written.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft import Device, GlobalCounters, Tensor, nn
from weft.errors import WeftError
from weft.helpers import tqdm

INK, PAPER, GOOD, BAD = (40, 40, 40), (255, 255, 255), (30, 140, 60), (200, 40, 40)

# 3 by 5 pixels of each digit; each row is an octal number
_DIGIT_ROWS = "75557 26227 71747 71717 55711 74717 74757 71122 75757 75717".split()


# ------------------------------------------------------------ arguments and tables
def arguments(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with what all training programs take, and a --name for each of the defaults."""
    parser = argparse.ArgumentParser(
        description=(description or "").strip().splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    helps = {
        "steps": "how many steps to train",
        "batch": "samples in a step",
        "lr": "greatest learning rate",
        "seed": "seed of all random numbers",
        "every": "steps between checkpoints",
        "out": "folder for what is written",
        "width": "features of a hidden layer",
        "context": "characters that it sees",
        "heads": "heads of attention",
        "layers": "blocks",
        "length": "characters to write in the end",
        "each": "new digits of each class",
    }
    for name, default in {**defaults, "seed": 1, "every": 100, "out": Path(".")}.items():
        parser.add_argument(f"--{name}", type=_type_of(default), default=default, help=helps[name])
    parser.add_argument("--resume", type=Path, help="checkpoint to go on from, or saved weights")
    return parser


def _type_of(default: Any) -> Any:
    if type(default) is int:
        return _count
    return Path if isinstance(default, Path) else type(default)


def _count(text: str) -> int:
    """A whole number, 0 or more: of steps, none is a legal number."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def table(rows: Mapping[str, Any]) -> None:
    """Names and values, aligned."""
    width = max(len(name) for name in rows)
    print()
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value}")


class Watch:
    """Seconds and kernels since it was made."""

    def __init__(self) -> None:
        GlobalCounters.reset()
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.start

    @property
    def kernels(self) -> int:
        """Kernels so far."""
        return GlobalCounters.kernel_count


# ------------------------------------------------------------ training
class Training:
    """A model, its optimiser and its schedule: trained together, saved and loaded together.

    Every step draws its random numbers from a seed of its own, so a run that was killed and goes on
    from its checkpoint does what it would have done.
    """

    def __init__(
        self,
        name: str,
        options: argparse.Namespace,
        model: Any,
        optimizer: nn.optim.Optimizer,
        **schedule: Any,
    ) -> None:
        """`schedule`: what OneCycleLR takes beside the rate and the number of steps."""
        self.name = name
        self.options = options
        self.model = model
        self.optimizer = optimizer
        # a run of no step, or one, has a schedule too
        steps = max(2, options.steps)
        self.schedule = nn.schedule.OneCycleLR(optimizer, options.lr, steps, **schedule)
        self.losses: list[float] = []
        self.kernels = 0
        self.done = 0
        self.path = options.out / f"{name}.checkpoint.safetensors"
        options.out.mkdir(parents=True, exist_ok=True)
        if options.resume is not None:
            self._load(options.resume)
        self.watch = Watch()
        self.seconds = 0.0

    def _state(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name."""
        found = nn.state.get_state_dict({"model": self.model, "optimizer": self.optimizer})
        twice = ("optimizer.params.", "optimizer.buffers.")
        kept = {name: tensor for name, tensor in found.items() if not name.startswith(twice)}
        return {**kept, "schedule.count": self.schedule.count}

    def _load(self, path: Path) -> None:
        """Goes on from a checkpoint, or starts from the weights of a finished run."""
        try:
            saved = nn.state.safe_load(path)
        except WeftError as error:
            sys.exit(f"--resume: {error}")
        weights = nn.state.get_state_dict(self.model)
        if set(saved) == set(weights):
            nn.state.load_state_dict(weights, saved, verbose=False)
            return
        if set(saved) != {*self._state(), "losses"}:
            sys.exit(
                f"--resume: {path} is neither {self.name}'s checkpoint nor its weights: it holds "
                f"{', '.join(sorted(saved)[:3])} ..., not {', '.join(sorted(weights)[:3])} ..."
            )
        self.losses = saved.pop("losses").tolist()
        nn.state.load_state_dict(self._state(), saved, verbose=False)
        self.done = int(self.schedule.count.item())

    def save(self) -> None:
        """Writes a checkpoint; a kill while writing leaves the one before."""
        losses = Tensor(self.losses, dtype="float32")
        nn.state.safe_save({**self._state(), "losses": losses}, self.path)

    def run(self, step: Callable[[], Tensor]) -> None:
        """All steps that are left, with a progress bar; a checkpoint now and then."""
        bar = tqdm(range(self.done, self.options.steps), desc=self.name, unit="step")
        for number in bar:
            Tensor.manual_seed((self.options.seed << 32) + number)
            before = GlobalCounters.kernel_count
            loss = step()
            self.kernels = GlobalCounters.kernel_count - before
            if number % 5 == 0:
                self.losses.append(float(loss.item()))
                bar.set_description(f"{self.name} loss {self.losses[-1]:.3f}")
            if (number + 1) % self.options.every == 0:
                self.save()
        self.seconds = self.watch.seconds
        self.save()

    def rows(self) -> dict[str, Any]:
        """What a final table says about the training."""
        steps = max(0, self.options.steps - self.done)
        first, last = self.losses[:1] or [float("nan")], self.losses[-5:] or [float("nan")]
        return {
            "device": Device.DEFAULT,
            "parameters": f"{sum(p.numel() for p in self.optimizer.params):,}",
            "training": f"{steps} steps of {self.options.batch} in {self.seconds:.1f} s",
            "kernels": f"{self.kernels} in a step, {self.watch.kernels:,} in all",
            "loss": f"{first[0]:.3f} -> {sum(last) / len(last):.3f}",
        }


# ------------------------------------------------------------ pictures
def write_png(path: Path, pixels: Any) -> None:
    """An array (height, width, 3) of bytes as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, width * 3 + 1), dtype=np.uint8)  # a row starts with its filter: none
    rows[:, 1:] = pixels.reshape(height, width * 3)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts + chunk(b"IEND", b""))


def canvas(height: int, width: int) -> Any:
    """A white picture."""
    return np.full((height, width, 3), PAPER, dtype=np.uint8)


def draw_digit(picture: Any, top: int, left: int, digit: int, color: Sequence[int]) -> None:
    """A small digit, each of its pixels 2 by 2."""
    for y, row in enumerate(_DIGIT_ROWS[digit]):
        for x in range(3):
            if int(row, 8) >> (2 - x) & 1:
                picture[top + 2 * y : top + 2 * y + 2, left + 2 * x : left + 2 * x + 2] = color


def draw_image(picture: Any, top: int, left: int, image: Any, scale: int = 6) -> None:
    """A small grey image, 0 white and 1 black, each of its pixels a square."""
    grey = (255 - 255 * np.clip(image, 0, 1)).astype(np.uint8)
    large = np.repeat(np.repeat(grey, scale, 0), scale, 1)
    picture[top : top + large.shape[0], left : left + large.shape[1]] = large[:, :, None]


def draw_number(picture: Any, top: int, left: int, value: float) -> None:
    """A number with one digit after the point."""
    for letter in f"{value:.1f}":
        if letter == ".":
            picture[top + 8 : top + 10, left : left + 2] = INK
        elif letter.isdigit():
            draw_digit(picture, top, left, int(letter), INK)
        left += 4 if letter == "." else 8


def draw_curve(values: Sequence[float], height: int = 240, width: int = 480) -> Any:
    """A picture of numbers over time: pale the numbers, dark the mean of their neighbours."""
    picture = canvas(height, width)
    if not values:
        return picture
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    reach = len(values) // 40
    means = []
    for i in range(len(values)):
        near = values[max(0, i - reach) : i + reach + 1]
        means.append(sum(near) / len(near))
    left, right, top, bottom = 50, width - 10, 10, height - 10
    picture[top:bottom, left - 4 : left - 3] = picture[bottom + 3 : bottom + 4, left:right] = INK
    draw_number(picture, top, 8, high)
    draw_number(picture, bottom - 10, 8, low)
    for line, color in ((values, (170, 195, 225)), (means, INK)):
        before = None
        for x in range(left, right):
            where = (x - left) / (right - left - 1) * (len(line) - 1)
            first = line[int(where)]
            value = first + (line[min(int(where) + 1, len(line) - 1)] - first) * (where % 1)
            y = top + int((high - value) / spread * (bottom - top - 1))
            start, end = sorted((y, y if before is None else before))
            picture[start : end + 1, x] = color
            before = y
    return picture
