"""Ctrl-C while memory is written in place: at once before the first write, soon after it, and what
was left half written is an error and never a value."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from test.children import Child
from weft import Tensor
from weft.engine import interrupts
from weft.engine.interrupts import lose, writing_in_place
from weft.errors import LostError
from weft.runtime.pool import NativePool
from weft.uop.node import UOp

needs_pool = pytest.mark.skipif(not NativePool.is_supported(), reason="no futexes here")


def storage() -> tuple[Tensor, UOp]:
    t = Tensor([1.0, 2.0, 3.0]).realize()
    found = t._cell.storage
    assert found is not None
    return t, found


# ------------------------------------------------------------ when it is obeyed
def test_before_the_first_write_it_is_obeyed_at_once() -> None:
    t, node = storage()
    with pytest.raises(KeyboardInterrupt), writing_in_place([node]):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")
    assert t.tolist() == [1.0, 2.0, 3.0]


def test_after_the_first_write_the_rest_is_finished() -> None:
    t, node = storage()
    seen = []
    with pytest.raises(KeyboardInterrupt), writing_in_place([node]) as writing:
        writing.begin()
        signal.raise_signal(signal.SIGINT)
        # make and others hand on what their child got already: still one press
        signal.raise_signal(signal.SIGINT)
        seen.append("finished")
        writing.end()
    assert seen and t.tolist() == [1.0, 2.0, 3.0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_has_to_wait_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "SILENT_SECONDS", 0.001)
    said = ""
    _, node = storage()
    with pytest.raises(KeyboardInterrupt), writing_in_place([node]) as writing:
        writing.begin()
        signal.raise_signal(signal.SIGINT)
        while "waits for a step that writes in place" not in said:
            said += capsys.readouterr().err
            time.sleep(0.001)
        writing.end()
    assert said.count("Ctrl-C") == 1


@pytest.mark.parametrize("is_pressed_again", [True, False])
def test_pressed_again_or_after_a_while_the_rest_is_left(
    is_pressed_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "ONE_PRESS_SECONDS", 0.0)
    if not is_pressed_again:
        monkeypatch.setattr(interrupts, "LONGEST_SECONDS", 0.01)
    t, node = storage()
    with pytest.raises(KeyboardInterrupt), writing_in_place([node]) as writing:
        writing.begin()
        signal.raise_signal(signal.SIGINT)
        if is_pressed_again:
            signal.raise_signal(signal.SIGINT)
        time.sleep(60)
    with pytest.raises(LostError, match="3 elements of .* were being written .* assign new values"):
        t.tolist()


def test_a_handler_that_returns_hears_of_it_once() -> None:
    heard = []
    _, node = storage()
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with writing_in_place([node]) as writing:
            writing.begin()
            signal.raise_signal(signal.SIGINT)
            writing.end()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]


# ------------------------------------------------------------ what is lost
def test_all_that_reads_lost_memory_is_an_error() -> None:
    t, node = storage()
    view, pending = t[1:], t * 2
    lose([node])
    for value in (t, view, pending, t + 1, t.sum()):
        with pytest.raises(LostError):
            value.tolist()
    with pytest.raises(LostError):
        t.assign(t + 1).realize()
    assert (Tensor([1.0]) + 1).tolist() == [2.0]


def test_lost_memory_can_be_assigned_anew() -> None:
    t, node = storage()
    view = t[1:]
    lose([node])
    t.assign(Tensor([4.0, 5.0, 6.0])).realize()
    assert t.tolist() == [4.0, 5.0, 6.0] and view.tolist() == [5.0, 6.0]
    t.assign(t + 1)
    assert t.tolist() == [5.0, 6.0, 7.0]


# ------------------------------------------------------------ in a program
# With a length of 2**20 a step runs for hours. In `first` that is before the kernel that writes, in
# `second` it is that kernel.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from weft import Tensor, TinyJit, Variable
from weft.engine import interrupts
from weft.errors import LostError
interrupts.LONGEST_SECONDS = 0.5
w = Tensor.ones(1 << 18).contiguous().realize()
numbers = Tensor.arange(1 << 20).float().contiguous().realize()

def first(n):
    taken = numbers[:n]
    w.assign(w + (taken.reshape(n, 1) * taken).sin().max())
    return w.realize()

def second(n):
    w.assign(w + (w.reshape(-1, 1) * numbers[:n] * numbers[:n].sum()).sin().max(1))
    return w.realize()

step = {step}
short, long = [Variable("n", 1, 1 << 20).bind(n) for n in (1, 1 << 20)]
for _ in range(3):
    step(short)
print("ready", flush=True)
try:
    step(long)
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    print({look}, flush=True)
except LostError:
    print("lost", flush=True)
if step is first:
    # what waits knows of the other length
    w = Tensor.zeros(1 << 18).contiguous().realize()
w.assign(Tensor.zeros(1 << 18))
step(short)
print(w.max().item())
"""


def interrupted(step: str, look: str) -> list[str]:
    source = PROGRAM.format(step=step, look=look)
    with Child([sys.executable, "-c", source], 60, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(1)
        child.interrupt()
        said = child.stdout.read().splitlines()
        assert child.wait(60) == 0
    return said


@needs_pool
@pytest.mark.device("CPU")
def test_a_pending_write_that_has_not_begun_stays_pending() -> None:
    assert interrupted("first", "w._cell.is_realized") == ["interrupted", "False", "0.0"]


@needs_pool
@pytest.mark.device("CPU")
def test_a_replay_that_has_not_begun_to_write_has_written_nothing() -> None:
    assert interrupted("TinyJit(first)", "w.max().item()") == ["interrupted", "1.0", "0.0"]


@needs_pool
@pytest.mark.device("CPU")
@pytest.mark.parametrize("step", ["second", "TinyJit(second)"])
def test_a_kernel_that_writes_for_long_is_left_and_its_memory_lost(step: str) -> None:
    assert interrupted(step, "w.max().item()") == ["interrupted", "lost", "0.0"]
