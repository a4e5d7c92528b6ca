"""Every layer against PyTorch's: results, gradients, running statistics, initial values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from test.nn.against_torch import close, compare, numbers, outputs, pair, torch
from weft import Tensor, dtypes, nn
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, ShapeError

# PyTorch says that it copies; that is what is compared
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


class Row(NamedTuple):
    """A layer of weft, the same of PyTorch, the inputs, and keyword arguments of the call."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    inputs: list[Any]
    options: dict[str, Any] = {}


def both(name: str, *shapes: tuple[int, ...], args: tuple[Any, ...], **named: Any) -> Row:
    """A row whose layers have one name and the same arguments."""
    inputs = [numbers(*shape, seed=number) for number, shape in enumerate(shapes)]
    return Row(
        lambda: getattr(nn, name)(*args, **named),
        lambda: getattr(torch.nn, name)(*args, **named),
        inputs,
    )


ROWS = {
    "linear": both("Linear", (3, 5), args=(5, 4)),
    "linear no bias": both("Linear", (2, 3, 5), args=(5, 4), bias=False),
    "linear vector": both("Linear", (5,), args=(5, 4)),
    "conv1d": both("Conv1d", (2, 3, 9), args=(3, 4, 3), stride=2, padding=1),
    "conv1d circular": both("Conv1d", (2, 3, 9), args=(3, 4, 3, 1, 2, 2, 1, True, "circular")),
    "conv2d": both("Conv2d", (2, 3, 7, 6), args=(3, 4, 3)),
    "conv2d all": both(
        "Conv2d", (2, 4, 9, 8), args=(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2, False)
    ),
    "conv2d depthwise": both("Conv2d", (1, 4, 5, 5), args=(4, 8, 3), groups=4, padding=1),
    "conv2d same": both("Conv2d", (1, 2, 6, 5), args=(2, 3, (4, 3)), padding="same"),
    "conv2d valid": both("Conv2d", (1, 2, 6, 5), args=(2, 3, 3), padding="valid"),
    "conv2d reflect": both(
        "Conv2d", (1, 2, 6, 5), args=(2, 3, 3), padding=(2, 1), padding_mode="reflect"
    ),
    "conv2d replicate": both(
        "Conv2d", (1, 2, 6, 5), args=(2, 3, 3), padding="same", padding_mode="replicate"
    ),
    "conv2d circular": both(
        "Conv2d", (1, 2, 6, 5), args=(2, 3, 3), padding=1, padding_mode="circular"
    ),
    "conv2d no batch": both("Conv2d", (2, 6, 5), args=(2, 3, 3)),
    "conv3d": both("Conv3d", (1, 2, 4, 5, 4), args=(2, 3, (2, 3, 2)), padding=1),
    "conv1d reflect": both(
        "Conv1d", (2, 3, 9), args=(3, 4, 3), padding=2, padding_mode="reflect", stride=2
    ),
    "conv3d replicate": both(
        "Conv3d", (1, 2, 4, 3, 4), args=(2, 3, 2), padding=(1, 0, 2), padding_mode="replicate"
    ),
    "conv3d circular": both(
        "Conv3d", (1, 2, 4, 3, 4), args=(2, 3, 2), padding=1, padding_mode="circular"
    ),
    "conv transpose 1d": both("ConvTranspose1d", (2, 3, 5), args=(3, 4, 3, 2, 1, 1)),
    "conv transpose 2d": both("ConvTranspose2d", (2, 4, 4, 3), args=(4, 6, 3), stride=2),
    "conv transpose 2d all": both(
        "ConvTranspose2d", (1, 4, 4, 3), args=(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, 2)
    ),
    "conv transpose 3d": both("ConvTranspose3d", (1, 2, 2, 3, 2), args=(2, 3, 2), stride=2),
    "batchnorm 1d": both("BatchNorm1d", (6, 3), args=(3,)),
    "batchnorm 1d space": both("BatchNorm1d", (4, 3, 5), args=(3, 1e-3, 0.3)),
    "batchnorm 2d": both("BatchNorm2d", (3, 4, 5, 4), args=(4,)),
    "batchnorm 2d cumulative": both("BatchNorm2d", (3, 4, 5, 4), args=(4,), momentum=None),
    "batchnorm 2d plain": both("BatchNorm2d", (3, 4, 5, 4), args=(4,), affine=False),
    "batchnorm 2d no statistics": both(
        "BatchNorm2d", (3, 4, 5, 4), args=(4,), track_running_stats=False
    ),
    "batchnorm 3d": both("BatchNorm3d", (2, 3, 3, 2, 4), args=(3,)),
    "instancenorm 1d": both("InstanceNorm1d", (2, 3, 6), args=(3,)),
    "instancenorm 2d": both("InstanceNorm2d", (2, 3, 4, 5), args=(3,), affine=True),
    "instancenorm 2d statistics": both(
        "InstanceNorm2d", (2, 3, 4, 5), args=(3, 1e-4, 0.2, True, True)
    ),
    "instancenorm 3d": both("InstanceNorm3d", (2, 3, 2, 4, 3), args=(3,)),
    "groupnorm": both("GroupNorm", (2, 6, 3, 4), args=(3, 6)),
    "groupnorm plain": both("GroupNorm", (2, 6, 5), args=(2, 6, 1e-3, False)),
    "layernorm": both("LayerNorm", (3, 4, 5), args=(5,)),
    "layernorm two axes": both("LayerNorm", (3, 4, 5), args=((4, 5), 1e-3)),
    "layernorm no bias": both("LayerNorm", (3, 5), args=(5,), bias=False),
    "layernorm plain": both("LayerNorm", (3, 5), args=(5,), elementwise_affine=False),
    "rmsnorm": both("RMSNorm", (3, 4, 5), args=(5,)),
    "rmsnorm eps": both("RMSNorm", (3, 4, 5), args=((4, 5), 1e-2)),
    "rmsnorm plain": both("RMSNorm", (3, 5), args=(5,), elementwise_affine=False),
    "embedding": Row(
        lambda: nn.Embedding(7, 4),
        lambda: torch.nn.Embedding(7, 4),
        [np.array([[1, 2, 6], [0, 2, 2]])],
    ),
    "embedding padding": Row(
        lambda: nn.Embedding(7, 4, padding_idx=-5),
        lambda: torch.nn.Embedding(7, 4, padding_idx=-5),
        [np.array([[1, 2, 6], [0, 2, 2]])],
    ),
    "embedding max norm": Row(
        lambda: nn.Embedding(7, 4, max_norm=0.9),
        lambda: torch.nn.Embedding(7, 4, max_norm=0.9),
        [np.array([[1, 2, 6], [0, 2, 2]])],
    ),
    "embedding max norm padding": Row(
        lambda: nn.Embedding(7, 4, 3, 1.1, 1.0),
        lambda: torch.nn.Embedding(7, 4, 3, 1.1, 1.0),
        [np.array([1, 3, 3, 5])],
    ),
    "rnn cell": both("RNNCell", (3, 4), (3, 5), args=(4, 5)),
    "rnn cell relu": both("RNNCell", (3, 4), args=(4, 5), nonlinearity="relu"),
    "lstm cell alone": both("LSTMCell", (3, 4), args=(4, 5)),
    "gru cell": both("GRUCell", (3, 4), (3, 5), args=(4, 5)),
    "gru cell no bias": both("GRUCell", (4,), args=(4, 5), bias=False),
    "rnn": both("RNN", (4, 2, 3), args=(3, 4, 2, "relu")),
    "lstm": both("LSTM", (4, 2, 3), args=(3, 4)),
    "lstm all": both("LSTM", (2, 3, 3), args=(3, 4, 2, True, True), bidirectional=True),
    "lstm projected": both("LSTM", (3, 2, 3), args=(3, 4), num_layers=2, proj_size=2),
    "lstm no batch": both("LSTM", (4, 3), args=(3, 4), bias=False),
    "gru": both("GRU", (4, 2, 3), (2, 2, 4), args=(3, 4), bidirectional=True),
    "gru deep": both("GRU", (2, 4, 3), args=(3, 4, 2), batch_first=True),
    "attention": both("MultiheadAttention", (5, 2, 8), (6, 2, 8), (6, 2, 8), args=(8, 2)),
    "attention batch first": both(
        "MultiheadAttention", (2, 5, 8), (2, 6, 8), (2, 6, 8), args=(8, 4), batch_first=True
    ),
    "attention no batch": both("MultiheadAttention", (5, 8), (6, 8), (6, 8), args=(8, 2)),
    "attention added keys": both(
        "MultiheadAttention", (5, 2, 8), (6, 2, 8), (6, 2, 8), args=(8, 2, 0.0, True, True, True)
    ),
    "attention other sizes": both(
        "MultiheadAttention", (5, 2, 8), (6, 2, 3), (6, 2, 4), args=(8, 2), kdim=3, vdim=4
    ),
}

