"""What values in memory were computed from, for as long as somebody may differentiate them.

In: cells that were just put into memory, storages that were just overwritten. Out: for each storage
its Past, the expression that it was computed from; `unfold` makes graphs of them.
Sits beside `known`: that finds the memory of an expression, this the expression of a memory.
Invariant: a Past says what its storage holds now. It ends with the last live tensor that it was
computed from, and once memory that it reads is overwritten it is cut: to differentiate it is an
error then, never a wrong number.

Why and what else was thought of: docs/decisions/0019.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.dtype import dtypes
from weft.engine import record
from weft.engine.cell import Cell, Known
from weft.engine.forms import Form
from weft.engine.host import is_storage
from weft.engine.live import LiveSet
from weft.engine.storage import held_with, shaped
from weft.gradient import as_twin, gradient_rules, is_differentiable
from weft.knobs import TRAINING
from weft.uop.node import UOp
from weft.uop.opset import Ops

# Realized values, each computed from the one before: so many are remembered of what nobody asked
# the gradient of (requires_grad=True), and so many outside of training of what somebody did. A
# loop that carries a state (generation, sampling) would otherwise keep all of its steps.
MOST_LEVELS = 64
MOST_LEVELS_ASKED = 1024
# bytes of values in between that such a chain keeps in memory
MOST_BYTES = 256 << 20

_pasts: LiveSet[Past] = LiveSet()


class Past:
    """What one storage was computed from.

    `expression` is None once it is cut; `reason` then says why, and `targets` are the cells that
    were found behind it before. Until somebody asks for it, an expression may be known by its form.
    """

    __slots__ = (
        "__weakref__",
        "_alive",
        "_before",
        "_callbacks",
        "_dependents",
        "_expression",
        "_form",
        "_leaves",
        "_reads",
        "_storage",
        "_targets",
        "is_asked",
        "levels",
        "nbytes",
        "reason",
    )

    def __init__(
        self,
        storage: UOp,
        expression: UOp | None,
        behind: Behind,
        form: Form | None = None,
        leaves: tuple[UOp, ...] = (),
        reason: str = "",
    ) -> None:
        self._storage = weakref.ref(storage)
        self._expression = expression
        self._form = form
        self._leaves = leaves
        self.reason = reason
        self._reads: frozenset[UOp] | None = None
        self.is_asked = behind.is_asked
        self.levels = behind.levels
        self.nbytes = behind.nbytes
        self._targets = [weakref.ref(cell) for cell in behind.cells]
        self._dependents: list[weakref.ref[Past]] = []
        self._callbacks: list[Any] = []
        self._before = behind.pasts
        held_with(storage).past = self
        _pasts.add(self)
        if reason:
            self._forget_before()
            return
        self._alive = len(behind.cells) + len(behind.pasts)
        mine = weakref.ref(self)

        def lose(_: Any) -> None:
            past = mine()
            if past is not None:
                past._lose()

        self._callbacks = [weakref.ref(cell.life, lose) for cell in behind.cells]
        for past in behind.pasts:
            past._dependents.append(mine)

    @property
    def is_open(self) -> bool:
        """Whether it still knows what the storage was computed from."""
        return self._expression is not None or self._form is not None

    @property
    def expression(self) -> UOp | None:
        """What the storage was computed from."""
        if self._expression is None and self._form is not None:
            self._expression = as_twin(self._form.fill(self._leaves))
            self._form, self._leaves = None, ()
        return self._expression

    @expression.setter
    def expression(self, expression: UOp | None) -> None:
        self._expression = expression
        self._form, self._leaves, self._reads = None, (), None

    @property
    def reads(self) -> frozenset[UOp]:
        """The storages that its expression reads."""
        if self._reads is None:
            expression = self._expression
            leaves = self._leaves if expression is None else _reads(expression)
            self._reads = frozenset(leaves)
        return self._reads

    @property
    def targets(self) -> list[Cell]:
        """The live cells that it was computed from, as far as the next memory."""
        found = [reference() for reference in self._targets]
        return [cell for cell in found if cell is not None]

    def _lose(self) -> None:
        """Something that this was computed from has ended. With the last it ends, and so may what
        was computed from it."""
        pending = [self]
        while pending:
            past = pending.pop()
            past._alive -= 1
            if past._alive <= 0 and past.is_open:
                pending += past.end()

    def end(self) -> list[Past]:
        """From now on the storage is a leaf; those that were computed from it."""
        storage = self._storage()
        if storage is not None and storage.held is not None and storage.held.past is self:
            storage.held.past = None
        self.expression = None
        self._callbacks, self._before = [], []
        found = [reference() for reference in self._dependents]
        self._dependents = []
        return [past for past in found if past is not None]

    def cut(self, reason: str) -> None:
        """The expression is given up; what may have been behind it is remembered."""
        if not self.is_open:
            return
        self.reason = reason
        self._forget_before()

    def _forget_before(self) -> None:
        if self._before:
            self._targets = [weakref.ref(cell) for cell in _targets_behind(self)]
        self.levels = self.nbytes = 0
        self.expression = None
        self._callbacks, self._before = [], []

    def lean_on(self, pasts: Iterable[Past]) -> None:
        """It is computed from memory with these pasts now."""
        mine = weakref.ref(self)
        for past in pasts:
            if past not in self._before:
                self._before = [*self._before, past]
                self._alive += 1
                past._dependents.append(mine)

    def look_again(self) -> bool:
        """Whether the gradient of something before it is asked for: of what was, it may have
        ended. What is further back than one step is taken to be as it was."""
        is_asked = any([cell.is_asked for cell in self.targets])
        self.is_asked = is_asked or any([past.is_asked for past in self._before])
        return self.is_asked

    def is_asked_now(self, known: dict[Past, bool]) -> bool:
        """The same, looking all the way back."""
        stack = [self]
        while stack:
            past = stack[-1]
            if any([cell.is_asked for cell in past.targets]):
                known[past] = True
            elif past not in known:
                missing = [before for before in past._before if before not in known]
                if missing:
                    stack += missing
                    continue
                known[past] = any([known[before] for before in past._before])
            stack.pop()
        return known[self]

    @property
    def is_cut(self) -> bool:
        """Whether it can no longer be differentiated, though somebody might."""
        return not self.is_open and bool(self.targets)


class Behind(NamedTuple):
    """What an expression is computed from that may be differentiated."""

    cells: list[Cell]
    pasts: list[Past]
    is_asked: bool
    levels: int
    nbytes: int


def past_of(storage: UOp) -> Past | None:
    """The past of a BUFFER."""
    held = storage.held
    return None if held is None else held.past


def _targets_behind(past: Past) -> list[Cell]:
    """The live cells that a past leads to, through all that were realized on the way."""
    found: dict[Cell, None] = {}
    seen: set[int] = set()
    pending = [past]
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found.update(dict.fromkeys(one.targets))
        pending += one._before
    return list(found)


# ------------------------------------------------------------ what is realized
def _differentiable(root: UOp) -> dict[UOp, None]:
    return root.toposort(gate=is_differentiable)


def executed(node: UOp) -> UOp | None:
    """The storage of a state whose writes have happened, though a cell may not know it yet."""
    held = node.held
    return held.storage if type(held) is Known and held.is_state else None


def _in_memory(value: UOp) -> UOp:
    state = executed(value)
    return value if state is None else state


def note(stored: Iterable[tuple[UOp, UOp]], lost: Lost) -> None:
    """What was just put into memory: where it is, and the expressions that it was; `lost` is what
    was overwritten meanwhile."""
    noted: dict[UOp, UOp] = {}
    for place, value in stored:
        storage = place
        while storage.op in (Ops.RESHAPE, Ops.SHRINK):
            storage = storage.src[0]
        if storage.op is Ops.BUFFER and storage not in noted and place is not value:
            if is_differentiable(value) and not is_storage(value.device):
                noted[storage] = value
    if not noted:
        return
    # of all cells only those that are not in memory: a realize must not cost what a program holds
    lazy: dict[UOp, list[Cell]] = {}
    for cell in Cell.lazy:
        if not cell.pure:
            lazy.setdefault(cell._value, []).append(cell)
    recorder = record.active()
    for storage, value in noted.items():
        if past_of(storage) is not None:
            continue
        past = _past(storage, value, lazy, lost)
        if past is not None and recorder is not None:
            recorder.pasts.append(past)


def _past(storage: UOp, value: UOp, lazy: dict[UOp, list[Cell]], lost: Lost) -> Past | None:
    """The past of a storage, if somebody may differentiate it."""
    own = storage if value.op is Ops.AFTER else None
    if own is not None and own not in lost.ghosts:
        # its writes happened with those of another cell
        return None
    states: dict[UOp, UOp] = {}
    order = value.toposort(gate=lambda node: node is value or _enters(node, own, states, lost))
    if own is None and storage in order:
        # nothing had to be computed: it is the memory of what it is computed from
        return None
    states.update([(node, lost.ghosts[node]) for node in order if node in lost.ghosts])
    expression = value.substitute(states)
    if expression.op not in gradient_rules:
        return None
    read = {state.base for state in states.values()}
    stale = {ghost: old for old, ghost in lost.ghosts.items() if ghost in read and old is not own}
    behind = _behind(expression, lazy, stale)
    if not behind.cells and not behind.pasts:
        return None
    reason = lost.reason if stale else _reason_to_cut(behind)
    if reason:
        return Past(storage, None, behind, reason=reason)
    # the expression itself knows its memory (`Known`), which would keep itself alive through it
    twin = as_twin(expression)
    twin.origin = value.origin
    return Past(storage, twin, behind)


# of a storage that a form reads: the cells whose value it is, and its past
Leaf = tuple[list[Cell], "Past | None"]


def _leaf_of(storage: UOp) -> Leaf:
    held = storage.held
    if held is None:
        return [], None
    cells = []
    for reference in held.cells:
        cell = reference()
        if cell is not None and cell.rests_in(storage):
            cells.append(cell)
    past = held.past
    if past is not None and not (past.is_open or past.targets):
        past = None
    return cells, past


def note_form(
    storage: UOp,
    form: Form,
    leaves: tuple[UOp, ...],
    slopes: tuple[int, ...],
    is_lost: bool = False,
    seen: dict[UOp, Leaf] | None = None,
) -> None:
    """The value of a form was just put into memory, and nothing that it is made of waits. `slopes`
    are the storages that it may be differentiated to; `is_lost`: one of them was overwritten.
    `seen` is what is known of storages already."""
    cells: dict[Cell, None] = {}
    pasts: dict[Past, None] = {}
    levels = nbytes = 0
    is_asked = False
    for number in slopes:
        storage_read = leaves[number]
        leaf = None if seen is None else seen.get(storage_read)
        if leaf is None:
            leaf = _leaf_of(storage_read)
            if seen is not None:
                seen[storage_read] = leaf
        held_by, past = leaf
        for cell in held_by:
            cells[cell] = None
            is_asked = is_asked or cell.is_asked
        if past is not None:
            pasts[past] = None
            is_asked = past.look_again() or is_asked
            levels = max(levels, past.levels)
            size = storage_read.arg.size * storage_read.dtype.itemsize
            nbytes = max(nbytes, past.nbytes + size)
    if not cells and not pasts:
        return
    behind = Behind(list(cells), list(pasts), is_asked, levels + 1, nbytes)
    reason = _LOST if is_lost else _reason_to_cut(behind) if pasts else ""
    if reason:
        Past(storage, None, behind, reason=reason)
    else:
        Past(storage, None, behind, form, leaves)


def _reason_to_cut(behind: Behind) -> str:
    """Why what has this behind it cannot be differentiated; empty if it can."""
    for past in behind.pasts:
        if not past.is_asked and (past.levels >= MOST_LEVELS or past.nbytes > MOST_BYTES):
            past.cut(_TOO_LONG)
    cut = next((past for past in behind.pasts if not past.is_open), None)
    if cut is not None and (cut.is_asked or not behind.is_asked):
        return cut.reason
    is_long = behind.levels > MOST_LEVELS_ASKED or behind.nbytes > MOST_BYTES
    return _TOO_LONG if behind.is_asked and is_long and not TRAINING else ""


_LOST = (
    "memory that it was computed from has been overwritten since (assign, an optimiser's "
    "step). Call backward() before that, or detach() what shall not be differentiated"
)
_TOO_LONG = (
    f"it is the last of more than {MOST_LEVELS} values that were each realized and computed from "
    f"the one before (or of {MOST_BYTES >> 20} MB of them). End the chain with detach() or "
    "Tensor.no_grad(), or, to differentiate all of it, mark what you want the gradients of with "
    "requires_grad_() and work inside Tensor.train()"
)


def _enters(node: UOp, own: UOp | None, states: dict[UOp, UOp], lost: Lost) -> bool:
    """Whether what is below a node is read as it was: not if it is a state that is in memory, or
    was until now: its writes are in the past of that memory."""
    if node.op is not Ops.AFTER:
        return True
    if node in lost.states:
        states[node] = lost.states[node]
        return False
    storage = executed(node)
    if storage is None or storage.base is own:
        return True
    states[node] = storage
    return False


def _cells_of(place: UOp, lazy: dict[UOp, list[Cell]]) -> list[Cell]:
    """The live cells whose value is this node, or is in this memory."""
    base = place
    while base.op in (Ops.RESHAPE, Ops.SHRINK):
        base = base.src[0]
    if base.op is not Ops.BUFFER:
        return lazy.get(place, [])
    holders = Cell.holders_of(base)
    return [cell for cell in holders if not cell.pure and _in_memory(cell._value) is place]


def _behind(expression: UOp, lazy: dict[UOp, list[Cell]], stale: dict[UOp, UOp]) -> Behind:
    """`stale` says which storages the ghosts in the expression stand for."""
    cells: dict[Cell, None] = {}
    pasts: dict[Past, None] = {}
    levels = nbytes = 0
    for node in _differentiable(expression):
        if node is expression or not dtypes.is_float(node.dtype):
            continue
        if node in stale:
            cells.update(dict.fromkeys(Cell.holders_of(stale[node])))
        known = node.held
        for place in (node, known.storage) if type(known) is Known else (node,):
            for other in _cells_of(place, lazy):
                if not is_storage(node.device):
                    cells[other] = None
        if node.op is Ops.BUFFER and (past := past_of(node)) is not None:
            if not past.is_open and not past.targets:
                continue
            pasts[past] = None
            levels = max(levels, past.levels)
            nbytes = max(nbytes, past.nbytes + node.arg.size * node.dtype.itemsize)
    asked = [*[past.look_again() for past in pasts], *[other.is_asked for other in cells]]
    return Behind(list(cells), list(pasts), any(asked), levels + 1, nbytes)


# ------------------------------------------------------------ what is overwritten
class Lost:
    """Storages that were overwritten: a ghost stands for what each of them held. `states` are the
    states that were in them, which graphs may still hold: what they are now."""

    def __init__(self, storages: Iterable[UOp] = ()) -> None:
        self.ghosts = {storage: _ghost(storage) for storage in storages}
        self.states: dict[UOp, UOp] = {}
        for storage, ghost in self.ghosts.items():
            for reference in held_with(storage).expressions:
                node = reference()
                if node is not None and executed(node) is not None:
                    self.states[node] = shaped(ghost, node.shape)
        self.reason = _LOST


def _ghost(storage: UOp) -> UOp:
    """A BUFFER that never has memory, with the past of what was there."""
    ghost = UOp.new_buffer(storage.arg.device, storage.arg.size, storage.dtype)
    held = held_with(ghost)
    held.is_lost = True
    past = past_of(storage)
    if past is not None:
        held.past, storage.held.past = past, None
        past._storage = weakref.ref(ghost)
    return ghost


def overwrite_forms(owners: dict[UOp, Cell]) -> None:
    """The same, of storages with one cell each, whose new contents are not differentiated to those
    that they had."""
    is_read = any([past.is_open and not past.reads.isdisjoint(owners) for past in _pasts])
    if is_read or any([storage.held.expressions for storage in owners]):
        overwrite(owners)
        return
    for storage, cell in owners.items():
        # nothing leads to what was there any more
        storage.held.past = None
        cell.end_life()


def overwrite(storages: Iterable[UOp]) -> Lost:
    """These storages hold something else now. Called before `known` forgets what they held."""
    lost = Lost(storages)
    if not lost.ghosts:
        return lost
    for past in _pasts:
        if not past.is_open or past.reads.isdisjoint(lost.ghosts):
            continue
        expression = past.expression
        assert expression is not None
        # what was stored on the way is still there
        stored: dict[UOp, UOp] = {}

        def is_open(node: UOp, stored: dict[UOp, UOp] = stored) -> bool:
            known = node.held
            if type(known) is not Known or known.storage.base in lost.ghosts:
                return True
            stored[node] = known.storage
            return False

        expression.toposort(gate=is_open)
        changed = expression.substitute(stored)
        reads = _reads(changed)
        if reads.isdisjoint(lost.ghosts):
            past.expression = changed
            past.lean_on([before for node in reads if (before := past_of(node)) is not None])
        else:
            past.cut(lost.reason)
    for storage in lost.ghosts:
        for cell in Cell.holders_of(storage):
            cell.end_life()
    return lost


def _reads(expression: UOp) -> frozenset[UOp]:
    return frozenset([node for node in expression.toposort() if node.op is Ops.BUFFER])
