"""What languages like C have in common: `c`, `cuda`, `metal` and `opencl` derive from it.

In: a linear program. Out: text that people can read. `CStyle` holds what such languages share, as
tables and small methods to override.
Invariant: a value is computed where its op stands in the program, or later from values that cannot
change; loads and reads of registers always get a name of their own.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from weft.dtype import DType, bits_of, dtypes
from weft.errors import CompileError
from weft.machine import Target
from weft.renderer.base import Renderer, program_params, program_variables
from weft.uop.args import AxisType, Unordered
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# a longer expression gets a name
_LONGEST_INLINE = 80

INFIX = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.IDIV: "/",
    Ops.MOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPEQ: "==",
    Ops.CMPNE: "!=",
}
_RAW_ONLY = frozenset({Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR})
# what holds the bits of a narrow float
_BITS = {1: dtypes.uint8, 2: dtypes.uint16}
# ops that may leave the range of a signed integer, which C leaves undefined
_WRAPPING = frozenset({Ops.ADD, Ops.MUL, Ops.NEG, Ops.SHL})

Template = Callable[[tuple[str, ...], DType], str]


class CStyle(Renderer):
    """Prints programs in a language like C. Vectors are built and taken apart lane by lane."""

    suffix = "c"
    type_names: Mapping[DType, str] = {
        dtypes.bool: "bool",
        dtypes.int8: "int8_t",
        dtypes.uint8: "uint8_t",
        dtypes.int16: "int16_t",
        dtypes.uint16: "uint16_t",
        dtypes.int32: "int32_t",
        dtypes.uint32: "uint32_t",
        dtypes.int64: "int64_t",
        dtypes.uint64: "uint64_t",
        dtypes.float32: "float",
        dtypes.float64: "double",
    }
    # ops that the language has for whole vectors, and of what
    vector_ops: frozenset[Ops] = frozenset()
    vector_kinds: tuple[str, ...] = ("float", "uint", "bool")
    long_suffix = "ll"
    infinity = "INFINITY"
    not_a_number = "NAN"

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        self.functions: dict[Ops, Template] = self.function_templates()
        native = {Ops.NEG, Ops.WHERE, Ops.BITCAST, *INFIX, *self.functions} - _RAW_ONLY
        self.code_for_op = dict.fromkeys(sorted(native, key=lambda op: op.name), True)
        self.native_dtypes = frozenset(self.type_names)

    # ------------------------------------------------------------ what a language overrides
    def function_templates(self) -> dict[Ops, Template]:
        """Ops that are calls, and how they are written for scalar operands."""
        return {}

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        """Everything before the first statement of the function."""
        raise CompileError(f"{type(self).__name__} does not say how a kernel begins")

    def foot(self) -> list[str]:
        """What closes the function."""
        return ["}"]

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        """The bits of a scalar as another type."""
        raise CompileError(f"{type(self).__name__} does not say how bits are reinterpreted")

    def special(self, uop: UOp) -> str:
        """A hardware index."""
        raise CompileError(f"{type(self).__name__} has no hardware indices, found {uop.arg}")

    def barrier(self) -> str:
        """A statement that waits for the other threads of a group."""
        raise CompileError(f"{type(self).__name__} has no barriers")

    def own_statement(self, uop: UOp, name: str, operands: Sequence[tuple[str, str | None]]) -> str:
        """A statement that only some languages have, see `Writer.write_own`."""
        raise CompileError(f"{type(self).__name__} has no {uop.op.name}")

    def local_memory(self, memory: UOp, name: str) -> str | None:
        """The declaration of fast memory, where it is one of the function's statements."""
        return f"{self.type(memory.dtype)} {name}[{memory.arg.size}];"

    def number_of(self, memory: UOp, idx: str) -> str:
        """The number of an element where memory is laid out in an order of its own."""
        return idx

    def declare(self, dtype: DType, name: str, value: str, changes: bool = False) -> str:
        """A statement that gives a value a name; `changes`: others may follow."""
        return f"{self.type(dtype)} {name} = {value};"

    def loop(self, dtype: DType, name: str, start: str, stop: str) -> str:
        """The beginning of a loop from `start` up to but not including `stop`."""
        return f"for ({self.type(dtype)} {name} = {start}; {name} < {stop}; {name}++) {{"

    def select(self, condition: str, yes: str, no: str) -> str:
        """One of two values."""
        return f"({condition} ? {yes} : {no})"

    def only_if(self, condition: str, statement: str) -> str:
        """A statement under a condition."""
        return f"if ({condition}) {statement}"

    def combined(self, place: str, value: str, dtype: DType, op: Ops) -> str:
        """Joins a value with an element, whoever else does so."""
        raise CompileError(f"{self.name} has no {op.name} of {dtype} that needs no order")

    def convert(self, text: str, source: DType, target: DType) -> str:
        """A scalar as another type, where C's conversion has the meaning of CAST."""
        return f"({text} != 0)" if target.kind == "bool" else f"({self.type(target)}){text}"

    def own_form(self, uop: UOp, operands: tuple[str, ...]) -> str | None:
        """An op on scalars in a form of the language's own, where C's would not do."""
        return None

    def element(self, memory: UOp, name: str, idx: str) -> str:
        """The value of one element of memory."""
        return f"{name}[{idx}]"

    def set_element(self, memory: UOp, name: str, idx: str, value: str) -> str:
        """A statement that stores one element."""
        return f"{name}[{idx}] = {value};"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        """Statements that give `name` consecutive elements."""
        lanes = [self.element(memory, base, beyond(idx, k)) for k in range(dtype.count)]
        return [self.declare(dtype, name, self.vector(dtype, lanes))]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        """Statements that store a vector to consecutive elements."""
        return [
            self.set_element(memory, base, beyond(idx, k), self.lane(name, k))
            for k in range(dtype.count)
        ]

    def has_vectors(self, dtype: DType) -> bool:
        """Whether the language computes with vectors of so many lanes."""
        return True

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        """A vector from its lanes."""
        return f"({self.type(dtype)}){{{', '.join(lanes)}}}"

    def lane(self, name: str, lane: int) -> str:
        """One lane of a vector that has a name."""
        return f"{name}[{lane}]"

    def parameter_name(self, param: UOp) -> str:
        """What a buffer is called inside of a kernel."""
        return f"data{param.arg.slot}"

    # ------------------------------------------------------------ types and constants
    def type(self, dtype: DType) -> str:
        """A type's name; narrow floats that the language lacks are their bits."""
        scalar = dtype.scalar()
        if dtype.count > 1:
            return f"{self.vector_name(scalar)}x{dtype.count}"
        bits = _BITS.get(scalar.itemsize) if scalar.kind == "float" else None
        name = self.type_names.get(scalar) or self.type_names.get(bits or scalar)
        if name is None:
            known = ", ".join(map(str, self.type_names))
            raise CompileError(f"{self.name} has no type for {dtype}; it has {known}")
        return name

    def vector_name(self, scalar: DType) -> str:
        """What vectors of a type are named after: f32, i64, u8."""
        if scalar.kind == "bool":
            return "b8"
        letter = {"float": "f", "int": "i", "uint": "u"}[scalar.kind]
        return f"{letter if scalar in self.type_names else 'u'}{scalar.bitsize}"

    def literal(self, value: float, dtype: DType) -> str:
        """A constant of a scalar dtype, readable and exact."""
        if dtype.kind == "bool":
            return "true" if value else "false"
        if dtype.kind == "float" and dtype in self.type_names:
            return self.float_literal(float(value), dtype)
        number = bits_of(value, dtype) if dtype.kind == "float" else int(value)
        if dtype.kind == "float" or dtype.bitsize < 32:
            return str(number)
        suffix = "u" if dtype.kind == "uint" else ""
        suffix += self.long_suffix if dtype.bitsize == 64 else ""
        if number == dtype.min and number < 0:
            # C has no negative literals, and this one's magnitude does not fit
            return f"(-{-(number + 1)}{suffix} - 1)"
        return f"{number}{suffix}"

    def float_literal(self, value: float, dtype: DType) -> str:
        if math.isnan(value):
            return self.not_a_number
        if math.isinf(value):
            return self.infinity if value > 0 else f"(-{self.infinity})"
        text = shortest_float32(value) if dtype is dtypes.float32 else repr(value)
        if "." not in text and "e" not in text:
            text += ".0"
        return text + ("f" if dtype is dtypes.float32 else "")

    # ------------------------------------------------------------ rendering
    def render(self, name: str, uops: Sequence[UOp]) -> str:
        if not name.isidentifier() or not name.isascii():
            raise CompileError(f"{name!r} cannot be the name of a C function; take letters and _")
        return self.writer(uops).text(name)

    def writer(self, uops: Sequence[UOp]) -> Writer:
        """What writes a function in this language."""
        return Writer(self, uops)


