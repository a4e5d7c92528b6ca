"""Learning rates that change while training, as PyTorch's `optim.lr_scheduler`.

In: an optimiser. Out: new values of its `lr` (and momentum), one for each `step()`.
Sits above the optimisers. Invariant: the rate is an expression of a counter that is a Tensor
itself, so `step()` inside a captured function goes on counting, and the counter is all the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.dtype import dtypes
from weft.errors import ArgumentError
from weft.nn.optim import Change, Optimizer, widest_float
from weft.tensor import Tensor

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """A rate for each step. A kind of schedule says in `rate` what it is.

    The first schedule of an optimiser finds its `lr` and keeps it as `initial_lr`; all schedules of
    that optimiser start from it. OneCycleLR sets it to its own start.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        if not hasattr(optimizer, "lr"):
            raise ArgumentError("a schedule is of one optimiser; schedule those of a group apart")
        if optimizer.initial_lr is None:
            optimizer.initial_lr = float(optimizer.lr.item())
        self.count = Tensor(
            [0], dtype=dtypes.int32, device=optimizer.device, requires_grad=False
        ).realize()
        if self.moves_momentum:
            optimizer._open_momentum()
        self._start()

    @property
    def base_lr(self) -> float:
        """The rate that the schedules of this optimiser start from."""
        return self.optimizer.initial_lr or 0.0

    @property
    def moves_momentum(self) -> bool:
        """Whether the momentum changes too."""
        return False

    def _start(self) -> None:
        changed = self._assigned(self._changes(self.count))
        changed[0].realize(*changed[1:])

    def _value(self, count: Tensor) -> Tensor:
        # in the widest type there is, so that float32 rates are right to their last digit
        wide = widest_float(self.optimizer.device)
        return self.rate(count.cast(wide)).cast(self.optimizer.lr.dtype).detach()

    def _changes(self, count: Tensor) -> list[Change]:
        """The rate, and what else this schedule sets, after so many steps."""
        changes = [(self.optimizer.lr, self._value(count))]
        if self.moves_momentum:
            wide = count.cast(widest_float(self.optimizer.device))
            changes += self.optimizer._momentum_changes(self.momentum(wide))
        return changes

    def _assigned(self, changes: list[Change]) -> list[Tensor]:
        return [storage.assign(new.cast(storage.dtype).detach()) for storage, new in changes]

    def rate(self, t: Tensor) -> Tensor:
        """The learning rate after t steps. Each kind provides it."""
        raise NotImplementedError

    def momentum(self, t: Tensor) -> Tensor:
        """The momentum (Adam's b1) after t steps. Kinds that move it provide it."""
        raise NotImplementedError

    def at(self, step: int) -> float:
        """The learning rate after so many steps, for a plot for example.

        >>> from weft import nn
        >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
        >>> StepLR(optimizer, step_size=2, gamma=0.5).at(4)
        0.25
        """
        count = Tensor([step], dtype=dtypes.int32, device=self.optimizer.device)
        return float(self._value(count).item())

    def schedule_step(self) -> list[Tensor]:
        """As `step`, but lazy: the tensors to realize.

        >>> from weft import nn
        >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
        >>> _ = Tensor.realize(*StepLR(optimizer, step_size=1, gamma=0.5).schedule_step())
        >>> optimizer.lr.item()
        0.5
        """
        following = self.count + 1
        return self._assigned([*self._changes(following), (self.count, following)])

    def step(self) -> None:
        """Counts a step and gives the optimiser its next rate; call it after the optimiser's.

        >>> from weft import nn
        >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
        >>> StepLR(optimizer, step_size=1, gamma=0.5).step()
        >>> optimizer.lr.item()
        0.5
        """
        changed = self.schedule_step()
        changed[0].realize(*changed[1:])


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step, which gets and gives a Tensor.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> LambdaLR(optimizer, lambda t: 1 / (t + 1)).at(3)
    0.25
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[Tensor], Tensor]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        return self.lr_lambda(t) * self.base_lr


