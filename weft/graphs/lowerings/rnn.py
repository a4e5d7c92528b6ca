"""Recurrent layers: RNN, GRU, LSTM.

In: Tensors of shape (steps, batch, features), or with the batch first. Out: the outputs of all
steps and the last states. A family of the table of lowerings.
Invariant: gates are in ONNX's order (LSTM: i o f c, GRU: z r h); a step beyond the length of its
sequence changes no state and puts out zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.dtype import dtypes
from weft.graphs.table import Call, lowers, refuse
from weft.tensor import Tensor

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    found: dict[str, Activation] = {
        "relu": Tensor.relu,
        "tanh": Tensor.tanh,
        "sigmoid": Tensor.sigmoid,
        "softsign": Tensor.softsign,
        "softplus": Tensor.softplus,
        "affine": lambda x: x * given(alpha, 1.0) + given(beta, 0.0),
        "leakyrelu": lambda x: x.leaky_relu(given(alpha, 0.01)),
        "thresholdedrelu": lambda x: (x > given(alpha, 1.0)).where(x, 0),
        "scaledtanh": lambda x: (x * given(beta, 1.0)).tanh() * given(alpha, 1.0),
        "hardsigmoid": lambda x: (x * given(alpha, 0.2) + given(beta, 0.5)).clip(0, 1),
        "elu": lambda x: x.elu(given(alpha, 1.0)),
    }
    if name.lower() not in found:
        raise refuse(f"the activation {name!r} is unknown")
    return found[name.lower()]


@dataclass
class Layer:
    """What the three layers share: the directions, the activations, and the loop over steps."""

    x: Tensor
    weights: Tensor
    recurrent: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    states: list[Tensor | None]
    hidden_size: int | None
    direction: str
    activations: list[str] | None
    activation_alpha: list[float] | None
    activation_beta: list[float] | None
    clip: float | None
    layout: int
    gates: int
    defaults: list[str]
    # a value by the weights of a direction; here as (directions, gates, terms) in floats
    product: Callable[[Tensor, Tensor, int], Tensor] = lambda value, weights, number: value.matmul(
        weights[number].transpose()
    )

    @property
    def size(self) -> int:
        """Elements of a state."""
        return self.hidden_size or int(self.recurrent.shape[-1])

    def run(self, step: Callable[..., list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
        """All directions; `step` makes new states out of a step's input and the old states."""
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise refuse(f"the direction {self.direction!r} is unknown")
        x = self.x.transpose(0, 1) if self.layout else self.x
        count = 2 if self.direction == "bidirectional" else 1
        if self.weights.shape[0] != count:
            raise refuse(f"weights of shape {self.weights.shape} for {count} directions")
        names = list(self.activations or self.defaults * count)
        each = len(self.defaults)
        sequences, finals = [], []
        for number in range(count):
            functions = [
                _activation(
                    name, _at(self.activation_alpha, place), _at(self.activation_beta, place)
                )
                for place, name in list(enumerate(names))[number * each : (number + 1) * each]
            ]
            is_reverse = self.direction == "reverse" or number == 1
            found, last = self._direction(x, number, is_reverse, functions, step)
            sequences.append(found)
            finals.append(last)
        whole = Tensor.stack(*sequences, dim=1)
        states = [Tensor.stack(*[f[i] for f in finals], dim=0) for i in range(len(finals[0]))]
        if self.layout:
            return whole.permute((2, 0, 1, 3)), [state.transpose(0, 1) for state in states]
        return whole, states

    def _direction(
        self,
        x: Tensor,
        number: int,
        is_reverse: bool,
        functions: list[Activation],
        step: Callable[..., list[Tensor]],
    ) -> tuple[Tensor, list[Tensor]]:
        steps, batch = x.shape[:2]
        size = self.size
        inner = self.product(x, self.weights, number)
        if self.bias is not None:
            inner = inner + self.bias[number, : self.gates * size]
        states = []
        for state in self.states:
            if state is None:
                states.append(Tensor.zeros(batch, size, dtype=x.dtype))
            else:
                states.append(state.transpose(0, 1)[number] if self.layout else state[number])
        outputs: list[Tensor] = [states[0]] * steps
        length = None if self.lengths is None else self.lengths.reshape((batch, 1))
        for time in reversed(range(steps)) if is_reverse else range(steps):
            new = step(inner[time], states, number, functions)
            shown = new[0]
            if length is not None:
                runs = length > time
                new = [runs.where(n, old) for n, old in zip(new, states, strict=True)]
                shown = runs.where(shown, 0)
            states = [state.contiguous() for state in new]
            outputs[time] = shown
        return Tensor.stack(*outputs, dim=0), states

    def clipped(self, value: Tensor) -> Tensor:
        """The input of an activation, limited if the layer says so."""
        return value if not self.clip else value.clip(-self.clip, self.clip)

    def hidden(self, state: Tensor, number: int) -> Tensor:
        """The recurrent product of all gates, with its bias."""
        found = self.product(state, self.recurrent, number)
        return found if self.bias is None else found + self.hidden_bias(number)

    def hidden_bias(self, number: int) -> Tensor:
        """The second half of the bias."""
        assert self.bias is not None
        return self.bias[number, self.gates * self.size :]


