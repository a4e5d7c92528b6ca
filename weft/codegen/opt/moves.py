"""Moves: the sequences of actions that are one change away from a given one.

In: a kernel, its target and a candidate: for every nest of the kernel a sequence of actions. Out:
other candidates, with an action more, one less, or one of another size; and an estimate of what a
kernel after actions costs. Sits above the heuristic, with whose sequence a search begins.
Invariant: a candidate says exactly what is applied. What an edit makes illegal is left out of it.

Nests are optimised each by itself, as the heuristic does, so an axis is named as in its nest. Cores
come last: what they share depends on the loops that are left.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.budgets import CHOICES, PANEL, SUM_TERMS, UNROLLED_TERMS
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import LOOP_KINDS, all_axes, closed_axes
from weft.codegen.opt.chosen import choosing, leave_to_heuristic
from weft.codegen.opt.heuristic import merge_axes, nests, optimise
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.share import can_share, share_outputs
from weft.codegen.opt.survey import Item, extent, nests_of, volume
from weft.dtype import dtypes
from weft.errors import DataError
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

# what unrolled axes may multiply to: more is longer to compile than it can win
COPIES_AT_MOST = CHOICES * UNROLLED_TERMS
_WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL)
_SIDE_BY_SIDE = (*_WRITTEN_OUT, AxisType.VECTOR)

Actions = tuple[Opt, ...]


@dataclass(frozen=True)
class Candidate:
    """For every nest of a kernel its actions, in order."""

    parts: tuple[Actions, ...]

    def flat(self) -> Actions:
        """All actions, those of the first nest first."""
        return tuple([opt for part in self.parts for opt in part])

    def encode(self) -> list[Any]:
        """The candidate as JSON, in which there are lists and no tuples."""
        return [
            [[opt.op.name, _as_lists(opt.axis), _as_lists(opt.arg)] for opt in part]
            for part in self.parts
        ]

    @classmethod
    def decode(cls, data: Any) -> Candidate:
        """The candidate of what `encode` gave; DataError for anything else."""
        try:
            parts = [[_decode_opt(*opt) for opt in part] for part in data]
        except (TypeError, KeyError) as error:
            raise DataError(f"these are no actions of a kernel: {str(data)[:200]}") from error
        return cls(tuple([tuple(part) for part in parts]))


def _decode_opt(op: str, axis: Any, arg: Any) -> Opt:
    return Opt(OptOps[op], _as_tuples(axis), _as_tuples(arg))


def _as_lists(value: Any) -> Any:
    return [_as_lists(part) for part in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were; numbers are at most two lists deep."""
    if not isinstance(value, list):
        if value is not None and not isinstance(value, int):
            raise TypeError(f"an axis or a size is a number or a tuple, found {value!r}")
        return value
    return tuple([tuple(part) if isinstance(part, list) else part for part in value])


