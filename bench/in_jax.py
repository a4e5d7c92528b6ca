"""The workloads in jax, each step under jax.jit.

In: a Case. Out: a step that runs and waits, as `bench.frameworks.prepare` gives it.
Sits beside the other frameworks. Invariant: the same weights under the same names as everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.frameworks import Prepared
from bench.workloads import Case, resnet_blocks

Weights = dict[str, Any]


def conv2d(x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
    """A convolution in PyTorch's layout."""
    around = [(padding, padding)] * 2
    layout = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(x, w, (stride, stride), around, dimension_numbers=layout)


def max_pool(x: Any, k: int, stride: int, padding: int = 0) -> Any:
    """The greatest of each window."""
    around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, k, k), (1, 1, stride, stride), around)


def _each(channels: Any) -> Any:
    return channels[:, None, None]


def batchnorm(w: Weights, name: str, x: Any, eps: float = 1e-5) -> Any:
    """With the running statistics."""
    scale = w[f"{name}.weight"] * lax.rsqrt(w[f"{name}.running_var"] + eps)
    return (x - _each(w[f"{name}.running_mean"])) * _each(scale) + _each(w[f"{name}.bias"])


def batchnorm_train(w: Weights, name: str, x: Any, eps: float = 1e-5) -> tuple[Any, Weights]:
    """With the batch's statistics; the running ones come out new."""
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    count = x.size / x.shape[1]
    unbiased = var.ravel() * (count / (count - 1))
    new = {
        f"{name}.running_mean": 0.9 * w[f"{name}.running_mean"] + 0.1 * mean.ravel(),
        f"{name}.running_var": 0.9 * w[f"{name}.running_var"] + 0.1 * unbiased,
    }
    normal = (x - mean) * lax.rsqrt(var + eps)
    return normal * _each(w[f"{name}.weight"]) + _each(w[f"{name}.bias"]), new


def linear(w: Weights, name: str, x: Any) -> Any:
    """A matrix and a bias."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layernorm(x: Any, eps: float = 1e-5) -> Any:
    """Over the last axis."""
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + eps)


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention."""
    scores = q @ jnp.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


def resnet(depth: int, w: Weights, x: Any) -> Any:
    """ResNet-18 or 50."""
    is_basic, _, blocks = resnet_blocks(depth)
    x = jax.nn.relu(batchnorm(w, "bn1", conv2d(x, w["conv1.weight"], 2, 3)))
    x = max_pool(x, 3, 2, 1)
    for block in blocks:
        steps = block.convolutions(is_basic)
        y = x
        for i, (_, _, k, stride) in enumerate(steps, 1):
            y = conv2d(y, w[f"{block.name}.conv{i}.weight"], stride, k // 2)
            y = batchnorm(w, f"{block.name}.bn{i}", y)
            if i < len(steps):
                y = jax.nn.relu(y)
        if block.has_shortcut:
            x = conv2d(x, w[f"{block.name}.down.weight"], block.stride)
            x = batchnorm(w, f"{block.name}.down_bn", x)
        x = jax.nn.relu(y + x)
    return linear(w, "fc", x.mean((2, 3)))


def transformer_block(heads: int, w: Weights, x: Any) -> Any:
    """A transformer block that sees what came before."""
    batch, length, width = x.shape

    def norm(name: str, z: Any) -> Any:
        return layernorm(z) * w[f"{name}.weight"] + w[f"{name}.bias"]

    h = norm("ln1", x)
    shape = (batch, length, heads, width // heads)
    q, k, v = (linear(w, name, h).reshape(shape).swapaxes(1, 2) for name in "qkv")
    seen = attend(q, k, v, jnp.tril(jnp.ones((length, length), bool)))
    x = x + linear(w, "o", seen.swapaxes(1, 2).reshape(batch, length, width))
    return x + linear(w, "down", jax.nn.gelu(linear(w, "up", norm("ln2", x)), approximate=True))


def mnist_loss(w: Weights, x: Any, y: Any) -> tuple[Any, Weights]:
    """The loss, and the statistics that it leaves behind."""

    def conv(layer: int, z: Any) -> Any:
        name = f"layers.{layer}"
        return jax.nn.relu(conv2d(z, w[f"{name}.weight"]) + _each(w[f"{name}.bias"]))

    x, first = batchnorm_train(w, "layers.4", conv(2, conv(0, x)))
    x, second = batchnorm_train(w, "layers.10", conv(8, conv(6, max_pool(x, 2, 2))))
    logits = linear(w, "layers.13", max_pool(x, 2, 2).reshape(x.shape[0], -1))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
    return -chosen.mean(), first | second


def mnist_step(rate: float, state: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """One step of Adam."""
    w, m, v, t = state
    (loss, statistics), g = jax.value_and_grad(mnist_loss, has_aux=True)(w, x, y)
    t = t + 1
    m = {name: 0.9 * m[name] + 0.1 * g[name] for name in w}
    v = {name: 0.999 * v[name] + 0.001 * g[name] * g[name] for name in w}
    new = {
        name: value - rate * (m[name] / (1 - 0.9**t)) / (jnp.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
        for name, value in w.items()
    }
    return (new | statistics, m, v, t), loss


def decode(
    sizes: dict[str, Any], w: Weights, caches: Any, cos: Any, sin: Any, position: Any, token: Any
) -> tuple[Any, Any]:
    """One token of a Llama with a cache of keys and values."""
    head = sizes["head_width"]

    def norm(name: str, x: Any) -> Any:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + sizes["eps"]) * w[name]

    def rotate(x: Any) -> Any:
        a, b = jnp.split(x, 2, axis=-1)
        c, s = cos[position], sin[position]
        return jnp.concatenate((a * c - b * s, b * c + a * s), -1)

    x = w["tok.weight"][token]
    mask = jnp.arange(sizes["context"]) <= position
    new = []
    for i in range(sizes["layers"]):
        p = f"layers.{i}."
        h = norm(f"{p}norm1.weight", x)
        made = (h @ w[f"{p}{name}.weight"].T for name in ("wq", "wk", "wv"))
        q, k, v = (part.reshape(1, 1, -1, head).swapaxes(1, 2) for part in made)
        pair = jnp.stack((rotate(k), v))
        cache = lax.dynamic_update_slice(caches[i], pair, (0, 0, 0, position, 0))
        new.append(cache)
        seen = attend(rotate(q), cache[0], cache[1], mask)
        x = x + seen.swapaxes(1, 2).reshape(1, 1, -1) @ w[f"{p}wo.weight"].T
        h = norm(f"{p}norm2.weight", x)
        gated = jax.nn.silu(h @ w[f"{p}gate.weight"].T) * (h @ w[f"{p}up.weight"].T)
        x = x + gated @ w[f"{p}down.weight"].T
    return new, norm("norm.weight", x) @ w["out.weight"].T


def gelu_chain(x: Any) -> Any:
    """Ten elementwise ops."""
    return 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x * x * x))) * 1.1 + 0.1


