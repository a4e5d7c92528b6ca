"""Runs an ONNX model: `OnnxRunner`.

In: a model, and inputs by name. Out: outputs by name. Sits on `model`, `inline` and `walk`.
Invariant: a graph in which no shape or branch depends on computed values is one TinyJit call.
The first call with given shapes walks the graph once and sees whether that is so; the values of
small integer inputs that shapes do depend on become part of what tells calls apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from weft.engine.jit import TinyJit
from weft.errors import DataError, JitError, MissingKeyError, WeftError
from weft.graphs.arrays import as_input, as_text
from weft.graphs.inline import inline_functions, lift_constants
from weft.graphs.model import Graph, load_model
from weft.graphs.types import OnnxValue
from weft.graphs.walk import Kept, Specialise, Walk
from weft.knobs import DEBUG
from weft.nn.formats.source import Readable
from weft.tensor import Tensor
from weft.uop.node import Variable

# values of an integer input that make programs of their own; with more, they are read when needed
_MOST_STATIC = 16
# sizes below this share one program from the beginning
_LEAST_BOUND = 16


@dataclass
class _Program:
    """What is known of the calls with one set of shapes."""

    is_whole: bool = True
    jit: Any = None
    template: list[Any] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


class OnnxRunner:
    """A model from an ONNX file. Call it with inputs by name; outputs come by name.

    `graph_inputs` and `graph_outputs` say what it takes and gives. Arrays of NumPy are taken as
    well as Tensors. Models with external data are given as a path; the data must lie in the same
    folder, or in `data_root`. All loops of one call together take at most `max_turns` turns.
    """

    def __init__(
        self,
        model_path: Readable,
        data_root: str | os.PathLike[str] | None = None,
        max_turns: int = 1 << 16,
    ) -> None:
        model = load_model(model_path, data_root)
        written = inline_functions(model)
        _check_order(written)
        self.graph: Graph = lift_constants(written)
        self.opsets = model.opsets
        self.metadata = model.metadata
        self.producer = model.producer
        constants = self.graph.constants
        self.graph_inputs: dict[str, OnnxValue] = {
            name: value for name, value in self.graph.inputs.items() if name not in constants
        }
        self.graph_outputs: dict[str, OnnxValue] = dict(self.graph.outputs)
        self._kept = Kept(self.graph, model.opsets, max_turns)
        self._static: set[str] = set()
        self._static_seen: dict[str, set[bytes]] = {}
        self._programs: dict[Any, _Program] = {}
        self._symbolic = _Symbolic()

    def __repr__(self) -> str:
        wanted = ", ".join(f"{name}: {_described(v)}" for name, v in self.graph_inputs.items())
        given = ", ".join(f"{name}: {_described(v)}" for name, v in self.graph_outputs.items())
        return f"<OnnxRunner of {len(self.graph.nodes)} nodes, {wanted} -> {given}>"

    def __call__(self, inputs: Mapping[str, Any] | None = None, debug: int = 0) -> dict[str, Any]:
        """The outputs by name: Tensors, lists of them, None, or arrays of strings."""
        given, sizes = self._checked(dict(inputs or {}))
        while True:
            key, values = self._key(given)
            if key not in self._programs and sizes:
                found = self._symbolic.run(self, values, sizes, debug)
                if found is not None:
                    return dict(zip(self.graph.outputs, found, strict=True))
            program = self._programs.setdefault(key, _Program())
            try:
                results = self._run(program, values, debug)
            except Specialise as special:
                del self._programs[key]
                self._static |= special.names
                continue
            return dict(zip(self.graph.outputs, results, strict=True))

    # ------------------------------------------------------------ inputs
    def _checked(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        known = self.graph.inputs
        for name in inputs:
            if name not in known:
                raise MissingKeyError(
                    f"the model has no input {name!r}; it has {', '.join(self.graph_inputs)}"
                )
        sizes: dict[str, tuple[int, str]] = {}
        checked = {}
        for name, wanted in self.graph_inputs.items():
            if name not in inputs and not wanted.is_optional:
                raise MissingKeyError(
                    f"the input {name!r} ({_described(wanted)}) is missing; the model takes "
                    f"{', '.join(self.graph_inputs)}, found {', '.join(inputs) or 'none'}"
                )
            checked[name] = as_input(name, inputs.get(name), wanted, sizes)
        for name in inputs:
            if name not in checked:
                checked[name] = as_input(name, inputs[name], known[name], sizes)
        return checked, {name: size for name, (size, _) in sizes.items()}

    def _key(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What tells programs apart, and the inputs with those on the host whose values do."""
        values = dict(given)
        for name in self._static - self._kept.refused:
            if isinstance(values.get(name), Tensor):
                values[name] = values[name].numpy()
                seen = self._static_seen.setdefault(name, set())
                seen.add(values[name].tobytes())
                if len(seen) > _MOST_STATIC:
                    self._kept.refused.add(name)
                    values[name] = given[name]
        return tuple((name, _signature(value)) for name, value in values.items()), values

    # ------------------------------------------------------------ running
    def _run(self, program: _Program, values: dict[str, Any], debug: int) -> list[Any]:
        tensors: list[Tensor] = []
        for value in values.values():
            _flatten(value, tensors)
        if program.jit is not None:
            try:
                replayed = iter(program.jit(*tensors))
                return [_rebuilt(result, replayed) for result in program.template]
            except JitError as error:
                program.jit, program.is_whole = None, False
                if DEBUG >= 1:
                    print(f"onnx: runs node by node, for {error}")
        walk = Walk(self._kept, False, program.notes, debug)
        results = walk.outputs(values)
        found: list[Tensor] = []
        for result in results:
            _flatten(result, found)
        kept = walk.fold()
        if found or kept:
            Tensor.realize(*found, *kept)
        program.is_whole = program.is_whole and walk.is_whole
        if program.is_whole:
            program.template = [_rebuilt(result, None) for result in results]
            program.jit = TinyJit(_Replay(self._kept, values, program.notes))
        elif DEBUG >= 1:
            print(f"onnx: runs node by node, for {walk.why}")
        return results


