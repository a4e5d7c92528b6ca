"""Strides: how an index moves with each axis.

In: index expressions over RANGEs. Out: for each axis in them the step of the index when the axis moves by one, or None
where there is no single step. Sits under the heuristic, which judges by it what is a vector and what a gather.
Invariant: a step that is not None holds for every value of all axes.
"""

from __future__ import annotations

from weft.uop.node import UOp
from weft.uop.opset import Ops

Steps = dict[UOp, int | None]


class Strides:
    """Steps of index expressions; remembers every part, since expressions share most of theirs."""

    def __init__(self) -> None:
        self.known: dict[UOp, Steps] = {}

    def of(self, index: UOp) -> Steps:
        """The step of each axis in `index`; an axis that is not a key has step 0."""
        found = self.known.get(index)
        if found is not None:
            return found
        for node in index.toposort(gate=lambda u: u not in self.known and bool(u.ranges)):
            if node not in self.known:
                self.known[node] = self._steps(node)
        return self.known[index]

    def _steps(self, node: UOp) -> Steps:
        if not node.ranges:
            return {}
        if node.op is Ops.RANGE:
            return {node: 1}
        if node.op is Ops.CAST and node.src[0] in self.known:
            return self.known[node.src[0]]
        if node.op is Ops.ADD:
            return _sum(self.known[node.src[0]], self.known[node.src[1]])
        if node.op is Ops.NEG:
            return _scaled(self.known[node.src[0]], -1)
        if node.op is Ops.MUL:
            for x, y in (node.src, node.src[::-1]):
                if y.op is Ops.CONST:
                    return _scaled(self.known[x], y.arg)
        if node.op is Ops.SHL and node.src[1].op is Ops.CONST:
            return _scaled(self.known[node.src[0]], 1 << node.src[1].arg)
        return dict.fromkeys(node.ranges)


def _sum(x: Steps, y: Steps) -> Steps:
    total = dict(x)
    for axis, step in y.items():
        if axis not in total:
            total[axis] = step
            continue
        other = total[axis]
        total[axis] = None if step is None or other is None else step + other
    return total


def _scaled(x: Steps, factor: int) -> Steps:
    return {axis: None if step is None else step * factor for axis, step in x.items()}
