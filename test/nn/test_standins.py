"""Objects beside the tensors of a checkpoint: replaced by plain data, named, never run."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import decimal
import enum
import io
import pathlib
import pickle
import types
import warnings
import zipfile
from collections import OrderedDict, deque, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import Tensor
from weft.errors import DataError
from weft.nn.state import torch_load

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
RAN: list[str] = []


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 7


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Settings:
    rate: float
    names: list[str]


@dataclasses.dataclass
class Slotted:
    __slots__ = ("rate",)
    rate: float


class State(OrderedDict[str, Any]):
    pass


class Names(list[str]):
    pass


class Words(str):
    __slots__ = ()


Pair = namedtuple("Pair", "left right")


class Loud:
    """Everything that a loader might call."""

    def __init__(self, value: Any = 3) -> None:
        RAN.append("init")
        self.value = value

    def __new__(cls, *arguments: Any) -> Loud:
        RAN.append("new")
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        RAN.append("setstate")
        self.__dict__.update(state)


class Outer:
    class Inner(enum.Enum):
        A = "a"


def a_function() -> None:
    RAN.append("function")


def zip_of(value: Any, protocol: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(value, protocol))
    return file.getvalue()


ME = __name__
CASES: dict[str, tuple[Any, Any, str]] = {
    "namespace": (argparse.Namespace(lr=0.1, n=[1]), {"lr": 0.1, "n": [1]}, "argparse.Namespace"),
    "simple namespace": (types.SimpleNamespace(a=1), {"a": 1}, "types.SimpleNamespace"),
    "enum": (Color.RED, 1, f"{ME}.Color"),
    "int enum": (Level.HIGH, 7, f"{ME}.Level"),
    "flags": (Access.READ | Access.WRITE, 3, f"{ME}.Access"),
    "enum as key": ({Color.RED: "r"}, {1: "r"}, f"{ME}.Color"),
    "nested class": (Outer.Inner.A, "a", f"{ME}.Outer.Inner"),
    "path": (pathlib.PurePosixPath("/a/b.txt"), "/a/b.txt", "PurePosixPath"),
    "windows path": (pathlib.PureWindowsPath("C:/a/b"), "C:\\a\\b", "PureWindowsPath"),
    "dataclass": (Settings(0.5, ["a"]), {"rate": 0.5, "names": ["a"]}, f"{ME}.Settings"),
    "slots": (Slotted(0.5), {"rate": 0.5}, f"{ME}.Slotted"),
    "dict subclass": (State(a=1, b=[2]), {"a": 1, "b": [2]}, f"{ME}.State"),
    "list subclass": (Names(["a", "b"]), ["a", "b"], f"{ME}.Names"),
    "text subclass": (Words("abc"), "abc", f"{ME}.Words"),
    "named tuple": (Pair(1, [2]), (1, [2]), f"{ME}.Pair"),
    "deque": (deque([1, 2], 5), [1, 2], "collections.deque"),
    "decimal": (decimal.Decimal("1.50"), "1.50", "decimal.Decimal"),
    "date": (datetime.date(2024, 2, 29), "2024-02-29", "datetime.date"),
    "duration": (datetime.timedelta(minutes=2), 120.0, "datetime.timedelta"),
    "moment": (
        datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
        "2024-02-29T12:00:00+00:00",
        "datetime.datetime",
    ),
    "class": (Settings, f"{ME}.Settings", f"{ME}.Settings"),
    "function": ({"f": a_function}, {"f": f"{ME}.a_function"}, f"{ME}.a_function"),
    "float64": (np.float64(1.5), 1.5, "numpy.float64"),
    "int64": ({"step": np.int64(-3)}, {"step": -3}, "numpy.int64"),
    "bool": (np.bool_(True), True, "numpy.bool"),
    "big-endian": (np.array(258, ">i2")[()], 258, "numpy.int16"),
    "numpy text": (np.str_("abc"), "abc", "numpy.str"),
    "numpy date": (np.datetime64("2024-02-29"), "2024-02-29", "numpy.datetime64"),
    "numpy dtype": (np.dtype("float32"), "numpy.dtype(f4)", "numpy.dtype"),
    "texts": (np.array([["a", "b"]]), [["a", "b"]], "numpy.ndarray"),
    "objects": (np.array([1, "a"], object), [1, "a"], "numpy.ndarray"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", CASES)
def test_objects_are_replaced_by_plain_data_and_named(case: str, protocol: int) -> None:
    value, expected, name = CASES[case]
    if case == "slots" and protocol < 2:
        pytest.skip("protocols 0 and 1 have no slots")
    with pytest.warns(UserWarning, match="nothing was run") as caught:
        found = torch_load(zip_of({"other": [value], "epoch": 3}, protocol))
    assert found == {"other": [expected], "epoch": 3}
    assert type(found["other"][0]) is type(expected)
    assert name in str(caught[0].message) and len(caught) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", ">f4", "int64", "uint8", "bool", "float16"]
)
def test_arrays_of_numpy_become_tensors(dtype: str, protocol: int) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    with pytest.warns(UserWarning, match=r"numpy\.ndarray"):
        found = torch_load(zip_of([array, np.asfortranarray(array), array[0, :0]], protocol))
    assert all(isinstance(part, Tensor) for part in found)
    np.testing.assert_array_equal(found[0].numpy(), array)
    np.testing.assert_array_equal(found[1].numpy(), array)
    assert found[2].shape == (0,)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_of_a_replaced_object_runs(protocol: int) -> None:
    data = zip_of({"a": Loud(), "b": Loud}, protocol)
    RAN.clear()
    with pytest.warns(UserWarning, match="Loud"):
        found = torch_load(data)
    assert found == {"a": {"value": 3}, "b": f"{ME}.Loud"} and not RAN


def test_an_object_that_holds_itself_and_is_shared_stays_one() -> None:
    value = argparse.Namespace(n=1)
    value.me = (value, [value])
    with pytest.warns(UserWarning, match="Namespace"):
        first, second = torch_load(zip_of([value, value], 4))
    assert first is second and first["me"][0] is first and first["me"][1][0] is first


def test_objects_made_of_objects_alone() -> None:
    # a call of a call of ... a class, a hundred thousand deep
    depth = 100000
    pickled = b"cuser\nThing\nq\x00" + b"h\x00" * depth + b")R" + b"\x85R" * depth + b"."
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
    with pytest.warns(UserWarning, match=r"user\.Thing"):
        assert torch_load(file.getvalue()) == {}


def test_tensors_inside_objects_load(tmp_path: Path) -> None:
    torch = need("torch")
    path = tmp_path / "x.pt"
    saved = {"args": argparse.Namespace(mean=torch.ones(3)), "pair": Pair(torch.zeros(2), 1)}
    torch.save({**saved, "version": torch.__version__, "optimiser": torch.optim.Adam}, path)
    with pytest.warns(UserWarning, match=r"argparse\.Namespace"):
        found = torch_load(path)
    assert found["args"]["mean"].tolist() == [1.0, 1.0, 1.0]
    assert found["pair"][0].tolist() == [0.0, 0.0] and found["pair"][1] == 1
    assert found["version"] == str(torch.__version__)
    assert found["optimiser"] == "torch.optim.adam.Adam"


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_model_of_a_program_is_refused(tmp_path: Path, is_zip: bool) -> None:
    torch = need("torch")
    kind = type("Net", (torch.nn.Module,), {"__module__": ME})
    globals()["Net"] = kind
    try:
        path = tmp_path / "x.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that its source is not found
            torch.save(kind(), path, _use_new_zipfile_serialization=is_zip)
        with pytest.raises(DataError, match=r"Net.*state_dict"):
            torch_load(path)
    finally:
        del globals()["Net"]


def test_plain_checkpoints_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_load(zip_of({"a": OrderedDict(b=1), "c": {1, 2}}, 2))


NUMPY = b"cnumpy.core.multiarray\n"
HOSTILE = {
    "a function of the system": b"cos\nsystem\n.",
    "an attribute of the system": b"cbuiltins\ngetattr\n(cbuiltins\nobject\nK\x01tR.",
    "an object without class": b"ccopyreg\n_reconstructor\n(K\x01K\x02NtR.",
    "bytes of objects": NUMPY + b"scalar\n(cnumpy\ndtype\n(S'O8'\ntRS'abcdefgh'\ntR.",
    "a number that is too short": NUMPY + b"scalar\n(cnumpy\ndtype\n(S'f8'\ntRC\x01atR.",
    "a type of nonsense": NUMPY + b"scalar\n(cnumpy\ndtype\n(S'f8,f8'\ntRC\x01atR.",
    "an array without bytes": (
        NUMPY + b"_reconstruct\n)R(K\x01(K\x02tcnumpy\ndtype\n(S'f8'\ntRI00\nC\x01atb."
    ),
    "an array of a negative size": (
        NUMPY + b"_reconstruct\n)R(K\x01(J\xff\xff\xff\xfftcnumpy\ndtype\n(S'f8'\ntRI00\nC\x00tb."
    ),
    "a state of nothing": NUMPY + b"_reconstruct\n)RNb.",
    "a path of numbers": b"cpathlib\nPosixPath\n(K\x01tR.",
    "a date of numbers": b"cdatetime\ndatetime\n(K\x01tR.",
    "a date of wrong bytes": b"cdatetime\ndatetime\n(C\x0a" + b"\xff" * 10 + b"tR.",
    "a key that is an object": b"}(cuser\nThing\n(K\x01]tRK\x01u.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_objects_end_in_an_error(case: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", HOSTILE[case])
    with pytest.raises(DataError):
        torch_load(file.getvalue())
