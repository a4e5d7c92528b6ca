"""The METAL device over a package that records its calls: nobody ran it on a GPU."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from weft import Tensor, Variable, dtypes
from weft.codegen.pipeline import lower
from weft.device import Buffer, Device
from weft.engine.programs import facts_of
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.runtime import ops_metal
from weft.runtime.ops_metal import MetalDevice


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self.data = bytearray(nbytes)

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda nbytes: memoryview(self.data)[:nbytes])

    def length(self) -> int:
        return len(self.data)


class _Encoder:
    """Writes down what it is asked for; a copy is done."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, source: _Memory, start: int, target: _Memory, place: int, nbytes: int
    ) -> None:
        target.data[place : place + nbytes] = source.data[start : start + nbytes]


class _Commands:
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.problem: Any = None

    def computeCommandEncoder(self) -> _Encoder:
        return _Encoder(self.calls)

    def blitCommandEncoder(self) -> _Encoder:
        return _Encoder(self.calls)

    def setLabel_(self, label: str) -> None:
        self.text = label

    def label(self) -> str:
        return self.text

    def commit(self) -> None:
        self.calls.append(("commit", self.text))

    def waitUntilCompleted(self) -> None:
        self.calls.append(("wait",))

    def error(self) -> Any:
        return self.problem

    def GPUStartTime(self) -> float:
        return 1.0

    def GPUEndTime(self) -> float:
        return 1.5


class FakeMetal:
    """What `import Metal` gives on a Mac, as far as weft asks."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.failure: Any = None

    def MTLCopyAllDevices(self) -> list[Any]:
        return [self]

    @property
    def MTLCompileOptions(self) -> Any:
        options = SimpleNamespace(setFastMathEnabled_=lambda on: self.calls.append(("fast", on)))
        return SimpleNamespace(alloc=lambda: SimpleNamespace(init=lambda: options))

    @staticmethod
    def MTLSizeMake(x: int, y: int, z: int) -> tuple[int, int, int]:
        return x, y, z

    # the device
    def name(self) -> str:
        return "A GPU"

    def newCommandQueue(self) -> Any:
        return SimpleNamespace(commandBuffer=lambda: _Commands(self.calls))

    def maxBufferLength(self) -> int:
        return 1 << 20

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> _Memory | None:
        return _Memory(nbytes) if nbytes <= 1 << 20 else None

    def newLibraryWithSource_options_error_(self, src: str, options: Any, error: Any) -> Any:
        return (None if self.failure else self), self.failure

    def newFunctionWithName_(self, name: str) -> str:
        return name

    def newComputePipelineStateWithFunction_error_(self, function: str, error: Any) -> Any:
        return SimpleNamespace(maxTotalThreadsPerThreadgroup=lambda: 1024), None


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> tuple[MetalDevice, FakeMetal]:
    package = FakeMetal()
    device = MetalDevice("METAL", package)
    monkeypatch.setitem(Device._opened, "METAL", device)
    return device, package


def program_of(device: MetalDevice, value: Tensor) -> tuple[Any, Any]:
    spec = lower(value.schedule()[0].kernel, device.renderer)
    return device.load(facts_of(spec), device.compiler.compile(spec.src)), spec


def test_bytes_come_back(metal: tuple[MetalDevice, FakeMetal]) -> None:
    buffer = Buffer("METAL", 20, dtypes.uint8).copyin(bytes(range(20)))
    buffer.view(3, dtypes.uint8, 5).copyin(b"abc")
    other = Buffer("METAL", 20, dtypes.uint8).copy_from(buffer)
    assert bytes(other.as_memoryview()) == bytes([*range(5), *b"abc", *range(8, 20)])


def test_a_launch_binds_buffers_then_values(metal: tuple[MetalDevice, FakeMetal]) -> None:
    device, package = metal
    count = Variable("n", 1, 64).bind(23)
    x = Tensor.ones(64, device="CPU").contiguous().realize()
    program, spec = program_of(device, x.shrink(((0, count),)).sum())
    buffers = [Buffer("METAL", 64, dtypes.float32).allocate() for _ in range(2)]
    package.calls.clear()
    part = buffers[1].view(60, dtypes.float32, 16)
    assert program([buffers[0], part], [23], wait=True) == 0.5
    bound = [call[1:] for call in package.calls if call[0] == "setBuffer_offset_atIndex_"]
    assert bound == [(buffers[0].opaque.buffer, 0, 0), (part.opaque.buffer, 16, 1)]
    values = [call[1:] for call in package.calls if call[0] == "setBytes_length_atIndex_"]
    assert values == [(struct.pack("<i", 23), 4, 2)]
    names = [call[0] for call in package.calls]
    assert names[-4:] == [
        "dispatchThreadgroups_threadsPerThreadgroup_",
        "endEncoding",
        "commit",
        "wait",
    ]
    (sizes,) = [call[1:] for call in package.calls if call[0].startswith("dispatch")]
    assert sizes[1] == (tuple(spec.local_size) or (1, 1, 1))
    with pytest.raises(ArgumentError, match="takes 2 buffers and 1 values, but got 1 and 0"):
        program(buffers[:1])


def test_the_compiler_does_not_rearrange_floats(metal: tuple[MetalDevice, FakeMetal]) -> None:
    device, package = metal
    device.compiler.compile("kernel void k() {}")
    assert ("fast", False) in package.calls
    package.failure = SimpleNamespace(localizedDescription=lambda: "line 3: no such name")
    with pytest.raises(CompileError, match="METAL does not compile: line 3: no such name"):
        device.compiler.compile("kernel void k() { x; }")


def test_too_much_memory_is_refused(metal: tuple[MetalDevice, FakeMetal]) -> None:
    with pytest.raises(MemoryError, match="METAL cannot give .*at most 1048576 bytes"):
        Buffer("METAL", 1 << 21, dtypes.uint8).allocate()


def test_errors_of_the_gpu_name_the_kernel(metal: tuple[MetalDevice, FakeMetal]) -> None:
    device, package = metal
    commands = _Commands(package.calls)
    commands.problem = SimpleNamespace(localizedDescription=lambda: "page fault")
    device.context.commit(commands, "E_3 (mine.py:7)")
    with pytest.raises(DeviceError, match=r"page fault, found after E_3 \(mine.py:7\)"):
        device.synchronize()


def test_where_there_is_no_metal_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(ops_metal, "importlib", SimpleNamespace(import_module=absent))
    with pytest.raises(DeviceError, match="no Metal: No module named 'Metal'; on a Mac: pip inst"):
        MetalDevice("METAL")
    with pytest.raises(DeviceError, match="METAL:3: Metal shows 1 GPUs"):
        MetalDevice("METAL:3", FakeMetal())
