"""Mixed precision: half activations and gradients, float32 master weights, loss scaling."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

SCALE = 128.0


class Model:
    def __init__(self):
        self.l1, self.norm, self.l2 = nn.Linear(12, 16), nn.LayerNorm(16), nn.Linear(16, 3)

    def __call__(self, x: Tensor) -> Tensor:
        h = x.half().linear(self.l1.weight.half().T, self.l1.bias.half()).relu()
        h = self.norm(h.float()).half()
        return h.linear(self.l2.weight.half().T, self.l2.bias.half())


model = Model()
fill(get_state_dict(model), seed=171)
optim = nn.optim.SGD(get_parameters(model), lr=0.1, momentum=0.9)
scale = Tensor([SCALE]).realize()


@TinyJit
@Context(TRAINING=1)
def step(x, y):
    optim.zero_grad()
    loss = model(x).float().sparse_categorical_crossentropy(y)
    (loss * scale[0]).backward()
    finite = Tensor.stack(*[p.grad.isfinite().all() for p in optim.params]).all()
    for p in optim.params:
        p.grad = finite.where(p.grad / scale.cast(p.grad.dtype), 0)
    Tensor.realize(loss, finite, *optim.schedule_step())
    scale.assign(finite.where(scale * 1.5, scale * 0.5)).realize()
    return loss, finite


random = np.random.default_rng(172)
losses, fine = [], []
for _ in range(4):
    x = Tensor(random.standard_normal((8, 12)).astype(np.float32))
    y = Tensor(random.integers(0, 3, 8).astype(np.int32))
    loss, finite = step(x, y)
    losses.append(loss.item())
    fine.append(finite.item())
weights = Tensor(random.standard_normal((5, 7)).astype(np.float16))
results = {
    "losses": np.array(losses),
    "finite": np.array(fine),
    "scale": scale.numpy(),
    "weight": model.l1.weight.numpy(),
    "logits": model(x).numpy(),
    "argmax": (weights + weights[0]).realize().argmax(1).numpy(),
    "sums": weights.sum(1).numpy(),
    "mean": weights.mean().dtype == dtypes.half,
    "product": (weights @ weights.T).numpy(),
    "softmax": weights.softmax().numpy(),
    "weak": (weights * 0.1 + 1).dtype == dtypes.half,
}
