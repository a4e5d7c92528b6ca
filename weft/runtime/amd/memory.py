"""Helpers of instructions that read and write memory.

In: a `Form` with an `Access`. Out: the text of its helper, and the function that looks for the
allocation that an address is in. On top of `text.py`.
Invariant: no byte is touched that is not in a registered allocation, in the group's shared memory,
or in the lane's scratch. An access that would touch another stops the wave before it.
"""

from __future__ import annotations

from weft.errors import CompileError
from weft.runtime.amd import state
from weft.runtime.amd.accesses import Access, Atomic
from weft.runtime.amd.forms import Form
from weft.runtime.amd.text import ATTRIBUTES, HelperText

# where an allocation that was found is kept at first: no address is there
NOWHERE = 1 << 63


class MemoryText(HelperText):
    """A helper that touches memory, while it is written."""

    def wide_splat(self, value: str) -> str:
        return self.splat(value, "i64")

    def sum(self, left: str, right: str) -> str:
        return self.emit(f"add {self.wide_type} {left}, {right}")

    def widened(self, value: str, signed: bool = False) -> str:
        name = "sext" if signed else "zext"
        return self.emit(f"{name} {self.vector_type} {value} to {self.wide_type}")

    def count_bytes(self, offset: int, nbytes: int) -> None:
        """Adds the bytes of all active lanes to a counter."""
        mask = self.load_state(4 * state.EXEC, self.mask_type)
        name = f"@llvm.ctpop.{self.mask_type}"
        self.declare(f"{self.mask_type} {name}({self.mask_type})")
        lanes = self.emit(f"call {self.mask_type} {name}({self.mask_type} {mask})")
        if self.lane_count == 32:
            lanes = self.emit(f"zext i32 {lanes} to i64")
        total = self.emit(f"mul i64 {lanes}, {nbytes}")
        before = self.load_state(offset, "i64")
        self.store_state(offset, "i64", self.emit(f"add i64 {before}, {total}"))

    # ------------------------------------------------------------ checks
    def check_allocations(self, addresses: str, nbytes: int) -> None:
        """Stops the wave unless the bytes of every active lane are in an allocation.

        The one that was found last is in the record: most accesses are there again.
        """
        start = self.word_of_record(state.FOUND_START)
        end = self.word_of_record(state.FOUND_END)
        size = self.emit(f"sub i64 {end}, {start}")
        limit = self.wide_splat(self.emit(f"sub i64 {size}, {nbytes}"))
        inside = self.emit(f"sub {self.wide_type} {addresses}, {self.wide_splat(start)}")
        beyond = self.emit(f"icmp ugt {self.wide_type} {inside}, {limit}")
        bad = self.mask_bits(beyond)
        test = self.emit(f"icmp eq {self.mask_type} {bad}, 0")
        self.lines.append(f"  br i1 {test}, label %fine, label %look")
        self.label("look")
        room = self.emit(f"alloca {self.wide_type}, align 64")
        self.lines.append(f"  store {self.wide_type} {addresses}, ptr {room}, align 64")
        mask = self.load_state(4 * state.EXEC, self.mask_type)
        if self.lane_count == 32:
            mask = self.emit(f"zext i32 {mask} to i64")
        self.call_find(room, mask, nbytes)

    def call_find(self, room: str, mask: str, nbytes: int) -> None:
        find = self.load_state(state.FIND, "ptr")
        given = f"ptr %wave, ptr %record, ptr {room}, i64 {mask}, i64 {nbytes}"
        found = self.emit(f"call i32 {find}({given})")
        okay = self.emit(f"icmp ne i32 {found}, 0")
        self.lines.append(f"  br i1 {okay}, label %fine, label %fault")
        self.label("fault")
        self.stop(state.BAD_ADDRESS)
        self.label("fine")

    def word_of_record(self, offset: int) -> str:
        return self.emit(f"load i64, ptr {self.place(offset, '%record')}, align 8")

    def check_room(self, offsets: str, nbytes: int, room: str, status: int, name: str) -> None:
        """Stops the wave unless offsets of active lanes leave room for the bytes.

        Offsets are 64 bits wide: a sum of 32 bits must not wrap around into the room.
        """
        fits = self.emit(f"icmp uge i64 {room}, {nbytes}")
        limit = self.emit(f"sub i64 {room}, {nbytes}")
        limit = self.emit(f"select i1 {fits}, i64 {limit}, i64 -1")
        beyond = self.emit(f"icmp ugt {self.wide_type} {offsets}, {self.wide_splat(limit)}")
        none = self.splat(self.emit(f"xor i1 {fits}, true"), "i1")
        beyond = self.emit(f"or {self.bool_type} {beyond}, {none}")
        bad = self.mask_bits(beyond)
        test = self.emit(f"icmp eq {self.mask_type} {bad}, 0")
        self.lines.append(f"  br i1 {test}, label %fits{name}, label %bad{name}")
        self.label(f"bad{name}")
        function = f"@llvm.cttz.{self.mask_type}"
        self.declare(f"{self.mask_type} {function}({self.mask_type}, i1)")
        lane = self.emit(f"call {self.mask_type} {function}({self.mask_type} {bad}, i1 false)")
        at = self.emit(f"extractelement {self.wide_type} {offsets}, {self.mask_type} {lane}")
        self.store_state(state.FAULT_ADDRESS, "i64", at)
        self.stop(status)
        self.label(f"fits{name}")

    # ------------------------------------------------------------ lanes
    def pointers(self, addresses: str) -> str:
        return self.emit(f"inttoptr {self.wide_type} {addresses} to <{self.lane_count} x ptr>")

    def further(self, addresses: str, nbytes: int) -> str:
        return self.sum(addresses, f"splat (i64 {nbytes})") if nbytes else addresses

    def gather(self, addresses: str, bits: int) -> str:
        kind = f"<{self.lane_count} x i{bits}>"
        pointers = f"<{self.lane_count} x ptr>"
        name = f"@llvm.masked.gather.v{self.lane_count}i{bits}.v{self.lane_count}p0"
        self.declare(f"{kind} {name}({pointers}, i32, {self.bool_type}, {kind})")
        given = f"{pointers} {self.pointers(addresses)}, i32 1, {self.bool_type} "
        given += f"{self.active_lanes()}, {kind} zeroinitializer"
        return self.emit(f"call {kind} {name}({given})")

    def scatter(self, addresses: str, bits: int, value: str) -> None:
        kind = f"<{self.lane_count} x i{bits}>"
        pointers = f"<{self.lane_count} x ptr>"
        name = f"@llvm.masked.scatter.v{self.lane_count}i{bits}.v{self.lane_count}p0"
        self.declare(f"void {name}({kind}, {pointers}, i32, {self.bool_type})")
        given = f"{kind} {value}, {pointers} {self.pointers(addresses)}, i32 1, "
        self.lines.append(f"  call void {name}({given}{self.bool_type} {self.active_lanes()})")

    def load_parts(self, addresses: str, access: Access, out: str) -> None:
        """Reads one part into registers from `out` on."""
        if access.bits >= 32:
            values = [self.gather(self.further(addresses, 4 * k), 32) for k in range(access.words)]
            for k, value in enumerate(values):
                self.write_at(self.place(4 * self.lane_count * k, out), 32, value)
            return
        narrow = f"<{self.lane_count} x i{access.bits}>"
        value = self.gather(addresses, access.bits)
        name = "sext" if access.is_signed else "zext"
        word = self.emit(f"{name} {narrow} {value} to {self.vector_type}")
        if access.half is not None:
            old = self.read_at(out, 32)
            word = self.merged(word, old, access.half)
        self.write_at(out, 32, word)

    def merged(self, word: str, old: str, half: int) -> str:
        vector = self.vector_type
        if half:
            word = self.emit(f"shl {vector} {word}, splat (i32 16)")
            kept = self.emit(f"and {vector} {old}, splat (i32 65535)")
        else:
            word = self.emit(f"and {vector} {word}, splat (i32 65535)")
            kept = self.emit(f"and {vector} {old}, splat (i32 -65536)")
        return self.emit(f"or {vector} {word}, {kept}")

    def store_parts(self, addresses: str, access: Access, source: str) -> None:
        vector = self.vector_type
        if access.bits >= 32:
            for k in range(access.words):
                value = self.read_at(self.place(4 * self.lane_count * k, source), 32)
                self.scatter(self.further(addresses, 4 * k), 32, value)
            return
        value = self.read_at(source, 32)
        if access.half:
            value = self.emit(f"lshr {vector} {value}, splat (i32 16)")
        narrow = f"<{self.lane_count} x i{access.bits}>"
        self.scatter(addresses, access.bits, self.emit(f"trunc {vector} {value} to {narrow}"))


