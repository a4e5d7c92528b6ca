"""Files from the network, downloaded once and kept in the cache folder.

In: an address, or a path that is passed through. Out: the path of a file that is whole. Sits above
the disk cache, whose folder it shares, and below the helpers, which pass `fetch` on.
Invariant: a file under its name is complete, for it is moved there only when all of it has come.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from weft.disk import cache_folder
from weft.errors import DataError
from weft.progress import tqdm

_CHUNK = 1 << 20


def fetch(
    url: str,
    name: str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
) -> Path:
    """The path of a file that is downloaded once and kept; a local path is returned as it is."""
    if "://" not in url:
        path = Path(url).expanduser()
        if not path.exists():
            raise DataError(f"fetch was given {url!r}, which is no file here and no web address")
        _check_digest(path, url, sha256)
        return path
    kept_name = name or hashlib.sha256(url.encode()).hexdigest()[:32] + (".gunzip" * gunzip)
    path = cache_folder() / "downloads" / (subdir or "") / kept_name
    if not (allow_caching and path.is_file()):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _download(url, path, gunzip, headers or {})
    _check_digest(path, url, sha256)
    return path


def _download(url: str, path: Path, gunzip: bool, headers: Mapping[str, str]) -> None:
    """Downloads into a temporary file beside `path` and moves it there when it is whole."""
    import gzip
    import tempfile
    import urllib.request

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "weft", **headers})
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(request, timeout=30) as reply:
            size = int(reply.headers.get("Content-Length") or 0)
            _copy_with_bar(reply, file, url, size)
        if gunzip:
            unpacked = gzip.decompress(Path(temporary).read_bytes())
            Path(temporary).write_bytes(unpacked)
        os.replace(temporary, path)
    except (OSError, EOFError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"could not fetch {url}: {reason}; if this machine is offline, "
            f"put the file at {path} yourself"
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _copy_with_bar(source: IO[bytes], target: IO[bytes], url: str, size: int) -> None:
    received = 0
    bar: tqdm[Any] = tqdm(total=size or None, desc=url, unit="B", unit_scale=True)
    with bar:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            received += len(chunk)
            bar.update(len(chunk))
    if size and received != size:
        raise EOFError(f"{received} of {size} bytes came")


def _check_digest(path: Path, url: str, sha256: str | None) -> None:
    """Compares a file with the digest that the caller expects, if there is one."""
    if sha256 is None:
        return
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != sha256.lower():
        raise DataError(
            f"{url} was expected to have sha256 {sha256}, but {path} has {digest.hexdigest()}; "
            "delete it to fetch it again"
        )
