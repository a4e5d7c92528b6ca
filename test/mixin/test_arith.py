"""Operators: values, promotion, broadcasting, reflected and in-place forms."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from weft import Tensor, dtypes
from weft.dtype import least_upper_dtype
from weft.errors import ArgumentError, DTypeError
from weft.uop.opset import Ops

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in (
        "add sub mul truediv floordiv mod and_ or_ xor lshift rshift lt le gt ge eq ne".split()
    )
}
BITS = ("and_", "or_", "xor", "lshift", "rshift")


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float32", "float64"])
def test_operator(name: str, dtype: str) -> None:
    if name in BITS and dtype.startswith("float"):
        pytest.skip("bits are of ints")
    generator = np.random.default_rng(0)
    left = generator.integers(0, 100, (3, 4)).astype(dtype)
    right = generator.integers(1, 7, 4).astype(dtype)
    function = OPERATORS[name]
    wanted = function(left, right)
    if name == "truediv" and not dtype.startswith("float"):
        wanted = function(left.astype(np.float64), right.astype(np.float64))
    check(function(Tensor(left), Tensor(right)), wanted)
    check(function(Tensor(left), 3), _with_number(function, left, 3, name))
    check(function(3, Tensor(right)), _with_number(function, 3, right, name))


def _with_number(function: Callable[[Any, Any], Any], a: Any, b: Any, name: str) -> Any:
    if name == "truediv":
        return function(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    dtype = (a if isinstance(a, np.ndarray) else b).dtype
    return function(np.asarray(a, dtype=dtype), np.asarray(b, dtype=dtype))


@pytest.mark.parametrize("name", ["floordiv", "mod"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_division_is_pythons(name: str, dtype: str) -> None:
    left = np.array([7, -7, 7, -7, 6, 0], dtype=dtype)
    right = np.array([2, 2, -2, -2, 3, 5], dtype=dtype)
    check(OPERATORS[name](Tensor(left), Tensor(right)), OPERATORS[name](left, right))


def test_division_by_zero() -> None:
    assert (Tensor([7, -7]) // 0).tolist() == [0, 0]
    assert (Tensor([7, -7]) % 0).tolist() == [0, 0]
    assert (Tensor([1.0, -1.0]) / 0).tolist() == [math.inf, -math.inf]
    least = Tensor([-(2**31)])
    assert (least // -1).tolist() == [-(2**31)]


def test_rounding_modes() -> None:
    for data in ([7, -7, 6], [7.5, -7.5, 6.0]):
        tensor = Tensor(data)
        check(tensor.div(2, rounding_mode="floor"), np.floor_divide(np.array(data), 2))
        check(tensor.div(2, rounding_mode="trunc"), np.trunc(np.array(data) / 2))
    with pytest.raises(ArgumentError, match="rounding_mode"):
        Tensor([1]).div(2, rounding_mode="up")


def test_float_remainder_is_exact() -> None:
    assert (Tensor([1.0], dtype=dtypes.float64) // 0.1).item() == 1.0 // 0.1
    assert (Tensor([1.0], dtype=dtypes.float64) % 0.1).item() == 1.0 % 0.1
    assert (Tensor([5.0, -5.0]) % math.inf).tolist() == [5.0, math.inf]


def test_promotion_of_data_follows_the_lattice() -> None:
    for a in dtypes.all:
        for b in (dtypes.int8, dtypes.uint16, dtypes.float16, dtypes.bool, dtypes.float64):
            result = Tensor.zeros(1, dtype=a) + Tensor.zeros(1, dtype=b)
            assert result.dtype is least_upper_dtype(a, b), (a, b)


def test_unsigned_minus_signed_promotes_first() -> None:
    assert (Tensor([5], dtype=dtypes.int8) - Tensor([250], dtype=dtypes.uint8)).item() == -245
    assert Tensor([5], dtype=dtypes.int8).minimum(Tensor([250], dtype=dtypes.uint8)).item() == 5


def test_numbers_never_upcast() -> None:
    assert (Tensor([1], dtype=dtypes.float16) * 0.1).dtype is dtypes.float16
    assert (Tensor([1], dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.bfloat16) / 3).dtype is dtypes.bfloat16
    assert (2 - Tensor([1], dtype=dtypes.uint8)).dtype is dtypes.uint8
    assert (Tensor([1, 2]) + 0.5).dtype is dtypes.default_float
    assert (Tensor([1, 2]) / 2).dtype is dtypes.default_float
    assert (Tensor([True]) + 1).dtype is dtypes.default_int
    assert (Tensor([1], dtype=dtypes.int8) + 300).item() == 45


def test_constants_are_made_in_the_final_dtype() -> None:
    node = (Tensor([1.0], dtype=dtypes.float16) * 3).uop
    assert all(u.op is not Ops.CAST for u in node.toposort())


def test_bools() -> None:
    a, b = Tensor([True, True, False]), Tensor([True, False, False])
    assert (a + b).tolist() == [True, True, False]
    assert (a * b).tolist() == [True, False, False]
    assert (~a).tolist() == (-a).tolist() == [False, False, True]
    with pytest.raises(DTypeError, match="takes numbers"):
        a - b


def test_where() -> None:
    mask = Tensor([True, False, True])
    assert mask.where(Tensor([1, 2, 3]), 0).tolist() == [1, 0, 3]
    assert mask.where(1, Tensor([1.5, 2.5, 3.5])).tolist() == [1.0, 2.5, 1.0]
    assert mask.where(1, 2.0).dtype is dtypes.default_float
    assert Tensor([0, 2, 0]).where(1, 0).tolist() == [0, 1, 0]


def test_broadcast_of_many_shapes() -> None:
    a, b = np.ones((3, 1, 4), np.float32), np.ones((2, 1), np.float32)
    check(Tensor(a) + Tensor(b), a + b)
    check(Tensor(a) + Tensor(1.5), a + np.float32(1.5))
    check(Tensor(a) * Tensor(a).sum(), a * a.sum())


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow"])
def test_in_place_operators_write_the_storage(name: str) -> None:
    data = np.float32([1, 2, 3])
    tensor = Tensor(data)
    view = tensor[1:]
    address = tensor._cell.storage
    changed = getattr(operator, name)(tensor, 2)
    assert changed is tensor
    wanted = getattr(operator, name)(data.copy(), 2)
    check(tensor, wanted)
    check(view, wanted[1:])
    assert tensor._cell.storage is address


def test_numpy_arrays_as_operands() -> None:
    array = np.float32([1, 2])
    check(Tensor([1.0, 2.0]) + array, [2.0, 4.0])
    check(array + Tensor([1.0, 2.0]), [2.0, 4.0])
    check(np.float32(2) * Tensor([1.0, 2.0]), [2.0, 4.0])