_CAUSAL = np.triu(np.ones((5, 5), dtype=bool), 1)
_PADDED = np.array([[False] * 5, [False] * 3 + [True] * 2])
for name, options in {
    "mask": {"attn_mask": _CAUSAL},
    "float mask": {"attn_mask": np.linspace(-1, 1, 25).reshape(5, 5)},
    "mask of each head": {"attn_mask": np.stack([_CAUSAL] * 4)},
    "padding": {"key_padding_mask": _PADDED},
    "both masks": {"attn_mask": _CAUSAL, "key_padding_mask": _PADDED},
    "all weights": {"average_attn_weights": False},
    "no weights": {"need_weights": False, "attn_mask": _CAUSAL},
}.items():
    shapes = [(2, 5, 8)] * 3
    plain = both("MultiheadAttention", *shapes, args=(8, 2), bias=False, batch_first=True)
    ROWS[f"attention {name}"] = plain._replace(options=options)
ROWS["attention added keys, masks"] = both(
    "MultiheadAttention",
    *[(2, 5, 8)] * 3,
    args=(8, 2),
    add_bias_kv=True,
    add_zero_attn=True,
    batch_first=True,
)._replace(options={"attn_mask": _CAUSAL, "key_padding_mask": _PADDED})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ROWS)
def test_layer(name: str, dtype: str) -> None:
    """While training. Only normalisations differ outside: see test_running_statistics."""
    row = ROWS[name]
    layer, reference = pair(row.ours, row.theirs, dtype)
    with Tensor.train():
        compare(layer, reference, row.inputs, dtype, **row.options)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in ROWS if "norm" in name.split()[0]])
