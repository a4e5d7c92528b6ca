"""A driver of a GPU that is not there: the functions of libcuda over memory of the host.

Work is deferred as on a real GPU: a stream runs when somebody waits for it, so whoever reads too
early, or reuses memory too early, sees it here. Kernels are texts for the interpreter; it runs them
with groups and barriers, after this has found their arguments as a kernel's own prologue does: by
value, or in a table of words in the GPU's memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from weft.errors import WeftError
from weft.renderer.base import Target
from weft.renderer.groups import WORD_SHIFT, Layout, word_layout
from weft.renderer.python import PythonRenderer, parse
from weft.runtime.cuda_context import Context
from weft.runtime.cuda_driver import NOT_READY, OUT_OF_MEMORY, Driver
from weft.runtime.interpreter import Interpreter
from weft.runtime.ops_cuda import CUDADevice, Toolchain
from weft.runtime.ops_python import PythonCompiler
from weft.runtime.steps import view_memory
from weft.uop.evaluate import evaluate_uop
from weft.uop.node import UOp
from weft.uop.opset import Ops

ILLEGAL_ADDRESS = 700
LAUNCH_FAILED = 719
PAGEABLE_AT_ONCE = 64 << 10
_ATTRIBUTES = {16: 132, 75: 9, 76: 0, 38: 50 << 20, 8: 48 << 10, 97: 227 << 10, 20: 0}
_NAMES = {2: "CUDA_ERROR_OUT_OF_MEMORY", 700: "CUDA_ERROR_ILLEGAL_ADDRESS"}


class GroupRenderer(PythonRenderer):
    """Programs for a GPU, as text for the interpreter."""

    def layout(self, uops: Any) -> Layout:
        return word_layout(uops)


def toolchain(context: Context, target: Target, arch: str) -> Toolchain:
    """What the fake GPU runs."""
    return lambda: GroupRenderer(target), PythonCompiler()


def open_fake(name: str = "CUDA", library: FakeLibrary | None = None) -> CUDADevice:
    """The device itself, over a fake driver."""
    return CUDADevice(name, Driver(library or FakeLibrary()), toolchain)


class Trap(Exception):
    """A kernel did what no kernel may."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Event:
    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.position = 0

    @property
    def is_done(self) -> bool:
        return self.stream is None or self.stream.done >= self.position


class Stream:
    """Work in order. `done` counts what has run."""

    def __init__(self, library: FakeLibrary) -> None:
        self.library = library
        self.work: list[Callable[[], None]] = []
        self.done = 0
        self.submitted = 0

    def add(self, step: Callable[[], None]) -> None:
        self.work.append(step)
        self.submitted += 1

    def run(self, until: int | None = None) -> None:
        last = self.submitted if until is None else until
        while self.done < last:
            step = self.work.pop(0)
            # counted first: a step that waits for another stream is not run again by it
            self.done += 1
            try:
                step()
            except Trap as trap:
                self.library.lost = self.library.lost or trap.code


