"""The CL device on whatever driver there is, and over a library without devices."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.optional import need_device
from weft import Context, Tensor, TinyJit, Variable, dtypes
from weft.device import Buffer, Device
from weft.engine import kept
from weft.engine.programs import clear_programs, runner_for
from weft.errors import ArgumentError, CompileError, DeviceError, OutOfMemory
from weft.renderer.opencl import OPENCL
from weft.runtime.cl_context import Context as CLContext
from weft.runtime.cl_driver import Driver, describe
from weft.runtime.ops_cl import CLDevice


@pytest.fixture
def cl() -> CLDevice:
    device = need_device("CL")
    assert isinstance(device, CLDevice)
    return device


def on_cl(values: Any, **kwargs: Any) -> Tensor:
    return Tensor(values, device="CL", **kwargs)


# ------------------------------------------------------------ memory
def test_bytes_come_back(cl: CLDevice) -> None:
    data = bytes(range(256))
    buffer = Buffer("CL", 256, dtypes.uint8).copyin(data)
    assert bytes(buffer.as_memoryview()) == data
    assert bytes(buffer.view(3, dtypes.uint8, 5).as_memoryview()) == data[5:8]
    other = Buffer("CL", 256, dtypes.uint8).copy_from(buffer)
    part = Buffer("CL", 7, dtypes.uint8).copy_from(buffer.view(7, dtypes.uint8, 9))
    assert bytes(other.as_memoryview()) == data and bytes(part.as_memoryview()) == data[9:16]


def test_views_start_where_no_part_of_an_object_may(cl: CLDevice) -> None:
    whole = on_cl(np.arange(40, dtype=np.float32)).realize()
    for start in (1, 3, 17):
        part = whole[start : start + 9].contiguous().realize()
        assert ((part + 1) * 2).tolist() == [(v + 1) * 2 for v in range(start, start + 9)]
    whole[5:8].assign(on_cl([100.0, 101.0, 102.0])).realize()
    assert whole.tolist() == [*range(5), 100, 101, 102, *range(8, 40)]


def test_memory_that_begins_inside_an_element_is_refused(cl: CLDevice) -> None:
    kernel = (on_cl([1.0, 2.0, 3.0]).realize() + 1).schedule()[0].kernel
    runner = runner_for(kernel, "CL")
    memory = Buffer("CL", 64, dtypes.uint8).allocate()
    odd, even = memory.view(12, dtypes.uint8, 2), memory.view(12, dtypes.uint8, 32)
    with pytest.raises(ArgumentError, match="starts at byte .* no multiple .* 4 bytes"):
        runner.program([odd, even])


def test_too_much_memory_is_refused(cl: CLDevice) -> None:
    with pytest.raises(OutOfMemory, match="CL cannot give"):
        Buffer("CL", 1 << 45, dtypes.uint8).allocate()
    assert (on_cl([1, 2]) + 1).tolist() == [2, 3]


def test_freed_memory_is_used_again(cl: CLDevice) -> None:
    Buffer("CL", 1 << 20, dtypes.uint8).allocate().deallocate()
    mapped = cl.allocator.memory.mapped_bytes
    for _ in range(10):
        Buffer("CL", 1 << 20, dtypes.uint8).allocate().deallocate()
    assert cl.allocator.memory.mapped_bytes == mapped


# ------------------------------------------------------------ programs
def test_results_are_those_of_the_cpu(cl: CLDevice) -> None:
    values = np.random.default_rng(1).normal(size=(37, 53)).astype(np.float32)
    x = on_cl(values)
    assert np.allclose((x @ x.T).numpy(), values @ values.T, rtol=1e-5, atol=1e-5)
    assert np.allclose(x.softmax(1).numpy().sum(1), 1, rtol=1e-6)
    assert (x.cast(dtypes.int32) // 3).tolist() == (values.astype(np.int32) // 3).tolist()


def test_random_numbers_are_those_of_the_cpu(cl: CLDevice) -> None:
    found = []
    for device in ("CL", "CPU"):
        Tensor.manual_seed(7)
        found.append(Tensor.randn(5, 9, device=device).numpy())
    assert np.array_equal(*found)


def test_binaries_are_kept_on_disk(cl: CLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute() -> list[float]:
        result: list[float] = (on_cl([1.5, 2.5, 3.25]) * 3 + 0.125).tolist()
        return result

    clear_programs()
    first = compute()
    clear_programs()

    def refuse(src: str) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(cl.compiler, "compile", refuse)
    assert compute() == first == [4.625, 7.625, 9.875]


def test_what_is_no_binary_is_compiled_anew(cl: CLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    load = kept.load
    monkeypatch.setattr(
        kept, "load", lambda key: (found[0], b"damaged") if (found := load(key)) else None
    )
    for _ in range(2):
        clear_programs()
        assert (on_cl([1.0, 2.0]) * 5 - 0.5).tolist() == [4.5, 9.5]


def test_an_error_of_the_compiler_names_kernel_and_line(cl: CLDevice) -> None:
    source = "__kernel void mine(__global float* x) {\n  x[0] = nowhere;\n}\n"
    with pytest.raises(CompileError, match=r"does not compile mine.*(?s:.*)nowhere"):
        cl.compiler.compile(source)


def test_a_refused_launch_names_kernel_and_line(
    cl: CLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cl.context.driver, "clEnqueueNDRangeKernel", lambda *rest: -54)
    with pytest.raises(DeviceError, match=r"CL refuses \w+ \(test_ops_cl.py:\d+\) over .*-54"):
        (on_cl([3.0, 4.0]) * 7).tolist()


def test_an_error_that_comes_later_names_the_last_launches(
    cl: CLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    (on_cl([3.0, 4.0]) * 9).realize()
    with monkeypatch.context() as patched:
        patched.setattr(cl.context.driver, "clFinish", lambda queue: -36)
        with pytest.raises(DeviceError, match=r"-36 .*last launches: \w+ \(test_ops_cl.py:\d+\)"):
            cl.synchronize()
    cl.synchronize()


def test_launches_have_times(cl: CLDevice, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2):
        (on_cl(np.ones((64, 64), np.float32)) + 2).realize()
    assert "CL" in capsys.readouterr().out
    kernel = (on_cl(np.ones(1000, np.float32)).realize() + 1).schedule()[0].kernel
    buffers = [Buffer("CL", 1000, dtypes.float32).allocate() for _ in range(2)]
    seconds = runner_for(kernel, "CL").program(buffers, (), wait=True)
    assert seconds is not None and 0 <= seconds < 10


def test_threads_may_share_a_program(cl: CLDevice) -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        for _ in range(5):
            results[number] = (on_cl(np.full(100, number, np.float32)) * 2 + 1).tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: [2.0 * number + 1] * 100 for number in range(4)}


# ------------------------------------------------------------ replay
def test_a_captured_function_is_replayed(cl: CLDevice) -> None:
    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).relu() @ w).sum(1).realize()

    random = np.random.default_rng(2)
    w = random.normal(size=(8, 8)).astype(np.float32)
    for _ in range(5):
        x = random.normal(size=(4, 8)).astype(np.float32)
        wanted = (np.maximum(x @ w, 0) @ w).sum(1)
        assert np.allclose(step(on_cl(x), on_cl(w)).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_variables_are_arguments(cl: CLDevice) -> None:
    x = on_cl(np.arange(40, dtype=np.float32).reshape(10, 4)).realize()
    for count in (1, 4, 10):
        rows = x.shrink(((0, Variable("n", 1, 10).bind(count)), (0, 4)))
        assert rows.sum(0).tolist() == x.numpy()[:count].sum(0).tolist()


# ------------------------------------------------------------ opening
def test_the_target_is_what_the_device_says(cl: CLDevice) -> None:
    target = cl.context.target()
    assert target.cores == cl.context.units
    assert target.has_local or target.has_threads
    assert ("fp64" in target.features) == (dtypes.float64 in cl.renderer.supported_dtypes())


def test_a_device_that_is_not_there_is_an_error(cl: CLDevice) -> None:
    with pytest.raises(DeviceError, match=r"CL:99: there .* so the last one is CL:\d+"):
        Device["CL:99"]
    with pytest.raises(DeviceError, match="write CL or CL:1"):
        Device["CL:first"]


class Empty:
    """A library without a driver."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cl"):
            raise AttributeError(name)
        return lambda *arguments: -1001


