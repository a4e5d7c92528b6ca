"""DEVICE=AMD in the emulator: tensors to results on three architectures.

The oracle of kernels is the same LLVM IR on the host, bit for bit; of methods it is the table's. A
share of both is here; all methods, gradients and layers run with `make test-amd`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from test.methods.row import plan
from test.methods.run import check_values, names
from test.methods.table import TABLE
from test.renderer.amd_host import can_run, run_on_host
from test.renderer.corpus import Case, cases_of
from weft import Context, Device, Tensor, TinyJit, Variable, nn
from weft.amd import rdna3
from weft.codegen.pipeline import lower
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.programs import facts_of
from weft.errors import ArgumentError, DeviceError
from weft.renderer.base import ProgramSpec
from weft.runtime.ops_amd import AMDDevice, choose_agent

ARCHS = ["gfx1100", "gfx1201", "gfx950"]
# every so many rows of the table, each on one of the architectures
SHARE = 23
PLANS = [(row, asked, dtype) for row in TABLE for asked, dtype, _ in list(plan(row, False))[:1]][
    ::SHARE
]
KERNELS = """elementwise integers integers_by_data long_integers functions sum_columns matmul_tiles
cast_from_float16 cast_from_float64 gather variable_rows softmax""".split()
# units in the last place of results that v_exp_f32 is part of: the hardware's is off by one, and a
# softmax divides two sums of it
EXP_UNITS = 8


def run_on_device(device: Any, case: Case, spec: ProgramSpec, lib: bytes) -> list[bytes]:
    buffers = []
    for contents, dtype in zip(case.before, case.dtypes, strict=True):
        buffer = Buffer(device.name, len(contents) // dtype.itemsize, dtype).allocate()
        buffers.append(buffer.copyin(contents))
    program = device.load(facts_of(spec), lib)
    program(buffers, [case.values[v.arg.name] for v in spec.variables], wait=True)
    return [bytes(buffer.as_memoryview()) for buffer in buffers]


def same_bits(found: bytes, wanted: bytes, kind: Any) -> bool:
    """Whether bits are equal; NaNs are one value."""
    if kind not in (dtypes.float32, dtypes.float64, dtypes.float16):
        return found == wanted
    numbers = np.dtype(kind.fmt)
    a, b = np.frombuffer(found, numbers), np.frombuffer(wanted, numbers)
    bits = np.dtype(f"u{kind.itemsize}")
    return bool(((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_the_same_ir_on_the_host_to_the_bit(name: str, arch: str) -> None:
    device = Device[f"AMD:{arch}"]
    for case in cases_of(name):
        spec = lower(case.kernel, device.renderer)
        if not can_run(spec.src):
            continue
        found = run_on_device(device, case, spec, device.compiler.compile(spec.src))
        wanted = run_on_host(case, spec)
        for slot in spec.outs:
            if "exp2" in spec.src:
                a, b = [np.frombuffer(x[slot], np.float32) for x in (found, wanted)]
                np.testing.assert_array_max_ulp(a, b, EXP_UNITS)
            else:
                assert same_bits(found[slot], wanted[slot], case.dtypes[slot]), case.name


@pytest.mark.parametrize(("number", "planned"), enumerate(PLANS), ids=names(PLANS))
def test_methods_give_what_their_references_give(number: int, planned: Any) -> None:
    check_values(*planned, f"AMD:{ARCHS[number % 3]}")


@pytest.mark.parametrize("arch", ARCHS)
def test_a_network_learns_as_on_the_cpu(arch: str) -> None:
    def losses(device: str) -> list[float]:
        with Context(DEV=device):
            Tensor.manual_seed(3)
            data = np.random.default_rng(1).normal(0, 1, (8, 1, 8, 8)).astype(np.float32)
            x, y = Tensor(data), Tensor(np.arange(8) % 3)
            conv, last = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 3)
            steps = nn.optim.SGD([*nn.state.get_parameters(conv), *nn.state.get_parameters(last)])
            found = []
            with Tensor.train():
                for _ in range(3):
                    steps.zero_grad()
                    loss = last(conv(x).relu().flatten(1)).sparse_categorical_crossentropy(y)
                    loss.backward()
                    steps.step()
                    found.append(loss.item())
            return found

    np.testing.assert_allclose(losses(f"AMD:{arch}"), losses("CPU"), rtol=1e-5)


def test_halves_are_multiplied_by_the_matrix_unit() -> None:
    rng = np.random.default_rng(2)
    a, b = [rng.normal(0, 1, (64, 64)).astype(np.float16) for _ in range(2)]
    for arch in ARCHS:
        with Context(DEV=f"AMD:{arch}"):
            found = (Tensor(a) @ Tensor(b)).numpy()
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(found, wanted, atol=0.02, rtol=1e-3)


def test_captured_functions_replay() -> None:
    with Context(DEV="AMD:gfx1100"):
        step = TinyJit(lambda x: (x * 2 + 1).sum(1).realize())
        for i in range(4):
            found = step(Tensor(np.full((3, 5), i, np.float32)).realize())
            assert found.tolist() == [10.0 * i + 5] * 3


def test_sizes_known_at_run_time() -> None:
    with Context(DEV="AMD:gfx1201"):
        x = Tensor(np.arange(40, dtype=np.float32).reshape(20, 2)).realize()
        for size in (3, 20):
            rows = Variable("rows", 1, 20).bind(size)
            found = (x.shrink(((0, rows), (0, 2))) * 2.0).sum(0).tolist()
            assert found == (2 * np.arange(40).reshape(20, 2)[:size].sum(0)).tolist()


# ------------------------------------------------------------ opening
def test_an_architecture_may_be_part_of_the_name() -> None:
    device = Device["AMD:gfx942"]
    assert device.arch == "gfx942" and "emulated" in device.description
    with pytest.raises(DeviceError, match="AMD:gfx1201 to emulate"):
        AMDDevice("AMD:gfx803")


def test_the_emulator_is_opened_where_there_is_no_hardware() -> None:
    with Context(AMD_EMULATE=1, AMD_ARCH="gfx1151"):
        assert choose_agent(0).arch == "gfx1151"
    with Context(AMD_ARCH="gfx7"), pytest.raises(ArgumentError, match="AMD_ARCH=gfx7"):
        choose_agent(0)
    with Context(AMD_EMULATE=0):
        try:
            choose_agent(0)
        except DeviceError as error:
            assert "hsa" in str(error).lower()


def test_memory_has_edges() -> None:
    """A program that is given less memory than it was made for says so."""
    (case,) = cases_of("elementwise_wide")[:1]
    device = Device["AMD:gfx1100"]
    spec = lower(case.kernel, device.renderer)
    program = device.load(facts_of(spec), device.compiler.compile(spec.src))
    buffers = [Buffer(device.name, 8, dtype).allocate() for dtype in case.dtypes]
    with pytest.raises(DeviceError, match=r"kernel E_\w+: gfx1100: global_\w+ .* touches address"):
        program(buffers, [], wait=True)
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_kernels_written_by_hand_run_on_tensors() -> None:
    code = rdna3.kernel(
        "double",
        [
            rdna3.s_load_b64(rdna3.s[2:3], rdna3.s[0:1], 0),
            rdna3.v_lshlrev_b32(rdna3.v[1], 2, rdna3.v[0]),
            rdna3.s_waitcnt(lgkmcnt=0),
            rdna3.global_load_b32(rdna3.v[2], rdna3.v[1], rdna3.s[2:3]),
            rdna3.s_waitcnt(vmcnt=0),
            rdna3.v_add_f32(rdna3.v[2], rdna3.v[2], rdna3.v[2]),
            rdna3.global_store_b32(rdna3.v[1], rdna3.v[2], rdna3.s[2:3]),
            rdna3.s_endpgm(),
        ],
        ["x"],
    )
    device = Device["AMD:gfx1100"]
    x = Tensor(np.arange(32, dtype=np.float32), device="AMD:gfx1100").realize()
    device.launch("double", code, [x], groups=(1, 1, 1), threads=(32, 1, 1))  # type: ignore[attr-defined]
    assert x.tolist() == [2.0 * i for i in range(32)]
    with pytest.raises(ArgumentError, match="a tensor is on CPU"):
        other = Tensor([1.0], device="CPU").realize()
        device.launch("double", code, [other], (1, 1, 1), (32, 1, 1))  # type: ignore[attr-defined]
