"""A corpus of kernels: every kind that tensor programs are made of, with real data.

`cases_of` runs a small tensor program on the CPU and keeps each kernel with the contents
of its buffers before and after; renderers print the kernels, and what can run them must get the
same contents.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft import Device, Tensor, dtypes
from weft.device import Buffer
from weft.dtype import DType
from weft.engine import programs, realize
from weft.engine.schedule import clear_schedules
from weft.renderer.base import ProgramSpec
from weft.uop.node import UOp, Variable
from weft.uop.resolve import sym_infer

Programs = dict[str, Callable[[], Any]]


def _data(*shape: int, dtype: Any = np.float32, seed: int = 1) -> Tensor:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "f":
        return Tensor(random.normal(0, 1, shape).astype(dtype))
    if kind == "b":
        return Tensor(random.integers(0, 2, shape).astype(bool))
    return Tensor(random.integers(0 if kind == "u" else -50, 50, shape).astype(dtype))


# what a target without 64 bits has, and few enough for one that takes eight buffers
SMALL_DTYPES = tuple(d for d in dtypes.all if d not in dtypes.floats and d.itemsize <= 4)
HALF_DTYPES = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)


def _casts(source: DType, targets: Sequence[DType] = tuple(dtypes.all)) -> list[Tensor]:
    values = _data(24).mul(40).cast(source).realize()
    return [values.cast(dtype).contiguous() for dtype in targets if dtype is not source]


def _assigned() -> Tensor:
    state = _data(6, 10).realize()
    state.assign(state * 0.9 + _data(6, 10, seed=2) * 0.1)
    return state


def _adam() -> list[Tensor]:
    """Several stores over the same axes, each in place."""
    weight, mean, square = [_data(40, seed=seed).realize() for seed in range(3)]
    gradient = _data(40, seed=4).realize()
    mean.assign(mean * 0.9 + gradient * 0.1)
    square.assign(square.abs() * 0.99 + gradient * gradient * 0.01)
    weight.assign(weight - 0.01 * mean / (square.sqrt() + 1e-8))
    return [weight, mean, square]


def _variable() -> Tensor:
    size = Variable("n", 1, 40).bind(23)
    return _data(40, 6).realize().shrink(((0, size), (0, 6))).sum(0)


def _variable_rows() -> Tensor:
    size = Variable("n", 1, 40).bind(23)
    return (_data(40, 6).realize().shrink(((0, size), (0, 6))) * 2.0 + 1.0).sum()


def _attention() -> Tensor:
    query, key, value = [_data(2, 3, 20, 8, seed=seed) for seed in range(3)]
    return query.scaled_dot_product_attention(key, value, is_causal=True)


def _gathered() -> Tensor:
    return _data(30, 5).realize()[Tensor([3, 0, -1, 29, 7], dtype=dtypes.int32)]


def _scattered() -> Tensor:
    index = Tensor(np.array([[0, 2, 1, 0], [3, 3, 1, 2]], np.int32))
    return Tensor.zeros(2, 5).contiguous().realize().scatter(1, index, _data(2, 4))


def _several_nests() -> list[Tensor]:
    """Small outputs of different sizes: loop nests of one kernel."""
    source = _data(12, 7).realize()
    return [source.exp2(), _data(50).realize() + 1.0, source.sum(0), source.max(1)]


PROGRAMS: Programs = {
    "elementwise": lambda: _data(33, 17) * 2.0 + _data(33, 17, seed=2).tanh(),
    "elementwise_wide": lambda: (_data(40, 64) + 1.5).relu(),
    "integers": lambda: (_data(64, dtype=np.int32) // 7) * 3 - _data(64, dtype=np.int32) % 5,
    "integers_by_data": lambda: (
        _data(64, dtype=np.int32) // _data(64, dtype=np.int32, seed=2)
        + _data(64, dtype=np.int32) % _data(64, dtype=np.int32, seed=2)
    ),
    "narrow_integers": lambda: (
        _data(50, dtype=np.int8) * 5 + _data(50, dtype=np.int8, seed=2),
        _data(50, dtype=np.uint16) * 1999 + _data(50, dtype=np.uint16, seed=2),
    ),
    "long_integers": lambda: _data(50, dtype=np.int64) * 123456789012 // 1000003,
    "shifts": lambda: (_data(40, dtype=np.uint32) << 5) ^ (_data(40, dtype=np.uint32, seed=2) >> 2),
    "bools": lambda: (_data(40) < 0.3) & (_data(40, seed=2) != 0.0) | _data(40, dtype=bool),
    "functions": lambda: [
        _data(30).exp(),
        _data(30).abs().log(),
        _data(30).sin(),
        _data(30).abs().sqrt(),
        _data(30).abs().pow(1.7),
        _data(30).trunc(),
    ],
    "doubles": lambda: (_data(30, dtype=np.float64).exp() + 1).log(),
    "infinities": lambda: (_data(20) / 0.0).maximum(_data(20).log()),
    "transposed": lambda: _data(40, 36).realize().T.contiguous(),
    "padded": lambda: _data(9, 11).pad(((1, 2), (3, 0))).contiguous() + 1.0,
    "flipped": lambda: _data(9, 12).flip(1).contiguous(),
    "concatenated": lambda: Tensor.cat(_data(5, 4), _data(3, 4, seed=2), dim=0).contiguous(),
    "sum_rows": lambda: _data(20, 300).sum(1),
    "sum_columns": lambda: _data(70, 90).sum(0),
    "sum_all": lambda: _data(30, 50).sum(),
    "sum_short_rows": lambda: _data(90, 5).sum(1),
    "max_rows": lambda: _data(9, 1000).max(1),
    "integer_sum": lambda: _data(7, 130, dtype=np.int32).sum(1),
    "argmax": lambda: _data(9, 77).argmax(1),
    "cumulated": lambda: _data(4, 40).cumsum(1),
    "softmax": lambda: _data(12, 130).softmax(1),
    "long_softmax": lambda: _data(3, 2000).softmax(1),
    "layernorm": lambda: _data(10, 96).layernorm(),
    "matmul": lambda: _data(48, 40) @ _data(40, 56, seed=2),
    "matmul_tiles": lambda: _data(64, 64) @ _data(64, 128, seed=2),
    "matmul_turned": lambda: _data(64, 48).realize().T @ _data(80, 64, seed=2).realize().T,
    "matmul_uneven": lambda: _data(67, 35) @ _data(35, 70, seed=2),
    "matmul_relu": lambda: (_data(64, 32) @ _data(32, 64, seed=2) + _data(64, seed=3)).relu(),
    "matmul_batches": lambda: _data(3, 32, 20) @ _data(3, 20, 32, seed=2),
    "matmul_half": lambda: _data(32, 32).half().realize() @ _data(32, 32, seed=2).half().realize(),
    "matvec": lambda: _data(50, 256) @ _data(256, seed=2),
    "conv": lambda: _data(2, 4, 12, 12).conv2d(_data(8, 4, 3, 3, seed=2), padding=1),
    "max_pool": lambda: _data(2, 3, 12, 12).max_pool2d((2, 2)),
    "attention": _attention,
    "gather": _gathered,
    "scatter": _scattered,
    "one_hot": lambda: Tensor([1, 3, 0], dtype=dtypes.int32).one_hot(5).contiguous() + _data(3, 5),
    "where": lambda: (_data(40) > 0).where(_data(40, seed=2), _data(40, seed=3)),
    "arange": lambda: Tensor.arange(40).contiguous() * _data(40, dtype=np.int32),
    "random": lambda: Tensor.rand(64),
    "random_normal": lambda: Tensor.randn(30),
    "half": lambda: _data(40).half().realize() * 1.5 + 0.25,
    "bfloat": lambda: _data(40).cast(dtypes.bfloat16).realize() * 1.5 + 0.25,
    "float8": lambda: _data(40).cast(dtypes.fp8e4m3).realize() * 1.5,
    "bitcast": lambda: _data(40).realize().bitcast(dtypes.uint32) ^ 5,
    "assign": _assigned,
    "adam": _adam,
    "variable": _variable,
    "variable_rows": _variable_rows,
    "several_nests": _several_nests,
    **{f"cast_from_{dtype.name}": functools.partial(_casts, dtype) for dtype in dtypes.all},
    **{
        f"small_cast_from_{dtype.name}": functools.partial(_casts, dtype, SMALL_DTYPES)
        for dtype in (*SMALL_DTYPES, dtypes.float32)
    },
    "cast_to_halves": lambda: _casts(dtypes.float32, HALF_DTYPES),
    "cast_of_halves": lambda: [_casts(dtype, (dtypes.float32,))[0] for dtype in HALF_DTYPES],
}


# What runs under drivers that take seconds a kernel; CORPUS_SHARE=1 in the environment: all of it.
SHARE_OF_PROGRAMS = list(PROGRAMS)[:: int(os.environ.get("CORPUS_SHARE", "6"))]


@dataclass(frozen=True)
class Case:
    """A kernel and what it does to its buffers."""

    name: str
    kernel: UOp
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    values: dict[str, int]
    dtypes: tuple[DType, ...]

    def __repr__(self) -> str:
        return self.name


class _Recording:
    """A loaded program that keeps what it does."""

    def __init__(self, name: str, kernel: UOp, runner: programs.Runner, found: list[Case]) -> None:
        self.name = name
        self.kernel = kernel
        self.runner = runner
        self.found = found

    def __call__(
        self, bufs: Sequence[Buffer], vals: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        before = tuple(bytes(buf.ensure_allocated().as_memoryview()) for buf in bufs)
        seconds = self.runner.program(bufs, vals, wait=wait)
        after = tuple(bytes(buf.as_memoryview()) for buf in bufs)
        values = dict(zip(self.runner.variables, vals, strict=True))
        name = f"{self.name}_{len(self.found)}"
        kinds = tuple(buf.dtype for buf in bufs)
        self.found.append(Case(name, self.kernel, before, after, values, kinds))
        return seconds


@functools.cache
def cases_of(name: str) -> tuple[Case, ...]:
    """The kernels of one program of the corpus."""
    return cases_from(name, PROGRAMS[name])


def cases_from(name: str, compute: Callable[[], Any]) -> tuple[Case, ...]:
    """The kernels of what is computed."""
    found: list[Case] = []
    make = programs.runner_for

    def recorded(kernel: UOp, device: str) -> programs.Runner:
        runner = make(kernel, device)
        return replace(runner, program=_Recording(name, kernel, runner, found))  # type: ignore[arg-type]

    realize.runner_for = recorded
    clear_schedules()
    before, Device.DEFAULT = Device.DEFAULT, "CPU"
    try:
        Tensor.manual_seed(7)
        result = compute()
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        results[0].realize(*results[1:])
    finally:
        Device.DEFAULT = before
        realize.runner_for = make
        clear_schedules()
    return tuple(found)


def launch_sizes(spec: ProgramSpec, values: dict[str, int]) -> tuple[list[int], list[int]]:
    """Groups, and threads of a group, along x, y and z."""
    groups = [int(sym_infer(size, values)) for size in spec.global_size or (1, 1, 1)]
    return groups, list(spec.local_size or (1, 1, 1))


def check_contents(case: Case, spec: ProgramSpec, found: Sequence[bytes]) -> None:
    """The buffers after a run are those of the corpus; floats within a few rounding errors."""
    for slot in spec.outs:
        dtype = case.dtypes[slot]
        expected, actual = [_numbers(c[slot], dtype) for c in (case.after, found)]
        if dtype in dtypes.floats:
            eps = {8: 1e-12, 4: 2e-5, 2: 2e-2, 1: 0.3}[dtype.itemsize]
            np.testing.assert_allclose(actual, expected, rtol=eps, atol=eps, err_msg=case.name)
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=case.name)


def _numbers(contents: bytes, dtype: DType) -> np.ndarray:
    buffer = Buffer(Device.DEFAULT, len(contents) // dtype.itemsize, dtype).copyin(contents)
    if dtype in (dtypes.float32, dtypes.float64) or dtype not in dtypes.floats:
        return np.asarray(buffer.numpy())
    wide = Tensor(contents, dtype=dtypes.uint8).bitcast(dtype).cast(dtypes.float32)
    return np.asarray(wide.numpy())
