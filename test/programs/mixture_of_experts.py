"""A mixture of experts with top-k routing, a load-balancing loss and a step of Muon."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_state_dict

from test.programs.weights import fill

DIM, HIDDEN, EXPERTS, ACTIVE = 8, 12, 4, 2


class MixtureFeedForward:
    def __init__(self):
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.up = Tensor.zeros(EXPERTS, HIDDEN, DIM).contiguous()
        self.down = Tensor.zeros(EXPERTS, DIM, HIDDEN).contiguous()

    def __call__(self, x: Tensor):
        scores = self.gate(x).float().softmax(-1)
        weights, chosen = scores.topk(ACTIVE)
        weights = weights / weights.sum(-1, keepdim=True)
        up, down = self.up[chosen], self.down[chosen]
        hidden = (up @ x.reshape(*x.shape[:-1], 1, DIM, 1)).silu()
        out = (down @ hidden).squeeze(-1)
        used = chosen.one_hot(EXPERTS).sum(-2).mean((0, 1)).float()
        balance = (used * scores.mean((0, 1))).sum() * EXPERTS
        return (out * weights.unsqueeze(-1)).sum(-2), balance, chosen


model = MixtureFeedForward()
fill(get_state_dict(model), seed=151)
random = np.random.default_rng(152)
x = Tensor(random.standard_normal((2, 5, DIM)).astype(np.float32))
y = Tensor(random.standard_normal((2, 5, DIM)).astype(np.float32))
out, balance, chosen = model(x)
first = out.numpy()
chosen.realize()

# every expert for everyone, without routing, gives the same
every = Tensor.einsum("edh,ehc,btc->bted", model.down, model.up, x).realize()
assert every.shape == (2, 5, EXPERTS, DIM)

matrices = nn.optim.Muon([model.gate.weight], lr=0.02)
others = nn.optim.AdamW([model.up, model.down], lr=0.01)
optimizer = nn.optim.OptimizerGroup(matrices, others)
losses = []
with Context(TRAINING=1):
    for _ in range(2):
        optimizer.zero_grad()
        out, balance, _ = model(x)
        loss = (out - y).square().mean() + 0.01 * balance
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
results = {
    "first": first,
    "every": every.numpy(),
    "chosen": chosen.numpy(),
    "losses": np.array(losses),
    "gate": model.gate.weight.numpy(),
    "up": model.up.numpy(),
}
