"""Mixed precision: layers compute in half types, a scaled loss keeps small gradients alive.

In: a dtype, a loss, an optimiser. Out: `autocast`, a context in which layers with weights cast what
they multiply; `GradScaler`, which scales the loss, unscales the gradients, and skips a step in
which they overflowed. Sits beside the optimisers and under the layers.
Invariant: parameters and optimiser states keep their own dtype; what overflowed changes neither.
The scale and its history are Tensors, so a captured training step goes on adapting them.
"""

from __future__ import annotations

from typing import Any, Protocol

from weft.dtype import DType, dtypes, to_dtype
from weft.errors import ArgumentError, DTypeError
from weft.knobs import Context, ContextVar
from weft.tensor import Tensor

AUTOCAST = ContextVar("AUTOCAST", "", "dtype in which layers with weights compute; empty: as given")
_HALVES = (dtypes.float16, dtypes.bfloat16)


class Steppable(Protocol):
    """What a GradScaler needs of an optimiser."""

    params: list[Tensor]

    def schedule_step(self, skip: Tensor | None = None) -> list[Tensor]:
        """The tensors that one step changes, changed; all as before where `skip` is true."""


def autocast(dtype: DType | str = dtypes.bfloat16, enabled: bool = True) -> Context:
    """Linear layers, convolutions, recurrent layers and attention compute in a half type inside.

    Normalisations and the sums of matrix products stay wide. Cast to float32 before a loss.

    >>> from weft import nn
    >>> with autocast("float16"):
    ...     nn.Linear(2, 3)(Tensor.ones(1, 2)).dtype
    dtypes.half
    """
    chosen = to_dtype(dtype)
    if chosen not in _HALVES:
        raise DTypeError(f"autocast takes float16 or bfloat16, found {chosen}")
    return Context(AUTOCAST=chosen.name if enabled else "")


def computing(*operands: Any) -> tuple[Any, ...]:
    """The operands of a product as `autocast` wants them; what is None or no float stays.

    >>> [t.dtype for t in computing(Tensor([1.0]), Tensor([1]))]
    [dtypes.float, dtypes.int]
    """
    if not AUTOCAST:
        return operands
    target = to_dtype(str(AUTOCAST))
    return tuple(
        x.cast(target) if isinstance(x, Tensor) and dtypes.is_float(x.dtype) else x
        for x in operands
    )


