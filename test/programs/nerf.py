"""A radiance field: positional encoding, an MLP with a skip, volume rendering along rays."""

import math

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

SAMPLES, FREQUENCIES = 8, 3


def encode(x: Tensor) -> Tensor:
    scaled = x.unsqueeze(-1) * (2.0 ** Tensor.arange(FREQUENCIES) * math.pi)
    return x.cat(scaled.sin().flatten(-2), scaled.cos().flatten(-2), dim=-1)


class NeRF:
    def __init__(self, hidden=16):
        inputs = 3 * (1 + 2 * FREQUENCIES)
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden + inputs, hidden)
        self.density, self.colour = nn.Linear(hidden, 1), nn.Linear(hidden, 3)

    def __call__(self, points):
        e = encode(points)
        h = self.second(self.first(e).relu().cat(e, dim=-1)).relu()
        return self.density(h).squeeze(-1).softplus(), self.colour(h).sigmoid()


def render(field, origins: Tensor, directions: Tensor):
    depth = Tensor.linspace(1.0, 3.0, SAMPLES)
    points = origins.unsqueeze(1) + directions.unsqueeze(1) * depth.reshape(1, -1, 1)
    sigma, colour = field(points)
    alpha = 1 - (-sigma * (2.0 / SAMPLES)).exp()
    through = (1 - alpha + 1e-10).cumprod(axis=1)
    through = Tensor.ones(through.shape[0], 1).cat(through[:, :-1], dim=1)
    weights = alpha * through
    return (weights.unsqueeze(-1) * colour).sum(1), (weights * depth).sum(1)


field = NeRF()
fill(get_state_dict(field), seed=191)
random = np.random.default_rng(192)
angles = random.uniform(-0.3, 0.3, (16, 2))
rays = np.concatenate([np.sin(angles), -np.ones((16, 1))], 1)
rays = Tensor((rays / np.linalg.norm(rays, axis=1, keepdims=True)).astype(np.float32))
origins = Tensor([0.0, 0.0, 2.0]).expand(16, 3).contiguous()
wanted = Tensor(random.random((16, 3)).astype(np.float32))
opt = nn.optim.Adam(get_parameters(field), lr=5e-3, b2=0.99, eps=1e-7)


@TinyJit
@Context(TRAINING=1)
def step(origins, rays, wanted):
    opt.zero_grad()
    loss = (render(field, origins, rays)[0] - wanted).square().mean()
    loss.backward()
    return loss.realize(*opt.schedule_step())


losses = [step(origins, rays, wanted).item() for _ in range(4)]
picture, depth = render(field, origins, rays)
slope = field(origins)[0].sum().gradient(origins)[0]
results = {
    "losses": np.array(losses),
    "picture": picture.numpy(),
    "depth": depth.numpy(),
    "peak": -10 * np.log10(losses),
    "slope": slope.numpy(),
}
