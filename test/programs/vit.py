"""A vision transformer: patches, a class token, positions, encoder blocks; trained a little."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


class TransformerBlock:
    def __init__(self, dim, heads, hidden):
        self.num_heads, self.head_size = heads, dim // heads
        self.query = (Tensor.scaled_uniform(dim, dim), Tensor.zeros(dim))
        self.key = (Tensor.scaled_uniform(dim, dim), Tensor.zeros(dim))
        self.value = (Tensor.scaled_uniform(dim, dim), Tensor.zeros(dim))
        self.out = (Tensor.scaled_uniform(dim, dim), Tensor.zeros(dim))
        self.ff1 = (Tensor.scaled_uniform(dim, hidden), Tensor.zeros(hidden))
        self.ff2 = (Tensor.scaled_uniform(hidden, dim), Tensor.zeros(dim))
        self.ln1 = (Tensor.ones(dim), Tensor.zeros(dim))
        self.ln2 = (Tensor.ones(dim), Tensor.zeros(dim))

    def attn(self, x: Tensor) -> Tensor:
        query, key, value = [
            x.linear(*y).reshape(x.shape[0], -1, self.num_heads, self.head_size).transpose(1, 2)
            for y in [self.query, self.key, self.value]
        ]
        attention = Tensor.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        return attention.reshape(x.shape[0], -1, self.num_heads * self.head_size).linear(*self.out)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attn(x.layernorm().linear(*self.ln1)).dropout(0.0)
        return x + x.layernorm().linear(*self.ln2).linear(*self.ff1).gelu().linear(*self.ff2)


class ViT:
    def __init__(self, layers=2, dim=24, heads=3, classes=7):
        self.embedding = (Tensor.uniform(dim, 3, 4, 4), Tensor.zeros(dim))
        self.cls_token = Tensor.ones(1, 1, dim)
        self.pos_embedding = Tensor.ones(1, 17, dim)
        self.tbs = [TransformerBlock(dim, heads, dim * 2) for _ in range(layers)]
        self.encoder_norm = (Tensor.uniform(dim), Tensor.zeros(dim))
        self.head = (Tensor.uniform(dim, classes), Tensor.zeros(classes))

    def patch_embed(self, x):
        x = x.conv2d(*self.embedding, stride=4)
        return x.reshape(shape=(x.shape[0], x.shape[1], -1)).permute(order=(0, 2, 1))

    def forward(self, x):
        ce = self.cls_token.add(Tensor.zeros(x.shape[0], 1, 1))
        pe = self.patch_embed(x)
        x = ce.cat(pe, dim=1).add(self.pos_embedding).sequential(self.tbs)
        x = x.layernorm().linear(*self.encoder_norm)
        return x[:, 0].linear(*self.head)


model = ViT()
fill(get_state_dict(model), seed=41)
random = np.random.default_rng(42)
images = Tensor(random.standard_normal((4, 3, 16, 16)).astype(np.float32))
labels = Tensor(np.array([0, 3, 6, 2], np.int64))
first = model.forward(images).numpy()

optimizer = nn.optim.SGD(get_parameters(model), lr=0.05, momentum=0.9, nesterov=True)
losses = []
with Context(TRAINING=1):
    for _ in range(3):
        flipped = images.flip(-1) if len(losses) == 1 else images
        loss = model.forward(flipped).cross_entropy(labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        Tensor.realize(loss, model.cls_token.grad)
        optimizer.step()
        losses.append(loss.item())

second = model.forward(images)
results = {
    "first": first,
    "losses": np.array(losses),
    "second": second.numpy(),
    "predicted": second.argmax(1).numpy(),
    "top": second.softmax().topk(3)[1].numpy(),
    "gradient": model.cls_token.grad.numpy(),
}
