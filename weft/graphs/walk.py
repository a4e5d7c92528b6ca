"""One walk over the graph of a model: every node lowered in turn.

In: the graph, what the runner keeps of it, and the values of the inputs. Out: the outputs' values.
Sits on the table; `run` walks once with given shapes and then inside of a capture.
Invariant: sizes and indices that are known stay on the host and cost nothing; a value that is
computed is read only where a lowering asks for it, which is noted, for then no single program can
hold the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy

from weft.dtype import DType, dtypes
from weft.errors import ArgumentError, DataError, JitError, WeftError
from weft.graphs.arrays import describe
from weft.graphs.model import Graph, Node, StoredTensor
from weft.graphs.operators import FAMILIES
from weft.graphs.table import Host, Lowering, host_ops, is_symbolic, lowering_of, missing
from weft.graphs.types import NARROW, TYPE_OF_DTYPE, Domain, OnnxDataType
from weft.helpers import prod
from weft.tensor import Tensor

assert FAMILIES, "the table is filled by importing them"

# elements of integer constants that are kept on the host, where sizes are computed from them
_HOST_ELEMENTS = 1024
# turns of a loop that are written out in one program
_UNROLLED = 64
# elements of an integer input whose values may tell programs apart
_STATIC_ELEMENTS = 64
# what a folded constant may grow to before it is computed at every call instead
_GROWTH = 2
_LARGE = 1 << 20

_UNFOLDED = frozenset(
    "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial "
    "Dropout".split()
)
_RANDOM = frozenset({"random numbers"})
# on the sizes of inputs, or on small ones by value: known on the host, and the same in a program
_SIZES = frozenset({"sizes"})
# outputs are of the type of the first input, or of the second
_KEEPS_TYPE = dict.fromkeys(
    "Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Gather Concat Split Expand Tile Pad"
    " GatherElements GatherND".split(),
    0,
)


class Specialise(Exception):
    """The values of inputs decide a shape."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


@dataclass
class Kept:
    """What is made once for a model, whatever the shapes of its inputs."""

    graph: Graph
    opsets: dict[str, int]
    most_turns: int
    # inputs whose values came in too many kinds to have a program each
    refused: set[str] = field(default_factory=set)
    loaded: dict[str, Any] = field(default_factory=dict)
    # values of nodes that depend on constants alone
    folded: dict[str, Any] = field(default_factory=dict)
    folded_types: dict[str, OnnxDataType] = field(default_factory=dict)
    tables: dict[Any, Tensor] = field(default_factory=dict)
    fetched: dict[int, tuple[Tensor, Host]] = field(default_factory=dict)
    # constants of graphs inside of nodes
    inner: dict[int, dict[str, Any]] = field(default_factory=dict)


class Scope:
    """Values by name, inside of a graph; what is not there is outside."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.values: dict[str, Any] = {}
        # inputs of the model that a Tensor was computed from
        self.depends: dict[str, frozenset[str]] = {}
        self.types: dict[str, OnnxDataType] = {}

    def find(self, name: str) -> Scope | None:
        """The scope that has a value of this name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope


