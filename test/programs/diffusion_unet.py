"""Denoising diffusion: a small U-Net with timestep embedding, trained, then sampled with DDIM."""

import math

import numpy as np
from tinygrad import Context, Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import tqdm

from test.programs.weights import fill

STEPS = 20


def timestep_embedding(timesteps: Tensor, dim: int, max_period=10000) -> Tensor:
    half = dim // 2
    freqs = (-math.log(max_period) * Tensor.arange(half, dtype=dtypes.float32) / half).exp()
    args = timesteps.float().unsqueeze(1) * freqs.unsqueeze(0)
    return Tensor.cat(args.cos(), args.sin(), dim=-1)


class ResBlock:
    def __init__(self, channels, emb_channels, out_channels):
        self.in_layers = [
            nn.GroupNorm(4, channels),
            Tensor.silu,
            nn.Conv2d(channels, out_channels, 3, padding=1),
        ]
        self.emb_layers = [Tensor.silu, nn.Linear(emb_channels, out_channels)]
        self.out_layers = [
            nn.GroupNorm(4, out_channels),
            Tensor.silu,
            lambda x: x,
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
        ]
        self.skip = (
            nn.Conv2d(channels, out_channels, 1) if channels != out_channels else lambda x: x
        )

    def __call__(self, x: Tensor, emb: Tensor) -> Tensor:
        h = x.sequential(self.in_layers)
        emb_out = emb.sequential(self.emb_layers)
        h = h + emb_out.reshape(*emb_out.shape, 1, 1)
        return self.skip(x) + h.sequential(self.out_layers)


class Attention:
    def __init__(self, channels, heads=2):
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv1d(channels, channels * 3, 1)
        self.proj = nn.Conv1d(channels, channels, 1)
        self.heads = heads

    def __call__(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).reshape(b, c, h * w)).chunk(3, dim=1)
        q, k, v = (
            t.reshape(b, self.heads, c // self.heads, h * w).transpose(2, 3) for t in (q, k, v)
        )
        out = q.scaled_dot_product_attention(k, v).transpose(2, 3).reshape(b, c, h * w)
        return x + self.proj(out).reshape(b, c, h, w)


class UNet:
    def __init__(self, width=8, emb=16):
        self.width = width
        self.time_embed = [nn.Linear(width, emb), Tensor.silu, nn.Linear(emb, emb)]
        self.input = nn.Conv2d(1, width, 3, padding=1)
        self.pool = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.down = ResBlock(width, emb, width * 2)
        self.middle = Attention(width * 2)
        self.narrow = nn.Conv2d(width * 2, width, 1)
        self.up = ResBlock(width * 2, emb, width)
        self.out = [nn.GroupNorm(4, width), Tensor.silu, nn.Conv2d(width, 1, 3, padding=1)]

    def __call__(self, x: Tensor, timesteps: Tensor) -> Tensor:
        emb = timestep_embedding(timesteps, self.width).sequential(self.time_embed)
        h = first = self.input(x)
        h = self.middle(self.down(self.pool(h), emb))
        h = self.narrow(h)
        b, c, height, width = h.shape
        h = h.reshape(b, c, height, 1, width, 1).expand(b, c, height, 2, width, 2)
        h = h.reshape(b, c, height * 2, width * 2)
        return self.up(h.cat(first, dim=1), emb).sequential(self.out)


model = UNet()
fill(nn.state.get_state_dict(model), seed=11)
betas = np.linspace(1e-3, 0.2, STEPS)
alphas = np.cumprod(1 - betas).astype(np.float32)
alphas_cumprod = Tensor(alphas)
opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-3, weight_decay=1e-2)


@TinyJit
def train(x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    with Context(TRAINING=1):
        opt.zero_grad()
        a = alphas_cumprod[t].reshape(-1, 1, 1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = (model(noisy, t) - noise).square().mean().backward()
        return loss.realize(*opt.schedule_step())


@TinyJit
def denoise(x: Tensor, t: Tensor, a_t: Tensor, a_prev: Tensor) -> Tensor:
    e_t = model(x, t)
    pred_x0 = (x - (1.0 - a_t).sqrt() * e_t) / a_t.sqrt()
    x_prev = a_prev.sqrt() * pred_x0.clip(-3, 3) + (1.0 - a_prev).sqrt() * e_t
    return x_prev.contiguous().realize()


random = np.random.default_rng(12)
losses = []
for _ in range(3):
    image = Tensor(np.sign(random.standard_normal((2, 1, 8, 8))).astype(np.float32))
    t = Tensor(random.integers(0, STEPS, 2).astype(np.int32))
    noise = Tensor(random.standard_normal((2, 1, 8, 8)).astype(np.float32))
    losses.append(train(image, t, noise).item())

x = Tensor(random.standard_normal((1, 1, 8, 8)).astype(np.float32))
schedule = list(range(1, STEPS, 4))
for index, step in (t := tqdm(list(enumerate(schedule))[::-1], disable=True)):
    t.set_description(f"{index:3d} {step:3d}")
    a_t = Tensor([float(alphas[step])])
    a_prev = Tensor([float(alphas[schedule[index - 1]]) if index else 1.0])
    x = denoise(x, Tensor([step]), a_t, a_prev)

picture = ((x + 1.0) / 2.0).clip(0, 1).mul(255)
results = {
    "losses": np.array(losses),
    "sample": x.numpy(),
    "embedding": timestep_embedding(Tensor([0, 3, 19]), 8).numpy(),
    "picture": picture.numpy(),
}
