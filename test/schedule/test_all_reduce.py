"""All-reduces: the same bits on every device, whichever way the values go."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Context, Device, Tensor
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.storage import buffer_of, parts_of
from weft.schedule.all_reduce import LARGE, all_reduce
from weft.uop.node import UOp
from weft.uop.opset import Ops

DEVICES = ("CPU:1", "CPU:2", "CPU:3", "CPU:4")


@pytest.mark.parametrize("ring", [0, 1, 2])
@pytest.mark.parametrize("size", [3, LARGE])
def test_all_devices_have_the_same_sum(ring: int, size: int) -> None:
    data = np.random.default_rng(0).standard_normal((6, size)).astype(np.float32)
    with Context(RING=ring):
        total = Tensor(data).shard(DEVICES, 0).sum(0).realize()
    storage = total._cell.storage
    assert storage is not None
    parts = [buffer_of(part).numpy() for part in parts_of(storage)]
    np.testing.assert_allclose(parts[0], data.sum(0), rtol=1e-5, atol=1e-5)
    for part in parts[1:]:
        assert np.array_equal(part, parts[0])


def test_messages_of_a_large_sum_are_pieces() -> None:
    values = [(UOp.new_buffer(d, LARGE, dtypes.float32), d) for d in DEVICES]
    for ring in (1, 2):
        with Context(RING=ring):
            sink = UOp.sink(*all_reduce(values, Ops.ADD, DEVICES))
        copies = [node for node in sink.toposort() if node.op is Ops.COPY]
        assert all([node.size == LARGE // 4 for node in copies])
        # each device sends and receives three quarters of the value twice
        assert len(copies) == 2 * 4 * 3


def test_one_value_is_sent_to_the_others() -> None:
    value = UOp.new_buffer(DEVICES[1], 5, dtypes.int32)
    found = all_reduce([(value, DEVICES[1])], Ops.MAX, DEVICES)
    assert [node.op for node in found] == [Ops.COPY, Ops.BUFFER, Ops.COPY, Ops.COPY]


def test_devices_of_a_tuple_have_memory_of_their_own() -> None:
    assert Device["CPU:1"] is not Device["CPU:2"]
    assert isinstance(buffer_of(UOp.new_buffer("CPU:2", 1, dtypes.int8)), Buffer)
