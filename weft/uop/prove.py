"""Proofs with z3, for SPEC=2: every LOAD and STORE stays inside its memory, for all inputs.

What comes in: a kernel or a linear program. What goes out: nothing, or a SpecError that names the
kernel, the node, the pass and values of axes and variables that break it.
Where it sits: above the specs and the solver; the schedule and codegen call it after their passes.
The one invariant: a complaint comes with values that break it. What z3 can neither prove nor
refute is passed, and listed in `unproven`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import prod
from typing import Any
from weakref import WeakSet

from weft.errors import SpecError
from weft.knobs import DEBUG
from weft.uop.args import DISTINCT, KernelInfo, MatrixArg, TileArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.solver import Encoder, Question, z3
from weft.uop.spec import Spec, type_verify
from weft.uop.text import neighbourhood_text
from weft.uop.trace import Rule, tracing

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


# what is asked of the values of variables before a kernel runs
_premises: ContextVar[tuple[UOp, ...]] = ContextVar("premises", default=())


@contextmanager
def assuming(premises: tuple[UOp, ...]) -> Iterator[None]:
    """Inside, these conditions on variables are taken to hold: a kernel runs only where they do."""
    token = _premises.set(premises)
    try:
        yield
    finally:
        _premises.reset(token)


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
    unproven.append((access.node.op.name, access.index.text()[:200]))
    if DEBUG >= 2:
        print(f"SPEC=2: z3 gave up on {access.node.op.name} of {access.place.text()[:200]}")


def _verify(access: Access, encoder: Encoder, name: str, pass_name: str | None) -> None:
    if access.node in _proven:
        return
    if not access.is_inside_by_bounds():
        found = _violation(replace(access, holds=()), encoder)
        holds = (*access.holds, *_premises.get())
        if found is not None and holds:
            found = _violation(replace(access, holds=holds), encoder)
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
        f"of {access.place.src[0].text()}, which has {access.size} elements,{where}\n"
        f"{neighbourhood_text(access.node, 3)}"
    )


def _access_text(access: Access) -> str:
    return f"{access.node.op.name} {access.place.text()[:300]}"


# ---------------------------------------------------------------- kernels and programs


def memory_size(memory: UOp) -> int | None:
    """How many elements a memory has; None if that is known at run time only."""
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    if memory.op is Ops.STAGE:
        # of a size that varies, the memory has room for the greatest
        if memory.arg.strides is not None:
            return int(memory.shape[0])
        return prod(int(axis.src[0].vmax) for axis in memory.src[1:])
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
    prove_distinct(sink, pass_name)


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
        else:
            holds = tuple([b if b.op is Ops.RANGE else b.src[0] for b in blocks])
            for at, lanes in _places(node):
                size = memory_size(at.src[0])
                if size is not None:
                    place = at.substitute(registers)
                    # a FETCH has two places, each an access of its own
                    of = at if node.op is Ops.FETCH else node
                    access = Access(of, place, size, lanes, holds)
                    _verify(access, encoder, name, pass_name)
    prove_barriers(uops, name, pass_name)


def _places(node: UOp) -> list[tuple[UOp, int]]:
    """The INDEXes that a node of a program touches, each with how many elements from there on."""
    if node.op is Ops.FETCH:
        return [(place, node.arg) for place in node.src]
    if node.op not in (Ops.LOAD, Ops.STORE) or node.src[0].op is not Ops.INDEX:
        return []
    if node.op is Ops.STORE:
        return [(node.src[0], node.src[1].dtype.count)]
    if isinstance(node.arg, TileArg):
        return [(node.src[0], node.arg.span)]
    if isinstance(node.arg, MatrixArg):
        return [(node.src[0], 16 // node.dtype.scalar().itemsize)]
    return [(node.src[0], node.dtype.count)]


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
                name = f"register {node.src[0].arg}"
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
            if store.tag == DISTINCT and load.src[0] is store.src[0]:
                # each round has an element of its own, by the word of who made it
                continue
            if load.src[0].ranges <= own:
                _verify_pair(store, load, _name_of(sink), pass_name)


def _loads_of(store: UOp, memory: UOp) -> Iterator[UOp]:
    for node in store.src[1].toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX and node.src[0].src[0] is memory:
            yield node


_pairs: dict[bytes, None] = {}


def _verify_pair(
    store: UOp, load: UOp, name: str, pass_name: str | None, what: str = "read"
) -> None:
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
            f"{written.src[0].text()} is written by STORE {written.text()} in one step and "
            f"{what} in another, where {question.values_text()} (r-1_... are those of the second)\n"
            f"{neighbourhood_text(store, 3)}"
        )
    if len(_pairs) > 10_000:
        _pairs.clear()
    _pairs[key] = None


def prove_distinct(sink: UOp, pass_name: str | None = None) -> None:
    """A STORE that says that its rounds are apart writes no element in two of them.

    What memory says about places is believed: whoever made the indices knows that they differ.
    """
    for store in sink.src:
        if store.op is not Ops.STORE or store.tag != DISTINCT:
            continue
        if not any([node.op is Ops.LOAD for node in store.src[0].toposort()]):
            _verify_pair(store, store.src[0].load(), _name_of(sink), pass_name, "written")


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
        elif node.op in (Ops.LOAD, Ops.STORE, Ops.FETCH) and node.src[0].op is Ops.INDEX:
            _meet(node, touched, name, pass_name)
        place += 1


def _meet(node: UOp, touched: dict[tuple[UOp, Ops], UOp], name: str, pass_name: str | None) -> None:
    memory = node.src[0].src[0]
    if memory.op is not Ops.LOCAL or memory.arg.memory == "scratch":
        return
    kind = Ops.LOAD if node.op is Ops.LOAD else Ops.STORE
    other = Ops.STORE if kind is Ops.LOAD else Ops.LOAD
    before = touched.get((memory, other))
    # one and the same place is one thread's own
    if before is not None and before.src[0] is not node.src[0] and not _are_apart(before, node):
        made_by = f" after pass {pass_name!r}" if pass_name else ""
        raise SpecError(
            f"SPEC ISSUE in kernel {name}{made_by}: {node.op.name} of {node.src[0].text()} meets "
            f"{before.op.name} of {before.src[0].text()} by other threads with no BARRIER "
            f"between them\n{neighbourhood_text(node)}"
        )
    touched[memory, kind] = node


def _are_apart(one: UOp, other: UOp) -> bool:
    """Whether accesses of two threads in one round of a loop are of different elements: memory that
    holds several rounds is filled for one while another one is read."""
    (left, left_count), (right, right_count) = _places(one)[0], _places(other)[0]
    indices = [left.src[1], right.src[1]]
    if any([index.dtype.count > 1 for index in indices]) or not left.ranges & right.ranges:
        return False
    threads = {u for u in indices[1].toposort() if u.op is Ops.SPECIAL and u.arg.startswith("l")}
    indices[1] = indices[1].substitute({u: u.replace(arg=f"{u.arg} of another") for u in threads})
    encoder = Encoder()
    first, second = [encoder.encode(index)[0] for index in indices]
    claims = [first < second + right_count, second < first + left_count]
    return Question(encoder, indices, claims).ask() is False


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
    """What SPEC=2 does after a pass; `again` repeats it, to find the rule that is to blame."""

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
