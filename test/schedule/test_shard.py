"""Graphs over several devices become graphs of single ones: where nothing has to move, nothing
does."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, TinyJit
from weft.engine.storage import buffer_of, parts_of
from weft.errors import ArgumentError, DeviceError, ShapeError
from weft.schedule.shard import lower_shards
from weft.uop.node import UOp
from weft.uop.opset import Ops

DEVICES = ("CPU:1", "CPU:2", "CPU:3")
DATA = np.arange(60, dtype=np.float32).reshape(5, 4, 3)


def lowered(tensor: Tensor) -> UOp:
    found = lower_shards(UOp.sink(tensor.uop), UOp.new_buffer)
    assert found is not None
    return found[0]


def transfers(tensor: Tensor) -> int:
    return len([node for node in lowered(tensor).toposort() if node.op is Ops.COPY])


def cut(axis: int) -> Tensor:
    return Tensor(DATA).shard(DEVICES, axis).realize()


def test_a_graph_of_one_device_passes_as_it_is() -> None:
    assert lower_shards(UOp.sink((Tensor(DATA) + 1).uop), UOp.new_buffer) is None


@pytest.mark.parametrize(
    "method",
    [
        lambda t: t + 1,
        lambda t: (t * t).relu().exp(),
        lambda t: t.permute(2, 0, 1),
        lambda t: t.reshape(5, 12),
        lambda t: t.reshape(60).reshape(5, 2, 6),
        lambda t: t.pad(((2, 3), (0, 1), (0, 0))),
        lambda t: t.shrink(((1, 5), (0, 2), (0, 3))),
        lambda t: t[::2],
        lambda t: t.flip(1),
        lambda t: t.sum(1),
        lambda t: t.softmax(-1),
        lambda t: t @ Tensor(DATA[0].T.copy()).to(t.device),
        lambda t: t.cat(t, dim=1),
        lambda t: t.reshape(5, 12).pad(((0, 0), (1, 1))).unfold(1, 3, 1),
    ],
)
def test_nothing_moves_where_the_cut_is_followed(method: object) -> None:
    tensor = cut(0)
    result = method(tensor)  # type: ignore[operator]
    inside = [node for node in lowered(result).toposort() if node.op is Ops.COPY]
    # what is copied are the small operands, from one device to all
    assert not [node for node in inside if node.size * 3 > 2 * DATA.size // 3]
    single = method(Tensor(DATA))  # type: ignore[operator]
    np.testing.assert_allclose(result.numpy(), single.numpy(), rtol=1e-5)


def test_the_axis_is_a_fact_of_nodes() -> None:
    tensor = cut(1)
    assert tensor.uop.axis == 1
    assert tensor.uop.bounds == ((0, 2), (2, 3), (3, 4))
    assert tensor.permute(1, 0, 2).uop.axis == 0
    assert tensor.reshape(5, 4, 3, 1).uop.axis == 1
    assert tensor.reshape(60).uop.axis is None
    assert tensor.reshape(60).reshape(5, 4, 3).uop.axis == 1
    assert tensor.sum(1).uop.axis is None
    assert tensor.sum(0).uop.axis == 0
    assert (tensor + tensor.sum(1, keepdim=True)).uop.axis == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_along_the_cut_axis_are_on_every_device(axis: int) -> None:
    total = cut(axis).sum(axis).realize()
    storage = total._cell.storage
    assert storage is not None and storage.arg.layout is None
    for part in parts_of(storage):
        assert np.array_equal(buffer_of(part).numpy(), DATA.sum(axis).reshape(-1))


def test_writes_are_made_where_the_elements_are() -> None:
    tensor = cut(0)
    tensor[1:4] = 0
    assert transfers(tensor) == 0
    tensor[Tensor([0, 4]).to(DEVICES)] = -1
    expected = DATA.copy()
    expected[1:4] = 0
    expected[[0, 4]] = -1
    assert np.array_equal(tensor.numpy(), expected)


def test_writes_through_views_that_are_not_followed() -> None:
    tensor = cut(1)
    tensor.flip(1).reshape(60)[7:33].assign(Tensor.zeros(26))
    expected = DATA.copy()
    flat = expected[:, ::-1].copy().reshape(60)
    flat[7:33] = 0
    assert np.array_equal(tensor.numpy(), flat.reshape(5, 4, 3)[:, ::-1])


def test_all_parts_of_a_write_happen() -> None:
    tensor = cut(0)
    tensor += 1
    # only the first device is read
    assert tensor[0].tolist() == (DATA[0] + 1).tolist()
    assert np.array_equal(tensor.numpy(), DATA + 1)


def test_parts_that_two_values_share_are_stored_twice() -> None:
    tensor = cut(0)
    first, second = (tensor * 2), (tensor * 2)[:2]
    first.realize(second)
    first += 1
    assert np.array_equal(second.numpy(), DATA[:2] * 2)
    assert np.array_equal(first.numpy(), DATA * 2 + 1)


def test_random_numbers_are_those_of_one_device() -> None:
    Tensor.manual_seed(5)
    single = Tensor.rand(7, 3).numpy()
    Tensor.manual_seed(5)
    several = Tensor.rand(7, 3, device=DEVICES)
    assert np.array_equal(several.numpy(), single)
    Tensor.manual_seed(5)
    assert np.array_equal(Tensor.rand(7, 3).shard(DEVICES, 0).numpy(), single)
    like = cut(1).rand_like()
    assert like.uop.axis == 1


def test_a_jitted_function_captures_it() -> None:
    @TinyJit
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ y).relu(), (x * 2).sum()

    for i in range(4):
        x, y = DATA[0] + i, DATA[1].T - i
        product, total = step(
            Tensor(x).shard(DEVICES, 1).realize(), Tensor(y.copy()).shard(DEVICES, 0).realize()
        )
        np.testing.assert_allclose(product.numpy(), np.maximum(x @ y, 0), rtol=1e-5)
        assert total.item() == (x * 2).sum()
    assert step.captured is not None


def test_numbers_of_two_devices_are_each_on_theirs() -> None:
    first, second = Tensor.rand(3, device="CPU:1"), Tensor.rand(3, device="CPU:2")
    first.realize(second)
    for tensor, device in ((first, "CPU:1"), (second, "CPU:2")):
        storage = tensor._cell.storage
        assert storage is not None and storage.arg.device == device


def test_errors_say_what_is_accepted() -> None:
    with pytest.raises(DeviceError, match=r"x\.shard\("):
        cut(0) + Tensor([1.0])
    with pytest.raises(ArgumentError, match="each device once"):
        Tensor(DATA).shard(("CPU:1", "CPU:1"), 0)
    with pytest.raises(ShapeError, match="add up to it"):
        Tensor(DATA).shard(DEVICES, 0, (1, 1, 1))
    with pytest.raises(ArgumentError, match="no bounds|has bounds"):
        _ = Tensor(DATA).uop.bounds


def test_the_lowered_graph_is_linear_in_nodes_and_devices() -> None:
    devices = tuple([f"CPU:{i}" for i in range(8)])

    def nodes(count: int) -> int:
        tensor = Tensor(np.ones((16, 2), np.float32)).shard(devices, 0).realize()
        for i in range(count):
            tensor = tensor * 1.5 + float(i)
        return len(lowered(tensor).toposort())

    # two ops a step and device, and a number
    assert nodes(2000) - nodes(1000) == 1000 * (2 * 8 + 1)


def test_numbers_that_are_read_at_home_and_stored_elsewhere() -> None:
    flags = Tensor([3]).shard(("CPU", "CPU:1"), 0, sizes=(0, 1)) > 7
    flags |= True
    # the same numbers are a part on CPU:1, and gathered on CPU
    assert flags.numpy().tolist() == [True]