class Walk:
    """Each node lowered in turn. `is_recorded`: inside of a capture, where no value can be read."""

    def __init__(
        self, kept: Kept, is_recorded: bool, notes: dict[str, Host], debug: int = 0
    ) -> None:
        self.kept = kept
        # values that depend on sizes alone and that a lowering asked for, by name
        self.notes = notes
        self.is_recorded = is_recorded
        self.debug = debug
        self.is_whole = True
        self.why = ""
        self.foldable: dict[str, Tensor] = {}
        self.turns = 0
        # inputs of few elements
        self.small: set[str] = set()

    def outputs(self, values: dict[str, Any]) -> list[Any]:
        """The outputs of the model's graph."""
        scope = Scope()
        graph = self.kept.graph
        for name, value in values.items():
            scope.values[name] = value
            if isinstance(value, Tensor) and all(isinstance(n, int) for n in value.shape):
                if prod(value.shape) <= _STATIC_ELEMENTS:
                    self.small.add(name)
            scope.depends[name] = frozenset({name}) if _has_tensors(value) else _SIZES
            kind = graph.inputs[name].onnx_type
            if kind in NARROW:
                scope.types[name] = kind
        results = self.graph(graph, scope, self.kept.loaded)
        return [self._result(value) for value in results]

    def _result(self, value: Any) -> Any:
        """What a caller gets: arrays of numbers as Tensors."""
        if isinstance(value, list):
            return [self._result(one) for one in value]
        if isinstance(value, numpy.ndarray) and not _holds_text(value):
            return self.tensor(value)
        return value

    def graph(self, graph: Graph, scope: Scope, loaded: dict[str, Any]) -> list[Any]:
        """The outputs of a graph whose inputs are in the scope."""
        for name, stored in graph.constants.items():
            if name in scope.values:
                continue
            if name not in loaded:
                loaded[name] = _load(stored)
            scope.values[name] = loaded[name]
            if stored.kind in NARROW:
                scope.types[name] = stored.kind
        for node in graph.nodes:
            self.node(node, scope)
        results = []
        for name in graph.outputs:
            found = scope.find(name)
            if found is None:
                raise DataError(f"the output {name!r} of the graph is given by no node")
            results.append(found.values[name])
        return results

    def node(self, node: Node, scope: Scope) -> None:
        """Lowers one node, or takes what was folded of it."""
        folded = self.kept.folded
        if scope.outer is None and all(name in folded for name in node.outputs if name):
            for name in node.outputs:
                if name:
                    scope.values[name] = folded[name]
                    if name in self.kept.folded_types:
                        scope.types[name] = self.kept.folded_types[name]
            if any(node.outputs):
                return
        call = NodeCall(self, node, scope)
        try:
            results = call.lower()
        except (Specialise, JitError):
            raise
        except WeftError as error:
            if getattr(error, "_is_about_a_node", False):
                raise
            raise _about(call, error, error) from error
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            raise _about(call, error, DataError()) from error
        call.store(results)

    def fold(self) -> list[Tensor]:
        """Keeps what depends on constants alone; gives what has to be computed for that."""
        kept = []
        for name, tensor in self.foldable.items():
            self.kept.folded[name] = tensor
            kept.append(tensor)
        return kept

    # ------------------------------------------------------------ values on the host and back
    def fetch(self, value: Any, depends: frozenset[str], what: str, name: str = "") -> Host:
        """The values of a Tensor, if need be by computing it now."""
        if isinstance(value, numpy.ndarray):
            return value
        if not isinstance(value, Tensor):
            raise DataError(f"{what} is {describe(value)}, a Tensor is wanted")
        if name and depends == _SIZES:
            if name not in self.notes:
                self.notes[name] = value.numpy()
            return self.notes[name]
        if depends and not self.is_recorded:
            inputs = self.kept.graph.inputs
            small = all(
                name in inputs
                and name not in self.kept.refused
                and not _is_float(inputs[name].dtype)
                and not inputs[name].is_sequence
                and name in self.small
                for name in depends - _SIZES
            )
            if small and depends - _SIZES:
                raise Specialise(depends - _SIZES)
            if self.is_whole:
                self.is_whole, self.why = False, what
        if depends:
            array: Host = value.numpy()
            return array
        # by identity: constants are the same Tensors in every walk
        fetched = self.kept.fetched
        if id(value) not in fetched:
            fetched[id(value)] = (value, value.numpy())
        return fetched[id(value)][1]

    def tensor(self, value: Any) -> Tensor:
        """A value of the host as a Tensor: one number is part of the kernel, more are stored."""
        if isinstance(value, Tensor):
            return value
        if is_symbolic(value):
            numbers = [Tensor(one).cast(dtypes.int64) for one in value.reshape(-1)]
            joined = numbers[0].stack(*numbers[1:]) if len(numbers) > 1 else numbers[0]
            return joined.reshape(value.shape)
        if not isinstance(value, numpy.ndarray) or value.dtype == object:
            raise DataError(f"found {describe(value)} where numbers are wanted")
        dtype = Tensor(value[:0].reshape(-1) if value.ndim else value.reshape(1)[:0]).dtype
        if value.size == 0:
            return Tensor.empty(*value.shape, dtype=dtype)
        if value.size == 1:
            return Tensor.full(value.shape, value.reshape(-1)[0].item(), dtype=dtype)
        key = (value.shape, str(value.dtype), value.tobytes())
        return self.constant(key, lambda: Tensor(value))

    def constant(self, key: Any, make: Callable[[], Any]) -> Tensor:
        """A Tensor that is made and stored once for the model."""
        tables = self.kept.tables
        if key not in tables:
            made = make()
            made = made if isinstance(made, Tensor) else self._stored(made)
            if self.is_recorded:
                return made
            tables[key] = made.realize()
        return tables[key]

    def _stored(self, made: Any) -> Tensor:
        return Tensor(numpy.asarray(made))


