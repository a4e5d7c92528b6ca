"""Compiled helpers against the interpreter of UOps, lane by lane, on special and random registers.

All rows: `python -m test.runtime.amd.rows`.
"""

from __future__ import annotations

import random

import pytest

from test.runtime.amd.rows import check_row, check_scalar
from test.runtime.amd.single import Machine, vector_case
from weft.amd.semantics.lane import Result, Source
from weft.amd.semantics.scalar import SCALAR
from weft.amd.semantics.vector import VECTOR
from weft.runtime.amd import state
from weft.runtime.amd.exchange import source_lane, swizzled_lanes
from weft.runtime.amd.forms import Form, Place

# one of each kind; the others are in the command above
SHARE = """v_add_f32 v_fma_f32 v_mul_f16 v_fma_f16 v_max_f32 v_maximum_f32 v_rndne_f32 v_floor_f64
v_ldexp_f32 v_ldexp_f64 v_div_scale_f32 v_div_fmas_f32 v_div_fixup_f32 v_div_scale_f64 v_cvt_f16_f32
v_cvt_i32_f32 v_cvt_u32_f64 v_cmp_class_f32 v_cmp_lt_i64 v_cmp_nge_f32 v_add_co_ci_u32 v_mad_u64_u32
v_mul_hi_i32 v_perm_b32 v_alignbit_b32 v_bfe_i32 v_bfrev_b32 v_ffbh_u32 v_med3_f32
v_frexp_exp_i32_f32
v_cndmask_b32 v_lshlrev_b64 v_ashrrev_i16 v_sat_pk_u8_i16""".split()
SCALARS = """s_add_u32
s_addc_u32 s_sub_i32 s_bfe_i32 s_bfe_u64 s_lshl_b64 s_cselect_b32 s_cmp_lt_i32
s_mul_hi_u32 s_ff1_i32_b64 s_fmac_f32 s_cmp_nge_f32 s_absdiff_i32""".split()


@pytest.mark.parametrize("name", SHARE)
def test_a_lane_computes_what_its_row_says(name: str) -> None:
    assert not check_row(name, 32)


@pytest.mark.parametrize("name", ["v_fma_f32", "v_add_co_u32", "v_lshlrev_b64", "v_cmp_lt_f64"])
def test_waves_of_64_lanes_compute_the_same(name: str) -> None:
    assert not check_row(name, 64)


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_is_what_its_row_says(name: str) -> None:
    assert not check_scalar(name)


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ((Source(neg=True), Source(abs=True)), Result()),
        ((Source(neg=True, abs=True), Source()), Result(clamp=True)),
        ((Source(), Source()), Result(omod=3)),
    ],
)
def test_signs_and_bounds_are_part_of_a_lane(reads: tuple[Source, ...], writes: Result) -> None:
    row = VECTOR["v_mul_f32"]
    assert not vector_case("v_mul_f32", row, 32, random.Random(3), reads, writes)


@pytest.mark.parametrize("half", [0, 1, None])
def test_halves_leave_the_other_half_alone(half: int | None) -> None:
    reads = (Source(half=1), Source(half=0))
    row = VECTOR["v_add_f16"]
    assert not vector_case("v_add_f16", row, 32, random.Random(4), reads, Result(half=half))


@pytest.mark.parametrize(("select", "unused"), [(0, 2), (5, 0), (4, 1), (3, 2)])
def test_parts_of_registers_are_selected(select: int, unused: int) -> None:
    reads = (Source(select=5), Source(select=2, sext=True))
    writes = Result(select=select, unused=unused)
    row = VECTOR["v_or_b32"]
    assert not vector_case("v_or_b32", row, 64, random.Random(5), reads, writes)


def test_one_lane_is_read_and_written() -> None:
    machine = Machine(32)
    values = [7 * lane + 1 for lane in range(32)]
    machine.set_lanes(3, 32, values)
    machine.set(4 * state.EXEC, 64, 0b11100000)
    form = Form("lane", "v_readfirstlane_b32", 32, (Place("v"),), (Place("s"),))
    machine.run(form, [machine.shape.vector(3), 4 * 20])
    assert machine.get(4 * 20) == values[5]
    form = Form("lane", "v_writelane_b32", 32, (Place("c"), Place("c")), (Place("v"),))
    machine.run(form, [99, 33, machine.shape.vector(3)])
    assert machine.lanes(3, 32) == [values[0], 99, *values[2:]]


def test_lanes_move_along_rows() -> None:
    assert [source_lane(0x111, i, 32, "rdna3") for i in (0, 1, 16, 17)] == [-1, 0, -1, 16]
    assert [source_lane(0b00011011, i, 32, "rdna3") for i in range(4)] == [3, 2, 1, 0]
    assert [source_lane(0x140, i, 32, "rdna3") for i in (0, 15, 16)] == [15, 0, 31]
    assert [source_lane(0x143, i, 64, "cdna") for i in (31, 32)] == [-1, 31]
    assert swizzled_lanes(0x1F | 1 << 10, 32)[:4] == [1, 0, 3, 2]


def test_every_row_has_results_of_its_types() -> None:
    assert len(VECTOR) > 500 and len(SCALAR) > 200
