"""Estimate: how much a kernel computes and touches, for reports and for the heuristic.

In: a kernel AST before optimisation. Out: arithmetic operations and bytes of memory, as numbers
or as expressions of the kernel's variables. Sits at the start of the pipeline.
Invariant: what does not depend on an axis is counted once, not once per iteration; index
arithmetic counts nothing; a buffer counts as much as is loaded from it, and at most once as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.codegen.loops import own_axes
from weft.dtype import dtypes
from weft.uop.infer import derive_ranges
from weft.uop.node import UOp, sint
from weft.uop.opset import GroupOp, Ops


def estimate(sink: UOp) -> tuple[sint, sint]:
    """(operations, bytes) of one run."""
    order = sink.toposort()
    derive_ranges(order)
    counts: dict[frozenset[UOp], sint] = {}
    operations: sint = 0
    loads: dict[UOp, sint] = {}
    stores: dict[UOp, sint] = {}
    for node in order:
        if node.op in GroupOp.ALU and node.dtype is not dtypes.weakint:
            if node.src[-1].dtype is not dtypes.weakint:
                weight = 2 if node.op in (Ops.MULACC, Ops.MULADD) else 1
                operations = operations + _rounds(node.ranges, counts) * weight
        elif node.op is Ops.REDUCE:
            ranges = node.ranges | node.src[0].ranges | set(own_axes(node))
            operations = operations + _rounds(ranges, counts)
        elif node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM:
            _count(loads, node.src[0], _rounds(node.ranges, counts))
        elif node.op is Ops.STORE:
            _count(stores, node.src[0], _rounds(frozenset(own_axes(node)), counts))
    return _simple(operations), _simple(_bytes(loads) + _bytes(stores))


def _count(touched: dict[UOp, sint], place: UOp, rounds: sint) -> None:
    memory = place.src[0]
    touched[memory] = touched.get(memory, 0) + rounds


def _rounds(ranges: frozenset[UOp], counts: dict[frozenset[UOp], sint]) -> sint:
    found = counts.get(ranges)
    if found is None:
        found = _product(axis.src[0] for axis in sorted(ranges, key=lambda r: r.arg.number))
        counts[ranges] = found
    return found


def _product(sizes: Iterable[UOp]) -> sint:
    known = 1
    symbolic: UOp | None = None
    for size in sizes:
        if size.op is Ops.CONST:
            known *= size.arg
        elif size.ranges:
            # a loop that ends earlier in some rounds of another one: half of its longest
            known *= -(-int(size.vmax) // 2)
        else:
            symbolic = size if symbolic is None else symbolic * size
    return known if symbolic is None else symbolic * known


def _bytes(touched: dict[UOp, sint]) -> sint:
    total: sint = 0
    for memory, count in touched.items():
        whole = memory.arg.size
        elements = count.minimum(whole) if isinstance(count, UOp) else min(count, whole)
        total = total + elements * memory.dtype.itemsize
    return total


def _simple(value: sint) -> sint:
    return value.ssimplify() if isinstance(value, UOp) else value
