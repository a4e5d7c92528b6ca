"""The workloads in PyTorch, op by op or through torch.compile.

In: a Case. Out: a step that runs, as `bench.frameworks.prepare` gives it.
Sits beside the other frameworks. Invariant: the same weights under the same names as everywhere.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.frameworks import Prepared
from bench.workloads import (
    MOBILE_BLOCKS,
    TRAINED,
    UNET_WIDTHS,
    Array,
    Case,
    ResidualBlock,
    resnet_blocks,
    unet_convolutions,
)

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))
# where tensors are: "cuda" where weft is measured on such a device
DEVICE = "cuda" if os.environ.get("BENCH_DEV", "").startswith("CUDA") else "cpu"


class Residual(nn.Module):
    """One block of a ResNet."""

    def __init__(self, block: ResidualBlock, is_basic: bool, expansion: int) -> None:
        super().__init__()
        self.steps = block.convolutions(is_basic)
        self.has_shortcut = block.has_shortcut
        for i, (cin, cout, k, stride) in enumerate(self.steps, 1):
            convolution = nn.Conv2d(cin, cout, k, stride=stride, padding=k // 2, bias=False)
            self.add_module(f"conv{i}", convolution)
            self.add_module(f"bn{i}", nn.BatchNorm2d(cout))
        if block.has_shortcut:
            wide, stride = block.planes * expansion, block.stride
            self.down = nn.Conv2d(block.channels, wide, 1, stride=stride, bias=False)
            self.down_bn = nn.BatchNorm2d(wide)

    def forward(self, x: Any) -> Any:
        y = x
        for i in range(1, len(self.steps) + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < len(self.steps):
                y = functional.relu(y)
        return functional.relu(y + (self.down_bn(self.down(x)) if self.has_shortcut else x))


class ResNet(nn.Module):
    """ResNet-18 or 50."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        is_basic, expansion, blocks = resnet_blocks(depth)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.blocks = nn.ModuleList(Residual(block, is_basic, expansion) for block in blocks)
        self.fc = nn.Linear(512 * expansion, 1000)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


class ResNetLoss(ResNet):
    """What is trained."""

    def forward(self, x: Any, y: Any) -> Any:
        return functional.cross_entropy(super().forward(x), y)


class TransformerBlock(nn.Module):
    """A transformer block that sees what came before."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        h = self.ln1(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (layer(h).reshape(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class MobileBlock(nn.Module):
    """A convolution of each channel by itself, then one of all channels."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)
        self.deep_bn = nn.BatchNorm2d(cin)
        self.point, self.point_bn = nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout)

    def forward(self, x: Any) -> Any:
        x = functional.relu6(self.deep_bn(self.deep(x)))
        return functional.relu6(self.point_bn(self.point(x)))


