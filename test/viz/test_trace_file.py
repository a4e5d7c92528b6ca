"""The trace file: complete or absent, and never trusted."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from weft.errors import DataError
from weft.viz import trace_file
from weft.viz.trace_file import FORMAT, VERSION, TraceReader, TraceWriter

INDEX: dict[str, Any] = {"format": FORMAT, "version": VERSION}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "a" / "b.weft")
    writer.write("index.json", INDEX)
    writer.write("unit/0.json", {"text": "π </script>"})
    assert not (tmp_path / "a" / "b.weft").exists()
    reader = TraceReader(writer.close())
    assert reader.read("unit/0.json") == {"text": "π </script>"}
    assert reader.has("unit/0.json") and not reader.has("unit/1.json")
    reader.close()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.weft"]


def test_an_abandoned_trace_leaves_nothing(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "b.weft")
    writer.write("index.json", INDEX)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def make(path: Path, **parts: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(f"{name}.json", text)
    return path


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("", "no JSON"),
        ("[]", "format"),
        ('{"format": "other"}', "format"),
        (json.dumps({**INDEX, "version": 99}), "version 99"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_other_files_are_refused(index: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        TraceReader(make(tmp_path / "x.weft", index=index))


def test_no_file_no_zip_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no trace"):
        TraceReader(tmp_path / "absent.weft")
    (tmp_path / "text.weft").write_text("hello")
    with pytest.raises(DataError, match="no trace of weft"):
        TraceReader(tmp_path / "text.weft")
    with pytest.raises(DataError, match=r"no index\.json"):
        TraceReader(make(tmp_path / "empty.weft"))
    with pytest.raises(DataError, match="no trace of weft"):
        TraceReader(tmp_path)


def test_a_part_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "bomb.weft", index=json.dumps(INDEX), big="[" + "0," * 50_000 + "0]")
    reader = TraceReader(path)
    monkeypatch.setattr(trace_file, "MOST_BYTES", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        reader.read("big.json")


def test_every_cut_and_many_flipped_bytes_end_in_an_error_or_the_right_data(
    tmp_path: Path,
) -> None:
    path = make(tmp_path / "fine.weft", index=json.dumps(INDEX), part='{"value": 12345}')
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    for position in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[position] ^= 0x41
        damaged.append(bytes(changed))
    for data in damaged:
        path.write_bytes(data)
        try:
            reader = TraceReader(path)
            read = reader.read("part.json")
        except DataError:
            continue
        assert read == {"value": 12345}
