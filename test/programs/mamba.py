"""Mamba: a selective scan as a loop over time, and the same recurrence by cumulative sums."""

import math

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

DIM, STATE, CONV, RANK, VOCAB = 8, 4, 4, 2, 19
INNER = DIM * 2


def selective_scan(u, delta, a, b, c, d):
    # u, delta (batch, inner, time); a (inner, state); b, c (batch, state, time)
    delta_a = Tensor.einsum("bdl,dn->bdln", delta, a).exp()
    delta_b_u = Tensor.einsum("bdl,bnl,bdl->bdln", delta, b, u)
    x, ys = Tensor.zeros(u.shape[0], u.shape[1], a.shape[1]), []
    for i in range(u.shape[2]):
        x = delta_a[:, :, i] * x + delta_b_u[:, :, i]
        ys.append(Tensor.einsum("bdn,bn->bd", x, c[:, :, i]))
    return Tensor.stack(*ys, dim=2) + u * d.reshape(1, -1, 1)


def scan_by_sums(u, delta, a, b, c, d):
    log_decay = Tensor.einsum("bdl,dn->bdln", delta, a).cumsum(axis=2)
    inner = Tensor.einsum("bdl,bnl,bdl->bdln", delta, b, u) * (-log_decay).exp()
    states = inner.cumsum(axis=2) * log_decay.exp()
    return Tensor.einsum("bdln,bnl->bdl", states, c) + u * d.reshape(1, -1, 1)


class MambaMixer:
    def __init__(self):
        self.in_proj = nn.Linear(DIM, INNER * 2, bias=False)
        self.conv1d = nn.Conv1d(INNER, INNER, kernel_size=CONV, groups=INNER, padding=CONV - 1)
        self.x_proj = nn.Linear(INNER, RANK + STATE * 2, bias=False)
        self.dt_proj = nn.Linear(RANK, INNER)
        decay = Tensor.arange(1, STATE + 1).float().repeat([INNER, 1]).log()
        self.A_log = Tensor(decay.numpy())
        self.D = Tensor.ones(INNER)
        self.out_proj = nn.Linear(INNER, DIM, bias=False)

    def __call__(self, hidden: Tensor, scan=selective_scan) -> Tensor:
        _, seqlen, _ = hidden.shape
        x, z = self.in_proj(hidden).permute(0, 2, 1).chunk(2, dim=1)
        x = self.conv1d(x)[..., :seqlen].swish()
        dt, b, c = self.x_proj(x.permute(0, 2, 1)).split([RANK, STATE, STATE], dim=-1)
        dt = self.dt_proj(dt).permute(0, 2, 1).softplus()
        y = scan(x, dt, -self.A_log.exp(), b.permute(0, 2, 1), c.permute(0, 2, 1), self.D)
        return self.out_proj((y * z.silu()).permute(0, 2, 1))


class Mamba:
    def __init__(self):
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = [MambaMixer()]
        self.norms = [nn.RMSNorm(DIM)]
        self.norm_f = nn.RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def __call__(self, tokens, scan=selective_scan):
        x = self.embedding(tokens)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x), scan)
        return self.lm_head(self.norm_f(x))


model = Mamba()
fill({k: v for k, v in get_state_dict(model).items() if "A_log" not in k}, seed=81)
tokens = Tensor(np.random.default_rng(82).integers(0, VOCAB, (2, 7)).astype(np.int32))
by_loop, by_sums = model(tokens).numpy(), model(tokens, scan_by_sums).numpy()
assert np.allclose(by_loop, by_sums, atol=1e-4) and math.isfinite(by_loop.sum())

optimizer = nn.optim.Adam(get_parameters(model), lr=3e-3)
losses = []
with Context(TRAINING=1):
    for _ in range(2):
        logits = model(tokens[:, :-1], scan_by_sums)
        loss = logits.sparse_categorical_crossentropy(tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        seen = model.layers[0].conv1d.weight.grad.numpy().copy()
        optimizer.step()
results = {
    "logits": by_loop,
    "losses": np.array(losses),
    "A_log": model.layers[0].A_log.numpy(),
    "conv gradient": seen,
}
