"""What a call can change, put aside and put back; and results of two executions compared.

In: the arguments of a call and the names its function reads. Out: `Snapshot`, which can undo what
the call did; `difference` between what two executions left behind.
Sits above the runs; `JIT_CHECK=1` and trials of the JIT use it.
Invariant: after `restore` the memory, the places and the random numbers that the JIT knows of are
as they were. Other effects of Python are not undone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes, strong_dtype
from weft.engine import history
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.objects import (
    Reachable,
    children_of,
    is_fixed,
    remove_child,
    set_child,
)
from weft.engine.jit.places import Place, state_roots
from weft.engine.known import forget, forget_readers
from weft.engine.storage import buffer_of, storages_of
from weft.mixin.rand import RandMixin
from weft.tensor import Tensor
from weft.uop.node import UOp

# of floats, in units of the type's precision: other fusions round in other places
_TOLERANCE = 64


class Snapshot:
    """Everything that the JIT knows a call can change."""

    def __init__(self, arguments: Arguments, places: Sequence[Place]) -> None:
        walk = Reachable(state_roots(places))
        tensors = [*arguments.tensors, *[found.tensor for found in walk.found]]
        self.tensors = {id(t): (t, t._cell, t._moves, t.grad, t.requires_grad) for t in tensors}
        cells = {id(t._cell): t._cell for t in tensors}
        pending = [c for c in cells.values() if not c.pure and not c.is_realized]
        engine.realize_cells([c for c in pending if c.value.device is not None], Cell.live)
        self.cells = [(c, c.value, c.version, c.pure) for c in cells.values()]
        self.bytes: dict[UOp, list[bytes]] = {}
        for cell in cells.values():
            storage = cell.storage
            if storage is not None and cell.is_realized and storage not in self.bytes:
                self.bytes[storage] = [
                    bytes(buffer_of(part).ensure_allocated().as_memoryview())
                    for part in storages_of(storage)
                ]
        containers = [c for c in arguments.containers if not is_fixed(c)]
        self.children = [(c, dict(children_of(c) or {})) for c in containers]
        self.children += [s for s in walk.snapshot() if not isinstance(s[0], Tensor)]
        self.roots = [
            (container, key, value)
            for _, container, key, value in state_roots(places)
            if container is not None
        ]
        state = RandMixin._random
        self.random = (state.seed, state.counter)

    def restore(self) -> None:
        """Undo what happened since."""
        for tensor, cell, moves, grad, requires_grad in self.tensors.values():
            tensor._cell, tensor._moves, tensor._uop = cell, moves, None
            tensor.grad, tensor.requires_grad = grad, requires_grad
        for cell, value, version, pure in self.cells:
            cell.value, cell.version, cell.pure = value, version, pure
        history.overwrite(self.bytes)
        for storage, contents in self.bytes.items():
            for part, data in zip(storages_of(storage), contents, strict=True):
                buffer_of(part).copyin(data)
            forget(storage)
        forget_readers(set(self.bytes))
        for container, before in self.children:
            _put_back(container, before)
        for container, key, value in self.roots:
            if (children_of(container) or {}).get(key) is not value:
                set_child(container, key, value)
        state = RandMixin._random
        state.seed, state.counter = self.random


def _put_back(container: Any, before: dict[Any, Any]) -> None:
    now = dict(children_of(container) or {})
    if len(now) == len(before) and all(now.get(k) is v for k, v in before.items()):
        return
    if hasattr(container, "extend") and hasattr(container, "clear"):
        container.clear()
        container.extend(before.values())
        return
    for key in now.keys() - before.keys():
        remove_child(container, key)
    for key, value in before.items():
        if now.get(key) is not value:
            set_child(container, key, value)


class Outcome:
    """What an execution left behind: its result and the state, in numbers."""

    def __init__(self, result: Any, arguments: Arguments, places: Sequence[Place]) -> None:
        roots: list[tuple[Any, Any, Any, Any]] = [("the result", None, None, result)]
        roots += [(f"argument {i}", None, None, v) for i, v in enumerate(arguments.values)]
        roots += [
            (f"{places[number]}", container, key, value)
            for number, container, key, value in state_roots(places)
        ]
        found = Reachable(roots).found
        engine.realize_cells([f.tensor._cell for f in found], Cell.live)
        self.values = {
            f.label: (f.tensor.dtype, f.tensor.shape, bytes(f.tensor._bytes())) for f in found
        }

    def difference(self, other: Outcome) -> str | None:
        """Where this differs from another outcome, in words; None if it does not."""
        if self.values.keys() != other.values.keys():
            only = sorted(self.values.keys() ^ other.values.keys(), key=repr)
            return f"there is a Tensor at {_place(only[0])} in one of them only"
        for label, (dtype, shape, contents) in self.values.items():
            other_dtype, other_shape, other_contents = other.values[label]
            concrete = [_sizes(shape), _sizes(other_shape)]
            if dtype is not other_dtype or concrete[0] != concrete[1]:
                kinds = f"{dtype}{concrete[0]} and {other_dtype}{concrete[1]}"
                return f"the Tensor at {_place(label)} is of two kinds, {kinds}"
            if contents == other_contents:
                continue
            pair = _first_difference(contents, other_contents, strong_dtype(dtype))
            if pair is not None:
                return f"the Tensor at {_place(label)} has the values {pair[0]} and {pair[1]}"
        return None


def _place(label: tuple[Any, ...]) -> str:
    return str(label[0]) + "".join(f"[{key!r}]" for key in label[1:])


def _sizes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(int(s.vmax) if isinstance(s, UOp) else s for s in shape)


def _first_difference(one: bytes, other: bytes, dtype: DType) -> tuple[Any, Any] | None:
    left, right = (Tensor(contents, dtype=dtype).tolist() for contents in (one, other))
    if not dtypes.is_float(dtype):
        return next(((a, b) for a, b in zip(left, right, strict=True) if a != b), None)
    size = max((abs(v) for v in right if math.isfinite(v)), default=0.0)
    allowed = _TOLERANCE * 2.0 ** -dtypes.finfo(dtype)[1] * size
    for a, b in zip(left, right, strict=True):
        if a != b and not (math.isnan(a) and math.isnan(b)) and not abs(a - b) <= allowed:
            return a, b
    return None
