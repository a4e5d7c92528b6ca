"""AMDGPU: what is special in its text, and that LLVM makes machine code of every kernel."""

from __future__ import annotations

import pytest

from test.renderer.corpus import PROGRAMS, cases_of
from test.renderer.programs import elementwise
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.knobs import Context
from weft.renderer.amdgcn import CHIPS, AMDGCNRenderer, amd_target
from weft.renderer.base import ProgramSpec
from weft.renderer.mfma import amd_fragments
from weft.runtime.amdgcn import emit_assembly, emit_object
from weft.uop.node import UOp

f32 = dtypes.float32
# of the others every architecture makes its own kernels
SHARED = ["elementwise", "softmax", "matmul_half", "sum_columns", "cast_from_float16"]


def lowered(kernel: UOp, arch: str) -> ProgramSpec:
    with Context(SPEC=1):
        return lower(kernel, AMDGCNRenderer(amd_target(arch)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_compiles_for_rdna3(name: str) -> None:
    for case in cases_of(name):
        assert emit_object(lowered(case.kernel, "gfx1100").src, "gfx1100").startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", [arch for arch in CHIPS if arch != "gfx1100"])
def test_kernels_compile_for_all_architectures(arch: str) -> None:
    for name in SHARED:
        for case in cases_of(name):
            assert emit_object(lowered(case.kernel, arch).src, arch).startswith(b"\x7fELF")


def test_products_and_sums_round_where_they_stand() -> None:
    uops, _ = elementwise([lambda x, y: x * y + y], [f32, f32])
    text = emit_assembly(AMDGCNRenderer().render("k", uops), "gfx1100")
    assert "v_mul_f32" in text and "v_add_f32" in text and "fma" not in text


def test_denormals_are_kept() -> None:
    uops, _ = elementwise([lambda x: x * x], [f32])
    text = emit_assembly(AMDGCNRenderer().render("k", uops), "gfx1100")
    assert ".amdhsa_float_denorm_mode_32 3" in text


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("gfx1100", "v_wmma_f32_16x16x16_f16"),
        ("gfx1201", "v_wmma_f32_16x16x16_f16"),
        ("gfx90a", "v_mfma_f32_16x16x16f16"),
        ("gfx942", "v_mfma_f32_16x16x16_f16"),
        ("gfx950", "v_mfma_f32_16x16x32_f16"),
    ],
)
def test_products_of_halves_are_fragments(arch: str, expected: str) -> None:
    texts = [
        emit_assembly(lowered(case.kernel, arch).src, arch) for case in cases_of("matmul_half")
    ]
    assert any(expected in text for text in texts)


@pytest.mark.parametrize("arch", CHIPS)
def test_fragments_name_every_element(arch: str) -> None:
    for fragment in amd_fragments(arch):
        sizes = ((fragment.m, fragment.k), (fragment.k, fragment.n), (fragment.m, fragment.n))
        for held, (rows, columns) in zip((fragment.a, fragment.b, fragment.c), sizes, strict=True):
            assert held.lane_count == CHIPS[arch].wave
            places = {
                held.place(lane, register)
                for lane in range(held.lane_count)
                for register in range(held.count)
            }
            assert places == {(row, column) for row in range(rows) for column in range(columns)}


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(CompileError, match=r"gfx803.*gfx1100"):
        amd_target("gfx803")
    with pytest.raises(CompileError, match="gfx803"):
        emit_object("", "gfx803")
