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
from bench.workloads import MOBILE_BLOCKS, TRAINED, UNET_WIDTHS, Array, Case, resnet_blocks

Weights = dict[str, Any]


def array(values: Array, dtype: str = "float32") -> Any:
    """An array in memory; floats in the dtype of the case, of which halves may come as bits."""
    if values.dtype == "uint16":
        return lax.bitcast_convert_type(jnp.asarray(values), getattr(jnp, dtype))
    return jnp.asarray(values, getattr(jnp, dtype)) if values.dtype == "float32" else values


def conv2d(x: Any, w: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
    """A convolution in PyTorch's layout."""
    around = [(padding, padding)] * 2
    convolve = functools.partial(lax.conv_general_dilated, feature_group_count=groups)
    layout = ("NCHW", "OIHW", "NCHW")
    return convolve(x, w, (stride, stride), around, dimension_numbers=layout)


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


def _attend_to(is_causal: bool, q: Any, k: Any, v: Any) -> Any:
    """Attention to everything, or to what comes before."""
    return attend(q, k, v, jnp.tril(jnp.ones((q.shape[-2],) * 2, bool)) if is_causal else None)


def resnet(depth: int, w: Weights, x: Any, normalise: Any = batchnorm) -> Any:
    """ResNet-18 or 50."""
    is_basic, _, blocks = resnet_blocks(depth)
    x = jax.nn.relu(normalise(w, "bn1", conv2d(x, w["conv1.weight"], 2, 3)))
    x = max_pool(x, 3, 2, 1)
    for block in blocks:
        steps = block.convolutions(is_basic)
        y = x
        for i, (_, _, k, stride) in enumerate(steps, 1):
            y = conv2d(y, w[f"{block.name}.conv{i}.weight"], stride, k // 2)
            y = normalise(w, f"{block.name}.bn{i}", y)
            if i < len(steps):
                y = jax.nn.relu(y)
        if block.has_shortcut:
            x = conv2d(x, w[f"{block.name}.down.weight"], block.stride)
            x = normalise(w, f"{block.name}.down_bn", x)
        x = jax.nn.relu(y + x)
    return linear(w, "fc", x.mean((2, 3)))


def mobilenet(w: Weights, x: Any) -> Any:
    """A convolution of each channel by itself, then one of all channels."""

    def layer(name: str, x: Any, *options: int) -> Any:
        return jax.nn.relu6(batchnorm(w, f"{name}_bn", conv2d(x, w[f"{name}.weight"], *options)))

    x = layer("stem", x, 2, 1)
    for number, (cin, _, stride) in enumerate(MOBILE_BLOCKS):
        x = layer(f"blocks.{number}.deep", x, stride, 1, cin)
        x = layer(f"blocks.{number}.point", x)
    return linear(w, "fc", x.mean((2, 3)))


def unet(w: Weights, x: Any) -> Any:
    """Down by maxima, up by repetition, with what was there on the way down beside."""

    def pair(name: str, x: Any) -> Any:
        for part in "ab":
            at = f"{name}{part}"
            x = jax.nn.relu(conv2d(x, w[f"{at}.weight"], 1, 1) + _each(w[f"{at}.bias"]))
        return x

    kept = []
    last = len(UNET_WIDTHS) - 1
    for level in range(last):
        x = pair(f"down{level}", x)
        kept.append(x)
        x = max_pool(x, 2, 2)
    x = pair(f"down{last}", x)
    for level in reversed(range(last)):
        x = jnp.repeat(jnp.repeat(x, 2, 2), 2, 3)
        x = pair(f"up{level}", jnp.concatenate((x, kept[level]), 1))
    return conv2d(x, w["out.weight"]) + _each(w["out.bias"])


def lstm(w: Weights, x: Any) -> Any:
    """The outputs of all steps."""

    def step(state: Any, inner: Any) -> Any:
        hidden, memory = state
        gates = inner + hidden @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        enter, forget, cell, leave = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(cell)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros(x.shape[1:], x.dtype)
    return lax.scan(step, (start, start), x @ w["weight_ih_l0"].T + w["bias_ih_l0"])[1]


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


def gpt2_loss(sizes: dict[str, Any], w: Weights, tokens: Any, labels: Any) -> tuple[Any, Weights]:
    """The loss; there are no statistics."""
    x = w["tokens.weight"][tokens] + w["places.weight"][: tokens.shape[1]]
    for layer in range(sizes["layers"]):
        start = f"blocks.{layer}."
        own = {n.removeprefix(start): value for n, value in w.items() if n.startswith(start)}
        x = transformer_block(sizes["heads"], own, x)
    logits = (layernorm(x) * w["norm.weight"] + w["norm.bias"]) @ w["tokens.weight"].T
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -chosen.mean(), {}


def resnet_loss(depth: int, w: Weights, x: Any, y: Any) -> tuple[Any, Weights]:
    """The loss, and the statistics that it leaves behind."""
    statistics: Weights = {}

    def normalise(w: Weights, name: str, x: Any) -> Any:
        normal, new = batchnorm_train(w, name, x)
        statistics.update(new)
        return normal

    logits = resnet(depth, w, x, normalise)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
    return -chosen.mean(), statistics


def momentum_step(
    loss_of: Any, rate: float, momentum: float, state: Any, x: Any, y: Any
) -> tuple[Any, Any]:
    """One step of SGD."""
    w, m = state
    (loss, statistics), g = jax.value_and_grad(loss_of, has_aux=True)(w, x, y)
    m = {name: momentum * m[name] + g[name] for name in w}
    new = {name: value - rate * m[name] for name, value in w.items()}
    return (new | statistics, m), loss


def train_step(loss_of: Any, rate: float, state: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """One step of Adam."""
    w, m, v, t = state
    (loss, statistics), g = jax.value_and_grad(loss_of, has_aux=True)(w, x, y)
    t = t + 1
    m = {name: 0.9 * m[name] + 0.1 * g[name] for name in w}
    v = {name: 0.999 * v[name] + 0.001 * g[name] * g[name] for name in w}
    steps = {
        name: rate * (m[name] / (1 - 0.9**t)) / (jnp.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
        for name in w
    }
    new = {name: value - steps[name].astype(value.dtype) for name, value in w.items()}
    return (new | statistics, m, v, t), loss


def decode(
    sizes: dict[str, Any], w: Weights, caches: Any, cos: Any, sin: Any, position: Any, token: Any
) -> tuple[Any, Any]:
    """One token of a Llama with a cache of keys and values."""
    head, shared = sizes["head_width"], sizes["heads"] // sizes["key_heads"]

    def norm(name: str, x: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + sizes["eps"])
        return wide.astype(x.dtype) * w[name]

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
        k, v = (jnp.repeat(part, shared, 1) if shared > 1 else part for part in cache)
        seen = attend(rotate(q), k, v, mask)
        x = x + seen.swapaxes(1, 2).reshape(1, 1, -1) @ w[f"{p}wo.weight"].T
        h = norm(f"{p}norm2.weight", x)
        gated = jax.nn.silu(h @ w[f"{p}gate.weight"].T) * (h @ w[f"{p}up.weight"].T)
        x = x + gated @ w[f"{p}down.weight"].T
    return new, norm("norm.weight", x) @ w["out.weight"].T


def read(sizes: dict[str, Any], w: Weights, cos: Any, sin: Any, tokens: Any) -> Any:
    """What comes after a text that a Llama reads as a whole."""
    head, shared = sizes["head_width"], sizes["heads"] // sizes["key_heads"]
    length = tokens.shape[1]

    def norm(name: str, x: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + sizes["eps"])
        return wide.astype(x.dtype) * w[name]

    def rotate(x: Any) -> Any:
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    x = w["tok.weight"][tokens]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for i in range(sizes["layers"]):
        p = f"layers.{i}."
        h = norm(f"{p}norm1.weight", x)
        made = (h @ w[f"{p}{name}.weight"].T for name in ("wq", "wk", "wv"))
        q, k, v = (part.reshape(1, length, -1, head).swapaxes(1, 2) for part in made)
        k, v = jnp.repeat(rotate(k), shared, 1), jnp.repeat(v, shared, 1)
        seen = attend(rotate(q), k, v, mask)
        x = x + seen.swapaxes(1, 2).reshape(1, length, -1) @ w[f"{p}wo.weight"].T
        h = norm(f"{p}norm2.weight", x)
        gated = jax.nn.silu(h @ w[f"{p}gate.weight"].T) * (h @ w[f"{p}up.weight"].T)
        x = x + gated @ w[f"{p}down.weight"].T
    return norm("norm.weight", x[:, -1:]) @ w["out.weight"].T


def gelu_chain(x: Any) -> Any:
    """Ten elementwise ops."""
    return 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x * x * x))) * 1.1 + 0.1


def product(turned: str, a: Any, b: Any) -> Any:
    """a @ b, of which some are stored the other way round."""
    return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)


