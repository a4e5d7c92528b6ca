"""NVPTX: what is special in its text, that LLVM takes every kernel, and what kernels compute.

Values are checked on the host, which runs the same LLVM IR (`nvptx_host.py`); the machine's own
conversions and barriers are what is left to a GPU.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from test.fuzz import actions
from test.renderer.corpus import PROGRAMS, Case, cases_of, check_contents
from test.renderer.nvptx_host import can_run, run_on_host
from test.renderer.programs import const, elementwise, load, program
from weft import Tensor
from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes, from_numpy_dtype
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.base import ProgramSpec, Target
from weft.renderer.cuda import BF16, FP8, SM_90, cuda_target
from weft.renderer.nvptx import NVPTXRenderer
from weft.runtime.nvptx import emit_ptx
from weft.uop.args import KernelInfo, LocalArg
from weft.uop.node import UOp
from weft.uop.opset import FALLING, Ops

f32, bf16 = dtypes.float32, dtypes.bfloat16
# without conversions that only NVPTX has
SM_75 = cuda_target(7, 5, cores=40, l2=4 << 20)
SM_89 = cuda_target(8, 9, cores=128, l2=72 << 20, most_shared_bytes=163 << 10)


def lowered(case: Case, target: Target = SM_90) -> ProgramSpec:
    with Context(SPEC=1):
        return lower(case.kernel, NVPTXRenderer(target))


def ptx_of(uops: list[UOp], target: Target = SM_90) -> str:
    return emit_ptx(NVPTXRenderer(target).render("k", uops), target.name).decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_compiles_for_hopper(name: str) -> None:
    for case in cases_of(name):
        text = emit_ptx(lowered(case).src, "sm_90").decode()
        assert ".visible .entry" in text and "ret;" in text


@pytest.mark.parametrize("name", ["elementwise", "sum_rows", "matmul", "conv", "softmax"])
def test_kernels_compile_without_optimisation(name: str) -> None:
    for case in cases_of(name):
        with Context(NOOPT=1, SPEC=1):
            spec = lower(case.kernel, NVPTXRenderer())
        assert emit_ptx(spec.src, "sm_90")


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_compute_what_the_cpu_does(name: str) -> None:
    for case in cases_of(name):
        spec = lowered(case, SM_75)
        if can_run(spec.src):
            check_contents(case, spec, run_on_host(case, spec))


@pytest.mark.parametrize("name", ["elementwise_wide", "adam", "cast_from_uint8", "bfloat"])
def test_buffers_may_begin_anywhere(name: str) -> None:
    """A buffer may be a part of another one; then accesses are as narrow as they have to be."""
    wide = False
    for case in cases_of(name):
        spec = lowered(case, SM_75)
        wide = wide or "@anywhere" in spec.src
        if can_run(spec.src):
            widest = max(dtype.itemsize for dtype in case.dtypes)
            check_contents(case, spec, run_on_host(case, spec, offset=widest))
    assert wide


@pytest.mark.parametrize("name", ["elementwise", "variable", "variable_rows", "adam", "gather"])
def test_arguments_may_be_in_a_table(name: str) -> None:
    """As in graphs, whose nodes never change: only the table of words does."""
    for case in cases_of(name):
        spec = lowered(case, SM_75)
        if can_run(spec.src):
            check_contents(case, spec, run_on_host(case, spec, with_words=True))


@pytest.mark.parametrize("first", range(300_000, 300_060, 12))
def test_random_actions_keep_what_kernels_compute(first: int) -> None:
    """Kernels after random optimisations, as the interpreter computes them without."""
    ran = 0
    for seed in range(first, first + 12):
        drawn = actions.random_case(seed, draws_target=False)
        expected = actions.run(drawn.ast, drawn)
        with Context(NOOPT=1):
            spec = lower(drawn.optimised(), NVPTXRenderer(SM_75))
        if not can_run(spec.src):
            continue
        ran += 1
        contents = tuple([array.tobytes() for array in drawn.arrays])
        kinds = tuple([from_numpy_dtype(array.dtype) for array in drawn.arrays])
        case = Case(f"seed {seed}", drawn.ast, contents, contents, {}, kinds)
        found = run_on_host(case, spec)
        for slot in spec.outs:
            values = np.frombuffer(found[slot], drawn.arrays[slot].dtype)
            np.testing.assert_array_equal(values, expected[slot].reshape(-1), str(seed))
    assert ran


# ---------------------------------------------------------------- what ops become
def test_products_and_sums_round_where_they_stand() -> None:
    uops, _ = elementwise([lambda x, y: x * y + y], [f32, f32])
    text = ptx_of(uops)
    assert "mul.rn.f32" in text and "add.rn.f32" in text and "fma" not in text


def test_fused_products_are_one_instruction() -> None:
    uops, _ = elementwise([lambda x, y: UOp(Ops.MULACC, f32, (x, y, y))], [f32, f32])
    assert "fma.rn.f32" in ptx_of(uops)


def test_division_and_roots_are_those_of_ieee() -> None:
    uops, _ = elementwise([lambda x, y: x / y, lambda x, y: x.sqrt()], [f32, f32])
    text = ptx_of(uops)
    assert "div.rn.f32" in text and "sqrt.rn.f32" in text
    assert not re.search(r"approx|ftz", text)


def test_the_greater_of_two_is_nan_if_one_is() -> None:
    uops, _ = elementwise([lambda x, y: x.maximum(y)], [f32, f32])
    assert "max.NaN.f32" in ptx_of(uops)


def test_narrow_floats_are_converted_by_instructions_where_the_chip_has_them() -> None:
    uops, _ = elementwise([lambda x: x.cast(bf16)], [f32], lanes=4)
    assert "cvt.rn.bf16x2.f32" in ptx_of(uops)
    uops, _ = elementwise([lambda x: x.cast(dtypes.float16)], [f32], lanes=4)
    assert "cvt.rn.f16x2.f32" in ptx_of(uops)
    uops, _ = elementwise([lambda x: x.cast(dtypes.fp8e4m3)], [f32], lanes=4)
    assert "cvt.rn.satfinite.e4m3x2.f32" in ptx_of(uops)
    uops, _ = elementwise([lambda x: x.cast(f32)], [dtypes.fp8e5m2], lanes=4)
    assert "cvt.rn.f16x2.e5m2x2" in ptx_of(uops)


def test_narrow_floats_that_a_chip_lacks_must_have_been_decomposed() -> None:
    uops, _ = elementwise([lambda x: x.cast(bf16)], [f32])
    with pytest.raises(CompileError, match="decompose the cast first"):
        NVPTXRenderer(SM_75).render("k", uops)


def test_indices_take_32_bits() -> None:
    (case,) = cases_of("elementwise_wide")
    text = lowered(case).src.partition("begin:")[2].partition("ret void")[0]
    assert "mul nsw i32" in text and not re.search(r"(mul|add|ext) .*i64", text)


# ---------------------------------------------------------------- memory
def copied(lanes: int, first: int, dtype: dtypes = f32) -> list[UOp]:
    x, out = UOp.param(1, dtype, 64), UOp.param(0, dtype, 64)
    i = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 4),), "lidx0")
    place = i * lanes + UOp.const(dtypes.int32, first)
    return program(out.index(place).store(load(x, place, lanes=lanes)))


@pytest.mark.parametrize(
    ("dtype", "lanes", "access"),
    [
        (f32, 4, "v4.b32"),
        (bf16, 8, "v4.b32"),
        (dtypes.int8, 16, "v4.b32"),
        (dtypes.int64, 2, "v2.b64"),
    ],
)
def test_neighbours_are_accessed_16_bytes_at_a_time(dtype: dtypes, lanes: int, access: str) -> None:
    text = ptx_of(copied(lanes, 0, dtype))
    assert f"ld.global.nc.{access}" in text and f"st.global.{access}" in text


def test_accesses_are_as_wide_as_alignment_is_proven() -> None:
    kernel = ptx_of(copied(4, 2)).partition(".entry")[2]
    assert "ld.global.nc.v2.b32" in kernel and "v4" not in kernel
    kernel = ptx_of(copied(4, 1)).partition(".entry")[2]
    assert "v2" not in kernel and "anywhere" not in kernel


def test_what_a_kernel_writes_is_not_read_through_the_read_only_cache() -> None:
    x = UOp.param(0, f32, 64)
    i = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    text = ptx_of(program(x.index(i).store(load(x, i) + 1.0)))
    assert "ld.global.b32" in text and ".nc" not in text.partition("$L")[2].partition(":")[2]


def test_an_invalid_access_does_not_happen() -> None:
    x, out = UOp.param(1, f32, 64), UOp.param(0, f32, 64)
    i = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    value = load(x, i, valid=i < 5)
    text = NVPTXRenderer().render("k", program(out.index(i, i < 6).store(value)))
    assert re.search(r"br i1 .*\nat\d+:\n.*\n.*load float", text)
    assert re.search(r"phi float \[ .*, %at\d+ \], \[ 0x0000000000000000, %begin \]", text)
    assert re.search(r"br i1 .*\nat\d+:\n.*\n  store float", text)


def test_shared_memory_and_barriers() -> None:
    memory = UOp(Ops.LOCAL, f32, (), LocalArg(0, 64, "shared"))
    barrier = UOp(Ops.BARRIER, dtypes.void, (), 0)
    index = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    store = memory.index(index).store(UOp.const(f32, 1.0))
    other = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 9),), "gidx1")
    out = UOp.param(0, f32, 64).index(other).store(load(memory, const(3, dtypes.int32)))
    text = ptx_of(program(store, barrier, out))
    assert ".shared .align 16 .b8 shared0[256];" in text
    assert "%tid.x" in text and "%ctaid.y" in text
    assert "bar.sync" in text and ".maxntid 64" in text


def test_much_shared_memory_is_asked_for_by_the_launch() -> None:
    memories = [UOp(Ops.LOCAL, f32, (), LocalArg(n, 8001, "shared")) for n in range(2)]
    place = const(8000, dtypes.int32)
    uops = program(*[m.index(place).store(UOp.const(f32, 1.0)) for m in memories])
    text = NVPTXRenderer().render("k", uops)
    assert "@shared = external addrspace(3) global [0 x i8], align 16" in text
    assert NVPTXRenderer().shared_bytes(uops) == 2 * 32016
    assert ".extern .shared .align 16 .b8 shared[];" in ptx_of(uops)
    assert NVPTXRenderer().shared_bytes(uops[:1]) == 0


# ---------------------------------------------------------------- fragments
def product_of(size: int, dtype: DType, wide: DType, target: Target = SM_89) -> ProgramSpec:
    a, b = [Tensor.empty(size, size, dtype=dtype).cast(wide) for _ in range(2)]
    (step,) = (a @ b.T).schedule()
    return lower(step.ast, NVPTXRenderer(target))


@pytest.mark.parametrize(
    ("dtype", "wide", "name"),
    [
        (dtypes.bfloat16, f32, "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (dtypes.float16, f32, "m16n8k16.row.col.f32.f16.f16.f32"),
        (dtypes.int8, dtypes.int32, "m16n8k32.row.col.s32.s8.s8.s32"),
        (dtypes.fp8e4m3, f32, "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    ],
)
def test_products_are_mma_out_of_shared_memory(dtype: DType, wide: DType, name: str) -> None:
    spec = product_of(512, dtype, wide)
    text = emit_ptx(spec.src, "sm_90").decode()
    assert f"mma.sync.aligned.{name} {{" in text
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {" in text
    assert re.search(r"cp\.async\.cg\.shared\.global \[%r\d+\], \[%rd\d+\], 16", text)
    assert "cp.async.commit_group;" in text and "cp.async.wait_group" in text
    # buffers that begin anywhere are copied element by element
    anywhere = text[text.rindex(".func anywhere(") :]
    assert "mma.sync" in anywhere and "cp.async" not in anywhere
    version = re.search(r"\.version (\d+\.\d+)", text)
    assert version is not None and (float(version[1]) >= 8.4) == (dtype in dtypes.fp8s)


@pytest.mark.parametrize(
    ("dtype", "wide", "name"),
    [
        (dtypes.bfloat16, f32, "k16.f32.bf16.bf16"),
        (dtypes.int8, dtypes.int32, "k32.s32.s8.s8"),
        (dtypes.fp8e4m3, f32, "k32.f32.e4m3.e4m3"),
    ],
)
def test_products_of_hopper_read_swizzled_rows_by_themselves(
    dtype: DType, wide: DType, name: str
) -> None:
    spec = product_of(2048, dtype, wide, SM_90)
    text = emit_ptx(spec.src, "sm_90").decode()
    assert ".target sm_90a" in text
    # as many instructions along the terms as a row of 128 bytes has, in one statement
    (products,) = [line for line in text.splitlines() if "wgmma.mma_async" in line]
    assert products.count(f"{name} {{") == 4
    assert products.strip().startswith("wgmma.fence.sync.aligned;")
    assert products.strip().endswith("wgmma.commit_group.sync.aligned;")
    waits = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", text)
    assert waits[-1] == "0" and len(waits) == 2
    assert "fence.proxy.async.shared::cta" in text and "xor.b32" in text
    assert ".extern .shared .align 1024" in text
    # the assembler lets them go on only where no function is called
    assert ".func" not in text and "cp.async.cg.shared.global" in text and "ld.global.nc.b" in text


def test_float32_is_rounded_to_tf32() -> None:
    with Context(ALLOW_TF32=1):
        spec = product_of(256, f32, f32)
    text = emit_ptx(spec.src, "sm_80").decode()
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text
    assert "cvt.rna.tf32.f32" in text


# ---------------------------------------------------------------- chips
def test_targets_say_what_chips_have() -> None:
    assert (SM_90.warp_size, SM_90.group_threads, SM_90.name) == (32, 1024, "sm_90")
    assert SM_90.features == (BF16, FP8) and SM_75.features == ()
    assert cuda_target(8, 0, cores=108, l2=40 << 20).features == (BF16,)
    assert cuda_target(12, 0, cores=170, l2=96 << 20).name == "sm_120"
    chips = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]
    threads = [cuda_target(*chip, cores=40, l2=4 << 20).core_threads for chip in chips]
    assert threads == [1024, 2048, 1536, 2048, 2048, 1536]


def test_elementwise_kernels_of_any_dtype_access_16_bytes() -> None:
    for dtype, lanes in ((f32, 4), (bf16, 8), (dtypes.int8, 16)):
        index = UOp.range(1 << 16, 0)
        loaded = UOp.param(1, dtype, 1 << 16).index(index).load()
        store = UOp.param(0, dtype, 1 << 16).index(index).store(loaded + loaded, index)
        spec = lower(store.sink(arg=KernelInfo("twice")), NVPTXRenderer())
        assert f"load <{lanes} x " in spec.src and "v4.b32" in emit_ptx(spec.src, "sm_90").decode()


def test_falling_exponentials_are_one_instruction() -> None:
    """What is not normal is 0 there, as FALLING says; others keep the polynomial."""
    for tag, is_instruction in ((FALLING, True), (None, False)):
        index = UOp.range(64, 0)
        power = UOp.param(1, f32, 64).index(index).load().exp2().replace(tag=tag)
        store = UOp.param(0, f32, 64).index(index).store(power, index)
        spec = lower(store.sink(arg=KernelInfo("powers")), NVPTXRenderer())
        text = emit_ptx(spec.src, "sm_90").decode()
        assert ("ex2.approx.ftz.f32" in text) is is_instruction


def test_too_many_buffers_are_refused() -> None:
    few = NVPTXRenderer(Target(name="small", has_local=True, max_buffers=1))
    uops, _ = elementwise([lambda x: x], [f32])
    with pytest.raises(CompileError, match="2 buffers, small takes at most 1"):
        few.render("k", uops)


def test_neighbours_may_be_valid_one_by_one() -> None:
    """One index, and a validity for each lane: lane 2 is element 2."""
    x, out = UOp.param(1, dtypes.int32, 4), UOp.param(0, dtypes.int32, 4)
    valid = UOp(
        Ops.VECTORIZE, dtypes.bool.vec(4), tuple(UOp.const(dtypes.bool, i < 3) for i in range(4))
    )
    place = UOp(Ops.INDEX, dtypes.int32, (x, const(0), valid))
    value = UOp(Ops.LOAD, dtypes.int32.vec(4), (place,))
    target = UOp(Ops.INDEX, dtypes.int32, (out, const(0), valid))
    uops = program(UOp(Ops.STORE, dtypes.void, (target, value)))
    spec = ProgramSpec("k", NVPTXRenderer().render("k", uops), uops, (out, x), (0,), (1,))
    spec = dataclasses.replace(spec, layout=NVPTXRenderer().layout(uops))
    before = tuple(np.arange(4, dtype=np.int32).tobytes() for _ in range(2))
    before = (np.full(4, 9, np.int32).tobytes(), before[1])
    case = Case("k", UOp.sink(), before, before, {}, (dtypes.int32,) * 2)
    assert np.frombuffer(run_on_host(case, spec)[0], np.int32).tolist() == [0, 1, 2, 9]
