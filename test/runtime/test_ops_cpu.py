"""The CPU device: kernels written by hand through compiler, loader and program."""

from __future__ import annotations

import gc
import signal
import threading

import numpy as np
import pytest

from test.runtime.kernels import ADD, COUNT, SUM, store_constant
from test.test_device import run_python
from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.errors import ArgumentError, CompileError
from weft.runtime import llvm

CPU = Device["CPU"]


def load(source, name, **sizes):
    return CPU.runtime(name, CPU.compiler.compile(source), **sizes)


def buffer_of(array, device="CPU"):
    return Buffer(device, array.size, getattr(dtypes, array.dtype.name)).copyin(memoryview(array))


def run_constant(program):
    out = Buffer("CPU", 1, dtypes.int64).allocate()
    program([out])
    return int(out.numpy()[0])


def test_add():
    a, b = (np.random.default_rng(seed).random(1000, dtype=np.float32) for seed in (1, 2))
    out = Buffer("CPU", 1000, dtypes.float32).copyin(bytes(4000))
    program = load(ADD, "add", n_bufs=3, n_vars=1)
    assert program([out, buffer_of(a), buffer_of(b)], [990]) is None
    np.testing.assert_array_equal(out.numpy(), np.where(np.arange(1000) < 990, a + b, 0))


def test_views_as_arguments():
    a = buffer_of(np.arange(16, dtype=np.float32))
    program = load(ADD, "add", n_bufs=3, n_vars=1)
    program(
        [
            a.view(4, dtypes.float32, 48),
            a.view(4, dtypes.float32, 0),
            a.view(4, dtypes.float32, 16),
        ],
        [4],
    )
    np.testing.assert_array_equal(a.numpy()[12:], [4, 6, 8, 10])


def test_sum():
    data = np.random.default_rng(0).random(10_001)
    out = Buffer("CPU", 1, dtypes.float64).allocate()
    load(SUM, "total", n_bufs=2, n_vars=1)([out, buffer_of(data)], [data.size])
    np.testing.assert_allclose(out.numpy()[0], data.sum(), rtol=1e-12)


def test_parallel_kernel_with_a_negative_value_on_every_cpu_device():
    for device in ("CPU", "CPU:1"):
        out = Buffer(device, 5000, dtypes.int64).copyin(bytes(40_000))
        program = Device[device].runtime(
            "count", Device[device].compiler.compile(COUNT), threads_n=5000, n_bufs=1, n_vars=1
        )
        seconds = program([out], [-7], wait=True)
        assert seconds is not None and seconds > 0
        np.testing.assert_array_equal(out.numpy(), np.arange(5000) - 7)


def test_buffers_without_memory_get_some():
    out = Buffer("CPU", 1, dtypes.int64)
    load(store_constant(3), "constant", n_bufs=1)([out])
    assert out.numpy()[0] == 3


def test_wrong_number_of_arguments():
    program = load(COUNT, "count", threads_n=4, n_bufs=1, n_vars=1)
    with pytest.raises(ArgumentError, match="count takes 1 buffers and 1 values, but got 0 and 2"):
        program([], [1, 2])


def test_one_program_in_many_threads():
    program = load(COUNT, "count", threads_n=1000, n_bufs=1, n_vars=1)
    results = {}

    def work(value):
        for _ in range(50):
            out = Buffer("CPU", 1000, dtypes.int64).copyin(bytes(8000))
            program([out], [value])
        results[value] = out.numpy()

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for value in range(4):
        np.testing.assert_array_equal(results[value], np.arange(1000) + value)


def test_compiling_in_many_threads():
    found = {}

    def work(value):
        found[value] = run_constant(load(store_constant(value), "constant", n_bufs=1))

    threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == {value: value for value in range(8)}


# *** the compiler ***


def test_compile_is_deterministic_and_gives_an_object():
    first = CPU.compiler.compile(ADD)
    assert isinstance(first, bytes) and first == CPU.compiler.compile(ADD)
    symbols = llvm.object_symbols(first)
    assert symbols is None or ("add" in symbols.defined and not symbols.needed)


def test_cachekey_names_the_machine():
    key = CPU.compiler.cachekey
    assert key == llvm.LLVMCompiler().cachekey
    assert CPU.arch in key and "llvm-" in key
    assert key != llvm.LLVMCompiler(opt_level=3).cachekey


def test_bad_ir_says_where():
    with pytest.raises(CompileError) as caught:
        CPU.compiler.compile("define void @f() {\n  %x = frobnicate i32 1\n  ret void\n}")
    text = str(caught.value)
    assert "LLVM refuses the IR of a kernel" in text
    assert ":2:" in text and "frobnicate" in text and "DEBUG=4" in text


def test_ir_that_does_not_verify():
    with pytest.raises(CompileError, match="does not dominate"):
        CPU.compiler.compile(
            "define i32 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n"
            "  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}"
        )