class Writer:
    """One function while it is written."""

    def __init__(self, language: CStyle, uops: Sequence[UOp]) -> None:
        self.language = language
        self.uops = uops
        self.names: dict[UOp, str] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.uses = Counter(source for uop in uops for source in uop.src)
        # vectors that nothing needs but lane by lane have no name
        self.whole = {source for uop in uops if not self.is_by_lanes(uop) for source in uop.src}
        self.counts: Counter[str] = Counter()

    def text(self, name: str) -> str:
        params = program_params(self.uops)
        for param in params:
            self.names[param] = self.language.parameter_name(param)
        for variable in program_variables(self.uops):
            self.names[variable] = variable.arg.name
        for uop in self.uops:
            statement = _STATEMENTS.get(uop.op)
            if statement is not None:
                statement(self, uop)
            elif uop.op not in _SILENT and (uop.op is not Ops.VECTORIZE or uop in self.whole):
                self.define(uop)
        head = self.language.head(name, self.uops, params)
        return "\n".join([*head, *self.lines, *self.language.foot(), ""])

    def write(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] += 1
        return f"{prefix}{self.counts[prefix] - 1}"

    def operand(self, uop: UOp) -> str:
        """A source's text. Constants need not stand in the program."""
        name = self.names.get(uop)
        if name is None:
            if uop.op in _INLINE_ANYWHERE:
                name = self.names[uop] = self.expression(uop)
            else:
                raise CompileError(f"{uop.op.name} is used before it stands in the program")
        return name

    def define(self, uop: UOp) -> None:
        """Gives a value its text: a name, or the expression itself where it is used once."""
        if uop.op is Ops.LOAD:
            self.write_load(uop)
            return
        text = self.expression(uop)
        if uop.dtype.count == 1 and self.uses[uop] == 1 and len(text) <= _LONGEST_INLINE:
            self.names[uop] = text
            return
        self.names[uop] = name = self.fresh("alu")
        self.write(self.language.declare(uop.dtype, name, strip(text)))

    # ------------------------------------------------------------ expressions
    def expression(self, uop: UOp) -> str:
        op, language = uop.op, self.language
        if op is Ops.CONST:
            return language.literal(uop.arg, uop.dtype)
        if op is Ops.VECTORIZE:
            return language.vector(uop.dtype, [strip(self.operand(s)) for s in uop.src])
        if op is Ops.GEP:
            count = uop.src[0].dtype.count
            names = [self.operand(s) for s in uop.src]
            taken = [language.lane(names[lane // count], lane % count) for lane in uop.arg]
            return taken[0] if len(taken) == 1 else language.vector(uop.dtype, taken)
        if op not in GroupOp.Elementwise:
            raise CompileError(f"{op.name} was asked for in C, which has no form of it")
        if uop.dtype.count == 1:
            return self.scalar(uop, self.scalar_operands(uop))
        if not self.is_by_lanes(uop):
            operands = [self.operand(s) for s in uop.src]
            return f"({operands[0]} {INFIX[op]} {operands[1]})"
        lanes = []
        for k in range(uop.dtype.count):
            lanes.append(strip(self.scalar(uop, tuple(self.lane(s, k) for s in uop.src))))
        return language.vector(uop.dtype, lanes)

    def is_by_lanes(self, uop: UOp) -> bool:
        """Whether an op on vectors is written as one on the lanes."""
        if uop.op not in GroupOp.Elementwise or uop.dtype.count == 1:
            return False
        language, dtype = self.language, uop.dtype
        is_own = uop.op in language.vector_ops and dtype.kind in language.vector_kinds
        return not (is_own and language.has_vectors(dtype))

    def lane(self, uop: UOp, lane: int) -> str:
        """One lane of an operand."""
        if uop.op is Ops.VECTORIZE:
            return self.operand(uop.src[lane])
        return self.language.lane(self.name_of(uop, self.operand(uop)), lane)

    def scalar_operands(self, uop: UOp) -> tuple[str, ...]:
        """Beside a wide variable a small constant needs no suffix, but as what is shifted."""
        if uop.op in INFIX and uop.op is not Ops.SHL and uop.src[0].op is not Ops.CONST:
            return self.operand(uop.src[0]), self.plain(uop.src[1])
        return tuple(self.operand(s) for s in uop.src)

    def plain(self, uop: UOp) -> str:
        """An operand; a constant index as people write it."""
        if uop.op is Ops.CONST and uop.dtype is dtypes.int64 and abs(uop.arg) < 1 << 31:
            return str(uop.arg)
        return self.operand(uop)

    def name_of(self, uop: UOp, text: str) -> str:
        """A vector operand must have a name, for its lanes are taken."""
        if text.isidentifier():
            return text
        name = self.fresh("vec")
        self.write(self.language.declare(uop.dtype, name, text))
        self.names[uop] = name
        return name

    def scalar(self, uop: UOp, operands: tuple[str, ...]) -> str:
        """An elementwise op on scalars, in parentheses where it needs them."""
        op, language = uop.op, self.language
        dtype, source = uop.dtype.scalar(), uop.src[0].dtype.scalar()
        if op is Ops.WHERE:
            return language.select(*operands)
        if op is Ops.CAST:
            return self.cast(operands[0], source, dtype)
        if op is Ops.BITCAST:
            same = language.type(source) == language.type(dtype)
            return operands[0] if same else language.reinterpret(operands[0], source, dtype)
        template = language.functions.get(op)
        if template is not None:
            return template(operands, dtype)
        if op is not Ops.NEG and op not in INFIX:
            raise CompileError(
                f"{op.name} was asked for; {type(language).__name__} prints "
                f"{', '.join(o.name for o in language.code_for_op)} and decomposed forms of others"
            )
        own = language.own_form(uop, operands)
        if own is not None:
            return own
        if op in _WRAPPING and dtype.kind == "int" and _may_wrap(uop):
            return self.wrapping(op, operands, dtype)
        text = (
            f"(-{operands[0]})" if op is Ops.NEG else f"({operands[0]} {INFIX[op]} {operands[1]})"
        )
        # C computes in int what is narrower
        narrow = dtype.kind in ("int", "uint") and dtype.bitsize < 32
        return f"({language.type(dtype)}){text}" if narrow else text

    def wrapping(self, op: Ops, operands: tuple[str, ...], dtype: DType) -> str:
        """Signed arithmetic through unsigned, where overflow is defined."""
        language = self.language
        # narrower ones would be promoted to a signed type
        unsigned = language.type(dtypes.uint64 if dtype.bitsize == 64 else dtypes.uint32)
        first = f"({unsigned}){operands[0]}"
        if op is Ops.NEG:
            text = f"(-{first})"
        elif op is Ops.SHL:
            text = f"({first} << {operands[1]})"
        else:
            text = f"({first} {INFIX[op]} ({unsigned}){operands[1]})"
        return f"({language.type(dtype)}){text}"

    def cast(self, operand: str, source: DType, target: DType) -> str:
        language = self.language
        for dtype in (source, target):
            if dtype not in language.native_dtypes:
                raise CompileError(
                    f"a cast from {source} to {target} reached C, but {dtype} is stored as bits on "
                    "this target; decompose the cast first"
                )
        return language.convert(operand, source, target)

    # ------------------------------------------------------------ memory
    def place(self, index: UOp, lane: int | None = None) -> tuple[UOp, str, str]:
        """The memory of an INDEX, its name, and the element, or that of one lane."""
        memory, idx = index.src[:2]
        if lane is not None and idx.dtype.count > 1:
            text = self.lane(idx, lane)
        else:
            text = self.plain(idx) if lane is None else beyond(self.plain(idx), lane)
        return memory, self.operand(memory), self.language.number_of(memory, text)

    def value_at(self, index: UOp, lane: int | None = None) -> str:
        """What is loaded from an INDEX, or by one lane of it; 0 where it is not valid."""
        condition = self.valid(index, lane)
        memory, name, idx = self.place(index, lane)
        text = self.language.element(memory, name, strip(idx))
        if condition is None:
            return text
        zero = self.language.literal(0, index.src[0].dtype)
        return strip(self.language.select(condition, text, zero))

    def valid(self, index: UOp, lane: int | None = None) -> str | None:
        """The condition of an access."""
        if len(index.src) < 3:
            return None
        condition = index.src[2]
        text = self.operand(condition)
        if lane is None or condition.dtype.count == 1:
            return text
        return self.language.lane(self.name_of(condition, text), lane)

    def write_own(self, uop: UOp) -> None:
        """What only one language has: operands are given with their conditions, INDEXes as
        addresses."""
        self.names[uop] = name = self.fresh("val")
        operands: list[tuple[str, str | None]] = []
        for source in uop.src:
            if source.op is Ops.INDEX:
                _, memory, idx = self.place(source)
                operands.append((f"{memory} + {idx}", self.valid(source)))
            else:
                text = self.operand(source)
                operands.append((strip(text), None))
        self.write(self.language.own_statement(uop, name, operands))

    def write_load(self, uop: UOp) -> None:
        if uop.arg is not None:
            self.write_own(uop)
            return
        language, index = self.language, uop.src[0]
        self.names[uop] = name = self.fresh("val")
        if index.op is Ops.ACC:
            self.write(language.declare(uop.dtype, name, self.operand(index)))
        elif uop.dtype.count == 1:
            self.write(language.declare(uop.dtype, name, self.value_at(index)))
        elif index.src[1].dtype.count == 1 and len(index.src) < 3:
            for line in language.vector_load(name, uop.dtype, *self.place(index)):
                self.write(line)
        else:
            lanes = [self.value_at(index, k) for k in range(uop.dtype.count)]
            self.write(language.declare(uop.dtype, name, language.vector(uop.dtype, lanes)))

    def write_store(self, uop: UOp) -> None:
        index, value = uop.src[:2]
        text = self.operand(value)
        if isinstance(uop.arg, Unordered):
            self.write_combined(index, value, text, uop.arg.combine)
            return
        if value.dtype.count == 1:
            self.write_element(index, None, strip(text))
            return
        name = self.name_of(value, text)
        if index.src[1].dtype.count == 1 and len(index.src) < 3:
            for line in self.language.vector_store(name, value.dtype, *self.place(index)):
                self.write(line)
            return
        for k in range(value.dtype.count):
            self.write_element(index, k, self.language.lane(name, k))

    def write_combined(self, index: UOp, value: UOp, text: str, op: Ops) -> None:
        """Joins values with what is there, lane by lane."""
        count = value.dtype.count
        name = strip(text) if count == 1 else self.name_of(value, text)
        for lane in [None] if count == 1 else range(count):
            condition, (_, memory, idx) = self.valid(index, lane), self.place(index, lane)
            given = name if lane is None else self.language.lane(name, lane)
            line = self.language.combined(f"{memory}[{strip(idx)}]", given, value.dtype, op)
            self.write(line if condition is None else self.language.only_if(strip(condition), line))

    def write_element(self, index: UOp, lane: int | None, value: str) -> None:
        condition = self.valid(index, lane)
        memory, name, idx = self.place(index, lane)
        line = self.language.set_element(memory, name, strip(idx), value)
        self.write(line if condition is None else self.language.only_if(strip(condition), line))

    def write_local(self, uop: UOp) -> None:
        self.names[uop] = name = f"buf{uop.arg.number}"
        line = self.language.local_memory(uop, name)
        if line is not None:
            self.write(line)

    def write_special(self, uop: UOp) -> None:
        self.names[uop] = uop.arg
        self.write(self.language.declare(uop.dtype, uop.arg, self.language.special(uop)))

    # ------------------------------------------------------------ registers and control
    def write_acc(self, uop: UOp) -> None:
        start = strip(self.operand(uop.src[0]))
        self.names[uop] = name = f"acc{uop.arg}"
        self.write(self.language.declare(uop.dtype, name, start, changes=True))

    def write_acc_set(self, uop: UOp) -> None:
        self.write(f"{self.operand(uop.src[0])} = {strip(self.operand(uop.src[1]))};")

    def write_range(self, uop: UOp) -> None:
        self.names[uop] = name = self.fresh("ridx")
        # with its parentheses: it is compared, and an `and` of bits binds less than that
        start, stop = "0", self.plain(uop.src[0])
        if uop.arg.kind is AxisType.THREAD:
            start, stop = "begin", "end"
        self.write(self.language.loop(uop.dtype, name, start, stop))
        self.depth += 1

    def write_if(self, uop: UOp) -> None:
        self.write(f"if ({strip(self.operand(uop.src[0]))}) {{")
        self.depth += 1

    def write_close(self, uop: UOp) -> None:
        self.depth -= 1
        self.write("}")

    def write_barrier(self, uop: UOp) -> None:
        self.write(self.language.barrier())


_STATEMENTS: dict[Ops, Callable[[Writer, UOp], None]] = {
    Ops.STORE: Writer.write_store,
    Ops.LOCAL: Writer.write_local,
    Ops.SPECIAL: Writer.write_special,
    Ops.ACC: Writer.write_acc,
    Ops.ACC_SET: Writer.write_acc_set,
    Ops.RANGE: Writer.write_range,
    Ops.IF: Writer.write_if,
    Ops.END: Writer.write_close,
    Ops.ENDIF: Writer.write_close,
    Ops.BARRIER: Writer.write_barrier,
    **dict.fromkeys((Ops.WMMA, Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE), Writer.write_own),
    **dict.fromkeys((Ops.SCAN, Ops.RANK, Ops.MOVE, Ops.SHUFFLE), Writer.write_own),
}
_SILENT = frozenset({Ops.PARAM, Ops.VARIABLE, Ops.CONST, Ops.INDEX, Ops.SINK})
_INLINE_ANYWHERE = frozenset({Ops.CONST, Ops.VECTORIZE})


def _may_wrap(uop: UOp) -> bool:
    """Whether a signed result may leave its range; narrower bounds prove that it cannot."""
    dtype = uop.dtype.scalar()
    return bool(uop.vmin <= dtype.min and uop.vmax >= dtype.max) or uop.op is Ops.SHL


def strip(text: str) -> str:
    """Without the outermost parentheses, where they are one pair."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


def beyond(idx: str, lane: int) -> str:
    """The index some elements further."""
    return f"{idx} + {lane}" if lane else strip(idx)


def shortest_float32(value: float) -> str:
    """The shortest decimal that reads back as this float32.

    >>> shortest_float32(0.10000000149011612)
    '0.1'
    """
    bits = struct.pack("<f", value)
    for digits in range(1, 10):
        text = repr(float(f"{value:.{digits}g}"))
        # a decimal just above the largest float32 reads back as infinity
        if abs(float(text)) < 3.4028235677973366e38 and struct.pack("<f", float(text)) == bits:
            return text
    return repr(value)
