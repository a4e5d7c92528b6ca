"""The PYTHON device: its text, its memory, and programs that it must run or refuse."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from weft.device import Buffer, Device
from weft.dtype import DType, bits_of, dtypes, to_numpy_dtype, value_of_bits
from weft.errors import ArgumentError, CompileError, IndexingError, OutOfMemory, SpecError
from weft.renderer.python import PythonRenderer, parse
from weft.uop.args import AxisType, KernelInfo, LocalArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

i64 = dtypes.int64
f32 = dtypes.float32


# *** building and running programs by hand ***


def const(value: Any, dtype: DType = i64) -> UOp:
    return UOp.const(dtype, value)


def loop(size: int | UOp, number: int = 0, kind: AxisType = AxisType.LOOP) -> UOp:
    end_value = size if isinstance(size, UOp) else const(size)
    return UOp.range(end_value, number, kind).replace(dtype=i64)


def end(opened: UOp) -> UOp:
    return UOp(Ops.END, dtypes.void, (opened,))


def load(memory: UOp, idx: UOp, valid: UOp | None = None, lanes: int = 1) -> UOp:
    return UOp(Ops.LOAD, memory.dtype.vec(lanes), (memory.index(idx, valid),))


def vector(*lanes: UOp) -> UOp:
    return UOp(Ops.VECTORIZE, lanes[0].dtype.vec(len(lanes)), lanes)


def acc(init: UOp, number: int = 0) -> UOp:
    return UOp(Ops.ACC, init.dtype, (init,), number)


def read(register: UOp, when: UOp) -> UOp:
    return UOp(Ops.LOAD, register.dtype, (register, when))


def write(register: UOp, value: UOp) -> UOp:
    return UOp(Ops.ACC_SET, dtypes.void, (register, value))


def local(number: int, size: int, dtype: DType = f32, memory: str = "scratch") -> UOp:
    return UOp(Ops.LOCAL, dtype, (), LocalArg(number, size, memory))


def special(name: str, size: int) -> UOp:
    return UOp(Ops.SPECIAL, i64, (const(size),), name)


def control(op: Ops, *src: UOp) -> UOp:
    return UOp(op, dtypes.void, src)


def program(*statements: UOp) -> list[UOp]:
    """The statements in their order, each after what it is computed from."""
    order: dict[UOp, None] = {}
    for statement in statements:
        for uop in statement.toposort(gate=lambda u: u not in order):
            order.setdefault(uop)
    return list(order)


def run(
    uops: Sequence[UOp], arrays: Sequence[Any], values: Sequence[int] = (), name: str = "test"
) -> list[np.ndarray[Any, Any]]:
    """What is in the buffers afterwards. Arrays are of the storage of the PARAMs' types."""
    device = Device["PYTHON"]
    params = {u.arg.slot: u.dtype for u in uops if u.op is Ops.PARAM}
    buffers = []
    for slot, array in enumerate(arrays):
        dtype = params.get(slot, f32)
        data = np.asarray(array, to_numpy_dtype(dtype)).ravel()
        buffers.append(Buffer("PYTHON", data.size, dtype).copyin(data.tobytes()))
    lib = device.compiler.compile(device.renderer.render(name, uops))
    seconds = device.runtime(name, lib, 1, len(buffers), len(values))(buffers, values, wait=True)
    assert seconds is not None and seconds >= 0
    return [buffer.numpy() for buffer in buffers]


def apply(
    op: Ops, dtype: DType, *values: Any, sources: DType | None = None, tag: Any = None
) -> Any:
    """One op on values in buffers."""
    source = sources or dtype
    loads = [load(UOp.param(slot + 1, source, 1), const(0)) for slot in range(len(values))]
    result = UOp(op, dtype, tuple(loads), None, tag)
    store = UOp.param(0, dtype, 1).index(const(0)).store(result)
    return run(program(store), [[0], *[[value] for value in values]])[0].tolist()[0]


# *** programs ***


def test_a_loop_over_two_buffers() -> None:
    out, x, y = (UOp.param(slot, f32, 5) for slot in range(3))
    i = loop(5)
    uops = program(i, out.index(i).store(load(x, i) + load(y, i) * const(2.0, f32)), end(i))
    a, b = np.arange(5, dtype=np.float32), np.linspace(0, 1, 5, dtype=np.float32)
    np.testing.assert_array_equal(run(uops, [np.zeros(5), a, b])[0], a + b * np.float32(2))


def test_constants_need_no_place_of_their_own() -> None:
    out = UOp.param(0, dtypes.int32, 1)
    store = out.index(const(0)).store(const(7, dtypes.int32))
    assert run([out, store.src[0], store], [[0]])[0].tolist() == [7]


