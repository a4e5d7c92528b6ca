"""Every optimiser on the same small network, with clipping and a warm-up of the rate."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(4, 6), nn.Linear(6, 2)

    def __call__(self, x):
        return self.l2(self.l1(x).tanh())


MAKERS = {
    "sgd": lambda p: nn.optim.SGD(p, lr=0.1),
    "momentum": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, classic=True),
    "nesterov": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: nn.optim.Adam(p, lr=0.02),
    "adamw": lambda p: nn.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "lamb": lambda p: nn.optim.LAMB(p, lr=0.02, weight_decay=0.01),
    "lars": lambda p: nn.optim.LARS(p, lr=0.5),
    "muon": lambda p: nn.optim.Muon([t for t in p if t.ndim == 2], lr=0.02),
}
random = np.random.default_rng(241)
x = Tensor(random.standard_normal((6, 4)).astype(np.float32)).realize()
y = Tensor(random.standard_normal((6, 2)).astype(np.float32)).realize()
results = {}
for name, make in MAKERS.items():
    net = Net()
    fill(get_state_dict(net), seed=242)
    opt = make(get_parameters(net))
    rate, losses = opt.lr.item(), []
    with Context(TRAINING=1):
        for step in range(2):
            opt.lr.assign(Tensor([rate * (step + 1) / 2])).realize()
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            norm = sum(p.grad.square().sum() for p in opt.params).sqrt()
            for p in opt.params:
                p.grad.assign(p.grad * (norm > 1).where(1 / norm, 1.0))
            losses.append(loss.item())
            opt.step()
    results[name] = np.array(losses)
    results[f"{name} weight"] = net.l1.weight.numpy()
    results[f"{name} rate"] = opt.lr.numpy()
