"""UOp: rebuilding, walking, pickling."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from weft.dtype import dtypes
from weft.errors import ArgumentError, DeviceError
from weft.uop.args import KernelInfo
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops

x = Variable("x", 0, 10)
y = Variable("y", 0, 3)


def chain(length: int) -> UOp:
    """x + y + y + ..."""
    node = Variable("chain", 0, 1)
    for _ in range(length):
        node = UOp(Ops.ADD, dtypes.weakint, (node, y))
    return node


# ------------------------------------------------------------ interning
def test_the_same_contents_are_the_same_object() -> None:
    assert (x + y) * 2 is (x + y) * 2
    assert UOp(Ops.NEG, dtypes.weakint, (x,)) is UOp(Ops.NEG, dtypes.weakint, (x,), None, None)


@pytest.mark.parametrize(
    "other",
    [
        UOp(Ops.NEG, dtypes.int32, (x,)),
        UOp(Ops.NEG, dtypes.weakint, (y,)),
        UOp(Ops.NEG, dtypes.weakint, (x,), 1),
        UOp(Ops.NEG, dtypes.weakint, (x,), None, "tag"),
        UOp(Ops.DETACH, dtypes.weakint, (x,)),
    ],
)
def test_every_field_counts(other: UOp) -> None:
    assert other is not UOp(Ops.NEG, dtypes.weakint, (x,))


def test_constants_are_told_apart_by_sign_and_nan() -> None:
    zero, minus_zero = UOp.const(dtypes.float32, 0.0), UOp.const(dtypes.float32, -0.0)
    assert zero is not minus_zero
    assert UOp.const(dtypes.float32, float("nan")) is UOp.const(dtypes.float32, -float("nan"))
    assert UOp.const(dtypes.int32, 1) is not UOp.const(dtypes.bool, True)


def test_removing_a_tag_gives_the_original() -> None:
    node = x + 1
    tagged = node.rtag("seen")
    assert tagged is not node and tagged.tag == "seen"
    assert tagged.replace(tag=None) is node
    assert tagged.rtag(None) is node


def test_replace_refuses_unknown_fields() -> None:
    with pytest.raises(ArgumentError, match="not \\['color'\\]"):
        x.replace(color=1)


def test_copies_are_the_node_itself() -> None:
    node = x + y
    assert copy.copy(node) is node and copy.deepcopy(node) is node


def test_origin_survives_rebuilding() -> None:
    node = Variable("with_origin", 0, 5) + 1
    node.origin = ("model.py", 7)
    assert node.with_src((y, node.src[1])).origin == ("model.py", 7)
    assert node.replace(tag="t").origin == ("model.py", 7)


# ------------------------------------------------------------ garbage
def test_pickling_keeps_identity_and_sharing() -> None:
    shared = x * 2 + 1
    node = (shared * shared).sink(shared, arg=KernelInfo("k"))
    assert pickle.loads(pickle.dumps(node)) is node


def test_pickling_a_deep_chain_does_not_recurse() -> None:
    node = chain(100_000)
    assert pickle.loads(pickle.dumps(node)) is node


def test_key_is_the_same_in_every_process() -> None:
    program = (
        "from weft.uop.node import Variable, UOp\n"
        "r = UOp.range(4, 0)\n"
        "print(((Variable('a', 0, 9) * 3 + r) < 5).key.hex())\n"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
        ).stdout
        for _ in range(2)
    }
    assert len(keys) == 1
    (key,) = keys
    assert key.strip() == ((Variable("a", 0, 9) * 3 + UOp.range(4, 0)) < 5).key.hex()


# ------------------------------------------------------------ walking
def test_toposort_has_sources_first_and_each_node_once() -> None:
    shared = x + y
    root = shared * shared
    order = list(root.toposort())
    assert order == [x, y, shared, root]


def test_toposort_gate_says_whose_sources_to_enter() -> None:
    inner = x + y
    root = inner * 2
    order = root.toposort(gate=lambda node: node is not inner)
    assert inner in order and x not in order


def test_backward_slice_leaves_the_node_out() -> None:
    node = x + y
    assert list(node.backward_slice) == [x, y]


def test_deep_chains_are_walked_without_recursion() -> None:
    node = chain(100_000)
    assert len(node.toposort()) == 100_002
    assert node.vmax is not None
    assert node.shape == () and node.device is None and not node.ranges
    assert len(node.key) == 32
    assert node.substitute({y: x}) is not node


def test_substitute_replaces_whole_nodes_and_not_their_replacements() -> None:
    assert (x + y).substitute({x: y, y: x}) is y + x
    assert (x + y).substitute({}) is x + y


# ------------------------------------------------------------ facts
def test_variables_are_sorted_by_name() -> None:
    a, b = Variable("a", 0, 2), Variable("b", 0, 2)
    assert (b + a * b).variables() == [a, b]


def test_bind_and_unbind() -> None:
    bound = x.bind(3)
    assert bound.unbind() == (x, 3)
    assert (bound + 1).unbind_all() == (x + 1, {x: 3})
    with pytest.raises(ArgumentError, match="from 0 to 10, found 11"):
        x.bind(11)
    with pytest.raises(ArgumentError, match="only a Variable"):
        (x + 1).bind(2)


def test_the_truth_of_an_open_question_is_an_error() -> None:
    assert bool(UOp.const(dtypes.bool, True))
    with pytest.raises(ArgumentError, match="not known yet"):
        bool(x < 5)


def test_buffers_are_distinct_and_devices_do_not_mix() -> None:
    first = UOp.new_buffer("CPU", 4, dtypes.float32)
    second = UOp.new_buffer("CPU", 4, dtypes.float32)
    other = UOp.new_buffer("CPU:1", 4, dtypes.float32)
    assert first is not second
    assert (first + second).device == "CPU" and first.shape == (4,)
    with pytest.raises(DeviceError, match="CPU and CPU:1.*x.to"):
        _ = (first + other).device
