"""Capture a function for export: run it a few times, undo what that changed, keep what it did.

In: a function over tensors and inputs to call it with. Out: `Captured`: the JIT's record of a run,
the inputs by name, and the contents that its state had before.
Sits between the JIT, which records and compares runs, and `build`, which makes a plan of one.
Invariant: after a capture the function's state is what it was before.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft.dtype import DType, strong_dtype
from weft.engine.jit.check import Snapshot
from weft.engine.jit.objects import child_of
from weft.engine.jit.templates import Label
from weft.engine.jit.tinyjit import TinyJit
from weft.engine.jit.trace import Run
from weft.engine.storage import buffer_of
from weft.errors import ExportError, JitError, WeftError
from weft.export.names import Names, identifier, path_name
from weft.mixin.rand import RandMixin
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops

_PACKAGE = str(Path(__file__).resolve().parent.parent)
# calls until two in a row did the same
_MOST_CALLS = 6


@dataclass
class Captured:
    """What a function does, and what it began with."""

    name: str
    run: Run
    # of each tensor argument: name, shape, dtype
    inputs: dict[int, tuple[str, tuple[Any, ...], DType]]
    sizes: dict[str, UOp]  # variables that the caller gives
    results: list[tuple[str, Tensor]]  # of the last call, with the names of the outputs
    state_names: dict[Label, str]
    state_tensors: dict[Label, Any]  # what is there now, after all was undone
    random: tuple[int, int]
    device: str
    kept: list[Any] = field(default_factory=list)
    late_tensors: dict[Label, Any] = field(default_factory=dict)  # what is there after a call
    late: set[Label] = field(default_factory=set)  # states that were not there before

    def contents(self, label: Label, size: int, nbytes: int) -> bytes:
        """What a state begins with."""
        name = self.state_names[label]
        found = self.state_tensors[label]
        if not isinstance(found, Tensor):
            # made by the first call and only read since: a constant
            found = self.late_tensors[label]
            self.late.add(label)
        cell = found._cell
        storage = cell.storage if cell.is_realized and not cell.pure else None
        if storage is not None and storage.arg.size == size:
            return bytes(buffer_of(storage).ensure_allocated().as_memoryview())
        data = bytes(found.contiguous().realize()._bytes())
        if len(data) != nbytes:
            raise ExportError(
                f"the state {name} has {len(data)} bytes before the first call and {nbytes} after "
                "it; start with a Tensor of the shape and dtype that it keeps"
            )
        return data


def capture(function: Callable[..., Any], inputs: Any, name: str) -> Captured:
    """Run a function with these inputs, and with other values of its variables."""
    if isinstance(function, TinyJit):
        function = function.function
    if not callable(function):
        raise ExportError(f"export takes a function over Tensors, found {function!r}")
    args, kwargs = _arguments(inputs)
    names = _input_names(function, args, kwargs)
    outputs = _Outputs(function)
    jit: TinyJit = TinyJit(outputs)
    first = _calls(args, kwargs, 0)
    # what it may change is looked for before it runs
    jit._watch.predict(jit._take_apart(*first).arguments.extra)
    call = jit._take_apart(*first)
    random = (RandMixin._random.seed, RandMixin._random.counter)
    snapshot = Snapshot(call.arguments, call.guards.places)
    try:
        run, results, places = _run(jit, args, kwargs, function)
        late = {label: _follow(label, places) for label in run.groups}
    finally:
        snapshot.restore()
    tensors = call.arguments.tensors
    found = Captured(
        name=identifier(name, "model"),
        run=run,
        inputs={
            index: (names[id(tensor)], _free_shape(tensor), tensor.dtype)
            for index, tensor in enumerate(tensors)
        },
        sizes=_sizes(args, kwargs),
        results=results,
        state_names=_state_names(run, places),
        state_tensors={label: _follow(label, places) for label in run.groups},
        random=random,
        device=_device(tensors, run),
        kept=[jit, snapshot],
        late_tensors=late,
    )
    return found


class _Outputs:
    """The function, whose results are all in memory of their own, row by row."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.function(*args, **kwargs)
        return _flatten(found)


