"""Optimizer: what all optimisers share: the parameters, the learning rate, the frame of a step.

In: parameters whose `.grad` backward has filled. Out: new values in their storages.
Sits under `optim`, whose classes say what a step changes.
Invariant: nothing is computed before `step()` or whoever realizes what `schedule_step()` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack

from weft.device import Device
from weft.dtype import DType, computing_dtype, dtypes, least_upper_dtype, strong_dtype
from weft.engine import host
from weft.engine.gradients import is_own_constant
from weft.engine.known import remember
from weft.engine.storage import shaped, store_bytes
from weft.errors import ArgumentError
from weft.helpers import dedup, prod
from weft.knobs import FUSE_OPTIM
from weft.nn.step_call import StepCall
from weft.tensor import Tensor

# a storage and the value that it gets
Change = tuple[Tensor, Tensor]
# a number that stays, or one that a schedule changes
Number = float | Tensor


class Frame(TypedDict, total=False):
    """What every optimiser takes beside its own arguments."""

    # where it computes and keeps its state; None: where each parameter is
    device: str | tuple[str, ...] | None
    # whether all parameters are updated together; None: as the knob FUSE_OPTIM says
    fused: bool | None


class Optimizer:
    """What all optimisers share: the parameters, the learning rate, the frame of a step.

    Float tensors are trained unless they have `requires_grad=False`; the others (running
    statistics, counters) are its `buffers`, realized together with a step. A parameter without a
    gradient is left as it is. A kind of optimiser says in `_changes` what a step does.
    With `fused` (the default, FUSE_OPTIM) a step is a few kernels over all parameters; without,
    `step()` updates one parameter after another.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, **frame: Unpack[Frame]) -> None:
        is_many = isinstance(params, Iterable) and not isinstance(params, Tensor)
        given: list[Any] = dedup(params if is_many else [params])
        for param in given:
            if not isinstance(param, Tensor):
                raise ArgumentError(
                    f"an optimiser takes Tensors, found a {type(param).__name__}; "
                    "nn.state.get_parameters(model) gives those of a model"
                )
            if param.requires_grad is None and dtypes.is_float(param.dtype):
                param.requires_grad_()
        self.params: list[Tensor] = [param for param in given if param.requires_grad]
        self.buffers: list[Tensor] = [param for param in given if not param.requires_grad]
        if not self.params:
            raise ArgumentError(
                f"an optimiser needs parameters, found none to train among {len(given)} tensors"
            )
        if isinstance(lr, (int, float)) and not lr >= 0:
            raise ArgumentError(f"an optimiser's learning rate is at least 0, found {lr}")
        for tensor in (*self.params, *self.buffers):
            _store_constant(tensor)
        asked, fused = frame.get("device"), frame.get("fused")
        self.fused = bool(FUSE_OPTIM) if fused is None else fused
        self.place = None if asked is None else Device.canonicalize(asked)
        self.device = self.params[0].device if self.place is None else self.place
        self.dtype = dtypes.float32
        for param in self.params:
            self.dtype = least_upper_dtype(self.dtype, param.dtype)
        self.lr = self._state([lr])
        # what schedules start from; the first one sets it
        self.initial_lr: float | None = None

    @property
    def wd(self) -> float:
        """The weight decay, as tinygrad calls it."""
        found: float = getattr(self, "weight_decay", 0.0)
        return found

    def _state(self, data: list[float] | list[int], dtype: DType | None = None) -> Tensor:
        """A few numbers of the optimiser's own."""
        made = Tensor(data, self.device, dtype or self.dtype, requires_grad=False)
        return made.realize()

    def _zeros(self) -> list[Tensor]:
        """Zeros like each parameter, at least as wide as float32."""
        return [
            _zeros_like(param, computing_dtype(param.dtype), self.place) for param in self.params
        ]

    def zero_grad(self) -> None:
        """Forgets the gradients, so that the next backward starts from nothing.

        >>> x = Tensor([1.0])
        >>> optimizer = nn.optim.SGD([x])
        >>> loss = (x * x).sum().backward()
        >>> optimizer.zero_grad()
        >>> x.grad is None
        True
        """
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Changes the parameters by one step.

        >>> x = Tensor([1.0])
        >>> optimizer = nn.optim.SGD([x], lr=0.25)
        >>> loss = (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [0.5]
        """
        parts = self._parts(None)
        if self.fused:
            parts = [[tensor for part in parts for tensor in part]]
        for part in parts:
            part[0].realize(*part[1:])

    def schedule_step(self, skip: Tensor | None = None) -> list[Tensor]:
        """As `step`, but lazy: the tensors to realize. Where `skip` is true nothing changes.

        >>> x = Tensor([1.0])
        >>> optimizer = nn.optim.SGD([x], lr=0.25)
        >>> loss = (x * x).sum().backward()
        >>> _ = Tensor.realize(loss, *optimizer.schedule_step())
        >>> x.tolist()
        [0.5]
        """
        return [tensor for part in self._parts(skip) for tensor in part]

    def _parts(self, skip: Tensor | None) -> list[list[Tensor]]:
        """What one step realizes: the gradients, each parameter with its state, what is shared."""
        # in memory before the first step, so that all steps are the same program; what is pending
        # on the way, such as running statistics, is left to the step, which computes it all at once
        pending = [param for param in self.params if param._cell.storage is None]
        if pending:
            Tensor.realize(*pending)
        present = [i for i, param in enumerate(self.params) if param.grad is not None]
        if not present:
            raise ArgumentError(
                f"none of the {len(self.params)} parameters has a gradient; call backward() on a "
                "loss that depends on them first"
            )
        call = (
            None if skip is not None else StepCall.of(self, [self.params[i].grad for i in present])
        )
        known = None if call is None else call.parts()
        if known is not None:
            return known
        changes: list[list[Change]] = []
        gradients = []
        for number in present:
            param = self.params[number]
            gradient = param.grad
            assert gradient is not None
            gradients.append(gradient)
            wide = computing_dtype(param.dtype)
            place = param.device if self.place is None else self.place
            value, slope = (x.detach().to(place).cast(wide) for x in (param, gradient))
            changes.append(self._changes(number, value, slope))
        changes.append(self._shared_changes(present))
        changed = [[_assigned(storage, value, skip) for storage, value in c] for c in changes]
        # gradients read what is overwritten, so they are computed before; in a fixed order, by
        # which a step is known to be the same as the one before
        rest = [*changed.pop(), *self.buffers]
        parts = [gradients, *changed, *([rest] if rest else [])]
        if call is not None:
            call.keep(parts)
        return parts

    def _shared_changes(self, present: Sequence[int]) -> list[Change]:
        """What a step changes once for all parameters; `present` are those with a gradient."""
        return []

    def _changes(self, number: int, value: Tensor, gradient: Tensor) -> list[Change]:
        """What a step changes for one parameter, whose value and gradient are given."""
        raise NotImplementedError

    def _beside(self, number: Number, value: Tensor) -> Number:
        """A number of the optimiser's own, to compute with a value."""
        if not isinstance(number, Tensor):
            return number
        return number.to(value.device).cast(value.dtype)

    def _rate(self, value: Tensor) -> Any:
        """The learning rate, beside a value."""
        return self._beside(self.lr, value)

    def get_momentum(self) -> float:
        """The momentum (Adam's b1) now.

        >>> nn.optim.SGD([Tensor([1.0])], momentum=0.5).get_momentum()
        0.5
        """
        found = self._momentum()
        return float(found.item()) if isinstance(found, Tensor) else found

    def _momentum(self) -> Number:
        """The momentum, which may be a Tensor."""
        raise ArgumentError(
            f"{type(self).__name__} has no momentum; a schedule of it needs cycle_momentum=False"
        )

    def _open_momentum(self) -> None:
        """From now on the momentum is a Tensor, for a schedule to change."""
        self._momentum()

    def _momentum_changes(self, new: Tensor) -> list[Change]:
        """What changes if the momentum becomes another."""
        raise NotImplementedError


def _zeros_like(param: Tensor, dtype: DType, place: Any) -> Tensor:
    """Zeros beside a parameter, or at another place; cut over devices as it is."""
    device = param.device if place is None else place
    if place is None and type(device) is tuple and param.uop.layout is not None:
        made = Tensor.zeros(*param.shape, dtype=dtype, requires_grad=False)
        return made.shard_like(param).realize()
    return _zeros(param.shape, dtype, device)


def _zeros(shape: tuple[int, ...], dtype: DType, device: Any) -> Tensor:
    """Zeros in memory, put there without a kernel."""
    if not isinstance(device, str) or not prod(shape):
        return Tensor.zeros(*shape, dtype=dtype, device=device, requires_grad=False).realize()
    stored = store_bytes(bytes(prod(shape) * dtype.itemsize), dtype, device)
    return Tensor(stored.reshape(shape), requires_grad=False)


def _store_constant(tensor: Tensor) -> None:
    """A parameter that is one number everywhere, and so belongs to no device yet, put into memory
    without a kernel."""
    number = None if tensor.device is not None or tensor._moves else tensor._folded()
    if number is None:
        return
    dtype = strong_dtype(tensor.dtype)
    contents = host.pack([number], dtype) * prod(tensor.shape)
    stored = store_bytes(contents, dtype, None)
    cell, view = tensor._cell, shaped(stored, tensor.shape)
    if cell.pure or not is_own_constant(cell.value):
        cell.overwrite(view)
        return
    # the same value, so that a loss which was computed from it finds it
    remember(cell.value, view, stored)
    cell.value = view


def _assigned(storage: Tensor, value: Tensor, skip: Tensor | None) -> Tensor:
    """The storage with its new value, or where `skip` is true with the old one."""
    new = value.to(storage.device).cast(storage.dtype)
    if skip is not None:
        new = skip.to(storage.device).where(storage.detach(), new)
    return storage.assign(new.detach())


def widest_float(device: Any) -> DType:
    """float64 where a device has it: what computes rates, so that they are right to the last digit.

    >>> widest_float("CPU")
    dtypes.double
    """
    place = Device.canonicalize(device)
    name = place if isinstance(place, str) else place[0]
    supported = dtypes.float64 in Device[name].renderer.supported_dtypes()
    return dtypes.float64 if supported else dtypes.float32
