"""Tensor itself: data in and out, views and storage, laziness, assignment, copies."""

from __future__ import annotations

import copy
import math
import pickle
import random

import numpy as np
import pytest

from weft import Context, Device, GlobalCounters, Tensor, UOp, Variable, dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.uop.opset import Ops


# ------------------------------------------------------------ data in
def test_from_everything() -> None:
    assert Tensor(None).shape == () and Tensor(None, dtype="int32").tolist() == 0
    assert Tensor([]).shape == (0,)
    assert Tensor([[]]).shape == (1, 0)
    assert Tensor([1, 2]).dtype is dtypes.int32
    assert Tensor([1.0, 2]).dtype is dtypes.float32
    assert Tensor([True, False]).dtype is dtypes.bool
    assert Tensor([2**40]).dtype is dtypes.int64
    assert Tensor(((1, 2), (3, 4))).shape == (2, 2)
    assert Tensor(b"ab").tolist() == [97, 98]
    assert Tensor(bytearray(b"\x01\x00"), dtype=dtypes.int16).tolist() == [1]
    assert Tensor(Tensor([1, 2])).tolist() == [1, 2]
    assert Tensor(np.float32(2.5)).shape == ()
    assert Tensor(np.float32(2.5)).dtype is dtypes.float32
    assert Tensor(UOp.const(dtypes.int32, 5)).item() == 5
    assert Tensor(Variable("i", 0, 9).bind(3)).item() == 3


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_lists_of_every_dtype(dtype: object) -> None:
    tensor = Tensor([0, 1, 1], dtype=dtype)  # type: ignore[arg-type]
    assert tensor.dtype is dtype
    assert [float(x) for x in tensor.tolist()] == [0.0, 1.0, 1.0]
    assert [float(x) for x in tensor.numpy()] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]
)
def test_numpy_round_trip(dtype: str) -> None:
    data = np.arange(6).reshape(2, 3).astype(dtype)
    back = Tensor(data).numpy()
    assert back.dtype == data.dtype
    np.testing.assert_array_equal(back, data)
    np.testing.assert_array_equal(Tensor(data.T).numpy(), data.T)
    np.testing.assert_array_equal(Tensor(data.astype(data.dtype.newbyteorder(">"))).numpy(), data)


def test_data_is_copied() -> None:
    data = np.zeros(3, np.float32)
    tensor = Tensor(data)
    data[0] = 5
    assert tensor.tolist() == [0.0, 0.0, 0.0]
    out = tensor.numpy()
    out[1] = 7
    assert tensor.tolist() == [0.0, 0.0, 0.0]


def test_given_dtypes_convert_by_the_rules_of_cast() -> None:
    assert Tensor([1.7, -1.7, 300.0], dtype=dtypes.uint8).tolist() == [1, 0, 255]
    assert Tensor(np.float32([1.7, -1.7, 300.0]), dtype=dtypes.uint8).tolist() == [1, 0, 255]
    assert Tensor(np.int32([300]), dtype=dtypes.int8).tolist() == [44]
    assert Tensor([1e40], dtype=dtypes.float32).tolist() == [math.inf]
    assert Tensor(np.float64([0.5, 0.0]), dtype="bool").tolist() == [True, False]


# ------------------------------------------------------------ data out
def test_data_out() -> None:
    tensor = Tensor([[1, 2], [3, 4]])
    assert tensor.tolist() == [[1, 2], [3, 4]]
    assert tensor.data().tolist() == [[1, 2], [3, 4]]
    assert tensor.data().shape == (2, 2)
    assert np.asarray(tensor).sum() == 10
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert tensor[1, 1].item() == 4
    assert Tensor.zeros(2, 0, 3).tolist() == [[], []]
    assert Tensor.zeros(0, 2).tolist() == []
    assert Tensor([1.5], dtype=dtypes.bfloat16).numpy().dtype == np.float32
    assert [row.tolist() for row in tensor] == [[1, 2], [3, 4]]
    assert len(tensor) == 2


def test_views_are_read_out() -> None:
    tensor = Tensor(np.arange(12, dtype=np.int32).reshape(3, 4)).realize()
    array = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(tensor.T[1:, ::-1].numpy(), array.T[1:, ::-1])
    np.testing.assert_array_equal(tensor[1].expand(2, 4).numpy(), np.stack([array[1]] * 2))


# ------------------------------------------------------------ laziness
def test_nothing_runs_before_it_must() -> None:
    GlobalCounters.reset()
    tensor = (Tensor([1.0, 2.0]) + 1).sum() * 3
    str(tensor), repr(tensor), tensor.shape, tensor.dtype, tensor.uop
    assert GlobalCounters.kernel_count == 0
    assert tensor.item() == 15.0
    assert GlobalCounters.kernel_count == 1


