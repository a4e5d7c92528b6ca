"""Optimisers: how parameters follow their gradients, one class for each way.

In: parameters whose `.grad` backward has filled. Out: new values in their storages.
Sits above `optimizer`, which is their frame, and gradient clipping, whose names it passes on.
Invariant: everything that changes from step to step (learning rate, moments, corrections) is a
Tensor, so a captured step goes on correctly, and `get_state_dict(optimizer)` is its whole state.
Nothing is computed before `step()` or whoever realizes what `schedule_step()` returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Unpack

from weft.dtype import dtypes
from weft.errors import ArgumentError, ShapeError
from weft.helpers import dedup, prod
from weft.nn.clip import clip_grad_norm_, clip_grad_value_, get_total_norm
from weft.nn.optimizer import Change, Frame, Number, Optimizer, widest_float
from weft.tensor import Tensor

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adam",
    "AdamW",
    "Muon",
    "Optimizer",
    "OptimizerGroup",
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
]


class OptimizerGroup(Optimizer):
    """Several optimisers that step together.

    >>> a, b = Tensor([1.0]), Tensor([1.0])
    >>> group = OptimizerGroup(SGD([a], lr=0.25), SGD([b], lr=0.5))
    >>> loss = (a * a + b * b).sum().backward()
    >>> group.step()
    >>> a.tolist(), b.tolist()
    ([0.5], [0.0])
    """

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise ArgumentError("an OptimizerGroup needs at least one optimiser")
        self.optimizers = list(optimizers)
        self.params = dedup([param for each in optimizers for param in each.params])
        self.buffers = dedup([buffer for each in optimizers for buffer in each.buffers])
        self.device, self.dtype = optimizers[0].device, optimizers[0].dtype
        self.fused = all(each.fused for each in optimizers)

    def __getitem__(self, number: int) -> Optimizer:
        return self.optimizers[number]

    def _parts(self, skip: Tensor | None) -> list[list[Tensor]]:
        return [part for each in self.optimizers for part in each._parts(skip)]


# ------------------------------------------------------------ one moment
class LARS(Optimizer):
    """Gradient descent with momentum, each layer's rate in proportion to its norm.

    You, Gitman and Ginsburg (2017). `classic` momentum gathers steps, otherwise (PyTorch's way) it
    gathers gradients, and the rate counts when they are used. With `pre_wd=False` weights decay on
    their own instead of through the gradient; `tcoef=0` makes every rate the same; with
    `ns_coefficients` a step is made orthogonal, as Muon's.

    >>> x = Tensor([1.0])
    >>> optimizer = LARS([x], lr=1.0, momentum=0.0, weight_decay=0.0)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 6)
    0.999
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: Sequence[float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        **frame: Unpack[Frame],
    ) -> None:
        super().__init__(params, lr, **frame)
        if momentum < 0 or (nesterov and not momentum):
            raise ArgumentError(
                f"momentum is at least 0, and above 0 for nesterov, found {momentum}"
            )
        self.momentum: Number = momentum
        self.weight_decay = _checked_decay(weight_decay)
        self.ns_steps = ns_steps
        self.ns_coefficients = ns_coefficients
        self.nesterov = nesterov
        self.classic = classic
        self.pre_wd = pre_wd
        self.tcoef = tcoef
        self.b = self._zeros() if momentum else []

    def _changes(self, number: int, value: Tensor, gradient: Tensor) -> list[Change]:
        rate = self._rate(value)
        scaled = rate * self._trust(value, gradient) if self.tcoef else rate
        if self.pre_wd and self.weight_decay:
            gradient = gradient + self.weight_decay * value
        update = gradient * scaled if self.classic else gradient
        changes: list[Change] = []
        if self.b:
            momentum = self._beside(self.momentum, value)
            gathered = momentum * self.b[number].detach() + update
            changes.append((self.b[number], gathered))
            update = update + momentum * gathered if self.nesterov else gathered
        if self.ns_coefficients:
            matrix = update.reshape(update.shape[0], prod(update.shape[1:]))
            orthogonal = matrix.newton_schulz(self.ns_steps, self.ns_coefficients)
            update = orthogonal.reshape(update.shape)
        if not self.pre_wd and self.weight_decay:
            value = value * (1.0 - self.weight_decay * rate)
        new = value - (update if self.classic else update * scaled)
        return [*changes, (self.params[number], new)]

    def _trust(self, value: Tensor, gradient: Tensor) -> Tensor:
        """How far this layer may go: its norm over its gradient's; 1 where either is 0."""
        ours, theirs = _norm(value), _norm(gradient)
        ratio = self.tcoef * ours / (theirs + self.weight_decay * ours)
        return ((ours > 0) & (theirs > 0)).where(ratio, 1.0)

    def _momentum(self) -> Number:
        return self.momentum

    def _open_momentum(self) -> None:
        if not isinstance(self.momentum, Tensor):
            self.momentum = self._state([self.momentum])
            self.b = self.b or self._zeros()

    def _momentum_changes(self, new: Tensor) -> list[Change]:
        assert isinstance(self.momentum, Tensor)
        return [(self.momentum, new)]


class SGD(LARS):
    """Stochastic gradient descent, with momentum and weight decay as PyTorch's.

    >>> x = Tensor([1.0])
    >>> optimizer = SGD([x], lr=0.25)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        **frame: Unpack[Frame],
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            nesterov=nesterov,
            classic=classic,
            tcoef=0.0,
            **frame,
        )


class Muon(LARS):
    """Momentum whose step is made orthogonal, for parameters that are matrices (or more axes).

    Jordan and others (2024). The first axis is the rows; a convolution's other axes are columns.

    >>> x = Tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> optimizer = Muon([x], lr=0.1)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.shape
    (2, 2)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        **frame: Unpack[Frame],
    ) -> None:
        decay = (weight_decay, ns_steps, ns_coefficients, nesterov)
        super().__init__(
            params, lr, momentum, *decay, classic=False, pre_wd=False, tcoef=0.0, **frame
        )
        for param in self.params:
            if param.ndim < 2:
                raise ShapeError(
                    f"Muon is for matrices, found a parameter of shape {param.shape}; give vectors "
                    "to another optimiser and join both in an OptimizerGroup"
                )


