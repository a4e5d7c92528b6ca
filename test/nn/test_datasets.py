"""digits, mnist and cifar: contents, local files, and what is said offline."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft.errors import DataError
from weft.knobs import Context
from weft.nn import datasets
from weft.nn.datasets import cifar, digits, mnist


def test_digits_are_those_of_scikit_learn() -> None:
    sklearn = need("sklearn.datasets")
    reference = sklearn.load_digits()
    testing = np.arange(1797) % 5 == 4
    images, labels, test_images, test_labels = (part.numpy() for part in digits())
    np.testing.assert_array_equal(images[:, 0], reference.images[~testing])
    np.testing.assert_array_equal(labels, reference.target[~testing])
    np.testing.assert_array_equal(test_images[:, 0], reference.images[testing])
    np.testing.assert_array_equal(test_labels, reference.target[testing])


def test_digits_are_what_they_should_be() -> None:
    images, labels, test_images, test_labels = (part.numpy() for part in digits())
    assert images.shape == (1438, 1, 8, 8) and test_images.shape == (359, 1, 8, 8)
    assert images.dtype == labels.dtype == np.uint8 and images.max() == 16
    counts = np.bincount(labels, minlength=10) + np.bincount(test_labels, minlength=10)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits("PYTHON")[1].device == "PYTHON"


def test_damaged_digits_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "digits.gz"
    monkeypatch.setattr(datasets, "_DIGITS", damaged)
    with pytest.raises(DataError, match="cannot be read"):
        digits()
    damaged.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="damaged"):
        digits()


# ------------------------------------------------------------ mnist
def idx(array: np.ndarray[Any, Any]) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes()


def mnist_files(count: int = 6, testing: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": generator.integers(0, 256, (count, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": generator.integers(0, 10, (count,), dtype=np.uint8),
        "t10k-images-idx3-ubyte": generator.integers(0, 256, (testing, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": generator.integers(0, 10, (testing,), dtype=np.uint8),
    }


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_mnist_from_a_folder(packed: bool, tmp_path: Path) -> None:
    files = mnist_files()
    for name, array in files.items():
        data = idx(array)
        (tmp_path / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    for fashion in (False, True):
        found = [part.numpy() for part in mnist(fashion=fashion, path=tmp_path)]
        assert found[0].shape == (6, 1, 28, 28) and found[2].shape == (3, 1, 28, 28)
        for part, array in zip(found, files.values(), strict=True):
            np.testing.assert_array_equal(part.reshape(array.shape), array)


def test_mnist_files_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there"):
        mnist(path=tmp_path / "missing")
    with pytest.raises(DataError, match="there is no train-images-idx3-ubyte.gz"):
        mnist(path=tmp_path)
    files = mnist_files()
    for name, array in files.items():
        (tmp_path / name).write_bytes(idx(array))
    labels = tmp_path / "train-labels-idx1-ubyte"
    for data, message in [
        (b"\0\0\x08", "no idx file"),
        (b"\0\0\x0d\x01" + bytes(20), "no idx file"),
        (b"\0\0\x08\xff" + bytes(20), "no idx file"),
        (idx(files["train-labels-idx1-ubyte"])[:-1], "cut short"),
        (idx(files["train-labels-idx1-ubyte"][:-1]), "do not belong together"),
    ]:
        labels.write_bytes(data)
        with pytest.raises(DataError, match=message):
            mnist(path=tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(DataError, match="cannot read"):
        mnist(path=tmp_path)


class Web:
    """Stands in for the network: gives `files` by the last part of their address."""

    def __init__(self, files: dict[str, bytes] | None) -> None:
        self.files = files
        self.asked: list[str] = []

    def open(self, request: Any, timeout: float = 0) -> Any:
        self.asked.append(request.full_url)
        if self.files is None:
            raise OSError("no route to host")
        reply = io.BytesIO(self.files[request.full_url.rsplit("/", 1)[1]])
        reply.headers = {}  # type: ignore[attr-defined]
        return reply


def test_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", Web(None).open)
    with Context(WEFT_CACHE=str(tmp_path)):
        for load, name in ((mnist, "mnist"), (cifar, "cifar")):
            with pytest.raises(DataError) as error:
                load()
            message = str(error.value)
            assert f"{name}(path=...)" in message and "digits()" in message
            assert "put the file at" in message and "no route to host" in message


def test_downloads_are_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{n}.gz": gzip.compress(idx(a), mtime=0) for n, a in mnist_files().items()}
    known = tuple(
        datasets._Remote(f"https://example.org/{n}", len(d), hashlib.sha256(d).hexdigest())
        for n, d in files.items()
    )
    web = Web(files)
    monkeypatch.setattr(urllib.request, "urlopen", web.open)
    monkeypatch.setattr(datasets, "_MNIST_FILES", known)
    with Context(WEFT_CACHE=str(tmp_path)):
        assert mnist()[0].shape == (6, 1, 28, 28)
        mnist()
        assert len(web.asked) == 4
        # damage in the cache, of the same length, is repaired by one more download
        kept = next(tmp_path.rglob("t10k-labels*"))
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
        assert mnist()[3].shape == (3,)
        assert len(web.asked) == 5
        # what comes damaged from the web is refused and not kept
        kept.unlink()
        web.files = {**files, kept.name: files[kept.name][:-1] + b"?"}
        with pytest.raises(DataError, match="SHA-256.*not kept"):
            mnist()
        assert not kept.exists()
        web.files = None
        with pytest.raises(DataError, match=r"mnist\(path"):
            mnist()
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".tmp")] == []


def test_known_files_are_named_completely() -> None:
    files = (*datasets._MNIST_FILES, *datasets._FASHION_FILES, datasets._CIFAR_FILE)
    assert len({file.sha256 for file in files}) == len(files)
    for file in files:
        assert len(bytes.fromhex(file.sha256)) == 32 and file.size > 1000
        assert file.url.startswith("http") and file.name.endswith(".gz")


# ------------------------------------------------------------ cifar
def cifar_files() -> dict[str, bytes]:
    names = [name for part in datasets._CIFAR_PARTS for name in part]
    return {name: (bytes([i]) + bytes([10 * i]) * 3072) * 2 for i, name in enumerate(names)}


def check_cifar(parts: Any) -> None:
    images, labels, test_images, test_labels = parts
    assert images.shape == (10, 3, 32, 32) and test_images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4] and test_labels.tolist() == [5, 5]
    assert (images.numpy()[9] == 40).all() and (test_images.numpy() == 50).all()


def test_cifar_from_a_folder_and_from_the_archive(tmp_path: Path) -> None:
    inner = tmp_path / "folder" / "cifar-10-batches-bin"
    inner.mkdir(parents=True)
    for name, data in cifar_files().items():
        (inner / name).write_bytes(data)
    check_cifar(cifar(path=inner))
    check_cifar(cifar(path=inner.parent))
    archive = tmp_path / datasets._CIFAR_FILE.name
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(inner, "cifar-10-batches-bin")
    check_cifar(cifar(path=archive))
    check_cifar(cifar(path=tmp_path))


def test_cifar_files_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no data_batch_1.bin"):
        cifar(path=tmp_path)
    for name, data in cifar_files().items():
        (tmp_path / name).write_bytes(data[:-1] if name == "data_batch_5.bin" else data)
    with pytest.raises(DataError, match="no whole number of rows"):
        cifar(path=tmp_path)
    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "data_batch_1.bin", "data_batch_1.bin")
    with pytest.raises(DataError, match="has no data_batch_2.bin"):
        cifar(path=archive)
