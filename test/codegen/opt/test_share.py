"""Share: which loops the cores divide among themselves."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, kernel, load
from weft import dtypes
from weft.codegen.opt.opt import OptOps
from weft.codegen.opt.outline import Outline
from weft.codegen.opt.share import can_share, share_outputs, slowest_core, thread_opts
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

FOUR = Target(name="four", has_threads=True, cores=4)


def doubled(rows: int, is_shifted: bool = False) -> UOp:
    """p[i] = p[i] * 2 in place, or p[i] = p[i + 1] * 2."""
    i = Axes().loop(rows)
    memory = UOp.param(0, dtypes.float32, rows + 1)
    value = load(memory, i + 1 if is_shifted else i)
    return kernel(memory.index(i).store(value * 2.0, i))


def test_cores_run_apart_unless_one_reads_what_another_writes() -> None:
    assert can_share([list(doubled(64).src)])
    assert not can_share([list(doubled(64, is_shifted=True).src)])


def test_the_outermost_loop_is_shared() -> None:
    (opt,) = thread_opts(Outline(doubled(64)), FOUR, FOUR.cores)
    assert opt.op is OptOps.THREAD and opt.axis == (0,)
    shared = share_outputs(doubled(64), FOUR)
    kinds = [u.arg.kind for u in shared.toposort() if u.op is Ops.RANGE]
    assert kinds == [AxisType.THREAD]


def test_more_parts_than_cores_even_out_and_refills_count() -> None:
    assert slowest_core(4, 1, 64, 0.0, 4, FOUR) < slowest_core(5, 1, 64, 0.0, 4, FOUR)
    assert slowest_core(5, 8, 64, 0.0, 4, FOUR) < slowest_core(5, 1, 64, 0.0, 4, FOUR)
    assert slowest_core(1, 4, 64, 2.0, 4, FOUR) > slowest_core(1, 4, 64, 0.0, 4, FOUR)
