"""Values of functions against NumPy's, over shapes and dtypes.

In: a namespace, a generator of random numbers. Out: checks, by name; each calls one function on
several operands and compares dtype, shape and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from test.array_api.promotion import BINARY, BOOL, COMPLEX, FLOATS, INTS, NUMERIC, REAL, UNARY

Named = tuple[str, Callable[[], None]]
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 4))
MATRICES: tuple[tuple[int, ...], ...] = ((3, 3), (1, 1), (2, 4, 4))
_ALL = (*BOOL, *NUMERIC)


def data(rng: Any, dtype: str, shape: tuple[int, ...], wide: bool = False) -> Any:
    """An array of random values of a dtype; `wide` ones are of all magnitudes."""
    return np.asarray(_random(rng, dtype, shape, wide), dtype)


def _random(rng: Any, dtype: str, shape: tuple[int, ...], wide: bool) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if wide else (max(limits.min, -9), 9)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    if kind == "c":
        part = "float32" if dtype == "complex64" else "float64"
        real, imaginary = data(rng, part, shape, wide), data(rng, part, shape, wide)
        return (real + 1j * imaginary).astype(dtype)
    values = rng.standard_normal(shape)
    return (values * 10.0 ** rng.integers(-6, 6, shape) if wide else values * 3).astype(dtype)


def same(found: Any, wanted: Any, what: str, loose: float = 1.0) -> None:
    """Equal, or for floats as near as their precision allows."""
    mine, right = np.asarray(found), np.asarray(wanted)
    assert mine.shape == right.shape, f"{what}: shape {mine.shape}, not {right.shape}"
    assert mine.dtype == right.dtype, f"{what}: dtype {mine.dtype}, not {right.dtype}"
    if mine.dtype.kind not in "fc":
        assert (mine == right).all(), f"{what}: {mine} is not {right}"
        return
    single = mine.dtype.itemsize <= (4 if mine.dtype.kind == "f" else 8)
    near = 2e-5 if single else 1e-11
    parts = [(mine.real, right.real), (mine.imag, right.imag)]
    size = np.abs(np.where(np.isfinite(right), right, 0))
    for one, other in parts if mine.dtype.kind == "c" else parts[:1]:
        close = np.abs(one - other) <= loose * near * (size + 1e-30)
        good = close | (one == other) | (np.isnan(one) & np.isnan(other))
        assert good.all(), f"{what}: {mine} is not {right}"


class Caller:
    """Calls a function of the namespace and NumPy's on the same operands."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def array(self, value: Any) -> Any:
        """An array of the namespace."""
        return self.xp.asarray(value, dtype=getattr(self.xp, value.dtype.name))

    def compare(
        self, name: str, *operands: Any, like: Any = None, loose: float = 1.0, **options: Any
    ) -> None:
        """One call; results that are tuples are compared one by one."""
        function: Any = self.xp
        reference: Any = np
        for step in name.split("."):
            function = getattr(function, step)
            reference = getattr(reference, step, None)
        wanted = like if like is not None else reference(*operands, **options)
        mine = [self.array(o) if isinstance(o, np.ndarray) else o for o in operands]
        kept = {
            key: self.array(value) if isinstance(value, np.ndarray) else value
            for key, value in options.items()
        }
        found = function(*mine, **kept)
        shown = ", ".join(
            f"{o.dtype}{o.shape}" if isinstance(o, np.ndarray) else repr(o) for o in operands
        )
        what = f"{name}({shown}{', ' if options else ''}{options or ''})"
        several = isinstance(wanted, (tuple, list))
        pairs = list(zip(found, wanted, strict=True)) if several else [(found, wanted)]
        for one, other in pairs:
            same(one, other, what, loose)


def _in_domain(name: str, values: Any) -> Any:
    if values.dtype.kind != "f":
        return values
    if name in ("acos", "asin", "atanh"):
        return np.tanh(values)
    if name in ("log", "log2", "log10", "sqrt"):
        return np.abs(values)
    return np.abs(values) + 1 if name == "acosh" else values


