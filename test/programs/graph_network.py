"""A graph network: messages along edges by gather and scatter, attention over neighbours."""

import numpy as np
from tinygrad import Context, Tensor, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill

NODES, FEATURES, EDGES = 10, 6, 28


class GCNLayer:
    def __init__(self, i, o):
        self.linear = nn.Linear(i, o, bias=False)
        self.bias = Tensor.zeros(o)

    def __call__(self, x, source, target):
        degree = Tensor.zeros(NODES).scatter_reduce(
            0, target, Tensor.ones(target.shape[0]), reduce="sum"
        )
        norm = (degree + 1).rsqrt()
        h = self.linear(x)
        messages = h[source] * (norm[source] * norm[target]).unsqueeze(1)
        index = target.unsqueeze(1).expand(messages.shape)
        gathered = Tensor.zeros(NODES, h.shape[1]).scatter_reduce(0, index, messages, "sum")
        return gathered + h * norm.square().unsqueeze(1) + self.bias


class GATLayer:
    def __init__(self, i, o):
        self.linear = nn.Linear(i, o, bias=False)
        self.attention = Tensor.zeros(2 * o, 1)

    def __call__(self, x, adjacency):
        h = self.linear(x)
        n, o = h.shape
        pairs = h.unsqueeze(1).expand(n, n, o).cat(h.unsqueeze(0).expand(n, n, o), dim=-1)
        score = (pairs @ self.attention).squeeze(-1).leaky_relu(0.2)
        return adjacency.where(score, -1e9).softmax(-1) @ h


class Model:
    def __init__(self):
        self.gcn, self.gat, self.out = GCNLayer(FEATURES, 8), GATLayer(8, 8), nn.Linear(8, 3)

    def __call__(self, x, source, target, adjacency):
        h = self.gcn(x, source, target).relu()
        return self.out(self.gat(h, adjacency).elu())


random = np.random.default_rng(131)
edges = random.integers(0, NODES, (2, EDGES)).astype(np.int32)
source, target = Tensor(edges[0]), Tensor(edges[1])
x = Tensor(random.standard_normal((NODES, FEATURES)).astype(np.float32))
y = Tensor(random.integers(0, 3, NODES).astype(np.int32))
adjacency = Tensor.eye(NODES).contiguous()
adjacency[target, source] = 1
adjacency = adjacency.cast(dtypes.bool).realize()
train_mask = Tensor(np.arange(NODES) < 6)

model = Model()
fill(get_state_dict(model), seed=132)
opt = nn.optim.Adam(get_parameters(model), lr=0.02)
losses = []
with Context(TRAINING=1):
    for _ in range(3):
        opt.zero_grad()
        labels = train_mask.where(y, -1)
        out = model(x, source, target, adjacency)
        loss = out.sparse_categorical_crossentropy(labels, reduction="sum") / train_mask.sum()
        loss.backward()
        losses.append(loss.item())
        opt.step()
out = model(x, source, target, adjacency)
farthest = Tensor.zeros(NODES, FEATURES).scatter_reduce(
    0, target.unsqueeze(1).expand(EDGES, FEATURES), x[source], "amax", include_self=False
)
results = {
    "losses": np.array(losses),
    "logits": out.numpy(),
    "adjacency": adjacency.numpy(),
    "farthest": farthest.numpy(),
    "pooled": out.max(0).cat(out.mean(0)).numpy(),
    "gathered": out.gather(1, y.reshape(-1, 1)).numpy(),
}
