"""The workloads: names, sizes, inputs and weights, shared by every framework.

In: a name. Out: a `Case`: NumPy arrays from a seed, and what the result of a step is measured by.
Sits under the frameworks of this folder, which turn a Case into something that runs.
Invariant: nothing here imports a framework, and the same name always gives the same numbers.
All arrays are float32; token ids and labels are int32.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]


@dataclass
class Case:
    """One workload. `operations` and `traffic` of a step are 0 where they mean nothing."""

    kind: str  # which implementation of a framework handles it
    sizes: dict[str, Any]
    inputs: list[Array]  # positional inputs of one step
    weights: dict[str, Array] = field(default_factory=dict)
    operations: float = 0.0  # useful floating point operations
    traffic: float = 0.0  # bytes that have to be moved
    name: str = ""
    dtype: str = "float32"  # that inputs and weights are kept in; bfloat16 weights come as bits


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on the name alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(name: str, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    return generator(name).standard_normal(shape, dtype=np.float32) * np.float32(scale)


def uniform(name: str, low: float, high: float, *shape: int) -> Array:
    """Numbers between low and high."""
    drawn = generator(name).random(shape, dtype=np.float32)
    return drawn * np.float32(high - low) + np.float32(low)


# ------------------------------------------------------------ weights of the nets
def fill(shapes: Shapes) -> dict[str, Array]:
    """Random weights; the end of a name says how they are distributed."""
    filled: dict[str, Array] = {}
    for name, shape in shapes.items():
        if name.endswith("running_var"):
            filled[name] = uniform(name, 0.5, 1.5, *shape)
        elif name.endswith("running_mean") or "bias" in name:
            filled[name] = normal(name, *shape, scale=0.1)
        elif len(shape) == 1:
            # scales of normalisations
            filled[name] = uniform(name, 0.5, 1.0, *shape)
        else:
            filled[name] = normal(name, *shape, scale=float(np.prod(shape[1:])) ** -0.5)
    return filled


def _batchnorm(name: str, channels: int) -> Shapes:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{part}": (channels,) for part in parts}


@dataclass(frozen=True)
class ResidualBlock:
    """One block of a ResNet."""

    name: str
    channels: int
    planes: int
    stride: int
    has_shortcut: bool  # a convolution beside it, where the shapes differ

    def convolutions(self, is_basic: bool) -> list[tuple[int, int, int, int]]:
        """(channels in, channels out, kernel size, stride) of each."""
        if is_basic:
            return [
                (self.channels, self.planes, 3, self.stride),
                (self.planes, self.planes, 3, 1),
            ]
        return [
            (self.channels, self.planes, 1, 1),
            (self.planes, self.planes, 3, self.stride),
            (self.planes, self.planes * 4, 1, 1),
        ]


_RESNETS = {18: (True, (2, 2, 2, 2)), 50: (False, (3, 4, 6, 3))}


def resnet_blocks(depth: int) -> tuple[bool, int, list[ResidualBlock]]:
    """Whether its blocks are basic ones, how much wider they come out, and the blocks."""
    is_basic, counts = _RESNETS[depth]
    expansion = 1 if is_basic else 4
    channels = 64
    blocks: list[ResidualBlock] = []
    for stage, count in enumerate(counts):
        planes = 64 * 2**stage
        for position in range(count):
            stride = 2 if position == 0 and stage > 0 else 1
            differs = stride != 1 or channels != planes * expansion
            name = f"blocks.{len(blocks)}"
            blocks.append(ResidualBlock(name, channels, planes, stride, differs))
            channels = planes * expansion
    return is_basic, expansion, blocks


def _resnet_shapes(depth: int) -> Shapes:
    is_basic, expansion, blocks = resnet_blocks(depth)
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **_batchnorm("bn1", 64)}
    for block in blocks:
        for number, (cin, cout, k, _) in enumerate(block.convolutions(is_basic), 1):
            shapes[f"{block.name}.conv{number}.weight"] = (cout, cin, k, k)
            shapes |= _batchnorm(f"{block.name}.bn{number}", cout)
        if block.has_shortcut:
            wide = block.planes * expansion
            shapes[f"{block.name}.down.weight"] = (wide, block.channels, 1, 1)
            shapes |= _batchnorm(f"{block.name}.down_bn", wide)
    return shapes | {"fc.weight": (1000, 512 * expansion), "fc.bias": (1000,)}


def _block_shapes(width: int, hidden: int, prefix: str = "") -> Shapes:
    shapes: Shapes = {}
    for name in ("ln1", "ln2"):
        shapes |= {f"{prefix}{name}.weight": (width,), f"{prefix}{name}.bias": (width,)}
    sizes = dict.fromkeys("qkvo", (width, width))
    sizes |= {"up": (hidden, width), "down": (width, hidden)}
    for name, (rows, columns) in sizes.items():
        shapes[f"{prefix}{name}.weight"] = (rows, columns)
        shapes[f"{prefix}{name}.bias"] = (rows,)
    return shapes


def _gpt2_shapes(sizes: dict[str, Any]) -> Shapes:
    width = sizes["width"]
    shapes: Shapes = {
        "tokens.weight": (sizes["vocabulary"], width),
        "places.weight": (sizes["context"], width),
    }
    for layer in range(sizes["layers"]):
        shapes |= _block_shapes(width, 4 * width, f"blocks.{layer}.")
    return shapes | {"norm.weight": (width,), "norm.bias": (width,)}


def _llama_shapes(sizes: dict[str, Any]) -> Shapes:
    width, hidden = sizes["width"], sizes["hidden"]
    keys = sizes["key_heads"] * sizes["head_width"]
    shapes: Shapes = {
        "tok.weight": (sizes["vocabulary"], width),
        "norm.weight": (width,),
        "out.weight": (sizes["vocabulary"], width),
    }
    matrices = {"wq": (width, width), "wk": (keys, width), "wv": (keys, width)}
    matrices |= {"wo": (width, width), "gate": (hidden, width), "up": (hidden, width)}
    matrices |= {"down": (width, hidden)}
    for layer in range(sizes["layers"]):
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"layers.{layer}.norm{i}.weight": (width,) for i in (1, 2)}
    return shapes


def _mnist_shapes() -> Shapes:
    shapes: Shapes = {}
    for layer, shape in ((0, (32, 1, 5, 5)), (2, (32, 32, 5, 5))):
        shapes |= {f"layers.{layer}.weight": shape, f"layers.{layer}.bias": shape[:1]}
    shapes |= _batchnorm("layers.4", 32)
    for layer, shape in ((6, (64, 32, 3, 3)), (8, (64, 64, 3, 3))):
        shapes |= {f"layers.{layer}.weight": shape, f"layers.{layer}.bias": shape[:1]}
    shapes |= _batchnorm("layers.10", 64)
    return shapes | {"layers.13.weight": (10, 576), "layers.13.bias": (10,)}


# ------------------------------------------------------------ the cases
# a step of these computes a loss, its gradients, and new weights
TRAINED = ("mnist_train", "gpt2_train", "resnet_train")
CONVOLUTIONS = {
    "small": (1, 3, 16, 32, 3),
    "medium": (8, 16, 32, 64, 3),
    "large": (16, 32, 64, 128, 3),
    "nonwino": (8, 16, 32, 64, 5),
}


def _matmul(size: int, columns: int) -> Case:
    right = normal("b", size, size) if columns > 1 else normal("v", size, 1)
    operations = 2.0 * size * size * columns
    traffic = 4.0 * size * (size + (2 * columns if columns > 1 else 0))
    return Case("matmul", {}, [normal("a", size, size), right], {}, operations, traffic)


def _product(rows: int, inner: int, columns: int, turned: str = "", dtype: str = "float32") -> Case:
    """a @ b; what is turned is stored the other way round, as the weights of a layer are."""
    left = normal("a", *((inner, rows) if "a" in turned else (rows, inner)))
    right = normal("b", *((columns, inner) if "b" in turned else (inner, columns)))
    operations = 2.0 * rows * inner * columns
    itemsize = 4.0 if dtype == "float32" else 2.0
    traffic = itemsize * (left.size + right.size + rows * columns)
    case = Case("matmul", {"turned": turned}, [left, right], {}, operations, traffic)
    case.dtype = dtype
    return case


def _quantised(name: str, rows: int, columns: int, batch: int = 1) -> Case:
    """Vectors and a matrix in a block format of GGUF, or int8 with a scale a row."""
    count, nbytes = {
        "Q4_0": (32, 18),
        "Q8_0": (32, 34),
        "Q4_K": (256, 144),
        "Q6_K": (256, 210),
    }.get(name, (columns, columns))
    blocks = generator(name).integers(0, 100, (rows * columns // count, nbytes)).astype(np.uint8)
    inputs = [normal("x", batch, columns), blocks]
    sizes = {"format": name, "rows": rows}
    operations = 2.0 * batch * rows * columns
    return Case("quantised", sizes, inputs, {}, operations, float(blocks.size))


def _convolution(which: str) -> Case:
    batch, cin, cout, side, k = CONVOLUTIONS[which]
    x = normal("x", batch, cin, side, side)
    w = normal("w", cout, cin, k, k, scale=(cin * k * k) ** -0.5)
    out = batch * cout * side * side
    # of the direct algorithm, with "same" padding
    operations = 2.0 * out * cin * k * k
    return Case("conv", {"padding": k // 2}, [x, w], {}, operations, 4.0 * (x.size + w.size + out))


def _one_input(kind: str, *shape: int, passes: int = 2) -> Case:
    x = uniform("x", 0, 1, *shape) if kind == "sum" else normal("x", *shape)
    return Case(kind, {}, [x], {}, 0.0, 4.0 * x.size * passes)


def _attention(heads: int, length: int, width: int, is_causal: bool = False) -> Case:
    """What is causal needs half of the work."""
    inputs = [normal(name, 1, heads, length, width) for name in "qkv"]
    work = (2.0 if is_causal else 4.0) * heads * length * length * width
    return Case("attention", {"causal": is_causal}, inputs, {}, work)


def _block(width: int, length: int, heads: int) -> Case:
    weights = fill(_block_shapes(width, 4 * width))
    matrices = sum(w.size for w in weights.values() if w.ndim == 2)
    operations = 2.0 * length * matrices + 4.0 * length * length * width
    sizes = {"width": width, "heads": heads, "hidden": 4 * width}
    return Case("block", sizes, [normal("x", 1, length, width)], weights, operations)


def _resnet(depth: int) -> Case:
    weights = fill(_resnet_shapes(depth))
    operations = {18: 3.63e9, 50: 8.18e9}[depth]
    return Case("resnet", {"depth": depth}, [normal("img", 1, 3, 224, 224)], weights, operations)


def _resnet_train(depth: int, batch: int) -> Case:
    """A step of SGD with momentum; every normalisation takes the statistics of the batch."""
    images = normal("img", batch, 3, 224, 224)
    labels = generator("y").integers(0, 1000, batch).astype(np.int32)
    sizes = {"depth": depth, "rate": 1e-3, "momentum": 0.9}
    weights = fill(_resnet_shapes(depth))
    operations = 3.0 * batch * {18: 3.63e9, 50: 8.18e9}[depth]
    return Case("resnet_train", sizes, [images, labels], weights, operations)


MOBILE_BLOCKS = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
MOBILE_BLOCKS += [(256, 512, 2), *[(512, 512, 1)] * 5, (512, 1024, 2), (1024, 1024, 1)]
UNET_WIDTHS = (32, 64, 128, 256)


def _mobilenet_shapes() -> Shapes:
    shapes: Shapes = {"stem.weight": (32, 3, 3, 3), **_batchnorm("stem_bn", 32)}
    for number, (cin, cout, _) in enumerate(MOBILE_BLOCKS):
        name = f"blocks.{number}"
        shapes |= {f"{name}.deep.weight": (cin, 1, 3, 3), **_batchnorm(f"{name}.deep_bn", cin)}
        shapes |= {
            f"{name}.point.weight": (cout, cin, 1, 1),
            **_batchnorm(f"{name}.point_bn", cout),
        }
    return shapes | {"fc.weight": (1000, 1024), "fc.bias": (1000,)}


def unet_convolutions() -> dict[str, tuple[int, int]]:
    """(channels in, channels out) of each, by name: down, bottom, up, with what was kept beside."""
    found: dict[str, tuple[int, int]] = {}
    channels = 3
    for level, width in enumerate(UNET_WIDTHS):
        found |= {f"down{level}a": (channels, width), f"down{level}b": (width, width)}
        channels = width
    for level in reversed(range(len(UNET_WIDTHS) - 1)):
        width = UNET_WIDTHS[level]
        found |= {f"up{level}a": (channels + width, width), f"up{level}b": (width, width)}
        channels = width
    return found


def _unet() -> Case:
    side = 128
    shapes: Shapes = {"out.weight": (2, UNET_WIDTHS[0], 1, 1), "out.bias": (2,)}
    operations = 2.0 * 2 * UNET_WIDTHS[0] * side * side
    for name, (cin, cout) in unet_convolutions().items():
        shapes |= {f"{name}.weight": (cout, cin, 3, 3), f"{name}.bias": (cout,)}
        pixels = (side >> int(name[-2])) ** 2
        operations += 2.0 * 9 * cin * cout * pixels
    return Case("unet", {}, [normal("img", 1, 3, side, side)], fill(shapes), operations)


def _mobilenet() -> Case:
    image = normal("img", 1, 3, 224, 224)
    return Case("mobilenet", {}, [image], fill(_mobilenet_shapes()), 1.14e9)


def _mnist(batch: int) -> Case:
    x = uniform("x", 0, 1, batch, 1, 28, 28)
    y = generator("y").integers(0, 10, batch).astype(np.int32)
    return Case("mnist_train", {"rate": 1e-3}, [x, y], fill(_mnist_shapes()))


def _gpt2(length: int, layers: int = 0) -> Case:
    sizes = {"width": 768, "heads": 12, "vocabulary": 50257, "context": 1024}
    sizes["layers"] = layers or 12
    tokens = generator("tokens").integers(0, 50257, (1, length)).astype(np.int32)
    return Case("gpt2", sizes, [tokens], fill(_gpt2_shapes(sizes)))


def _gpt2_train(batch: int, length: int, layers: int = 0) -> Case:
    case = _gpt2(length, layers)
    tokens = generator("tokens").integers(0, 50257, (batch, length + 1)).astype(np.int32)
    case.kind, case.inputs = "gpt2_train", [tokens[:, :-1].copy(), tokens[:, 1:].copy()]
    case.sizes["rate"] = 1e-4
    matrices = sum(w.size for name, w in case.weights.items() if not name.startswith("places"))
    case.operations = 6.0 * batch * length * matrices
    return case


def _lstm_net(steps: int, batch: int, width: int) -> Case:
    """A layer of an LSTM over a sequence."""
    shapes: Shapes = {f"weight_{part}_l0": (4 * width, width) for part in ("ih", "hh")}
    shapes |= {f"bias_{part}_l0": (4 * width,) for part in ("ih", "hh")}
    sizes = {"width": width, "steps": steps}
    operations = 2.0 * steps * batch * 8 * width * width
    return Case("lstm_net", sizes, [normal("x", steps, batch, width)], fill(shapes), operations)


def lstm(steps: int) -> Case:
    """An LSTM that is unrolled: as many steps as one likes."""
    width = 32
    shapes: Shapes = {
        "weight_ih": (4 * width, width),
        "weight_hh": (4 * width, width),
        "bias_ih": (4 * width,),
        "bias_hh": (4 * width,),
    }
    sizes = {"width": width, "steps": steps}
    return Case("lstm", sizes, [normal("x", steps, 1, width)], fill(shapes))


def halves(array: Array) -> Array:
    """The bits of the nearest bfloat16 of each number."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _fill_halves(shapes: Shapes) -> dict[str, Array]:
    """Weights as bits of bfloat16; large ones repeat the same numbers, for those take long."""
    drawn = normal("halves", 1 << 22)
    filled: dict[str, Array] = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            filled[name] = halves(uniform(name, 0.5, 1.0, *shape))
        else:
            scaled = halves(drawn * np.float32(float(np.prod(shape[1:])) ** -0.5))
            filled[name] = np.resize(scaled, shape)
    return filled


