"""The thread pool: every index once, from any thread, across fork, signals and exit."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import threading
import time

import numpy as np
import pytest

from test.runtime.kernels import BEGINS, BUSY, COUNT
from test.test_device import run_python
from weft.knobs import Context
from weft.runtime import llvm
from weft.runtime.pool import NativePool, PythonPool, pool

needs_native = pytest.mark.skipif(not NativePool.is_supported(), reason="no futexes here")


@pytest.fixture(scope="module")
def count():
    return llvm.load(llvm.LLVMCompiler().compile(COUNT), "count")


@pytest.fixture(scope="module")
def busy():
    return llvm.load(llvm.LLVMCompiler().compile(BUSY), "busy")


@pytest.fixture(params=["native", "python"])
def any_pool(request):
    if request.param == "python":
        return PythonPool()
    if not NativePool.is_supported():
        pytest.skip("no futexes here")
    return pool


def call(some_pool, code, size, value=0):
    out = np.zeros(max(size, 1), dtype=np.int64)
    args = (ctypes.c_int64 * 2)(out.ctypes.data, value)
    some_pool.run(code.address, ctypes.addressof(args), size)
    return out[:size]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 63, 64, 1000, 100_003])
def test_every_index_once(any_pool, count, size):
    np.testing.assert_array_equal(call(any_pool, count, size, 5), np.arange(size) + 5)


def pieces(monkeypatch, some_pool, size):
    """How a region was cut for two threads, the longest piece first."""
    monkeypatch.setattr(llvm, "_available_cores", lambda: 2)
    begins = llvm.load(llvm.LLVMCompiler().compile(BEGINS), "begins")
    with Context(NUM_CPU_THREADS=2):
        found = call(some_pool, begins, size)
    _, lengths = np.unique(found, return_counts=True)
    return sorted(lengths, reverse=True)


SIZES = [2, 9, 22, 43, 64, 86, 129, 1001, 100_003]


@needs_native
@pytest.mark.parametrize("size", SIZES)
def test_pieces_get_smaller(monkeypatch, size):
    """A thread takes a quarter of what is left: at the end nobody waits long for a slow core."""
    lengths = pieces(monkeypatch, pool, size)
    slice_length = -(-size // 64)
    for done, length in zip(np.cumsum([0, *lengths]), lengths, strict=False):
        assert length <= max(1, (size - done) / 4) + slice_length
    assert len(lengths) <= 20 and max(lengths[-4:]) <= slice_length


@pytest.mark.parametrize("size", SIZES)
def test_chunks_of_python_threads_are_even(monkeypatch, size):
    """A short one at the end would leave the others too long: somebody would wait for the last."""
    lengths = pieces(monkeypatch, PythonPool(), size)
    assert len(lengths) == min(size, 8) and lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads(monkeypatch, count, threads):
    monkeypatch.setattr(llvm, "_available_cores", lambda: 8)
    pools = [PythonPool()] + ([NativePool()] if NativePool.is_supported() else [])
    for some_pool in pools:
        with Context(NUM_CPU_THREADS=threads):
            for size in (1, 2, 5, 31, 1000):
                np.testing.assert_array_equal(call(some_pool, count, size), np.arange(size))
        if isinstance(some_pool, NativePool):
            assert len(some_pool._threads) == threads - 1
            some_pool.stop()


def test_num_cpu_threads_limits_the_cores():
    with Context(NUM_CPU_THREADS=1):
        assert llvm.usable_cores() == 1 and llvm.target().cores == 1
    with Context(NUM_CPU_THREADS=10_000):
        assert llvm.usable_cores() == llvm._available_cores()


@needs_native
def test_the_pool_grows(monkeypatch, count):
    monkeypatch.setattr(llvm, "_available_cores", lambda: 8)
    some_pool = NativePool()
    for threads in (2, 5, 3):
        with Context(NUM_CPU_THREADS=threads):
            np.testing.assert_array_equal(call(some_pool, count, 100), np.arange(100))
    assert len(some_pool._threads) == 4
    some_pool.stop()


def test_many_short_regions(any_pool, count):
    for _ in range(2000 if any_pool is pool else 50):
        assert call(any_pool, count, 16).sum() == 120


@needs_native
def test_many_threads_on_few_cores(monkeypatch, count):
    """More workers than cores: late ones must find the region closed and keep out."""
    monkeypatch.setattr(llvm, "_available_cores", lambda: 12)
    some_pool = NativePool()
    for size in range(1, 400):
        np.testing.assert_array_equal(call(some_pool, count, size), np.arange(size))
    some_pool.stop()


def test_python_threads_at_once(any_pool, count):
    errors = []

    def work(value):
        for size in range(1, 200):
            result = call(any_pool, count, size, value)
            if not np.array_equal(result, np.arange(size) + value):
                errors.append((value, size))

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not errors


def make_table(count, sizes):
    """A table of launches, all over one memory, and that memory."""
    out = np.zeros(max(sizes), dtype=np.int64)
    args = (ctypes.c_int64 * 2)(out.ctypes.data, 1)
    words = [word for size in sizes for word in (count.address, ctypes.addressof(args), size)]
    return (ctypes.c_int64 * len(words))(*words), args, out


def sums(sizes):
    total = np.zeros(max(sizes), dtype=np.int64)
    for size in sizes:
        total[:size] += np.arange(size) + 1
    return total


TABLES = [(1, 100), (100, 1, 100), (1, 1000, 30, 1000), (1, 1, 1), (7, 100_000)]


@pytest.mark.parametrize("sizes", TABLES)
def test_run_table(any_pool, count, sizes):
    """A table of launches runs in order: each adds to what the others wrote."""
    table, _args, out = make_table(count, sizes)
    any_pool.run_table(ctypes.addressof(table), len(sizes), llvm.usable_cores())
    np.testing.assert_array_equal(out, sums(sizes))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", TABLES)
def test_a_table_that_was_begun_is_finished(any_pool, count, sizes, threads):
    """The caller may do anything in between: others who want the workers do their work alone."""
    table, _args, out = make_table(count, sizes)
    address = ctypes.addressof(table)
    for _ in range(20):
        out[:] = 0
        begun = any_pool.begin_table(address, threads)
        np.testing.assert_array_equal(call(any_pool, count, 1000, 5), np.arange(1000) + 5)
        any_pool.finish_table(address, len(sizes), threads, begun)
        np.testing.assert_array_equal(out, sums(sizes))
    np.testing.assert_array_equal(call(any_pool, count, 1000, 5), np.arange(1000) + 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_anew(any_pool, count):
    np.testing.assert_array_equal(call(any_pool, count, 1000), np.arange(1000))
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(call(any_pool, count, 1000), np.arange(1000)) for _ in range(20))
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if np.array_equal(call(any_pool, count, 100), np.arange(100)) else 1)
        good = good and os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 0
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(call(any_pool, count, 1000), np.arange(1000))


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_finishes_what_was_begun_before_the_fork():
    begins = llvm.load(llvm.LLVMCompiler().compile(BEGINS), "begins")
    table, _args, out = make_table(begins, (1, 1000, 10))
    address, threads = ctypes.addressof(table), llvm.usable_cores()
    out[:] = -1
    begun = pool.begin_table(address, threads)
    child = os.fork()
    pool.finish_table(address, 3, threads, begun)
    if child == 0:
        os._exit(0 if (out >= 0).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (out >= 0).all()


@needs_native
def test_fork_while_another_thread_runs_a_kernel(count, busy):
    out = np.zeros(1, dtype=np.int64)
    args = (ctypes.c_int64 * 2)(out.ctypes.data, 20_000_000)
    runner = threading.Thread(target=pool.run, args=(busy.address, ctypes.addressof(args), 2))
    runner.start()
    time.sleep(0.005)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(call(pool, count, 1000), np.arange(1000)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    runner.join(300)


@needs_native
def test_a_stopped_pool_still_does_the_work(count):
    some_pool = NativePool()
    call(some_pool, count, 100)
    some_pool.stop()
    some_pool.stop()
    np.testing.assert_array_equal(call(some_pool, count, 100), np.arange(100))
    assert not some_pool._threads


@needs_native
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="/proc is not mounted")
def test_workers_leave_signals_to_the_main_thread(count):
    """A signal must interrupt the main thread's sleep, so no worker may be the one to get it."""
    call(pool, count, 100)
    # its thread, which ends tests that hang, blocks all signals
    faulthandler.cancel_dump_traceback_later()
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert seen
        for task in os.listdir("/proc/self/task"):
            if int(task) not in {thread.native_id for thread in threading.enumerate()}:
                status = open(f"/proc/self/task/{task}/status").read()
                blocked = int(status.split("SigBlk:")[1].split()[0], 16)
                if blocked:
                    assert blocked >> (signal.SIGINT - 1) & 1
                    assert not blocked >> (signal.SIGSEGV - 1) & 1
    finally:
        signal.signal(signal.SIGUSR1, before)


PROGRAM = """
import ctypes
from test.runtime.kernels import COUNT
from weft.runtime import llvm
from weft.runtime.pool import pool
code = llvm.load(llvm.LLVMCompiler().compile(COUNT), "count")
out = (ctypes.c_int64 * 100)()
args = (ctypes.c_int64 * 2)(ctypes.addressof(out), 1)
def run():
    pool.run(code.address, ctypes.addressof(args), 100)
run()
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "raise SystemExit(0)",
        "import atexit; atexit.register(run)",
        "import threading, time\n"
        "def spin():\n    while True: run()\n"
        "threading.Thread(target=spin, daemon=True).start(); time.sleep(0.05)",
        "import multiprocessing\nc = multiprocessing.get_context('fork').Process(target=run)\n"
        "c.start(); c.join(); raise SystemExit(c.exitcode)",
    ],
)
def test_a_clean_exit(ending):
    done = run_python(PROGRAM + ending)
    assert (done.returncode, done.stderr) == (0, "")
