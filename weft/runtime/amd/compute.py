"""Helpers of instructions that compute: vectors, pairs of them, and scalars.

In: a `Form`. Out: the text of its helper. On top of `text.py`; what is computed is in
`weft.amd.semantics`.
Invariant: all sources are read before any result is written.
"""

from __future__ import annotations

from typing import Any

from weft.amd.semantics.lane import (
    Lane,
    lane_of,
    mixed_lane,
    packed_lane,
    packed_row,
    register_bits,
    scalar_row,
    ternary_lane,
    vector_row,
)
from weft.amd.semantics.rows import TYPES, leaf
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.runtime.amd import state
from weft.runtime.amd.exchange import moved_lanes
from weft.runtime.amd.forms import Form, Place
from weft.runtime.amd.text import HelperText

# the hardware's roundings (nearest, up, down, to zero) as LLVM numbers them
_HOST_ROUNDING = (1, 2, 3, 0)


def write_vector(form: Form) -> str:
    """The helper of a vector instruction."""
    text = HelperText(form.lanes)
    if form.extra and form.kind == "vector":
        return _write_moved(form, text)
    lane = lane_of_form(form)
    numbers = word_numbers((*form.sources, *form.results))
    names = read_sources(text, form.sources, numbers)
    out = numbers[len(form.sources)]
    if lane.reads_old:
        names["old"] = text.read_vector(out, 32)
    found = text.compute(lane, names, is_vector=True)
    write_results(text, form.results, numbers[len(form.sources) :], found)
    return finish_in_mode(text, form)


def finish_in_mode(text: HelperText, form: Form) -> str:
    """The helper, whose floats round as the mode says.

    What computes is a function of its own, so that nothing of it moves out from between the two
    changes of the host's rounding.
    """
    rounding = form.writes.rounding
    if not rounding:
        return text.finish("helper")
    kinds = {rounding & 3 if is_f32 else rounding >> 2 for is_f32 in _widths(form)}
    if len(kinds) != 1:
        raise CompileError("two roundings in one instruction are not emulated")
    return text.finish_rounded("helper", _HOST_ROUNDING[kinds.pop()])


def _widths(form: Form) -> set[bool]:
    """Whether results are float32, or other floats."""
    if form.kind == "dual":
        return {True}
    row = vector_row(form.name)
    assert row is not None
    kinds = [k for k in (*row.results, *row.sources) if k[0] == "f"]
    return {kinds[0] == "f32"}


def lane_of_form(form: Form) -> Lane:
    """What one lane computes."""
    if form.kind == "mixed":
        return mixed_lane(form.name, form.reads, form.writes)
    if form.kind == "packed":
        row = packed_row(form.name)
        assert row is not None
        return packed_lane(form.name, row, form.reads, form.writes)
    if form.kind == "ternary":
        table, bits = form.extra
        return ternary_lane(int(str(table)), int(str(bits)), form.writes)
    row = vector_row(form.name)
    if row is None:
        raise CompileError(f"the emulator has no meaning for {form.name}")
    return lane_of(row, form.reads, form.writes)


def word_numbers(places: tuple[Place, ...]) -> list[int]:
    """The first word of each place."""
    found, at = [], 0
    for place in places:
        found.append(at)
        at += place.words
    return found


def read_sources(text: HelperText, places: tuple[Place, ...], numbers: list[int]) -> dict[str, str]:
    """What the leaves of a lane's expression are."""
    names: dict[str, str] = {}
    for position, (place, number) in enumerate(zip(places, numbers, strict=False)):
        names[f"s{position}"] = read_place(text, place, number)
    return names


def read_place(text: HelperText, place: Place, number: int) -> str:
    """A source for all lanes."""
    if place.kind == "vcc":
        return text.mask_at(4 * state.VCC)
    if place.kind == "mask":
        return text.read_mask(number)
    if place.kind == "none":
        return text.splat("false", "i1")
    if place.kind == "v":
        return text.read_vector(number, place.bits)
    return text.splat(read_uniform(text, place, number), f"i{place.bits}")


def read_uniform(text: HelperText, place: Place, number: int) -> str:
    """A source that is the same for all lanes."""
    if place.kind in ("s", "c"):
        return text.read_scalar(number, place.bits, place.kind == "c")
    return special_value(text, place)


def special_value(text: HelperText, place: Place) -> str:
    """0, or whether something holds."""
    kind = f"i{place.bits}"
    if place.kind == "zero":
        return "0"
    if place.kind == "scc":
        value = text.load_state(state.SCC, "i32")
        return value if place.bits == 32 else text.emit(f"zext i32 {value} to {kind}")
    register = {"vccz": state.VCC, "execz": state.EXEC}.get(place.kind)
    if register is None:
        raise CompileError(f"the emulator does not read {place.kind}")
    value = text.load_state(4 * register, text.mask_type)
    test = text.emit(f"icmp eq {text.mask_type} {value}, 0")
    return text.emit(f"zext i1 {test} to {kind}")


