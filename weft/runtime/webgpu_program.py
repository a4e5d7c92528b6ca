"""From WGSL to pipelines, and their launches.

In: a renderer's text. Out: the text, validated, which is what is kept on disk (WebGPU has no
binaries), and `WebGPUProgram`, which adds its launches to the commands that wait. On top of context
and memory, under the device.
Invariant: no memory is bound twice over the same bytes if one of the two is written: what would be
is computed in a copy.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.contracts import Compiler, Origin, ProgramFacts
from weft.device import Buffer
from weft.errors import ArgumentError, CompileError, DeviceError
from weft.helpers import round_up
from weft.runtime.launch_queue import LaunchedProgram
from weft.runtime.webgpu_context import Context
from weft.runtime.webgpu_memory import WebGPUAllocator
from weft.uop.resolve import sym_infer

# pipelines, bindings and variables that are kept for the next launch
_KEPT = 64


class WGSLCompiler(Compiler):
    """The package's validator: machine code is made when a pipeline is."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def cachekey(self) -> str:
        return "wgsl-1"

    def compile(self, src: str) -> bytes:
        self.module(src)
        return src.encode()

    def module(self, src: str) -> Any:
        """The module, or the validator's error with the kernel's name."""
        context = self._context
        context.use()
        try:
            return context.device.create_shader_module(code=src)
        except context.package.GPUError as error:
            name = re.search(r"fn (\w+)\(@builtin", src)
            kernel = name.group(1) if name else "a kernel"
            raise CompileError(f"{context.name} does not compile {kernel}: {error}") from None


class _Argument(NamedTuple):
    """A buffer of a kernel, and where it is bound."""

    slot: int
    buffer: Any
    start: int  # of the binding, in bytes
    nbytes: int  # of the binding
    inside: int  # bytes from there to the first element


class _Keeper:
    """The last few of something, by what they were made from."""

    def __init__(self) -> None:
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def put(self, key: Any, value: Any) -> Any:
        self._found[key] = value
        if len(self._found) > _KEPT:
            self._found.popitem(last=False)
        return value


