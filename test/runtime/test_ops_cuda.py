"""The CUDA device over a driver of a GPU that is not there, see fake_cuda.py."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from test.runtime.fake_cuda import FakeLibrary, open_fake
from weft import Context, Tensor, TinyJit, Variable, dtypes
from weft.device import Buffer, Device
from weft.engine.storage import node_of
from weft.errors import CompileError, DeviceError, OutOfMemory
from weft.runtime.cuda_compile import LinkCompiler
from weft.runtime.cuda_driver import Driver
from weft.runtime.cuda_memory import CUDAAllocator
from weft.runtime.ops_cuda import CUDADevice

# of the next test: programs and schedules are kept by the device's name
_numbers = itertools.count(3)


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary(memory_bytes=256 << 20, devices=1000)


@pytest.fixture
def gpu(library: FakeLibrary) -> CUDADevice:
    """A GPU of the registry, whatever this machine has."""
    return registered(library)


def registered(library: FakeLibrary) -> CUDADevice:
    # it stays: memory of a test that failed is freed much later
    device = open_fake(f"CUDA:{next(_numbers)}", library)
    Device._opened[device.name] = device
    return device


def test_blobs_are_memory_of_the_gpu(gpu: CUDADevice) -> None:
    buffer = Buffer(gpu.name, 16, dtypes.uint8).copyin(bytes(range(16)))
    shared = Tensor.from_blob(buffer.address, (16,), dtype=dtypes.uint8, device=gpu.name)
    assert shared.tolist() == list(range(16))
    memory = (ctypes.c_float * 2)(1.0, 2.0)
    with pytest.raises(DeviceError, match='no address of memory that CUDA.* device="CPU"'):
        Tensor.from_blob(ctypes.addressof(memory), (2,), device=gpu.name)


def test_bytes_come_back(gpu: CUDADevice) -> None:
    data = bytes(range(256))
    buffer = Buffer(gpu.name, 256, dtypes.uint8).copyin(data)
    assert bytes(buffer.as_memoryview()) == data
    assert bytes(buffer.view(3, dtypes.uint8, 5).as_memoryview()) == data[5:8]


@pytest.mark.parametrize("nbytes", [1, 64 << 10, (64 << 10) + 1, 9 << 20, (32 << 20) + 3])
def test_large_copies_go_through_pinned_chunks(gpu: CUDADevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = Buffer(gpu.name, nbytes, dtypes.uint8).copyin(memoryview(data))
    found = np.empty(nbytes, dtype=np.uint8)
    buffer.copyout(memoryview(found))
    assert np.array_equal(found, data)
    assert np.array_equal(buffer.numpy(), data)


def test_a_kernel_runs(gpu: CUDADevice) -> None:
    x = Tensor([1.0, 2.0, 3.0], device=gpu.name)
    assert (x * 2 + 1).tolist() == [3.0, 5.0, 7.0]
    assert x.sum().item() == 6.0


def test_a_product_runs_in_groups(gpu: CUDADevice) -> None:
    left = np.arange(32 * 8, dtype=np.float32).reshape(32, 8)
    right = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    found = Tensor(left, device=gpu.name) @ Tensor(right, device=gpu.name)
    assert np.array_equal(found.numpy(), left @ right)


# ------------------------------------------------------------ order
def test_freed_memory_is_reused_in_the_order_of_the_stream(gpu: CUDADevice) -> None:
    first = Tensor(np.full(1 << 16, 3.0, np.float32), device=gpu.name).realize()
    sums = []
    for value in range(4):
        # the memory of the last result goes to the next one while its reader still waits
        sums.append((first * value).contiguous().sum().realize())
    assert [s.item() for s in sums] == [value * 3.0 * (1 << 16) for value in range(4)]


def test_a_copy_into_fresh_memory_does_not_wait_for_launches(
    gpu: CUDADevice, library: FakeLibrary
) -> None:
    x = Tensor([1.0, 2.0], device=gpu.name).realize()
    y = (x + 1).realize()
    waits = library.calls.get("cuStreamWaitEvent", 0)
    data = np.arange(1 << 18, dtype=np.float32)
    z = Tensor(data, device=gpu.name).realize()
    # only the work stream waits, for the copy
    assert library.calls["cuStreamWaitEvent"] == waits + 1
    assert np.array_equal((z + 1).numpy(), data + 1)
    assert y.tolist() == [2.0, 3.0]


def test_a_copy_into_used_memory_waits_for_its_readers(gpu: CUDADevice) -> None:
    old, new = np.zeros(1 << 18, np.float32), np.ones(1 << 18, np.float32)
    buffer = Buffer(gpu.name, old.size, dtypes.float32).copyin(memoryview(old))
    x = Tensor._from_uop(node_of(buffer))
    total = x.sum().realize()
    buffer.copyin(memoryview(new))
    assert total.item() == 0.0
    assert x.sum().item() == old.size


def test_what_was_read_can_be_changed_and_given_back(gpu: CUDADevice) -> None:
    """Results are read to pinned memory, which the driver looks at late."""
    read = Tensor(np.zeros(1 << 16, np.float32), device=gpu.name).numpy()
    read[:4] = 1.0
    small, large = Tensor(read[:4], device=gpu.name), Tensor(read, device=gpu.name)
    read[:] = 7.0
    assert small.tolist() == [1.0] * 4
    assert large.sum().item() == 4.0


def test_results_beyond_what_may_be_pinned_are_read_to_ordinary_memory(
    gpu: CUDADevice, library: FakeLibrary
) -> None:
    assert isinstance(gpu.allocator, CUDAAllocator)
    gpu.allocator.pinned.memory.most_bytes = 1 << 20
    data = np.arange(1 << 16, dtype=np.float32)
    x = Tensor(data, device=gpu.name).realize()
    held = [x.numpy() for _ in range(8)]
    assert all(np.array_equal(found, data) for found in held)
    assert gpu.allocator.pinned.memory.mapped_bytes <= 1 << 20
    del held
    assert np.array_equal(x.numpy(), data)


# ------------------------------------------------------------ devices
def test_values_move_among_devices(gpu: CUDADevice, library: FakeLibrary) -> None:
    other = registered(library)
    data = np.arange(1 << 15, dtype=np.int32)
    there = (Tensor(data, device=gpu.name) + 1).to(other.name)
    assert np.array_equal((there * 2).to("CPU").numpy(), (data + 1) * 2)
    assert np.array_equal((there * 2).to("PYTHON").to(gpu.name).numpy(), (data + 1) * 2)


def test_files_go_straight_to_the_device(gpu: CUDADevice, tmp_path: Path) -> None:
    data = np.random.default_rng(2).standard_normal(3 << 19).astype(np.float32)
    path = tmp_path / "data"
    path.write_bytes(data.tobytes())
    there = Tensor(path, dtype=dtypes.float32).to(gpu.name)
    assert np.array_equal(there.numpy(), data)
    (there[:1000] + 1).to(f"DISK:{tmp_path / 'out'}").realize()
    assert np.array_equal(np.fromfile(tmp_path / "out", np.float32), data[:1000] + 1)


# ------------------------------------------------------------ graphs
def test_a_graph_replays_with_one_copy_and_one_launch(
    gpu: CUDADevice, library: FakeLibrary
) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return ((x + 1).contiguous() * 2).contiguous().sum().realize()

    for value in range(5):
        before = dict(library.calls)
        found = step(Tensor([float(value)] * 4, device=gpu.name).realize())
        assert found.item() == (value + 1) * 8
    launched = {name: n - before.get(name, 0) for name, n in library.calls.items()}
    assert launched["cuGraphLaunch"] == 1 and launched["cuLaunchKernel"] == 0
    assert library.calls.get("cuGraphExecKernelNodeSetParams_v2", 0) == 0


def test_results_of_a_graph_are_new_memory(gpu: CUDADevice) -> None:
    step = TinyJit(lambda x: (x * 2).realize())
    results = [step(Tensor([float(i)], device=gpu.name).realize()) for i in range(6)]
    assert [r.item() for r in results] == [2.0 * i for i in range(6)]


def test_grids_of_run_time_sizes_grow(gpu: CUDADevice, library: FakeLibrary) -> None:
    x = Tensor.arange(1024, device=gpu.name, dtype=dtypes.float32).contiguous().realize()
    step = TinyJit(lambda n, x: (x[:n] + 1).contiguous().sum().realize())
    variable = Variable("n", 1, 1024)
    for n in (3, 4, 900, 2, 1024, 1, 700):
        assert step(variable.bind(n), x).item() == sum(range(n)) + n
    assert library.calls.get("cuGraphExecKernelNodeSetParams_v2", 0) <= 4


def test_random_numbers_of_a_graph_are_those_of_the_host(gpu: CUDADevice) -> None:
    def draws(device: str) -> list[list[float]]:
        Tensor.manual_seed(5)
        step = TinyJit(lambda: Tensor.rand(3, device=device).realize())
        return [step().tolist() for _ in range(4)]

    assert draws(gpu.name) == draws("CPU")


def test_a_graph_writes_to_state(gpu: CUDADevice) -> None:
    state = Tensor([0.0, 0.0], device=gpu.name).contiguous().realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x).realize()
        return (state * 2).realize()

    for i in range(1, 6):
        assert step(Tensor([1.0, 2.0], device=gpu.name).realize()).tolist() == [2.0 * i, 4.0 * i]
    assert state.tolist() == [5.0, 10.0]


def test_a_graph_goes_on_after_an_exception(gpu: CUDADevice) -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    x = Tensor([1.0], device=gpu.name).realize()
    for _ in range(3):
        step(x)
    with pytest.raises(ZeroDivisionError):
        step(Tensor([1.0 / 0], device=gpu.name))
    assert step(x).item() == 2.0


# ------------------------------------------------------------ errors
def test_no_memory_says_what_holds_it(gpu: CUDADevice, library: FakeLibrary) -> None:
    held = [Tensor(np.ones(16 << 20, np.uint8), device=gpu.name).realize() for _ in range(8)]
    with pytest.raises(OutOfMemory) as found:
        Tensor(np.ones(240 << 20, np.uint8), device=gpu.name).realize()
    text = str(found.value)
    assert "251658240 bytes (240.00 MiB)" in text
    assert "(128.00 MiB) are in use (held by tensors made at test_ops_cuda.py:" in text
    assert f"in {len(held)}" in text and "free tensors" in text
    assert f"the GPU has {256 << 20} bytes" in text
    del held
    assert Tensor(np.ones(240 << 20, np.uint8), device=gpu.name).realize().shape == (240 << 20,)


def test_cached_memory_and_garbage_are_given_up_under_pressure(
    gpu: CUDADevice, library: FakeLibrary
) -> None:
    gc.disable()  # or it may come by itself
    try:
        for megabytes in (40, 50, 60, 70, 30):
            cycle: list[object] = [Buffer(gpu.name, megabytes << 20, dtypes.uint8).allocate()]
            cycle.append(cycle)
            del cycle
        assert library.in_use > 200 << 20
    finally:
        gc.enable()
    Buffer(gpu.name, 200 << 20, dtypes.uint8).allocate()


def test_a_lost_context_names_the_kernel_and_the_line_once(
    gpu: CUDADevice, library: FakeLibrary
) -> None:
    wild = Tensor._from_uop(node_of(Buffer.from_opaque(gpu.name, 8, dtypes.float32, 16)))
    pending = (wild + 1).realize()
    with pytest.raises(DeviceError) as found:
        pending.tolist()
    text = str(found.value)
    assert "error 700 (CUDA_ERROR_ILLEGAL_ADDRESS" in text
    assert "It was" in text and "(test_ops_cuda.py:" in text and "DEBUG=2" in text
    with pytest.raises(DeviceError, match="lost since an earlier error .* restart the process"):
        Tensor([1.0], device=gpu.name).realize()
    assert (Tensor([1.0], device="CPU") + 1).tolist() == [2.0]


def test_an_error_in_a_graph_names_its_lines(gpu: CUDADevice) -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    x = Tensor([1.0] * 8, device=gpu.name).realize()
    for _ in range(3):
        step(x)
    wild = Tensor._from_uop(node_of(Buffer.from_opaque(gpu.name, 8, dtypes.float32, 16)))
    found = step(wild)
    with pytest.raises(DeviceError, match=r"a graph of E_8 \(test_ops_cuda.py:\d+\)"):
        found.tolist()


def test_debug_2_waits_for_each_kernel(gpu: CUDADevice, capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([1.0, 2.0], device=gpu.name).realize()
    with Context(DEBUG=2):
        (x + 1).realize()
    printed = capsys.readouterr().out
    assert gpu.name in printed and "250.00us" in printed.replace(" ", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"init": 100}, "the driver finds no GPU"),
        ({"init": 999}, "kernel module"),
        ({"init": 304}, "/dev/nvidia"),
        ({"version": 11000}, "for CUDA 11.0, at least 11.4 is needed"),
        ({"devices": 0}, "the driver shows 0 GPUs"),
    ],
)
def test_a_driver_that_is_of_no_use_is_a_sentence(arguments: dict[str, int], expected: str) -> None:
    with pytest.raises(DeviceError, match=expected):
        open_fake("CUDA", FakeLibrary(**arguments))


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="shows 2 GPUs, so the last one is number 1"):
        open_fake("CUDA:2", FakeLibrary(devices=2))


def test_a_driver_without_a_function_is_too_old() -> None:
    with pytest.raises(DeviceError, match="has no cuInit: it is older than CUDA 11.4"):
        Driver(object())


def test_several_threads_share_a_device(gpu: CUDADevice) -> None:
    found: list[float] = []

    def work(value: float) -> None:
        x = Tensor(np.full(1 << 15, value, np.float32), device=gpu.name)
        found.append((x + 1).sum().item() / (1 << 15))

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_forked_child_is_refused(gpu: CUDADevice) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gpu.context.use()
            os.write(writing, b"used")
        except DeviceError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert b"opened before this process was forked" in os.read(reading, 4096)
    os.close(reading)


def test_ptx_is_linked_by_the_driver(gpu: CUDADevice) -> None:
    compiler = LinkCompiler(gpu.context, "sm_90", lambda source, arch: source.encode(), "1")
    assert compiler.compile_all(["one", "two"]) == [b"one", b"two"]
    with pytest.raises(CompileError, match="does not compile PTX for sm_90: error 218"):
        compiler.compile("wrong")
