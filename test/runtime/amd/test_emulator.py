"""The emulator: memory, groups, atomics, modes, errors that name instructions, and stepping."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from test.runtime.amd.kernels import ADD, POINTER, Bench, module
from test.runtime.amd.single import Machine
from weft.amd.semantics.lane import Result
from weft.errors import ArgumentError, DataError, WeftError
from weft.runtime.amd import state
from weft.runtime.amd.aql import Dispatch
from weft.runtime.amd.counters import counted, occupancy
from weft.runtime.amd.debugger import Debugger
from weft.runtime.amd.emulator import EmulatorError
from weft.runtime.amd.forms import Form, Place

ARCHS = ["gfx1100", "gfx1201", "gfx950"]
rng = np.random.default_rng(5)


def floats(count: int) -> np.ndarray:
    return rng.normal(0, 10, count).astype(np.float32)


@pytest.mark.parametrize("arch", ARCHS)
def test_groups_of_partial_waves(arch: str) -> None:
    a, b = floats(96), floats(96)
    found = Bench(arch).run(ADD, [a, b, np.zeros(96, np.float32)], groups=2, threads=48)
    np.testing.assert_array_equal(found[2], a + b)


def test_an_access_beyond_an_allocation_names_both() -> None:
    a = floats(96)
    with pytest.raises(EmulatorError, match=r"global_load.* touches address 0x\w+, 0 bytes after"):
        Bench("gfx1100").run(ADD, [a, a[:90].copy(), np.zeros(96, np.float32)], 2, 48)
    with pytest.raises(EmulatorError, match=r"global_store.*touches address.*group \(1, 0, 0\)"):
        Bench("gfx1100").run(ADD, [a, a, np.zeros(95, np.float32)], 2, 48)


def test_memory_that_was_given_back_is_not_touched() -> None:
    bench = Bench("gfx1100")
    a = floats(96)
    launch, addresses = bench.prepared(ADD, [a, a, np.zeros(96, np.float32)], 2, 48)
    launch.run()
    bench.agent.free(addresses[2])
    with pytest.raises(EmulatorError, match="global_store.* touches address"):
        launch.run()


SHARED = "@shared = internal addrspace(3) global [64 x i32] undef, align 16"
REVERSED = module(
    f"""  %p = getelementptr i32, {POINTER} %a, i32 %x
  %v = load i32, {POINTER} %p
  %s = getelementptr i32, ptr addrspace(3) @shared, i32 %x
  store i32 %v, ptr addrspace(3) %s
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %y = sub i32 BASE, %x
  %t = getelementptr i32, ptr addrspace(3) @shared, i32 %y
  %w = load i32, ptr addrspace(3) %t
  store i32 %w, {POINTER} %p
  ret void""",
    f"{POINTER} %a",
    64,
    SHARED,
)


@pytest.mark.parametrize("arch", ARCHS)
def test_waves_of_a_group_meet_at_barriers(arch: str) -> None:
    values = np.arange(64, dtype=np.int32)
    (found,) = Bench(arch).run(REVERSED.replace("BASE", "63"), [values], threads=64)
    np.testing.assert_array_equal(found, values[::-1])


def test_shared_memory_has_bounds() -> None:
    values = np.arange(64, dtype=np.int32)
    with pytest.raises(EmulatorError, match=r"ds_load.* touches byte \d+ of 256"):
        Bench("gfx1100").run(REVERSED.replace("BASE", "64"), [values], threads=64)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("operation", "kind", "expected"),
    [
        ("add", "i32", lambda v: 7 + v.sum()),
        ("umax", "i32", lambda v: max(7, v.max())),
        ("min", "i64", lambda v: min(7, v.min())),
        ("xor", "i64", lambda v: np.bitwise_xor.reduce(v) ^ 7),
    ],
)
def test_atomics_are_done_one_after_another(
    arch: str, operation: str, kind: str, expected: object
) -> None:
    source = module(
        f"""  %p = getelementptr {kind}, {POINTER} %a, i32 %x
  %v = load {kind}, {POINTER} %p
  %old = atomicrmw {operation} {POINTER} %t, {kind} %v syncscope("agent") monotonic
  %q = getelementptr {kind}, {POINTER} %o, i32 %x
  store {kind} %old, {POINTER} %q
  ret void""",
        f"{POINTER} %a, {POINTER} %t, {POINTER} %o",
        32,
    )
    dtype = np.int32 if kind == "i32" else np.int64
    values = rng.integers(1, 1000, 32).astype(dtype)
    start = np.full(1, 7, dtype)
    found = Bench(arch).run(source, [values, start, np.zeros(32, dtype)])
    assert found[1][0] == expected(values)  # type: ignore[operator]
    assert 7 in found[2]


def test_a_loop_without_end_is_stopped() -> None:
    source = module("  br label %again\nagain:\n  br label %again", f"{POINTER} %a", 32)
    with pytest.raises(EmulatorError, match="jumped backwards more often"):
        Bench("gfx1100", budget=1000).run(source, [floats(1)])


# ------------------------------------------------------------ modes of floats
def test_denormals_are_flushed_where_the_kernel_says_so() -> None:
    source = module(
        f"""  %p = getelementptr float, {POINTER} %a, i32 %x
  %v = load float, {POINTER} %p
  %w = fmul float %v, 5.000000e-01
  store float %w, {POINTER} %p
  ret void""",
        f"{POINTER} %a",
        32,
        facts='"denormal-fp-math-f32"="preserve-sign,preserve-sign"',
    )
    values = np.full(32, 2.0**-126, np.float32)
    values[1], values[2] = -(2.0**-130), 1.0
    (found,) = Bench("gfx1100").run(source, [values])
    assert found[0] == 0 and found[2] == 0.5
    assert found[1] == 0 and np.signbit(found[1])
    kept = source.replace('"denormal-fp-math-f32"="preserve-sign,preserve-sign"', "")
    (found,) = Bench("gfx1100").run(kept, [values])
    np.testing.assert_array_equal(found, values * np.float32(0.5))


def directed(value: Fraction, mode: int) -> float:
    """A float32 next to a number: up, down, or towards zero."""
    near = np.float32(float(value))
    exact = Fraction(float(near))
    if exact == value:
        return float(near)
    up = mode == 1 or (mode == 3 and value < 0)
    if up:
        return float(near) if exact > value else float(np.nextafter(near, np.float32(np.inf)))
    return float(near) if exact < value else float(np.nextafter(near, np.float32(-np.inf)))


@pytest.mark.parametrize("mode", [1, 2, 3])
@pytest.mark.parametrize("name", ["v_add_f32", "v_mul_f32", "v_fma_f32"])
def test_floats_round_as_the_mode_says(name: str, mode: int) -> None:
    machine = Machine(32)
    count = 3 if "fma" in name else 2
    drawn = [floats(32) for _ in range(count)]
    for number, values in enumerate(drawn):
        machine.set_lanes(8 + number, 32, [int(v) for v in values.view(np.uint32)])
    machine.set(4 * state.EXEC, 64, 0xFFFFFFFF)
    words = [machine.shape.vector(8 + number) for number in range(count)]
    form = Form("vector", name, 32, (Place("v"),) * count, (Place("v"),), (), Result(rounding=mode))
    machine.run(form, [*words, machine.shape.vector(20)])
    found = np.array(machine.lanes(20, 32), np.uint32).view(np.float32)
    for lane in range(32):
        exact = [Fraction(float(values[lane])) for values in drawn]
        value = exact[0] + exact[1] if "add" in name else exact[0] * exact[1]
        if count == 3:
            value += exact[2]
        assert float(found[lane]) == directed(value, mode)
    # and the host rounds as before
    assert np.float32(1) + np.float32(2**-24) == np.float32(1)


# ------------------------------------------------------------ stepping
def test_every_instruction_can_be_stepped() -> None:
    a, b = floats(96), floats(96)
    bench = Bench("gfx1100")
    launch, addresses = bench.prepared(ADD, [a, b, np.zeros(96, np.float32)], 2, 48)
    steps = list(Debugger(launch).trace())
    contents = bytearray(a.nbytes)
    bench.agent.copy_out(memoryview(contents), addresses[2])
    np.testing.assert_array_equal(np.frombuffer(contents, np.float32), a + b)
    assert {step.group for step in steps} == {(0, 0, 0), (1, 0, 0)}
    assert {step.wave for step in steps} == {0, 1}
    sums = [step for step in steps if "v_add_f32" in str(step.line)]
    assert len(sums) == 4
    (register, values) = next(iter(sums[0].changes.items()))
    assert register.startswith("v")
    bits = (a[:32] + b[:32]).view(np.uint32)
    assert list(values) == bits.tolist()
    assert "v_add_f32" in str(sums[0])


def test_breakpoints_stop_where_they_stand() -> None:
    bench = Bench("gfx950")
    a = floats(96)
    launch, _ = bench.prepared(ADD, [a, a, np.zeros(96, np.float32)], 2, 48)
    line = next(line for line in launch.program.lines if "v_add_f32" in str(line))
    debugger = Debugger(launch, breakpoints=[line.offset])
    assert debugger.stop_at_first() is line
    before = [debugger.vector(index) for index in range(8)]
    assert tuple(a[:48].view(np.uint32)) in [values[:48] for values in before]
    assert debugger.scalar(state.EXEC) == 0xFFFFFFFF
    with pytest.raises(ArgumentError, match="no instruction begins at 0x3"):
        Debugger(launch, breakpoints=[3])


# ------------------------------------------------------------ counters
def test_counters_are_exact() -> None:
    bench = Bench("gfx1100")
    a = floats(96)
    launch, _ = bench.prepared(ADD, [a, a, np.zeros(96, np.float32)], 2, 48)
    before = launch.program.line_counts()
    launch.run()
    found = counted(launch, before, 0.0)
    assert found.waves == 4 and found.groups == 2
    assert found.bytes_written == 96 * 4
    # both operands, and the arguments of four waves
    assert found.bytes_read == 2 * 96 * 4 + 4 * 24
    assert found.by_kind["memory"] == 3 * 4
    assert found.instructions == sum(found.by_kind.values())


def test_conflicts_of_banks_are_counted() -> None:
    bench = Bench("gfx1100")
    bench.agent.counts_conflicts = True
    source = REVERSED.replace("BASE", "63")
    launch, _ = bench.prepared(source, [np.arange(64, dtype=np.int32)], threads=64)
    launch.run()
    assert launch.total(state.LDS_CONFLICTS) == 0
    strided = source.replace("@shared, i32 %x", "@shared, i32 %far").replace(
        "  %s = ", "  %low = and i32 %x, 1\n  %far = mul i32 %low, 32\n  %s = "
    )
    launch, _ = bench.prepared(strided, [np.arange(64, dtype=np.int32)], threads=64)
    launch.run()
    assert launch.total(state.LDS_CONFLICTS) == 2
    assert occupancy("gfx1100", 96, 16 << 10, 4, 64 << 10) == 16


# ------------------------------------------------------------ strangers' bytes
def test_packets_are_checked() -> None:
    with pytest.raises(DataError, match="64 bytes"):
        Dispatch.unpack(b"")
    with pytest.raises(DataError, match="type 1"):
        Dispatch.unpack(b"\1" + bytes(63))
    packet = Dispatch((32, 1, 1), (64, 1, 1), 0x1000, 0x2000, signal=5)
    assert Dispatch.unpack(packet.pack()) == packet
    with pytest.raises(WeftError, match="no kernel is loaded at 0x1000"):
        Bench("gfx1100").agent.submit(packet, "k")


def test_damaged_code_is_an_error_and_nothing_else() -> None:
    from test.runtime.amd.mutations import mutate_and_run

    chance = random.Random(11)
    outcomes = [mutate_and_run(chance, arch) for arch in ARCHS for _ in range(25)]
    assert {"ran", "refused", "stopped"} >= set(outcomes) and "stopped" in outcomes
