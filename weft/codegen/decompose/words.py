"""A linear program while it is written anew, word by word.

In: nodes, one after another. Out: the list, with each new value placed at the outermost loop that
its sources are in, and folded where they are constants. Sits below `pairs`, which computes with
64-bit integers as two words, and `longs`, which walks a program.
Invariant: a node stands in the list once, after its sources and inside their loops; only values
without effects are moved out of the loop that is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.args import AxisType, RangeArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

WORD = dtypes.uint32
_MASK = 0xFFFFFFFF


class Words:
    """Writes a program; the methods compute with words of 32 bits, lane by lane."""

    def __init__(self, uops: Sequence[UOp]) -> None:
        self._constants: dict[UOp, None] = {}
        # of each block that is open, what stands in it so far; the first is the program
        self._blocks: list[list[UOp]] = [[]]
        self._depth: dict[UOp, int] = {}
        self._registers = max((u.arg for u in uops if u.op is Ops.ACC), default=-1) + 1
        numbers = [u.arg.number[0] for u in uops if u.op is Ops.RANGE]
        self._loops = max(numbers, default=-1) + 1

    def program(self) -> list[UOp]:
        """All that was written."""
        return [*self._constants, *self._blocks[0]]

    # ------------------------------------------------------------ placing
    def write(self, node: UOp) -> UOp:
        """Where the program stands now: effects, and what depends on the order."""
        if node.op is Ops.CONST:
            self._constants.setdefault(node)
            self._depth[node] = 0
            return node
        if node in self._depth:
            return node
        if node.op in (Ops.END, Ops.ENDIF):
            self._close(node)
            return node
        for source in node.src:
            self._need(source)
        if node.op in (Ops.RANGE, Ops.IF):
            self._blocks.append([])
        self._blocks[-1].append(node)
        self._depth[node] = len(self._blocks) - 1
        return node

    def place(self, node: UOp) -> UOp:
        """A value, outside of all loops that none of its sources is in."""
        if node.op is Ops.CONST or node in self._depth:
            return self.write(node)
        for source in node.src:
            self._need(source)
        depth = max([self._depth[source] for source in node.src], default=0)
        self._blocks[depth].append(node)
        self._depth[node] = depth
        return node

    def _need(self, source: UOp) -> None:
        """Constants, and vectors of them, come without being asked for."""
        if source not in self._depth and source.op in (Ops.CONST, Ops.VECTORIZE):
            self.place(source)

    def _close(self, node: UOp) -> None:
        inner = self._blocks.pop()
        # what is inside cannot be seen any more
        for known in inner:
            self._depth.pop(known, None)
        self._blocks[-1] += [*inner, node]
        self._depth[node] = len(self._blocks) - 1

    # ------------------------------------------------------------ registers and loops
    def register(self, start: UOp) -> UOp:
        """A new register."""
        made = self.write(UOp(Ops.ACC, start.dtype, (start,), self._registers))
        self._registers += 1
        return made

    def loop(self, rounds: int) -> UOp:
        """Opens a loop; `close` ends it."""
        size = self.constant(rounds, dtypes.int32)
        argument = RangeArg((self._loops,), AxisType.LOOP)
        self._loops += 1
        return self.write(UOp(Ops.RANGE, dtypes.int32, (size,), argument))

    def close(self, loop: UOp) -> UOp:
        """The end of a loop."""
        return self.write(UOp(Ops.END, dtypes.void, (loop,)))

    def read(self, register: UOp, after: UOp) -> UOp:
        """What a register holds after the last effect on it."""
        return self.write(UOp(Ops.LOAD, register.dtype, (register, after)))

    def set(self, register: UOp, value: UOp) -> UOp:
        """Changes a register."""
        return self.write(UOp(Ops.ACC_SET, dtypes.void, (register, value)))

    # ------------------------------------------------------------ values
    def constant(self, value: Any, dtype: DType = WORD) -> UOp:
        """A number, in every lane."""
        return UOp.const(dtype, value)

    def make(self, op: Ops, dtype: DType, *src: UOp, tag: str | None = None) -> UOp:
        """An op on words, folded where that is easy."""
        folded = _fold(op, dtype, src)
        return self.place(UOp(op, dtype, src, None, tag)) if folded is None else folded

    def like(self, value: Any, x: UOp, dtype: DType = WORD) -> UOp:
        """A number in as many lanes as x has."""
        return self.constant(value, dtype.vec(x.dtype.count))

    def _with(self, x: UOp, y: UOp | int) -> UOp:
        return y if isinstance(y, UOp) else UOp.const(x.dtype, y)

    def add(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.ADD, x.dtype, x, self._with(x, y))

    def subtract(self, x: UOp, y: UOp) -> UOp:
        negative = self.make(Ops.NEG, y.dtype, y)
        return self.make(Ops.ADD, x.dtype, x, negative)

    def multiply(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.MUL, x.dtype, x, self._with(x, y))

    def bits_and(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.AND, x.dtype, x, self._with(x, y))

    def bits_or(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.OR, x.dtype, x, self._with(x, y))

    def bits_xor(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.XOR, x.dtype, x, self._with(x, y))

    def left(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.SHL, x.dtype, x, self._with(x, y), tag="raw")

    def right(self, x: UOp, y: UOp | int) -> UOp:
        return self.make(Ops.SHR, x.dtype, x, self._with(x, y), tag="raw")

    def divide(self, x: UOp, y: UOp) -> UOp:
        return self.make(Ops.IDIV, x.dtype, x, y, tag="raw")

    def less(self, x: UOp, y: UOp | int) -> UOp:
        truth = dtypes.bool.vec(x.dtype.count)
        return self.make(Ops.CMPLT, truth, x, self._with(x, y))

    def equal(self, x: UOp, y: UOp | int) -> UOp:
        truth = dtypes.bool.vec(x.dtype.count)
        return self.make(Ops.CMPEQ, truth, x, self._with(x, y))

    def where(self, condition: UOp, yes: UOp, no: UOp) -> UOp:
        return yes if yes is no else self.make(Ops.WHERE, yes.dtype, condition, yes, no)

    def number(self, truth: UOp) -> UOp:
        """1 or 0."""
        return self.make(Ops.CAST, WORD.vec(truth.dtype.count), truth)

    def signed(self, x: UOp) -> UOp:
        """The bits as an int32."""
        return self.bits_as(x, dtypes.int32)

    def unsigned(self, x: UOp) -> UOp:
        """The bits of an int32."""
        return self.bits_as(x, WORD)

    def bits_as(self, x: UOp, dtype: DType) -> UOp:
        """The bits as another type of 32 bits."""
        target = dtype.vec(x.dtype.count)
        if x.dtype is target:
            return x
        if x.op is Ops.BITCAST and x.src[0].dtype is target:
            return x.src[0]
        return self.make(Ops.BITCAST, target, x)

    def sign_of(self, x: UOp) -> UOp:
        """All ones where x, as an int32, is negative, else 0."""
        return self.unsigned(self.right(self.signed(x), 31))

    def lanes(self, x: UOp) -> list[UOp]:
        """Each lane by itself."""
        if x.dtype.count == 1:
            return [x]
        if x.op is Ops.VECTORIZE:
            return list(x.src)
        scalar = x.dtype.scalar()
        return [self.place(UOp(Ops.GEP, scalar, (x,), (k,))) for k in range(x.dtype.count)]

    def vector(self, lanes: Sequence[UOp]) -> UOp:
        """Lanes as one value."""
        if len(lanes) == 1:
            return lanes[0]
        return self.place(UOp(Ops.VECTORIZE, lanes[0].dtype.vec(len(lanes)), tuple(lanes)))


def constant_of(x: UOp) -> Any:
    """The number that x is in every lane, or None."""
    if x.op is Ops.CONST:
        return x.arg
    if x.op is Ops.VECTORIZE and x.src[0].op is Ops.CONST and len(set(x.src)) == 1:
        return x.src[0].arg
    return None


def _wrapped(value: int, dtype: DType) -> int:
    value &= _MASK
    return value - (1 << 32) if dtype.kind == "int" and value >> 31 else value


# of numbers that are in the range of their dtype, int32 or uint32
_VALUES: dict[Ops, Callable[[int, int], int]] = {
    Ops.ADD: lambda x, y: x + y,
    Ops.MUL: lambda x, y: x * y,
    Ops.AND: lambda x, y: x & y,
    Ops.OR: lambda x, y: x | y,
    Ops.XOR: lambda x, y: x ^ y,
    Ops.SHL: lambda x, y: x << y,
    Ops.SHR: lambda x, y: x >> y,
    Ops.IDIV: lambda x, y: x // y,
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPEQ: lambda x, y: x == y,
}
# x op number that is x again
_NEUTRAL = {Ops.ADD: 0, Ops.MUL: 1, Ops.OR: 0, Ops.XOR: 0, Ops.SHL: 0, Ops.SHR: 0, Ops.AND: _MASK}
_COMMUTE = frozenset({Ops.ADD, Ops.MUL, Ops.OR, Ops.XOR, Ops.AND})


def _fold(op: Ops, dtype: DType, src: tuple[UOp, ...]) -> UOp | None:
    """The result where constants decide it."""
    if src[0].dtype.kind == "float":
        return None
    known = [constant_of(x) for x in src]
    if op is Ops.WHERE:
        return None if known[0] is None else src[1] if known[0] else src[2]
    if op in (Ops.CAST, Ops.NEG, Ops.BITCAST):
        return _fold_unary(op, dtype, known[0])
    if op not in _VALUES:
        return None
    if known[0] is not None and known[1] is not None:
        value = _VALUES[op](known[0], known[1])
        return UOp.const(dtype, value if dtype.kind == "bool" else _wrapped(value, dtype))
    if dtype.kind == "bool":
        return None
    if known[0] is not None and op in _COMMUTE:
        src, known = src[::-1], known[::-1]
    if known[1] is not None and known[1] == _NEUTRAL.get(op):
        return src[0]
    if op in (Ops.MUL, Ops.AND) and known[1] == 0:
        return UOp.const(dtype, 0)
    if op in (Ops.SHL, Ops.SHR) and known[0] == 0:
        return UOp.const(dtype, 0)
    return None


def _fold_unary(op: Ops, dtype: DType, known: Any) -> UOp | None:
    if known is None or dtype.kind not in ("int", "uint") or not isinstance(known, (int, bool)):
        return None
    value = -int(known) if op is Ops.NEG else int(known)
    return UOp.const(dtype, _wrapped(value, dtype)) if dtype.scalar().bitsize == 32 else None