class Space:
    """The candidates of one kernel on one target. Keeps what it applied: they share most of it."""

    def __init__(self, ast: UOp, target: Target) -> None:
        self.ast = ast
        self.target = target
        parts = nests(ast)
        self.shares = target.has_threads and target.cores > 1 and can_share(parts)
        empty = replace(ast.arg, applied=())
        self.nests = [ast.replace(src=tuple(part), arg=empty) for part in parts]
        self._after: dict[tuple[UOp, Actions], UOp | None] = {}
        self._costs: dict[UOp, float] = {}
        # of several ways to the same nest, the first that was found
        self._ways: dict[tuple[int, tuple[UOp, ...]], Actions] = {}

    # -------------------------------------------------------- whole candidates
    def kernel(self, candidate: Candidate) -> UOp:
        """The kernel after a candidate's actions; OptError if one of them is refused."""
        if len(candidate.parts) != len(self.nests):
            raise OptError(f"{len(candidate.parts)} sequences for {len(self.nests)} nests")
        stores: list[UOp] = []
        for nest, actions in zip(self.nests, candidate.parts, strict=True):
            if not self.shares and any([opt.op is OptOps.THREAD for opt in actions]):
                raise OptError("cores may not run at different places of this kernel")
            for opt in actions:
                nest = apply_opt(nest, opt, self.target)
            stores.extend(nest.src)
        applied = (*self.ast.arg.applied, *candidate.flat())
        return self.ast.replace(src=tuple(stores), arg=replace(self.ast.arg, applied=applied))

    @functools.cached_property
    def start(self) -> Candidate:
        """What the heuristic picks."""
        target = self.target if self.shares else replace(self.target, has_threads=False)
        with choosing(leave_to_heuristic):
            better = [optimise(nest, target) for nest in self.nests]
        return Candidate(tuple([_actions_of(nest) for nest in better]))

    @functools.cached_property
    def most_terms(self) -> int:
        """How many terms one accumulator may take in."""
        return max(2 * SUM_TERMS, longest_sum(self.kernel(self.start)))

    def plain(self) -> Candidate:
        """Axes that are one made one, the outermost shared by the cores, and nothing else."""
        return Candidate(tuple([_actions_of(self._shared(merge_axes(n))) for n in self.nests]))

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Candidates that differ by one move in one nest, the costliest nest first."""
        costs = [self._cost(nest) for nest in self.nests]
        for place in sorted(range(len(costs)), key=lambda i: -costs[i]):
            for nest in self._moves(self.nests[place], candidate.parts[place]):
                actions = self._ways.setdefault((place, nest.src), _actions_of(nest))
                yield Candidate((*candidate.parts[:place], actions, *candidate.parts[place + 1 :]))

    def cost(self, candidate: Candidate) -> float:
        """An estimate in instructions."""
        both = zip(self.nests, candidate.parts, strict=True)
        return sum(self._cost(self._applied(nest, actions)) for nest, actions in both)

    # -------------------------------------------------------- moves inside of a nest
    def _moves(self, nest: UOp, actions: Actions) -> Iterator[UOp]:
        body = without_cores(actions)
        base = self._applied(nest, body)
        for edit in _edits(base, body, self.target):
            after = self._applied(nest, edit)
            if _is_small(after, self.target) and longest_sum(after) <= self.most_terms:
                yield self._shared(after)
        if self.shares:
            yield from self._other_cores(base)

    def _shared(self, nest: UOp) -> UOp:
        """The nest, its outermost loops given to the cores."""
        return share_outputs(nest, self.target) if self.shares else nest

    def _other_cores(self, base: UOp) -> Iterator[UOp]:
        """The same nest with other axes, or none, shared by the cores."""
        yield base
        main = max(base.src, key=lambda store: volume(closed_axes(store)))
        loops = [axis for axis in closed_axes(main) if axis.arg.kind is AxisType.LOOP]
        names = [axis.arg.number for axis in loops if extent(axis) > 1][:3]
        tails = [Opt(OptOps.THREAD, name) for name in names]
        tails += [Opt(OptOps.THREAD, names[0], tuple(names[1:n])) for n in range(2, len(names) + 1)]
        for tail in tails:
            with contextlib.suppress(OptError):
                yield apply_opt(base, tail, self.target)

    def _applied(self, nest: UOp, actions: Sequence[Opt]) -> UOp:
        """The nest after those of the actions that are legal."""
        first = nest
        done: Actions = ()
        for opt in actions:
            if opt.op is OptOps.STAGE and isinstance(opt.arg, tuple):
                # an edit before may have left one of several pieces of an axis
                names = {axis.arg.number for axis in all_axes(nest)}
                opt = replace(opt, arg=tuple([name for name in opt.arg if name in names]))
            key = (first, (*done, opt))
            if key not in self._after:
                self._after[key] = _tried(nest, opt, self.target)
            after = self._after[key]
            if after is not None:
                nest, done = after, key[1]
        return nest

    def _cost(self, nest: UOp) -> float:
        if nest not in self._costs:
            self._costs[nest] = nest_cost(nest, self.target)
        return self._costs[nest]


def _actions_of(nest: UOp) -> Actions:
    return tuple([opt for opt in nest.arg.applied if isinstance(opt, Opt)])


def without_cores(actions: Actions) -> Actions:
    """The actions before those that share loops among the cores.

    SPLIT r by 64, THREAD r_0 at the end belong together: the cores are why r was split.
    """
    if not actions or actions[-1].op is not OptOps.THREAD:
        return actions
    *body, thread = actions
    names = {thread.axis, *(thread.arg if isinstance(thread.arg, tuple) else ())}
    while body:
        last = body[-1]
        is_for_cores = isinstance(last.axis, tuple) and (*last.axis, 0) in names
        if last.op is not OptOps.SPLIT or not is_for_cores:
            break
        body.pop()
    return tuple(body)


def _tried(nest: UOp, opt: Opt, target: Target) -> UOp | None:
    try:
        return apply_opt(nest, opt, target)
    except OptError:
        return None


# ------------------------------------------------------------ edits
def _edits(base: UOp, body: Actions, target: Target) -> Iterator[Sequence[Opt]]:
    """Sequences that differ by one action: another size, one less, one more."""
    for place, opt in enumerate(body):
        for size in _other_sizes(body, place):
            yield (*body[:place], replace(opt, arg=size), *body[place + 1 :])
    for place in range(len(body)):
        yield (*body[:place], *body[place + 1 :])
    for more in _additions(base, target):
        yield (*body, *more)


def _other_sizes(body: Actions, place: int) -> list[int]:
    opt = body[place]
    size = opt.arg
    if not isinstance(size, int) or opt.op in (OptOps.SWAP, OptOps.MERGE, OptOps.THREAD):
        return []
    if size == 0:
        # the whole axis: a part of it
        return [2, CHOICES]
    if opt.op is OptOps.VECTOR:
        sizes = [size // 2, size * 2]
    elif opt.op is OptOps.UPCAST:
        step = _lanes_inside(body, place)
        copies = size // step
        sizes = [n * step for n in (copies // 2, copies - 1, copies + 1, copies + 2, copies * 2)]
    else:
        sizes = [size // 2, size * 2]
    return [n for n in dict.fromkeys(sizes) if n > 1 and n != size]


def _lanes_inside(body: Actions, place: int) -> int:
    """The lanes that an UPCAST holds several vectors of; 1 if it holds scalars."""
    inner = body[place].axis
    for opt in body[place + 1 :]:
        if opt.op is OptOps.VECTOR and isinstance(inner, tuple) and opt.axis == (*inner, 1):
            return max(1, opt.arg) if isinstance(opt.arg, int) else 1
    return 1


def _additions(base: UOp, target: Target) -> Iterator[Sequence[Opt]]:
    """Actions that the kernel could get on top of those it has."""
    lanes = max(target.vector_lanes, 2)
    for axis in all_axes(base):
        if axis.arg.kind not in LOOP_KINDS or extent(axis) < 2:
            continue
        name, size = axis.arg.number, extent(axis)
        is_output = axis.arg.kind is AxisType.LOOP
        for count in range(2, min(size, CHOICES) + 1, 2):
            yield (Opt(OptOps.UPCAST if is_output else OptOps.UNROLL, name, count),)
        for count in (lanes, lanes // 2):
            if 2 <= count <= size:
                yield (Opt(OptOps.VECTOR, name, count),)
        if not is_output:
            yield (Opt(OptOps.KEEP, name),)
            if SUM_TERMS < size:
                yield (Opt(OptOps.BLOCK, name, SUM_TERMS),)
    yield from _orders(base)
    yield from _stages(base)


def _orders(base: UOp) -> Iterator[Sequence[Opt]]:
    """Output loops in another order, as they are or in tiles."""
    main = max(base.src, key=lambda store: volume(closed_axes(store)))
    loops = [axis for axis in closed_axes(main) if axis.arg.kind is AxisType.LOOP]
    for place, axis in enumerate(loops):
        for other in loops[place + 1 :]:
            yield (Opt(OptOps.SWAP, axis.arg.number, other.arg.number),)
            for size in (PANEL, PANEL**2):
                if 2 * size <= extent(axis):
                    # the rounds of a tile run inside of the other loop
                    yield (
                        Opt(OptOps.SPLIT, axis.arg.number, size),
                        Opt(OptOps.SWAP, (*axis.arg.number, 1), other.arg.number),
                    )


def _stages(base: UOp) -> Iterator[Sequence[Opt]]:
    """What a reduction reads, packed: over its loops and what is written out."""
    seen: set[Opt] = set()
    for node in base.toposort():
        if node.op is not Ops.LOAD or node.src[0].src[0].op is not Ops.PARAM:
            continue
        axes = sorted(node.ranges, key=lambda axis: axis.arg.number)
        loops = [axis for axis in axes if axis.arg.kind is AxisType.REDUCE]
        copies = [axis for axis in axes if axis.arg.kind in _WRITTEN_OUT]
        lanes = [axis for axis in axes if axis.arg.kind is AxisType.VECTOR]
        names = tuple([axis.arg.number for axis in (*loops, *copies, *lanes)])
        opt = Opt(OptOps.STAGE, node.src[0].src[0].arg.slot, names)
        if loops and opt not in seen:
            seen.add(opt)
            yield (opt,)


# ------------------------------------------------------------ estimates
def _is_small(nest: UOp, target: Target) -> bool:
    """Whether the copies of a nest can be compiled in reasonable time and mostly fit registers."""
    for store in nest.src:
        if _copies(closed_axes(store)) > COPIES_AT_MOST:
            return False
    for node in nest.toposort():
        if node.op is Ops.REDUCE:
            axes = {*node.src[0].ranges, *closed_axes(node)}
            if _copies(axes) > COPIES_AT_MOST:
                return False
            sums = _copies([a for a in axes if a.arg.kind is not AxisType.UNROLL])
            width = [extent(a) for a in axes if a.arg.kind is AxisType.VECTOR]
            in_bytes = max(width, default=1) * node.dtype.itemsize
            vectors = sums * max(1, in_bytes // max(target.vector_bytes, 1))
            if vectors > 2 * target.vector_registers:
                return False
    return True


def longest_sum(kernel: UOp) -> int:
    """The most terms that are added to one float accumulator, one after the other."""
    longest = 0
    for node in kernel.toposort():
        if node.op is Ops.REDUCE and node.arg is Ops.ADD and node.dtype in dtypes.floats:
            loops = [axis for axis in closed_axes(node) if axis.arg.kind is AxisType.REDUCE]
            longest = max(longest, volume(loops))
    return longest


def _copies(axes: Sequence[UOp] | set[UOp]) -> int:
    return volume([axis for axis in axes if axis.arg.kind in _WRITTEN_OUT])


def nest_cost(nest: UOp, target: Target) -> float:
    """Vector instructions of a nest as it stands, loops and copies counted; no caches."""
    total = 0.0
    for part in nests_of(list(nest.src), target):
        # loops that fast memory is filled inside of are its rounds
        outside = part.stores[0].ranges
        cost = 0.0
        for body in part.bodies:
            # a reduction in blocks also runs inside of the loops of the one around it
            axes = {*body.axes, *[a for closer in body.closers for a in closer.src[0].ranges]}
            loops = [a for a in axes - outside if a.arg.kind not in _SIDE_BY_SIDE]
            cost += volume(loops) * sum(_item_cost(item, target) for item in body.items)
        total += part.rounds * cost
    return total


def _item_cost(item: Item, target: Target) -> float:
    """Instructions in one round of the loops around."""
    lanes = [a for a in item.ranges if a.arg.kind is AxisType.VECTOR]
    width = volume(lanes)
    vectors = max(1.0, width * item.dtype.itemsize / max(target.vector_bytes, 1))
    if item.steps is not None and any([item.steps.get(a, 0) not in (0, 1) for a in lanes]):
        vectors = target.gather_cycles * width
    return _copies(list(item.ranges)) * vectors * item.weight
