"""Strides: how an index moves with each axis.

In: index expressions over RANGEs. Out: for each axis in them the step of the index when the axis
moves by one, or None where there is no single step. Sits under the heuristic, which judges by it
what is a vector and what a gather.
Invariant: a step that is not None holds for every value of all axes; with `lanes` it holds inside
every aligned group of that many neighbours.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from weft.uop.node import UOp
from weft.uop.opset import Ops

Steps = dict[UOp, int | None]


class Form(NamedTuple):
    """offset + sum of axis * step; an offset of None is not a constant."""

    steps: Steps
    offset: int | None


_UNKNOWN = Form({}, None)


class Strides:
    """Steps of index expressions; remembers every part, since expressions share most of theirs."""

    def __init__(self, lanes: int = 0) -> None:
        self.lanes = lanes
        self.known: dict[UOp, Form] = {}
        self.aligned: set[UOp] = set()  # axes whose step holds in aligned groups only

    def of(self, index: UOp) -> Steps:
        """The step of each axis in `index`; an axis that is not a key has step 0."""
        if index not in self.known:
            for node in index.toposort(gate=lambda u: u not in self.known and bool(u.ranges)):
                if node not in self.known:
                    self.known[node] = self._form(node)
        return self.known[index].steps

    def _form(self, node: UOp) -> Form:
        if not node.ranges:
            return Form({}, node.arg) if node.op is Ops.CONST else _UNKNOWN
        if node.op is Ops.RANGE:
            return Form({node: 1}, 0)
        forms = [self.known.get(s, _UNKNOWN) for s in node.src]
        if node.op is Ops.CAST and node.src[0].dtype.name == "weakint":
            return forms[0]
        if node.op is Ops.ADD:
            return _sum(*forms)
        if node.op is Ops.NEG:
            return _scaled(forms[0], -1)
        if len(node.src) == 2:
            left, right = node.src
            if right.op is Ops.CONST:
                return self._with_constant(node, forms[0], right.arg)
            if node.op is Ops.MUL and left.op is Ops.CONST:
                return _scaled(forms[1], left.arg)
        return Form(dict.fromkeys(node.ranges), None)

    def _with_constant(self, node: UOp, form: Form, value: int) -> Form:
        if node.op is Ops.MUL:
            return _scaled(form, value)
        if node.op is Ops.SHL:
            return _scaled(form, 1 << value)
        if node.op in (Ops.IDIV, Ops.MOD) and self.lanes and value > 0 and value % self.lanes == 0:
            return Form(self._inside_lanes(node, form), None)
        return Form(dict.fromkeys(node.ranges), None)

    def _inside_lanes(self, node: UOp, form: Form) -> Steps:
        """In aligned sixteens (16*i + j) % 64 moves by 1 with j, (16*i + j) // 64 not at all."""
        result: Steps = dict.fromkeys(node.ranges)
        if form.offset is None:
            return result
        for axis, step in form.steps.items():
            size = axis.src[0]
            others = [s for a, s in form.steps.items() if a is not axis]
            if step != 1 or None in others or size.op is not Ops.CONST or size.arg % self.lanes:
                continue
            if gcd(form.offset, *[s for s in others if s is not None]) % self.lanes == 0:
                result[axis] = 1 if node.op is Ops.MOD else 0
                self.aligned.add(axis)
        return result


def _sum(x: Form, y: Form) -> Form:
    total = dict(x.steps)
    for axis, step in y.steps.items():
        if axis not in total:
            total[axis] = step
            continue
        other = total[axis]
        total[axis] = None if step is None or other is None else step + other
    offset = None if x.offset is None or y.offset is None else x.offset + y.offset
    return Form(total, offset)


def _scaled(x: Form, factor: int) -> Form:
    steps = {axis: None if step is None else step * factor for axis, step in x.steps.items()}
    return Form(steps, None if x.offset is None else x.offset * factor)
