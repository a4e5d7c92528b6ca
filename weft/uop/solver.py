"""Expressions of ints and bools as terms of z3, and questions about them.

What comes in: nodes. What goes out: terms, one per lane; whether claims about them can all be true,
and values for which they are.
Where it sits: below the proofs of SPEC=2, and the tests that compare both sides of a rule.
The one invariant: what is not understood (floats, loads, sums of a loop) is a free value of its
dtype and bounds, so what is proven holds for whatever memory contains. z3 is imported on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import ArgumentError
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.text import range_name

# how long z3 may think about one access; run-time sizes multiplied with axes can take for ever
TIMEOUT_MS = 2000
# run-time sizes are tried one by one where z3 gave up; beyond this many cases only a few of them
CASES_AT_MOST = 512


@functools.cache
def z3() -> Any:
    """The solver's module."""
    try:
        import z3 as module
    except ImportError:
        raise ArgumentError(
            "SPEC=2 proves indices with z3, which is not installed: "
            "pip install 'weft[verify]' (the package z3-solver), or use SPEC=1"
        ) from None
    return module


# ---------------------------------------------------------------- expressions as terms


class Encoder:
    """UOps as terms of z3, one per lane: ints and bools exactly, all else as free values."""

    def __init__(self) -> None:
        self.lanes: dict[UOp, list[Any]] = {}
        self.facts: dict[UOp, list[Any]] = {}  # what is known of a leaf
        self.free: dict[UOp, list[Any]] = {}  # leaves, for the values of a counterexample
        self.variables: dict[str, list[Any]] = {}
        self.vague: set[UOp] = set()  # leaves that stand for arithmetic on ints: not really free

    def encode(self, node: UOp) -> list[Any]:
        """The terms of a node's lanes."""
        for part in node.toposort(gate=self._enters):
            if part not in self.lanes:
                self.lanes[part] = self._encode(part)
        return self.lanes[node]

    def _enters(self, node: UOp) -> bool:
        return node not in self.lanes and not is_opaque(node)

    def leaves(self, nodes: Iterable[UOp]) -> list[UOp]:
        """The leaves that these (encoded) nodes are made of; sizes of axes included."""
        found: dict[UOp, None] = {}
        root = UOp.sink(*nodes)
        for part in root.toposort(gate=lambda u: not is_opaque(u)):
            if part in self.free:
                found[part] = None
        return list(found)

    # ------------------------------------------------------------ nodes
    def _encode(self, node: UOp) -> list[Any]:
        op = node.op
        if is_opaque(node):
            return self._leaf(node)
        if op is Ops.CONST:
            return [_constant(node)]
        if op in (Ops.RANGE, Ops.SPECIAL):
            terms = self._new_leaf(node)
            self.facts[node] = [terms[0] >= 0, terms[0] < self.lanes[node.src[0]][0]]
            return terms
        if op is Ops.VECTORIZE:
            return [self.lanes[s][0] for s in node.src]
        if op is Ops.GEP:
            source = [lane for s in node.src for lane in self.lanes[s]]
            return [source[lane] for lane in node.arg]
        if op is Ops.BIND:
            return self.lanes[node.src[0]]
        rule = _ENCODERS.get(op)
        if rule is None:
            self.vague.add(node)
            return self._leaf(node)
        sources = [self.lanes[s] for s in node.src]
        found = [
            rule(node, *[s[lane] if len(s) > 1 else s[0] for s in sources])
            for lane in range(node.dtype.count)
        ]
        if all(term is not None for term in found):
            return found
        self.vague.add(node)
        return self._leaf(node)

    def _leaf(self, node: UOp) -> list[Any]:
        """A value of which only the bounds are known."""
        terms = self._new_leaf(node)
        if node.dtype.kind != "bool":
            low, high = node._min_max
            self.facts[node] = [fact for term in terms for fact in (term >= low, term <= high)]
        return terms

    def _new_leaf(self, node: UOp) -> list[Any]:
        if node.op is Ops.VARIABLE and node.arg.name in self.variables:
            # of whatever dtype, it is one value
            self.free[node] = self.variables[node.arg.name]
            return self.free[node]
        make = z3().Bool if node.dtype.kind == "bool" else z3().Int
        count = node.dtype.count
        label = f"{_leaf_name(node)} #{len(self.free)}"
        terms = [make(label if count == 1 else f"{label}.{lane}") for lane in range(count)]
        self.free[node] = terms
        if node.op is Ops.VARIABLE:
            self.variables[node.arg.name] = terms
        return terms