def _holds_text(value: Host) -> bool:
    return value.dtype == object and not is_symbolic(value)


def _has_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list) and any(map(_has_tensors, value)))


def _is_float(dtype: DType | None) -> bool:
    return dtype is None or dtypes.is_float(dtype)


def _load(stored: StoredTensor) -> Any:
    """A constant: small integers (sizes, axes) and single numbers on the host, others stored."""
    kind = stored.kind
    if kind is OnnxDataType.STRING:
        return stored.numpy()
    dtype = kind.to_dtype()
    plain = dtype not in (dtypes.bfloat16, *dtypes.fp8s)
    if plain and (
        (not dtypes.is_float(dtype) and stored.count <= _HOST_ELEMENTS) or stored.count <= 8
    ):
        return stored.numpy()
    return stored.tensor().realize()


def _about(call: NodeCall, cause: Exception, kind: WeftError) -> WeftError:
    """The error, with the node that it is about."""
    values = ", ".join(
        f"{name!r} = {describe(call.value(name))}" if name else "(left out)"
        for name in call.node.inputs
    )
    reason = f"{type(cause).__name__}: {cause}" if kind is not cause else str(cause)
    text = f"{call.node}, opset {call.opset}, with inputs {values or 'none'}: {reason}"
    try:
        found = type(kind)(text)
    except TypeError:
        found = DataError(text)
    found._is_about_a_node = True  # type: ignore[attr-defined]
    return found


