"""Instructions as Python calls."""

from __future__ import annotations

import pytest

import weft.amd.cdna as cdna
import weft.amd.rdna3 as rdna3
import weft.amd.rdna4 as rdna4
from weft.amd import stubs
from weft.amd.codeobject import load
from weft.amd.rdna3 import (
    assemble,
    disassemble,
    dual,
    global_load_b32,
    global_store_b32,
    kernel,
    label,
    lit,
    neg,
    s,
    s_cbranch_vccnz,
    s_endpgm,
    s_load_b128,
    s_waitcnt,
    text,
    v,
    v_add_f16,
    v_add_f32,
    v_add_f64,
    v_cmp_lt_f32,
    v_dual_add_f32,
    v_dual_mul_f32,
    v_fma_f32,
    v_mov_b32,
    vcc_lo,
)
from weft.amd.targets import FAMILIES
from weft.errors import ArgumentError

PROGRAM = [
    s_load_b128(s[4:7], s[0:1], 16),
    s_waitcnt(lgkmcnt=0),
    label("again"),
    global_load_b32(v[2], v[1], s[4:5], offset=-16, glc=True),
    s_waitcnt(vmcnt=0),
    v_fma_f32(v[3], -v[2], abs(v[2]), 0.5, clamp=True),
    v_add_f32(v[3], 3.25, v[3]),
    dual(v_dual_mul_f32(v[4], v[2], v[3]), v_dual_add_f32(v[7], v[5], v[6])),
    v_cmp_lt_f32(vcc_lo, v[2], v[3]),
    s_cbranch_vccnz("again"),
    global_store_b32(v[1], v[3], s[6:7]),
    s_endpgm(),
]
TEXT = """\
    s_load_b128 s[4:7], s[0:1], 0x10
    s_waitcnt lgkmcnt(0)
again:
    global_load_b32 v2, v1, s[4:5] offset:-16 glc
    s_waitcnt vmcnt(0)
    v_fma_f32 v3, -v2, |v2|, 0.5 clamp
    v_add_f32_e32 v3, 0x40500000, v3
    v_dual_mul_f32 v4, v2, v3 :: v_dual_add_f32 v7, v5, v6
    v_cmp_lt_f32_e32 vcc_lo, v2, v3
    s_cbranch_vccnz again
    global_store_b32 v1, v3, s[6:7]
    s_endpgm"""


def test_a_program_prints_and_assembles() -> None:
    assert text(PROGRAM) == TEXT
    code = assemble(PROGRAM)
    assert code == assemble(TEXT)
    assert [str(each) for each in disassemble(code)][0] == "s_load_b128 s[4:7], s[0:1], 0x10"


def test_a_kernel_counts_its_registers() -> None:
    loaded = load(kernel("demo", PROGRAM, ["out", "in"], "gfx1151"))
    found = loaded.kernels["demo"]
    assert found.descriptor.vgprs("gfx1151") == 8
    assert found.descriptor.kernarg_size == 16
    assert loaded.target.name == "gfx1151"


def test_constants_and_literals() -> None:
    lines = [v_mov_b32(v[0], 1.0), v_mov_b32(v[0], lit(1)), v_fma_f32(v[0], neg(1.0), v[1], v[2])]
    shown = [str(each) for each in disassemble(assemble(lines))]
    assert shown == [
        "v_mov_b32_e32 v0, 1.0",
        "v_mov_b32_e32 v0, lit(0x1)",
        "v_fma_f32 v0, neg(1.0), v1, v2",
    ]


def test_halves_of_registers() -> None:
    code = assemble([v_add_f16(v[1].h, v[2].l, v[3].h)])
    assert str(disassemble(code)[0]) == "v_add_f16_e32 v1.h, v2.l, v3.h"
    with pytest.raises(ArgumentError, match="half"):
        v_add_f16(v[1], v[2].l, v[3].l)


def test_errors_come_from_the_call() -> None:
    with pytest.raises(ArgumentError, match="vdst is a vector register; s0 is none"):
        v_add_f32(s[0], v[1], v[2])
    with pytest.raises(ArgumentError, match="src0 is 2 registers; v1 is one register"):
        v_add_f64(v[0:1], v[1], v[2:3])
    with pytest.raises(ArgumentError, match="there is no modifier bogus here"):
        v_add_f32(v[0], v[1], v[2], bogus=1)
    with pytest.raises(ArgumentError, match="there are 0 to 255"):
        v[250:260]
    with pytest.raises(ArgumentError, match="is no operand"):
        v_add_f32(v[0], v[1], None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="gfx950 is no target of rdna3"):
        assemble(PROGRAM, "gfx950")
    with pytest.raises(AttributeError, match="rdna3 has no instruction v_frobnicate"):
        rdna3.v_frobnicate  # type: ignore[attr-defined] # noqa: B018


def test_what_one_target_lacks_is_said_when_assembling() -> None:
    line = rdna3.s_add_f32(s[0], s[1], s[2])
    assert assemble([line], "gfx1151")
    with pytest.raises(ArgumentError, match="gfx1100 has no s_add_f32"):
        assemble([line], "gfx1100")


def test_names_complete_and_are_described() -> None:
    assert {"v_add_f32", "v_add_f32_e64", "v", "vcc", "s_endpgm"} <= set(dir(rdna3))
    assert "v_add_f32 vdst: v, src0: v|s|constant|literal, src1: v" in str(v_add_f32.__doc__)


def test_other_families() -> None:
    c, r = cdna, rdna4
    line = c.v_mfma_f32_32x32x8_f16(c.a[0:15], c.v[0:1], c.v[2:3], c.a[0:15])
    assert str(c.disassemble(c.assemble([line], "gfx942"), "gfx942")[0]).startswith(
        "v_mfma_f32_32x32x8_f16 a[0:15]"
    )
    loads = [r.global_load_b32(r.v[0], r.v[1], r.s[2:3], th="TH_LOAD_NT", scope="SCOPE_DEV")]
    assert r.text(loads, "gfx1201").strip() == (
        "global_load_b32 v0, v1, s[2:3] th:TH_LOAD_NT scope:SCOPE_DEV"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_stubs_are_current(family: str) -> None:
    assert (stubs.HERE / f"{family}.pyi").read_text("utf-8") == stubs.stub(family)
