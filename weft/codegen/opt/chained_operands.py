"""Operands of chained products: tiles in shared memory, and fragments read out of them.

In: an operand of a product over some axes, and which part of them a tile covers. Out: a STAGE that
holds the tile, and LOADs of fragments. Under `chained.py`.
Invariant: a tile is in the operand's own dtype, with rows padded against bank conflicts, and zero
beyond the end of its axes.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.opt.axes import index_const, piece
from weft.codegen.opt.fragments import (
    MATRIX_ROWS,
    ROW_BYTES,
    WORD_BYTES,
    digits_of,
    is_one_axis,
    padding_of,
    replaced,
)
from weft.codegen.opt.strides import Strides
from weft.fragment import OperandMap
from weft.machine import Target
from weft.uop.args import AxisType, MatrixArg, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

Axes = tuple[UOp, ...]


@dataclass(frozen=True)
class Span:
    """Part of some axes that a tile covers: from `start` on, `tile` of `total` elements."""

    axes: Axes
    start: UOp
    tile: int
    total: UOp

    @property
    def is_cut(self) -> bool:
        """Whether a tile may reach beyond the end."""
        return not (self.total.op is Ops.CONST and self.total.arg % self.tile == 0)


class Operands:
    """The operands of one kernel; their axes are named after `key`."""

    def __init__(self, key: UOp, lane: UOp, target: Target) -> None:
        self.key = key
        self.lane = lane
        self.target = target
        self.strides = Strides()
        self.stages = 0

    def stage(
        self, value: UOp, side: Span, terms: Span, depth: int, name: int
    ) -> tuple[UOp, int, int]:
        """A tile of an operand in shared memory, and the steps along its side and its terms."""
        across = self._is_across(value, side, terms)
        lines, run = (terms, side) if across else (side, terms)
        width = self._width(value, run)
        line = axis_of(self.key, name, lines.tile, AxisType.LOOP)
        chunk = axis_of(self.key, name + 1, run.tile // width, AxisType.LOOP)
        item = axis_of(self.key, name + 2, width, AxisType.VECTOR)
        along = chunk * width + item
        pitch = run.tile + padding_of(value.dtype, across)
        at_side, at_term = (along, line) if across else (line, along)
        filled = self._fill(value, ((side, at_side), (terms, at_term)))
        closed = [(line, pitch), (chunk, width), (item, 1)]
        closed = [(axis, step) for axis, step in closed if axis.op is Ops.RANGE]
        strides = tuple([step for _, step in closed])
        arg = StageArg(self.stages, "shared", strides=strides, depth=depth)
        self.stages += 1
        stage = UOp(Ops.STAGE, value.dtype, (filled, *[axis for axis, _ in closed]), arg)
        return (stage, 1, pitch) if across else (stage, pitch, 1)

    def _is_across(self, value: UOp, side: Span, terms: Span) -> bool:
        """Whether neighbours in memory are along rows (or columns) rather than along terms."""
        votes = 0
        for node in value.toposort():
            if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
                steps = self.strides.of(node.src[0].src[1])
                votes += bool(side.axes) and steps.get(side.axes[-1]) == 1
                votes -= steps.get(terms.axes[-1]) == 1
        return votes > 0

    def _width(self, value: UOp, run: Span) -> int:
        """Elements that a thread copies at once: neighbours in memory, 16 bytes of them."""
        width = ROW_BYTES // value.dtype.itemsize
        if not run.axes or run.tile % width:
            return 1
        last = run.axes[-1].src[0]
        if last.op is not Ops.CONST or last.arg % width:
            if not is_one_axis(value, run.axes, self.strides):
                return 1
        for node in value.toposort():
            if node.op is Ops.INDEX and run.axes[-1] in node.ranges:
                if self.strides.of(node.src[1]).get(run.axes[-1], 0) not in (0, 1):
                    return 1
        return width

    def _fill(self, value: UOp, spans: tuple[tuple[Span, UOp], ...]) -> UOp:
        """The operand over a tile: zero beyond the end of either side."""
        values: dict[UOp, UOp] = {}
        masks = []
        conditions = []
        for span, at in spans:
            number = (span.start + at).simplify()
            if span.is_cut:
                condition = number < span.total
                conditions.append(condition)
                masks.append((set(span.axes), condition))
            if is_one_axis(value, span.axes, self.strides) and span.axes:
                values.update(dict.fromkeys(span.axes, index_const(0)))
                values[span.axes[-1]] = number
            else:
                values.update(digits_of(span.axes, number))
        filled = replaced(value, values, masks)[value]
        if filled.op is Ops.LOAD:
            return filled
        wide = filled.src[0] if filled.op is Ops.CAST else filled
        for condition in conditions:
            wide = condition.where(wide, UOp.const(wide.dtype, 0))
        return wide.cast(filled.dtype)

    def load(
        self,
        stage: UOp,
        start: UOp,
        side_step: int,
        term_step: int,
        held: OperandMap,
        is_left: bool,
        name: tuple[UOp, int],
    ) -> tuple[UOp, Axes]:
        """An operand of a fragment: rows of matrices that a warp exchanges, or single elements."""
        steps = (side_step, term_step) if is_left else (term_step, side_step)
        size = stage.dtype.itemsize
        word = WORD_BYTES // size
        matrices = held.count // word
        transposed = term_step != 1
        if self.target.has_matrix_loads and matrices in (1, 2, 4) and (not transposed or size == 2):
            line = self.lane % MATRIX_ROWS
            number = self.lane // MATRIX_ROWS % matrices * word
            if transposed:
                row, column = held.place(index_const(0), number)
                at = row * steps[0] + column * steps[1] + line * term_step
            else:
                row, column = held.place(line * WORD_BYTES, number)
                at = row * steps[0] + column * steps[1]
            place = stage.index((start + at).simplify())
            return UOp(Ops.LOAD, stage.dtype, (place,), MatrixArg(matrices, transposed)), ()
        register = axis_of(name[0], name[1], held.count, AxisType.UPCAST)
        row, column = held.place(self.lane, register)
        place = stage.index((start + row * steps[0] + column * steps[1]).simplify())
        return place.load(), (register,)


def axis_of(like: UOp, position: int, size: int, kind: AxisType) -> UOp:
    """Part of an axis; one of a single round is a number."""
    return index_const(0) if size == 1 else piece(like, position, index_const(size), kind)