def _elementwise(call: Caller, rng: Any) -> Iterator[Named]:
    def unary(name: str) -> None:
        for dtype in UNARY[name][0]:
            for shape in SHAPES:
                x = np.asarray(_in_domain(name, data(rng, dtype, shape, wide=name not in _SMALL)))
                if name == "sign" and x.dtype.kind == "c":
                    size = np.abs(x)
                    like = (x / np.where(size == 0, 1, size)).astype(x.dtype)
                elif x.dtype.kind in "iub" and name in ("ceil", "floor", "trunc", "round"):
                    like = x
                else:
                    like = _reference(name, x)
                call.compare(name, x, like=like, loose=4)

    def binary(name: str) -> None:
        for dtype in BINARY[name][0]:
            for first, second in ((s, s) for s in SHAPES):
                _binary_case(call, rng, name, dtype, first, second)
            for first, second in (((), (3,)), ((2, 1), (1, 3)), ((4, 1, 2), (3, 1))):
                _binary_case(call, rng, name, dtype, first, second)

    for name in UNARY:
        yield name, lambda n=name: unary(n)
    for name in BINARY:
        yield name, lambda n=name: binary(n)


_SMALL = ("exp", "expm1", "sinh", "cosh", "tan", "sin", "cos", "tanh", "square")


def _reference(name: str, x: Any) -> Any:
    """NumPy's values; of complex numbers those that are not themselves rounded on the way."""
    if x.dtype.kind != "c":
        return np.asarray(getattr(np, name)(x))
    if name == "log1p":
        a, b = x.real.astype(np.longdouble), x.imag.astype(np.longdouble)
        parts = np.log1p(a * (a + 2) + b * b) / 2, np.arctan2(b, 1 + a)
        return np.asarray(parts[0] + 1j * parts[1]).astype(x.dtype)
    wide = np.asarray(getattr(np, name)(x.astype("complex128")))
    small = {"c": "complex64", "f": "float32"}
    single = x.dtype == np.complex64
    return wide.astype(small.get(wide.dtype.kind, wide.dtype) if single else wide.dtype)


def _binary_case(call: Caller, rng: Any, name: str, dtype: str, first: Any, second: Any) -> None:
    x, y = data(rng, dtype, first), data(rng, dtype, second)
    if name in ("floor_divide", "remainder", "divide"):
        y = np.asarray(np.where(y == 0, np.ones((), dtype), y), dtype)
    if name.startswith("bitwise") and "shift" in name or (name == "pow" and x.dtype.kind in "iu"):
        y = np.asarray(np.abs(y.astype("int64")) % 5, dtype)
    if name == "pow" and x.dtype.kind == "f":
        x = np.asarray(np.abs(x))
    like = None
    if name == "pow" and dtype == "complex64":
        like = np.power(x.astype("complex128"), y.astype("complex128")).astype(dtype)
    call.compare(name, x, y, like=like, loose=4 if x.dtype.kind != "c" else 40)


