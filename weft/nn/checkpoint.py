"""Checkpoints in parts: a folder for each step, a file for each device, whole or not there.

In: a folder, a number, and what holds the tensors (models, optimisers). Out: files; the tensors of
the newest step, on whatever devices there are now. Sits on `state` and the formats.
Invariant: a folder named by a number is whole. It is written under another name, by all processes
together, and gets its name when every file is on the disk; so a process that dies at any moment
leaves the steps before as they were.

    run/12/index.json           which tensors, how they were cut, where their parts are
    run/12/CPU-1.safetensors    what the device CPU:1 had of them
    run/13.part/                being written
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from weft.device import Buffer, Device
from weft.engine.storage import buffer_of, storages_of
from weft.errors import ArgumentError, DataError
from weft.nn.formats.safetensors import NAMES, header, safe_load
from weft.nn.state import get_state_dict, load_state_dict
from weft.tensor import Tensor

_INDEX = "index.json"
_UNFINISHED = ".part"
_WRITE_CHUNK = 64 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A step that was saved. The tensors are on disk until something computes with them."""

    step: int
    tensors: dict[str, Tensor]
    note: dict[str, Any]
    random: tuple[int, int]  # the seed, and how many random words were drawn


@dataclass(frozen=True)
class _Part:
    """What one device holds of a tensor."""

    dtype: Any
    shape: tuple[int, ...]
    memory: Buffer


def save(
    folder: str | os.PathLike[str],
    step: int,
    state: Any,
    note: dict[str, Any] | None = None,
    keep: int = 2,
) -> None:
    """Writes the tensors inside `state` as a step of a folder. Every process writes what is on its
    devices. The newest `keep` steps stay.

    >>> import tempfile
    >>> folder, net = tempfile.mkdtemp(), nn.Linear(4, 2)
    >>> nn.checkpoint.save(folder, 7, {"net": net}, {"epoch": 1})
    >>> found = nn.checkpoint.resume(folder, {"net": nn.Linear(4, 2)})
    >>> found.step, found.note
    (7, {'epoch': 1})
    """
    if step < 0 or keep < 1:
        raise ArgumentError(f"a step is at least 0 and keeps at least 1, found {step} and {keep}")
    place = Path(folder)
    group = _ranks()
    is_first = group is None or group.rank == 0
    entries, files = _plan(_distinct(state))
    written = place / f"{step}{_UNFINISHED}"
    with _together(group):
        if is_first:
            for left in place.glob(f"*{_UNFINISHED}"):
                shutil.rmtree(left, ignore_errors=True)
            written.mkdir(parents=True)
    with _together(group):
        for device, parts in files.items():
            opened = Device[device]
            if opened.is_here if opened.rank is not None else is_first:
                _write(written / _file_of(device), parts)
    with _together(group):
        if is_first:
            drawn = Tensor._random
            index = {
                "step": step,
                "tensors": entries,
                "note": note or {},
                "random": [drawn.seed, drawn.counter],
            }
            with _synced(written / _INDEX) as file:
                file.write(json.dumps(index).encode())
            _publish(written, place / str(step))
            for old in steps(place)[:-keep]:
                _remove(place / str(old))


def steps(folder: str | os.PathLike[str]) -> list[int]:
    """The steps of a folder that are whole, the newest last."""
    place = Path(folder)
    found = [path.parent.name for path in place.glob(f"*/{_INDEX}")]
    return sorted([int(name) for name in found if name.isdigit()])


def load(folder: str | os.PathLike[str], step: int | None = None) -> Checkpoint | None:
    """A step of a folder, the newest if none is named; None if there is none."""
    found = steps(folder)
    if step is None and not found:
        return None
    chosen = found[-1] if step is None else step
    if chosen not in found:
        raise ArgumentError(f"{folder} has no step {step}; it has {found}")
    place = Path(folder) / str(chosen)
    try:
        index = json.loads((place / _INDEX).read_text(encoding="utf-8"))
        rows = index["tensors"]
        names = {part for row in rows.values() for part in row["files"] if part is not None}
        opened = {name: safe_load(place / name) for name in sorted(names)}
        tensors = {name: _joined(name, row, opened) for name, row in rows.items()}
        random = (int(index["random"][0]), int(index["random"][1]))
        return Checkpoint(chosen, tensors, index["note"], random)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise DataError(f"{place} is no checkpoint: {type(error).__name__}: {error}") from error


