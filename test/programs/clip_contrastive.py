"""Two towers, pictures and texts, that are pulled together by a symmetric contrastive loss."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

BATCH, WIDTH, VOCAB, LENGTH = 4, 12, 20, 5


class TextTower:
    def __init__(self):
        self.embedding, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position(Tensor.arange(LENGTH))
        q, k, v = self.qkv(self.norm(x)).rearrange("b t (n h d) -> n b h t d", n=3, h=3)
        mask = Tensor.full((LENGTH, LENGTH), float("-inf")).triu(1)
        attended = q.scaled_dot_product_attention(k, v, attn_mask=mask)
        x = x + self.proj(attended.rearrange("b h t d -> b t (h d)"))
        # the end of a text is its greatest token
        return x[Tensor.arange(tokens.shape[0]), tokens.argmax(axis=-1)]


class ImageTower:
    def __init__(self):
        self.conv, self.norm = nn.Conv2d(3, WIDTH, 4, stride=4, bias=False), nn.LayerNorm2d(WIDTH)

    def __call__(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(images)).gelu().mean((2, 3))


class CLIP:
    def __init__(self):
        self.text, self.image = TextTower(), ImageTower()
        self.text_projection = Tensor.zeros(WIDTH, 8).contiguous()
        self.image_projection = Tensor.zeros(WIDTH, 8).contiguous()
        self.logit_scale = Tensor([np.log(1 / 0.07)])

    def __call__(self, images, tokens):
        image = (self.image(images) @ self.image_projection).normalize(dim=-1)
        text = self.text(tokens) @ self.text_projection
        text = text / text.square().sum(-1, keepdim=True).sqrt()
        return self.logit_scale.exp().clip(max_=100) * image @ text.T


model = CLIP()
state = get_state_dict(model)
fill({k: v for k, v in state.items() if "logit" not in k}, seed=231)
random = np.random.default_rng(232)
images = Tensor(random.standard_normal((BATCH, 3, 8, 8)).astype(np.float32))
tokens = Tensor(random.integers(0, VOCAB, (BATCH, LENGTH)).astype(np.int32))
opt = nn.optim.LARS(get_parameters(model), lr=0.5)
labels, losses = Tensor.arange(BATCH), []
with Context(TRAINING=1):
    for _ in range(2):
        logits = model(images, tokens)
        loss = (logits.cross_entropy(labels) + logits.T.cross_entropy(labels)) / 2
        opt.zero_grad()
        loss.backward()
        losses.append(loss.item())
        opt.step()
similarity = model(images, tokens)
results = {
    "losses": np.array(losses),
    "similarity": similarity.numpy(),
    "best": similarity.argmax(-1).numpy(),
    "scale": model.logit_scale.numpy(),
    "names": np.array(sorted(state)),
}