class NodeCall:
    """One node in its scope: what its lowering may ask for (`table.Call`)."""

    def __init__(self, walk: Walk, node: Node, scope: Scope) -> None:
        self.walk = walk
        self.node = node
        self.scope = scope
        self.op_type = node.op_type
        self.inputs = node.inputs
        self.outputs = len(node.outputs)
        versions = walk.kept.opsets if node.opsets is None else node.opsets
        domain = "" if node.domain == "ai.onnx" else node.domain
        self.opset = versions.get(domain, walk.kept.opsets.get(domain, 1))
        self.declared: dict[int, OnnxDataType] = {}
        self.turns = 0
        self.fetched_as: DType | None = None
        self.depends: frozenset[str] = frozenset()

    def value(self, name: str) -> Any:
        """The value of a name, None if it is left out."""
        found = self.scope.find(name) if name else None
        return None if found is None else found.values[name]

    def depends_on(self, name: str) -> frozenset[str]:
        """The inputs of the model that a value depends on."""
        found = self.scope.find(name) if name else None
        return frozenset() if found is None else found.depends.get(name, frozenset())

    def lower(self) -> Any:
        """The results of the node."""
        node = self.node
        domain = Domain.from_onnx(node.domain)
        lowering = lowering_of(node.op_type, domain, self.opset)
        values = []
        for name in node.inputs:
            if name and self.scope.find(name) is None:
                raise DataError(f"{name!r} is given by nothing before it")
            values.append(self.value(name))
            self.depends |= self.depends_on(name)
        while values and values[-1] is None and node.inputs[len(values) - 1] == "":
            values.pop()
        if values and all(isinstance(v, numpy.ndarray) or v is None for v in values):
            on_host = lowering_of(node.op_type, domain, self.opset, host_ops)
            if on_host is not None:
                return self._apply(on_host, values)
        if lowering is None:
            raise missing(node.op_type, domain, self.opset)
        return self._apply(lowering, values)

    def _apply(self, lowering: Lowering, values: list[Any]) -> Any:
        if len(values) < lowering.required or (
            lowering.rest is None and len(values) > len(lowering.places)
        ):
            raise DataError(
                f"takes {lowering.required} to {len(lowering.places)} inputs, found {len(values)}"
            )
        arguments = []
        for number, value in enumerate(values):
            place = lowering.place(number)
            if value is None or isinstance(value, list) or place == "either":
                arguments.append(value)
            elif place == "host":
                name = self.node.inputs[number]
                what = f"input {number} ({name!r}) of {self.node}"
                note = name if self.scope.outer is None else ""
                if isinstance(value, Tensor) and value.dtype in (dtypes.bfloat16, *dtypes.fp8s):
                    self.fetched_as = value.dtype
                arguments.append(self.walk.fetch(value, self.depends_on(name), what, note))
            elif isinstance(value, numpy.ndarray) and _holds_text(value):
                arguments.append(value)
            else:
                arguments.append(self.walk.tensor(value))
        attributes = dict(self.node.attributes)
        unknown = attributes.keys() - lowering.attributes
        if unknown:
            known = ", ".join(sorted(lowering.attributes)) or "none"
            raise DataError(f"has the attribute {sorted(unknown)[0]!r}; known are: {known}")
        lacking = lowering.mandatory - attributes.keys()
        if lacking:
            raise DataError(f"lacks the attribute {sorted(lacking)[0]!r}")
        if lowering.wants_call:
            attributes["call"] = self
        return lowering.function(*arguments, **attributes)

    def store(self, results: Any) -> None:
        """Binds the results to the names of the outputs."""
        found = list(results) if isinstance(results, tuple) else [results]
        if len(found) < len([n for n in self.node.outputs if n]):
            raise _about(
                self,
                DataError(f"gives {len(found)} outputs, {len(self.node.outputs)} are named"),
                DataError(),
            )
        if self.node.op_type in _UNFOLDED:
            self.depends |= _RANDOM
        if self.fetched_as is not None:
            found = [self._as_fetched(value, self.fetched_as) for value in found]
        kind = None
        if self.node.op_type in _KEEPS_TYPE and self.node.inputs:
            kind = self._narrow(self.node.inputs[0])
        for number, (name, value) in enumerate(zip(self.node.outputs, found, strict=False)):
            if not name:
                continue
            self.scope.values[name] = value
            narrow = self.declared.get(number, kind)
            if narrow in NARROW:
                self.scope.types[name] = narrow
            if isinstance(value, numpy.ndarray):
                self.scope.depends[name] = _SIZES if self.depends else frozenset()
                continue
            self.scope.depends[name] = self.depends
            if not self.depends and not self.walk.is_recorded and self.scope.outer is None:
                self._fold(name, value, narrow)
        if self.walk.debug >= 1:
            shown = ", ".join(describe(value) for value in found)
            print(f"onnx: {self.node} -> {shown}")

    def _as_fetched(self, value: Any, dtype: DType) -> Any:
        """An array of the host in the type of what it came from, which NumPy does not have."""
        if isinstance(value, numpy.ndarray) and value.dtype == numpy.float32:
            return self.walk.tensor(value).cast(dtype)
        return value

    def _fold(self, name: str, value: Any, narrow: OnnxDataType | None) -> None:
        if not isinstance(value, Tensor) or not all(isinstance(s, int) for s in value.shape):
            return
        size = prod(value.shape) * value.dtype.itemsize
        given = sum(
            prod(v.shape) * v.dtype.itemsize
            for v in map(self.value, self.node.inputs)
            if isinstance(v, Tensor)
        )
        if size <= max(_LARGE, _GROWTH * given):
            self.walk.foldable[name] = value
            if narrow in NARROW:
                self.walk.kept.folded_types[name] = narrow

    def _narrow(self, name: str) -> OnnxDataType | None:
        found = self.scope.find(name) if name else None
        return None if found is None else found.types.get(name)

    # ------------------------------------------------------------ for lowerings
    def type_of(self, number: int) -> OnnxDataType | None:
        """The type of an input, None if it is left out."""
        name = self.inputs[number] if number < len(self.inputs) else ""
        value = self.value(name)
        if is_symbolic(value):
            return OnnxDataType.INT64
        if isinstance(value, numpy.ndarray) and value.dtype == object:
            return self._narrow(name) or OnnxDataType.STRING
        if value is None or isinstance(value, list):
            return None
        dtype: DType = value.dtype if isinstance(value, Tensor) else self.walk.tensor(value).dtype
        return self._narrow(name) or TYPE_OF_DTYPE[dtype]

    def declare(self, number: int, kind: OnnxDataType) -> None:
        """Says that an output is of a type that a wider dtype holds."""
        self.declared[number] = kind

    def run(self, graph: Any, arguments: list[Any]) -> list[Any]:
        """A graph that is an attribute, with its inputs bound in order."""
        if not isinstance(graph, Graph):
            raise ArgumentError("the attribute is no graph")
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(arguments) != len(names):
            raise DataError(f"its graph takes {len(names)} inputs, found {len(arguments)}")
        scope = Scope(self.scope)
        # what a graph inside reads of the outside is not followed name by name
        outside: frozenset[str] = self.depends | frozenset().union(*_all_depends(self.scope, graph))
        self.depends = outside
        for name, value in zip(names, arguments, strict=True):
            scope.values[name] = value
            scope.depends[name] = outside
        return self.walk.graph(graph, scope, self.walk.kept.inner.setdefault(id(graph), {}))

    def fetch(self, value: Any) -> Host:
        """The values of a Tensor on the host."""
        return self.walk.fetch(value, self.depends, f"a value of {self.node}")

    def tensor(self, value: Any) -> Tensor:
        """A value of the host as a Tensor."""
        return self.walk.tensor(value)

    def turned(self, states: list[Any]) -> list[Any]:
        """The states of a loop after one more turn of it; too many turns are refused."""
        walk = self.walk
        self.turns += 1
        walk.turns += 1
        if walk.turns > walk.kept.most_turns:
            raise DataError(
                f"the loops of one call took {walk.turns} turns; OnnxRunner(max_turns=...) allows "
                "more"
            )
        tensors = [state for state in states if isinstance(state, Tensor)]
        if walk.is_recorded or self.turns < _UNROLLED or not tensors:
            return [s.contiguous() if isinstance(s, Tensor) else s for s in states]
        # one program of so many copies of the body would take longer to compile than it saves
        if walk.is_whole:
            walk.is_whole, walk.why = False, f"the many turns of {self.node}"
        Tensor.realize(*tensors)
        return states

    def constant(self, key: Any, make: Callable[[], Any]) -> Tensor:
        """A table that depends on the node alone, made once."""
        return self.walk.constant((self.node.op_type, key), make)


def _all_depends(scope: Scope, graph: Graph) -> list[frozenset[str]]:
    """What the values that a graph takes from outside depend on."""
    found, pending = [], [graph]
    while pending:
        one = pending.pop()
        names = [name for node in one.nodes for name in node.inputs] + list(one.outputs)
        for name in names:
            owner = scope.find(name) if name else None
            if owner is not None:
                found.append(owner.depends.get(name, frozenset()))
        for node in one.nodes:
            pending.extend(v for v in node.attributes.values() if isinstance(v, Graph))
    return found
