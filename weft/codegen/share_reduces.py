"""Share reduces: a reduction over the threads of a group goes through memory that they share.

In: a kernel with GROUP_REDUCE axes. Out: the same kernel without them: each thread reduces a part,
a shared STAGE holds the parts, and what needs the result reduces the STAGE. Sits after optimise and
before stages become memory, so barriers need no thought here.
Invariant: a shared STAGE depends on no axis that threads of one group run differently (LOCAL, WARP,
GROUP_REDUCE): it fills them all.

    REDUCE(x[l, r, g], r, g GROUP_REDUCE) of an output axis l LOCAL
    -> REDUCE(STAGE(REDUCE(x[m, r, f], r), m LOCAL, f LOCAL)[l, s], s)
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.loops import FreshAxes, own_axes
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

THREAD_KINDS = (AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)
# parts that each thread reads by itself; more of them are reduced in several steps
_READ_AT_ONCE = 32
_STEP = 16


def share_reduces(sink: UOp, target: Target) -> UOp:
    """The kernel with its group reductions as shared stages."""
    order = sink.toposort()
    if not any([u.op is Ops.RANGE and u.arg.kind is AxisType.GROUP_REDUCE for u in order]):
        return sink
    return _Sharing(sink).run()


@dataclass(frozen=True)
class _Axes:
    """The axes of a shared reduction, the same for all reductions over the same axes."""

    kept: tuple[UOp, ...]  # axes that the parts differ in and that stay: threads, then lanes
    filled: tuple[UOp, ...]  # those axes, filling the memory
    parts: UOp  # fills the memory with one part per thread


class _Sharing:
    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        order = sink.toposort()
        self.fresh = FreshAxes(order)
        self.stages = sum(u.op is Ops.STAGE for u in order)
        self.made: dict[tuple[object, ...], UOp] = {}
        self.known: dict[tuple[object, ...], _Axes] = {}

    def run(self) -> UOp:
        done: dict[UOp, UOp] = {}
        for node in self.sink.toposort():
            src = tuple([done[s] for s in node.src])
            new = node if src == node.src else node.with_src(src)
            if node.op is Ops.REDUCE and _group_axes(node):
                new = self._share(new)
            done[node] = new
        return done[self.sink]

    def _axis(self, key: tuple[object, ...], size: int, kind: AxisType) -> UOp:
        """One axis per key, so that reductions that shared their loops share these too."""
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self.fresh.make(UOp.const(dtypes.weakint, size), kind)
        return found

    def _share(self, reduce: UOp) -> UOp:
        group = _group_axes(reduce)
        rest = tuple([axis for axis in own_axes(reduce) if axis not in group])
        axes = self._axes_of(reduce, group)
        partial = reduce.src[0].reduce(reduce.arg, *rest) if rest else reduce.src[0]
        changes = dict(zip(axes.kept, axes.filled, strict=True))
        changes.update(zip(group, _digits(axes.parts, group), strict=True))
        count = _size(axes.parts)
        stage = self._stage(partial.substitute(changes), axes, axes.parts)
        while count > _READ_AT_ONCE:
            step = next((n for n in range(_STEP, 1, -1) if count % n == 0), count)
            if step == count:
                break
            count //= step
            parts = self._axis((axes, "part", count), count, AxisType.LOOP)
            terms = self._axis((axes, "term", count), step, AxisType.REDUCE)
            read = _read(stage, axes.filled, parts * step + terms, count * step)
            stage = self._stage(read.reduce(reduce.arg, terms), axes, parts)
        last = self._axis((axes, "last"), count, AxisType.REDUCE)
        return _read(stage, axes.kept, last, count).reduce(reduce.arg, last)

    def _axes_of(self, reduce: UOp, group: tuple[UOp, ...]) -> _Axes:
        free = sorted(reduce.ranges, key=lambda axis: axis.arg.number)
        threads = [axis for axis in free if axis.arg.kind in THREAD_KINDS]
        lanes = [axis for axis in free if axis.arg.kind is AxisType.VECTOR]
        kept = (*threads, *lanes)
        found = self.known.get((kept, group))
        if found is None:
            filled = [self._axis((group, axis), _size(axis), AxisType.LOCAL) for axis in threads]
            filled += [self._axis((group, axis), _size(axis), AxisType.VECTOR) for axis in lanes]
            count = prod(_size(axis) for axis in group)
            parts = self._axis((group, kept, "part"), count, AxisType.LOCAL)
            found = self.known[(kept, group)] = _Axes(kept, tuple(filled), parts)
        return found

    def _stage(self, value: UOp, axes: _Axes, parts: UOp) -> UOp:
        arg = StageArg(self.stages, "shared")
        self.stages += 1
        return UOp(Ops.STAGE, value.dtype, (value, *_order(axes.filled, parts)), arg)


def _order(kept: tuple[UOp, ...], parts: UOp) -> list[UOp]:
    """Lanes are neighbours in memory, so they come last: threads, parts, lanes."""
    threads = [axis for axis in kept if axis.arg.kind is not AxisType.VECTOR]
    return [*threads, parts, *[axis for axis in kept if axis not in threads]]


def _read(stage: UOp, kept: tuple[UOp, ...], part: UOp, count: int) -> UOp:
    """The element of a stage that belongs to these axes and this part."""
    threads = [axis for axis in kept if axis.arg.kind is not AxisType.VECTOR]
    position = UOp.const(dtypes.weakint, 0)
    for axis in threads:
        position = position * _size(axis) + axis
    position = position * count + part
    for axis in kept:
        if axis not in threads:
            position = position * _size(axis) + axis
    return stage.index(position.simplify()).load()


def _digits(flat: UOp, axes: tuple[UOp, ...]) -> list[UOp]:
    """The values of several axes as digits of one."""
    digits: list[UOp] = []
    stride = prod(_size(axis) for axis in axes)
    for position, axis in enumerate(axes):
        stride //= _size(axis)
        digit = flat // stride if stride > 1 else flat
        digits.append(digit % _size(axis) if position else digit)
    return digits


def _group_axes(reduce: UOp) -> tuple[UOp, ...]:
    return tuple([a for a in own_axes(reduce) if a.arg.kind is AxisType.GROUP_REDUCE])


def _size(axis: UOp) -> int:
    size = axis.src[0]
    if size.op is not Ops.CONST:
        raise CompileError(
            f"axis {axis.arg.number} is shared by the threads of a group and needs a constant "
            f"size, found {size.text()}"
        )
    return int(size.arg)