def _training(case: Case, w: Weights, arguments: list[Any]) -> Callable[[], Any]:
    def zeros() -> Weights:
        return {name: jnp.zeros_like(value) for name, value in w.items()}

    function = jax.jit(functools.partial(mnist_step, case.sizes["rate"]), donate_argnums=0)
    state = [(w, zeros(), zeros(), jnp.float32(0))]

    def step() -> Any:
        state[0], loss = function(state[0], *arguments)
        jax.block_until_ready((state[0], loss))
        return loss

    return step


def _decoding(case: Case, w: Weights, arguments: list[Any]) -> Callable[[], Any]:
    arrays = ("cos", "sin", "cache")
    sizes = {name: value for name, value in case.sizes.items() if name not in arrays}
    function = jax.jit(functools.partial(decode, sizes), donate_argnums=1)
    caches = [[jnp.asarray(array) for array in case.sizes["cache"]]]
    cos, sin = jnp.asarray(case.sizes["cos"]), jnp.asarray(case.sizes["sin"])
    position = jnp.int32(sizes["position"])

    def step() -> Any:
        caches[0], logits = function(w, caches[0], cos, sin, position, arguments[0])
        return jax.block_until_ready(logits)

    return step


def _one_by_one(kernels: int, x: Any) -> Callable[[], Any]:
    """One jitted call for each op: jit of the whole chain would make one kernel of it."""
    one = jax.jit(lambda x: x + 0.001)

    def step() -> Any:
        value = x
        for _ in range(kernels):
            value = one(value)
        return jax.block_until_ready(value)

    return step


def prepare(case: Case) -> Prepared:
    """A step that runs and waits."""
    sizes = case.sizes
    arguments = [jnp.asarray(array) for array in case.inputs]
    w = {name: jnp.asarray(value) for name, value in case.weights.items()}
    jax.block_until_ready((arguments, w))
    if case.kind == "mnist_train":
        return _training(case, w, arguments), np.asarray, dict
    if case.kind == "decode":
        return _decoding(case, w, arguments), np.asarray, dict
    if case.kind == "dispatch":
        return _one_by_one(sizes["kernels"], arguments[0]), np.asarray, dict
    simple: dict[str, Callable[..., Any]] = {
        "matmul": jnp.matmul,
        "conv": lambda x, k: conv2d(x, k, 1, sizes["padding"]),
        "elementwise": gelu_chain,
        "sum": jnp.sum,
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layernorm": layernorm,
        "attention": attend,
    }
    function: Callable[..., Any]
    if case.kind == "eager_op":
        function = lambda x: x + 0.001  # noqa: E731
    elif case.kind == "resnet":
        function = functools.partial(jax.jit(functools.partial(resnet, sizes["depth"])), w)
    elif case.kind == "block":
        one = functools.partial(transformer_block, sizes["heads"])
        function = functools.partial(jax.jit(one), w)
    else:
        function = jax.jit(simple[case.kind])
    return lambda: jax.block_until_ready(function(*arguments)), np.asarray, dict