def _decode_134m() -> Case:
    sizes: dict[str, Any] = dict(width=768, layers=12, heads=12, key_heads=12, head_width=64)
    sizes |= dict(hidden=2048, vocabulary=32000, context=512, position=256, eps=1e-5)
    return _decode(sizes, fill(_llama_shapes(sizes)))


def _decode_1b(layers: int = 0) -> Case:
    count = layers or 22
    sizes: dict[str, Any] = dict(width=2048, layers=count, heads=32, key_heads=4, head_width=64)
    sizes |= dict(hidden=5632, vocabulary=32000, context=512, position=256, eps=1e-5)
    case = _decode(sizes, _fill_halves(_llama_shapes(sizes)))
    case.dtype, case.traffic = "bfloat16", case.traffic / 2
    return case


# ------------------------------------------------------------ the same nets in sizes for a GPU
def resnet_on_gpu(batch: int) -> Case:
    """ResNet-50 on a batch of images."""
    case = _resnet(50)
    case.inputs, case.dtype = [normal("img", batch, 3, 224, 224)], "bfloat16"
    case.operations *= batch
    return case


def resnet_train_on_gpu(batch: int) -> Case:
    """A step of its training."""
    case = _resnet_train(50, batch)
    case.dtype = "bfloat16"
    return case


