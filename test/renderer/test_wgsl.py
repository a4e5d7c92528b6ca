"""WGSL: golden files, that a validator takes every kernel, and that they run where something can.

WGSL leaves open what NaN, infinities and the order of float operations do, and has no float64:
programs about those are printed or refused, and not compared.
"""

from __future__ import annotations

import pytest

from test.renderer import golden_kernels
from test.renderer.corpus import PROGRAMS, SHARE_OF_PROGRAMS, Case, cases_of, check_contents
from test.renderer.launch import run_wgsl, validate_wgsl
from test.renderer.programs import const, load, program
from weft.codegen.decompose.longs import split_longs
from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.base import ProgramSpec
from weft.renderer.wgsl import WEBGPU, WGSLRenderer
from weft.uop.args import LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

f32, i32 = dtypes.float32, dtypes.int32
REFUSALS = ("wgsl has no dtypes.double", "webgpu takes at most 8")
# a division by zero may give any value
NOT_COMPARED = {"infinities"}


@pytest.mark.parametrize("name", golden_kernels.KERNELS)
def test_text_is_as_kept(name: str) -> None:
    renderer = WGSLRenderer()
    text = golden_kernels.text_of(name, renderer)
    assert text == golden_kernels.golden_file(name, renderer).read_text()


@pytest.mark.parametrize("name", golden_kernels.KERNELS)
def test_kept_text_is_valid(name: str) -> None:
    validate_wgsl(golden_kernels.golden_file(name, WGSLRenderer()).read_text())


def printed(case: Case) -> ProgramSpec | None:
    """The kernel, or None if it is refused for a reason that WGSL has."""
    try:
        with Context(SPEC=1):
            return lower(case.kernel, WGSLRenderer())
    except CompileError as error:
        assert any(reason in str(error) for reason in REFUSALS)
        return None


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_is_printed_or_refused_by_name(name: str) -> None:
    for case in cases_of(name):
        spec = printed(case)
        assert spec is None or "@compute" in spec.src


@pytest.mark.parametrize("name", [name for name in SHARE_OF_PROGRAMS if name not in NOT_COMPARED])
def test_every_kernel_computes_the_same(name: str) -> None:
    for case in cases_of(name):
        spec = printed(case)
        if spec is not None:
            check_contents(case, spec, run_wgsl(case, spec))


def test_most_of_the_corpus_is_not_refused() -> None:
    names = [name for name in PROGRAMS if not name.startswith("cast_from")]
    found = [printed(case) for name in names for case in cases_of(name)]
    assert sum(spec is None for spec in found) * 5 < len(found)


def test_bytes_are_packed_into_words() -> None:
    x, out = UOp.param(1, dtypes.int8, 8), UOp.param(0, dtypes.int8, 8)
    uops = program(out.index(const(5, i32)).store(load(x, const(2, i32))))
    text = WGSLRenderer().render("k", uops)
    assert "data0: array<atomic<u32>>" in text and "data1: array<u32>" in text
    assert "extractBits(bitcast<i32>(data1[u32(2) / 4u]), u32(2) % 4u * 8u, 8u)" in text
    assert "atomicAnd(&data0[at / 4u], ~(255u << (at % 4u * 8u)));" in text


def test_memory_that_is_read_and_written_is_read_atomically() -> None:
    x = UOp.param(0, dtypes.uint16, 8)
    value = load(x, const(2, i32))
    text = WGSLRenderer().render("k", program(x.index(const(2, i32)).store(value + value)))
    assert "atomicLoad(&data0[u32(2) / 2u])" in text


