"""Whole models: what PyTorch exports, at many sizes, and quantised ones to the bit."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.graphs import models
from test.graphs.models import FLOAT, INT64, Graph, model, node, tensor
from test.optional import need, optional
from weft import Tensor
from weft.errors import DataError
from weft.nn.onnx import OnnxRunner

torch = optional("torch")
functional = optional("torch.nn.functional")


def exported(module: Any, arguments: tuple[Any, ...], names: list[str], free: Any) -> bytes:
    """A module as an ONNX file, with some free sizes."""
    need("onnx")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), arguments, file, dynamo=False, input_names=names, dynamic_axes=free
        )
    return file.getvalue()


def residual_block() -> Any:
    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(4, 4, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(4)
            self.second = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1)
            self.short = torch.nn.Conv2d(4, 8, 1, stride=2)
            self.last = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.norm(self.first(x)) + x)
            y = functional.max_pool2d(functional.relu(self.second(y) + self.short(y)), 2)
            return self.last(y.mean((2, 3)))

    return Block()


def recurrent() -> Any:
    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 6, bidirectional=True, batch_first=True)
            self.gru = torch.nn.GRU(12, 4)

        def forward(self, x: Any) -> Any:
            return self.gru(self.lstm(x)[0].transpose(0, 1))

    return Recurrent()


def decoder() -> Any:
    class Decoder(torch.nn.Module):  # type: ignore[misc]
        """A transformer block that appends to its keys and values."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)])
            self.project, self.join = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
            self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

        def forward(self, x: Any, keys: Any, values: Any) -> Any:
            batch, time, width = x.shape
            parts = self.project(self.norms[0](x)).chunk(3, -1)
            query, key, value = (p.view(batch, time, 4, 4).transpose(1, 2) for p in parts)
            past = keys.shape[2]
            key, value = torch.cat([keys, key], 2), torch.cat([values, value], 2)
            rows = torch.arange(time)[:, None] + past
            allowed = torch.arange(key.shape[2])[None, :] <= rows
            scores = (query @ key.transpose(-1, -2) / 2).masked_fill(~allowed, float("-inf"))
            mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, time, width)
            x = x + self.join(mixed)
            return x + self.down(functional.gelu(self.up(self.norms[1](x)))), key, value

    return Decoder()


def agree(runner: OnnxRunner, module: Any, names: list[str], shapes: list[Any]) -> None:
    arguments = [torch.randn(*shape) for shape in shapes]
    with torch.no_grad():
        wanted = module(*arguments)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = runner({n: a.numpy() for n, a in zip(names, arguments, strict=True)})
    for one, other in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(one.numpy()), other)


