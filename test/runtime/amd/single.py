"""One helper at a time: runs compiled forms on registers that a test fills, and the same lane by
lane through the interpreter of UOps."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from typing import Any

from weft.amd.semantics.lane import Lane, Result, Source, lane_of, register_bits
from weft.amd.semantics.rows import Row
from weft.runtime.amd import state
from weft.runtime.amd.forms import Form, Place
from weft.runtime.amd.helpers import HELPERS
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp

SPECIAL = {
    32: [0, 1, 2, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0xBF800000,
         0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0x00800000, 0xFFFFFFFF, 0x3F000000, 0x4B000000,
         0x4B7FFFFF, 0x34000000, 31, 32, 0x7FFFFFFF, 0x40200000, 0xC0200000],
    64: [0, 1, 1 << 63, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
         0x3FF0000000000000, 0xBFF0000000000000, 0x0010000000000000, 0x000FFFFFFFFFFFFF,
         0x7FEFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x4330000000000000, 63, 64],
}  # fmt: skip
HALVES = [0, 0x8000, 1, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0400, 0x03FF, 0x3800]


def draw(chance: random.Random, kind: str) -> int:
    """A register for an operand of a type: often something special."""
    bits = register_bits(kind)
    if bits == 1:
        return chance.getrandbits(1)
    if kind.endswith("16"):
        low = chance.choice(HALVES) if chance.random() < 0.4 else chance.getrandbits(16)
        return low | chance.getrandbits(16) << 16
    if chance.random() < 0.4:
        return chance.choice(SPECIAL[bits])
    if kind == "f32" and chance.random() < 0.8:
        return struct.unpack("<I", struct.pack("<f", chance.gauss(0, 10)))[0]
    if kind == "f64" and chance.random() < 0.8:
        return struct.unpack("<Q", struct.pack("<d", chance.gauss(0, 10)))[0]
    if kind in ("i32", "u32") and chance.random() < 0.3:
        return chance.randrange(0, 256)
    return chance.getrandbits(bits)


class Machine:
    """A wave whose registers a test fills."""

    def __init__(self, lanes: int) -> None:
        self.shape = state.Shape(lanes, has_accumulators=True)
        self._memory = (ctypes.c_char * (self.shape.wave_bytes + 64))()
        self.wave = -(-ctypes.addressof(self._memory) // 64) * 64

    def set(self, offset: int, bits: int, value: int) -> None:
        kind = {32: ctypes.c_uint32, 64: ctypes.c_uint64}[bits]
        kind.from_address(self.wave + offset).value = value

    def get(self, offset: int, bits: int = 32) -> int:
        kind = {32: ctypes.c_uint32, 64: ctypes.c_uint64}[bits]
        return int(kind.from_address(self.wave + offset).value)

    def set_lanes(self, register: int, bits: int, values: list[int]) -> None:
        for lane, value in enumerate(values):
            for part in range(bits // 32):
                offset = self.shape.vector(register + part) + 4 * lane
                self.set(offset, 32, value >> 32 * part & 0xFFFFFFFF)

    def lanes(self, register: int, bits: int) -> list[int]:
        found = []
        for lane in range(self.shape.lanes):
            parts = [
                self.get(self.shape.vector(register + p) + 4 * lane) for p in range(bits // 32)
            ]
            found.append(sum(part << 32 * p for p, part in enumerate(parts)))
        return found

    def run(self, form: Form, words: list[int]) -> int:
        """Runs a form's helper once; the status that the wave stops with."""
        stop = Form("stop", "", self.shape.lanes, extra=(state.STOPPED,))
        addresses = HELPERS.addresses([form, stop])
        records = (ctypes.c_char * (3 * state.RECORD_BYTES))()
        base = -(-ctypes.addressof(records) // 64) * 64
        ctypes.c_uint64.from_address(base).value = addresses[form]
        ctypes.c_uint64.from_address(base + state.RECORD_BYTES).value = addresses[stop]
        for number, word in enumerate(words):
            at = base + state.WORDS + 4 * number
            ctypes.c_uint32.from_address(at).value = word & 0xFFFFFFFF
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(addresses[form])(self.wave, base)
        return self.get(state.STATUS, 64)


def canonical(value: int, kind: str) -> int | str:
    """NaNs of a type are one value."""
    if kind == "f32":
        return "nan" if value & 0x7FFFFFFF > 0x7F800000 else value
    if kind == "f64":
        return "nan" if value & (1 << 63) - 1 > 0x7FF0000000000000 else value
    if kind == "f16":
        return "nan" if value & 0x7FFF > 0x7C00 else value & 0xFFFF
    return value


def by_definition(lane: Lane, values: dict[str, int]) -> list[int]:
    """The results of one lane, through the interpreter of UOps."""
    given = {node: values[name] for name, node in lane.leaves}
    found = []
    for result in lane.results:
        value = evaluate_uop(result, given)
        found.append(int(value))
    return found


def vector_case(
    name: str,
    row: Row,
    lanes: int,
    chance: random.Random,
    reads: tuple[Source, ...] = (),
    writes: Result | None = None,
) -> list[tuple[Any, ...]]:
    """Runs a row compiled and by definition on random lanes; what differs."""
    writes = writes or Result()
    machine = Machine(lanes)
    places: list[Place] = []
    words: list[int] = []
    inputs: list[list[int]] = []
    for number, kind in enumerate(row.sources):
        bits = register_bits(kind)
        values = [draw(chance, kind) for _ in range(lanes)]
        inputs.append(values)
        if bits == 1:
            places.append(Place("mask", 1))
            words.append(machine.shape.scalar(10 + 2 * number))
            mask = sum(v << i for i, v in enumerate(values))
            machine.set(machine.shape.scalar(10 + 2 * number), 64, mask)
            continue
        places.append(Place("v", bits))
        words.append(machine.shape.vector(8 + 2 * number))
        machine.set_lanes(8 + 2 * number, bits, values)
    outs: list[Place] = []
    for number, kind in enumerate(row.results):
        bits = register_bits(kind)
        outs.append(Place("s", 1) if bits == 1 else Place("v", bits))
        offset = machine.shape.scalar(40 + 2 * number)
        words.append(offset if bits == 1 else machine.shape.vector(20 + 2 * number))
    old = [chance.getrandbits(32) for _ in range(lanes)]
    machine.set_lanes(20, 32, old)
    mask = chance.getrandbits(lanes)
    machine.set(4 * state.EXEC, 64, mask)
    form = Form("vector", name, lanes, tuple(places), tuple(outs), reads, writes)
    machine.run(form, words)
    lane = lane_of(row, reads, writes)
    wrong = []
    for number in range(lanes):
        given = {f"s{i}": values[number] for i, values in enumerate(inputs)}
        given["old"] = old[number]
        expected = by_definition(lane, given)
        for place, (kind, value) in enumerate(zip(row.results, expected, strict=True)):
            bits = register_bits(kind)
            active = mask >> number & 1
            if bits == 1:
                held = machine.get(machine.shape.scalar(40 + 2 * place), 64) >> number & 1
                want = value & active
            else:
                held = machine.lanes(20 + 2 * place, bits)[number]
                want = value if active else held
                if not active and place == 0 and bits == 32 and held != old[number]:
                    wrong.append((name, number, "inactive lane written"))
            if canonical(held, kind) != canonical(want, kind):
                wrong.append((name, [hex(v[number]) for v in inputs], kind, hex(held), hex(want)))
    return wrong


def is_near(kind: str, held: str, want: str, units: int) -> bool:
    """Whether two floats are within so many units in the last place."""
    size = {"f16": 16, "f32": 32, "f64": 64}[kind]

    def ordered(bits: int) -> int:
        top = 1 << (size - 1)
        return -(bits & (top - 1)) if bits & top else bits

    return abs(ordered(int(held, 16)) - ordered(int(want, 16))) <= units


__all__ = ["Machine", "UOp", "draw", "is_near", "math", "vector_case"]
