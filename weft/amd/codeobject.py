"""Code objects: kernels with their metadata, built from machine code, linked, loaded.

In: machine code with a description, or relocatable objects as LLVM emits them. Out: a code object
that AMD's loader takes; and of such a file its kernels, their descriptors and arguments, and the
image to run. The AMD device stands on it. Invariant: `load(build(x))`
and `load(link(x))` know the kernels of `x`, and nothing outside a file is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.amd import elf, msgpack
from weft.amd.descriptor import SIZE, Descriptor, describe, unpack
from weft.amd.elf import Export, Object, Part
from weft.amd.targets import CDNA, Target, target
from weft.amd.writer import Writer
from weft.errors import ArgumentError, DataError

ABI = 4
# what a file may ask to be loaded: a few bytes of it could name any size
MOST_IMAGE = 1 << 28
METADATA = ("AMDGPU", 32)
FUNCTION, OBJECT = 2, 1
PROTECTED = 3

# relocation types, and what their places hold
ABSOLUTE64, RELATIVE64 = 3, 13
PATTERNS = {1: "lo", 2: "hi", 3: "q", 4: "rel", 5: "relq", 6: "lo", 10: "rel", 11: "relhi"}
PATTERNS |= {7: "got", 8: "got", 9: "gothi", 14: "rel16"}


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel, as the metadata has it."""

    name: str
    size: int = 8
    offset: int | None = None
    value_kind: str = "global_buffer"
    address_space: str = ""

    def metadata(self, offset: int) -> dict[str, Any]:
        """The map of the metadata."""
        found: dict[str, Any] = {".name": self.name, ".size": self.size, ".offset": offset}
        found[".value_kind"] = self.value_kind
        if self.value_kind == "global_buffer":
            found[".address_space"] = self.address_space or "global"
        return found


