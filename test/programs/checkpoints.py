"""Files: safetensors with metadata, a resumed training run, slices of a file, raw bytes."""

import numpy as np
from tinygrad import Context, Device, GlobalCounters, Tensor, dtypes, nn
from tinygrad.helpers import Timing, temp
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)

from test.programs.weights import fill


class Net:
    def __init__(self):
        self.body = [nn.Linear(5, 7), Tensor.relu, nn.BatchNorm(7), nn.Linear(7, 3)]
        self.extra = {"scale": Tensor.ones(3), "shift": (Tensor.zeros(3), Tensor.zeros(1))}

    def __call__(self, x):
        shift, factor = self.extra["shift"]
        return x.sequential(self.body) * self.extra["scale"] + shift * factor


def train(net, opt, steps):
    losses = []
    with Context(TRAINING=1):
        for _ in range(steps):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            losses.append(loss.item())
            opt.step()
    return losses


random = np.random.default_rng(251)
x = Tensor(random.standard_normal((8, 5)).astype(np.float32)).realize()
y = Tensor(random.standard_normal((8, 3)).astype(np.float32)).realize()
net = Net()
fill(get_state_dict(net), seed=252)
opt = nn.optim.Adam(get_parameters(net), lr=0.01)
first = train(net, opt, 2)
state = {f"model.{k}": v for k, v in get_state_dict(net).items()}
# the buffers are the model's
kept = {k: v for k, v in get_state_dict(opt).items() if not k.startswith("buffers")}
state |= {f"optim.{k}": v for k, v in kept.items()}
file = temp("resumed_by_a_test.safetensors")
safe_save(state, file, {"epoch": "2"})
straight_on = train(net, opt, 2)

again = Net()
again_opt = nn.optim.Adam(get_parameters(again), lr=0.5)
with Timing("load: ", enabled=False):
    loaded = safe_load(file)
for prefix, owner in (("model.", again), ("optim.", again_opt)):
    part = {k[len(prefix) :]: v for k, v in loaded.items() if k.startswith(prefix)}
    load_state_dict(owner, part, strict=False, verbose=False)
resumed = train(again, again_opt, 2)
assert np.allclose(resumed, straight_on)

_, _, metadata = safe_load_metadata(file)
blob = temp("bytes_of_a_test.bin")
np.arange(64, dtype=np.uint8).tofile(blob)
raw = Tensor.empty(64, dtype=dtypes.uint8, device=f"disk:{blob}")
part = raw[8:24].bitcast(dtypes.uint16).to(Device.DEFAULT)
GlobalCounters.reset()
results = {
    "first": np.array(first),
    "resumed": np.array(resumed),
    "names": np.array(sorted(loaded)),
    "shapes": np.array([len(loaded[k].shape) for k in sorted(loaded)]),
    "epoch": np.array(metadata["__metadata__"]["epoch"]),
    "part": part.numpy(),
    "weight": again.body[0].weight.numpy(),
}
