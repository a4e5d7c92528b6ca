"""Every row, compiled and by definition: `python -m test.runtime.amd.rows [lanes]`."""

from __future__ import annotations

import random
import sys
from typing import Any

from test.runtime.amd.single import Machine, canonical, draw, is_near, vector_case
from weft.amd.semantics.lane import register_bits
from weft.amd.semantics.rows import leaf
from weft.amd.semantics.scalar import SCALAR
from weft.amd.semantics.vector import VECTOR
from weft.dtype import dtypes
from weft.runtime.amd import state
from weft.runtime.amd.compute import scalar_bits, typed_scalar
from weft.runtime.amd.forms import Form, Place
from weft.uop.evaluate import evaluate_uop

# functions that are polynomials when compiled: units in the last place
NEAR = {"exp": 1, "log": 2, "sin": 2, "cos": 2}


def check_row(name: str, lanes: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """What differs for a vector row."""
    found = vector_case(name, VECTOR[name], lanes, random.Random(f"{name} {seed}"))
    units = max([NEAR.get(part, 0) for part in name.split("_")[1:3]])
    if "pk" in name and "16_f32" in name:
        # a pair may hold NaNs, whose bits are free
        return [w for w in found if len(w) < 5 or not _has_nan(w)]
    return [w for w in found if not (units and len(w) == 5 and is_near(*w[2:], units))]


def _has_nan(wrong: tuple[Any, ...]) -> bool:
    return any(int(bits, 16) & 0x7FFFFFFF > 0x7F800000 for bits in wrong[1])


def check_scalar(name: str, seed: int = 0) -> list[tuple[Any, ...]]:
    """What differs for a scalar row."""
    row, chance = SCALAR[name], random.Random(f"{name} {seed}")
    wrong: list[tuple[Any, ...]] = []
    for _ in range(20):
        machine = Machine(32)
        places: list[Place] = []
        words: list[int] = []
        given: dict[Any, int] = {}
        values = []
        for number, kind in enumerate(row.sources):
            if kind == "scc":
                node, value = leaf(f"s{number}", dtypes.bool), chance.getrandbits(1)
                machine.set(state.SCC, 32, value)
                places.append(Place("scc", 32))
            elif kind == "exec":
                bits = 64 if name.endswith("64") else 32
                unsigned = dtypes.uint64 if bits == 64 else dtypes.uint32
                node, value = leaf(f"s{number}", unsigned), chance.getrandbits(bits)
                machine.set(4 * state.EXEC, 64, value)
                places.append(Place("exec", 32))
            else:
                bits = register_bits(kind)
                unsigned = dtypes.uint64 if bits == 64 else dtypes.uint32
                node, value = leaf(f"s{number}", unsigned), draw(chance, kind)
                machine.set(4 * (8 + 2 * number), 64, value)
                places.append(Place("s", bits))
                words.append(4 * (8 + 2 * number))
            given[node] = value
            values.append(node if kind in ("scc", "exec") else typed_scalar(node, kind))
        outs = [
            Place(kind, 32) if kind in ("scc", "exec") else Place("s", register_bits(kind))
            for kind in row.results
        ]
        words += [4 * 40 for place in outs if place.kind == "s"]
        machine.run(Form("scalar", name, 32, tuple(places), tuple(outs)), words)
        for kind, place, result in zip(row.results, outs, row.compute(values), strict=True):
            want = int(evaluate_uop(scalar_bits(result), given))
            if kind == "scc":
                held = machine.get(state.SCC)
            elif kind == "exec":
                held = machine.get(4 * state.EXEC, scalar_bits(result).dtype.bitsize)
            else:
                held = machine.get(4 * 40, place.bits)
            if canonical(held, kind) != canonical(want, kind):
                wrong.append((name, [hex(v) for v in given.values()], kind, hex(held), hex(want)))
    return wrong


def main(arguments: list[str]) -> int:
    lanes = int(arguments[0]) if arguments else 32
    failed = 0
    for name in VECTOR:
        for wrong in check_row(name, lanes)[:1]:
            failed += 1
            print(wrong)
    for name in SCALAR:
        for wrong in check_scalar(name)[:1]:
            failed += 1
            print(wrong)
    print(f"{len(VECTOR)} vector and {len(SCALAR)} scalar rows, {failed} differ")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
