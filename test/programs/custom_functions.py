"""Functions with gradients of their own: straight-through, reversed, normalised, and twice."""

import numpy as np
from tinygrad import Context, Tensor, nn

random = np.random.default_rng(221)


def straight_through(x: Tensor) -> Tensor:
    """The sign, whose gradient is that of a clipped identity."""
    soft = x.clip(-1, 1)
    return soft + (x.sign() - soft).detach()


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    return x.detach() * (1 + strength) - x * strength


x = Tensor(random.standard_normal(6).astype(np.float32)).realize()
weights = Tensor(random.standard_normal((6, 4)).astype(np.float32)).realize()
binary = (straight_through(weights) * x.reshape(-1, 1)).sum(0)
loss = binary.square().sum()
by_sign, to_x = loss.gradient(weights, x)

reversed_loss = (reverse_gradient(x, 0.5) * Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sum()
(reversed_gradient,) = reversed_loss.gradient(x)

# a layer that users write: weight normalisation around a Linear
layer = nn.Linear(6, 3)
layer.weight.assign(Tensor(random.standard_normal((3, 6)).astype(np.float32))).realize()
layer.bias.assign(Tensor.zeros(3)).realize()
g = Tensor.ones(3).contiguous()
opt = nn.optim.SGD([layer.weight, g], lr=0.1)
with Context(TRAINING=1):
    for _ in range(2):
        v = layer.weight
        normalised = v * (g / v.square().sum(1).sqrt()).unsqueeze(1)
        error = (x @ normalised.T + layer.bias - Tensor([1.0, 0.0, -1.0])).square().sum()
        opt.zero_grad()
        error.backward()
        Tensor.realize(normalised, *opt.schedule_step())

second = (x * x * x).sum()
(first_order,) = second.gradient(x)
(second_order,) = first_order.sum().gradient(x)
results = {
    "binary": binary.numpy(),
    "by sign": by_sign.numpy(),
    "to x": to_x.numpy(),
    "reversed": reversed_gradient.numpy(),
    "normalised": normalised.numpy(),
    "g": g.numpy(),
    "second order": second_order.numpy(),
}
