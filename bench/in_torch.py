"""The workloads in PyTorch, op by op or through torch.compile.

In: a Case. Out: a step that runs, as `bench.frameworks.prepare` gives it.
Sits beside the other frameworks. Invariant: the same weights under the same names as everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.frameworks import Prepared
from bench.workloads import Case, ResidualBlock, resnet_blocks

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))


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
            seen = functional.scaled_dot_product_attention(rotate(q), k, v)
            x = x + layer.wo(seen.transpose(1, 2).reshape(1, 1, -1))
            h = layer.norm2(x)
            x = x + layer.down(functional.silu(layer.gate(h)) * layer.up(h))
        return self.out(self.norm(x))


def _net(model: Any, case: Case) -> Any:
    state = {name: torch.from_numpy(value.copy()) for name, value in case.weights.items()}
    missing, extra = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or extra:
        raise RuntimeError(f"weights and model disagree on {missing + extra}")
    return model


def _gelu_chain(x: Any) -> Any:
    inner = torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + inner) * 1.1 + 0.1


def _training(case: Case, through: Callable[..., Any]) -> Prepared:
    model = _net(Mnist(), case).train()
    x, y = (torch.from_numpy(array) for array in case.inputs)
    y = y.long()
    optimizer = torch.optim.Adam(model.parameters(), lr=case.sizes["rate"], fused=True)
    loss_of = through(model)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda result: result.detach().numpy(), dict


def _decoding(case: Case, through: Callable[..., Any]) -> Callable[..., Any]:
    sizes = case.sizes
    model = through(_net(Llama(sizes), case).eval())
    caches = [torch.from_numpy(array.copy()) for array in sizes["cache"]]
    cos, sin = torch.from_numpy(sizes["cos"]), torch.from_numpy(sizes["sin"])
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
    if case.kind == "mnist_train":
        return _training(case, through)
    sizes = case.sizes
    arguments = [torch.from_numpy(array) for array in case.inputs]
    simple: dict[str, Callable[..., Any]] = {
        "matmul": torch.matmul,
        "conv": lambda x, w: functional.conv2d(x, w, padding=sizes["padding"]),
        "elementwise": _gelu_chain,
        "sum": torch.sum,
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "attention": functional.scaled_dot_product_attention,
        "eager_op": lambda x: x + 0.001,
    }
    function: Callable[..., Any]
    if case.kind in simple:
        function = through(simple[case.kind])
    elif case.kind == "resnet":
        function = through(_net(ResNet(sizes["depth"]), case).eval())
    elif case.kind == "block":
        block = TransformerBlock(sizes["width"], sizes["heads"], sizes["hidden"])
        function = through(_net(block, case).eval())
    elif case.kind == "dispatch":
        function = through(_chain(sizes["kernels"]))
    else:
        function = _decoding(case, through)

    def step() -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return step, lambda result: result.numpy(), dict
