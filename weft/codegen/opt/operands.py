"""Operands: what a product computes out of less memory than it would take, made panel by panel.

In: the survey of a nest. Out: another one in which such an operand is one item, as if it was read;
what is done to make it is its `parts`, and costs as much as staging them. Sits above survey and
tile, under the heuristic, which compares the costs of both surveys.
Invariant: tiles of such a survey count only if they stage the operand.

    sum(x[m, k] * f(w[n, k]), k), lanes along n  ->  v = STAGE(f(w[p*32 + i, k]), k, i) for each p,
                                                     which the tiles of all rows m read
"""

from __future__ import annotations

from weft.budgets import PANEL
from weft.codegen.opt.stage import staged_values
from weft.codegen.opt.survey import Body, Item, Nest, volume
from weft.codegen.opt.tile import Tile
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.unpacked import is_unpacked

_CASTS = (Ops.CAST, Ops.BITCAST)


def with_operands(nest: Nest) -> Nest | None:
    """The nest with its computed operand as one item; None if it has none."""
    if nest.is_fill or nest.stages:
        return None
    bodies = [body for body in nest.bodies if body.is_reduction]
    if len(bodies) != 1 or len(bodies[0].closers) != 1:
        return None
    body = bodies[0]
    value = _operand_of(nest, body)
    if value is None:
        return None
    inside = value.toposort()
    shared = {s for node in nest.order if node not in inside for s in node.src}
    parts = [
        item
        for each in nest.bodies
        for item in each.items
        if item.node in inside and (item.node is value or item.node not in shared)
    ]
    # in memory it would be in no order: it is read only where it is staged
    steps = dict.fromkeys(value.ranges)
    operand = Item(value.ranges, 1.0, value.dtype, steps, value, parts=tuple(parts))
    made = Nest(nest.stores, nest.target)
    for each, old in zip(made.bodies, nest.bodies, strict=True):
        each.items = [item for item in old.items if item not in parts]
        each.fields = []
        if old is body:
            each.items.append(operand)
    return made


def _operand_of(nest: Nest, body: Body) -> UOp | None:
    reduce = body.closers[0]
    product = reduce.src[0]
    if reduce.arg is not Ops.ADD or product.op is not Ops.MUL or product.dtype not in dtypes.floats:
        return None
    if any([axis.src[0].op is not Ops.CONST for axis in body.axes]):
        return None
    for value in product.src:
        uses = volume([axis for axis in body.around if axis not in value.ranges])
        if uses > PANEL and _is_unpacked(value) and slot_of(value, nest, body) is not None:
            return value
    return None


def _is_unpacked(value: UOp) -> bool:
    """Whether it is computed, not only converted, out of less memory than it would take."""
    if value.op not in GroupOp.Elementwise:
        return False
    order = value.toposort()
    if any([u.op in (Ops.REDUCE, Ops.STAGE) for u in order]):
        return False
    work = [u for u in order if u.op in GroupOp.Elementwise and u.ranges == value.ranges]
    if all([u.op in _CASTS or u.dtype in dtypes.weaks for u in work]):
        return False
    read = wide = 0
    for load in [u for u in order if u.op is Ops.LOAD]:
        if len(load.src[0].src) > 2:
            return False
        count = volume(load.ranges) * load.dtype.itemsize
        read += count
        wide += count if load.dtype.itemsize >= value.dtype.itemsize else 0
    return read > 0 and is_unpacked(volume(value.ranges) * value.dtype.itemsize, read, wide)


def slot_of(value: UOp, nest: Nest, body: Body) -> int | None:
    """The buffer whose staged value it is."""
    own = [axis for axis in body.own if axis in value.ranges]
    outer = value.ranges.intersection(body.around)
    for load in value.toposort():
        if load.op is not Ops.LOAD or load.src[0].src[0].op is not Ops.PARAM:
            continue
        slot = int(load.src[0].src[0].arg.slot)
        # what it is placed inside of is what its loads depend on
        if outer <= load.ranges and staged_values(list(nest.order), slot, own) == [value]:
            return slot
    return None


def is_staged(nest: Nest, tiles: dict[Body, Tile]) -> bool:
    """Whether the operand is staged by the tile of its body."""
    return all(
        [
            item.node in tiles[body].choice.staged
            for body in nest.bodies
            for item in body.items
            if item.parts
        ]
    )
