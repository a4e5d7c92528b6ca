"""Simulations on state that is assigned under TinyJit: the game of life and bodies that attract."""

import numpy as np
from tinygrad import GlobalCounters, Tensor, TinyJit, dtypes

random = np.random.default_rng(181)
board = Tensor((random.random((12, 12)) < 0.4).astype(np.uint8)).realize()


@TinyJit
def generation():
    neighbours = sum(
        board.roll((dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx
    )
    alive = (neighbours == 3) | ((board == 1) & (neighbours == 2))
    count = alive.sum().realize()
    board.assign(alive.cast(dtypes.uint8).contiguous()).realize()
    return count


population = [generation().item() for _ in range(6)]

BODIES, DT = 5, 0.01
position = Tensor(random.standard_normal((BODIES, 3)).astype(np.float32)).realize()
velocity = Tensor((0.1 * random.standard_normal((BODIES, 3))).astype(np.float32)).realize()
mass = Tensor(random.uniform(0.5, 2, BODIES).astype(np.float32)).realize()


def acceleration(p: Tensor) -> Tensor:
    offset = p.unsqueeze(0) - p.unsqueeze(1)
    distance = (offset.square().sum(-1) + 0.01).pow(-1.5)
    return (offset * (distance * mass).unsqueeze(-1)).sum(1)


@TinyJit
def leapfrog(dt: Tensor):
    half = velocity + 0.5 * dt * acceleration(position)
    moved = (position + dt * half).contiguous().realize()
    faster = (half + 0.5 * dt * acceleration(moved)).contiguous().realize()
    position.assign(moved).realize()
    velocity.assign(faster).realize()


def energy():
    kinetic = 0.5 * (mass * velocity.square().sum(-1)).sum()
    distance = ((position.unsqueeze(0) - position.unsqueeze(1)).square().sum(-1) + 0.01).sqrt()
    pairs = (mass.unsqueeze(0) * mass.unsqueeze(1) / distance).triu(1)
    return (kinetic - pairs.sum()).item()


before, trail = energy(), []
for _ in range(6):
    GlobalCounters.reset()
    leapfrog(Tensor([DT]).realize())
    assert GlobalCounters.kernel_count > 0
    trail.append(position.numpy().copy())
results = {
    "population": np.array(population),
    "board": board.numpy(),
    "trail": np.stack(trail),
    "velocity": velocity.numpy(),
    "energy": np.array([before, energy()]),
}