def write_access(form: Form) -> str:
    """A load or store of lanes. Words: offset, data, then vaddr and saddr where there are."""
    access, has_vector, has_scalar = form.extra[:3]
    assert isinstance(access, Access)
    text = MemoryText(form.lanes)
    if access.memory == "ds":
        return _write_shared(form, access, text)
    addresses = _addresses(text, access.memory, bool(has_vector), bool(has_scalar))
    nbytes = max(1, access.bits // 8)
    if access.memory == "scratch":
        addresses = _scratch_addresses(text, addresses, nbytes)
    else:
        text.check_allocations(addresses, nbytes)
        text.active = ""
    text.count_bytes(state.BYTES_READ if access.is_load else state.BYTES_WRITTEN, nbytes)
    data = text.register(1)
    if access.is_load:
        text.load_parts(addresses, access, data)
    else:
        text.store_parts(addresses, access, data)
    return text.finish("helper")


def _addresses(text: MemoryText, memory: str, has_vector: bool, has_scalar: bool) -> str:
    offset = text.emit(f"sext i32 {text.word(0)} to i64")
    if memory == "scratch":
        found = text.wide_splat(offset)
        number = 2
        if has_vector:
            found = text.sum(found, text.widened(text.read_vector(number, 32)))
            number += 1
        if has_scalar:
            base = text.emit(f"zext i32 {text.read_scalar(number, 32)} to i64")
            found = text.sum(found, text.wide_splat(base))
        return found
    if not has_scalar:
        return text.sum(text.read_vector(2, 64), text.wide_splat(offset))
    base = text.emit(f"add i64 {text.read_scalar(3, 64)}, {offset}")
    return text.sum(text.widened(text.read_vector(2, 32)), text.wide_splat(base))


def _scratch_addresses(text: MemoryText, offsets: str, nbytes: int) -> str:
    """Every lane has bytes of its own, one after another."""
    room = text.load_state(state.SCRATCH_BYTES, "i64")
    text.check_room(offsets, nbytes, room, state.BAD_SCRATCH, "scratch")
    base = text.load_state(state.SCRATCH, "i64")
    numbers = ", ".join([f"i64 {lane}" for lane in range(text.lane_count)])
    starts = text.emit(f"mul {text.wide_type} {text.wide_splat(room)}, <{numbers}>")
    return text.sum(text.sum(offsets, starts), text.wide_splat(base))


def _write_shared(form: Form, access: Access, text: MemoryText) -> str:
    """Words: address, data, second data, then an offset for each part."""
    room = text.load_state(state.LDS_BYTES, "i64")
    base = text.wide_splat(text.load_state(state.LDS, "i64"))
    address = text.widened(text.read_vector(0, 32))
    nbytes = max(1, access.bits // 8)
    places: list[str] = []
    for part in range(access.parts):
        offset = text.emit(f"zext i32 {text.word(3 + part)} to i64")
        found = text.sum(address, text.wide_splat(offset))
        text.check_room(found, nbytes, room, state.BAD_LDS, f"lds{part}")
        places.append(text.sum(found, base))
    text.count_bytes(state.LDS_BYTES_MOVED, nbytes * access.parts)
    if form.extra[3]:
        _count_conflicts(text, places[0], nbytes)
    for part, found in enumerate(places):
        if access.is_load:
            step = part * access.words * 4 * text.lane_count
            text.load_parts(found, access, text.place(step, text.register(1)))
        else:
            text.store_parts(found, access, text.register(1 + part))
    return text.finish("helper")


def _count_conflicts(text: MemoryText, places: str, nbytes: int) -> None:
    """Adds how often banks of 4 bytes are asked for different words, beyond the first time."""
    room = text.emit(f"alloca {text.wide_type}, align 64")
    text.lines.append(f"  store {text.wide_type} {places}, ptr {room}, align 64")
    mask = text.load_state(4 * state.EXEC, text.mask_type)
    if text.lane_count == 32:
        mask = text.emit(f"zext i32 {mask} to i64")
    function = text.load_state(state.CONFLICTS, "ptr")
    count = text.emit(f"call i64 {function}(ptr {room}, i64 {mask})")
    before = text.load_state(state.LDS_CONFLICTS, "i64")
    text.store_state(state.LDS_CONFLICTS, "i64", text.emit(f"add i64 {before}, {count}"))


def conflict_function() -> str:
    """The module of `conflicts`: of 32 banks of 4 bytes, the one that is asked for most different
    words by the lanes of a mask; how many beyond one."""
    return f"""define i64 @conflicts(ptr %places, i64 %mask) #0 {{
entry:
  %counts = alloca [32 x i64], align 64
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 256, i1 false)
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %worst = phi i64 [ 0, %entry ], [ %worst.next, %next ]
  %bit = lshr i64 %mask, %i
  %on = trunc i64 %bit to i1
  br i1 %on, label %look, label %next
look:
  %p = getelementptr i64, ptr %places, i64 %i
  %at = load i64, ptr %p
  %word = lshr i64 %at, 2
  br label %before
before:
  %j = phi i64 [ 0, %look ], [ %j.next, %other ]
  %more = icmp ult i64 %j, %i
  br i1 %more, label %other, label %new
other:
  %q = getelementptr i64, ptr %places, i64 %j
  %qat = load i64, ptr %q
  %qword = lshr i64 %qat, 2
  %qbit = lshr i64 %mask, %j
  %qon = trunc i64 %qbit to i1
  %equal = icmp eq i64 %qword, %word
  %same = and i1 %equal, %qon
  %j.next = add i64 %j, 1
  br i1 %same, label %next, label %before
new:
  %bank = and i64 %word, 31
  %c = getelementptr i64, ptr %counts, i64 %bank
  %held = load i64, ptr %c
  %held.next = add i64 %held, 1
  store i64 %held.next, ptr %c
  %larger = icmp ugt i64 %held.next, %worst
  %worst.new = select i1 %larger, i64 %held.next, i64 %worst
  br label %next
next:
  %worst.next = phi i64 [ %worst, %lane ], [ %worst, %other ], [ %worst.new, %new ]
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, 64
  br i1 %again, label %lane, label %done
done:
  %none = icmp eq i64 %worst.next, 0
  %beyond = sub i64 %worst.next, 1
  %found = select i1 %none, i64 0, i64 %beyond
  ret i64 %found
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{ATTRIBUTES}
"""


# ------------------------------------------------------------ scalars
def write_scalar_load(form: Form) -> str:
    """Words: offset, result, base, then a register with a further offset."""
    access, has_register, is_null = form.extra
    assert isinstance(access, Access)
    text = MemoryText(form.lanes)
    base = text.read_scalar(2, 64)
    at = text.emit(f"add i64 {base}, {text.emit(f'sext i32 {text.word(0)} to i64')}")
    if has_register:
        further = text.emit(f"zext i32 {text.read_scalar(3, 32)} to i64")
        at = text.emit(f"add i64 {at}, {further}")
    at = text.emit(f"and i64 {at}, {-(1 << min(2, access.bits // 8 // 2))}")
    nbytes = access.bits // 8
    start, end = text.word_of_record(state.FOUND_START), text.word_of_record(state.FOUND_END)
    limit = text.emit(f"sub i64 {text.emit(f'sub i64 {end}, {start}')}, {nbytes}")
    inside = text.emit(f"sub i64 {at}, {start}")
    test = text.emit(f"icmp ule i64 {inside}, {limit}")
    text.lines.append(f"  br i1 {test}, label %fine, label %look")
    text.label("look")
    room = text.emit("alloca i64, align 8")
    text.lines.append(f"  store i64 {at}, ptr {room}, align 8")
    text.call_find(room, "1", nbytes)
    pointer = text.emit(f"inttoptr i64 {at} to ptr")
    before = text.load_state(state.BYTES_READ, "i64")
    text.store_state(state.BYTES_READ, "i64", text.emit(f"add i64 {before}, {nbytes}"))
    kind = f"<{max(1, access.bits // 32)} x i32>"
    if access.bits < 32:
        value = text.emit(f"load i{access.bits}, ptr {pointer}, align 1")
        name = "sext" if access.is_signed else "zext"
        value = text.emit(f"{name} i{access.bits} {value} to i32")
        kind = "i32"
    else:
        value = text.emit(f"load {kind}, ptr {pointer}, align 1")
    if not is_null:
        text.lines.append(f"  store {kind} {value}, ptr {text.register(1)}, align 4")
    return text.finish("helper")


# ------------------------------------------------------------ atomics
_RMW = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "fadd": "fadd"}
_COMPARE = {"min": "slt", "max": "sgt", "umin": "ult", "umax": "ugt"}


def write_atomic(form: Form) -> str:
    """One lane after another. Words as of a load; then the second register, and the result's."""
    atomic, has_scalar, has_result = form.extra
    assert isinstance(atomic, Atomic)
    text = MemoryText(form.lanes)
    nbytes = atomic.bits // 8
    if atomic.memory == "ds":
        room = text.load_state(state.LDS_BYTES, "i64")
        offset = text.emit(f"zext i32 {text.word(0)} to i64")
        found = text.sum(text.widened(text.read_vector(2, 32)), text.wide_splat(offset))
        text.check_room(found, nbytes, room, state.BAD_LDS, "lds")
        found = text.sum(found, text.wide_splat(text.load_state(state.LDS, "i64")))
    else:
        found = _addresses(text, atomic.memory, True, bool(has_scalar))
        text.check_allocations(found, nbytes)
    places = text.emit(f"alloca {text.wide_type}, align 64")
    text.lines.append(f"  store {text.wide_type} {found}, ptr {places}, align 64")
    mask = text.load_state(4 * state.EXEC, text.mask_type)
    if form.lanes == 32:
        mask = text.emit(f"zext i32 {mask} to i64")
    data, second = text.register(1), text.register(4)
    out = text.register(5) if has_result else ""
    before = text.block
    text.lines.append("  br label %each")
    text.label("each")
    text.lines.append(f"  %lane = phi i64 [ 0, %{before} ], [ %following, %done ]")
    bit = text.emit(f"and i64 {text.emit(f'lshr i64 {mask}, %lane')}, 1")
    test = text.emit(f"icmp ne i64 {bit}, 0")
    text.lines.append(f"  br i1 {test}, label %work, label %done")
    text.label("work")
    place = text.emit(f"load i64, ptr {text.emit(f'getelementptr i64, ptr {places}, i64 %lane')}")
    pointer = text.emit(f"inttoptr i64 {place} to ptr")
    kind = f"i{atomic.bits}"
    old = text.emit(f"load {kind}, ptr {pointer}, align 1")
    given = _lane_value(text, data, atomic.bits)
    new = _combined(text, atomic, old, given, second)
    text.lines.append(f"  store {kind} {new}, ptr {pointer}, align 1")
    if out:
        _store_lane(text, out, old, atomic.bits)
    text.lines.append("  br label %done")
    text.label("done")
    text.lines.append("  %following = add i64 %lane, 1")
    more = text.emit(f"icmp ult i64 %following, {form.lanes}")
    text.lines.append(f"  br i1 {more}, label %each, label %after")
    text.label("after")
    text.count_bytes(state.BYTES_READ, nbytes)
    text.count_bytes(state.BYTES_WRITTEN, nbytes)
    return text.finish("helper")


def _lane_value(text: MemoryText, register: str, bits: int, further: int = 0) -> str:
    start = text.place(4 * text.lane_count * further, register)
    at = text.emit(f"getelementptr i32, ptr {start}, i64 %lane")
    low = text.emit(f"load i32, ptr {at}, align 4")
    if bits == 32:
        return low
    above = text.place(4 * text.lane_count, at)
    high = text.emit(f"zext i32 {text.emit(f'load i32, ptr {above}, align 4')} to i64")
    low = text.emit(f"zext i32 {low} to i64")
    return text.emit(f"or i64 {low}, {text.emit(f'shl i64 {high}, 32')}")


def _store_lane(text: MemoryText, register: str, value: str, bits: int) -> None:
    at = text.emit(f"getelementptr i32, ptr {register}, i64 %lane")
    if bits == 32:
        text.lines.append(f"  store i32 {value}, ptr {at}, align 4")
        return
    low = text.emit(f"trunc i64 {value} to i32")
    high = text.emit(f"trunc i64 {text.emit(f'lshr i64 {value}, 32')} to i32")
    text.lines.append(f"  store i32 {low}, ptr {at}, align 4")
    text.lines.append(f"  store i32 {high}, ptr {text.place(4 * text.lane_count, at)}, align 4")


def _combined(text: MemoryText, atomic: Atomic, old: str, given: str, second: str) -> str:
    kind = f"i{atomic.bits}"
    name = atomic.operation
    if name == "xchg":
        return given
    if name == "cmpswap":
        # of memory: the new value, then what is expected; of shared memory two operands
        if atomic.memory == "ds":
            expected, wanted = given, _lane_value(text, second, atomic.bits)
        else:
            wanted = given
            expected = _lane_value(text, text.register(1), atomic.bits, atomic.bits // 32)
        test = text.emit(f"icmp eq {kind} {old}, {expected}")
        return text.emit(f"select i1 {test}, {kind} {wanted}, {kind} {old}")
    if name in _COMPARE:
        test = text.emit(f"icmp {_COMPARE[name]} {kind} {given}, {old}")
        return text.emit(f"select i1 {test}, {kind} {given}, {kind} {old}")
    if name in ("fadd", "fmin", "fmax"):
        real = "float" if atomic.bits == 32 else "double"
        values = [text.emit(f"bitcast {kind} {v} to {real}") for v in (old, given)]
        if name == "fadd":
            total = text.emit(f"fadd {real} {values[0]}, {values[1]}")
        else:
            test = text.emit(
                f"fcmp {'olt' if name == 'fmin' else 'ogt'} {real} {values[1]}, {values[0]}"
            )
            total = text.emit(f"select i1 {test}, {real} {values[1]}, {real} {values[0]}")
        return text.emit(f"bitcast {real} {total} to {kind}")
    if name in _RMW:
        return text.emit(f"{_RMW[name]} {kind} {old}, {given}")
    raise CompileError(f"the emulator has no atomic {name}")


# ------------------------------------------------------------ which allocation
def find_function() -> str:
    """The module of `find`: whether the bytes of each lane of a mask are in one allocation each.

    Allocations are pairs of start and end, sorted. The last one that was found is put into the
    record; an address in none into the wave.
    """
    return f"""define i32 @find(ptr %wave, ptr %record, ptr %places, i64 %mask, i64 %size) #0 {{
entry:
  %tp = getelementptr i8, ptr %wave, i64 {state.ALLOCATIONS}
  %table = load ptr, ptr %tp
  %np = getelementptr i8, ptr %wave, i64 {state.ALLOCATION_COUNT}
  %count = load i64, ptr %np
  br label %lane
lane:
  %left = phi i64 [ %mask, %entry ], [ %rest, %next ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %good, label %one
one:
  %number = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %pp = getelementptr i64, ptr %places, i64 %number
  %place = load i64, ptr %pp
  br label %search
search:
  %low = phi i64 [ 0, %one ], [ %newlow, %step ]
  %high = phi i64 [ %count, %one ], [ %newhigh, %step ]
  %open = icmp ult i64 %low, %high
  br i1 %open, label %step, label %found
step:
  %total = add i64 %low, %high
  %middle = lshr i64 %total, 1
  %ep = getelementptr [2 x i64], ptr %table, i64 %middle
  %start = load i64, ptr %ep
  %beyond = icmp ugt i64 %start, %place
  %more = add i64 %middle, 1
  %newlow = select i1 %beyond, i64 %low, i64 %more
  %newhigh = select i1 %beyond, i64 %middle, i64 %high
  br label %search
found:
  %nothing = icmp eq i64 %low, 0
  br i1 %nothing, label %bad, label %test
test:
  %index = sub i64 %low, 1
  %sp = getelementptr [2 x i64], ptr %table, i64 %index
  %begin = load i64, ptr %sp
  %endp = getelementptr i64, ptr %sp, i64 1
  %end = load i64, ptr %endp
  %room = sub i64 %end, %begin
  %at = sub i64 %place, %begin
  %fits = icmp uge i64 %room, %size
  %last = sub i64 %room, %size
  %within = icmp ule i64 %at, %last
  %okay = and i1 %fits, %within
  br i1 %okay, label %next, label %bad
next:
  %rp = getelementptr i8, ptr %record, i64 {state.FOUND_START}
  store i64 %begin, ptr %rp
  %rq = getelementptr i8, ptr %record, i64 {state.FOUND_END}
  store i64 %end, ptr %rq
  br label %lane
bad:
  %fp = getelementptr i8, ptr %wave, i64 {state.FAULT_ADDRESS}
  store i64 %place, ptr %fp
  ret i32 0
good:
  ret i32 1
}}
declare i64 @llvm.cttz.i64(i64, i1)
{ATTRIBUTES}
"""