def _creation(call: Caller, rng: Any) -> Iterator[Named]:
    xp = call.xp

    def constants(name: str, value: int) -> None:
        for dtype in _ALL:
            for shape in SHAPES:
                found = getattr(xp, name)(shape, dtype=getattr(xp, dtype))
                same(found, np.full(shape, value, dtype), f"{name}({shape}, {dtype})")
                like = getattr(xp, f"{name}_like")(found)
                same(like, np.full(shape, value, dtype), f"{name}_like")

    def aranges() -> None:
        for arguments in ((5,), (2, 9), (2, 9, 3), (9, 2, -2), (3, 3), (0, -5), (-4, 4, 1)):
            same(xp.arange(*arguments), np.arange(*arguments), f"arange{arguments}")
        for arguments in ((0.0, 1.0, 0.25), (1.0, -1.0, -0.3), (0.5,)):
            found = xp.arange(*arguments, dtype=xp.float64)
            same(found, np.arange(*arguments), f"arange{arguments}")
        for dtype in (*INTS, *FLOATS):
            found = xp.arange(1, 20, 4, dtype=getattr(xp, dtype))
            same(found, np.arange(1, 20, 4, dtype=dtype), f"arange of {dtype}")

    def linspaces() -> None:
        for arguments in (
            (0.0, 1.0, 5),
            (-3.0, 7.5, 11),
            (2.0, 2.0, 3),
            (1.0, 0.0, 1),
            (0.0, 1.0, 0),
        ):
            for endpoint in (True, False):
                for dtype in FLOATS:
                    found = xp.linspace(*arguments, dtype=getattr(xp, dtype), endpoint=endpoint)
                    wanted = np.linspace(*arguments, dtype=dtype, endpoint=endpoint)
                    same(found, wanted, f"linspace{arguments}")
        found = xp.linspace(0.0, 1 + 2j, 5, dtype=xp.complex128)
        same(found, np.linspace(0.0, 1 + 2j, 5), "linspace of complex")

    def eyes() -> None:
        for rows, columns, k in ((3, None, 0), (3, 5, 1), (4, 2, -1), (2, 2, 7), (0, 3, 0)):
            for dtype in _ALL:
                found = xp.eye(rows, columns, k=k, dtype=getattr(xp, dtype))
                same(found, np.eye(rows, columns, k=k, dtype=dtype), f"eye {rows} {columns} {k}")

    def fulls() -> None:
        for shape in SHAPES:
            for dtype, value in (
                ("int64", 3),
                ("float64", 0.5),
                ("bool", True),
                ("complex128", 1j),
            ):
                found = xp.full(shape, value, dtype=getattr(xp, dtype))
                same(found, np.full(shape, value, dtype), "full")
                same(xp.full_like(found, value), np.full(shape, value, dtype), "full_like")

    def empties() -> None:
        for dtype in _ALL:
            found = xp.empty((2, 3), dtype=getattr(xp, dtype))
            assert found.shape == (2, 3) and found.dtype == getattr(xp, dtype)
            assert xp.empty_like(found).shape == (2, 3)

    def lists() -> None:
        for dtype in _ALL:
            for shape in [shape for shape in SHAPES if 0 not in shape[1:]]:
                x = data(rng, dtype, shape)
                found = xp.asarray(x.tolist(), dtype=getattr(xp, dtype))
                same(found, x, f"asarray of lists of {dtype}")

    def meshes() -> None:
        vectors = [data(rng, "float64", (n,)) for n in (2, 3, 4)]
        for count in (1, 2, 3):
            for indexing in ("xy", "ij"):
                call.compare("meshgrid", *vectors[:count], indexing=indexing)

    def triangles(name: str) -> None:
        for shape in ((3, 3), (2, 4), (2, 3, 5), (0, 2)):
            for k in (-3, -1, 0, 2):
                call.compare(name, data(rng, "float64", shape), k=k)
        call.compare(name, data(rng, "complex64", (3, 3)))

    yield "zeros", lambda: constants("zeros", 0)
    yield "ones", lambda: constants("ones", 1)
    yield from (
        ("arange", aranges), ("linspace", linspaces), ("eye", eyes), ("full", fulls),
        ("empty", empties), ("asarray of lists", lists), ("meshgrid", meshes),
        ("tril", lambda: triangles("tril")), ("triu", lambda: triangles("triu")),
    )  # fmt: skip


