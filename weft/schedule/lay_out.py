"""Lay out operands: what a product could only gather is stored so that neighbours are terms.

What comes in: a tensor graph. What goes out: the same values, where operands of products on tensor
cores that are read element by element are stored in another order of their axes first.
Where it sits: before prepare; a pass of the schedule for machines with tensor cores.
The one invariant: every value keeps its meaning: an operand is permuted, stored, and permuted back.

Tensor cores are fed by copies of 16 bytes, so neighbours in memory must be neighbours of the
product: along a summed axis that both operands have, or along rows or columns. The windows of a
convolution of images (N, C, H, W) are neither: they are shifted along W. Stored as (N, H, W, C),
their neighbours are terms, whatever the window.

    sum(x[n, c, h + i, w + j] * v[o, c, i, j], (c, i, j))
    -> x, v stored as x'[n, h, w, c], v'[o, i, j, c]
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.dtype import DType, dtypes
from weft.helpers import prod
from weft.knobs import ALLOW_TF32
from weft.machine import Machines, Target
from weft.schedule.index import Index, both, source_index
from weft.schedule.place import is_whole_storage
from weft.uop.args import AxisType, RangeArg, ReduceArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# bytes of a copy
_COPY_BYTES = 16
# products that an element takes part in, and products in all, from which on another order pays
_LEAST_REUSE, _LEAST_PRODUCTS = 32, 1 << 22


@dataclass(frozen=True)
class _Operand:
    """One side of a product: the value in its own dtype, what is between it and the product, and
    which of its elements each product reads."""

    value: UOp
    above: tuple[UOp, ...]  # the nearest to the product first
    index: Index
    valid: UOp | None

    @property
    def width(self) -> int:
        return _COPY_BYTES // self.value.dtype.itemsize

    @property
    def last(self) -> int:
        """The axis of neighbours in memory."""
        sizes = self.value.shape
        return max([axis for axis, size in enumerate(sizes) if size != 1], default=0)

    def is_along(self, axis: int, range_: UOp) -> bool:
        """Whether an axis is numbered by one of the product's, in whole copies."""
        if self.index[axis] is not range_ or self.value.shape[axis] % self.width:
            return False
        if range_.src[0].arg % self.width:
            return False
        return self.valid is None or range_ not in self.valid.ranges

    def axis_along(self, range_: UOp) -> int | None:
        axes = range(len(self.index))
        return next((axis for axis in axes if self.is_along(axis, range_)), None)

    def stored(self, axis: int) -> UOp:
        """The operand as the product sees it, of the value stored with this axis last."""
        count = len(self.index)
        order = (*[i for i in range(count) if i != axis], axis)
        back = tuple([order.index(i) for i in range(count)])
        node = UOp(Ops.CONTIGUOUS, self.value.dtype, (self.value.permute(order),)).permute(back)
        for view in reversed(self.above):
            node = view.with_src((node, *view.src[1:]))
        return node


def lay_out(sink: UOp, machines: Machines) -> UOp:
    """The graph with its operands laid out."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        if new.op is Ops.REDUCE_AXIS and new.src[0].op is Ops.MUL:
            new = _with_operands(new, machines)
        done[node] = new
    return done[sink]


def _with_operands(reduce: UOp, machines: Machines) -> UOp:
    arg: ReduceArg = reduce.arg
    product = reduce.src[0]
    shape = product.shape
    if arg.op is not Ops.ADD or not all([isinstance(size, int) for size in shape]):
        return reduce
    if prod(shape) < _LEAST_PRODUCTS or not machines(reduce.device).has_local:
        return reduce
    ranges = tuple([_range(size, axis) for axis, size in enumerate(shape)])
    found = [_operand(source, ranges) for source in product.src]
    left, right = found
    if left is None or right is None:
        return reduce
    kinds = (left.value.dtype, right.value.dtype)
    if not _has_fragments(machines(reduce.device), kinds, reduce.dtype):
        return reduce
    chosen = _choose((left, right), ranges, arg.axes)
    if chosen is None:
        return reduce
    operands = [
        source if axis is None else operand.stored(axis)
        for source, operand, axis in zip(product.src, (left, right), chosen, strict=True)
    ]
    return reduce.with_src((product.with_src(tuple(operands)), *reduce.src[1:]))


def _range(size: int, number: int) -> UOp:
    arg = RangeArg((number,), AxisType.LOOP)
    return UOp(Ops.RANGE, dtypes.weakint, (UOp.const(dtypes.weakint, size),), arg)


def _has_fragments(target: Target, kinds: tuple[DType, DType], total: DType) -> bool:
    """Whether tensor cores multiply these, out of what the machine copies by itself."""
    fitting = [f for f in target.fragments if f.c_dtype is total and (f.exact or ALLOW_TF32)]
    return bool(target.async_copies) and kinds in [(f.a_dtype, f.b_dtype) for f in fitting]


def _operand(node: UOp, index: Index) -> _Operand | None:
    """A value behind views and a widening."""
    above: list[UOp] = []
    valid: UOp | None = None
    while node.op in GroupOp.Movement or node.op is Ops.CAST:
        if node.op is Ops.RESHAPE and is_whole_storage(node):
            break
        if node.op is Ops.CAST:
            if node.dtype.itemsize <= node.src[0].dtype.itemsize:
                break
        else:
            index, guard = source_index(node, index)
            valid = both(valid, guard)
        above.append(node)
        node = node.src[0]
    if not all([isinstance(size, int) for size in node.shape]) or not node.shape:
        return None
    index = tuple([place.simplify() for place in index])
    return _Operand(node, tuple(above), index, valid)


def _choose(
    operands: tuple[_Operand, _Operand], ranges: Index, summed: tuple[int, ...]
) -> tuple[int | None, ...] | None:
    """For each operand the axis to store last, or None to leave it; None: nothing is to be done."""
    terms = [ranges[axis] for axis in summed]
    sides = [axis for axis in ranges if axis not in terms]
    is_turned = [_is_turned(operand, sides) for operand in operands]
    best: tuple[int, tuple[int | None, ...]] | None = None
    for term in terms:
        cost = 0
        chosen: list[int | None] = []
        for operand, turned in zip(operands, is_turned, strict=True):
            if turned or operand.is_along(operand.last, term):
                chosen.append(None)
                continue
            axis = operand.axis_along(term)
            if axis is None or not _pays(operand, ranges):
                break
            chosen.append(axis)
            cost += int(prod(operand.value.shape))
        else:
            if best is None or cost < best[0]:
                best = cost, tuple(chosen)
    return None if best is None or best[0] == 0 else best[1]


def _is_turned(operand: _Operand, sides: list[UOp]) -> bool:
    """Whether copies along rows or columns do; fragments take them of elements of two bytes."""
    if operand.value.dtype.itemsize != 2:
        return False
    return any([operand.is_along(operand.last, side) for side in sides])


def _pays(operand: _Operand, ranges: Index) -> bool:
    products = prod(axis.src[0].arg for axis in ranges)
    return bool(products >= _LEAST_REUSE * prod(operand.value.shape))