def matmul(rows: int, columns: int, depth: int) -> list[UOp]:
    c, a, b = (
        UOp.param(slot, f32, size)
        for slot, size in enumerate((rows * columns, rows * depth, depth * columns))
    )
    i, j, k = loop(rows, 0, AxisType.THREAD), loop(columns, 1), loop(depth, 2, AxisType.REDUCE)
    total = acc(const(0.0, f32))
    # placed before the inner loop: with depth equal to columns both are the same UOp
    row_of_a, row_of_c = i * const(depth), i * const(columns)
    product = load(a, row_of_a + k) * load(b, k * const(columns) + j)
    step = write(total, read(total, k) + product)
    done = end(k)
    store = c.index(row_of_c + j).store(read(total, done))
    return program(i, row_of_a, row_of_c, j, total, k, step, done, store, end(j), end(i))


def test_a_register_in_nested_loops() -> None:
    chance = np.random.default_rng(1)
    a = chance.integers(-4, 5, (3, 7)).astype(np.float32)
    b = chance.integers(-4, 5, (7, 4)).astype(np.float32)
    found = run(matmul(3, 4, 7), [np.zeros(12), a, b])[0]
    np.testing.assert_array_equal(found.reshape(3, 4), a @ b)


def test_loops_of_zero_trips_and_symbolic_sizes() -> None:
    n, m = UOp.variable("n", 0, 8, i64), UOp.variable("m", 0, 8, i64)
    out = UOp.param(0, dtypes.int32, 8)
    total = acc(const(5, dtypes.int32))
    i, j = loop(n, 0), loop(m, 1)
    done = end(j)
    step = write(total, read(total, j) + const(1, dtypes.int32))
    uops = program(i, total, j, step, done, out.index(i).store(read(total, done)), end(i))
    for rows, count in ((0, 3), (3, 0), (8, 8)):
        # variables come by name: m, then n
        found = run(uops, [np.zeros(8)], [count, rows])[0]
        assert found.tolist() == [5 + count] * rows + [0] * (8 - rows)
    with pytest.raises(ArgumentError, match="variable n is 9, but goes from 0 to 8"):
        run(uops, [np.zeros(8)], [1, 9])
    with pytest.raises(ArgumentError, match=r"has 2 variables \(m, n\), found 1 values"):
        run(uops, [np.zeros(8)], [1])


def test_vectors_consecutive_gathered_and_masked() -> None:
    out, x = UOp.param(0, f32, 16), UOp.param(1, f32, 8)
    lanes = [const(v) for v in (7, 0, 3, 3)]
    straight = load(x, const(2), lanes=4)
    gathered = load(x, vector(*lanes), lanes=4)
    mask = vector(*[const(v, dtypes.bool) for v in (True, False, True, False)])
    far = vector(*[const(v) for v in (1, 100, 2, -5)])
    masked = load(x, far, mask, lanes=4)
    summed = UOp(Ops.ADD, f32.vec(4), (straight, gathered))
    uops = program(
        out.index(const(0)).store(summed),
        out.index(const(4)).store(masked),
        out.index(
            vector(*[const(v) for v in (11, 10, 99, 9)]),
            vector(*[const(v, dtypes.bool) for v in (True, True, False, True)]),
        ).store(straight),
        out.index(const(12)).store(straight.gep((3, 0, 0, 2))),
    )
    data = np.arange(8, dtype=np.float32) + 10
    found = run(uops, [np.zeros(16), data])[0]
    assert found[:4].tolist() == (data[2:6] + data[[7, 0, 3, 3]]).tolist()
    assert found[4:8].tolist() == [11.0, 0.0, 12.0, 0.0]
    assert found[8:12].tolist() == [0.0, 15.0, 13.0, 12.0]
    assert found[12:].tolist() == [15.0, 12.0, 12.0, 14.0]


def test_an_invalid_access_touches_nothing() -> None:
    out, x = UOp.param(0, f32, 3), UOp.param(1, f32, 3)
    i = loop(6)
    value = load(x, i - const(2), (i < const(2)).ne(const(True, dtypes.bool)) & (i < const(5)))
    uops = program(i, out.index(i, i < const(3)).store(value), end(i))
    assert run(uops, [np.ones(3), [7, 8, 9]])[0].tolist() == [0.0, 0.0, 7.0]
    wide = load(x, const(100), const(False, dtypes.bool), lanes=4)
    found = run(program(out.index(const(0)).store(wide.gep(2))), [np.ones(3), [7, 8, 9]])[0]
    assert found.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [dtypes.bool, *dtypes.ints, *dtypes.floats], ids=str)