class GradScaler:
    """Scales a loss so that its gradients fit float16, and adapts the scale.

    After `growth_interval` steps without an overflow the scale grows; after one with, it shrinks
    and the optimiser's step is skipped.

    >>> from weft import nn
    >>> weight = Tensor([1.0, 2.0])
    >>> optimizer, scaler = nn.optim.SGD([weight], lr=0.5), GradScaler()
    >>> loss = scaler.scale((weight * weight).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.tolist(), scaler.get_scale()
    ([0.0, 0.0], 65536.0)
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if init_scale <= 0 or growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ArgumentError(
                "GradScaler needs init_scale > 0, growth_factor > 1 and backoff_factor between 0 "
                f"and 1, found {init_scale}, {growth_factor} and {backoff_factor}"
            )
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.enabled = enabled
        self.current = Tensor([init_scale], dtype=dtypes.float32, requires_grad=False).realize()
        self.good_steps = Tensor([0], dtype=dtypes.int32, requires_grad=False).realize()
        self._overflows: list[Tensor] = []
        self._unscaled: list[tuple[Steppable, Tensor]] = []

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale; call `backward` on that.

        >>> GradScaler(init_scale=8.0).scale(Tensor(2.0)).tolist()
        16.0
        """
        if not self.enabled:
            return loss
        return loss.cast(dtypes.float32) * self.current.to(loss.device).reshape(())

    def get_scale(self) -> float:
        """The scale now.

        >>> GradScaler(init_scale=8.0).get_scale()
        8.0
        """
        return float(self.current.item()) if self.enabled else 1.0

    def unscale_(self, optimizer: Steppable) -> None:
        """Divides the gradients by the scale, before they are clipped for example.

        >>> from weft import nn
        >>> weight, scaler = Tensor([1.0]), GradScaler(init_scale=8.0)
        >>> optimizer = nn.optim.SGD([weight])
        >>> loss = scaler.scale(weight.sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> weight.grad.tolist()
        [1.0]
        """
        if not self.enabled:
            return
        if self._found(optimizer) is not None:
            raise ArgumentError("unscale_() of one optimiser is called once between updates")
        inverse = 1.0 / self.current
        overflow: Tensor | None = None
        for param in optimizer.params:
            if param.grad is None:
                continue
            gradient = param.grad.cast(dtypes.float32) * inverse.to(param.device)
            param.grad = gradient.cast(param.grad.dtype).requires_grad_(False)
            bad = gradient.isfinite().logical_not().any().to(self.current.device)
            overflow = bad if overflow is None else overflow | bad
        if overflow is None:
            raise ArgumentError("no parameter of the optimiser has a gradient; call backward()")
        overflow = overflow.contiguous()
        self._unscaled.append((optimizer, overflow))
        self._overflows.append(overflow)

    def _found(self, optimizer: Steppable) -> Tensor | None:
        for known, overflow in self._unscaled:
            if known is optimizer:
                return overflow
        return None

    def schedule_step(self, optimizer: Steppable) -> list[Tensor]:
        """As `step`, but lazy: the tensors that are to be realized.

        >>> from weft import nn
        >>> weight, scaler = Tensor([1.0]), GradScaler()
        >>> optimizer = nn.optim.SGD([weight], lr=1.0)
        >>> loss = scaler.scale(weight.sum()).backward()
        >>> changed = scaler.schedule_step(optimizer) + scaler.schedule_update()
        >>> _ = Tensor.realize(*changed)
        >>> weight.tolist()
        [0.0]
        """
        if not self.enabled:
            return optimizer.schedule_step()
        if self._found(optimizer) is None:
            self.unscale_(optimizer)
        overflow = self._found(optimizer)
        return optimizer.schedule_step(skip=overflow)

    def step(self, optimizer: Steppable) -> None:
        """One step of the optimiser, or none if a gradient is not finite.

        >>> from weft import nn
        >>> weight, scaler = Tensor([1.0]), GradScaler()
        >>> optimizer = nn.optim.SGD([weight], lr=1.0)
        >>> loss = scaler.scale((weight * float("inf")).sum()).backward()
        >>> scaler.step(optimizer)
        >>> weight.tolist()
        [1.0]
        """
        changed = self.schedule_step(optimizer)
        changed[0].realize(*changed[1:], *self._overflows)

    def schedule_update(self) -> list[Tensor]:
        """As `update`, but lazy: the tensors that are to be realized.

        >>> [t.shape for t in GradScaler(enabled=False).schedule_update()]
        []
        """
        if not self.enabled:
            return []
        if not self._overflows:
            raise ArgumentError("update() comes after step() or unscale_() of an optimiser")
        overflow = self._overflows[0]
        for other in self._overflows[1:]:
            overflow = overflow | other
        good = overflow.where(0, self.good_steps + 1)
        grows = good >= self.growth_interval
        grown = grows.where(self.current * self.growth_factor, self.current)
        # beyond float32 a scale cannot grow; it stays
        grown = grown.isfinite().where(grown, self.current)
        self.current.assign(overflow.where(self.current * self.backoff_factor, grown).detach())
        self.good_steps.assign(grows.where(0, good))
        self._overflows = []
        self._unscaled = []
        return [self.current, self.good_steps]

    def update(self) -> None:
        """Adapts the scale to how the last step went.

        >>> from weft import nn
        >>> weight, scaler = Tensor([1.0]), GradScaler(init_scale=8.0)
        >>> optimizer = nn.optim.SGD([weight])
        >>> loss = scaler.scale((weight * float("inf")).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> scaler.get_scale()
        4.0
        """
        changed = self.schedule_update()
        if changed:
            changed[0].realize(*changed[1:])