def number(argument: Any) -> int:
    """An argument of a call as a number: a handle, an address or a size."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if isinstance(argument, ctypes.Array):
        return ctypes.addressof(argument)
    if isinstance(argument, bytes):
        return ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value or 0
    if hasattr(argument, "_obj"):
        return ctypes.addressof(argument._obj)
    return int(argument.value or 0)


def put(target: Any, value: Any) -> None:
    """Writes a result through a pointer argument."""
    target._obj.value = value


class Function:
    """A kernel of a module."""

    def __init__(self, text: str) -> None:
        self.name, uops = parse(text)
        self.layout = word_layout(uops)
        self.interpreter = Interpreter(self.name, uops)
        self.specials = {u.arg: u for u in uops if u.op is Ops.SPECIAL}

    def size(self, index: str, bound: dict[UOp, int]) -> int:
        found = self.specials.get(index)
        return 1 if found is None else int(evaluate_uop(found.src[0], bound))


class FakeLibrary:
    """Every function that `Driver` asks for, as an attribute."""

    def __init__(
        self, memory_bytes: int = 1 << 30, devices: int = 1, version: int = 13000, init: int = 0
    ) -> None:
        self.memory_bytes = memory_bytes
        self.devices = devices
        self.version = version
        self.init = init
        self.lost = 0
        self.allocations: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.handles: dict[int, Any] = {}
        self.calls: dict[str, int] = {}
        self.most_in_use = 0
        self.lock = threading.RLock()

    def handle(self, thing: Any) -> int:
        found = len(self.handles) + 0x1000
        self.handles[found] = thing
        return found

    def of(self, argument: Any) -> Any:
        return self.handles[number(argument)]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        function = getattr(type(self), f"do_{name.removesuffix('_v2')}", None)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            with self.lock:
                self.calls[name] = self.calls.get(name, 0) + 1
                if name in ("cuGetErrorName", "cuGetErrorString"):
                    function(self, *arguments)
                    return 0
                code: int = self.lost or function(self, *arguments) or 0
                return self.lost or code

        return call

    # ------------------------------------------------------------ the machine
    def do_cuInit(self, flags: Any) -> int:
        return self.init

    def do_cuDriverGetVersion(self, found: Any) -> None:
        put(found, self.version)

    def do_cuGetErrorName(self, code: int, text: Any) -> None:
        put(text, _NAMES.get(code, "CUDA_ERROR_OTHER").encode())

    def do_cuGetErrorString(self, code: int, text: Any) -> None:
        put(text, b"as a fake says it")

    def do_cuDeviceGetCount(self, found: Any) -> None:
        put(found, self.devices)

    def do_cuDeviceGet(self, found: Any, ordinal: int) -> None:
        put(found, ordinal)

    def do_cuDeviceGetName(self, text: Any, size: int, device: int) -> None:
        text.value = b"Fake GPU"

    def do_cuDeviceGetAttribute(self, found: Any, which: int, device: int) -> None:
        put(found, _ATTRIBUTES[which])

    def do_cuDeviceTotalMem(self, found: Any, device: int) -> None:
        put(found, self.memory_bytes)

    def do_cuDeviceCanAccessPeer(self, found: Any, device: int, peer: int) -> None:
        put(found, 1)

    def do_cuDevicePrimaryCtxRetain(self, found: Any, device: int) -> None:
        put(found, self.handle("context"))

    def do_cuCtxSetCurrent(self, context: Any) -> None:
        assert self.of(context) == "context"

    def do_cuCtxEnablePeerAccess(self, context: Any, flags: int) -> None:
        pass

    def do_cuCtxSynchronize(self) -> None:
        self.run_all()

    # ------------------------------------------------------------ streams and events
    def run_all(self) -> None:
        for thing in list(self.handles.values()):
            if isinstance(thing, Stream):
                thing.run()

    def do_cuStreamCreate(self, found: Any, flags: int) -> None:
        put(found, self.handle(Stream(self)))

    def do_cuStreamSynchronize(self, stream: Any) -> None:
        self.of(stream).run()

    def do_cuStreamQuery(self, stream: Any) -> int:
        return NOT_READY if self.of(stream).work else 0

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        found = self.of(event)
        other, position = found.stream, found.position

        def wait() -> None:
            if other is not None:
                other.run(position)

        self.of(stream).add(wait)

    def do_cuEventCreate(self, found: Any, flags: int) -> None:
        put(found, self.handle(Event()))

    def do_cuEventRecord(self, event: Any, stream: Any) -> None:
        found, where = self.of(event), self.of(stream)
        found.stream, found.position = where, where.submitted

    def do_cuEventQuery(self, event: Any) -> int:
        return 0 if self.of(event).is_done else NOT_READY

    def do_cuEventSynchronize(self, event: Any) -> None:
        found = self.of(event)
        if found.stream is not None:
            found.stream.run(found.position)

    def do_cuEventElapsedTime(self, found: Any, first: Any, last: Any) -> None:
        assert self.of(first).is_done and self.of(last).is_done
        put(found, 0.25)

    def do_cuEventDestroy(self, event: Any) -> None:
        pass

    # ------------------------------------------------------------ memory
    @property
    def in_use(self) -> int:
        return sum(len(memory) for memory in self.allocations.values())

    def do_cuMemGetInfo(self, free: Any, total: Any) -> None:
        put(free, self.memory_bytes - self.in_use)
        put(total, self.memory_bytes)

    def do_cuMemAlloc(self, found: Any, nbytes: int) -> int:
        if self.in_use + nbytes > self.memory_bytes:
            return OUT_OF_MEMORY
        memory = (ctypes.c_uint8 * nbytes)()
        ctypes.memset(memory, 0xA5, nbytes)
        self.allocations[ctypes.addressof(memory)] = memory
        self.most_in_use = max(self.most_in_use, self.in_use)
        put(found, ctypes.addressof(memory))
        return 0

    def do_cuMemFree(self, address: Any) -> None:
        self.run_all()
        del self.allocations[number(address)]

    def do_cuMemHostAlloc(self, found: Any, nbytes: int, flags: int) -> None:
        memory = (ctypes.c_uint8 * nbytes)()
        self.pinned[ctypes.addressof(memory)] = memory
        put(found, ctypes.addressof(memory))

    def do_cuPointerGetAttribute(self, found: Any, which: int, address: Any) -> int:
        at = number(address)
        known = any(start <= at < start + len(m) for start, m in self.allocations.items())
        if not known and not self.is_pinned(at):
            return 1
        put(found, 2 if known else 1)
        return 0

    def do_cuMemFreeHost(self, address: Any) -> None:
        self.run_all()
        del self.pinned[number(address)]

    def window(self, address: int, nbytes: int) -> memoryview:
        """Memory of the GPU; a trap if it is not all inside one allocation."""
        for start, memory in self.allocations.items():
            if start <= address and address + nbytes <= start + len(memory):
                place = address - start
                return memoryview(memory).cast("B")[place : place + nbytes]
        raise Trap(ILLEGAL_ADDRESS)

    def is_pinned(self, address: int) -> bool:
        return any(start <= address < start + len(m) for start, m in self.pinned.items())

    def do_cuMemcpyHtoDAsync(self, target: Any, source: Any, nbytes: int, stream: Any) -> None:
        to, start = number(target), number(source)
        if self.is_pinned(start):
            # read when it is its turn
            self.of(stream).add(lambda: self._write(to, ctypes.string_at(start, nbytes)))
            return
        assert nbytes <= PAGEABLE_AT_ONCE, "a large copy of ordinary memory would wait"
        data = ctypes.string_at(start, nbytes)
        self.of(stream).add(lambda: self._write(to, data))

    def _write(self, address: int, data: bytes) -> None:
        self.window(address, len(data))[:] = data

    def do_cuMemcpyDtoHAsync(self, target: Any, source: Any, nbytes: int, stream: Any) -> None:
        to, start = number(target), number(source)

        def read() -> None:
            ctypes.memmove(to, bytes(self.window(start, nbytes)), nbytes)

        self.of(stream).add(read)
        if not self.is_pinned(to):
            self.of(stream).run()

    def do_cuMemcpyDtoDAsync(self, target: Any, source: Any, nbytes: int, stream: Any) -> None:
        to, start = number(target), number(source)
        self.of(stream).add(lambda: self._write(to, bytes(self.window(start, nbytes))))

    def do_cuMemcpyPeerAsync(
        self, target: Any, to: Any, source: Any, start: Any, nbytes: int, stream: Any
    ) -> None:
        self.do_cuMemcpyDtoDAsync(target, source, nbytes, stream)

    # ------------------------------------------------------------ programs
    def do_cuModuleLoadData(self, module: Any, image: bytes) -> int:
        try:
            put(module, self.handle(Function(image.decode())))
        except (WeftError, UnicodeDecodeError):
            return 200  # CUDA_ERROR_INVALID_IMAGE
        return 0

    def do_cuModuleUnload(self, module: Any) -> None:
        pass

    def do_cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        found = self.of(module)
        put(function, self.handle(found))
        return 0 if found.name.encode() == name else 500

    def do_cuFuncGetAttribute(self, found: Any, which: int, function: Any) -> None:
        put(found, 0)

    def do_cuFuncSetAttribute(self, function: Any, which: int, value: int) -> None:
        pass

    def do_cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        *sizes, _, stream, pointers, _ = rest
        kernel = self.of(function)
        arguments = read_arguments(kernel.layout, number(pointers))
        self.of(stream).add(lambda: self.run_kernel(kernel, arguments, sizes[:3], sizes[3:]))

    def run_kernel(
        self, kernel: Function, arguments: list[int], grid: list[int], block: list[int]
    ) -> None:
        """What the hardware does: the prologue, then the program."""
        table = arguments[0]
        memory: dict[int, Any] = {}
        values: list[int] = []
        sizes = {param.arg.slot: param for param in kernel.interpreter.params}
        groups = dict(enumerate(grid))
        for (kind, detail), argument in zip(kernel.layout, arguments, strict=True):
            if kind == "buffer":
                address = argument
                if table:
                    below = argument & ((1 << WORD_SHIFT) - 1)
                    address = self.word(table, argument >> WORD_SHIFT) + below
                param = sizes[detail]
                nbytes = param.arg.size * param.dtype.itemsize
                view = self.window(address, nbytes) if nbytes else memoryview(b"")
                memory[detail] = view_memory(view, param.dtype, param.arg.size)
            elif kind == "value":
                value = self.word(table, argument) if table else argument
                values.append(_signed(value, detail))
            elif kind == "groups":
                value = self.word(table, argument) if table else argument
                assert value <= groups[detail], "a grid is smaller than its number of groups"
                groups[detail] = value
        bound = dict(zip(kernel.interpreter.variables, values, strict=True))
        if 0 in groups.values():
            return
        for axis in range(3):
            assert groups[axis] == kernel.size(f"gidx{axis}", bound), "the grid of another kernel"
            assert block[axis] == kernel.size(f"lidx{axis}", bound), "the block of another kernel"
        try:
            kernel.interpreter.run(memory, values)
        except WeftError:
            raise Trap(LAUNCH_FAILED) from None

    def word(self, table: int, place: int) -> int:
        return int.from_bytes(self.window(table + 8 * place, 8), "little")

    # ------------------------------------------------------------ graphs
    def do_cuGraphCreate(self, graph: Any, flags: int) -> None:
        put(graph, self.handle([]))

    def do_cuGraphAddKernelNode(
        self, node: Any, graph: Any, before: Any, count: int, params: Any
    ) -> None:
        nodes = self.of(graph)
        if nodes:
            assert count == 1 and number(before._obj) == nodes[-1], "nodes are a chain"
        nodes.append(self.handle(self._node(params._obj)))
        put(node, nodes[-1])

    def _node(self, params: Any) -> list[Any]:
        kernel = self.handles[params.function]
        arguments = read_arguments(kernel.layout, params.arguments)
        return [kernel, arguments, list(params.grid), list(params.block)]

    def do_cuGraphExecKernelNodeSetParams(self, graph: Any, node: Any, params: Any) -> None:
        assert number(node) in self.of(graph)
        made = self._node(params._obj)
        # launches that wait already keep the node as it was
        self.handles[number(node)] = made

    def do_cuGraphInstantiateWithFlags(self, found: Any, graph: Any, flags: int) -> None:
        put(found, self.handle(list(self.of(graph))))

    def do_cuGraphUpload(self, graph: Any, stream: Any) -> None:
        pass

    def do_cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        for node in self.of(graph):
            kernel, arguments, grid, block = self.handles[node]
            self.of(stream).add(
                lambda k=kernel, a=arguments, g=grid, b=block: self.run_kernel(k, a, g, b)
            )

    def do_cuGraphExecDestroy(self, graph: Any) -> None:
        pass

    def do_cuGraphDestroy(self, graph: Any) -> None:
        pass

    # ------------------------------------------------------------ linking
    def do_cuLinkCreate(self, count: int, keys: Any, values: Any, state: Any) -> None:
        put(state, self.handle([]))

    def do_cuLinkAddData(self, state: Any, kind: int, data: bytes, *rest: Any) -> int:
        self.of(state).append(data)
        return 218 if b"wrong" in data else 0  # CUDA_ERROR_INVALID_PTX

    def do_cuLinkComplete(self, state: Any, code: Any, size: Any) -> None:
        (data,) = self.of(state)
        put(code, number(data))
        put(size, len(data) - 1)

    def do_cuLinkDestroy(self, state: Any) -> None:
        pass


def read_arguments(layout: Layout, pointers: int) -> list[int]:
    """What the driver copies: each argument from where its pointer says."""
    found = []
    places = (ctypes.c_void_p * len(layout)).from_address(pointers)
    for place, (kind, detail) in zip(places, layout, strict=True):
        width = detail if kind == "value" else 4 if kind == "groups" else 8
        found.append(int.from_bytes(ctypes.string_at(place, width), "little"))
    return found


def _signed(value: int, width: int) -> int:
    bits = 8 * width
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