def test_repr_says_what_it_is() -> None:
    tensor = Tensor([1.0, 2.0], device="CPU")
    assert repr(tensor) == "<Tensor (2,) dtypes.float on CPU (realized)>"
    assert repr(tensor + 1) == "<Tensor (2,) dtypes.float on CPU (lazy)>"
    assert repr(Tensor(3.0)) == "<Tensor () dtypes.weakfloat (lazy)>"


def test_realized_values_are_not_computed_again() -> None:
    tensor = (Tensor([1.0, 2.0]) + 1).realize()
    GlobalCounters.reset()
    tensor.realize()
    tensor.tolist()
    assert GlobalCounters.kernel_count == 0


def test_a_graph_built_before_realizing_reads_memory_after_it() -> None:
    base = Tensor([1.0, 2.0, 3.0]).exp()
    later = base.sum()
    base.realize()
    GlobalCounters.reset()
    later.realize()
    assert GlobalCounters.kernel_count == 1


def test_several_at_once() -> None:
    base = Tensor([1.0, 2.0])
    a, b = base + 1, base * 2
    a.realize(b)
    GlobalCounters.reset()
    assert (a.tolist(), b.tolist()) == ([2.0, 3.0], [2.0, 4.0])
    assert GlobalCounters.kernel_count == 0


def test_origin_is_the_users_line() -> None:
    tensor = Tensor([1.0]) + 1
    origin = tensor.uop.origin
    assert origin is not None and origin[0] == __file__


# ------------------------------------------------------------ storage
def test_sharing() -> None:
    tensor = Tensor([[1.0, 2.0]]).realize()
    same = [tensor.detach(), tensor.contiguous(), tensor.cast(dtypes.float32), tensor.T, tensor[0]]
    assert all(view._cell is tensor._cell for view in same)
    apart = [tensor.clone(), tensor + 0, tensor.T.contiguous(), tensor.half(), tensor.sum(0)]
    assert all(other._cell is not tensor._cell for other in apart)


def test_assign_keeps_the_memory() -> None:
    tensor = Tensor([1.0, 2.0, 3.0]).realize()
    storage = tensor._cell.storage
    tensor.assign(tensor * 2 + 1)
    assert tensor._cell.storage is storage
    tensor.realize()
    assert tensor._cell.storage is storage
    assert tensor.tolist() == [3.0, 5.0, 7.0]


def test_old_values_stay_what_they_were() -> None:
    tensor = Tensor([1.0, 2.0]).realize()
    before = tensor * 10
    tensor.assign(Tensor([5.0, 6.0]))
    after = tensor * 10
    tensor.realize()
    assert before.tolist() == [10.0, 20.0]
    assert after.tolist() == [50.0, 60.0]


def test_assign_that_reads_what_it_writes() -> None:
    matrix = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2)).realize()
    matrix.assign(matrix.T)
    assert matrix.tolist() == [[0.0, 2.0], [1.0, 3.0]]
    line = Tensor([0, 1, 2, 3, 4]).realize()
    line[1:] = line[:-1]
    assert line.tolist() == [0, 0, 1, 2, 3]


def test_equal_expressions_do_not_share_writes() -> None:
    base = Tensor([1.0, 2.0])
    first, second = (base + 1).realize(), (base + 1).realize()
    first += 1
    assert (first.tolist(), second.tolist()) == ([3.0, 4.0], [2.0, 3.0])
    third = (base * 3).realize()
    fourth = base * 3
    third += 1
    fourth.realize()
    third.realize()
    assert (third.tolist(), fourth.tolist()) == ([4.0, 7.0], [3.0, 6.0])


def test_results_are_never_views() -> None:
    whole = Tensor([1, 2, 3], dtype=dtypes.uint8).realize()
    for result in (whole.abs(), whole.floor(), whole.round(), whole**1, whole.pad((0, 0))):
        result += 1
    assert whole.tolist() == [1, 2, 3]
    row = Tensor([[4, 5]]).realize()
    total = row.sum(0)
    total += 1
    assert row.tolist() == [[4, 5]]


def test_clones_are_apart() -> None:
    tensor = Tensor([1.0, 2.0]).realize()
    one, two = tensor.clone(), tensor.clone()
    one += 1
    assert (tensor.tolist(), one.tolist(), two.tolist()) == ([1.0, 2.0], [2.0, 3.0], [1.0, 2.0])


