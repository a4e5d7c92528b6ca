"""Data sets to learn from: MNIST, Fashion-MNIST, CIFAR-10, and the small digits inside weft.

In: nothing, or the path of files that are here already. Out: four Tensors of uint8, images to
train with, their labels, images to test with, their labels.
Sits on the archives of `nn.formats` and on `fetch`. Invariant: a file is used only if its size and
checksum are the known ones; one that was downloaded once is not downloaded again.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataError
from weft.helpers import fetch
from weft.nn.formats.archives import tar_members
from weft.nn.formats.source import FileSource
from weft.tensor import Tensor

Split = tuple[Tensor, Tensor, Tensor, Tensor]
Location = str | os.PathLike[str] | None


@dataclass(frozen=True)
class _Remote:
    """A file on the web, known by its size and SHA-256."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]

    def is_in(self, path: Path) -> bool:
        """Whether the file at a path is this one."""
        if path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
# no https there; the checksums stand in for it
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MNIST_FILES = (
    _Remote(
        _MNIST + "train-images-idx3-ubyte.gz",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    _Remote(
        _MNIST + "train-labels-idx1-ubyte.gz",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    _Remote(
        _MNIST + "t10k-images-idx3-ubyte.gz",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    _Remote(
        _MNIST + "t10k-labels-idx1-ubyte.gz",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
_FASHION_FILES = (
    _Remote(
        _FASHION + "train-images-idx3-ubyte.gz",
        26421880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    _Remote(
        _FASHION + "train-labels-idx1-ubyte.gz",
        29515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    _Remote(
        _FASHION + "t10k-images-idx3-ubyte.gz",
        4422102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    _Remote(
        _FASHION + "t10k-labels-idx1-ubyte.gz",
        5148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
_CIFAR_FILE = _Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170052171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)

_DIGITS = Path(__file__).parent / "data" / "digits.gz"
_DIGITS_COUNT = 1797
_DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


# ------------------------------------------------------------ the digits inside weft
def digits(device: str | None = None) -> Split:
    """1,797 handwritten digits of 8x8 pixels from 0 to 16; every fifth image is for testing.

    It comes with weft: no download. From "Optical Recognition of Handwritten Digits" by E. Alpaydin
    and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0.

    >>> [part.shape for part in digits()]
    [(1438, 1, 8, 8), (1438,), (359, 1, 8, 8), (359,)]
    """
    try:
        raw = gzip.decompress(_DIGITS.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the digits that come with weft cannot be read: {error}") from error
    if hashlib.sha256(raw).hexdigest() != _DIGITS_SHA256:
        raise DataError(f"{_DIGITS} is damaged; install weft again")
    pixels = memoryview(raw)[: _DIGITS_COUNT * 64]
    labels = raw[_DIGITS_COUNT * 64 :]
    # neighbours were written by one hand, so each hand is in both parts
    parts = []
    for testing in (False, True):
        chosen = [i for i in range(_DIGITS_COUNT) if (i % 5 == 4) == testing]
        images = b"".join(pixels[i * 64 : i * 64 + 64] for i in chosen)
        parts.append(Tensor(images, device=device).reshape(len(chosen), 1, 8, 8))
        parts.append(Tensor(bytes(labels[i] for i in chosen), device=device))
    return parts[0], parts[1], parts[2], parts[3]


# ------------------------------------------------------------ MNIST
def mnist(device: str | None = None, fashion: bool = False, path: Location = None) -> Split:
    """70,000 grey images of 28x28 pixels: handwritten digits, or with `fashion` pieces of clothing.

    `path` is a folder with the four files (gzip or not), for machines that are offline.

    >>> mnist(path="no/such/folder")
    Traceback (most recent call last):
    weft.errors.DataError: mnist was given the folder no/such/folder, which is not there
    """
    name = "fashion-mnist" if fashion else "mnist"
    files = _FASHION_FILES if fashion else _MNIST_FILES
    folder = _existing(path, name)
    arrays = [_read_idx(_idx_file(remote, folder, name)) for remote in files]
    parts = []
    for (images, sizes), (labels, counts) in (arrays[:2], arrays[2:]):
        if len(sizes) != 3 or sizes[1:] != (28, 28) or counts != sizes[:1]:
            raise DataError(f"{name}: images {sizes} and labels {counts} do not belong together")
        parts.append(Tensor(images, device=device).reshape(sizes[0], 1, 28, 28))
        parts.append(Tensor(labels, device=device))
    return parts[0], parts[1], parts[2], parts[3]


def _existing(path: Location, name: str) -> Path | None:
    if path is None:
        return None
    folder = Path(path).expanduser()
    if not folder.exists():
        raise DataError(f"{name} was given the folder {folder}, which is not there")
    return folder


def _idx_file(remote: _Remote, folder: Path | None, name: str) -> Path:
    if folder is None:
        return _fetch(remote, name)
    for candidate in (remote.name, remote.name.removesuffix(".gz")):
        if (folder / candidate).is_file():
            return folder / candidate
    raise DataError(f"{name}: there is no {remote.name} (nor the same without .gz) in {folder}")


def _fetch(remote: _Remote, name: str) -> Path:
    """The file from the cache or the web, checked; a message for those who are offline.

    What is damaged in the cache is downloaded again, once.
    """
    for cached in (True, False):
        try:
            found = fetch(remote.url, remote.name, f"datasets/{name}", allow_caching=cached)
        except DataError as error:
            raise DataError(
                f"{name} is not here yet and could not be downloaded. {error}. Or give the folder "
                f"it is in: {name.split('-')[-1]}(path=...). datasets.digits() comes with weft and "
                "needs no download"
            ) from error
        if remote.is_in(found):
            return found
    size = found.stat().st_size
    found.unlink()
    raise DataError(
        f"{remote.url} should have {remote.size} bytes and SHA-256 {remote.sha256}, but what came "
        f"has {size} bytes and another one, so it was not kept"
    )


def _read_idx(path: Path) -> tuple[bytes, tuple[int, ...]]:
    """The elements and the shape of an idx file: 0, 0, type, axes, sizes, bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path} is no idx file of bytes, which is what MNIST comes in")
    sizes = struct.unpack_from(f">{data[3]}I", data, 4)
    elements = data[4 + 4 * data[3] :]
    expected = 1
    for size in sizes:
        expected *= size
    if len(elements) != expected:
        raise DataError(f"{path} should hold {sizes} bytes, found {len(elements)}; it is cut short")
    return elements, sizes


# ------------------------------------------------------------ CIFAR-10
_CIFAR_ROW = 1 + 3 * 32 * 32
_CIFAR_PARTS = (
    tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    ("test_batch.bin",),
)


def cifar(device: str | None = None, path: Location = None) -> Split:
    """CIFAR-10: 60,000 colour images of 3x32x32 pixels in ten classes.

    `path` is the downloaded cifar-10-binary.tar.gz, or a folder with its files.

    >>> cifar(path="no/such/folder")
    Traceback (most recent call last):
    weft.errors.DataError: cifar was given the folder no/such/folder, which is not there
    """
    place = _existing(path, "cifar")
    if place is not None and place.is_dir() and (place / _CIFAR_FILE.name).is_file():
        place = place / _CIFAR_FILE.name
    if place is not None and place.is_dir():
        batches = {name: _batch_file(place, name) for part in _CIFAR_PARTS for name in part}
    else:
        with FileSource(_fetch(_CIFAR_FILE, "cifar") if place is None else place) as source:
            members = tar_members(source)
            batches = {
                name.rsplit("/", 1)[-1]: member.read(0, member.size)
                for name, member in members.items()
                if name.endswith(".bin")
            }
    parts = []
    for names in _CIFAR_PARTS:
        missing = [name for name in names if name not in batches]
        if missing:
            raise DataError(f"cifar: the archive has no {', '.join(missing)}")
        images, labels = _split_rows(b"".join(batches[name] for name in names))
        parts.append(Tensor(images, device=device).reshape(len(labels), 3, 32, 32))
        parts.append(Tensor(labels, device=device))
    return parts[0], parts[1], parts[2], parts[3]


def _batch_file(folder: Path, name: str) -> bytes:
    for candidate in (folder / name, folder / "cifar-10-batches-bin" / name):
        if candidate.is_file():
            return candidate.read_bytes()
    raise DataError(f"cifar: there is no {name} in {folder}, nor in cifar-10-batches-bin there")


def _split_rows(data: bytes) -> tuple[bytes, bytes]:
    """Rows of a label and an image: the images, the labels."""
    if not data or len(data) % _CIFAR_ROW:
        raise DataError(
            f"cifar: {len(data)} bytes are no whole number of rows of {_CIFAR_ROW}; cut short?"
        )
    labels = data[::_CIFAR_ROW]
    images = b"".join(
        data[start + 1 : start + _CIFAR_ROW] for start in range(0, len(data), _CIFAR_ROW)
    )
    return images, labels