def _moves(call: Caller, rng: Any) -> Iterator[Named]:
    def each(
        name: str, cases: list[tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]]
    ) -> None:
        for shape, arguments, options in cases:
            for dtype in ("float32", "int64", "bool", "complex128"):
                x = data(rng, dtype, shape)
                call.compare(name, x, *arguments, **options)

    table: dict[str, list[Any]] = {
        "broadcast_to": [((3,), ((2, 3),), {}), ((1, 4), ((3, 4),), {}), ((), ((2, 2),), {})],
        "expand_dims": [((2, 3), (), {"axis": a}) for a in (-3, -1, 0, 1, 2)],
        "squeeze": [((2, 1, 3), (), {"axis": 1}), ((1, 1, 2), (), {"axis": (0, 1)})],
        "flip": [((2, 3), (), {"axis": a}) for a in (None, 0, -1, (0, 1))] + [((), (), {})],
        "permute_dims": [((2, 3, 4), ((2, 0, 1),), {}), ((2, 3), ((-1, 0),), {})],
        "moveaxis": [((2, 3, 4), (0, -1), {}), ((2, 3, 4), ((0, 1), (2, 0)), {})],
        "matrix_transpose": [((2, 3), (), {}), ((2, 3, 4), (), {})],
        "reshape": [((2, 6), ((3, 4),), {}), ((2, 6), ((-1,),), {}), ((0,), ((0, 3),), {})],
        "roll": [
            ((5,), (2,), {}), ((2, 3), (1,), {"axis": 1}), ((2, 3), ((1, -1),), {"axis": (0, 1)}),
            ((2, 3), (-4,), {}), ((0,), (1,), {}),
        ],
        "tile": [((2, 3), ((2, 2),), {}), ((3,), ((2, 2),), {}), ((2, 2), ((3,),), {})],
        "repeat": [((3,), (2,), {}), ((2, 3), (3,), {"axis": 1}), ((2, 3), (0,), {"axis": 0})],
        "unstack": [((2, 3), (), {"axis": a}) for a in (0, 1, -1)],
    }  # fmt: skip
    for name, cases in table.items():
        yield name, lambda n=name, c=cases: each(n, c)

    def joins(name: str) -> None:
        for dtype in ("float32", "int8", "bool", "complex64"):
            parts = [data(rng, dtype, (2, 3)) for _ in range(3)]
            for axis in (0, 1, -1):
                found = getattr(call.xp, name)([call.array(p) for p in parts], axis=axis)
                same(found, getattr(np, name)(parts, axis=axis), name)

    def flat_concat() -> None:
        parts = [data(rng, "int64", shape) for shape in ((2, 3), (4,), ())]
        found = call.xp.concat([call.array(p) for p in parts], axis=None)
        same(found, np.concat(parts, axis=None), "concat")

    def broadcasts() -> None:
        parts = [data(rng, "int64", shape) for shape in ((2, 1), (3,), ())]
        call.compare("broadcast_arrays", *parts)

    def counts() -> None:
        call.compare("repeat", data(rng, "float64", (2, 3)), np.array([1, 0, 2]), axis=1)
        call.compare("repeat", data(rng, "float64", (3,)), np.array([2, 0, 3]))

    def takes() -> None:
        for dtype in ("float32", "int64", "complex64"):
            x = data(rng, dtype, (3, 4))
            for axis in (0, 1, -1):
                call.compare("take", x, np.array([0, 2, 2, 1]), axis=axis)
                call.compare("take", x, np.array([-1, 0]), axis=axis)
        call.compare("take", data(rng, "float32", (5,)), np.array([4, 0]))

    def takes_along() -> None:
        for axis in (0, 1, -1):
            x = data(rng, "float64", (3, 4))
            call.compare("take_along_axis", x, np.argsort(x, axis=axis), axis=axis)

    yield "concat", lambda: joins("concat")
    yield "concat of flattened arrays", flat_concat
    yield "stack", lambda: joins("stack")
    yield "broadcast_arrays", broadcasts
    yield "repeat by counts", counts
    yield "take", takes
    yield "take_along_axis", takes_along


