"""tar_extract and zip_extract: contents, and names that stay in their folder."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from weft import Tensor
from weft.errors import DataError
from weft.nn.state import tar_extract, zip_extract

FILES = {
    "a.txt": b"hello",
    "folder/b.bin": bytes(range(256)) * 5,
    "folder/empty": b"",
    "long/" + "n" * 150 + "/c": b"long name",
    "long/" + "ü" * 120: b"long text",
}


def tar_of(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.mkdir("folder")
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


TARS = {
    "pax": tar_of(FILES),
    "gnu": tar_of(FILES, tarfile.GNU_FORMAT),
    "gzip": gzip.compress(tar_of(FILES)),
    "gzip in two": gzip.compress(tar_of(FILES)[:1000]) + gzip.compress(tar_of(FILES)[1000:]),
}
ZIPS = {"stored": zip_of(FILES), "deflated": zip_of(FILES, zipfile.ZIP_DEFLATED)}


def contents(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(tensor.data()) for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", TARS)
def test_tar_contents(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(TARS[kind])
    assert contents(tar_extract(path)) == FILES
    assert contents(tar_extract(Tensor(path))) == FILES
    assert contents(tar_extract(path, tmp_path / "out")) == FILES
    for name, data in FILES.items():
        assert (tmp_path / "out" / name).read_bytes() == data


@pytest.mark.parametrize("kind", ZIPS)
def test_zip_contents(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(ZIPS[kind])
    assert contents(zip_extract(path)) == FILES
    assert contents(zip_extract(Tensor(path))) == FILES
    assert contents(zip_extract(path, tmp_path / "out")) == FILES
    for name, data in FILES.items():
        assert (tmp_path / "out" / name).read_bytes() == data


def test_a_zip_with_a_comment_and_one_of_zip64() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("a", "w", force_zip64=True) as member:
            member.write(b"wide")
        archive.comment = b"a comment"
    assert contents(zip_extract(file.getvalue())) == {"a": b"wide"}


OUTSIDE = ["/etc/passwd", "../up", "a/../../up", "..", "\\windows", "a\\..\\..\\b", "C:\\x", "c:x"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_names_that_lead_out_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    make: Any = tar_of if kind == "tar" else zip_of
    extract: Any = tar_extract if kind == "tar" else zip_extract
    data = make({"good": b"1", name: b"2"})
    for folder in (None, tmp_path / "out"):
        with pytest.raises(DataError, match="leads out of its folder"):
            extract(data, folder)
    assert list(tmp_path.iterdir()) == []


def tar_with_an_entry(kind: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        good = tarfile.TarInfo("good")
        good.size = 1
        archive.addfile(good, io.BytesIO(b"1"))
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    return file.getvalue()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_left_out(kind: bytes, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        assert list(tar_extract(tar_with_an_entry(kind), folder)) == ["good"]
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_what_is_no_plain_file_is_refused() -> None:
    with pytest.raises(DataError, match="no plain file"):
        tar_extract(tar_with_an_entry(b"S"))


def test_an_empty_archive_is_not_a_damaged_one() -> None:
    file = io.BytesIO()
    tarfile.open(fileobj=file, mode="w").close()
    assert tar_extract(file.getvalue()) == {}
    whole = tar_of({"a": b"1" * 2000})
    for data in (b"", b"no archive", b"x" * 2048, whole[:1600]):
        with pytest.raises(tarfile.ReadError) as found:
            tar_extract(data)
        assert isinstance(found.value, DataError)
    with pytest.raises(zipfile.BadZipFile):
        zip_extract(b"no archive")
    with pytest.raises(FileNotFoundError):
        tar_extract("no/such/file.tar")


def test_links_in_a_zip_are_left_out() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("good", "1")
        entry = zipfile.ZipInfo("link")
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    assert list(zip_extract(file.getvalue())) == ["good"]


def test_links_in_the_folder_do_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="outside"):
        zip_extract(zip_of({"folder/b": b"1"}), tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_two_members_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two members"):
        tar_extract(tar_of({"a": b"1", "./a": b"2"}))


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def bad_zips() -> dict[str, bytes]:
    stored = zip_of({"a": b"hello", "b": b"world"})
    deflated = zip_of({"a": b"hello" * 100}, zipfile.ZIP_DEFLATED)
    second = stored.rfind(b"PK\x01\x02")
    first = stored.rfind(b"PK\x01\x02", 0, second)
    end = stored.rfind(b"PK\x05\x06")
    packed = deflated.rfind(b"PK\x01\x02")
    largest = struct.pack("<L", 0xFFFFFFF0)
    return {
        "empty": b"",
        "text": b"hello",
        "cut": stored[:-30],
        "many entries": patched(stored, end + 10, b"\xf0\xff"),
        "directory outside": patched(stored, end + 16, largest),
        "directory too long": patched(stored, end + 12, largest),
        "several disks": patched(stored, end + 4, b"\x01\x00"),
        "header outside": patched(stored, first + 42, largest),
        "header elsewhere": patched(stored, first + 42, struct.pack("<L", 3)),
        "overlap": patched(stored, second + 42, stored[first + 42 : first + 46]),
        "packed size": patched(stored, first + 20, largest),
        "size": patched(stored, first + 24, largest),
        "encrypted": patched(stored, first + 8, b"\x01\x00"),
        "method": patched(stored, first + 10, b"\x0c\x00"),
        "name length": patched(stored, first + 28, b"\xff\xff"),
        "bomb": patched(deflated, packed + 24, largest),
        "larger than it is": patched(deflated, packed + 24, struct.pack("<L", 501)),
        "smaller than it is": patched(deflated, packed + 24, struct.pack("<L", 499)),
        "checksum": patched(deflated, packed + 16, b"\0\0\0\0"),
        "stream": patched(deflated, deflated.find(b"PK\x03\x04", 10) + 31, b"\xff\xff"),
    }


@pytest.mark.parametrize("case", bad_zips())
def test_damaged_zips_are_refused(case: str) -> None:
    with pytest.raises(DataError):
        zip_extract(bad_zips()[case])


def bad_tars() -> dict[str, bytes]:
    good = tar_of({"a": b"hello"}, tarfile.USTAR_FORMAT)
    at = 512

    def with_size(size: bytes) -> bytes:
        header = patched(good[at : at + 512], 124, size.ljust(12, b"\0"))
        header = patched(header, 148, b" " * 8)
        return good[:at] + patched(header, 148, b"%06o\0 " % sum(header)) + good[at + 512 :]

    pax = tar_of({"ü" * 200: b"hello"})
    return {
        "text": b"hello" * 200,
        "empty": b"",
        "checksum": patched(good, at + 148, b"000000\0 "),
        "name changed": patched(good, at, b"b"),
        "size outside": with_size(b"77777777777"),
        "size binary": with_size(b"\x80" + b"\xff" * 11),
        "size negative": with_size(b"\xff" * 12),
        "size no number": with_size(b"9999"),
        "cut": good[: at + 512],
        "pax length": pax.replace(b" path=", b"9path=", 1),
        "gzip cut": gzip.compress(good)[:-20],
        "gzip damaged": patched(gzip.compress(good), 20, b"\xff\xff\xff"),
    }


@pytest.mark.parametrize("case", bad_tars())
def test_damaged_tars_are_refused(case: str) -> None:
    with pytest.raises(DataError):
        tar_extract(bad_tars()[case])
