"""Constants belong to nobody: one test per rule of the design, and promises M1 to M3 as written."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft import Device, GlobalCounters, Tensor, Variable, dtypes
from weft.errors import DeviceError
from weft.uop.opset import Ops

CONSTRUCTORS = {
    "zeros": lambda: Tensor.zeros(2, 3),
    "ones": lambda: Tensor.ones(2, 3),
    "full": lambda: Tensor.full((2, 3), 7),
    "eye": lambda: Tensor.eye(3),
    "arange": lambda: Tensor.arange(6),
    "linspace": lambda: Tensor.linspace(0, 1, 5),
    "one_hot": lambda: Tensor.arange(3).one_hot(3),
}


def kernels() -> int:
    return GlobalCounters.kernel_count


# ------------------------------------------------------------ M1: no device, no fixed dtype
def test_a_number_has_no_device_and_a_weak_dtype() -> None:
    assert Tensor(3.0).device is None and Tensor(3.0).dtype is dtypes.weakfloat
    assert Tensor(3).device is None and Tensor(3).dtype is dtypes.weakint
    assert Tensor(True).device is None and Tensor(True).dtype is dtypes.bool
    assert Tensor.const(2.5).dtype is dtypes.weakfloat
    assert Tensor.full((2,), 2.5, buffer=False).dtype is dtypes.weakfloat


def test_a_given_dtype_is_strong() -> None:
    assert Tensor(3, dtype=dtypes.float16).dtype is dtypes.float16
    assert Tensor(3, dtype=dtypes.float16).device is None


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors_have_no_device_and_a_strong_dtype(name: str) -> None:
    made = CONSTRUCTORS[name]()
    assert made.device is None
    assert made.dtype in (dtypes.default_float, dtypes.default_int)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_whatever_is_made_of_them_has_no_device(name: str) -> None:
    made = CONSTRUCTORS[name]()
    results = [
        made.stack(made),
        made.cat(made),
        made.reshape(-1),
        made.flip(0),
        made.unsqueeze(0).pad((1, 1)),
        made + 1,
        made.exp(),
        made.sum(),
        made.max(),
        (made < 1).where(made, 0),
        made.cast(dtypes.float16),
    ]
    assert all(result.device is None for result in results)


def test_weak_with_weak_stays_weak() -> None:
    assert (Tensor(3.0) * 2).dtype is dtypes.weakfloat
    assert (Tensor(3) + 1).dtype is dtypes.weakint
    assert (Tensor(3) / 2).dtype is dtypes.weakfloat
    assert Tensor.stack([Tensor(1), Tensor(2)]).dtype is dtypes.weakint
    assert (Tensor(3) < 4).dtype is dtypes.bool


def test_pure_constants_are_left_alone_by_realize_and_contiguous() -> None:
    for constant in (Tensor(3.0), Tensor(3.0) * 2, Tensor.full((2,), 1.5, buffer=False)):
        assert constant.realize().device is None
        assert constant.contiguous().device is None
        assert all(u.op is not Ops.BUFFER for u in constant.uop.toposort())


# ------------------------------------------------------------ storage of constructors
def test_realize_and_clone_give_storage_on_the_default_device() -> None:
    for made in (Tensor.zeros(3), Tensor.arange(3), Tensor.eye(2)):
        copy = made.clone().realize()
        assert copy.device == Device.DEFAULT
        assert made.realize().device == Device.DEFAULT


def test_each_call_is_its_own_storage() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    assert a.uop is not b.uop
    a += 1
    assert a.tolist() == [1.0, 1.0, 1.0]
    assert b.tolist() == [0.0, 0.0, 0.0]


def test_assigning_through_a_view_is_seen_by_all_views() -> None:
    whole = Tensor.zeros(2, 2)
    row, turned, other = whole[0], whole.T, Tensor.zeros(2, 2)
    row[1] = 5
    assert whole.tolist() == [[0.0, 5.0], [0.0, 0.0]]
    assert turned.tolist() == [[0.0, 0.0], [5.0, 0.0]]
    assert other.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert whole.device == Device.DEFAULT


def test_assigning_takes_the_device_of_the_assigned_value() -> None:
    whole = Tensor.zeros(2)
    whole[0] = Tensor([7.0], device="PYTHON")[0]
    assert whole.device == "PYTHON"
    assert whole.tolist() == [7.0, 0.0]


def test_the_same_storage_realized_stays_apart() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    a.realize(b)
    a[0] = 1
    assert (a.tolist(), b.tolist()) == ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0])


# ------------------------------------------------------------ M2: they fold into kernels
def test_constants_fold_into_the_kernel_that_uses_them() -> None:
    count = 3
    constants = Tensor.stack([Tensor(i + 1) for i in range(count)])
    numbers = Tensor.rand(count).realize()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    product = constants * numbers
    items = product.schedule()
    product.realize()
    assert len(items) == 1 and kernels() == 1
    assert GlobalCounters.mem_used - before == count * 4
    np.testing.assert_allclose(product.numpy(), numbers.numpy() * [1, 2, 3])


def test_a_constructor_beside_data_is_no_kernel_of_its_own() -> None:
    data = Tensor([1.0, 2.0, 3.0]).realize()
    GlobalCounters.reset()
    (data * Tensor.arange(3) + Tensor.ones(3)).realize()
    assert kernels() == 1


# ------------------------------------------------------------ M3: devices meet
def test_a_result_takes_the_device_of_its_operands() -> None:
    data = Tensor([1.0, 2.0], device="CPU")
    for result in (data + 1, data * Tensor(2.0), data + Tensor.zeros(2), Tensor.ones(2) @ data):
        assert result.device == "CPU"
    assert data.cat(Tensor.zeros(1)).device == "CPU"


def test_two_devices_are_an_error_that_says_how_to_mend_it() -> None:
    a, b = Tensor([1.0], device="CPU"), Tensor([1.0], device="PYTHON")
    with pytest.raises(DeviceError, match=r'CPU and PYTHON.*\.to\("CPU"\)'):
        a + b
    with pytest.raises(DeviceError, match=r"CPU.*PYTHON|PYTHON.*CPU"):
        a.cat(b)
    with pytest.raises(DeviceError, match=r"\.to\("):
        a.assign(b)
    assert (a + b.to("CPU")).tolist() == [2.0]


def test_none_is_the_default_device_wherever_a_device_is_taken() -> None:
    assert Tensor([1.0], device=None).device == Device.DEFAULT
    assert Tensor([1.0]).to(None).device == Device.DEFAULT
    assert Tensor.rand(2, device=None).device == Device.DEFAULT
    assert Tensor.empty(2, device=None).device == Device.DEFAULT
    assert Tensor.zeros(2, device=None).device is None


def test_a_device_pins_without_allocating() -> None:
    before = GlobalCounters.mem_used
    pinned = [
        Tensor(3.0, device="CPU"),
        Tensor(3.0).to("CPU"),
        Tensor.zeros(1000, device="CPU"),
        Tensor.arange(1000).to("CPU"),
    ]
    assert [tensor.device for tensor in pinned] == ["CPU"] * 4
    assert GlobalCounters.mem_used == before
    assert pinned[0].item() == 3.0 and pinned[3][7].item() == 7


# ------------------------------------------------------------ promotion
def test_weak_numbers_never_upcast() -> None:
    assert (Tensor([1], dtype=dtypes.float16) * 0.1).dtype is dtypes.float16
    assert (Tensor([1], dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.float16) * Tensor(0.1)).dtype is dtypes.float16
    assert (Tensor([1], dtype=dtypes.int8) + Tensor(1)).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.int8) * Tensor(0.5)).dtype is dtypes.default_float


def test_data_is_never_weak() -> None:
    assert Tensor([1, 2]).dtype is dtypes.default_int
    assert (Tensor([1, 2]) + 0.5).dtype is dtypes.default_float
    assert (Tensor([True]) + 1).dtype is dtypes.default_int
    assert (Tensor.zeros(2, dtype=dtypes.bool) + 1).dtype is dtypes.default_int


def test_weak_ints_that_do_not_fit() -> None:
    assert Tensor(2**40).numpy().dtype == np.int64
    assert Tensor(2**40).item() == 2**40
    assert (Tensor([1], dtype=dtypes.int8) + 300).item() == 45


# ------------------------------------------------------------ reading them
def test_what_folds_needs_no_device() -> None:
    GlobalCounters.reset()
    assert Tensor(3.0).item() == 3.0
    assert (Tensor(3.0) * 2 + 1).item() == 7.0
    assert Tensor.zeros(2, 2).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert (Tensor.ones(3) * 4).numpy().tolist() == [4.0, 4.0, 4.0]
    assert math.isinf(Tensor(math.inf).item())
    assert Tensor(3.0).numpy().dtype == np.float32
    assert Variable("n", 1, 10).bind(4) is not None
    assert Tensor(Variable("n", 1, 10).bind(4)).item() == 4
    assert kernels() == 0


def test_what_does_not_fold_is_computed_on_the_default_device() -> None:
    assert Tensor.arange(4).tolist() == [0, 1, 2, 3]
    assert Tensor.stack([Tensor(1), Tensor(2)]).tolist() == [1, 2]
    assert Tensor.arange(10**9)[5].item() == 5


def test_constants_are_legal_assign_sources() -> None:
    data = Tensor([1.0, 2.0]).realize()
    data.assign(Tensor(5.0))
    assert data.tolist() == [5.0, 5.0]
    data.assign(Tensor.zeros(2))
    assert data.tolist() == [0.0, 0.0]
    data[1] = 3
    assert data.tolist() == [0.0, 3.0]
