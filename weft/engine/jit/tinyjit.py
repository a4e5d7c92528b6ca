"""TinyJit: a function is run once, recorded once, and from then on its kernels are replayed.

In: a function over tensors. Out: the same function, whose calls run no Python once two runs in a
row were seen to do the same thing.
Sits at the top: above Tensor, below nothing but the libraries.
Invariant: a replay gives what calling the function would have given. What a graph depends on (the
structure of the arguments, numbers, names that the function reads) is compared at every call; if
something differs the function simply runs, and is recorded anew.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from weft.contracts import Graph
from weft.device import Device
from weft.engine import record
from weft.engine.jit.arguments import Arguments, Signature
from weft.engine.jit.calls import CallKind, JitCall, JitKnobs, knobs_now, numbers_replaced
from weft.engine.jit.capture import WindowConflict, run_recorded
from weft.engine.jit.check import Outcome, Snapshot
from weft.engine.jit.fast_path import FastPath
from weft.engine.jit.graph import MISS, CapturedGraph
from weft.engine.jit.guards import Guards, Watch
from weft.engine.jit.objects import mark_opaque
from weft.engine.jit.parameters import NumberBook
from weft.engine.jit.pickling import carried, given
from weft.engine.jit.trace import Mismatch, Run, merge_runs
from weft.errors import JitError

__all__ = ["JitError", "TinyJit", "jit"]

# graphs that one function keeps; the oldest goes first
MOST_GRAPHS = 32
# kinds of calls from which on there is a warning
MANY_GRAPHS = 8
# runs of one kind of call that may differ from the one before until the JIT gives up on it
PATIENCE = 4
# kinds of values that names lead to and that are told apart
MOST_STRUCTURES = 1024
# calls in a row that were not replayed from which on there is a warning
MANY_RUNS = 12
# calls that differ in one number until that number becomes a parameter of the kernels
MANY_NUMBERS = 8


_numbers = itertools.count()


def _only_difference(numbers: tuple[Any, ...], others: tuple[Any, ...]) -> int | None:
    """Where two rows of numbers differ, if that is one position."""
    if len(numbers) != len(others):
        return None
    found = None
    for position, is_other in enumerate(map(operator.ne, numbers, others)):
        if is_other:
            if found is not None:
                return None
            found = position
    return found


class TinyJit:
    """A jitted function: `@TinyJit` above a function or a method, or `TinyJit(function)`.

    >>> from weft import Tensor, TinyJit
    >>> @TinyJit
    ... def double(x):
    ...     return x * 2
    >>> [double(Tensor([i])).item() for i in range(4)]
    [0, 2, 4, 6]
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_fast_path",
        "_bound",
        "_changed",
        "_entries",
        "_knobs_key",
        "_leaking",
        "_lock",
        "_parameters",
        "_plain",
        "_seen",
        "_signature",
        "_structures",
        "_use_windows",
        "_waiting",
        "_watch",
        "_warned",
        "captured",
        "function",
        "prune",
    )

    def __new__(cls, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(cls, **options)
        return super().__new__(cls)

    def __init__(self, function: Callable[..., Any] | None = None, prune: bool = False) -> None:
        if not callable(function):
            raise JitError(f"TinyJit takes a function, found {function!r}")
        self.function: Callable[..., Any] = function
        self.prune = prune
        self._lock = threading.RLock()
        self._signature = Signature(function)
        self._warned: set[str] = set()
        self._bound: dict[int, TinyJit] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what was captured, and give back its memory."""
        with self._lock:
            self._entries: dict[Any, CallKind] = {}
            self._fast_path: FastPath | None = None
            self._watch = Watch(self.function)
            self._waiting = 0  # calls since the last replay
            self._leaking = 0  # runs in a row that could not be replayed
            self._use_windows = True
            self._knobs_key: tuple[Any, ...] = ()
            # by the shape of a call: numbers that were seen, that are parameters, that cannot be
            self._seen: dict[Any, list[tuple[Any, ...]]] = {}
            self._parameters: dict[Any, frozenset[int]] = {}
            self._plain: set[Any] = set()
            self._structures: dict[Any, int] = {}  # of guards, numbered
            # places that the function itself gives other values: (id of the container, key)
            self._changed: set[tuple[int, Any]] = set()
            self.captured: CapturedGraph | None = None

    @property
    def fxn(self) -> Callable[..., Any]:
        """The function inside."""
        return self.function

    @property
    def cnt(self) -> int:
        """How far it has come: 0 nothing was run, 1 run, 2 captured."""
        return 2 if self.captured is not None else min(1, len(self._entries))

    def __repr__(self) -> str:
        return f"<TinyJit of {getattr(self.function, '__qualname__', self.function)}>"

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__wrapped__"):
            return self.function if name == "__wrapped__" else getattr(self.function, name)
        raise AttributeError(f"TinyJit has no attribute {name!r}")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: each instance has graphs of its own, which go when it goes."""
        if instance is None:
            return self
        inside = getattr(instance, "__dict__", None)
        if type(inside) is dict:
            name = f"_jit_of_{id(self)}"
            bound = inside.get(name)
            if bound is None:
                bound = inside.setdefault(name, self._bind(instance))
            return bound
        # a class, or an instance without room for it: kept here for as long as this lives
        found = self._bound.get(id(instance))
        if found is None:
            found = self._bound.setdefault(id(instance), self._bind(instance))
        return found

    def _bind(self, instance: Any) -> TinyJit:
        method = types.MethodType(self.function, instance)
        bound: TinyJit = TinyJit(method, prune=self.prune)
        return bound

    def __deepcopy__(self, memo: dict[int, Any]) -> TinyJit:
        """A copy captures for itself."""
        function = self.function
        if isinstance(function, types.MethodType):
            owner = memo.get(id(function.__self__), function.__self__)
            function = types.MethodType(function.__func__, owner)
        copied: TinyJit = TinyJit(function, prune=self.prune)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """Goes with its function, and that with what it reads; elsewhere it captures anew."""
        # made first and filled afterwards: the function may mention the jitted one
        return _unfilled, (), (carried(self.function), self.prune)

    def __setstate__(self, state: tuple[Any, bool]) -> None:
        TinyJit.__init__(self, given(state[0]), prune=state[1])

    # ------------------------------------------------------------ calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        knobs = knobs_now()
        if knobs.is_off or (record.listeners and record.active() is not None):
            return self.function(*args, **kwargs)
        with self._lock:
            path = self._fast_path
            if path is not None and path.knobs is knobs and not kwargs:
                memory = path.memory(args)
                if memory is not None:
                    return path.graph.replay_over(memory)
            self._knobs_key = knobs.key
            call = self._take_apart(args, kwargs)
            entry = self._entries.get(call.key)
            if entry is None:
                if call.shape in self._plain:
                    return self.function(*args, **kwargs)
            elif entry.is_hopeless:
                return self.function(*args, **kwargs)
            elif entry.is_ready:
                assert entry.graph is not None
                if knobs.is_checked or entry.is_trial:
                    result = self._replay_checked(entry, args, kwargs, call)
                else:
                    result = entry.graph.replay(call.arguments, call.guards.places, call.given)
                    self._remember(entry.graph, knobs, args, call)
                if result is not MISS:
                    self._waiting = 0
                    return result
            result = self._run(args, kwargs, call)
            self._waiting += 1
            if self._waiting >= MANY_RUNS:
                self._say_why(entry, call)
            return result

    def _say_why(self, entry: CallKind | None, call: JitCall) -> None:
        """Many calls in a row ran as they are: what keeps them from being replayed."""
        if entry is not None and entry.graph is not None and entry.graph.missed:
            reason = entry.graph.missed
        elif len({shape[1:] for shape, _ in self._entries}) > 1:
            reason = (
                "it is called in another way every time (shapes, dtypes, views, objects, knobs)"
            )
        elif len({shape for shape, _ in self._entries}) > 1:
            reason = "what it reads besides its arguments is different in every call"
        elif entry is None and len(self._entries) > 1:
            now = ", ".join([repr(value) for value in call.raw])
            reason = (
                f"several numbers differ from call to call (now {now}), of which only one at a "
                "time becomes a parameter of its kernels; give it Tensors"
            )
        else:
            reason = "no two calls in a row did the same"
        self._warn(
            "waiting",
            f"{self!r} was called {self._waiting} times in a row without being replayed: {reason}",
        )

    def _remember(
        self, graph: CapturedGraph, knobs: JitKnobs, args: tuple[Any, ...], call: JitCall
    ) -> None:
        """The next call may be like this one."""
        if call.arguments.values is not args or knobs.is_stepwise:
            return
        if FastPath.fits(graph, call.arguments):
            self._fast_path = FastPath(graph, knobs, call.guards, call.arguments)

    def _take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JitCall:
        arguments = Arguments(self._signature.order(args, kwargs), self._use_windows)
        return self._call_with(arguments, self._watch.now(arguments.extra))

    def _call_with(self, arguments: Arguments, guards: Guards) -> JitCall:
        names = self._structures.get(guards.structure)
        if names is None:
            if len(self._structures) >= MOST_STRUCTURES:
                self._structures.clear()
            names = self._structures[guards.structure] = next(_numbers)
        shape = (names, Device.DEFAULT, self._knobs_key, arguments.structure)
        call = JitCall(arguments, guards, shape)
        call.make_key(self._parameters.get(shape) if self._parameters else None)
        return call

    # ------------------------------------------------------------ running
    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: JitCall) -> Any:
        """Run the function, and compare with what it did the last time."""
        self._fast_path = None
        if self._watch.predict(call.arguments.extra):
            call = self._take_apart(args, kwargs)
        entry = self._entries.get(call.key)
        if entry is None and self._count_numbers(call):
            entry = self._entries.get(call.key)
        if call.given:
            return self._run_with_parameters(args, kwargs, call)
        is_strict = entry is not None and entry.last is not None
        try:
            result, run = run_recorded(
                self.function,
                args,
                kwargs,
                call.arguments,
                call.guards,
                is_strict,
                self._watch.observed,
            )
        except WindowConflict:
            self._use_windows = False
            return self._run(args, kwargs, self._take_apart(args, kwargs))
        call = self._look_back(run, call)
        self._learn(self._entries.get(call.key) or self._add_entry(call), run, call)
        return result

    def _look_back(self, run: Run, call: JitCall) -> JitCall:
        """What a run has shown of the function: what it executes, and what it changes."""
        watch = self._watch
        if watch.observed.impure is not None:
            run.leaks = (
                f"it calls {watch.observed.impure}, which may give something else in every call"
            )
        if watch.grew():
            # the next call finds what this one left: that is the key under which to compare them
            call = self._call_with(call.arguments, watch.walk(call.guards.extra))
        else:
            changed = watch.walk(call.guards.extra).changed_since(call.guards)
            if changed is not None:
                run.leaks = f"it changes {changed}, on which it also depends"
                self._changed.add((id(changed.container), changed.key))
        if call.guards.refused is not None:
            run.leaks = call.guards.refused
        self._leaking = 0 if run.leaks is None else self._leaking + 1
        if self._leaking >= PATIENCE:
            # also where every call is of another kind, because of what the last one changed
            self._warn("hopeless", f"{self!r} runs without being jitted: {run.leaks}")
        return call

    # ------------------------------------------------------------ numbers as parameters
    def _count_numbers(self, call: JitCall) -> bool:
        """Many calls that differ in one number only: it becomes a parameter. Whether it did."""
        seen = self._seen.setdefault(call.shape, [])
        numbers = call.key[1]
        if numbers in seen:
            return False
        # a call before that differs in one number only, by its position
        alike = collections.Counter([_only_difference(numbers, other) for other in seen])
        for position, value in enumerate(call.raw) if len(seen) >= MANY_NUMBERS else ():
            if type(value) is bool or position in call.given:
                continue
            if alike[position] < MANY_NUMBERS:
                continue
            owner = call.owner(position)
            if owner is not None and (id(owner.container), owner.key) in self._changed:
                self._give_up_numbers(call, value)
                return False
            parameters = frozenset((*call.given, position))
            self._parameters[call.shape] = parameters
            for other in seen:
                self._entries.pop((call.shape, other), None)
            seen.clear()
            call.make_key(parameters)
            return True
        seen.append(numbers)
        del seen[:-MOST_GRAPHS]
        return False

    def _run_with_parameters(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], call: JitCall
    ) -> Any:
        """Run with stand-ins for the numbers that change; undo it, run plainly, and compare."""
        places = call.guards.places
        snapshot = Snapshot(call.arguments, places)
        book = NumberBook()
        found: Outcome | None = None
        try:
            with numbers_replaced(call, book) as values:
                traced, run = run_recorded(
                    functools.partial(self._signature.call, self.function, values),
                    (),
                    {},
                    call.arguments,
                    call.guards,
                    True,
                    self._watch.observed,
                    book,
                )
            found = Outcome(traced, call.arguments, places)
        except Exception:  # noqa: BLE001
            # whatever it was: the function as it is will say so, or it is due to the stand-ins
            pass
        snapshot.restore()
        result = self.function(*args, **kwargs)
        if found is None or found.difference(Outcome(result, call.arguments, places)):
            self._give_up_numbers(call, *call.given.values())
        else:
            entry = self._entries.get(call.key)
            self._learn(entry or self._add_entry(call), run, call)
        return result

    def _give_up_numbers(self, call: JitCall, *values: Any) -> None:
        """A number that is more than a value: new values of it are not captured any more."""
        self._entries.pop(call.key, None)
        self._parameters.pop(call.shape, None)
        self._plain.add(call.shape)
        now = ", ".join(repr(value) for value in values)
        self._warn(
            "numbers",
            f"{self!r} was called with more than {MANY_NUMBERS} values of one number (now {now})"
            " that is used as more than a value (a size, an index, a condition, a counter); calls "
            "with further values run without being jitted. Give it a Tensor, or a Variable for a "
            "size",
        )

    # ------------------------------------------------------------ checking
    def _replay_checked(
        self, entry: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any], call: JitCall
    ) -> Any:
        """Replay, undo it, run plainly, and compare what both left behind."""
        assert entry.graph is not None
        places = call.guards.places
        snapshot = Snapshot(call.arguments, places)
        result = entry.graph.replay(call.arguments, places, call.given)
        if result is MISS:
            return MISS
        replayed = Outcome(result, call.arguments, places)
        snapshot.restore()
        result = self.function(*args, **kwargs)
        found = replayed.difference(Outcome(result, call.arguments, places))
        if found is None:
            entry.is_trial = False
            return result
        if entry.is_trial:
            self._give_up_numbers(call, *call.given.values())
            return result
        raise JitError(f"{self!r} gives something else when it is replayed: {found}")

    # ------------------------------------------------------------ learning
    def _add_entry(self, call: JitCall) -> CallKind:
        entry = self._entries[call.key] = CallKind(call.kept)
        shapes = {shape for shape, _ in self._entries}
        if len(shapes) > MANY_GRAPHS:
            self._warn(
                "many",
                f"{self!r} was called in {len(shapes)} different ways (shapes, dtypes, views or "
                "objects), and each is captured for itself; give it inputs of one kind, or a "
                "Variable for a size that changes",
            )
        if len(self._entries) > MOST_GRAPHS:
            self._entries.pop(next(iter(self._entries)))
        return entry

    def _learn(self, entry: CallKind, run: Run, call: JitCall) -> None:
        """Two runs in a row that did the same are what every further call does."""
        last, entry.last = entry.last, run
        given, entry.last_given = entry.last_given, call.given
        if last is None or (call.given and given == call.given):
            # of a number that is a parameter two values have to be seen
            return
        entry.is_ready = False
        try:
            merged = merge_runs(last, run)
            changed = {n for n, v in run.variables.items() if last.variables.get(n) != v}
            entry.varied |= changed
            entry.is_ready = run.leaks is None
            entry.is_trial = bool(call.given)
        except Mismatch:
            merged = merge_runs(run, run)
            entry.varied = frozenset()
        if run.leaks is None:
            entry.graph = CapturedGraph(merged, call.guards.places, entry.varied, self.prune)
            self.captured = entry.graph
        if entry.is_ready:
            entry.differed = 0
            return
        entry.differed += 1
        if entry.differed >= PATIENCE or (run.leaks is not None and last.leaks is not None):
            entry.is_hopeless = True
            entry.last = entry.graph = None
            reason = run.leaks or "it does something else in every call"
            self._warn("hopeless", f"{self!r} runs without being jitted: {reason}")

    def _warn(self, kind: str, text: str) -> None:
        """Once per function and kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=6)


def _unfilled() -> TinyJit:
    """A jitted function before it is told which."""
    made: TinyJit = object.__new__(TinyJit)
    return made


def graph_class(device: Any) -> type[Graph] | None:
    """How a device (or the one of that name) replays a whole graph; None if it cannot."""
    found = Device[device] if isinstance(device, str) else device
    graph: type[Graph] | None = found.graph
    return graph


mark_opaque(TinyJit)
jit = TinyJit
# as they are called in tinygrad
CapturedJit = CapturedGraph
GraphRunner = Graph
GraphException = JitError
