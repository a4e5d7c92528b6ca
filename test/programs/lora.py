"""Fine-tuning with low-rank adapters: the base is frozen, saved, loaded and merged."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.helpers import temp
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save

from test.programs.weights import fill


class LoRALinear:
    def __init__(self, base: nn.Linear, rank=2, alpha=4.0):
        self.base, self.scale = base, alpha / rank
        self.A = Tensor.kaiming_uniform(rank, base.weight.shape[1])
        self.B = Tensor.zeros(base.weight.shape[0], rank).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.scale

    def merged(self) -> Tensor:
        return self.base.weight + self.B @ self.A * self.scale


class Model:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(6, 10), nn.Linear(10, 4)

    def __call__(self, x):
        return self.l2(self.l1(x).gelu())


model = Model()
fill(get_state_dict(model), seed=161)
file = temp("adapters_of_a_test.safetensors")
safe_save(get_state_dict(model), file)
loaded = Model()
load_state_dict(loaded, safe_load(file), verbose=False)

for parameter in nn.state.get_parameters(loaded):
    parameter.is_param_(False)
loaded.l1, loaded.l2 = LoRALinear(loaded.l1), LoRALinear(loaded.l2)
adapters = {k: v for k, v in get_state_dict(loaded).items() if k.split(".")[-1] in ("A", "B")}
random = np.random.default_rng(162)
for name in sorted(adapters):
    values = random.standard_normal(adapters[name].shape) * (0.3 if name.endswith("A") else 0.05)
    adapters[name].assign(Tensor(values.astype(np.float32))).realize()

opt = nn.optim.AdamW(list(adapters.values()), lr=0.01)
x = Tensor(random.standard_normal((8, 6)).astype(np.float32))
y = Tensor(random.integers(0, 4, 8).astype(np.int32))
losses = []
with Context(TRAINING=1):
    for _ in range(3):
        opt.zero_grad()
        loss = loaded(x).sparse_categorical_crossentropy(y)
        loss.backward()
        losses.append(loss.item())
        opt.step()

merged = Model()
load_state_dict(merged, safe_load(file), verbose=False)
merged.l1.weight.assign(loaded.l1.merged()).realize()
merged.l2.weight.assign(loaded.l2.merged()).realize()
results = {
    "losses": np.array(losses),
    "names": np.array(sorted(get_state_dict(loaded))),
    "adapted": loaded(x).numpy(),
    "merged": merged(x).numpy(),
    "base unchanged": (loaded.l1.base.weight == model.l1.weight).all().numpy(),
    "B": loaded.l2.B.numpy(),
}
assert np.allclose(results["adapted"], results["merged"], atol=1e-5)
