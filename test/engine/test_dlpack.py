"""DLPack with NumPy and PyTorch: one memory, seen from both sides, given back in the end."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from test.optional import optional
from weft import Tensor, dtypes
from weft.engine import dlpack
from weft.errors import ArgumentError, DTypeError

torch = optional("torch")


@pytest.mark.device("CPU")  # NumPy takes memory of the host
def test_memory_is_shared_with_those_who_take_it() -> None:
    # NumPy takes memory of the host only
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]], device="CPU").realize()
    other = torch.from_dlpack(tensor)
    array = np.from_dlpack(tensor)
    other[0, 0] = 9
    assert tensor.tolist() == [[9.0, 2.0], [3.0, 4.0]] and array[0, 0] == 9


@pytest.mark.device("CPU")  # NumPy takes memory of the host
def test_memory_lives_as_long_as_it_is_used_and_no_longer() -> None:
    gc.collect()
    before = len(dlpack._given)
    array = np.from_dlpack(Tensor([1.0, 2.0], device="CPU"))
    other = torch.from_dlpack(Tensor([3.0]))
    gc.collect()
    assert len(dlpack._given) == before + 2
    assert array.tolist() == [1.0, 2.0] and other.tolist() == [3.0]
    del array, other
    capsule = Tensor([1]).__dlpack__()
    del capsule
    gc.collect()
    assert len(dlpack._given) == before


def test_what_is_taken_is_shared() -> None:
    array = torch.zeros(4)
    tensor = Tensor.from_dlpack(array)
    array[1] = 7
    assert tensor.tolist() == [0.0, 7.0, 0.0, 0.0]
    tensor += 1
    tensor.realize()
    assert array.tolist() == [1.0, 8.0, 1.0, 1.0]


ARRAYS = {
    "rows": lambda: torch.arange(6).reshape(2, 3),
    "columns": lambda: torch.arange(6).reshape(2, 3).T,
    "permuted": lambda: torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
    "every third": lambda: torch.arange(10)[::3],
    "nothing": lambda: torch.zeros(3, 0),
    "scalar": lambda: torch.tensor(5.0),
    "expanded": lambda: torch.ones(1).expand(4),
    "bfloat16": lambda: torch.tensor([1.5, 2.0], dtype=torch.bfloat16),
    "bool": lambda: torch.tensor([True, False]),
    "reversed": lambda: np.arange(12).reshape(3, 4)[::-1, ::2],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_arrangement(name: str) -> None:
    array: Any = ARRAYS[name]()
    tensor = Tensor.from_dlpack(array)
    wanted = array.float().numpy() if isinstance(array, torch.Tensor) else array
    assert tensor.shape == wanted.shape
    np.testing.assert_array_equal(tensor.numpy(), wanted)


def test_owners_are_kept_alive() -> None:
    tensor = Tensor.from_dlpack(np.arange(100_000))
    gc.collect()
    assert tensor.sum().item() == 99_999 * 50_000


@pytest.mark.device("CPU")  # NumPy takes memory of the host
def test_values_that_were_not_computed() -> None:
    assert np.from_dlpack(Tensor([1, 2], device="CPU") * 2).tolist() == [2, 4]
    assert np.from_dlpack(Tensor(3.0, device="CPU")).tolist() == 3.0
    assert np.from_dlpack(Tensor.zeros(2, 0, device="CPU")).shape == (2, 0)
    assert torch.from_dlpack(Tensor([1.0]).bfloat16()).dtype is torch.bfloat16


def test_errors() -> None:
    with pytest.raises(DTypeError, match="DLPack has no dtypes.fp8e4m3"):
        Tensor([1.0]).cast("fp8e4m3").__dlpack__()
    with pytest.raises(ArgumentError, match="takes an array or a DLPack capsule"):
        Tensor.from_dlpack([1, 2])
    capsule = Tensor([1]).__dlpack__()
    assert Tensor.from_dlpack(capsule).tolist() == [1]
    with pytest.raises(ArgumentError, match="not used yet"):
        Tensor.from_dlpack(capsule)


def test_a_tensor_of_another_librarys_array_is_a_copy() -> None:
    source = torch.arange(6).reshape(2, 3).T
    x = Tensor(source)
    assert x.tolist() == source.tolist() and x.dtype is dtypes.int64
    source[0, 0] = 9
    assert x.tolist()[0][0] == 0
    assert Tensor(torch.ones(2, requires_grad=True), dtype="float16").dtype is dtypes.float16
    assert Tensor(torch.tensor(3)).item() == 3 and Tensor(torch.zeros(0, 3)).shape == (0, 3)


def test_whoever_refuses_a_capsule_says_why() -> None:
    """It drops the capsule with its exception pending: nothing of ours may run then."""
    before = len(dlpack._given)
    capsule = [Tensor([1.0]).__dlpack__()]
    # an exception is pending while the list, and with it the capsule, goes
    with pytest.raises(ZeroDivisionError):
        _ = [1.0 / 0 for _ in [capsule.pop()]]
    gc.collect()
    assert len(dlpack._given) == before