CASES: dict[str, Any] = {
    "residual block": (
        residual_block,
        ["x"],
        {"x": {0: "batch"}},
        [[(b, 4, 8, 8)] for b in (2, 3, 5, 7, 9, 3)],
    ),
    "recurrent": (
        recurrent,
        ["x"],
        {"x": {0: "batch"}},
        [[(b, 5, 5)] for b in (2, 3, 4)],
    ),
    "decoder": (
        decoder,
        ["x", "keys", "values"],
        {
            "x": {0: "batch", 1: "time"},
            "keys": {0: "batch", 2: "past"},
            "values": {0: "batch", 2: "past"},
        },
        [
            [(b, t, 16), (b, 4, p, 4), (b, 4, p, 4)]
            for b, t, p in ((1, 3, 5), (1, 1, 8), (1, 1, 9), (2, 1, 10), (1, 4, 11), (2, 2, 12))
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_pytorch_at_many_sizes_has_two_programs(name: str) -> None:
    make, names, free, calls = CASES[name]
    torch.manual_seed(0)
    module = make()
    arguments = tuple(torch.randn(*shape) for shape in calls[0])
    runner = OnnxRunner(exported(module, arguments, names, free))
    for shapes in calls:
        agree(runner, module, names, shapes)
    assert len(runner._programs) == 1 and len(runner._symbolic.programs) == 1
    assert not runner._symbolic.refused


def test_a_quantised_convolution_is_exact() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (1, 3, 6, 6), dtype=np.uint8)
    weight = generator.integers(-128, 128, (4, 3, 3, 3), dtype=np.int8)
    bias = generator.integers(-500, 500, 4, dtype=np.int32)
    scales = generator.uniform(0.001, 0.01, 4).astype(np.float32)
    data = model(
        Graph(
            [("x", 2, [1, 3, 6, 6])],
            [("y", 2, None)],
            [
                node(
                    "QLinearConv",
                    ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"],
                    ["y"],
                    pads=[1, 1, 1, 1],
                )
            ],
            [
                tensor("xs", np.float32(0.02)),
                tensor("xz", np.uint8(120)),
                tensor("w", weight),
                tensor("ws", scales),
                tensor("wz", np.zeros(4, dtype=np.int8)),
                tensor("ys", np.float32(0.05)),
                tensor("yz", np.uint8(128)),
                tensor("b", bias),
            ],
        )
    )
    padded = np.pad(x.astype(np.int64) - 120, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    total = np.einsum("bchwij,ocij->bohw", windows, weight.astype(np.int64))
    total = total + bias.reshape(1, -1, 1, 1)
    factor = np.float32(0.02) * scales.reshape(1, -1, 1, 1) / np.float32(0.05)
    wanted = np.clip(np.rint(total.astype(np.float32) * factor) + 128, 0, 255).astype(np.uint8)
    runner = OnnxRunner(data)
    for _ in range(3):
        assert (runner({"x": x})["y"].numpy() == wanted).all()


# ------------------------------------------------------------ what a program may depend on
def test_constants_made_of_sizes_follow_the_sizes() -> None:
    data = model(
        Graph(
            [("x", FLOAT, ["n", 2])],
            [("y", FLOAT, None)],
            [
                node("Shape", ["x"], ["s"]),
                node("ConstantOfShape", ["s"], ["z"], value=np.array([1.0], dtype=np.float32)),
                node("Add", ["x", "z"], ["y"]),
            ],
        )
    )
    runner = OnnxRunner(data)
    for count in (2, 3, 2, 4, 5):
        x = np.full((count, 2), float(count), dtype=np.float32)
        assert (runner({"x": x})["y"].numpy() == x + 1).all()


def test_an_integer_input_that_is_a_shape_is_compared_by_value() -> None:
    data = model(
        Graph(
            [("x", FLOAT, [6]), ("shape", INT64, [2])],
            [("y", FLOAT, None)],
            [node("Reshape", ["x", "shape"], ["y"])],
        )
    )
    runner = OnnxRunner(data)
    x = np.arange(6, dtype=np.float32)
    for shape in [(2, 3), (3, 2), (6, 1), (2, 3)]:
        found = runner({"x": x, "shape": np.array(shape)})["y"]
        assert found.shape == shape and found.flatten().tolist() == x.tolist()
    assert len(runner._programs) == 3


def test_a_large_integer_input_is_not_compared_by_value() -> None:
    data = model(
        Graph(
            [("x", INT64, ["n"])],
            [("y", INT64, None)],
            [node("NonZero", ["x"], ["y"])],
        )
    )
    runner = OnnxRunner(data)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 2, 1000)
        assert runner({"x": x})["y"].tolist() == [np.flatnonzero(x).tolist()]
    assert len(runner._programs) == 1


def test_a_shape_that_is_computed_is_read_at_every_call() -> None:
    data = model(
        Graph(
            [("x", FLOAT, [5])],
            [("y", INT64, None)],
            [node("NonZero", ["x"], ["y"])],
        )
    )
    runner = OnnxRunner(data)
    for x in ([0.0, 1, 0, 2, 0], [1.0, 1, 1, 1, 1], [0.0, 0, 0, 0, 3], [0.0] * 5):
        found = runner({"x": np.array(x, dtype=np.float32)})["y"]
        assert found.tolist() == [np.flatnonzero(x).tolist()]


def test_a_model_is_one_program() -> None:
    runner = OnnxRunner(models.mixed())
    x = Tensor.ones(1, 1, 4, 4)
    first = runner({"x": x})["y"].tolist()
    assert all(runner({"x": x})["y"].tolist() == first for _ in range(3))
    (program,) = runner._programs.values()
    assert program.is_whole and program.jit.captured is not None


def test_weights_in_constant_nodes_are_loaded_once(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).random((64, 32), dtype=np.float32)
    data = model(
        Graph(
            [("x", FLOAT, [2, 64])],
            [("y", FLOAT, None)],
            [
                node("Constant", [], ["w"], value=weights),
                node("MatMul", ["x", "w"], ["y"]),
            ],
        )
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    runner = OnnxRunner(path)
    x = np.ones((2, 64), dtype=np.float32)
    for _ in range(4):
        np.testing.assert_allclose(runner({"x": x})["y"].numpy(), x @ weights, rtol=1e-5)
    (program,) = runner._programs.values()
    assert program.is_whole and program.jit.captured is not None
    assert runner._kept.loaded.keys() == {"w"}


def test_a_constant_node_behind_its_reader_is_refused() -> None:
    data = model(
        Graph(
            [("x", FLOAT, [2])],
            [("y", FLOAT, None)],
            [
                node("Add", ["x", "w"], ["y"]),
                node("Constant", [], ["w"], value=np.ones(2, dtype=np.float32)),
            ],
        )
    )
    with pytest.raises(DataError, match="takes 'w', which no input, constant or node before it"):
        OnnxRunner(data)
