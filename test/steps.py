"""Is what a rule made of a node the same value? Checked on random values of its leaves.

In: a node before and after a rule. Out: nothing, or the values for which the two differ, a node
whose value leaves its bounds, or a node that breaks the op table. `StepChecker` does this for
every step of every rewrite while it is active, and so names the rule that is to blame.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from test.reference import Expressions, NoMeaning, Tensors, same
from test.uop.instances import edge_values
from weft.dtype import DType
from weft.errors import WeftError
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.spec_rules import check_arg, check_arity, check_domain, check_typing
from weft.uop.trace import Rule

# evaluated by definition up to this many points; beyond that a reduction is a free value
POINTS_AT_MOST = 64
ELEMENTS_AT_MOST = 2000


@dataclass(frozen=True)
class Difference:
    """Why a step is wrong."""

    what: str
    before: UOp
    after: UOp

    def __str__(self) -> str:
        return f"{self.before.text()[:300]}  ->  {self.after.text()[:300]}: {self.what}"


# ------------------------------------------------------------ scalars


def leaves_of(*roots: UOp) -> list[UOp]:
    """What has to be given a value: open axes, variables, registers, reductions that are long."""
    found: dict[UOp, None] = {}
    for root in roots:
        for node in root.toposort(gate=lambda u: not _is_leaf(u)):
            if _is_leaf(node) and node.op is not Ops.RANGE:
                found[node] = None
        for axis in sorted(root.ranges, key=lambda a: a.arg.number):
            found[axis] = None
    return list(found)


def _is_leaf(node: UOp) -> bool:
    if node.op in (Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL, Ops.ACC):
        return True
    if node.op is Ops.LOAD:
        return node.src[0].op is Ops.ACC
    if node.op is Ops.REDUCE:
        axes = [axis for axis in node.src[1:] if axis.op is Ops.RANGE]
        return math.prod(int(axis.src[0].vmax) for axis in axes) > POINTS_AT_MOST
    return False


def domain_of(leaf: UOp) -> list[Any]:
    """The values that a leaf is given."""
    if leaf.dtype.count > 1:
        raise NoMeaning("a free vector")
    if leaf.dtype.kind in ("int", "uint") and leaf.op is not Ops.LOAD:
        low, high = leaf._min_max
        if high - low < 64:
            return list(range(int(low), int(high) + 1))
        return sorted({int(low), int(low) + 1, (low + high) // 2, int(high) - 1, int(high)})
    return edge_values(leaf.dtype)


class RandomMemory:
    """Memory of which each element has some value of its dtype, the same whenever it is read."""

    def __init__(self, rng: random.Random) -> None:
        self.seed = rng.getrandbits(32)

    def __call__(self, memory: UOp, index: int) -> Any:
        rng = random.Random(f"{self.seed} {memory.arg} {index}")
        dtype = memory.dtype
        if dtype.kind in ("int", "uint") and rng.random() < 0.5:
            return rng.randint(max(-40, int(dtype.min)), 40)
        return rng.choice(edge_values(dtype))


def assignments(leaves: list[UOp], rng: random.Random, most: int) -> Iterator[dict[UOp, Any]]:
    """All combinations of the leaves' values if there are few, else random ones and corners."""
    domains = [domain_of(leaf) for leaf in leaves]
    if math.prod(map(len, domains)) <= most:
        for values in itertools.product(*domains):
            yield dict(zip(leaves, values, strict=True))
        return
    yield {leaf: values[0] for leaf, values in zip(leaves, domains, strict=True)}
    yield {leaf: values[-1] for leaf, values in zip(leaves, domains, strict=True)}
    for _ in range(most):
        yield {leaf: rng.choice(values) for leaf, values in zip(leaves, domains, strict=True)}


def _sizes_hold(leaves: list[UOp], given: Mapping[UOp, Any], expressions: Expressions) -> bool:
    """Whether each axis is inside its size, which may be a run-time one."""
    return all(
        given[leaf] < expressions.value(leaf.src[0], given)
        for leaf in leaves
        if leaf.op is Ops.RANGE and leaf.src[0].op is not Ops.CONST
    )


def compare_scalars(
    before: UOp, after: UOp, rng: random.Random, most: int = 48
) -> Difference | None:
    """Where the two expressions differ."""
    leaves = leaves_of(before, after)
    if any(leaf.op not in (Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL, Ops.LOAD) for leaf in leaves):
        if set(leaves_of(before)) - set(leaves_of(after)):
            raise NoMeaning("a long reduction changes")
    for given in assignments(leaves, rng, most):
        memory = RandomMemory(rng)
        left, right = Expressions(memory), Expressions(memory)
        if not _sizes_hold(leaves, given, left):
            continue
        try:
            x, y = left.value(before, given), right.value(after, given)
        except NoMeaning:
            continue
        shown = ", ".join(f"{leaf.text()[:60]}={value}" for leaf, value in given.items())
        if not same(x, y):
            return Difference(f"{x} becomes {y} where {shown}", before, after)
        if not right.touched <= left.touched:
            more = ", ".join(f"{m.text()}[{i}]" for m, i in right.touched - left.touched)
            return Difference(f"{more} is read as well where {shown}", before, after)
        for node, value in (*left.values.items(), (after, y)):
            if not is_in_bounds(node, value):
                bounds = f"[{node.vmin}, {node.vmax}]"
                what = f"{value} is outside the bounds {bounds} of {node.text()[:200]}"
                return Difference(f"{what} where {shown}", before, after)
    return None


