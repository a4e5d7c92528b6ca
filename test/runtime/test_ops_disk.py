"""Files as tensors: what is read, what is written, and what is refused, always against NumPy."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import Device, GlobalCounters, Tensor, dtypes
from weft.device import Buffer
from weft.errors import ArgumentError, DataError, DeviceError, DTypeError, ShapeError
from weft.runtime import ops_disk
from weft.runtime.ops_disk import DiskFile

BYTES = np.arange(256, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the bytes 0 to 255."""
    file = tmp_path / "Bytes.bin"
    file.write_bytes(BYTES.tobytes())
    return file


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Start and length of every read of a file."""
    seen: list[tuple[int, int]] = []
    read = DiskFile.read

    def recorded(self: DiskFile, target: memoryview, start: int) -> None:
        seen.append((start, target.nbytes))
        read(self, target, start)

    monkeypatch.setattr(DiskFile, "read", recorded)
    return seen


def on_disk(path: Path, *shape: int, dtype: Any = dtypes.uint8) -> Tensor:
    return Tensor.empty(*shape, device=f"DISK:{path}", dtype=dtype)


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# *** opening ***


def test_a_path_is_a_tensor_of_the_files_bytes(path: Path, reads: list[tuple[int, int]]) -> None:
    disk = Tensor(path)
    assert (disk.shape, disk.dtype, disk.device) == ((256,), dtypes.uint8, f"DISK:{path}")
    assert reads == []
    np.testing.assert_array_equal(disk.numpy(), BYTES)
    assert reads == [(0, 256)]


def test_a_path_with_a_dtype(path: Path) -> None:
    np.testing.assert_array_equal(
        Tensor(path, dtype=dtypes.int32).numpy(), BYTES.view(np.int32), strict=True
    )
    with pytest.raises(DataError, match="the 255 bytes of .* are no whole number of dtypes.int"):
        path.write_bytes(bytes(255))
        Tensor(path, dtype=dtypes.int32)


def test_a_path_moved_at_once(path: Path) -> None:
    moved = Tensor(path, device="CPU", dtype=dtypes.uint16)
    assert moved.device == "CPU"
    np.testing.assert_array_equal(moved.numpy(), BYTES.view(np.uint16))


def test_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    disk = Tensor(file)
    assert disk.shape == (0,)
    assert disk.tolist() == []
    assert disk.to("CPU").realize().device == "CPU"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        Tensor(tmp_path / "missing")
    with pytest.raises(DataError, match="it is a directory; name a file"):
        Tensor(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no regular file"):
        Tensor(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError, match="loop"):
        Tensor(tmp_path / "loop")


def test_device_names_are_paths(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Device.canonicalize(f"disk:{path}") == f"DISK:{path}"
    for name, advice in (("DISK", "DISK:/a/file"), ("DISK:7", "DISK:./7")):
        with pytest.raises(DeviceError, match=f"names no file: write for example {advice}"):
            Device[name]
    assert not any(name.startswith("DISK") for name in Device.get_available_devices())
    monkeypatch.chdir(path.parent)
    assert Tensor.empty(4, device="disk:./Bytes.bin", dtype=dtypes.uint8).tolist() == [0, 1, 2, 3]
    odd = path.parent / "a: b"
    odd.write_bytes(b"x")
    assert Tensor(odd).item() == ord("x")


def test_a_file_takes_no_memory_and_is_closed_with_its_buffer(path: Path) -> None:
    used = GlobalCounters.mem_used
    disk = Tensor(path)
    view = disk[4:8].bitcast(dtypes.int32)
    assert GlobalCounters.mem_used == used
    handle = Buffer.opaque.fget(disk._buffer()).file.for_reading()  # type: ignore[attr-defined]
    os.fstat(handle)
    del disk
    gc.collect()
    assert view.numpy().nbytes == 4
    del view
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(handle)


# *** reading views ***

VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[10:20],
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "row": lambda x: x.reshape(16, 16)[3],
    "rows": lambda x: x.reshape(16, 16)[3:5],
    "part of a row": lambda x: x.reshape(16, 16)[3, 4:9],
    "one plane": lambda x: x.reshape(4, 8, 8)[2].reshape(4, 16)[1:3],
    "column": lambda x: x.reshape(16, 16)[:, 5],
    "box": lambda x: x.reshape(16, 16)[2:4, 5:7],
    "reversed": lambda x: x[20:30][::-1],
    "every third": lambda x: x[7:40:3],
    "every third, reversed": lambda x: x[40:7:-3],
    "transposed": lambda x: x.reshape(16, 16).T[3:5],
    "transposed, flat": lambda x: x.reshape(16, 16).T.reshape(256)[5:9],
    "box, split": lambda x: x.reshape(16, 16)[2:4, 4:8].reshape(2, 2, 2)[1],
    "box, more axes": lambda x: x.reshape(16, 16)[2:4, 5:7].reshape(2, 1, 2)[:, 0],
    "nothing": lambda x: x[9:9],
    "nothing of rows": lambda x: x.reshape(16, 16)[3:3],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, path: Path) -> None:
    disk, view = Tensor(path), VIEWS[name]
    expected = view(BYTES)
    np.testing.assert_array_equal(view(disk).numpy(), expected)
    moved = view(disk).to("CPU")
    assert moved.device == "CPU"
    np.testing.assert_array_equal((moved ^ 1).numpy(), expected ^ 1)


def test_expand_pad_and_stack(path: Path) -> None:
    disk = Tensor(path)
    assert disk[3:5].reshape(2, 1).expand(2, 3).tolist() == [[3] * 3, [4] * 3]
    assert disk[3:5].pad(((1, 2),)).tolist() == [0, 3, 4, 0, 0]
    rows = Tensor.stack([disk[i].to("CPU") for i in (200, 7)])
    assert rows.tolist() == [200, 7]


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("slice", (10, 10)),
        ("last", (255, 1)),
        ("rows", (48, 32)),
        ("part of a row", (52, 5)),
        ("one plane", (144, 32)),
        ("box", (37, 18)),
        ("reversed", (20, 10)),
        ("every third, reversed", (10, 31)),
        ("transposed", (3, 242)),
    ],
)
def test_only_the_window_of_a_view_is_read(
    name: str, window: tuple[int, int], path: Path, reads: list[tuple[int, int]]
) -> None:
    VIEWS[name](Tensor(path)).numpy()
    assert reads == [window]


def test_a_part_in_order_is_one_transfer_and_no_kernel(path: Path) -> None:
    moved = Tensor(path).reshape(16, 16)[3:5].to("CPU")
    assert [item.kernel for item in moved.schedule()] == [None]


def test_random_views_agree_with_numpy(path: Path) -> None:
    random = np.random.default_rng(3)
    disk = Tensor(path)
    for _ in range(25):
        shape = [(256,), (16, 16), (4, 8, 8), (2, 4, 4, 8)][random.integers(4)]
        ours: Any = disk.reshape(shape)
        theirs: Any = BYTES.reshape(shape)
        for _ in range(random.integers(1, 4)):
            bounds = [sorted(random.integers(0, n, 2).tolist()) for n in ours.shape]
            box = tuple(slice(a, b + 1) for a, b in bounds)
            order = random.permutation(len(box)).tolist()
            ours, theirs = ours[box].permute(order), theirs[box].transpose(order)
            if random.integers(2):
                ours, theirs = ours.flip(0), theirs[::-1]
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_bits_as_another_dtype(path: Path, reads: list[tuple[int, int]]) -> None:
    disk = Tensor(path)
    # at an odd offset, which no aligned memory would allow
    floats = disk[3:19].bitcast(dtypes.float32)
    assert (floats.shape, floats.device) == ((4,), disk.device)
    np.testing.assert_array_equal(floats.numpy(), BYTES[3:19].view(np.float32))
    assert reads == [(3, 16)]
    rows = disk.reshape(16, 16)[2:4].bitcast(dtypes.int64)
    np.testing.assert_array_equal(rows.numpy(), BYTES.reshape(16, 16)[2:4].view(np.int64))
    np.testing.assert_array_equal(
        rows[1].bitcast(dtypes.uint8)[1:3].numpy(), BYTES[48:64].view(np.uint8)[1:3]
    )
    columns = disk.reshape(16, 16)[:, 3].bitcast(dtypes.int8)
    np.testing.assert_array_equal(columns.numpy(), BYTES.reshape(16, 16)[:, 3].view(np.int8))
    with pytest.raises(ShapeError, match="divide by 4"):
        disk[0:6].bitcast(dtypes.int32)


def test_bfloat16_is_read_and_then_converted(tmp_path: Path) -> None:
    file = tmp_path / "half"
    file.write_bytes(np.array([0x3F80, 0x4000], np.uint16).tobytes())
    halves = Tensor(file, dtype=dtypes.bfloat16)
    assert halves.tolist() == [1.0, 2.0]
    assert halves.to("CPU").cast(dtypes.float32).tolist() == [1.0, 2.0]


def test_reading_waits_until_it_must(path: Path, reads: list[tuple[int, int]]) -> None:
    total = Tensor(path)[:4].to("CPU").cast(dtypes.int32).sum()
    assert reads == []
    assert total.item() == 6
    assert reads == [(0, 4)]


# *** computing is refused ***


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + 1,
        lambda x: -x.bitcast(dtypes.int8),
        lambda x: x.sum(),
        lambda x: x.cast(dtypes.float32),
        lambda x: x == x,
        lambda x: x.cat(x),
        lambda x: x[Tensor([1, 2])],
        lambda x: x[::2].contiguous().realize(),
        lambda x: x.clone().realize(),
    ],
)
def test_computing_on_a_file_is_refused(compute: Callable[[Tensor], Any], path: Path) -> None:
    with pytest.raises(DeviceError, match=rf'move.*x\.to\("{Device.DEFAULT}"\)'):
        compute(Tensor(path))


def test_an_operand_is_never_written_to_the_file(path: Path) -> None:
    disk = Tensor(path)
    for compute in (
        lambda: disk + np.array([9], np.uint8),
        lambda: disk[[200, 201]],
        lambda: disk[np.array([5])],
        lambda: disk.where(9, 8),
    ):
        with pytest.raises(DeviceError):
            compute()
    gc.collect()
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), BYTES)


def test_the_refusal_says_what_to_do(path: Path) -> None:
    move = rf'x\.to\("{Device.DEFAULT}"\)'
    with pytest.raises(DeviceError, match=rf"ADD on DISK:.*computes nothing; .* {move}"):
        Tensor(path) + 1
    with pytest.raises(DeviceError, match=rf"ADD on DISK:.*{move}"):
        Tensor([1]) + Tensor(path)


# *** writing ***


def test_empty_makes_a_file_when_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "new.bin"
    disk = on_disk(file, 4, dtype=dtypes.float32)
    assert not file.exists()
    with pytest.raises(DataError, match="new.bin cannot be read: no such file"):
        disk.tolist()
    assert not file.exists()
    assert disk.assign(Tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(np.fromfile(file, np.float32), [1, 2, 3, 4])


def test_what_was_never_written_is_replaced(tmp_path: Path) -> None:
    for file in (tmp_path / "zeros", tmp_path / "lazy"):
        disk = Tensor.zeros(3, device=f"DISK:{file}", dtype=dtypes.uint8)
        if file.name == "lazy":
            disk = Tensor([1, 2, 3], dtype=dtypes.uint8).to(f"DISK:{file}")
        disk.assign([7, 8, 9])
        assert file.read_bytes() == b"\7\10\11"
    partly = Tensor([1, 2, 3], dtype=dtypes.uint8).to(f"DISK:{tmp_path / 'partly'}")
    partly[1] = 9
    assert (tmp_path / "partly").read_bytes() == b"\1\11\3"


def test_a_part_written_first_leaves_zeros_around(tmp_path: Path) -> None:
    file = tmp_path / "new.bin"
    disk = on_disk(file, 2, 4)
    disk[1, 1:3].assign(Tensor([7, 8], dtype=dtypes.uint8))
    assert file.read_bytes() == b"\0\0\0\0\0\7\10\0"


def test_assign_to_slices_and_views(path: Path) -> None:
    disk, expected = Tensor(path), BYTES.copy()
    rows = disk.reshape(16, 16)
    rows[2:4].assign(Tensor.full((2, 16), 9, dtype=dtypes.uint8))
    expected[32:64] = 9
    disk[5] = 77
    expected[5] = 77
    disk[100:104] = [1, 2, 3, 4]
    expected[100:104] = [1, 2, 3, 4]
    disk[110:113] = b"abc"
    expected[110:113] = list(b"abc")
    disk[120:122] = np.array([5, 6], np.uint8)
    expected[120:122] = [5, 6]
    disk[3:7].bitcast(dtypes.float32).assign([1.5])
    expected[3:7] = np.array([1.5], np.float32).view(np.uint8)
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), expected)
    np.testing.assert_array_equal(rows.numpy().reshape(-1), expected)
    np.testing.assert_array_equal(Tensor(path).numpy(), expected)


def test_assign_computes_and_broadcasts(path: Path) -> None:
    disk = Tensor(path).reshape(16, 16)
    disk.assign(disk.to("CPU").T + 1)
    expected = BYTES.reshape(16, 16).T + np.uint8(1)
    np.testing.assert_array_equal(np.fromfile(path, np.uint8).reshape(16, 16), expected)
    disk[:2].assign(Tensor.arange(16).cast(dtypes.uint8))
    np.testing.assert_array_equal(disk[:2].numpy(), np.stack([np.arange(16)] * 2))


def test_assign_is_checked(path: Path) -> None:
    disk = Tensor(path)
    for source, error in (
        (Tensor([1.5] * 256), DTypeError),
        # data that is no Tensor yet takes the dtype, as in tinygrad and NumPy
        (np.full(255, 1.5), ShapeError),
        (Tensor([1, 2], dtype=dtypes.uint8), ShapeError),
    ):
        with pytest.raises(error):
            disk.assign(source)
    words = disk.reshape(16, 16)[:, :4].bitcast(dtypes.int8)
    for view in (
        disk[::2],
        disk.reshape(16, 16)[:, 3],
        disk.flip(0),
        disk[0].expand(3),
        disk[:3].pad(((0, 1),)),
        words,
        words[0],
    ):
        with pytest.raises(ArgumentError, match="do not follow each other"):
            view.assign(Tensor.zeros(*view.shape, dtype=view.dtype))
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), BYTES)


def test_a_value_read_before_a_write_keeps_the_old_contents(path: Path, tmp_path: Path) -> None:
    disk = Tensor(path)
    before, more = disk[:3].to("CPU"), disk[:3].to("CPU") + 1
    alias = tmp_path / "alias"
    alias.symlink_to(path)
    through_alias = Tensor.empty(3, device=f"DISK:{alias}", dtype=dtypes.uint8).to("CPU")
    view = disk[1:3].bitcast(dtypes.int8)
    disk[:3] = 9
    assert before.tolist() == [0, 1, 2]
    assert more.tolist() == [1, 2, 3]
    assert through_alias.tolist() == [0, 1, 2]
    assert view.tolist() == [9, 9]
    assert disk[:3].to("CPU").tolist() == [9, 9, 9]
    disk[:3] = 8
    assert disk[:3].to("CPU").tolist() == [8, 8, 8]


def test_moving_to_a_file(tmp_path: Path) -> None:
    source = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    lazy = (source.T * 2).to(f"DISK:{tmp_path / 'moved'}")
    assert lazy[1].tolist() == [2, 10, 18]
    assert not (tmp_path / "moved").exists()
    lazy.realize()
    expected = np.arange(12, dtype=np.float32).reshape(3, 4).T * 2
    np.testing.assert_array_equal(np.fromfile(tmp_path / "moved", np.float32), expected.ravel())
    np.testing.assert_array_equal(lazy[1:3].numpy(), expected[1:3])
    Tensor.arange(5).to(f"DISK:{tmp_path / 'numbers'}").realize()
    assert np.fromfile(tmp_path / "numbers", np.int32).tolist() == [0, 1, 2, 3, 4]
    listed = Tensor([1, 2], device=f"DISK:{tmp_path / 'list'}")
    assert not (tmp_path / "list").exists()
    listed.realize()
    assert np.fromfile(tmp_path / "list", np.int32).tolist() == [1, 2]
    copy = source.clone(f"DISK:{tmp_path / 'clone'}").realize()
    np.testing.assert_array_equal(copy.numpy(), source.numpy())
    both = source.to(f"DISK:{tmp_path / 'both'}"), Tensor.arange(3) + 1
    Tensor.realize(*both)
    assert both[1].tolist() == [1, 2, 3]


def test_file_to_file_in_pieces(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops_disk, "PIECE", 7)
    np.testing.assert_array_equal(Tensor(path).numpy(), BYTES)
    target = on_disk(tmp_path / "copy", 100)
    target.assign(Tensor(path)[50:150])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "copy", np.uint8), BYTES[50:150])
    Tensor(path)[200:].to(f"DISK:{tmp_path / 'moved'}").realize()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "moved", np.uint8), BYTES[200:])


@pytest.mark.parametrize(("source", "target"), [(10, 13), (13, 10), (10, 200), (10, 10)])
def test_parts_of_one_file_may_overlap(
    source: int, target: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops_disk, "PIECE", 8)
    disk, expected = Tensor(path), BYTES.copy()
    disk[target : target + 50].assign(Tensor(path)[source : source + 50])
    expected[target : target + 50] = BYTES[source : source + 50]
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), expected)


def test_a_file_written_here_is_read_by_another_process(tmp_path: Path) -> None:
    file = tmp_path / "shared.bin"
    values = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    on_disk(file, 5, 7, dtype=dtypes.float32).assign(Tensor(values))
    code = (
        "import sys, pathlib\n"
        "from weft import Tensor, dtypes\n"
        "disk = Tensor(pathlib.Path(sys.argv[1]), dtype=dtypes.float32).reshape(5, 7)\n"
        "print(disk[3].tolist())\n"
        "disk[0].assign(disk[4].to('CPU') * 2)\n"
    )
    assert run_python(code, str(file)) == str(values[3].tolist())
    np.testing.assert_array_equal(np.fromfile(file, np.float32)[:7], values[4] * 2)


def test_saving_tensors_with_a_header(tmp_path: Path) -> None:
    """The way weights are saved: a length, a header, and each tensor at its own offset."""
    file = tmp_path / "weights"
    weights = {"a": np.arange(6, dtype=np.float32), "b": np.arange(3, dtype=np.int64)}
    header = b'{"a": 0, "b": 24}'
    disk = on_disk(file, 8 + len(header) + 24 + 24)
    disk[0:8].bitcast(dtypes.int64).assign([len(header)])
    disk[8 : 8 + len(header)].assign(list(header))
    data = disk[8 + len(header) :]
    data[:24].bitcast(dtypes.float32).assign(Tensor(weights["a"]))
    data[24:].bitcast(dtypes.int64).assign(Tensor(weights["b"]))
    assert file.read_bytes() == len(header).to_bytes(8, "little") + header + b"".join(
        array.tobytes() for array in weights.values()
    )
    loaded = Tensor(file)[8 + len(header) :][24:].bitcast(dtypes.int64)
    np.testing.assert_array_equal(loaded.to("CPU").numpy(), weights["b"])


# *** files that are not as expected ***


def test_a_shorter_file_is_reported_and_lengthened_by_a_write(path: Path) -> None:
    disk = on_disk(path, 300)
    assert disk[250:256].tolist() == [250, 251, 252, 253, 254, 255]
    with pytest.raises(DataError, match="bytes 250 to 260 of .* it has 256 bytes"):
        disk[250:260].tolist()
    disk[299] = 1
    assert disk[250:260].tolist() == [250, 251, 252, 253, 254, 255, 0, 0, 0, 0]
    assert path.stat().st_size == 300


def test_a_longer_file_keeps_its_end(path: Path) -> None:
    on_disk(path, 2).assign([7, 7])
    assert path.read_bytes() == b"\7\7" + BYTES[2:].tobytes()


def test_a_file_cut_by_someone_else_is_an_error_and_no_crash(path: Path) -> None:
    disk = Tensor(path)
    late = disk[200:].to("CPU")
    os.truncate(path, 100)
    with pytest.raises(DataError, match="shorter than the Tensor over it, or was cut"):
        late.realize()
    assert disk[90:100].tolist() == list(range(90, 100))
    path.write_bytes(BYTES.tobytes())
    assert late.tolist() == list(range(200, 256))


def test_a_replaced_file_reads_as_it_was_opened_and_is_not_written(path: Path) -> None:
    disk = Tensor(path)
    path.unlink()
    path.write_bytes(bytes(256))
    assert disk[5:7].tolist() == [5, 6]
    with pytest.raises(DataError, match="another file was put in its place"):
        disk[0] = 1
    assert path.read_bytes() == bytes(256)
    new = Tensor(path)
    new[0] = 1
    assert path.read_bytes()[0] == 1


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder .*nowhere"):
        on_disk(tmp_path / "nowhere" / "file", 3).assign([1, 2, 3])
    with pytest.raises(DataError, match="it is a directory; name a file"):
        on_disk(tmp_path, 3).assign([1, 2, 3])


def test_a_read_only_file_is_read_but_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's refusal is imitated: an administrator would be let in."""
    really_open = os.open

    def refuse_writing(name: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", name)
        return really_open(name, flags, mode)

    monkeypatch.setattr(ops_disk.os, "open", refuse_writing)
    disk = Tensor(path)
    with pytest.raises(DataError, match="cannot be written: Permission denied; copy it"):
        disk[0] = 1
    assert disk[:3].tolist() == [0, 1, 2]


@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write to every file")
def test_permissions_are_respected(path: Path) -> None:
    path.chmod(0o444)
    with pytest.raises(DataError, match="cannot be written: Permission denied"):
        Tensor(path)[0] = 1
    path.chmod(0)
    with pytest.raises(DataError, match="cannot be opened: Permission denied"):
        Tensor(path)


def test_a_full_disk_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    disk = Tensor(path)
    monkeypatch.setattr(ops_disk.os, "pwrite", full)
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        disk[:4] = 1


# *** large files ***


def test_the_far_end_of_a_huge_file(tmp_path: Path, reads: list[tuple[int, int]]) -> None:
    file, size = tmp_path / "huge", 5 << 30
    with file.open("wb") as handle:
        handle.truncate(size)
    disk = Tensor(file)
    assert disk.shape == (size,)
    disk[-4:] = [1, 2, 3, 4]
    assert disk[-6:].tolist() == [0, 0, 1, 2, 3, 4]
    assert disk[-8:].bitcast(dtypes.int32).tolist() == [0, 0x04030201]
    rows = disk.reshape(size >> 20, 1 << 20)
    assert rows[-1, -3:].tolist() == [2, 3, 4]
    # not in order: the view is made after the transfer
    assert rows[-2:, -2:].T.tolist() == [[0, 3], [0, 4]]
    assert disk[-7::2].tolist() == [0, 0, 2, 4]
    assert sum(length for _, length in reads) < 3 << 20
    assert file.stat().st_blocks * 512 < 1 << 20


def test_a_large_fill_is_written_in_pieces(tmp_path: Path) -> None:
    file, count = tmp_path / "filled", (1 << 24) + 5
    disk = on_disk(file, count, dtype=dtypes.int16)
    used = GlobalCounters.mem_used
    disk.assign(-2)
    assert GlobalCounters.mem_used == used
    assert file.stat().st_size == 2 * count
    np.testing.assert_array_equal(np.fromfile(file, np.int16), np.full(count, -2, np.int16))


def test_a_file_is_processed_in_slices(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    values = np.arange(64 * 100, dtype=np.int32).reshape(64, 100)
    values.tofile(file)
    disk = Tensor(file, dtype=dtypes.int32).reshape(64, 100)
    total = sum(disk[i : i + 8].to("CPU").sum().item() for i in range(0, 64, 8))
    assert total == values.sum()


# *** processes and threads ***


def test_threads_read_while_one_writes(path: Path) -> None:
    disk = Tensor(path)
    buffer = disk._buffer()
    wrong: list[bytes] = []

    def read() -> None:
        for _ in range(200):
            found = bytes(buffer.view(8, dtypes.uint8, 100).as_memoryview())
            if found != BYTES[100:108].tobytes():
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for value in range(20):
        buffer.view(1, dtypes.uint8, 0).copyin(bytes([value]))
    for thread in threads:
        thread.join(300)
    assert wrong == []
    assert disk[:2].tolist() == [19, 1]


@pytest.mark.device("CPU")  # a forked process cannot use the GPU of its parent
def test_a_forked_child_reads_and_writes(path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from weft import Tensor\n"
        "disk = Tensor(pathlib.Path(sys.argv[1]))\n"
        "assert disk[:2].tolist() == [0, 1]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert disk[100:103].tolist() == [100, 101, 102]\n"
        "    disk[0] = 50\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(disk[:2].tolist())\n"
    )
    assert run_python(code, str(path)) == "[50, 1]"


def test_pickling_takes_the_values_and_leaves_the_file(path: Path) -> None:
    view = Tensor(path)[100:108].bitcast(dtypes.int32)
    restored = pickle.loads(pickle.dumps(view))
    assert restored.device == Device.DEFAULT
    np.testing.assert_array_equal(restored.numpy(), BYTES[100:108].view(np.int32))
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), BYTES)