def gpt2_train_on_gpu(batch: int, length: int, layers: int = 0) -> Case:
    """A step of GPT-2's training; `layers` leaves some out."""
    case = _gpt2_train(batch, length, layers)
    case.dtype = "bfloat16"
    return case


def decode_on_gpu(layers: int = 0) -> Case:
    """One token of a Llama; `layers` leaves some out."""
    return _decode_1b(layers)


def llama_on_gpu(length: int, layers: int = 0) -> Case:
    """A text as a whole, as a prompt is read."""
    case = _decode_1b(layers)
    tokens = generator("tokens").integers(0, case.sizes["vocabulary"], (1, length))
    case.kind, case.inputs = "llama", [tokens.astype(np.int32)]
    halves = np.arange(0, case.sizes["head_width"], 2, dtype=np.float32) / case.sizes["head_width"]
    angles = np.outer(np.arange(length, dtype=np.float32), 1.0 / 10000.0**halves)
    case.sizes["cos"], case.sizes["sin"] = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    del case.sizes["cache"]
    case.operations *= length
    return case


def _decode(sizes: dict[str, Any], weights: dict[str, Array]) -> Case:
    halves = np.arange(0, sizes["head_width"], 2, dtype=np.float32) / sizes["head_width"]
    angles = np.outer(np.arange(sizes["context"], dtype=np.float32), 1.0 / 10000.0**halves)
    sizes["cos"], sizes["sin"] = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    shape = (2, 1, sizes["key_heads"], sizes["context"], sizes["head_width"])
    sizes["cache"] = normal("cache", sizes["layers"], *shape)
    # the table of tokens is only gathered from
    read = sum(w.size for name, w in weights.items() if name != "tok.weight")
    token = np.array([[17]], dtype=np.int32)
    return Case("decode", sizes, [token], weights, 2.0 * read, 4.0 * read)