def test_memory_of_every_dtype(dtype: DType) -> None:
    """A value comes back from memory as it went in; all bits of 8 and 16 bit types."""
    bits = range(2) if dtype is dtypes.bool else range(0, 1 << min(dtype.itemsize * 8, 16), 3)
    values = [value_of_bits(pattern, dtype) for pattern in bits]
    wanted = [bits_of(value, dtype) for value in values]
    storage = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    data = np.array(wanted, storage).view(to_numpy_dtype(dtype))
    out, x = (UOp.param(slot, dtype, len(data)) for slot in range(2))
    i = loop(len(data))
    scratch = local(0, 1, dtype)
    through = scratch.index(const(0)).store(load(x, i))
    again = load(scratch, const(0))
    uops = program(i, through, again, out.index(i).store(again), end(i))
    found = run(uops, [np.zeros(len(data)), data])[0]
    assert found.view(storage).tolist() == wanted


def test_half_types_round_at_casts() -> None:
    assert apply(Ops.CAST, f32, np.float16(0.1), sources=dtypes.float16) == np.float32(
        np.float16(0.1)
    )
    assert apply(Ops.CAST, dtypes.float16, 0.1, sources=f32) == float(np.float16(np.float32(0.1)))
    assert apply(Ops.CAST, dtypes.bfloat16, 1.0, sources=f32) == 0x3F80


def test_conditions() -> None:
    out = UOp.param(0, dtypes.int32, 6)
    i = loop(6)
    taken = control(Ops.IF, i < const(2))
    store = out.index(i).store(const(1, dtypes.int32))
    closed = control(Ops.ENDIF, taken)
    uops = program(i, taken, store, closed, end(i))
    assert run(uops, [np.zeros(6)])[0].tolist() == [1, 1, 0, 0, 0, 0]


def test_work_items_meet_at_barriers() -> None:
    """Each group reverses its part through shared memory, which needs the barrier."""
    out, x = UOp.param(0, f32, 12), UOp.param(1, f32, 12)
    group, item = special("gidx0", 3), special("lidx0", 4)
    shared = local(0, 4, memory="shared")
    place = group * const(4) + item
    fill = shared.index(item).store(load(x, place))
    barrier = control(Ops.BARRIER)
    reverse = const(3) + item * const(-1)
    back = out.index(place).store(load(shared, reverse))
    data = np.arange(12, dtype=np.float32)
    found = run(program(fill, barrier, back), [np.zeros(12), data])[0]
    assert found.tolist() == data.reshape(3, 4)[:, ::-1].ravel().tolist()
    with pytest.raises(SpecError, match="is read before it is written|a race in kernel test"):
        run(program(fill, back), [np.zeros(12), data])


def test_a_barrier_that_only_some_reach() -> None:
    item = special("lidx0", 2)
    some = control(Ops.IF, item < const(1))
    uops = program(some, control(Ops.BARRIER, some), control(Ops.ENDIF, some))
    with pytest.raises(SpecError, match="thread 0 of group 0 waits at a BARRIER, but thread 1"):
        run(uops, [])


# *** what the oracle must catch ***


@pytest.mark.parametrize("position", [-1, 5, 1 << 40])
def test_an_index_outside_its_buffer(position: int) -> None:
    out, x = UOp.param(0, f32, 5), UOp.param(1, f32, 9)
    message = rf"kernel bad, line \d+ .*element {position} of buffer 0 .float32., which has 5 el"
    with pytest.raises(IndexingError, match=message):
        run(program(out.index(const(position)).store(const(1.0, f32))), [np.zeros(5)], name="bad")
    with pytest.raises(IndexingError, match=f"element {position} of buffer 0"):
        uops = program(UOp.param(1, f32, 9).index(const(0)).store(load(out, const(position))))
        run(uops, [np.zeros(5), np.zeros(9)])
    with pytest.raises(IndexingError, match="element 9 of buffer 1"):
        run(program(out.index(const(0)).store(load(x, const(6), lanes=4))), [[0] * 5, [0] * 9])


def test_a_parameter_may_be_smaller_than_the_buffer_but_not_larger() -> None:
    uops = program(UOp.param(0, f32, 2).index(const(2)).store(const(1.0, f32)))
    with pytest.raises(IndexingError, match="element 2 of buffer 0"):
        run(uops, [np.zeros(8)])
    with pytest.raises(ArgumentError, match="needs 2 elements of dtypes.float as buffer 0"):
        run(uops, [np.zeros(1)])
    with pytest.raises(ArgumentError, match="found only 0 buffers"):
        run(uops, [])


