"""compat_uop: methods of Tensor on nodes make the node that Tensor's method makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft import Tensor, UOp, Variable, dtypes
from weft.compat_uop import NAMES

METHODS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda a: a.softmax(),
    "relu": lambda a: a.relu(),
    "product": lambda a: a @ a,
    "dot": lambda a: a.dot(a),
    "contiguous": lambda a: a.contiguous(),
    "detach": lambda a: a.detach(),
    "cumsum": lambda a: a.cumsum(0),
    "masked_fill": lambda a: a.masked_fill(a > 2, 0),
    "gather": lambda a: a.gather(0, a.cast(dtypes.int) % 2),
    "layernorm": lambda a: a.layernorm(),
    "std": lambda a: a.std(),
    "std_mean": lambda a: a.std_mean(),
    "tril": lambda a: a.tril(),
    "cross_entropy": lambda a: a.cross_entropy(a),
    "argmax": lambda a: a.argmax(),
    "conv2d": lambda a: a.reshape(1, 1, 2, 2).conv2d(a.reshape(1, 1, 2, 2)),
    "interpolate": lambda a: a.interpolate((3,)),
    "sequential": lambda a: a.sequential([lambda x: x + 1, lambda x: x.relu()]),
}


def _same(tensor: Any, node: Any) -> bool:
    if isinstance(tensor, (tuple, list)):
        return all(map(_same, tensor, node))
    return tensor.uop is node


@pytest.mark.parametrize("name", METHODS)
def test_a_node_has_the_method_of_a_tensor(name: str) -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert _same(METHODS[name](tensor), METHODS[name](tensor.uop))


def test_constructors_make_nodes() -> None:
    assert UOp.zeros(2, 3).shape == (2, 3)  # type: ignore[attr-defined]
    assert UOp.arange(4).dtype is dtypes.int  # type: ignore[attr-defined]
    assert Tensor(UOp.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]  # type: ignore[attr-defined]


def test_the_method_of_the_class_takes_the_node_first() -> None:
    node = Tensor([-1.0, 2.0]).uop
    assert UOp.relu(node) is node.relu()  # type: ignore[attr-defined]


def test_a_size_stays_a_size() -> None:
    size = Variable("n", 1, 8).bind(3)
    assert UOp.ones(size, 2).shape == (size, 2)  # type: ignore[attr-defined]


def test_values_of_nodes() -> None:
    node = (Tensor([1, 2]) + 1).uop.sum()
    assert node.item() == 5  # type: ignore[attr-defined]


def test_every_name_is_a_method_of_both() -> None:
    for name in NAMES:
        assert callable(getattr(Tensor, name)) and hasattr(UOp, name), name
