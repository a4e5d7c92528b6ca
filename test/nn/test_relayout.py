"""Quantised weights in the order of products: the same values, stored once and small."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import Device, GlobalCounters, Tensor, TinyJit, nn
from weft.nn.formats.dequantise import FORMATS, BlockFormat
from weft.nn.formats.relayout import laid_out
from weft.nn.state import gguf_load

BLOCKS = [f for f in FORMATS.values() if isinstance(f, BlockFormat)]
NAMES = [f.name for f in BLOCKS]
Q4_0 = 2


def random_blocks(layout: BlockFormat, count: int) -> Any:
    """Bytes whose halves are all finite: their exponents' highest bit is clear."""
    return np.random.default_rng(layout.nbytes).integers(0, 100, (count, layout.nbytes), np.uint8)


@pytest.mark.parametrize("rows", [16, 48, 5, 1])
@pytest.mark.parametrize("layout", BLOCKS, ids=NAMES)
def test_the_same_values(layout: BlockFormat, rows: int) -> None:
    blocks = Tensor(random_blocks(layout, rows * 3)).realize()
    expected = layout.dequantise(blocks).numpy()
    np.testing.assert_array_equal(laid_out(blocks, layout, rows).numpy(), expected)


@pytest.mark.parametrize("layout", BLOCKS, ids=NAMES)
def test_products(layout: BlockFormat) -> None:
    rows, columns = 64, 2 * layout.count
    blocks = Tensor(random_blocks(layout, rows * 2)).realize()
    weights = laid_out(blocks, layout, rows).reshape(rows, columns)
    exact = layout.dequantise(blocks).numpy().reshape(rows, columns).astype(np.float64)
    for batch in (1, 3, 20):
        x = np.random.default_rng(1).standard_normal((batch, columns)).astype(np.float32)
        found = (Tensor(x) @ weights.T).numpy()
        bound = 4 * np.finfo(np.float32).eps * np.sqrt(columns) * (np.abs(x) @ np.abs(exact).T)
        assert (np.abs(found - x @ exact.T) <= bound).all()
    rows_found = weights[Tensor([3, 63, 3])].numpy()
    np.testing.assert_array_equal(rows_found, exact[[3, 63, 3]].astype(np.float32))


def written(path: Path, rows: int, columns: int) -> Any:
    """A file with one matrix in Q4_0, and its values."""
    layout = FORMATS[Q4_0]
    assert isinstance(layout, BlockFormat)
    blocks = random_blocks(layout, rows * columns // 32)
    name = struct.pack("<Q", 1) + b"w"
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + name
    header += struct.pack("<IQQIQ", 2, columns, rows, Q4_0, 0)
    header += b"\0" * (-len(header) % 32)
    path.write_bytes(header + blocks.tobytes())
    return layout.dequantise(Tensor(blocks)).numpy().reshape(rows, columns)


def test_they_are_put_in_order_once(tmp_path: Path) -> None:
    expected = written(tmp_path / "x.gguf", 256, 1024)
    weights = gguf_load(tmp_path / "x.gguf")[1]["w"]
    x = Tensor.ones(1, 1024).contiguous().realize()
    kernels = []
    for _ in range(3):
        GlobalCounters.reset()
        found = (x @ weights.T).numpy()
        kernels.append(GlobalCounters.kernel_count)
        np.testing.assert_allclose(found[0], expected.sum(1), rtol=1e-3, atol=1.0)
    # reading, the order, and the product; then the product alone
    assert kernels == [3, 1, 1]


@pytest.mark.parametrize(("kind", "dtype"), [(0, "float32"), (1, "float16"), (30, "bfloat16")])
def test_plain_tensors_of_a_file_compute_and_are_read_once(
    tmp_path: Path, kind: int, dtype: str
) -> None:
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    stored = Tensor(values).cast(dtype).bitcast("uint32" if kind == 0 else "uint16").numpy()
    info = struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, 4, 2, kind, 0)
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info
    path = tmp_path / "x.gguf"
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0") + stored.tobytes())
    weights = gguf_load(path)[1]["w"]
    assert weights.dtype.name == dtype and weights.device == Device.DEFAULT
    x = Tensor.ones(3, 4).contiguous().realize()
    kernels = []
    for _ in range(2):
        GlobalCounters.reset()
        assert (x @ weights.T).tolist() == [[6.0, 22.0]] * 3
        kernels.append(GlobalCounters.kernel_count)
    assert kernels[1] == 1


