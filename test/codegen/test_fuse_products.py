"""fuse_products: the steps of sums take in products as they are; any other product is rounded."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.fuse_products import fuse_products
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import SUMMING, Ops

X, Y, Z = [UOp.const(dtypes.float32, value) for value in (2.0, 3.0, 4.0)]
WITH = Target("test", has_fma=True)


def _sum(tag: str | None) -> list[UOp]:
    product = UOp(Ops.MUL, dtypes.float32, (X, Y))
    return [X, Y, Z, product, UOp(Ops.ADD, dtypes.float32, (Z, product), None, tag)]


def test_a_step_of_a_sum_takes_in_a_product() -> None:
    assert fuse_products(_sum(SUMMING), WITH)[3:] == [UOp(Ops.MULACC, dtypes.float32, (X, Y, Z))]


def test_another_reader_keeps_the_product() -> None:
    program = _sum(SUMMING)
    again = UOp(Ops.SQRT, dtypes.float32, (program[3],))
    assert [u.op for u in fuse_products([*program, again], WITH)[3:]] == [
        *(Ops.MUL, Ops.MULACC, Ops.SQRT)
    ]


def test_a_plain_sum_is_left_alone() -> None:
    assert fuse_products(_sum(None), WITH) == _sum(None)


def test_targets_without_the_instruction_round_twice() -> None:
    assert fuse_products(_sum(SUMMING), Target("test", has_fma=False)) == _sum(None)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_elementwise_arithmetic_has_the_bits_of_numpy(device: str) -> None:
    draw = np.random.default_rng(0)
    x, y, z = [draw.standard_normal(40).astype(np.float32) for _ in range(3)]
    a, b, c = [Tensor(each, device=device) for each in (x, y, z)]
    np.testing.assert_array_equal((a * b + c).numpy(), x * y + z)
    np.testing.assert_array_equal((a * b - c * 0.3).numpy(), x * y - z * np.float32(0.3))


@pytest.mark.parametrize("seed", range(6))
def test_a_value_is_found_beside_its_product(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = (draw.integers(2, 60), draw.integers(2, 300))
    x, y, z = [Tensor(draw.standard_normal(shape).astype(np.float32)).realize() for _ in range(3)]
    product = x * y
    total = product + z
    place, greatest = total.argmax(1), product.max(1)
    Tensor.realize(place, greatest, product.sum(1))
    wanted = (x.numpy() * y.numpy() + z.numpy()).argmax(1)
    np.testing.assert_array_equal(place.numpy(), wanted)