def _reductions(call: Caller, rng: Any) -> Iterator[Named]:
    axes: list[tuple[tuple[int, ...], Any]] = [
        ((), None), ((7,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), (0, 2)),
        ((0,), None), ((2, 0, 3), 1),
    ]  # fmt: skip

    def reduce(name: str, taken: tuple[str, ...], empty: bool = True) -> None:
        for dtype in taken:
            for shape, axis in axes:
                if 0 in shape and not empty:
                    continue
                for keepdims in (False, True):
                    x = data(rng, dtype, shape)
                    like = None
                    if name in ("sum", "prod") and dtype in INTS:
                        wide = "int64" if dtype.startswith("int") else "uint64"
                        like = getattr(np, name)(x, axis=axis, keepdims=keepdims, dtype=wide)
                    if name == "count_nonzero":
                        like = np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims))
                    if like is None:
                        like = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
                    call.compare(name, x, axis=axis, keepdims=keepdims, like=like, loose=60)

    yield "sum", lambda: reduce("sum", NUMERIC)
    yield "prod", lambda: reduce("prod", NUMERIC)
    yield "max", lambda: reduce("max", REAL, empty=False)
    yield "min", lambda: reduce("min", REAL, empty=False)
    yield "mean", lambda: reduce("mean", (*FLOATS, *COMPLEX), empty=False)
    yield "std", lambda: reduce("std", FLOATS, empty=False)
    yield "var", lambda: reduce("var", FLOATS, empty=False)
    yield "all", lambda: reduce("all", _ALL)
    yield "any", lambda: reduce("any", _ALL)
    yield "count_nonzero", lambda: reduce("count_nonzero", _ALL)

    def with_dtype(name: str) -> None:
        for source, target in (("int8", "float32"), ("float32", "float64"), ("uint8", "int64")):
            x = data(rng, source, (3, 4))
            like = np.asarray(getattr(np, name)(x, dtype=target))
            found = getattr(call.xp, name)(call.array(x), dtype=getattr(call.xp, target))
            same(found, like, name, 60)

    def corrections() -> None:
        x = data(rng, "float64", (3, 4))
        for name in ("var", "std"):
            for correction in (0, 1, 0.5):
                like = np.asarray(getattr(np, name)(x, axis=1, ddof=correction))
                call.compare(name, x, axis=1, correction=correction, like=like, loose=60)

    def scans(name: str) -> None:
        for dtype in NUMERIC:
            for initial in (False, True):
                for shape, axis in (((5,), None), ((3, 4), 0), ((3, 4), -1), ((0,), None)):
                    x = data(rng, dtype, shape)
                    wide = {"i": "int64", "u": "uint64"}.get(x.dtype.kind, dtype)
                    like = getattr(np, name)(x, axis=axis, dtype=wide, include_initial=initial)
                    options = {} if axis is None else {"axis": axis}
                    call.compare(name, x, include_initial=initial, like=like, loose=60, **options)

    def diffs() -> None:
        for dtype in ("float64", "int64", "complex128"):
            x = data(rng, dtype, (3, 5))
            for axis in (0, 1):
                for n in (0, 1, 2):
                    call.compare("diff", x, axis=axis, n=n, loose=60)
            call.compare("diff", x, prepend=x[:, :1], append=x[:, :2], loose=60)

    yield "sum with a dtype", lambda: with_dtype("sum")
    yield "prod with a dtype", lambda: with_dtype("prod")
    yield "var and std with a correction", corrections
    yield "cumulative_sum", lambda: scans("cumulative_sum")
    yield "cumulative_prod", lambda: scans("cumulative_prod")
    yield "diff", diffs