def _at(values: list[float] | None, place: int) -> float | None:
    return values[place] if values and place < len(values) else None


def lengths_of(lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else lengths.cast(dtypes.int32)


def _results(whole: Tensor, states: list[Tensor], call: Call) -> tuple[Any, ...]:
    return (whole, *states)[: max(1, call.outputs)]


@lowers("RNN")
def rnn(
    x: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    call: Call,
) -> tuple[Any, ...]:
    layer = Layer(
        x, weights, recurrent, bias, lengths_of(lengths), [initial], hidden_size, direction,
        activations, activation_alpha, activation_beta, clip, layout, 1, ["Tanh"],
    )  # fmt: skip

    def step(
        inner: Tensor, states: list[Tensor], number: int, functions: list[Activation]
    ) -> list[Tensor]:
        return [functions[0](layer.clipped(inner + layer.hidden(states[0], number)))]

    return _results(*layer.run(step), call)


@lowers("GRU")
def gru(
    x: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    call: Call,
) -> tuple[Any, ...]:
    layer = Layer(
        x, weights, recurrent, bias, lengths_of(lengths), [initial], hidden_size, direction,
        activations, activation_alpha, activation_beta, clip, layout, 3, ["Sigmoid", "Tanh"],
    )  # fmt: skip

    def step(
        inner: Tensor, states: list[Tensor], number: int, functions: list[Activation]
    ) -> list[Tensor]:
        old, size = states[0], recurrent.shape[-1]
        hidden = layer.hidden(old, number)
        update = functions[0](layer.clipped(inner[:, :size] + hidden[:, :size]))
        reset = functions[0](layer.clipped(inner[:, size : 2 * size] + hidden[:, size : 2 * size]))
        if linear_before_reset:
            inside = reset * hidden[:, 2 * size :]
        else:
            inside = (reset * old).matmul(recurrent[number, 2 * size :].transpose())
            if bias is not None:
                inside = inside + layer.hidden_bias(number)[2 * size :]
        new = functions[1](layer.clipped(inner[:, 2 * size :] + inside))
        return [(1 - update) * new + update * old]

    return _results(*layer.run(step), call)


@lowers("LSTM")
def lstm(
    x: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    initial_cell: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    call: Call,
) -> tuple[Any, ...]:
    layer = Layer(
        x, weights, recurrent, bias, lengths_of(lengths), [initial, initial_cell], hidden_size,
        direction, activations, activation_alpha, activation_beta, clip, layout, 4,
        ["Sigmoid", "Tanh", "Tanh"],
    )  # fmt: skip
    return run_lstm(layer, peepholes, input_forget, call)


def run_lstm(
    layer: Layer, peepholes: Tensor | None, input_forget: int, call: Call
) -> tuple[Any, ...]:
    """The outputs of an LSTM, whatever its products are."""

    def step(
        inner: Tensor, states: list[Tensor], number: int, functions: list[Activation]
    ) -> list[Tensor]:
        old, cell = states
        size = layer.size
        total = inner + layer.hidden(old, number)
        parts = [total[:, i * size : (i + 1) * size] for i in range(4)]
        peeks: list[Any] = [0, 0, 0]
        if peepholes is not None:
            peeks = [peepholes[number, i * size : (i + 1) * size] for i in range(3)]
        enter = functions[0](layer.clipped(parts[0] + cell * peeks[0]))
        forget = functions[0](layer.clipped(parts[2] + cell * peeks[2]))
        forget = 1 - enter if input_forget else forget
        new_cell = forget * cell + enter * functions[1](layer.clipped(parts[3]))
        leave = functions[0](layer.clipped(parts[1] + new_cell * peeks[1]))
        return [leave * functions[2](new_cell), new_cell]

    return _results(*layer.run(step), call)
