"""THE op table: one row per op, for every stage from the first Tensor to the last instruction.

What comes in: nothing. What goes out: `Ops` (names), `OPSET` (rows), `GroupOp` (sets of ops).
Where it sits: whoever needs a fact about an op (arity, dtype, shape, edges, cost) asks its row.
The one invariant: an op that has no row does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from weft.uop.spelling import ABSENT, SPELLED, Spelling

# a tag of EXP2: its operand is at most 0, or nan, and a result that is not a normal number may be 0
FALLING = "falling"
# tag of an FDIV: the divisor is from 1 to 2 and the quotient at most 1, and it may be off by two
# units in the last place, or be 0 if not a normal number
BOUNDED = "bounded"
# tag of an ADD that is a step of a sum: it may take in a product that is not rounded
SUMMING = "summing"


class Ops(Enum):
    """Every op of the one IR; the meaning of each is in its row of `OPSET`."""

    # leaves
    CONST = auto()
    VARIABLE = auto()
    BIND = auto()
    BUFFER = auto()
    PARAM = auto()
    IOTA = auto()
    # movement
    RESHAPE = auto()
    PERMUTE = auto()
    EXPAND = auto()
    PAD = auto()
    SHRINK = auto()
    FLIP = auto()
    STRIDE = auto()
    # other tensor-level ops
    CAT = auto()
    GATHER = auto()
    REDUCE_AXIS = auto()
    CONTIGUOUS = auto()
    CONTIGUOUS_BACKWARD = auto()
    DETACH = auto()
    FUNCTION = auto()
    HOST = auto()
    COPY = auto()
    ALLREDUCE = auto()
    AFTER = auto()
    # elementwise: unary
    NEG = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    SQRT = auto()
    TRUNC = auto()
    # elementwise: binary
    ADD = auto()
    MUL = auto()
    FDIV = auto()
    IDIV = auto()
    MOD = auto()
    MAX = auto()
    POW = auto()
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()
    THREEFRY = auto()
    # elementwise: ternary
    WHERE = auto()
    MULACC = auto()
    MULADD = auto()
    # elementwise: types
    CAST = auto()
    BITCAST = auto()
    # kernels: expressions over ranges
    RANGE = auto()
    SPECIAL = auto()
    INDEX = auto()
    LOAD = auto()
    STORE = auto()
    REDUCE = auto()
    STAGE = auto()
    RUNNING = auto()
    RESCALED = auto()
    # programs: what only a linear program has
    LOCAL = auto()
    ACC = auto()
    ACC_SET = auto()
    END = auto()
    IF = auto()
    ENDIF = auto()
    BARRIER = auto()
    FETCH = auto()
    COMMIT = auto()
    WAIT = auto()
    SETTLE = auto()
    VECTORIZE = auto()
    GEP = auto()
    WMMA = auto()
    SCAN = auto()
    RANK = auto()
    MOVE = auto()
    SHUFFLE = auto()
    SINK = auto()
    NOOP = auto()
    # other names of some
    FLOORDIV = IDIV
    FLOORMOD = MOD
    STACK = VECTORIZE
    GROUP = SINK

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    def __lt__(self, other: Ops) -> bool:
        return bool(self.value < other.value)

    __str__ = __repr__
    # members are singletons, and hashing by identity is several times faster than Enum's own
    __hash__ = object.__hash__


for _name in (*SPELLED, *ABSENT):
    setattr(Ops, _name, Spelling(_name))


class Shape(Enum):
    """How an op's shape follows from its sources (`infer.py` holds the functions)."""

    SCALAR = auto()  # ()
    SAME = auto()  # the first source's
    ELEMENTWISE = auto()  # all shaped sources agree; () operands broadcast
    OWN = auto()  # a rule of the op's own
    NONE = auto()  # has no value (effects, control)


class Typing(Enum):
    """How an op's dtype relates to its sources (`spec.py` checks it)."""

    GIVEN = auto()  # by its creator
    SAME = auto()  # the first source's
    ALL_SAME = auto()  # every source's, all equal
    COMPARE = auto()  # sources equal, result bool
    WHERE = auto()  # (bool, T, T) -> T
    SHIFT = auto()  # ints; both sources equal
    VOID = auto()


