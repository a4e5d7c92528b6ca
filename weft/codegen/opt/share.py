"""Share: which loops of a kernel the cores divide among themselves.

In: a kernel, or the outline of one. Out: the actions that share its outermost loops. A part of the
heuristic, and of the search, which shares loops the same way.
Invariant: cores that are at different places of a kernel never need each other's results.
"""

from __future__ import annotations

from weft.codegen.opt.actions import apply_legal
from weft.codegen.opt.cost import WORTHWHILE
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.outline import Outline
from weft.codegen.opt.survey import extent, volume
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def can_share(parts: list[list[UOp]]) -> bool:
    """Whether cores may run at different places of the kernel.

    Then nobody reads what another part writes, or in a nest another element than it writes itself.
    """
    writers: dict[UOp, tuple[int, UOp]] = {}
    for number, part in enumerate(parts):
        for store in part:
            memory, index = store.src[0].src[:2]
            if writers.setdefault(memory, (number, index)) != (number, index):
                return False
    for number, part in enumerate(parts):
        for node in UOp.sink(*part).toposort():
            if node.op is Ops.LOAD and node.src[0].src[0] in writers:
                if writers[node.src[0].src[0]] != (number, node.src[0].src[1]):
                    return False
    return True


def share_outputs(ast: UOp, target: Target) -> UOp:
    """The kernel with its outermost loops shared by the cores."""
    outline = Outline(ast)
    return apply_legal(outline, thread_opts(outline, target, target.cores), target).kernel()


def useful_cores(work: float, target: Target) -> int:
    """How many cores do so many cycles of work soonest: each but the first has to be woken up."""
    counts = range(1, target.cores + 1)
    return min(counts, key=lambda count: work / count + target.launch_cycles * (count - 1))


def thread_opts(outline: Outline, target: Target, cores: int, refill: float = 0.0) -> list[Opt]:
    """What shares the outermost loops on which everything in the nest depends.

    Where these are few, a loop more is cut into parts. What does not depend on it is staged once
    for each part: `refill` is that work as a share of all the other work. Where the work is too
    short for all cores, there are as many parts as some have use for.
    """
    main = max(outline.ast.src, key=lambda store: volume(outline.ended(store)))
    loops = [
        axis
        for axis in outline.ended(main)
        if axis.arg.kind is AxisType.LOOP and axis.src[0].op is Ops.CONST and extent(axis) > 1
    ]
    outputs = set(outline.ended(main))
    needs = [axes for axes in outline.needs(main) if axes <= outputs]
    shared = [axis for axis in loops if all([axis in axes for axes in needs])]
    chosen: list[UOp] = []
    if shared and cores < target.cores:
        return _few_parts(shared[0], cores)
    for axis in shared:
        # nothing is computed again for a round more, and a core that is late has fewer to do
        if volume(chosen) >= target.core_rounds * cores:
            break
        chosen.append(axis)
    names = [axis.arg.number for axis in chosen]
    opts: list[Opt] = []
    rounds = volume(chosen)
    for axis in [axis for axis in loops if axis not in shared]:
        times = [
            slowest_core(rounds, parts, extent(axis), refill, cores, target)
            for parts in range(1, min(extent(axis), target.core_rounds * cores) + 1)
        ]
        parts = 1 + times.index(min(times))
        if times[parts - 1] > WORTHWHILE * times[0]:
            continue
        if parts == extent(axis):
            names.append(axis.arg.number)
        else:
            opts.append(Opt(OptOps.SPLIT, axis.arg.number, -(-extent(axis) // parts)))
            names.append((*axis.arg.number, 0))
        break
    if names:
        opts.append(Opt(OptOps.THREAD, names[0], tuple(names[1:]) or None))
    return opts


def _few_parts(axis: UOp, parts: int) -> list[Opt]:
    """A loop shared by fewer cores than there are."""
    if extent(axis) <= parts:
        return [Opt(OptOps.THREAD, axis.arg.number)]
    split = Opt(OptOps.SPLIT, axis.arg.number, -(-extent(axis) // parts))
    return [split, Opt(OptOps.THREAD, (*axis.arg.number, 0))]


def slowest_core(
    rounds: int, parts: int, size: int, refill: float, cores: int, target: Target
) -> float:
    """The time of the core that is done last, in rounds, if each round is cut into parts of a loop
    of this size, and each part stages anew what a round staged once. The longer a part, the later
    a core may be that something else kept busy."""
    longest = -(-size // parts)
    turns = -(-rounds * -(-size // longest) // cores)
    late = target.late_share * (cores - 1).bit_length()
    return (turns + late) * (longest / size + refill)