class WebGPUProgram(LaunchedProgram):
    """A loaded kernel."""

    def __init__(
        self, allocator: WebGPUAllocator, facts: ProgramFacts, src: str, compiler: WGSLCompiler
    ) -> None:
        self._allocator = allocator
        self._context = allocator.context
        self._src, self._compiler = src, compiler
        self.name = facts.name
        self.buffer_count = facts.buffer_count
        self.variables = facts.variables
        kinds = [(kind, slot) for kind, slot in facts.layout if kind not in ("item", "word")]
        self._slots = [slot for _, slot in kinds]
        self._written = {slot for kind, slot in facts.layout if kind == "written"}
        sizes = [nbytes for kind, nbytes in facts.layout if kind == "item"]
        self._item = dict(zip(self._slots, sizes, strict=True))
        self._words = [word for kind, word in facts.layout if kind == "word"]
        self._sizes = facts.global_size or (1, 1, 1)
        self._lock = threading.Lock()
        self._pipelines, self._groups, self._values = _Keeper(), _Keeper(), _Keeper()
        self._most = self._context.limit("max-storage-buffer-binding-size")
        self._bindings, self._layout = self._declare(kinds)
        # made now, so that what the driver cannot compile is an error of this kernel
        self._pipeline(())

    def launch(
        self, bufs: Sequence[Buffer], vals: Sequence[int], wait: bool, origin: Origin | None
    ) -> float | None:
        """Submits the kernel; with `wait` the seconds until it was done."""
        if len(bufs) != self.buffer_count or len(vals) != len(self.variables):
            raise ArgumentError(
                f"{self.name} takes {self.buffer_count} buffers and {len(self.variables)} values, "
                f"but got {len(bufs)} and {len(vals)}"
            )
        context = self._context
        context.use()
        known = dict(zip(self.variables, vals, strict=True))
        sizes = tuple(
            [s if isinstance(s, int) else max(0, sym_infer(s, known)) for s in self._sizes]
        )
        if 0 in sizes:
            return 0.0 if wait else None
        if wait:
            context.synchronize()
        begun = time.perf_counter()
        with self._lock:
            arguments = [self._argument(slot, bufs[slot]) for slot in self._slots]
            arguments, copied = self._apart(arguments, bufs)
            starts = tuple([(a.slot, a.inside) for a in arguments if a.inside])
            pipeline = self._pipeline(starts)
            group = self._group(arguments, vals)
            context.dispatch(self.name, origin, pipeline, group, sizes)
            for buffer, temporary in copied:
                self._copy_back(buffer, temporary)
        if not wait:
            return None
        context.synchronize()
        return time.perf_counter() - begun

    # ------------------------------------------------------------ arguments
    def _argument(self, slot: int, buf: Buffer) -> _Argument:
        """A buffer as it is bound: from the last place before it that a binding may start at."""
        buffer, start = self._allocator.place(buf.opaque)
        inside = start % self._context.alignment
        if inside % self._item[slot]:
            raise ArgumentError(
                f"{self.name} was given memory that starts at byte {start}, which is no multiple "
                f"of its elements' {self._item[slot]} bytes; copy it first"
            )
        nbytes = round_up(inside + max(1, buf.nbytes), 4)
        if nbytes > self._most:
            raise DeviceError(
                f"{self.name} was given a buffer of {buf.nbytes} bytes, but "
                f"{self._context.name} binds at most {self._most}: use smaller tensors there, or "
                "another device"
            )
        return _Argument(slot, buffer, start - inside, nbytes, inside)

    def _apart(
        self, arguments: list[_Argument], bufs: Sequence[Buffer]
    ) -> tuple[list[_Argument], list[tuple[Buffer, Buffer]]]:
        """The arguments, copied where they would share bytes with one that is written; and which
        copies have to be copied back."""
        found: list[_Argument] = []
        copied: list[tuple[Buffer, Buffer]] = []
        # what is written keeps its place
        order = sorted(arguments, key=lambda a: a.slot not in self._written)
        for argument in order:
            if not any([self._clashes(argument, other) for other in found]):
                found.append(argument)
                continue
            buf = bufs[argument.slot]
            temporary = Buffer(buf.device, buf.size, buf.dtype).copy_from(buf)
            found.append(self._argument(argument.slot, temporary))
            if argument.slot in self._written:
                copied.append((buf, temporary))
        return sorted(found, key=lambda a: a.slot), copied

    def _clashes(self, one: _Argument, other: _Argument) -> bool:
        if one.buffer is not other.buffer:
            return False
        if one.slot not in self._written and other.slot not in self._written:
            return False
        return one.start < other.start + other.nbytes and other.start < one.start + one.nbytes

    def _copy_back(self, buffer: Buffer, temporary: Buffer) -> None:
        contents = temporary.as_memoryview()
        buffer.copyin(contents)

    # ------------------------------------------------------------ what a launch is made of
    def _declare(self, kinds: list[tuple[str, int]]) -> tuple[Any, Any]:
        """The bindings and the layout of pipelines: said, for what a kernel takes and does not use
        would otherwise be missing there."""
        context = self._context
        types = {slot: "read-only-storage" if kind == "read" else "storage" for kind, slot in kinds}
        if self._words:
            types[1 + max(self._slots, default=-1)] = "read-only-storage"
        visible = context.package.ShaderStage.COMPUTE
        entries = [
            {"binding": place, "visibility": visible, "buffer": {"type": kind}}
            for place, kind in types.items()
        ]
        device = context.device
        bindings = context.guarded(lambda: device.create_bind_group_layout(entries=entries))
        layout = context.guarded(
            lambda: device.create_pipeline_layout(bind_group_layouts=[bindings])
        )
        return bindings, layout

    def _pipeline(self, starts: tuple[tuple[int, int], ...]) -> Any:
        """The kernel for buffers that start so many bytes inside of their bindings."""
        found = self._pipelines.get(starts)
        if found is not None:
            return found
        context = self._context
        # written into the text: naga refuses constants of the pipeline beside constant vectors
        items = {slot: inside // self._item[slot] for slot, inside in starts}
        text = re.sub(
            r"override start(\d+): i32 = 0;",
            lambda found: f"const start{found[1]}: i32 = {items.get(int(found[1]), 0)};",
            self._src,
        )
        stage = {"module": self._compiler.module(text), "entry_point": self.name}
        try:
            made = context.device.create_compute_pipeline(layout=self._layout, compute=stage)
        except context.package.GPUError as error:
            raise CompileError(f"{context.name} does not load {self.name}: {error}") from None
        return self._pipelines.put(starts, made)

    def _group(self, arguments: list[_Argument], vals: Sequence[int]) -> Any:
        words = self._variable_words(vals)
        key = (words, *[(id(a.buffer), a.start, a.nbytes) for a in arguments])
        found = self._groups.get(key)
        if found is not None:
            return found[0]
        entries = [
            {
                "binding": a.slot,
                "resource": {"buffer": a.buffer, "offset": a.start, "size": a.nbytes},
            }
            for a in arguments
        ]
        if words:
            place = 1 + max(self._slots, default=-1)
            resource = {"buffer": self._variable_buffer(words), "offset": 0, "size": len(words)}
            entries.append({"binding": place, "resource": resource})
        context = self._context
        made = context.guarded(
            lambda: context.device.create_bind_group(layout=self._bindings, entries=entries)
        )
        # with the buffers: their ids are theirs as long as they live
        self._groups.put(key, (made, [a.buffer for a in arguments]))
        return made

    def _variable_words(self, vals: Sequence[int]) -> bytes:
        words = [vals[word // 2] >> 32 * (word % 2) & 0xFFFFFFFF for word in self._words]
        return struct.pack(f"<{len(words)}I", *words)

    def _variable_buffer(self, words: bytes) -> Any:
        found = self._values.get(words)
        if found is not None:
            return found
        context = self._context
        usage = context.package.BufferUsage.STORAGE
        made = context.guarded(
            lambda: context.device.create_buffer_with_data(data=words, usage=usage)
        )
        return self._values.put(words, made)
