"""One framework's process of `bench.eager`: runs slices of ops that are not jitted.

usage: python -m bench.eager_child FRAMEWORK
In: JSON lines {"row": name, "calls": n}. Out: {"cpu": us, "wall": us} per call, or {"error": ...}.
Invariant: nothing else is on standard output; a framework sets a row up when it is first asked.

| row | |
|---|---|
| add, matmul, sum | `a + b`, `(a @ b).relu()`, `a.sum().item()` of 8x8 floats |
| index, assign | `a[3]`, `c.assign(a + b)` of them |
| mlp | a training step: 64-64-64-10, batch 64, cross entropy, Adam, loss read |
| convnet | the same of three convolutions and a linear layer on 28x28 pixels, batch 64 |
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# calls of a slice
ROWS = {"add": 300, "matmul": 300, "sum": 300, "index": 300, "assign": 300, "mlp": 30, "convnet": 2}
Step = Callable[[], Any]


def _data(row: str) -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    shape = (64, 64) if row == "mlp" else (64, 1, 28, 28)
    return numbers.standard_normal(shape).astype(np.float32), numbers.integers(0, 10, 64)


def _matrices() -> list[Any]:
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]


def in_torch(row: str) -> Step:
    """PyTorch, op by op."""
    import torch

    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    a, b, c = [torch.from_numpy(matrix) for matrix in _matrices()]
    steps: dict[str, Step] = {
        "add": lambda: a + b,
        "matmul": lambda: (a @ b).relu(),
        "sum": lambda: a.sum().item(),
        "index": lambda: a[3],
        "assign": lambda: c.copy_(a + b),
    }
    if row in steps:
        return steps[row]
    of = torch.nn
    if row == "mlp":
        model = of.Sequential(
            *(of.Linear(64, 64), of.ReLU(), of.Linear(64, 64), of.ReLU(), of.Linear(64, 10))
        )
    else:
        model = of.Sequential(
            *(of.Conv2d(1, 32, 5), of.ReLU(), of.Conv2d(32, 32, 5), of.ReLU(), of.MaxPool2d(2)),
            *(of.Conv2d(32, 64, 3), of.ReLU(), of.MaxPool2d(2), of.Flatten(), of.Linear(1024, 10)),
        )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = [torch.from_numpy(array) for array in _data(row)]

    def train() -> float:
        optimizer.zero_grad()
        loss = of.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return train


def in_jax(row: str) -> Step:
    """jax, op by op; its training steps are jitted by everybody, and not measured here."""
    import jax

    a, b, _ = [jax.numpy.asarray(matrix) for matrix in _matrices()]
    return {
        "add": lambda: (a + b).block_until_ready(),
        "matmul": lambda: jax.numpy.maximum(a @ b, 0).block_until_ready(),
        "sum": lambda: a.sum().item(),
        "index": lambda: a[3].block_until_ready(),
        "assign": lambda: (a + b).block_until_ready(),
    }[row]


def in_weft(row: str) -> Step:
    """weft, un-jitted."""
    from weft import Tensor, nn

    a, b, c = [Tensor(matrix).realize() for matrix in _matrices()]
    steps: dict[str, Step] = {
        "add": lambda: (a + b).realize(),
        "matmul": lambda: (a @ b).relu().realize(),
        "sum": lambda: a.sum().item(),
        "index": lambda: a[3].realize(),
        "assign": lambda: c.assign(a + b).realize(),
    }
    if row in steps:
        return steps[row]
    if row == "mlp":
        layers: list[Any] = [nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)]

        def model(x: Tensor) -> Tensor:
            return layers[2](layers[1](layers[0](x).relu()).relu())
    else:
        convs = [nn.Conv2d(1, 32, 5), nn.Conv2d(32, 32, 5), nn.Conv2d(32, 64, 3)]
        layers = [*convs, nn.Linear(1024, 10)]

        def model(x: Tensor) -> Tensor:
            x = convs[1](convs[0](x).relu()).relu().max_pool2d(2)
            return layers[3](convs[2](x).relu().max_pool2d(2).flatten(1))

    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), 1e-3)
    pixels, labels = _data(row)
    x, y = Tensor(pixels).realize(), Tensor(labels.astype(np.int32)).realize()

    def train() -> float:
        with Tensor.train():
            optimizer.zero_grad()
            loss = model(x).sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            return float(loss.item())

    return train


def main() -> None:
    """Answer until there are no more questions."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name = sys.argv[1].partition("@")[0]
    make = {"torch": in_torch, "jax": in_jax}.get(name, in_weft)
    steps: dict[str, Step] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["row"] not in steps:
                steps[asked["row"]] = make(asked["row"])
                for _ in range(5):
                    steps[asked["row"]]()
        except (ImportError, KeyError) as error:
            print(json.dumps({"error": str(error)}), file=answers)
            continue
        step, calls = steps[asked["row"]], asked["calls"]
        # refills the caches after another framework's turn
        step()
        started, worked = time.perf_counter(), time.process_time()
        for _ in range(calls):
            step()
        worked, passed = time.process_time() - worked, time.perf_counter() - started
        print(json.dumps({"cpu": worked / calls * 1e6, "wall": passed / calls * 1e6}), file=answers)


if __name__ == "__main__":
    main()
