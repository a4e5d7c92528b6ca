"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU and a KV cache."""

import numpy as np
from tinygrad import Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad.nn.state import get_state_dict, load_state_dict

MAX_CONTEXT, VOCAB, DIM, HIDDEN, HEADS, KV_HEADS, LAYERS = 32, 50, 32, 48, 4, 2, 2


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0) -> Tensor:
    freqs = 1.0 / (theta ** (Tensor.arange(0, dim, 2)[: (dim // 2)] / dim))
    freqs = Tensor.arange(end).unsqueeze(dim=1) * freqs.unsqueeze(dim=0)
    stacked = Tensor.stack(freqs.cos(), freqs.sin(), dim=-1)
    return stacked.reshape(1, end, 1, dim // 2, 2)


def apply_rotary_emb(x: Tensor, freqs_cis: Tensor) -> Tensor:
    x = x.reshape(*x.shape[:-1], -1, 2)
    a, b = x[..., 0:1], x[..., 1:2]
    c, d = freqs_cis[..., 0:1], freqs_cis[..., 1:2]
    return (a * c - b * d).cat(a * d + b * c, dim=-1).flatten(3)


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    bs, seqlen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    return x.repeat((1, 1, 1, n_rep)).reshape(bs, seqlen, n_kv_heads * n_rep, head_dim)


class Attention:
    def __init__(self):
        self.head_dim = DIM // HEADS
        self.wq = nn.Linear(DIM, HEADS * self.head_dim, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wo = nn.Linear(HEADS * self.head_dim, DIM, bias=False)

    def __call__(self, x: Tensor, start_pos, freqs_cis: Tensor, mask) -> Tensor:
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.reshape(xq.shape[0], xq.shape[1], HEADS, self.head_dim)
        xk = xk.reshape(xk.shape[0], xk.shape[1], KV_HEADS, self.head_dim)
        xv = xv.reshape(xv.shape[0], xv.shape[1], KV_HEADS, self.head_dim)
        xq, xk = apply_rotary_emb(xq, freqs_cis), apply_rotary_emb(xk, freqs_cis)
        bsz, seqlen, _, _ = xq.shape
        if not hasattr(self, "cache_kv"):
            self.cache_kv = (
                Tensor.zeros(2, bsz, MAX_CONTEXT, KV_HEADS, self.head_dim, dtype=x.dtype)
                .contiguous()
                .realize()
            )
        self.cache_kv[:, :, start_pos : start_pos + seqlen, :, :].assign(
            Tensor.stack(xk, xv)
        ).realize()
        keys = self.cache_kv[0, :, 0 : start_pos + seqlen, :, :]
        values = self.cache_kv[1, :, 0 : start_pos + seqlen, :, :]
        keys, values = repeat_kv(keys, HEADS // KV_HEADS), repeat_kv(values, HEADS // KV_HEADS)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        attn = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.wo(attn.reshape(bsz, seqlen, -1))


class FeedForward:
    def __init__(self):
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.w2(self.w1(x).silu() * self.w3(x))


class TransformerBlock:
    def __init__(self):
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, 1e-5), nn.RMSNorm(DIM, 1e-5)

    def __call__(self, x: Tensor, start_pos, freqs_cis: Tensor, mask):
        h = x + self.attention(self.attention_norm(x), start_pos, freqs_cis, mask)
        return (h + self.feed_forward(self.ffn_norm(h))).contiguous()


class Transformer:
    def __init__(self):
        self.layers = [TransformerBlock() for _ in range(LAYERS)]
        self.norm = nn.RMSNorm(DIM, 1e-5)
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        self.freqs_cis = precompute_freqs_cis(DIM // HEADS, MAX_CONTEXT * 2).contiguous()
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens: Tensor, start_pos):
        _, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        freqs_cis = self.freqs_cis.cast(h.dtype)[:, start_pos : start_pos + seqlen, :, :, :]
        mask = (
            Tensor.full((1, 1, seqlen, start_pos + seqlen), float("-inf"), dtype=h.dtype).triu(
                start_pos + 1
            )
            if seqlen > 1
            else None
        )
        for layer in self.layers:
            h = layer(h, start_pos, freqs_cis, mask)
        return self.output(self.norm(h)).float()[:, -1, :].realize()

    def __call__(self, tokens: Tensor, start_pos):
        if tokens.shape[0:2] == (1, 1) and isinstance(start_pos, UOp):
            return self.forward_jit(tokens, start_pos)
        return self.forward(tokens, start_pos)


model = Transformer()
random = np.random.default_rng(31)
weights = {}
for name in sorted(state := get_state_dict(model)):
    if "freqs" not in name:
        shape = state[name].shape
        spread = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        values = random.standard_normal(shape) * spread + (len(shape) == 1)
        weights[name] = Tensor(values.astype(np.float32))
load_state_dict(model, weights, strict=False, verbose=False)

tokens = [1, 7, 30, 22, 9]
logits = model(Tensor([tokens]), 0)
seen = [logits.numpy()]
for position in range(len(tokens), len(tokens) + 8):
    tokens.append(int(logits.argmax(-1).item()))
    start = Variable("start_pos", 1, MAX_CONTEXT - 1).bind(position)
    logits = model(Tensor([[tokens[-1]]]), start)
    seen.append(logits.numpy())
results = {
    "tokens": np.array(tokens),
    "logits": np.concatenate(seen),
    "rope": model.freqs_cis.numpy(),
    "half": model.layers[0].feed_forward(Tensor.ones(1, 2, DIM)).cast(dtypes.half).numpy(),
}
