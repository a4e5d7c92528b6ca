"""Optimisers: how parameters follow their gradients.

In: parameters whose `.grad` backward has filled. Out: new values in their storages.
Sits above gradient clipping, whose names it passes on.
Invariant: everything that changes from step to step (learning rate, moments, corrections) is a
Tensor, so a captured step goes on correctly, and `get_state_dict(optimizer)` is its whole state.
Nothing is computed before `step()` or whoever realizes what `schedule_step()` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.dtype import dtypes, least_upper_dtype
from weft.errors import ArgumentError, ShapeError
from weft.helpers import dedup, prod
from weft.mixin.dtype import computing_dtype
from weft.nn.clip import clip_grad_norm_, clip_grad_value_, get_total_norm
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

# a storage and the value that it gets
Change = tuple[Tensor, Tensor]


class Optimizer:
    """What all optimisers share: the parameters, the learning rate, the frame of a step.

    Float tensors are trained unless they have `requires_grad=False`; the others (running
    statistics, counters) are its `buffers`, realized together with a step. A parameter without a
    gradient is left as it is. A kind of optimiser says in `_changes` what a step does.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        given: list[Any] = dedup([params] if isinstance(params, Tensor) else list(params))
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
        # in memory from the first step on, so that all steps are the same program
        Tensor.realize(*self.params, *self.buffers)
        self.device = self.params[0].device
        self.dtype = dtypes.float32
        for param in self.params:
            self.dtype = least_upper_dtype(self.dtype, param.dtype)
        self.lr = self._state([lr])
        # what schedules start from; the first one sets it
        self.initial_lr: float | None = None

    def _state(self, data: list[float]) -> Tensor:
        """A few numbers of the optimiser's own."""
        made = Tensor(data, dtype=self.dtype, device=self.device, requires_grad=False)
        return made.realize()

    def _zeros(self) -> list[Tensor]:
        """Zeros like each parameter, at least as wide as float32."""
        made = [
            Tensor.zeros(
                *param.shape,
                dtype=computing_dtype(param.dtype),
                device=param.device,
                requires_grad=False,
            )
            for param in self.params
        ]
        Tensor.realize(*made)
        return made

    def zero_grad(self) -> None:
        """Forgets the gradients, so that the next backward starts from nothing.

        >>> x = Tensor([1.0])
        >>> optimizer = SGD([x])
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
        >>> optimizer = SGD([x], lr=0.25)
        >>> loss = (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [0.5]
        """
        changed = self.schedule_step()
        changed[0].realize(*changed[1:])

    def schedule_step(self, skip: Tensor | None = None) -> list[Tensor]:
        """As `step`, but lazy: the tensors to realize. Where `skip` is true nothing changes.

        >>> x = Tensor([1.0])
        >>> optimizer = SGD([x], lr=0.25)
        >>> loss = (x * x).sum().backward()
        >>> _ = Tensor.realize(loss, *optimizer.schedule_step())
        >>> x.tolist()
        [0.5]
        """
        present = [i for i, param in enumerate(self.params) if param.grad is not None]
        if not present:
            raise ArgumentError(
                f"none of the {len(self.params)} parameters has a gradient; call backward() on a "
                "loss that depends on them first"
            )
        changes: list[Change] = []
        for number in present:
            param = self.params[number]
            gradient = param.grad
            assert gradient is not None
            wide = computing_dtype(param.dtype)
            changes += self._changes(number, param.detach().cast(wide), gradient.cast(wide))
        changes += self._shared_changes(present)
        changed = []
        for storage, value in changes:
            new = value.cast(storage.dtype)
            if skip is not None:
                new = skip.to(storage.device).where(storage.detach(), new)
            storage.assign(new.detach())
            changed.append(storage)
        # gradients read what is overwritten, so they are computed before; in a fixed order, by
        # which a step is known to be the same as the one before
        gradients = [param.grad for param in self.params if param.grad is not None]
        return [*changed, *self.buffers, *gradients]

    def _shared_changes(self, present: Sequence[int]) -> list[Change]:
        """What a step changes once for all parameters; `present` are those with a gradient."""
        return []

    def _changes(self, number: int, value: Tensor, gradient: Tensor) -> list[Change]:
        """What a step changes for one parameter, whose value and gradient are given."""
        raise NotImplementedError

    def _rate(self, value: Tensor) -> Tensor:
        """The learning rate, beside a value."""
        return self.lr.to(value.device).cast(value.dtype)


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

    def __getitem__(self, number: int) -> Optimizer:
        return self.optimizers[number]

    def schedule_step(self, skip: Tensor | None = None) -> list[Tensor]:
        """As `step`, but lazy: the tensors of all optimisers that are to be realized.

        >>> x = Tensor([1.0])
        >>> group = OptimizerGroup(SGD([x], lr=0.25))
        >>> loss = (x * x).sum().backward()
        >>> _ = Tensor.realize(*group.schedule_step())
        >>> x.tolist()
        [0.5]
        """
        return [tensor for each in self.optimizers for tensor in each.schedule_step(skip)]


