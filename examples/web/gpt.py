"""A page that writes: a small GPT with a KV cache: `python examples/web/gpt.py`, then gpt.html.

In: the docstrings of weft's own source (or --text of your own). Out: gpt.html in --out.
Trained on whole windows; the page runs one character at a time, over a cache that is its state.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import Tensor, TinyJit, Variable, export, nn


class Block:
    """Attention to what came before, then a step on its own."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        shape = (2, heads, context, width // heads)
        self.cache = Tensor.zeros(*shape, requires_grad=False).contiguous().realize()

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = query.scaled_dot_product_attention(key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.norm2(x)).gelu())

    def step(self, x: Tensor, position: Any) -> Tensor:
        """One character, at a position: what came before is in the cache."""
        width = x.shape[-1]
        parts = self.attention(self.norm1(x)).reshape(3, self.heads, 1, -1)
        self.cache[:, :, position : position + 1].assign(parts[1:])
        keys, values = self.cache[0][:, : position + 1], self.cache[1][:, : position + 1]
        scores = (parts[0] @ keys.transpose(1, 2)) / (width // self.heads) ** 0.5
        x = x + self.project((scores.softmax() @ values).reshape(1, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    """Characters and their places as vectors, some blocks, and a guess at the next character."""

    def __init__(self, symbols: int, context: int, width: int, heads: int, layers: int) -> None:
        self.symbols, self.context = symbols, context
        self.characters = nn.Embedding(symbols, width)
        self.places = nn.Embedding(context, width)
        self.blocks = [Block(width, heads, context) for _ in range(layers)]
        self.norm = nn.LayerNorm(width)
        self.guess = nn.Linear(width, symbols, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.characters(tokens) * 0.1 + self.places(Tensor.arange(tokens.shape[1])) * 0.1
        return self.guess(self.norm(x.sequential(self.blocks)))

    def step(self, token: Tensor, position: Any) -> Tensor:
        """The scores of what follows a character at a position."""
        # the row of a token as a product with zeros and a one
        chosen = token.reshape(1, 1).eq(Tensor.arange(self.symbols).int().reshape(1, -1))
        place = self.places.weight[position : position + 1]
        x = (chosen.float() @ self.characters.weight + place) * 0.1
        for block in self.blocks:
            x = block.step(x, position)
        return self.guess(self.norm(x))


def docstrings() -> str:
    """The prose of the project: the docstrings of its own source."""
    found = []
    for path in sorted(Path(weft.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found += [ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds)]
    text = "\n\n".join(dict.fromkeys([" ".join(part.split(">>>")[0].split()) for part in found]))
    return text.encode("ascii", "ignore").decode()


def train(text: str, options: argparse.Namespace) -> tuple[GPT, str, float]:
    """The model, its letters, and its last loss."""
    Tensor.manual_seed(0)
    letters = "".join(sorted(set(text)))
    data = Tensor(np.array([letters.index(letter) for letter in text], np.int32)).realize()
    model = GPT(len(letters), options.context, options.width, 4, options.layers)
    parameters = [
        value for name, value in nn.state.get_state_dict(model).items() if "cache" not in name
    ]
    optimizer = nn.optim.AdamW(parameters, lr=3e-3, weight_decay=0.01)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        starts = Tensor.randint(options.batch, 1, high=len(text) - options.context - 1)
        windows = data[starts + Tensor.arange(options.context + 1)]
        optimizer.zero_grad()
        logits = model(windows[:, :-1])
        loss = logits.sparse_categorical_crossentropy(windows[:, 1:]).backward()
        nn.optim.clip_grad_norm_(optimizer.params, 1.0)
        return loss.realize(*optimizer.schedule_step())

    loss = 0.0
    for number in range(options.steps):
        found = step()
        if number % 50 == 49 or number == options.steps - 1:
            loss = float(found.item())
            print(f"step {number + 1}: loss {loss:.3f}", flush=True)
    return model, letters, loss


def main() -> int:
    """Trains and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--text", type=Path, help="a file to learn from instead")
    for name, value in (("steps", 500), ("batch", 16), ("context", 128), ("width", 96)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8") if options.text else docstrings()
    model, letters, loss = train(text, options)
    position = Variable("position", 0, options.context - 1)
    [page] = export.web(
        model.step,
        (Tensor([0]).int(), position.bind(3)),
        options.out / "gpt.html",
        title="A small GPT that writes docstrings",
        about=f"It learned to write from the docstrings of weft's own source, character by "
        f"character: {options.layers} layers of width {options.width}, loss {loss:.2f}. What it "
        "wrote before is in its cache.",
        labels=list(letters),
        prompt="The kernel",
    )
    print(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
