"""GPT-2: a forward pass, training steps, and greedy generation with a KV cache under TinyJit.

Positions are a Variable, so that one captured step serves the whole text.
"""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

MAX_CONTEXT, VOCAB, DIM, HEADS, LAYERS = 16, 31, 16, 2, 1


class Attention:
    def __init__(self, dim, n_heads):
        self.c_attn = nn.Linear(dim, 3 * dim, bias=True)
        self.c_proj = nn.Linear(dim, dim, bias=True)
        self.n_heads, self.dim, self.head_dim = n_heads, dim, dim // n_heads

    def __call__(self, x: Tensor, start_pos, mask):
        xqkv = self.c_attn(x).reshape(None, None, 3, self.n_heads, self.head_dim)
        xq, xk, xv = (xqkv[:, :, i, :, :] for i in range(3))
        bsz, seqlen, _, _ = xq.shape
        if not hasattr(self, "cache_kv"):
            shape = (2, bsz, MAX_CONTEXT, self.n_heads, self.head_dim)
            self.cache_kv = Tensor.zeros(*shape, dtype=x.dtype).contiguous().realize()
        window = (None, None, (start_pos, start_pos + seqlen), None, None)
        self.cache_kv.shrink(window).assign(Tensor.stack(xk, xv)).realize()
        if not isinstance(start_pos, int) or start_pos > 0:
            keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
            values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
        else:
            keys, values = xk, xv
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        out = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.c_proj(out.reshape(bsz, seqlen, self.dim))

    def train(self, x: Tensor) -> Tensor:
        bsz, seqlen, _ = x.shape
        q, k, v = self.c_attn(x).split(self.dim, dim=2)
        q, k, v = (t.view(bsz, seqlen, self.n_heads, -1).transpose(1, 2) for t in (q, k, v))
        out = q.scaled_dot_product_attention(k, v, is_causal=True)
        return self.c_proj(out.transpose(1, 2).reshape(bsz, seqlen, self.dim))


class TransformerBlock:
    def __init__(self, dim, n_heads, norm_eps):
        self.attn = Attention(dim, n_heads)
        self.mlp_fc, self.mlp_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ln_1, self.ln_2 = nn.LayerNorm(dim, norm_eps), nn.LayerNorm(dim, norm_eps)

    def mlp(self, x):
        return self.mlp_proj(self.mlp_fc(x).gelu())

    def __call__(self, x: Tensor, start_pos, mask):
        h = x + self.attn(self.ln_1(x), start_pos, mask).float()
        return (h + self.mlp(self.ln_2(h))).contiguous()

    def train(self, x: Tensor) -> Tensor:
        h = x + self.attn.train(self.ln_1(x))
        return h + self.mlp(self.ln_2(h))


class Transformer:
    def __init__(self):
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(MAX_CONTEXT, DIM)
        self.h = [TransformerBlock(DIM, HEADS, 1e-5) for _ in range(LAYERS)]
        self.ln_f = nn.LayerNorm(DIM, 1e-5)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens: Tensor, start_pos):
        if not hasattr(self, "allpos"):
            self.allpos = Tensor.arange(0, MAX_CONTEXT).reshape(1, -1).realize()
        seqlen = tokens.shape[1]
        position = self.allpos.shrink((None, (start_pos, start_pos + seqlen)))
        h = self.wte(tokens) + self.wpe(position)
        mask = None
        if seqlen > 1:
            full = Tensor.full((1, 1, seqlen, start_pos + seqlen), float("-inf"), dtype=h.dtype)
            mask = full.triu(start_pos + 1)
        for hi in self.h:
            h = hi(h, start_pos, mask)
        logits = self.lm_head(self.ln_f(h))
        return logits[:, -1, :].argmax(-1).flatten().realize(), logits[:, -1, :].realize()

    def __call__(self, tokens: Tensor, start_pos):
        forward = self.forward_jit if tokens.shape[1] == 1 else self.forward
        return forward(tokens, start_pos)

    def train(self, tokens: Tensor) -> Tensor:
        h = self.wte(tokens) + self.wpe(Tensor.arange(tokens.shape[1]))
        for hi in self.h:
            h = hi.train(h)
        return self.lm_head(self.ln_f(h))


model = Transformer()
fill(get_state_dict(model), seed=21)
random = np.random.default_rng(22)
results = {}

# training
optimizer = nn.optim.AdamW(get_parameters(model), lr=1e-3, b1=0.9, b2=0.95, weight_decay=0.1)


@TinyJit
@Context(TRAINING=1)
def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = model.train(x).sparse_categorical_crossentropy(y)
    loss.backward()
    norm = Tensor.stack(*[p.grad.square().sum() for p in optimizer.params]).sum().sqrt()
    for p in optimizer.params:
        p.grad = p.grad * (1.0 / (norm + 1e-6)).clip(max_=1.0)
    Tensor.realize(loss, norm, *optimizer.schedule_step())
    return loss, norm


losses = []
for _ in range(3):
    tokens = random.integers(0, VOCAB, (2, 9)).astype(np.int32)
    loss, norm = step(Tensor(tokens[:, :-1]).contiguous(), Tensor(tokens[:, 1:]).contiguous())
    losses.append([loss.item(), norm.item()])
results["losses"] = np.array(losses)

# generation
prompt = [5, 17, 3, 30]
toks, start_pos, logits_seen = list(prompt), 0, []
for _ in range(6):
    bound = Variable("start_pos", 1, MAX_CONTEXT - 1).bind(start_pos) if start_pos else 0
    tok, logits = model(Tensor([toks[start_pos:]]), bound)
    start_pos = len(toks)
    toks.append(int(tok.item()))
    logits_seen.append(logits.numpy())
results["text"] = np.array(toks)
results["logits"] = np.concatenate(logits_seen)

# the same without a cache
whole = model.train(Tensor([toks[:-1]]))[0, len(prompt) - 1 :]
results["whole"] = whole.numpy()
assert np.allclose(results["whole"], results["logits"], atol=1e-4)
results["perplexity"] = (
    whole.log_softmax()
    .gather(1, Tensor(toks[len(prompt) :]).unsqueeze(1).cast(dtypes.int32))
    .mean()
    .neg()
    .exp()
    .numpy()
)
