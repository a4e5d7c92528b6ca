"""Programs whose kernels are recorded. Only public names, so that old commits can run them too.

In: nothing. Out: `PROGRAMS`, name -> function that computes something. Loaded by file path, beside
whichever weft is to be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import Tensor, Variable, dtypes


def data(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    numbers = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return Tensor(numbers.standard_normal(shape).astype(dtype)).realize()
    return Tensor(numbers.integers(0, 9, shape).astype(dtype)).realize()


def compute(*tensors: Any) -> None:
    for tensor in tensors:
        tensor.realize()


def elementwise() -> None:
    x, y = data(33, 40), data(33, 40, seed=1)
    compute(x + y, (x * y).relu() - 0.5, x.exp() + y.sin(), (x > y).where(x, y), x.maximum(y))


def integers() -> None:
    x, y = data(100, dtype=np.int32), data(100, dtype=np.int32, seed=1)
    compute(x // 3, x % (y + 1), x << 2, (x ^ y) & 7, x.cast(dtypes.int8) * 3)


def halves() -> None:
    x = data(64, 48).cast(dtypes.float16).realize()
    compute(x * 2 + 1, x.cast(dtypes.bfloat16), x.sum(1), x @ x.transpose(0, 1))


def reductions() -> None:
    x = data(24, 130)
    compute(x.sum(), x.sum(0), x.max(1), x.mean((0, 1)), x.argmax(1), x.min(0), x.std(1))


def movement() -> None:
    x = data(6, 5, 4)
    compute(
        x.permute(2, 0, 1) + 1,
        x.reshape(10, 12).flip(1) * 2,
        x.pad(((1, 1), (0, 2), (3, 0))) + 1,
        x[1:4, ::2] - 1,
        x.expand(6, 5, 4).sum(2),
        Tensor.cat(x, x * 2, dim=1),
    )


def products() -> None:
    compute(
        data(64, 64) @ data(64, 64, seed=1),
        data(17, 33) @ data(33, 9, seed=1),
        data(1, 128) @ data(128, 50, seed=1),
        (data(4, 8, 16) @ data(4, 16, 12, seed=1)).relu() + 1,
    )


def large() -> None:
    """What is behind the caches is read in another order."""
    x, matrix = data(1, 4096), data(512, 4096, seed=1)
    compute(
        x @ matrix.transpose(0, 1),
        matrix @ data(4096, 3),
        matrix.softmax(1),
        matrix.sum(0),
        matrix.reshape(2048, 1024) @ data(1024, 1),
        data(256, 256) @ data(256, 256, seed=1),
    )


def convolutions() -> None:
    x = data(2, 3, 16, 16)
    compute(
        x.conv2d(data(8, 3, 3, 3, seed=1), padding=1),
        x.conv2d(data(6, 1, 3, 3, seed=1), groups=3, stride=2),
        x.max_pool2d(2),
        x.avg_pool2d(3, stride=2),
    )


def networks() -> None:
    x, w = data(8, 32), data(32, 10, seed=1)
    compute(x.softmax(), x.layernorm(), (x @ w).log_softmax(), x.gelu(), x.sigmoid() * x)


def attention() -> None:
    q, k, v = (data(2, 4, 10, 16, seed=i) for i in range(3))
    compute(q.scaled_dot_product_attention(k, v, is_causal=True))


def indexing() -> None:
    x, index = data(10, 6), Tensor(np.array([1, 3, 9, 0], dtype=np.int32)).realize()
    compute(x[index], x[:, index % 6], x.gather(1, index.reshape(4, 1)), x.cumsum(0))


def assignments() -> None:
    x, gradient = data(50), data(50, seed=1)
    x[3:20] = gradient[0:17]
    x.realize()
    x.assign(x * 0.9 - gradient * 0.1).realize()
    x.assign(x.flip(0)).realize()


def constants() -> None:
    x = data(3)
    compute(
        Tensor.stack(*[Tensor(i + 1) for i in range(3)]) * x,
        Tensor.arange(20).reshape(4, 5).sum(0),
        Tensor.eye(4) + 1,
    )


def run_time_sizes() -> None:
    x = data(40, 4)
    for value in (7, 40):
        n = Variable("n", 1, 40).bind(value)
        compute(x[:n].sum(0), x[:n] * 2)


def gradients() -> None:
    x, w = data(8, 12), data(12, 5, seed=1)
    compute(*((x @ w).tanh().square().mean()).gradient(x, w))


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        elementwise, integers, halves, reductions, movement, products, large, convolutions,
        networks, attention, indexing, assignments, constants, run_time_sizes, gradients,
    )
}  # fmt: skip
