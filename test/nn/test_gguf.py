"""gguf_load: values and tensors as the gguf package writes them, and headers that lie."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import GlobalCounters, Tensor, dtypes
from weft.errors import DataError
from weft.nn.formats.dequantise import FORMATS, BlockFormat
from weft.nn.state import gguf_load

BLOCKS = {number: f for number, f in FORMATS.items() if isinstance(f, BlockFormat)}
# where a block has its float16 scales; the others begin with one
HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
    "NVFP4": (),
}


@pytest.fixture(scope="module")
def gguf() -> Any:
    return need("gguf")


def random_blocks(layout: BlockFormat, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Any bytes, but scales that are finite and of a usual size."""
    generator = np.random.default_rng(layout.nbytes)
    count = columns // layout.count
    blocks = generator.integers(0, 256, (rows, count, layout.nbytes), dtype=np.uint8)
    for start in HALVES.get(layout.name, (0,)):
        halves = generator.standard_normal((rows, count)).astype("<f2")
        blocks[:, :, start : start + 2] = halves.view(np.uint8).reshape(rows, count, 2)
    if layout.name == "IQ1_M":
        # the high bits of its scale: below infinity
        blocks[:, :, 55] &= 0x3F
    if layout.name == "MXFP4":
        blocks[:, :, 0] = generator.integers(100, 140, (rows, count))
    if layout.name == "Q8_K":
        scales = generator.standard_normal((rows, count)).astype("<f4")
        blocks[:, :, :4] = scales.view(np.uint8).reshape(rows, count, 4)
    return blocks.reshape(rows, count * layout.nbytes)


def reference(gguf: Any, raw: np.ndarray[Any, Any], layout: BlockFormat) -> np.ndarray[Any, Any]:
    """What the gguf package makes of rows of blocks; it writes Q8_K, and does not read it."""
    kind = gguf.GGMLQuantizationType[layout.name]
    if layout.name != "Q8_K":
        values: np.ndarray[Any, Any] = gguf.quants.dequantize(raw, kind)
        return values
    blocks = raw.reshape(len(raw), -1, layout.nbytes)
    scales = np.ascontiguousarray(blocks[:, :, :4]).view("<f4")
    return (scales * blocks[:, :, 4:260].view(np.int8)).reshape(len(raw), -1)


@pytest.mark.parametrize("number", BLOCKS, ids=[f.name for f in BLOCKS.values()])
def test_dequantises_as_the_reference(gguf: Any, number: int) -> None:
    layout = BLOCKS[number]
    kind = gguf.GGMLQuantizationType(number)
    assert kind.name == layout.name
    assert gguf.GGML_QUANT_SIZES[kind] == (layout.count, layout.nbytes)
    raw = random_blocks(layout, 3, 1024)
    expected = reference(gguf, raw, layout)
    found = layout.dequantise(Tensor(raw.reshape(-1, layout.nbytes))).reshape(3, 1024)
    assert found.dtype is dtypes.float32
    np.testing.assert_array_equal(found.numpy(), expected)


def test_every_kind_that_the_package_reads_is_read(gguf: Any) -> None:
    assert {kind.name for kind in gguf.quants._type_traits} <= {f.name for f in FORMATS.values()}


@pytest.mark.parametrize("number", BLOCKS, ids=[f.name for f in BLOCKS.values()])
def test_a_product_unpacks_the_blocks_inside(gguf: Any, number: int) -> None:
    """One kernel over the raw bytes: no weights are stored on the way."""
    layout = BLOCKS[number]
    raw = random_blocks(layout, 64, 512)
    blocks = Tensor(raw.reshape(-1, layout.nbytes)).realize()
    x = np.random.default_rng(1).standard_normal((1, 512)).astype(np.float32)
    vector = Tensor(x).realize()
    product = vector @ layout.dequantise(blocks).reshape(64, 512).T
    GlobalCounters.reset()
    found = product.numpy()
    assert GlobalCounters.kernel_count == 1
    weights = reference(gguf, raw, layout).astype(np.float64)
    bound = 4 * np.finfo(np.float32).eps * np.sqrt(512) * (np.abs(x) @ np.abs(weights).T)
    assert (np.abs(found - x @ weights.T) <= bound).all()


@pytest.mark.parametrize("number", BLOCKS, ids=[f.name for f in BLOCKS.values()])
def test_edges_of_blocks(gguf: Any, number: int) -> None:
    """Blocks of equal bytes: every field at its least, at its greatest, and in patterns."""
    layout = BLOCKS[number]
    raw = np.repeat(np.array([[0], [0x11], [0x3B], [0x80], [0xAA]], np.uint8), layout.nbytes, 1)
    for start in HALVES.get(layout.name, (0,)):
        raw[:, start : start + 2] = np.array([0.5], "<f2").view(np.uint8)
    expected = reference(gguf, raw, layout)
    np.testing.assert_array_equal(layout.dequantise(Tensor(raw)).numpy(), expected)


def written(gguf: Any, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """A file with values of every kind and tensors of every format; the tensors' values."""
    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_string("text", "grüße")
    for name, value in NUMBERS.items():
        getattr(writer, f"add_{name}")(f"a {name}", value)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("texts", ["a", "", "ü"])
    writer.add_array("floats", [0.5, -1.0])
    expected = {}
    for name, dtype in {"F32": np.float32, "F16": np.float16, "F64": np.float64}.items():
        expected[name] = generator.standard_normal((3, 5, 2)).astype(dtype)
        writer.add_tensor(name, expected[name])
    for name in ("int8", "int16", "int32", "int64"):
        expected[name] = generator.integers(-100, 100, (7,)).astype(name)
        writer.add_tensor(name, expected[name])
    kind = gguf.GGMLQuantizationType
    raw = gguf.quants.quantize(generator.standard_normal((2, 64)).astype(np.float32), kind.BF16)
    writer.add_tensor("BF16", raw, raw_dtype=kind.BF16)
    expected["BF16"] = gguf.quants.dequantize(raw, kind.BF16)
    for number, layout in BLOCKS.items():
        raw = random_blocks(layout, 12, 512)
        writer.add_tensor(layout.name, raw, raw_dtype=kind(number))
        expected[layout.name] = reference(gguf, raw, layout)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


NUMBERS = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float32": 0.5,
    "float64": 0.1,
    "bool": True,
}