# ------------------------------------------------------------ one moment
class LARS(Optimizer):
    """Gradient descent with momentum, each layer's rate in proportion to its norm.

    You, Gitman and Ginsburg (2017). `classic` momentum gathers steps, otherwise (PyTorch's way) it
    gathers gradients, and the rate counts when they are used. With `pre_wd=False` weights decay on
    their own instead of through the gradient; `tcoef=0` makes every rate the same.

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
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
    ) -> None:
        super().__init__(params, lr)
        if nesterov and not momentum:
            raise ArgumentError("nesterov momentum needs a momentum above 0")
        self.momentum = momentum
        self.weight_decay = weight_decay
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
        if self.momentum:
            gathered = self.momentum * self.b[number].detach() + update
            changes.append((self.b[number], gathered))
            update = update + self.momentum * gathered if self.nesterov else gathered
        update = self._direction(update)
        if not self.pre_wd and self.weight_decay:
            value = value * (1.0 - self.weight_decay * rate)
        new = value - (update if self.classic else update * scaled)
        return [*changes, (self.params[number], new)]

    def _trust(self, value: Tensor, gradient: Tensor) -> Tensor:
        """How far this layer may go: its norm over its gradient's; 1 where either is 0."""
        ours, theirs = _norm(value), _norm(gradient)
        ratio = self.tcoef * ours / (theirs + self.weight_decay * ours)
        return ((ours > 0) & (theirs > 0)).where(ratio, 1.0)

    def _direction(self, update: Tensor) -> Tensor:
        return update


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
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay, nesterov, classic, tcoef=0.0)


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
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_params: tuple[float, ...] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
    ) -> None:
        super().__init__(
            params, lr, momentum, weight_decay, nesterov, classic=False, pre_wd=False, tcoef=0.0
        )
        for param in self.params:
            if param.ndim < 2:
                raise ShapeError(
                    f"Muon is for matrices, found a parameter of shape {param.shape}; give vectors "
                    "to another optimiser and join both in an OptimizerGroup"
                )
        self.ns_steps = ns_steps
        self.ns_params = ns_params

    def _direction(self, update: Tensor) -> Tensor:
        matrix = update.reshape(update.shape[0], prod(update.shape[1:]))
        orthogonal: Tensor = matrix.newton_schulz(self.ns_steps, self.ns_params)
        return orthogonal.reshape(update.shape)


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
    ) -> None:
        super().__init__(params, lr)
        if not 0 <= b1 < 1 or not 0 <= b2 < 1:
            raise ArgumentError(f"b1 and b2 are from 0 to below 1, found {b1} and {b2}")
        self.b1 = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = weight_decay
        self.adam = adam
        self.m = self._zeros()
        self.v = self._zeros()
        # What a moment of ones will be after the coming step, for each parameter: 1 - b ** steps.
        # Kept as a running mean itself, it loses no digits where b is close to 1.
        self.correction1 = self._state([1.0 - b1] * len(self.params))
        self.correction2 = self._state([1.0 - b2] * len(self.params))

    def _shared_changes(self, present: Sequence[int]) -> list[Change]:
        changes = []
        for correction, decay in ((self.correction1, self.b1), (self.correction2, self.b2)):
            new = correction + (1.0 - correction) * (1.0 - decay)
            if len(present) < len(self.params):
                # a parameter that had no gradient is not a step older
                older = [number in present for number in range(len(self.params))]
                new = Tensor(older, device=self.device).where(new, correction)
            changes.append((correction, new))
        return changes

    def _changes(self, number: int, value: Tensor, gradient: Tensor) -> list[Change]:
        gradient = self._with_decay(value, gradient)
        before_m, before_v = self.m[number], self.v[number]
        m = before_m + (gradient - before_m) * (1.0 - self.b1)
        v = before_v * self.b2 + gradient * gradient * (1.0 - self.b2)
        first, second = (
            part[number].to(value.device).cast(value.dtype)
            for part in (self.correction1, self.correction2)
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
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, adam=True)


class Adam(LAMB):
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
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, adam=True)
        self.decay = weight_decay

    def _with_decay(self, value: Tensor, gradient: Tensor) -> Tensor:
        return gradient + self.decay * value if self.decay else gradient


def _norm(x: Tensor) -> Tensor:
    # stored: every element of the update divides by it
    return x.square().sum().sqrt().contiguous()