def test_running_statistics(name: str, dtype: str) -> None:
    """After several batches in training, what it remembers and what it then gives."""
    row = ROWS[name]
    layer, reference = pair(row.ours, row.theirs, dtype)
    for step in range(4):
        data = numbers(*row.inputs[0].shape, seed=step) * (step + 1) + step
        with Tensor.train():
            layer(Tensor(data.astype(dtype))).realize()
        reference(torch.tensor(data))
    for key, tensor in nn.state.get_state_dict(layer).items():
        if key == "num_batches_tracked":
            assert tensor.item() == reference.state_dict()[key].item()
        else:
            close(tensor, reference.state_dict()[key], key)
    reference.eval()
    compare(layer, reference, row.inputs, dtype)


TRAINED = 10


@pytest.mark.parametrize("name", ROWS)
def test_trajectory_in_float64(name: str) -> None:
    """Trained together, step by step: results, parameters and running statistics stay equal."""
    row = ROWS[name]
    layer, reference = pair(row.ours, row.theirs, "float64")
    mine = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in row.options.items()}
    other = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in row.options.items()}
    state = nn.state.get_state_dict(layer)
    ours = theirs = None
    if list(reference.parameters()):
        ours = nn.optim.SGD(list(state.values()), 0.05, momentum=0.9, weight_decay=0.01)
        theirs = torch.optim.SGD(reference.parameters(), 0.05, momentum=0.9, weight_decay=0.01)
    for step in range(TRAINED):
        inputs = [
            x + 0.1 * numbers(*x.shape, seed=step) if x.dtype.kind == "f" else x for x in row.inputs
        ]
        with Tensor.train():
            found = outputs(layer(*[Tensor(x) for x in inputs], **mine))
            wanted = outputs(reference(*[torch.tensor(x) for x in inputs], **other))
            loss = sum(((a - 0.3) ** 2).mean() for a in found)
            if ours is None or theirs is None:
                Tensor.realize(*found, *state.values())
            else:
                ours.zero_grad()
                theirs.zero_grad()
                loss.backward()
                sum(((b - 0.3) ** 2).mean() for b in wanted).backward()
                Tensor.realize(*found, *ours.schedule_step())
                theirs.step()
        for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
            close(a, b, f"result {number} of step {step}")
    for key, value in reference.state_dict().items():
        if key == "num_batches_tracked":
            assert state[key].item() == value.item()
        else:
            close(state[key], value, f"{key} in the end")


