"""A U-Net over volumes with instance norm; a step on dice and cross entropy losses."""

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


def conv3d(i, o, k, stride=1, padding=0):
    return nn.Conv2d(i, o, kernel_size=(k, k, k), stride=stride, padding=(padding,) * 6, bias=False)


class ConvBlock:
    def __init__(self, i, o, stride=1):
        self.conv1 = [conv3d(i, o, 3, stride, 1), nn.InstanceNorm(o), Tensor.relu]
        self.conv2 = [conv3d(o, o, 3, 1, 1), nn.InstanceNorm(o), Tensor.relu]

    def __call__(self, x):
        return x.sequential(self.conv1).sequential(self.conv2)


class UpBlock:
    def __init__(self, i, o):
        self.up = nn.ConvTranspose2d(i, o, kernel_size=(2, 2, 2), stride=2)
        self.block = ConvBlock(2 * o, o)

    def __call__(self, x, skip):
        return self.block(Tensor.cat(self.up(x), skip, dim=1))


class UNet3D:
    def __init__(self, classes=3):
        self.input = ConvBlock(1, 4)
        self.down = ConvBlock(4, 8, stride=2)
        self.up = UpBlock(8, 4)
        self.output = conv3d(4, classes, 1)

    def __call__(self, x):
        skip = self.input(x)
        return self.output(self.up(self.down(skip), skip))


def dice_ce_loss(predicted: Tensor, target: Tensor) -> Tensor:
    onehot = target.one_hot(predicted.shape[1]).permute(0, 4, 1, 2, 3)
    ce = -(predicted.log_softmax(axis=1) * onehot).sum(1).mean()
    p = predicted.softmax(axis=1)
    intersection = (p * onehot).sum(axis=(2, 3, 4))
    total = p.sum(axis=(2, 3, 4)) + onehot.sum(axis=(2, 3, 4))
    dice = (2.0 * intersection + 1e-6) / (total + 1e-6)
    return (ce + (1.0 - dice).mean()) / 2


model = UNet3D()
fill(get_state_dict(model), seed=61)
random = np.random.default_rng(62)
volume = Tensor(random.standard_normal((1, 1, 6, 6, 6)).astype(np.float32))
target = Tensor(random.integers(0, 3, (1, 6, 6, 6)).astype(np.int32))
optim = nn.optim.LAMB(get_parameters(model), lr=0.01)
losses = []
with Context(TRAINING=1):
    for _ in range(2):
        optim.zero_grad()
        loss = dice_ce_loss(model(volume), target)
        loss.backward()
        losses.append(loss.item())
        optim.step()

out = model(volume)
results = {
    "losses": np.array(losses),
    "segmentation scores": out.numpy(),
    "pooled": out.max_pool2d((2, 2, 2)).numpy(),
    "larger": out.pad((1, 1, 0, 2, 1, 0)).shape,
}
