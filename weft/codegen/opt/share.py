"""Share: which loops of a kernel the cores divide among themselves.

In: a kernel, or the outline of one. Out: the actions that share its outermost loops. A part of the
heuristic, and of the search, which shares loops the same way.
Invariant: cores that are at different places of a kernel never need each other's results.
"""

from __future__ import annotations

from weft.codegen.opt.actions import apply_legal
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.outline import Outline
from weft.codegen.opt.survey import extent, volume
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

# outermost rounds per core that even out a slow one
ROUNDS_PER_CORE = 4


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
    return apply_legal(outline, thread_opts(outline, target), target).kernel()


def thread_opts(outline: Outline, target: Target) -> list[Opt]:
    """What shares the outermost loops on which everything in the nest depends."""
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
    for axis in shared:
        # nothing is computed again for a round more, and a core that is late has fewer to do
        if volume(chosen) >= ROUNDS_PER_CORE * target.cores:
            break
        chosen.append(axis)
    names = [axis.arg.number for axis in chosen]
    opts: list[Opt] = []
    for axis in loops:
        # what does not depend on such an axis is staged once per round of it: few rounds, then
        rounds = ROUNDS_PER_CORE * target.cores
        if axis in shared or _is_even(chosen, target) or volume(chosen) >= rounds:
            continue
        if volume([*chosen, axis]) <= 2 * rounds:
            chosen.append(axis)
            names.append(axis.arg.number)
            continue
        parts = min(-(-rounds // volume(chosen)), extent(axis) // 2)
        opts.append(Opt(OptOps.SPLIT, axis.arg.number, -(-extent(axis) // parts)))
        names.append((*axis.arg.number, 0))
        break
    if names:
        opts.append(Opt(OptOps.THREAD, names[0], tuple(names[1:]) or None))
    return opts


def _is_even(axes: list[UOp], target: Target) -> bool:
    """Whether the rounds of these axes keep all cores busy to the end."""
    rounds = volume(axes)
    if rounds < target.cores:
        return False
    if rounds >= ROUNDS_PER_CORE * target.cores:
        return True
    return rounds % target.cores == 0
