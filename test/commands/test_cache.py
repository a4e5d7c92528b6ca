"""`weft cache`: shows, verifies and clears what is kept on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft import disk
from weft.commands.main import main
from weft.disk import diskcache_get, diskcache_put


def test_nothing_is_kept_yet(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "verify", "clear"):
        assert main(["cache", action]) == 0
    said = capsys.readouterr().out
    assert f"folder  {cache / 'cache'}" in said
    assert "0 entries, 0.00 MB, at most 1024 MB" in said
    assert "entries: 0 whole, 0 damaged" in said
    assert not cache.exists()


def test_show(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diskcache_put("kernels", 1, bytes(500_000))
    diskcache_put("kernels", 2, bytes(500_000))
    diskcache_put("searches", 1, {"best": 3})
    assert main(["cache"]) == 0
    said = capsys.readouterr().out
    assert "total   3 entries, 1.00 MB" in said
    assert "kernels                  2 entries, 1.00 MB, 2 used in the last day" in said
    assert "searches                 1 entry, 0.00 MB" in said


def test_verify_removes_what_is_damaged(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diskcache_put("kernels", 1, b"whole")
    (whole,) = disk.cache_entries()
    diskcache_put("kernels", 2, b"damaged")
    (other,) = [entry for entry in disk.cache_entries() if entry.path != whole.path]
    other.path.write_bytes(other.path.read_bytes()[:-1] + b"?")
    assert main(["cache", "verify"]) == 1
    said = capsys.readouterr().out
    assert f"damaged, removed: {other.path}" in said
    assert "entries: 1 whole, 1 damaged" in said
    assert not other.path.exists()
    assert main(["cache", "verify"]) == 0
    assert diskcache_get("kernels", 1) == b"whole"


def test_clear(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diskcache_put("kernels", 1, b"value")
    assert main(["cache", "clear"]) == 0
    assert "removed 1 entry" in capsys.readouterr().out
    assert diskcache_get("kernels", 1) is None


def test_an_unknown_action_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cache", "polish"])
    assert stopped.value.code == 2
    assert "invalid choice: 'polish'" in capsys.readouterr().err