def _flatten(value: Any) -> dict[str, Any]:
    """The tensors of a result by name; what is nothing is left out."""
    found: dict[str, Any] = {}
    names = Names()
    pending: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, Tensor):
            name = path_name(path) if path else "output"
            name = f"output_{name}" if name[0] == "_" or name.isdigit() else name
            found[names.take(name)] = _row_by_row(value)
        elif isinstance(value, Mapping):
            pending += [((*path, key), child) for key, child in reversed(list(value.items()))]
        elif isinstance(value, (tuple, list)):
            parts: list[tuple[Any, Any]] = list(enumerate(value))
            parts = [("output", p[1]) if len(parts) == 1 and not path else p for p in parts]
            fields = getattr(value, "_fields", None)
            if fields is not None:
                parts = list(zip(fields, value, strict=True))
            pending += [((*path, key), child) for key, child in reversed(parts)]
        elif value is not None:
            where = ".".join(map(str, path)) or "the result"
            raise ExportError(
                f"{where} is {value!r}, and exported functions give Tensors (or dicts, lists and "
                "tuples of them); return Tensor(...) of it, or leave it out"
            )
    return found


def _row_by_row(value: Tensor) -> Tensor:
    """A result that is no view but of all elements in order."""
    if all(op is Ops.RESHAPE for op, _ in value._moves):
        return value
    found = value.contiguous()
    # the line that made the value is the one to show
    found._cell._value.origin = value.uop.origin
    return found


# ------------------------------------------------------------ inputs
def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), {str(name): _own(value) for name, value in inputs.items()}
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return tuple([_own(value) for value in given]), {}


def _own(value: Any) -> Any:
    """An input in memory of its own, row by row: not a part of another, and nobody's state."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = Tensor(np.ascontiguousarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)([_own(part) for part in value])
    if isinstance(value, Mapping):
        return {key: _own(part) for key, part in value.items()}
    if not isinstance(value, Tensor):
        return value
    shape = value.shape
    largest = 1
    for size in shape:
        largest *= int(size.vmax) if isinstance(size, UOp) else size
    if largest == 0:
        raise ExportError(f"an input of shape {shape} has no elements; leave it out")
    dtype = strong_dtype(value.dtype)
    if all(isinstance(size, int) for size in shape):
        data = value.cast(dtype).contiguous().clone().realize()
        return data
    flat = Tensor.zeros(largest, dtype=dtype, device=value.device).contiguous().clone().realize()
    elements: Any = 1
    for size in shape:
        elements = size * elements
    _plain_sizes(shape)
    return flat.shrink(((0, elements),)).reshape(shape)


def _plain_sizes(shape: Sequence[Any]) -> None:
    for size in shape:
        if isinstance(size, UOp) and not all(v.op is Ops.VARIABLE for v in size.unbind_all()[1]):
            raise ExportError(f"the size {size} of an input has no variable; bind a Variable")


def _leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[tuple[Any, ...], Any]]:
    """Everything in the arguments, with its path."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((i,), v) for i, v in enumerate(args)]
    pending += [((name,), value) for name, value in kwargs.items()]
    found = []
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, Mapping):
            pending = [((*path, k), v) for k, v in value.items()] + pending
        elif isinstance(value, (list, tuple)):
            pending = [((*path, i), v) for i, v in enumerate(value)] + pending
        else:
            found.append((path, value))
    return found


