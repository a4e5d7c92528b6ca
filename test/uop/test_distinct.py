"""Which rounds of a STORE are apart, and which accesses never meet, by proof."""

from __future__ import annotations

import itertools
import random

import pytest

from test.optional import need
from weft.dtype import dtypes
from weft.errors import SpecError
from weft.uop.args import DISTINCT, KernelInfo
from weft.uop.distinct import named_axes, names_each_round, never_meet, writes_apart
from weft.uop.node import UOp
from weft.uop.prove import prove_distinct

memory = UOp.param(0, dtypes.float32, 1 << 20)
n = UOp.variable("n", 1, 64)
a, b, c = UOp.range(5, 0), UOp.range(3, 1), UOp.range(4, 2)
long = UOp.range(60, 3)
rest = UOp.range(n, 4)


def const(value: int) -> UOp:
    return UOp.const(dtypes.weakint, value)


@pytest.mark.parametrize(
    ("index", "axes"),
    [
        (a * 12 + b * 4 + c, (a, b, c)),
        (a * 12 + (const(2) - b) * 4 + c, (a, b, c)),
        ((long // 5) * 8 + long % 5, (long,)),
        ((long // 12) * 100 + (long // 3) % 4 * 7 + long % 3, (long,)),
        (((a * 3 + b) // 4) * 9 + (a * 3 + b) % 4, (a, b)),
        (a * n + rest, (a, rest)),
        (a * 2 + n * 7, (a,)),
    ],
)
def test_sums_of_digits_are_apart(index: UOp, axes: tuple[UOp, ...]) -> None:
    assert names_each_round(memory.index(index), axes)
    assert writes_apart(memory.index(index).store(1.0, *axes))


@pytest.mark.parametrize(
    ("index", "axes"),
    [
        (a // 2, (a,)),
        (a * 2 + b, (a, b)),
        (a, (a, b)),
        (long % 5, (long,)),
        ((long // 6) * 8 + long % 5, (long,)),
        (a * n, (a, rest)),
        (a * (n - 1) + rest, (a, rest)),
        (a * b, (a, b)),
        (memory.index(a).load().cast(dtypes.weakint), (a,)),
    ],
)
def test_what_may_meet_is_not_apart(index: UOp, axes: tuple[UOp, ...]) -> None:
    assert not names_each_round(memory.index(index), axes)


def test_a_condition_shortens_an_axis() -> None:
    assert not names_each_round(memory.index(a * 3 + c), (a, c))
    assert names_each_round(memory.index(a * 3 + c, c < 3), (a, c))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (a, b + 5, True),
        (a, b + 4, False),
        (a * 2, b * 2 + 1, True),
        (a * 2, b * 2 + 2, False),
        (a * 7 + b, c * 7 + 3, True),
        (a * 7 + b, c * 7 + 2, False),
    ],
)
def test_accesses_that_never_meet(left: UOp, right: UOp, expected: bool) -> None:
    assert never_meet(memory.index(left), memory.index(right)) is expected
    assert never_meet(memory.index(right), memory.index(left)) is expected


def test_a_condition_keeps_accesses_apart() -> None:
    longer = UOp.range(6, 9)
    assert not never_meet(memory.index(longer), memory.index(b + 4))
    assert never_meet(memory.index(longer, longer < 4), memory.index(b + 4))


def test_proofs_are_never_wrong() -> None:
    """Against all rounds of random sums; and enough of what is apart is seen to be."""
    rng = random.Random(3)
    proven = apart = 0
    for _ in range(250):
        axes = [UOp.range(rng.randint(1, 5), number) for number in range(3)]
        index = const(rng.randint(0, 9))
        for axis in axes:
            if rng.random() < 0.6:
                index = index + axis * rng.randint(-6, 30)
            else:
                size = rng.randint(1, 4)
                index = index + axis // size * rng.randint(1, 30) + axis % size * rng.randint(1, 9)
        places = []
        for values in itertools.product(*[range(int(axis.vmax) + 1) for axis in axes]):
            changes = dict(zip(axes, map(const, values), strict=True))
            places.append(index.substitute(changes).simplify().arg)
        is_apart = len(set(places)) == len(places)
        found = names_each_round(memory.index(index), axes)
        assert is_apart or not found, index.text()
        proven, apart = proven + found, apart + is_apart
    assert proven > apart // 3 > 10


def test_an_index_from_memory_tells_the_axes_below_it() -> None:
    row = memory.index(a).load().cast(dtypes.weakint)
    assert named_axes(memory.index(row * 4 + c), {a, c}) == {c}
    assert named_axes(memory.index(row * 3 + c), {a, c}) == set()
    assert named_axes(memory.index(row * 4 + c, c < 3), {a, c}) == {c}


def test_a_wrong_claim_is_refuted() -> None:
    """SPEC=2 does not believe a tag where it can ask the solver."""
    need("z3")
    right = memory.index(a * 12 + b * 4 + c).store(1.0, a, b, c).rtag(DISTINCT)
    prove_distinct(UOp.sink(right, arg=KernelInfo("right")))
    wrong = memory.index(a * 2 + b).store(1.0, a, b).rtag(DISTINCT)
    with pytest.raises(SpecError, match="in kernel wrong.*is written by STORE .* written in anoth"):
        prove_distinct(UOp.sink(wrong, arg=KernelInfo("wrong")))
