"""TinyJit: a function is run once, recorded once, and from then on its kernels are replayed.

In: a function over tensors. Out: the same function, whose calls run no Python once two runs in a
row were seen to do the same thing.
Sits at the top: above Tensor, below nothing but the libraries.
Invariant: a replay gives what calling the function would have given. What a graph depends on (the
structure of the arguments, numbers, names that the function reads) is compared at every call; if
something differs the function simply runs, and is recorded anew.
"""

from __future__ import annotations

import functools
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from weft.device import Device
from weft.engine import record
from weft.engine.check import active_checks
from weft.engine.jit_arguments import Arguments, Signature
from weft.engine.jit_graph import MISS, CapturedGraph
from weft.engine.jit_names import MISSING, Chain, find_names
from weft.engine.jit_objects import PLAIN, mark_opaque
from weft.engine.jit_run import Mismatch, Run, WindowConflict, merge_runs, run_recorded
from weft.engine.programs import code_knobs
from weft.errors import JitError
from weft.gradient import NO_GRAD
from weft.knobs import (
    DEFAULT_FLOAT,
    DEFAULT_INT,
    JIT,
    SPLIT_REDUCEOP,
    TRAINING,
    WINO,
    ContextVar,
)
from weft.tensor import Tensor

__all__ = ["JitError", "TinyJit", "jit"]

# graphs that one function keeps; the one that was not used for longest goes first
MOST_GRAPHS = 32
# kinds of calls from which on there is a warning
MANY_GRAPHS = 8
# runs of one kind of call that may differ from the one before until the JIT gives up on it
PATIENCE = 4


class _Entry:
    """One kind of call: the last run of it, and the graph that was made of it."""

    __slots__ = ("differed", "graph", "is_hopeless", "is_ready", "kept", "last", "varied")

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept  # objects that the key knows by their id
        self.last: Run | None = None
        self.graph: CapturedGraph | None = None
        self.is_ready = False
        self.is_hopeless = False
        self.differed = 0
        self.varied: frozenset[str] = frozenset()


