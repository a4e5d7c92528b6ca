"""The CUDA device over a driver of a GPU that is not there, see fake_cuda.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from test.runtime.fake_cuda import FakeLibrary, open_fake
from weft import Tensor, dtypes
from weft.device import Buffer, Device
from weft.runtime.ops_cuda import CUDADevice


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary(memory_bytes=256 << 20, devices=2)


@pytest.fixture
def gpu(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[CUDADevice]:
    """CUDA:7 of the registry, so that no real GPU and no kept kernel is mistaken for it."""
    device = open_fake("CUDA", library)
    monkeypatch.setitem(Device._opened, "CUDA", device)
    device.name = device.context.name = "CUDA"
    yield device
    gc.collect()


def test_bytes_come_back(gpu: CUDADevice) -> None:
    data = bytes(range(256))
    buffer = Buffer("CUDA", 256, dtypes.uint8).copyin(data)
    assert bytes(buffer.as_memoryview()) == data
    assert bytes(buffer.view(3, dtypes.uint8, 5).as_memoryview()) == data[5:8]


@pytest.mark.parametrize("nbytes", [1, 64 << 10, (64 << 10) + 1, 9 << 20, (32 << 20) + 3])
def test_large_copies_go_through_pinned_chunks(gpu: CUDADevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = Buffer("CUDA", nbytes, dtypes.uint8).copyin(memoryview(data))
    found = np.empty(nbytes, dtype=np.uint8)
    buffer.copyout(memoryview(found))
    assert np.array_equal(found, data)
    assert np.array_equal(buffer.numpy(), data)


def test_a_kernel_runs(gpu: CUDADevice) -> None:
    x = Tensor([1.0, 2.0, 3.0], device="CUDA")
    assert (x * 2 + 1).tolist() == [3.0, 5.0, 7.0]
    assert x.sum().item() == 6.0


def test_a_product_runs_in_groups(gpu: CUDADevice) -> None:
    left = np.arange(32 * 8, dtype=np.float32).reshape(32, 8)
    right = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    found = Tensor(left, device="CUDA") @ Tensor(right, device="CUDA")
    assert np.array_equal(found.numpy(), left @ right)
