"""Reading, writing and describing tensors: the table's checks of what is no function of values.

In: a device. Out: `CHECKS`, each of which asserts what must hold of one method there.
Sits above `row.py`. Invariant: describing a tensor computes nothing.
"""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.methods.row import ALL, FLOATS, Check, Row, always, case, given, numpy_type
from test.methods.rows_creation import expect
from weft import GlobalCounters, Tensor, Variable, dtypes
from weft.engine.realize import compile_linear, run_linear
from weft.errors import ArgumentError, WeftError
from weft.uop.ops import Ops, UOp

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def source(device: str, dtype: str = "float32") -> Tensor:
    """0 to 5 in two rows."""
    return Tensor(DATA, device=device, dtype=dtype)


# ------------------------------------------------------------ what it is
def _fact(name: str, wanted: Callable[[Tensor], Any]) -> Check:
    """A fact that is known without computing."""

    def check(device: str) -> None:
        for shape in ((2, 3), (), (0, 4), (1, 1)):
            tensor = Tensor(np.ones(shape, np.float32), device=device) + 1
            kernels = GlobalCounters.kernel_count
            found = getattr(tensor, name)
            assert (found() if callable(found) else found) == wanted(tensor), shape
            assert GlobalCounters.kernel_count == kernels

    return Check(name, check, small=True)


def _product(tensor: Tensor) -> int:
    return math.prod(tensor.shape)


def _shape(device: str) -> None:
    for shape in ((2, 3), (), (0, 4)):
        assert Tensor(np.ones(shape), device=device).shape == shape
    size = Variable("n", 1, 8).bind(3)
    symbolic = Tensor(np.ones((8, 2)), device=device)[:size]
    assert symbolic.shape[1] == 2 and symbolic.max_shape == (8, 2) and symbolic.max_numel() == 16


def _dtype(device: str) -> None:
    for dtype in ALL:
        assert source(device, dtype).dtype is getattr(dtypes, dtype)
    assert Tensor(3).dtype is dtypes.weakint and Tensor(3.0).dtype is dtypes.weakfloat
    assert Tensor([3]).dtype is dtypes.int32 and Tensor([3.0]).dtype is dtypes.float32
    assert Tensor([2**40]).dtype is dtypes.int64 and Tensor([True]).dtype is dtypes.bool


def _device(device: str) -> None:
    assert source(device).device == device and (source(device) + 1).T.device == device
    assert Tensor(1.0).device is None and (Tensor.zeros(3) + 1).device is None
    assert (Tensor.zeros(3) + source(device)).device == device


def _element_size(device: str) -> None:
    for dtype, size in (("float32", 4), ("float16", 2), ("bfloat16", 2), ("int64", 8), ("bool", 1)):
        tensor = source(device, dtype)
        assert tensor.element_size() == size and tensor.nbytes() == 6 * size
    assert Tensor.zeros(0, 3).nbytes() == 0


def _is_floating_point(device: str) -> None:
    for dtype in ALL:
        assert source(device, dtype).is_floating_point() == (dtype in FLOATS)


def _size(device: str) -> None:
    tensor = source(device)
    assert tensor.size() == (2, 3) and tensor.size(0) == 2 and tensor.size(dim=-1) == 3


def _uop(device: str) -> None:
    tensor = source(device)
    assert isinstance(tensor.uop, UOp) and tensor.uop.shape == (2, 3)
    assert (tensor + 1).uop.op is Ops.ADD and Tensor(3.0).uop.op is Ops.CONST


# ------------------------------------------------------------ values
def _numpy(device: str) -> None:
    for dtype in ALL:
        found = source(device, dtype).numpy()
        wanted = DATA.astype(numpy_type(dtype))
        if dtype == "bfloat16":
            wanted = wanted.astype(np.float32)
        assert found.dtype == wanted.dtype and found.flags.writeable
        np.testing.assert_array_equal(found, wanted)
    assert Tensor.zeros(0, 3, device=device).numpy().shape == (0, 3)
    assert Tensor(2.5).numpy() == 2.5 and (source(device).T + 1).numpy().shape == (3, 2)