class _Symbolic:
    """Programs for free sizes: the names of sizes in the model as Variables.

    The first sizes of an input have a program of their own, with loops of known lengths. When
    others come, one program for all is tried. Its inputs lie in memory for the greatest size so
    far, rounded up to a power of two, so that nothing but the Variables' values changes.
    """

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.refused: set[Any] = set()
        self.bounds: dict[str, int] = {}
        self.programs: dict[Any, _Program] = {}

    def run(
        self, runner: OnnxRunner, given: dict[str, Any], sizes: dict[str, int], debug: int
    ) -> list[Any] | None:
        """The outputs, or None: these sizes need a program of their own."""
        form = tuple(
            (name, _form(value, runner.graph.inputs[name])) for name, value in given.items()
        )
        if form in self.refused or min(sizes.values()) < 1:
            return None
        if form not in self.seen:
            self.seen.add(form)
            return None
        for name, size in sizes.items():
            least = 1 << (size - 1).bit_length()
            self.bounds[name] = max(self.bounds.get(name, 0), least, _LEAST_BOUND)
        bounds = {name: self.bounds[name] for name in sizes}
        program = self.programs.setdefault((form, tuple(bounds.items())), _Program())
        variables = {
            name: Variable(_identifier(name), 1, bounds[name]).bind(size)
            for name, size in sizes.items()
        }
        try:
            values = {
                name: _widened(value, runner.graph.inputs[name], bounds, variables)
                for name, value in given.items()
            }
            results = runner._run(program, values, debug)
            if program.is_whole:
                return [_concrete(result) for result in results]
            why = "a shape depends on computed values"
        except (WeftError, Specialise) as error:
            why = str(error)
        self.refused.add(form)
        if DEBUG >= 1:
            print(f"onnx: one program for each of the sizes {', '.join(sizes)}, for {why}")
        return None


def _identifier(name: str) -> str:
    return "size_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def _form(value: Any, wanted: OnnxValue) -> Any:
    """What tells symbolic programs apart: all but the free sizes."""
    if not isinstance(value, Tensor) or wanted.shape is None:
        return _signature(value)
    named = [n or size for n, size in zip(wanted.shape, value.shape, strict=True)]
    return (tuple(named), value.dtype)


def _widened(
    value: Any, wanted: OnnxValue, bounds: dict[str, int], variables: dict[str, Any]
) -> Any:
    """An input in memory of the greatest sizes, of which the first part is looked at."""
    names = wanted.shape or ()
    if not isinstance(value, Tensor) or not any(isinstance(n, str) and n for n in names):
        return value
    whole = [
        bounds[n] if isinstance(n, str) and n else size
        for n, size in zip(names, value.shape, strict=True)
    ]
    array = value.numpy()
    room = numpy.zeros(whole, dtype=array.dtype)
    room[tuple(slice(0, size) for size in value.shape)] = array
    seen = tuple(slice(0, variables[n]) if isinstance(n, str) and n else slice(None) for n in names)
    return Tensor(room, dtype=value.dtype)[seen]


def _concrete(value: Any) -> Any:
    """A result with numbers for its sizes."""
    if isinstance(value, list):
        return [_concrete(one) for one in value]
    if not isinstance(value, Tensor) or all(isinstance(size, int) for size in value.shape):
        return value
    return Tensor(value.numpy(), dtype=value.dtype)


class _Replay:
    """The function that TinyJit captures: Tensors in a fixed order to Tensors in a fixed order."""

    def __init__(self, kept: Kept, values: dict[str, Any], notes: dict[str, Any]) -> None:
        self.kept = kept
        self.notes = notes
        # shapes and arrays of the host; the Tensors are given at each call
        self.values = {name: _rebuilt(value, None) for name, value in values.items()}

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        values = {name: _rebuilt(value, given) for name, value in self.values.items()}
        found: list[Tensor] = []
        for result in Walk(self.kept, True, self.notes).outputs(values):
            _flatten(result, found)
        return found


_HOLE = object()


def _flatten(value: Any, found: list[Tensor]) -> None:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, Tensor):
            found.append(one)


def _rebuilt(value: Any, tensors: Any) -> Any:
    """The same structure with other Tensors; without any, with holes."""
    if isinstance(value, list):
        return [_rebuilt(one, tensors) for one in value]
    if isinstance(value, Tensor) or value is _HOLE:
        return _HOLE if tensors is None else next(tensors)
    return value


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.device)
    if isinstance(value, list):
        return tuple(_signature(one) for one in value)
    if isinstance(value, numpy.ndarray):
        data = value.tobytes() if value.dtype != object else tuple(value.reshape(-1).tolist())
        return (value.shape, str(value.dtype), data)
    return value


def _described(value: OnnxValue) -> str:
    if value.is_sequence:
        return "a sequence"
    shape = "?" if value.shape is None else ", ".join(str(size or "?") for size in value.shape)
    return f"{as_text(value.onnx_type)}[{shape}]"


def _check_order(graph: Graph) -> None:
    """Every input of a node is there before it; else no order was meant, or the file is damaged."""
    known = {"", *graph.inputs, *graph.constants}
    for node in graph.nodes:
        for name in node.inputs:
            if name not in known:
                raise DataError(
                    f"{node} takes {name!r}, which no input, constant or node before it gives"
                )
        known.update(node.outputs)
    for name in graph.outputs:
        if name not in known:
            raise DataError(f"the output {name!r} of the graph is given by no node")
