"""How an operator's lowering is written down, and where it is found.

In: functions over Tensors, one for each operator and version. Out: `onnx_ops`, the table, and
`lowering_of`, which looks into it. Sits below `lowerings`, which fill the table, and `run`.
Invariant: a lowering's signature is the operator's: what may be given by position is an input, what
must be given by name is an attribute. An input annotated `Host` is asked for as a NumPy array,
for something about the result (a shape, an axis) depends on its values; one annotated `Either`
comes as an array if its values are known, and as a Tensor else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from weft.dtype import DType
from weft.errors import DataError, UnsupportedError
from weft.graphs.types import Domain, OnnxDataType, OpSetId
from weft.tensor import Tensor
from weft.uop.node import UOp

Host = numpy.ndarray[Any, Any]
Either = Tensor | Host
Lowered = Callable[..., Any]


class Call(Protocol):
    """What a lowering may ask about the node that it lowers: as the attribute `call`."""

    op_type: str
    opset: int
    outputs: int
    inputs: tuple[str, ...]

    def value(self, name: str) -> Any:
        """The value of a name in the scope of the node."""

    def type_of(self, number: int) -> OnnxDataType | None:
        """The type of an input."""

    def declare(self, number: int, kind: OnnxDataType) -> None:
        """Says that an output is of a type that a wider dtype holds."""

    def run(self, graph: Any, arguments: list[Any]) -> list[Any]:
        """A graph that is an attribute of the node, in the scope of the node."""

    def fetch(self, value: Any) -> Host:
        """The values of a Tensor on the host."""

    def tensor(self, value: Any) -> Tensor:
        """A value of the host as a Tensor."""

    def turned(self, states: list[Any]) -> list[Any]:
        """The states of a loop after one more turn of it; too many turns are refused."""

    def constant(self, key: Any, make: Callable[[], Any]) -> Tensor:
        """A table that depends on the node alone, made once."""


@dataclass(frozen=True)
class Lowering:
    """An operator from some version on."""

    name: str
    function: Lowered
    places: tuple[str, ...]  # "host", "tensor" or "either" for each input
    required: int
    rest: str | None  # the same for all further ones; None: there are no more
    attributes: frozenset[str]
    mandatory: frozenset[str]
    wants_call: bool

    def place(self, number: int) -> str | None:
        """Where an input is asked for."""
        return self.places[number] if number < len(self.places) else self.rest


onnx_ops: dict[str, dict[OpSetId, Lowering]] = {}
# operators over arrays of the host: sizes and indices, which are known before anything runs
host_ops: dict[str, dict[OpSetId, Lowering]] = {}

_KIND = inspect.Parameter


def _describe(name: str, function: Lowered) -> Lowering:
    places: list[str] = []
    rest = None
    attributes, mandatory, required = set(), set(), 0
    for parameter in inspect.signature(function).parameters.values():
        first = str(parameter.annotation).split(" ")[0]
        place = first.lower() if first in ("Host", "Either") else "tensor"
        if parameter.kind is _KIND.VAR_POSITIONAL:
            rest = place
        elif parameter.kind is _KIND.KEYWORD_ONLY:
            attributes.add(parameter.name)
            if parameter.default is _KIND.empty and parameter.name != "call":
                mandatory.add(parameter.name)
        else:
            places.append(place)
            required += parameter.default is _KIND.empty
    wants_call = "call" in attributes
    attributes.discard("call")
    return Lowering(
        name,
        function,
        tuple(places),
        required,
        rest,
        frozenset(attributes),
        frozenset(mandatory),
        wants_call,
    )


def lowers(
    *names: str,
    since: int = 1,
    domain: Domain = Domain.ONNX,
    table: dict[str, dict[OpSetId, Lowering]] | None = None,
) -> Callable[[Lowered], Lowered]:
    """Enters a function into the table as the operators of these names, from a version on."""

    def enter(function: Lowered) -> Lowered:
        for name in names:
            versions = (onnx_ops if table is None else table).setdefault(name, {})
            key = OpSetId(domain, since)
            assert key not in versions, f"{name} of {key} is in the table twice"
            versions[key] = _describe(name, function)
        return function

    return enter


def host_lowers(*names: str, since: int = 1) -> Callable[[Lowered], Lowered]:
    """The same for the table over arrays of the host."""
    return lowers(*names, since=since, table=host_ops)


def lowering_of(
    name: str, domain: Domain, version: int, table: dict[str, dict[OpSetId, Lowering]] | None = None
) -> Lowering | None:
    """The newest lowering of an operator that is not newer than the version."""
    versions = (onnx_ops if table is None else table).get(name, {})
    known = [key for key in versions if key.domain is domain and key.version <= version]
    return versions[max(known, key=lambda key: key.version)] if known else None


def missing(name: str, domain: Domain, version: int) -> UnsupportedError:
    """The error for an operator that is not in the table."""
    versions = [key.version for key in onnx_ops.get(name, {}) if key.domain is domain]
    if versions:
        return UnsupportedError(
            f"{name} of {domain.value} exists from version {min(versions)} on, found {version}"
        )
    return UnsupportedError(f"the operator {name} of {domain.value} has no lowering")


# ------------------------------------------------------------ what many lowerings need
def is_symbolic(value: Any) -> bool:
    """Whether an array of the host holds sizes that are Variables."""
    return (
        isinstance(value, numpy.ndarray)
        and value.dtype == object
        and any(isinstance(one, UOp) for one in value.reshape(-1))
    )


def refuse(what: str) -> DataError:
    """An error about the values of attributes or inputs; who calls adds the node."""
    return DataError(what)


def axis_of(axis: Any, rank: int) -> int:
    """A checked axis, counted from the front."""
    found = int(axis)
    if not -rank <= found < max(rank, 1):
        raise refuse(f"axis {found} of a tensor with {rank} axes")
    return found % rank if rank else 0


def axes_of(axes: Any, rank: int) -> list[int]:
    """Checked axes, counted from the front."""
    found = [axis_of(axis, rank) for axis in numpy.asarray(axes).reshape(-1)]
    if len(set(found)) != len(found):
        raise refuse(f"the axes {list(axes)} name one twice")
    return found


def sizes_of(values: Host) -> list[Any]:
    """The numbers of an array of sizes as Python's."""
    return [v if not isinstance(v, numpy.integer) else int(v) for v in values.reshape(-1).tolist()]


def one_of(value: Host | None, default: Any = None) -> Any:
    """The number in an array of one."""
    if value is None or value.size == 0:
        return default
    if value.size != 1:
        raise refuse(f"one number is wanted, found shape {value.shape}")
    found = value.reshape(-1)[0]
    return found.item() if isinstance(found, numpy.generic) else found


def like(values: Any, dtype: DType) -> Tensor:
    """A Tensor of given type over constants."""
    return Tensor(values, dtype=dtype)
