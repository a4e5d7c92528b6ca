"""ResNet-50 run forward with weights that PyTorch saved.

In: --weights, a state dict as torchvision's resnet50 has it (.pth, .pt, .bin or .safetensors), and
--image, a NumPy file (.npy) of (height, width, 3) bytes or a picture if Pillow is installed. Out:
the five likeliest classes of ImageNet by number. Without weights they are random, and only the
speed means something.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Watch, table

from weft import Device, Tensor, TinyJit, nn

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours


class Bottleneck:
    """Narrow, look around, widen; added to what came in. Names as torchvision's."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inner, width, 1, bias=False)
        self.bn1 = nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm(4 * width)
        self.downsample: list[Any] = []
        if stride != 1 or inner != 4 * width:
            shortcut = nn.Conv2d(inner, 4 * width, 1, stride, bias=False)
            self.downsample = [shortcut, nn.BatchNorm(4 * width)]

    def __call__(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        return (self.bn3(self.conv3(out)) + x.sequential(self.downsample)).relu()


class ResNet50:
    """He and others (2015). Names as torchvision's."""

    def __init__(self, classes: int = 1000) -> None:
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm(64)
        self.layer1 = self._layer(64, 64, 3, stride=1)
        self.layer2 = self._layer(256, 128, 4, stride=2)
        self.layer3 = self._layer(512, 256, 6, stride=2)
        self.layer4 = self._layer(1024, 512, 3, stride=2)
        self.fc = nn.Linear(2048, classes)

    def _layer(self, inner: int, width: int, blocks: int, stride: int) -> list[Bottleneck]:
        first = Bottleneck(inner, width, stride)
        return [first, *[Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)]]

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = x.sequential(layer)
        return self.fc(x.mean((2, 3)))


def load(model: ResNet50, path: Path | None, seed: int) -> None:
    """The weights of a file, or random ones."""
    if path is None:
        Tensor.manual_seed(seed)
        Tensor.realize(*nn.state.get_parameters(model))
        return
    read = nn.state.safe_load if path.suffix == ".safetensors" else nn.state.torch_load
    state = read(path)
    nn.state.load_state_dict(model, state.get("state_dict", state), verbose=False)


def pixels_of(path: Path | None, seed: int) -> Any:
    """A picture as (height, width, 3) bytes; grey noise if there is none."""
    if path is None:
        return np.random.default_rng(seed).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    if path.suffix == ".npy":
        return np.load(path)
    try:
        from PIL import Image
    except ImportError:
        sys.exit(f"{path} needs Pillow (pip install pillow), or give a .npy file")
    picture = Image.open(path).convert("RGB")
    scale = 256 / min(picture.size)
    return np.asarray(picture.resize([round(side * scale) for side in picture.size]))


def prepare(pixels: Any) -> Tensor:
    """The middle 224 by 224 pixels, as the network was trained on."""
    top, left = (pixels.shape[0] - 224) // 2, (pixels.shape[1] - 224) // 2
    if top < 0 or left < 0:
        sys.exit(f"the image has {pixels.shape[:2]} pixels; 224 by 224 is the least")
    middle = np.ascontiguousarray(pixels[top : top + 224, left : left + 224])
    colours = Tensor(middle).float() / 255
    return ((colours - Tensor(list(MEAN))) / Tensor(list(SPREAD))).permute(2, 0, 1).unsqueeze(0)


def main() -> int:
    """Loads, runs a few times, and shows the likeliest classes."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--weights", type=Path, help="a state dict saved by PyTorch")
    parser.add_argument("--image", type=Path, help="a picture or a .npy file")
    parser.add_argument("--runs", type=int, default=5, help="how often to run it")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and image not given")
    options = parser.parse_args()
    model = ResNet50()
    load(model, options.weights, options.seed)
    x = prepare(pixels_of(options.image, options.seed)).contiguous().realize()
    run = TinyJit(lambda x: model(x).softmax(-1).realize())
    times = []
    for _ in range(max(options.runs, 1)):
        watch = Watch()
        start = time.perf_counter()
        chances = run(x)
        best = chances.numpy()[0]
        times.append(time.perf_counter() - start)
    likeliest = best.argsort()[::-1][:5]
    table(
        {
            "device": Device.DEFAULT,
            "kernels": watch.kernels,
            "first run": f"{times[0]:.2f} s",
            "best run": f"{min(times) * 1e3:.1f} ms",
            **{f"class {number}": f"{100 * best[number]:.3f} %" for number in likeliest},
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