def _dispatch(kernels: int) -> Case:
    return Case("dispatch", {"kernels": kernels}, [normal("x", 16)])


_LARGE = 16 * 1024 * 1024
CASES: dict[str, Callable[[], Case]] = {
    **{f"matmul{n}": functools.partial(_matmul, n, n) for n in (256, 512, 1024, 2048)},
    "gemv4096": lambda: _matmul(4096, 1),
    **{f"conv_{name}": functools.partial(_convolution, name) for name in CONVOLUTIONS},
    "elementwise16m": lambda: _one_input("elementwise", _LARGE),
    "sum16m": lambda: _one_input("sum", _LARGE, passes=1),
    "softmax4096": lambda: _one_input("softmax", 4096, 4096),
    "layernorm": lambda: _one_input("layernorm", 4096, 1024),
    "attention": lambda: _attention(8, 512, 64),
    "block": lambda: _block(768, 128, 12),
    "resnet18": lambda: _resnet(18),
    "resnet50": lambda: _resnet(50),
    "mnist_train": lambda: _mnist(128),
    "decode": _decode_134m,
    "decode_1b": _decode_1b,
    "dispatch100": lambda: _dispatch(100),
    "eager_op": lambda: Case("eager_op", {}, [normal("x", 16)]),
}
# beside the table above, by the same rules
MORE_CASES: dict[str, Callable[[], Case]] = {
    **{f"matmul{n}": functools.partial(_matmul, n, n) for n in (1000, 1023, 1025, 4096)},
    **{
        f"matmul1024_{t}": functools.partial(_product, 1024, 1024, 1024, t)
        for t in ("a", "b", "ab")
    },
    "matmul_197x768x3072": lambda: _product(197, 768, 3072, "b"),
    **{f"skinny{m}": functools.partial(_product, m, 4096, 8192, "b") for m in (1, 2, 4, 8, 16)},
    **{
        f"gemv_{dtype}": functools.partial(_product, 1, 4096, 16384, "b", dtype)
        for dtype in ("float16", "bfloat16")
    },
    **{
        f"matmul1024_{dtype}": functools.partial(_product, 1024, 1024, 1024, "b", dtype)
        for dtype in ("float16", "bfloat16")
    },
    "attention_causal": lambda: _attention(8, 512, 64, is_causal=True),
    "attention4096": lambda: _attention(8, 4096, 64),
    "mobilenet": _mobilenet,
    "unet": _unet,
    "lstm_net": lambda: _lstm_net(32, 16, 512),
    "gpt2_train": lambda: _gpt2_train(2, 64),
    "resnet50_train": lambda: _resnet_train(50, 2),
}
CASES |= MORE_CASES
# what only weft is measured with
OWN_CASES: dict[str, Callable[[], Case]] = {
    **{
        f"gemv_{name.lower()}": functools.partial(_quantised, name, 32768, 4096)
        for name in ("int8", "Q4_0", "Q8_0", "Q4_K", "Q6_K")
    },
    **{
        f"rows{batch}_{name.lower()}": functools.partial(_quantised, name, 4096, 4096, batch)
        for batch in (32, 512)
        for name in ("int8", "Q4_0", "Q8_0", "Q4_K", "Q6_K")
    },
    **{
        f"rows{batch}_plain": functools.partial(_product, batch, 4096, 4096, "b")
        for batch in (32, 512)
    },
    "gpt2": lambda: _gpt2(64),
    "resnet50_b64": lambda: resnet_on_gpu(64),
    **{f"lstm{n}": functools.partial(lstm, n) for n in (64, 128, 256, 512, 1024, 2048, 4096)},
    "dispatch1000": lambda: _dispatch(1000),
}


# too large for several frameworks at once; and what is not kept in float32
ALONE = ("decode_1b",)
# what rounding to a half type costs where much is fused
for _dtype in ("float16", "bfloat16"):
    OWN_CASES[f"elementwise_{_dtype}"] = lambda: _one_input("elementwise", _LARGE)
    OWN_CASES[f"softmax_{_dtype}"] = lambda: _one_input("softmax", 4096, 4096)
    OWN_CASES[f"layernorm_{_dtype}"] = lambda: _one_input("layernorm", 4096, 1024)
    OWN_CASES[f"attention_{_dtype}"] = lambda: _attention(8, 512, 64)
HALVES = {
    name: name.rpartition("_")[2] for name in (*MORE_CASES, *OWN_CASES) if name.endswith("float16")
}
HALVES["decode_1b"] = "bfloat16"


def make(name: str) -> Case:
    """The case of a name."""
    case = {**CASES, **OWN_CASES}[name]()
    case.name = name
    case.dtype = HALVES.get(name, case.dtype)
    return case