def test_scratch_that_was_never_written() -> None:
    out = UOp.param(0, f32, 1)
    uops = program(out.index(const(0)).store(load(local(3, 4), const(2))))
    with pytest.raises(SpecError, match="scratch memory 3 .float32.: element 2 is read before"):
        run(uops, [[0]])


def test_a_value_used_outside_its_loop() -> None:
    out, x = UOp.param(0, f32, 4), UOp.param(1, f32, 4)
    i = loop(4)
    value = load(x, i)
    uops = program(i, value, end(i), out.index(const(0)).store(value))
    with pytest.raises(SpecError, match="is used outside"):
        run(uops, [np.zeros(4), np.zeros(4)])


def test_loops_that_do_not_nest() -> None:
    i, j = loop(4, 0), loop(4, 1)
    with pytest.raises(SpecError, match="it closes"):
        run(program(i, j, end(i), end(j)), [])
    with pytest.raises(SpecError, match="is never closed"):
        run(program(i), [])
    with pytest.raises(SpecError, match="a VECTOR axis must be written out"):
        vectors = loop(4, 0, AxisType.VECTOR)
        run(program(vectors, end(vectors)), [])


def test_types_that_do_not_fit() -> None:
    out = UOp.param(0, f32, 4)
    with pytest.raises(SpecError, match="a value of dtypes.long and memory of dtypes.float"):
        run(program(out.index(const(0)).store(const(1))), [np.zeros(4)])
    with pytest.raises(SpecError, match="operands with different lanes"):
        mixed = UOp(
            Ops.ADD, f32.vec(2), (const(1.0, f32), vector(const(1.0, f32), const(2.0, f32)))
        )
        run(program(out.index(const(0)).store(mixed)), [np.zeros(4)])


def test_raw_ops_are_those_of_c() -> None:
    i32 = dtypes.int32
    assert apply(Ops.IDIV, i32, -7, 2, tag="raw") == -3
    assert apply(Ops.IDIV, i32, -7, 2) == -4
    assert apply(Ops.MOD, i32, -7, 2, tag="raw") == -1
    assert apply(Ops.MOD, i32, -7, 2) == 1
    assert apply(Ops.SHL, i32, 3, 31, tag="raw") == -(1 << 31)
    assert apply(Ops.SHR, i32, -8, 1, tag="raw") == -4
    assert apply(Ops.CAST, i32, -3.9, sources=f32, tag="raw") == -3
    assert apply(Ops.CAST, dtypes.uint8, 255.5, sources=f32, tag="raw") == 255
    assert apply(Ops.CAST, dtypes.uint8, -0.9, sources=f32, tag="raw") == 0


def test_raw_ops_keep_their_promise() -> None:
    i32 = dtypes.int32
    least = int(i32.min)
    for op, x, y, message in (
        (Ops.IDIV, 1, 0, "1 / 0"),
        (Ops.MOD, 1, 0, "1 / 0"),
        (Ops.IDIV, least, -1, "does not fit"),
        (Ops.MOD, least, -1, "does not fit"),
        (Ops.SHL, 1, 32, "a shift by 32"),
        (Ops.SHR, 1, -1, "a shift by -1"),
    ):
        apply(op, i32, x, y)
        with pytest.raises(SpecError, match=message):
            apply(op, i32, x, y, tag="raw")
    for value in (256.0, -1.0, np.inf, np.nan):
        apply(Ops.CAST, dtypes.uint8, value, sources=f32)
        with pytest.raises(SpecError, match="as a raw cast promises"):
            apply(Ops.CAST, dtypes.uint8, value, sources=f32, tag="raw")


def test_an_op_that_is_not_interpreted() -> None:
    fragment = vector(const(1.0, f32), const(2.0, f32))
    with pytest.raises(SpecError, match="does not interpret WMMA"):
        run(program(UOp(Ops.WMMA, f32.vec(2), (fragment,) * 3)), [])


# *** the text ***


def all_kinds_of_args() -> list[UOp]:
    n = UOp.variable('n "quoted" | \\', -3, 9, i64)
    i = loop(n, 0)
    split = UOp.range(const(4), (1, 2, 3), AxisType.REDUCE)
    values = [UOp.const(f32, v) for v in (0.1, -0.0, float("inf"), float("nan"), 1e-45)]
    total = acc(vector(*values), 4)
    shared = local(2, 64, dtypes.bfloat16, "shared")
    raw = UOp(Ops.IDIV, i64, (i, const(3)), None, "raw")
    tagged = UOp(Ops.NEG, i64, (raw,), None, ("a", 1, None, dtypes.half, Ops.ADD, 0.5))
    flag = UOp.const(dtypes.bool, True)
    lanes = total.gep((4, 0))
    item = special("lidx0", 3)
    return program(n, i, split, total, shared, tagged, flag, lanes, item, end(split), end(i))


