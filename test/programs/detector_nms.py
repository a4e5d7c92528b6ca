"""A one-stage detector: anchors, boxes from distances, and non-maximum suppression afterwards."""

import numpy as np
from tinygrad import Tensor, dtypes, nn

from test.programs.weights import fill

CLASSES, BINS, STRIDES = 3, 4, (4, 8)


class Conv:
    def __init__(self, i, o, k=3, s=1):
        self.conv = nn.Conv2d(i, o, k, stride=s, padding=k // 2, bias=False)
        self.bn = nn.BatchNorm2d(o, eps=0.001)

    def __call__(self, x):
        return self.bn(self.conv(x)).silu()


class C2f:
    def __init__(self, c):
        self.cv1, self.m, self.cv2 = Conv(c, c, 1), Conv(c // 2, c // 2), Conv(c * 3 // 2, c, 1)

    def __call__(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.append(y[-1] + self.m(y[-1]))
        return self.cv2(y[0].cat(*y[1:], dim=1))


class SPPF:
    def __init__(self, c):
        self.cv1, self.cv2 = Conv(c, c // 2, 1), Conv(c * 2, c, 1)

    def __call__(self, x):
        x = self.cv1(x)
        pooled = [x]
        for _ in range(3):
            pooled.append(pooled[-1].max_pool2d((5, 5), stride=1, padding=2))
        return self.cv2(Tensor.cat(*pooled, dim=1))


class Detector:
    def __init__(self, c=8):
        self.stem = [Conv(3, c, s=2), Conv(c, c, s=2), C2f(c)]
        self.deep = [Conv(c, c, s=2), SPPF(c)]
        self.join = Conv(2 * c, c)
        self.heads = [nn.Conv2d(c, 4 * BINS + CLASSES, 1) for _ in STRIDES]

    def __call__(self, x):
        p3 = x.sequential(self.stem)
        p4 = p3.sequential(self.deep)
        up = p4.interpolate(p3.shape[-2:], mode="nearest")
        return [h(f) for h, f in zip(self.heads, (self.join(up.cat(p3, dim=1)), p4), strict=True)]

    def boxes(self, x):
        found = []
        for out, stride in zip(self(x), STRIDES, strict=True):
            b, _, h, w = out.shape
            sy, sx = (Tensor.arange(n, dtype=dtypes.float32) + 0.5 for n in (h, w))
            anchors = Tensor.stack(
                sx.reshape(1, -1).expand(h, w), sy.reshape(-1, 1).expand(h, w)
            ).reshape(2, -1)
            distances, scores = out.reshape(b, -1, h * w).split([4 * BINS, CLASSES], dim=1)
            bins = distances.reshape(b, 4, BINS, h * w).softmax(2)
            ltrb = (bins * Tensor.arange(BINS).reshape(1, 1, -1, 1)).sum(2)
            lt, rb = ltrb.chunk(2, 1)
            xyxy = (anchors - lt).cat(anchors + rb, dim=1) * stride
            found.append(xyxy.cat(scores.sigmoid(), dim=1))
        return Tensor.cat(*found, dim=2).transpose(1, 2)


def iou(a: Tensor, b: Tensor) -> Tensor:
    top = a[:, None, :2].maximum(b[None, :, :2])
    bottom = a[:, None, 2:].minimum(b[None, :, 2:])
    overlap = (bottom - top).relu().prod(-1)
    area_a, area_b = ((t[:, 2:] - t[:, :2]).prod(-1) for t in (a, b))
    return overlap / (area_a[:, None] + area_b[None] - overlap + 1e-9)


def non_maximum_suppression(predictions: Tensor, limit=12, threshold=0.45) -> Tensor:
    confidence, kind = predictions[:, 4:].max(1), predictions[:, 4:].argmax(1)
    scores, order = confidence.topk(limit)
    boxes, kind = predictions[order, :4], kind[order]
    same = kind[:, None] == kind[None, :]
    over = ((iou(boxes, boxes) > threshold) & same).triu(1)
    # a box is gone when a better one that is kept covers it
    keep = Tensor.ones(limit, dtype=dtypes.bool)
    for i in range(limit):
        keep = keep & ~(over[i] & keep[i])
    scores = scores * keep
    return boxes.cat(scores.unsqueeze(1), kind.unsqueeze(1).cast(dtypes.float32), dim=1)


model = Detector()
fill(nn.state.get_state_dict(model), seed=121)
random = np.random.default_rng(122)
image = Tensor(random.integers(0, 255, (1, 16, 16, 3)).astype(np.uint8))
x = image[..., ::-1].permute(0, 3, 1, 2).cast(dtypes.float32).div(255.0)
predictions = model.boxes(x)[0].realize()
kept = non_maximum_suppression(predictions)
results = {
    "predictions": predictions.numpy(),
    "kept": kept.numpy(),
    "count": (kept[:, 4] > 0).sum().numpy(),
    "overlap": iou(predictions[:3, :4], predictions[:5, :4]).numpy(),
}
