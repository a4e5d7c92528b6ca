"""Forms: the structure of values over numbered storages, and what methods make of it.

In: a call of a Tensor method that looks like one before: the same method, on values of the same
structure, with the same numbers. Out: its result, without running the method: a cell that knows its
form and its storages, and builds the UOps only if somebody asks for them.
Sits under Tensor, whose methods `cached` wraps; `eager` computes such cells in one launch.
Invariant: the key of an entry holds all that a method can read: the structure of its operands and
which of their storages are the same, its other arguments, and every knob. What cannot be said so
(sizes that are symbolic, pending writes, random numbers) is simply called.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.device import Device
from weft.dtype import DType, dtypes
from weft.engine import record
from weft.engine.cell import Cell
from weft.engine.host import is_storage
from weft.engine.operands import Move, apply_moves, user_line
from weft.engine.storage import shaped
from weft.gradient import Identity, as_event, gradient_rules, is_differentiable
from weft.knobs import (
    CALL_CACHE,
    CHECK_NAN,
    CHECK_OOB,
    DEBUG,
    PROFILE,
    SCACHE,
    SPEC,
    VALIDATE,
    VIZ,
    ContextVar,
    all_values,
    entered,
)
from weft.uop import trace
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.template import Template

# calls that are remembered; then all are forgotten
_MOST_CALLS = 1 << 15
# methods on methods that one form holds: beyond, copying graphs costs more than building them
_MOST_DEPTH = 128
_MOST_STORAGES = 256
# live tensors that a value was computed from and that wait like it
_MOST_SOURCES = 32
# ops without an effect or an identity: their graphs may be copied
_COPYABLE = (
    GroupOp.Movement
    | GroupOp.Elementwise
    | {Ops.BUFFER, Ops.CONST, Ops.REDUCE_AXIS, Ops.CAT, Ops.DETACH, Ops.IOTA, Ops.GATHER}
    | {Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.FUNCTION}
)


class KnobState:
    """What the knobs say; equal knobs are one object."""

    __slots__ = ("entered", "is_on", "threshold", "turns")

    def __init__(self) -> None:
        watched = (DEBUG, SPEC, VIZ, PROFILE, CHECK_OOB, CHECK_NAN, VALIDATE)
        # who watches or checks wants to see each graph
        self.is_on = bool(CALL_CACHE) and bool(SCACHE) and not any([k.value for k in watched])
        self.threshold = 2 - CALL_CACHE.value
        self.turns = -1
        self.entered: Any = None


_states: dict[tuple[Any, ...], KnobState] = {}
_state = KnobState()
_watched = KnobState()
_watched.is_on = False
_lock = threading.RLock()
# the thread that traces a method; 0: none
_tracing = 0
_remembered = 0


def state_now() -> KnobState:
    """The state of the knobs in this thread."""
    if trace.recorders or trace.tracers:
        # a recorder that no knob switched on
        return _watched
    state = _state
    if ContextVar.turns == state.turns and entered.get() is state.entered:
        return state
    return _changed_state()


def _changed_state() -> KnobState:
    global _state
    values = (Device._default, *all_values())
    state = _states.get(values)
    if state is None:
        if len(_states) >= 64:
            clear_forms()
        state = _states[values] = KnobState()
    state.turns, state.entered = ContextVar.turns, entered.get()
    _state = state
    return state


class Form:
    """A value over numbered storages.

    `holes` stand for the storages in `value`, the graph. `slopes` are the numbers of those that a
    gradient of it may flow to.
    """

    __slots__ = (
        "_slopes",
        "_template",
        "calls",
        "depth",
        "device",
        "dtype",
        "holes",
        "launches",
        "shape",
        "value",
        "views",
    )

    def __init__(self, value: UOp, holes: tuple[UOp, ...], depth: int) -> None:
        self.value = value
        self.holes = holes
        self.depth = depth
        self.shape, self.dtype, self.device = value.shape, value.dtype, value.device
        self.calls: dict[Any, Any] = {}
        self.views: dict[tuple[Move, ...], Form] = {}
        self.launches: dict[Any, Any] = {}
        self._template: Template | None = None
        self._slopes: tuple[int, ...] | None = None

    def fill(self, storages: Sequence[UOp], origin: tuple[str, int] | None = None) -> UOp:
        """The graph over these storages."""
        template = self._template
        if template is None:
            template = self._template = Template(self.holes, [self.value])
        return template.fill(storages, origin)[0]

    def moved(self, moves: tuple[Move, ...]) -> Form:
        """The form of a view."""
        found = self.views.get(moves)
        if found is None:
            _count_call()
            found = Form(apply_moves(self.value, moves), self.holes, self.depth)
            self.views[moves] = found
        return found

    @property
    def slopes(self) -> tuple[int, ...]:
        found = self._slopes
        if found is None:
            found = ()
            if self.value.op in gradient_rules and dtypes.is_float(self.dtype):
                order = self.value.toposort(gate=is_differentiable)
                found = tuple(
                    [
                        number
                        for number, hole in enumerate(self.holes)
                        if hole in order and dtypes.is_float(hole.dtype)
                    ]
                )
            self._slopes = found
        return found


class WriteForm:
    """A storage that gets the value of a form: the first of the storages that it is over.

    `picked` are the numbers of those that the value reads. `is_trained`: no gradient passes.
    """

    __slots__ = ("is_trained", "launches", "picked", "place", "slopes", "source")

    def __init__(self, place: Form, source: Form, picked: tuple[int, ...], trained: bool) -> None:
        self.place = place
        self.source = source
        self.picked = picked
        self.is_trained = trained
        self.launches: dict[Any, Any] = {}
        self.slopes = () if trained else tuple([picked[number] for number in source.slopes])

    @property
    def is_repeatable(self) -> bool:
        """Whether it does not read what it writes: interrupted, it may happen once more."""
        return 0 not in self.picked

    def fill(self, storages: Sequence[UOp], origin: tuple[str, int] | None = None) -> UOp:
        """The next state of the storage."""
        place = self.place.fill(storages[:1])
        value = self.source.fill([storages[number] for number in self.picked], origin)
        if self.is_trained:
            value = UOp(Ops.DETACH, value.dtype, (value,))
        state = place.after(as_event(place.store(value)))
        state.origin = origin
        return state


_leaves: dict[tuple[Any, ...], Form] = {}
# a cell that has no form
NO_FORM: tuple[Any, ...] = ()


# what else is to be forgotten with the calls
_with_calls: list[Callable[[], None]] = []


def forgotten_with_calls(forget: Callable[[], None]) -> None:
    """Registers what holds forms, or what was made for them."""
    _with_calls.append(forget)


class CallCache:
    """What was remembered of calls, by key: at most so many, then all are forgotten.

    A class of its own, and no dict, so that the JIT can tell a cache from the state of a program:
    what it holds decides how fast a call is, never what it gives.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Any, Any] = {}
        self.get = self._found.get
        forgotten_with_calls(self._found.clear)

    def keep(self, key: Any, value: Any) -> None:
        if len(self._found) >= self._most:
            self._found.clear()
        self._found[key] = value


