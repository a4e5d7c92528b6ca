"""What only a GPU shows: memory to its limit, processes that die, several at once, profiles.

Skipped where no GPU opens; `make test-cuda` runs them. The same device over a driver that is not
there is tested in `test_ops_cuda.py`.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from test.children import Child
from weft import Device, Tensor, TinyJit
from weft.device import Buffer
from weft.dtype import dtypes
from weft.errors import DeviceError, OutOfMemory, WeftError
from weft.runtime.cuda_memory import CUDAAllocator
from weft.runtime.ops_cuda import CUDADevice

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gpu() -> CUDADevice:
    try:
        device = Device["CUDA"]
    except WeftError as error:
        pytest.skip(f"no GPU: {error}")
    assert isinstance(device, CUDADevice)
    return device


def allocator(device: CUDADevice) -> CUDAAllocator:
    found = device.allocator
    assert isinstance(found, CUDAAllocator)
    return found


def own_bytes(device: CUDADevice) -> int:
    """What this process has of the GPU's memory once nothing is kept; others come and go."""
    gc.collect()
    device.synchronize()
    allocator(device).release_cache()
    return allocator(device).memory.mapped_bytes


def start(code: str, **options: str) -> Child:
    environment = {**os.environ, "DEVICE": "CUDA", "PYTHONPATH": str(ROOT), **options}
    return Child(
        [sys.executable, "-c", code],
        limit=120,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_random_allocations_up_to_the_memory_leave_nothing_behind(gpu: CUDADevice) -> None:
    memory = allocator(gpu).memory
    before, free = own_bytes(gpu), gpu.context.memory()[0]
    draw = random.Random(1)
    # some is left to other programs, or they would fail
    limit = free // 2
    held: list[Buffer] = []
    refused = 0
    for _ in range(1000):
        nbytes = int(2 ** draw.uniform(0, np.log2(limit)))
        while sum(b.nbytes for b in held) + nbytes > limit:
            held.pop(draw.randrange(len(held)))
        try:
            held.append(Buffer(gpu.name, nbytes, dtypes.uint8).allocate())
        except OutOfMemory:
            # pieces of many sizes do not always fit
            refused += 1
        if held and draw.random() < 0.4:
            held.pop(draw.randrange(len(held)))
    assert refused < 20
    assert memory.mapped_bytes > limit // 4
    held.clear()
    assert own_bytes(gpu) <= before


def test_more_than_there_is_names_a_line_and_work_goes_on(gpu: CUDADevice) -> None:
    x = Tensor.full((1 << 20,), 2.0, device=gpu.name).contiguous().realize()
    total = gpu.context.memory()[1]
    with pytest.raises(OutOfMemory, match="the GPU has .* bytes"):
        Tensor.empty(total, dtype=dtypes.uint8, device=gpu.name).contiguous().realize()
        Buffer(gpu.name, total, dtypes.uint8).allocate()
    assert (x + 1).sum().item() == 3.0 * (1 << 20)


ENDLESS = """
from weft import Tensor, TinyJit
x = Tensor.rand(2048, 2048).realize()
held = Tensor.empty(1 << 30, dtype="uint8").contiguous().realize()
step = TinyJit(lambda x: (x @ x * 1e-3).realize())
for i in range(10**9):
    step(x)
    if i == 5:
        print("running", flush=True)
"""


def test_a_killed_process_leaves_the_gpu_to_others(gpu: CUDADevice) -> None:
    with start(ENDLESS) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n", child.stderr and child.stderr.read()
        child.kill()
        child.wait(60)
    assert Tensor([1.0, 2.0], device=gpu.name).sum().item() == 3.0
    with start(COMPUTED.replace("SEED", "3")) as child:
        assert child.communicate()[0] == "same\n"


COMPUTED = """
import numpy as np
from weft import Tensor, TinyJit
data = np.random.default_rng(SEED).standard_normal((512, 512)).astype(np.float32)
x = Tensor(data).realize()
step = TinyJit(lambda x: (x @ x).relu().sum().realize())
found = [step(x).item() for _ in range(50)]
expected = np.maximum(data.astype(np.float64) @ data, 0).sum()
assert len(set(found)) == 1 and abs(found[0] / expected - 1) < 1e-4, (found[0], expected)
print("same")
"""


def test_two_processes_at_once(gpu: CUDADevice) -> None:
    with start(COMPUTED.replace("SEED", "1")) as one, start(COMPUTED.replace("SEED", "2")) as two:
        said = [child.communicate() for child in (one, two)]
    assert [out for out, _ in said] == ["same\n", "same\n"], said


def test_an_exception_in_the_middle_of_a_graph(gpu: CUDADevice) -> None:
    state = {"fails": False}
    x = Tensor(np.arange(1 << 12, dtype=np.float32), device=gpu.name).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        y = (x * 2).contiguous().realize()
        if state["fails"]:
            raise ValueError("in the middle")
        return (y + 1).realize()

    expected = np.arange(1 << 12, dtype=np.float32) * 2 + 1
    for _ in range(4):
        assert np.array_equal(step(x).numpy(), expected)
    state["fails"] = True
    with pytest.raises(ValueError, match="in the middle"):
        step(x)
    state["fails"] = False
    for _ in range(4):
        assert np.array_equal(step(x).numpy(), expected)


UNFINISHED = """
from weft import Tensor
x = Tensor.rand(4096, 4096)
for _ in range(20):
    x = (x @ x).realize()
"""


def test_a_program_that_ends_in_the_middle_of_work_ends_cleanly(gpu: CUDADevice) -> None:
    with start(UNFINISHED) as child:
        said = child.communicate()
        assert child.returncode == 0 and said == ("", ""), said


def test_memory_of_another_gpu_is_copied_directly(gpu: CUDADevice) -> None:
    try:
        other = Device["CUDA:1"]
    except DeviceError as error:
        pytest.skip(f"one GPU: {error}")
    data = np.random.default_rng(3).standard_normal(1 << 20).astype(np.float32)
    x = Tensor(data, device=gpu.name) * 2
    moved = x.to(other.name) + 1
    assert np.array_equal(moved.to(gpu.name).numpy(), data * 2 + 1)


TRACED = """
from weft import Tensor
x = Tensor.rand(512, 512).realize()
(x @ x).sum().item()
"""


def test_a_profile_shows_kernels_and_copies_by_the_clock_of_the_gpu(
    gpu: CUDADevice, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    with start(TRACED, PROFILE="1", PROFILE_TRACE=str(path)) as child:
        said = child.communicate()
        assert child.returncode == 0, said
    events = json.loads(path.read_text())["traceEvents"]
    names = [event.get("name", "") for event in events if event.get("ph") == "X"]
    assert any(name.startswith("r_512") for name in names), names
