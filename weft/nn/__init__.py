"""Neural nets: layers, optimisers, schedules, mixed precision, saved states, data sets.

In: Tensors. Out: the layers by name; `nn.optim`, `nn.schedule`, `nn.amp`, `nn.state`,
`nn.checkpoint`, `nn.datasets`, `nn.parallel` and `nn.torch`, loaded here so that they just work
after `from weft import nn`.
A user of the public names of weft; nothing below imports it.
"""

import weft.nn.amp as amp
import weft.nn.checkpoint as checkpoint
import weft.nn.datasets as datasets
import weft.nn.optim as optim
import weft.nn.parallel as parallel
import weft.nn.schedule as schedule
import weft.nn.state as state
import weft.nn.torch as torch
from weft.nn.attention import MultiHeadAttention, MultiheadAttention
from weft.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from weft.nn.linear import Dropout, Embedding, Linear, Sequential
from weft.nn.norm import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from weft.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "MultiHeadAttention",
    "MultiheadAttention",
    "RMSNorm",
    "RNNCell",
    "Sequential",
    "amp",
    "checkpoint",
    "datasets",
    "optim",
    "parallel",
    "schedule",
    "state",
    "torch",
]
