"""A user's mistake is answered in the user's terms: what was asked and found, what would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft import Tensor, Variable, dtypes, nn
from weft.errors import (
    ArgumentError,
    DataError,
    DeviceError,
    DTypeError,
    IndexingError,
    ShapeError,
    WeftError,
)

A = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
PART = Tensor.arange(8)[: Variable("n", 3, 8).bind(5)]

MISTAKES: list[tuple[Callable[[], Any], type[WeftError], str]] = [
    (lambda: PART.split(2), ShapeError, r"split of axis 0 of \(n=5,\).*a variable.*of each part"),
    (lambda: PART.chunk(2), ShapeError, r"chunk of axis 0 of \(n=5,\).*a variable"),
    (lambda: PART.topk(2), ArgumentError, r"topk of 2 .*a variable.*sort"),
    (lambda: nn.Linear("a", 3), ArgumentError, r"in_features is an int, found 'a'"),
    (lambda: nn.Conv2d("a", 1, 3), ArgumentError, r"in_channels is an int, found 'a'"),
    (lambda: nn.optim.SGD([A], lr=-1.0), ArgumentError, r"at least 0, found -1.0"),
    (
        lambda: Tensor([[1, 2], [3]]),
        DataError,
        r"data\[0\] has length 2, but data\[1\] has length 1",
    ),
    (lambda: Tensor([[1, 2], 3]), DataError, r"data\[1\] is 3"),
    (lambda: Tensor([[[1], [2]], [3, 4]]), DataError, r"data\[1\]\[0\] is 3"),
    (lambda: Tensor([1, "a"]), DataError, r"element 1 of the data is 'a'"),
    (lambda: Tensor("abc"), DataError, r"from a str; it takes a number, bytes"),
    (lambda: Tensor({"a": 1}), DataError, r"from a dict"),
    (lambda: Tensor(b"abc", dtype=dtypes.int32), DataError, r"3 bytes .* have 4"),
    (lambda: Tensor(Path("model.bin")), DataError, r"model.bin"),
    (lambda: Tensor([1], dtype="floaty"), DTypeError, r"floaty"),
    (lambda: A + Tensor([1.0, 2.0]), ShapeError, r"\(2, 3\) and \(2,\) do not broadcast.*3 and 2"),
    (lambda: A @ A, ShapeError, r"\(2, 3\) and \(2, 3\).*sizes 3 and 2"),
    (lambda: A.reshape(4, 2), ShapeError, r"\(2, 3\) to \(4, 2\).*6 elements.*8"),
    (lambda: A.reshape(-1, 4), ShapeError, r"6 elements do not divide by 4"),
    (lambda: A.reshape(-1, -1), ShapeError, r"2 sizes -1"),
    (lambda: A.permute(0, 0), ShapeError, r"each of its 2 axes must be there once"),
    (lambda: A.expand(4, 3), ShapeError, r"only axes of size 1 can grow"),
    (lambda: A.expand(3), ShapeError, r"fewer axes"),
    (lambda: A.shrink(((0, 9), None)), ShapeError, r"0 to 9 is not inside 0 to 2"),
    (lambda: A.sum(5), IndexingError, r"axis 5 of a tensor of shape \(2, 3\).*from -2 to 1"),
    (lambda: A.sum((0, 0)), ArgumentError, r"an axis is there twice"),
    (lambda: A.sum("x"), ArgumentError, r"axis is an int or a sequence of ints, found 'x'"),
    (lambda: A[7], IndexingError, r"index 7 is outside axis 0 of shape \(2, 3\).*from -2 to 1"),
    (lambda: A[0, 0, 0], IndexingError, r"too many indices for shape \(2, 3\)"),
    (lambda: A.cat(Tensor.zeros(2, 2)), ShapeError, r"\(2, 3\) and \(2, 2\)"),
    (lambda: A.stack(Tensor.zeros(3)), ShapeError, r"one shape, found \(2, 3\) and \(3,\)"),
    (lambda: A.pad((1,)), ShapeError, r"give \(before, after\)"),
    (lambda: A.pad((1, 1), mode="mirror"), ArgumentError, r"mode \"constant\".*'mirror'"),
    (lambda: A.pad((5, 0), mode="reflect"), ShapeError, r"at most 2 elements"),
    (lambda: A & 1, DTypeError, r"AND .*takes ints or bools, found dtypes.float"),
    (lambda: A << 1, DTypeError, r"takes ints"),
    (lambda: A + "x", ArgumentError, r"not with a str"),
    (lambda: A + [1, 2, 3], ArgumentError, r"Tensor\(...\) makes one of a list"),
    (lambda: A.item(), ShapeError, r"one element, found shape \(2, 3\)"),
    (lambda: len(Tensor(3.0)), ArgumentError, r"no length"),
    (lambda: A.assign(Tensor.zeros(4)), ShapeError, r"\(2, 3\).*\(4,\)"),
    (
        lambda: A[0].expand(5, 3).assign(1.0),
        ArgumentError,
        r"several of its elements are one place",
    ),
    (lambda: Tensor([1]).assign(Tensor([0.5])), DTypeError, r"dtypes\.int.*cast it first"),
    (lambda: A.to("NOWHERE").realize(), DeviceError, r"NOWHERE"),
    (lambda: Tensor.zeros(2, -1), ShapeError, r"no negative sizes"),
    (lambda: Tensor.arange(0, 5, 0), ArgumentError, r"not 0"),
    (lambda: Tensor.rand(2, dtype=dtypes.int32), DTypeError, r"rand gives floats"),
    (lambda: A.clip(), ArgumentError, r"min_ or max_"),
    (lambda: A.split([1, 2]), ShapeError, r"the sum must be 2"),
    (lambda: A.rearrange("a b"), ArgumentError, r"->"),
    (lambda: A.rearrange("a -> a"), ShapeError, r"names 1 axes, it has 2"),
    (lambda: A.bitcast(dtypes.float64), ShapeError, r"bytes divide by 8"),
    (lambda: A.unfold(1, 5, 1), ArgumentError, r"the window must fit"),
    (lambda: A.gelu("exact"), ArgumentError, r"'exact'"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistake(number: int) -> None:
    mistake, kind, text = MISTAKES[number]
    with pytest.raises(kind, match=text):
        mistake()


def test_every_error_is_a_builtin_one_too() -> None:
    with pytest.raises(ValueError):
        A.reshape(7)
    with pytest.raises(IndexError):
        A[9]
    with pytest.raises(TypeError):
        A & 1


@pytest.mark.parametrize("data", [[[1.0], [2.0, 3.0]], object(), ["a"], {"a": 1}])
def test_data_that_is_refused_leaves_nothing_behind(data: Any) -> None:
    count = len(Tensor._live)
    with pytest.raises(WeftError) as found:
        Tensor(data)
    # the traceback holds what was half made, as a debugger or a notebook does
    assert found.value.__traceback__ is not None
    assert len(Tensor._live) == count
    x = Tensor([1.0, 2.0])
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]