def test_a_jitted_model_keeps_them_small(tmp_path: Path) -> None:
    expected = written(tmp_path / "x.gguf", 512, 1024)
    layer = nn.Linear(1024, 512, bias=False)
    layer.weight = gguf_load(tmp_path / "x.gguf")[1]["w"]
    step = TinyJit(lambda x: layer(x).realize())
    inputs = [
        np.random.default_rng(i).standard_normal((1, 1024)).astype(np.float32) for i in (0, 1)
    ]
    tensors = [Tensor(x).realize() for x in inputs]
    for _ in range(4):
        for x, tensor in zip(inputs, tensors, strict=True):
            np.testing.assert_allclose(step(tensor).numpy(), x @ expected.T, rtol=1e-3, atol=1.0)
    assert not layer.weight._cell.is_realized
    assert len(step.captured) == 1
    # the blocks that stand in memory, and not four bytes a weight
    reads = [node.arg.size * node.dtype.itemsize for node in step.captured.state.outside]
    assert sum(reads) == 512 * 1024 // 32 * 18


def test_other_weights_in_a_jitted_model(tmp_path: Path) -> None:
    """What is assigned to it is memory again, and a replay sees it."""
    expected = written(tmp_path / "x.gguf", 16, 64)
    layer = nn.Linear(64, 16, bias=False)
    layer.weight = gguf_load(tmp_path / "x.gguf")[1]["w"]
    step = TinyJit(lambda x: layer(x).realize())
    x = Tensor.ones(1, 64).contiguous().realize()
    for _ in range(4):
        np.testing.assert_allclose(step(x).numpy()[0], expected.sum(1), rtol=1e-4, atol=1e-2)
    layer.weight.assign(Tensor.full((16, 64), 2.0))
    for _ in range(4):
        assert step(x).tolist() == [[128.0] * 16]
    layer.weight = Tensor.full((16, 64), 3.0).contiguous()
    for _ in range(4):
        assert step(x).tolist() == [[192.0] * 16]


@pytest.mark.parametrize("layout", BLOCKS, ids=NAMES)
def test_a_few_rows_are_one_kernel(layout: BlockFormat) -> None:
    """The tile of a product with up to 16 rows unpacks the weights by itself."""
    blocks = Tensor(random_blocks(layout, 128 * 4)).realize()
    weights = laid_out(blocks, layout, 128).reshape(128, -1)
    (Tensor.ones(1, weights.shape[1]) @ weights.T).realize()
    assert not weights._cell.is_realized
    for rows in (1, 4, 16):
        x = Tensor.empty(rows, weights.shape[1])
        assert len((x @ weights.T).schedule()) == 1
        assert len((x @ weights.T + 1).relu().schedule()) == 1


def test_loaded_lazily_they_stay_small(tmp_path: Path) -> None:
    expected = written(tmp_path / "x.gguf", 64, 128)
    state = {"weight": gguf_load(tmp_path / "x.gguf")[1]["w"]}
    layer = nn.Linear(128, 64, bias=False)
    nn.state.load_state_dict(layer, state, verbose=False, consume=True, realize=False)
    step = TinyJit(lambda x: layer(x).realize())
    x = Tensor.ones(1, 128).contiguous().realize()
    for _ in range(4):
        np.testing.assert_allclose(step(x).numpy()[0], expected.sum(1), rtol=1e-4, atol=1e-2)
    assert not layer.weight._cell.is_realized


def test_training_beside_them(tmp_path: Path) -> None:
    """Gradients pass through a product with them, jitted or not."""
    written(tmp_path / "x.gguf", 64, 128)
    weights = gguf_load(tmp_path / "x.gguf")[1]["w"]

    def trained(decorate: Any) -> Any:
        scale = Tensor.ones(64, requires_grad=True).contiguous().realize()
        scale.requires_grad = True
        optimizer = nn.optim.SGD([scale], lr=1e-7)

        @decorate
        def step(x: Tensor) -> Tensor:
            with Tensor.train():
                optimizer.zero_grad()
                loss = ((x @ weights.T * scale) ** 2).mean().backward()
                optimizer.step()
                return loss

        inputs = np.random.default_rng(0).standard_normal((5, 8, 128)).astype(np.float32)
        return [step(Tensor(x).realize()).item() for x in inputs], scale.numpy()

    plain, jitted = trained(lambda function: function), trained(TinyJit)
    np.testing.assert_allclose(jitted[0], plain[0], rtol=1e-6)
    np.testing.assert_array_equal(jitted[1], plain[1])
    assert not weights._cell.is_realized
