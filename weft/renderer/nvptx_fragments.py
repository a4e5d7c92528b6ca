"""Fragments and copies in LLVM IR for NVIDIA GPUs, as instructions of PTX.

In: WMMA, SETTLE, SHUFFLE, LOADs of matrices and tiles, FETCH, COMMIT and WAIT of a linear program.
Out: their text. Between `llvm_groups.py` and `nvptx.py`.
Invariant: what a warp does together is marked convergent, and what reads or writes memory is
ordered with the barriers: LLVM moves neither across them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft.dtype import DType
from weft.fragment import SWIZZLED_BYTES, SWIZZLED_ROWS, Fragment
from weft.renderer.llvm_groups import WIDEST_ACCESS, GroupFunction, Names
from weft.renderer.llvm_survey import factor_of
from weft.uop.args import MatrixArg, TileArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_WORD_BITS = 32
# of addresses in descriptors of tiles: their unit in bytes, and the bits that they have
_UNIT, _ADDRESS_BITS = 16, 0x3FFFF
# loads that are on their way while outputs are computed, and among which ops they move
_LOADS_AHEAD = 16
_MOVED = GroupOp.Elementwise | {Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.CONST, Ops.GEP, Ops.VECTORIZE}


def without_constant(place: UOp) -> tuple[UOp, int]:
    """A place, and the bytes behind it that an instruction adds by itself."""
    index = place.src[1]
    if index.op is not Ops.ADD or index.src[1].op is not Ops.CONST or index.src[1].arg < 0:
        return place, 0
    before = place.with_src((place.src[0], index.src[0], *place.src[2:]))
    return before, index.src[1].arg * place.dtype.itemsize


class FragmentFunction(GroupFunction):
    """A function whose warps multiply fragments."""

    statements = (*GroupFunction.statements, Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE)

    def __init__(self, name: str, uops: Sequence[UOp], native: frozenset[DType]) -> None:
        super().__init__(name, uops, native)
        self.has_tiles = any([u.op is Ops.WMMA and u.arg.in_shared for u in uops])
        # the assembler lets products go on only in functions that call none
        self.asks_alignment = self.has_tiles
        self.asked: list[UOp] = []  # copies that are still to be written

    def write(self) -> None:
        """What comes behind the products is written twice, for buffers that begin where wide
        accesses may and for others: so that each of the two is one straight piece."""
        end = _last_settle(self.uops) if self.asks_alignment else None
        if end is None:
            super().write()
            return
        before, self.relied = self.relied, {}
        self.write_some(self.uops[: end + 1])
        rest = _loads_ahead(self.uops[end + 1 :])
        kept = (self.names.copy(), self.vectors.copy(), self.registers.copy())
        fork = len(self.lines)
        self.lines.append("  br label %wide")
        self.label("wide")
        fetched, self.relied = self.relied, {}
        self.write_some(rest)
        if self.relied:
            self.lines[fork] = "  br i1 %is.aligned, label %wide, label %narrow"
            self.lines.append("  ret void")
            self.names, self.vectors, self.registers = kept
            self.alignment = 1
            self.label("narrow")
            self.write_some(rest)
            self.alignment = WIDEST_ACCESS
        self.relied = {**before, **fetched, **self.relied}

    def compute_lanes(self, uop: UOp) -> Names:
        if uop.op is Ops.WMMA and uop.arg.in_shared:
            return self.multiply_tiles(uop)
        if uop.op is Ops.WMMA:
            return self.multiply(uop)
        if uop.op is Ops.LOAD and isinstance(uop.arg, MatrixArg):
            return self.load_matrices(uop)
        return super().compute_lanes(uop)

    # ------------------------------------------------------------ products
    def multiply(self, uop: UOp) -> Names:
        """One instruction for each part of B's and C's registers."""
        fragment: Fragment = uop.arg
        a, b = [self.words(source, fragment) for source in uop.src[:2]]
        c = self.vector(uop.src[2])
        columns, sums = len(b) // fragment.repeats, len(c) // fragment.repeats
        found: list[str] = []
        for part in range(fragment.repeats):
            b_part = b[part * columns : (part + 1) * columns]
            c_part = c[part * sums : (part + 1) * sums]
            found += self.multiply_part(fragment, a, b_part, c_part)
        return tuple(found)

    def multiply_part(self, fragment: Fragment, a: Names, b: Names, c: Names) -> list[str]:
        kind, letter = self.sum_kind(fragment.c_dtype)
        result = "{ " + ", ".join([kind] * len(c)) + " }"
        first = len(c)
        groups: list[str] = []
        for count in (len(c), len(a), len(b)):
            start = first if groups else 0
            groups.append("{" + ", ".join([f"${start + i}" for i in range(count)]) + "}")
            first = start + count
        groups.append("{" + ", ".join([f"${first + i}" for i in range(len(c))]) + "}")
        constraints = [f"={letter}"] * len(c) + ["r"] * (len(a) + len(b)) + [letter] * len(c)
        given = [f"i32 {name}" for name in (*a, *b)] + [f"{kind} {name}" for name in c]
        text = f"{fragment.name} {', '.join(groups)};"
        both = self.emit(
            f'call {result} asm "{text}", "{",".join(constraints)}"({", ".join(given)}) convergent'
        )
        return [self.emit(f"extractvalue {result} {both}, {i}") for i in range(len(c))]

    def words(self, uop: UOp, fragment: Fragment) -> Names:
        """The registers of an operand as words of 32 bits."""
        names, dtype = self.vector(uop), uop.dtype.scalar()
        if not (uop.op is Ops.LOAD and isinstance(uop.arg, MatrixArg)):
            names = self.packed(names, dtype.itemsize * 8, self.memory_type(dtype))
        if fragment.exact:
            return names
        # the instruction cuts off what it has no room for: it is rounded before
        return tuple([self.rounded(name) for name in names])

    def rounded(self, word: str) -> str:
        value = self.emit(f"bitcast i32 {word} to float")
        return self.emit(f'call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,f"(float {value})')

    def packed(self, names: Names, bits: int, kind: str) -> Names:
        number = f"i{bits}"
        if kind != number:
            names = tuple([self.emit(f"bitcast {kind} {name} to {number}") for name in names])
        if bits == _WORD_BITS:
            return names
        found, each = [], _WORD_BITS // bits
        for first in range(0, len(names), each):
            word = ""
            for place, name in enumerate(names[first : first + each]):
                part = self.emit(f"zext {number} {name} to i32")
                if place:
                    part = self.emit(f"shl i32 {part}, {place * bits}")
                    part = self.emit(f"or i32 {word}, {part}")
                word = part
            found.append(word)
        return tuple(found)

    def load_matrices(self, uop: UOp) -> Names:
        """Words, as the instructions take them."""
        arg: MatrixArg = uop.arg
        place, offset = without_constant(uop.src[0])
        address = self.shared_address(place)
        turn = ".trans" if arg.transposed else ""
        results = ", ".join([f"${i}" for i in range(arg.count)])
        text = f"ldmatrix.sync.aligned.m8n8.x{arg.count}{turn}.shared.b16 {{{results}}}"
        text += f", [${arg.count} + {offset}];" if offset else f", [${arg.count}];"
        kind = "i32" if arg.count == 1 else "{ " + ", ".join(["i32"] * arg.count) + " }"
        constraints = ",".join(["=r"] * arg.count + ["r", "~{memory}"])
        value = self.emit(
            f'call {kind} asm sideeffect "{text}", "{constraints}"(i32 {address}) convergent'
        )
        if arg.count == 1:
            return (value,)
        return tuple([self.emit(f"extractvalue {kind} {value}, {i}") for i in range(arg.count)])

    # ------------------------------------------------------------ products out of shared memory
    def value_load(self, uop: UOp) -> str:
        return self.describe(uop) if isinstance(uop.arg, TileArg) else super().value_load(uop)

    def describe(self, uop: UOp) -> str:
        """Where a tile lies, as the manual's "matrix descriptor" says it: address, bytes from one
        swizzled row of the side to the next, bytes from 8 rows to the next 8, and the pattern."""
        arg, size = uop.arg, uop.dtype.itemsize
        # rows along terms have no next one
        far = arg.far * size if arg.far else _UNIT
        fields = far // _UNIT << 16 | SWIZZLED_BYTES * SWIZZLED_ROWS // _UNIT << 32 | 1 << 62
        address = self.shared_address(uop.src[0])
        part = self.emit(f"lshr i32 {self.emit(f'and i32 {address}, {_ADDRESS_BITS}')}, 4")
        return self.emit(f"or i64 {self.emit(f'zext i32 {part} to i64')}, {fields}")

    def multiply_tiles(self, uop: UOp) -> Names:
        """Instructions along the terms, all in one: nothing may stand between them that touches
        their sums."""
        fragment: Fragment = uop.arg
        c = self.vector(uop.src[2])
        kind, letter = self.sum_kind(fragment.c_dtype)
        sums = "{" + ", ".join([f"${i}" for i in range(len(c))]) + "}"
        given: list[str] = []
        turned = []
        for source in uop.src[:2]:
            turned.append(int(source.arg.term != 1))
            step = fragment.k // fragment.repeats * source.arg.term * source.dtype.itemsize
            name = self.operand(source)
            for part in range(fragment.repeats):
                place = part * step // _UNIT
                given.append(self.emit(f"add i64 {name}, {place}") if part else name)
        text = ["wgmma.fence.sync.aligned;"]
        for part in range(fragment.repeats):
            a, b = [f"${2 * len(c) + side * fragment.repeats + part}" for side in (0, 1)]
            scales = ", 1, 1" if kind == "float" else ""
            turns = f", {turned[0]}, {turned[1]}" if fragment.takes_turned else ""
            text.append(f"{fragment.name} {sums}, {a}, {b}, 1{scales}{turns};")
        text.append("wgmma.commit_group.sync.aligned;")
        constraints = [f"={letter}"] * len(c) + [str(i) for i in range(len(c))] + ["l"] * len(given)
        operands = [f"{kind} {name}" for name in c] + [f"i64 {name}" for name in given]
        return self.tied(" ".join(text), kind, constraints, operands, len(c))

    def tied(
        self, text: str, kind: str, constraints: list[str], operands: list[str], count: int
    ) -> Names:
        """Instructions that change `count` registers in place."""
        result = "{ " + ", ".join([kind] * count) + " }"
        both = self.emit(
            f'call {result} asm sideeffect "{text}", "{",".join([*constraints, "~{memory}"])}"'
            f"({', '.join(operands)}) convergent"
        )
        return tuple([self.emit(f"extractvalue {result} {both}, {i}") for i in range(count)])

    def write_settle(self, uop: UOp) -> None:
        """Waits; what is waited for as a whole changes there, so that nobody reads it before."""
        text = f"wgmma.wait_group.sync.aligned {uop.arg[0]};"
        if not uop.src:
            self.effect(text)
        for number, source in enumerate(uop.src):
            names = self.vectors.get(source) or tuple(
                [self.registers[r] for r in self.parts(source)]
            )
            kind, letter = self.sum_kind(source.dtype)
            count = len(names)
            ties = [f"={letter}"] * count + [str(i) for i in range(count)]
            given = [f"{kind} {name}" for name in names]
            new = self.tied("" if number else text, kind, ties, given, count)
            if source.op is Ops.ACC:
                self.registers.update(zip(self.parts(source), new, strict=True))
            else:
                self.vectors[source] = new

    def sum_kind(self, dtype: DType) -> tuple[str, str]:
        """The type of a register of sums, and the letter of its constraint."""
        return ("float", "f") if dtype.kind == "float" else ("i32", "r")

    # ------------------------------------------------------------ copies
    def address(self, place: UOp, further: int) -> str:
        memory = place.src[0]
        if memory.op is not Ops.LOCAL or not memory.arg.is_swizzled:
            return super().address(place, further)
        return self.swizzled(place, further)

    def swizzled(self, place: UOp, further: int) -> str:
        """The address of an element among swizzled rows: 16 bytes change places with each other.

        What is a multiple of the whole pattern is added behind, so that threads compute the rest
        once and not in every round of a loop.
        """
        memory, index = place.src[:2]
        size = memory.dtype.itemsize
        whole = SWIZZLED_BYTES * SWIZZLED_ROWS // size
        kind = self.type(index.dtype)
        pending, near, far = [index], [str(further)], ["0"]
        while pending:
            term = pending.pop()
            if term.op is Ops.ADD and term.dtype.count == 1:
                pending += term.src
            else:
                (far if factor_of(term, whole) == whole else near).append(self.operand(term))
        offset = self.emit(f"mul {kind} {self.total(near, kind)}, {size}")
        row = self.emit(f"lshr {kind} {offset}, {(SWIZZLED_BYTES // _UNIT).bit_length() - 1}")
        moved = self.emit(f"and {kind} {row}, {SWIZZLED_BYTES - _UNIT}")
        offset = self.emit(f"xor {kind} {offset}, {moved}")
        beyond = self.emit(f"mul {kind} {self.total(far, kind)}, {size}")
        pointer = f"{self.shared_pointer} {self.operand(memory)}"
        start = self.emit(f"getelementptr i8, {pointer}, {kind} {offset}")
        return self.emit(f"getelementptr i8, {self.shared_pointer} {start}, {kind} {beyond}")

    def total(self, names: list[str], kind: str) -> str:
        value = names[0]
        for name in names[1:]:
            value = self.emit(f"add {kind} {value}, {name}")
        return value

    def shared_address(self, place: UOp) -> str:
        return self.emit(f"ptrtoint {self.shared_pointer} {self.address(place, 0)} to i32")

    def open_question(self) -> int:
        self.count += 1
        label = f"%wide{self.count}"
        self.lines.append(f"  br i1 %is.aligned, label {label}, label {label}.not")
        return self.count

    def answer(self, number: int, alignment: int) -> None:
        """Begins one of the two forms."""
        self.alignment = alignment
        if alignment == 1:
            self.lines.append(f"  br label %wide{number}.end")
        self.label(f"wide{number}" if alignment > 1 else f"wide{number}.not")

    def close_question(self, number: int) -> None:
        self.alignment = WIDEST_ACCESS
        self.lines.append(f"  br label %wide{number}.end")
        self.label(f"wide{number}.end")

    def write_fetch(self, uop: UOp) -> None:
        if self.asks_alignment:
            self.asked.append(uop)
        else:
            self.fetch(uop)

    def fetch(self, uop: UOp) -> None:
        target, source = uop.src
        dtype = target.dtype.scalar().vec(uop.arg)
        if self.alignment == 1:
            # buffers that begin anywhere: element by element, there and then
            self.guarded_store(target, dtype, self.guarded_load(source, dtype))
            return
        self.relied[source.src[0]] = None
        if len(target.src) > 2:
            self.open_guard(target)
        nbytes = dtype.scalar().itemsize * uop.arg
        to = self.shared_address(target)
        address = self.address(source, 0)
        at = self.emit(f"ptrtoint {self.global_pointer} {address} to i64")
        how = "cg" if nbytes == 16 else "ca"
        text, constraints = f"cp.async.{how}.shared.global [$0], [$1], {nbytes}", "r,l"
        given = f"i32 {to}, i64 {at}"
        if len(source.src) > 2:
            valid = self.operand(source.src[2])
            size = self.emit(f"select i1 {valid}, i32 {nbytes}, i32 0")
            text, constraints, given = f"{text}, $2", f"{constraints},r", f"{given}, i32 {size}"
        self.effect(f"{text};", f"{constraints},", given)
        if len(target.src) > 2:
            self.close_guard()

    def write_commit(self, uop: UOp) -> None:
        if self.asked:
            # one question for all copies of the group
            number = self.open_question()
            for alignment in (WIDEST_ACCESS, 1):
                self.answer(number, alignment)
                for fetch in self.asked:
                    self.fetch(fetch)
            self.close_question(number)
            self.asked = []
        if self.alignment > 1:
            self.effect("cp.async.commit_group;")

    def write_wait(self, uop: UOp) -> None:
        if self.alignment > 1:
            self.effect(f"cp.async.wait_group {uop.arg[0]};")

    def effect(self, text: str, constraints: str = "", given: str = "") -> None:
        clobbers = f"{constraints}~{{memory}}"
        self.lines.append(f'  call void asm sideeffect "{text}", "{clobbers}"({given})')


def _last_settle(uops: Sequence[UOp]) -> int | None:
    """Where the last products are waited for, if that is in no loop."""
    depth, found = 0, None
    for place, uop in enumerate(uops):
        depth += (uop.op is Ops.RANGE) - (uop.op is Ops.END)
        if uop.op is Ops.SETTLE and uop.src and depth == 0:
            found = place
    return found


def _loads_ahead(uops: Sequence[UOp]) -> list[UOp]:
    """The same without loops in between, where buffers are read some loads before they are needed:
    outputs are computed one after the other, and each would wait for what it reads."""
    loads = [u for u in uops if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX]
    written = {u.src[0].src[0] for u in uops if u.op is Ops.STORE}
    if any([u.op not in _MOVED for u in uops]) or any([u.src[0].src[0] in written for u in loads]):
        return list(uops)
    inside = set(uops)
    placed: dict[UOp, None] = {}
    coming = iter(loads)

    def place(count: int) -> None:
        for load in itertools.islice(coming, count):
            for node in load.toposort(gate=lambda u: u in inside):
                if node in inside:
                    placed[node] = None

    place(_LOADS_AHEAD)
    for uop in uops:
        if uop.op is Ops.LOAD:
            place(1)
        placed[uop] = None
    return list(placed)
