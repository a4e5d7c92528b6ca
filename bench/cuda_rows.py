"""What `bench.cuda` measures: kernels written for each framework, and models that all of them have.

In: nothing. Out: `kernel_rows` and `model_rows`, a line of the table each. Under `bench.cuda`.
Invariant: all frameworks compute the same of the same arrays. `small` sizes are for a try without a
GPU: the same programs, a thousandth of the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import workloads
from bench.workloads import Array, Case

Shapes = list[tuple[int, ...]]
_MOST_DRAWN = 1 << 24


@dataclass
class Row:
    """A kernel: float arrays of some shapes, or ints below a bound, and what is computed of them.

    What a framework computes takes the module that its functions are in before the arrays.
    """

    name: str
    shapes: Shapes
    dtype: str
    weft: Callable[..., Any]
    torch: Callable[..., Any] | None
    jax: Callable[..., Any] | None
    amount: float  # operations or bytes of one call; 0: the time is shown
    unit: str  # TFLOP/s, TB/s or us
    below: dict[int, int] | None = None  # inputs that are ints, and the number that they are below
    tf32: bool = False  # products of float32 may lose bits

    def arrays(self) -> list[Array]:
        generator = np.random.default_rng(1)
        below = self.below or {}
        return [
            generator.integers(0, below[place], shape).astype(np.int32)
            if place in below
            else _numbers(generator, shape)
            for place, shape in enumerate(self.shapes)
        ]


def _numbers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal ones; many repeat the same, for those take long."""
    count = min(int(np.prod(shape)), _MOST_DRAWN)
    return np.resize(generator.standard_normal(count, dtype=np.float32), shape)


@dataclass
class Model:
    """A step of a net."""

    name: str
    case: Callable[[], Case]
    amount: float  # what a step does, in units of `unit` per second; 0: its time is shown
    unit: str


