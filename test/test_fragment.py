"""Fragments as data: the maps are those of the manual, and the interpreter multiplies by them."""

from __future__ import annotations

import numpy as np
import pytest

from weft.dtype import DType, dtypes
from weft.fragment import SWIZZLED_BYTES, Digit, Fragment, OperandMap
from weft.renderer.mma import mma_fragments
from weft.renderer.python import PythonRenderer, parse
from weft.renderer.wgmma import wgmma_fragments
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.args import ParamArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

FRAGMENTS = mma_fragments(9, 0)
random = np.random.default_rng(3)


def ids(fragment: Fragment) -> str:
    return fragment.name.removeprefix("mma.sync.aligned.")


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=ids)
def test_every_element_has_one_place(fragment: Fragment) -> None:
    shapes = ((fragment.m, fragment.k), (fragment.k, fragment.n), (fragment.m, fragment.n))
    for held, shape in zip((fragment.a, fragment.b, fragment.c), shapes, strict=True):
        places = [
            held.place(lane, register) for lane in range(32) for register in range(held.count)
        ]
        assert sorted(places) == [(r, c) for r in range(shape[0]) for c in range(shape[1])]


def manual_16_bit(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, fragment of A of mma.m16n8k16 with 16-bit elements."""
    row = lane // 4 if 0 <= i < 2 or 4 <= i < 6 else lane // 4 + 8
    return row, lane % 4 * 2 + (i & 1) + (0 if i < 4 else 8)


def manual_8_bit(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, fragment of A of mma.m16n8k32 with 8-bit elements."""
    row = lane // 4 if 0 <= i < 4 or 8 <= i < 12 else lane // 4 + 8
    return row, lane % 4 * 4 + (i & 3) + (0 if i < 8 else 16)


def manual_tf32(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, fragment of A of mma.m16n8k8 with .tf32."""
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


@pytest.mark.parametrize(
    ("dtype", "manual"),
    [
        (dtypes.bfloat16, manual_16_bit),
        (dtypes.int8, manual_8_bit),
        (dtypes.fp8e5m2, manual_8_bit),
        (dtypes.float32, manual_tf32),
    ],
)
def test_maps_are_the_manuals(dtype: DType, manual) -> None:  # type: ignore[no-untyped-def]
    fragment = next(f for f in FRAGMENTS if f.a_dtype is dtype)
    word = 4 // dtype.itemsize
    for lane in range(32):
        for i in range(fragment.a.count):
            assert fragment.a.place(lane, i) == manual(lane, i)
        for i in range(fragment.b.count // 2):
            # of B, 8 columns: row threadID_in_group * word + i % word (+ half), column groupID
            row = lane % 4 * word + i % word + (i // word) * 4 * word
            assert fragment.b.place(lane, i) == (row, lane // 4)
            assert fragment.b.place(lane, i + fragment.b.count // 2) == (row, lane // 4 + 8)
        for i in range(4):
            place = (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2)
            assert fragment.c.place(lane, i) == place


def test_what_chips_have() -> None:
    assert mma_fragments(7, 5) == ()
    eights = set(dtypes.fp8s)
    assert not any(f.a_dtype in eights for f in mma_fragments(8, 0))
    assert sum(f.a_dtype in eights for f in mma_fragments(8, 9)) == 4
    assert [f.a_dtype for f in mma_fragments(8, 0) if not f.exact] == [dtypes.float32]


def test_other_vendors_maps_are_maps() -> None:
    """RDNA 3's WMMA: both halves of a warp hold the rows of A; MFMA: 64 lanes of 4 rows each."""
    twice = OperandMap((Digit(2), Digit(16, row=1)), (Digit(16, column=1),))
    assert twice.place(3, 5) == twice.place(19, 5) == (3, 5)
    sums = OperandMap((Digit(4, row=4), Digit(16, column=1)), (Digit(4, row=1),))
    assert sums.lane_count == 64 and sums.place(17, 2) == (6, 1)
    assert len({sums.place(lane, r) for lane in range(64) for r in range(4)}) == 256


def whole_product(fragment: Fragment) -> list[UOp]:
    """A program of one warp: operands element by element, their product, and its elements."""
    lane = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 32),), "lidx0")
    sizes = (fragment.m * fragment.n, fragment.m * fragment.k, fragment.k * fragment.n)
    kinds = (fragment.c_dtype, fragment.a_dtype, fragment.b_dtype)
    params = [
        UOp(Ops.PARAM, kind, (), ParamArg(slot, size))
        for slot, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]
    uops: dict[UOp, None] = dict.fromkeys([*params, lane])

    def places(held: OperandMap, width: int) -> list[UOp]:
        found = []
        for register in range(held.count):
            row, column = held.place(lane, UOp.const(dtypes.int32, register))
            found.append((row * width + column).simplify())
        return found

    operands = []
    for param, held, width in (
        (params[1], fragment.a, fragment.k),
        (params[2], fragment.b, fragment.n),
    ):
        lanes = tuple([param.index(at).load() for at in places(held, width)])
        operands.append(UOp(Ops.VECTORIZE, param.dtype.vec(len(lanes)), lanes))
    zero = UOp.const(fragment.c_dtype.vec(fragment.c.count), 0)
    total = UOp(Ops.WMMA, zero.dtype, (*operands, zero), fragment)
    for register, at in enumerate(places(fragment.c, fragment.n)):
        store = params[0].index(at).store(total.gep(register))
        uops.update(dict.fromkeys(store.toposort()))
    return list(uops)


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=ids)
def test_products_are_exact(fragment: Fragment) -> None:
    """Small numbers, whose products and sums all types hold: the same as NumPy's to the bit."""
    low = 0 if fragment.a_dtype.kind == "uint" else -3
    a = random.integers(low, 4, (fragment.m, fragment.k))
    b = random.integers(low, 4, (fragment.k, fragment.n))
    _, uops = parse(PythonRenderer().render("product", whole_product(fragment)))
    memory = {}
    for slot, (values, dtype) in enumerate(
        ((a @ b * 0, fragment.c_dtype), (a, fragment.a_dtype), (b, fragment.b_dtype))
    ):
        memory[slot] = view_memory(
            memoryview(bytearray(values.size * dtype.itemsize)), dtype, values.size
        )
        for i, value in enumerate(values.ravel().tolist()):
            memory[slot][i] = float(value) if dtype.kind == "float" else value
    Interpreter("product", uops).run(memory, ())
    got = [memory[0][i] for i in range(fragment.m * fragment.n)]
    assert got == (a @ b).ravel().tolist()


@pytest.mark.parametrize("fragment", wgmma_fragments(9, 0), ids=lambda f: f.name)
def test_sums_of_groups_of_warps_have_one_place(fragment: Fragment) -> None:
    """PTX ISA, fragment D of wgmma: row 16 * warp + groupID (+ 8), column 8 * i + 2 * thread."""
    held = fragment.c
    assert fragment.lanes == 128 and fragment.k * fragment.a_dtype.itemsize == SWIZZLED_BYTES
    for lane in (0, 5, 37, 127):
        for i in range(held.count):
            row = lane // 32 * 16 + lane % 32 // 4 + 8 * (i // 2 % 2)
            assert held.place(lane, i) == (row, i // 4 * 8 + lane % 4 * 2 + i % 2)
    places = {held.place(lane, i) for lane in range(128) for i in range(held.count)}
    assert len(places) == fragment.m * fragment.n


def test_only_hopper_has_groups_of_warps() -> None:
    assert wgmma_fragments(8, 9) == wgmma_fragments(10, 0) == ()
