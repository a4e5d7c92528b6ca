"""What weft keeps on disk between runs: a cache of values, and downloaded files.

In: keys, bytes or JSON values, addresses. Out: the value that was put, or None; the path of a file.
Sits between the knobs and the helpers, which pass its names on. Invariants: an entry is bytes or
JSON and never unpickled; it appears whole or not at all; one that does not match its checksum does
not exist; and trouble with the cache is a warning, never an exception.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar, cast

from weft.errors import ArgumentError, DataError
from weft.knobs import CACHELEVEL, WEFT_CACHE, getenv
from weft.progress import tqdm

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# An entry: this line, the digest of the rest, one letter for the kind of value, the value.
_MAGIC = b"weft cache 1\n"
_DIGEST_SIZE = hashlib.sha256().digest_size
_CHUNK = 1 << 20

_warned: set[str] = set()


def cache_folder() -> Path:
    """The folder of everything on disk, private to the user. Not created here."""
    if WEFT_CACHE.value:
        return Path(WEFT_CACHE.value).expanduser()
    given = getenv("XDG_CACHE_HOME", "")
    if given:
        return Path(given) / "weft"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "weft"
    if sys.platform == "win32":
        return Path(getenv("LOCALAPPDATA", str(Path.home()))) / "weft"
    return Path.home() / ".cache" / "weft"


def _warn_once(text: str) -> None:
    """One warning for each kind of trouble: a read-only disk must not flood the terminal."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _private_folder(folder: Path) -> Path:
    """Creates `folder` for this user alone. Raises OSError if it belongs to somebody else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        found = folder.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise PermissionError(f"others than this user may write to {folder}")
    return folder


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file such that a reader sees the old one, or the whole new one, and nothing else."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key_text(key: Any) -> str:
    """A key as text. Keys are JSON values or bytes."""
    if isinstance(key, bytes):
        return "bytes:" + key.hex()
    try:
        return "json:" + json.dumps(key, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a cache key must be bytes or JSON, but is {key!r}: {error}") from None


def _entry_path(table: str, key: Any) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", table) or table.startswith("."):
        raise ArgumentError(f"a cache table is named {table!r}; take letters, digits and _ . -")
    name = hashlib.sha256(_key_text(key).encode()).hexdigest()
    return cache_folder() / "cache" / table / name[:2] / name


def diskcache_get(table: str, key: Any) -> Any:
    """The value put under `key`, or None. Tuples come back as lists, as JSON has it."""
    if CACHELEVEL < 1:
        return None
    path = _entry_path(table, key)
    try:
        _private_folder(cache_folder())
        entry = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_once(f"weft's disk cache is not used: {error}")
        return None
    return _decode_entry(entry, path)


def _decode_entry(entry: bytes, path: Path) -> Any:
    body = entry[len(_MAGIC) + _DIGEST_SIZE :]
    if entry != _MAGIC + hashlib.sha256(body).digest() + body or not body:
        _warn_once(f"a damaged entry of weft's disk cache is ignored: {path}")
        return None
    return body[1:] if body[:1] == b"B" else json.loads(body[1:])


def diskcache_put(table: str, key: Any, value: Any) -> Any:
    """Puts bytes or a JSON value under `key` and returns it."""
    path = _entry_path(table, key)
    try:
        body = b"B" + value if isinstance(value, bytes) else b"J" + json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a cached value must be bytes or JSON: {error}") from None
    if CACHELEVEL < 1:
        return value
    try:
        _private_folder(cache_folder())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, _MAGIC + hashlib.sha256(body).digest() + body)
    except OSError as error:
        _warn_once(f"weft's disk cache is not used: {error}")
    return value


def diskcache_clear() -> None:
    """Forgets all cached values. Downloaded files stay."""
    import shutil

    shutil.rmtree(cache_folder() / "cache", ignore_errors=True)


def diskcache(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a pure function of JSON arguments with a cache on disk of its bytes or JSON."""
    table = f"call-{function.__module__}.{function.__qualname__}"
    table = re.sub(r"[^A-Za-z0-9_.-]", "_", table)

    @functools.wraps(function)
    def cached(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        key = [list(args), kwargs]
        # In a list, for a result may itself be None.
        found = diskcache_get(table, key)
        if isinstance(found, bytes):
            return cast(Result, found)
        if found is not None:
            return cast(Result, found[0])
        result = function(*args, **kwargs)
        diskcache_put(table, key, result if isinstance(result, bytes) else [result])
        return result

    return cached


def fetch(
    url: str,
    name: str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
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
        _download(url, path, gunzip)
    _check_digest(path, url, sha256)
    return path


def _download(url: str, path: Path, gunzip: bool) -> None:
    """Downloads into a temporary file beside `path` and moves it there when it is whole."""
    import gzip
    import tempfile
    import urllib.request

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "weft"})
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
