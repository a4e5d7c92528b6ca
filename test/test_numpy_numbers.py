"""What takes a number of Python takes one of NumPy, and of ml_dtypes, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import Tensor, Variable, dtypes, nn
from weft.dtype import bits_of, convert, float_to_bf16, float_to_fp16, python_number, truncate
from weft.uop.ops import UOp

ml_dtypes = need("ml_dtypes")

NUMBERS = [
    np.float64(1.5), np.float32(1.5), np.float16(1.5), np.longdouble(1.5), ml_dtypes.bfloat16(1.5),
    np.int64(3), np.int8(-3), np.uint64(2**63), np.bool_(True), np.array(2.5, np.float32),
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_every_dtype_stores_numbers_of_numpy(number: Any) -> None:
    plain = python_number(number)
    assert isinstance(plain, (bool, int, float)) and plain == number
    for dtype in dtypes.all:
        for store in (
            truncate[dtype],
            dtype.const,
            lambda n, d=dtype: convert(n, dtypes.float32, d),
        ):
            np.testing.assert_equal(store(number), store(plain), err_msg=dtype.name)
        assert bits_of(number, dtype) == bits_of(plain, dtype), dtype


def test_bfloat16_rounds_numbers_of_numpy() -> None:
    assert truncate[dtypes.bfloat16](np.float32(1.5)) == 1.5
    assert truncate[dtypes.bfloat16](np.float32(1.001)) == 1.0
    assert float_to_bf16(np.float32(1.001)) == 1.0 and float_to_fp16(np.float64(65520)) == np.inf
    assert dtypes.from_py(np.float32(1)) is dtypes.default_float
    assert dtypes.from_py(np.int64(1)) is dtypes.default_int


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "full": lambda f, i: Tensor.full((i,), f),
    "full of an int": lambda f, i: Tensor.full((2,), i),
    "full_like": lambda f, i: Tensor.ones(2).full_like(f),
    "const_like": lambda f, i: Tensor.ones(2).const_like(f),
    "arange": lambda f, i: Tensor.arange(i),
    "arange of floats": lambda f, i: Tensor.arange(f, i, f),
    "linspace": lambda f, i: Tensor.linspace(f, i, i),
    "eye": lambda f, i: Tensor.eye(i),
    "pad": lambda f, i: Tensor.ones(2).pad((i, 1), value=f),
    "clip": lambda f, i: Tensor([0.0, 2.0, 5.0]).clip(f, i),
    "pow": lambda f, i: Tensor([4.0]) ** f,
    "where": lambda f, i: Tensor([True, False]).where(f, i),
    "constant": lambda f, i: Tensor([UOp.const(dtypes.float32, f).arg]),
    "seed": lambda f, i: Tensor([Tensor.manual_seed(i) is None]),
    "randint": lambda f, i: Tensor.randint(2, low=i, high=i + 1),
    "variable": lambda f, i: Tensor([Variable("v", i, i + 4).bind(i + 1).unbind()[1]]),
    "linear": lambda f, i: Tensor(nn.Linear(i, i).weight.shape),
    "conv": lambda f, i: Tensor(nn.Conv2d(i, i, i, padding=i).weight.shape),
    "norm": lambda f, i: Tensor(nn.LayerNorm(i).weight.shape),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_take_numbers_of_numpy(name: str) -> None:
    found, wanted = CALLS[name](np.float32(1.5), np.int64(3)), CALLS[name](1.5, 3)
    assert found.tolist() == wanted.tolist()
