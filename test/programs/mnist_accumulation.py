"""A convolutional classifier of small digits, trained with gradient accumulation under TinyJit."""

import numpy as np
from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange

from test.programs.weights import fill

STEPS = getenv("STEPS", 4)
BATCH, MICRO = 16, 4


class Model:
    def __init__(self):
        self.layers = [
            nn.Conv2d(1, 8, 3, padding=1),
            Tensor.relu,
            nn.BatchNorm(8),
            Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3),
            Tensor.relu,
            nn.BatchNorm2d(16),
            lambda x: x.max_pool2d(kernel_size=(2, 2)),
            lambda x: x.flatten(1),
            nn.Linear(64, 10),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


def digits(count, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = random.integers(0, 60, (count, 1, 12, 12))
    for image, label in zip(images, labels, strict=True):
        image[0, 1 + label // 5 * 5 : 5 + label // 5 * 5, 1 + label % 5 * 2] += 180
    return Tensor(images.astype(np.uint8)), Tensor(labels.astype(np.int32))


X_train, Y_train = digits(64, 1)
X_test, Y_test = digits(32, 2)
model = Model()
fill(nn.state.get_state_dict(model), seed=3)
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=2e-3)


@TinyJit
@Context(TRAINING=1)
def train_step(samples: Tensor) -> Tensor:
    opt.zero_grad()
    total = Tensor(0.0)
    for micro in samples.split(MICRO):
        x, y = X_train[micro].float() / 255, Y_train[micro]
        loss = model(x).sparse_categorical_crossentropy(y, label_smoothing=0.1)
        (loss * (MICRO / BATCH)).backward()
        total = total + loss.detach() * (MICRO / BATCH)
    return total.realize(*opt.schedule_step())


@TinyJit
def accuracy() -> Tensor:
    predicted = model(X_test.float() / 255).argmax(axis=1)
    return ((predicted == Y_test).mean() * 100).realize()


losses, order = [], np.random.default_rng(4)
for _ in (t := trange(STEPS, disable=True)):
    GlobalCounters.reset()
    chosen = Tensor(order.integers(0, 64, BATCH).astype(np.int32))
    losses.append(train_step(chosen).item())
    percent = accuracy().item()
    t.set_description(colored(f"loss {losses[-1]:.3f} accuracy {percent:.1f}%", "green"))

assert GlobalCounters.kernel_count > 0 and Device.DEFAULT in ("CPU", "CUDA", "METAL", "AMD")
with Context(BEAM=0, DEBUG=0):
    logits = model(X_test.float() / 255)
results = {
    "losses": np.array(losses),
    "accuracy": np.array(percent),
    "logits": logits.numpy(),
    "running_mean": model.layers[2].running_mean.numpy(),
    "batches": model.layers[2].num_batches_tracked.numpy(),
    "first weights": model.layers[0].weight.numpy(),
}
