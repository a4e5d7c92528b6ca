"""Decoding: beam search, top-k and nucleus filters, penalties, and samples by uniform numbers."""

import numpy as np
from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import flatten, prod

from test.programs.weights import fill

VOCAB, WIDTH, LENGTH, END = 17, 3, 5, 0


class Bigram:
    def __init__(self):
        self.embed, self.mix, self.head = (
            nn.Embedding(VOCAB, 8),
            nn.Linear(16, 8),
            nn.Linear(8, VOCAB),
        )

    def __call__(self, tokens: Tensor) -> Tensor:
        last = self.embed(tokens[:, -2:]).flatten(1)
        return self.head(self.mix(last).quick_gelu()) * 2


model = Bigram()
fill(nn.state.get_state_dict(model), seed=201)


def beam_search(prompt):
    tokens = Tensor([prompt] * WIDTH, dtype=dtypes.int32)
    scores = Tensor([0.0] + [-1e9] * (WIDTH - 1))
    ended = Tensor([False] * WIDTH)
    for _ in range(LENGTH):
        steps = model(tokens).log_softmax()
        only_end = (Tensor.arange(VOCAB) == END).where(0.0, -1e9)
        steps = ended.unsqueeze(1).where(only_end, steps)
        scores, places = (scores.unsqueeze(1) + steps).flatten().topk(WIDTH)
        origin, chosen = places // VOCAB, places % VOCAB
        tokens = tokens[origin].cat(chosen.unsqueeze(1).cast(dtypes.int32), dim=1)
        ended = ended[origin] | (chosen == END)
        tokens, scores, ended = tokens.realize(), scores.realize(), ended.realize()
    return tokens, scores


def top_k(logits, k):
    least = logits.topk(k)[0][:, -1:]
    return (logits < least).where(-float("inf"), logits)


def nucleus(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    before = ordered.softmax().cumsum(-1) - ordered.softmax()
    ordered = ordered.masked_fill(before > p, -float("inf"))
    return ordered.gather(-1, order.argsort(-1))


def sample(logits, uniform):
    return (logits.softmax().cumsum(-1) < uniform.unsqueeze(1)).sum(-1)


tokens, scores = beam_search([3, 5])
context = Tensor([[3, 5], [7, 1], [2, 2], [9, 16]], dtype=dtypes.int32)
logits = model(context)
seen = Tensor.zeros(4, VOCAB).scatter(1, context, 1.0)
penalised = (seen > 0).where((logits > 0).where(logits / 1.3, logits * 1.3), logits)
uniform = Tensor(np.random.default_rng(202).random(4).astype(np.float32))
assert prod(flatten([[2], [3]])) == 6
results = {
    "beams": tokens.numpy(),
    "scores": scores.numpy(),
    "top k": top_k(logits, 4).softmax().numpy(),
    "nucleus": nucleus(logits, 0.7).softmax().numpy(),
    "penalised": penalised.numpy(),
    "sampled": sample(penalised / 0.8, uniform).numpy(),
    "certain": Tensor([[0.0, 0.0, 1.0], [0.0, 5.0, 0.0]]).multinomial().numpy(),
    "gumbel": (logits - (-(uniform.clip(1e-3, 0.999).log())).log().unsqueeze(1)).argmax(-1).numpy(),
}
