"""A small GPT that learns to write, one character at a time, from weft's own source code.

In: the Python files of the installed package, under its MIT licence (or --text of your own). Out:
the loss, samples of what it writes, gpt.checkpoint.safetensors and gpt.png, the loss curve, in
--out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from common import Training, arguments, draw_curve, table, write_png

import weft
from weft import Tensor, TinyJit, dtypes, nn


class Block:
    """Attention to what came before, then a step on its own; both added to what is there."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = query.scaled_dot_product_attention(key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    """Characters and their places as vectors, some blocks, and a guess at the next character."""

    def __init__(self, symbols: int, context: int, width: int, heads: int, layers: int) -> None:
        self.characters = nn.Embedding(symbols, width)
        self.places = nn.Embedding(context, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm = nn.LayerNorm(width)
        self.guess = nn.Linear(width, symbols, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.characters(tokens) * 0.1 + self.places(Tensor.arange(tokens.shape[1])) * 0.1
        return self.guess(self.norm(x.sequential(self.blocks)))


def own_source() -> str:
    """The text that comes with the project: its own source, without other alphabets."""
    files = sorted(Path(weft.__file__).parent.rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return text.encode("ascii", "ignore").decode()


def sample(model: GPT, letters: str, start: str, length: int, context: int, seed: int) -> str:
    """What the model goes on to write after a start."""
    generator = np.random.default_rng(seed)

    @TinyJit
    def chances(tokens: Tensor, last: Tensor) -> Tensor:
        logits = model(tokens)[0][last] / 0.8
        return logits.softmax(-1).realize()

    written = [letters.index(letter) for letter in start]
    for _ in range(length):
        window = written[-context:]
        tokens = Tensor([window + [0] * (context - len(window))], dtype=dtypes.int32)
        last = Tensor([len(window) - 1], dtype=dtypes.int32)
        weights = chances(tokens.realize(), last.realize()).numpy()[0].astype(np.float64)
        written.append(int(generator.choice(len(letters), p=weights / weights.sum())))
    return "".join(letters[number] for number in written)


def train(options: argparse.Namespace) -> tuple[Training, str]:
    """The trained model, and its letters."""
    Tensor.manual_seed(options.seed)
    text = options.text.read_text(encoding="utf-8") if options.text else own_source()
    letters = "".join(sorted(set(text)))
    number_of = {letter: number for number, letter in enumerate(letters)}
    data = Tensor(np.array([number_of[letter] for letter in text], dtype=np.int32)).realize()
    model = GPT(len(letters), options.context, options.width, options.heads, options.layers)
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model), weight_decay=0.05)
    training = Training("gpt", options, model, optimizer, pct_start=0.1)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        starts = Tensor.randint(options.batch, 1, high=len(text) - options.context - 1)
        windows = data[starts + Tensor.arange(options.context + 1)]
        optimizer.zero_grad()
        logits = model(windows[:, :-1])
        loss = logits.sparse_categorical_crossentropy(windows[:, 1:]).backward()
        nn.optim.clip_grad_norm_(optimizer.params, 1.0)
        return loss.realize(*optimizer.schedule_step(), *training.schedule.schedule_step())

    training.run(step)
    return training, letters


def main() -> int:
    """Trains, saves, and shows what the model writes."""
    parser = arguments(
        __doc__, steps=600, batch=16, lr=3e-3, context=64, width=96, heads=4, layers=3, length=400
    )
    parser.add_argument("--text", type=Path, help="a file to learn from instead")
    parser.add_argument("--start", default="def ", help="what its sample starts with")
    options = parser.parse_args()
    training, letters = train(options)
    write_png(options.out / "gpt.png", draw_curve(training.losses))
    print(
        sample(
            training.model, letters, options.start, options.length, options.context, options.seed
        )
    )
    table({**training.rows(), "curve": options.out / "gpt.png"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
