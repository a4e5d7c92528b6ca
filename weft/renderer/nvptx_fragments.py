"""Fragments and copies in LLVM IR for NVIDIA GPUs, as instructions of PTX.

In: WMMA, LOADs of matrices, FETCH, COMMIT and WAIT of a linear program. Out: their text. Between
`llvm_groups.py` and `nvptx.py`.
Invariant: what a warp does together is marked convergent, and what reads or writes memory is
ordered with the barriers: LLVM moves neither across them.
"""

from __future__ import annotations

from weft.fragment import Fragment
from weft.renderer.llvm_groups import GroupFunction, Names
from weft.uop.args import MatrixArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

_WORD_BITS = 32


class FragmentFunction(GroupFunction):
    """A function whose warps multiply fragments."""

    statements = (*GroupFunction.statements, Ops.FETCH, Ops.COMMIT, Ops.WAIT)

    def compute_lanes(self, uop: UOp) -> Names:
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
        kind, letter = ("float", "f") if fragment.c_dtype.kind == "float" else ("i32", "r")
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
        address = self.shared_address(uop.src[0])
        turn = ".trans" if arg.transposed else ""
        results = ", ".join([f"${i}" for i in range(arg.count)])
        text = f"ldmatrix.sync.aligned.m8n8.x{arg.count}{turn}.shared.b16 {{{results}}}"
        text += f", [${arg.count}];"
        kind = "i32" if arg.count == 1 else "{ " + ", ".join(["i32"] * arg.count) + " }"
        constraints = ",".join(["=r"] * arg.count + ["r", "~{memory}"])
        value = self.emit(
            f'call {kind} asm sideeffect "{text}", "{constraints}"(i32 {address}) convergent'
        )
        if arg.count == 1:
            return (value,)
        return tuple([self.emit(f"extractvalue {kind} {value}, {i}") for i in range(arg.count)])

    # ------------------------------------------------------------ copies
    def shared_address(self, place: UOp) -> str:
        return self.emit(f"ptrtoint {self.shared_pointer} {self.address(place, 0)} to i32")

    def write_fetch(self, uop: UOp) -> None:
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
        if self.alignment > 1:
            self.effect("cp.async.commit_group;")

    def write_wait(self, uop: UOp) -> None:
        if self.alignment > 1:
            self.effect(f"cp.async.wait_group {uop.arg[0]};")

    def effect(self, text: str, constraints: str = "", given: str = "") -> None:
        clobbers = f"{constraints}~{{memory}}"
        self.lines.append(f'  call void asm sideeffect "{text}", "{clobbers}"({given})')