class MobileNet(nn.Module):
    """MobileNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
        self.stem_bn = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(*[MobileBlock(*sizes) for sizes in MOBILE_BLOCKS])
        self.fc = nn.Linear(1024, 1000)

    def forward(self, x: Any) -> Any:
        x = functional.relu6(self.stem_bn(self.stem(x)))
        return self.fc(self.blocks(x).mean((2, 3)))


class UNet(nn.Module):
    """Down by maxima, up by repetition, with what was there on the way down beside."""

    def __init__(self) -> None:
        super().__init__()
        for name, (cin, cout) in unet_convolutions().items():
            self.add_module(name, nn.Conv2d(cin, cout, 3, padding=1))
        self.out = nn.Conv2d(UNET_WIDTHS[0], 2, 1)

    def pair(self, name: str, x: Any) -> Any:
        for part in "ab":
            x = functional.relu(getattr(self, f"{name}{part}")(x))
        return x

    def forward(self, x: Any) -> Any:
        kept = []
        last = len(UNET_WIDTHS) - 1
        for level in range(last):
            x = self.pair(f"down{level}", x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.pair(f"down{last}", x)
        for level in reversed(range(last)):
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = self.pair(f"up{level}", torch.cat((x, kept[level]), 1))
        return self.out(x)


class Gpt2(nn.Module):
    """GPT-2: the output shares the table of tokens."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width = sizes["width"]
        self.tokens = nn.Embedding(sizes["vocabulary"], width)
        self.places = nn.Embedding(sizes["context"], width)
        layers = range(sizes["layers"])
        blocks = [TransformerBlock(width, sizes["heads"], 4 * width) for _ in layers]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Any, labels: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Mnist(nn.Module):
    """The convnet of the training step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 5),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5),
            nn.ReLU(),
            nn.BatchNorm2d(32),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.BatchNorm2d(64),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(576, 10),
        )

    def forward(self, x: Any, y: Any) -> Any:
        return functional.cross_entropy(self.layers(x), y)


class Llama(nn.Module):
    """A Llama that decodes one token with a cache of keys and values."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width, hidden, eps = sizes["width"], sizes["hidden"], sizes["eps"]
        self.head = sizes["head_width"]
        keys = sizes["key_heads"] * self.head
        self.tok, self.norm = nn.Embedding(sizes["vocabulary"], width), nn.RMSNorm(width, eps)
        self.out = nn.Linear(width, sizes["vocabulary"], bias=False)
        self.layers = nn.ModuleList()
        matrices = {"wq": (width, width), "wk": (width, keys), "wv": (width, keys)}
        matrices |= {"wo": (width, width), "gate": (width, hidden), "up": (width, hidden)}
        matrices |= {"down": (hidden, width)}
        for _ in range(sizes["layers"]):
            layer: Any = nn.Module()
            layer.norm1, layer.norm2 = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
            for name, (cin, cout) in matrices.items():
                layer.add_module(name, nn.Linear(cin, cout, bias=False))
            self.layers.append(layer)

    def forward(self, token: Any, position: int, caches: Any, cos: Any, sin: Any) -> Any:
        def rotate(x: Any) -> Any:
            a, b = x.chunk(2, dim=-1)
            c, s = cos[position], sin[position]
            return torch.cat((a * c - b * s, b * c + a * s), dim=-1)

        x = self.tok(token)
        for layer, cache in zip(self.layers, caches, strict=True):
            h = layer.norm1(x)
            made = (f(h) for f in (layer.wq, layer.wk, layer.wv))
            q, k, v = (part.reshape(1, 1, -1, self.head).transpose(1, 2) for part in made)
            cache[0, :, :, position : position + 1] = rotate(k)
            cache[1, :, :, position : position + 1] = v
            k, v = (cache[i, :, :, : position + 1] for i in range(2))
            grouped = q.shape[1] != k.shape[1]
            seen = functional.scaled_dot_product_attention(rotate(q), k, v, enable_gqa=grouped)
            x = x + layer.wo(seen.transpose(1, 2).reshape(1, 1, -1))
            h = layer.norm2(x)
            x = x + layer.down(functional.silu(layer.gate(h)) * layer.up(h))
        return self.out(self.norm(x))

    def read(self, tokens: Any, cos: Any, sin: Any) -> Any:
        """What comes after a text that is read as a whole."""

        def rotate(x: Any) -> Any:
            a, b = x.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

        length = tokens.shape[1]
        x = self.tok(tokens)
        for layer in self.layers:
            h = layer.norm1(x)
            made = (f(h) for f in (layer.wq, layer.wk, layer.wv))
            q, k, v = (part.reshape(1, length, -1, self.head).transpose(1, 2) for part in made)
            seen = functional.scaled_dot_product_attention(
                rotate(q), rotate(k), v, is_causal=True, enable_gqa=True
            )
            x = x + layer.wo(seen.transpose(1, 2).reshape(1, length, -1))
            h = layer.norm2(x)
            x = x + layer.down(functional.silu(layer.gate(h)) * layer.up(h))
        return self.out(self.norm(x[:, -1:]))


def tensor(array: Array, dtype: str = "float32") -> Any:
    """An array in memory; floats in the dtype of the case, of which halves may come as bits. With
    BENCH_WIDE=1 the same numbers in float32: what halves are compared with."""
    made = torch.from_numpy(array).to(DEVICE)
    if array.dtype == "uint16":
        made = made.view(getattr(torch, dtype))
    elif array.dtype == "float32":
        made = made.to(getattr(torch, dtype))
    else:
        return made
    return made.float() if os.environ.get("BENCH_WIDE") else made


def _net(model: Any, case: Case) -> Any:
    state = {name: tensor(value.copy(), case.dtype) for name, value in case.weights.items()}
    missing, extra = model.load_state_dict(state, strict=False, assign=case.dtype == "bfloat16")
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or extra:
        raise RuntimeError(f"weights and model disagree on {missing + extra}")
    return model.to(DEVICE)


