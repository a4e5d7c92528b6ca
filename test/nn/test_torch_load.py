"""torch_load: what PyTorch saves, and nothing that runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import Tensor, dtypes
from weft.errors import DataError
from weft.nn.formats.pickled import PickleReader
from weft.nn.state import get_state_dict, torch_load

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


# ------------------------------------------------------------ with PyTorch
@pytest.fixture(scope="module")
def torch() -> Any:
    return need("torch")


def examples(torch: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    base = torch.randn(6, 4)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimiser.step()
    return {
        "base": base,
        "transposed": base.t(),
        "strided": base[1:5:2, ::3],
        "column": base[:, 1],
        "offset": base[3],
        "expanded": torch.randn(3, 1).expand(3, 4),
        "unfolded": torch.arange(6).unfold(0, 3, 1),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "number": torch.tensor(3.5),
        "nothing": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "bfloat16": torch.randn(5).bfloat16(),
        "half": torch.randn(5).half(),
        "double": torch.randn(5).double(),
        "bool": torch.tensor([True, False]),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "int16": torch.arange(5, dtype=torch.int16),
        "int64": torch.arange(5),
        "uint16": torch.arange(5).to(torch.uint16),
        "fp8": torch.randn(5).to(torch.float8_e4m3fn),
        "plain": [1, -2, 2.5, 10**30, None, True, "text", b"bytes", (1, (2,)), {3: 4}, {5, 6}],
        "nested": ({"inner": [base[0]]}, OrderedDict(a=base)),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
    }


def compare(torch: Any, found: Any, expected: Any, where: str = "") -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, Tensor), where
        assert found.shape == tuple(expected.shape), where
        expected = expected.detach()
        narrow = expected.dtype in (torch.bfloat16, torch.float8_e4m3fn)
        array = (expected.float() if narrow else expected).numpy()
        np.testing.assert_array_equal(found.numpy(), array, err_msg=where)
        assert found.dtype.itemsize == expected.element_size(), where
    elif isinstance(expected, dict):
        assert type(found) is dict and list(found) == list(expected), where
        for key in expected:
            compare(torch, found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected), where
        for number, (left, right) in enumerate(zip(found, expected, strict=True)):
            compare(torch, left, right, f"{where}.{number}")
    else:
        assert found == expected and type(found) is type(expected), where


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_equals_what_was_saved(torch: Any, tmp_path: Path, is_zip: bool, protocol: int) -> None:
    saved = examples(torch)
    path = tmp_path / "x.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip, pickle_protocol=protocol)
    compare(torch, torch_load(path), saved)
    data = path.read_bytes()
    compare(torch, torch_load(data)["strided"], saved["strided"])
    compare(torch, torch_load(Tensor(data))["offset"], saved["offset"])


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_loaded_model_gives_the_same_logits(torch: Any, tmp_path: Path, is_zip: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
    ).double()
    path = tmp_path / "x.bin"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=is_zip)
    layers = [
        {"weight": Tensor.zeros(16, 8), "bias": Tensor.zeros(16)},
        None,
        {"weight": Tensor.zeros(3, 16), "bias": Tensor.zeros(3)},
    ]
    state = torch_load(path)
    for name, tensor in get_state_dict(layers).items():
        assert state[name].shape == tensor.shape
    inputs = torch.randn(5, 8).double()
    weights = {name: tensor.to(None) for name, tensor in state.items()}
    hidden = Tensor(inputs.numpy()).linear(weights["0.weight"].T, weights["0.bias"]).relu()
    found = hidden.linear(weights["2.weight"].T, weights["2.bias"])
    np.testing.assert_allclose(found.numpy(), model(inputs).detach().numpy(), rtol=1e-7, atol=1e-7)


def test_types_and_shapes_are_plain(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(
        {"size": torch.Size([2, 3]), "dtype": torch.float16, "device": torch.device("cpu")}, path
    )
    assert torch_load(path) == {"size": (2, 3), "dtype": dtypes.float16, "device": "cpu"}


def test_a_saved_view_of_a_large_storage_is_only_that_view(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(100000)[50000:50003], path)
    assert torch_load(path).tolist() == [50000, 50001, 50002]


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_whole_models_are_refused(torch: Any, tmp_path: Path, is_zip: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(2, 2), path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(DataError, match=r"torch.nn.modules.linear.Linear.*state_dict"):
        torch_load(path)


def test_sparse_and_quantised_tensors_are_refused(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.eye(3).to_sparse(), path)
    with pytest.raises(DataError, match="_rebuild_sparse_tensor"):
        torch_load(path)


# ------------------------------------------------------------ nothing runs
class Evil:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def zip_of(pickled: bytes, **members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in members.items():
            archive.writestr(f"archive/data/{name}", data)
    return file.getvalue()


def legacy_of(pickled: bytes, keys: list[str] | None = None, data: bytes = b"") -> bytes:
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    front = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, machine)]
    return b"".join([*front, pickled, pickle.dumps(keys or [], 2), data])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [zip_of, legacy_of], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "evil",
    [
        Evil(os.system, "touch ran"),
        Evil(eval, "open('ran', 'w')"),
        Evil(getattr, "text", "upper"),
        Evil(__import__, "antigravity"),
        Evil(print, "ran"),
        Evil(pickle.loads, b"N."),
    ],
    ids=["system", "eval", "getattr", "import", "print", "pickle"],
)
def test_calls_are_refused(
    evil: Evil, wrap: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="refers to"):
        torch_load(wrap(pickle.dumps({"a": [evil]}, protocol)))
    assert list(tmp_path.iterdir()) == []


HOSTILE = {
    # what allowed names must not be talked into
    "import by attribute": b"ccollections\nOrderedDict.fromkeys\n.",
    "old instance": b"(S'a'\nios\nsystem\n.",
    "extension": b"\x82\x01.",
    "call of a number": b"K\x01)R.",
    "call of a tensor type": b"ctorch\nFloatStorage\n)R.",
    "call of a call": b"ccollections\nOrderedDict\n)R)R.",
    "encoding by a name": b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.",
    "size of a list": b"ctorch\nSize\n(((S'a'\nttR.".replace(b"((", b"(", 1),
    "reduce without tuple": b"ccollections\nOrderedDict\n]R.",
    "attributes of nothing": b"}b.",
    "persistent id of text": b"S'a'\nQ.",
    "old persistent id": b"Pstorage\n.",
    "empty stack": b".",
    "two values": b"NN.",
    "open mark": b"(N.",
    "no end": b"N",
    "long text": b"X\xff\xff\xff\x7fabc.",
    "longer bytes": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "huge memo index": b"Nr\xff\xff\xff\xffj\xfe\xff\xff\xff.",
    "unknown memo": b"h\x05.",
    "append to a number": b"K\x01(K\x02e.",
    "items of odd count": b"}(K\x01u.",
    "key is a list": b"}(]K\x01u.",
    "key is a tuple of tuples": b"}()\x85\x85K\x01u.",
    "frozenset of lists": b"(]\x91.",
    "number of letters": b"Iabc\n.",
    "line without end": b"I" + b"1" * 100,
    "no protocol": b"\x80",
    "wrong text": b"X\x01\x00\x00\x00\xff.",
    "recursive tuple key": b"}()" + b"\x94h\x00h\x00\x86" * 60 + b"K\x01s.",
}


@pytest.mark.parametrize("wrap", [zip_of, legacy_of], ids=["zip", "legacy"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_end_in_an_error(case: str, wrap: Any) -> None:
    with pytest.raises(DataError):
        torch_load(wrap(HOSTILE[case]))


def test_plain_data_of_every_protocol_equals_python_s() -> None:
    value = {
        "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, -(10**40), 1.5, -0.0],
        "text": ["", "a", "ü", "x" * 300],
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "none": None,
        "bools": [True, False],
        (1, "a"): {"b": {}},
    }
    shared = [1]
    value["shared"] = [shared, shared]
    for protocol in PROTOCOLS:
        reader = PickleReader(pickle.dumps(value, protocol), {}, lambda x: x, "here")
        found = reader.load()
        assert found == value
        assert found["shared"][0] is found["shared"][1]


def test_containers_that_hold_themselves_load() -> None:
    cycle: list[Any] = [1]
    cycle.append((cycle, 2))
    found = torch_load(zip_of(pickle.dumps(cycle, 2)))
    assert found[0] == 1 and found[1][0] is found and found[1][1] == 2


def test_deep_nesting_loads() -> None:
    found = torch_load(zip_of(b"N" + b"\x85" * 100000 + b"."))
    depth = 0
    while found is not None:
        found, depth = found[0], depth + 1
    assert depth == 100000


# ------------------------------------------------------------ numbers that lie
def storage(count: int = 4, kind: bytes = b"FloatStorage", key: bytes = b"0") -> bytes:
    return (b"(S'storage'\nctorch\n%s\nS'%s'\nS'cpu'\nI%d\nt" % (kind, key, count)) + b"Q"


def tensor(
    stored: bytes, offset: int = 0, shape: tuple[int, ...] = (4,), strides: tuple[int, ...] = (1,)
) -> bytes:
    numbers = [b"(" + b"".join(b"I%d\n" % n for n in part) + b"t" for part in (shape, strides)]
    return (
        (b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + b"I%d\n" % offset)
        + b"".join(numbers)
        + b"I00\n}tR."
    )


DATA = struct.pack("<4f", 1, 2, 3, 4)


def test_a_tensor_made_by_hand_loads() -> None:
    pickled = tensor(storage(), 1, (2,), (2,))
    assert torch_load(zip_of(pickled, **{"0": DATA})).tolist() == [2.0, 4.0]
    legacy = legacy_of(pickled, ["0"], struct.pack("<q", 4) + DATA)
    assert torch_load(legacy).tolist() == [2.0, 4.0]


LIES = {
    "storage too large": tensor(storage(5)),
    "storage negative": tensor(storage(-1)),
    "storage huge": tensor(storage(1 << 62), 0, (1 << 62,)),
    "storage missing": tensor(storage(key=b"7")),
    "storage named by a path": tensor(storage(key=b"../0")),
    "unknown storage": tensor(storage(kind=b"ComplexFloatStorage")),
    "offset outside": tensor(storage(), 1),
    "offset negative": tensor(storage(), -1),
    "shape outside": tensor(storage(), 0, (5,)),
    "shape negative": tensor(storage(), 0, (-4,)),
    "stride outside": tensor(storage(), 0, (2,), (4,)),
    "stride negative": tensor(storage(), 3, (2,), (-1,)),
    "fewer strides": tensor(storage(), 0, (2, 2), (1,)),
    "too many elements": tensor(storage(), 0, (1 << 40, 1 << 40), (0, 0)),
    "too many axes": tensor(storage(), 0, (1,) * 100, (1,) * 100),
    "storage as a value": storage() + b".",
}


@pytest.mark.parametrize("case", LIES)
def test_lying_numbers_are_refused(case: str) -> None:
    with pytest.raises(DataError):
        torch_load(zip_of(LIES[case], **{"0": DATA}))
    with pytest.raises(DataError):
        torch_load(legacy_of(LIES[case], ["0"], struct.pack("<q", 4) + DATA))


LEGACY_LIES = {
    "cut": legacy_of(tensor(storage()), ["0"], struct.pack("<q", 4) + DATA[:-1]),
    "no data": legacy_of(tensor(storage()), ["0"]),
    "other count": legacy_of(tensor(storage()), ["0"], struct.pack("<q", 3) + DATA),
    "no keys": legacy_of(tensor(storage()), []),
    "another key": legacy_of(tensor(storage()), ["1"], struct.pack("<q", 4) + DATA),
    "a key twice": legacy_of(tensor(storage()), ["0", "0"], (struct.pack("<q", 4) + DATA) * 2),
    "magic": pickle.dumps(5, 2),
    "version": pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1002, 2),
    "no checkpoint": b"hello",
    "empty": b"",
    "a list": pickle.dumps([], 2),
}


@pytest.mark.parametrize("case", LEGACY_LIES)
def test_damaged_legacy_files_are_refused(case: str) -> None:
    with pytest.raises(DataError):
        torch_load(LEGACY_LIES[case])


def test_other_zips_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(DataError, match="no PyTorch checkpoint"):
        torch_load(file.getvalue())
    script = io.BytesIO()
    with zipfile.ZipFile(script, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("a/constants.pkl", b"N.")
    with pytest.raises(DataError, match="TorchScript"):
        torch_load(script.getvalue())
    big = io.BytesIO()
    with zipfile.ZipFile(big, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("a/byteorder", b"big")
    with pytest.raises(DataError, match="big-endian"):
        torch_load(big.getvalue())
