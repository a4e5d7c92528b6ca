"""The table of live nodes: garbage, threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from weft.dtype import dtypes
from weft.uop import intern
from weft.uop.intern import leisurely_deaths, live_uops
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops

y = Variable("y", 0, 3)


def chain(length: int) -> UOp:
    """x + y + y + ..."""
    node = Variable("chain", 0, 1)
    for _ in range(length):
        node = UOp(Ops.ADD, node.dtype, (node, y))
    return node


def test_dead_nodes_leave_the_table() -> None:
    gc.collect()
    before = live_uops()
    node = chain(1000)
    assert live_uops() >= before + 1000
    ref = weakref.ref(node)
    del node
    assert ref() is None
    assert live_uops() <= before


def test_deaths_that_may_wait_do_not_wait_for_ever() -> None:
    gc.collect()
    before = live_uops()
    with leisurely_deaths():
        with leisurely_deaths():
            chain(100)
        # one block of another thread is over: this one still goes on
        survivor = chain(5000)
        del survivor
        chain(10)
    assert live_uops() <= before
    node = chain(1000)
    ref = weakref.ref(node.src[0])
    del node
    assert ref() is None, "after the block a node takes its sources along at once"


def test_a_node_can_be_made_again_after_it_died() -> None:
    def make() -> UOp:
        return Variable("phoenix", 0, 5) + 1

    first = weakref.ref(make())
    assert first() is None
    assert make() is not None and make().src[0].arg.name == "phoenix"


def test_a_million_nodes_are_freed_without_a_crash() -> None:
    # in a process of its own: a stack overflow would take the whole test run along
    program = (
        "from weft.uop.intern import live_uops\n"
        "from weft.uop.node import UOp\n"
        "from weft.uop.opset import Ops\n"
        "before = live_uops()\n"
        "node = UOp.variable('x', 0, 1)\n"
        "for _ in range(1_000_000): node = UOp(Ops.NEG, node.dtype, (node,))\n"
        "del node\n"
        "print(live_uops() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 0


def test_threads_that_intern_at_once_agree() -> None:
    results: list[list[UOp]] = []
    barrier = threading.Barrier(4)

    def build() -> None:
        barrier.wait(300)
        nodes = []
        for round_number in range(300):
            node = Variable("shared", 0, 7)
            for i in range(10):
                node = node * (i + 2) + round_number
            nodes.append(node)
        results.append(nodes)

    previous = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    finally:
        sys.setswitchinterval(previous)
    assert len(results) == 4
    assert all(nodes == results[0] for nodes in results)


def test_threads_that_build_and_drop_keep_the_table_whole() -> None:
    """A dying node must never take the entry of its successor along."""
    wrong: list[UOp] = []

    def churn() -> None:
        for number in range(3000):
            first = UOp(Ops.NEG, dtypes.weakint, (y,), number % 3)
            second = UOp(Ops.NEG, dtypes.weakint, (y,), number % 3)
            if first is not second:
                wrong.append(first)
            del first, second

    previous = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    finally:
        sys.setswitchinterval(previous)
    assert not wrong


# ------------------------------------------------------------ pickling


def test_nodes_that_die_when_the_interpreter_ends_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Builtins that comparing keys would need may be gone by then."""
    monkeypatch.setattr(intern, "_is_sweeping", False)
    intern._rest()
    node = UOp.const(dtypes.float32, 1234.5) + UOp.const(dtypes.float32, 2345.5)
    size = len(intern.table)
    del node
    gc.collect()
    assert len(intern.table) == size
    intern._is_sweeping = False
    intern.forget()
    assert len(intern.table) < size
