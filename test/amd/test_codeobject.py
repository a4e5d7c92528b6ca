"""Code objects: built, linked and loaded; LLVM's tools read them; damaged ones are errors."""

from __future__ import annotations

import itertools
import struct
import subprocess
from pathlib import Path

import pytest

from test.amd import fuzz
from test.amd.kernels import compiled, kernels
from test.optional import need_program
from weft.amd import msgpack
from weft.amd.codeobject import Argument, KernelCode, build, load
from weft.amd.decode import decode_all
from weft.amd.descriptor import describe, unpack
from weft.amd.link import link
from weft.amd.targets import CDNA, TARGETS, Target
from weft.errors import ArgumentError, DataError

ARGUMENTS = (Argument("out"), Argument("n", 4, value_kind="by_value"), Argument("in"))


def end(gpu: Target) -> bytes:
    """s_endpgm"""
    return bytes.fromhex("000081bf" if gpu.family == CDNA else "0000b0bf")


def two_kernels(gpu: Target) -> bytes:
    first = KernelCode("first", end(gpu), ARGUMENTS, vgprs=20, group_segment_size=256)
    return build(gpu, [first, KernelCode("second", end(gpu) * 3, vgprs=100, sgprs=40)])


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_built_loads(name: str) -> None:
    loaded = load(two_kernels(TARGETS[name]))
    assert loaded.target.name == name
    assert list(loaded.kernels) == ["first", "second"]
    first, second = loaded.kernels.values()
    assert first.arguments == (
        Argument("out", 8, 0, "global_buffer", "global"),
        Argument("n", 4, 8, "by_value"),
        Argument("in", 8, 16, "global_buffer", "global"),
    )
    assert first.descriptor.kernarg_size == 24
    assert first.descriptor.group_segment_size == 256
    assert first.descriptor.vgprs(name) == 24
    assert first.descriptor.wave == loaded.target.wave
    assert first.descriptor.user_registers == {"kernarg_pointer": (0, 2)}
    image = loaded.image()
    assert image[second.entry : second.entry + 12] == end(loaded.target) * 3
    assert second.entry % 256 == 0


@pytest.mark.parametrize("name", TARGETS)
def test_llvms_tools_read_what_is_built(name: str, tmp_path: Path) -> None:
    reader, dumper = need_program("llvm-readelf-22"), need_program("llvm-objdump-22")
    path = tmp_path / "built.co"
    path.write_bytes(two_kernels(TARGETS[name]))
    listing = run(reader, "-a", path)
    assert f", {name}" in listing
    assert ".kernarg_segment_size: 24" in listing
    assert run(dumper, "-d", path).count("s_endpgm") == 4


def run(program: str, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TARGETS)
def test_what_llvm_emits_links_and_decodes(name: str) -> None:
    chosen = list(itertools.islice(kernels(), 0, 300, 43))
    for kernel, ir in chosen:
        loaded = load(link(compiled(ir, name)))
        found = loaded.kernels[kernel]
        assert [each.name for each in found.arguments[:3]] == ["out", "in", "n"]
        image = loaded.image()
        code = image[found.entry :]
        size = next(each.size for each in loaded.object.symbols if each.name == kernel)
        instructions = decode_all(code[:size], name)
        assert instructions[-1].mnemonic in ("s_endpgm", "s_code_end", "s_nop"), kernel


def test_several_objects_link_to_one() -> None:
    chosen = dict(itertools.islice(kernels(), 0, 3))
    loaded = load(link([compiled(ir, "gfx1100") for ir in chosen.values()]))
    assert list(loaded.kernels) == list(chosen)


def test_absolute_places_are_left_to_the_loader() -> None:
    ir = """
target triple = "amdgcn-amd-amdhsa"
@value = addrspace(1) global i32 42
@pointer = addrspace(1) global ptr addrspace(1) @value
define amdgpu_kernel void @nothing() { ret void }
"""
    loaded = load(link(compiled(ir, "gfx1100")))
    image = loaded.image(0x10000)
    (place,) = struct.unpack_from("<Q", image, loaded.symbols["pointer"])
    assert place == 0x10000 + loaded.symbols["value"]
    assert struct.unpack_from("<i", image, loaded.symbols["value"]) == (42,)