def test_lstm_cell_with_states() -> None:
    layer, reference = pair(
        lambda: nn.LSTMCell(4, 5), lambda: torch.nn.LSTMCell(4, 5), dtype="float64"
    )
    x, h, c = numbers(3, 4), numbers(3, 5, seed=1), numbers(3, 5, seed=2)
    found = layer(Tensor(x), (Tensor(h), Tensor(c)))
    wanted = reference(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


def test_lstm_with_states() -> None:
    layer, reference = pair(
        lambda: nn.LSTM(3, 4, 2), lambda: torch.nn.LSTM(3, 4, 2), dtype="float64"
    )
    x, h, c = numbers(5, 2, 3), numbers(2, 2, 4, seed=1), numbers(2, 2, 4, seed=2)
    out, states = layer(Tensor(x), (Tensor(h), Tensor(c)))
    wanted, expected = reference(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    close(out, wanted)
    for a, b in zip(states, expected, strict=True):
        close(a, b)


def test_layernorm_2d_is_layernorm_of_channels() -> None:
    layer = nn.LayerNorm2d(3)
    data = numbers(2, 3, 4, 5).astype("float32")
    wanted = torch.nn.functional.layer_norm(torch.tensor(data).permute(0, 2, 3, 1).double(), (3,))
    close(layer(Tensor(data)), wanted.permute(0, 3, 1, 2))


@pytest.mark.parametrize("weights", [dtypes.float16, dtypes.float32])
def test_half_inputs_to_norms_promote_with_their_weights(weights: DType) -> None:
    data = numbers(4, 6, 3, 3).astype("float16")
    for layer, reference in (
        (nn.BatchNorm(6), torch.nn.BatchNorm2d(6)),
        (nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6)),
        (nn.LayerNorm(3), torch.nn.LayerNorm(3)),
        (nn.RMSNorm(3), torch.nn.RMSNorm(3)),
        (nn.InstanceNorm(6), torch.nn.InstanceNorm2d(6)),
    ):
        for name in ("weight", "bias"):
            if getattr(layer, name, None) is not None:
                setattr(layer, name, getattr(layer, name).cast(weights))
        with Tensor.train():
            found = layer(Tensor(data))
        assert found.dtype is weights
        wanted = reference.double()(torch.tensor(data).double()).detach().numpy()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------ initial values
@pytest.mark.parametrize("name", [name for name in ROWS if " " not in name])
def test_initial_values_are_distributed_as_pytorchs(name: str) -> None:
    """The bounds of uniform ones, the spread of all, the same constants."""
    row = ROWS[name]
    torch.manual_seed(1)
    Tensor.manual_seed(1)
    ours = [nn.state.get_state_dict(row.ours()) for _ in range(6)]
    theirs = [row.theirs().state_dict() for _ in range(6)]
    for key in theirs[0]:
        found = np.stack([each[key].numpy() for each in ours])
        wanted = np.stack([each[key].numpy() for each in theirs])
        if np.ptp(wanted) == 0:
            np.testing.assert_array_equal(found, wanted)
            continue
        spread = math.sqrt(6 / found.size)
        assert abs(found.std() / wanted.std() - 1) < spread, key
        assert abs(np.abs(found).max() / np.abs(wanted).max() - 1) < spread, key


def test_parameters_are_drawn_once() -> None:
    layer = nn.Linear(4, 3)
    assert (layer.weight.numpy() == layer.weight.numpy()).all()
    assert (layer.weight.numpy() != nn.Linear(4, 3).weight.numpy()).any()
    Tensor.manual_seed(3)
    first = nn.Linear(4, 3).weight.numpy()
    Tensor.manual_seed(3)
    assert (nn.Linear(4, 3).weight.numpy() == first).all()


# ------------------------------------------------------------ small things
def test_dropout_layer() -> None:
    x = Tensor.ones(1000)
    assert nn.Dropout(0.5)(x).numpy().min() == 1
    with Tensor.train():
        dropped = nn.Dropout(0.25)(x).numpy()
    assert set(np.unique(dropped.round(4))) == {0, np.float32(1.3333)}
    assert 150 < (dropped == 0).sum() < 350


def test_recurrent_dropout_is_between_layers() -> None:
    layer = nn.GRU(3, 4, num_layers=2, dropout=1.0)
    x = Tensor(numbers(5, 2, 3).astype("float32"))
    zeros = Tensor.zeros(5, 2, 4)
    second = nn.GRU(4, 4)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(second, f"{name}_l0", getattr(layer, f"{name}_l1"))
    with Tensor.train():
        found = layer(x)[0]
    np.testing.assert_allclose(found.numpy(), second(zeros)[0].numpy(), rtol=1e-6, atol=1e-7)


def test_sequential_names_as_pytorchs() -> None:
    model = nn.Sequential(nn.Linear(2, 3), Tensor.relu, nn.Linear(3, 1))
    assert list(nn.state.get_state_dict(model)) == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ArgumentError, "divisible"),
        (lambda: nn.Conv1d(3, 4, (3, 3)), ArgumentError, "kernel_size"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), ArgumentError, "same"),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), ArgumentError, "stride 1"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), ArgumentError, "reflect"),
        (lambda: nn.Conv2d(3, 4, 3)(Tensor.ones(1, 2, 5, 5)), ShapeError, "channels"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, output_padding=1), ArgumentError, "stride"),
        (lambda: nn.InstanceNorm2d(3, 1e-5, True), ArgumentError, "affine=True"),
        (lambda: nn.BatchNorm(3)(Tensor.ones(2, 4, 2, 2)), ShapeError, "3 features"),
        (lambda: nn.LayerNorm(3)(Tensor.ones(2, 4)), ShapeError, "last axes"),
        (lambda: nn.GroupNorm(2, 3), ArgumentError, "2 groups"),
        (lambda: nn.Embedding(3, 4, padding_idx=3), ArgumentError, "padding_idx"),
        (lambda: nn.Embedding(3, 4)(Tensor([1.0])), DTypeError, "ints"),
        (lambda: nn.Dropout(2.0), ArgumentError, "from 0 to 1"),
        (lambda: nn.LSTM(3, 4)(Tensor.ones(2, 2, 5)), ShapeError, "3 inputs"),
        (lambda: nn.GRU(3, 4)(Tensor.ones(2, 2, 3), Tensor.ones(1, 4)), ShapeError, "initial"),
        (lambda: nn.RNNCell(3, 4, nonlinearity="gelu"), ArgumentError, "relu"),
        (lambda: nn.GRU(3, 4, proj_size=2), ArgumentError, "for an LSTM"),
        (lambda: nn.Embedding(3, 4, max_norm=1.0, norm_type=0.0), ArgumentError, "norm_type"),
        (lambda: nn.MultiheadAttention(5, 2), ArgumentError, "2 heads"),
    ],
)
def test_mistakes_are_explained(make: Callable[[], Any], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        make()


def test_batchnorm_refuses_to_train_on_one_value() -> None:
    with Tensor.train(), pytest.raises(ShapeError, match="no variance"):
        nn.BatchNorm(3)(Tensor.ones(1, 3))


# ------------------------------------------------------------ as tinygrad knows them
def test_arguments_under_tinygrads_names_and_in_its_order() -> None:
    assert nn.BatchNorm(sz=4).num_features == 4
    layer = nn.BatchNorm2d(4, 1e-3, False, True, 0.05)
    assert layer.weight is None and layer.running_mean is not None and layer.momentum == 0.05
    layer = nn.BatchNorm2d(4, 1e-3, True, False)
    assert layer.weight is not None and layer.running_mean is None and layer.momentum == 0.1
    assert nn.Embedding(vocab_size=5, embed_size=3).weight.shape == (5, 3)
    assert nn.RMSNorm(dim=4, eps=1e-6).normalized_shape == (4,)
    assert nn.LayerNorm((2, 3)).axis == (-2, -1)


def test_conv2d_takes_a_kernel_of_any_number_of_axes() -> None:
    layer = nn.Conv2d(1, 2, kernel_size=(3, 3, 3), padding=1)
    assert layer(Tensor.ones(1, 1, 4, 4, 4)).shape == (1, 2, 4, 4, 4)
    assert nn.Conv2d(1, 2, kernel_size=(3,))(Tensor.ones(1, 1, 4)).shape == (1, 2, 2)
    up = nn.ConvTranspose2d(1, 2, kernel_size=(3, 3, 3))
    assert up(Tensor.ones(1, 1, 4, 4, 4)).shape == (1, 2, 6, 6, 6)
