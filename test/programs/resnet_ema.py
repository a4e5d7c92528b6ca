"""A residual network with batch norm, SGD with momentum, a schedule, and averaged weights."""

import math

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict

from test.programs.weights import fill


class BasicBlock:
    def __init__(self, in_planes, planes, stride=1):
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, stride=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes, momentum=0.2)
        self.downsample = []
        if stride != 1 or in_planes != planes:
            self.downsample = [
                nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            ]

    def __call__(self, x):
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        return (out + x.sequential(self.downsample)).relu()


class ResNet:
    def __init__(self, classes=5):
        self.conv1 = nn.Conv2d(3, 4, kernel_size=3, stride=1, bias=False, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.layers = [BasicBlock(4, 8, stride=2)]
        self.fc = nn.Linear(8, classes)

    def __call__(self, x):
        out = self.bn1(self.conv1(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
        out = out.sequential(self.layers)
        return self.fc(out.mean([2, 3]).cast("float32"))


model = ResNet()
fill(get_state_dict(model), seed=101)
average = {
    k: v.clone().realize() for k, v in get_state_dict(model).items() if v.is_floating_point()
}
optimizer = nn.optim.SGD(get_parameters(model), lr=0.1, momentum=0.9, weight_decay=5e-4)
random = np.random.default_rng(102)
losses, rates = [], []
for step in range(3):
    optimizer.lr.assign(Tensor([0.05 * (1 + math.cos(math.pi * step / 3))])).realize()
    x = Tensor(random.standard_normal((4, 3, 8, 8)).astype(np.float32))
    y = Tensor(random.integers(0, 5, 4).astype(np.int32))
    with Context(TRAINING=1):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y)
        loss.backward()
        loss.realize(*optimizer.schedule_step())
    for name, value in get_state_dict(model).items():
        if name in average:
            average[name].assign(average[name] * 0.9 + value.detach() * 0.1).realize()
    losses.append(loss.item())
    rates.append(optimizer.lr.item())

results = {
    "losses": np.array(losses),
    "rates": np.array(rates),
    "logits": model(x).numpy(),
    "average": average["layers.0.conv1.weight"].numpy(),
    "running var": model.layers[0].bn2.running_var.numpy(),
    "names": np.array(sorted(get_state_dict(model))),
}
