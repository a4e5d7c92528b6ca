"""linear.py: a schedule as programs for tinygrad look at it."""

from __future__ import annotations

from weft import Device, Tensor
from weft.engine.linear import compile_linear, run_linear
from weft.uop.ops import Ops


def test_calls_have_their_kernel_and_their_memory() -> None:
    linear = (Tensor([1.0, 2.0]) + 1).schedule_linear()
    assert linear.op is Ops.LINEAR  # type: ignore[attr-defined]
    (call,) = linear.src
    assert call.op is Ops.CALL and call.src[0].op is Ops.SINK  # type: ignore[attr-defined]
    assert len(call.src) == 3 and call.arg == Device.DEFAULT


def test_nodes_of_the_kernels_are_found_sources_first() -> None:
    linear = (Tensor([1.0, 2.0]) + 1).schedule_linear()
    nodes = list(linear.toposort())
    assert nodes[-1] is linear
    kinds = [node.op for node in nodes if hasattr(node, "op")]
    assert kinds.index(Ops.LOAD) < kinds.index(Ops.ADD) < kinds.index(Ops.STORE)


def test_running_it_computes_the_tensors() -> None:
    result = Tensor([1.0, 2.0]) + 1
    run_linear(compile_linear(result.schedule_linear()))
    assert result.uop.is_realized and result.tolist() == [2.0, 3.0]
