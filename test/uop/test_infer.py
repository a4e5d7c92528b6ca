"""Shapes, devices and open ranges: every rule, and the errors."""

from __future__ import annotations

from typing import Any

import pytest

from weft.dtype import DType, dtypes
from weft.errors import ArgumentError, DeviceError, ShapeError
from weft.uop.args import AxisType, ReduceArg, StageArg
from weft.uop.infer import derive_ranges
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops


def tensor(*shape: Any, dtype: DType = dtypes.float32, device: str = "CPU") -> UOp:
    """A buffer seen in a shape of ints."""
    size = 1
    for dim in shape:
        size *= dim
    return UOp(Ops.RESHAPE, dtype, (UOp.new_buffer(device, size, dtype),), tuple(shape))


def movement(op: Ops, source: UOp, arg: Any, *symbolic: UOp) -> UOp:
    return UOp(op, source.dtype, (source, *symbolic), arg)


n = Variable("n", 1, 8)


@pytest.mark.parametrize(
    "op, arg, shape",
    [
        (Ops.RESHAPE, (3, 2), (3, 2)),
        (Ops.RESHAPE, (6,), (6,)),
        (Ops.PERMUTE, (1, 0), (3, 2)),
        (Ops.FLIP, (True, False), (2, 3)),
        (Ops.PAD, ((1, 2), (0, 0)), (5, 3)),
        (Ops.SHRINK, ((0, 1), (1, 3)), (1, 2)),
        (Ops.STRIDE, (1, 2), (2, 2)),
        (Ops.STRIDE, (2, 3), (1, 1)),
        (Ops.REDUCE_AXIS, ReduceArg(Ops.ADD, (1,)), (2, 1)),
        (Ops.REDUCE_AXIS, ReduceArg(Ops.ADD, (0, 1)), (1, 1)),
        (Ops.CONTIGUOUS, None, (2, 3)),
    ],
)
def test_one_source(op: Ops, arg: Any, shape: tuple[int, ...]) -> None:
    assert movement(op, tensor(2, 3), arg).shape == shape


def test_expand() -> None:
    assert movement(Ops.EXPAND, tensor(1, 3), (4, 3)).shape == (4, 3)


def test_symbolic_parts_are_sources() -> None:
    symbolic = movement(Ops.RESHAPE, tensor(8), (None, 2), n)
    assert symbolic.shape == (n, 2) and symbolic.marg == (n, 2)
    shrunk = movement(Ops.SHRINK, tensor(8, 2), ((0, None), (0, 2)), n)
    assert shrunk.marg == ((0, n), (0, 2))
    assert shrunk.shape[1] == 2 and shrunk.shape[0].simplify() is n


def test_cat_and_gather() -> None:
    assert UOp(Ops.CAT, dtypes.float32, (tensor(2, 3), tensor(4, 3)), 0).shape == (6, 3)
    index = tensor(5, 7, dtype=dtypes.int32)
    assert UOp(Ops.GATHER, dtypes.float32, (tensor(2, 3), index), (0,)).shape == (5, 7, 3)
    assert UOp(Ops.GATHER, dtypes.float32, (tensor(2, 3), index, index), (0, 1)).shape == (5, 7)


def test_iota() -> None:
    assert UOp(Ops.IOTA, dtypes.int32, (), 5).shape == (5,)
    assert UOp(Ops.IOTA, dtypes.int32, (n,)).shape == (n,)


def test_elementwise_operands_have_one_shape_and_scalars_broadcast() -> None:
    a, b = tensor(2, 3), tensor(2, 3)
    assert (a + b).shape == (2, 3)
    assert (a + 1).shape == (2, 3)
    with pytest.raises(ShapeError, match=r"ADD needs operands of one shape, .*\(2, 3\).*\(3, 2\)"):
        _ = (a + tensor(3, 2)).shape


@pytest.mark.parametrize(
    "dtype, shape", [(dtypes.int32, (2, 4)), (dtypes.int8, (2, 16)), (dtypes.int64, (2, 2))]
)
def test_bitcast_changes_the_last_axis(dtype: DType, shape: tuple[int, ...]) -> None:
    assert tensor(2, 4).bitcast(dtype).shape == shape


def test_bitcast_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ShapeError, match="float32 to int64 .*found 3 elements of 4 bytes"):
        _ = tensor(2, 3).bitcast(dtypes.int64).shape


def test_stage_is_as_long_as_its_ranges() -> None:
    ranges = (UOp.range(4, 0), UOp.range(8, 1))
    value = UOp.const(dtypes.float32, 1.0)
    assert UOp(Ops.STAGE, dtypes.float32, (value, *ranges), StageArg(0)).shape == (32,)


def test_a_window_at_a_position_known_at_run_time_has_a_known_size() -> None:
    """Found by seed 73 of the random programs: x[n : n + 2] did not broadcast with x[:2]."""
    n = UOp.variable("n", 0, 3)
    for place in (n, n.bind(2)):
        window = UOp.new_buffer("CPU", 6, dtypes.float32)._mop(Ops.SHRINK, ((place, place + 2),))
        assert window.shape == (2,) and isinstance(window.shape[0], int)


def test_effects_have_no_shape() -> None:
    with pytest.raises(ArgumentError, match="SINK has no value"):
        _ = tensor(2).sink().shape


def test_devices() -> None:
    here, there = tensor(2), tensor(2, device="CPU:1")
    assert (here + 1).device == "CPU"
    assert UOp.const(dtypes.float32, 1.0).device is None
    moved = UOp(Ops.COPY, dtypes.float32, (there,), "CPU")
    assert (here + moved).device == "CPU"
    with pytest.raises(DeviceError, match=r'MUL .*CPU and CPU:1.*x.to\("CPU"\)'):
        _ = (here * there).device


def test_ranges_are_closed_by_reduce_and_store() -> None:
    outer, inner = UOp.range(4, 0), UOp.range(8, 1, AxisType.REDUCE)
    source = UOp.param(1, dtypes.float32, 32)
    value = source.index(outer * 8 + inner).load()
    assert value.ranges == {outer, inner}
    total = value.reduce(Ops.ADD, inner)
    assert total.ranges == {outer}
    assert UOp.param(0, dtypes.float32, 4).index(outer).store(total, outer).ranges == frozenset()


def test_ranges_of_a_whole_graph_are_those_of_its_nodes() -> None:
    outer, inner = UOp.range(4, 700), UOp.range(8, 701)
    total = (outer * 8 + inner).cast(dtypes.float32).reduce(Ops.ADD, inner)
    order = list(total.toposort())
    derive_ranges(order)
    assert total.ranges == {outer} and total.src[0].ranges == {outer, inner}