def _data(device: str) -> None:
    view = (source(device) + 1).data()
    assert view.shape == (2, 3) and view.format == "f" and view.tolist() == (DATA + 1).tolist()
    assert Tensor(3, device=device).data().tolist() == 3
    assert source(device, "int8").data().format == "b"


def _tolist(device: str) -> None:
    assert source(device).T.tolist() == DATA.T.tolist()
    assert Tensor(2.5, device=device).tolist() == 2.5
    assert Tensor([True, False], device=device).tolist() == [True, False]
    assert Tensor.zeros(2, 0, device=device).tolist() == [[], []]
    assert source(device, "bfloat16").tolist() == DATA.tolist()


def _tobytes(device: str) -> None:
    assert source(device).T.tobytes() == DATA.T.astype("float32").tobytes()
    assert Tensor.zeros(2, 0, device=device).tobytes() == b""


def _as_number(device: str) -> None:
    one = Tensor([[7]], device=device)
    assert (float(one), int(one), complex(one)) == (7.0, 7, 7 + 0j)
    assert type(float(one)) is float and int(Tensor([2.9], device=device)) == 2
    with pytest.raises(WeftError, match="one element"):
        float(source(device))


def _item(device: str) -> None:
    assert source(device).sum().item() == 15.0 and Tensor([[7]], device=device).item() == 7
    assert Tensor(True).item() is True and isinstance(Tensor(3).item(), int)
    with pytest.raises(WeftError, match="one element"):
        source(device).item()


