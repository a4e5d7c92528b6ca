"""OpenCL C: what is special in its text, and that every kernel of the corpus runs as elsewhere."""

from __future__ import annotations

import pytest

from test.renderer import golden_kernels
from test.renderer.corpus import SHARE_OF_PROGRAMS, cases_of, check_contents
from test.renderer.launch import run_opencl
from test.renderer.programs import const, elementwise, load, program
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.knobs import Context
from weft.renderer.opencl import OPENCL, OpenCLRenderer
from weft.uop.args import LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

f32 = dtypes.float32


@pytest.mark.parametrize("name", golden_kernels.KERNELS)
def test_text_is_as_kept(name: str) -> None:
    renderer = OpenCLRenderer()
    text = golden_kernels.text_of(name, renderer)
    assert text == golden_kernels.golden_file(name, renderer).read_text()


@pytest.mark.parametrize("name", SHARE_OF_PROGRAMS)
def test_every_kernel_computes_the_same(name: str) -> None:
    for case in cases_of(name):
        with Context(SPEC=1):
            spec = lower(case.kernel, OpenCLRenderer())
        check_contents(case, spec, run_opencl(case, spec))


@pytest.mark.parametrize("name", ["sum_rows", "matmul_uneven", "conv", "softmax", "several_nests"])
def test_kernels_run_without_optimisation(name: str) -> None:
    for case in cases_of(name):
        with Context(NOOPT=1, SPEC=1):
            spec = lower(case.kernel, OpenCLRenderer())
        check_contents(case, spec, run_opencl(case, spec))


def test_bools_are_bytes_in_memory() -> None:
    """A kernel of OpenCL takes no bool: its size is the device's business."""
    text = OpenCLRenderer().render("k", elementwise([lambda x: x], [dtypes.bool])[0])
    assert "__global uchar* data0, const ulong start0, __global const uchar* data1" in text
    assert "bool val0 = data1[ridx0];" in text


def test_vectors_need_no_alignment() -> None:
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    uops = program(out.index(const(4)).store(load(x, const(0), lanes=4)))
    text = OpenCLRenderer().render("k", uops)
    assert "float4 val0 = vload4(0, data1 + 0" in text
    assert "vstore4(val0, 0, data0 + 4" in text


def test_lanes_that_opencl_lacks_are_structures() -> None:
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    value = load(x, const(0), lanes=5)
    text = OpenCLRenderer().render("k", program(out.index(const(0)).store(value + value)))
    assert "typedef struct { float s0, s1, s2, s3, s4; } floatx5;" in text
    assert "(floatx5){val0.s0 + val0.s0, val0.s1 + val0.s1" in text
    assert "data0[0 + 4] = " in text


def test_structures_of_dtypes_with_one_type_are_declared_once() -> None:
    x, out = UOp.param(1, dtypes.uint8, 64), UOp.param(0, dtypes.bool, 64)
    value = load(x, const(0), lanes=32).cast(dtypes.bool.vec(32))
    text = OpenCLRenderer().render("k", program(out.index(const(0)).store(value)))
    assert text.count("typedef struct") == 1 and "ucharx32" in text


def test_what_rounds_where_it_stands_is_not_fused() -> None:
    product = elementwise([lambda x: x * x + x], [f32])[0]
    sums = elementwise([lambda x: x + x], [f32])[0]
    assert "#pragma OPENCL FP_CONTRACT OFF" in OpenCLRenderer().render("k", product)
    assert "FP_CONTRACT" not in OpenCLRenderer().render("k", sums)


def test_bits_of_a_narrow_result_are_taken_at_its_own_width() -> None:
    """C computes bytes as ints: `as_char` of one is refused."""

    def bits(x: UOp) -> UOp:
        return (x < 5).where(x, x.const_like(0)).bitcast(dtypes.int8)

    text = OpenCLRenderer().render("k", elementwise([bits], [dtypes.uint8])[0])
    assert "as_char((uchar)(" in text


def test_doubles_are_asked_for() -> None:
    text = OpenCLRenderer().render("k", elementwise([lambda x: x + x], [dtypes.float64])[0])
    assert "cl_khr_fp64" in text and "double val0" in text


def test_shared_memory_and_barriers() -> None:
    memory = UOp(Ops.LOCAL, f32, (), LocalArg(0, 64, "shared"))
    index = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    store = memory.index(index).store(UOp.const(f32, 1.0))
    text = OpenCLRenderer().render("k", program(store, UOp(Ops.BARRIER, dtypes.void, (), 0)))
    assert "__local float buf0[64];" in text
    assert "barrier(CLK_LOCAL_MEM_FENCE);" in text
    assert "reqd_work_group_size(64, 1, 1)" in text


def test_the_target_is_what_all_devices_have() -> None:
    assert OPENCL.group_threads == 256 and OPENCL.shared_bytes == 32 << 10
    assert OPENCL.index_dtype is dtypes.int32
