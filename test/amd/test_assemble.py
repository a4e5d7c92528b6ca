"""Text in LLVM's syntax assembles to LLVM's bytes, here and with an assembler that is not ours."""

from __future__ import annotations

import pytest

from test.amd.corpus import vectors
from test.amd.vectors import check, independent
from test.optional import need_program
from weft.amd.assemble import assemble
from weft.amd.decode import decode_all
from weft.errors import ArgumentError


def test_vectors_assemble_to_their_bytes() -> None:
    counts, _ = check(vectors(every=40, first=11))
    assert counts["decoded"] == counts["all"]
    assert counts["both"] >= 0.995 * counts["all"]


def test_llvm_assembles_what_is_printed() -> None:
    need_program("llvm-mc-22")
    counts, wrong = independent(vectors(every=80, first=5))
    assert counts["checked"] > 1500
    assert counts["same"] >= 0.995 * counts["checked"], wrong[:5]


def test_labels_and_comments() -> None:
    code = assemble(
        """
start:                       // goes round
    s_add_u32 s0, s0, 1      ; counts
    s_cmp_lt_u32 s0, 0x100
    s_cbranch_scc1 start
    s_branch done
    s_nop 0
done: s_endpgm
""",
        "gfx1100",
    )
    found = decode_all(code, "gfx1100")
    assert [each.mnemonic for each in found] == [
        *("s_add_u32", "s_cmp_lt_u32", "s_cbranch_scc1", "s_branch", "s_nop", "s_endpgm"),
    ]
    assert found[2].branch_target == 0
    assert found[3].branch_target == found[5].offset


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v_add_f32 v0, v1", "2 operands are given; 3 are expected: vdst, src0, src1"),
        ("v_add_f32 s0, v1, v2", "vdst is a vector register; s0 is none"),
        ("v_add_f64 v[0:1], v2, v[4:5]", "src0 is 2 registers; v2 is one register"),
        ("s_load_b64 s[1:2], s[4:5], 0", r"s\[1:2\] must begin at a multiple of 2"),
        ("global_load_b32 v0, v1, s[4:5] offset:9999", "offset is 9999; -4096 to 4095 fit"),
        ("v_add_f32 v0, 0x12345678, 0x87654321", "two different ones are given"),
        ("v_add_f32 v300, v1, v2", "v300: there are v0 to v255"),
        ("s_branch nowhere", "there is no label nowhere"),
        ("v_frobnicate v0", "gfx1100 has no instruction 'v_frobnicate'"),
        ("s_add_f32 s0, s1, s2", "gfx1100 has no s_add_f32; other targets of its family have it"),
        ("s_waitcnt vmcnt(99)", "the highest count is 63"),
        ("v_mov_b16 v0, v1", "half a register: v[01].l or v[01].h"),
        ("global_load_b32 v0, v1, s[4:5] sc0", "spells cache policies glc, slc, dlc"),
    ],
)
def test_errors_are_in_the_users_terms(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        assemble(text, "gfx1100")


def test_registers_must_be_even_where_the_target_wants_it() -> None:
    with pytest.raises(ArgumentError, match="to begin at an even register"):
        assemble("v_add_f64 v[1:2], v[2:3], v[4:5]", "gfx942")
    assert assemble("v_add_f64 v[1:2], v[2:3], v[4:5]", "gfx1100")