class _Call:
    """One call taken apart."""

    __slots__ = ("arguments", "key", "kept", "roots")

    def __init__(self, arguments: Arguments, key: Any, kept: list[Any], roots: list[Any]) -> None:
        self.arguments = arguments
        self.key = key
        self.kept = kept
        self.roots = roots


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
        "__weakref__",
        "_chains",
        "_entries",
        "_lock",
        "_signature",
        "_use_windows",
        "_version",
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
        self.reset()

    def reset(self) -> None:
        """Forget what was captured, and give back its memory."""
        with self._lock:
            self._entries: dict[Any, _Entry] = {}
            self._chains: list[Chain] | None = None
            self._version = 0
            self._use_windows = True
            self.captured: CapturedGraph | None = None

    @property
    def fxn(self) -> Callable[..., Any]:
        """The function inside."""
        return self.function

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
        name = f"_jit_of_{id(self)}"
        inside = getattr(instance, "__dict__", None)
        if inside is None:
            raise JitError(
                f"TinyJit on a method of {type(instance).__name__}, whose instances have no "
                "__dict__; write self.method = TinyJit(self._method) in a class that has one"
            )
        bound = inside.get(name)
        if bound is None:
            method = types.MethodType(self.function, instance)
            bound = inside.setdefault(name, TinyJit(method, prune=self.prune))
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
        return TinyJit, (self.function,)

    # ------------------------------------------------------------ calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not JIT or record.active() is not None or active_checks() is not None:
            return self.function(*args, **kwargs)
        with self._lock:
            call = self._take_apart(args, kwargs)
            entry = self._entries.get(call.key)
            if entry is not None:
                if entry.is_hopeless:
                    return self.function(*args, **kwargs)
                if entry.is_ready:
                    assert entry.graph is not None
                    result = entry.graph.replay(call.arguments, call.roots)
                    if result is not MISS:
                        return result
            return self._run(args, kwargs, call)

    def _take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        arguments = Arguments(self._signature.order(args, kwargs), self._use_windows)
        chains = self._chains
        if chains is None:
            chains = self._chains = find_names(self.function, _inside)
        structure: list[Any] = []
        numbers = arguments.numbers
        roots: list[Any] = []
        kept = arguments.kept
        for chain in chains:
            value = chain.find()[2]
            roots.append(value)
            kind = type(value)
            if chain.is_written:
                structure.append(isinstance(value, Tensor))
            elif kind is int or kind is bool:
                numbers.append((kind, value))
            elif kind is float:
                numbers.append(value.hex())
            elif kind in PLAIN:
                structure.append((kind, value))
            elif isinstance(value, Tensor):
                structure.append("tensor")
            elif isinstance(value, ContextVar):
                structure.append(value.value)
            elif isinstance(value, (list, tuple, dict)):
                # its own contents are looked at where they are used
                structure.append(kind)
            elif value is MISSING:
                structure.append("missing")
            else:
                structure.append(id(value))
                kept.append(value)
        key = (
            (self._version, _knobs(), arguments.structure, tuple(structure)),
            tuple(numbers),
        )
        return _Call(arguments, key, kept, roots)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: _Call) -> Any:
        """Run the function, and compare with what it did the last time."""
        found = find_names(self.function, _inside)
        if found != self._chains:
            self._chains = found
            self._version += 1
            call = self._take_apart(args, kwargs)
        entry = self._entries.get(call.key)
        is_strict = entry is not None and entry.last is not None
        assert self._chains is not None
        try:
            result, run = run_recorded(
                self.function, args, kwargs, call.arguments, self._chains, is_strict
            )
        except WindowConflict:
            self._use_windows = False
            return self._run(args, kwargs, self._take_apart(args, kwargs))
        for chain, before in zip(self._chains, call.roots, strict=True):
            after = chain.find()[2]
            if chain.is_written:
                continue
            if after is not before and (type(before) in PLAIN or type(after) in PLAIN):
                if not isinstance(before, Tensor) and not isinstance(after, Tensor):
                    run.leaks = f"it changes {chain}, on which it also depends"
        if entry is None:
            entry = self._add_entry(call)
        self._learn(entry, run, call)
        return result

    def _add_entry(self, call: _Call) -> _Entry:
        entry = self._entries[call.key] = _Entry(call.kept)
        if len(self._entries) > MANY_GRAPHS:
            self._warn(
                "many",
                f"{self!r} was called in {len(self._entries)} different ways (shapes, dtypes, "
                "views, numbers or objects), and each is captured for itself; give it inputs of "
                "one kind, or a Variable for a size that changes",
            )
        if len(self._entries) > MOST_GRAPHS:
            self._entries.pop(next(iter(self._entries)))
        return entry

    def _learn(self, entry: _Entry, run: Run, call: _Call) -> None:
        """Two runs in a row that did the same are what every further call does."""
        last, entry.last = entry.last, run
        if last is None:
            return
        entry.is_ready = False
        try:
            merged = merge_runs(last, run)
            changed = {n for n, v in run.variables.items() if last.variables.get(n) != v}
            entry.varied |= changed
            entry.is_ready = run.leaks is None
        except Mismatch:
            merged = merge_runs(run, run)
            entry.varied = frozenset()
        if run.leaks is None:
            assert self._chains is not None
            entry.graph = CapturedGraph(merged, self._chains, entry.varied)
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


def _inside(value: Any) -> Any:
    """The function in a TinyJit, for whoever looks for names."""
    return value.function if type(value) is TinyJit else value


# what changes the graph of everything; others change the code
_KNOBS = (TRAINING, NO_GRAD, WINO, SPLIT_REDUCEOP, DEFAULT_FLOAT, DEFAULT_INT)


def _knobs() -> tuple[Any, ...]:
    return (Device.DEFAULT, code_knobs(), *[knob.value for knob in _KNOBS])


mark_opaque(TinyJit)
jit = TinyJit
