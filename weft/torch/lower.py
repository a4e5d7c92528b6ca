"""Walks a graph of PyTorch and says what it is in Tensors; what it cannot say is left to PyTorch.

In: an FX graph of functional ATen operators, and values of its free sizes. Out: `Walk`, which holds
a Tensor for each node, and the nodes that PyTorch has to run. Sits on the table of lowerings, below
`plan`, which makes programs of it.
Invariant: each value has the dtype and the shape that PyTorch says it has, or its node is left to
PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from weft.dtype import DType, dtypes
from weft.errors import UnsupportedError, WeftError
from weft.tensor import Tensor
from weft.torch.lowerings import (  # noqa: F401  (they fill the table)
    conv,
    elementwise,
    indexing,
    matmul,
    movement,
    norm,
    random,
    recurrent,
    reduce,
)
from weft.torch.sizes import Sizes
from weft.torch.table import lowering_of
from weft.torch.types import dtype_of

# arguments that say where and how PyTorch stores a result, not what it is
_STORAGE = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")
# what a graph does with sizes, in Python
_PYTHON = {getattr(operator, name) for name in "add sub mul floordiv mod pow neg".split()}


def name_of(target: Any) -> str:
    """An operator as the table knows it: `add.Tensor`; of others than ATen's with their space."""
    name = str(target)
    return name.removeprefix("aten.") if name.startswith("aten.") else name


def value_of(node: Node) -> Any:
    """What PyTorch knows about the result of a node: a FakeTensor, a SymInt, a tuple of those."""
    return node.meta.get("val")


class Refused(UnsupportedError):
    """A node that weft cannot say: PyTorch runs it. Without a node, all of a program."""

    def __init__(self, node: Node | None, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class Lowering:
    """One node while it is lowered: what `Call` of the table promises."""

    def __init__(self, node: Node, sizes: Sizes, bits: Callable[[Any], Tensor]) -> None:
        self.name = name_of(node.target)
        self.meta = value_of(node)
        self.random_bits = bits
        self._node = node
        self._sizes = sizes

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the only result."""
        return self._sizes.shape(self.meta.shape)

    @property
    def arguments(self) -> list[Any]:
        """What PyTorch knows about the arguments."""
        return [value_of(a) if isinstance(a, Node) else a for a in self._node.args]

    @staticmethod
    def dtype_of(dtype: torch.dtype) -> DType:
        """The dtype of that of PyTorch's."""
        return dtype_of(dtype)


class Walk:
    """Values of nodes as Tensors, over given values of what comes from outside."""

    def __init__(self, sizes: Sizes, seed: Callable[[], Tensor]) -> None:
        self.sizes = sizes
        self.values: dict[Node, Any] = {}
        self._seed = seed
        self._draws = 0

    def lower(self, node: Node) -> None:
        """Enters the value of a node; `Refused` says why PyTorch has to run it."""
        try:
            self.values[node] = self._lowered(node)
        except WeftError as error:
            raise Refused(node, str(error)) from error
        except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            # arguments of another release than those that the table was written for
            raise Refused(node, f"{type(error).__name__}: {error}") from error

    def _lowered(self, node: Node) -> Any:
        args = self._taken(node.args)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if node.target in _PYTHON or isinstance(value_of(node), (torch.SymInt, int)):
            return self.sizes(value_of(node))
        name = name_of(node.target)
        row = lowering_of(name)
        if row is None:
            raise UnsupportedError("it has no lowering")
        kwargs = {k: self._taken(v) for k, v in node.kwargs.items() if k not in _STORAGE}
        if row.wants_call:
            kwargs["call"] = Lowering(node, self.sizes, self._bits)
        return self._checked(row.function(*args, **kwargs), value_of(node))

    def _taken(self, value: Any) -> Any:
        """Arguments with values in the places of nodes."""
        if isinstance(value, Node):
            if value in self.values:
                return self.values[value]
            return self.sizes(value_of(value))
        if isinstance(value, (list, tuple)):
            return type(value)([self._taken(part) for part in value])
        return self.sizes(value)

    def _checked(self, found: Any, meta: Any) -> Any:
        """A result with the dtype that it has in PyTorch; another shape is a mistake of ours."""
        if isinstance(meta, (list, tuple)):
            return tuple([self._checked(f, m) for f, m in zip(found, meta, strict=False)])
        if meta is None or found is None:
            return None
        if not isinstance(found, Tensor):
            found = Tensor(found)
        shape = self.sizes.shape(meta.shape)
        if len(found.shape) != len(shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(found.shape, shape, strict=True)
        ):
            raise UnsupportedError(f"weft gives the shape {found.shape}, PyTorch {shape}")
        return found.cast(dtype_of(meta.dtype))

    def _bits(self, count: Any) -> Tensor:
        """Random uint32, of a key of their own."""
        number = self._draws
        self._draws += 1
        counter = Tensor.stack(Tensor(number), Tensor(0)).cast(dtypes.uint32)
        return Tensor.random_bits(self._seed(), counter, count)
