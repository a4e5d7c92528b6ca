"""Damaged models whose messages still end where they should: the damage reaches the operators."""

from __future__ import annotations

import random

import pytest

from test.graphs import models
from test.nn.mutations import _onnx_load
from weft.errors import WeftError

SHARE = 300


def changed(data: bytes, source: random.Random) -> bytes:
    """The same number of bytes, one to three of them other ones."""
    found = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 3))):
        at = source.randrange(len(found))
        small = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 127, 128, 255)
        found[at] = source.choice((source.randrange(256), source.choice(small), found[at] ^ 1))
    return bytes(found)


def run_share(count: int, seed: int) -> tuple[int, int]:
    """(loaded, refused); anything but a WeftError goes up and is a bug."""
    source = random.Random(seed)
    examples = [models.affine(), models.shapes(), models.mixed()]
    loaded = refused = 0
    for turn in range(count):
        try:
            _onnx_load(changed(examples[turn % len(examples)], source))
            loaded += 1
        except WeftError:
            refused += 1
    return loaded, refused


@pytest.mark.parametrize("seed", range(2))
def test_damaged_models_run_or_are_refused(seed: int) -> None:
    loaded, refused = run_share(SHARE, seed)
    assert loaded > SHARE // 30 and refused > SHARE // 30


def test_a_model_cut_anywhere_is_refused_or_run() -> None:
    whole = models.mixed()
    for length in range(0, len(whole), 7):
        try:
            _onnx_load(whole[:length])
        except WeftError:
            pass