def test_the_linker_agrees_with_lld(tmp_path: Path) -> None:
    """Both images hold the same bytes at what the kernel's code refers to."""
    linker = need_program("lld-22")
    kernel, ir = next(each for each in kernels() if each[0] == "table_fadd_float")
    ir = ir.replace("zeroinitializer", "[float 1.0, float 2.0, float 3.0, float 4.0]")
    source, out = tmp_path / "in.o", tmp_path / "out.co"
    source.write_bytes(compiled(ir, "gfx1100"))
    run(linker, "-flavor", "gnu", "-shared", source, "-o", out)
    theirs, ours = load(out.read_bytes()), load(link(source.read_bytes()))
    for loaded in (theirs, ours):
        image = loaded.image()
        entry = loaded.kernels[kernel].entry
        code = decode_all(image[entry : entry + 512], "gfx1100")[:24]
        getter = next(each for each in code if each.mnemonic == "s_getpc_b64")
        at = code.index(getter)
        adder = next(each for each in code[at:] if each.mnemonic == "s_add_u32")
        assert adder.literal is not None
        place = entry + getter.offset + getter.size + adder.literal & 0xFFFFFFFF
        assert struct.unpack_from("<4f", image, place) == (1.0, 2.0, 3.0, 4.0)
    assert theirs.kernels[kernel].arguments == ours.kernels[kernel].arguments


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(DataError, match="no 64-bit little-endian ELF"):
        load(bytes(100))
    with pytest.raises(DataError, match="is linked already"):
        link(two_kernels(TARGETS["gfx1100"]))
    _, ir = next(kernels())
    with pytest.raises(DataError, match="link it first"):
        load(compiled(ir, "gfx1100"))
    undefined = """
target triple = "amdgcn-amd-amdhsa"
declare void @elsewhere()
define amdgpu_kernel void @calls() { call void @elsewhere()
 ret void }
"""
    with pytest.raises(DataError, match="no object defines the symbol elsewhere"):
        link(compiled(undefined, "gfx1100"))
    with pytest.raises(DataError, match="do not link"):
        link([compiled(ir, "gfx1100"), compiled(ir, "gfx950")])
    with pytest.raises(DataError, match="defined twice"):
        link([compiled(ir, "gfx1100")] * 2)
    with pytest.raises(ArgumentError, match="300 vector registers are asked for; 256"):
        describe("gfx1100", vgprs=300)
    with pytest.raises(ArgumentError, match="no waves of 32"):
        describe("gfx942", vgprs=3, wave=32)


def test_descriptors_round_trip() -> None:
    for name in TARGETS:
        made = describe(name, vgprs=77, sgprs=33, kernarg_size=40, dispatch_pointer=True)
        assert unpack(made.pack()) == made
        assert made.vgprs(name) >= 77
        assert made.user_registers["kernarg_pointer"] == (2, 2)


def test_metadata_round_trips() -> None:
    value = {"a": [1, 200, 70000, 1 << 40, -1, -200, -(1 << 40)], "b": "x" * 300, "c": None}
    value |= {"d": [True, False, 1.5], "e": {str(i): i for i in range(40)}, "f": list(range(20))}
    assert msgpack.unpack(msgpack.pack(value)) == value
    with pytest.raises(DataError, match="nested"):
        msgpack.unpack(b"\x91" * 100)
    with pytest.raises(DataError, match="elements"):
        msgpack.unpack(b"\xdd\xff\xff\xff\xff")


def test_damaged_inputs_are_errors() -> None:
    """A share of `python -m test.amd.fuzz`."""
    outcomes = fuzz.run(1500, seed=3)
    assert sum(outcomes.values()) == 1500
