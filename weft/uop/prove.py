"""Proofs with z3, for SPEC=2: every LOAD and STORE stays inside its memory, for all inputs.

What comes in: a kernel or a linear program. What goes out: nothing, or a SpecError that names the
kernel, the node, the pass and values of axes and variables that break it.
Where it sits: above the simplification rules; the schedule and codegen call it after their passes.
The one invariant: what is not understood (floats, loads, sums of a loop) is a free value of its
dtype and bounds, so a proof holds for whatever memory contains. z3 is imported on first use only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any
from weakref import WeakSet

from weft.dtype import DType, dtypes
from weft.errors import ArgumentError, SpecError
from weft.knobs import DEBUG
from weft.uop.args import KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.spec import Spec, type_verify
from weft.uop.text import neighbourhood_text, range_name
from weft.uop.trace import Rule, tracing

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
            source = self.lanes[node.src[0]]
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
        make = z3().Bool if node.dtype.kind == "bool" else z3().Int
        count = node.dtype.count
        label = f"{_leaf_name(node)} #{len(self.free)}"
        terms = [make(label if count == 1 else f"{label}.{lane}") for lane in range(count)]
        self.free[node] = terms
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
    return node.render()[:60]


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


# ---------------------------------------------------------------- one access


@dataclass(frozen=True)
class Access:
    """A LOAD or STORE (or in kernels its INDEX): memory, its size, lanes, and what holds there."""

    node: UOp
    place: UOp
    size: int
    lanes: int = 1
    holds: tuple[UOp, ...] = ()  # axes that are open and conditions that are true

    @property
    def index(self) -> UOp:
        return self.place.src[1]

    @property
    def valid(self) -> UOp | None:
        return self.place.src[2] if len(self.place.src) > 2 else None

    def is_inside_by_bounds(self) -> bool:
        """Whether the interval of the index says it already."""
        low, high = self.index._min_max
        more = self.lanes - 1 if self.index.dtype.count == 1 else 0
        return bool(low >= 0 and high + more < self.size)


_proven: WeakSet[UOp] = WeakSet()
# accesses that z3 could neither prove nor refute, newest last: (kernel, node)
unproven: list[tuple[str, str]] = []


def clear_proofs() -> None:
    """Forget what was proven."""
    _proven.clear()
    unproven.clear()


def _violation(access: Access, encoder: Encoder) -> tuple[Question, int] | None:
    """Values for which the access is outside its memory, and the element it would touch."""
    index = encoder.encode(access.index)
    valid = None if access.valid is None else encoder.encode(access.valid)
    truths = []
    for node in access.holds:
        truths.extend(encoder.encode(node) if node.dtype.kind == "bool" else [])
        encoder.encode(node)
    nodes = [access.index, *access.place.src[2:], *access.holds]
    for lane in range(access.lanes):
        element = index[lane] if len(index) > 1 else index[0] + lane
        claims = [*truths, z3().Or(element < 0, element >= access.size)]
        if valid is not None:
            claims.append(valid[lane] if len(valid) > 1 else valid[0])
        if len(index) == 1 and (valid is None or len(valid) == 1):
            # consecutive elements under one condition: the first and the last are enough
            last = index[0] + (access.lanes - 1)
            claims[len(truths)] = z3().Or(index[0] < 0, last >= access.size)
            element = z3().If(index[0] < 0, index[0], last)
        question = Question(encoder, nodes, claims)
        found = question.ask()
        if found:
            return question, question.value_of(element)
        if found is None:
            _note_unproven(access)
        if len(index) == 1 and (valid is None or len(valid) == 1):
            break
    return None


def _note_unproven(access: Access) -> None:
    unproven.append((access.node.op.name, access.index.render()[:200]))
    if DEBUG >= 2:
        print(f"SPEC=2: z3 gave up on {access.node.op.name} of {access.place.render()[:200]}")


def _verify(access: Access, encoder: Encoder, name: str, pass_name: str | None) -> None:
    if access.node in _proven:
        return
    if not access.is_inside_by_bounds():
        found = _violation(replace(access, holds=()), encoder)
        if found is not None and access.holds:
            found = _violation(access, encoder)
            if found is None:
                # true only where it stands: not remembered
                return
        if found is not None:
            raise _outside(access, *found, name, pass_name)
    _proven.add(access.node)


def _outside(
    access: Access, question: Question, element: int, name: str, pass_name: str | None
) -> SpecError:
    made_by = f" after pass {pass_name!r}" if pass_name else ""
    values = question.values_text()
    where = f" where {values}" if values else ""
    return SpecError(
        f"SPEC ISSUE in kernel {name}{made_by}: {_access_text(access)} touches element {element} "
        f"of {access.place.src[0].render()}, which has {access.size} elements,{where}\n"
        f"{neighbourhood_text(access.node, 3)}"
    )


def _access_text(access: Access) -> str:
    return f"{access.node.op.name} {access.place.render()[:300]}"


# ---------------------------------------------------------------- kernels and programs


def memory_size(memory: UOp) -> int | None:
    """How many elements a memory has; None if that is known at run time only."""
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    if memory.op is Ops.STAGE:
        sizes = [axis.src[0] for axis in memory.src[1:]]
        return None if any(s.op is not Ops.CONST for s in sizes) else prod(s.arg for s in sizes)
    return int(memory.arg.size) if memory.op in (Ops.PARAM, Ops.LOCAL, Ops.BUFFER) else None


def _name_of(sink: UOp) -> str:
    return sink.arg.name if isinstance(sink.arg, KernelInfo) else "kernel"


def prove_kernel(sink: UOp, pass_name: str | None = None) -> None:
    """Every INDEX of a kernel is inside its memory, and in-place kernels do no element twice.

    A load may leave every loop that it does not depend on, empty ones included, so only the axes
    of its own index are taken to be inside their sizes.
    """
    encoder = Encoder()
    name = _name_of(sink)
    for node in sink.toposort():
        if node.op not in (Ops.LOAD, Ops.STORE) or node.src[0].op is not Ops.INDEX:
            continue
        size = memory_size(node.src[0].src[0])
        if size is not None:
            axes = tuple([s for s in node.src[2:] if s.op is Ops.RANGE])
            _verify(Access(node, node.src[0], size, 1, axes), encoder, name, pass_name)
    prove_in_place(sink, pass_name)


def prove_program(uops: Sequence[UOp], name: str, pass_name: str | None = None) -> None:
    """Every LOAD and STORE of a linear program is inside its memory where it stands."""
    encoder = Encoder()
    blocks: list[UOp] = []
    registers = bound_registers(uops)
    for node in uops:
        if node.op in (Ops.RANGE, Ops.IF):
            blocks.append(node)
        elif node.op in (Ops.END, Ops.ENDIF):
            blocks.pop()
        elif node.op in (Ops.LOAD, Ops.STORE) and node.src[0].op is Ops.INDEX:
            size = memory_size(node.src[0].src[0])
            if size is not None:
                lanes = (node if node.op is Ops.LOAD else node.src[1]).dtype.count
                holds = tuple([b if b.op is Ops.RANGE else b.src[0] for b in blocks])
                place = node.src[0].substitute(registers)
                access = Access(node, place, size, lanes, holds)
                _verify(access, encoder, name, pass_name)
    prove_barriers(uops, name, pass_name)


def bound_registers(uops: Sequence[UOp]) -> dict[UOp, UOp]:
    """For reads of registers of ints a variable with the bounds that the loops keep.

    max over a loop stays inside the bounds of what is compared; a sum of n values inside n times
    theirs. Other updates say nothing.
    """
    found: dict[UOp, UOp] = {}
    intervals: dict[UOp, tuple[int, int] | None] = {}
    started: dict[UOp, int] = {}
    blocks: list[UOp] = []
    for node in uops:
        if node.op in (Ops.RANGE, Ops.IF):
            blocks.append(node)
        elif node.op in (Ops.END, Ops.ENDIF):
            blocks.pop()
        elif node.op is Ops.ACC and node.dtype.kind in ("int", "uint"):
            intervals[node] = node.src[0].substitute(found)._min_max
            started[node] = len(blocks)
        elif node.op is Ops.ACC_SET and intervals.get(node.src[0]) is not None:
            around = blocks[started[node.src[0]] :]
            least = (
                0 if any(b.op is Ops.IF for b in around) else prod(b.src[0].vmin for b in around)
            )
            most = prod(b.src[0].vmax for b in around if b.op is Ops.RANGE)
            intervals[node.src[0]] = _updated(node, intervals[node.src[0]], (least, most), found)
        elif node.op is Ops.LOAD and node.src[0] in intervals and node.src[1].op is Ops.END:
            known = intervals[node.src[0]]
            if known is not None:
                name = f"acc{node.src[0].arg}"
                found[node] = UOp.variable(name, int(known[0]), int(known[1]), node.dtype)
    return found


def _updated(
    node: UOp, known: tuple[int, int] | None, rounds: tuple[int, int], found: dict[UOp, UOp]
) -> tuple[int, int] | None:
    """The interval of a register that an ACC_SET sets `rounds` (least, most) times."""
    register, value = node.src
    if known is None or value.op not in (Ops.MAX, Ops.ADD):
        return None
    parts = []
    stack = [value]
    while stack:
        part = stack.pop()
        if part.op is value.op:
            stack.extend(part.src)
        else:
            parts.append(part)
    own = [p for p in parts if p.op is Ops.LOAD and p.src[0] is register]
    others = [p.substitute(found)._min_max for p in parts if p not in own]
    if len(own) != 1:
        return None
    if value.op is Ops.MAX:
        lows = [low for low, _ in others] if rounds[0] >= 1 else []
        return max([known[0], *lows]), max([known[1], *[high for _, high in others]])
    low = known[0] + min(times * sum(part[0] for part in others) for times in rounds)
    high = known[1] + max(times * sum(part[1] for part in others) for times in rounds)
    dtype = register.dtype.scalar()
    return (low, high) if dtype.min <= low and high <= dtype.max else None


# ---------------------------------------------------------------- elements done twice


def prove_in_place(sink: UOp, pass_name: str | None = None) -> None:
    """Where a kernel reads what it writes, no element is read in one step and written in another.

    Tiles that overlap are right for plain outputs: the second writes the same again. In place, the
    second would start from what the first wrote.
    """
    if isinstance(sink.arg, KernelInfo) and not sink.arg.optimise:
        # places known at run time only: such a kernel runs in order, one element after another
        return
    for store in sink.src:
        if store.op is not Ops.STORE or store.src[0].op is not Ops.INDEX:
            continue
        memory, own = store.src[0].src[0], frozenset(store.src[2:])
        for load in _loads_of(store, memory):
            if load.src[0].ranges <= own:
                _verify_pair(store, load, _name_of(sink), pass_name)


def _loads_of(store: UOp, memory: UOp) -> Iterator[UOp]:
    for node in store.src[1].toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX and node.src[0].src[0] is memory:
            yield node


_pairs: dict[bytes, None] = {}


def _verify_pair(store: UOp, load: UOp, name: str, pass_name: str | None) -> None:
    key = store.key + load.key
    if key in _pairs:
        return
    axes = list(store.src[2:])
    others: dict[UOp, UOp] = {}
    for axis in axes:
        # the size of an axis may depend on the axes around it
        size = axis.src[0].substitute(others)
        number = (-1, *axis.arg.number)
        others[axis] = UOp(Ops.RANGE, axis.dtype, (size,), replace(axis.arg, number=number))
    written, read = store.src[0], load.src[0].substitute(others)
    encoder = Encoder()
    same = encoder.encode(written.src[1])[0] == encoder.encode(read.src[1])[0]
    different = [encoder.encode(a)[0] != encoder.encode(b)[0] for a, b in others.items()]
    valid = [encoder.encode(v)[0] for v in (*written.src[2:], *read.src[2:])]
    nodes = [*written.src[1:], *read.src[1:], *axes, *others.values()]
    question = Question(encoder, nodes, [same, z3().Or(*different), *valid])
    if question.ask():
        element = question.value_of(encoder.encode(written.src[1])[0])
        made_by = f" after pass {pass_name!r}" if pass_name else ""
        raise SpecError(
            f"SPEC ISSUE in kernel {name}{made_by}: in place, element {element} of "
            f"{written.src[0].render()} is written by STORE {written.render()} in one step and "
            f"read in another, where {question.values_text()} (r-1_... are those of the read)\n"
            f"{neighbourhood_text(store, 3)}"
        )
    if len(_pairs) > 10_000:
        _pairs.clear()
    _pairs[key] = None


# ---------------------------------------------------------------- memory that threads share


def prove_barriers(uops: Sequence[UOp], name: str, pass_name: str | None = None) -> None:
    """Between a write to memory that a group shares and a read of it stands a BARRIER.

    Loops are walked twice, so that what an iteration does meets what the next one does.
    """
    if not any(u.op is Ops.LOCAL and u.arg.memory != "scratch" for u in uops):
        return
    touched: dict[tuple[UOp, Ops], UOp] = {}  # since the last barrier
    starts: dict[UOp, int] = {}
    repeated: set[UOp] = set()
    place = 0
    while place < len(uops):
        node = uops[place]
        if node.op is Ops.RANGE:
            starts[node] = place
        elif node.op is Ops.BARRIER:
            touched.clear()
        elif node.op is Ops.END and node.src[0] not in repeated:
            repeated.add(node.src[0])
            place = starts[node.src[0]]
        elif node.op in (Ops.LOAD, Ops.STORE) and node.src[0].op is Ops.INDEX:
            _meet(node, touched, name, pass_name)
        place += 1


def _meet(node: UOp, touched: dict[tuple[UOp, Ops], UOp], name: str, pass_name: str | None) -> None:
    memory = node.src[0].src[0]
    if memory.op is not Ops.LOCAL or memory.arg.memory == "scratch":
        return
    other = Ops.STORE if node.op is Ops.LOAD else Ops.LOAD
    before = touched.get((memory, other))
    # one and the same place is one thread's own
    if before is not None and before.src[0] is not node.src[0]:
        made_by = f" after pass {pass_name!r}" if pass_name else ""
        raise SpecError(
            f"SPEC ISSUE in kernel {name}{made_by}: {node.op.name} of {node.src[0].render()} meets "
            f"{before.op.name} of {before.src[0].render()} by other threads with no BARRIER "
            f"between them\n{neighbourhood_text(node)}"
        )
    touched[memory, node.op] = node


# ---------------------------------------------------------------- who did it


class _Steps:
    """Remembers every step of every rewrite."""

    def __init__(self) -> None:
        self.found: list[tuple[UOp, UOp, Rule]] = []

    def start(self, name: str, root: UOp) -> None: ...

    def step(self, name: str, before: UOp, after: UOp, rule: Rule) -> None:
        """One replacement."""
        self.found.append((before, after, rule))

    def finish(self, name: str, result: UOp) -> None: ...


def guilty_rule(run: Callable[[], Any], check: Callable[[UOp], None]) -> Rule | None:
    """The first rule that makes something which `check` refuses out of something it accepts."""
    steps = _Steps()
    with tracing(steps):
        run()
    verdicts: dict[UOp, bool] = {}

    def is_broken(node: UOp) -> bool:
        if node not in verdicts:
            try:
                check(node)
                verdicts[node] = False
            except SpecError:
                verdicts[node] = True
        return verdicts[node]

    for before, after, rule in steps.found:
        if is_broken(after) and not is_broken(before):
            return rule
    # each side may be legal by itself, and the one no substitute for the other
    for before, after, rule in steps.found:
        if before.dtype is not after.dtype:
            return rule
    return None


def verify_pass(
    graph: UOp, spec: Spec, pass_name: str, again: Callable[[], Any], prove: bool = True
) -> None:
    """What SPEC=2 does after a pass; `again` repeats the pass, to find the rule that is to blame."""

    def check(root: UOp, whole: bool = False) -> None:
        type_verify(root, spec if whole else replace(spec, wholes=()), pass_name)
        if prove:
            access = root.load() if root.op is Ops.INDEX else root
            prove_kernel(access if root.op is Ops.SINK else UOp.sink(access), pass_name)

    try:
        check(graph, whole=True)
    except SpecError as error:
        rule = guilty_rule(again, check)
        if rule is not None:
            error.add_note(f"made by {rule}")
            error.args = (f"{error.args[0]}\nmade by {rule}",)
        raise


def same_value(before: UOp, after: UOp, timeout: int = TIMEOUT_MS) -> bool | None:
    """Whether two int or bool expressions of scalars are equal for all values; None: unknown."""
    encoder = Encoder()
    left, right = encoder.encode(before)[0], encoder.encode(after)[0]
    found = Question(encoder, [before, after], [left != right]).ask(timeout)
    # two functions of one float are two free values here: a difference says nothing then
    derived = any(leaf.op not in _INDEPENDENT for leaf in encoder.free)
    return None if found is None or (found and derived) else not found


_INDEPENDENT = frozenset({Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL, Ops.LOAD, Ops.REDUCE})
