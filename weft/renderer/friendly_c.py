"""C that people keep: kernels as typed static functions of one file that any C11 compiler builds.

In: a linear program. Out: `static void name(float *restrict out, const float *x, ...)`, and what
several kernels share (vector types, selects, bit casts) apart, once.
`FriendlyC` uses the vector extensions of GCC and Clang, `PlainC` nothing but C11. `export` prints
with both; no device compiles what stands here.
Invariant: as in `c`. A bool is read from memory as a byte that is compared with 0, so no byte of a
caller is a trap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import program_variables
from weft.renderer.c import CRenderer
from weft.renderer.cstyle import INFIX, Template, Writer, strip
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_COMPARISONS = frozenset({Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})
_LOGIC = frozenset({Ops.AND, Ops.OR})
_MASKS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
# ops on whole vectors of integers
_BITS = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_INTEGERS = frozenset({Ops.ADD, Ops.MUL, Ops.SHL})


class FriendlyC(CRenderer):
    """Static functions over vectors. `shared` collects what stands before them."""

    name = "friendly_c"

    def __init__(self, target: Target | None = None) -> None:
        self.shared: dict[str, None] = {}
        self.parameters: dict[int, str] = {}  # names of buffers by slot, for the next kernel
        super().__init__(target)

    def writer(self, uops: Sequence[UOp]) -> Writer:
        return VectorWriter(self, uops)

    def parameter_name(self, param: UOp) -> str:
        return self.parameters.get(param.arg.slot, f"data{param.arg.slot}")

    def share(self, line: str) -> None:
        """A line that stands before all kernels, once."""
        self.shared.setdefault(line)

    def shared_lines(self) -> list[str]:
        """All such lines, types first."""
        return sorted(self.shared, key=lambda line: not line.startswith("typedef"))

    # ------------------------------------------------------------ the frame
    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        for line in self.vector_types({uop.dtype for uop in uops if uop.dtype.count > 1}):
            self.share(line)
        for source, target in self.reinterpreted(uops):
            before, after = self.type(source), self.type(target)
            self.share(
                f"static inline {after} {_bits_name(before, after)}({before} x) "
                f"{{ {after} y; memcpy(&y, &x, sizeof y); return y; }}"
            )
        written = {u.src[0].src[0] for u in uops if u.op is Ops.STORE}
        taken = []
        for param in params:
            kind = self.memory_type(param.dtype)
            const = "" if param in written else "const "
            # a buffer that is only read may be given twice; one that is written is nobody else's
            restrict = "restrict " if param in written else ""
            taken.append(f"{const}{kind} *{restrict}{self.parameter_name(param)}")
        taken += [
            f"{self.type(variable.dtype)} {variable.arg.name}"
            for variable in program_variables(uops)
        ]
        if self.is_shared_by_threads(uops):
            taken += ["int64_t begin", "int64_t end"]
        return [f"static void {name}({', '.join(taken) or 'void'}) {{"]

    @staticmethod
    def is_shared_by_threads(uops: Sequence[UOp]) -> bool:
        """Whether a call runs part of an axis."""
        return any(u.op is Ops.RANGE and u.arg.kind.name == "THREAD" for u in uops)

    # ------------------------------------------------------------ memory
    def memory_type(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return "uint8_t" if dtype.kind == "bool" else self.type(dtype)

    def element(self, memory: UOp, name: str, idx: str) -> str:
        text = f"{name}[{idx}]"
        return f"({text} != 0)" if memory.dtype.kind == "bool" and memory.op is Ops.PARAM else text

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        return f"{_bits_name(self.type(source), self.type(target))}({strip(text)})"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        if dtype.kind == "bool":
            lanes = [self.element(memory, base, f"{idx} + {k}") for k in range(dtype.count)]
            return [self.declare(dtype, name, self.vector(dtype, lanes))]
        kind = self.type(dtype)
        if dtype.count & (dtype.count - 1):
            return super().vector_load(name, dtype, memory, base, idx)
        self.share(
            f"static inline {kind} load_{kind}(const void *p) "
            f"{{ {kind} v; memcpy(&v, p, sizeof v); return v; }}"
        )
        return [f"{kind} {name} = load_{kind}({_place(base, idx)});"]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        size = dtype.count * dtype.scalar().itemsize
        return [f"memcpy({_place(base, idx)}, &{name}, {size});"]

    # ------------------------------------------------------------ vectors
    def mask_type(self, width: int, count: int) -> DType:
        """The vector that a comparison of vectors gives whose elements have so many bytes."""
        mask = _MASKS[width].vec(count)
        for line in self.vector_types({mask}):
            self.share(line)
        return mask

    def select_vector(self, dtype: DType) -> str:
        """The function that picks lanes by a mask."""
        width = dtype.scalar().itemsize
        kind, mask = self.type(dtype), self.type(self.mask_type(width, dtype.count))
        for line in self.vector_types({dtype}):
            self.share(line)
        name = f"select_{kind}"
        self.share(
            f"static inline {kind} {name}({mask} m, {kind} x, {kind} y) "
            f"{{ return ({kind})((m & ({mask})x) | (~m & ({mask})y)); }}"
        )
        return name

    def load_where_vector(self, dtype: DType) -> str:
        """The function that loads consecutive elements where a mask is set, and 0 elsewhere."""
        scalar = dtype.scalar()
        width, count = scalar.itemsize, dtype.count
        kind, mask = self.type(dtype), self.type(self.mask_type(width, count))
        name, element = f"load_where_{kind}", self.type(scalar)
        head = f"static inline {kind} {name}({mask} m, const {element} *p, int64_t at)"
        loop = f"for (int i = 0; i < {count}; i++) if (m[i]) v[i] = p[at + i];"
        plain = f"{head} {{ {kind} v = {{0}}; {loop} return v; }}"
        letters = {4: ("ps", "epi32"), 8: ("pd", "epi64")}.get(width)
        if letters is None or dtype.itemsize not in (32, 64):
            self.share(plain)
            return name
        is_float = scalar.kind == "float"
        if dtype.itemsize == 64:
            macro = "__AVX512F__"
            zero = "_mm512_setzero_si512()"
            lanes = f"_mm512_cmplt_{letters[1]}_mask((__m512i)m, {zero})"
            call = f"_mm512_maskz_loadu_{letters[not is_float]}({lanes}, p + at)"
        else:
            macro = "__AVX2__"
            place = "p + at"
            if not is_float:
                place = f"(const {'int' if width == 4 else 'long long'} *)(const void *)({place})"
            call = f"_mm256_maskload_{letters[not is_float]}({place}, (__m256i)m)"
        with_one = f"#if defined({macro})\n{head} {{ return ({kind}){call}; }}"
        self.share(f"{with_one}\n#else\n{plain}\n#endif")
        return name

    def splat_vector(self, dtype: DType) -> str:
        """The function that fills all lanes with one number."""
        kind, scalar = self.type(dtype), self.type(dtype.scalar())
        name = f"splat_{kind}"
        lanes = ", ".join(["x"] * dtype.count)
        self.share(f"static inline {kind} {name}({scalar} x) {{ return ({kind}){{{lanes}}}; }}")
        return name

    def fma_vector(self, dtype: DType) -> str:
        """The function that multiplies and adds, rounding once."""
        kind, name = self.type(dtype), f"fma_{self.type(dtype)}"
        for line in self.vector_types({dtype}):
            self.share(line)
        suffix = "f" if dtype.scalar() is dtypes.float32 else ""
        lane = f"a[i] = __builtin_fma{suffix}(a[i], b[i], c[i])"
        loop = f"for (int i = 0; i < {dtype.count}; i++) {lane};"
        head = f"static inline {kind} {name}({kind} a, {kind} b, {kind} c)"
        letter = "s" if suffix else "d"
        found = _INSTRUCTIONS.get(dtype.itemsize)
        if found is None:
            self.share(f"{head} {{ {loop} return a; }}")
            return name
        wide, prefix, macro = found
        wide = wide if suffix else f"{wide}d"
        call = f"({kind})_mm{prefix}_fmadd_p{letter}(({wide})a, ({wide})b, ({wide})c)"
        with_one = f"#if defined({macro})\n{head} {{ return {call}; }}"
        self.share(f"{with_one}\n#else\n{head} {{ {loop} return a; }}\n#endif")
        return name


# bytes of a vector -> the type, the prefix and the macro of its instructions on x86
_INSTRUCTIONS = {
    16: ("__m128", "", "__FMA__"),
    32: ("__m256", "256", "__FMA__"),
    64: ("__m512", "512", "__AVX512F__"),
}


class VectorWriter(Writer):
    """Writes selects of whole vectors where their conditions are comparisons of such."""

    language: Any

    def __init__(self, language: Any, uops: Sequence[UOp]) -> None:
        super().__init__(language, uops)
        self.masks = _find_masks(uops)
        # they are named by nobody lane by lane
        self.whole = {source for uop in uops if not self.is_by_lanes(uop) for source in uop.src}

    def is_by_lanes(self, uop: UOp) -> bool:
        masks: dict[UOp, int] | None = getattr(self, "masks", None)
        if masks is not None and uop.dtype.count > 1 and self._is_whole(uop):
            return False
        return super().is_by_lanes(uop)

    def _is_whole(self, uop: UOp) -> bool:
        if uop in self.masks:
            return True
        if uop.op is Ops.WHERE:
            return uop.src[0] in self.masks
        if not uop.src:
            return False
        kind, source = uop.dtype.scalar(), uop.src[0].dtype.scalar()
        if uop.op is Ops.MULACC:
            return kind.kind == "float"
        if uop.op is Ops.NEG:
            return kind.kind == "float" and kind in self.language.type_names
        if uop.op is Ops.BITCAST:
            return _is_number(kind) and _is_number(source) and kind.itemsize == source.itemsize
        if uop.op in _BITS:
            return kind.kind in ("int", "uint")
        if uop.op is Ops.CAST:
            return _is_number(kind) and _is_number(source)
        return uop.op in _INTEGERS and kind.kind in ("int", "uint")

    def define(self, uop: UOp) -> None:
        if uop in self.masks:
            mask = self.language.mask_type(self.masks[uop], uop.dtype.count)
            self.names[uop] = name = self.fresh("mask")
            self.write(self.language.declare(mask, name, strip(self.mask_text(uop, mask))))
            return
        super().define(uop)

    def write_load(self, uop: UOp) -> None:
        index = uop.src[0]
        if uop.arg is None and self._is_masked_whole(uop, index):
            self.names[uop] = name = self.fresh("val")
            _, base, idx = self.place(index)
            load = self.language.load_where_vector(uop.dtype)
            value = f"{load}({self.operand(index.src[2])}, {base}, {strip(idx)})"
            self.write(self.language.declare(uop.dtype, name, value))
            return
        super().write_load(uop)

    def _is_masked_whole(self, uop: UOp, index: UOp) -> bool:
        """Whether a load takes neighbours, each where its lane of a mask says so."""
        if index.op is not Ops.INDEX or len(index.src) < 3 or index.src[1].dtype.count > 1:
            return False
        count, width = uop.dtype.count, uop.dtype.scalar().itemsize
        is_plain = _is_number(uop.dtype.scalar()) and not count & (count - 1)
        return count > 1 and is_plain and self.masks.get(index.src[2]) == width

    def mask_text(self, uop: UOp, mask: DType) -> str:
        """A comparison of vectors, two of them joined, or one bool for all lanes."""
        if uop.op is Ops.VECTORIZE:
            scalar = self.language.type(mask.scalar())
            value = f"-({scalar}){self.operand(uop.src[0])}"
            return f"{self.language.splat_vector(mask)}({value})"
        left, right = (self.operand(s) for s in uop.src)
        return f"({left} {INFIX[uop.op]} {right})"

    def expression(self, uop: UOp) -> str:
        if uop.dtype.count > 1 and uop.op in GroupOp.Elementwise and self._is_whole(uop):
            operands = [strip(self.operand(s)) for s in uop.src]
            if uop.op is Ops.WHERE:
                return f"{self.language.select_vector(uop.dtype)}({', '.join(operands)})"
            if uop.op is Ops.MULACC:
                return f"{self.language.fma_vector(uop.dtype)}({', '.join(operands)})"
            if uop.op is Ops.NEG:
                return f"(-{self.operand(uop.src[0])})"
            if uop.op is Ops.BITCAST:
                return f"({self.language.type(uop.dtype)}){self.operand(uop.src[0])}"
            if uop.op is Ops.CAST:
                return f"__builtin_convertvector({operands[0]}, {self.language.type(uop.dtype)})"
            if uop.op in _BITS | _INTEGERS:
                return self.integers(uop)
        if uop.op is Ops.VECTORIZE and len({*uop.src}) == 1:
            splat = self.language.splat_vector(uop.dtype)
            return f"{splat}({strip(self.operand(uop.src[0]))})"
        return super().expression(uop)

    def integers(self, uop: UOp) -> str:
        """An op on whole vectors of integers; sums and products of signed ones wrap."""
        left, right = (self.operand(s) for s in uop.src)
        dtype = uop.dtype
        if uop.op in _BITS or dtype.kind == "uint":
            return f"({left} {INFIX[uop.op]} {right})"
        unsigned = _UNSIGNED[dtype.scalar().itemsize].vec(dtype.count)
        for line in self.language.vector_types({unsigned}):
            self.language.share(line)
        wide = self.language.type(unsigned)
        text = f"({wide}){left} {INFIX[uop.op]} ({wide}){right}"
        return f"({self.language.type(dtype)})({text})"


def _is_number(dtype: DType) -> bool:
    """Whether vectors of a type are what they say, and not the bits of a narrow float."""
    return dtype.kind in ("int", "uint") or dtype in (dtypes.float32, dtypes.float64)


def _find_masks(uops: Sequence[UOp]) -> dict[UOp, int]:
    """Vectors of bools that only ever pick lanes (of vectors as wide as those that were compared,
    and of loads and stores), with the bytes of a lane."""
    width: dict[UOp, int | None] = {}
    for uop in uops:
        if uop.dtype.count == 1 or uop.dtype.kind != "bool":
            continue
        if uop.op in _COMPARISONS and uop.src[0].dtype.kind in ("float", "int", "uint"):
            width[uop] = uop.src[0].dtype.scalar().itemsize
        elif uop.op is Ops.VECTORIZE and len({*uop.src}) == 1:
            width[uop] = None  # as its users are
        elif uop.op in _LOGIC and all(s in width for s in uop.src):
            known = {width[s] for s in uop.src} - {None}
            if len(known) <= 1:
                width[uop] = known.pop() if known else None
    users: dict[UOp, list[UOp]] = {uop: [] for uop in width}
    for uop in uops:
        for source in dict.fromkeys(uop.src):
            if source in users:
                users[source].append(uop)
    for uop in reversed(list(width)):
        if width[uop] is None:
            width[uop] = next(filter(None, [_lane_width(u, width) for u in users[uop]]), 4)
    while bad := [uop for uop in width if not _is_mask(uop, users[uop], width)]:
        for uop in bad:
            del width[uop]
    return {uop: found for uop, found in width.items() if found is not None}


def _lane_width(user: UOp, width: Mapping[UOp, int | None]) -> int | None:
    """The bytes of a lane that a user of a mask has."""
    if user.op is Ops.WHERE:
        return int(user.dtype.scalar().itemsize)
    if user.op is Ops.INDEX:
        return int(user.src[0].dtype.scalar().itemsize)
    return width.get(user)


def _is_mask(uop: UOp, users: Sequence[UOp], width: Mapping[UOp, int | None]) -> bool:
    """Whether a vector of bools can be a mask, if all that `width` names are."""
    if uop.op in _LOGIC and any(width.get(s) != width[uop] for s in uop.src):
        return False
    for user in users:
        if user.op is Ops.WHERE and user.src[0] is uop and uop not in user.src[1:]:
            is_number = user.dtype.kind in ("float", "int", "uint")
            if is_number and user.dtype.scalar().itemsize == width[uop]:
                continue
        elif user.op is Ops.INDEX and uop not in user.src[:2]:
            continue
        elif user in width and user.op in _LOGIC:
            continue
        return False
    return True


def _place(base: str, idx: str) -> str:
    return base if idx == "0" else f"{base} + {idx}"


def _bits_name(before: str, after: str) -> str:
    return f"{before.removesuffix('_t')}_as_{after.removesuffix('_t')}"


def _call(name: str) -> Template:
    """A function of <math.h>."""

    def write(operands: tuple[str, ...], dtype: DType) -> str:
        suffix = "f" if dtype is dtypes.float32 else ""
        return f"{name}{suffix}({', '.join(map(strip, operands))})"

    return write


class PlainC(FriendlyC):
    """The same in nothing but C11: for compilers without vector extensions. Its target has no
    vectors."""

    name = "plain_c"
    infinity = "INFINITY"
    not_a_number = "NAN"

    def writer(self, uops: Sequence[UOp]) -> Writer:
        return Writer(self, uops)

    def function_templates(self) -> dict[Ops, Template]:
        return {Ops.SQRT: _call("sqrt"), Ops.TRUNC: _call("trunc"), Ops.MULACC: _call("fma")}

    def local_memory(self, memory: UOp, name: str) -> str:
        return f"{self.type(memory.dtype)} {name}[{memory.arg.size}];"

    def float_literal(self, value: float, dtype: DType) -> str:
        return super(CRenderer, self).float_literal(value, dtype)
