"""CUDA C: what is special in its text, and that NVRTC compiles every kernel of the corpus."""

from __future__ import annotations

import pytest

from test.renderer import golden_kernels
from test.renderer.corpus import PROGRAMS, cases_of
from test.renderer.launch import compile_cuda
from test.renderer.programs import const, elementwise, load, program
from weft import Tensor
from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.cuda import SM_90, CUDARenderer, cuda_target
from weft.uop.args import LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

f32 = dtypes.float32


@pytest.mark.parametrize("name", golden_kernels.KERNELS)
def test_text_is_as_kept(name: str) -> None:
    renderer = CUDARenderer()
    text = golden_kernels.text_of(name, renderer)
    assert text == golden_kernels.golden_file(name, renderer).read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_compiles_for_hopper(name: str) -> None:
    for case in cases_of(name):
        with Context(SPEC=1):
            spec = lower(case.kernel, CUDARenderer())
        assert compile_cuda(spec.src)


@pytest.mark.parametrize("name", ["elementwise", "sum_rows", "matmul", "conv", "softmax"])
def test_kernels_compile_without_optimisation(name: str) -> None:
    for case in cases_of(name):
        with Context(NOOPT=1, SPEC=1):
            spec = lower(case.kernel, CUDARenderer())
        assert compile_cuda(spec.src)


def test_vectors_may_begin_anywhere() -> None:
    """Buffers may be parts of others, so that alignment is a question of run time."""
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    text = CUDARenderer().render(
        "k", program(out.index(const(4)).store(load(x, const(0), lanes=4)))
    )
    assert "load_lanes<f32x4>(data1 + 0)" in text
    assert "alignof(V) - 1" in text
    assert "struct __align__(16) f32x4 { float lane[4]; };" in text


def test_ops_that_round_where_they_stand_are_intrinsics() -> None:
    uops, _ = elementwise([lambda x: (x * x).rtag("exact")], [f32])
    assert "__fmul_rn(" in CUDARenderer().render("k", uops)


def test_halves_are_converted_by_instructions() -> None:
    uops, _ = elementwise([lambda x: x.cast(f32)], [dtypes.float16])
    text = CUDARenderer().render("k", uops)
    assert "cvt.f32.f16" in text and "half_to_float(val0)" in text


def test_infinity_needs_no_header() -> None:
    value = UOp.const(f32, float("-inf"))
    wide = UOp.const(dtypes.float64, float("nan"))
    stores = [
        UOp.param(0, f32, 1).index(const(0)).store(value),
        UOp.param(1, dtypes.float64, 1).index(const(0)).store(wide),
    ]
    text = CUDARenderer().render("k", program(*stores))
    assert "-__int_as_float(0x7f800000)" in text
    assert "__longlong_as_double(0x7ff8000000000000ll)" in text
    compile_cuda(text)


def test_shared_memory_and_barriers() -> None:
    memory = UOp(Ops.LOCAL, f32, (), LocalArg(0, 64, "shared"))
    mine = UOp(Ops.LOCAL, f32, (), LocalArg(1, 4))
    barrier = UOp(Ops.BARRIER, dtypes.void, (), 0)
    index = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    store = memory.index(index).store(UOp.const(f32, 1.0))
    text = CUDARenderer().render("k", program(mine, store, barrier))
    assert "__shared__ __align__(16) float buf0[64];" in text
    # the last wide access of a loop may read beyond what is asked for
    odd = UOp(Ops.LOCAL, f32, (), LocalArg(0, 25, "shared"))
    uneven = CUDARenderer().render("k", program(odd.index(index).store(UOp.const(f32, 1.0))))
    assert "__shared__ __align__(16) float buf0[28];" in uneven
    assert "  float buf1[4];" in text
    assert "int lidx0 = threadIdx.x;" in text
    assert "__syncthreads();" in text
    assert "__launch_bounds__(64)" in text


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(dtypes.bfloat16, f32), (dtypes.int8, dtypes.int32), (dtypes.fp8e5m2, f32), (f32, f32)],
    ids=str,
)
def test_fragments_are_functions_around_their_instructions(dtype: DType, wide: DType) -> None:
    with Context(ALLOW_TF32=1):
        a, b = [Tensor.empty(500, 512, dtype=dtype).cast(wide) for _ in range(2)]
        (step,) = (a @ b.T).schedule()
        spec = lower(step.ast, CUDARenderer(cuda_target(8, 9, cores=128, l2=72 << 20)))
    assert "mma_sync_aligned_m16n8k" in spec.src and "= load_matrices_4<" in spec.src
    assert "fetch<" in spec.src and "cp.async.wait_group" in spec.src
    # more than a kernel may declare is given by the launch
    assert spec.shared_bytes > 48 << 10
    assert "extern __shared__ __align__(16) unsigned char shared[];" in spec.src
    compile_cuda(spec.src)


@pytest.mark.parametrize(
    ("dtype", "wide"), [(dtypes.bfloat16, f32), (dtypes.int8, dtypes.int32)], ids=str
)
def test_products_of_hopper_read_swizzled_rows_by_themselves(dtype: DType, wide: DType) -> None:
    a, b = [Tensor.empty(2048, 2048, dtype=dtype).cast(wide) for _ in range(2)]
    (step,) = (a @ b.T).schedule()
    spec = lower(step.ast, CUDARenderer())
    assert "extern __shared__ __align__(1024) unsigned char shared[];" in spec.src
    assert f"swizzled<{dtype.itemsize}>(" in spec.src and "= describe(" in spec.src
    assert "fence.proxy.async.shared::cta" in spec.src and "settle(acc" in spec.src
    compile_cuda(spec.src)


def test_too_many_buffers_are_refused() -> None:
    few = CUDARenderer(Target(name="small", has_local=True, max_buffers=1))
    uops, _ = elementwise([lambda x: x], [f32])
    with pytest.raises(CompileError, match="2 buffers, small takes at most 1"):
        few.render("k", uops)


def test_the_target_says_what_a_hopper_has() -> None:
    assert (SM_90.warp_size, SM_90.group_threads, SM_90.vector_bytes) == (32, 1024, 16)
    assert SM_90.index_dtype is dtypes.int32 and SM_90.has_local
    assert CUDARenderer().target is SM_90