def _searches(call: Caller, rng: Any) -> Iterator[Named]:
    def places(name: str) -> None:
        for dtype in REAL:
            for shape, axis in (((7,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), 1)):
                for keepdims in (False, True):
                    x = data(rng, dtype, shape)
                    call.compare(name, x, axis=axis, keepdims=keepdims)

    def orders(name: str) -> None:
        for dtype in REAL:
            for shape, axis in (((9,), 0), ((3, 5), 0), ((3, 5), -1), ((0,), 0)):
                x = data(rng, dtype, shape)
                for descending in (False, True):
                    order = np.argsort(x, axis=axis, stable=True)
                    if descending:
                        flipped = np.flip(
                            np.argsort(np.flip(x, axis), axis=axis, stable=True), axis
                        )
                        order = x.shape[axis] - 1 - flipped if x.size else order
                    like = order if name == "argsort" else np.take_along_axis(x, order, axis)
                    call.compare(name, x, axis=axis, descending=descending, like=like)

    def nonzeros() -> None:
        for dtype in _ALL:
            for shape in ((7,), (3, 4), (0,)):
                x = data(rng, dtype, shape)
                x = np.where(rng.random(shape) < 0.5, np.zeros((), dtype), x).astype(dtype)
                call.compare("nonzero", x)

    def wheres() -> None:
        for dtype in _ALL:
            mask = rng.random((3, 1)) < 0.5
            call.compare("where", mask, data(rng, dtype, (3, 4)), data(rng, dtype, (4,)))

    def searches() -> None:
        for dtype in REAL:
            line, sought = np.sort(data(rng, dtype, (9,))), data(rng, dtype, (4, 5))
            for side in ("left", "right"):
                call.compare("searchsorted", line, sought, side=side)
                mixed = data(rng, dtype, (9,))
                call.compare("searchsorted", mixed, sought, side=side, sorter=np.argsort(mixed))

    def sets(name: str) -> None:
        for dtype in _ALL:
            for shape in ((9,), (3, 4), (0,), ()):
                x = data(rng, dtype, shape)
                if name == "unique_values":
                    # in no order that the standard names
                    found = np.sort(np.asarray(call.xp.unique_values(call.array(x))))
                    same(found, np.unique(x), name)
                    continue
                call.compare(name, x, like=getattr(np, name)(x))

    def clips() -> None:
        for dtype in REAL:
            x = data(rng, dtype, (3, 4))
            low, high = np.asarray(1, dtype), np.asarray(4, dtype)
            call.compare("clip", x, low, high)
            call.compare("clip", x, 1, 4, like=np.clip(x, low, high))
            call.compare("clip", x, low, None, like=np.maximum(x, low))
            call.compare("clip", x, like=x)

    yield "argmax", lambda: places("argmax")
    yield "argmin", lambda: places("argmin")
    yield "sort", lambda: orders("sort")
    yield "argsort", lambda: orders("argsort")
    yield "nonzero", nonzeros
    yield "where", wheres
    yield "searchsorted", searches
    yield "clip", clips
    for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
        yield name, lambda n=name: sets(n)


