"""The workloads on weft, or on another module like tinygrad, chosen by the name to import.

In: a Case. Out: `lazy`: a function that builds the graph of one step and returns the Tensors to
realize, the result first; `prepare`: the same under TinyJit as a step that runs and waits.
Sits beside the other frameworks.
Invariant: only names that both modules have are used: Tensor, TinyJit, nn, Device, Variable,
Context, GlobalCounters.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from bench.frameworks import Prepared, check_device
from bench.workloads import (
    MOBILE_BLOCKS,
    TRAINED,
    UNET_WIDTHS,
    Array,
    Case,
    ResidualBlock,
    resnet_blocks,
    unet_convolutions,
    uniform,
)

Step = Callable[..., list[Any]]


def load(name: str) -> Any:
    """The module with what a net needs."""
    module: Any = importlib.import_module(name)
    module.nn = importlib.import_module(f"{name}.nn")
    for part in ("state", "optim"):
        importlib.import_module(f"{name}.nn.{part}")
    return module


def tensor(module: Any, array: Array, dtype: str = "float32") -> Any:
    """An array in memory; floats in the dtype of the case, of which halves may come as bits."""
    made = module.Tensor(array)
    if dtype != "float32" and array.dtype == "uint16":
        made = made.bitcast(getattr(module.dtypes, dtype))
    elif dtype != "float32" and array.dtype == "float32":
        made = made.cast(getattr(module.dtypes, dtype))
    return made.contiguous().realize()


def set_weights(module: Any, model: Any, weights: dict[str, Array], dtype: str = "float32") -> None:
    """Put the shared weights into a model; the names have to agree exactly."""
    state = module.nn.state.get_state_dict(model)
    own = {name for name in state if not name.endswith("num_batches_tracked")}
    differing = own ^ set(weights)
    if differing:
        raise RuntimeError(f"weights and model disagree on {sorted(differing)[:8]}")
    for name, value in weights.items():
        state[name].replace(tensor(module, value, dtype))
    module.Tensor.realize(*state.values())


# ------------------------------------------------------------ models
def make_resnet(module: Any, depth: int) -> Any:
    """ResNet-18 or 50."""
    nn = module.nn
    is_basic, expansion, blocks = resnet_blocks(depth)

    class Block:
        def __init__(self, block: ResidualBlock) -> None:
            self.steps = block.convolutions(is_basic)
            for i, (cin, cout, k, stride) in enumerate(self.steps, 1):
                convolution = nn.Conv2d(cin, cout, k, stride=stride, padding=k // 2, bias=False)
                setattr(self, f"conv{i}", convolution)
                setattr(self, f"bn{i}", nn.BatchNorm(cout))
            if block.has_shortcut:
                wide, stride = block.planes * expansion, block.stride
                self.down = nn.Conv2d(block.channels, wide, 1, stride=stride, bias=False)
                self.down_bn = nn.BatchNorm(wide)

        def __call__(self, x: Any) -> Any:
            y = x
            for i in range(1, len(self.steps) + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                if i < len(self.steps):
                    y = y.relu()
            shortcut = self.down_bn(self.down(x)) if hasattr(self, "down") else x
            return (y + shortcut).relu()

    class ResNet:
        def __init__(self) -> None:
            self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
            self.bn1 = nn.BatchNorm(64)
            self.blocks = [Block(block) for block in blocks]
            self.fc = nn.Linear(512 * expansion, 1000)

        def __call__(self, x: Any) -> Any:
            x = self.bn1(self.conv1(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
            return self.fc(x.sequential(self.blocks).mean((2, 3)))

    return ResNet()


def make_block(module: Any, width: int, heads: int, hidden: int) -> Any:
    """A transformer block that sees what came before."""
    nn = module.nn

    class Block:
        def __init__(self) -> None:
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

        def __call__(self, x: Any) -> Any:
            batch, length, _ = x.shape
            h = self.ln1(x)
            shape = (batch, length, heads, width // heads)
            parts = [layer(h).reshape(*shape).transpose(1, 2) for layer in (self.q, self.k, self.v)]
            seen = parts[0].scaled_dot_product_attention(parts[1], parts[2], is_causal=True)
            x = x + self.o(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(self.up(self.ln2(x)).gelu())

    return Block()


def make_gpt2(module: Any, sizes: dict[str, Any]) -> Any:
    """GPT-2 small: the output shares the table of tokens."""
    nn = module.nn
    width = sizes["width"]

    class GPT2:
        def __init__(self) -> None:
            self.tokens = nn.Embedding(sizes["vocabulary"], width)
            self.places = nn.Embedding(sizes["context"], width)
            layers = range(sizes["layers"])
            self.blocks = [make_block(module, width, sizes["heads"], 4 * width) for _ in layers]
            self.norm = nn.LayerNorm(width)

        def __call__(self, tokens: Any) -> Any:
            places = module.Tensor.arange(tokens.shape[1])
            x = self.tokens(tokens) + self.places(places)
            return self.norm(x.sequential(self.blocks)) @ self.tokens.weight.T

    return GPT2()


def make_mnist(module: Any) -> Any:
    """The convnet that tinygrad's tutorial trains on MNIST."""
    nn, tensor = module.nn, module.Tensor

    class Model:
        def __init__(self) -> None:
            self.layers = [
                nn.Conv2d(1, 32, 5),
                tensor.relu,
                nn.Conv2d(32, 32, 5),
                tensor.relu,
                nn.BatchNorm(32),
                tensor.max_pool2d,
                nn.Conv2d(32, 64, 3),
                tensor.relu,
                nn.Conv2d(64, 64, 3),
                tensor.relu,
                nn.BatchNorm(64),
                tensor.max_pool2d,
                lambda x: x.flatten(1),
                nn.Linear(576, 10),
            ]

        def __call__(self, x: Any) -> Any:
            return x.sequential(self.layers)

    return Model()