def test_a_missing_external_is_an_error_and_not_an_abort():
    source = (
        "declare float @weft_has_no_such_function(float)\n"
        "define void @f(ptr %args, i64 %b, i64 %e) {\n"
        "  %x = call float @weft_has_no_such_function(float 1.0)\n  ret void\n}"
    )
    with pytest.raises(CompileError, match="calls weft_has_no_such_function"):
        CPU.compiler.compile(source)


def test_a_helper_that_code_generation_adds_is_checked_too():
    """128-bit division becomes a call that the IR does not show, and that few processes have."""
    source = (
        "define void @f(ptr %args, i64 %b, i64 %e) {\n  %x = sext i64 %b to i128\n"
        "  %y = sext i64 %e to i128\n  %q = sdiv i128 %x, %y\n  %t = trunc i128 %q to i64\n"
        "  store i64 %t, ptr %args\n  ret void\n}"
    )
    if llvm.llvm_binding().address_of_symbol("__divti3") is not None:
        pytest.skip("this process has the helper")
    with pytest.raises(CompileError, match="calls __divti3, which this process does not have"):
        CPU.compiler.compile(source)


def test_libm_is_there():
    source = (
        "declare double @fmod(double, double)\n"
        "define void @f(ptr %args, i64 %b, i64 %e) {\n  %out = load ptr, ptr %args\n"
        "  %x = call double @fmod(double 7.5, double 2.0)\n  store double %x, ptr %out\n"
        "  ret void\n}"
    )
    out = Buffer("CPU", 1, dtypes.float64).allocate()
    load(source, "f", n_bufs=1)([out])
    assert out.numpy()[0] == 1.5


def test_assembly_for_people():
    assert "add" in CPU.compiler.assembly(ADD)


# *** the loader ***


def test_damaged_code_is_refused():
    code = CPU.compiler.compile(ADD)
    for damaged in (b"", b"garbage", code[:100], code[: len(code) // 2]):
        with pytest.raises(CompileError):
            CPU.runtime("add", damaged, n_bufs=3, n_vars=1)


def test_a_name_that_the_code_does_not_define():
    with pytest.raises(CompileError, match="lacks other; it defines .*add"):
        CPU.runtime("other", CPU.compiler.compile(ADD))


def test_equal_names_do_not_mix():
    programs = [load(store_constant(value), "constant", n_bufs=1) for value in range(10)]
    assert [run_constant(program) for program in programs] == list(range(10))


def test_many_objects_and_code_that_dies():
    codes = [CPU.compiler.compile(store_constant(value)) for value in range(3)]
    gc.collect()
    before = llvm._Engine.live_objects
    programs = [CPU.runtime("constant", codes[index % 3], n_bufs=1) for index in range(1000)]
    assert [run_constant(program) for program in programs[::37]] == [
        index % 3 for index in range(0, 1000, 37)
    ]
    assert llvm._Engine.live_objects >= before + 1000
    last = programs.pop()
    del programs
    gc.collect()
    # All but the engines of the last program and of whoever shares the first.
    assert llvm._Engine.live_objects <= before + 3 * llvm._OBJECTS_PER_ENGINE
    assert run_constant(last) == 999 % 3


def test_too_many_kernels_is_an_error_and_not_an_abort(monkeypatch):
    monkeypatch.setattr(llvm, "_object_limit", lambda: 0)
    with pytest.raises(CompileError, match="kernels are loaded"):
        CPU.runtime("add", CPU.compiler.compile(ADD), n_bufs=3, n_vars=1)


# *** facts ***


def test_facts_are_plausible():
    facts = CPU.facts
    assert facts.cpu == CPU.arch and facts.cpu
    assert facts.vector_bytes in (16, 32, 64) and facts.vector_registers in (16, 32)
    assert 8 << 10 <= facts.caches.l1 <= facts.caches.l2
    assert facts.cores >= 1
    assert hash(facts) == hash(llvm.target())


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [
        ("x86_64-linux", {"avx512f", "avx2", "avx"}, (64, 32)),
        ("x86_64-linux", {"avx2", "avx"}, (32, 16)),
        ("x86_64-linux", {"avx"}, (16, 16)),
        ("x86_64-linux", {"sse2"}, (16, 16)),
        ("aarch64-linux", {"neon"}, (16, 32)),
    ],
)
def test_vector_unit(triple, features, expected):
    assert llvm._vector_unit(triple, frozenset(features)) == expected


def test_renderer_knows_the_target():
    target = CPU.renderer.target
    assert target.vector_bytes == CPU.facts.vector_bytes and target.has_threads


# *** signals ***


def test_an_interrupted_process_ends_cleanly():
    code = """
import os, signal, threading
from test.runtime.kernels import BUSY
from weft.device import Buffer, Device
from weft.dtype import dtypes
cpu = Device["CPU"]
program = cpu.runtime("busy", cpu.compiler.compile(BUSY), 2, 1, 1)
threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
program([Buffer("CPU", 1, dtypes.int64)], [100_000_000])
"""
    done = run_python(code)
    assert "KeyboardInterrupt" in done.stderr and "Fatal" not in done.stderr
    assert done.returncode in (1, 130, -signal.SIGINT)
