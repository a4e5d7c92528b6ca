"""LLVM IR for machines with groups of threads: what NVIDIA's and AMD's targets share.

In: a linear program with SPECIAL indices, shared LOCAL memory and BARRIERs. Out: the text of one
function, but for what a target says: its indices, barriers, shared memory and conversions. Between
`llvm_base.py` and the targets. A thread computes scalars, so every lane of a vector has a name of
its own; only accesses of neighbours in memory are vectors.
Invariant: an access is as wide as its alignment is proven, and an invalid one does not happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.renderer.base import program_params, program_variables
from weft.renderer.groups import WORD_SHIFT, word_layout
from weft.renderer.llvm_base import LLVMFunction, Register, symbol
from weft.renderer.llvm_survey import factor_of
from weft.uop.args import Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops

# bytes of the widest access of one thread
WIDEST_ACCESS = 16
# rounds of a loop that is unrolled, and lines of it then
_MOST_ROUNDS, _MOST_LINES = 32, 1024
# rounds of a longer loop that are unrolled, and lines of them together
_MOST_COPIES, _LINES_OF_COPIES = 16, 256
# metadata before that number is what kernels have in common
_FIRST_LOOP = 10
# ops of ints that LLVM is told about when they cannot overflow
_COUNTED = {Ops.ADD: "add", Ops.MUL: "mul"}

Names = tuple[str, ...]


class GroupFunction(LLVMFunction):
    """One function that one thread of many runs, while it is written."""

    statements = (*LLVMFunction.statements, Ops.SPECIAL, Ops.BARRIER)
    index_dtypes = (dtypes.int32, dtypes.int64)
    # types of the addresses of buffers, of memory that a group shares, and of a thread's own
    global_pointer = "ptr addrspace(1)"
    shared_pointer = "ptr addrspace(3)"
    private_pointer = "ptr"
    # each wide access asks for alignment, where there must be no second function; see `functions`
    asks_alignment = False
    # who sees a value that is joined with another in one step, and in what order: all threads of
    # the device, in none
    atomic_order = 'syncscope("device") monotonic'

    def __init__(self, name: str, uops: Sequence[UOp], native: frozenset[DType]) -> None:
        super().__init__(name, uops, native)
        # here it pays to take addresses apart: there are few in a loop
        self.opaque = set()
        self.alignment = 1  # buffers begin at a multiple of so many bytes
        self.relied: dict[UOp, None] = {}  # buffers with an access that needs more than 1
        self.vectors: dict[UOp, Names] = {}
        self.lane = 0  # the lane that is being written
        self.guard = ""  # the block of the access that is being written
        self.read_only = _read_only(uops)
        self.arguments: list[tuple[str, str]] = []  # type and name
        self.loops: list[str] = []  # what LLVM is told of loops
        self.added = 0  # lines that unrolling will add, so far and when a loop began
        self.added_before: dict[UOp, int] = {}

    # ------------------------------------------------------------ what a target says
    def hardware_index(self, kind: str, axis: int, most: int) -> str:
        """Writes a 32-bit index ("gidx" of a group, "lidx" of a thread in it), below `most`."""
        raise CompileError(f"{type(self).__name__} does not say what {kind}{axis} is")

    def write_barrier(self, uop: UOp) -> None:
        """Waits for the other threads of a group."""
        raise CompileError(f"{type(self).__name__} has no barriers")

    def place_shared(self, uop: UOp) -> str:
        """Makes memory that a group shares and returns its name."""
        raise CompileError(f"{type(self).__name__} has no memory that a group shares")

    def cast_lanes(self, uop: UOp) -> Names | None:
        """The cast of a vector in a form of the target's own."""
        return None

    # ------------------------------------------------------------ the frame
    def functions(self, convention: str, attributes: str) -> list[str]:
        """The kernel, and a second function where some access relies on alignment.

        That one does the same for buffers that begin anywhere, element by element. It is a function
        of its own so that LLVM has no two bodies to make common code of.
        """
        parameters = self.name_arguments()
        entry = self.entry
        fast = self.body(WIDEST_ACCESS)
        lines: list[str] = []
        if self.relied and self.asks_alignment:
            entry = [*entry, *self.find_alignment()]
        elif self.relied:
            given = [f"{kind} %{name}" for kind, name in self.arguments]
            entry = [*entry, *self.test_alignment(given)]
            # not optimised: it is there to be right, and hardly ever runs
            attributes_too = f"{attributes} noinline optnone"
            head = f"define internal void @anywhere({', '.join(given)}) {attributes_too} {{"
            lines = [head, "entry:", *self.body(1), "}"]
        head = f"define {convention} void {symbol(self.name)}({', '.join(parameters)}) {attributes}"
        return [f"{head} {{", "entry:", *entry, "  br label %begin", *fast, "}", *lines]

    def body(self, alignment: int) -> list[str]:
        """The program once, for buffers that begin at multiples of so many bytes."""
        self.alignment = alignment
        arguments = {u: n for u, n in self.names.items() if u.op in (Ops.PARAM, Ops.VARIABLE)}
        self.names, self.vectors, self.registers = arguments, {}, {}
        self.entry, self.lines, self.bases = [], [], {}
        self.block = "begin"
        self.write()
        casts = [
            f"  %buf{param.arg.slot} = inttoptr i64 %address{param.arg.slot} to "
            f"{self.global_pointer}"
            for param in program_params(self.uops)
        ]
        before = ["  br label %begin"] if alignment == 1 else []
        return [*before, "begin:", *self.entry, *casts, *self.lines, "  ret void"]

    def test_alignment(self, given: list[str]) -> list[str]:
        """Leaves to the other function what does not begin where wide accesses may."""
        return [
            *self.find_alignment(),
            "  br i1 %is.aligned, label %aligned, label %unaligned",
            "unaligned:",
            f"  call void @anywhere({', '.join(given)})",
            "  ret void",
            "aligned:",
        ]

    def find_alignment(self) -> list[str]:
        """Asks whether all buffers begin where wide accesses may."""
        lines, bits = [], "0"
        for param in self.relied:
            slot = param.arg.slot
            lines.append(f"  %bits{slot} = or i64 {bits}, %address{slot}")
            bits = f"%bits{slot}"
        return [
            *lines,
            f"  %low = and i64 {bits}, {WIDEST_ACCESS - 1}",
            "  %is.aligned = icmp eq i64 %low, 0",
        ]

    def name_arguments(self) -> list[str]:
        """Names PARAMs and VARIABLEs, as `word_layout` says; returns the function's parameters."""
        variables = iter(enumerate(program_variables(self.uops)))
        params = {param.arg.slot: param for param in program_params(self.uops)}
        parameters: list[str] = ["i64 %words"]
        found: list[tuple[str, str]] = []  # type and name
        axes: list[int] = []
        for kind, number in word_layout(self.uops)[1:]:
            if kind == "buffer":
                self.names[params[number]] = f"%buf{number}"
                found.append(("i64", f"address{number}"))
            elif kind == "value":
                position, variable = next(variables)
                self.names[variable] = f"%var{position}"
                found.append((self.type(variable.dtype), f"var{position}"))
            else:
                axes.append(number)
                found.append(("i32", f"groups{number}"))
        parameters += [f"{kind} %{name}.given" for kind, name in found]
        self.arguments = found
        self.entry += _from_words(found, self.global_pointer)
        for axis in axes:
            self.leave_beyond(axis)
        return parameters

    def leave_beyond(self, axis: int) -> None:
        """A group beyond the run-time number of groups does nothing."""
        body, self.lines = self.lines, []
        index = self.hardware_index("gidx", axis, 0)
        test = self.emit(f"icmp uge i32 {index}, %groups{axis}")
        self.lines += [
            f"  br i1 {test}, label %beyond{axis}, label %within{axis}",
            f"beyond{axis}:",
            "  ret void",
            f"within{axis}:",
        ]
        self.entry += self.lines
        self.lines = body

    # ------------------------------------------------------------ lanes
    def lanes(self, dtype: DType) -> int:
        return 1

    def operand(self, uop: UOp) -> str:
        return super().operand(uop) if uop.dtype.count == 1 else self.vector(uop)[self.lane]

    def vector(self, uop: UOp) -> Names:
        """The lanes of a vector. Constants need not stand in the program."""
        found = self.vectors.get(uop)
        if found is None:
            found = self.vectors[uop] = self.compute_lanes(uop)
        return found

    def all_lanes(self, uop: UOp) -> Names:
        return (self.operand(uop),) if uop.dtype.count == 1 else self.vector(uop)

    def define(self, uop: UOp) -> None:
        if uop.op is Ops.INDEX:
            # written by the access, which knows how wide it is
            return
        if uop.dtype.count == 1:
            self.names[uop] = self.value(uop)
        else:
            self.vectors[uop] = self.compute_lanes(uop)

    def compute_lanes(self, uop: UOp) -> Names:
        """Writes all lanes of a vector."""
        if uop.op is Ops.VECTORIZE:
            return tuple([self.operand(source) for source in uop.src])
        if uop.op is Ops.GEP:
            return tuple([self.taken(uop, lane) for lane in uop.arg])
        if uop.op is Ops.LOAD:
            return self.load(uop)
        own = self.cast_lanes(uop) if uop.op is Ops.CAST else None
        return self.by_lanes(uop.dtype.count, lambda: self.value(uop)) if own is None else own

    def by_lanes(self, count: int, write: Callable[[], str]) -> Names:
        """What `write` writes for each lane."""
        before, names = self.lane, []
        for self.lane in range(count):
            names.append(write())
        self.lane = before
        return tuple(names)

    def taken(self, uop: UOp, lane: int) -> str:
        """One lane of the vectors that a GEP takes from."""
        place, lane = divmod(lane, uop.src[0].dtype.count)
        return self.vector(uop.src[place])[lane]

    def value_const(self, uop: UOp) -> str:
        return self.literal(uop.arg, uop.dtype.scalar())

    def value_gep(self, uop: UOp) -> str:
        return self.taken(uop, uop.arg[0])

    def binary(self, uop: UOp) -> str:
        """Tells LLVM which sums and products cannot overflow: addresses are made of them."""
        value = super().binary(uop)
        name, dtype = _COUNTED.get(uop.op), uop.dtype.scalar()
        if name is not None and dtype.kind == "int" and _is_inside(uop, dtype):
            self.lines[-1] = self.lines[-1].replace(f" = {name} ", f" = {name} nsw ", 1)
        return value

    # ------------------------------------------------------------ memory
    def pointer(self, memory: UOp) -> str:
        if memory.op is Ops.PARAM:
            return self.global_pointer
        return self.shared_pointer if memory.arg.memory == "shared" else self.private_pointer

    def value_load(self, uop: UOp) -> str:
        return self.load(uop)[0]

    def load(self, uop: UOp) -> Names:
        place, dtype = uop.src[0], uop.dtype
        if place.op is Ops.ACC:
            return tuple([self.registers[part] for part in self.parts(place)])
        if dtype.count > 1 and not _is_straight(place):
            scalar = dtype.scalar()
            return self.by_lanes(dtype.count, lambda: self.guarded_load(place, scalar)[0])
        return self.guarded_load(place, dtype)

    def guarded_load(self, place: UOp, dtype: DType) -> Names:
        """Neighbours in memory, or 0 where the place is not valid."""
        if len(place.src) < 3:
            return self.load_neighbours(place, dtype)
        start = self.open_guard(place)
        names = self.load_neighbours(place, dtype)
        last = self.block
        self.close_guard()
        kind, zero = self.type(dtype), self.literal(0, dtype.scalar())
        joined = [f"phi {kind} [ {name}, %{last} ], [ {zero}, %{start} ]" for name in names]
        return tuple([self.emit(text) for text in joined])

    def load_neighbours(self, place: UOp, dtype: DType) -> Names:
        names: list[str] = []
        memory, kind = place.src[0], self.memory_type(dtype)
        facts = ", !invariant.load !0" if memory in self.read_only else ""
        for first, count, align in self.chunks(place, dtype):
            address = f"{self.pointer(memory)} {self.address(place, first)}"
            wide = kind if count == 1 else f"<{count} x {kind}>"
            value = self.emit(f"load {wide}, {address}, align {align}{facts}")
            if count == 1:
                names.append(value)
            else:
                lanes = [f"extractelement {wide} {value}, i32 {k}" for k in range(count)]
                names += [self.emit(text) for text in lanes]
        if dtype.kind == "bool":
            return tuple([self.emit(f"icmp ne i8 {name}, 0") for name in names])
        return tuple(names)

    def write_store(self, uop: UOp) -> None:
        place, source = uop.src[:2]
        dtype, names = source.dtype, self.all_lanes(source)
        if isinstance(uop.arg, Unordered):
            for self.lane, name in enumerate(names):
                self.combine(place, dtype.scalar(), name, uop.arg.combine)
            self.lane = 0
            return
        if dtype.kind == "bool":
            names = tuple([self.emit(f"zext i1 {name} to i8") for name in names])
        if dtype.count == 1 or _is_straight(place):
            self.guarded_store(place, dtype, names)
            return
        for self.lane, name in enumerate(names):
            self.guarded_store(place, dtype.scalar(), (name,))
        self.lane = 0

    def combine(self, place: UOp, dtype: DType, name: str, op: Ops) -> None:
        """Joins a value with the element of one lane, if that is valid, whoever else does so."""
        # lanes may be neighbours behind one index
        further = self.lane if _is_straight(place) else 0
        if len(place.src) > 2:
            self.open_guard(place)
        memory, kind = place.src[0], self.memory_type(dtype)
        action = {Ops.ADD: "add", Ops.MAX: "umax" if dtype.kind == "uint" else "max"}[op]
        address = f"{self.pointer(memory)} {self.address(place, further)}"
        self.emit(
            f"atomicrmw {action} {address}, {kind} {name} {self.atomic_order}, "
            f"align {dtype.itemsize}"
        )
        if len(place.src) > 2:
            self.close_guard()

    def guarded_store(self, place: UOp, dtype: DType, names: Names) -> None:
        """Neighbours in memory, if the place is valid."""
        if len(place.src) > 2:
            self.open_guard(place)
        self.store_neighbours(place, dtype, names)
        if len(place.src) > 2:
            self.close_guard()

    def store_neighbours(self, place: UOp, dtype: DType, names: Names) -> None:
        memory, kind = place.src[0], self.memory_type(dtype)
        for first, count, align in self.chunks(place, dtype):
            wide, value = kind, names[first]
            if count > 1:
                wide, value = f"<{count} x {kind}>", "poison"
                for k in range(count):
                    item = f"{kind} {names[first + k]}"
                    value = self.emit(f"insertelement {wide} {value}, {item}, i32 {k}")
            address = f"{self.pointer(memory)} {self.address(place, first)}"
            self.lines.append(f"  store {wide} {value}, {address}, align {align}")

    def address(self, place: UOp, further: int) -> str:
        """The address of a place, or of an element behind it; of one lane where lanes differ."""
        address = self.value_index(place)
        if not _is_straight(place) and place.src[1].dtype.count == 1:
            # neighbours, each valid or not by itself
            further += self.lane
        if not further:
            return address
        memory = place.src[0]
        element, pointer = self.memory_type(memory.dtype), self.pointer(memory)
        return self.emit(f"getelementptr {element}, {pointer} {address}, i32 {further}")

    def chunks(self, place: UOp, dtype: DType) -> list[tuple[int, int, int]]:
        """(first lane, lanes, alignment in bytes) of the accesses that one access is."""
        size = dtype.scalar().itemsize
        if dtype.count == 1:
            return [(0, 1, size)]
        memory, idx = place.src[:2]
        known = factor_of(idx, WIDEST_ACCESS) * size
        # memory of the function's own begins where the widest access may
        limit = self.alignment if memory.op is Ops.PARAM else WIDEST_ACCESS
        most = max(1, min(known, limit) // size)
        if most > 1 and memory.op is Ops.PARAM:
            self.relied[memory] = None
        found: list[tuple[int, int, int]] = []
        first = 0
        while first < dtype.count:
            left = dtype.count - first
            count = min(most, 1 << (left.bit_length() - 1))
            found.append((first, count, count * size))
            first += count
        return found

    def open_guard(self, place: UOp) -> str:
        """Begins a block that only valid accesses reach; returns the block before."""
        self.count += 1
        self.guard = f"at{self.count}"
        start = self.block
        condition = self.operand(place.src[2])
        self.lines.append(f"  br i1 {condition}, label %{self.guard}, label %{self.guard}.end")
        self.label(self.guard)
        return start

    def close_guard(self) -> None:
        self.lines.append(f"  br label %{self.guard}.end")
        self.label(f"{self.guard}.end")

    def write_local(self, uop: UOp) -> None:
        if uop.arg.memory == "shared":
            self.names[uop] = self.place_shared(uop)
            return
        self.names[uop] = name = f"%local{uop.arg.number}"
        kind = f"[{uop.arg.size} x {self.memory_type(uop.dtype)}]"
        self.entry.append(f"  {name} = alloca {kind}, align {WIDEST_ACCESS}")

    # ------------------------------------------------------------ indices and registers
    def write_special(self, uop: UOp) -> None:
        name = self.hardware_index(uop.arg[:4], int(uop.arg[4:]), int(uop.vmax) + 1)
        kind = self.type(uop.dtype)
        self.names[uop] = name if kind == "i32" else self.emit(f"zext i32 {name} to {kind}")

    def write_acc(self, uop: UOp) -> None:
        for lane, name in enumerate(self.all_lanes(uop.src[0])):
            self.registers[uop, lane] = name

    def write_acc_set(self, uop: UOp) -> None:
        for lane, name in enumerate(self.all_lanes(uop.src[1])):
            self.registers[uop.src[0], lane] = name

    def write_range(self, uop: UOp) -> None:
        super().write_range(uop)
        self.added_before[uop] = self.added

    def loop_facts(self, loop: UOp, body: Sequence[str]) -> str:
        """A short loop is unrolled, and so are some rounds of a long one: their loads begin at
        once, and what several short loops load is loaded once."""
        size = loop.src[0]
        rounds = size.arg if size.op is Ops.CONST else _MOST_ROUNDS + 1
        lines = len(body) + self.added - self.added_before[loop]
        if rounds <= _MOST_ROUNDS and rounds * lines <= _MOST_LINES:
            how, copies = '!"llvm.loop.unroll.full"', rounds
        else:
            is_inner = not any([line.startswith("loop") or "barrier" in line for line in body])
            copies = max(1, min(_MOST_COPIES, _LINES_OF_COPIES // lines)) if is_inner else 1
            how = f'!"llvm.loop.unroll.count", i32 {copies}'
        if copies == 1:
            return ""
        self.added += (copies - 1) * lines
        number = _FIRST_LOOP + 2 * len(self.loops)
        self.loops.append(f"!{number} = distinct !{{!{number}, !{number + 1}}}")
        self.loops[-1] += f"\n!{number + 1} = !{{{how}}}"
        return f", !llvm.loop !{number}"

    def parts(self, register: UOp) -> list[Register]:
        if (register, 0) not in self.registers:
            return []
        return [(register, lane) for lane in range(register.dtype.count)]


def _from_words(found: Sequence[tuple[str, str]], pointer: str) -> list[str]:
    """Arguments (type, name) from the parameters, or from the table of words that they number; see
    `groups.word_layout`."""
    table: list[str] = []
    joined: list[str] = []
    for kind, name in found:
        given = f"%{name}.given"
        is_address = name.startswith("address")
        number = f"lshr i64 {given}, {WORD_SHIFT}" if is_address else _resized(given, kind, "i64")
        table += [
            f"  %{name}.number = {number}",
            f"  %{name}.place = getelementptr i64, {pointer} %table, i64 %{name}.number",
            f"  %{name}.word = load i64, {pointer} %{name}.place, align 8, !invariant.load !0",
        ]
        value = _resized(f"%{name}.word", "i64", kind)
        if is_address:
            table.append(f"  %{name}.part = and i64 {given}, {(1 << WORD_SHIFT) - 1}")
            value = f"add i64 %{name}.word, %{name}.part"
        table.append(f"  %{name}.found = {value}")
        joined.append(
            f"  %{name} = phi {kind} [ {given}, %entry ], [ %{name}.found, %words.table ]"
        )
    return [
        "  %is.direct = icmp eq i64 %words, 0",
        "  br i1 %is.direct, label %start, label %words.table",
        "words.table:",
        f"  %table = inttoptr i64 %words to {pointer}",
        *table,
        "  br label %start",
        "start:",
        *joined,
    ]


def _resized(name: str, before: str, after: str) -> str:
    """An instruction that gives an int another width, or the same."""
    if before == after:
        return f"add {before} {name}, 0"
    return f"{'zext' if after == 'i64' else 'trunc'} {before} {name} to {after}"


def _is_straight(place: UOp) -> bool:
    """Whether an access of several elements is of neighbours, all valid or none."""
    return place.src[1].dtype.count == 1 and (len(place.src) < 3 or place.src[2].dtype.count == 1)


def _is_inside(uop: UOp, dtype: DType) -> bool:
    """Whether bounds prove that an int stays in its range."""
    return bool(uop.vmin > dtype.min and uop.vmax < dtype.max)


def _read_only(uops: Sequence[UOp]) -> set[UOp]:
    """Buffers that no thread writes while the program runs.

    Threads of a program in groups run in any order, so that no buffer that it only reads shares
    memory with one that it writes. What one thread does in order may be otherwise.
    """
    if not any([uop.op is Ops.SPECIAL for uop in uops]):
        return set()
    written = {uop.src[0].src[0] for uop in uops if uop.op is Ops.STORE}
    return {uop for uop in uops if uop.op is Ops.PARAM and uop not in written}
