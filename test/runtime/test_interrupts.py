"""Ctrl-C is obeyed in the middle of a kernel and of a compilation, and what comes next works."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.runtime.kernels import COUNT, ENDLESS
from weft import Tensor
from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.runtime.ops_cpu import CPUGraph
from weft.runtime.pool import NativePool, pool

pytestmark = [
    pytest.mark.skipif(not NativePool.is_supported(), reason="no futexes here"),
    pytest.mark.device("CPU"),
]

CPU: Any = Device["CPU"]


@pytest.fixture
def words() -> Any:
    """What the kernel says and hears, as an array in the memory of its buffer."""
    pool.prepare()
    buffer = Buffer("CPU", 2, dtypes.int64).copyin(bytes(16))
    return buffer, (ctypes.c_int64 * 2).from_address(buffer.address)


def endless(threads_n: int) -> Any:
    return CPU.runtime("endless", CPU.compiler.compile(ENDLESS), threads_n, 1, 0)


@contextmanager
def interrupting(heard: Any) -> Iterator[None]:
    """Sends SIGINT to the process once a kernel has begun."""

    def send() -> None:
        while not heard[0]:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield
    thread.join(300)


@contextmanager
def handling(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check_the_pool() -> None:
    """Every index of a parallel kernel runs once."""
    out = Buffer("CPU", 1000, dtypes.int64).copyin(bytes(8000))
    program = CPU.runtime("count", CPU.compiler.compile(COUNT), 1000, 1, 1)
    for _ in range(20):
        program([out], [1])
    np.testing.assert_array_equal(out.numpy(), 20 + 20 * np.arange(1000))


@pytest.mark.parametrize("threads_n", [1, 2, 64])
def test_an_interrupt_ends_a_kernel(threads_n: int, words: Any) -> None:
    buffer, heard = words
    program = endless(threads_n)
    for _ in range(3):
        heard[0] = 0
        with pytest.raises(KeyboardInterrupt), interrupting(heard):
            program([buffer])
        check_the_pool()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heard[1] = 1
    program([buffer])


@pytest.mark.parametrize("threads_n", [1, 64])
def test_an_interrupt_ends_a_replay(threads_n: int, words: Any) -> None:
    buffer, heard = words
    graph = CPUGraph(array("q", [buffer.address]))
    graph.record(endless(threads_n), [(0, 0)])
    with pytest.raises(KeyboardInterrupt), interrupting(heard):
        graph.replay()
    heard[0] = 0
    with pytest.raises(KeyboardInterrupt), interrupting(heard):
        graph.begin()
        graph.finish()
    check_the_pool()


@pytest.mark.parametrize("threads_n", [1, 64])
def test_a_handler_that_returns_lets_the_kernel_go_on(threads_n: int, words: Any) -> None:
    buffer, heard = words
    seen: list[int] = []

    def end(number: int, frame: Any) -> None:
        # it may compute something itself
        seen.append((Tensor([number]) * 10).item())
        heard[1] = 1

    with handling(end), interrupting(heard):
        endless(threads_n)([buffer])
    assert seen == [10 * signal.SIGINT]
    check_the_pool()


def test_what_a_handler_raises_and_sets_stays(words: Any) -> None:
    buffer, heard = words

    class Stop(Exception):
        pass

    def other(number: int, frame: Any) -> None:
        raise AssertionError

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, other)
        raise Stop("now")

    with handling(stop):
        with pytest.raises(Stop, match="now"), interrupting(heard):
            endless(1)([buffer])
        assert signal.getsignal(signal.SIGINT) is other
        with pytest.raises(AssertionError):
            signal.raise_signal(signal.SIGINT)


def test_a_kernel_of_another_thread_goes_on(words: Any) -> None:
    buffer, heard = words
    runner = threading.Thread(target=lambda: endless(64)([buffer]), daemon=True)
    with pytest.raises(KeyboardInterrupt), interrupting(heard):
        runner.start()
        time.sleep(300)
    assert runner.is_alive()
    heard[1] = 1
    runner.join(300)
    assert not runner.is_alive()
    check_the_pool()


LONG_KERNEL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from weft import Tensor, TinyJit
from weft.engine.cell import Cell
x = Tensor([1.0, 2.0]).realize()
rows, columns = Tensor.arange(1 << 20).reshape(-1, 1), Tensor.arange(1 << 20)
y = ((rows * 3 + columns) * x[0]).sin().max()
print("ready", flush=True)
try:
    y.realize()
except KeyboardInterrupt:
    print("interrupted", y._cell.is_realized, flush=True)
print((x + 1).tolist(), (x @ x).item())
"""


def test_a_value_that_was_interrupted_stays_pending() -> None:
    """A kernel that would run for hours; or its compilation, if that takes long on this machine."""
    with Child([sys.executable, "-c", LONG_KERNEL], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(1.5)
        child.interrupt()
        assert child.stdout.readline() == "interrupted False\n"
        assert child.stdout.readline() == "[2.0, 3.0] 5.0\n"
        assert child.wait(60) == 0


# ------------------------------------------------------------ compiling
def long_source() -> str:
    """Straight-line code that takes LLVM tens of seconds."""
    lines = ["define void @long(ptr %args, i64 %begin, i64 %end) {", "  %p = load ptr, ptr %args"]
    for i in range(150_000):
        lines.append(f"  %q{i} = getelementptr double, ptr %p, i64 {i % 997}")
        lines.append(f"  %v{i} = load double, ptr %q{i}")
    for i in range(1, 150_000):
        before = f"%s{i - 1}" if i > 1 else "%v0"
        lines.append(f"  %s{i} = fadd double {before}, %v{i}")
    return "\n".join([*lines, "  store double %s149999, ptr %p", "  ret void", "}"])


LONG_COMPILATION = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from test.runtime.test_interrupts import CPU, long_source
from weft import Tensor
source = long_source()
print("ready", flush=True)
try:
    CPU.compiler.compile(source)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print((Tensor([1.0, 2.0]) + 1).tolist())
"""


def test_an_interrupt_does_not_wait_for_a_compilation() -> None:
    with Child([sys.executable, "-c", LONG_COMPILATION], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        child.interrupt()
        assert child.stdout.readline() == "interrupted\n"
        assert child.stdout.readline() == "[2.0, 3.0]\n"
        # also while a thread still compiles
        assert child.wait(60) == 0