@dataclass(frozen=True)
class OpRow:
    """Everything that is a fact about one op."""

    op: Ops
    arity: int | tuple[int, int | None]  # number of sources, or (least, most)
    shape: Shape
    typing: Typing
    meaning: str
    total: str = ""  # what it gives where mathematics is silent
    # which dtypes elementwise ops take: any, float, int, number, bits (int or bool)
    on: str = "any"
    commutative: bool = False
    associative: bool = False
    idempotent: bool = False
    identity: float | None = None  # neutral element of a reduction with this op (MAX: dtype min)
    # vector instructions of one element where a machine has none of its own for it
    cost: float = 1.0
    groups: str = ""  # sets of ops that it is in and that the other columns do not give


_VIEW, _FIXED = "movement view", "irreducible"

_ROWS = (
    # ------------------------------------------------------------ leaves
    OpRow(Ops.CONST, 0, Shape.SCALAR, Typing.GIVEN, "the number in arg", groups=_FIXED),
    OpRow(
        Ops.VARIABLE, 0, Shape.SCALAR, Typing.GIVEN, "a run-time int, VariableArg", groups=_FIXED
    ),
    OpRow(
        Ops.BIND,
        2,
        Shape.SCALAR,
        Typing.SAME,
        "(VARIABLE, CONST): the variable with a value",
        groups=_FIXED,
    ),
    OpRow(
        Ops.BUFFER,
        0,
        Shape.OWN,
        Typing.GIVEN,
        "storage on a device, arg BufferArg",
        groups="storage memory",
    ),
    OpRow(
        Ops.PARAM,
        0,
        Shape.OWN,
        Typing.GIVEN,
        "buffer number slot of a kernel, arg ParamArg",
        groups="storage memory irreducible",
    ),
    OpRow(Ops.IOTA, (0, 1), Shape.OWN, Typing.GIVEN, "0, 1, ... n-1; arg n, or None and src n"),
    # ------------------------------------------------------------ movement
    OpRow(
        Ops.RESHAPE, (1, None), Shape.OWN, Typing.SAME, "the same in another shape", groups=_VIEW
    ),
    OpRow(Ops.PERMUTE, 1, Shape.OWN, Typing.SAME, "axes in the order of arg", groups=_VIEW),
    OpRow(
        Ops.EXPAND,
        (1, None),
        Shape.OWN,
        Typing.SAME,
        "axes of size 1 repeated to arg",
        groups="movement",
    ),
    OpRow(
        Ops.PAD,
        (1, None),
        Shape.OWN,
        Typing.SAME,
        "zeros around; arg ((before, after), ...)",
        groups="movement",
    ),
    OpRow(
        Ops.SHRINK,
        (1, None),
        Shape.OWN,
        Typing.SAME,
        "a box; arg ((start, stop), ...)",
        groups=_VIEW,
    ),
    OpRow(Ops.FLIP, 1, Shape.OWN, Typing.SAME, "axes reversed; arg a bool per axis", groups=_VIEW),
    OpRow(
        Ops.STRIDE,
        1,
        Shape.OWN,
        Typing.SAME,
        "every arg[i]-th element of axis i, from the first",
        groups=_VIEW,
    ),
    # ------------------------------------------------------------ other tensor-level ops
    OpRow(Ops.CAT, (1, None), Shape.OWN, Typing.ALL_SAME, "sources one after another on axis arg"),
    OpRow(
        Ops.GATHER,
        (2, None),
        Shape.OWN,
        Typing.SAME,
        "(src, index...): arg axes of src are replaced by the indices' common shape, put first",
        "negative indices wrap once; outside reads 0",
    ),
    OpRow(Ops.REDUCE_AXIS, 1, Shape.OWN, Typing.SAME, "arg ReduceArg; reduced axes keep size 1"),
    OpRow(Ops.CONTIGUOUS, 1, Shape.SAME, Typing.SAME, "the same value, stored in row-major order"),
    OpRow(Ops.CONTIGUOUS_BACKWARD, 1, Shape.SAME, Typing.SAME, "its gradient is stored"),
    OpRow(Ops.DETACH, 1, Shape.SAME, Typing.SAME, "no gradient passes"),
    OpRow(
        Ops.FUNCTION,
        (1, None),
        Shape.SAME,
        Typing.SAME,
        "(value, input...): the value; its gradient goes to the inputs by the rule of FunctionArg",
    ),
    OpRow(
        Ops.HOST,
        (1, None),
        Shape.OWN,
        Typing.GIVEN,
        "(input...): one result of a function of the host, or of the kernels in its place; HostArg",
    ),
    OpRow(Ops.COPY, 1, Shape.SAME, Typing.SAME, "the value on the device named by arg"),
    OpRow(Ops.ALLREDUCE, 1, Shape.SAME, Typing.SAME, "shards combined with op arg on every device"),
    OpRow(
        Ops.AFTER, (1, None), Shape.SAME, Typing.SAME, "src[0] once the effects src[1:] happened"
    ),
    # ------------------------------------------------------------ elementwise: unary
    OpRow(Ops.NEG, 1, Shape.ELEMENTWISE, Typing.SAME, "-x", "ints wrap", on="number", cost=0.5),
    OpRow(Ops.EXP2, 1, Shape.ELEMENTWISE, Typing.SAME, "2**x", "overflow inf", on="float", cost=14),
    OpRow(
        Ops.LOG2,
        1,
        Shape.ELEMENTWISE,
        Typing.SAME,
        "log2(x)",
        "0: -inf; x<0: nan",
        on="float",
        cost=20,
    ),
    OpRow(Ops.SIN, 1, Shape.ELEMENTWISE, Typing.SAME, "sin(x)", "inf: nan", on="float", cost=40),
    OpRow(
        Ops.SQRT, 1, Shape.ELEMENTWISE, Typing.SAME, "square root", "x<0: nan", on="float", cost=4
    ),
    OpRow(Ops.TRUNC, 1, Shape.ELEMENTWISE, Typing.SAME, "towards zero", "-0.5: -0.0", on="float"),
    # ------------------------------------------------------------ elementwise: binary
    OpRow(
        Ops.ADD,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "x + y",
        "ints wrap",
        on="number",
        commutative=True,
        associative=True,
        identity=0,
        groups="reduce",
    ),
    OpRow(
        Ops.MUL,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "x * y",
        "ints wrap",
        on="number",
        commutative=True,
        associative=True,
        identity=1,
        groups="reduce",
    ),
    OpRow(
        Ops.FDIV, 2, Shape.ELEMENTWISE, Typing.ALL_SAME, "x / y", "as IEEE 754", on="float", cost=4
    ),
    OpRow(
        Ops.IDIV,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "floor(x / y), as Python's //",
        "y=0: 0; least // -1 wraps",
        on="int",
        cost=10,
    ),
    OpRow(
        Ops.MOD,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "x - y*floor(x / y), as Python's %",
        "y=0: 0",
        on="int",
        cost=10,
    ),
    OpRow(
        Ops.MAX,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "the greater",
        "nan wins; max(-0.0, 0.0) is 0.0",
        commutative=True,
        associative=True,
        idempotent=True,
        cost=2,
        groups="reduce",
    ),
    OpRow(
        Ops.POW, 2, Shape.ELEMENTWISE, Typing.ALL_SAME, "x**y", "as C's pow", on="float", cost=60
    ),
    OpRow(Ops.CMPLT, 2, Shape.ELEMENTWISE, Typing.COMPARE, "x < y", "nan: False", cost=0.5),
    OpRow(
        Ops.CMPNE,
        2,
        Shape.ELEMENTWISE,
        Typing.COMPARE,
        "x != y",
        "nan: True",
        commutative=True,
        cost=0.5,
    ),
    OpRow(
        Ops.CMPEQ,
        2,
        Shape.ELEMENTWISE,
        Typing.COMPARE,
        "x == y",
        "nan: False",
        commutative=True,
        cost=0.5,
    ),
    OpRow(
        Ops.AND,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "bitwise and",
        on="bits",
        commutative=True,
        associative=True,
        idempotent=True,
    ),
    OpRow(
        Ops.OR,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "bitwise or",
        on="bits",
        commutative=True,
        associative=True,
        idempotent=True,
    ),
    OpRow(
        Ops.XOR,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "bitwise exclusive or",
        on="bits",
        commutative=True,
        associative=True,
    ),
    OpRow(
        Ops.SHL,
        2,
        Shape.ELEMENTWISE,
        Typing.SHIFT,
        "x << y, wrapping",
        "y read as unsigned; y >= width: 0",
        on="int",
    ),
    OpRow(
        Ops.SHR,
        2,
        Shape.ELEMENTWISE,
        Typing.SHIFT,
        "x >> y, arithmetic for signed x",
        "y read as unsigned; y >= width: 0, or -1 for negative x",
        on="int",
    ),
    OpRow(
        Ops.THREEFRY,
        2,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "Threefry-2x32-20 of Random123: (counter, key) uint64 -> uint64; word 0 is the low half",
        on="int",
        cost=150,
    ),
    # ------------------------------------------------------------ elementwise: ternary and types
    OpRow(Ops.WHERE, 3, Shape.ELEMENTWISE, Typing.WHERE, "y where c else z", cost=0.5),
    OpRow(Ops.MULACC, 3, Shape.ELEMENTWISE, Typing.ALL_SAME, "x * y + z, once rounded", on="float"),
    OpRow(
        Ops.MULADD,
        3,
        Shape.ELEMENTWISE,
        Typing.ALL_SAME,
        "x * y + z, rounded twice, or once where the target can",
        "as MUL and ADD, or as MULACC",
        on="float",
    ),
    OpRow(
        Ops.CAST,
        1,
        Shape.ELEMENTWISE,
        Typing.GIVEN,
        "the value in another dtype; floats round to nearest even, ints wrap",
        "float to int saturates, nan: 0; to bool: x != 0",
        groups="conversion",
    ),
    OpRow(
        Ops.BITCAST,
        1,
        Shape.OWN,
        Typing.GIVEN,
        "the same bits; another size: the last axis",
        groups="conversion",
    ),
    # ------------------------------------------------------------ kernels
    OpRow(
        Ops.RANGE,
        1,
        Shape.SCALAR,
        Typing.GIVEN,
        "(size,): an axis, 0 <= value < size; RangeArg",
        groups=_FIXED,
    ),
    OpRow(
        Ops.SPECIAL,
        1,
        Shape.SCALAR,
        Typing.GIVEN,
        "(size,): a hardware index named by arg",
        groups=_FIXED,
    ),
    OpRow(
        Ops.INDEX,
        (2, 3),
        Shape.SCALAR,
        Typing.SAME,
        "(memory, index[, valid]): an element, or where valid is false no element",
    ),
    OpRow(
        Ops.LOAD,
        (1, 2),
        Shape.SCALAR,
        Typing.GIVEN,
        "(INDEX): its element; (ACC, when): the register's value at that point",
        "invalid index: 0",
    ),
    OpRow(
        Ops.STORE,
        (2, None),
        Shape.NONE,
        Typing.VOID,
        "(place, value, RANGE...): in kernels place is an INDEX and the ranges are closed; "
        "in tensor graphs place is a view of a BUFFER, also through a GATHER, and arg may be an "
        "op that combines the value with what is there, one after another; Unordered: by "
        "instructions that need no order",
        "invalid index: nothing is written",
    ),
    OpRow(Ops.REDUCE, (1, None), Shape.SCALAR, Typing.SAME, "(value, RANGE...) with the op in arg"),
    OpRow(
        *(Ops.STAGE, (1, None), Shape.OWN, Typing.SAME),
        "(value, RANGE...): fast memory filled with value over the ranges, row-major; StageArg",
        groups="memory",
    ),
    # in its loop; arg: whether with this round's value
    OpRow(Ops.RUNNING, 2, Shape.SCALAR, Typing.SAME, "(REDUCE, RANGE): the reduction so far"),
    OpRow(Ops.RESCALED, 2, Shape.SCALAR, Typing.SAME, "(value, factor): the sum before times it"),
    # ------------------------------------------------------------ programs
    OpRow(Ops.LOCAL, 0, Shape.OWN, Typing.GIVEN, "fast memory, arg LocalArg", groups="memory"),
    OpRow(Ops.ACC, 1, Shape.SCALAR, Typing.SAME, "(initial value,): a register, arg its number"),
    OpRow(Ops.ACC_SET, 2, Shape.NONE, Typing.VOID, "(ACC, value): the register's new value"),
    OpRow(Ops.END, 1, Shape.NONE, Typing.VOID, "(RANGE,): the end of its loop"),
    OpRow(Ops.IF, 1, Shape.NONE, Typing.VOID, "(condition,): up to ENDIF only if true"),
    OpRow(Ops.ENDIF, 1, Shape.NONE, Typing.VOID, "(IF,)"),
    OpRow(Ops.BARRIER, (0, None), Shape.NONE, Typing.VOID, "a group's threads wait for each other"),
    OpRow(Ops.FETCH, 2, Shape.NONE, Typing.VOID, "(INDEX, INDEX): arg elements of the second"),
    OpRow(Ops.COMMIT, (0, None), Shape.NONE, Typing.VOID, "ends a group of a thread's FETCHes"),
    OpRow(Ops.WAIT, (0, None), Shape.NONE, Typing.VOID, "for all such groups but the last arg[0]"),
    OpRow(Ops.SETTLE, (0, None), Shape.NONE, Typing.VOID, "(sums): WMMAs but the last arg[0] end"),
    OpRow(Ops.VECTORIZE, (1, None), Shape.SCALAR, Typing.GIVEN, "scalars as lanes of one vector"),
    # one lane is a scalar; lanes of `more` count on from the first's
    OpRow(Ops.GEP, (1, 2), Shape.SCALAR, Typing.GIVEN, "(vector, more): the lanes in arg"),
    # in kernels (A, B, register, RANGE...): one register of a product of operands over the ranges
    OpRow(Ops.WMMA, (3, None), Shape.SCALAR, Typing.GIVEN, "(A, B, C) fragments: A @ B + C"),
    # in kernels the second source is the element's place, in programs memory that the group shares
    OpRow(
        Ops.SCAN, 2, Shape.SCALAR, Typing.GIVEN, "(value, LOCAL): with those before in the group"
    ),
    OpRow(Ops.RANK, 2, Shape.SCALAR, Typing.GIVEN, "(digit, LOCAL): equals before, all << 16"),
    OpRow(
        Ops.MOVE, 3, Shape.SCALAR, Typing.GIVEN, "(value, place, LOCAL): sums of those sent here"
    ),
    OpRow(Ops.SHUFFLE, 1, Shape.SCALAR, Typing.SAME, "that of the lane at a number xor arg"),
    OpRow(
        Ops.SINK, (0, None), Shape.NONE, Typing.VOID, "keeps its sources together; arg KernelInfo"
    ),
    OpRow(Ops.NOOP, (0, None), Shape.NONE, Typing.GIVEN, "nothing: for rule sets and tests"),
)

