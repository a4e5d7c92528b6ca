"""Random expressions of indices: simplified and lowered, they have the value they had.

In: a seed. Out: an expression over axes, variables and memory, made of what indices and their
conditions are made of. `difference` simplifies it, lowers it to machine ints, and compares values
by definition on random points, and by z3 for all of them. A failing expression is shrunk to a small
one, and prints as code that can be run, with the rule that is to blame.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from test.reference import Expressions, NoMeaning, same
from test.steps import RandomMemory, StepChecker, assignments, compare, illegal, leaves_of
from test.uop.instances import Maker
from weft.codegen.lower_index import lower_index
from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.reproduce import graph_rows
from weft.uop.rewrite import graph_rewrite
from weft.uop.solver import same_value
from weft.uop.symbolic import clear_simplified, symbolic
from weft.uop.trace import tracing

# mostly unbounded indices and their conditions; ints that wrap now and then
_DTYPES: tuple[DType, ...] = (
    *[dtypes.weakint] * 6,
    *[dtypes.bool] * 4,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.uint32,
)
# what z3 may spend on one question
TIMEOUT_MS = 50


def random_expression(seed: int) -> UOp:
    """An index, a condition, or an expression of ints that wrap."""
    rng = random.Random(seed)
    maker = Maker(rng)
    dtype = rng.choice(_DTYPES)
    if dtype in (dtypes.weakint, dtypes.bool) and rng.random() < 0.7:
        places = [_place(maker) for _ in range(rng.randint(1, 3))]
        maker.pool[dtypes.weakint] = places
        if dtype is dtypes.weakint and rng.random() < 0.5:
            return _place(maker)
    return maker.value(dtype, rng.randint(2, 5))


def _place(maker: Maker) -> UOp:
    """What movement makes of axes: sums of products, divided, cut off and turned round."""
    rng = maker.rng
    total = UOp.const(dtypes.weakint, rng.choice([0, 0, 0, 1, -1, 5, -7]))
    for _ in range(rng.randint(1, 4)):
        axis = maker.leaf(dtypes.weakint) if rng.random() < 0.8 else _place_of_pool(maker)
        total = total + axis * rng.choice([1, 1, 2, 3, 4, 6, 8, 12, -1, -4])
    for _ in range(rng.randint(0, 3)):
        number = rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 24])
        kind = rng.choice(["//", "%", "*", "+", "-"])
        if kind == "//":
            total = total // number
        elif kind == "%":
            total = total % number
        elif kind == "*":
            total = total * number
        else:
            total = number - total if kind == "-" else total + number
        if rng.random() < 0.3:
            total = total + maker.leaf(dtypes.weakint)
    maker.pool.setdefault(dtypes.weakint, []).append(total)
    return total


def _place_of_pool(maker: Maker) -> UOp:
    pool = maker.pool.get(dtypes.weakint)
    return maker.rng.choice(pool) if pool else maker.leaf(dtypes.weakint)


def difference(node: UOp, seed: int = 0) -> str | None:
    """What is wrong with the simple form of an expression, or None."""
    rng = random.Random(seed)
    simple = graph_rewrite(node, symbolic)
    if graph_rewrite(simple, symbolic) is not simple:
        return f"{simple.text()} is not as simple as it gets"
    try:
        found = compare(node, simple, rng)
    except NoMeaning:
        return None
    if found is not None:
        return str(found)
    if node.dtype.kind in ("int", "uint", "bool") and same_value(node, simple, TIMEOUT_MS) is False:
        return f"{node.text()} is not {simple.text()}, says z3"
    return _lowered_difference(simple, rng)


def _lowered_difference(simple: UOp, rng: random.Random) -> str | None:
    """Whether machine ints hold what the unbounded ones do."""
    leaves = leaves_of(simple)
    nodes = simple.toposort()
    if any(node.dtype is dtypes.weakfloat for node in nodes):
        # no memory holds these, and what takes their place rounds
        return None
    if not all(_fits(node) for node in nodes if node.dtype is dtypes.weakint):
        return None
    for width in (dtypes.int32, dtypes.int64):
        lowered, *others = lower_index(UOp.sink(simple, *leaves), width).src
        complaint = illegal(lowered)
        if complaint is not None:
            return f"lowered to {width}: {complaint}"
        for given in assignments(leaves, rng, 8):
            memory = RandomMemory(rng)
            expected = Expressions(memory).value(simple, given)
            found = Expressions(memory).value(
                lowered, {other: given[leaf] for leaf, other in zip(leaves, others, strict=True)}
            )
            if not same(expected, found):
                shown = ", ".join(f"{leaf.text()}={value}" for leaf, value in given.items())
                return f"lowered to {width} {expected} becomes {found} where {shown}"
    return None


def _fits(node: UOp) -> bool:
    return bool(dtypes.int64.min <= node.vmin and node.vmax <= dtypes.int64.max)


def shrink(node: UOp, fails: Callable[[UOp], bool]) -> UOp:
    """A smaller expression that fails as well: a part of it, or one with a number for a part."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(node):
            if fails(smaller):
                node, changed = smaller, True
                break
    return node


def _smaller(node: UOp) -> list[UOp]:
    """Parts first, then the whole with a part left out."""
    parts = [u for u in node.toposort() if u is not node]
    found = [u for u in parts if u.dtype.kind in ("int", "uint", "bool") and _is_value(u)]
    result = sorted(found, key=lambda u: len(u.toposort()))
    for part in reversed(found):
        if part.op is Ops.CONST:
            continue
        numbers = (0, 1) if part.dtype.kind != "bool" else (False, True)
        for other in (*part.src, *[UOp.const(part.dtype, number) for number in numbers]):
            if other.dtype is part.dtype and other is not part:
                result.append(node.substitute({part: other}))
    return [smaller for smaller in result if len(smaller.toposort()) < len(node.toposort())]


def _is_value(node: UOp) -> bool:
    return node.op not in (Ops.INDEX, Ops.PARAM) and node.dtype.count == 1


def guilty_rule(node: UOp) -> str:
    """The first step of the simplification that changes the value."""
    clear_simplified()
    checker = StepChecker()
    with tracing(checker):
        graph_rewrite(node, symbolic)
    if not checker.wrong:
        return "no single rule"
    rule, name, found = checker.wrong[0]
    return f"{rule} in the rewrite {name!r}: {found}"


def source(node: UOp) -> str:
    """Code that shows the difference."""
    return (
        "from test.fuzz.expressions import difference\n"
        "from weft.uop.reproduce import parse_rows\n"
        f"print(difference(parse_rows('''\n{graph_rows(node)}''')))"
    )


def check_seed(seed: int) -> str | None:
    """A report with code if the expression of a seed shows a difference."""
    node = random_expression(seed)
    if difference(node, seed) is None:
        return None
    small = shrink(node, lambda other: difference(other, seed) is not None)
    return (
        f"seed {seed}: {difference(small, seed)}\n# to blame: {guilty_rule(small)}\n{source(small)}"
    )
