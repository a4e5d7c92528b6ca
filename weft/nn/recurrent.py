"""Recurrent layers: cells that take one step, and layers that take a whole sequence.

In: Tensors (steps, batch, features), or with the batch first, or without one. Out: the outputs of
all steps and the last states. Sits above the initial values.
Invariant: names, shapes and the order of gates are PyTorch's, so its state dicts load.
"""

from __future__ import annotations

import math
from typing import Any

from weft.errors import ArgumentError, ShapeError
from weft.nn.amp import computing
from weft.nn.initial import uniform
from weft.tensor import Tensor

State = tuple[Tensor, ...]


def _rnn_step(inner: Tensor, hidden: Tensor, state: State, activation: str) -> State:
    summed = inner + hidden
    return (summed.tanh() if activation == "tanh" else summed.relu(),)


def _lstm_step(inner: Tensor, hidden: Tensor, state: State) -> State:
    """Gates in PyTorch's order: input, forget, cell, output."""
    enter, forget, cell, leave = (inner + hidden).chunk(4, dim=-1)
    memory = forget.sigmoid() * state[1] + enter.sigmoid() * cell.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def _gru_step(inner: Tensor, hidden: Tensor, state: State) -> State:
    """Gates in PyTorch's order: reset, update, new."""
    reset_in, update_in, new_in = inner.chunk(3, dim=-1)
    reset_hidden, update_hidden, new_hidden = hidden.chunk(3, dim=-1)
    update = (update_in + update_hidden).sigmoid()
    new = (new_in + (reset_in + reset_hidden).sigmoid() * new_hidden).tanh()
    return ((1 - update) * new + update * state[0],)


class _Kind:
    """How many gates and states a recurrence has, and its step."""

    gates = 1
    states = 1
    nonlinearity = "tanh"

    def _advance(self, inner: Tensor, hidden: Tensor, state: State) -> State:
        return _rnn_step(inner, hidden, state, self.nonlinearity)


class _LSTMKind(_Kind):
    gates = 4
    states = 2

    def _advance(self, inner: Tensor, hidden: Tensor, state: State) -> State:
        return _lstm_step(inner, hidden, state)


class _GRUKind(_Kind):
    gates = 3

    def _advance(self, inner: Tensor, hidden: Tensor, state: State) -> State:
        return _gru_step(inner, hidden, state)


# ------------------------------------------------------------ one step
class _Cell(_Kind):
    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        self.input_size = input_size
        self.hidden_size = hidden_size
        rows = self.gates * hidden_size
        bound = 1 / math.sqrt(hidden_size)
        self.weight_ih = uniform(rows, input_size, bound=bound)
        self.weight_hh = uniform(rows, hidden_size, bound=bound)
        self.bias_ih = uniform(rows, bound=bound) if bias else None
        self.bias_hh = uniform(rows, bound=bound) if bias else None

    def _step(self, x: Tensor, state: State | None) -> State:
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"a cell of {self.input_size} inputs takes (batch, {self.input_size}) or one "
                f"sample, found {x.shape}"
            )
        values, weight_ih, bias_ih = computing(x, self.weight_ih, self.bias_ih)
        inner = values.linear(weight_ih.transpose(), bias_ih)
        if state is None:
            shape = (*x.shape[:-1], self.hidden_size)
            state = (Tensor.zeros(*shape, dtype=inner.dtype, device=x.device),) * self.states
        before, weight_hh, bias_hh = computing(state[0], self.weight_hh, self.bias_hh)
        hidden = before.linear(weight_hh.transpose(), bias_hh)
        return self._advance(inner, hidden, state)


class RNNCell(_Cell):
    """One step of a plain recurrence, with "tanh" or "relu".

    >>> RNNCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = _checked(nonlinearity)

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._step(x, None if h is None else (h,))[0]


class LSTMCell(_LSTMKind, _Cell):
    """One step of a long short-term memory: the new (h, c).

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> State:
        return self._step(x, hc)