def is_opaque(node: UOp) -> bool:
    """Whether only the bounds of a value count: memory, registers, and what came from floats."""
    if node.op in (Ops.CONST, Ops.RANGE, Ops.SPECIAL, Ops.SINK):
        return False
    if node.op in (Ops.VARIABLE, Ops.LOAD, Ops.REDUCE, Ops.ACC, Ops.BITCAST, Ops.IOTA, Ops.INDEX):
        return True
    return any(s.dtype.kind not in ("int", "uint", "bool") for s in node.src)


def _leaf_name(node: UOp) -> str:
    if node.op is Ops.RANGE:
        return range_name(node.arg.number)
    if node.op is Ops.VARIABLE:
        return str(node.arg.name)
    return node.text()[:60]


def _constant(node: UOp) -> Any:
    if node.dtype.kind == "bool":
        return z3().BoolVal(bool(node.arg))
    return z3().IntVal(int(node.arg))


def _wrap(term: Any, dtype: DType, low: int, high: int) -> Any:
    """A term whose exact value lies in [low, high], as an int of a dtype."""
    scalar = dtype.scalar()
    if scalar is dtypes.weakint or (scalar.min <= low and high <= scalar.max):
        return term
    span = 1 << scalar.bitsize
    return (term - int(scalar.min)) % span + int(scalar.min)


def _corners(node: UOp, function: Callable[[int, int], int]) -> tuple[int, int]:
    values = [function(x, y) for x in node.src[0]._min_max for y in node.src[1]._min_max]
    return min(values), max(values)


def _add(node: UOp, x: Any, y: Any) -> Any:
    return _wrap(x + y, node.dtype, *_corners(node, lambda a, b: a + b))


def _multiply(node: UOp, x: Any, y: Any) -> Any:
    return _wrap(x * y, node.dtype, *_corners(node, lambda a, b: a * b))


def _negate(node: UOp, x: Any) -> Any:
    low, high = node.src[0]._min_max
    return _wrap(-x, node.dtype, -high, -low)


def _floor(x: Any, y: Any, least: int) -> Any:
    """floor(x / y), 0 for y = 0; z3's own division rounds down for positive divisors only."""
    if least > 0:
        return x / y
    return z3().If(y > 0, x / y, z3().If(y < 0, (-x) / (-y), 0))


def _truncate(x: Any, y: Any) -> Any:
    size = z3().If(x >= 0, x, -x) / z3().If(y >= 0, y, -y)
    return z3().If((x >= 0) == (y >= 0), size, -size)


def _is_plain_division(node: UOp) -> bool:
    """C's division and the floor agree where nothing is negative."""
    return node.tag != "raw" or (node.src[0].vmin >= 0 and node.src[1].vmin > 0)


def _divide(node: UOp, x: Any, y: Any) -> Any:
    least = node.src[1].vmin
    if not _is_plain_division(node):
        return _truncate(x, y)
    quotient = _floor(x, y, least)
    if least > 0:
        return quotient
    # only the least number divided by -1 leaves the dtype
    low, high = node.src[0]._min_max
    return _wrap(quotient, node.dtype, min(low, -high), max(high, -low))


def _modulo(node: UOp, x: Any, y: Any) -> Any:
    least = node.src[1].vmin
    if not _is_plain_division(node):
        return x - y * _truncate(x, y)
    if least > 0:
        return x % y
    return z3().If(y == 0, 0, x - y * _floor(x, y, least))


def _maximum(node: UOp, x: Any, y: Any) -> Any:
    return z3().Or(x, y) if node.dtype.kind == "bool" else z3().If(x > y, x, y)


def _less(node: UOp, x: Any, y: Any) -> Any:
    return z3().And(z3().Not(x), y) if node.src[0].dtype.kind == "bool" else x < y


def _choose(node: UOp, condition: Any, x: Any, y: Any) -> Any:
    return z3().If(condition, x, y)


def _bits(op: Ops) -> Callable[[UOp, Any, Any], Any]:
    def encode(node: UOp, x: Any, y: Any) -> Any:
        if node.dtype.kind == "bool":
            return {Ops.AND: z3().And, Ops.OR: z3().Or, Ops.XOR: z3().Xor}[op](x, y)
        mask = _number(y)
        if op is Ops.AND and mask is not None and mask > 0 and not mask & mask + 1:
            return x % (mask + 1)
        if op is Ops.XOR and mask is not None and mask == _all_ones(node.dtype):
            return int(node.dtype.scalar().max) - x if node.dtype.kind == "uint" else -1 - x
        return None

    return encode


def _all_ones(dtype: DType) -> int:
    return int(dtype.scalar().max) if dtype.kind == "uint" else -1


def _number(term: Any) -> int | None:
    return int(term.as_long()) if z3().is_int_value(term) else None