def test_the_text_is_the_program() -> None:
    for uops in (all_kinds_of_args(), matmul(2, 3, 4), []):
        text = PythonRenderer().render('name with "quotes"\nand lines', uops)
        name, again = parse(text)
        assert name == 'name with "quotes"\nand lines'
        assert len(again) == len(uops)
        assert all(a is b for a, b in zip(again, uops, strict=True))
        assert PythonRenderer().render(name, again) == text
        assert text.count("\n") == len(uops) + 1


def test_the_sink_is_left_out() -> None:
    uops = matmul(2, 3, 4)
    sink = UOp(Ops.SINK, dtypes.void, (uops[-1],), KernelInfo("x"))
    assert PythonRenderer().render("m", [*uops, sink]) == PythonRenderer().render("m", uops)


def test_what_cannot_be_written() -> None:
    with pytest.raises(CompileError, match="before it is defined"):
        PythonRenderer().render("bad", matmul(2, 3, 4)[::-1])
    with pytest.raises(CompileError, match="its arg is a object"):
        PythonRenderer().render("bad", [UOp(Ops.SPECIAL, i64, (const(1),), object())])
    uops = matmul(2, 3, 4)
    with pytest.raises(CompileError, match="stands twice"):
        PythonRenderer().render("bad", [*uops, uops[-1]])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        'program "x" version 999\n',
        'program "x" version 1\n1: CONST int64 () [1,null]\n',
        'program "x" version 1\n0: CONST int64 (4) [1,null]\n',
        'program "x" version 1\n0: CONST int65 () [1,null]\n',
        'program "x" version 1\n0: NOTHING int64 () [1,null]\n',
        'program "x" version 1\n0: CONST int64 () [1\n',
        'program "x" version 1\n0: CONST int64 () [{"os.system":["true"]},null]\n',
        'program "x" version 1\n0: CONST int64 () [1]\n',
    ],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(CompileError):
        Device["PYTHON"].compiler.compile(text)


def test_ops_can_be_taken_from_the_renderer() -> None:
    assert set(PythonRenderer().code_for_op) == GroupOp.Elementwise
    renderer = PythonRenderer(lacks={Ops.EXP2})
    assert not renderer.is_native(Ops.EXP2) and renderer.is_native(Ops.SIN)


# *** the device ***


def test_buffers() -> None:
    buffer = Buffer("PYTHON", 4, dtypes.int32).copyin(np.arange(4, dtype=np.int32).tobytes())
    assert buffer.numpy().tolist() == [0, 1, 2, 3]
    part = buffer.view(2, dtypes.int32, 4)
    part.copyin(np.array([8, 9], np.int32).tobytes())
    assert buffer.numpy().tolist() == [0, 8, 9, 3]
    other = Buffer("PYTHON:1", 4, dtypes.int32).copy_from(buffer)
    part.copyin(bytes(8))
    assert other.numpy().tolist() == [0, 8, 9, 3]
    assert copy.deepcopy(other).numpy().tolist() == [0, 8, 9, 3]
    assert Device["PYTHON"] is Device["python:0"] is not Device["PYTHON:1"]


def test_programs_run_on_views() -> None:
    device = Device["PYTHON"]
    buffer = Buffer("PYTHON", 4, dtypes.int16).copyin(np.zeros(4, np.int16).tobytes())
    store = UOp.param(0, dtypes.int16, 2).index(const(1)).store(const(7, dtypes.int16))
    lib = device.compiler.compile(device.renderer.render("part", program(store)))
    assert device.runtime("part", lib)([buffer.view(2, dtypes.int16, 2)]) is None
    assert buffer.numpy().tolist() == [0, 0, 7, 0]


def test_new_memory_is_not_zero() -> None:
    assert Buffer("PYTHON", 3, dtypes.uint8).allocate().numpy().tolist() == [0xA5] * 3


def test_empty_buffers() -> None:
    out = UOp.param(0, f32, 0)
    i = loop(0)
    uops = program(i, out.index(i).store(const(1.0, f32)), end(i))
    assert run(uops, [[]])[0].tolist() == []


def test_too_much_memory() -> None:
    with pytest.raises(OutOfMemory, match="PYTHON cannot give"):
        Buffer("PYTHON", 1 << 62, dtypes.uint8).allocate()
    with pytest.raises(OutOfMemory, match="PYTHON cannot give"):
        Buffer("PYTHON", 1 << 80, dtypes.uint8).allocate()
