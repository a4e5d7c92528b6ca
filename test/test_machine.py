"""The description of a machine: values, defaults, and what is asked of the host."""

from __future__ import annotations

from dataclasses import replace

from weft import Device, Tensor
from weft.machine import Target, weakest
from weft.renderer.cuda import SM_90, cuda_target
from weft.schedule.pipeline import make_schedule
from weft.uop.opset import GroupOp, Ops


def test_every_elementwise_op_has_a_cost() -> None:
    assert all([Target().op_cost(op) > 0 for op in GroupOp.Elementwise])


def test_a_machine_may_know_an_op_better_than_the_table() -> None:
    gpu = replace(Target(), op_costs=((Ops.EXP2, 2.0),))
    assert gpu.op_cost(Ops.EXP2) == 2.0 and Target().op_cost(Ops.EXP2) > 2.0
    assert gpu.op_cost(Ops.SIN) == Target().op_cost(Ops.SIN)


def test_the_host_tells_of_its_caches() -> None:
    target = Device["CPU"].renderer.target
    assert target.l1 <= target.l2 <= target.l3
    assert target.line_bytes <= target.alias_bytes <= target.l1
    assert target.scratch_bytes < target.l2


def test_rows_have_no_room_in_the_memory_of_a_group() -> None:
    assert Target(has_local=True, shared_bytes=1 << 16).row_room == 0
    assert Target().row_room > Target().l2


def test_what_each_level_of_memory_costs_is_in_order() -> None:
    target = Target()
    assert target.l2_cycles <= target.far_cycles
    assert target.l2_miss <= target.far_miss
    assert target.gather_cycles <= target.scatter_cycles <= target.alias_cycles


def test_parts_of_a_sum_are_the_same_up_to_sixteen_cores_and_more_beyond() -> None:
    counts = [replace(Target(), cores=n).parallel_parts for n in (1, 2, 16, 132)]
    assert counts == [64, 64, 64, 1024]


def test_several_machines_can_do_what_each_of_them_can() -> None:
    both = weakest([Target(max_buffers=8), Target(l2=1 << 10)])
    assert both.max_buffers == 8 and both.l2 == 1 << 10
    older = cuda_target(8, 0, cores=108, l2=40 << 20)
    both = weakest([SM_90, older])
    assert both.fragments == older.fragments != SM_90.fragments
    assert both.most_shared_bytes == older.most_shared_bytes and both.has_matrix_loads
    assert weakest([SM_90, Target()]).fragments == ()


def test_rows_of_a_softmax_are_one_kernel_on_a_machine_of_many_cores() -> None:
    """A launch more would cost more than cores that are idle."""
    many = replace(Target(), cores=132, has_local=True)
    x = Tensor.empty(64, 1000)
    for value in (x.softmax(1), x.layernorm()):
        made = make_schedule(value.uop.sink(), -1 << 40, "CPU", lambda device: many)
        assert len(made.items) == 1
