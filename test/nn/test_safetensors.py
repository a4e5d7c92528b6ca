"""safetensors: reading, writing, refusing what is damaged, and surviving a kill."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.optional import need
from weft import GlobalCounters, Tensor, dtypes
from weft.errors import ArgumentError, DataError
from weft.nn.state import safe_load, safe_load_metadata, safe_save

EVERY_DTYPE = [d for d in dtypes.all if d not in dtypes.weaks]


def sample() -> dict[str, Tensor]:
    tensors = {d.name: Tensor([[0, 1, 2]]).cast(d) for d in EVERY_DTYPE}
    return {
        **tensors,
        "number": Tensor(2.5),
        "nothing": Tensor.zeros(0, 3),
        "ones": Tensor.ones(2, 3),
        "transposed": Tensor([[1.0, 2.0], [3.0, 4.0]]).T,
        "lazy": Tensor([1.0, 2.0]) * 3,
        'name with "quotes" and ümläuts': Tensor([1]),
    }


def contents(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_round_trip(tmp_path: Path) -> None:
    tensors = sample()
    safe_save(tensors, tmp_path / "x.safetensors", metadata={"a": "b"})
    loaded = safe_load(tmp_path / "x.safetensors")
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].shape == tensor.shape
        expected = dtypes.float32 if name == "number" else tensor.dtype
        assert loaded[name].dtype is expected, name
        np.testing.assert_array_equal(loaded[name].numpy(), tensor.numpy(), err_msg=name)
    whole, start, header = safe_load_metadata(tmp_path / "x.safetensors")
    assert header["__metadata__"] == {"a": "b"} and start % 8 == 0
    assert whole.shape == ((tmp_path / "x.safetensors").stat().st_size,)


def test_reads_from_tensors_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safe_save({"a": Tensor([[1.5, 2.5]])}, str(path))
    data = path.read_bytes()
    for source in (str(path), data, Tensor(data), Tensor(path), Tensor(path).to(None)):
        assert safe_load(source)["a"].tolist() == [[1.5, 2.5]]


def test_loading_reads_nothing_but_the_header(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    size = 5 << 30
    header = {"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    with path.open("wb") as file:
        file.write(contents(header))
        start = file.tell()
        file.truncate(start + size)
        file.seek(start + size - 3)
        file.write(b"abc")
    used = GlobalCounters.mem_used
    tensor = safe_load(path)["a"]
    assert GlobalCounters.mem_used == used
    assert bytes(tensor[-3:].data()) == b"abc"


def test_the_safetensors_library_reads_and_writes_the_same(tmp_path: Path) -> None:
    library = need("safetensors.numpy")
    simple = {n: t for n, t in sample().items() if "fp8" not in n and n != "bfloat16"}
    safe_save(simple, tmp_path / "ours.safetensors", metadata={"k": "v"})
    for name, array in library.load_file(tmp_path / "ours.safetensors").items():
        np.testing.assert_array_equal(array, simple[name].numpy())
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array([True, False])}
    library.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    loaded = safe_load(tmp_path / "theirs.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name].numpy(), array)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": (b"", "only 0 bytes"),
    "short": (b"1234567", "only 7 bytes"),
    "header longer than the file": ((1 << 62).to_bytes(8, "little"), "claims a header"),
    "header of no bytes": (bytes(8), "claims a header"),
    "cut header": (contents({"a": ENTRY}, bytes(8))[:20], "claims a header"),
    "no json": (contents(b"{nonsense}"), "no JSON"),
    "a list": (contents(b"[1, 2]"), "no JSON object"),
    "no text": (contents(b"{\xff\xfe}"), "no JSON"),
    "too deep": (contents(b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"), "no JSON"),
    "twice": (contents(b'{"a": 1, "a": 2}'), "is there twice"),
    "no entry": (contents({"a": 5}), "needs dtype, shape and data_offsets"),
    "unknown dtype": (contents({"a": {**ENTRY, "dtype": "F7"}}, bytes(8)), "'F7'; known are"),
    "dtype no text": (contents({"a": {**ENTRY, "dtype": [1]}}, bytes(8)), "known are"),
    "negative size": (contents({"a": {**ENTRY, "shape": [-2]}}, bytes(8)), "no size"),
    "size a float": (contents({"a": {**ENTRY, "shape": [2.0]}}, bytes(8)), "no size"),
    "size a bool": (contents({"a": {**ENTRY, "shape": [True]}}, bytes(8)), "no size"),
    "huge size": (contents({"a": {**ENTRY, "shape": [10**4000]}}, bytes(8)), "no size"),
    "digits without end": (
        contents(b'{"a":{"dtype":"F32","shape":[' + b"9" * 9999 + b'],"data_offsets":[0,8]}}'),
        "no JSON",
    ),
    "many elements": (contents({"a": {**ENTRY, "shape": [2**40, 2**40]}}, bytes(8)), "elements"),
    "shape no list": (contents({"a": {**ENTRY, "shape": {}}}, bytes(8)), "not a list"),
    "size does not match": (contents({"a": {**ENTRY, "shape": [3]}}, bytes(8)), "takes 12 bytes"),
    "backwards": (contents({"a": {**ENTRY, "data_offsets": [8, 0]}}, bytes(8)), "data_offsets"),
    "data cut": (contents({"a": ENTRY}, bytes(7)), "but there are 7"),
    "data too long": (contents({"a": ENTRY}, bytes(9)), "but there are 9"),
    "beyond the end": (contents({"a": {**ENTRY, "data_offsets": [8, 16]}}, bytes(8)), "16 bytes"),
    "overlap": (
        contents({"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12)),
        "inside a",
    ),
    "gap": (
        contents({"a": ENTRY, "b": {**ENTRY, "data_offsets": [12, 20]}}, bytes(20)),
        "belong to no tensor",
    ),
    "metadata no text": (contents({"__metadata__": {"a": 1}}), "names to text"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(case: str, tmp_path: Path) -> None:
    data, message = DAMAGED[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(DataError) as error:
        safe_load(path)
    assert message in str(error.value) and len(str(error.value)) < 600


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        safe_load(tmp_path / "missing")
    with pytest.raises(DataError, match="directory"):
        safe_load(tmp_path)
    with pytest.raises(ArgumentError, match="cannot load from a int"):
        safe_load(3)  # type: ignore[arg-type]


def test_refuses_to_save_what_has_no_place(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(ArgumentError, match="takes Tensors"):
        safe_save({"a": [1]}, path)  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="cannot be saved under the name"):
        safe_save({"__metadata__": Tensor([1])}, path)
    with pytest.raises(ArgumentError, match="text to text"):
        safe_save({"a": Tensor([1])}, path, metadata={"a": 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------ whole or not at all
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    safe_save({"a": Tensor([1])}, path)

    def full(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        safe_save({"a": Tensor([2])}, path)
    assert safe_load(path)["a"].tolist() == [1]
    assert list(tmp_path.iterdir()) == [path]


def test_saving_over_the_file_that_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safe_save({"a": Tensor([1, 2, 3]), "b": Tensor([4.0])}, path)
    state = safe_load(path)
    safe_save({"new": Tensor([9] * 50), **state}, path)
    assert state["a"].tolist() == [1, 2, 3]
    assert safe_load(path)["b"].tolist() == [4.0]


def test_a_state_on_disk_is_saved_as_it_is(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    safe_save(sample(), first)
    safe_save(safe_load(first), second)
    assert first.read_bytes() == second.read_bytes()
    safe_save({}, second)
    assert safe_load(second) == {}


def test_permissions_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "x.safetensors", tmp_path / "link"
    safe_save({"a": Tensor([1])}, path)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    link.symlink_to(path)
    safe_save({"a": Tensor([2])}, link)
    assert link.is_symlink() and safe_load(path)["a"].tolist() == [2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_leftovers_of_killed_saves_go_away(tmp_path: Path) -> None:
    left, young = tmp_path / ".x.safetensors.1234.tmp", tmp_path / ".x.safetensors.5678.tmp"
    for file in (left, young):
        file.write_bytes(b"half")
    os.utime(left, (time.time() - 3600,) * 2)
    safe_save({"a": Tensor([1])}, tmp_path / "x.safetensors")
    assert not left.exists() and young.exists()


SAVER = """
import sys
from weft import Tensor
from weft.nn.state import safe_save
n = 0
print("ready", flush=True)
while True:
    n += 1
    safe_save({"a": Tensor.full((300, 1000), n).contiguous(), "n": Tensor([n])}, sys.argv[1])
"""


def kill_while_saving(path: Path, times: int, environment: dict[str, str]) -> Iterator[int]:
    """The number in the file after each of several kills, which must be a whole save."""
    for number in range(times):
        process = Child(
            [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.02 + 0.0137 * number % 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
        state = safe_load(path)
        values = state["a"].numpy()
        found = state["n"].item()
        assert (values == found).all()
        yield found


def test_a_kill_while_saving_leaves_a_whole_file(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    assert len(list(kill_while_saving(tmp_path / "x.safetensors", 4, environment))) == 4
