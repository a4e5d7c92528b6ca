"""Kernels of the sizes that people use, which nobody runs here: they are only compiled.

`kernels_of` realizes a small program on a device that runs nothing, with the target of a GPU, and
keeps its kernels. For the budgets of `ptxas.py`: the little kernels of the corpus would hide what
loops cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import Device, Tensor, dtypes
from weft.engine import programs, realize
from weft.engine.schedule import clear_schedules
from weft.nn.optim import Adam
from weft.renderer.cuda import SM_90
from weft.renderer.nvptx import NVPTXRenderer
from weft.uop.node import UOp

f32, bf16 = dtypes.float32, dtypes.bfloat16
DEVICE = "NULL:90"


def _empty(*shape: int, dtype: Any = f32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=DEVICE)


def _product(size: int, dtype: Any) -> Tensor:
    return _empty(size, size, dtype=dtype) @ _empty(size, size, dtype=dtype)


def _attention(dtype: Any) -> Tensor:
    query, key, value = [_empty(4, 16, 512, 64, dtype=dtype) for _ in range(3)]
    return query.scaled_dot_product_attention(key, value, is_causal=True)


def _perceptron_step() -> list[Tensor]:
    """A step of training: forward, backward and Adam."""
    shapes = [(784, 256), (256,), (256, 10), (10,)]
    weights = [_empty(*shape).requires_grad_() for shape in shapes]
    first, first_bias, second, second_bias = weights
    optimiser = Adam(weights, lr=1e-3)
    images, labels = _empty(128, 784), _empty(128, dtype=dtypes.int32)
    with Tensor.train():
        hidden = (images @ first + first_bias).relu()
        loss = (hidden @ second + second_bias).sparse_categorical_crossentropy(labels)
        loss.backward()
        optimiser.step()
    return [loss, *weights]


def _convolution(dtype: Any) -> Tensor:
    images, filters = _empty(16, 64, 28, 28, dtype=dtype), _empty(64, 64, 3, 3, dtype=dtype)
    return images.conv2d(filters, padding=1, stride=2).relu()


def _scattered() -> Tensor:
    index = _empty(4096, dtype=dtypes.int32).reshape(4096, 1).expand(4096, 64)
    return _empty(1000, 64).scatter_reduce(0, index, _empty(4096, 64), "sum")


LARGE: dict[str, Callable[[], Tensor | list[Tensor]]] = {
    "product_float32": lambda: _product(1024, f32),
    "product_bfloat16": lambda: _product(1024, bf16),
    "vector_bfloat16": lambda: _empty(4096, 4096, dtype=bf16) @ _empty(4096, dtype=bf16),
    "softmax_float32": lambda: _empty(1024, 4096).softmax(-1),
    "softmax_bfloat16": lambda: _empty(1024, 4096, dtype=bf16).softmax(-1),
    "layernorm_float32": lambda: _empty(1024, 1024).layernorm(),
    "layernorm_bfloat16": lambda: _empty(1024, 4096, dtype=bf16).layernorm(),
    "gelu_float32": lambda: (_empty(1 << 22) * 1.5).gelu(),
    "gelu_bfloat16": lambda: (_empty(1 << 22, dtype=bf16) * 1.5).gelu(),
    "float8": lambda: (_empty(1 << 20, dtype=dtypes.fp8e4m3).float() * 1.5).cast(dtypes.fp8e5m2),
    "sum": lambda: _empty(1 << 24).sum(),
    "attention_float32": lambda: _attention(f32),
    "attention_bfloat16": lambda: _attention(bf16),
    "convolution_float32": lambda: _convolution(f32),
    "convolution_bfloat16": lambda: _convolution(bf16),
    "sort": lambda: _empty(1024).sort()[0],
    "cumulative_sum": lambda: _empty(64, 2048).cumsum(1),
    "scatter_sum": _scattered,
    "embedding": lambda: _empty(1000, 256)[_empty(512, dtype=dtypes.int32)],
    "random_normal": lambda: Tensor.randn(1 << 20, device=DEVICE),
    "perceptron_step": _perceptron_step,
}


@functools.cache
def kernels_of(name: str) -> tuple[UOp, ...]:
    """The kernels of one program, in order, each once."""
    found: dict[UOp, None] = {}
    make = programs.runner_for

    def recorded(kernel: UOp, device: str) -> programs.Runner:
        found[kernel] = None
        return make(kernel, device)

    # schedules are made for the target of the device's renderer
    vars(Device[DEVICE])["renderer"] = NVPTXRenderer(SM_90)
    realize.runner_for = recorded
    clear_schedules()
    try:
        Tensor.manual_seed(7)
        result = LARGE[name]()
        results = result if isinstance(result, list) else [result]
        results[0].realize(*results[1:])
    finally:
        realize.runner_for = make
        clear_schedules()
    return tuple(found)