def clear_forms() -> None:
    """Forget all calls, and what was kept for them."""
    global _remembered
    with _lock:
        _states.clear()
        _leaves.clear()
        _remembered = 0
        for forget in _with_calls:
            forget()
        for cell in Cell.live:
            if cell._node is not None:
                cell.formed = None


def _count_call() -> None:
    global _remembered
    _remembered += 1
    if _remembered > _MOST_CALLS:
        clear_forms()


def form_of(cell: Cell) -> tuple[Any, ...]:
    """The form of a cell whose value is in memory, and the storage; NO_FORM if it is not."""
    value = cell._node
    if value is None:
        return NO_FORM
    shape = None
    storage = value
    if value.op is Ops.RESHAPE and len(value.src) == 1 and value.tag is None:
        storage, shape = value.src[0], value.arg
    formed = NO_FORM
    if storage.op is Ops.BUFFER and not cell.pure and not cell.inline:
        arg = storage.arg
        key = (arg.size, storage.dtype, arg.device, shape)
        form = _leaves.get(key)
        if form is None and _has_form(arg.size, arg.device):
            hole = UOp.new_buffer(arg.device, arg.size, storage.dtype)
            form = Form(hole if shape is None else shaped(hole, shape), (hole,), 0)
            _leaves[key] = form
            _count_call()
        if form is not None:
            formed = (form, (storage,))
    if cell._node is value:
        cell.formed = formed
    return formed


def _has_form(size: int, device: Any) -> bool:
    return size > 0 and isinstance(device, str) and not is_storage(device)


# ------------------------------------------------------------ what a call led to
class NewValue(NamedTuple):
    """A new value: its form, which of the call's storages it reads, a view of it; and whether it
    holds the value of each operand."""

    form: Form
    picked: tuple[int, ...] | None
    moves: tuple[Move, ...]


class OperandView(NamedTuple):
    """A view of an operand's storage; None: the operand itself."""

    operand: int
    moves: tuple[Move, ...] | None


# a call that has to be made each time
PLAIN = object()


def is_on(state: KnobState) -> bool:
    """Whether calls may be looked up."""
    return state.is_on and not _tracing and not record.listeners