def write_results(
    text: HelperText, places: tuple[Place, ...], numbers: list[int], values: list[str]
) -> None:
    """Masks last: one of them may say which lanes are active."""
    order = sorted(range(len(places)), key=lambda i: places[i].bits == 1)
    for i in order:
        place, number, value = places[i], numbers[i], values[i]
        if place.bits > 1:
            if place.kind == "v":
                text.write_vector(number, place.bits, value)
            else:
                # of a scalar instruction in a vector's encoding: any lane
                kind = f"<{text.lane_count} x i{place.bits}>"
                one = text.emit(f"extractelement {kind} {value}, i64 0")
                text.write_scalar(number, place.bits, one)
            continue
        bits = text.mask_bits(value)
        kinds = place.kind.split("+")
        for kind in reversed(kinds):
            if kind == "s":
                text.write_scalar(number, text.lane_count, bits)
            else:
                offset = 4 * (state.EXEC if kind == "exec" else state.VCC)
                text.store_state(offset, text.mask_type, bits)


def _write_moved(form: Form, text: HelperText) -> str:
    """DPP: the first source comes from other lanes, and some lanes are left alone."""
    lane = lane_of_form(form)
    numbers = word_numbers((*form.sources, *form.results))
    names = read_sources(text, form.sources, numbers)
    active = text.active_lanes()
    names["s0"], written = moved_lanes(text, names["s0"], form.extra, active)
    text.active = written
    out = numbers[len(form.sources)]
    if lane.reads_old:
        names["old"] = text.read_vector(out, 32)
    found = text.compute(lane, names, is_vector=True)
    text.active = active if form.results[0].bits == 1 else written
    write_results(text, form.results, numbers[len(form.sources) :], found)
    return text.finish("helper")


def write_dual(form: Form) -> str:
    """Both halves are computed before either is written."""
    text = HelperText(form.lanes)
    at = 0
    pending: list[tuple[Place, int, str]] = []
    for part in form.extra:
        name, places, out = _dual_part(part)
        row = vector_row(name)
        assert row is not None
        numbers = word_numbers((*places, out))
        names = read_sources(text, places, [at + n for n in numbers[:-1]])
        lane = lane_of(row, (), form.writes)
        pending.append((out, at + numbers[-1], text.compute(lane, names, is_vector=True)[0]))
        at += numbers[-1] + 1
    for place, number, value in pending:
        text.write_vector(number, place.bits, value)
    return finish_in_mode(text, form)


def _dual_part(part: Any) -> tuple[str, tuple[Place, ...], Place]:
    name, places, out = part
    return name, places, out


def write_scalar(form: Form) -> str:
    """The helper of a scalar instruction."""
    text = HelperText(form.lanes)
    row = scalar_row(form.name)
    assert row is not None
    numbers = word_numbers((*form.sources, *form.results))
    leaves: dict[Any, str] = {}
    values = []
    for position, kind in enumerate(row.sources):
        place, number = form.sources[position], numbers[position]
        if kind == "scc":
            node = leaf(f"s{position}", dtypes.bool)
            leaves[node] = text.read_condition()
            values.append(node)
            continue
        if kind == "exec":
            bits = 64 if form.name.endswith("64") else 32
            name = text.load_state(4 * state.EXEC, f"i{bits}")
        else:
            bits = register_bits(kind)
            name = read_uniform(text, place, number)
        unsigned = dtypes.uint64 if bits == 64 else dtypes.uint32
        node = leaf(f"s{position}", unsigned)
        leaves[node] = name
        values.append(typed_scalar(node, kind))
    results = [scalar_bits(value) for value in row.compute(values)]
    found = text.expressions(results, leaves, 1)
    for place, number, value, node in zip(
        form.results, numbers[len(form.sources) :], found, results, strict=True
    ):
        if place.kind == "scc":
            text.write_condition(value)
        elif place.kind == "exec":
            text.store_state(4 * state.EXEC, f"i{node.dtype.bitsize}", value)
        else:
            text.write_scalar(number, place.bits, value)
    return text.finish("helper")


def typed_scalar(node: Any, kind: str) -> Any:
    """A register as a row wants it."""
    if kind == "exec":
        return node
    wanted = TYPES[kind]
    if wanted.bitsize == 16:
        return node.cast(dtypes.uint16).bitcast(wanted)
    return node if node.dtype is wanted else node.bitcast(wanted)


def scalar_bits(value: Any) -> Any:
    """A result as a register holds it."""
    if value.dtype.kind == "bool":
        return value
    unsigned = {16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}[value.dtype.bitsize]
    bits = value if value.dtype is unsigned else value.bitcast(unsigned)
    return bits.cast(dtypes.uint32) if bits.dtype.bitsize == 16 else bits
