"""Language models of characters: an LSTM cell of the library and a GRU written by hand."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

TEXT = "the quick brown fox jumps over the lazy dog and runs away "
CHARS = sorted(set(TEXT))
HIDDEN, LENGTH = 16, 6


class GRUCell:
    def __init__(self, input_size, hidden_size):
        self.w_ih = Tensor.uniform(input_size, 3 * hidden_size, low=-0.2, high=0.2)
        self.w_hh = Tensor.uniform(hidden_size, 3 * hidden_size, low=-0.2, high=0.2)
        self.bias = Tensor.zeros(3 * hidden_size)

    def __call__(self, x, h):
        i_r, i_z, i_n = x.dot(self.w_ih).add(self.bias).chunk(3, 1)
        h_r, h_z, h_n = h.dot(self.w_hh).chunk(3, 1)
        r, z = (i_r + h_r).sigmoid(), (i_z + h_z).sigmoid()
        return (1 - z) * (i_n + r * h_n).tanh() + z * h


class CharModel:
    def __init__(self):
        self.embedding = nn.Embedding(len(CHARS), 8)
        self.lstm = nn.LSTMCell(8, HIDDEN)
        self.gru = GRUCell(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, len(CHARS))

    def step(self, token, state):
        h, c, g = state
        h, c = self.lstm(self.embedding(token), (h, c))
        g = self.gru(h, g)
        return self.out(g), (h, c, g)

    def zero_state(self, batch):
        return tuple(Tensor.zeros(batch, HIDDEN).contiguous() for _ in range(3))

    def __call__(self, tokens):
        state, outs = self.zero_state(tokens.shape[0]), []
        for t in range(tokens.shape[1]):
            logits, state = self.step(tokens[:, t], state)
            outs.append(logits)
        return Tensor.stack(*outs, dim=1)


model = CharModel()
fill(get_state_dict(model), seed=91)
codes = np.array([CHARS.index(c) for c in TEXT], np.int32)
opt = nn.optim.SGD(get_parameters(model), lr=0.5)


@TinyJit
@Context(TRAINING=1)
def train(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*opt.schedule_step())


losses = []
for number in range(3):
    rows = [codes[k : k + LENGTH + 1] for k in range(number, number + 32, 8)]
    rows = np.stack(rows)
    losses.append(train(Tensor(rows[:, :-1].copy()), Tensor(rows[:, 1:].copy())).item())


@TinyJit
def next_char(token, h, c, g):
    logits, (h, c, g) = model.step(token, (h, c, g))
    return logits.argmax(-1).realize(), h.realize(), c.realize(), g.realize()


state, token, said = model.zero_state(1), Tensor([CHARS.index("t")]), []
for _ in range(6):
    token, h, c, g = next_char(token.clone().realize(), *[s.clone().realize() for s in state])
    state = (h, c, g)
    said.append(token.item())
results = {
    "losses": np.array(losses),
    "said": np.array(said),
    "hidden": state[0].numpy(),
    "weight": model.lstm.weight_hh.numpy(),
}
