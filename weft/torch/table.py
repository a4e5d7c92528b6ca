"""How the lowering of one of PyTorch's operators is written down, and where it is found.

In: functions over Tensors, one for each operator of core ATen. Out: `TABLE`, and `lowering_of`,
which looks into it. Sits below `lowerings`, which fill the table, and `lower`, which walks graphs.
Invariant: a lowering takes an operator's arguments in the order of its schema, tensors as Tensors,
and gives a Tensor or a tuple of them. Its result is cast to the dtype that PyTorch says it has, so
a lowering only sees to values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from weft.errors import UnsupportedError

Lowered = Callable[..., Any]


class Call(Protocol):
    """What a lowering may ask about the node that it lowers: as the argument `call`."""

    name: str  # of the operator, with its overload: `add.Tensor`
    meta: Any  # the result as PyTorch describes it, or a tuple of results

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the only result."""

    @property
    def arguments(self) -> list[Any]:
        """The arguments as PyTorch describes them."""

    def random_bits(self, count: Any) -> Any:
        """So many random uint32, others in every call."""

    def dtype_of(self, dtype: Any) -> Any:
        """The dtype of that of PyTorch's."""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    function: Lowered
    wants_call: bool


TABLE: dict[str, Row] = {}


def lowers(*names: str, call: bool = False) -> Callable[[Lowered], Lowered]:
    """Enters a function into the table as the operators of these names: `add` for all overloads of
    it that are not named themselves, `add.Scalar` for one."""

    def enter(function: Lowered) -> Lowered:
        for name in names:
            assert name not in TABLE, f"{name} is in the table twice"
            TABLE[name] = Row(function, call)
        return function

    return enter


def lowering_of(name: str) -> Row | None:
    """The row of an operator by its full name, `add.Tensor`, or by that of all its overloads."""
    found = TABLE.get(name)
    return TABLE.get(name.rpartition(".")[0]) if found is None else found


def refuse(why: str) -> UnsupportedError:
    """The error of a lowering that does not know a form of its operator: PyTorch runs the node."""
    return UnsupportedError(why)