OPSET: dict[Ops, OpRow] = {row.op: row for row in _ROWS}


def _elementwise(arity: int) -> frozenset[Ops]:
    """Ops that compute an element out of `arity` others; not those that only change its type."""
    return frozenset(
        row.op
        for row in _ROWS
        if row.shape is Shape.ELEMENTWISE and row.arity == arity and not row.groups == "conversion"
    )


def _group(name: str) -> frozenset[Ops]:
    return frozenset(row.op for row in _ROWS if name in row.groups.split())


class GroupOp:
    """Sets of ops, for patterns and tests: all of them follow from the rows."""

    Unary = _elementwise(1)
    Binary = _elementwise(2)
    Ternary = _elementwise(3)
    ALU = Unary | Binary | Ternary
    Elementwise = ALU | _group("conversion")
    Movement = _group("movement")
    # movement whose result can be written through: every element of the view is one of the source
    View = _group("view")
    Comparison = frozenset(row.op for row in _ROWS if row.typing is Typing.COMPARE)
    Commutative = frozenset(row.op for row in _ROWS if row.commutative)
    Associative = frozenset(row.op for row in _ROWS if row.associative)
    Idempotent = frozenset(row.op for row in _ROWS if row.idempotent)
    Reduce = _group("reduce")
    Broadcastable = Binary | Ternary
    Defines = _group("storage")
    Irreducible = _group("irreducible")
    Memory = _group("memory")
    All = frozenset(Ops)
