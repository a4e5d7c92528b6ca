"""Realize: caches, threads, devices, errors; whatever happens, the rest still works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from weft import Context, Device, GlobalCounters, Tensor, Variable, dtypes
from weft.errors import DeviceError, OutOfMemory


def test_second_step_hits_the_schedule_cache(capsys: pytest.CaptureFixture[str]) -> None:
    w = Tensor(np.ones((4, 5), dtype=np.float32)).realize()
    for _ in range(3):
        with Context(DEBUG=1):
            w.assign(w * 2 + 1).realize()
    text = capsys.readouterr().out
    assert text.count("cache hit") >= 2
    assert w.numpy()[0, 0] == 15.0


def test_another_value_of_a_variable_hits_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    position = Variable("position", 0, 7)
    data = Tensor(np.arange(8, dtype=np.float32)).realize()
    found = []
    for i in (1, 4, 6):
        at = position.bind(i)
        with Context(DEBUG=1):
            found.append(data[at : at + 1].sum().item())
    assert found == [1.0, 4.0, 6.0]
    assert capsys.readouterr().out.count("cache hit") == 2


def test_equal_kernels_share_a_program() -> None:
    a = Tensor(np.ones(77, dtype=np.float32)).realize()
    b = Tensor(np.full(77, 2, dtype=np.float32)).realize()
    first, second = (a * 3 + 1).schedule()[0].kernel, (b * 3 + 1).schedule()[0].kernel
    assert first is second


def test_several_threads_build_and_run() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            for _ in range(8):
                n = rng.standard_normal((17, 23)).astype(np.float32)
                t = Tensor(n)
                found = ((t + seed).relu() @ t.T).softmax(-1).sum().item()
                assert abs(found - 17) < 1e-3
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not errors


def test_copies_between_devices() -> None:
    n = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = Tensor(n).realize()
    other = (t.to("CPU:1") * 2).realize()
    assert other.device == "CPU:1"
    oracle = (other.to("PYTHON") + 1).realize()
    assert oracle.device == "PYTHON"
    np.testing.assert_array_equal(oracle.to("CPU").numpy(), n * 2 + 1)
    part = t[1:3, 1:3].to("CPU:1")
    np.testing.assert_array_equal(part.numpy(), n[1:3, 1:3])
    with pytest.raises(DeviceError, match=r"CPU:1.*\.to\("):
        (t + other).realize()


def test_the_first_device_has_one_name() -> None:
    assert Device.canonicalize("CPU:0") == "CPU"
    assert Device["CPU"] is not Device["CPU:1"]


def test_out_of_memory_leaves_everything_else_usable() -> None:
    small = Tensor(np.ones(3, dtype=np.float32)).realize()
    with pytest.raises(OutOfMemory, match=f"{Device.DEFAULT} cannot give"):
        Tensor.ones(1 << 26, 1 << 20, dtype=dtypes.float64).contiguous().realize()
    assert (small + 1).tolist() == [2, 2, 2]


def test_failed_write_is_not_half_done() -> None:
    t = Tensor(np.ones(3, dtype=np.float32)).realize()
    t.assign(t + 1)
    huge = Tensor.ones(1 << 26, 1 << 20, dtype=dtypes.float64).contiguous()
    with pytest.raises(OutOfMemory):
        Tensor.realize(t, huge)
    assert t.tolist() == [2, 2, 2]
    assert t.tolist() == [2, 2, 2]


def test_null_device_compiles_and_runs_nothing() -> None:
    t = (Tensor.ones(4, 4, device="NULL").contiguous() @ Tensor.ones(4, 4, device="NULL")).realize()
    assert t.device == "NULL"


def test_intermediates_share_memory() -> None:
    x = Tensor(np.ones(1 << 16, dtype=np.float32)).realize()
    before = GlobalCounters.mem_used
    y = x
    for _ in range(10):
        y = (y + 1).contiguous()
    peak = []
    y.realize()
    peak.append(GlobalCounters.mem_used)
    assert y.numpy()[0] == 11
    assert peak[0] - before <= 2 * x.nbytes()


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
from weft import Tensor
a = Tensor(np.ones((700, 700), dtype=np.float32)).realize()
count = Tensor(np.zeros(1, dtype=np.float32)).realize()
(a @ a).realize(); count.assign(count + 1).realize()
done = 1
main = os.getpid()
threading.Timer(0.4, lambda: os.kill(main, signal.SIGINT)).start()
try:
    while True:
        (a @ a).realize()
        count.assign(count + 1).realize()
        done += 1
except KeyboardInterrupt:
    pass
assert (a @ a).numpy()[0, 0] == 700
assert count.item() in (done, done + 1), (count.item(), done)
print("fine")
"""


def test_interrupt_leaves_everything_usable() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "fine"
    assert signal.getsignal(signal.SIGINT) is not None
