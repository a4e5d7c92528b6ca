"""Reductions over the elements before each one become SCAN and RANK of a group, and nothing else
does. The interpreter of a GPU computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.prefixes import prefix_of
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.machine import Target
from weft.renderer.base import ProgramSpec
from weft.renderer.cuda import SM_90
from weft.renderer.nvptx import NVPTXRenderer
from weft.uop.opset import Ops
from weft.uop.ranks import equals_before

GPU = "PYTHON:sm_90"
random = np.random.default_rng(5)


def gpu(data: Any) -> Tensor:
    return Tensor(data, device=GPU).realize()


def programs(value: Tensor) -> list[ProgramSpec]:
    return [lower(item.kernel, NVPTXRenderer(SM_90)) for item in value.schedule()]


def actions(value: Tensor) -> list[OptOps]:
    return [opt.op for spec in programs(value) for opt in spec.applied]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("count", [256, 1000])
def test_prefixes_are_scanned_by_a_group(dtype: str, count: int) -> None:
    x = gpu(random.integers(-9, 9, (2, count)).astype(dtype))
    assert OptOps.PREFIX in actions(x.cumsum(1))
    np.testing.assert_array_equal(x.cumsum(1).numpy(), np.cumsum(x.numpy(), 1))
    np.testing.assert_array_equal(x.cummax(1)[0].numpy(), np.maximum.accumulate(x.numpy(), 1))


def test_long_prefixes_are_scanned_in_blocks() -> None:
    x = gpu(random.integers(-9, 9, 9000).astype(np.int32))
    assert actions(x.cumsum(0)).count(OptOps.PREFIX) == 1
    np.testing.assert_array_equal(x.cumsum(0).numpy(), np.cumsum(x.numpy()))


@pytest.mark.parametrize("bits", [8, 3])
@pytest.mark.parametrize("width", [128, 512, 1024])
def test_equal_digits_are_counted_by_a_group(bits: int, width: int) -> None:
    digits = random.integers(0, 1 << bits, (2, width)).astype(np.uint8)
    found = Tensor._from_uop(equals_before(gpu(digits).uop))
    assert actions(found) == [OptOps.PREFIX]
    packed = found.numpy()
    for row, counted in zip(digits, packed, strict=True):
        same = row[:, None] == row[None, :]
        earlier = np.tril(same, -1).sum(1)
        np.testing.assert_array_equal(counted & 0xFFFF, earlier)
        np.testing.assert_array_equal(counted >> 16, same.sum(1))


def reduce_of(value: Tensor) -> tuple[Any, Any]:
    """The first reduction of the last kernel, and the axes of its outputs."""
    store = value.schedule()[-1].kernel.src[0]
    return next(u for u in store.toposort() if u.op is Ops.REDUCE), store.src[2:]


def pairs(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = gpu(random.integers(0, 200, count).astype(np.int32))
    place = Tensor.arange(count)
    return x.unsqueeze(1), x.unsqueeze(0), place.unsqueeze(1), place.unsqueeze(0)


def test_forms_that_are_none() -> None:
    mine, other, place, before = pairs(256)
    for value in (
        # behind the output nothing may be added
        (before > place).where(1, other),
        # an element that depends on the output
        (before > place).where(0, other * place),
        # what is counted has no bound
        (mine.eq(other) & (before < place)).cast("int32"),
        # other elements are counted as well
        mine.eq(other).where(2, 1),
    ):
        reduce, outputs = reduce_of(value.sum(1))
        assert prefix_of(reduce, outputs) is None


def test_weights_of_a_count() -> None:
    x = gpu(random.integers(0, 200, 256).astype(np.uint8))
    mine, other = x.unsqueeze(1), x.unsqueeze(0)
    place = Tensor.arange(256)
    behind = place.unsqueeze(0) > place.unsqueeze(1)
    value = mine.eq(other).where(behind.where(7, 100), 0).sum(1)
    reduce, outputs = reduce_of(value)
    found = prefix_of(reduce, outputs)
    assert found is not None and found.weights == (7, 100) and not found.is_before
    data = x.numpy()
    same = data[:, None] == data[None, :]
    expected = 7 * np.triu(same, 1).sum(1) + 100 * np.tril(same).sum(1)
    np.testing.assert_array_equal(value.numpy(), expected)


def test_refusals() -> None:
    x = gpu(random.standard_normal((4, 256)).astype(np.float32))
    kernel = x.cumsum(1).schedule()[-1].kernel
    number = kernel.src[0].src[-1].arg.number
    with pytest.raises(OptError, match="no prefixes"):
        apply_opt(kernel, Opt(OptOps.PREFIX, number, (32, 8)), Target())
    with pytest.raises(OptError, match="is not 64 x 8"):
        apply_opt(kernel, Opt(OptOps.PREFIX, number, (64, 8)), SM_90)
    plain = (x + 1).schedule()[-1].kernel
    last = plain.src[0].src[-1]
    size = int(last.src[0].arg)
    with pytest.raises(OptError, match="not all reductions"):
        apply_opt(plain, Opt(OptOps.PREFIX, last.arg.number, (size // 8, 8)), SM_90)


def test_a_short_axis_stays() -> None:
    x = gpu(random.standard_normal((4, 64)).astype(np.float32))
    assert OptOps.PREFIX not in actions(x.cumsum(1))
    assert dtypes.float32 is x.dtype