def resume(
    folder: str | os.PathLike[str], state: Any, step: int | None = None
) -> Checkpoint | None:
    """Gives the tensors inside `state` the values of a step, the newest if none is named, and goes
    on with its random numbers; None if there is none. Devices may be others than those that
    saved."""
    found = load(folder, step)
    if found is not None:
        load_state_dict(_distinct(state), found.tensors, verbose=False)
        Tensor.manual_seed(found.random[0])
        Tensor._random.counter = found.random[1]
    return found


# ------------------------------------------------------------ what is written
def _distinct(state: Any) -> dict[str, Tensor]:
    """Tensors by their first name: an optimiser has those of the model too."""
    seen: dict[int, str] = {}
    named = get_state_dict(state)
    return {
        name: tensor for name, tensor in named.items() if seen.setdefault(id(tensor), name) == name
    }


def _plan(tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, dict[str, _Part]]]:
    """How each tensor is cut, and by device what it has of them."""
    entries: dict[str, Any] = {}
    files: dict[str, dict[str, _Part]] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise ArgumentError(f"{name} is of {tensor.dtype}, which safetensors cannot hold")
        storage = _storage_of(tensor)
        layout = storage.arg.layout
        parts = storages_of(storage)
        row: dict[str, Any] = {"shape": list(tensor.shape), "axis": None, "files": []}
        if layout is None:
            shapes = [tuple(tensor.shape)]
        else:
            row.update(axis=layout.axis, cut=list(layout.shape))
            shapes = [layout.part_shape(i) for i in range(len(parts))]
        for part, shape in zip(parts, shapes, strict=False):
            if 0 in shape:
                row["files"].append(None)
                continue
            device = part.arg.device
            row["files"].append(_file_of(device))
            files.setdefault(device, {})[name] = _Part(tensor.dtype, shape, buffer_of(part))
        entries[name] = {**row, "dtype": NAMES[tensor.dtype]}
    return entries, files


def _storage_of(tensor: Tensor) -> Any:
    """Memory that holds the tensor's elements in their order, and nothing else."""
    own = tensor.contiguous().realize()
    storage = own._cell.storage
    if storage is None or storage.arg.size != own.numel() or own.uop.base is not storage:
        own = tensor.clone().realize()
        storage = own._cell.storage
    return storage


def _file_of(device: str) -> str:
    return f"{device.replace(':', '-')}.safetensors"


def _write(path: Path, parts: dict[str, _Part]) -> None:
    order = sorted(parts, key=lambda name: (-parts[name].dtype.itemsize, name))
    offsets, position = {}, 0
    for name in order:
        size = parts[name].memory.nbytes
        offsets[name] = [position, position + size]
        position += size
    with _synced(path) as file:
        file.write(header(parts, offsets, None))
        for name in order:
            contents = parts[name].memory.as_memoryview(allow_zero_copy=True)
            for start in range(0, contents.nbytes, _WRITE_CHUNK):
                file.write(contents[start : start + _WRITE_CHUNK])


@contextmanager
def _synced(path: Path) -> Iterator[IO[bytes]]:
    """A file that is on the disk when the block is left."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _publish(written: Path, final: Path) -> None:
    """The finished folder under its name; one of an earlier run goes."""
    _sync_folder(written)
    if final.exists():
        _remove(final)
    written.rename(final)
    _sync_folder(final.parent)


def _remove(step: Path) -> None:
    """Loses its name first: what is half removed is no step."""
    left = step.rename(step.with_name(f"{step.name}.old{_UNFINISHED}"))
    shutil.rmtree(left, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------ what is read
def _joined(name: str, row: dict[str, Any], opened: dict[str, dict[str, Tensor]]) -> Tensor:
    parts = [opened[file][name] for file in row["files"] if file is not None]
    if not parts:
        return Tensor.zeros(*row["shape"])
    if len(parts) == 1:
        return parts[0].reshape(*row["shape"])
    # files only store
    whole = Tensor.cat(*[part.to(Device.DEFAULT) for part in parts], dim=row["axis"])
    return whole.reshape(*row["shape"])


# ------------------------------------------------------------ other processes
def _ranks() -> Any:
    """The processes that were started together, if there are others."""
    found = [device.ranks for device in Device.opened() if device.ranks is not None]
    return found[0] if found and found[0].count > 1 else None


@contextmanager
def _together(group: Any) -> Iterator[None]:
    """All processes have left the block before one goes on."""
    yield
    if group is not None:
        group.barrier()
