"""Models on several devices: five ways, each one line around a model.

In: a model that is called with tensors, and devices. Out: something that is called like the model,
computes the same values, and has the same parameters under the same names.
Sits above the modules and `state`. Invariant: the model's own code does not change; what differs is
where its parameters and arguments are.

    DataParallel      parameters whole on each device, the batch cut
    FullySharded      parameters cut, gathered where they are used; the batch cut
    TensorParallel    parameters cut along axes that their names say; the batch on each device
    SequenceParallel  parameters whole on each device, the sequences cut
    Pipeline          blocks on one device after another, the batch in micro-batches
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from weft.device import Device
from weft.errors import ArgumentError
from weft.mixin.shard import several_devices
from weft.nn.state import get_state_dict
from weft.tensor import Tensor


def ranks() -> tuple[str, ...]:
    """The devices of all processes that `mpirun` started: `mpirun -n 4 python train.py`.

    Every process runs the same program and holds its part of each tensor on these devices.
    """
    first: Any = Device["MPI"]
    return tuple([f"MPI:{number}" for number in range(first.ranks.count)])


class _Placed:
    """A model whose parameters are on several devices."""

    def __init__(self, model: Any, devices: Sequence[str]) -> None:
        self.model = model
        self.devices = several_devices(devices)

    def _argument(self, value: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        placed = [self._argument(value) for value in args]
        return self.model(*placed, **{name: self._argument(v) for name, v in kwargs.items()})


class DataParallel(_Placed):
    """Every device has the parameters and a part of the batch; gradients are added up.

    >>> model = nn.parallel.DataParallel(nn.Linear(4, 2), ("CPU:1", "CPU:2"))
    >>> model(Tensor.ones(6, 4)).uop.axis
    0
    """

    def __init__(self, model: Any, devices: Sequence[str]) -> None:
        super().__init__(model, devices)
        for parameter in get_state_dict(model).values():
            parameter.shard_(self.devices)

    def _argument(self, value: Any) -> Any:
        return _cut(value, self.devices, 0)


class FullySharded(_Placed):
    """Every device has a part of each parameter, of its gradient and of the optimiser's state, and
    a part of the batch. A parameter is gathered where it is used.

    >>> model = nn.parallel.FullySharded(nn.Linear(4, 2), ("CPU:1", "CPU:2"))
    >>> model.model.weight.uop.bounds
    ((0, 1), (1, 2))
    """

    def __init__(self, model: Any, devices: Sequence[str]) -> None:
        super().__init__(model, devices)
        for parameter in get_state_dict(model).values():
            parameter.shard_(self.devices, _widest(parameter, len(self.devices)))

    def _argument(self, value: Any) -> Any:
        return _cut(value, self.devices, 0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        gathered = {
            id(parameter): parameter.shard(self.devices)
            for parameter in get_state_dict(self.model).values()
        }
        with _standing_in(self.model, gathered):
            return super().__call__(*args, **kwargs)


class TensorParallel(_Placed):
    """Parameters are cut along the axes that `axes` gives for patterns of their names; the others,
    and all arguments, are whole on each device.

    Cut the weight of a layer along 0 and that of the next along 1: the activations between them are
    cut, and one all-reduce follows the second.

    >>> axes = {"0.weight": 0, "0.bias": 0, "1.weight": 1}
    >>> layers = [nn.Linear(4, 6), nn.Linear(6, 2)]
    >>> model = nn.parallel.TensorParallel(layers, ("CPU:1", "CPU:2"), axes)
    >>> [layer.weight.uop.axis for layer in layers]
    [0, 1]
    """

    def __init__(self, model: Any, devices: Sequence[str], axes: Mapping[str, int]) -> None:
        super().__init__(model, devices)
        parameters = get_state_dict(model)
        for pattern in axes:
            if not any([fnmatchcase(name, pattern) for name in parameters]):
                raise ArgumentError(
                    f"TensorParallel cuts parameters by their names, found none like {pattern!r} "
                    f"among {', '.join(list(parameters)[:8])} ..."
                )
        for name, parameter in parameters.items():
            found = [axis for pattern, axis in axes.items() if fnmatchcase(name, pattern)]
            parameter.shard_(self.devices, found[0] if found else None)

    def _argument(self, value: Any) -> Any:
        return _cut(value, self.devices, None)


class SequenceParallel(_Placed):
    """Every device has the parameters and a part of each sequence, along `axis` of the arguments.
    Keys and values of attention go around a ring.

    >>> model = nn.parallel.SequenceParallel(nn.Linear(4, 2), ("CPU:1", "CPU:2"))
    >>> model(Tensor.ones(3, 6, 4)).uop.axis
    1
    """

    def __init__(self, model: Any, devices: Sequence[str], axis: int = 1) -> None:
        super().__init__(model, devices)
        self.axis = axis
        for parameter in get_state_dict(model).values():
            parameter.shard_(self.devices)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim <= self.axis:
            return _cut(value, self.devices, None)
        return _cut(value, self.devices, self.axis)


class Pipeline:
    """The blocks of a model, which are a list in it, on one device after another; everything else
    on the first. The batch goes through in `micro` parts: devices work on different ones.

    What comes out is joined: one number of each part becomes their mean, other results follow each
    other along the first axis.

    >>> class Model:
    ...     def __init__(self):
    ...         self.blocks = [nn.Linear(4, 4) for _ in range(4)]
    ...     def __call__(self, x):
    ...         return x.sequential(self.blocks).sum()
    >>> model = nn.parallel.Pipeline(Model(), ("CPU:1", "CPU:2"), micro=2)
    >>> [block.weight.device for block in model.model.blocks]
    ['CPU:1', 'CPU:1', 'CPU:2', 'CPU:2']
    """

    def __init__(self, model: Any, devices: Sequence[str], micro: int = 1) -> None:
        self.model = model
        self.devices = several_devices(devices)
        self.micro = micro
        if micro < 1:
            raise ArgumentError(f"Pipeline needs at least one micro-batch, found {micro}")
        blocks = _longest_list(model)
        if len(blocks) < len(self.devices):
            raise ArgumentError(
                f"Pipeline puts a list of blocks on {len(self.devices)} devices, found "
                f"{len(blocks)} blocks in {type(model).__name__}"
            )
        first = self.devices[0]
        inside = {id(p) for block in blocks for p in get_state_dict(block).values()}
        for parameter in get_state_dict(model).values():
            if id(parameter) not in inside:
                parameter.to_(first)
        for number, block in enumerate(blocks):
            device = self.devices[number * len(self.devices) // len(blocks)]
            for parameter in get_state_dict(block).values():
                parameter.to_(device)
            last = first if number == len(blocks) - 1 else None
            blocks[number] = _Stage(block, device, last)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        sizes = {value.shape[0] for value in given if isinstance(value, Tensor) and value.ndim}
        if len(sizes) != 1 or next(iter(sizes)) % self.micro:
            raise ArgumentError(
                f"Pipeline cuts the batch into {self.micro} equal parts, found arguments of "
                f"{sorted(sizes)} rows"
            )
        rows = next(iter(sizes)) // self.micro
        results = []
        for number in range(self.micro):
            part = slice(number * rows, (number + 1) * rows)
            mine = [self._part(value, part) for value in args]
            named = {name: self._part(value, part) for name, value in kwargs.items()}
            results.append(self.model(*mine, **named))
        if len(results) == 1:
            return results[0]
        if not results[0].ndim:
            return Tensor.stack(*results).mean()
        return Tensor.cat(*results, dim=0)

    def _part(self, value: Any, part: slice) -> Any:
        if not isinstance(value, Tensor):
            return value
        return (value[part] if value.ndim else value).to(self.devices[0])


class _Stage:
    """A block on its device. Its attributes are those of the block, so parameters keep their
    names."""

    __slots__ = ("__dict__", "_block", "_device", "_last")

    def __init__(self, block: Any, device: str, last: str | None) -> None:
        self._block, self._device, self._last = block, device, last
        self.__dict__ = block.__dict__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        moved = [x.to(self._device) if isinstance(x, Tensor) else x for x in args]
        named = {k: x.to(self._device) if isinstance(x, Tensor) else x for k, x in kwargs.items()}
        result = self._block(*moved, **named)
        return result if self._last is None else result.to(self._last)


# ------------------------------------------------------------ helpers
def _cut(value: Any, devices: tuple[str, ...], axis: int | None) -> Any:
    if not isinstance(value, Tensor) or value.device is None and not value.ndim:
        return value
    return value.shard(devices, axis if value.ndim else None)


def _widest(parameter: Tensor, count: int) -> int | None:
    """The axis that is cut: the first that has equal parts, else the longest."""
    sizes = [size for size in parameter.shape if isinstance(size, int)]
    if not sizes or len(sizes) < parameter.ndim:
        return None
    equal = [axis for axis, size in enumerate(sizes) if size >= count and size % count == 0]
    return equal[0] if equal else max(range(len(sizes)), key=lambda axis: sizes[axis])


def _longest_list(model: Any) -> list[Any]:
    found = [v for v in vars(model).values() if isinstance(v, list) and all(map(callable, v))]
    return max(found, key=len, default=[])


@contextmanager
def _standing_in(model: Any, others: dict[int, Tensor]) -> Iterator[None]:
    """The tensors of a model replaced by others, by id, for as long as it takes."""
    changed: list[tuple[Any, Any, Tensor]] = []
    seen: set[int] = set()
    pending = [model]
    while pending:
        owner = pending.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        place = owner if isinstance(owner, (list, dict)) else getattr(owner, "__dict__", None)
        if place is None:
            continue
        pairs = list(enumerate(place) if isinstance(place, list) else place.items())
        for key, value in pairs:
            if not isinstance(value, Tensor):
                pending.extend(value if isinstance(value, tuple) else [value])
            elif id(value) in others:
                changed.append((place, key, value))
    try:
        for place, key, value in changed:
            place[key] = others[id(value)]
        yield
    finally:
        for place, key, value in changed:
            place[key] = value