def test_a_whole_file(gguf: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    expected = written(gguf, path)
    for source in (path, Tensor(path), Tensor(path).to(None), path.read_bytes()):
        values, tensors = gguf_load(source)
        assert values["text"] == "grüße" and values["general.architecture"] == "llama"
        assert {name: values[f"a {name}"] for name in NUMBERS} == NUMBERS
        assert values["numbers"] == [1, 2, 3] and values["texts"] == ["a", "", "ü"]
        assert values["floats"] == [0.5, -1.0]
        assert list(tensors) == list(expected)
        for name, array in expected.items():
            assert tensors[name].shape == array.shape
            np.testing.assert_allclose(
                tensors[name].numpy(), array, rtol=1.3e-6, atol=1e-5, err_msg=name
            )


def test_weights_stay_quantised_until_they_are_used(gguf: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    expected = written(gguf, path)
    whole = Tensor(path).to(None).realize()
    _, tensors = gguf_load(whole)
    vector = Tensor.ones(512).contiguous().realize()
    for layout in BLOCKS.values():
        GlobalCounters.reset()
        found = (tensors[layout.name] * vector).sum(1).realize()
        # blocks, small scales and codebooks are read, never weights as floats
        assert GlobalCounters.global_mem < expected[layout.name].nbytes, layout.name
        assert GlobalCounters.kernel_count <= 2, layout.name
        array = expected[layout.name].astype(np.float64)
        bound = 4 * np.finfo(np.float32).eps * np.sqrt(512) * np.abs(array).sum(1)
        assert (np.abs(found.numpy() - array.sum(1)) <= bound).all(), layout.name


# ------------------------------------------------------------ headers that lie
def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(tensors: int, values: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values)


def info(name: bytes = b"t", sizes: tuple[int, ...] = (4,), kind: int = 0, at: int = 0) -> bytes:
    packed = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + packed + struct.pack("<IQ", kind, at)


def file(*infos: bytes, data: bytes = bytes(16), values: tuple[bytes, ...] = ()) -> bytes:
    front = header(len(infos), len(values)) + b"".join(values) + b"".join(infos)
    return front + bytes(-len(front) % 32) + data


def number(key: bytes, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def test_a_file_made_by_hand() -> None:
    data = struct.pack("<4f", 1, 2, 3, 4)
    _, tensors = gguf_load(file(info(sizes=(2, 2)), data=data))
    assert tensors["t"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    _, tensors = gguf_load(file(info(sizes=(0, 3))))
    assert tensors["t"].shape == (3, 0)
    values, _ = gguf_load(file(values=(number(b"general.alignment", 8),)))
    assert values == {"general.alignment": 8}


ARRAY = text(b"a") + struct.pack("<I", 9)
DAMAGED = {
    "empty": b"",
    "magic": b"GGML" + bytes(100),
    "cut": b"GGUF",
    "version": header(0, 0, version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "many tensors": header(1 << 60, 0),
    "many values": header(0, 1 << 60),
    "long key": header(0, 1) + struct.pack("<Q", 1 << 62) + bytes(20),
    "key beyond reason": header(0, 1) + text(b"x" * 100000) + bytes(20),
    "unknown value": header(0, 1) + text(b"a") + struct.pack("<I", 77) + bytes(20),
    "value cut": header(0, 1) + text(b"a") + struct.pack("<IB", 10, 1),
    "unknown array": header(0, 1) + ARRAY + struct.pack("<IQ", 77, 1) + bytes(20),
    "long array": header(0, 1) + ARRAY + struct.pack("<IQ", 0, 1 << 62) + bytes(20),
    "long array of texts": header(0, 1) + ARRAY + struct.pack("<IQ", 8, 1 << 40) + bytes(20),
    "deep arrays": header(0, 1) + ARRAY + struct.pack("<IQ", 9, 1) * 1000 + bytes(20),
    "value twice": file(values=(number(b"a", 1), number(b"a", 2))),
    "alignment zero": file(info(), values=(number(b"general.alignment", 0),)),
    "alignment text": file(
        info(), values=(text(b"general.alignment") + struct.pack("<I", 8) + text(b"8"),)
    ),
    "tensor twice": file(info(), info(at=32), data=bytes(64)),
    "many axes": file(info(sizes=(1,) * 9)),
    "huge size": file(info(sizes=(1 << 63,))),
    "many elements": file(info(sizes=(1 << 40, 1 << 40))),
    "unknown format": file(info(kind=99)),
    "removed format": file(info(kind=4)),
    "beyond the end": file(info(sizes=(5,))),
    "offset beyond the end": file(info(at=1 << 62)),
    "offset not aligned": file(info(at=8), data=bytes(64)),
    "overlap": file(info(b"a"), info(b"b"), data=bytes(64)),
    "half a block": file(info(sizes=(16,), kind=2), data=bytes(64)),
    "block cut": file(info(sizes=(32,), kind=2), data=bytes(17)),
    "scalar of blocks": file(info(sizes=(), kind=2), data=bytes(64)),
    "no data": file(info(), data=b""),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(case: str) -> None:
    with pytest.raises(DataError) as error:
        gguf_load(DAMAGED[case])
    assert len(str(error.value)) < 600
