"""Walks the op table: every op has all that it needs, and every device gives the same value.

The failures are the to-do list of whoever adds an op. Each elementwise op runs as a kernel of its
own on all pairs of edge values of every dtype that it takes: on the default device, on PYTHON, and
on the PYTHON device with the decompositions for the CPU, whose "raw" promises are checked there.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import pytest

from weft.codegen.pipeline import lower
from weft.device import BaseDevice, Buffer, Device
from weft.dtype import DType, bits_of, dtypes, truncate, value_of_bits
from weft.engine.programs import facts_of
from weft.errors import CompileError
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.renderer.cuda import CUDARenderer
from weft.renderer.llvmir import LLVMRenderer
from weft.renderer.metal import MetalRenderer
from weft.renderer.nvptx import NVPTXRenderer
from weft.renderer.opencl import OpenCLRenderer
from weft.renderer.python import PythonRenderer
from weft.renderer.wgsl import WGSLRenderer
from weft.uop.args import KernelInfo
from weft.uop.evaluate import evaluate, function_for, takes
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops, Shape, Typing

NARROW = (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16)
# Ops that leave nothing open on the dtypes they take, so that there is nothing to say about it.
CLOSED = {Ops.AND, Ops.OR, Ops.XOR, Ops.THREEFRY, Ops.MULACC}
ALL_SOURCES_ALIKE = (Typing.SAME, Typing.ALL_SAME, Typing.SHIFT)
# Renderers print these untagged ops never, and tagged "raw" always.
RAW = {Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR, Ops.CAST}
# Units in the last place that a polynomial may be off.
ULPS = {
    (Ops.EXP2, dtypes.float32): 1,
    (Ops.LOG2, dtypes.float32): 1,
    (Ops.SIN, dtypes.float32): 2,
    (Ops.POW, dtypes.float32): 1,
    (Ops.EXP2, dtypes.float64): 2,
    (Ops.LOG2, dtypes.float64): 2,
    (Ops.SIN, dtypes.float64): 2,
    (Ops.POW, dtypes.float64): 2,
}
APPROXIMATED = {op for op, _ in ULPS}


def operand_dtypes(op: Ops) -> list[DType]:
    """The dtypes of operands that a kernel may compute `op` on."""
    return [dtype for dtype in dtypes.all if takes(op, dtype)]


ALU_CASES = [(op, dtype) for op in sorted(GroupOp.ALU, key=str) for dtype in operand_dtypes(op)]
each_alu_case = pytest.mark.parametrize(
    ("op", "dtype"), ALU_CASES, ids=[f"{op.name}-{dtype.name}" for op, dtype in ALU_CASES]
)


# *** the table itself ***


def test_every_op_has_a_row_and_a_meaning() -> None:
    assert set(OPSET) == set(Ops)
    for op, row in OPSET.items():
        assert row.op is op
        assert row.meaning


@pytest.mark.parametrize("op", sorted(GroupOp.Elementwise, key=str), ids=str)
def test_elementwise_rows_are_consistent(op: Ops) -> None:
    row = OPSET[op]
    assert isinstance(row.arity, int)
    groups = {1: GroupOp.Unary, 2: GroupOp.Binary, 3: GroupOp.Ternary}
    assert op in groups[row.arity] or op in (Ops.CAST, Ops.BITCAST)
    arities = {
        Typing.GIVEN: {1},
        Typing.SAME: {1},
        Typing.ALL_SAME: {2, 3},
        Typing.COMPARE: {2},
        Typing.SHIFT: {2},
        Typing.WHERE: {3},
    }
    assert row.arity in arities[row.typing]
    assert row.shape is Shape.ELEMENTWISE or op is Ops.BITCAST
    assert row.on in ("any", "float", "int", "number", "bits")
    if row.on != "any" and op not in CLOSED:
        assert row.total, f"{op.name} does not say what it gives where mathematics is silent"
    if row.commutative or row.associative or row.idempotent:
        assert row.arity == 2


def test_reduce_ops_have_a_neutral_element() -> None:
    for op in GroupOp.Reduce:
        assert OPSET[op].associative
        assert OPSET[op].identity is not None or op is Ops.MAX


@each_alu_case
def test_every_op_has_a_value_and_bounds(op: Ops, dtype: DType) -> None:
    result, sources = signature(op, dtype)
    assert callable(function_for(op, result, sources))
    loads = tuple(
        UOp.param(slot, source, 4).index(UOp.range(4, 0)).load()
        for slot, source in enumerate(sources)
    )
    node = UOp(op, result, loads)
    low, high = node.vmin, node.vmax
    assert not low > high
    for values in itertools.islice(pairs(sources), 0, None, 3):
        found = evaluate(op, result, *values, src_dtypes=sources)
        if not math.isnan(found):
            assert low <= found <= high, values
            # Bounds of constants must hold their value, whatever it is.
            constants = tuple(UOp.const(d, v) for d, v in zip(sources, values, strict=True))
            exact = UOp(op, result, constants)
            assert exact.vmin <= found <= exact.vmax, values


@pytest.mark.parametrize("op", sorted(GroupOp.ALU, key=str), ids=str)
def test_the_properties_in_the_row_hold(op: Ops) -> None:
    """Commutative to the bit; associative where nothing rounds; idempotent."""
    row = OPSET[op]
    for dtype in operand_dtypes(op):
        result, _ = signature(op, dtype)
        value = functools.partial(evaluate, op, result)
        edges = edge_values(dtype)[:12]
        if row.commutative:
            assert all(same(value(x, y), value(y, x)) for x, y in itertools.product(edges, edges))
        if row.idempotent:
            assert all(same(value(x, x), x) for x in edges)
        if row.associative and (dtype.kind != "float" or row.idempotent):
            for x, y, z in itertools.product(edges, repeat=3):
                assert same(value(value(x, y), z), value(x, value(y, z)))
        if row.identity is not None:
            identity = truncate[dtype](row.identity)
            for x in edges:
                # -0.0 + 0.0 is 0.0
                assert same(value(x, identity), x) or (op is Ops.ADD and x == 0)


# *** every renderer prints or decomposes every op ***


RENDERERS = (
    LLVMRenderer(),
    CRenderer(),
    CUDARenderer(),
    NVPTXRenderer(),
    OpenCLRenderer(),
    MetalRenderer(),
    WGSLRenderer(),
)
each_renderer = pytest.mark.parametrize("renderer", RENDERERS, ids=lambda r: str(r.name))


@each_renderer
@each_alu_case
def test_every_op_is_printed_or_decomposed(renderer: Renderer, op: Ops, dtype: DType) -> None:
    result, sources = signature(op, dtype)
    ast = kernel(op, result, sources, 64)
    if dtype not in renderer.supported_dtypes():
        with pytest.raises(CompileError, match=f"{renderer.name} has no {dtype}"):
            lower(ast, renderer)
        return
    check_printed(ast, renderer)


@each_renderer
@pytest.mark.parametrize("source", dtypes.all, ids=str)
def test_every_cast_is_printed_or_decomposed(renderer: Renderer, source: DType) -> None:
    supported = renderer.supported_dtypes()
    if source not in supported:
        return
    for target in sorted(supported - {source}):
        index = UOp.range(64, 0)
        value = UOp.param(1, source, 64).index(index).load().cast(target)
        store = UOp.param(0, target, 64).index(index).store(value, index)
        check_printed(store.sink(arg=KernelInfo("cast")), renderer)


def check_printed(ast: UOp, renderer: Renderer) -> None:
    spec = lower(ast, renderer)
    assert spec.src
    left = [
        uop for uop in spec.uops if uop.op in GroupOp.Elementwise and not printed(uop, renderer)
    ]
    assert not left


def printed(uop: UOp, renderer: Renderer) -> bool:
    """Whether the renderer promises to print it."""
    if uop.op is Ops.CAST and not (uop.src[0].dtype.kind == "float" and uop.dtype.kind in INTEGERS):
        return True
    return uop.op in renderer.code_for_op or (uop.op in RAW and uop.tag == "raw")


INTEGERS = ("int", "uint")


# *** every device gives the reference value ***


@each_alu_case
@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "plain"])
def test_the_device_gives_the_reference_value(op: Ops, dtype: DType, optimise: bool) -> None:
    device = Device[Device.DEFAULT]
    check_device(op, dtype, device, device.renderer, optimise)


@each_alu_case
def test_the_interpreter_gives_the_reference_value(op: Ops, dtype: DType) -> None:
    python = Device["PYTHON"]
    check_device(op, dtype, python, python.renderer, optimise=False)


@each_alu_case
@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "plain"])
def test_decompositions_keep_their_promises(op: Ops, dtype: DType, optimise: bool) -> None:
    """What the CPU runs, interpreted: a raw op whose promise is broken for some input raises."""
    check_device(op, dtype, Device["PYTHON"], decomposing_renderer(), optimise)


@pytest.mark.parametrize("source", dtypes.all, ids=str)
@pytest.mark.parametrize("place", [Device.DEFAULT, "PYTHON", "decomposed"])
def test_casts_between_all_dtypes(place: str, source: DType) -> None:
    values = cast_values(source)
    index = UOp.range(len(values), 0)
    loaded = UOp.param(0, source, len(values)).index(index).load()
    stores = [
        UOp.param(slot, target, len(values)).index(index).store(loaded.cast(target), index)
        for slot, target in enumerate(dtypes.all, 1)
    ]
    ast = UOp.sink(*stores, arg=KernelInfo(f"cast_{source.name}"))
    device = Device["PYTHON" if place == "decomposed" else place]
    renderer = decomposing_renderer() if place == "decomposed" else device.renderer
    found = run(ast, device, renderer, [(source, values)], list(dtypes.all), first_output=1)
    for target, results in zip(dtypes.all, found, strict=True):
        for value, result in zip(values, results, strict=True):
            expected = evaluate(Ops.CAST, target, value, src_dtypes=(source,))
            assert same(result, expected), f"{value} to {target}: {result}, not {expected}"


@pytest.mark.parametrize("source", [*dtypes.ints, *dtypes.floats], ids=str)
@pytest.mark.parametrize("place", [Device.DEFAULT, "PYTHON"])
def test_bitcasts_between_dtypes_of_one_size(place: str, source: DType) -> None:
    values = cast_values(source)
    # Not bool, which two of its bit patterns are enough for.
    targets = [t for t in (*dtypes.ints, *dtypes.floats) if t.itemsize == source.itemsize]
    index = UOp.range(len(values), 0)
    loaded = UOp.param(0, source, len(values)).index(index).load()
    stores = [
        UOp.param(slot, target, len(values)).index(index).store(loaded.bitcast(target), index)
        for slot, target in enumerate(targets, 1)
    ]
    ast = UOp.sink(*stores, arg=KernelInfo(f"bitcast_{source.name}"))
    device = Device[place]
    found = run(ast, device, device.renderer, [(source, values)], targets, first_output=1)
    for target, results in zip(targets, found, strict=True):
        for value, result in zip(values, results, strict=True):
            assert same(result, evaluate(Ops.BITCAST, target, value, src_dtypes=(source,)))


# *** building and running one op ***


def signature(op: Ops, dtype: DType) -> tuple[DType, tuple[DType, ...]]:
    """The result's dtype and the sources' for operands of `dtype`."""
    row = OPSET[op]
    if row.typing is Typing.COMPARE:
        return dtypes.bool, (dtype, dtype)
    if row.typing is Typing.WHERE:
        return dtype, (dtypes.bool, dtype, dtype)
    assert row.typing in ALL_SOURCES_ALIKE and isinstance(row.arity, int)
    return dtype, (dtype,) * row.arity


def kernel(
    op: Ops, result: DType, sources: tuple[DType, ...], size: int, optimise: bool = True
) -> UOp:
    """Slot 0 gets the op of the elements of slots 1, 2, ..."""
    index = UOp.range(size, 0)
    loads = [UOp.param(n, source, size).index(index).load() for n, source in enumerate(sources, 1)]
    value = UOp(op, result, tuple(loads))
    store = UOp.param(0, result, size).index(index).store(value, index)
    return store.sink(arg=KernelInfo(f"{op.name.lower()}_{result.name}", optimise=optimise))


def decomposing_renderer() -> Renderer:
    """The interpreter, for what the CPU prints natively; the rest comes decomposed, in vectors."""
    cpu = Device["CPU"].renderer
    renderer = PythonRenderer(cpu.target, lacks=GroupOp.Elementwise - set(cpu.code_for_op))
    renderer.native_dtypes = cpu.native_dtypes
    return renderer


def check_device(
    op: Ops, dtype: DType, device: BaseDevice, renderer: Renderer, optimise: bool
) -> None:
    result, sources = signature(op, dtype)
    columns = list(zip(*pairs(sources), strict=True))
    ast = kernel(op, result, sources, len(columns[0]), optimise)
    inputs = [(source, list(column)) for source, column in zip(sources, columns, strict=True)]
    (found,) = run(ast, device, renderer, inputs, [result], first_output=0)
    for *values, value in zip(*columns, found, strict=True):
        expected = reference(op, result, values, sources)
        close = op in APPROXIMATED and ulps(value, expected, dtype) <= ULPS.get((op, dtype), 1)
        if op is Ops.MULADD and not same(value, expected):
            # the other of the two that it may be
            expected = reference(Ops.MULACC, result, values, sources)
        assert close or same(value, expected), f"{values}: {value}, not {expected}"


def reference(op: Ops, result: DType, values: list[Any], sources: tuple[DType, ...]) -> Any:
    """The value of the op; narrow floats are computed in float32 and rounded at the store."""
    if sources[-1] not in NARROW:
        return evaluate(op, result, *values, src_dtypes=sources)
    wide = tuple(dtypes.float32 if source in NARROW else source for source in sources)
    if result not in NARROW:
        return evaluate(op, result, *values, src_dtypes=wide)
    return truncate[result](evaluate(op, dtypes.float32, *values, src_dtypes=wide))


def run(
    ast: UOp,
    device: BaseDevice,
    renderer: Renderer,
    inputs: list[tuple[DType, list[Any]]],
    outputs: list[DType],
    first_output: int,
) -> list[list[Any]]:
    """The values of each output; the outputs come before the input number `first_output`."""
    spec = lower(ast, renderer)
    lib = device.compiler.compile(spec.src)
    size = len(inputs[0][1])
    buffers = [
        Buffer(device.name, size, dtype).copyin(
            b"".join(bits_of(v, dtype).to_bytes(dtype.itemsize, "little") for v in values)
        )
        for dtype, values in inputs
    ]
    new = [Buffer(device.name, size, dtype).allocate() for dtype in outputs]
    buffers[first_output:first_output] = new
    device.load(facts_of(spec), lib)(buffers, (), wait=True)
    return [read_values(buffer) for buffer in new]


def read_values(buffer: Buffer) -> list[Any]:
    data, step = bytes(buffer.as_memoryview()), buffer.dtype.itemsize
    patterns = [data[at : at + step] for at in range(0, len(data), step)]
    return [value_of_bits(int.from_bytes(bits, "little"), buffer.dtype) for bits in patterns]


# *** values ***


def pairs(sources: tuple[DType, ...]) -> Any:
    """All combinations of the sources' edge values; fewer values where there are three."""
    chosen = [edge_values(source) for source in sources]
    if len(sources) == 3:
        chosen = [values[:: max(1, len(values) // 12)] for values in chosen]
    return itertools.product(*chosen)


@functools.cache
def edge_values(dtype: DType) -> list[Any]:
    """Zeros of both signs, infinities, NaN, denormals, extremes, and some ordinary values."""
    if dtype.kind == "bool":
        return [False, True]
    if dtype.kind in INTEGERS:
        low, high, width = int(dtype.min), int(dtype.max), dtype.bitsize
        near = [-width, -7, -3, -2, -1, 0, 1, 2, 3, 7, 10, width - 1, width, width + 1]
        wrapped = [truncate[dtype](v) for v in (*near, low, low + 1, high, high - 1, high // 3)]
        return list(dict.fromkeys(wrapped))
    least, normal, largest = float_extremes(dtype)
    magnitudes = [0.0, 1.0, 0.5, 1.5, 2.0, 2.5, 3.0, 0.1, math.pi, 10.0, 100.7, 1e4, 8388609.0]
    magnitudes += [
        least,
        3 * least,
        normal,
        normal * 2,
        largest,
        largest / 2,
        math.inf,
        127.5,
        149.0,
    ]
    values = [truncate[dtype](sign * v) for v in magnitudes for sign in (1.0, -1.0)]
    unique = {bits_of(value, dtype): value for value in (*values, math.nan)}
    return [value_of_bits(bits, dtype) for bits in unique]


def float_extremes(dtype: DType) -> tuple[float, float, float]:
    """The least positive number, the least normal one, the largest."""
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    least = value_of_bits(1, dtype)
    patterns = range(1 << (exponent_bits + mantissa_bits)) if dtype.itemsize == 1 else ()
    finite = [v for v in (value_of_bits(bits, dtype) for bits in patterns) if math.isfinite(v)]
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    largest = max(finite) if finite else value_of_bits(infinity - 1, dtype)
    return least, value_of_bits(1 << mantissa_bits, dtype), largest


def cast_values(source: DType) -> list[Any]:
    """Edge values, and what is near the ends and ties of the other types."""
    values = list(edge_values(source))
    if source.kind == "bool":
        return values
    powers = (7, 8, 11, 12, 15, 16, 23, 24, 25, 31, 32, 52, 53, 54, 63, 64)
    whole = [
        sign * (1 << power) + step for power in powers for sign in (1, -1) for step in (-1, 0, 1)
    ]
    if source.kind in INTEGERS:
        return list(dict.fromkeys([*values, *(v for v in whole if source.min <= v <= source.max)]))
    parts = [float(v) for v in whole] + [v + 0.5 for v in whole if abs(v) < 1 << 33]
    parts += [65519.0, 65520.0, 447.9, 448.0, 464.0, 465.0, 57344.0, 61440.0, 240.0, 248.0, 1e39]
    parts += [
        3.4028235677973366e38,
        2.0**-24,
        2.0**-25,
        3 * 2.0**-26,
        2.0**-133,
        2.0**-134,
        2.0**-9,
    ]
    parts += [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50, -0.9]
    rounded = [truncate[source](v) for v in parts]
    unique = {bits_of(value, source): value for value in (*values, *rounded)}
    return [value_of_bits(bits, source) for bits in unique]


def same(found: Any, expected: Any) -> bool:
    """Equal to the bit, where all NaNs are one."""
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected):
            return math.isnan(found)
        return found == expected and math.copysign(1.0, found) == math.copysign(1.0, expected)
    return bool(found == expected)


def ulps(found: float, expected: float, dtype: DType) -> float:
    """How many numbers of the type apart they are; infinite if only one of them is NaN."""
    if math.isnan(found) or math.isnan(expected):
        return 0.0 if math.isnan(found) and math.isnan(expected) else math.inf
    if found == 0 and expected == 0:
        # A polynomial, too, must keep the sign of zero.
        return 0.0 if same(found, expected) else math.inf
    return abs(_ordinal(found, dtype) - _ordinal(expected, dtype))


def _ordinal(value: float, dtype: DType) -> int:
    magnitude = bits_of(abs(value), dtype)
    return -magnitude if value < 0 else magnitude