def _array(device: str) -> None:
    np.testing.assert_array_equal(np.asarray(source(device)), DATA)
    assert np.asarray(source(device), dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(DATA + source(device).numpy(), 2 * DATA)


def _init(device: str) -> None:
    for data in (DATA.tolist(), DATA, tuple(map(tuple, DATA.tolist())), Tensor(DATA)):
        expect(Tensor(data, device=device), DATA, "float32", device)
    assert Tensor(None, device=device).item() == 0.0
    expect(Tensor(b"\x01\xff", device=device), [1, 255], "uint8", device)
    expect(Tensor([1, 2], dtype="float16", device=device), [1, 2], "float16", device)
    expect(Tensor(3, dtype=dtypes.int8), 3, "int8")
    assert Tensor([1.0], requires_grad=True).requires_grad
    with pytest.raises(WeftError, match="ragged"):
        Tensor([[1, 2], [3]])
    with pytest.raises(WeftError, match="cannot make a Tensor"):
        Tensor(object())


# ------------------------------------------------------------ computing and writing
def _realize(device: str) -> None:
    first, second = source(device) + 1, source(device) * 2
    assert first.realize(second) is first
    before = GlobalCounters.kernel_count
    expect(first, DATA + 1)
    expect(second, DATA * 2)
    assert GlobalCounters.kernel_count == before, "what was realized is computed once"
    assert first.realize(do_update_stats=False) is first


def _schedule(device: str) -> None:
    result = source(device) * 2 + 1
    before = GlobalCounters.kernel_count
    assert len(result.schedule()) == 1 and GlobalCounters.kernel_count == before
    assert len(source(device).schedule()) == 0
    expect(result, DATA * 2 + 1)


def _assign(device: str) -> None:
    tensor = source(device).clone()
    view = tensor[1]
    assert tensor.assign(tensor + 1) is tensor
    expect(view, DATA[1] + 1, "float32", device)
    view.assign(Tensor([7.0, 8.0, 9.0], device=device))
    expect(tensor, [[1, 2, 3], [7, 8, 9]], "float32", device)
    tensor.assign(5)
    expect(view, [5, 5, 5])
    fresh = Tensor.zeros(2, 2)
    fresh.assign(Tensor([[1.0], [2.0]], device=device))
    expect(fresh, [[1, 1], [2, 2]], "float32", device)
    with pytest.raises(WeftError, match="does not broadcast"):
        tensor.assign(Tensor([1.0, 2.0], device=device))
    with pytest.raises(WeftError, match="cannot hold"):
        Tensor([1], device=device).assign(Tensor([1.5], device=device))


def _replace(device: str) -> None:
    tensor, other = source(device), source(device) + 1
    assert tensor.replace(other) is tensor
    expect(tensor, DATA + 1, "float32", device)
    with pytest.raises(WeftError, match="replace needs"):
        tensor.replace(Tensor([1.0]))


def _deepcopy(device: str) -> None:
    tensor = source(device)
    copied = copy.deepcopy(tensor)
    copied += 1
    expect(tensor, DATA, "float32", device)
    expect(copied, DATA + 1, "float32", device)


def _pickle(device: str) -> None:
    for dtype in ALL:
        tensor = source(device, dtype).T
        restored = pickle.loads(pickle.dumps(tensor))
        assert restored.dtype is tensor.dtype and restored.device == device
        assert restored.tolist() == tensor.tolist()


def _python(device: str) -> None:
    tensor = source(device)
    assert len(tensor) == 2 and [row.tolist() for row in tensor] == DATA.tolist()
    with pytest.raises(ArgumentError, match="no length"):
        len(Tensor(1.0))
    with pytest.raises(ArgumentError, match="iterated"):
        iter(Tensor(1.0))
    with pytest.raises(ArgumentError, match="truth"):
        bool(tensor)
    assert len({tensor, tensor, source(device)}) == 2
    before = GlobalCounters.kernel_count
    assert "(2, 3)" in repr(tensor + 1) and "lazy" in repr(tensor + 1)
    assert GlobalCounters.kernel_count == before


# ------------------------------------------------------------ training
def _backward(device: str) -> None:
    x, constant = source(device), source(device).requires_grad_(False)
    assert (x * x * constant).sum().backward() is not None
    assert x.grad is not None and constant.grad is None
    expect(x.grad, 2 * DATA * DATA, "float32", device)
    (x * 3).backward(gradient=Tensor(np.ones_like(DATA), device=device))
    expect(x.grad, 2 * DATA * DATA + 3)


def _gradient(device: str) -> None:
    x, y, apart = source(device), source(device) + 1, source(device)
    found = (x * x + y).sum().gradient(x, y, apart)
    expect(found[0], 2 * DATA, "float32", device)
    expect(found[1], np.ones_like(DATA))
    expect(found[2], np.zeros_like(DATA))
    weights = Tensor(DATA + 1, device=device)
    expect((x * x).gradient(x, gradient=weights)[0], 2 * DATA * (DATA + 1))


def _no_grad(device: str) -> None:
    x = source(device)
    with Tensor.no_grad():
        y = x * 2
    expect((x * y).sum().gradient(x)[0], 2 * DATA)


def _grad(device: str) -> None:
    x = source(device)
    assert x.grad is None
    x.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape and x.grad.dtype is x.dtype
    x.grad = None
    assert x.grad is None


def _requires_grad(device: str) -> None:
    x = source(device)
    assert x.requires_grad is None
    assert x.requires_grad_() is x and x.requires_grad is True
    assert x.requires_grad_(False).requires_grad is False


def _is_param(device: str) -> None:
    x = source(device)
    assert x.is_param is True and (x * 2).is_param is True
    assert x.is_param_(False) is x and x.is_param is False
    assert x.clone().is_param is False and x.requires_grad is False
    assert x.is_param_().is_param is True and x.requires_grad is None
    x.is_param = False
    assert x.requires_grad is False
    # what was asked for already stays asked for
    assert x.requires_grad_().is_param_().requires_grad is True


def _train(device: str) -> None:
    assert Tensor.training is False
    with Tensor.train():
        assert Tensor.training is True and source(device).training is True
        with Tensor.train(mode=False):
            assert Tensor.training is False
    assert Tensor.training is False


def _dropout(device: str) -> None:
    x = Tensor(np.ones(1000, np.float32), device=device)
    assert x.dropout(0.5) is x
    with Tensor.train():
        Tensor.manual_seed(3)
        values = x.dropout(p=0.25).numpy()
        Tensor.manual_seed(3)
        np.testing.assert_array_equal(values, x.dropout(0.25).numpy())
        assert x.dropout(0) is x and not x.dropout(1).numpy().any()
        weights = Tensor(np.ones((1, 1, 200)), device=device, dtype="float32")
        value = Tensor(np.eye(200)[None], device=device, dtype="float32")
        key = Tensor(np.zeros((1, 200, 200)), device=device, dtype="float32")
        attended = weights.scaled_dot_product_attention(key, value, dropout_p=0.5).numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.2 < (values == 0).mean() < 0.3
    assert 0.3 < (attended == 0).mean() < 0.7
    half = Tensor(np.ones(8), dtype="float16", device=device)
    with Tensor.train():
        assert half.dropout().dtype is dtypes.float16


# ------------------------------------------------------------ digests
def _digest(x: Any, cfg: Any = "sha3_256") -> Any:
    """By Python's hashlib; a tuple is (bytes of a block, suffix, bytes of the digest)."""
    sizes = {"shake_128": (16,), "shake_256": (32,)}
    names = {(136, 0x06, 32): "sha3_256"}
    name = cfg if isinstance(cfg, str) else names[cfg]
    rows = x.reshape(-1, x.shape[-1])
    made = [hashlib.new(name, row.tobytes()).digest(*sizes.get(name, ())) for row in rows]
    wide = [np.frombuffer(each, dtype=np.uint8) for each in made]
    return np.stack(wide).reshape(*x.shape[:-1], -1)


def _hash(device: str) -> None:
    digests = [
        bytes(Tensor(data, device=device).hash().tolist())
        for data in ([1, 2, 3], [1, 2, 4], [1, 2, 3, 0], [1.0, 2.0, 3.0])
    ]
    assert len(set(digests)) == 4 and all(len(each) == 16 for each in digests)
    assert bytes(Tensor([1, 2, 3], device=device).hash().tolist()) == digests[0]


# ------------------------------------------------------------ kernels and memory of others
def _callify(device: str) -> None:
    result, other = source(device) * 3 + 1, source(device) * 5
    before = GlobalCounters.kernel_count
    assert result.callify(other) is result and GlobalCounters.kernel_count == before
    expect(result, DATA * 3 + 1, "float32", device)


def _tinygrad_names(device: str) -> None:
    x = source(device)
    result = x * Variable("k", 1, 9).bind(3)
    linear, values = result.linear_with_vars(x + 1)
    assert len(linear.src) == len(result.schedule(x + 1)) and values == {"k": 3}
    assert linear.src[0].src[0].op is Ops.SINK and linear.src[0].arg == device
    run_linear(compile_linear(linear), values)
    expect(result, DATA * 3, "float32", device)
    assert len((x + 1).schedule_linear().src) == 1
    expect(x.usum(x, 1), DATA * 2 + 1, "float32", device)
    expect(x.uprod(x, 2), DATA * DATA * 2, "float32", device)
    assert x.ufix(3).item() == 3 and x.ufix(x) is x
    assert Tensor.from_url(__file__, gunzip=False).dtype is dtypes.uint8
    windows = x._pool((2,), 1, 1)
    expect(windows.sum(-1), DATA[..., :-1] + DATA[..., 1:], "float32", device)
    expect(x._broadcast_to((2, *x.shape)), np.stack([DATA, DATA]), "float32", device)


def _custom_kernel(device: str) -> None:
    def scale(target: UOp, values: UOp) -> UOp:
        # they come in the shapes of the tensors; as flat memory they are one axis
        target, values = target.flatten(), values.flatten()
        i = UOp.range(values.shape[0], 0)
        return target.index(i).store(values.index(i).load() * 2, i).sink()

    def gradient(seed: UOp, kernel: UOp) -> tuple[None, UOp]:
        return None, seed * 7

    x = source(device)
    made = Tensor.empty(2, 3, device=device).custom_kernel(x, fxn=scale)[0]
    expect(made, DATA * 2, "float32", device)
    made = Tensor.empty(2, 3, device=device).custom_kernel(x, fxn=scale, grad_fxn=gradient)[0]
    expect(made.sum().gradient(x)[0], np.full((2, 3), 7.0), "float32", device)


def _dlpack(device: str) -> None:
    del device  # only the host's memory is shared
    tensor = (source("CPU") + 1).realize()
    array = np.from_dlpack(tensor)
    np.testing.assert_array_equal(array, DATA + 1)
    assert tensor.__dlpack_device__() == (1, 0)
    for dtype in ("int8", "uint8", "int64", "float16", "float64", "bool"):
        plain = DATA.astype(dtype)
        expect(Tensor.from_dlpack(plain), plain, dtype, "CPU")
        np.testing.assert_array_equal(np.from_dlpack(source("CPU", dtype)), plain)
    memory = np.arange(12, dtype=np.float32).reshape(3, 4)
    shared = Tensor.from_dlpack(memory, device="CPU")
    memory[0, 0] = 100
    expect(shared + 0, memory)
    for view in (memory.T, memory[::2, 1:], memory[:, ::-1], memory[:0], memory[1, 2]):
        expect(Tensor.from_dlpack(np.asarray(view)), view)


ROWS = (
    Row(
        "keccak",
        _digest,
        (
            case(given(list(b"weft"), "uint8")),
            case(given([[i * j % 256 for i in range(150)] for j in range(2)], "uint8")),
            *[case(given([1, 2, 3], "uint8"), cfg=c) for c in ("sha3_224", "sha3_384", "sha3_512")],
            case(given(list(range(200)), "uint8"), cfg="shake_128"),
            case(given(list(range(136)), "uint8"), cfg="shake_256"),
            case(given(list(range(9)), "uint8"), cfg=(136, 0x06, 32)),
        ),
        ("uint8",),
        always("uint8"),
        gradient=False,
    ),
)

CHECKS = (
    _fact("ndim", lambda t: len(t.shape)),
    _fact("numel", _product),
    _fact("max_numel", _product),
    _fact("max_shape", lambda t: t.shape),
    _fact("nbytes", lambda t: 4 * _product(t)),
    Check("shape", _shape, small=True),
    Check("dtype", _dtype, small=True),
    Check("device", _device, small=True),
    Check("element_size", _element_size, small=True),
    Check("is_floating_point", _is_floating_point, small=True),
    Check("size", _size, small=True),
    Check("uop", _uop, small=True),
    Check("numpy", _numpy, small=True),
    Check("data", _data, small=True),
    Check("tolist", _tolist, small=True),
    Check("item", _item, small=True),
    Check("tobytes", _tobytes, small=True),
    *[Check(f"__{name}__", _as_number, small=True) for name in ("float", "int", "complex")],
    Check("__array__", _array, small=True),
    Check("__init__", _init, small=True),
    Check("realize", _realize, small=True),
    Check("schedule", _schedule, small=True),
    Check("assign", _assign, small=True),
    Check("replace", _replace, small=True),
    Check("__deepcopy__", _deepcopy, small=True),
    Check("__reduce__", _pickle, small=True),
    *[
        Check(f"__{name}__", _python, small=True)
        for name in ("len", "iter", "bool", "hash", "repr")
    ],
    Check("backward", _backward, small=True),
    Check("gradient", _gradient, small=True),
    Check("no_grad", _no_grad, small=True),
    Check("grad", _grad, small=True),
    Check("requires_grad", _requires_grad, small=True),
    Check("requires_grad_", _requires_grad, small=True),
    Check("is_param", _is_param, small=True),
    Check("is_param_", _is_param, small=True),
    Check("train", _train),
    Check("training", _train),
    Check("dropout", _dropout, small=True),
    Check("hash", _hash),
    Check("callify", _callify, small=True),
    Check("custom_kernel", _custom_kernel),
    *[
        Check(name, _tinygrad_names, small=True)
        for name in ("linear_with_vars", "schedule_linear", "usum", "uprod", "ufix", "from_url")
    ],
    *[Check(name, _dlpack) for name in ("__dlpack__", "__dlpack_device__", "from_dlpack")],
)