def make_mobilenet(module: Any) -> Any:
    """MobileNet: a convolution of each channel by itself, then one of all channels."""
    nn = module.nn

    class Block:
        def __init__(self, cin: int, cout: int, stride: int) -> None:
            options = {"stride": stride, "padding": 1, "groups": cin, "bias": False}
            self.deep, self.deep_bn = nn.Conv2d(cin, cin, 3, **options), nn.BatchNorm(cin)
            self.point, self.point_bn = nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm(cout)

        def __call__(self, x: Any) -> Any:
            x = self.deep_bn(self.deep(x)).relu6()
            return self.point_bn(self.point(x)).relu6()

    class MobileNet:
        def __init__(self) -> None:
            self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
            self.stem_bn = nn.BatchNorm(32)
            self.blocks = [Block(*sizes) for sizes in MOBILE_BLOCKS]
            self.fc = nn.Linear(1024, 1000)

        def __call__(self, x: Any) -> Any:
            x = self.stem_bn(self.stem(x)).relu6()
            return self.fc(x.sequential(self.blocks).mean((2, 3)))

    return MobileNet()


def make_unet(module: Any) -> Any:
    """A U-Net: down by maxima, up by repetition, with what was there on the way down beside."""
    nn = module.nn

    class UNet:
        def __init__(self) -> None:
            for name, (cin, cout) in unet_convolutions().items():
                setattr(self, name, nn.Conv2d(cin, cout, 3, padding=1))
            self.out = nn.Conv2d(UNET_WIDTHS[0], 2, 1)

        def pair(self, name: str, x: Any) -> Any:
            for part in "ab":
                x = getattr(self, f"{name}{part}")(x).relu()
            return x

        def __call__(self, x: Any) -> Any:
            kept = []
            last = len(UNET_WIDTHS) - 1
            for level in range(last):
                x = self.pair(f"down{level}", x)
                kept.append(x)
                x = x.max_pool2d((2, 2))
            x = self.pair(f"down{last}", x)
            for level in reversed(range(last)):
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
                x = self.pair(f"up{level}", x.cat(kept[level], dim=1))
            return self.out(x)

    return UNet()


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary places."""
    a, b = x.chunk(2, dim=-1)
    return (a * cos - b * sin).cat(b * cos + a * sin, dim=-1)


def make_llama(module: Any, sizes: dict[str, Any]) -> Any:
    """A Llama that decodes one token with a cache of keys and values."""
    nn = module.nn
    width, head, hidden = sizes["width"], sizes["head_width"], sizes["hidden"]
    keys = sizes["key_heads"] * head

    def plain(cin: int, cout: int) -> Any:
        return nn.Linear(cin, cout, bias=False)

    class Layer:
        def __init__(self) -> None:
            self.norm1, self.norm2 = (nn.RMSNorm(width, sizes["eps"]) for _ in range(2))
            self.wq, self.wk = plain(width, width), plain(width, keys)
            self.wv, self.wo = plain(width, keys), plain(width, width)
            self.gate, self.up = plain(width, hidden), plain(width, hidden)
            self.down = plain(hidden, width)

        def __call__(self, x: Any, cache: Any, position: Any, cos: Any, sin: Any) -> Any:
            h = self.norm1(x)
            layers = (self.wq, self.wk, self.wv)
            q, k, v = (layer(h).reshape(1, 1, -1, head).transpose(1, 2) for layer in layers)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            cache[:, :, :, position : position + 1, :].assign(k.stack(v)).realize()
            k, v = (cache[i, :, :, 0 : position + 1, :] for i in range(2))
            grouped = {"enable_gqa": True} if sizes["heads"] != sizes["key_heads"] else {}
            seen = q.scaled_dot_product_attention(k, v, **grouped)
            x = x + self.wo(seen.transpose(1, 2).reshape(1, 1, -1))
            h = self.norm2(x)
            return (x + self.down(self.gate(h).silu() * self.up(h))).contiguous()

    class Llama:
        def __init__(self) -> None:
            self.tok = nn.Embedding(sizes["vocabulary"], width)
            self.norm = nn.RMSNorm(width, sizes["eps"])
            self.layers = [Layer() for _ in range(sizes["layers"])]
            self.out = plain(width, sizes["vocabulary"])

    return Llama()


# ------------------------------------------------------------ one lazy step for each kind
def gelu_chain(x: Any) -> Any:
    """Ten elementwise ops."""
    return 0.5 * x * (1 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh()) * 1.1 + 0.1


def product(a: Any, b: Any, turned: str) -> Any:
    """a @ b, of which some are stored the other way round."""
    return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)


def lazy(module: Any, case: Case) -> tuple[Step, list[Any]]:
    """A function and its arguments; inputs and weights are in memory already."""
    arguments = [tensor(module, array, case.dtype) for array in case.inputs]
    # numbers, not the case: TinyJit compares at every call whatever a step can reach, arrays too
    turned, padding = case.sizes.get("turned", ""), case.sizes.get("padding", 0)
    is_causal = case.sizes.get("causal", False)
    simple: dict[str, Step] = {
        "matmul": lambda a, b: [product(a, b, turned)],
        "conv": lambda x, w: [x.conv2d(w, padding=padding)],
        "elementwise": lambda x: [gelu_chain(x)],
        "sum": lambda x: [x.sum()],
        "softmax": lambda x: [x.softmax(-1)],
        "layernorm": lambda x: [x.layernorm()],
        "attention": lambda q, k, v: [q.scaled_dot_product_attention(k, v, is_causal=is_causal)],
        "eager_op": lambda x: [x + 0.001],
    }
    if case.kind in simple:
        return simple[case.kind], arguments
    if case.kind == "dispatch":
        return _chain(case.sizes["kernels"]), arguments
    if case.kind in TRAINED:
        return _training(module, case), arguments
    if case.kind == "lstm_net":
        layer = module.nn.LSTM(case.sizes["width"], case.sizes["width"])
        set_weights(module, layer, case.weights)
        return lambda x: [layer(x)[0]], arguments
    if case.kind == "quantised":
        return _quantised(module, case), arguments
    if case.kind == "lstm":
        return _recurrence(module, case), arguments
    if case.kind == "decode":
        position = module.Variable("position", 1, case.sizes["context"] - 1)
        return _decoding(module, case), [*arguments, position.bind(case.sizes["position"])]
    sizes = case.sizes
    makers: dict[str, Callable[[], Any]] = {
        "resnet": lambda: make_resnet(module, sizes["depth"]),
        "mobilenet": lambda: make_mobilenet(module),
        "unet": lambda: make_unet(module),
        "gpt2": lambda: make_gpt2(module, sizes),
        "llama": lambda: _reading(module, case),
        "block": lambda: make_block(module, sizes["width"], sizes["heads"], sizes["hidden"]),
    }
    model = makers[case.kind]()
    if case.kind == "llama":
        return lambda tokens: [model(tokens)], arguments
    set_weights(module, model, case.weights, case.dtype)
    return lambda x: [model(x)], arguments


def _quantised(module: Any, case: Case) -> Step:
    """A product with weights that are unpacked on the way: only weft reads these formats."""
    name, rows = case.sizes["format"], case.sizes["rows"]
    if name == "int8":
        scale = tensor(module, uniform("scale", 0.5, 1.0, rows))
        return lambda x, w: [(x @ w.bitcast(module.dtypes.int8).float().T) * scale]
    formats = importlib.import_module(f"{module.__name__}.nn.formats.dequantise").FORMATS
    layout = next(found for found in formats.values() if found.name == name)
    laid_out = importlib.import_module(f"{module.__name__}.nn.formats.relayout").laid_out
    # as a file's weights are loaded
    weights = laid_out(tensor(module, case.inputs[1]), layout, rows).reshape(rows, -1)
    return lambda x, w: [x @ weights.T]


def _chain(kernels: int) -> Step:
    def chain(x: Any) -> list[Any]:
        for _ in range(kernels):
            x = (x + 0.001).contiguous()
        return [x]

    return chain


def _training(module: Any, case: Case) -> Step:
    sizes, optim = case.sizes, module.nn.optim
    makers: dict[str, Callable[[], Any]] = {
        "mnist_train": lambda: make_mnist(module),
        "gpt2_train": lambda: make_gpt2(module, sizes),
        "resnet_train": lambda: make_resnet(module, sizes["depth"]),
    }
    model = makers[case.kind]()
    set_weights(module, model, case.weights, case.dtype)
    parameters = module.nn.state.get_parameters(model)
    if "momentum" in sizes:
        optimizer = optim.SGD(parameters, lr=sizes["rate"], momentum=sizes["momentum"])
    else:
        optimizer = optim.Adam(parameters, lr=sizes["rate"])

    def step(x: Any, y: Any) -> list[Any]:
        with module.Context(TRAINING=1):
            optimizer.zero_grad()
            loss = model(x).sparse_categorical_crossentropy(y).backward()
            return [loss, *optimizer.schedule_step()]

    return step


def _recurrence(module: Any, case: Case) -> Step:
    cell = module.nn.LSTMCell(case.sizes["width"], case.sizes["width"])
    set_weights(module, cell, case.weights)
    steps = case.sizes["steps"]

    def step(x: Any) -> list[Any]:
        state = None
        for i in range(steps):
            state = cell(x[i], state)
        return list(state or ())

    return step


def _decoding(module: Any, case: Case) -> Step:
    model = make_llama(module, {k: v for k, v in case.sizes.items() if isinstance(v, int | float)})
    set_weights(module, model, case.weights, case.dtype)
    caches = [tensor(module, array, case.dtype) for array in case.sizes["cache"]]
    cos, sin = (tensor(module, case.sizes[name], case.dtype) for name in ("cos", "sin"))

    def step(token: Any, position: Any) -> list[Any]:
        x = model.tok(token)
        here = [table[position : position + 1] for table in (cos, sin)]
        for layer, cache in zip(model.layers, caches, strict=True):
            x = layer(x, cache, position, *here)
        return [model.out(model.norm(x))]

    return step


def _reading(module: Any, case: Case) -> Callable[[Any], Any]:
    """A Llama that reads a text as a whole and says what comes after it."""
    model, sizes = make_llama(module, case.sizes), case.sizes
    set_weights(module, model, case.weights, case.dtype)
    cos, sin = (tensor(module, sizes[name], case.dtype) for name in ("cos", "sin"))
    head = sizes["head_width"]

    def read(tokens: Any) -> Any:
        length = tokens.shape[1]
        x = model.tok(tokens)
        for layer in model.layers:
            h = layer.norm1(x)
            made = (project(h) for project in (layer.wq, layer.wk, layer.wv))
            q, k, v = (part.reshape(1, length, -1, head).transpose(1, 2) for part in made)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            seen = q.scaled_dot_product_attention(k, v, is_causal=True, enable_gqa=True)
            x = x + layer.wo(seen.transpose(1, 2).reshape(1, length, -1))
            h = layer.norm2(x)
            x = x + layer.down(layer.gate(h).silu() * layer.up(h))
        return model.out(model.norm(x[:, -1:]))

    return read


def realize(tensors: Sequence[Any]) -> Any:
    """Compute all of them; the first."""
    return tensors[0].realize(*tensors[1:])


def prepare(name: str, case: Case) -> Prepared:
    """A step that runs and waits; a few calls warm TinyJit up."""
    module = load(name)
    function, arguments = lazy(module, case)

    def run(*values: Any) -> Any:
        return realize(function(*values))

    called = run if case.kind == "eager_op" else module.TinyJit(run)
    device = module.Device[module.Device.DEFAULT]

    def step() -> Any:
        result = called(*arguments)
        device.synchronize()
        return result

    def facts() -> dict[str, Any]:
        module.GlobalCounters.reset()
        step()
        kernels = module.GlobalCounters.kernel_count
        return {"kernels": kernels, "device": check_device(module)}

    return step, lambda result: result.float().numpy(), facts
