"""Constructors and random numbers: the table's checks of what has no values as arguments.

In: a device. Out: `CHECKS`, each of which asserts what must hold of one method there.
Sits above `row.py`. Invariant: a constructor's dtype is what was asked for, else the default;
random numbers depend on the seed alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.compare import assert_right
from test.methods.row import ALL, FLOATS, Array, Check, numpy_type
from test.optional import optional
from weft import Tensor, dtypes

scipy = optional("scipy")

Function = Callable[..., Any]


def expect(tensor: Any, wanted: Any, dtype: str = "float32", device: str | None = None) -> None:
    """The tensor has these values, this dtype and, if it is given, this device."""
    assert tensor.dtype.name == dtype, f"dtype {tensor.dtype}, not {dtype}"
    if device is not None:
        assert tensor.device == device, f"device {tensor.device}, not {device}"
    assert_right(tensor.numpy(), np.asarray(wanted), dtype)


# ------------------------------------------------------------ every element the same
def _filled(name: str, value: int) -> Function:
    def check(device: str) -> None:
        make = getattr(Tensor, name)
        for shape in ((2, 3), (), (0, 4), (7,)):
            expect(make(*shape), np.full(shape, value))
            expect(make(shape), np.full(shape, value))
        for dtype in ALL:
            wanted = np.full((2, 3), value).astype(numpy_type(dtype))
            expect(make(2, 3, dtype=dtype, device=device), wanted, dtype, device)
        assert make(2).device is None
        assert make(2, requires_grad=True).requires_grad

    return check


def _filled_like(name: str, value: int) -> Function:
    def check(device: str) -> None:
        for dtype in ALL:
            source = Tensor(np.ones((2, 3)), dtype=dtype, device=device)
            wanted = np.full((2, 3), value).astype(numpy_type(dtype))
            expect(getattr(source, name)(), wanted, dtype, device)
        source = Tensor.ones(2, 0, device=device)
        expect(getattr(source, name)(dtype="int8"), np.zeros((2, 0)), "int8", device)
        assert getattr(Tensor.ones(2), name)().device is None

    return check


def _full(device: str) -> None:
    expect(Tensor.full((2, 3), 7), np.full((2, 3), 7), "int32")
    expect(Tensor.full((2, 3), 7.5), np.full((2, 3), 7.5))
    expect(Tensor.full((2,), True), [True, True], "bool")
    expect(Tensor.full((), -1, dtype="uint8"), 255, "uint8")
    expect(Tensor.full((2,), 3, dtype="float16", device=device), [3, 3], "float16", device)
    expect(Tensor.full((0, 2), 1.0), np.zeros((0, 2)))
    expect(Tensor.full((2,), Tensor([5], device=device)), [5, 5], "int32")
    pure = Tensor.full((2,), 1.5, buffer=False)
    assert pure.device is None and pure.dtype is dtypes.weakfloat
    assert Tensor.full((2,), 1.0, requires_grad=True).requires_grad


def _full_like(device: str) -> None:
    for dtype in ALL:
        source = Tensor(np.ones((2, 3)), dtype=dtype, device=device)
        wanted = np.full((2, 3), 2).astype(numpy_type(dtype))
        expect(source.full_like(2), wanted, dtype, device)
    expect(Tensor([1, 2]).full_like(2.5, dtype="float64"), [2.5, 2.5], "float64")
    assert Tensor([1.0]).full_like(2, buffer=False).tolist() == [2.0]
    assert Tensor([1.0]).full_like(2, requires_grad=True).requires_grad
    assert Tensor([1.0]).full_like(2, device="PYTHON").device == "PYTHON"


def _const(device: str) -> None:
    assert Tensor.const(3).dtype is dtypes.weakint and Tensor.const(3).item() == 3
    assert Tensor.const(2.5).dtype is dtypes.weakfloat and Tensor.const(2.5).item() == 2.5
    assert Tensor.const(True).dtype is dtypes.bool
    expect(Tensor.const(3, "float16"), 3, "float16")
    expect(Tensor([1.0], device=device, dtype="float16") * Tensor.const(3), [3], "float16", device)


def _const_like(device: str) -> None:
    expect(Tensor([[1, 2]], device=device).const_like(7), [[7, 7]], "int32")
    expect(Tensor([1.5], device=device).const_like(7), [7])
    expect(Tensor([1.5], device=device).const_like(7, dtypes.int8), [7], "int8")


def _empty(name: str) -> Function:
    def check(device: str) -> None:
        make = getattr(Tensor, name)
        for shape in ((2, 3), (), (0, 4)):
            made = make(*shape, device=device, dtype="int16")
            assert (made.shape, made.dtype, made.device) == (shape, dtypes.int16, device)
        made = make((2, 3), device=device)
        assert made.dtype is dtypes.float32
        expect(made.assign(Tensor.ones(2, 3)), np.ones((2, 3)), "float32", device)

    return check


def _empty_like(device: str) -> None:
    made = Tensor([[1, 2]], device=device).empty_like()
    assert (made.shape, made.dtype, made.device) == ((1, 2), dtypes.int32, device)
    assert made.empty_like(dtype="float16").dtype is dtypes.float16
    assert made.empty_like(device="PYTHON").device == "PYTHON"


def _from_blob(device: str) -> None:
    memory = (ctypes.c_float * 6)(*range(6))
    made = Tensor.from_blob(ctypes.addressof(memory), (2, 3), device="CPU")
    expect(made + 1, np.arange(6).reshape(2, 3) + 1.0, "float32", "CPU")
    bits = Tensor.from_blob(ctypes.addressof(memory), (6,), device="CPU", dtype="uint32")
    expect(bits, np.arange(6, dtype=np.float32).view(np.uint32), "uint32", "CPU")


# ------------------------------------------------------------ sequences
def _arange(device: str) -> None:
    for numbers in ((5,), (2, 8), (2, 8, 3), (8, 2, -2), (0,), (5, 5), (3, -3), (-3, 3), (1, 2, 5)):
        expect(Tensor.arange(*numbers), np.arange(*numbers), "int32")
        expect(Tensor.arange(*numbers, device=device), np.arange(*numbers), "int32", device)
    for floats in ((2.5,), (0.0, 1.0, 0.25), (1, 0, -0.125), (0.5, 7)):
        expect(Tensor.arange(*floats), np.arange(*floats))
    expect(Tensor.arange(3, dtype="float16"), [0, 1, 2], "float16")
    expect(Tensor.arange(0.0, 2.0, 0.5, dtype="int64"), [0, 0, 1, 1], "int64")
    expect(Tensor.arange(2**31, 2**31 + 2), [2**31, 2**31 + 1], "int64")
    expect(Tensor.arange(3) * Tensor([2], device=device), [0, 2, 4], "int32", device)
    assert Tensor.arange(3.0, requires_grad=True).requires_grad


def _linspace(device: str) -> None:
    for numbers in ((0, 1, 5), (-2.5, 7.5, 11), (3, -3, 4), (2, 9, 1), (2, 2, 3), (0, 1, 0)):
        expect(Tensor.linspace(*numbers), np.linspace(*numbers))
    expect(Tensor.linspace(0, 1, 7, dtype="float64"), np.linspace(0, 1, 7), "float64")
    expect(Tensor.linspace(0, 1, 7, device=device), np.linspace(0, 1, 7), "float32", device)
    expect(Tensor.linspace(0, 1, 7, dtype="float16"), np.linspace(0, 1, 7), "float16")
    assert Tensor.linspace(0, 1, 3, requires_grad=True).requires_grad
    last = Tensor.linspace(0.1, 0.7, 1000).numpy()[-1]
    assert last == np.float32(0.7), "both ends are exact"


def _eye(device: str) -> None:
    for sizes in ((3,), (3, 5), (5, 3), (0,), (1, 4), (3, 0)):
        expect(Tensor.eye(*sizes), np.eye(*sizes))
    for dtype in ALL:
        wanted = np.eye(3, 2).astype(numpy_type(dtype))
        expect(Tensor.eye(3, m=2, dtype=dtype, device=device), wanted, dtype, device)
    assert Tensor.eye(2, requires_grad=True).requires_grad


# ------------------------------------------------------------ random numbers
def drawn(make: Function, seed: int = 7) -> Array:
    """What a draw gives after a seed."""
    Tensor.manual_seed(seed)
    found: Array = make().numpy()
    return found


def _fits(values: Array, distribution: Any) -> None:
    """A Kolmogorov-Smirnov test; the seed is fixed, so it always gives the same answer."""
    assert scipy.stats.kstest(values.ravel().astype(np.float64), distribution.cdf).pvalue > 0.01


def _random(name: str, distribution: Any, *shape: int, **kwargs: Any) -> Function:
    """Shape, dtype, device, seed and distribution of a random constructor."""

    def check(device: str) -> None:
        make = getattr(Tensor, name)
        values = drawn(lambda: make(*shape, device=device, **kwargs))
        assert values.shape == shape and values.dtype == np.float32
        _fits(values, distribution)
        same = drawn(lambda: make(*shape, device="CPU", **kwargs))
        # the bits are equal everywhere; what is computed of them may round differently
        assert_right(values, same, "float32")
        assert not np.array_equal(values, drawn(lambda: make(*shape, **kwargs), seed=8))
        Tensor.manual_seed(7)
        first, second = make(*shape, **kwargs).numpy(), make(*shape, **kwargs).numpy()
        assert not np.array_equal(first, second)
        for dtype in FLOATS:
            made = make(3, 4, dtype=dtype, device=device, **kwargs)
            assert (made.dtype.name, made.shape, made.device) == (dtype, (3, 4), device)
            assert np.isfinite(made.numpy()).all()
        if name in ("rand", "randn", "uniform", "normal"):
            for dtype in FLOATS:
                assert make((0, 3), dtype=dtype, **kwargs).numpy().shape == (0, 3)
        assert make(2, 2, requires_grad=True, **kwargs).requires_grad

    return check


def _rand(device: str) -> None:
    _random("rand", scipy.stats.uniform(0, 1), 30, 40)(device)
    exact = [drawn(lambda d=d: Tensor.rand(30, 40, device=d)) for d in (device, "CPU")]
    np.testing.assert_array_equal(*exact)
    for dtype in ("float16", "bfloat16", "float64"):
        values = Tensor.rand(500, dtype=dtype, device=device).numpy()
        assert (values >= 0).all() and (values < 1).all(), dtype
    lazy = Tensor.rand(4, device=device, contiguous=False)
    assert lazy.shape == (4,)


def _like(name: str) -> Function:
    def check(device: str) -> None:
        for dtype in FLOATS:
            source = Tensor(np.zeros((2, 3)), dtype=dtype, device=device)
            made = getattr(source, name)()
            assert (made.shape, made.dtype.name, made.device) == ((2, 3), dtype, device)
        assert getattr(Tensor([1, 2], device=device), name)(dtype="float64").dtype.name == "float64"

    return check


def _randint(device: str) -> None:
    values = drawn(lambda: Tensor.randint(40, 40, low=-3, high=5, device=device))
    assert values.dtype == np.int32 and set(np.unique(values)) == set(range(-3, 5))
    assert scipy.stats.chisquare(np.unique(values, return_counts=True)[1]).pvalue > 0.01
    same = drawn(lambda: Tensor.randint(40, 40, low=-3, high=5, device="CPU"))
    np.testing.assert_array_equal(values, same)
    assert set(np.unique(Tensor.randint(300, device=device).numpy())) == set(range(10))
    for dtype in ("int8", "uint8", "int64", "uint32"):
        made = Tensor.randint(3, 2, low=1, high=4, dtype=dtype, device=device)
        assert made.dtype.name == dtype and ((made.numpy() >= 1) & (made.numpy() < 4)).all()


def _randperm(device: str) -> None:
    for count in (0, 1, 7, 40):
        assert sorted(Tensor.randperm(count, device=device).tolist()) == list(range(count))
    first = drawn(lambda: Tensor.randperm(40, device=device))
    assert not np.array_equal(first, np.arange(40))
    np.testing.assert_array_equal(first, drawn(lambda: Tensor.randperm(40, device="CPU")))
    assert Tensor.randperm(3, dtype="int64").dtype is dtypes.int64


def _multinomial(device: str) -> None:
    weights = Tensor([1.0, 0.0, 3.0, 4.0], device=device)
    values = drawn(lambda: weights.multinomial(2000, replacement=True))
    counts = np.bincount(values, minlength=4)
    assert values.dtype == np.int32 and counts[1] == 0
    assert scipy.stats.chisquare(counts[[0, 2, 3]], [250, 750, 1000]).pvalue > 0.01
    rows = Tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], device=device).multinomial(2)
    assert [sorted(row) for row in rows.tolist()] == [[0, 1], [1, 2]]
    assert weights.multinomial().shape == (1,)


def _manual_seed(device: str) -> None:
    Tensor.manual_seed(3)
    first = Tensor.rand(4, device=device).tolist()
    Tensor.manual_seed(seed=3)
    assert first == Tensor.rand(4, device=device).tolist()
    Tensor.manual_seed()
    assert first != Tensor.rand(4, device=device).tolist()


def _random_bits(device: str) -> None:
    # the known answer of Random123 for a key and a counter of zeros: 6b200159 99ba4efe
    key = Tensor([0, 0], dtype="uint32", device=device)
    start = Tensor([0], dtype="uint32", device=device)
    bits = Tensor.random_bits(key, start, 1)
    assert bits.dtype is dtypes.uint32 and bits.tolist() == [0x6B200159]
    # JAX's random.bits(PRNGKey(42), (5,)) in its original layout begins with the counters 0..2
    many = Tensor.random_bits(Tensor([0, 42], dtype="uint32", device=device), start, 5)
    assert many.shape == (5,) and len(set(many.tolist())) == 5


UNIFORM, NORMAL = scipy.stats.uniform, scipy.stats.norm


def _spread(bound: float) -> Any:
    return UNIFORM(-bound, 2 * bound)


RANDOM = (
    Check("rand", _rand, small=True),
    Check("randn", _random("randn", NORMAL(), 30, 40), small=True),
    Check("uniform", _random("uniform", UNIFORM(-2, 5), 30, 40, low=-2.0, high=3.0), small=True),
    Check("normal", _random("normal", NORMAL(2, 3), 30, 40, mean=2.0, std=3.0), small=True),
    Check("scaled_uniform", _random("scaled_uniform", _spread(1200**-0.5), 30, 40)),
    Check("glorot_uniform", _random("glorot_uniform", _spread((6 / 70) ** 0.5), 30, 40)),
    Check(
        "kaiming_uniform",
        _random("kaiming_uniform", _spread((6 / (1 + 0.25) / 40) ** 0.5), 30, 40, a=0.5),
    ),
    Check(
        "kaiming_normal",
        _random("kaiming_normal", NORMAL(0, (2 / (1 + 0.25) / 40) ** 0.5), 30, 40, a=0.5),
    ),
    Check("rand_like", _like("rand_like"), small=True),
    Check("randn_like", _like("randn_like"), small=True),
    Check("randint", _randint, small=True),
    Check("randperm", _randperm, small=True),
    Check("multinomial", _multinomial),
    Check("manual_seed", _manual_seed, small=True),
    Check("random_bits", _random_bits, small=True),
)

CHECKS = (
    Check("zeros", _filled("zeros", 0), small=True),
    Check("ones", _filled("ones", 1), small=True),
    Check("zeros_like", _filled_like("zeros_like", 0), small=True),
    Check("ones_like", _filled_like("ones_like", 1), small=True),
    Check("full", _full, small=True),
    Check("full_like", _full_like, small=True),
    Check("const", _const, small=True),
    Check("const_like", _const_like, small=True),
    Check("empty", _empty("empty"), small=True),
    Check("invalids", _empty("invalids"), small=True),
    Check("empty_like", _empty_like, small=True),
    Check("from_blob", _from_blob),
    Check("arange", _arange, small=True),
    Check("linspace", _linspace, small=True),
    Check("eye", _eye, small=True),
    *RANDOM,
)
ROWS = ()
