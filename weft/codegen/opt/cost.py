"""Cost: what a choice makes of a body, in cycles; the one place where choices are compared.

In: a body of a nest, a `Choice` for it, the machine. Out: instructions of all its runs, and the
`Proposal` of a planner with what it costs. Sits between the survey and the planners, each of which
proposes actions; the heuristic takes the cheapest of them.
Invariant: every number is asked of the machine or of the op table. A choice that costs less here
and more in truth costs time, never a wrong result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.codegen.opt.opt import Opt
from weft.codegen.opt.survey import Body, Item, Nest, volume
from weft.helpers import prod
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

FEW_APART = 4  # elements between lanes up to which they are read in rows
# share of the cost that another order or other parts may have to be taken: less is gained than the
# model can promise (resnet18 33 -> 50 ms with 1, `python -m bench.trees`)
WORTHWHILE = 0.9


@dataclass(frozen=True)
class Proposal:
    """Actions that a planner proposes for a nest, and what the nest costs then."""

    opts: list[Opt]
    cost: float


def cheapest(proposals: list[Proposal]) -> Proposal:
    """The one that costs least; of equals the first."""
    return min(proposals, key=lambda proposal: proposal.cost)


@dataclass(frozen=True)
class Choice:
    """How a body runs: lanes of one axis, copies of others in registers, loads that are staged."""

    vector: UOp | None
    lanes: int
    copies: Mapping[UOp, int]
    staged: frozenset[UOp] = frozenset()


def body_cost(body: Body, choice: Choice, target: Target) -> float:
    """Instructions of all runs of a body."""
    rounds: dict[frozenset[UOp], float] = {}
    total = 0.0
    for item in body.items:
        # most operations of a body depend on the same few sets of axes
        if item.ranges not in rounds:
            rounds[item.ranges] = rounds_of(body, item.ranges, choice)
        total += rounds[item.ranges] * _weight(item, choice, target)
        total += _fill_cost(body, item, choice, target)
    return total


def item_cost(body: Body, item: Item, choice: Choice, target: Target) -> tuple[float, float]:
    """Instructions of all runs of one operation without copies, and of staging it."""
    cost = rounds_of(body, item.ranges, choice) * _weight(item, choice, target)
    return cost, _fill_cost(body, item, choice, target)


def rounds_of(body: Body, ranges: frozenset[UOp], choice: Choice) -> float:
    """How often an operation with these axes runs: once in the innermost loop of them.

    Output loops stand around reduce loops, so an operation runs for every round of them, also if it
    does not depend on them; lanes save that, and so will copies in registers.
    """
    axes = body.axes
    depended = [i for i, axis in enumerate(axes) if axis in ranges]
    last = max(depended, default=-1)
    if axes is not body.own:
        last = max(last, len(body.around) - 1)
    loops = axes[: last + 1]
    rounds = float(volume(loops))
    return rounds / choice.lanes if choice.vector in loops else rounds


def _weight(item: Item, choice: Choice, target: Target) -> float:
    """Instructions of one run of an operation."""
    vector = choice.vector
    if vector is None or item.steps is None or vector not in item.ranges:
        return item.weight
    return _access_weight(item, choice, target)


def _fill_cost(body: Body, item: Item, choice: Choice, target: Target) -> float:
    if item.node not in choice.staged:
        return 0.0
    if item.parts:
        return sum([_part_cost(part, choice, target) for part in item.parts])
    return _fill(target) * volume([axis for axis in body.axes if axis in item.ranges])


def _fill(target: Target) -> float:
    """Per element that is staged in another order: read apart from its neighbours, written."""
    return target.gather_cycles + 1


def _part_cost(part: Item, choice: Choice, target: Target) -> float:
    """Instructions for all elements of a part of what is staged."""
    elements = volume(part.ranges)
    if choice.vector not in part.ranges:
        return elements * part.weight
    # lanes that are apart are turned round on the way
    return elements * min(_weight(part, choice, target) / choice.lanes, _fill(target))


def _access_weight(item: Item, choice: Choice, target: Target) -> float:
    assert item.steps is not None and choice.vector is not None
    step = item.steps.get(choice.vector, 0)
    if step in (0, 1) or item.node in choice.staged:
        return item.weight * (2 if choice.vector in item.masked else 1)
    if step == -1:
        return 2 * item.weight
    if _is_exchanged(item, step, choice):
        # a vector of each copy, and lanes exchanged between them: log2 of them once for each
        return item.weight * choice.lanes.bit_length()
    if not item.is_store():
        if step is not None and 2 <= step <= FEW_APART and choice.vector not in item.masked:
            # all that lies between is read, and the lanes are picked
            return (2 * step - 1) * item.weight
        return target.gather_cycles * choice.lanes * item.weight
    aliased = step is not None and step * item.dtype.itemsize % target.alias_bytes == 0
    cycles = target.alias_cycles if aliased else target.scatter_cycles
    return cycles * choice.lanes * item.weight


def _is_exchanged(item: Item, step: int | None, choice: Choice) -> bool:
    """Whether copies along another axis are neighbours in memory: rows of a square then, which
    registers transpose, or elements that lie between the lanes."""
    steps = item.steps or {}
    copied = [axis for axis, count in choice.copies.items() if steps.get(axis) == 1 and count > 1]
    if not copied or choice.vector in item.masked:
        return False
    return not item.is_store() or volume(copied) == step


def swept_cost(
    body: Body, choice: Choice, stream: Item, side_by_side: int, target: Target
) -> float:
    """Instructions of a reduction whose sums lie in L1: for each of as many rows side by side they
    are read and written once. What is shared by the copies of outputs counts once for all."""
    rounds = volume(body.axes) / choice.lanes
    total = 2 * rounds / side_by_side + target.far_cycles * volume(stream.ranges) / choice.lanes
    for item in body.items:
        shared = [n for axis, n in choice.copies.items() if axis not in item.ranges]
        cost, fill = item_cost(body, item, choice, target)
        total += cost / prod(shared) + fill
    return total


def traffic_cost(nest: Nest, target: Target) -> float:
    """Cycles that memory takes for what a nest reads and writes, if none of it is in a cache."""
    places = {
        item.node.src[0].src[0]: item.nbytes
        for body in nest.bodies
        for item in body.items
        if item.node is not None and item.node.op in (Ops.LOAD, Ops.STORE)
    }
    # windows that overlap read less than they have places
    sizes = [
        min(size, memory.arg.size * memory.dtype.itemsize)
        for memory, size in places.items()
        if memory.op is Ops.PARAM
    ]
    return sum(sizes) * target.balance / max(target.vector_lanes, 1)


def restart_cost(body: Body, choice: Choice, target: Target) -> float:
    """What a tile waits for memory: of a large matrix it reads a piece of each row, and where that
    is less than a page, no prefetcher leads from one to the next."""
    total = 0.0
    vector = choice.vector
    if vector is None or vector not in body.around:
        return total
    for item in body.loads:
        if item.steps is None or item.steps.get(vector) != 1 or item.node in choice.staged:
            continue
        along = choice.copies.get(vector, 1)
        piece = along * choice.lanes * item.dtype.itemsize
        if item.nbytes > 2 * target.l2 and piece < target.page_bytes:
            total += target.restart_cycles * volume(item.ranges) / (along * choice.lanes)
    return total