class ConstantLR(LRScheduler):
    """The initial rate times a factor for some steps, then the initial rate.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> [schedule.at(t) for t in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        return (t < self.total_iters).where(t.const_like(self.factor), 1.0) * self.base_lr


class LinearLR(LRScheduler):
    """From one factor of the initial rate to another, along a line: a warm-up.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = LinearLR(optimizer, start_factor=0.25, total_iters=3)
    >>> [schedule.at(t) for t in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        way = t.minimum(self.total_iters) / self.total_iters
        return (way * (self.end_factor - self.start_factor) + self.start_factor) * self.base_lr


class StepLR(LRScheduler):
    """The rate times gamma after every step_size steps.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> [schedule.at(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise ArgumentError(f"StepLR has a step_size of at least 1, found {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        return _power(self.gamma, (t / self.step_size).floor()) * self.base_lr


class MultiStepLR(LRScheduler):
    """The rate times gamma at each milestone.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> [schedule.at(t) for t in range(5)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        value = t.const_like(self.base_lr)
        for passed, milestone in enumerate(self.milestones, 1):
            value = (t < milestone).where(value, self.base_lr * self.gamma**passed)
        return value


class ExponentialLR(LRScheduler):
    """The rate times gamma at every step.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> ExponentialLR(optimizer, gamma=0.5).at(3)
    0.125
    """

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        return _power(self.gamma, t) * self.base_lr


class CosineAnnealingLR(LRScheduler):
    """From the initial rate down to eta_min in T_max steps, along a cosine, and up again.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = CosineAnnealingLR(optimizer, T_max=2)
    >>> [round(schedule.at(t), 6) for t in range(3)]
    [1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        if T_max < 1:
            raise ArgumentError(f"CosineAnnealingLR has a T_max of at least 1, found {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer)

    def rate(self, t: Tensor) -> Tensor:
        return _cosine(self.base_lr, self.eta_min, t / self.T_max)


class OneCycleLR(LRScheduler):
    """Up to max_lr, then down to far below the start, in total_steps steps; Smith (2017).

    It starts at max_lr / div_factor and ends at that divided by final_div_factor; the initial rate
    does not matter. The momentum (Adam's b1) goes the other way: from max_momentum down to
    base_momentum and back, unless cycle_momentum is False. total_steps may be given as epochs and
    steps_per_epoch. After the last step both stay.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> [round(schedule.at(t), 4) for t in (0, 2, 9)]
    [0.04, 1.0, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f'anneal_strategy is "cos" or "linear", found {anneal_strategy!r}')
        steps = total_steps
        if steps is None and epochs is not None and steps_per_epoch is not None:
            steps = epochs * steps_per_epoch
        if steps is None or steps < 2 or not 0 <= pct_start <= 1:
            raise ArgumentError(
                "OneCycleLR has at least 2 steps (total_steps, or epochs and steps_per_epoch) and "
                f"pct_start from 0 to 1, found {steps} and {pct_start}"
            )
        start = max_lr / div_factor
        least = start / final_div_factor
        rise = float(pct_start * steps) - 1
        self.cycle_momentum = cycle_momentum
        # the last step of each phase; the rate and the momentum at the ends of phases
        self.ends = [rise, 2 * rise, steps - 1.0] if three_phase else [rise, steps - 1.0]
        self.rates = [start, max_lr, start, least] if three_phase else [start, max_lr, least]
        low, high = base_momentum, max_momentum
        self.momenta = [high, low, high, high] if three_phase else [high, low, high]
        self.anneal = _cosine if anneal_strategy == "cos" else _line
        # as in PyTorch, other schedules in a sequence with this one start from its start
        optimizer.initial_lr = start
        super().__init__(optimizer)

    @property
    def moves_momentum(self) -> bool:
        return self.cycle_momentum

    def rate(self, t: Tensor) -> Tensor:
        return self._along(self.rates, t)

    def momentum(self, t: Tensor) -> Tensor:
        return self._along(self.momenta, t)

    def _along(self, values: Sequence[float], t: Tensor) -> Tensor:
        """From value to value, one phase after another."""
        begin, result = 0.0, t.const_like(values[-1])
        pieces = []
        for end, first, last in zip(self.ends, values[:-1], values[1:], strict=True):
            length = end - begin
            way = ((t - begin) / length).clip(0.0, 1.0) if length else t.const_like(1.0)
            pieces.append((end, self.anneal(first, last, way)))
            begin = end
        for end, piece in reversed(pieces):
            result = (t <= end).where(piece, result)
        return result


class SequentialLR(LRScheduler):
    """One schedule after another, each from its own beginning; the next at each milestone.

    >>> from weft import nn
    >>> optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    >>> warm_up = LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> schedule = SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, 2)], [2])
    >>> [round(schedule.at(t), 6) for t in range(5)]
    [0.5, 0.75, 1.0, 0.5, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones between them, "
                f"found {len(milestones)}"
            )
        if any(schedule.optimizer is not optimizer for schedule in schedulers):
            raise ArgumentError("the schedules of a SequentialLR are all of its own optimiser")
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer)

    @property
    def moves_momentum(self) -> bool:
        return any(schedule.moves_momentum for schedule in self.schedulers)

    def rate(self, t: Tensor) -> Tensor:
        value = self.schedulers[0].rate(t)
        for milestone, schedule in zip(self.milestones, self.schedulers[1:], strict=True):
            value = (t < milestone).where(value, schedule.rate(t - milestone))
        return value

    def momentum(self, t: Tensor) -> Tensor:
        # a schedule that does not move it leaves it as the one before did, or the first one will
        moving = [schedule for schedule in self.schedulers if schedule.moves_momentum]
        value = moving[0].momentum(t.const_like(0.0))
        starts, stops = [0, *self.milestones], [*self.milestones, math.inf]
        for start, stop, schedule in zip(starts, stops, self.schedulers, strict=True):
            if schedule.moves_momentum:
                moved = schedule.momentum((t - start).minimum(stop - start - 1))
                value = (t < start).where(value, moved)
        return value


def _cosine(first: float, last: float, way: Tensor) -> Tensor:
    """From first to last while `way` goes from 0 to 1."""
    return ((way * math.pi).cos() + 1) * ((first - last) / 2) + last


def _line(first: float, last: float, way: Tensor) -> Tensor:
    return way * (last - first) + first


def _power(base: float, exponent: Tensor) -> Tensor:
    return exponent.pow(base, reverse=True)