def _input_names(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[int, str]:
    """By id of each tensor: what the function calls it."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [p.name for p in parameters if p.kind not in variadic]
    names = Names(_variables(args, kwargs))
    found: dict[int, str] = {}
    for path, value in _leaves(args, kwargs):
        if not isinstance(value, Tensor):
            continue
        first = path[0]
        if isinstance(first, int):
            first = plain[first] if first < len(plain) else f"input{first}"
        found[id(value)] = names.take(path_name((first, *path[1:])))
    if not found:
        raise ExportError(
            "export needs at least one Tensor to call the function with; its inputs are the "
            "Tensors that it is given, what it closes over are weights"
        )
    return found


def _bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[UOp, int]]:
    """Variables in the arguments, in order, and their values."""
    found: dict[str, tuple[UOp, int]] = {}
    for _, value in _leaves(args, kwargs):
        parts = value.shape if isinstance(value, Tensor) else (value,)
        for part in parts:
            if isinstance(part, UOp):
                free, values = part.unbind_all()
                for variable in free.variables():
                    if variable not in values:
                        raise ExportError(
                            f"the variable {variable.arg.name} of an input has no value to call "
                            f"the function with; bind it, as {variable.arg.name}.bind("
                            f"{variable.arg.lo})"
                        )
                    found.setdefault(variable.arg.name, (variable, values[variable]))
    return found


def _variables(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    return list(_bound(args, kwargs))


def _sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, UOp]:
    return {name: variable for name, (variable, _) in _bound(args, kwargs).items()}


def _free_shape(tensor: Tensor) -> tuple[Any, ...]:
    return tuple([s.unbind_all()[0] if isinstance(s, UOp) else s for s in tensor.shape])


def _calls(
    args: tuple[Any, ...], kwargs: dict[str, Any], turn: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with other values of the variables in every turn."""
    bound = _bound(args, kwargs)
    if not bound or turn == 0:
        return args, kwargs
    changes: dict[UOp, UOp] = {}
    for variable, value in bound.values():
        low, high = variable.arg.lo, variable.arg.hi
        other = low + (value - low + turn) % (min(high - low, 2) + 1)
        changes[variable.bind(value)] = variable.bind(other)

    def changed(value: Any) -> Any:
        if isinstance(value, UOp):
            return value.substitute(changes)
        if isinstance(value, (list, tuple)):
            return type(value)([changed(part) for part in value])
        if isinstance(value, Mapping):
            return {key: changed(part) for key, part in value.items()}
        if isinstance(value, Tensor) and any(isinstance(s, UOp) for s in value.shape):
            return _resized(value, tuple(map(changed, value.shape)))
        return value

    return tuple(map(changed, args)), {name: changed(value) for name, value in kwargs.items()}


def _resized(value: Tensor, shape: tuple[Any, ...]) -> Tensor:
    storage = value._cell.storage
    assert storage is not None
    elements: Any = 1
    for size in shape:
        elements = size * elements
    flat = Tensor(value._cell.value)
    flat._cell = value._cell
    return flat.shrink(((0, elements),)).reshape(shape)


# ------------------------------------------------------------ runs
def _run(
    jit: TinyJit, args: tuple[Any, ...], kwargs: dict[str, Any], function: Any
) -> tuple[Run, list[tuple[str, Tensor]], Sequence[Any]]:
    """Call until two runs in a row did the same; the run, its results, the places of its state."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for turn in range(_MOST_CALLS):
            call_args, call_kwargs = _calls(args, kwargs, turn)
            try:
                results = jit(*call_args, **call_kwargs)
            except ExportError:
                raise
            except WeftError as error:
                raise ExportError(_refusal(function, error)) from error
            graph = jit.captured
            ready = [e for e in jit._entries.values() if e.graph is graph and e.is_ready]
            if ready and graph is not None:
                return graph.run, list(results.items()), graph.state.places
    reasons = [str(w.message).rpartition("runs without being jitted: ")[2] for w in said]
    leaks = [e.last.leaks for e in jit._entries.values() if e.last is not None and e.last.leaks]
    why = [*leaks, *reasons, "it does something else in every call"][0]
    raise ExportError(
        f"{_named(function)} cannot be exported: {why}. An exported function runs no Python: what "
        "changes from call to call has to be a Tensor or a Variable that it is given"
    )


def _refusal(function: Any, error: WeftError) -> str:
    """Which line cannot be exported, why, and what to do."""
    where, method = _user_line(error)
    named = f"{_named(function)} cannot be exported: "
    if where is None:
        return f"{named}{error}"
    if isinstance(error, JitError) and error.what is not None:
        return (
            f"{named}{where}: {method} {error.what}, which exported code, without Python, cannot "
            "do. Choose by where() instead of if, keep all elements and a mask instead of some of "
            "them; or return the Tensor and read it outside"
        )
    return f"{named}{where}: {error}"


def _user_line(error: BaseException) -> tuple[str | None, str]:
    """The last line outside of weft that led to an error, and the method that it called."""
    where, method = None, "it"
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            where, method = f"{Path(code.co_filename).name}:{trace.tb_lineno}", "it"
        elif method == "it":
            method = code.co_name
        trace = trace.tb_next
    return where, method


def _named(function: Any) -> str:
    """A function and where it stands."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return name if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno} ({name})"


def _state_names(run: Run, places: Sequence[Any]) -> dict[Label, str]:
    found = {}
    for label in run.groups:
        if label.kind != "state":
            continue
        root, *path = label.path
        keys = [key for key in path if key not in ("__self__", "function", "__dict__")]
        text = str(places[root]).rpartition(".")[2] if not keys else ""
        found[label] = path_name(keys or [text])
    return found


def _follow(label: Label, places: Sequence[Any]) -> Any:
    """What is at the place of a state now; None where nothing is."""
    from_root, *path = label.path
    if label.kind != "state":
        return None
    value = places[from_root].value()
    try:
        for key in path:
            value = child_of(value, key)
    except (LookupError, AttributeError):
        return None
    return value


def _device(tensors: Sequence[Tensor], run: Run) -> str:
    devices = {str(fact[2]) for execution in run.executions for fact in execution.facts}
    devices |= {str(memory.device) for e in run.executions for memory in e.prepared.made}
    if len(devices) > 1:
        raise ExportError(
            f"the function works on {', '.join(sorted(devices))}; an export runs in one place: "
            "move its weights and inputs to one device with .to(...)"
        )
    return devices.pop() if devices else str(tensors[0].device)
