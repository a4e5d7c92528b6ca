"""host.py: data of the host as bytes in a dtype, and where the elements of a view are."""

from __future__ import annotations

import math
import struct

import pytest

from weft import Tensor, dtypes
from weft.engine.host import (
    Strided,
    list_shape,
    nest,
    number,
    pack,
    row_major,
    storage_dtype,
    unpack,
)
from weft.errors import DataError
from weft.uop.opset import Ops


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([], (0,)),
        ([1, 2], (2,)),
        ([[1], [2], [3]], (3, 1)),
        ([[], []], (2, 0)),
        (((1, 2),), (1, 2)),
    ],
)
def test_shapes_of_nested_lists(data: object, shape: tuple[int, ...]) -> None:
    assert list_shape(data) == shape


def test_ragged_lists_are_named_where_they_differ() -> None:
    with pytest.raises(DataError, match=r"data\[1\] has length 1"):
        list_shape([[1, 2], [3]])
    with pytest.raises(DataError, match=r"data\[1\] is 5"):
        list_shape([[1, 2], 5])


def test_floats_round_and_ints_wrap() -> None:
    assert pack([300, -1], dtypes.int8) == struct.pack("2b", 44, -1)
    assert pack([1e39], dtypes.float32) == struct.pack("f", math.inf)
    assert pack([1.0, 2.0], dtypes.bfloat16) == b"\x80\x3f\x00\x40"
    assert unpack(pack([0.1], dtypes.float16), dtypes.float16) == [0.0999755859375]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3), (1, 1, 6)])
def test_lists_are_nested_back(shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    nested = nest(list(range(count)), shape)
    assert nested == 0 if not shape else list_shape(nested) == shape[: len(list_shape(nested))]
    flat = nested
    for _ in shape[1:]:
        flat = [item for part in flat for item in part]
    assert flat == list(range(count)) or not shape


def test_numbers_beyond_64_bits_have_a_dtype() -> None:
    assert number(3, None, None).dtype is dtypes.weakint
    assert number(2**63, None, None).dtype is dtypes.uint64
    assert storage_dtype(number(2**40, None, None)) is dtypes.int64
    assert storage_dtype(number(4, None, None)) is dtypes.default_int


def test_strides_follow_movement() -> None:
    x = Tensor.empty(4, 6).uop
    view = Strided((4, 6), row_major((4, 6)), 0)
    assert view.in_order and view.window == (0, 24)
    turned = view.move(x.permute((1, 0)))
    assert turned == Strided((6, 4), (1, 6), 0) and not turned.in_order
    part = view.move(x.shrink(((1, 3), (2, 5))))
    assert part == Strided((2, 3), (6, 1), 8) and part.window == (8, 17)
    flipped = view.move(x.flip((0,)))
    assert flipped == Strided((4, 6), (-6, 1), 18) and flipped.window == (0, 24)


def test_a_view_with_gaps_takes_no_other_shape() -> None:
    x = Tensor.empty(4, 6).uop
    part = Strided((4, 6), (6, 1), 0).move(x.shrink(((0, 4), (0, 3))))
    assert part is not None
    shrunk = x.shrink(((0, 4), (0, 3)))
    assert part.move(shrunk.reshape((12,))) is None
    grown = part.move(shrunk.reshape((4, 1, 3)))
    assert grown is not None and grown.strides == (6, 0, 1)
    assert shrunk.op is Ops.SHRINK
