"""Recurrent layers that PyTorch keeps whole.

In: Tensors of shape (steps, batch, features). Out: the outputs of all steps and the last states. A
family of the table of lowerings.
Invariant: gates are in PyTorch's order, i f g o.
"""

from __future__ import annotations

from typing import Any

from weft.tensor import Tensor
from weft.torch.table import lowers, refuse

_LSTM = 2


@lowers("mkldnn_rnn_layer")
def rnn_layer(
    x: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor,
    hidden: Tensor, cell: Tensor, is_reverse: bool, batch_sizes: Any, mode: int, hidden_size: int,
    layers: int, has_biases: bool, is_bidirectional: bool, is_batch_first: bool, is_training: bool,
) -> Any:  # fmt: skip
    if mode != _LSTM or batch_sizes or layers != 1 or is_bidirectional:
        raise refuse("a recurrent layer other than an LSTM of one direction")
    inner = x.matmul(weight_input.transpose(0, 1))
    if has_biases:
        inner = inner + bias_input + bias_hidden
    turned = weight_hidden.transpose(0, 1)
    state, memory = hidden.reshape(hidden.shape[-2:]), cell.reshape(cell.shape[-2:])
    outputs: list[Any] = [None] * x.shape[0]
    steps = range(x.shape[0])
    for time in reversed(steps) if is_reverse else steps:
        total = inner[time] + state.matmul(turned)
        enter, forget, new, leave = total.chunk(4, 1)
        memory = (forget.sigmoid() * memory + enter.sigmoid() * new.tanh()).contiguous()
        state = (leave.sigmoid() * memory.tanh()).contiguous()
        outputs[time] = state
    whole = outputs[0].stack(*outputs[1:], dim=0)
    return whole, state.reshape(hidden.shape), memory.reshape(cell.shape), Tensor.zeros(0)
