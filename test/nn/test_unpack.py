"""Products with quantised weights: a few rows unpack them in the tile, more rows in panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Tensor, TinyJit, dtypes
from weft.codegen.opt.opt import OptOps
from weft.codegen.pipeline import lower
from weft.knobs import NOOPT
from weft.machine import Target
from weft.nn.formats.dequantise import FORMATS, BlockFormat
from weft.nn.formats.relayout import laid_out
from weft.renderer.llvmir import LLVMRenderer

# how many kernels there are, and what they stage, is chosen for the CPU
pytestmark = pytest.mark.device("CPU")
BLOCKS = {f.name: f for f in FORMATS.values() if isinstance(f, BlockFormat)}
SOME = ["Q4_0", "Q8_0", "Q4_K", "Q6_K"]
ROWS = [17, 33, 100, 257]
TARGETS = [
    Target("narrow", cores=1, vector_bytes=16, vector_registers=16),
    Target("usual", cores=4, vector_bytes=32, vector_registers=16, has_threads=True, has_fma=True),
    Target("wide", cores=2, vector_bytes=64, vector_registers=32, has_threads=True, has_fma=True),
]


def weights_of(name: str, rows: int, columns: int) -> tuple[Tensor, Any]:
    """Weights in a format of blocks, in the order of products, and their values."""
    layout = BLOCKS[name]
    count = rows * columns // layout.count
    data = np.random.default_rng(count).integers(0, 100, (count, layout.nbytes), np.uint8)
    blocks = Tensor(data).realize()
    exact = layout.dequantise(blocks).numpy().reshape(rows, columns).astype(np.float64)
    weights = laid_out(blocks, layout, rows).reshape(rows, columns)
    # what stands in another order is stored once
    (Tensor.ones(1, columns) @ weights.T).realize()
    assert not weights._cell.is_realized
    return weights, exact


def scaled_bytes(rows: int, columns: int, batch: tuple[int, ...] = ()) -> tuple[Tensor, Any]:
    """Weights of a byte with a scale for each row, and their values."""
    rng = np.random.default_rng(rows)
    data = rng.integers(-127, 128, (*batch, rows, columns)).astype(np.int8)
    scales = rng.random((*batch, rows, 1)).astype(np.float32)
    weights = Tensor(data).realize().cast(dtypes.float32) * Tensor(scales).realize()
    return weights, data.astype(np.float64) * scales


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(found: Tensor, x: Any, matrix: Any) -> None:
    """Within the bound of a sum in float32."""
    terms = np.abs(x.astype(np.float64)) @ np.abs(matrix)
    bound = 4 * np.finfo(np.float32).eps * np.sqrt(x.shape[-1]) * terms + 1e-30
    assert (np.abs(found.numpy() - x.astype(np.float64) @ matrix) <= bound).all()


def stored_bytes(result: Tensor) -> int:
    """What the kernels of a result write, the result included."""
    return sum(
        store.src[0].src[0].arg.size * store.src[0].dtype.itemsize
        for item in result.schedule()
        if item.kernel is not None
        for store in item.kernel.src
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", SOME)
def test_many_rows(name: str, rows: int) -> None:
    weights, exact = weights_of(name, 96, 512)
    x = random(rows, 512)
    result = Tensor(x).realize() @ weights.T
    assert len(result.schedule()) == 1
    assert stored_bytes(result) == rows * 96 * 4
    check(result, x, exact.T)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_format(name: str) -> None:
    weights, exact = weights_of(name, 64, 256)
    x = random(20, 256)
    result = Tensor(x).realize() @ weights.T
    assert len(result.schedule()) == 1
    check(result, x, exact.T)


@pytest.mark.parametrize("size", [16, 48, 80, 112, 23, 100])
@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
def test_widths_that_are_no_multiple_of_a_tile(name: str, size: int) -> None:
    """With 23 or 100 rows the blocks stay in the order of the file."""
    weights, exact = weights_of(name, size, 256)
    x = random(37, 256)
    check(Tensor(x).realize() @ weights.T, x, exact.T)


@pytest.mark.parametrize("rows", [*ROWS, 9, 16])
@pytest.mark.parametrize("size", [64, 50])
def test_bytes_with_scales(rows: int, size: int) -> None:
    weights, exact = scaled_bytes(size, 72)
    x = random(rows, 72)
    result = Tensor(x).realize() @ weights.T
    assert len(result.schedule()) == 1
    check(result, x, exact.T)


def test_batches_of_weights() -> None:
    weights, exact = scaled_bytes(48, 64, (3,))
    x = random(3, 40, 64)
    result = Tensor(x).realize() @ weights.transpose(1, 2)
    assert len(result.schedule()) == 1
    check(result, x, exact.transpose(0, 2, 1))


def test_batches_of_rows() -> None:
    weights, exact = weights_of("Q4_K", 64, 256)
    x = random(3, 15, 256)
    result = Tensor(x).realize() @ weights.T
    assert len(result.schedule()) == 1
    check(result, x, exact.T)


@pytest.mark.parametrize("name", SOME)
def test_the_other_side(name: str) -> None:
    """The product with the matrix itself, whose columns are parts of blocks."""
    weights, exact = weights_of(name, 64, 512)
    x = random(50, 64)
    check(Tensor(x).realize() @ weights, x, exact)


def test_bytes_from_the_other_side() -> None:
    weights, exact = scaled_bytes(64, 96)
    x = random(50, 64)
    check(Tensor(x).realize() @ weights, x, exact)


def test_weights_on_the_left() -> None:
    weights, exact = weights_of("Q4_0", 64, 256)
    x = random(256, 40)
    found = (weights @ Tensor(x).realize()).transpose(0, 1)
    check(found, np.ascontiguousarray(x.T), exact.T)


@pytest.mark.parametrize("name", SOME)
def test_what_follows_is_in_the_same_kernel(name: str) -> None:
    weights, exact = weights_of(name, 64, 256)
    x, bias = random(40, 256), random(64)
    result = (Tensor(x).realize() @ weights.T + Tensor(bias).realize()).relu()
    assert len(result.schedule()) == 1
    wanted = np.maximum(x @ exact.T + bias, 0)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_added_in_place() -> None:
    weights, exact = weights_of("Q4_0", 80, 256)
    x, y = random(40, 256), random(40, 80)
    total = Tensor(y).realize()
    total.assign(total + Tensor(x).realize() @ weights.T).realize()
    wanted = y + x @ exact.T
    np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", SOME)
def test_jitted(name: str) -> None:
    weights, exact = weights_of(name, 64, 256)
    step = TinyJit(lambda x: (x @ weights.T).realize())
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((33, 256)).astype(np.float32)
        check(step(Tensor(x).realize()), x, exact.T)
    assert len(step.captured) == 1
    assert not weights._cell.is_realized


@pytest.mark.parametrize("name", SOME)
def test_gradients(name: str) -> None:
    weights, exact = weights_of(name, 64, 256)
    x = Tensor(random(40, 256), requires_grad=True)
    factors = random(40, 64)
    ((x @ weights.T) * Tensor(factors)).sum().backward()
    assert x.grad is not None
    check(x.grad, factors, exact)


def test_rows_of_halves() -> None:
    """Both operands are narrower than the terms: only the weights are worth a panel."""
    weights, exact = weights_of("Q4_0", 64, 256)
    x = random(40, 256).astype(np.float16)
    result = Tensor(x).realize().cast(dtypes.float32) @ weights.T
    assert len(result.schedule()) == 1
    check(result, x, exact.T)


def test_a_cache_of_bytes_in_attention() -> None:
    """Rows of scores are staged in one kernel: keys and values are then unpacked before it."""
    keys, exact_keys = scaled_bytes(64, 32)
    values, exact_values = scaled_bytes(64, 48)
    x = random(40, 32) / 100
    found = ((Tensor(x).realize() @ keys.T).softmax(-1) @ values).numpy()
    scores = x @ exact_keys.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ exact_values
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(bool(NOOPT), reason="panels are the heuristic's")
@pytest.mark.parametrize("rows", [33, 512])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("name", SOME)
def test_panels_are_staged(name: str, target: Target, rows: int) -> None:
    """Each weight is unpacked once a product."""
    weights, _ = weights_of(name, 256, 1024)
    (item,) = (Tensor.empty(rows, 1024) @ weights.T).schedule()
    assert item.kernel is not None
    program = lower(item.kernel, LLVMRenderer(target))
    assert OptOps.STAGE in [opt.op for opt in program.applied]