@dataclass(frozen=True)
class KernelCode:
    """A kernel to build: machine code, and what it needs."""

    name: str
    text: bytes = field(repr=False)
    arguments: Sequence[Argument] = ()
    vgprs: int = 8
    sgprs: int = 16
    agprs: int = 0
    group_segment_size: int = 0
    private_segment_size: int = 0
    workgroup_size: int = 1024
    workgroup_ids: tuple[bool, bool, bool] = (True, True, True)
    workitem_ids: int = 1
    dispatch_pointer: bool = False
    wave: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of a loaded code object; places are offsets in its image."""

    name: str
    symbol: str
    entry: int
    descriptor_at: int
    descriptor: Descriptor
    arguments: tuple[Argument, ...]
    metadata: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class CodeObject:
    """A code object: its kernels, symbols, metadata and image."""

    target: Target
    object: Object = field(repr=False)
    kernels: Mapping[str, Kernel]
    symbols: Mapping[str, int]
    metadata: Mapping[str, Any] = field(repr=False)
    size: int = 0

    def image(self, base: int = 0) -> bytes:
        """The loaded bytes, as they are when the image is put at `base`."""
        out = bytearray(self.size)
        for segment in self.object.segments:
            out[segment.address : segment.address + len(segment.data)] = segment.data
        for relocations in self.object.relocations.values():
            for each in relocations:
                if each.type != RELATIVE64:
                    raise DataError(f"the loader knows no relocation of type {each.type}")
                if each.offset + 8 > self.size or each.offset < 0:
                    raise DataError(f"a relocation at {each.offset:#x} is outside the image")
                value = base + each.addend & 0xFFFFFFFFFFFFFFFF
                struct.pack_into("<Q", out, each.offset, value)
        return bytes(out)

    @property
    def text_place(self) -> tuple[int, int]:
        """Where the machine code of all kernels is in the image, and its bytes."""
        found = [each for each in self.object.sections if each.flags & elf.EXECUTABLE]
        if len(found) != 1:
            raise DataError(f"a code object has one section of code; this has {len(found)}")
        if found[0].address + found[0].size > self.size:
            raise DataError(f"the code at {found[0].address:#x} is outside the image")
        return found[0].address, found[0].size

    @property
    def text(self) -> bytes:
        """The machine code of all kernels."""
        start, size = self.text_place
        return self.image()[start : start + size]


def metadata_of(target_name: str, kernels: Iterable[Mapping[str, Any]]) -> bytes:
    """The note with the metadata of kernels."""
    found = {"amdhsa.version": [1, 2], "amdhsa.target": target_name}
    content = msgpack.pack(found | {"amdhsa.kernels": list(kernels)})
    return elf.note(*METADATA, content)


def layout(arguments: Sequence[Argument]) -> tuple[list[int], int]:
    """Where each argument is, and the size of all of them."""
    offsets, at = [], 0
    for each in arguments:
        natural = min(each.size, 8) if each.size and not each.size & (each.size - 1) else 8
        at = each.offset if each.offset is not None else elf.aligned(at, natural)
        offsets.append(at)
        at += each.size
    return offsets, elf.aligned(at, 8)


def _kernel_metadata(kernel: KernelCode, gpu: Target, kernarg_size: int) -> dict[str, Any]:
    offsets, _ = layout(kernel.arguments)
    found = {
        ".name": kernel.name,
        ".symbol": f"{kernel.name}.kd",
        ".kernarg_segment_size": kernarg_size,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": kernel.group_segment_size,
        ".private_segment_fixed_size": kernel.private_segment_size,
        ".wavefront_size": kernel.wave or gpu.wave,
        ".sgpr_count": kernel.sgprs,
        ".vgpr_count": kernel.vgprs,
        ".max_flat_workgroup_size": kernel.workgroup_size,
        ".args": [a.metadata(at) for a, at in zip(kernel.arguments, offsets, strict=True)],
    }
    if gpu.family == CDNA:
        found[".agpr_count"] = kernel.agprs
    return found


def build(gpu: str | Target, kernels: KernelCode | Sequence[KernelCode]) -> bytes:
    """A code object of kernels that are given as machine code."""
    found = target(gpu)
    if isinstance(kernels, KernelCode):
        kernels = [kernels]
    if not kernels or len({each.name for each in kernels}) != len(kernels):
        raise ArgumentError("a code object needs kernels, each with a name of its own")
    text = bytearray()
    descriptors, symbols, entries, records = [], [], [], []
    for number, kernel in enumerate(kernels):
        text += bytes(-len(text) % 256)
        _, kernarg_size = layout(kernel.arguments)
        descriptors.append(_descriptor(kernel, found, kernarg_size))
        start, size = len(text), len(kernel.text)
        entries.append(start)
        symbols.append(Export(kernel.name, ".text", start, size, FUNCTION, visibility=PROTECTED))
        place = SIZE * number
        symbols.append(Export(f"{kernel.name}.kd", ".rodata", place, SIZE, OBJECT))
        records.append(_kernel_metadata(kernel, found, kernarg_size))
        text += kernel.text
    triple = f"amdgcn-amd-amdhsa--{found.name}"
    parts = [
        Part(".note", elf.NOTE, elf.ALLOCATED, metadata_of(triple, records), 4),
        Part(".rodata", 1, elf.ALLOCATED, bytes(SIZE * len(descriptors)), 64),
        Part(".text", 1, elf.ALLOCATED | elf.EXECUTABLE, bytes(text), 256),
    ]
    writer = Writer(elf.machine_flags(found), ABI, parts, symbols)
    writer.reserve(0)
    table = bytearray()
    for number, (descriptor, start) in enumerate(zip(descriptors, entries, strict=True)):
        distance = writer.address(".text", start) - writer.address(".rodata", SIZE * number)
        packed = bytearray(descriptor.pack())
        struct.pack_into("<q", packed, 16, distance)
        table += packed
    writer.parts[".rodata"].data = bytes(table)
    return writer.finish()


def _descriptor(kernel: KernelCode, gpu: Target, kernarg_size: int) -> Descriptor:
    return describe(
        gpu,
        vgprs=kernel.vgprs,
        sgprs=kernel.sgprs,
        agprs=kernel.agprs,
        kernarg_size=kernarg_size,
        group_segment_size=kernel.group_segment_size,
        private_segment_size=kernel.private_segment_size,
        workgroup_ids=kernel.workgroup_ids,
        workitem_ids=kernel.workitem_ids,
        dispatch_pointer=kernel.dispatch_pointer,
        wave=kernel.wave,
    )


def load(data: bytes) -> CodeObject:
    """The kernels of a code object."""
    found = elf.read(data)
    if found.type != elf.SHARED:
        raise DataError("the file is a relocatable object: link it first")
    gpu = found.target
    size = max((each.address + each.memory_size for each in found.segments), default=0)
    if size > MOST_IMAGE:
        raise DataError(f"the image would have {size} bytes for a file of {len(data)}")
    symbols = {each.name: each for each in found.symbols if each.name and each.section}
    metadata = _metadata(found)
    kernels = {}
    image = CodeObject(gpu, found, {}, {}, {}, size).image()
    for record in metadata["amdhsa.kernels"]:
        kernel = _kernel(record, symbols, image)
        kernels[kernel.name] = kernel
    places = {name: each.value for name, each in symbols.items()}
    return CodeObject(gpu, found, kernels, places, metadata, size)


def _metadata(found: Object) -> dict[str, Any]:
    """The metadata of a file, with what is needed of it checked."""
    for section in found.sections:
        if section.type == elf.NOTE:
            content = elf.notes(section).get(METADATA)
            if content is not None:
                metadata = msgpack.unpack(content)
                if not isinstance(metadata, dict):
                    raise DataError("the metadata of the code object is no map")
                kernels = metadata.setdefault("amdhsa.kernels", [])
                if not isinstance(kernels, list) or not all(isinstance(k, dict) for k in kernels):
                    raise DataError("the metadata's amdhsa.kernels is no list of maps")
                return metadata
    raise DataError("the code object has no metadata: a note of AMDGPU of type 32")


def _field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """A value of the metadata that must be there."""
    value = record.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise DataError(f"the metadata's {name} is {value!r}; expected is {kind.__name__}")
    return value


def _kernel(record: Mapping[str, Any], symbols: Mapping[str, elf.Symbol], image: bytes) -> Kernel:
    name, symbol = _field(record, ".name", str), _field(record, ".symbol", str)
    if symbol not in symbols:
        raise DataError(f"kernel {name}: the file has no symbol {symbol}")
    place = symbols[symbol].value
    if place > len(image) - SIZE or place < 0:
        raise DataError(f"kernel {name}: its descriptor at {place:#x} is outside the image")
    descriptor = unpack(image[place : place + SIZE])
    entry = place + descriptor.entry
    if not 0 <= entry < len(image):
        raise DataError(f"kernel {name}: its code at {entry:#x} is outside the image")
    arguments = []
    for each in record.get(".args", []):
        if not isinstance(each, dict):
            raise DataError(f"kernel {name}: an argument is {each!r}, no map")
        size, offset = _field(each, ".size", int), _field(each, ".offset", int)
        if not 0 <= offset <= 1 << 16 or not 0 <= size <= 1 << 16:
            raise DataError(f"kernel {name}: an argument of {size} bytes at {offset}")
        kind = _field(each, ".value_kind", str)
        space = each.get(".address_space", "")
        arguments.append(Argument(str(each.get(".name", "")), size, offset, kind, str(space)))
    return Kernel(name, symbol, entry, place, descriptor, tuple(arguments), record)
