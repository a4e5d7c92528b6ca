"""Files of 5 and 80 GB load: no size, offset or stride of a header is limited by a product.

The files are sparse: they take no room on disk, and only a few bytes of each are read.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from weft import GlobalCounters, Tensor
from weft.nn.state import gguf_load, safe_load, tar_extract, torch_load, zip_extract

SIZES = [5 << 30, 80 << 30]
LAST = np.array([1.0, 2.0, 3.0], np.float32)


def lengthen(path: Path, size: int) -> None:
    """Makes a file `size` bytes longer without writing them."""
    before = path.stat().st_blocks
    try:
        os.truncate(path, path.stat().st_size + size)
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.EINVAL):
            raise
        pytest.skip(f"no file of {size >> 30} GB fits the file system of {path.parent}")
    if path.stat().st_blocks > before + 2048:
        pytest.skip(f"the file system of {path.parent} has no sparse files")


def write_at(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def check(tensor: Tensor) -> None:
    """Its last three numbers, without reading the others."""
    used = GlobalCounters.mem_used
    assert tensor[-1, -3:].to(None).tolist() == LAST.tolist()
    assert GlobalCounters.mem_used - used < 1 << 20


@pytest.mark.parametrize("size", SIZES)
def test_safetensors_whose_offsets_multiply_to_more_than_exists(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.safetensors"
    half = size // 2
    entry = {"dtype": "F32", "shape": [half // 4096, 1024]}
    offsets = {"a": [0, half], "b": [half, 2 * half]}
    header = {name: {**entry, "data_offsets": at} for name, at in offsets.items()}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    lengthen(path, size)
    write_at(path, path.stat().st_size - LAST.nbytes, LAST.tobytes())
    loaded = safe_load(path)
    check(loaded["b"])
    assert loaded["a"][-1, -3:].to(None).tolist() == [0.0, 0.0, 0.0]


def checkpoint(count: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """The structure of a PyTorch checkpoint with one tensor."""
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nL%dL\nt" % count + b"Q"
    numbers = [b"(" + b"".join(b"L%dL\n" % n for n in part) + b"t" for part in (shape, strides)]
    return (
        (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"I0\n")
        + b"".join(numbers)
        + b"I00\n}tR."
    )


def sparse_zip(path: Path, members: dict[str, bytes], large: str, size: int) -> None:
    """A zip whose member `large` is `size` zero bytes that end in LAST. zipfile would write them,
    so its records are made here: the directory of an archive says where and how large."""
    rows = []
    with path.open("wb") as file:
        for name, data in [*members.items(), (large, None)]:
            start, length = file.tell(), size if data is None else len(data)
            encoded = name.encode()
            wide = struct.pack("<HHQQ", 1, 16, length, length)
            file.write(
                struct.pack(
                    "<4s5H3I2H",
                    b"PK\3\4",
                    45,
                    0,
                    0,
                    0,
                    0,
                    0,
                    2**32 - 1,
                    2**32 - 1,
                    len(encoded),
                    len(wide),
                )
            )
            file.write(encoded + wide + (data or b""))
            wide = struct.pack("<HHQQQ", 1, 24, length, length, start)
            row = struct.pack(
                "<4s6H3I5H2I",
                b"PK\1\2",
                45,
                45,
                0,
                0,
                0,
                0,
                0,
                2**32 - 1,
                2**32 - 1,
                len(encoded),
                len(wide),
                0,
                0,
                0,
                0,
                2**32 - 1,
            )
            rows.append(row + encoded + wide)
    lengthen(path, size)
    end = path.stat().st_size
    directory = b"".join(rows)
    record = struct.pack(
        "<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, len(rows), len(rows), len(directory), end
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end + len(directory), 1)
    closing = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0
    )
    write_at(path, end - LAST.nbytes, LAST.tobytes() + directory + record + locator + closing)


@pytest.mark.parametrize("size", SIZES)
def test_a_pytorch_checkpoint(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.pt"
    rows = size // 4096
    pickled = checkpoint(size // 4, (rows, 1024), (1024, 1))
    sparse_zip(path, {"x/data.pkl": pickled}, "x/data/0", size)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("x/data/0").file_size == size
    check(torch_load(path))


@pytest.mark.parametrize("size", SIZES)
def test_an_old_pytorch_checkpoint(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.pt"
    rows = size // 4096
    front = b"L%dL\n.L1001L\n." % 0x1950A86A20F9469CFC6C + b"(S'little_endian'\nI01\nd."
    structure = checkpoint(size // 4, (rows, 1024), (1024, 1)) + b"(lS'0'\na."
    path.write_bytes(front + structure + struct.pack("<q", size // 4))
    lengthen(path, size)
    write_at(path, path.stat().st_size - LAST.nbytes, LAST.tobytes())
    check(torch_load(path))


@pytest.mark.parametrize("size", SIZES)
def test_a_gguf(tmp_path: Path, size: int) -> None:
    """A tensor is read whole when it is used, so a small one behind a large one is."""
    path = tmp_path / "x.gguf"
    large = struct.pack("<Q", 1) + b"a" + struct.pack("<IQQIQ", 2, 1024, size // 4096, 0, 0)
    small = struct.pack("<Q", 1) + b"b" + struct.pack("<IQQIQ", 2, 3, 1, 0, size)
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + large + small
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0"))
    lengthen(path, size)
    write_at(path, path.stat().st_size, LAST.tobytes())
    tensors = gguf_load(path)[1]
    assert tensors["a"].shape == (size // 4096, 1024)
    check(tensors["b"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_a_tar(tmp_path: Path, form: int, size: int) -> None:
    path = tmp_path / "x.tar"
    entry = tarfile.TarInfo("large.bin")
    entry.size = size
    path.write_bytes(entry.tobuf(form))
    start = path.stat().st_size
    lengthen(path, size)
    after = tarfile.TarInfo("after.txt")
    after.size = 4
    write_at(path, start + size - 3, b"abc" + after.tobuf(form) + b"weft".ljust(1536, b"\0"))
    members = tar_extract(path)
    assert members["large.bin"].shape == (size,)
    assert bytes(members["large.bin"][-3:].data()) == b"abc"
    assert bytes(members["after.txt"].data()) == b"weft"


@pytest.mark.parametrize("size", SIZES)
def test_a_zip(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.zip"
    sparse_zip(path, {"a.txt": b"weft"}, "large.bin", size)
    members = zip_extract(path)
    assert bytes(members["a.txt"].data()) == b"weft"
    assert bytes(members["large.bin"][-12:].data()) == LAST.tobytes()


def test_a_checkpoint_whose_strides_multiply_to_more_than_exists(tmp_path: Path) -> None:
    """8 MB of shape (1, 1, 128, 128, 128): the strides alone have a product of 2**63."""
    path = tmp_path / "x.pt"
    shape, strides = (1, 1, 128, 128, 128), (2**21, 2**21, 2**14, 2**7, 1)
    sparse_zip(path, {"x/data.pkl": checkpoint(2**21, shape, strides)}, "x/data/0", 2**23)
    tensor = torch_load(path)
    assert tensor.shape == shape
    assert tensor[0, 0, -1, -1, -3:].to(None).tolist() == LAST.tolist()
    assert tensor.to(None).sum().item() == 6.0
