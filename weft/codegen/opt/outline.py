"""Outline: the axes of a kernel, who ends each and which of them meet, from one walk over it.

In: a kernel AST, and axes of it that are to be cut into pieces or shared by the cores. Out: answers
as if that was done, and the kernel with all of it done at once. Sits between the axes' helpers and
the actions.
Invariant: a cut changes which pieces stand for an axis and how they run, nothing else; so what the
walk found stays true of the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from weft.codegen.opt.axes import closed_axes, find_axis, replace_axes
from weft.codegen.opt.opt import AxisName, Opt, OptError
from weft.uop.args import AxisType, KernelInfo
from weft.uop.infer import CLOSES, derive_ranges
from weft.uop.node import UOp
from weft.uop.opset import Ops


class Outline:
    """A kernel, and the actions that still have to be written into it."""

    def __init__(self, ast: UOp) -> None:
        self.ast = ast
        self.opts: list[Opt] = []
        self._values: dict[UOp, UOp] = {}  # what stands for an axis of the kernel
        self._pieces: dict[UOp, tuple[UOp, ...]] = {}  # what ends where it did
        self._origins: dict[UOp, UOp] = {}  # piece -> the axis of the kernel it is part of
        self._shared: dict[UOp, UOp] = {}  # STORE of the kernel -> the axis of the cores around it

    @cached_property
    def order(self) -> dict[UOp, None]:
        """All nodes of the kernel, sources first."""
        return self.ast.toposort()

    @cached_property
    def _axes(self) -> dict[tuple[int, ...], UOp]:
        """By number, those of outputs first."""
        outputs = [axis for store in self.ast.src for axis in closed_axes(store)]
        axes: dict[tuple[int, ...], UOp] = {}
        for axis in (*outputs, *[u for u in self.order if u.op is Ops.RANGE]):
            axes.setdefault(axis.arg.number, axis)
        return axes

    @cached_property
    def _closers(self) -> dict[UOp, list[UOp]]:
        found: dict[UOp, list[UOp]] = {}
        for node in self.order:
            if node.op in CLOSES:
                for axis in closed_axes(node):
                    found.setdefault(axis, []).append(node)
        return found

    @cached_property
    def _meetings(self) -> set[frozenset[UOp]]:
        """The axes that each of the kernel's expressions has."""
        derive_ranges(self.order)
        sums = [node for node in self.order if node.op is Ops.REDUCE]
        inside = [node.ranges.union(closed_axes(node)) for node in sums]
        return {*[node.ranges for node in self.order], *inside}

    def find(self, name: AxisName) -> UOp | None:
        """The axis or piece of this name; None if the kernel has to be written to find it."""
        for piece in self._origins:
            if piece.arg.number == name:
                return piece
        axis = self._axes.get(name) if isinstance(name, tuple) else None
        if self._values:
            return None if axis in self._values else axis
        return find_axis(self.ast, name) if axis is None else axis

    def closers(self, axis: UOp) -> list[UOp]:
        """Who ends the axis, in order: all its STOREs if it is one of outputs."""
        found = self._closers.get(self._origins.get(axis, axis))
        if found is None:
            raise OptError(f"axis {axis.arg.number} is ended nowhere in the kernel")
        stores = [closer for closer in found if closer.op is Ops.STORE]
        return stores or found

    def ended(self, store: UOp) -> tuple[UOp, ...]:
        """The axes that end at a STORE."""
        pieces = tuple(self._pieces_of(closed_axes(store)))
        return (self._shared[store], *pieces) if store in self._shared else pieces

    def needs(self, store: UOp) -> list[set[UOp]]:
        """The axes around each REDUCE and STAGE that a STORE is made of."""
        order = self.order if self.ast.src == (store,) else store.toposort()
        inner = [node for node in order if node.op in (Ops.REDUCE, Ops.STAGE)]
        return [set(self._pieces_of(node.ranges)) for node in inner]

    def _pieces_of(self, axes: Iterable[UOp]) -> list[UOp]:
        return [piece for axis in axes for piece in self._pieces.get(axis, (axis,))]

    def meets_lanes(self, axis: UOp) -> bool:
        """Whether some expression has the axis and a VECTOR axis."""
        origin = self._origins.get(axis, axis)
        beside = frozenset().union(*[axes for axes in self._meetings if origin in axes])
        return any([piece.arg.kind is AxisType.VECTOR for piece in self._pieces_of(beside)])

    def has_stage_inside(self, axis: UOp) -> bool:
        """Whether a staged value is placed inside of the axis."""
        origin = self._origins.get(axis, axis)
        return any([node.op is Ops.STAGE and origin in node.ranges for node in self.order])

    def cut(self, axis: UOp, value: UOp, pieces: tuple[UOp, ...]) -> None:
        """An axis or piece becomes `value`, an expression of `pieces`, which end where it did."""
        origin = self._origins.pop(axis, axis)
        if origin is not axis:
            value = replace_axes(self._values[origin], {axis: value}, {})
            place = self._pieces[origin].index(axis)
            before, after = self._pieces[origin][:place], self._pieces[origin][place + 1 :]
            pieces = (*before, *pieces, *after)
        self._values[origin] = value
        self._pieces[origin] = pieces
        self._origins.update(dict.fromkeys(pieces, origin))

    def share(self, values: dict[UOp, UOp], shared: UOp, stores: list[UOp]) -> None:
        """Axes of these STOREs become expressions of one that the cores share, around all else."""
        for axis, value in values.items():
            self.cut(axis, value, ())
        self._shared.update(dict.fromkeys(stores, shared))

    def kernel(self) -> UOp:
        """The kernel after all actions; it names them."""
        if not self._values:
            return self.ast
        new = replace_axes(self.ast, self._values, self._pieces, self.order)
        if self._shared:
            stores = [
                after.with_src((*after.src[:2], self._shared[before], *after.src[2:]))
                if before in self._shared
                else after
                for before, after in zip(self.ast.src, new.src, strict=True)
            ]
            new = new.with_src(tuple(stores))
        return with_applied(new, self.ast, self.opts)


def with_applied(new: UOp, ast: UOp, opts: list[Opt]) -> UOp:
    """What a kernel became by some actions, with the names of all that made it."""
    info = ast.arg if isinstance(ast.arg, KernelInfo) else KernelInfo()
    return new.replace(arg=replace(info, applied=(*info.applied, *opts)))
