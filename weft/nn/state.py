"""The state of a model: its tensors by name, saved to files and loaded from them.

In: objects that hold Tensors; paths. Out: dicts of Tensors; files.
The file formats themselves are in `weft.nn.formats`; this passes their names on.
Invariant: loading reads only files and builds only Tensors; no code of a file is ever run.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from weft.device import Device
from weft.errors import ArgumentError, DataError, MissingKeyError
from weft.helpers import tqdm
from weft.nn.formats.archives import tar_extract, zip_extract
from weft.nn.formats.gguf import gguf_load
from weft.nn.formats.safetensors import safe_load, safe_load_metadata, safe_save
from weft.nn.formats.source import TensorIO
from weft.nn.formats.torch_checkpoint import torch_load
from weft.tensor import Tensor
from weft.uop.node import UOp

__all__ = [
    "TensorIO",
    "accept_filename",
    "get_parameters",
    "get_state_dict",
    "gguf_load",
    "load_state_dict",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "tar_extract",
    "torch_load",
    "zip_extract",
]

Found = TypeVar("Found")


def accept_filename(function: Callable[[Tensor], Found]) -> Callable[[Any], Found]:
    """A function of a Tensor of bytes that also takes the path of a file; tinygrad's decorator.

    >>> accept_filename(len)(Tensor(b"weft"))
    4
    """

    @functools.wraps(function)
    def from_any(source: Any) -> Found:
        is_path = isinstance(source, (str, os.PathLike))
        return function(Tensor(Path(source)) if is_path else source)

    return from_any


# what has attributes but is no part of a model
_NOT_WALKED = (type, ModuleType, FunctionType, MethodType, UOp, str, bytes, int, float)
_LISTED = 10


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor) -> dict[str, Any]:
    """The tensors inside an object, named by the way to them.

    It walks dicts, lists, tuples and the attributes of objects.

    >>> class Net:
    ...     def __init__(self):
    ...         self.layers = [Tensor([1.0]), {"bias": Tensor([2.0])}]
    >>> list(get_state_dict(Net()))
    ['layers.0', 'layers.1.bias']
    """
    found: dict[str, Any] = {}
    # an object on the way to itself is not walked again; `path` holds those on the way
    path: dict[int, Any] = {}
    start = prefix.strip(".")
    stack: list[Iterator[tuple[str, Any]]] = [iter([(start, obj)])]
    owners: list[int] = []
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            if owners:
                path.pop(owners.pop(), None)
            continue
        name, item = step
        if isinstance(item, tensor_type):
            found[name] = item
            continue
        children = None if id(item) in path else _children(item)
        if children:
            path[id(item)] = item
            owners.append(id(item))
            stack.append(iter([(f"{name}.{key}" if name else key, v) for key, v in children]))
    return found


def _children(item: Any) -> list[tuple[str, Any]] | None:
    """The parts of an object by name; None for what has none."""
    if isinstance(item, Mapping):
        return [(str(key), value) for key, value in item.items()]
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return list(item._asdict().items())
    if isinstance(item, (list, tuple)):
        return [(str(number), value) for number, value in enumerate(item)]
    if item is None or isinstance(item, (*_NOT_WALKED, Tensor)):
        return None
    named = dict(getattr(item, "__dict__", {}))
    if dataclasses.is_dataclass(item):
        names = [field.name for field in dataclasses.fields(item)]
        named = {name: getattr(item, name) for name in names if hasattr(item, name)} | named
    return list(named.items())


def get_parameters(obj: Any) -> list[Tensor]:
    """The tensors inside an object, in the order of `get_state_dict`.

    >>> [t.tolist() for t in get_parameters({"a": Tensor([1]), "b": [Tensor([2])]})]
    [[1], [2]]
    """
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Gives the tensors of a model the values of a state, and returns them.

    Each takes the dtype of its new value and keeps its device. With `strict`, every tensor of the
    model must be in the state; `verbose` shows progress and what the state has beyond; `consume`
    takes the tensors out of the state as they are loaded; `realize=False` leaves them lazy.

    >>> net = {"weight": Tensor.zeros(2)}
    >>> _ = load_state_dict(net, {"weight": Tensor([1.0, 2.0])}, verbose=False)
    >>> net["weight"].tolist()
    [1.0, 2.0]
    """
    wanted = get_state_dict(model)
    if consume and not hasattr(state_dict, "pop"):
        raise ArgumentError("consume=True takes tensors out of a dict; this mapping has no pop")
    _check_fit(wanted, state_dict, strict)
    beyond = [name for name in state_dict if name not in wanted]
    if verbose and beyond:
        print(f"the model has no place for {len(beyond)} tensors of the state: {_listed(beyond)}")
    loaded = []
    bar: tqdm[Any] = tqdm(total=len(wanted), desc="loading", disable=not verbose)
    with bar:
        for name, tensor in wanted.items():
            if name in state_dict:
                loaded.append(_load_one(tensor, state_dict[name], realize, own=consume))
                if consume:
                    state_dict.pop(name)  # type: ignore[attr-defined]
            bar.update(1)
    if realize:
        # what the new values replaced, and what making those took, is not needed a second time
        for device in {device for tensor in loaded for device in _devices_of(tensor)}:
            Device[device].allocator.release_cache()
    return loaded


def _devices_of(tensor: Tensor) -> tuple[str, ...]:
    device = tensor.device
    return () if device is None else (device,) if isinstance(device, str) else device


def _load_one(tensor: Tensor, value: Tensor, realize: bool, own: bool) -> Tensor:
    if value.shape != tensor.shape:
        value = value.reshape(tensor.shape)
    moved = value
    if isinstance(tensor.device, tuple):
        # cut as it was
        moved = value.shard_like(tensor)
    elif tensor.device is not None or value.device is not None:
        moved = value.to(tensor.device)
    if moved is value and realize and not own:
        # memory of its own: training the model must not change the state it was loaded from
        moved = value.clone()
    tensor.replace(moved)
    return tensor.realize() if realize else tensor


def _check_fit(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor], strict: bool) -> None:
    """Raises one error that names everything that is missing or of another shape."""
    problems = []
    missing = [name for name in wanted if name not in state]
    if missing and strict:
        beyond = [name for name in state if name not in wanted]
        text = f"the state has no {_listed(missing)}"
        problems.append(text + (f" (it has {_listed(beyond)})" if beyond else ""))
    for name, tensor in wanted.items():
        value = state.get(name)
        if value is None:
            continue
        if not isinstance(value, Tensor):
            problems.append(f"{name} of the state is a {type(value).__name__}, not a Tensor")
        elif value.shape != tensor.shape and {value.shape, tensor.shape} != {(), (1,)}:
            problems.append(f"{name} is {tensor.shape} in the model, {value.shape} in the state")
    if problems:
        kind = MissingKeyError if missing and strict else DataError
        raise kind("the state does not fit the model: " + "; ".join(problems[:_LISTED]))


def _listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