def _shift(node: UOp, x: Any, y: Any) -> Any:
    amount = _number(y)
    if amount is None or not 0 <= amount < node.dtype.scalar().bitsize:
        return None
    if node.op is Ops.SHR:
        return x / (1 << amount)
    low, high = node.src[0]._min_max
    return _wrap(x * (1 << amount), node.dtype, low << amount, high << amount)


def _cast(node: UOp, x: Any) -> Any:
    source, target = node.src[0].dtype.kind, node.dtype.kind
    if target not in ("int", "uint", "bool"):
        return None
    if target == "bool":
        return x if source == "bool" else x != 0
    if source == "bool":
        return z3().If(x, 1, 0)
    return _wrap(x, node.dtype, *node.src[0]._min_max)


_ENCODERS: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: _add,
    Ops.MUL: _multiply,
    Ops.NEG: _negate,
    Ops.IDIV: _divide,
    Ops.MOD: _modulo,
    Ops.MAX: _maximum,
    Ops.CMPLT: _less,
    Ops.CMPEQ: lambda node, x, y: x == y,
    Ops.CMPNE: lambda node, x, y: x != y,
    Ops.WHERE: _choose,
    Ops.AND: _bits(Ops.AND),
    Ops.OR: _bits(Ops.OR),
    Ops.XOR: _bits(Ops.XOR),
    Ops.SHL: _shift,
    Ops.SHR: _shift,
    Ops.CAST: _cast,
}


# ---------------------------------------------------------------- questions


@dataclass
class Question:
    """Can all of `claims` be true at once, over values of the leaves of `nodes`?"""

    encoder: Encoder
    nodes: list[UOp]
    claims: list[Any]
    model: Any = field(default=None)

    def ask(self, timeout: int = TIMEOUT_MS) -> bool | None:
        """Whether it can; None where z3 gave up. `model` then holds the values."""
        leaves = self.encoder.leaves(self.nodes)
        solver = z3().Solver()
        solver.set("timeout", timeout)
        for leaf in leaves:
            solver.add(*self.encoder.facts.get(leaf, ()))
        solver.add(*self.claims)
        found = solver.check()
        if found == z3().unknown:
            return self._ask_by_cases(solver, leaves)
        if found == z3().sat and not self.encoder.vague.isdisjoint(leaves):
            # the values may be ones that cannot be
            return None
        self.model = solver.model() if found == z3().sat else None
        return bool(found == z3().sat)

    def _ask_by_cases(self, solver: Any, leaves: list[UOp]) -> bool | None:
        """With numbers in place of run-time sizes products are linear again."""
        sizes = [leaf for leaf in leaves if leaf.op is Ops.VARIABLE]
        if not sizes:
            return None
        spans = [range(size.arg.lo, size.arg.hi + 1) for size in sizes]
        is_complete = prod(len(span) for span in spans) <= CASES_AT_MOST
        if not is_complete:
            few = max(2, int(CASES_AT_MOST ** (1 / len(spans))) // 8)
            spans = [_spread(span, few) for span in spans]  # type: ignore[misc]
        for case in product(*spans):
            solver.push()
            for size, value in zip(sizes, case, strict=True):
                solver.add(self.encoder.free[size][0] == value)
            found = solver.check()
            if found == z3().sat:
                self.model = solver.model()
                return True
            solver.pop()
            if found == z3().unknown:
                is_complete = False
        return False if is_complete else None

    def values_text(self, most: int = 10) -> str:
        """The values of the leaves in the model: `r0=3, n=7`."""
        parts = []
        for leaf in self.encoder.leaves(self.nodes):
            for term in self.encoder.free[leaf]:
                value = self.model.eval(term, model_completion=True)
                parts.append(f"{str(term).rsplit(' #', 1)[0]}={str(value).lower()}")
        more = f" and {len(parts) - most} more" if len(parts) > most else ""
        return ", ".join(parts[:most]) + more

    def value_of(self, term: Any) -> int:
        """What a term is in the model."""
        return int(self.model.eval(term, model_completion=True).as_long())


def _spread(span: range, count: int) -> list[int]:
    """A few values of a range, its ends included."""
    step = max(1, (len(span) - 1) // count)
    return sorted({*span[:2], *span[::step], *span[-2:]})


def same_value(before: UOp, after: UOp, timeout: int = TIMEOUT_MS) -> bool | None:
    """Whether two int or bool expressions of scalars are equal for all values; None: unknown."""
    encoder = Encoder()
    left, right = encoder.encode(before)[0], encoder.encode(after)[0]
    found = Question(encoder, [before, after], [left != right]).ask(timeout)
    # two functions of one float are two free values here: a difference says nothing then
    derived = any(leaf.op not in _INDEPENDENT for leaf in encoder.free)
    return None if found is None or (found and derived) else not found


_INDEPENDENT = frozenset({Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL, Ops.LOAD, Ops.REDUCE})
