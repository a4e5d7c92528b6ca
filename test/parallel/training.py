"""A GPT that trains on one device or in one of the ways of `nn.parallel`: the losses of its steps.

In: the name of a way, devices, a size. Out: losses, and how many bytes each device holds of
parameters and of the optimiser's state.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import Device, Tensor, TinyJit, nn
from weft.engine.storage import storages_of

# by which axis the layers of a block are cut: what follows a cut output is cut along its input
AXES = {
    "blocks.*.query.*": 0,
    "blocks.*.key.*": 0,
    "blocks.*.value.*": 0,
    "blocks.*.project.weight": 1,
    "blocks.*.up.*": 0,
    "blocks.*.down.weight": 1,
}


@dataclass(frozen=True)
class Size:
    """How large the model and its batches are."""

    symbols: int = 64
    context: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 2
    batch: int = 8


GPT2_SMALL = Size(50257, 1024, 768, 12, 12, 4)
# as wide and as deep, for machines that are too slow for its vocabulary and its context
GPT2_SHORT = Size(1024, 64, 768, 12, 12, 4)


class Block:
    """Attention, then a layer on its own."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.project = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        inner = self.norm1(x)
        parts = [
            layer(inner).reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        seen = parts[0].scaled_dot_product_attention(parts[1], parts[2], is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    """Gives the loss of its guesses at the next token."""

    def __init__(self, size: Size) -> None:
        self.tokens = nn.Embedding(size.symbols, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = [Block(size.width, size.heads) for _ in range(size.layers)]
        self.norm = nn.LayerNorm(size.width)
        self.guess = nn.Linear(size.width, size.symbols, bias=False)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(Tensor.arange(tokens.shape[1]))
        logits = self.guess(self.norm(x.sequential(self.blocks)))
        return logits.sparse_categorical_crossentropy(targets)


WAYS: dict[str, Callable[[Any, tuple[str, ...]], Any]] = {
    "data": nn.parallel.DataParallel,
    "sharded": nn.parallel.FullySharded,
    "tensor": lambda model, devices: nn.parallel.TensorParallel(model, devices, AXES),
    "sequence": nn.parallel.SequenceParallel,
    "pipeline": lambda model, devices: nn.parallel.Pipeline(model, devices, micro=2),
}


def train(
    way: str | None, devices: tuple[str, ...], size: Size, steps: int, jitted: bool = True
) -> tuple[list[float], dict[str, int], dict[str, int]]:
    """The losses, the bytes of parameters and optimiser state on each device, and all bytes that
    are in use on each while the captured step is kept, intermediate values too."""
    # what the training before left is not this one's
    gc.collect()
    before = {device: Device[device].allocator.in_use for device in devices or (Device.DEFAULT,)}
    Tensor.manual_seed(3)
    model = GPT(size)
    parameters = nn.state.get_parameters(model)
    for parameter in parameters:
        parameter.realize()
    placed = model if way is None else WAYS[way](model, devices)
    optimizer = nn.optim.AdamW(parameters, lr=1e-3)

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = placed(tokens, targets).backward()
        optimizer.step()
        return loss

    run = TinyJit(step) if jitted else step
    losses = []
    with Tensor.train():
        for number in range(steps):
            generator = np.random.default_rng(number)
            data = generator.integers(0, size.symbols, (size.batch, size.context + 1), np.int32)
            batch = [Tensor(part.copy()).realize() for part in (data[:, :-1], data[:, 1:])]
            losses.append(run(*batch).item())
    held = _bytes_held([*parameters, *nn.state.get_parameters(optimizer)])
    used = {name: Device[name].allocator.in_use - start for name, start in before.items()}
    return losses, held, used


def _bytes_held(tensors: list[Tensor]) -> dict[str, int]:
    held: dict[str, int] = {}
    storages = dict.fromkeys([tensor.realize()._cell.storage for tensor in tensors])
    for storage in storages:
        for part in () if storage is None else storages_of(storage):
            size = part.arg.size * part.dtype.itemsize
            held[part.arg.device] = held.get(part.arg.device, 0) + size
    return held