def is_in_bounds(node: UOp, value: Any) -> bool:
    """Whether bounds and value agree; floats may be nan beside their bounds."""
    if node.dtype.kind not in ("int", "uint", "bool") or node.op is Ops.INDEX:
        return True
    low, high = node._min_max
    values = value if isinstance(value, list) else [value]
    return all(low <= v <= high for v in values)


# ------------------------------------------------------------ tensors


def is_tensor_graph(node: UOp) -> bool:
    return any(
        u.op in GroupOp.Movement or u.op in (Ops.BUFFER, Ops.REDUCE_AXIS, Ops.IOTA, Ops.CAT)
        for u in node.toposort()
    )


def random_array(size: int, dtype: DType, rng: random.Random) -> np.ndarray:
    choices = [v for v in edge_values(dtype) if not isinstance(v, float) or abs(v) <= 4]
    result = np.empty(size, object)
    result[:] = [rng.choice(choices) for _ in range(size)]
    return result


def compare_tensors(before: UOp, after: UOp, rng: random.Random) -> Difference | None:
    """Where the two graphs differ, for random contents of their buffers."""
    nodes = {**before.toposort(), **after.toposort()}
    variables = {u.arg.name: rng.randint(u.arg.lo, u.arg.hi) for u in nodes if u.op is Ops.VARIABLE}
    size = sum(_elements(u) for u in nodes)
    if size > ELEMENTS_AT_MOST:
        raise NoMeaning("too large to be computed by definition")
    buffers = {u: random_array(u.arg.size, u.dtype, rng) for u in nodes if u.op is Ops.BUFFER}
    left = Tensors(buffers, variables).value(before)
    right = Tensors(buffers, variables).value(after)
    if left.shape != right.shape:
        return Difference(f"shape {left.shape} becomes {right.shape}", before, after)
    for place in np.ndindex(left.shape):
        if not same(left[place], right[place]):
            what = f"element {place} is {left[place]} and becomes {right[place]}"
            return Difference(what, before, after)
    return None


def _elements(node: UOp) -> int:
    if node.op is Ops.BUFFER:
        return int(node.arg.size)
    if node.op in (Ops.SINK, Ops.STORE) or not node.src:
        return 0
    return math.prod(s if isinstance(s, int) else int(s.vmax) for s in node.shape)


# ------------------------------------------------------------ steps


def illegal(after: UOp) -> str | None:
    """What the op table has against a node."""
    for node in after.toposort():
        for check in (check_arity, check_arg, check_typing, check_domain):
            complaint = check(node)
            if complaint is not None:
                return complaint
    return None


def compare(before: UOp, after: UOp, rng: random.Random, most: int = 48) -> Difference | None:
    """What is wrong with replacing `before` by `after`; NoMeaning where that cannot be said."""
    if before.dtype is not after.dtype:
        return Difference(f"{before.dtype} becomes {after.dtype}", before, after)
    complaint = illegal(after)
    # a rule is not to blame for what it found; the schedule has stand-ins of its own form
    if complaint is not None and illegal(before) is None:
        return Difference(complaint, before, after)
    if before.op in (Ops.SINK, Ops.STORE, Ops.STAGE, Ops.INDEX, Ops.RANGE, Ops.BARRIER):
        raise NoMeaning("no value of its own")
    if is_tensor_graph(before) or is_tensor_graph(after):
        return compare_tensors(before, after, rng)
    return compare_scalars(before, after, rng, most)


# decomposed into something close: `test/codegen/decompose` bounds how close
APPROXIMATED = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW, Ops.SQRT, Ops.MULACC})


@dataclass
class StepChecker:
    """A tracer that compares both sides of every step. `wrong` is what it found, by rule."""

    seed: int = 0
    wrong: list[tuple[Rule, str, Difference]] = field(default_factory=list)
    checked: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.seen: set[tuple[UOp, UOp]] = set()

    def start(self, name: str, root: UOp) -> None: ...

    def finish(self, name: str, result: UOp) -> None: ...

    def step(self, name: str, before: UOp, after: UOp, rule: Rule) -> None:
        """Compare the two sides, each pair once."""
        if (before, after) in self.seen or before.op in {*APPROXIMATED, Ops.MULADD}:
            return
        self.seen.add((before, after))
        try:
            found = compare(before, after, self.rng, 16)
        except (NoMeaning, WeftError, OverflowError, RecursionError):
            return
        self.checked += 1
        if found is not None:
            self.wrong.append((rule, name, found))
