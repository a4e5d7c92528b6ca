"""Strides: the step of an index with each axis."""

from __future__ import annotations

from weft.codegen.opt.strides import Strides
from weft.uop.node import UOp, Variable

A, B, C = UOp.range(4, 0), UOp.range(16, 1), UOp.range(64, 2)


def test_sums_and_products_with_constants() -> None:
    assert Strides().of(A * 64 + B * 4 + 3) == {A: 64, B: 4}
    assert Strides().of((A + B) * 8 - B) == {A: 8, B: 7}
    assert Strides().of(-B + 15) == {B: -1}


def test_what_is_not_linear_has_no_step() -> None:
    assert Strides().of(B % 4) == {B: None}
    assert Strides().of(A * B) == {A: None, B: None}
    assert Strides().of(A * 8 + B // 2) == {A: 8, B: None}
    assert Strides().of(A * Variable("n", 1, 8)) == {A: None}


def test_inside_of_aligned_lanes_a_division_stands_still() -> None:
    strides = Strides(lanes=16)
    assert strides.of((A * 64 + C) % 32) == {A: None, C: 1}
    assert strides.of((A * 64 + C) // 32) == {A: None, C: 0}
    assert strides.aligned == {C}
    # begins in the middle of a group
    assert Strides(lanes=16).of((C + 3) % 32) == {C: None}