# ------------------------------------------------------------ two moments
class LAMB(Optimizer):
    """Adam with each layer's rate in proportion to its norm; You and others (2019).

    `adam=True` is AdamW: every rate is the same.

    >>> x = Tensor([1.0])
    >>> optimizer = LAMB([x], lr=0.5)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        **frame: Unpack[Frame],
    ) -> None:
        super().__init__(params, lr, **frame)
        if not 0 <= b1 < 1 or not 0 <= b2 < 1:
            raise ArgumentError(f"b1 and b2 are from 0 to below 1, found {b1} and {b2}")
        self.b1: Number = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = _checked_decay(weight_decay)
        self.adam = adam
        self.m = self._zeros()
        self.v = self._zeros()
        # b ** steps of each parameter; wide, so that 1 - b ** steps keeps its digits
        wide = widest_float(self.device)
        self.b1_t = self._state([1.0] * len(self.params), wide)
        self.b2_t = self._state([1.0] * len(self.params), wide)
        # how many steps each parameter has taken, if b1 changes
        self.steps: Tensor | None = None

    def _powers(self) -> tuple[Tensor, Tensor]:
        """b1 and b2 to the number of steps after the coming one."""
        return self.b1_t * self._beside(self.b1, self.b1_t), self.b2_t * self.b2

    def _shared_changes(self, present: Sequence[int]) -> list[Change]:
        first, second = self._powers()
        changes = [(self.b1_t, first), (self.b2_t, second)]
        if self.steps is not None:
            changes.append((self.steps, self.steps + 1))
        if len(present) == len(self.params):
            return changes
        # a parameter that had no gradient is not a step older
        older = Tensor([number in present for number in range(len(self.params))], self.device)
        return [(storage, older.where(new, storage)) for storage, new in changes]

    def _changes(self, number: int, value: Tensor, gradient: Tensor) -> list[Change]:
        gradient = self._with_decay(value, gradient)
        before_m, before_v = self.m[number], self.v[number]
        b1 = self._beside(self.b1, value)
        m = before_m * b1 + gradient * (1.0 - b1)
        v = before_v * self.b2 + gradient * gradient * (1.0 - self.b2)
        first, second = (
            (1.0 - power[number]).to(value.device).cast(value.dtype) for power in self._powers()
        )
        direction = m / first / (v.sqrt() / second.sqrt() + self.eps)
        new = self._moved(value, direction)
        return [(self.m[number], m), (self.v[number], v), (self.params[number], new)]

    def _with_decay(self, value: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    def _moved(self, value: Tensor, direction: Tensor) -> Tensor:
        """The parameter after a step in this direction."""
        rate = self._rate(value)
        if self.adam:
            # as PyTorch's AdamW: the weights decay first
            return value * (1.0 - rate * self.weight_decay) - rate * direction
        direction = direction + self.weight_decay * value
        ours, theirs = _norm(value), _norm(direction)
        trust = ((ours > 0) & (theirs > 0)).where(ours / theirs, 1.0)
        return value - rate * trust * direction

    def _momentum(self) -> Number:
        return self.b1

    def _open_momentum(self) -> None:
        if not isinstance(self.b1, Tensor):
            powers = zip(self.b1_t.tolist(), self.b2_t.tolist(), strict=True)
            steps = [max(_exponent(p, self.b1), _exponent(q, self.b2)) for p, q in powers]
            self.steps = self._state(steps, dtypes.int32)
            self.b1 = self._state([self.b1])

    def _momentum_changes(self, new: Tensor) -> list[Change]:
        assert isinstance(self.b1, Tensor) and self.steps is not None
        wide = self.b1_t.dtype
        # as PyTorch's, with the newest b1 for all steps
        return [(self.b1, new), (self.b1_t, new.cast(wide).pow(self.steps.cast(wide)))]


class AdamW(LAMB):
    """Adam whose weights decay on their own; Loshchilov and Hutter (2017).

    >>> x = Tensor([1.0])
    >>> optimizer = AdamW([x], lr=0.5, weight_decay=0.0)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        **frame: Unpack[Frame],
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, adam=True, **frame)


class Adam(AdamW):
    """Kingma and Ba (2014); `weight_decay` is added to the gradient, as PyTorch's.

    >>> x = Tensor([1.0])
    >>> optimizer = Adam([x], lr=0.5)
    >>> loss = (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 4)
    0.5
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **frame: Unpack[Frame],
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, **frame)

    def _with_decay(self, value: Tensor, gradient: Tensor) -> Tensor:
        return gradient + self.weight_decay * value if self.weight_decay else gradient

    def _moved(self, value: Tensor, direction: Tensor) -> Tensor:
        return value - self._rate(value) * direction


def _exponent(power: float, base: float) -> int:
    """How often the base was multiplied; of a power that vanished often enough."""
    if power >= 1.0 or base <= 0.0:
        return int(power < 1.0)
    return round(math.log(power) / math.log(base)) if power > 0.0 else 1 << 20


def _checked_decay(weight_decay: float) -> float:
    if not weight_decay >= 0:
        raise ArgumentError(f"weight_decay is at least 0, found {weight_decay}")
    return weight_decay


def _norm(x: Tensor) -> Tensor:
    # stored: every element of the update divides by it
    return x.square().sum().sqrt().contiguous()
