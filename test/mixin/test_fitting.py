"""Numbers that an int dtype does not hold: right answers, and patterns of bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from weft import Tensor, TinyJit, Variable, dtypes
from weft.dtype import DType

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
FAR = (2**33, 2**40, -(2**40), 2**63, 2**64, -(2**70), 0x80000000, 0xFFFFFFFF, 300, 200, -1, -200)


def values_of(dtype: DType) -> list[int]:
    return [int(dtype.min), 0, 1, int(dtype.max)]


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_with_any_number_are_right(
    compare: Callable[[Any, Any], Any], dtype: DType
) -> None:
    values = values_of(dtype)
    tensor = Tensor(values, dtype=dtype)
    for number in FAR:
        assert compare(tensor, number).tolist() == [compare(v, number) for v in values], number
        assert compare(number, tensor).tolist() == [compare(number, v) for v in values], number


def test_comparisons_with_constant_tensors_are_right() -> None:
    tensor = Tensor([5, 6])
    assert (tensor < Tensor(2**40)).tolist() == [True, True]
    assert (Tensor(2**40) <= tensor).tolist() == [False, False]
    numbers = Tensor.stack([Tensor(1), Tensor(2**40)])
    assert (tensor < numbers).tolist() == [False, True]
    assert (tensor == numbers.reshape(2, 1)).tolist() == [[False, False], [False, False]]


def test_a_certain_comparison_keeps_shape_and_device() -> None:
    scalar = Tensor([3]).sum()
    result = scalar < Tensor(2**40).expand(2, 3)
    assert result.shape == (2, 3) and result.device == scalar.device
    assert result.dtype is dtypes.bool and result.all().item()
    assert (Tensor(5) < 2**70).item() and (Tensor(5) < 2**70).device is None


def test_comparisons_with_a_number_of_the_jit_are_right() -> None:
    @TinyJit
    def below(tensor: Tensor, number: int) -> Tensor:
        return (tensor < number).realize()

    tensor = Tensor([1, 6]).realize()
    for number in (1, 5, 7, 2**40, -(2**40), 6):
        assert below(tensor, number).tolist() == [1 < number, 6 < number]


def test_variables_are_compared_as_before() -> None:
    bound = Variable("v", 1, 10).bind(3)
    node = (Tensor([1, 5]) < bound).uop
    assert all(u.dtype is not dtypes.int64 for u in node.toposort())
    assert (Tensor([1, 5]) < bound).tolist() == [True, False]
    assert (Tensor([1, 5]) + bound).tolist() == [4, 8]


def test_limits_beyond_all_values_limit_nothing() -> None:
    for dtype in dtypes.ints:
        values = values_of(dtype)
        tensor = Tensor(values, dtype=dtype)
        assert tensor.clip(-(2**70), 2**70).tolist() == values
        assert tensor.maximum(-(2**70)).tolist() == tensor.minimum(2**70).tolist() == values
    assert Tensor([3]).sum().maximum(Tensor(-(2**40)).expand(2)).tolist() == [3, 3]
    small = Tensor([-5, 5], dtype=dtypes.int8)
    assert small.clip(0, 200).tolist() == [0, 5]
    assert small.minimum(200).dtype is dtypes.int8


def test_unsigned_ints_are_divided_by_more_than_they_hold() -> None:
    tensor = Tensor([0, 7, 255], dtype=dtypes.uint8)
    assert (tensor % 256).tolist() == [0, 7, 255]
    assert (tensor // 256).tolist() == [0, 0, 0]
    assert (Tensor([2**32 - 1], dtype=dtypes.uint32) % 2**32).tolist() == [2**32 - 1]


def test_results_of_the_dtype_take_the_low_bits() -> None:
    small = Tensor([1, -2], dtype=dtypes.int8)
    assert (small + 300).tolist() == [45, 42]
    assert (small * 258).tolist() == [2, -4]
    assert (small > 0).where(small, 300).tolist() == [1, 44]
    assert small.full_like(300).tolist() == [44, 44]
    assert Tensor.full((1,), 300, dtype=dtypes.int8).item() == 44


def test_patterns_of_bits_are_taken() -> None:
    ints = np.int32([1, -2, 2**31 - 1])
    tensor = Tensor(ints)
    check(tensor & 0xFFFFFFFF, ints)
    check(tensor & 0x80000000, ints & np.int32(-(2**31)))
    check(tensor ^ 0xFFFFFFFF, ~ints)
    check(tensor * 0x9E3779B1, (ints.astype(np.int64) * 0x9E3779B1).astype(np.int32))
    check(tensor + 0xFFFFFFFF, (ints.astype(np.int64) - 1).astype(np.int32))
    words = np.uint32([1, 2, 2**32 - 1])
    unsigned = Tensor(words)
    check(unsigned & -1, words)
    check(unsigned & 0xFF_FFFF_FFFF, words)
    check(unsigned + -1, words - np.uint32(1))
    check(unsigned - 0xFFFFFFFF, words + np.uint32(1))
    check(-unsigned, (-words.astype(np.int64)).astype(np.uint32))
    check(~unsigned, ~words)
    check((unsigned > 1).where(unsigned, -1), np.uint32([2**32 - 1, 2, 2**32 - 1]))
    assert Tensor.full((1,), 0xFFFFFFFF, dtype=dtypes.uint32).item() == 0xFFFFFFFF
    assert Tensor.full((1,), 0xFFFFFFFF, dtype=dtypes.int32).item() == -1
    assert Tensor.full((1,), -1, dtype=dtypes.uint8).item() == 255
    assert Tensor(-1, dtype=dtypes.uint64).item() == 2**64 - 1
    assert (Tensor([250], dtype=dtypes.uint8) - 200).item() == 50
    assert (Tensor([2**63], dtype=dtypes.uint64) - 2**63).item() == 0
    assert (2**63 - Tensor([2**63], dtype=dtypes.uint64)).item() == 0


def test_a_cast_takes_the_low_bits() -> None:
    assert Tensor(300).cast(dtypes.int8).item() == 44


def test_ints_beyond_64_bits_beside_floats() -> None:
    tensor = Tensor([1.0, -1.0])
    assert (2**70 * tensor).tolist() == [2.0**70, -(2.0**70)]
    assert (tensor / 2**70).tolist() == [2.0**-70, -(2.0**-70)]
    assert (2**70 / tensor).tolist() == [2.0**70, -(2.0**70)]
    assert (tensor > 2**70).tolist() == [False, False]
    assert (tensor // 2**70).tolist() == [0.0, -1.0]
    assert (Tensor([1, 2], dtype=dtypes.int64) / 2**63).tolist() == [2.0**-63, 2.0**-62]
