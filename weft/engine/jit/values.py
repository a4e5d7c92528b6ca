"""What the names in a function lead to, taken apart: the other half of a call's key.

In: the chains that a function depends on. Out: `Values`: their structure, and the numbers among
them, as `Arguments` has it of the arguments.
Sits above `arguments`, below the JIT, which asks for them at every call.
Invariant: no tensor and no container of tensors is kept from one call to the next.

Most calls find what the one before found. That is asked by identity, which is cheap; only then are
the values looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.engine.jit.arguments import Contents
from weft.engine.jit.names import MISSING, Chain
from weft.engine.jit.objects import PLAIN
from weft.knobs import ContextVar
from weft.tensor import Tensor


class Values:
    """The values that chains have now."""

    __slots__ = (
        "_expected",
        "_is_steady",
        "kept",
        "numbers",
        "owners",
        "places",
        "raw",
        "structure",
    )

    def __init__(self, chains: Sequence[Chain], roots: Sequence[Any]) -> None:
        self.numbers: list[Any] = []
        self.raw: list[Any] = []
        self.places: list[tuple[Any, Any]] = []  # of a number under a name: (the chain, None)
        self.owners: list[Chain] = []  # the name that each number was found under
        self.kept: list[Any] = []  # objects that the structure knows by their id
        # what has to be there for the same values: this very object, or any of this type
        self._expected: list[tuple[Any, type | None]] = []
        self._is_steady = True
        structure: list[Any] = []
        for chain, value in zip(chains, roots, strict=True):
            structure.append(self._add(chain, value))
        self.structure = tuple(structure)

    def are_those_of(self, roots: Sequence[Any]) -> bool:
        """Whether these values mean the same; also False where that takes a closer look."""
        if not self._is_steady:
            return False
        for (found, kind), value in zip(self._expected, roots, strict=True):
            if found is not value if kind is None else kind is not type(value):
                return False
        return True

    def _add(self, chain: Chain, value: Any) -> Any:
        kind = type(value)
        by_type = chain.is_written or isinstance(value, (Tensor, list, tuple, dict))
        self._expected.append((None, kind) if by_type else (value, None))
        if chain.is_written:
            return isinstance(value, Tensor)
        if kind is int or kind is bool or kind is float:
            self._add_number(value, (chain, None), chain)
            return kind
        if kind in PLAIN:
            return kind, value
        if isinstance(value, Tensor):
            return "tensor"
        if isinstance(value, ContextVar):
            self._is_steady = False
            return value.value
        if isinstance(value, (list, tuple, dict)):
            return (kind, self._open(chain, value)) if chain.is_opened else kind
        if value is MISSING:
            return "missing"
        self.kept.append(value)
        return id(value)

    def _add_number(self, value: Any, place: tuple[Any, Any], chain: Chain) -> None:
        self.numbers.append(value.hex() if type(value) is float else value)
        self.raw.append(value)
        self.places.append(place)
        self.owners.append(chain)

    def _open(self, chain: Chain, container: Any) -> Any:
        """What is inside may change without the container being another."""
        self._is_steady = False
        found = Contents(container)
        self.kept += found.kept
        for value, place in zip(found.raw, found.places, strict=True):
            self._add_number(value, place, chain)
        return found.structure