def test_narrow_integers_stay_in_range() -> None:
    x, out = UOp.param(1, dtypes.int8, 8), UOp.param(0, dtypes.int8, 8)
    value = load(x, const(0, i32))
    text = WGSLRenderer().render("k", program(out.index(const(0, i32)).store(value * value)))
    assert "extractBits(val0 * val0, 0u, 8u)" in text


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64, dtypes.float64])
def test_64_bits_are_refused_where_they_come_as_such(dtype: DType) -> None:
    x, out = UOp.param(1, dtype, 8), UOp.param(0, dtype, 8)
    uops = program(out.index(const(0, i32)).store(load(x, const(0, i32))))
    with pytest.raises(CompileError, match=f"wgsl has no {dtype}, which PARAM asks for"):
        WGSLRenderer().render("k", uops)


def test_wide_vectors_are_refused() -> None:
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    uops = program(out.index(const(0, i32)).store(load(x, const(0, i32), lanes=8)))
    with pytest.raises(CompileError, match=r"\(2, 3, 4\) lanes"):
        WGSLRenderer().render("k", uops)


def test_shared_memory_stands_outside_of_the_function() -> None:
    memory = UOp(Ops.LOCAL, f32, (), LocalArg(0, 64, "shared"))
    mine = UOp(Ops.LOCAL, f32, (), LocalArg(1, 4))
    index = UOp(Ops.SPECIAL, i32, (UOp.const(i32, 64),), "lidx0")
    barrier = UOp(Ops.BARRIER, dtypes.void, (), 0)
    text = WGSLRenderer().render(
        "k", program(mine, memory.index(index).store(UOp.const(f32, 1.0)), barrier)
    )
    before, inside = text.split("fn k(")
    assert "var<workgroup> buf0: array<f32, 64>;" in before
    assert "var buf1: array<f32, 4>;" in inside
    assert "workgroupBarrier();" in inside and "@workgroup_size(64, 1, 1)" in before
    validate_wgsl(text)


def test_variables_are_one_more_buffer() -> None:
    text = golden_kernels.text_of("shifted", WGSLRenderer())
    assert "@binding(2) var<storage, read> variables: array<i32>;" in text
    assert "let n = variables[0];" in text


def test_variables_of_64_bits_are_two_words() -> None:
    number = UOp.variable("n", 0, 1 << 40, dtypes.int64)
    out = UOp.param(0, dtypes.int64, 8)
    uops = split_longs(program(out.index(const(0, i32)).store(number + const(1, dtypes.int64))))
    text = WGSLRenderer().render("k", uops)
    assert "let n__high = bitcast<u32>(variables[0]);" in text
    assert "let n__low = bitcast<u32>(variables[1]);" in text
    assert WGSLRenderer().layout(uops) == (("written", 0), ("item", 4), ("word", 1), ("word", 0))


def test_parts_of_one_memory_start_at_constants_of_the_pipeline() -> None:
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    uops = program(out.index(const(5, i32)).store(load(x, const(2, i32))))
    text = WGSLRenderer(has_starts=True).render("k", uops)
    assert "override start0: i32 = 0;" in text
    assert "@binding(1) var<storage, read_write> data1: array<f32>;" in text
    assert "data0[start0 + 5] = val0;" in text and "data1[start1 + 2]" in text


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR])
def test_a_start_is_added_to_the_whole_index(op: Ops) -> None:
    x, out = UOp.param(1, i32, 8), UOp.param(0, i32, 8)
    at = load(x, const(0, i32))
    where = UOp(op, i32, (at, const(1, i32)))
    uops = program(out.index(where).store(const(5, i32)))
    text = WGSLRenderer(has_starts=True).render("k", uops)
    assert "[start1 + 0]" in text
    stored = next(line for line in text.splitlines() if "data0[" in line)
    assert stored.strip().startswith("data0[start0 + (") and stored.strip().endswith(")] = 5;")
    validate_wgsl(text.replace("override start", "const start"))


def test_the_target_has_the_limits_of_every_device() -> None:
    assert WEBGPU.max_buffers == 8 and WEBGPU.shared_bytes == 16 << 10
    assert WEBGPU.group_threads == 256 and WEBGPU.grid_limits[0] == 65535
