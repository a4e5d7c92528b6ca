"""Metal: golden files, that every kernel of the corpus is printed, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from test.optional import need_program
from test.renderer import golden_kernels
from test.renderer.corpus import PROGRAMS, cases_of
from test.renderer.programs import const, elementwise, load, program
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.metal import METAL, MetalRenderer
from weft.uop.args import LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

f32 = dtypes.float32


@pytest.mark.parametrize("name", golden_kernels.KERNELS)
def test_text_is_as_kept(name: str) -> None:
    renderer = MetalRenderer()
    text = golden_kernels.text_of(name, renderer)
    assert text == golden_kernels.golden_file(name, renderer).read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_is_printed_or_refused_by_name(name: str) -> None:
    for case in cases_of(name):
        try:
            with Context(SPEC=1):
                text = lower(case.kernel, MetalRenderer()).src
        except CompileError as error:
            assert "metal has no dtypes.double" in str(error)
        else:
            assert "kernel void" in text and "double" not in text
            _check_brackets(text)


def _check_brackets(text: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert text.count(opening) == text.count(closing)


def test_doubles_are_refused() -> None:
    uops, _ = elementwise([lambda x: x + x], [dtypes.float64])
    with pytest.raises(CompileError, match="metal has no dtypes.double, which PARAM asks for"):
        MetalRenderer().render("k", uops)


def test_halves_are_a_type() -> None:
    uops, _ = elementwise([lambda x: x.cast(f32)], [dtypes.float16])
    text = MetalRenderer().render("k", uops)
    assert "const device half* data1 [[buffer(1)]]" in text
    assert "(float)val0" in text


def test_vectors_need_no_alignment() -> None:
    x, out = UOp.param(1, f32, 8), UOp.param(0, f32, 8)
    uops = program(out.index(const(4)).store(load(x, const(0), lanes=4)))
    text = MetalRenderer().render("k", uops)
    assert "float4 val0 = *(const device packed_float4*)(data1 + 0" in text
    assert "*(device packed_float4*)(data0 + 4" in text


def test_bools_have_no_packed_vectors() -> None:
    x, out = UOp.param(1, dtypes.bool, 8), UOp.param(0, dtypes.bool, 8)
    uops = program(out.index(const(4)).store(load(x, const(0), lanes=2)))
    text = MetalRenderer().render("k", uops)
    assert "packed" not in text and "bool2 val0 = bool2(data1[0], data1[0 + 1]);" in text


def test_variables_follow_the_buffers() -> None:
    text = golden_kernels.text_of("shifted", MetalRenderer())
    assert "constant int& n [[buffer(2)]]" in text


def test_shared_memory_and_barriers() -> None:
    memory = UOp(Ops.LOCAL, f32, (), LocalArg(0, 64, "shared"))
    index = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 64),), "lidx0")
    store = memory.index(index).store(UOp.const(f32, 1.0))
    text = MetalRenderer().render("k", program(store, UOp(Ops.BARRIER, dtypes.void, (), 0)))
    assert "threadgroup float buf0[64];" in text
    assert "threadgroup_barrier(mem_flags::mem_threadgroup);" in text
    assert "[[max_total_threads_per_threadgroup(64)]]" in text


def test_the_target_counts_places_of_arguments() -> None:
    assert METAL.max_buffers == 31 and METAL.index_dtype is dtypes.int32


STAND_IN = Path(__file__).parent / "stand_in"


def test_every_kernel_has_the_right_types(tmp_path: Path) -> None:
    """By clang++ and a header that stands in for Apple's; all kernels as one file."""
    compiler = need_program("clang++")
    texts = []
    for name in PROGRAMS:
        for case in cases_of(name):
            try:
                text = lower(case.kernel, MetalRenderer()).src
            except CompileError:
                continue
            lines = [line for line in text.splitlines() if not line.startswith("#include")]
            pragmas = [line for line in lines if line.startswith("#")]
            body = "\n".join([line for line in lines if not line.startswith(("#", "using"))])
            assert len(pragmas) <= 1
            texts.append(f"namespace k{len(texts)} {{\n{body}\n}}")
    source = tmp_path / "kernels.cpp"
    head = "#include <metal_stdlib>\nusing namespace metal;\n"
    source.write_text(head + "\n".join(texts))
    command = [compiler, "-std=c++17", "-fsyntax-only", "-w", f"-I{STAND_IN}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:3000]
    assert len(texts) > 100