class GRUCell(_GRUKind, _Cell):
    """One step of a gated recurrent unit.

    >>> GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._step(x, None if h is None else (h,))[0]


def _checked(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f'nonlinearity is "tanh" or "relu", found {nonlinearity!r}')
    return nonlinearity


# ------------------------------------------------------------ whole sequences
class _Layers(_Kind):
    may_project = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        if num_layers < 1 or not 0 <= dropout <= 1 or not 0 <= proj_size < hidden_size:
            raise ArgumentError(
                "a recurrent layer needs num_layers >= 1, dropout from 0 to 1 and proj_size below "
                f"hidden_size {hidden_size}, found {num_layers}, {dropout} and {proj_size}"
            )
        if proj_size and not self.may_project:
            raise ArgumentError(f"proj_size is for an LSTM, found {proj_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self.output_size = proj_size or hidden_size
        rows, bound = self.gates * hidden_size, 1 / math.sqrt(hidden_size)
        for layer in range(num_layers):
            width = input_size if layer == 0 else self.output_size * self.directions
            for suffix in self._suffixes(layer):
                self._add("weight_ih", suffix, uniform(rows, width, bound=bound))
                self._add("weight_hh", suffix, uniform(rows, self.output_size, bound=bound))
                if bias:
                    self._add("bias_ih", suffix, uniform(rows, bound=bound))
                    self._add("bias_hh", suffix, uniform(rows, bound=bound))
                if proj_size:
                    self._add("weight_hr", suffix, uniform(proj_size, hidden_size, bound=bound))

    @property
    def directions(self) -> int:
        """2 if it also runs backwards, else 1."""
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _add(self, name: str, suffix: str, parameter: Tensor) -> None:
        setattr(self, name + suffix, parameter)

    def _get(self, name: str, suffix: str) -> Any:
        return getattr(self, name + suffix, None)

    def _run(self, x: Tensor, initial: State | None) -> tuple[Tensor, State]:
        """(steps, batch, features) through all layers; states (layers * directions, batch, n)."""
        finals: list[State] = []
        for layer in range(self.num_layers):
            if layer:
                x = x.dropout(self.dropout)
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                number = layer * self.directions + direction
                start = None if initial is None else tuple(part[number] for part in initial)
                output, last = self._run_direction(x, suffix, start, reverse=direction == 1)
                outputs.append(output)
                finals.append(last)
            x = outputs[0] if len(outputs) == 1 else outputs[0].cat(outputs[1], dim=-1)
        states = tuple(_stacked([last[i] for last in finals]) for i in range(self.states))
        return x, states

    def _run_direction(
        self, x: Tensor, suffix: str, start: State | None, reverse: bool
    ) -> tuple[Tensor, State]:
        steps, batch = x.shape[0], x.shape[1]
        values, weight, bias = computing(
            x, self._get("weight_ih", suffix), self._get("bias_ih", suffix)
        )
        # what does not depend on the step before is one product over all steps
        inner = values.linear(weight.transpose(), bias).contiguous()
        recurrent = self._get("weight_hh", suffix)
        sizes = (self.output_size, self.hidden_size)[: self.states]
        state = start or tuple(
            Tensor.zeros(batch, size, dtype=inner.dtype, device=x.device) for size in sizes
        )
        outputs: list[Tensor] = []
        for step in reversed(range(steps)) if reverse else range(steps):
            before, weight, bias = computing(state[0], recurrent, self._get("bias_hh", suffix))
            hidden = before.linear(weight.transpose(), bias)
            state = self._advance(inner[step], hidden, state)
            if self.proj_size:
                output, weight = computing(state[0], self._get("weight_hr", suffix))
                state = (output.linear(weight.transpose()), *state[1:])
            outputs.append(state[0])
        return _stacked(outputs[::-1] if reverse else outputs), state

    def _forward(self, x: Tensor, initial: State | None) -> tuple[Tensor, State]:
        batched = x.ndim == 3
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"a recurrent layer of {self.input_size} inputs takes (steps, batch, "
                f"{self.input_size}), with batch_first (batch, steps, {self.input_size}), or no "
                f"batch; found {x.shape}"
            )
        if not batched:
            x = x.unsqueeze(1)
            initial = None if initial is None else tuple(part.unsqueeze(1) for part in initial)
        elif self.batch_first:
            x = x.transpose(0, 1)
        self._check_states(initial, x.shape[1])
        output, states = self._run(x, initial)
        if not batched:
            return output.squeeze(1), tuple(part.squeeze(1) for part in states)
        return (output.transpose(0, 1) if self.batch_first else output), states

    def _forward_single(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        """For those with one state, which comes and goes without a tuple around it."""
        output, states = self._forward(x, None if h is None else (h,))
        return output, states[0]

    def _check_states(self, initial: State | None, batch: int) -> None:
        if initial is None:
            return
        sizes = (self.output_size, self.hidden_size)[: self.states]
        for part, size in zip(initial, sizes, strict=True):
            wanted = (self.num_layers * self.directions, batch, size)
            if part.shape != wanted:
                raise ShapeError(f"an initial state has shape {wanted} here, found {part.shape}")


def _stacked(parts: list[Tensor]) -> Tensor:
    return parts[0].stack(*parts[1:])


class RNN(_Layers):
    """Plain recurrences over a sequence: (outputs of the last layer, last h of each layer).

    >>> outputs, h = RNN(3, 4)(Tensor.ones(5, 2, 3))
    >>> outputs.shape, h.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *options: Any,
        **named: Any,
    ) -> None:
        # the rest is as in the other layers: bias, batch_first, dropout, bidirectional
        super().__init__(input_size, hidden_size, num_layers, *options, **named)
        self.nonlinearity = _checked(nonlinearity)

    def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._forward_single(x, h)


class LSTM(_LSTMKind, _Layers):
    """Long short-term memories over a sequence: (outputs, (last h, last c)).

    >>> outputs, (h, c) = LSTM(3, 4, num_layers=2)(Tensor.ones(5, 2, 3))
    >>> outputs.shape, h.shape, c.shape
    ((5, 2, 4), (2, 2, 4), (2, 2, 4))
    """

    may_project = True

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, State]:
        return self._forward(x, hc)


class GRU(_GRUKind, _Layers):
    """Gated recurrent units over a sequence: (outputs of the last layer, last h of each layer).

    >>> outputs, h = GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3))
    >>> outputs.shape, h.shape
    ((5, 2, 8), (2, 2, 4))
    """

    def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._forward_single(x, h)
