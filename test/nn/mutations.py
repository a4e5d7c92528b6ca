"""Damaged files by the thousand: every loader must load them or refuse them, and nothing else.

`python -m test.nn.mutations safetensors 100000` does it by hand, each file with a limit on time
and memory; test_mutations.py does a share.
"""

from __future__ import annotations

import argparse
import gzip
import io
import pickle
import random
import signal
import struct
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from test.graphs import models
from weft import Tensor
from weft.errors import WeftError
from weft.helpers import prod
from weft.nn.onnx import OnnxRunner
from weft.nn.state import (
    get_state_dict,
    gguf_load,
    safe_load,
    safe_save,
    tar_extract,
    torch_load,
    zip_extract,
)

# more than this for a file of a few KiB is a hang
SECONDS = 20
# files between two lines of progress
PROGRESS = 10_000
EXTREMES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff",
    b"\x00" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\xff" * 8,
    b"\x00\x00\x00\x00\x00\x00\x01\x00",
    b"99999999999999999999",
    b"-1",
    b"1e999",
    b"[]{}",
    b"ccollections\nOrderedDict\n)R",
    b"cos\nsystem\n(S'true'\ntR",
    b"../../x",
    b"PK\x01\x02",
    b"PK\x05\x06",
)


def mutate(data: bytes, source: random.Random, others: list[bytes]) -> bytes:
    """One to four small damages, most of them near the front, where headers are."""
    for _ in range(source.choice((1, 1, 1, 2, 3, 4))):
        length = len(data)
        if not length:
            return data
        reach = source.choice((min(64, length), min(512, length), length, length))
        at = source.randrange(reach)
        if source.random() < 0.2:
            at = length - 1 - source.randrange(min(200, length))
        kind = source.randrange(8)
        span = source.choice((1, 2, 4, 8, 30))
        if kind == 0:
            data = data[:at] + bytes([data[at] ^ (1 << source.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + source.randbytes(1) + data[at + 1 :]
        elif kind == 2:
            piece = source.choice(EXTREMES)
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == 3:
            data = data[:at] + source.choice(EXTREMES) + data[at:]
        elif kind == 4:
            data = data[:at]
        elif kind == 5:
            data = data[:at] + data[at + span :]
        elif kind == 6:
            data = data[:at] + data[at : at + span] * 2 + data[at + span :]
        else:
            other = source.choice(others)
            cut = source.randrange(len(other) + 1)
            data = data[:at] + other[cut : cut + span] + data[at + span :]
    return data


# ------------------------------------------------------------ good files to start from
def _safetensors() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        safe_save({"a": Tensor([[1.0, 2.0]]), "b": Tensor([1, 2, 3]), "c": Tensor.ones(())}, path)
        return [path.read_bytes()]


def _tar() -> list[bytes]:
    made = []
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            for name in ("a", "folder/b", "x" * 150):
                entry = tarfile.TarInfo(name)
                entry.size = 20
                archive.addfile(entry, io.BytesIO(b"01234567890123456789"))
        made.append(file.getvalue()[:6144])
    return [*made, gzip.compress(made[0])]


def _zip() -> list[bytes]:
    made = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name in ("a", "folder/b"):
                archive.writestr(name, b"hello world " * 10)
        made.append(file.getvalue())
    return made


def _pickled() -> bytes:
    """A state dict as PyTorch pickles it, made without PyTorch."""
    tensors = []
    for key, count in ((b"0", 6), (b"1", 4)):
        stored = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + key
        stored += b"X\x03\x00\x00\x00cpuK" + bytes([count]) + b"tQ"
        shape, stride = (
            (b"K\x02K\x03\x86", b"K\x01K\x02\x86")
            if count == 6
            else (
                b"K\x04\x85",
                b"K\x01\x85",
            )
        )
        tensors.append(
            b"ctorch._utils\n_rebuild_tensor_v2\n("
            + stored
            + b"K\x00"
            + shape
            + stride
            + b"\x89ccollections\nOrderedDict\n)RtR"
        )
    named = b"X\x01\x00\x00\x00a" + tensors[0] + b"X\x01\x00\x00\x00b" + tensors[1]
    plain = b"X\x01\x00\x00\x00c](K\x01G?\xf0\x00\x00\x00\x00\x00\x00Ne"
    return b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(" + named + plain + b"u."


def _torch_zip() -> list[bytes]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", _pickled())
        archive.writestr("x/byteorder", b"little")
        archive.writestr("x/data/0", struct.pack("<6f", *range(6)))
        archive.writestr("x/data/1", struct.pack("<4f", *range(4)))
        archive.writestr("x/version", b"3\n")
    return [file.getvalue()]


def _torch_legacy() -> list[bytes]:
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    front = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, machine)]
    data = struct.pack("<q6fq4f", 6, *range(6), 4, *range(4))
    return [b"".join([*front, _pickled(), pickle.dumps(["0", "1"], 2), data])]


def _gguf() -> list[bytes]:
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    values = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        text(b"n") + struct.pack("<II", 4, 7),
        text(b"list") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
        text(b"words") + struct.pack("<IIQ", 9, 8, 2) + text(b"one") + text(b"two"),
    ]
    infos = [
        text(b"w") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0),
        text(b"q4") + struct.pack("<IQIQ", 1, 64, 2, 32),
        text(b"q6") + struct.pack("<IQIQ", 1, 256, 14, 96),
    ]
    front = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values))
    front += b"".join(values + infos)
    return [front + bytes(-len(front) % 32) + bytes(range(256)) + bytes(range(50))]


