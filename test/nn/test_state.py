"""get_state_dict, get_parameters, load_state_dict, TensorIO."""

from __future__ import annotations

import collections
import dataclasses
import io
import sys
from typing import Any, NamedTuple

import pytest

from weft import Tensor, dtypes, nn
from weft.errors import ArgumentError, DataError
from weft.helpers import GlobalCounters
from weft.nn.state import TensorIO, get_parameters, get_state_dict, load_state_dict
from weft.runtime.memory import HostAllocator, host_memory


class Pair(NamedTuple):
    left: Any
    right: Any


class Layer:
    def __init__(self, value: float) -> None:
        self.weight = Tensor([value])
        self.name = "layer"
        self.module = sys
        self.function = len
        self.kind = Layer


@dataclasses.dataclass(slots=True)
class Slotted:
    weight: Tensor


def test_walks_every_container() -> None:
    model = {
        "layer": Layer(1.0),
        "list": [Tensor([2.0]), (Tensor([3.0]), None)],
        "ordered": collections.OrderedDict(a=Tensor([4.0])),
        "pair": Pair(Tensor([5.0]), Layer(6.0)),
        "slotted": Slotted(Tensor([7.0])),
        3: Tensor([8.0]),
    }
    found = get_state_dict(model)
    assert {name: tensor.item() for name, tensor in found.items()} == {
        "layer.weight": 1.0,
        "list.0": 2.0,
        "list.1.0": 3.0,
        "ordered.a": 4.0,
        "pair.left": 5.0,
        "pair.right.weight": 6.0,
        "slotted.weight": 7.0,
        "3": 8.0,
    }
    assert [id(tensor) for tensor in get_parameters(model)] == [id(t) for t in found.values()]


def test_prefix_and_tensor_type() -> None:
    assert list(get_state_dict(Layer(1.0), prefix="net")) == ["net.weight"]
    assert list(get_state_dict({"": {"a": Tensor([1])}})) == ["a"]
    assert get_state_dict(Layer(1.0), tensor_type=str) == {"name": "layer"}
    single = Tensor([1])
    assert get_state_dict(single) == {"": single}


def test_a_tensor_under_two_names_has_both() -> None:
    tensor = Tensor([1.0])
    assert get_state_dict({"a": tensor, "b": tensor}).keys() == {"a", "b"}


def test_objects_that_hold_themselves() -> None:
    layer = Layer(1.0)
    layer.parent = [layer]  # type: ignore[attr-defined]
    assert list(get_state_dict(layer)) == ["weight"]


def test_deep_models_do_not_recurse() -> None:
    model: Any = Tensor([1.0])
    for _ in range(5000):
        model = [model]
    assert len(get_state_dict(model)) == 1


def test_load_replaces_values() -> None:
    model = {"a": Tensor.zeros(2, 2), "b": Tensor.zeros(1)}
    held = model["a"]
    loaded = load_state_dict(
        model, {"a": Tensor([[1.0, 2.0], [3.0, 4.0]]), "b": Tensor(5.0)}, verbose=False
    )
    assert held.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert model["b"].tolist() == [5.0]
    assert len(loaded) == 2 and loaded[0] is held


def test_load_takes_the_dtype_of_the_state() -> None:
    model = {"a": Tensor.zeros(2)}
    load_state_dict(model, {"a": Tensor([1.0, 2.0]).half()}, verbose=False)
    assert model["a"].dtype is dtypes.float16 and model["a"].tolist() == [1.0, 2.0]


def test_a_loaded_model_does_not_change_its_state() -> None:
    model = {"a": Tensor.zeros(2)}
    state = {"a": Tensor([1.0, 2.0]).realize()}
    load_state_dict(model, state, verbose=False)
    model["a"].assign(model["a"] + 1).realize()
    assert model["a"].tolist() == [2.0, 3.0]
    assert state["a"].tolist() == [1.0, 2.0]


def test_strict_names_what_is_missing_and_what_does_not_fit() -> None:
    model = {"a": Tensor.zeros(2), "b": Tensor.zeros(3), "c": Tensor.zeros(4)}
    with pytest.raises(DataError) as error:
        load_state_dict(model, {"a": Tensor([1.0]), "x": Tensor([1.0])}, verbose=False)
    assert "no b, c (it has x)" in str(error.value)
    assert "a is (2,) in the model, (1,) in the state" in str(error.value)
    with pytest.raises(DataError, match="is a list, not a Tensor"):
        load_state_dict({"a": Tensor([1])}, {"a": [1]}, verbose=False)  # type: ignore[dict-item]


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model = {"a": Tensor.zeros(2), "b": Tensor.zeros(3)}
    with pytest.raises(DataError):
        load_state_dict(model, {"a": Tensor.ones(2), "b": Tensor.ones(2)}, verbose=False)
    assert model["a"].tolist() == [0.0, 0.0]


def test_not_strict_and_consume(capsys: pytest.CaptureFixture[str]) -> None:
    model = {"a": Tensor.zeros(1), "b": Tensor.zeros(1)}
    state = {"a": Tensor([1.0]), "more": Tensor([2.0])}
    load_state_dict(model, state, strict=False, consume=True)
    assert model["a"].tolist() == [1.0] and model["b"].tolist() == [0.0]
    assert list(state) == ["more"]
    assert "no place for 1 tensors of the state: more" in capsys.readouterr().out


def test_lazy_loading_stays_lazy() -> None:
    model = {"a": Tensor.zeros(2)}
    load_state_dict(model, {"a": Tensor([1.0, 2.0]) * 2}, verbose=False, realize=False)
    assert "lazy" in repr(model["a"]) and model["a"].tolist() == [2.0, 4.0]


def test_tensor_io_reads_like_a_file() -> None:
    data = bytes(range(256)) * 300
    file, reference = TensorIO(Tensor(data)), io.BytesIO(data)
    for position, whence, length in [(0, 0, 3), (-5, 2, 10), (10, 0, 70000), (-7, 1, 2), (9, 0, 0)]:
        assert file.seek(position, whence) == reference.seek(position, whence)
        assert file.read(length) == reference.read(length)
        assert file.tell() == reference.tell()
    assert file.readable() and file.seekable() and not file.writable()
    assert io.BufferedReader(TensorIO(Tensor(data))).read() == data
    assert file.seek(10**12) == 10**12 and file.read(1) == b""
    with pytest.raises(ArgumentError, match="before the first"):
        file.seek(-1)
    with pytest.raises(ArgumentError, match="one-dimensional Tensor of uint8"):
        TensorIO(Tensor([1.0]))


def test_loading_leaves_no_memory_but_the_weights() -> None:
    """The first values, and all that computing them took, go back to the system."""
    sizes = (512, 1024, 640)
    source = [nn.Linear(*sizes[:2]), nn.Linear(*sizes[1:])]
    values = {name: value.realize() for name, value in get_state_dict(source).items()}
    weights = sum(value.nbytes() for value in values.values())
    HostAllocator("CPU").release_cache()
    mapped = host_memory.mapped_bytes
    model = [nn.Linear(*sizes[:2]), nn.Linear(*sizes[1:])]
    Tensor.realize(*get_parameters(model))
    used = GlobalCounters.mem_used
    load_state_dict(model, values, verbose=False)
    assert GlobalCounters.mem_used == used
    assert host_memory.mapped_bytes - mapped < 1.2 * weights
