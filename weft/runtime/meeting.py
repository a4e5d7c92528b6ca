"""Meeting: what all threads of a group do together: SCAN, RANK and MOVE.

In: UOps of prefixes over a group's elements. Out: the steps that the interpreter runs for them.
Beside `exchange.py`, which is for the lanes of a warp.
Invariant: the elements are in the order that the op table names, and each thread takes its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from weft.dtype import truncate
from weft.runtime.races import Meeting, WorkItem
from weft.runtime.steps import Registers, Step
from weft.uop.evaluate import function_for
from weft.uop.node import UOp
from weft.uop.opset import Ops

# threads of a warp, and the bits of a count
_WARP, _COUNT_BITS = 32, 16

Lanes = dict[int, list[Any]]


def meet(
    target: int, sources: list[int], item_place: int, together: Callable[[Lanes], Lanes]
) -> tuple[Step, Step]:
    """Steps by which each thread gives its lanes, and takes those of the result."""

    def give(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        meeting = item.meetings.setdefault((target, item.epoch), Meeting())
        values = [registers[source] for source in sources]
        lanes = [value if isinstance(value, list) else [value] for value in values]
        # of several operands a tuple for each lane
        meeting.given[item.number] = lanes[0] if len(lanes) == 1 else list(zip(*lanes, strict=True))

    def take(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        # the barrier in between
        meeting = item.meetings[target, item.epoch - 1]
        if meeting.result is None:
            meeting.result = together(meeting.given)
        lanes = meeting.result[item.number]
        registers[target] = lanes if len(lanes) > 1 else lanes[0]

    return give, take


def scan_group(uop: UOp, given: Lanes) -> Lanes:
    """Each lane folded with all before it: those of a thread are neighbours."""
    dtype = uop.dtype.scalar()
    function = function_for(uop.arg, dtype, (dtype, dtype))
    found: Lanes = {}
    total: Any = None
    for number in sorted(given):
        found[number] = []
        for value in given[number]:
            total = value if total is None else function(total, value)
            found[number].append(total)
    return found


def rank_group(uop: UOp, given: Lanes) -> Lanes:
    """Equal digits before each one, and all of them: by warps, then lanes of the vector, then
    threads."""
    lanes = range(len(given[0]))
    found: Lanes = {number: [0 for _ in lanes] for number in given}
    seen: Counter[int] = Counter()
    for lane, number in _in_order(given):
        digit = given[number][lane]
        if not 0 <= digit < 1 << uop.arg:
            raise ValueError(f"a digit of {uop.arg} bits is expected, found {digit}")
        found[number][lane] = seen[digit]
        seen[digit] += 1
    for number, ranks in found.items():
        for lane in lanes:
            ranks[lane] |= seen[given[number][lane]] << _COUNT_BITS
    return found


def move_group(uop: UOp, given: Lanes) -> Lanes:
    """What was sent to the place of each element, in the same order; places beyond are none."""
    dtype = uop.dtype.scalar()
    order = _in_order(given)
    sums: list[Any] = [0 for _ in order]
    for lanes in given.values():
        for value, place in lanes:
            if place < len(sums):
                sums[place] = truncate[dtype](sums[place] + value)
    found: Lanes = {number: list(lanes) for number, lanes in given.items()}
    for place, (lane, number) in enumerate(order):
        found[number][lane] = sums[place]
    return found


def _in_order(given: Lanes) -> list[tuple[int, int]]:
    """Lanes and threads: by warps, then lanes of the vector, then threads."""
    lanes = range(len(given[0]))
    order = sorted([(number // _WARP, lane, number) for number in given for lane in lanes])
    return [(lane, number) for _, lane, number in order]


MEETINGS = {Ops.SCAN: scan_group, Ops.RANK: rank_group, Ops.MOVE: move_group}
