"""A variational autoencoder: reparametrised latents, two losses, Adam; numbers come from NumPy."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn

from test.programs.weights import fill


class VAE:
    def __init__(self, pixels=36, hidden=24, latent=4):
        self.encoder = [lambda x: x.flatten(1), nn.Linear(pixels, hidden), Tensor.relu]
        self.mean, self.log_var = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = [nn.Linear(latent, hidden), Tensor.elu, nn.Linear(hidden, pixels)]

    def encode(self, x):
        h = x.sequential(self.encoder)
        return self.mean(h), self.log_var(h).clamp(-4, 4)

    def decode(self, z):
        return z.sequential(self.decoder)

    def __call__(self, x, noise):
        mean, log_var = self.encode(x)
        return self.decode(mean + (0.5 * log_var).exp() * noise), mean, log_var


model = VAE()
fill(nn.state.get_state_dict(model), seed=111)
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=3e-3)


@TinyJit
@Context(TRAINING=1)
def step(x: Tensor, noise: Tensor):
    opt.zero_grad()
    logits, mean, log_var = model(x, noise)
    reconstruction = logits.binary_crossentropy_logits(x.flatten(1), reduction="none").sum(1).mean()
    kl = (-0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(axis=1)).mean()
    (reconstruction + kl).backward()
    Tensor.realize(reconstruction, kl, *opt.schedule_step())
    return reconstruction, kl


random = np.random.default_rng(112)
losses = []
for _ in range(4):
    images = Tensor((random.random((8, 1, 6, 6)) < 0.4).astype(np.float32))
    noise = Tensor(random.standard_normal((8, 4)).astype(np.float32))
    losses.append([value.item() for value in step(images, noise)])
grid = Tensor.stack(*Tensor.linspace(-2, 2, 3).meshgrid(Tensor.linspace(-1, 1, 3)), dim=-1)
latents = grid.reshape(9, 2).pad(((0, 0), (0, 2)))
results = {
    "losses": np.array(losses),
    "pictures": model.decode(latents).sigmoid().reshape(9, 6, 6).numpy(),
    "spread": model.encode(images)[1].exp().sqrt().std(axis=0).numpy(),
}
