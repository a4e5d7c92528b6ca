"""The step of an optimiser as a call: looked up before it is run, like methods of tensors.

In: an optimiser whose parameters have gradients. Out: the writes of its step, known by their forms,
without running what computes them. Sits under the optimisers, above `engine.forms`.
Invariant: the key holds all that a step reads: the kind of optimiser, its numbers, the forms of its
tensors and gradients and which of their storages are the same, and every knob.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from weft.engine.cell import Cell
from weft.engine.forms import CallCache, WriteForm, form_of, is_on, sources_of, state_now
from weft.engine.operands import user_line
from weft.tensor import Tensor
from weft.uop.node import UOp

_PLAIN = (bool, int, float, str, type(None))


class _Write(NamedTuple):
    """A tensor that a step writes: its number, the write, the storages of it by number, and the
    gradients that it is computed from."""

    tensor: int
    form: WriteForm
    storages: tuple[int, ...]
    gradients: tuple[int, ...]


class _Step(NamedTuple):
    writes: list[_Write]
    parts: list[list[int]]  # what is realized together, as numbers of tensors


_steps = CallCache(most=256)


class StepCall:
    """A step over the tensors of an optimiser and the gradients of its parameters."""

    def __init__(self, key: tuple[Any, ...], tensors: list[Tensor], storages: list[UOp]) -> None:
        self._key = key
        self._tensors = tensors
        self._storages = storages

    @classmethod
    def of(cls, optimizer: Any, gradients: list[Any]) -> Self | None:
        """None if it cannot be said what the step reads."""
        state = state_now()
        # whoever writes an optimiser of his own may read what is not in it
        if not is_on(state) or not type(optimizer).__module__.startswith("weft.nn."):
            return None
        static: list[Any] = [state, type(optimizer), len(gradients)]
        tensors: list[Tensor] = list(gradients)
        for name, value in vars(optimizer).items():
            if isinstance(value, Tensor):
                tensors.append(value)
                static.append(name)
            elif type(value) in (list, tuple):
                if all([isinstance(part, Tensor) for part in value]):
                    tensors += value
                    static.append((name, len(value)))
                elif all([type(part) in _PLAIN for part in value]):
                    static.append((name, *[(type(part), part) for part in value]))
                else:
                    return None
            else:
                static.append((name, type(value), value))
        numbers: dict[UOp, int] = {}
        for tensor in tensors:
            cell = tensor._cell
            formed = cell.formed or (cell._node is not None and form_of(cell))
            if not formed or tensor._moves:
                return None
            form, storages = formed
            static.append(form)
            static += [numbers.setdefault(storage, len(numbers)) for storage in storages]
            static.append((cell.is_asked, tensor.grad is None))
        try:
            hash(key := tuple(static))
        except TypeError:
            return None
        return cls(key, tensors, list(numbers))

    def parts(self) -> list[list[Tensor]] | None:
        """What the step realizes, the writes pending; None if it has to be run."""
        step: _Step | None = _steps.get(self._key)
        if step is None:
            return None
        tensors, storages = self._tensors, self._storages
        for write in step.writes:
            held = storages[write.storages[0]].held
            if Cell.is_shared(storages[write.storages[0]]) or held.is_part or held.past:
                return None
        origin = user_line()
        sources = [sources_of(tensor._cell) for tensor in tensors[: self._key[2]]]
        for write in step.writes:
            read = [
                source
                for number in write.gradients
                if tensors[number]._cell._node is None
                for source in sources[number]
            ]
            own = tuple([storages[number] for number in write.storages])
            tensors[write.tensor]._cell.write_form((write.form, own), tuple(read), origin)
        return [[tensors[number] for number in part] for part in step.parts]

    def keep(self, parts: list[list[Tensor]]) -> None:
        """Remember what the step has come to, if that is writes that are known by their forms."""
        _steps.keep(self._key, self._step(parts))

    def _step(self, parts: list[list[Tensor]]) -> _Step | None:
        numbers = {id(tensor): number for number, tensor in enumerate(self._tensors)}
        places = {storage: number for number, storage in enumerate(self._storages)}
        gradients = {tensor._cell: n for n, tensor in enumerate(self._tensors[: self._key[2]])}
        writes: list[_Write] = []
        for tensor in [tensor for part in parts for tensor in part]:
            cell = tensor._cell
            if id(tensor) not in numbers:
                return None
            if cell.write:
                form, storages = cell.write
                if any([storage not in places for storage in storages]):
                    return None
                found = [gradients[c] for r in cell.sources if (c := r()) in gradients]
                own = tuple([places[storage] for storage in storages])
                writes.append(_Write(numbers[id(tensor)], form, own, tuple(found)))
            elif cell not in gradients and not cell.is_realized:
                return None
        return _Step(writes, [[numbers[id(tensor)] for tensor in part] for part in parts])
