"""Choices: short axes that choose between values are written out, each copy with its own value.

In: the nodes of a kernel AST. Out: the actions that write such axes out: a stack of computed
pieces, the points of a transform. Sits between the axes' helpers and the heuristic.
Invariant: only axes of what is stored or staged are named; they are as long as they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.budgets import CHOICES
from weft.codegen.opt.axes import closed_axes, size_of
from weft.codegen.opt.opt import Opt, OptOps
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def choice_opts(order: Iterable[UOp]) -> list[Opt]:
    """The axes that choose between values to store or to stage, as copies.

    STORE(p[r, t], where(r < 1, x[t] + y[t], x[t] - y[t]), r: 2, t)
    -> STORE(p[r, t], ..., r: 2 UPCAST, t): p[0, t] = x[t] + y[t] and p[1, t] = x[t] - y[t]
    """
    closers = [u for u in order if u.op in (Ops.STORE, Ops.STAGE)]
    outputs = {axis: closer for closer in closers for axis in closed_axes(closer)}
    chosen: dict[UOp, None] = {}
    for node in order:
        if node.op is Ops.WHERE and node.src[0].op is Ops.CMPLT:
            axis, bound = node.src[0].src
            # a value or a number is what padding is made of
            is_choice = not any([s.op is Ops.CONST for s in node.src[1:]])
            if is_choice and axis in outputs and bound.op is Ops.CONST:
                chosen.setdefault(axis)
    copies = dict.fromkeys(closers, 1)
    opts: list[Opt] = []
    for axis in chosen:
        if axis.arg.kind is not AxisType.LOOP or axis.src[0].op is not Ops.CONST:
            continue
        closer, size = outputs[axis], size_of(axis)
        if size <= CHOICES and copies[closer] * size <= CHOICES**2:
            copies[closer] *= size
            opts.append(Opt(OptOps.UPCAST, axis.arg.number, 0))
    return opts
