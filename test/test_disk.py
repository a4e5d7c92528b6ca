"""The disk cache under everything that can happen to files: always the right value, or none."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from test.children import Child
from weft import disk
from weft.disk import diskcache_clear, diskcache_get, diskcache_put
from weft.knobs import Context

VALUE = b"the value of an entry"


def only_entry() -> Path:
    (entry,) = disk.cache_entries()
    return entry.path


def in_process(code: str, cache: Path, **options: Any) -> Child:
    """A Python process that uses the same cache folder; `code` is run after the imports."""
    prelude = "import os, sys, time\nfrom weft.disk import *\nfrom weft.disk import _HOUR\n"
    return Child(
        [sys.executable, "-c", prelude + code],
        env={**os.environ, "WEFT_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


class TestDamage:
    def test_a_flipped_bit_in_any_byte_is_no_entry(self, cache: Path) -> None:
        diskcache_put("table", "key", VALUE)
        path = only_entry()
        whole = path.read_bytes()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for place in range(len(whole)):
                changed = bytearray(whole)
                changed[place] ^= 1 << (place % 8)
                path.write_bytes(changed)
                assert diskcache_get("table", "key") is None, place
        assert len(said) == 1 and "damaged" in str(said[0].message)
        path.write_bytes(whole)
        assert diskcache_get("table", "key") == VALUE

    def test_an_entry_cut_short_anywhere_is_no_entry(self, cache: Path) -> None:
        diskcache_put("table", "key", VALUE)
        path = only_entry()
        whole = path.read_bytes()
        with pytest.warns(RuntimeWarning, match="damaged"):
            for size in range(len(whole)):
                path.write_bytes(whole[:size])
                assert diskcache_get("table", "key") is None, size

    def test_an_entry_under_another_name_is_no_entry(self, cache: Path) -> None:
        """So a kernel can never be taken for another one, whatever moves the files."""
        diskcache_put("table", "key", VALUE)
        first = only_entry()
        diskcache_put("table", "other", b"other")
        (second,) = [entry.path for entry in disk.cache_entries() if entry.path != first]
        second.write_bytes(first.read_bytes())
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert diskcache_get("table", "other") is None
        diskcache_put("table", "other", b"other")
        assert diskcache_get("table", "other") == b"other"

    def test_an_entry_of_another_format_is_no_entry(self, cache: Path) -> None:
        diskcache_put("table", "key", VALUE)
        path = only_entry()
        path.write_bytes(path.read_bytes().replace(b"weft cache 2\n", b"weft cache 1\n"))
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert diskcache_get("table", "key") is None

    def test_a_folder_in_place_of_an_entry(self, cache: Path) -> None:
        diskcache_put("table", "key", VALUE)
        path = only_entry()
        path.unlink()
        path.mkdir()
        with pytest.warns(RuntimeWarning, match="not used"):
            assert diskcache_get("table", "key") is None
            assert diskcache_put("table", "key", VALUE) == VALUE


class TestTrouble:
    """One warning, and everybody goes on without the cache."""

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
    def test_a_full_disk(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        diskcache_put("table", "first", VALUE)
        real_open = os.open

        def open_full(path: Any, flags: int, *mode: int) -> int:
            # what is written fails as on a disk without space: the system says ENOSPC
            if os.path.basename(path).startswith(".tmp-"):
                real = real_open(path, flags, *mode)
                os.close(real)
                return real_open("/dev/full", os.O_WRONLY)
            return real_open(path, flags, *mode)

        monkeypatch.setattr(os, "open", open_full)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for number in range(5):
                assert diskcache_put("table", number, VALUE) == VALUE
                assert diskcache_get("table", number) is None
        assert len(said) == 1 and "No space left" in str(said[0].message)
        monkeypatch.undo()
        with Context(WEFT_CACHE=str(cache)):
            assert diskcache_get("table", "first") == VALUE
            assert [path for path in cache.rglob(".tmp-*")] == []

    def test_a_limit_on_file_sizes(self, cache: Path) -> None:
        """A write that stops half-way leaves nothing behind."""
        code = (
            "import resource, signal\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "diskcache_put('table', 'key', b'x' * 5000)\n"
            "print(diskcache_get('table', 'key'), diskcache_put('table', 'small', b'y'),\n"
            "    diskcache_get('table', 'small'))\n"
        )
        child = in_process(code, cache)
        out, said = child.communicate(timeout=60)
        assert (child.returncode, out) == (0, "None b'y' b'y'\n"), said
        assert said.count("RuntimeWarning") == 1 and "File too large" in said
        assert [path for path in cache.rglob(".tmp-*")] == []

    @pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT])
    def test_a_folder_that_cannot_be_written(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        diskcache_put("table", "known", VALUE)
        real_open = os.open

        def refuse(path: Any, flags: int, *mode: int, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(number, os.strerror(number), path)
            return real_open(path, flags, *mode, **options)

        monkeypatch.setattr(os, "open", refuse)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for key in range(5):
                assert diskcache_put("table", key, VALUE) == VALUE
            # what is there can still be read
            assert diskcache_get("table", "known") == VALUE
        assert len(said) == 1 and os.strerror(number) in str(said[0].message)


class TestManyProcesses:
    def test_two_processes_at_once(self, cache: Path) -> None:
        """Both put and read the same keys, one clears meanwhile: a value is right or not there."""
        code = (
            "wrong = 0\n"
            "for step in range(300):\n"
            "    key = step % 7\n"
            "    value = bytes([key]) * (1000 + 5000 * key)\n"
            "    diskcache_put('table', key, value)\n"
            "    if step % 50 == 49 and sys.argv[1] == 'clears':\n"
            "        diskcache_clear()\n"
            "    for other in range(7):\n"
            "        found = diskcache_get('table', other)\n"
            "        wrong += found not in (None, bytes([other]) * (1000 + 5000 * other))\n"
            "print(wrong)\n"
        )
        children = [
            in_process(code.replace("sys.argv[1]", repr(role)), cache) for role in ("clears", "")
        ]
        for child in children:
            out, said = child.communicate(timeout=120)
            assert (child.returncode, out, said) == (0, "0\n", "")

    def test_kill_while_writing(self, cache: Path) -> None:
        """Killed at any moment, a writer leaves whole entries, and nothing that stays for ever."""
        code = (
            "print('ready', flush=True)\n"
            "while True:\n"
            "    for key in range(20):\n"
            "        diskcache_put('table', key, bytes([key]) * 300_000)\n"
        )
        for _ in range(5):
            child = in_process(code, cache)
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            time.sleep(0.03)
            child.kill()
            child.communicate()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for key in range(20):
                    assert diskcache_get("table", key) in (None, bytes([key]) * 300_000)
        (cache / "cache" / "table" / "00").mkdir(exist_ok=True)
        left = cache / "cache" / "table" / "00" / ".tmp-1-2-3"
        left.write_bytes(b"half of an ent")
        disk.make_room()
        assert left.exists(), "a young file may belong to a process that is writing"
        os.utime(left, (0, 0))
        disk.make_room()
        assert not left.exists()


class TestBound:
    def test_the_bound_holds_and_the_used_stay(self, cache: Path) -> None:
        size = 100_000
        with Context(CACHE_MB=1):
            for number in range(6):
                diskcache_put("table", number, bytes([number]) * size)
                path = disk._entry_path("table", number)
                os.utime(path, (1000.0 + number, 1000.0 + number))
            # long ago, in this order; but the first is used again
            assert diskcache_get("table", 0) == bytes(size)
            for number in range(6, 11):
                diskcache_put("table", number, bytes([number]) * size)
            left = [number for number in range(11) if diskcache_get("table", number)]
            assert left == [0, 5, 6, 7, 8, 9, 10]
            for number in range(11, 40):
                diskcache_put("table", number, bytes([number]) * size)
                assert sum(entry.size for entry in disk.cache_entries()) <= 1 << 20
                assert diskcache_get("table", number) == bytes([number]) * size

    def test_one_entry_never_pushes_out_all_others(self, cache: Path) -> None:
        with Context(CACHE_MB=1):
            diskcache_put("table", "small", VALUE)
            assert diskcache_put("table", "large", bytes(300_000)) == bytes(300_000)
            assert diskcache_get("table", "large") is None
            assert diskcache_get("table", "small") == VALUE
        with Context(CACHE_MB=0):
            diskcache_put("table", "large", bytes(300_000))
            assert diskcache_get("table", "large") == bytes(300_000)

    def test_a_smaller_bound_holds_from_the_next_entry_on(self, cache: Path) -> None:
        for number in range(10):
            diskcache_put("table", number, bytes(200_000))
        with Context(CACHE_MB=1):
            diskcache_put("table", "next", VALUE)
            assert sum(entry.size for entry in disk.cache_entries()) <= 1 << 20

    @pytest.mark.parametrize("count", [None, 0, 5, 10_000_000])
    def test_a_wrong_count_mends_itself(self, cache: Path, count: int | None) -> None:
        with Context(CACHE_MB=1):
            diskcache_put("table", "first", VALUE)
            ledger = cache / "cache" / ".written"
            if count is None:
                ledger.unlink()
            else:
                os.truncate(ledger, count)
            for number in range(20):
                diskcache_put("table", number, bytes(100_000))
            assert sum(entry.size for entry in disk.cache_entries()) <= (1 << 20) + 20_000
            assert diskcache_get("table", 19) == bytes(100_000)

    def test_clear(self, cache: Path) -> None:
        downloads = cache / "downloads"
        diskcache_put("table", "key", VALUE)
        downloads.mkdir()
        (downloads / "file").write_bytes(b"1")
        diskcache_clear()
        assert list(disk.cache_entries()) == []
        assert (downloads / "file").exists()
        diskcache_put("table", "key", VALUE)
        assert diskcache_get("table", "key") == VALUE


def test_the_folder_is_private(cache: Path) -> None:
    before = os.umask(0)
    try:
        diskcache_put("table", "key", VALUE)
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o777 == 0o700
    for entry in disk.cache_entries():
        assert entry.path.stat().st_mode & 0o777 == 0o600
