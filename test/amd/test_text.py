"""Instructions print as llvm-mc prints them."""

from __future__ import annotations

from test.amd.corpus import vectors
from weft.amd.decode import decode


def test_vectors_print_llvms_text() -> None:
    sample = vectors(every=20, first=3)
    wrong = [each for each in sample if str(decode(each.data, each.target)) != each.text]
    # the few that differ are listed by `python -m test.amd.vectors`
    assert len(wrong) <= len(sample) // 500, wrong[:5]


def test_waves_of_64_lanes_name_the_whole_mask() -> None:
    compare = bytes.fromhex("0105227c")
    assert str(decode(compare, "gfx1100")) == "v_cmp_lt_f32_e32 vcc_lo, v1, v2"
    assert str(decode(compare, "gfx1100", wave=64)) == "v_cmp_lt_f32_e32 vcc, v1, v2"