def test_a_library_without_drivers_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="no driver shows a device; install .*pocl-opencl-icd"):
        CLDevice("CL", Driver(Empty()))


def test_a_library_that_is_none_is_refused() -> None:
    with pytest.raises(DeviceError, match="the OpenCL library has no clGetPlatformIDs"):
        Driver(object())


def test_codes_have_words() -> None:
    assert describe(-54) == "error -54 (INVALID_WORK_GROUP_SIZE)"
    assert "no vendor's driver is installed" in describe(-1001)


@pytest.mark.parametrize(
    ("local_type", "kind", "is_grouped"), [(1, 4, True), (2, 2, False), (1, 2, False)]
)
def test_groups_are_for_devices_with_memory_of_their_own(
    local_type: int, kind: int, is_grouped: bool
) -> None:
    """A GPU gets groups of threads, a CPU loops over vectors, whatever its local memory is."""
    context = CLContext.__new__(CLContext)
    facts = {0x1000: kind, 0x1002: 12, 0x1004: 512, 0x1010: 1 << 30, 0x1017: 4352, 0x101B: 0xBF}
    facts |= {0x101D: 128, 0x101E: 4 << 20, 0x1022: local_type, 0x1023: 48 << 10, 0x103A: 8}
    facts |= {0x4043: 64}
    texts = {0x102B: b"Some GPU\0", 0x1030: b"cl_khr_fp16 cl_khr_icd\0"}
    sizes = b"".join(n.to_bytes(8, "little") for n in (512, 512, 64))
    context.fact = lambda number: (  # type: ignore[method-assign]
        texts.get(number) or (sizes if number == 0x1005 else facts[number].to_bytes(8, "little"))
        if number in facts or number in texts or number == 0x1005
        else b""
    )
    target = context.target()
    assert target.has_local is is_grouped and target.cores == 12 and target.max_buffers == 255
    assert target.features == ("fp16",) and target.has_fma
    if is_grouped:
        assert target.group_threads == 512 and target.group_limits == (512, 512, 64)
        assert target.shared_bytes == 48 << 10 and target.warp_size == 64
        assert target.index_dtype is OPENCL.index_dtype
    else:
        assert target.vector_bytes == 32 and target.has_threads


def test_the_cpu_goes_on_where_there_is_no_driver(tmp_path: Path) -> None:
    code = (
        "import ctypes, weft\n"
        "from weft.runtime import cl_driver\n"
        "cl_driver._libraries = lambda: ['libNoSuchOpenCL.so']\n"
        "try:\n    weft.Device['CL']\nexcept weft.device.DeviceError as error:\n    print(error)\n"
        "print((weft.Tensor([1, 2]) + 1).tolist(), weft.Device.DEFAULT)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("DEVICE", "DEV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("no OpenCL: libNoSuchOpenCL.so") and "pocl-opencl-icd" in lines[0]
    assert lines[1] == "[2, 3] CPU", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told(cl: CLDevice) -> None:
    (on_cl([1.0]) + 1).realize()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cl.context.use()
            os.write(write, b"used")
        except DeviceError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as end:
        assert b"a forked process cannot use a device of its parent" in end.read()