def as_float(result: Any) -> Any:
    """A result for NumPy, which has no bfloat16."""
    return np.asarray(result, dtype=np.float32)


def _training(case: Case, w: Weights, arguments: list[Any]) -> Callable[[], Any]:
    def zeros() -> Weights:
        return {name: jnp.zeros_like(value) for name, value in w.items()}

    sizes = case.sizes
    losses = {
        "mnist_train": mnist_loss,
        "gpt2_train": functools.partial(gpt2_loss, sizes),
        "resnet_train": functools.partial(resnet_loss, sizes.get("depth")),
    }
    update: Callable[..., Any] = functools.partial(train_step, losses[case.kind], sizes["rate"])
    state: list[Any] = [(w, zeros(), zeros(), jnp.float32(0))]
    if "momentum" in sizes:
        loss_of = losses[case.kind]
        update = functools.partial(momentum_step, loss_of, sizes["rate"], sizes["momentum"])
        state = [(w, zeros())]
    function = jax.jit(update, donate_argnums=0)

    def step() -> Any:
        state[0], loss = function(state[0], *arguments)
        jax.block_until_ready((state[0], loss))
        return loss

    return step


def _decoding(case: Case, w: Weights, arguments: list[Any]) -> Callable[[], Any]:
    arrays = ("cos", "sin", "cache")
    sizes = {name: value for name, value in case.sizes.items() if name not in arrays}
    function = jax.jit(functools.partial(decode, sizes), donate_argnums=1)
    caches = [[array(values, case.dtype) for values in case.sizes["cache"]]]
    cos, sin = (array(case.sizes[name], case.dtype) for name in ("cos", "sin"))
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
    arguments = [jnp.asarray(array(values, case.dtype)) for values in case.inputs]
    w = {name: array(value, case.dtype) for name, value in case.weights.items()}
    jax.block_until_ready((arguments, w))
    if case.kind in TRAINED:
        return _training(case, w, arguments), np.asarray, dict
    if case.kind == "decode":
        return _decoding(case, w, arguments), as_float, dict
    if case.kind == "dispatch":
        return _one_by_one(sizes["kernels"], arguments[0]), np.asarray, dict
    simple: dict[str, Callable[..., Any]] = {
        "matmul": functools.partial(product, sizes.get("turned", "")),
        "conv": lambda x, k: conv2d(x, k, 1, sizes["padding"]),
        "elementwise": gelu_chain,
        "sum": jnp.sum,
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layernorm": layernorm,
        "attention": functools.partial(_attend_to, sizes.get("causal", False)),
    }
    function: Callable[..., Any]
    if case.kind == "eager_op":
        function = lambda x: x + 0.001  # noqa: E731
    elif case.kind == "resnet":
        function = functools.partial(jax.jit(functools.partial(resnet, sizes["depth"])), w)
    elif case.kind == "llama":
        plain = {name: value for name, value in sizes.items() if name not in ("cos", "sin")}
        turns = [array(sizes[name], case.dtype) for name in ("cos", "sin")]
        function = functools.partial(jax.jit(functools.partial(read, plain)), w, *turns)
    elif case.kind in ("mobilenet", "unet", "lstm_net"):
        nets = {"mobilenet": mobilenet, "unet": unet, "lstm_net": lstm}
        function = functools.partial(jax.jit(nets[case.kind]), w)
    elif case.kind == "block":
        one = functools.partial(transformer_block, sizes["heads"])
        function = functools.partial(jax.jit(one), w)
    else:
        function = jax.jit(simple[case.kind])
    return lambda: jax.block_until_ready(function(*arguments)), as_float, dict
