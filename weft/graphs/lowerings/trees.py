"""Ensembles of decision trees as Tensor expressions.

In: nodes with their branches, and leaves with their weights. Out: the scores of samples.
Sits below `ml`. Invariant: trees are walked level by level for all samples and trees at once, as
many levels as the deepest one has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes
from weft.graphs.table import refuse
from weft.tensor import Tensor


class Trees:
    """An ensemble: for each node where to look, what to compare with, and where to go."""

    def __init__(self) -> None:
        self.feature: list[int] = []
        self.value: list[float] = []
        self.mode: list[int] = []
        self.yes: list[int] = []
        self.no: list[int] = []
        self.missing: list[int] = []
        self.members: list[list[float]] = []
        self.weights: list[dict[int, float]] = []
        self.roots: list[int] = []

    def add(self, feature: int, value: float, mode: int, missing: int = 0) -> int:
        """A node whose branches are set later; a leaf leads to itself."""
        number = len(self.feature)
        self.feature.append(feature)
        self.value.append(value)
        self.mode.append(mode)
        self.yes.append(number)
        self.no.append(number)
        self.missing.append(missing)
        self.members.append([])
        self.weights.append({})
        return number

    def depth(self) -> int:
        """Steps from the farthest root to a leaf; a circle is no tree."""
        deepest, pending, seen = 0, [(root, 0) for root in self.roots], 0
        while pending:
            node, level = pending.pop()
            deepest, seen = max(deepest, level), seen + 1
            if seen > 2 * len(self.feature) + len(self.roots):
                raise refuse("the nodes are no trees: one is reached twice")
            pending.extend((n, level + 1) for n in {self.yes[node], self.no[node]} if n != node)
        return deepest

    def scores(self, x: Tensor, targets: int, aggregate: str, base: Any) -> Tensor:
        """(samples, targets): what the leaves of all trees add up to."""
        if not self.roots:
            raise refuse("there are no trees")
        if min(self.feature) < 0 or max(self.feature) >= x.shape[1]:
            raise refuse(f"a node looks at feature {max(self.feature)} of {x.shape[1]}")
        wide = x.cast(dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
        count, trees = x.shape[0], len(self.roots)
        feature, yes, no = (
            Tensor(v, dtype=dtypes.int32) for v in (self.feature, self.yes, self.no)
        )
        value = Tensor(numpy.array(self.value), dtype=wide.dtype)
        mode, missing = (Tensor(v, dtype=dtypes.int32) for v in (self.mode, self.missing))
        place = Tensor(self.roots, dtype=dtypes.int32).reshape((1, trees)).expand((count, trees))
        rows = Tensor.arange(count).reshape((count, 1)).expand((count, trees))
        for _ in range(self.depth()):
            found = wide[rows, feature[place]]
            takes = self._compared(found, value[place], mode[place], place)
            takes = found.isnan().where(missing[place].ne(0), takes)
            place = takes.where(yes[place], no[place]).contiguous()
        table = numpy.zeros((len(self.feature), targets))
        present = numpy.zeros((len(self.feature), targets), dtype=bool)
        for node, weights in enumerate(self.weights):
            for target, weight in weights.items():
                if not 0 <= target < targets:
                    raise refuse(f"a leaf has target {target} of {targets}")
                table[node, target] += weight
                present[node, target] = True
        leaves = Tensor(table, dtype=wide.dtype)[place]
        if aggregate in ("MIN", "MAX"):
            worst = math.inf if aggregate == "MIN" else -math.inf
            used = Tensor(present)[place]
            limited = used.where(leaves, worst)
            total = limited.min(1) if aggregate == "MIN" else limited.max(1)
            total = used.any(1).where(total, 0)
        else:
            total = leaves.sum(1)
            total = total / trees if aggregate == "AVERAGE" else total
        return total if base is None else total + Tensor(list(base), dtype=wide.dtype)

    def _compared(self, x: Tensor, value: Tensor, mode: Tensor, place: Tensor) -> Tensor:
        """Whether each sample takes the branch of True."""
        kinds = sorted(set(self.mode))
        found: Any = None
        for kind in kinds:
            if kind == 6:
                one = self._is_member(x, place)
            elif kind == 7:
                one = x.eq(x)
            else:
                one = (x <= value, x < value, x >= value, x > value, x.eq(value), x.ne(value))[kind]
            found = one if found is None else mode.eq(kind).where(one, found)
        result: Tensor = found
        return result

    def _is_member(self, x: Tensor, place: Tensor) -> Tensor:
        longest = max(len(values) for values in self.members)
        table = numpy.full((len(self.members), max(1, longest)), numpy.nan)
        for node, values in enumerate(self.members):
            table[node, : len(values)] = values
        return Tensor(table, dtype=x.dtype)[place].eq(x.unsqueeze(-1)).any(-1)


TREE_MODES = {
    "BRANCH_LEQ": 0,
    "BRANCH_LT": 1,
    "BRANCH_GTE": 2,
    "BRANCH_GT": 3,
    "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5,
    "LEAF": 7,
}
