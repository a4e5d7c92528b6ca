"""Stores that go past the caches: which ones do, and that memory may begin anywhere."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from test.renderer.programs import const, end, load, loop, program, run_llvm
from weft.dtype import dtypes
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.node import UOp

f32 = dtypes.float32
LANES, ROUNDS = 8, 64
SIZE = LANES * ROUNDS
STREAMING = LLVMRenderer(Target(l3=4 * SIZE - 1, has_streaming=True))


def _copy(step: int = LANES, offset: int = 0, size: int = SIZE, slot: int = 1) -> list[UOp]:
    """out[i * step + offset ...] = data[...] in vectors."""
    out, data = UOp.param(0, f32, size), UOp.param(slot, f32, size)
    i = loop(ROUNDS)
    place = i * const(step) + const(offset)
    return program(i, out.index(place).store(load(data, place, lanes=LANES)), end(i))


def test_whole_vectors_of_large_outputs_are_streamed() -> None:
    text = STREAMING.render("k", _copy())
    assert text.count("align 32, !nontemporal !0") == 1
    assert text.count("store <8 x float>") == 2
    assert "sfence" in text and "!0 = !{i32 1}" in text


@pytest.mark.parametrize(
    ("renderer", "uops"),
    [
        (LLVMRenderer(Target(l3=4 * SIZE, has_streaming=True)), _copy()),
        (LLVMRenderer(Target(l3=1)), _copy()),
        (STREAMING, _copy(step=4)),
        (STREAMING, _copy(offset=2)),
        (STREAMING, _copy(slot=0)),
    ],
    ids=["fits the cache", "no such stores", "overlapping", "between vectors", "in place"],
)
def test_others_are_not(renderer: LLVMRenderer, uops: list[UOp]) -> None:
    assert "nontemporal" not in renderer.render("k", uops)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 has such stores")
@pytest.mark.parametrize("start", range(0, 20))
def test_memory_may_begin_anywhere(start: int) -> None:
    data = np.arange(SIZE, dtype=np.float32)
    room = np.zeros(SIZE + 40, np.float32)
    first = -(room.ctypes.data // 4) % 16 + start
    out = room[first : first + SIZE]
    run_llvm(_copy(), [out, data], renderer=STREAMING)
    np.testing.assert_array_equal(out, data)
    assert not room[:first].any() and not room[first + SIZE :].any()
