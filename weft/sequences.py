"""Helpers of lists, tuples and dicts.

In: Python collections. Out: Python collections. Sits under `helpers`, which passes its names on.
Invariant: order is kept, and what is given is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from weft.errors import ArgumentError, DataError

Item = TypeVar("Item")
Key = TypeVar("Key")
Value = TypeVar("Value")


def dedup(items: Iterable[Item]) -> list[Item]:
    """The items without repetitions, in order of their first appearance."""
    return list(dict.fromkeys(items))


def flatten(parts: Iterable[Iterable[Item]]) -> list[Item]:
    """One list of the items of all parts."""
    return [item for part in parts for item in part]


def fully_flatten(nested: Any) -> list[Any]:
    """One list of everything in nested lists, tuples and arrays, whatever the depth.

    >>> fully_flatten([1, [2, (3, [])]])
    [1, 2, 3]
    """
    flat: list[Any] = []
    pending = [nested]
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
        elif hasattr(item, "__array__") and hasattr(item, "flatten"):
            flat.extend(item.flatten())
        else:
            flat.append(item)
    return flat


def get_shape(nested: Any) -> tuple[int, ...]:
    """The shape of nested lists or tuples of numbers.

    >>> get_shape([[1, 2, 3], [4, 5, 6]])
    (2, 3)
    """
    if hasattr(nested, "shape"):
        return tuple(nested.shape)
    shape: list[int] = []
    level = [nested]
    while level and any(isinstance(item, (list, tuple)) for item in level):
        lengths = {len(item) if isinstance(item, (list, tuple)) else -1 for item in level}
        if len(lengths) != 1:
            found = ", ".join("a number" if n < 0 else f"length {n}" for n in sorted(lengths))
            raise DataError(
                f"the data is ragged: beside each other at depth {len(shape)} stand {found}; "
                "a tensor needs equal lengths"
            )
        shape.append(lengths.pop())
        level = [item for part in level for item in part]
    return tuple(shape)


def argfix(*args: Any) -> tuple[Any, ...]:
    """Arguments given one by one or as a single sequence, as a tuple.

    >>> argfix(1, 2) == argfix((1, 2)) == argfix([1, 2])
    True
    """
    if args and isinstance(args[0], (tuple, list)):
        if len(args) != 1:
            raise ArgumentError(f"give one sequence or separate values, not both: {args}")
        return tuple(args[0])
    return args


def argsort(items: Sequence[Any]) -> Any:
    """The positions that sort `items`; of a permutation, its inverse. As the type of `items`.

    >>> argsort((2, 0, 1))
    (1, 2, 0)
    """
    order = sorted(range(len(items)), key=items.__getitem__)
    return tuple(order) if isinstance(items, tuple) else order


def all_same(items: Sequence[Any]) -> bool:
    """Whether all items are equal; true for none."""
    return all(item == items[0] for item in items)


def partition(
    items: Iterable[Item], condition: Callable[[Item], Any]
) -> tuple[list[Item], list[Item]]:
    """The items that meet the condition, and the others."""
    meeting: list[Item] = []
    others: list[Item] = []
    for item in items:
        (meeting if condition(item) else others).append(item)
    return meeting, others


def get_single_element(items: Iterable[Item]) -> Item:
    """The only item of a collection that has one."""
    found = list(items)
    if len(found) != 1:
        raise ArgumentError(f"exactly one element was expected, but there are {len(found)}")
    return found[0]


def merge_dicts(mappings: Iterable[Mapping[Key, Value]]) -> dict[Key, Value]:
    """One dict of all; a key that comes twice must come with the same value."""
    merged: dict[Key, Value] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            if key in merged and merged[key] != value:
                raise ArgumentError(f"{key} is given as {merged[key]} and as {value}")
            merged[key] = value
    return merged


def unwrap(value: Item | None) -> Item:
    """The value, which the caller knows not to be None."""
    if value is None:
        raise ArgumentError("a value was expected here, but there is None")
    return value


class count:
    """Counts up from `start`, as `itertools.count`, but can be pickled and looked at."""

    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.n = start
        self.step = step

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        current = self.n
        self.n += self.step
        return current
