"""Every program in examples/ runs: help, a short run, files, going on from a checkpoint."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.optional import need
from weft import Device, Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "common")
TRAINED = ("digits", "gpt", "lstm", "diffusion")
SMALL = {
    "digits": ("--batch", "16"),
    "gpt": "--batch 2 --context 8 --width 16 --heads 2 --layers 1 --length 4".split(),
    "lstm": ("--batch", "8", "--width", "8"),
    "diffusion": ("--batch", "8", "--width", "16", "--each", "2"),
}


def environment() -> dict[str, str]:
    """With weft to be found from anywhere."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def run(name: str, *arguments: str) -> str:
    """The output of an example in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without being jitted" not in done.stderr, done.stderr
    return done.stdout


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file, every part of which is checked."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, kinds, pixels = 8, [], b""
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind = data[place + 4 : place + 8]
        body = data[place + 8 : place + 8 + length]
        (found,) = struct.unpack_from(">I", data, place + 8 + length)
        assert found == zlib.crc32(kind + body)
        kinds.append(kind)
        pixels += body if kind == b"IDAT" else b""
        place += 12 + length
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND"
    width, height, depth, colors = struct.unpack_from(">IIBB", data, 16)
    assert (depth, colors) == (8, 2)
    assert len(zlib.decompress(pixels)) == height * (3 * width + 1)
    return width, height


def test_all_programs_are_tested() -> None:
    assert set(PROGRAMS) == {*TRAINED, "fusion", "resnet50"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_help(name: str) -> None:
    output = run(name, "--help")
    assert "--help" in output and "--seed" in output


def test_fusion_shows_few_kernels() -> None:
    output = run("fusion", "--runs", "1")
    assert "gelu(x @ w + b)" in output and "kernels ran" in output


def killed_after_a_checkpoint(name: str, folder: Path, *arguments: str) -> Path:
    """The checkpoint of a run that got no further than a little beyond it."""
    checkpoint = folder / f"{name}.checkpoint.safetensors"
    process = Child(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--out", str(folder), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.wait(60)
    return checkpoint


@pytest.mark.parametrize("name", TRAINED)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    """A short run; one that is killed on the way; one that goes on from there to the same end."""
    options = ("--steps", "40", "--every", "8", *SMALL[name])
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    output = run(name, "--out", str(whole), *options)
    assert Device.DEFAULT in output and "40 steps" in output and "loss" in output
    checkpoint = killed_after_a_checkpoint(name, broken, *options)
    done = nn.state.safe_load(checkpoint)["schedule.count"].item()
    assert done % 8 == 0
    output = run(name, "--resume", str(checkpoint), "--out", str(broken), *options)
    assert f"{40 - done} steps" in output
    wanted = nn.state.safe_load(whole / checkpoint.name)
    found = nn.state.safe_load(checkpoint)
    assert set(found) == set(wanted) and found["schedule.count"].item() == 40
    for key, tensor in wanted.items():
        np.testing.assert_array_equal(found[key].numpy(), tensor.numpy(), err_msg=key)
    assert min(png_size(broken / f"{name}.png")) > 50
    assert (broken / f"{name}.png").read_bytes() == (whole / f"{name}.png").read_bytes()


def test_digits_learns_and_loads_in_a_new_process(tmp_path: Path) -> None:
    """The main job, shortened: a tenth of its steps are enough to know most digits."""
    output = run("digits", "--steps", "60", "--out", str(tmp_path))
    shares = [float(line.split("%")[0].split()[-1]) for line in output.splitlines() if "%" in line]
    assert len(shares) == 2
    assert shares[0] == shares[1] > 90
    assert set(nn.state.safe_load(tmp_path / "digits.safetensors")) >= {"conv1.weight"}


@pytest.mark.parametrize("name", TRAINED)
def test_no_steps_are_a_run_too(name: str, tmp_path: Path) -> None:
    output = run(name, "--steps", "0", "--out", str(tmp_path), *SMALL[name])
    assert "0 steps" in output and (tmp_path / f"{name}.png").exists()


def test_digits_starts_from_saved_weights(tmp_path: Path) -> None:
    """As from a checkpoint, but from the first step; a file of something else is named."""
    run("digits", "--steps", "3", "--out", str(tmp_path), *SMALL["digits"])
    weights = tmp_path / "digits.safetensors"
    before = nn.state.safe_load(weights)["conv1.weight"].numpy()
    output = run("digits", "--steps", "0", "--resume", str(weights), "--out", str(tmp_path))
    assert "0 steps" in output
    np.testing.assert_array_equal(nn.state.safe_load(weights)["conv1.weight"].numpy(), before)
    wrong = tmp_path / "other.safetensors"
    nn.state.safe_save({"a": Tensor([1.0])}, wrong)
    for path, said in (
        (wrong, "neither digits's checkpoint nor its weights"),
        ("none", "--resume"),
    ):
        command = [sys.executable, str(EXAMPLES / "digits.py"), "--resume", str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=300
        )
        assert done.returncode == 1 and said in done.stderr
        assert "Traceback" not in done.stderr


# ------------------------------------------------------------ ResNet-50 from PyTorch
def torch_resnet() -> Any:
    """The network as torchvision names it, written with PyTorch's layers."""
    torch = need("torch")

    class Bottleneck(torch.nn.Module):
        def __init__(self, inner: int, width: int, stride: int) -> None:
            super().__init__()
            conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
            self.conv1, self.bn1 = conv(inner, width, 1, bias=False), norm(width)
            self.conv2 = conv(width, width, 3, stride, 1, bias=False)
            self.bn2 = norm(width)
            self.conv3, self.bn3 = conv(width, 4 * width, 1, bias=False), norm(4 * width)
            self.downsample = torch.nn.Sequential()
            if stride != 1 or inner != 4 * width:
                shortcut = conv(inner, 4 * width, 1, stride, bias=False)
                self.downsample = torch.nn.Sequential(shortcut, norm(4 * width))

        def forward(self, x: Any) -> Any:
            out = self.bn1(self.conv1(x)).relu()
            out = self.bn2(self.conv2(out)).relu()
            return (self.bn3(self.conv3(out)) + self.downsample(x)).relu()

    class ResNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(64)
            inner = 64
            for number, blocks in enumerate((3, 4, 6, 3)):
                width, parts = 64 << number, []
                for block in range(blocks):
                    parts.append(Bottleneck(inner, width, 2 if number and not block else 1))
                    inner = 4 * width
                setattr(self, f"layer{number + 1}", torch.nn.Sequential(*parts))
            self.fc = torch.nn.Linear(2048, 1000)

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
            for number in range(1, 5):
                x = getattr(self, f"layer{number}")(x)
            return self.fc(x.mean((2, 3)))

    torch.manual_seed(0)
    model = ResNet().eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2.0)
        # random weights like all classes the same; these do not
        model.fc.weight.mul_(40)
    return model


def test_resnet50_from_a_pytorch_checkpoint(tmp_path: Path) -> None:
    torch = need("torch")
    model = torch_resnet()
    torch.save(model.state_dict(), tmp_path / "resnet50.pth")
    pixels = np.random.default_rng(0).integers(0, 256, (240, 230, 3), dtype=np.uint8)
    np.save(tmp_path / "image.npy", pixels)
    weights, image = str(tmp_path / "resnet50.pth"), str(tmp_path / "image.npy")
    output = run("resnet50", "--weights", weights, "--image", image, "--runs", "1")
    found = {
        int(line.split()[1]): float(line.split()[2])
        for line in output.splitlines()
        if line.strip().startswith("class")
    }
    middle = torch.tensor(pixels[8:232, 3:227]).permute(2, 0, 1).double() / 255
    mean, spread = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    x = (middle - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(spread).view(3, 1, 1)
    with torch.no_grad():
        chances = 100 * model.double()(x.unsqueeze(0)).softmax(-1)[0]
    likeliest = chances.topk(5).indices.tolist()
    assert list(found) == likeliest
    for number in likeliest:
        # printed with three digits after the point
        assert abs(found[number] - float(chances[number])) < 2e-3