def _onnx() -> list[bytes]:
    return [models.affine(), models.shapes(), models.mixed()]


def _onnx_load(data: Any) -> None:
    """Loaded, and run if its inputs are still small; what then is too large is refused as well."""
    runner = OnnxRunner(data, max_turns=100)
    inputs = {}
    for name, wanted in runner.graph_inputs.items():
        shape = [size if isinstance(size, int) else 2 for size in wanted.shape or ()]
        if wanted.dtype is None or prod(shape) > 1000:
            return
        inputs[name] = Tensor.ones(*shape, dtype=wanted.dtype)
    for value in runner(inputs).values():
        if isinstance(value, Tensor):
            value.numpy()


@dataclass(frozen=True)
class Format:
    """Good files to damage, and the loader."""

    examples: Callable[[], list[bytes]]
    load: Callable[[Any], Any]


FORMATS = {
    "safetensors": Format(_safetensors, safe_load),
    "tar": Format(_tar, tar_extract),
    "zip": Format(_zip, zip_extract),
    "torch-zip": Format(_torch_zip, torch_load),
    "torch-legacy": Format(_torch_legacy, torch_load),
    "gguf": Format(_gguf, gguf_load),
    "onnx": Format(_onnx, _onnx_load),
}


# ------------------------------------------------------------ trying them
@dataclass
class Count:
    """How many files loaded and how many were refused."""

    loaded: int = 0
    refused: int = 0


def damaged_files(name: str, count: int, seed: int) -> Iterator[bytes]:
    """The good files of a format, each damaged in another way."""
    source = random.Random(f"{name} {seed}")
    examples = FORMATS[name].examples()
    for number in range(count):
        yield mutate(examples[number % len(examples)], source, examples)


def attempt(name: str, path: Path, count: Count, read: bool) -> None:
    """Loads one file. Anything but a WeftError goes up and is a bug."""
    try:
        loaded = FORMATS[name].load(path)
        count.loaded += 1
        if read:
            _read_some(loaded)
    except WeftError:
        count.refused += 1


def _read_some(loaded: Any) -> None:
    """The values too, of tensors whose shape may be new but is small."""
    if loaded is None:
        return
    for tensor in list(get_state_dict(loaded).values())[:5]:
        if tensor.numel() <= 1 << 16:
            tensor.numpy()


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"a file takes longer than {SECONDS} s of the processor to load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", choices=[*FORMATS, "all"])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read-every", type=int, default=100)
    options = parser.parse_args()
    import resource

    # time of the processor: on a busy machine a second may pass in which nothing was done
    signal.signal(signal.SIGPROF, _too_long)
    for name in FORMATS if options.format == "all" else [options.format]:
        for example in FORMATS[name].examples():
            FORMATS[name].load(example)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # more than this beyond what the process has is no small factor of a file of 10 KiB
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), resource.RLIM_INFINITY))
        count = Count()
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x"
            for number, data in enumerate(damaged_files(name, options.count, options.seed)):
                path.write_bytes(data)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    attempt(name, path, count, number % options.read_every == 0)
                except BaseException:
                    kept = Path(tempfile.gettempdir()) / f"mutation-{name}-{number}"
                    kept.write_bytes(data)
                    print(f"{name} file {number} is kept as {kept}")
                    raise
                signal.setitimer(signal.ITIMER_PROF, 0)
                if (number + 1) % PROGRESS == 0:
                    print(f"{name}: {number + 1} files so far, {count}", flush=True)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        seconds = time.perf_counter() - started
        print(f"{name}: {count.loaded} loaded, {count.refused} refused, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