def _linear(call: Caller, rng: Any) -> Iterator[Named]:
    inexact = (*FLOATS, *COMPLEX)

    def products() -> None:
        shapes = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4))]
        shapes += [((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 2)), ((2, 0), (0, 3))]
        for dtype in NUMERIC:
            for first, second in shapes:
                x, y = data(rng, dtype, first), data(rng, dtype, second)
                call.compare("matmul", x, y, loose=60)

    def dots() -> None:
        for dtype in NUMERIC:
            x, y = data(rng, dtype, (2, 3, 4)), data(rng, dtype, (3, 4))
            call.compare("vecdot", x, y, loose=60)
            call.compare("vecdot", x, y, axis=-2, loose=60)

    def contractions() -> None:
        for dtype in NUMERIC:
            x, y = data(rng, dtype, (2, 3, 4)), data(rng, dtype, (3, 4, 5))
            call.compare("tensordot", x, y, loose=60)
            call.compare("tensordot", x, y, axes=((1, 2), (0, 1)), loose=60)
            call.compare("tensordot", x[0], y[0], axes=0, loose=60)

    def square(name: str, taken: tuple[str, ...] = inexact, loose: float = 2000) -> None:
        for dtype in taken:
            for shape in MATRICES:
                x = data(rng, dtype, shape) + 4 * np.eye(shape[-1], dtype=dtype)
                call.compare(f"linalg.{name}", x, loose=loose)

    def crosses() -> None:
        for dtype in NUMERIC:
            x, y = data(rng, dtype, (2, 3)), data(rng, dtype, (2, 3))
            call.compare("linalg.cross", x, y, like=np.cross(x, y), loose=60)

    def outers() -> None:
        for dtype in NUMERIC:
            x, y = data(rng, dtype, (3,)), data(rng, dtype, (4,))
            call.compare("linalg.outer", x, y, loose=60)

    def diagonals(name: str) -> None:
        for dtype in NUMERIC:
            for offset in (-2, 0, 1, 9):
                x = data(rng, dtype, (2, 3, 4))
                like = np.diagonal(x, offset, -2, -1)
                if name == "trace":
                    wide = {"i": "int64", "u": "uint64"}.get(x.dtype.kind, dtype)
                    like = like.sum(-1, dtype=wide)
                call.compare(f"linalg.{name}", x, offset=offset, like=like, loose=60)

    def powers() -> None:
        for dtype in inexact:
            x = data(rng, dtype, (2, 3, 3)) + 4 * np.eye(3, dtype=dtype)
            for n in (0, 1, 3, 5, -2):
                like = np.linalg.matrix_power(x, n)
                found = call.xp.linalg.matrix_power(call.array(x), n)
                same(found, like.astype(dtype), f"matrix_power {n}", 5000)

    def norms() -> None:
        for dtype in inexact:
            x = data(rng, dtype, (2, 3, 4))
            for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
                for keepdims in (False, True):
                    call.compare("linalg.matrix_norm", x, ord=order, keepdims=keepdims, loose=500)
            for axis in (None, 0, -1, (0, 1)):
                for order in (2, 1, 0, 3, 0.5, math.inf, -math.inf):
                    call.compare("linalg.vector_norm", x, ord=order, axis=axis, loose=500)

    def hermitian(shape: tuple[int, ...], dtype: str) -> Any:
        x = data(rng, dtype, shape)
        return x + np.conj(np.swapaxes(x, -1, -2))

    def choleskys() -> None:
        for dtype in inexact:
            for shape in MATRICES:
                x = data(rng, dtype, shape)
                x = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1], dtype=dtype)
                call.compare("linalg.cholesky", x, loose=2000)
                lower = np.linalg.cholesky(x)
                upper = np.conj(np.swapaxes(lower, -1, -2))
                call.compare("linalg.cholesky", x, upper=True, like=upper, loose=2000)

    def eigen() -> None:
        for dtype in inexact:
            for shape in MATRICES:
                x = hermitian(shape, dtype)
                call.compare("linalg.eigvalsh", x, loose=20000)
                values, vectors = map(np.asarray, call.xp.linalg.eigh(call.array(x)))
                back = vectors * values[..., None, :] @ np.conj(np.swapaxes(vectors, -1, -2))
                same(back.astype(dtype), x, "eigh", 1e5)

    def factors(name: str) -> None:
        for dtype in inexact:
            for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 5)):
                x = data(rng, dtype, shape)
                _check_factors(call, name, x)

    def ranks() -> None:
        for dtype in inexact:
            x = data(rng, dtype, (4, 2)) @ data(rng, dtype, (2, 5))
            call.compare("linalg.matrix_rank", x, like=np.asarray(2))
            same(call.xp.linalg.pinv(call.array(x)), np.linalg.pinv(x, rtol=1e-4), "pinv", 1e5)

    def solutions() -> None:
        for dtype in inexact:
            for first, second in (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 4))):
                x = data(rng, dtype, first) + 4 * np.eye(3, dtype=dtype)
                call.compare("linalg.solve", x, data(rng, dtype, second), loose=2000)

    yield from (
        ("matmul", products), ("vecdot", dots), ("tensordot", contractions),
        ("linalg.det", lambda: square("det")), ("linalg.inv", lambda: square("inv")),
        ("linalg.slogdet", lambda: square("slogdet")), ("linalg.cross", crosses),
        ("linalg.outer", outers), ("linalg.diagonal", lambda: diagonals("diagonal")),
        ("linalg.trace", lambda: diagonals("trace")), ("linalg.matrix_power", powers),
        ("linalg norms", norms), ("linalg.cholesky", choleskys), ("linalg.eigh", eigen),
        ("linalg.qr", lambda: factors("qr")), ("linalg.svd", lambda: factors("svd")),
        ("linalg.matrix_rank and pinv", ranks), ("linalg.solve", solutions),
    )  # fmt: skip


