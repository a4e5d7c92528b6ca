"""64-bit integers as pairs of words: every op to the bit, in programs that have no 64 bits."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.renderer.corpus import Case, cases_from
from weft import Context, Tensor, Variable, dtypes
from weft.codegen.decompose.longs import split_longs
from weft.codegen.pipeline import lower
from weft.dtype import to_numpy_dtype
from weft.errors import CompileError
from weft.renderer.base import ProgramSpec
from weft.renderer.groups import word_of
from weft.renderer.wgsl import WGSLRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.opset import Ops

EDGES = [0, 1, 2, 3, 31, 32, 63, 64, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32]
EDGES += [(1 << 32) + 1, 0x123456789ABCDEF0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2]
EDGES += [(1 << 53) + 1, (1 << 24) + 1, 0x1000001_00000000, 0x1000001_00000001, 0xFFFFFF8000000000]
KINDS = {"int64": np.int64, "uint64": np.uint64}


def data(kind: str, count: int = 160, seed: int = 0) -> np.ndarray:
    """Edges, short numbers and numbers of any bits, in any order."""
    random = np.random.default_rng(seed)
    some = np.array(EDGES, np.uint64)
    any_bits = random.integers(0, 1 << 63, count, np.uint64) * 2 + random.integers(
        0, 2, count
    ).astype(np.uint64)
    any_bits = any_bits.astype(np.uint64)
    short = any_bits >> random.integers(0, 64, count).astype(np.uint64)
    every = np.concatenate([some, any_bits, short])
    return random.permutation(every)[:count].view(KINDS[kind])


def on_cpu(values: np.ndarray) -> Tensor:
    return Tensor(values, device="CPU").realize()


def lowered(compute: Callable[[], Tensor]) -> tuple[Case, ProgramSpec]:
    """The one kernel of a value, for a target without 64 bits."""
    (case,) = cases_from("longs", compute)
    return case, without_longs(case)


def without_longs(case: Case) -> ProgramSpec:
    with Context(SPEC=1):
        spec = lower(case.kernel, WGSLRenderer())
    assert not any([u.dtype.scalar() in (dtypes.int64, dtypes.uint64) for u in spec.uops])
    return spec


def run(compute: Callable[[], Tensor]) -> np.ndarray:
    """What the program computes, interpreted word by word."""
    return run_case(*lowered(compute))


def run_case(case: Case, spec: ProgramSpec) -> np.ndarray:
    # memory is a whole number of words
    memory = [bytearray(some + bytes(-len(some) % 4)) for some in case.before]
    interpreter = Interpreter("k", spec.uops)
    values = []
    for word in interpreter.variables:
        name, half = word_of(word.arg.name)
        part = case.values[name] >> 32 * half
        values.append(part & 0xFFFFFFFF if word.dtype.kind == "uint" else part)
    views = {
        p.arg.slot: view_memory(memoryview(memory[p.arg.slot]), p.dtype, p.arg.size)
        for p in interpreter.params
    }
    interpreter.run(views, values)
    (slot,) = spec.outs
    found = bytes(memory[slot][: len(case.before[slot])])
    assert found == case.after[slot], "the CPU computes something else"
    return np.frombuffer(found, to_numpy_dtype(case.dtypes[slot]))


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "less": lambda x, y: x < y,
    "less_or_equal": lambda x, y: x <= y,
    "equal": lambda x, y: x == y,
    "unequal": lambda x, y: x != y,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, kind: str) -> None:
    x, y = data(kind, seed=zlib.crc32(name.encode())), data(kind, seed=2)
    y[::7] = x[::7]
    with np.errstate(over="ignore"):
        wanted = BINARY[name](x, y)
    assert np.array_equal(run(lambda: BINARY[name](on_cpu(x), on_cpu(y))), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_larger_one(kind: str) -> None:
    x, y = data(kind, seed=3), data(kind, seed=4)
    assert np.array_equal(run(lambda: on_cpu(x).maximum(on_cpu(y))), np.maximum(x, y))
    assert np.array_equal(run(lambda: on_cpu(x).minimum(on_cpu(y))), np.minimum(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_one_operand(kind: str) -> None:
    x = data(kind)
    with np.errstate(over="ignore"):
        assert np.array_equal(run(lambda: -on_cpu(x)), -x if kind == "int64" else ~x + np.uint64(1))
    assert np.array_equal(run(lambda: on_cpu(x).bitwise_not()), ~x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [0, 1, 13, 31, 32, 33, 47, 63])
def test_shifts_by_a_number(kind: str, by: int) -> None:
    x = data(kind)
    amount = KINDS[kind](by)
    assert np.array_equal(run(lambda: on_cpu(x) << by), x << amount)
    assert np.array_equal(run(lambda: on_cpu(x) >> by), x >> amount)


@pytest.mark.parametrize("kind", KINDS)
def test_shifts_by_data(kind: str) -> None:
    x = data(kind)
    by = np.random.default_rng(1).integers(0, 64, x.size).astype(x.dtype)
    assert np.array_equal(run(lambda: on_cpu(x) << on_cpu(by)), x << by)
    assert np.array_equal(run(lambda: on_cpu(x) >> on_cpu(by)), x >> by)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("divisor", [1, 3, 8, 1000, 65535, 65536, 1000003, (1 << 33) + 1])
def test_divisions_by_a_number(kind: str, divisor: int) -> None:
    x = data(kind, 60)
    number = KINDS[kind](divisor)
    assert np.array_equal(run(lambda: on_cpu(x) // divisor), x // number)
    assert np.array_equal(run(lambda: on_cpu(x) % divisor), x % number)


@pytest.mark.parametrize("kind", KINDS)
def test_divisions_by_data(kind: str) -> None:
    x, y = data(kind, 60, seed=5), data(kind, 60, seed=6)
    y[:4] = x[:4]
    y[4] = 0
    with np.errstate(all="ignore"):
        quotient, remainder = x // y, x % y
    if kind == "int64":
        least = (x == np.iinfo(np.int64).min) & (y == -1)
        quotient[least], remainder[least] = x[least], 0
    assert np.array_equal(run(lambda: on_cpu(x) // on_cpu(y)), quotient)
    assert np.array_equal(run(lambda: on_cpu(x) % on_cpu(y)), remainder)


def test_short_operands_are_divided_as_words() -> None:
    def short() -> Tensor:
        return on_cpu(np.arange(40, dtype=np.uint16)).cast(dtypes.int64) * 65000 // 77

    _, spec = lowered(short)
    assert not any([u.op is Ops.ACC for u in spec.uops])
    assert np.array_equal(run(short), np.arange(40, dtype=np.int64) * 65000 // 77)


NARROW = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", NARROW, ids=lambda kind: kind.__name__)
def test_integers_of_other_widths(kind: str, other: Any) -> None:
    x = data(kind)
    target = getattr(dtypes, np.dtype(other).name)
    assert np.array_equal(run(lambda: on_cpu(x).cast(target)), x.astype(other))
    back = x.astype(other)
    assert np.array_equal(
        run(lambda: on_cpu(back).cast(getattr(dtypes, kind))), back.astype(KINDS[kind])
    )


def test_signs_are_reinterpreted() -> None:
    x = data("int64")
    assert np.array_equal(run(lambda: on_cpu(x).cast(dtypes.uint64)), x.astype(np.uint64))
    assert np.array_equal(run(lambda: on_cpu(x).bitcast(dtypes.uint64)), x.view(np.uint64))


@pytest.mark.parametrize("kind", KINDS)
def test_longs_to_floats_round_once(kind: str) -> None:
    x = data(kind, 400)
    ties = (np.arange(1, 60, dtype=np.uint64) << np.uint64(39)) + (np.uint64(1) << np.uint64(63))
    x = np.concatenate([x, ties.view(x.dtype), (ties + np.uint64(1)).view(x.dtype)])
    assert np.array_equal(run(lambda: on_cpu(x).cast(dtypes.float32)), x.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_floats_to_longs_saturate(kind: str) -> None:
    random = np.random.default_rng(1)
    x = np.ldexp(random.uniform(-1, 1, 300), random.integers(-3, 70, 300)).astype(np.float32)
    x[:6] = [0.0, -0.0, np.nan, np.inf, -np.inf, 4294967296.0]
    limits = np.iinfo(KINDS[kind])
    wanted = [
        0
        if np.isnan(v)
        else limits.max
        if v > limits.max
        else limits.min
        if v < limits.min
        else int(v)
        if np.isfinite(v)
        else 0
        for v in x.astype(object)
    ]
    found = run(lambda: on_cpu(x).cast(getattr(dtypes, kind)))
    assert found.tolist() == [min(max(int(v), limits.min), limits.max) for v in wanted]


@pytest.mark.parametrize("kind", KINDS)
def test_choices_and_reductions(kind: str) -> None:
    x = data(kind, 300)

    def chosen() -> Tensor:
        y = on_cpu(x)
        return (y > 5).where(y, on_cpu(x[::-1].copy()))

    assert np.array_equal(run(chosen), np.where(x > 5, x, x[::-1]))
    with np.errstate(over="ignore"):
        assert (
            run(lambda: on_cpu(x).reshape(3, 100).sum(1)).tolist()
            == x.reshape(3, 100).sum(1).tolist()
        )
    assert run(lambda: on_cpu(x).max()) == x.max()


def test_places_are_longs() -> None:
    x = np.arange(50, dtype=np.float32)
    places = np.array([3, 0, -1, 49, 17, -50], np.int64)
    assert run(lambda: on_cpu(x)[on_cpu(places)]).tolist() == x[places].tolist()


def test_words_of_64_bit_variables() -> None:
    x = np.arange(6, dtype=np.int64)

    def value() -> Tensor:
        number = Variable("key", -(1 << 62), 1 << 62).bind(0x123456789ABCDEF0)
        return on_cpu(x) + Tensor(number, device="CPU", dtype=dtypes.int64)

    wanted = x + 0x123456789ABCDEF0
    assert run(value).tolist() == wanted.tolist()


def test_random_bits_are_the_same_words() -> None:
    """Each kernel gives the CPU's bits, also of what is drawn from 64 of them."""
    for compute in (
        lambda: Tensor.rand(64, device="CPU"),
        lambda: Tensor.randint(50, low=-9, high=1 << 31, dtype=dtypes.int64, device="CPU"),
    ):
        for case in cases_from("random", compute):
            run_case(case, without_longs(case))


def test_programs_without_longs_are_left_alone() -> None:
    _, spec = lowered(lambda: on_cpu(np.ones(4, np.float32)) + 1)
    assert split_longs(spec.uops) == list(spec.uops)


def test_float64_is_refused_with_what_to_do() -> None:
    with pytest.raises(CompileError, match=r"wgsl has no dtypes.double.*compute in float32"):
        lowered(lambda: on_cpu(data("int64")).cast(dtypes.float64) * 2)