# ------------------------------------------------------------ what is computed
def gelu_chain(x: Any, tanh: Callable[[Any], Any]) -> Any:
    """Elementwise, and cheap beside the bytes."""
    return 0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def jax_layernorm(jnp: Any, x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def weft_rmsnorm(x: Any) -> Any:
    return x * (x.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt().cast(x.dtype)


def jax_softmax(jnp: Any, x: Any) -> Any:
    largest = x.max(-1, keepdims=True)
    powers = jnp.exp(x - largest)
    return powers / powers.sum(-1, keepdims=True)


def _product(name: str, size: int, dtype: str, tf32: bool = False) -> Row:
    return Row(
        f"matmul {name} {size}",
        [(size, size), (size, size)],
        dtype,
        lambda a, b: a @ b,
        lambda torch, a, b: a @ b,
        lambda jnp, a, b: jnp.matmul(a, b, precision="default" if tf32 else "highest"),
        2.0 * size**3,
        "TFLOP/s",
        tf32=tf32,
    )


def _rows_of_bytes(dtype: str, width: int, side: int) -> list[Row]:
    """What reads and writes a matrix once."""
    wide: Shapes = [(side, side)]
    traffic = 2.0 * width * side * side
    return [
        Row(
            f"softmax {dtype}",
            wide,
            dtype,
            lambda x: x.softmax(-1),
            lambda torch, x: torch.softmax(x, -1),
            jax_softmax,
            traffic,
            "TB/s",
        ),
        Row(
            f"gelu chain {dtype}",
            wide,
            dtype,
            lambda x: gelu_chain(x, lambda y: y.tanh()),
            lambda torch, x: gelu_chain(x, torch.tanh),
            lambda jnp, x: gelu_chain(x, jnp.tanh),
            traffic,
            "TB/s",
        ),
        Row(
            f"layernorm {dtype}",
            wide,
            dtype,
            lambda x: x.layernorm(),
            lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
            jax_layernorm,
            traffic,
            "TB/s",
        ),
        Row(
            f"rmsnorm {dtype}",
            wide,
            dtype,
            weft_rmsnorm,
            lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
            lambda jnp, x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
            traffic,
            "TB/s",
        ),
        Row(
            f"transpose {dtype}",
            wide,
            dtype,
            lambda x: x.T.contiguous(),
            lambda torch, x: x.T.contiguous(),
            lambda jnp, x: x.T + 0,
            traffic,
            "TB/s",
        ),
    ]


def _unordered(small: bool) -> list[Row]:
    """Sorts, scans, and writes to computed places."""
    million, many = (1 << 12, 1 << 14) if small else (1 << 20, 1 << 24)
    short = 1 << 10 if small else 1 << 16
    vocabulary, width, tokens = (100, 16, 64) if small else (50257, 768, 8192)
    rows = []
    for name, size in (("64K", short), ("16M", many)):
        rows.append(
            Row(
                f"sort {name} float32",
                [(size,)],
                "float32",
                lambda x: x.sort()[0],
                lambda torch, x: x.sort()[0],
                lambda jnp, x: jnp.sort(x),
                0,
                "us",
            )
        )
    rows.append(
        Row(
            "cumsum 16M float32",
            [(many,)],
            "float32",
            lambda x: x.cumsum(0),
            lambda torch, x: x.cumsum(0),
            lambda jnp, x: jnp.cumsum(x),
            0,
            "us",
        )
    )
    for name, size in (("64K", short), ("1M", million)):
        rows.append(
            Row(
                f"scatter-add {name} into 64K float32",
                [(short,), (size,), (size,)],
                "float32",
                lambda x, at, values: x.scatter_reduce(0, at, values, "sum"),
                lambda torch, x, at, values: x.scatter_add(0, at.long(), values),
                lambda jnp, x, at, values: x.at[at].add(values),
                0,
                "us",
                {1: short},
            )
        )
    rows.append(
        Row(
            "topk 64 of 1M float32",
            [(million,)],
            "float32",
            lambda x: x.topk(64)[0],
            lambda torch, x: x.topk(64)[0],
            None,
            0,
            "us",
        )
    )
    rows.append(
        Row(
            "embedding gradient 8192 of 50257 x 768 float32",
            [(vocabulary, width), (tokens,), (tokens, width)],
            "float32",
            lambda table, at, slope: (table[at] * slope).sum().gradient(table)[0],
            lambda torch, table, at, slope: torch.zeros_like(table).index_add(0, at, slope),
            lambda jnp, table, at, slope: jnp.zeros_like(table).at[at].add(slope),
            0,
            "us",
            {1: vocabulary},
        )
    )
    return rows


def kernel_rows(small: bool = False) -> list[Row]:
    """All kernels of the table."""
    side, half = (64, 32) if small else (8192, 4096)
    found = [
        _product("bfloat16", half, "bfloat16"),
        _product("bfloat16", side, "bfloat16"),
        _product("float32", side, "float32"),
        _product("tf32", side, "float32", tf32=True),
        Row(
            "gemv bfloat16 8192",
            [(side, side), (side, 1)],
            "bfloat16",
            lambda a, x: a @ x,
            lambda torch, a, x: a @ x,
            lambda jnp, a, x: a @ x,
            2.0 * side**2,
            "TB/s",
        ),
        *_rows_of_bytes("float32", 4, side),
        *_rows_of_bytes("bfloat16", 2, side),
        Row(
            "sum float32 1 GiB",
            [(1 << 12 if small else 1 << 28,)],
            "float32",
            lambda x: x.sum(),
            lambda torch, x: x.sum(),
            lambda jnp, x: x.sum(),
            4.0 * (1 << 12 if small else 1 << 28),
            "TB/s",
        ),
    ]
    found += _attention(small)
    found += _unordered(small)
    found.append(
        Row(
            "one jitted kernel",
            [(16,)],
            "float32",
            lambda x: x + 1,
            lambda torch, x: x + 1,
            lambda jnp, x: x + 1,
            0,
            "us",
        )
    )
    return found


def _attention(small: bool) -> list[Row]:
    """Causal attention of two widths of heads, and all of its gradients added up."""
    found = []
    for width in (16,) if small else (64, 128):
        shape = (1, 2, 32, width) if small else (4, 32, 4096, width)
        count = 2.0 * shape[0] * shape[1] * shape[2] ** 2 * width
        name = f"B{shape[0]} H{shape[1]} S{shape[2]} D{width} bfloat16"
        found.append(
            Row(
                f"causal attention {name}",
                [shape] * 3,
                "bfloat16",
                lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
                lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=True
                ),
                None,
                count,
                "TFLOP/s",
            )
        )
        found.append(
            Row(
                f"and its gradients {name}",
                [shape] * 4,
                "bfloat16",
                _weft_gradients,
                _torch_gradients,
                None,
                3.5 * count,
                "TFLOP/s",
            )
        )
    return found


def _weft_gradients(q: Any, k: Any, v: Any, slope: Any) -> Any:
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    return sum(out.gradient(q, k, v, gradient=slope), out)


def _torch_gradients(torch: Any, q: Any, k: Any, v: Any, slope: Any) -> Any:
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    return sum(torch.autograd.grad(out, inputs, slope), out)


def model_rows(small: bool = False) -> list[Model]:
    """All models of the table. A try without a GPU takes one image, and short texts."""
    batch = 1 if small else 64
    texts, length = (1, 8) if small else (8, 1024)
    layers = 1 if small else 0
    return [
        Model(
            f"ResNet-50 forward bs{batch} bfloat16",
            lambda: workloads.resnet_on_gpu(batch),
            0,
            "ms",
        ),
        Model(
            f"ResNet-50 training step bs{batch} bfloat16",
            lambda: workloads.resnet_train_on_gpu(batch),
            0,
            "ms",
        ),
        Model(
            f"GPT-2 124M training step {texts} x {length} bfloat16",
            lambda: workloads.gpt2_train_on_gpu(texts, length, layers),
            0,
            "ms",
        ),
        Model(
            "Llama-1B forward S2048 bfloat16",
            lambda: workloads.llama_on_gpu(8 if small else 2048, layers),
            0,
            "ms",
        ),
        Model("Llama-1B decode bfloat16", lambda: workloads.decode_on_gpu(layers), 1.0, "tok/s"),
    ]
