"""Helpers of what lanes exchange: DPP, reads of one lane, permutations.

In: a `Form`, or a vector and how it is moved. Out: text of helpers. On top of `text.py`.
Invariant: lanes that have no source are left alone or read 0, as the instruction says; no lane
reads outside the wave.
"""

from __future__ import annotations

from weft.errors import CompileError
from weft.runtime.amd import state
from weft.runtime.amd.forms import Form, Place
from weft.runtime.amd.text import HelperText

_ROW = 16


def moved_lanes(
    text: HelperText, value: str, how: tuple[object, ...], active: str
) -> tuple[str, str]:
    """A register after DPP, and the lanes that are written."""
    encoding, family, control, row_mask, bank_mask, bound, fetch, eight = how
    lanes = text.lane_count
    if encoding == "dpp8":
        selector = _number(eight)
        places = [8 * (i // 8) + (selector >> 3 * (i % 8) & 7) for i in range(lanes)]
        is_zero, masks = True, (15, 15)
    else:
        places = [source_lane(_number(control), i, lanes, str(family)) for i in range(lanes)]
        is_zero = bool(_number(bound))
        masks = (_number(row_mask), _number(bank_mask))
    vector, kind = text.vector_type, text.bool_type
    mask = ", ".join([f"i32 {p if p >= 0 else lanes}" for p in places])
    moved = text.emit(
        f"shufflevector {vector} {value}, {vector} zeroinitializer, <{lanes} x i32> <{mask}>"
    )
    if _number(fetch) in (1, 0xEA):
        valid = f"<{', '.join(['i1 true' if p >= 0 else 'i1 false' for p in places])}>"
    else:
        # a source lane that is not active gives nothing
        valid = text.emit(
            f"shufflevector {kind} {active}, {kind} zeroinitializer, <{lanes} x i32> <{mask}>"
        )
    moved = text.emit(f"select {kind} {valid}, {vector} {moved}, {vector} zeroinitializer")
    enabled = [masks[0] >> (i // _ROW % 4) & masks[1] >> (i % _ROW // 4) & 1 for i in range(lanes)]
    fixed = f"<{', '.join([f'i1 {str(bool(e)).lower()}' for e in enabled])}>"
    written = text.emit(f"and {kind} {active}, {fixed}")
    if not is_zero:
        written = text.emit(f"and {kind} {written}, {valid}")
    return moved, written


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def source_lane(control: int, lane: int, lanes: int, family: str) -> int:
    """Which lane DPP reads for a lane; -1: none."""
    row, place = lane // _ROW * _ROW, lane % _ROW
    if control < 0x100:
        return lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    count = control & 15
    kind = control & 0x1F0
    if kind == 0x100:
        return row + place + count if place + count < _ROW else -1
    if kind == 0x110:
        return row + place - count if place >= count else -1
    if kind == 0x120:
        return row + (place - count) % _ROW
    if control == 0x140:
        return row + _ROW - 1 - place
    if control == 0x141:
        return row + (place ^ 7)
    if kind == 0x150:
        return row + count
    if kind == 0x160 and family != "cdna":
        return row + (place ^ count)
    if family == "cdna":
        found = {
            0x130: lane + 1 if lane + 1 < lanes else -1,
            0x134: (lane + 1) % lanes,
            0x138: lane - 1,
            0x13C: (lane - 1) % lanes,
            0x142: row - 1,
            0x143: 31 if lane >= 32 else -1,
        }
        if control in found:
            return found[control]
    raise CompileError(f"DPP control {control:#x} is not known")


# ------------------------------------------------------------ one lane
def write_lane_access(form: Form) -> str:
    """v_readfirstlane, v_readlane, v_writelane."""
    text = HelperText(form.lanes)
    if form.name == "v_readfirstlane_b32":
        bits = text.load_state(4 * state.EXEC, text.mask_type)
        name = f"@llvm.cttz.{text.mask_type}"
        text.declare(f"{text.mask_type} {name}({text.mask_type}, i1)")
        first = text.emit(f"call {text.mask_type} {name}({text.mask_type} {bits}, i1 false)")
        first = text.emit(f"and {text.mask_type} {first}, {form.lanes - 1}")
        at = first if form.lanes == 64 else text.emit(f"zext i32 {first} to i64")
        value = _one_lane(text, form.sources[0], 0, at)
        text.write_scalar(_words(form.sources), 32, value)
        return text.finish("helper")
    second = form.sources[0].words
    chosen = _uniform(text, form.sources[1], second)
    at = text.emit(f"zext i32 {text.emit(f'and i32 {chosen}, {form.lanes - 1}')} to i64")
    out = _words(form.sources)
    if form.name == "v_readlane_b32":
        text.write_scalar(out, 32, _one_lane(text, form.sources[0], 0, at))
    else:
        value = _uniform(text, form.sources[0], 0)
        place = text.emit(f"getelementptr i32, ptr {text.register(out)}, i64 {at}")
        text.lines.append(f"  store i32 {value}, ptr {place}, align 4")
    return text.finish("helper")


def _words(places: tuple[Place, ...]) -> int:
    return sum([place.words for place in places])


def _uniform(text: HelperText, place: Place, number: int) -> str:
    if place.kind == "zero":
        return "0"
    return text.read_scalar(number, 32, place.kind == "c")


def _one_lane(text: HelperText, place: Place, number: int, at: str) -> str:
    if place.kind != "v":
        return _uniform(text, place, number)
    lane = text.emit(f"getelementptr i32, ptr {text.register(number)}, i64 {at}")
    return text.emit(f"load i32, ptr {lane}, align 4")


# ------------------------------------------------------------ masks and permutations
def write_count_below(form: Form) -> str:
    """v_mbcnt: bits of a mask below each lane, plus a number."""
    text = HelperText(form.lanes)
    vector = text.vector_type
    high = form.name.startswith("v_mbcnt_hi")
    below = [(1 << max(0, min(32, lane - (32 if high else 0)))) - 1 for lane in range(form.lanes)]
    held = f"<{', '.join([f'i32 {b}' for b in below])}>"
    mask = _vector(text, form.sources[0], 0)
    mask = text.emit(f"and {vector} {mask}, {held}")
    name = f"@llvm.ctpop.v{form.lanes}i32"
    text.declare(f"{vector} {name}({vector})")
    count = text.emit(f"call {vector} {name}({vector} {mask})")
    base = _vector(text, form.sources[1], form.sources[0].words)
    total = text.emit(f"add {vector} {count}, {base}")
    text.write_vector(_words(form.sources), 32, total)
    return text.finish("helper")


def _vector(text: HelperText, place: Place, number: int) -> str:
    if place.kind == "v":
        return text.read_vector(number, 32)
    return text.splat(_uniform(text, place, number), "i32")


def write_permute(form: Form) -> str:
    """ds_bpermute: each lane reads the lane that an address names, 0 where that is not active;
    ds_permute: each active lane writes to it."""
    text = HelperText(form.lanes)
    lanes, vector, kind = form.lanes, text.vector_type, text.bool_type
    (offset,) = form.extra
    address = text.read_vector(0, 32)
    moved = text.emit(f"add {vector} {address}, splat (i32 {offset})")
    moved = text.emit(f"lshr {vector} {moved}, splat (i32 2)")
    chosen = text.emit(f"and {vector} {moved}, splat (i32 {lanes - 1})")
    data = text.read_vector(1, 32)
    active = text.active_lanes()
    data = text.emit(f"select {kind} {active}, {vector} {data}, {vector} zeroinitializer")
    room = f"[{lanes} x i32]"
    held = text.emit(f"alloca {room}, align 64")
    result = text.emit(f"alloca {room}, align 64")
    text.lines.append(f"  store {vector} {data}, ptr {held}, align 64")
    text.lines.append(f"  store {vector} zeroinitializer, ptr {result}, align 64")
    for lane in range(lanes):
        other = text.emit(f"extractelement {vector} {chosen}, i64 {lane}")
        other = text.emit(f"zext i32 {other} to i64")
        source, target = (other, str(lane)) if "bpermute" in form.name else (str(lane), other)
        at = text.emit(f"getelementptr i32, ptr {held}, i64 {source}")
        to = text.emit(f"getelementptr i32, ptr {result}, i64 {target}")
        value = text.emit(f"load i32, ptr {at}, align 4")
        if "bpermute" not in form.name:
            on = text.emit(f"extractelement {kind} {active}, i64 {lane}")
            before = text.emit(f"load i32, ptr {to}, align 4")
            value = text.emit(f"select i1 {on}, i32 {value}, i32 {before}")
        text.lines.append(f"  store i32 {value}, ptr {to}, align 4")
    found = text.emit(f"load {vector}, ptr {result}, align 64")
    text.write_vector(2, 32, found)
    return text.finish("helper")


def write_fixed_permute(form: Form) -> str:
    """ds_swizzle and v_permlane*: which lane each reads is in the form."""
    text = HelperText(form.lanes)
    lanes, vector, kind = form.lanes, text.vector_type, text.bool_type
    places = [int(str(p)) for p in form.extra]
    value = text.read_vector(0, 32)
    active = text.active_lanes()
    value = text.emit(f"select {kind} {active}, {vector} {value}, {vector} zeroinitializer")
    mask = ", ".join([f"i32 {p}" for p in places])
    found = text.emit(f"shufflevector {vector} {value}, {vector} poison, <{lanes} x i32> <{mask}>")
    text.write_vector(1, 32, found)
    return text.finish("helper")


def swizzled_lanes(offset: int, lanes: int) -> list[int]:
    """The lanes that ds_swizzle reads, in groups of 4 or of 32."""
    if offset & 0x8000 and not offset & 0x4000:
        return [i // 4 * 4 + (offset >> 2 * (i % 4) & 3) for i in range(lanes)]
    keep, set_bits, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return [i // 32 * 32 + (((i % 32) & keep | set_bits) ^ flip) for i in range(lanes)]


# ------------------------------------------------------------ registers by number
def write_relative(form: Form) -> str:
    """A move whose source or target is so many registers further as M0 says.

    Words: source, target, then how many registers there are from each on.
    """
    text = HelperText(form.lanes)
    place, from_source, to_target, bits = form.extra
    index = text.load_state(4 * int(str(place)), "i32")
    if bits:
        index = text.emit(f"and i32 {index}, {(1 << int(str(bits))) - 1}")
    wide = text.emit(f"zext i32 {index} to i64")
    step = text.emit(f"mul i64 {wide}, {4 * form.lanes}")
    source = text.register(0) if form.sources[0].kind != "c" else ""
    target = text.register(1)
    for number, is_moved in ((2, from_source), (3, to_target)):
        if not is_moved:
            continue
        okay = text.emit(f"icmp ult i32 {index}, {text.word(number)}")
        text.lines.append(f"  br i1 {okay}, label %held{number}, label %beyond{number}")
        text.label(f"beyond{number}")
        text.store_state(state.FAULT_ADDRESS, "i64", wide)
        text.stop(state.BAD_REGISTER)
        text.label(f"held{number}")
    if from_source:
        source = text.place(step, source)
    if to_target:
        target = text.place(step, target)
    if form.sources[0].kind == "v":
        value = text.read_at(source, 32)
    elif form.sources[0].kind == "s":
        value = text.splat(text.emit(f"load i32, ptr {source}, align 4"), "i32")
    else:
        value = text.splat(text.word(0), "i32")
    text.write_at(target, 32, value)
    return text.finish("helper")


def write_index_mode(form: Form) -> str:
    """s_set_gpr_idx_on: M0 takes the number and what it is for."""
    text = HelperText(form.lanes)
    (mode,) = form.extra
    place = form.sources[0]
    value = _uniform(text, place, 0)
    low = text.emit(f"and i32 {value}, 255")
    if form.name == "s_set_gpr_idx_on":
        found = text.emit(f"or i32 {low}, {int(str(mode)) << 12}")
    else:
        before = text.load_state(4 * state.M0_CDNA, "i32")
        found = text.emit(f"or i32 {text.emit(f'and i32 {before}, -256')}, {low}")
    text.store_state(4 * state.M0_CDNA, "i32", found)
    return text.finish("helper")