def _check_factors(call: Caller, name: str, x: Any) -> None:
    """Factors are orthogonal and multiply to the matrix."""
    dtype, small = x.dtype, min(x.shape[-2:])
    if name == "qr":
        for mode in ("reduced", "complete"):
            q, r = map(np.asarray, call.xp.linalg.qr(call.array(x), mode=mode))
            wanted = np.linalg.qr(x, mode=mode)
            assert q.shape == wanted.Q.shape and r.shape == wanted.R.shape, (q.shape, r.shape)
            same((q @ r).astype(dtype), x, "qr", 2000)
            assert np.abs(np.tril(r, -1)).max() < 1e-4
        return
    for full in (True, False):
        u, s, v = map(np.asarray, call.xp.linalg.svd(call.array(x), full_matrices=full))
        wanted = np.linalg.svd(x, full_matrices=full)
        assert (u.shape, s.shape, v.shape) == tuple(each.shape for each in wanted)
        same(s, wanted.S, "svd", 2000)
        same(((u[..., :small] * s[..., None, :]) @ v[..., :small, :]).astype(dtype), x, "svd", 5000)


def _transforms(call: Caller, rng: Any) -> Iterator[Named]:
    def close(found: Any, wanted: Any, what: str) -> None:
        mine = np.asarray(found)
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype, (what, mine.dtype)
        single = mine.dtype in (np.complex64, np.float32)
        limit = (2e-6 if single else 1e-13) * max(1.0, float(np.abs(wanted).max(initial=0))) * 8
        assert np.abs(mine - wanted).max(initial=0) <= limit, what

    def one(name: str, real: bool, double_only: bool = False) -> None:
        for dtype in FLOATS if real else COMPLEX:
            for shape, axis in (((8,), -1), ((5, 12), 0), ((3, 7), 1), ((67,), 0), ((96,), -1)):
                for n in (None, 6, 17):
                    for norm in ("backward", "ortho", "forward"):
                        if norm != "backward" and (n is not None or shape != (8,)):
                            continue
                        x = data(rng, dtype, shape)
                        wanted = getattr(np.fft, name)(x, n=n, axis=axis, norm=norm)
                        found = getattr(call.xp.fft, name)(call.array(x), n=n, axis=axis, norm=norm)
                        close(found, wanted, f"{name} {dtype}{shape} n={n} norm={norm}")

    def several(name: str, real: bool) -> None:
        for dtype in FLOATS if real else COMPLEX:
            for axes, s in ((None, None), ((0, 1), None), ((1, 2), (4, 6)), ((-1,), None)):
                x = data(rng, dtype, (3, 4, 6))
                wanted = getattr(np.fft, name)(x, s=s, axes=axes)
                found = getattr(call.xp.fft, name)(call.array(x), s=s, axes=axes)
                close(found, wanted, f"{name} {dtype} axes={axes} s={s}")

    def frequencies(name: str) -> None:
        for n in (1, 4, 7):
            for d in (1.0, 0.25):
                found = getattr(call.xp.fft, name)(n, d=d, dtype=call.xp.float64)
                same(found, getattr(np.fft, name)(n, d=d), name)

    def shifts(name: str) -> None:
        for axes in (None, 0, (1,), (0, 1)):
            for dtype in (*FLOATS, *COMPLEX):
                call.compare(f"fft.{name}", data(rng, dtype, (3, 4)), axes=axes)

    for name, real in (
        ("fft", False), ("ifft", False), ("rfft", True), ("irfft", False), ("hfft", False),
        ("ihfft", True),
    ):  # fmt: skip
        yield f"fft.{name}", lambda n=name, r=real: one(n, r)
    for name, real in (("fftn", False), ("ifftn", False), ("rfftn", True), ("irfftn", False)):
        yield f"fft.{name}", lambda n=name, r=real: several(n, r)
    for name in ("fftfreq", "rfftfreq"):
        yield f"fft.{name}", lambda n=name: frequencies(n)
    for name in ("fftshift", "ifftshift"):
        yield f"fft.{name}", lambda n=name: shifts(n)


def checks(xp: Any, rng: Any) -> Iterator[Named]:
    """All of them."""
    call = Caller(xp)
    for family in (_elementwise, _creation, _moves, _reductions, _searches, _linear, _transforms):
        yield from family(call, rng)
