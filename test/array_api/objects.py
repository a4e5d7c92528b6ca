"""The array object: indexing, writing, numbers, memory, devices, copies, and what it refuses.

In: a namespace. Out: checks, by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from test.array_api.promotion import ALL, COMPLEX, INTS, NUMERIC, promoted

Named = tuple[str, Callable[[], None]]

KEYS: tuple[tuple[str, tuple[int, ...], Any], ...] = (
    ("an int", (5,), 2), ("a negative int", (5,), -1), ("a slice", (5,), slice(1, 4)),
    ("a slice with a step", (7,), slice(0, 7, 3)), ("a slice back", (7,), slice(5, 1, -2)),
    ("a slice back to the start", (7,), slice(None, None, -1)),
    ("an empty slice", (5,), slice(3, 3)),
    ("an ellipsis", (3, 4), ...), ("a tuple", (3, 4), (1, 2)),
    ("a tuple of slices", (3, 4), (slice(None), slice(1, 3))),
    ("an ellipsis and an int", (2, 3, 4), (..., 1)),
    ("an int and an ellipsis", (2, 3, 4), (1, ...)),
    ("a new axis", (3, 4), (slice(None), None, slice(None))),
    ("a new first axis", (5,), (None, ...)),
    ("no axis", (), ()), ("an ellipsis of no axis", (), ...),
    ("all of one axis", (3, 4), (slice(None), 2)),
)  # fmt: skip


def _pair(xp: Any, shape: tuple[int, ...], dtype: str = "int64") -> tuple[Any, Any]:
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    return xp.asarray(values.copy(), dtype=getattr(xp, dtype)), values


def _same(found: Any, wanted: Any, what: str = "") -> None:
    mine = np.asarray(found)
    assert mine.shape == np.shape(wanted), f"{what}: shape {mine.shape}, not {np.shape(wanted)}"
    assert (mine == wanted).all(), f"{what}: {mine} is not {wanted}"


def _refuses(call: Callable[[], Any], *errors: type[BaseException]) -> None:
    try:
        call()
    except errors:
        return
    raise AssertionError(f"nothing was refused; {errors} were expected")


def read(xp: Any, shape: tuple[int, ...], key: Any) -> None:
    """x[key]."""
    for dtype in ("int64", "float32", "bool", "complex128"):
        x, values = _pair(xp, shape, dtype)
        _same(x[key], values[key], f"[{key}]")


def write(xp: Any, shape: tuple[int, ...], key: Any) -> None:
    """x[key] = number, and an array."""
    for dtype in ("int64", "float32", "complex128"):
        x, values = _pair(xp, shape, dtype)
        x[key] = 7
        values[key] = 7
        _same(x, values, f"[{key}] = 7")
        new = np.full(np.shape(values[key]), 3, dtype)
        x[key] = xp.asarray(new, dtype=getattr(xp, dtype))
        values[key] = new
        _same(x, values, f"[{key}] = array")


def masks(xp: Any) -> None:
    """Boolean arrays as keys."""
    for shape in ((5,), (3, 4), (2, 3, 4)):
        for dtype in ("int64", "float32", "complex64"):
            x, values = _pair(xp, shape, dtype)
            mask = values.real % 3 == 1
            _same(x[xp.asarray(mask)], values[mask])
            x[xp.asarray(mask)] = 0
            values[mask] = 0
            _same(x, values)
    x, values = _pair(xp, (3, 4))
    _same(x[xp.asarray([True, False, True])], values[[True, False, True]])
    _same(xp.asarray(5)[xp.asarray(True)], np.asarray(5)[np.asarray(True)])
    _same(x[xp.zeros((3, 4), dtype=xp.bool)], values[np.zeros((3, 4), bool)])
    one = xp.asarray(5)
    one[xp.asarray(False)] = 6
    assert int(one) == 5
    one[xp.asarray(True)] = xp.asarray([7])
    assert int(one) == 7


def integer_arrays(xp: Any) -> None:
    """Arrays of ints as keys."""
    x, values = _pair(xp, (4, 5))
    rows, columns = np.array([0, 3, -1]), np.array([1, 1, 4])
    _same(x[xp.asarray(rows), xp.asarray(columns)], values[rows, columns])
    _same(x[xp.asarray(rows), 2], values[rows, 2])
    line, numbers = _pair(xp, (6,))
    for dtype in INTS:
        _same(line[xp.asarray([1, 0, 5], dtype=getattr(xp, dtype))], numbers[[1, 0, 5]])
    _same(line[xp.asarray(2)], numbers[2])


def bad_keys(xp: Any) -> None:
    """What cannot index."""
    x, _ = _pair(xp, (3,))
    _refuses(lambda: x[1.0], IndexError, TypeError)
    _refuses(lambda: x[5], IndexError)
    _refuses(lambda: x[0, 0], IndexError)
    _refuses(lambda: x["a"], IndexError, TypeError)


def numbers(xp: Any, dtype: str) -> None:
    """bool(), int(), float(), complex() and index()."""
    x = xp.asarray(1, dtype=getattr(xp, dtype))
    assert bool(x) is True and complex(x) == 1 + 0j
    if dtype not in COMPLEX:
        assert float(x) == 1.0 and type(float(x)) is float
        assert int(x) == 1 and type(int(x)) is int
    else:
        _refuses(lambda: float(x), TypeError)
        _refuses(lambda: int(x), TypeError)
    if dtype in INTS:
        assert operator.index(x) == 1
    else:
        _refuses(lambda: operator.index(x), TypeError)
    many = xp.ones((2,), dtype=getattr(xp, dtype))
    _refuses(lambda: bool(many), TypeError, ValueError)


def special_numbers(xp: Any) -> None:
    """Infinities and nan as Python numbers."""
    assert float(xp.asarray(xp.inf)) == float("inf")
    assert float(xp.asarray(xp.nan)) != float(xp.asarray(xp.nan))
    _refuses(lambda: int(xp.asarray(xp.nan)), ValueError)
    _refuses(lambda: int(xp.asarray(xp.inf)), OverflowError)


def memory(xp: Any, dtype: str) -> None:
    """DLPack to NumPy and back."""
    x, values = _pair(xp, (2, 3), dtype)
    device, number = x.__dlpack_device__()
    assert isinstance(int(device), int) and isinstance(number, int)
    _same(np.from_dlpack(x), values)
    back = xp.from_dlpack(values)
    assert back.dtype == getattr(xp, dtype)
    _same(back, values)
    again = xp.from_dlpack(x)
    assert again.dtype == x.dtype and again.shape == x.shape
    copied = xp.from_dlpack(values, copy=True)
    values[0, 0] = 1
    assert not bool(copied[0, 0] == 1)
    assert x.__dlpack__(max_version=(1, 0), copy=True) is not None
    assert x.__dlpack__(dl_device=x.__dlpack_device__()) is not None


def shared_memory(xp: Any) -> None:
    """Memory of another library is shared where no copy is asked for."""
    values = np.arange(6.0)
    x = xp.from_dlpack(values)
    values[2] = 50.0
    assert float(x[2]) == 50.0


def copies(xp: Any) -> None:
    """asarray with copy True, False and None."""
    for dtype in ("float32", "int64", "complex64"):
        x, _ = _pair(xp, (4,), dtype)
        copied, shared = xp.asarray(x, copy=True), xp.asarray(x, copy=False)
        x[0] = 9
        assert not bool(copied[0] == 9), "a copy was shared"
        assert bool(shared[0] == 9), "copy=False made a copy"
        moved = xp.asarray(x, dtype=x.dtype, copy=True)
        moved[1] = 8
        assert not bool(x[1] == 8)
    _refuses(lambda: xp.asarray(1, copy=False), ValueError, TypeError)
    x, _ = _pair(xp, (4,), "float32")
    _refuses(lambda: xp.asarray(x, dtype=xp.float64, copy=False), ValueError)
    original, values = _pair(xp, (2, 3), "float32")
    flat = xp.reshape(original, (6,), copy=True)
    original[0, 0] = 30.0
    _same(flat, values.reshape(6))
    same = xp.astype(original, xp.float32, copy=False)
    assert same.dtype == xp.float32


def casts(xp: Any, source: str) -> None:
    """astype to every dtype that it may go to."""
    for target in ALL:
        if source in COMPLEX and target not in COMPLEX:
            continue
        x, values = _pair(xp, (3,), source)
        found = xp.astype(x, getattr(xp, target))
        assert found.dtype == getattr(xp, target), (source, target)
        _same(found, values.astype(target))


def devices(xp: Any) -> None:
    """Devices by name, and moves between them."""
    x, values = _pair(xp, (3,))
    info = xp.__array_namespace_info__()
    assert x.device in info.devices() or info.default_device() is None
    _same(x.to_device(x.device), values)
    _same(xp.zeros(3, device=x.device), np.zeros(3))
    _same(xp.asarray([1, 2], device=x.device), np.array([1, 2]))


def information(xp: Any) -> None:
    """__array_namespace_info__."""
    info = xp.__array_namespace_info__()
    capabilities = info.capabilities()
    assert {"boolean indexing", "data-dependent shapes", "max dimensions"} <= set(capabilities)
    defaults = info.default_dtypes()
    assert defaults["real floating"] == xp.asarray(1.0).dtype
    assert defaults["complex floating"] == xp.asarray(1j).dtype
    assert defaults["integral"] == xp.asarray(1).dtype
    assert defaults["indexing"] == xp.argmax(xp.asarray([1, 2])).dtype
    assert set(info.dtypes()) == set(ALL)
    assert set(info.dtypes(kind="complex floating")) == set(COMPLEX)
    assert set(info.dtypes(kind=("bool", "integral"))) == {"bool", *INTS}
    assert xp.__array_api_version__ >= "2024.12"


def namespace(xp: Any) -> None:
    """x.__array_namespace__()."""
    x = xp.asarray(1)
    found = x.__array_namespace__()
    assert found.__array_api_version__ == xp.__array_api_version__
    assert hasattr(x.__array_namespace__(api_version="2024.12"), "asarray")
    _refuses(lambda: x.__array_namespace__(api_version="1999.01"), ValueError)


def kinds(xp: Any) -> None:
    """isdtype."""
    table = {
        "bool": ("bool",), "signed integer": INTS[:4], "unsigned integer": INTS[4:],
        "integral": INTS, "real floating": ("float32", "float64"),
        "complex floating": COMPLEX, "numeric": NUMERIC,
    }  # fmt: skip
    for kind, members in table.items():
        for dtype in ALL:
            assert xp.isdtype(getattr(xp, dtype), kind) is (dtype in members), (kind, dtype)
            assert xp.isdtype(getattr(xp, dtype), (kind, xp.bool)) is (dtype in (*members, "bool"))
    assert xp.isdtype(xp.float32, xp.float32) and not xp.isdtype(xp.float32, xp.float64)


def limits(xp: Any) -> None:
    """finfo and iinfo."""
    for name in ("float32", "float64", *COMPLEX):
        found, wanted = xp.finfo(getattr(xp, name)), np.finfo(name)
        assert found.bits == wanted.bits
        for field in ("eps", "max", "min", "smallest_normal"):
            value = getattr(found, field)
            assert isinstance(value, float) and value == float(getattr(wanted, field)), field
        part = {"complex64": "float32", "complex128": "float64"}.get(name, name)
        assert found.dtype == getattr(xp, part)
    for name in INTS:
        found, limit = xp.iinfo(getattr(xp, name)), np.iinfo(name)
        assert (found.bits, found.max, found.min) == (limit.bits, limit.max, limit.min)
        assert found.dtype == getattr(xp, name)
    assert xp.finfo(xp.asarray(1.0)).dtype == xp.asarray(1.0).dtype


def scalars(xp: Any) -> None:
    """The dtypes of Python numbers alone."""
    assert xp.asarray(True).dtype == xp.bool
    assert xp.asarray(1).dtype in (xp.int64, xp.int32)
    assert xp.asarray(1.0).dtype in (xp.float64, xp.float32)
    assert xp.asarray(1j).dtype in (xp.complex128, xp.complex64)
    assert xp.asarray([1, 2.5]).dtype == xp.asarray(1.0).dtype
    assert xp.asarray([]).dtype == xp.asarray(1.0).dtype
    assert xp.result_type(xp.float32, 1, 2.0) == xp.float32
    assert xp.result_type(xp.asarray([1], dtype=xp.int8), 1) == xp.int8


def reversed_operators(xp: Any) -> None:
    """A Python scalar on the left."""
    x = xp.asarray([1, 2, 3])
    values = np.array([1, 2, 3])
    for name in ("add", "sub", "mul", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift"):
        function = getattr(operator, name)
        _same(function(7, x), function(7, values), name)
    _same(1.0 / xp.asarray([2.0, 4.0]), np.array([0.5, 0.25]))


def products(xp: Any) -> None:
    """@, .T and .mT."""
    x, values = _pair(xp, (2, 3))
    _same(x @ x.T, values @ values.T)
    stack, numbers_ = _pair(xp, (2, 3, 4))
    _same(stack.mT, np.swapaxes(numbers_, -1, -2))
    _refuses(lambda: x @ 2, TypeError, ValueError)
    _refuses(lambda: x @ xp.asarray([1, 2]), ValueError)
    other, more = _pair(xp, (3, 3))
    x @= other
    _same(x, values @ more)


def refusals(xp: Any) -> None:
    """Kinds that do not mix, functions outside of their domain."""
    ints, floats = xp.asarray([1, 2]), xp.asarray([1.0, 2.0])
    _refuses(lambda: ints.__iadd__(floats), TypeError, ValueError)
    _refuses(lambda: xp.broadcast_to(xp.ones((3,)), (2, 4)), ValueError)
    _refuses(lambda: xp.reshape(xp.ones((3,)), (2, 2)), ValueError)
    _refuses(lambda: xp.ones((2,)) + xp.ones((3,)), ValueError)
    _refuses(lambda: xp.squeeze(xp.ones((2, 3)), 0), ValueError)
    _refuses(lambda: xp.expand_dims(xp.ones((2,)), axis=5), IndexError, ValueError)
    _refuses(lambda: xp.nonzero(xp.asarray(1)), ValueError)
    _refuses(lambda: xp.linalg.inv(xp.ones((2, 3))), ValueError)
    _refuses(lambda: xp.linalg.outer(xp.ones((2, 2)), xp.ones((2,))), ValueError)


def checks(xp: Any) -> Iterator[Named]:
    """All of them."""
    for name, shape, key in KEYS:
        yield f"read by {name}", lambda s=shape, k=key: read(xp, s, k)
        if key != () and not (isinstance(key, tuple) and None in key):
            yield f"write by {name}", lambda s=shape, k=key: write(xp, s, k)
    for dtype in ALL:
        yield f"numbers of {dtype}", lambda d=dtype: numbers(xp, d)
        yield f"astype from {dtype}", lambda d=dtype: casts(xp, d)
        if dtype != "bool":
            yield f"DLPack of {dtype}", lambda d=dtype: memory(xp, d)
    for check in (
        masks, integer_arrays, bad_keys, special_numbers, shared_memory, copies, devices,
        information, namespace, kinds, limits, scalars, reversed_operators, products, refusals,
    ):  # fmt: skip
        yield (check.__doc__ or "").rstrip("."), lambda c=check: c(xp)
    assert promoted("int8", "uint8") == "int16"
