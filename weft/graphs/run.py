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
from weft.errors import DataError, JitError, MissingKeyError
from weft.graphs.arrays import as_input, as_text
from weft.graphs.inline import inline_functions
from weft.graphs.model import Graph, load_model
from weft.graphs.types import OnnxValue
from weft.graphs.walk import Kept, Specialise, Walk
from weft.knobs import DEBUG
from weft.nn.formats.source import Readable
from weft.tensor import Tensor

# values of an integer input that make programs of their own; with more, they are read when needed
_MOST_STATIC = 16


@dataclass
class _Program:
    """What is known of the calls with one set of shapes."""

    is_whole: bool = True
    jit: Any = None
    template: list[Any] = field(default_factory=list)


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
        self.graph: Graph = inline_functions(model)
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
        _check_order(self.graph)

    def __repr__(self) -> str:
        wanted = ", ".join(f"{name}: {_described(v)}" for name, v in self.graph_inputs.items())
        given = ", ".join(f"{name}: {_described(v)}" for name, v in self.graph_outputs.items())
        return f"<OnnxRunner of {len(self.graph.nodes)} nodes, {wanted} -> {given}>"

    def __call__(self, inputs: Mapping[str, Any] | None = None, debug: int = 0) -> dict[str, Any]:
        """The outputs by name: Tensors, lists of them, None, or arrays of strings."""
        given = self._checked(dict(inputs or {}))
        while True:
            key, values = self._key(given)
            program = self._programs.setdefault(key, _Program())
            try:
                results = self._run(program, values, debug)
            except Specialise as found:
                del self._programs[key]
                self._static |= found.names
                continue
            return dict(zip(self.graph.outputs, results, strict=True))

    # ------------------------------------------------------------ inputs
    def _checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
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
        return checked

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
        walk = Walk(self._kept, is_recorded=False, debug=debug)
        results = walk.outputs(values)
        found: list[Tensor] = []
        for result in results:
            _flatten(result, found)
        kept = walk.fold()
        if found or kept:
            Tensor.realize(*found, *kept)
        program.is_whole = program.is_whole and walk.is_whole
        if program.is_whole:
            program.template = results
            program.jit = TinyJit(_Replay(self._kept, values))
        elif DEBUG >= 1:
            print(f"onnx: runs node by node, for {walk.why}")
        return results


class _Replay:
    """The function that TinyJit captures: Tensors in a fixed order to Tensors in a fixed order."""

    def __init__(self, kept: Kept, values: dict[str, Any]) -> None:
        self.kept = kept
        # shapes and arrays of the host; the Tensors are given at each call
        self.values = {name: _rebuilt(value, None) for name, value in values.items()}

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        values = {name: _rebuilt(value, given) for name, value in self.values.items()}
        found: list[Tensor] = []
        for result in Walk(self.kept, is_recorded=True).outputs(values):
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
