"""Random nodes that a pattern matches: what the rules are tried on.

In: a pattern, a dtype, a source of random numbers. Out: a node of the pattern's form, whose parts
that the pattern leaves open are random expressions, often ones that were used before in it, since
rules look for repetitions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.evaluate import takes
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops, Typing
from weft.uop.pattern import UPat

INTS = (*dtypes.ints, dtypes.weakint)
FLOATS = (*dtypes.floats, dtypes.weakfloat)
ALL = (dtypes.bool, *INTS, *FLOATS)

FLOAT_EDGES = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 1.5, 255.0, 65504.0, 1e-40, -1e-45, 1e30,
    -1e38, 3.4028234663852886e38, math.inf, -math.inf, math.nan, 0.1, 1e-8, 16777217.0,
)  # fmt: skip
SMALL_INTS = (-8, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16)


class NoInstance(Exception):
    """The pattern cannot match a node of that dtype."""


def edge_values(dtype: DType) -> list[Any]:
    """The values of a dtype where things go wrong."""
    if dtype.kind == "bool":
        return [False, True]
    if dtype.kind == "float":
        return [dtype.const(value) + 0.0 for value in FLOAT_EDGES]
    if dtype is dtypes.weakint:
        return [*SMALL_INTS, -1000, 1000, 7, 9]
    low, high = int(dtype.min), int(dtype.max)
    small = [value for value in SMALL_INTS if low <= value]
    return [low, low + 1, *small, high - 1, high, high // 2, high // 3]


class Maker:
    """Makes one instance; `pool` holds what it is made of so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pool: dict[DType, list[UOp]] = {}
        self.named: dict[str, UOp] = {}
        self.count = 0

    # ------------------------------------------------------------ leaves
    def leaf(self, dtype: DType) -> UOp:
        """A free value: an element of memory, or a narrow variable or axis."""
        if dtype.count > 1:
            return self._lanes(dtype, self.leaf)
        self.count += 1
        narrow = dtype.kind in ("int", "uint") and self.rng.random() < 0.75
        if dtype is dtypes.weakint:
            if self.rng.random() < 0.4:
                return UOp.range(self.rng.choice([1, 2, 3, 4, 6, 7, 12]), self.count)
            narrow = True
        if narrow:
            low = self.rng.choice([0, 0, 0, 1, -2, -5, 3]) if dtype.kind == "int" else 0
            high = low + self.rng.choice([0, 1, 2, 3, 4, 7, 11])
            return UOp.variable(f"v{self.count}", low, high, dtype)
        memory = UOp.param(self.count, dtype, 4)
        return memory.index(UOp.const(dtypes.weakint, 0)).load()

    def _lanes(self, dtype: DType, make: Callable[[DType], UOp]) -> UOp:
        return UOp(Ops.VECTORIZE, dtype, tuple(make(dtype.scalar()) for _ in range(dtype.count)))

    def constant(self, dtype: DType) -> UOp:
        """A number, often a small or an extreme one."""
        if dtype.count > 1:
            return self._lanes(dtype, self.constant)
        if dtype.kind in ("bool", "float"):
            return UOp.const(dtype, self.rng.choice(edge_values(dtype)))
        choices = SMALL_INTS if self.rng.random() < 0.8 else tuple(edge_values(dtype))
        return UOp.const(dtype, self.rng.choice(choices))

    def value(self, dtype: DType, depth: int = 2) -> UOp:
        """Any expression of a dtype."""
        pool = self.pool.setdefault(dtype, [])
        if pool and self.rng.random() < 0.5:
            return self.rng.choice(pool)
        if depth == 0 or self.rng.random() < 0.25:
            node = self.constant(dtype) if self.rng.random() < 0.2 else self.leaf(dtype)
        else:
            node = self._expression(dtype, depth - 1)
        pool.append(node)
        return node

    def _expression(self, dtype: DType, depth: int) -> UOp:
        ops = [op for op in _EXPRESSIONS if takes(op, dtype) or op in _ANY]
        if dtype.kind == "bool":
            ops += [Ops.CMPLT, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE, Ops.AND, Ops.OR] * 2
        op = self.rng.choice(ops)
        return self.make(op, dtype, [None] * _arity(op), depth)

    # ------------------------------------------------------------ nodes
    def make(self, op: Ops, dtype: DType, sources: Sequence[UPat | None], depth: int) -> UOp:
        """A node of an op, its sources by patterns or free."""
        if not takes(op, dtype) and op not in _ANY and OPSET[op].typing is not Typing.COMPARE:
            raise NoInstance
        inner = self._source_dtypes(op, dtype, sources)
        src = tuple(
            self.value(d, depth) if pattern is None else self.match(pattern, d, depth)
            for pattern, d in zip(sources, inner, strict=True)
        )
        if op in (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR) and sources[1] is None:
            # what indices divide and shift by
            number = self.rng.choice([1, 2, 3, 4, 6, 12, 0, -1, -3]) if op is Ops.IDIV else None
            number = self.rng.choice([0, 1, 2, 3, 5, 7]) if number is None else number
            src = (src[0], UOp.const(inner[1], number))
        is_comparison = OPSET[op].typing is Typing.COMPARE
        return UOp(op, dtypes.bool.vec(dtype.count) if is_comparison else dtype, src)

    def _source_dtypes(self, op: Ops, dtype: DType, sources: Sequence[UPat | None]) -> list[DType]:
        count = len(sources)
        if OPSET[op].typing is Typing.COMPARE:
            operand = self._operand_dtype(dtype.scalar(), sources).vec(dtype.count)
            return [operand] * count
        if op is Ops.WHERE:
            return [dtypes.bool.vec(dtype.count), dtype, dtype]
        if op is Ops.CAST:
            return [self._wanted(sources[0], ALL).vec(dtype.count)]
        if op is Ops.BITCAST:
            size = dtype.scalar().itemsize
            same = [d for d in ALL if d.itemsize == size and d not in dtypes.weaks]
            if dtype.scalar() in (*dtypes.weaks, dtypes.bool):
                raise NoInstance
            same = [d for d in same if d is not dtypes.bool]
            return [self._wanted(sources[0], same).vec(dtype.count)]
        return [dtype] * count

    def _operand_dtype(self, dtype: DType, sources: Sequence[UPat | None]) -> DType:
        """What a comparison compares: `dtype` where it was asked for, else ints mostly."""
        if dtype.kind != "bool":
            return dtype
        for pattern in sources:
            if pattern is not None and pattern.dtype is not None:
                return self._wanted(pattern, ALL)
        known = [d for d, pool in self.pool.items() if pool and d.count == 1]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        return self.rng.choice([dtypes.weakint, dtypes.int32, dtypes.uint8, *ALL])

    def _wanted(self, pattern: UPat | None, choices: Sequence[DType]) -> DType:
        if pattern is not None and pattern.dtype is not None:
            choices = [d for d in choices if d in pattern.dtype]
        if not choices:
            raise NoInstance
        return self.rng.choice(choices)

    # ------------------------------------------------------------ patterns
    def match(self, pattern: UPat, dtype: DType, depth: int = 2) -> UOp:
        """A node that the pattern matches, if it can be of that dtype.

        For a comparison `dtype` is the type of what is compared.
        """
        if pattern.name is not None and pattern.name in self.named:
            found = self.named[pattern.name]
            if found.dtype is not dtype:
                raise NoInstance
            return found
        node = self._match(pattern, dtype, depth)
        if pattern.name is not None:
            self.named[pattern.name] = node
        return node

    def _match(self, pattern: UPat, dtype: DType, depth: int) -> UOp:
        if pattern.alternatives:
            return self.match(self.rng.choice(pattern.alternatives), dtype, depth)
        compares = pattern.op is not None and pattern.op <= GroupOp.Comparison
        allowed = dtypes.bool if compares else dtype.scalar()
        if pattern.dtype is not None and allowed not in pattern.dtype:
            raise NoInstance
        if pattern.op is None:
            return self.value(dtype, depth)
        ops = sorted(pattern.op, key=lambda op: op.value)
        if pattern.op == {Ops.CONST}:
            if dtype.count > 1:
                raise NoInstance
            return self.constant(dtype) if pattern.arg is None else UOp.const(dtype, pattern.arg)
        ops = [op for op in ops if op in GroupOp.Elementwise and _fits(op, dtype)]
        if not ops:
            raise NoInstance
        op = self.rng.choice(ops)
        return self.make(op, dtype, self._source_patterns(pattern, op), depth)

    def _source_patterns(self, pattern: UPat, op: Ops) -> list[UPat | None]:
        arity = _arity(op)
        if pattern.src is None:
            return [None] * arity
        if pattern.is_repeat:
            return [pattern.src[0]] * arity
        if len(pattern.src) != arity:
            raise NoInstance
        sources: list[UPat | None] = list(pattern.src)
        if pattern.is_unordered:
            self.rng.shuffle(sources)
        return sources


_ANY = frozenset({Ops.WHERE, Ops.CAST, Ops.BITCAST, *GroupOp.Comparison})
_EXPRESSIONS = (
    Ops.ADD, Ops.ADD, Ops.MUL, Ops.NEG, Ops.IDIV, Ops.IDIV, Ops.MOD, Ops.MOD, Ops.MAX, Ops.WHERE,
    Ops.CAST, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR,
)  # fmt: skip


def _arity(op: Ops) -> int:
    arity = OPSET[op].arity
    return arity if isinstance(arity, int) else arity[0]


def _fits(op: Ops, dtype: DType) -> bool:
    if op is Ops.THREEFRY and dtype is not dtypes.uint64:
        return False
    return op in _ANY or takes(op, dtype)


def instance(pattern: UPat, dtype: DType, rng: random.Random) -> UOp:
    """A random node that has the pattern's form."""
    return Maker(rng).match(pattern, dtype, rng.choice([1, 2, 3]))
