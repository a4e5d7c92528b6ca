"""Pairs: arithmetic on constants folds to what Python's integers give."""

from __future__ import annotations

import pytest

from weft.codegen.decompose import pairs
from weft.codegen.decompose.words import Words, constant_of

NUMBERS = [0, 1, 5, 0xFFFF, 0x10000, 0xFFFFFFFF, 1 << 32, 0x123456789ABCDEF0, (1 << 64) - 1]


def pair(words: Words, value: int) -> pairs.Pair:
    return words.constant(value & 0xFFFFFFFF), words.constant(value >> 32)


def number(found: pairs.Pair) -> int:
    return int(constant_of(found[0])) | int(constant_of(found[1])) << 32


@pytest.mark.parametrize("x", NUMBERS)
def test_constants_are_computed(x: int) -> None:
    words = Words([])
    for y in NUMBERS:
        first, second = pair(words, x), pair(words, y)
        assert number(pairs.add(words, first, second)) == (x + y) % (1 << 64)
        assert number(pairs.multiply(words, first, second)) == x * y % (1 << 64)
        assert constant_of(pairs.less(words, first, second, signed=False)) is (x < y)
    assert number(pairs.negate(words, first := pair(words, x))) == -x % (1 << 64)
    for by in (0, 1, 31, 32, 40, 63):
        amount = words.constant(by)
        assert number(pairs.shift_left(words, first, amount)) == (x << by) % (1 << 64)
        assert number(pairs.shift_right(words, first, amount, signed=False)) == x >> by


@pytest.mark.parametrize("x", NUMBERS)
@pytest.mark.parametrize("y", [1, 7, 1000, 65535])
def test_divisions_by_digits(x: int, y: int) -> None:
    words = Words([])
    quotient, remainder = pairs.divide(
        words, pair(words, x), pair(words, y), signed=False, is_small=True
    )
    assert (number(quotient), number(remainder)) == divmod(x, y)