def cached(name: str, method: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """A method that is run once for all calls that look alike."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = _state
        if ContextVar.turns != state.turns or entered.get() is not state.entered:
            state = _changed_state()
        if _tracing or not state.is_on or record.listeners or self.__class__ is not kind:
            return method(self, *args, **kwargs)
        cell = self._cell
        formed = cell.formed
        if formed is None:
            formed = form_of(cell)
        if not formed:
            return method(self, *args, **kwargs)
        form, storages = formed
        if self._moves:
            form = form.moved(self._moves)
        operands: tuple[Any, ...] = (self,)
        key: Any
        if not args and not kwargs:
            key = (name, state)
        else:
            parts: list[Any] = [name, state]
            for arg in args:
                part = _part(arg, kind, storages, operands)
                if part is None:
                    return method(self, *args, **kwargs)
                if type(part) is _Operand:
                    operands = (*operands, arg)
                    storages = part.storages
                    parts.append(part.key)
                else:
                    parts.append(part)
            for word, arg in kwargs.items():
                part = _part(arg, kind, storages, operands)
                if part is None:
                    return method(self, *args, **kwargs)
                if type(part) is _Operand:
                    operands = (*operands, arg)
                    storages = part.storages
                    parts += [word, part.key]
                else:
                    parts += [word, part]
            key = tuple(parts)
        found = form.calls.get(key)
        if found.__class__ is NewValue:
            return made(kind, found, operands, storages)
        if found.__class__ is OperandView:
            operand = operands[found.operand]
            return operand if found.moves is None else kind._view_of(operand._cell, found.moves)
        if found is PLAIN:
            return method(self, *args, **kwargs)
        return _missed(form, key, found, method, operands, storages, args, kwargs, state)

    return call


class _Operand(NamedTuple):
    """A tensor among the arguments: its part of the key, and the storages of all until here."""

    key: Any
    storages: tuple[UOp, ...]


_PLAIN_TYPES = frozenset({int, bool, str, type(None), DType, type(...)})


def _part(arg: Any, kind: type, storages: tuple[UOp, ...], operands: tuple[Any, ...]) -> Any:
    """What the key says of an argument; None if it cannot say enough."""
    given = type(arg)
    if given is kind:
        cell = arg._cell
        formed = cell.formed
        if formed is None:
            formed = form_of(cell)
        if not formed:
            return None
        form, theirs = formed
        if arg._moves:
            form = form.moved(arg._moves)
        if len(storages) == 1 and len(theirs) == 1:
            if storages[0] is theirs[0]:
                return _Operand((form, 0), storages)
            return _Operand((form, 1), storages + theirs)
        numbers = {storage: number for number, storage in enumerate(storages)}
        pattern = tuple([numbers.setdefault(storage, len(numbers)) for storage in theirs])
        return _Operand((form, pattern), tuple(numbers))
    if given in _PLAIN_TYPES:
        return (given, arg)
    if given is float:
        if arg != arg:
            return None
        return (float, arg) if arg else (float, math.copysign(1.0, arg), 0)
    if given is tuple or given is list:
        parts = [_part(item, kind, storages, operands) for item in arg]
        if any([part is None or type(part) is _Operand for part in parts]):
            return None
        return (given, *parts)
    if given is slice:
        ends = (arg.start, arg.stop, arg.step)
        if all([end is None or type(end) is int for end in ends]):
            return (slice, *ends)
    return None


def made(kind: Any, found: NewValue, operands: tuple[Any, ...], storages: tuple[UOp, ...]) -> Any:
    """The tensor of a call that was looked up."""
    picked = found.picked
    if picked is not None:
        storages = tuple([storages[number] for number in picked])
    sources: tuple[Any, ...] = ()
    for operand in operands:
        if operand._cell._node is None:
            sources = (*sources, *sources_of(operand._cell))
    cell = Cell.of_form((found.form, storages), sources, user_line())
    if len(sources) > _MOST_SOURCES:
        # each further one would be told of all of them
        cell.value  # noqa: B018
    return kind._view_of(cell, found.moves)


def sources_of(cell: Cell) -> tuple[weakref.ref[Cell], ...]:
    """A cell that waits, and those that its value is made of."""
    return (weakref.ref(cell), *[source for source in cell.sources if source() is not None])


def _missed(
    form: Form,
    key: Any,
    seen: Any,
    method: Callable[..., Any],
    operands: tuple[Any, ...],
    storages: tuple[UOp, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: KnobState,
) -> Any:
    """A call that no entry has: made as it is, and remembered if it was made before."""
    # what is computed from values that wait is worth remembering: they were
    known = [operand._cell.formed for operand in operands]
    if not all(known):
        # another thread has just computed one of them
        return method(*_arguments(operands[0], args), **kwargs)
    depth = max([form.depth for form, _ in known])
    if depth == 0 and seen is None and state.threshold > 0:
        _count_call()
        form.calls[key] = 1
        return method(*_arguments(operands[0], args), **kwargs)
    outcome = _trace(method, operands, known, storages, args, kwargs, depth)
    _count_call()
    form.calls[key] = outcome
    if type(outcome) is NewValue:
        return made(type(operands[0]), outcome, operands, storages)
    return method(*_arguments(operands[0], args), **kwargs)


def _arguments(first: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (first, *args)


# ------------------------------------------------------------ tracing
def _trace(
    method: Callable[..., Any],
    operands: tuple[Any, ...],
    known: list[Any],
    storages: tuple[UOp, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    depth: int,
) -> Any:
    """What a method makes of operands of these forms, found by calling it with stand-ins."""
    global _tracing
    if depth >= _MOST_DEPTH or len(storages) > _MOST_STORAGES:
        return PLAIN
    kind = type(operands[0])
    with _lock:
        _tracing = threading.get_ident()
        try:
            holes, cells = stand_ins(known, storages)
            tensors = [
                kind._view_of(cell, operand._moves)
                for cell, operand in zip(cells, operands, strict=True)
            ]
            given = iter(tensors)
            first = next(given)
            others = [next(given) if type(arg) is kind else arg for arg in args]
            words = {w: next(given) if type(arg) is kind else arg for w, arg in kwargs.items()}
            result = method(first, *others, **words)
            if type(result) is not kind or result._requires_grad is not None or vars(result):
                return PLAIN
            return _outcome(result, tensors, cells, holes, depth)
        except Exception:
            # what is wrong with the call is said by the call itself
            return PLAIN
        finally:
            _tracing = 0


class _Computes(Exception):
    """A method that is traced wants to know a value."""


def refuse_while_tracing() -> None:
    """Stand-ins have no values: who wants to compute one is not traced any further."""
    if _tracing and _tracing == threading.get_ident():
        raise _Computes


def stand_ins(
    operands: Sequence[tuple[Form, tuple[UOp, ...]]], storages: tuple[UOp, ...]
) -> tuple[tuple[UOp, ...], list[Cell]]:
    """A hole for each storage, and cells over them that look like those of the operands."""
    # the first one's graph is taken as it is
    first = operands[0][0]
    holes = list(first.holes)
    for storage in storages[len(holes) :]:
        arg = storage.arg
        holes.append(UOp.new_buffer(arg.device, arg.size, storage.dtype))
    standing = dict(zip(storages, holes, strict=True))
    cells = [Cell(first.value)]
    for form, own in operands[1:]:
        cells.append(Cell(form.fill([standing[storage] for storage in own])))
    return tuple(holes), cells


def _outcome(
    result: Any, tensors: list[Any], cells: list[Cell], holes: tuple[UOp, ...], depth: int
) -> Any:
    if any([cell.version for cell in cells]):
        return PLAIN
    for number, (tensor, cell) in enumerate(zip(tensors, cells, strict=True)):
        if result is tensor:
            return OperandView(number, None)
        if result._cell is cell:
            return OperandView(number, result._moves)
    cell = result._cell
    if cell.pure or cell.inline or cell.is_asked:
        return PLAIN
    form_and_picked = form_over(cell.value, holes, depth + 1)
    if form_and_picked is None:
        return PLAIN
    return NewValue(*form_and_picked, result._moves)


def form_over(
    value: UOp, holes: tuple[UOp, ...], depth: int
) -> tuple[Form, tuple[int, ...] | None] | None:
    """The form of a graph over holes, and which of them it reads; None if it cannot be copied."""
    order = value.toposort()
    known = set(holes)
    for node in order:
        if node.op not in _COPYABLE or isinstance(node.tag, Identity):
            return None
        if node.op is Ops.BUFFER and node not in known:
            return None
    base = value
    while base.op is Ops.RESHAPE:
        base = base.src[0]
    if base.op is Ops.BUFFER:
        # whether a gradient passes depends on what is in that memory
        return None
    if not isinstance(value.device, str) or not _is_fixed(value.shape):
        return None
    picked = [number for number, hole in enumerate(holes) if hole in order]
    if not picked:
        return None
    form = Form(value, tuple([holes[number] for number in picked]), depth)
    return form, None if len(picked) == len(holes) else tuple(picked)


def _is_fixed(shape: tuple[Any, ...]) -> bool:
    return all([type(size) is int and size > 0 for size in shape])