def test_replace_and_to() -> None:
    tensor = Tensor([1.0, 2.0])
    tensor.replace(Tensor([3.0, 4.0]))
    assert tensor.tolist() == [3.0, 4.0]
    moved = tensor.to("PYTHON")
    assert moved.device == "PYTHON" and moved.tolist() == [3.0, 4.0]
    tensor.to_("PYTHON")
    assert tensor.device == "PYTHON"
    assert tensor.to("PYTHON") is tensor


def test_random_programs_of_views_and_writes() -> None:
    """What a hundred random assignments through views do, NumPy does too."""
    generator = random.Random(5)
    for _ in range(4):
        array = np.arange(24, dtype=np.int32).reshape(4, 6)
        tensor = Tensor(array).realize()
        for step in range(25):
            rows = slice(*sorted(generator.sample(range(5), 2)))
            columns = slice(None, None, generator.choice([1, 2, -1]))
            turned = generator.random() < 0.5
            ours = (tensor.T if turned else tensor)[rows, columns]
            theirs = (array.T if turned else array)[rows, columns]
            if generator.random() < 0.5:
                ours += step
                theirs += step
            else:
                ours.assign(ours.flip(0) * 2)
                theirs[...] = theirs[::-1] * 2
            array %= 1000
            tensor %= 1000
            if generator.random() < 0.2:
                np.testing.assert_array_equal(tensor.numpy(), array)
        np.testing.assert_array_equal(tensor.numpy(), array)


# ------------------------------------------------------------ copies
def test_deepcopy_and_pickle() -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for other in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        other += 1
        assert tensor.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert other.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    lazy = pickle.loads(pickle.dumps((tensor + 1).T))
    assert lazy.tolist() == [[2.0, 4.0], [3.0, 5.0]]
    constant = pickle.loads(pickle.dumps(Tensor(3.0)))
    assert constant.device is None and constant.dtype is dtypes.weakfloat
    whole, view = copy.deepcopy([tensor, tensor[0]])
    whole[0, 0] = 9
    assert view.tolist() == [9.0, 2.0]
    assert Tensor([1.5], dtype=dtypes.bfloat16).clone().tolist() == [1.5]


# ------------------------------------------------------------ other
def test_training() -> None:
    assert Tensor.training is False
    with Tensor.train():
        assert Tensor.training is True
        with Tensor.train(False):
            assert Tensor.training is False
    with Context(TRAINING=1):
        assert Tensor([1]).training is True
    Tensor.training = True
    assert Tensor.training is True
    Tensor.training = False


def test_hash_and_truth() -> None:
    a, b = Tensor([1]), Tensor([1])
    assert len({a, b, a}) == 2
    with pytest.raises(ArgumentError, match="truth of a Tensor"):
        bool(a)


def test_dtypes_of_assign() -> None:
    tensor = Tensor([1.0, 2.0], dtype=dtypes.float16).realize()
    tensor.assign(Tensor([1, 2], dtype=dtypes.int8))
    assert tensor.dtype is dtypes.float16
    with pytest.raises(DTypeError, match="cast it first"):
        tensor.assign(Tensor([1.0, 2.0]))
    with pytest.raises(ShapeError, match="does not broadcast"):
        tensor.assign(Tensor([1, 2, 3], dtype=dtypes.float16))
    with pytest.raises(DTypeError):
        Tensor([1, 2]).__iadd__(0.5)


def test_sizes() -> None:
    tensor = Tensor.zeros(2, 3, dtype=dtypes.float16)
    assert (tensor.size(), tensor.size(1), tensor.nbytes(), tensor.numel()) == ((2, 3), 3, 12, 6)
    assert tensor.max_shape == (2, 3)


def test_symbolic_shape() -> None:
    data = Tensor(np.arange(20, dtype=np.float32).reshape(10, 2)).realize()
    for count in (3, 7):
        n = Variable("n", 1, 10).bind(count)
        part = data[:n]
        assert part.max_shape == (10, 2)
        assert part.sum().item() == np.arange(20).reshape(10, 2)[:count].sum()
        np.testing.assert_array_equal((part + 1).numpy(), data.numpy()[:count] + 1)


def test_deep_chain() -> None:
    tensor = Tensor([1.0])
    for _ in range(3000):
        tensor = tensor + 1
    assert tensor.uop.op is Ops.ADD
    assert tensor.shape == (1,)


def test_bitcast() -> None:
    assert Tensor([1.0]).bitcast(dtypes.int32).item() == 0x3F800000
    assert Tensor([1, 2], dtype=dtypes.int16).bitcast(dtypes.uint8).tolist() == [1, 0, 2, 0]
    assert Tensor([1, 0, 2, 0], dtype=dtypes.uint8).bitcast(dtypes.int16).tolist() == [1, 2]


def test_default_device_is_the_one_used() -> None:
    assert Tensor([1]).device == Device.DEFAULT
