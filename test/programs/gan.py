"""A generator and a discriminator that play against each other over a ring of points."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


class Generator:
    def __init__(self, latent=8):
        self.l1 = nn.Linear(latent, 32)
        self.l2 = nn.Linear(32, 4 * 4 * 4)
        self.up = nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1)
        self.out = nn.Conv2d(3, 1, 1, bias=False)

    def forward(self, z):
        h = self.l1(z).leaky_relu(0.2)
        h = self.l2(h).leaky_relu(0.2).reshape(-1, 4, 4, 4)
        return self.out(self.up(h).leaky_relu()).tanh()


class Discriminator:
    def __init__(self):
        self.c1 = nn.Conv2d(1, 8, kernel_size=3, stride=2, padding=1)
        self.l1 = nn.Linear(8 * 4 * 4, 16)
        self.l2 = nn.Linear(16, 2)

    def forward(self, x):
        h = self.c1(x).leaky_relu(0.2).flatten(1)
        h = self.l1(h).leaky_relu(0.2)
        return self.l2(h).log_softmax()


def make_labels(batch, column, value=-2.0):
    y = np.zeros((batch, 2), np.float32)
    y[range(batch), [column] * batch] = value
    return Tensor(y)


generator, discriminator = Generator(), Discriminator()
fill(get_state_dict(generator), seed=1)
fill(get_state_dict(discriminator), seed=2)
optim_g = Adam(get_parameters(generator), lr=0.002, b1=0.5)
optim_d = Adam(get_parameters(discriminator), lr=0.002, b1=0.5)


@TinyJit
@Context(TRAINING=1)
def train_discriminator(real, noise):
    optim_d.zero_grad()
    fake = generator.forward(noise).detach()
    loss_real = (discriminator.forward(real) * make_labels(real.shape[0], 1)).mean()
    loss_fake = (discriminator.forward(fake) * make_labels(fake.shape[0], 0)).mean()
    loss_real.backward()
    loss_fake.backward()
    return (loss_real + loss_fake).realize(*optim_d.schedule_step())


@TinyJit
@Context(TRAINING=1)
def train_generator(noise):
    optim_g.zero_grad()
    output = discriminator.forward(generator.forward(noise))
    loss = (output * make_labels(noise.shape[0], 1)).mean()
    loss.backward()
    return loss.realize(*optim_g.schedule_step())


random = np.random.default_rng(5)
loss_d, loss_g = [], []
for _ in range(4):
    angle = random.uniform(0, 2 * np.pi, (8, 1, 1, 1))
    grid = np.linspace(0, 2 * np.pi, 64).reshape(1, 1, 8, 8)
    real = Tensor(np.cos(grid + angle).astype(np.float32))
    noise = Tensor(random.standard_normal((8, 8)).astype(np.float32))
    loss_d.append(train_discriminator(real, noise).item())
    noise = Tensor(random.standard_normal((8, 8)).astype(np.float32))
    loss_g.append(train_generator(noise).item())

images = generator.forward(noise).interpolate((16, 16), mode="nearest")
results = {
    "loss_d": np.array(loss_d),
    "loss_g": np.array(loss_g),
    "images": images.numpy(),
    "generator": generator.up.weight.numpy(),
    "discriminator": discriminator.c1.weight.numpy(),
}
