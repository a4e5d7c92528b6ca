"""A pattern matched by looking at it: `UPat.match`, for those who ask for one match by hand.

What comes in: a pattern, a node, names that are bound already. What goes out: the names of each way
to match. Where it sits: below the pattern, which is duck-typed here; rules are compiled instead
(`compile_pattern.py`). The one invariant: it finds what the compiled rule finds, in its order.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

Names = dict[str, Any]


def matches(pattern: Any, node: Any, names: Names) -> list[Names]:
    """The names bound by each way in which the node matches, none if it does not."""
    if pattern.name is not None:
        if names.get(pattern.name, node) is not node:
            return []
        names = {**names, pattern.name: node}
    if pattern.alternatives:
        return [found for option in pattern.alternatives for found in matches(option, node, names)]
    return _matching_sources(pattern, node, names) if _fits(pattern, node) else []


def _fits(pattern: Any, node: Any) -> bool:
    """Whether op, dtype, arg and tag are the pattern's."""
    if pattern.op is not None and node.op not in pattern.op:
        return False
    if pattern.dtype is not None and not {node.dtype, node.dtype.scalar()} & pattern.dtype:
        return False
    if pattern.arg is not None and pattern.arg != node.arg:
        return False
    return pattern.tag is ... or bool(pattern.tag == node.tag)


def _matching_sources(pattern: Any, node: Any, names: Names) -> list[Names]:
    if pattern.src is None:
        return [names]
    count = len(node.src)
    wanted = pattern.src * count if pattern.is_repeat else pattern.src
    if len(wanted) != count and not (pattern.allow_any_len and len(wanted) < count):
        return []
    orders = permutations(wanted) if pattern.is_unordered else (wanted,)
    found: list[Names] = []
    for order in orders:
        ways = [names]
        for want, source in zip(order, node.src, strict=False):
            ways = [more for way in ways for more in matches(want, source, way)]
        found.extend(ways)
    return found
