"""Prefixes of groups in LLVM IR for NVIDIA GPUs.

In: SCAN and RANK of a linear program. Out: their text: what the threads of a warp exchange by
shuffles and votes, and through shared memory what warps tell each other. Between
`nvptx_fragments.py` and `nvptx.py`.
Invariant: all threads of the group come here. The shared memory is the op's own; a barrier stands
before its first use, since the op may run again.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.dtype import DType, dtypes
from weft.renderer.groups import group_sizes
from weft.renderer.llvm_groups import Names
from weft.renderer.nvptx_fragments import FragmentFunction
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

WARP = 32
_COUNT_BITS = 16
# instructions of floats, and of ints
_FOLDS = {Ops.ADD: ("fadd", "add"), Ops.MUL: ("fmul", "mul")}
_MAXIMA = {"float": "maximum", "int": "smax", "uint": "umax"}


class PrefixFunction(FragmentFunction):
    """A function whose groups scan and count what their threads hold."""

    def compute_lanes(self, uop: UOp) -> Names:
        if uop.op is Ops.SCAN:
            return self.scan(uop)
        if uop.op is Ops.RANK:
            return self.rank(uop)
        if uop.op is Ops.MOVE:
            return self.move(uop)
        return super().compute_lanes(uop)

    def value_move(self, uop: UOp) -> str:
        return self.move(uop)[0]

    def value_scan(self, uop: UOp) -> str:
        return self.scan(uop)[0]

    def value_rank(self, uop: UOp) -> str:
        return self.rank(uop)[0]

    # ------------------------------------------------------------ threads
    def group_place(self) -> tuple[str, str, str, int]:
        """The number of the thread, its lane, its warp; how many warps there are."""
        number, step = "0", 1
        for axis, size in enumerate(group_sizes(self.uops)):
            if size > 1:
                index = self.hardware_index("lidx", axis, size)
                scaled = self.emit(f"mul i32 {index}, {step}")
                number = self.emit(f"add i32 {number}, {scaled}")
                step *= size
        lane = self.emit(f"and i32 {number}, {WARP - 1}")
        return number, lane, self.emit(f"lshr i32 {number}, 5"), step // WARP

    def only_if(self, condition: str, write: Callable[[], None]) -> None:
        """What threads do under a condition."""
        self.count += 1
        name = f"if{self.count}"
        self.lines.append(f"  br i1 {condition}, label %{name}, label %{name}.end")
        self.label(name)
        write()
        self.lines.append(f"  br label %{name}.end")
        self.label(f"{name}.end")

    def meet(self) -> None:
        """All threads of the group wait for each other."""
        self.declare("void @llvm.nvvm.barrier0()")
        self.lines.append("  call void @llvm.nvvm.barrier0()")

    def meet_warp(self) -> None:
        self.declare("void @llvm.nvvm.bar.warp.sync(i32)")
        self.lines.append("  call void @llvm.nvvm.bar.warp.sync(i32 -1)")

    def shared_place(self, memory: UOp, index: str) -> str:
        kind, base = self.memory_type(memory.dtype), self.operand(memory)
        return self.emit(f"getelementptr {kind}, {self.shared_pointer} {base}, i32 {index}")

    def read(self, memory: UOp, index: str) -> str:
        kind, size = self.memory_type(memory.dtype), memory.dtype.itemsize
        place = self.shared_place(memory, index)
        return self.emit(f"load {kind}, {self.shared_pointer} {place}, align {size}")

    def write_to(self, memory: UOp, index: str, value: str) -> None:
        kind, size = self.memory_type(memory.dtype), memory.dtype.itemsize
        place = self.shared_place(memory, index)
        self.lines.append(f"  store {kind} {value}, {self.shared_pointer} {place}, align {size}")

    # ------------------------------------------------------------ prefixes
    def scan(self, uop: UOp) -> Names:
        """Each thread's own, then those of a warp, then those of warps."""
        dtype, op, memory = uop.dtype.scalar(), uop.arg, uop.src[1]
        names = self.all_lanes(uop.src[0])
        own = [names[0]]
        for name in names[1:]:
            own.append(self.folded(op, dtype, own[-1], name))
        _, lane, warp, warps = self.group_place()
        kind, total = self.type(dtype), own[-1]
        for distance in (1, 2, 4, 8, 16):
            more = self.folded(op, dtype, self.from_below(total, distance, dtype), total)
            has = self.emit(f"icmp uge i32 {lane}, {distance}")
            total = self.emit(f"select i1 {has}, {kind} {more}, {kind} {total}")
        nothing = self.literal(_identity(op, dtype), dtype)
        is_first = self.emit(f"icmp eq i32 {lane}, 0")
        below = self.from_below(total, 1, dtype)
        before = self.emit(f"select i1 {is_first}, {kind} {nothing}, {kind} {below}")
        if warps > 1:
            self.meet()
            is_last = self.emit(f"icmp eq i32 {lane}, {WARP - 1}")
            self.only_if(is_last, lambda: self.write_to(memory, warp, total))
            self.meet()
            start = nothing
            for number in range(warps - 1):
                more = self.folded(op, dtype, start, self.read(memory, str(number)))
                counts = self.emit(f"icmp ugt i32 {warp}, {number}")
                start = self.emit(f"select i1 {counts}, {kind} {more}, {kind} {start}")
            before = self.folded(op, dtype, start, before)
        return tuple([self.folded(op, dtype, before, name) for name in own])

    def folded(self, op: Ops, dtype: DType, left: str, right: str) -> str:
        kind = self.type(dtype)
        if op is not Ops.MAX:
            name = _FOLDS[op][0 if dtype.kind == "float" else 1]
            return self.emit(f"{name} {kind} {left}, {right}")
        name = f"@llvm.{_MAXIMA[dtype.kind]}.{self.mangle(dtype)}"
        self.declare(f"{kind} {name}({kind}, {kind})")
        return self.emit(f"call {kind} {name}({kind} {left}, {kind} {right})")

    def from_below(self, name: str, distance: int, dtype: DType) -> str:
        """What the thread so far below in the warp has."""
        bits, kind = dtype.itemsize * 8, self.type(dtype)
        whole = f"i{bits}"
        if kind != whole:
            name = self.emit(f"bitcast {kind} {name} to {whole}")
        if bits == 64:
            low = self.emit(f"trunc i64 {name} to i32")
            high = self.emit(f"trunc i64 {self.emit(f'lshr i64 {name}, 32')} to i32")
            parts = [self.shuffled(part, distance) for part in (low, high)]
            low, high = [self.emit(f"zext i32 {part} to i64") for part in parts]
            name = self.emit(f"or i64 {low}, {self.emit(f'shl i64 {high}, 32')}")
        else:
            name = self.shuffled(name, distance)
        return name if kind == whole else self.emit(f"bitcast {whole} {name} to {kind}")

    def shuffled(self, word: str, distance: int) -> str:
        name = "@llvm.nvvm.shfl.sync.up.i32"
        self.declare(f"i32 {name}(i32, i32, i32, i32)")
        return self.emit(f"call i32 {name}(i32 -1, i32 {word}, i32 {distance}, i32 0)")

    # ------------------------------------------------------------ counts
    def rank(self, uop: UOp) -> Names:
        """Warps count their digits, round by round, then the counts of all warps are added up."""
        memory, digits = uop.src[1], 1 << uop.arg
        names = self.all_lanes(uop.src[0])
        thread, lane, warp, warps = self.group_place()
        self.meet()
        self.by_threads(warps * digits, thread, warps, lambda at: self.write_to(memory, at, "0"))
        self.meet()
        own = self.emit(f"shl i32 {warp}, {uop.arg}")
        below = self.emit(f"sub i32 {self.emit(f'shl i32 1, {lane}')}, 1")
        ranks = [self.count_digit(memory, own, below, name, uop.arg) for name in names]
        self.meet()
        self.by_threads(digits, thread, warps, lambda at: self.add_up(memory, at, digits, warps))
        self.meet()
        found = []
        for name, rank in zip(names, ranks, strict=True):
            start = self.read(memory, self.emit(f"add i32 {own}, {name}"))
            equal = self.read(memory, self.emit(f"add i32 {name}, {warps * digits}"))
            upper = self.emit(f"shl i32 {equal}, {_COUNT_BITS}")
            found.append(self.emit(f"or i32 {self.emit(f'add i32 {rank}, {start}')}, {upper}"))
        return tuple(found)

    # ------------------------------------------------------------ places
    def move(self, uop: UOp) -> Names:
        """Values are added up in shared memory, at their places."""
        memory, dtype = uop.src[2], uop.dtype.scalar()
        values, places = [self.all_lanes(source) for source in uop.src[:2]]
        _, lane, warp, _ = self.group_place()
        first = self.emit(f"mul i32 {warp}, {WARP * len(values)}")
        first = self.emit(f"add i32 {first}, {lane}")
        own = [self.emit(f"add i32 {first}, {number * WARP}") for number in range(len(values))]
        self.meet()
        for at in own:
            self.write_to(memory, at, "0")
        self.meet()
        kind = self.memory_type(dtype)
        for value, place in zip(values, places, strict=True):
            at = f"{self.shared_pointer} {self.shared_place(memory, place)}"
            self.emit(f"atomicrmw add {at}, {kind} {value} {self.atomic_order}")
        self.meet()
        return tuple([self.read(memory, at) for at in own])

    def by_threads(self, count: int, thread: str, warps: int, write: Callable[[str], None]) -> None:
        """Something for each number below `count`, spread over the threads."""
        threads = warps * WARP
        for first in range(0, count, threads):
            at = self.emit(f"add i32 {thread}, {first}")
            if count - first >= threads:
                write(at)
            else:
                inside = self.emit(f"icmp ult i32 {at}, {count}")
                self.only_if(inside, lambda at=at: write(at))  # type: ignore[misc]

    def count_digit(self, memory: UOp, own: str, below: str, digit: str, bits: int) -> str:
        """How many of the warp had the digit so far; all that have it now are counted."""
        peers = "-1"
        self.declare("i32 @llvm.nvvm.vote.ballot.sync(i32, i1)")
        for bit in range(bits):
            masked = self.emit(f"and i32 {digit}, {1 << bit}")
            has = self.emit(f"icmp ne i32 {masked}, 0")
            votes = self.emit(f"call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 {has})")
            others = self.emit(f"xor i32 {votes}, -1")
            same = self.emit(f"select i1 {has}, i32 {votes}, i32 {others}")
            peers = self.emit(f"and i32 {peers}, {same}")
        before = self.bits_set(self.emit(f"and i32 {peers}, {below}"))
        at = self.emit(f"add i32 {own}, {digit}")
        counted = self.read(memory, at)
        self.meet_warp()
        is_first = self.emit(f"icmp eq i32 {before}, 0")
        total = self.emit(f"add i32 {counted}, {self.bits_set(peers)}")
        self.only_if(is_first, lambda: self.write_to(memory, at, total))
        self.meet_warp()
        return self.emit(f"add i32 {counted}, {before}")

    def bits_set(self, word: str) -> str:
        self.declare("i32 @llvm.ctpop.i32(i32)")
        return self.emit(f"call i32 @llvm.ctpop.i32(i32 {word})")

    def add_up(self, memory: UOp, digit: str, digits: int, warps: int) -> None:
        """The counts of a digit become those of earlier warps, and their sum comes behind."""
        total = "0"
        for warp in range(warps):
            at = self.emit(f"add i32 {digit}, {warp * digits}")
            count = self.read(memory, at)
            self.write_to(memory, at, total)
            total = self.emit(f"add i32 {total}, {count}")
        self.write_to(memory, self.emit(f"add i32 {digit}, {warps * digits}"), total)


def _identity(op: Ops, dtype: DType) -> float | int:
    neutral = OPSET[op].identity
    if neutral is None:
        return dtype.min
    return float(neutral) if dtypes.is_float(dtype) else int(neutral)