def _gelu_chain(x: Any) -> Any:
    inner = torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + inner) * 1.1 + 0.1


def product(turned: str, a: Any, b: Any) -> Any:
    """a @ b, of which some are stored the other way round."""
    return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)


def _training(case: Case, through: Callable[..., Any]) -> Prepared:
    sizes = case.sizes
    makers: dict[str, Callable[[], Any]] = {
        "mnist_train": Mnist,
        "gpt2_train": lambda: Gpt2(sizes),
        "resnet_train": lambda: ResNetLoss(sizes["depth"]),
    }
    model = _net(makers[case.kind](), case).train()
    x, y = (tensor(array, case.dtype) for array in case.inputs)
    y = y.long()
    rule: Any = torch.optim.SGD if "momentum" in sizes else torch.optim.Adam
    options = {name: sizes[name] for name in ("momentum",) if name in sizes}
    optimizer = rule(model.parameters(), lr=sizes["rate"], fused=True, **options)
    loss_of = through(model)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return _waiting(step), lambda result: result.detach().float().cpu().numpy(), dict


def _waiting(step: Callable[[], Any]) -> Callable[[], Any]:
    """A step that is over when it returns."""
    if DEVICE == "cpu":
        return step

    def run() -> Any:
        result = step()
        torch.cuda.synchronize()
        return result

    return run


def _reading(case: Case, through: Callable[..., Any]) -> Callable[..., Any]:
    with torch.device("meta"):
        net = Llama(case.sizes)
    model = _net(net, case).eval()
    cos, sin = tensor(case.sizes["cos"], case.dtype), tensor(case.sizes["sin"], case.dtype)
    return through(lambda tokens: model.read(tokens, cos, sin))


def _decoding(case: Case, through: Callable[..., Any]) -> Callable[..., Any]:
    sizes = case.sizes
    with torch.device("meta" if case.dtype == "bfloat16" else "cpu"):
        net = Llama(sizes)
    model = through(_net(net, case).eval())
    caches = [tensor(array.copy(), case.dtype) for array in sizes["cache"]]
    cos, sin = tensor(sizes["cos"], case.dtype), tensor(sizes["sin"], case.dtype)
    return lambda token: model(token, sizes["position"], caches, cos, sin)


def _chain(kernels: int) -> Callable[..., Any]:
    def chain(x: Any) -> Any:
        for _ in range(kernels):
            x = x + 0.001
        return x

    return chain


def prepare(case: Case, is_compiled: bool) -> Prepared:
    """A step; torch.compile makes one kernel of `dispatch`, PyTorch itself runs op by op."""
    through: Callable[..., Any] = torch.compile if is_compiled else lambda f: f
    if case.kind in TRAINED:
        return _training(case, through)
    sizes = case.sizes
    arguments = [tensor(array, case.dtype) for array in case.inputs]
    simple: dict[str, Callable[..., Any]] = {
        "matmul": functools.partial(product, sizes.get("turned", "")),
        "conv": lambda x, w: functional.conv2d(x, w, padding=sizes["padding"]),
        "elementwise": _gelu_chain,
        "sum": torch.sum,
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "attention": functools.partial(
            functional.scaled_dot_product_attention, is_causal=sizes.get("causal", False)
        ),
        "eager_op": lambda x: x + 0.001,
    }
    function: Callable[..., Any]
    if case.kind in simple:
        function = through(simple[case.kind])
    elif case.kind == "resnet":
        function = through(_net(ResNet(sizes["depth"]), case).eval())
    elif case.kind in ("mobilenet", "unet"):
        net = MobileNet() if case.kind == "mobilenet" else UNet()
        function = through(_net(net, case).eval())
    elif case.kind == "lstm_net":
        layer = through(_net(nn.LSTM(sizes["width"], sizes["width"]), case).eval())
        function = lambda x: layer(x)[0]  # noqa: E731
    elif case.kind == "block":
        block = TransformerBlock(sizes["width"], sizes["heads"], sizes["hidden"])
        function = through(_net(block, case).eval())
    elif case.kind == "llama":
        function = _reading(case, through)
    elif case.kind == "dispatch":
        function = through(_chain(sizes["kernels"]))
    else:
        function = _decoding(case, through)

    def step() -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return _waiting(step), lambda result: result.float().cpu().numpy(), dict
