"""The WEBGPU device on whatever adapter there is, and over packages that have none."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from test.optional import need_device
from weft import Context, Tensor, TinyJit, Variable, dtypes
from weft.device import Buffer, Device
from weft.engine.programs import clear_programs, runner_for
from weft.errors import ArgumentError, CompileError, DeviceError, OutOfMemory
from weft.runtime import webgpu_context
from weft.runtime.ops_webgpu import WEBGPUDevice


@pytest.fixture
def gpu() -> WEBGPUDevice:
    device = need_device("WEBGPU")
    assert isinstance(device, WEBGPUDevice)
    return device


def on_gpu(values: Any, **kwargs: Any) -> Tensor:
    return Tensor(values, device="WEBGPU", **kwargs)


# ------------------------------------------------------------ memory
@pytest.mark.parametrize("nbytes", [1, 3, 4, 257, 100_003])
def test_bytes_come_back(gpu: WEBGPUDevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = Buffer("WEBGPU", nbytes, dtypes.uint8).copyin(memoryview(data))
    assert bytes(buffer.as_memoryview()) == data.tobytes()
    other = Buffer("WEBGPU", nbytes, dtypes.uint8).copy_from(buffer)
    assert bytes(other.as_memoryview()) == data.tobytes()


@pytest.mark.parametrize(("start", "size"), [(0, 3), (1, 1), (2, 9), (3, 5), (4, 4), (7, 6)])
def test_parts_of_words_are_written_alone(gpu: WEBGPUDevice, start: int, size: int) -> None:
    buffer = Buffer("WEBGPU", 20, dtypes.uint8).copyin(bytes(range(20)))
    buffer.view(size, dtypes.uint8, start).copyin(bytes([99] * size))
    wanted = [*range(start), *[99] * size, *range(start + size, 20)]
    assert list(buffer.as_memoryview()) == wanted
    assert list(buffer.view(size, dtypes.uint8, start).as_memoryview()) == [99] * size


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_views_start_where_no_binding_may(gpu: WEBGPUDevice, dtype: str) -> None:
    values = np.arange(100).astype(dtype)
    whole = on_gpu(values).realize()
    for start in (1, 3, 64, 65):
        part = whole[start : start + 9].contiguous().realize()
        assert (part + 1).tolist() == (values[start : start + 9] + 1).tolist()
    whole[5:8].assign(on_gpu(np.array([100, 101, 102], dtype))).realize()
    assert whole.tolist() == [*range(5), 100, 101, 102, *range(8, 100)]


def test_a_write_beside_another_result_lands_in_its_part(gpu: WEBGPUDevice) -> None:
    """Both are one kernel, whose threads take the remainder of their number for the smaller one."""
    whole, other = on_gpu(np.arange(49, dtype=np.uint32)).realize(), on_gpu(np.ones(35, np.float32))
    part = whole[35:41]
    part[0:2] = 100
    (other.realize() * 2).realize(part)
    assert whole.tolist() == [*range(35), 100, 100, *range(37, 49)]


def test_what_would_be_bound_twice_is_copied(gpu: WEBGPUDevice) -> None:
    """A kernel that reads one part of a memory and writes another one beside it."""
    kernel = (on_gpu(np.ones(8, np.float32)).realize() * 3 + 1).schedule()[0].kernel
    program = runner_for(kernel, "WEBGPU").program
    memory = Buffer("WEBGPU", 40, dtypes.float32).copyin(np.arange(40, dtype=np.float32).data)
    for target, source in ((0, 8), (9, 0), (3, 11), (20, 20)):
        before = memory.numpy().copy()
        out = memory.view(8, dtypes.float32, 4 * target)
        program([out, memory.view(8, dtypes.float32, 4 * source)])
        before[target : target + 8] = before[source : source + 8] * 3 + 1
        assert np.array_equal(memory.numpy(), before), (target, source)


def test_memory_that_begins_inside_an_element_is_refused(gpu: WEBGPUDevice) -> None:
    kernel = (on_gpu([1.0, 2.0, 3.0]).realize() + 1).schedule()[0].kernel
    memory = Buffer("WEBGPU", 64, dtypes.uint8).allocate()
    odd, even = memory.view(12, dtypes.uint8, 2), memory.view(12, dtypes.uint8, 32)
    with pytest.raises(ArgumentError, match="starts at byte 2, which is no multiple .* 4 bytes"):
        runner_for(kernel, "WEBGPU").program([odd, even])


def test_too_much_memory_is_refused(gpu: WEBGPUDevice) -> None:
    with pytest.raises(OutOfMemory, match="WEBGPU gives at most"):
        Buffer("WEBGPU", 1 << 45, dtypes.uint8).allocate()
    assert (on_gpu([1, 2]) + 1).tolist() == [2, 3]


def test_a_binding_that_is_too_large_is_refused(
    gpu: WEBGPUDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = (on_gpu(np.ones(64, np.float32)).realize() * 5).schedule()[0].kernel
    program = runner_for(kernel, "WEBGPU").program
    monkeypatch.setattr(program, "_most", 128)
    buffers = [Buffer("WEBGPU", 64, dtypes.float32).allocate() for _ in range(2)]
    with pytest.raises(DeviceError, match="a buffer of 256 bytes, but WEBGPU binds at most 128"):
        program(buffers)


# ------------------------------------------------------------ programs
def test_results_are_those_of_numpy(gpu: WEBGPUDevice) -> None:
    values = np.random.default_rng(1).normal(size=(37, 53)).astype(np.float32)
    x = on_gpu(values)
    assert np.allclose((x @ x.T).numpy(), values @ values.T, rtol=1e-4, atol=1e-4)
    assert np.allclose(x.softmax(1).numpy().sum(1), 1, rtol=1e-5)
    assert (x.cast(dtypes.int64) // 3).tolist() == (values.astype(np.int64) // 3).tolist()


def test_random_numbers_are_those_of_the_cpu(gpu: WEBGPUDevice) -> None:
    found = []
    for device in ("WEBGPU", "CPU"):
        Tensor.manual_seed(7)
        numbers = [Tensor.rand(5, 9, device=device), Tensor.randint(20, high=99, device=device)]
        found.append([number.numpy() for number in numbers])
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_kernels_have_no_more_buffers_than_there_may_be(
    gpu: WEBGPUDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.full(7, number, np.float32) for number in range(80)]
    total = on_gpu(arrays[0])
    for array in arrays[1:]:
        total = total + on_gpu(array)
    assert total.tolist() == [float(sum(range(80)))] * 7


def test_float64_is_refused_with_what_to_do(gpu: WEBGPUDevice) -> None:
    with pytest.raises(CompileError, match=r"has no dtypes.double.*compute in float32"):
        (on_gpu([1.0, 2.0], dtype=dtypes.float64) * 3).realize()


def test_texts_are_kept_on_disk(gpu: WEBGPUDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute() -> list[float]:
        result: list[float] = (on_gpu([1.5, 2.5, 3.25]) * 3 + 0.125).tolist()
        return result

    clear_programs()
    first = compute()
    clear_programs()

    def refuse(src: str) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(gpu.compiler, "compile", refuse)
    assert compute() == first == [4.625, 7.625, 9.875]


def test_an_error_of_the_validator_names_the_kernel(gpu: WEBGPUDevice) -> None:
    source = "@compute @workgroup_size(1)\nfn mine(@builtin(workgroup_id) group: vec3<u32>) { x }"
    with pytest.raises(CompileError, match="WEBGPU does not compile mine: "):
        gpu.compiler.compile(source)


def test_an_error_of_a_launch_names_kernel_and_line(
    gpu: WEBGPUDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    (on_gpu([1.0, 2.0]) * 9).realize()

    def fail(commands: Any) -> None:
        raise gpu.context.package.GPUError("lost")

    with monkeypatch.context() as patched:
        patched.setattr(gpu.context.queue, "submit", fail)
        with pytest.raises(DeviceError, match=r"lost. The last launches: \w+ \(test_ops_webgpu"):
            gpu.synchronize()


def test_launches_have_times(gpu: WEBGPUDevice, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2):
        (on_gpu(np.ones((64, 64), np.float32)) + 2).realize()
    assert "WEBGPU" in capsys.readouterr().out


def test_commands_are_gathered_and_stay_in_order(gpu: WEBGPUDevice) -> None:
    x = on_gpu(np.zeros(5, np.float32)).realize()
    for step in range(150):
        x.assign(x + step).realize()
    assert x.tolist() == [float(sum(range(150)))] * 5


# ------------------------------------------------------------ replay
def test_a_captured_function_is_replayed(gpu: WEBGPUDevice) -> None:
    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).relu() @ w).sum(1).realize()

    random = np.random.default_rng(2)
    w = random.normal(size=(8, 8)).astype(np.float32)
    for _ in range(5):
        x = random.normal(size=(4, 8)).astype(np.float32)
        wanted = (np.maximum(x @ w, 0) @ w).sum(1)
        assert np.allclose(step(on_gpu(x), on_gpu(w)).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_variables_are_words(gpu: WEBGPUDevice) -> None:
    x = on_gpu(np.arange(40, dtype=np.float32).reshape(10, 4)).realize()
    for count in (1, 4, 10):
        rows = x.shrink(((0, Variable("n", 1, 10).bind(count)), (0, 4)))
        assert rows.sum(0).tolist() == x.numpy()[:count].sum(0).tolist()


# ------------------------------------------------------------ opening
def test_the_target_has_the_limits_of_the_device(gpu: WEBGPUDevice) -> None:
    target = gpu.renderer.target
    assert 8 <= target.max_buffers <= gpu.context.limit("max-storage-buffers-per-shader-stage")
    assert target.shared_bytes == gpu.context.limit("max-compute-workgroup-storage-size")
    assert target.grid_limits[0] == gpu.context.limit("max-compute-workgroups-per-dimension")


def test_an_adapter_that_is_not_there_is_an_error(gpu: WEBGPUDevice) -> None:
    with pytest.raises(DeviceError, match=r"WEBGPU:99: there .* so the last one is WEBGPU:\d+"):
        Device["WEBGPU:99"]
    with pytest.raises(DeviceError, match="write WEBGPU or WEBGPU:1"):
        Device["WEBGPU:first"]


def test_a_package_without_adapters_says_what_to_install() -> None:
    package = SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=list))
    with pytest.raises(DeviceError, match="finds no adapter; install .*mesa-vulkan-drivers"):
        WEBGPUDevice("WEBGPU", package)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(webgpu_context, "importlib", SimpleNamespace(import_module=absent))
    with pytest.raises(DeviceError, match="no WebGPU: No module named 'wgpu'; pip install wgpu"):
        webgpu_context.open_package()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told(gpu: WEBGPUDevice) -> None:
    (on_gpu([1.0]) + 1).realize()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gpu.context.use()
            os.write(write, b"used")
        except DeviceError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as end:
        assert b"a forked process cannot use a device of its parent" in end.read()
