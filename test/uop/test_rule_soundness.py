"""Every rule that is an equation is one: both sides have the same value, whatever the leaves are.

Rules are tried on random nodes of their pattern's form, in every dtype that it can match: all
values of narrow ints, edge values of the others, and for ints z3 where it can say something. What
has no value of its own (stores, axes) is compared by what whole kernels write, movement by arrays.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import weft
from test import optional, steps
from test.codegen.opt.kernels import KERNELS
from test.fuzz.programs import ENVIRONMENT, Generator, run_weft
from test.reference import Expressions, NoMeaning, run_kernel
from test.steps import APPROXIMATED, RandomMemory, StepChecker, assignments, compare, leaves_of
from test.uop.instances import ALL, INTS, Maker, NoInstance, edge_values, instance
from weft import Tensor
from weft.codegen.decompose.decompose import ROUNDINGS
from weft.codegen.decompose.decompose import RULES as DECOMPOSE
from weft.dtype import DType, dtypes
from weft.engine.programs import clear_programs
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.schedule import prepare as prepare_module
from weft.schedule.prepare import PrepareContext, prepare
from weft.uop import compat_functions, render
from weft.uop.args import KernelInfo, ReduceArg
from weft.uop.matcher import PatternMatcher, Rule
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules import fold as fold_module
from weft.uop.rules.algebra import algebra
from weft.uop.rules.compare import compare as comparison
from weft.uop.rules.divmod import divmod as division
from weft.uop.rules.fold import fold
from weft.uop.rules.movement import movement
from weft.uop.rules.validity import unit_ranges, validity
from weft.uop.solver import same_value
from weft.uop.symbolic import clear_simplified, sym, symbolic
from weft.uop.trace import tracing

ATTEMPTS = 60
FIRINGS = 5
VECTORS = tuple(dtype.vec(2) for dtype in (dtypes.bool, dtypes.int32, dtypes.uint8, dtypes.float32))

SCALAR_RULES = (*fold.rules, *algebra.rules, *division.rules, *comparison.rules)


def rule_id(rule: Rule) -> str:
    return str(rule).removeprefix("rule ").replace("<", "").replace(">", "")


@functools.cache
def _matcher(rule: Rule) -> PatternMatcher:
    return PatternMatcher((rule,))


def applied(rule: Rule, node: UOp, ctx: object = None) -> UOp | None:
    """What one rule makes of a node."""
    result: UOp | None = _matcher(rule).rewrite(node, ctx)
    return result


def node_for(rule: Rule, dtype: DType, rng: random.Random) -> UOp:
    special = SPECIAL_NODES.get(rule.name)
    return instance(rule.pattern, dtype, rng) if special is None else special(Maker(rng), dtype)


# ------------------------------------------------------------ nodes that patterns alone do not give


def conditions(maker: Maker, dtype: DType, op: Ops) -> UOp:
    """Several comparisons of one expression with numbers."""
    if dtype not in INTS:
        raise NoInstance
    rng = maker.rng
    subjects = [maker.value(dtype, 1) for _ in range(rng.choice([1, 1, 2]))]
    parts = []
    for _ in range(rng.randint(2, 4)):
        x, number = rng.choice(subjects), UOp.const(dtype, rng.choice([0, 1, 2, 3, 4, 7]))
        sides = (x, number) if rng.random() < 0.5 else (number, x)
        kind = rng.choice([Ops.CMPLT, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE])
        part = UOp(kind, dtypes.bool, sides if kind is Ops.CMPLT else (x, number))
        parts.append(part)
        if rng.random() < 0.15:
            parts.append(UOp(Ops.CMPEQ, dtypes.bool, (part, UOp.const(dtypes.bool, False))))
    total = parts[0]
    for part in parts[1:]:
        total = UOp(op, dtypes.bool, (total, part))
    return total


def vector_of_constants(maker: Maker, dtype: DType) -> UOp:
    """An op on vectors of constants."""
    op = maker.rng.choice([Ops.ADD, Ops.MUL, Ops.MAX, Ops.NEG, Ops.AND, Ops.IDIV])
    vector = dtype.scalar().vec(3)
    count = 1 if op is Ops.NEG else 2
    node = maker.make(op, vector, [None] * count, 0)
    return node.with_src(tuple(maker.constant(vector) for _ in node.src))


def lanes_of_lanes(maker: Maker, dtype: DType) -> UOp:
    """GEP of VECTORIZE or of GEP."""
    dtype = dtype.scalar()
    lanes = tuple(maker.rng.randrange(4) for _ in range(maker.rng.choice([1, 2, 4])))
    vector = UOp(Ops.VECTORIZE, dtype.vec(4), tuple(maker.leaf(dtype) for _ in range(4)))
    if maker.rng.random() < 0.5:
        others = tuple(maker.leaf(dtype) for _ in range(4))
        more = [UOp(Ops.VECTORIZE, dtype.vec(4), others)] if maker.rng.random() < 0.5 else []
        count = 4 * (1 + len(more))
        vector = vector.gep(tuple(maker.rng.randrange(count) for _ in range(4)), *more)
    if maker.rng.random() < 0.2:
        lanes = (0, 1, 2, 3)
    return vector.gep(lanes)


def vector_of_lanes(maker: Maker, dtype: DType) -> UOp:
    """VECTORIZE of GEPs of one vector, or of one scalar."""
    dtype = dtype.scalar()
    if maker.rng.random() < 0.2:
        return UOp(Ops.VECTORIZE, dtype, (maker.leaf(dtype),))
    vector = UOp(Ops.VECTORIZE, dtype.vec(4), tuple(maker.leaf(dtype) for _ in range(4)))
    order = [maker.rng.randrange(4) for _ in range(4)]
    return UOp(Ops.VECTORIZE, dtype.vec(4), tuple(vector.gep(lane) for lane in order))


def choice_of_bools(maker: Maker, dtype: DType) -> UOp:
    """where(x, y, z) of bools, one branch a constant."""
    if dtype is not dtypes.bool:
        raise NoInstance
    branches = [maker.value(dtype), maker.constant(dtype)]
    maker.rng.shuffle(branches)
    return UOp(Ops.WHERE, dtype, (maker.value(dtype), *branches))


SPECIAL_NODES = {
    "merge_conjunction": lambda maker, dtype: conditions(maker, dtype, Ops.AND),
    "merge_disjunction": lambda maker, dtype: conditions(maker, dtype, Ops.OR),
    "fold_vector_constants": vector_of_constants,
    "fold_gep": lanes_of_lanes,
    "fold_vectorize": vector_of_lanes,
    "fold_where_bool": choice_of_bools,
}


# ------------------------------------------------------------ rules on scalars and vectors


def check_rule(rule: Rule, dtype: DType, ctx: object = None) -> Counter[str]:
    """Try a rule on nodes of a dtype; how often it fired, and what showed that it was right."""
    rng = random.Random(f"{rule.name} {rule.location[1]} {dtype}")
    count: Counter[str] = Counter()
    for _ in range(ATTEMPTS):
        if count["fired"] >= FIRINGS:
            break
        try:
            node = node_for(rule, dtype, rng)
        except NoInstance:
            count["none"] += 1
            continue
        result = applied(rule, node, ctx)
        if result is None or result is node:
            continue
        try:
            found = compare(node, result, rng)
        except NoMeaning:
            continue
        assert found is None, f"{rule} is wrong: {found}"
        count["fired"] += 1
        is_int = node.dtype in (*INTS, dtypes.bool) and result.dtype in (*INTS, dtypes.bool)
        if is_int and count["asked"] < 2 and rule is not fold.rules[0]:
            count["asked"] += 1
            verdict = same_value(node, result, timeout=100)
            assert verdict is not False, f"{rule} is wrong by z3: {node.text()} {result.text()}"
            count["proven"] += verdict is True
    return count


@pytest.mark.parametrize("rule", SCALAR_RULES, ids=rule_id)
def test_both_sides_are_equal(rule: Rule) -> None:
    fired = {dtype: check_rule(rule, dtype)["fired"] for dtype in (*ALL, *VECTORS)}
    assert sum(fired.values()) > 0, f"{rule} never matched: give it nodes in SPECIAL_NODES"


def test_most_rules_on_ints_are_proven() -> None:
    """z3 is of use: it proves the rules on indices, it does not merely give up."""
    proven = sum(check_rule(rule, dtypes.weakint)["proven"] > 0 for rule in algebra.rules[:2])
    proven += sum(check_rule(rule, dtypes.weakint)["proven"] > 0 for rule in division.rules)
    assert proven >= 5


def test_a_cast_to_a_weak_int_wraps_in_64_bits() -> None:
    """Found by sampling: bounds and merged casts took it for unbounded, its value did not."""
    far = UOp.variable("far", 0, 7, dtypes.uint64) + (2**64 - 4)
    weak = UOp(Ops.CAST, dtypes.weakint, (far,))
    assert weak.vmin == dtypes.int64.min
    for target in (dtypes.bfloat16, dtypes.weakint, dtypes.float32):
        node = UOp(Ops.CAST, target, (weak,))
        result = graph_rewrite(node, symbolic)
        assert result is node or compare(node, result, random.Random(0)) is None


# ------------------------------------------------------------ validity and axes


def random_place(maker: Maker, dtype: DType, depth: int = 2) -> UOp:
    """INDEX of some memory, perhaps with a validity."""
    memory = UOp.param(maker.rng.randint(50, 52), dtype, 1000)
    maker.pool.setdefault(dtypes.weakint, []).extend(UOp.range(size, size) for size in (3, 4, 12))
    idx = maker.value(dtypes.weakint, depth)
    valid = conditions_on_axes(maker) if maker.rng.random() < 0.5 else None
    return memory.index(idx, valid)


def conditions_on_axes(maker: Maker) -> UOp:
    parts = []
    for _ in range(maker.rng.randint(1, 3)):
        x = maker.value(dtypes.weakint, 1)
        number = UOp.const(dtypes.weakint, maker.rng.randint(-1, 8))
        parts.append(
            UOp(Ops.CMPLT, dtypes.bool, (x, number) if maker.rng.random() < 0.5 else (number, x))
        )
    total = parts[0]
    for part in parts[1:]:
        total = UOp(Ops.AND, dtypes.bool, (total, part))
    return total


def guarded_load(maker: Maker) -> UOp:
    """where(condition, load, other) in all its forms."""
    rng = maker.rng
    dtype = rng.choice([dtypes.float32, dtypes.int32, dtypes.float16, dtypes.bool])
    value = random_place(maker, dtype).load()
    if rng.random() < 0.3:
        dtype = rng.choice([dtypes.float32, dtypes.float16, dtypes.int64])
        value = value.cast(dtype)
    other = UOp.const(dtype, rng.choice([0, 0, 0, 1]))
    if dtype.kind == "float" and rng.random() < 0.2:
        other = UOp.const(dtype, -0.0)
    branches = (value, other) if rng.random() < 0.6 else (other, value)
    return UOp(Ops.WHERE, dtype, (conditions_on_axes(maker), *branches))


def rules_named(matcher: PatternMatcher, name: str) -> Rule:
    return next(rule for rule in matcher.rules if rule.name == name)


def test_where_on_load_keeps_the_value_and_reads_no_more() -> None:
    rule = rules_named(validity, "fold_where_on_load")
    fired = 0
    for seed in range(400):
        node = guarded_load(Maker(random.Random(seed)))
        result = applied(rule, node)
        if result is not None:
            found = compare(node, result, random.Random(seed))
            assert found is None, f"seed {seed}: {found}"
            fired += 1
    assert fired > 50


def test_an_index_changes_only_where_it_is_not_valid() -> None:
    rule = rules_named(validity, "simplify_index")
    fired = 0
    for seed in range(800):
        rng = random.Random(seed)
        place = random_place(Maker(rng), dtypes.float32, 3)
        if len(place.src) < 3:
            continue
        result = applied(rule, place)
        if result is None:
            continue
        fired += 1
        leaves = leaves_of(place, result)
        for given in assignments(leaves, rng, 200):
            memory = RandomMemory(rng)
            left, right = (Expressions(memory).value(node, given) for node in (place, result))
            valid = [part[2] if len(part) > 2 else True for part in (left, right)]
            assert valid[0] == valid[1], f"seed {seed}: {place.text()} -> {result.text()}"
            if valid[0]:
                assert left[1] == right[1], f"seed {seed}: {place.text()} -> {result.text()}"
    assert fired > 20


def test_a_load_that_is_never_valid_is_zero() -> None:
    rule = rules_named(validity, "fold_load")
    never = UOp.const(dtypes.bool, False)
    for dtype in (dtypes.float32, dtypes.int8, dtypes.bool):
        node = UOp.param(0, dtype, 4).index(UOp.const(dtypes.weakint, 9), never).load()
        assert compare(node, applied(rule, node), random.Random(0)) is None


def written(ast: UOp) -> dict[int, list[float]]:
    slots = {u.arg.slot: u for u in ast.toposort() if u.op is Ops.PARAM}
    memory = {
        slot: [edge_values(u.dtype)[(7 * i) % 5] for i in range(u.arg.size)]
        for slot, u in slots.items()
    }
    return run_kernel(ast, memory)


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_whole_kernels_write_the_same(make: object) -> None:
    """Rules on stores and axes, on kernels with axes of size 1 and stores that never happen."""
    for seed in range(2):
        ast, _ = make(random.Random(seed), 3)  # type: ignore[operator]
        store = ast.src[0]
        place = store.src[0]
        never = UOp.const(dtypes.bool, False)
        dead = UOp(Ops.INDEX, place.dtype, (*place.src[:2], never)).store(*store.src[1:])
        ast = ast.with_src((*ast.src, dead))
        for rules in (validity + unit_ranges, sym):
            simple = graph_rewrite(ast, rules)
            assert len(simple.src) == len(ast.src) - 1
            assert written(simple) == written(ast)


# ------------------------------------------------------------ movement and the scheduler's rules


def random_movement(rng: random.Random, source: UOp) -> UOp:
    """One movement op with a small result."""
    shape = source.shape
    op = rng.choice(sorted(GroupOp.Movement, key=lambda op: op.value))
    if op is Ops.RESHAPE:
        total = int(np.prod(shape))
        factors = [size for size in (2, 3, 4, 6) if total % size == 0 and rng.random() < 0.6]
        for size in factors:
            if total % size == 0:
                return source._mop(op, (size, total // size, *[1] * rng.randint(0, 1)))
        return source._mop(op, (total,))
    if op is Ops.PERMUTE:
        order = list(range(len(shape)))
        rng.shuffle(order)
        return source._mop(op, tuple(order))
    if op is Ops.EXPAND:
        return source._mop(op, tuple(rng.choice([1, 2]) if size == 1 else size for size in shape))
    if op is Ops.PAD:
        return source._mop(op, tuple((rng.randint(0, 1), rng.randint(0, 1)) for _ in shape))
    if op is Ops.SHRINK:
        starts = [rng.randrange(size) for size in shape]
        pairs = zip(starts, shape, strict=True)
        return source._mop(
            op, tuple((start, rng.randint(start + 1, size)) for start, size in pairs)
        )
    if op is Ops.FLIP:
        return source._mop(op, tuple(rng.random() < 0.5 for _ in shape))
    return source._mop(op, tuple(rng.choice([1, 1, 2]) for _ in shape))


def random_view(rng: random.Random) -> UOp:
    """A chain of movement ops on memory or on a constant, now and then with arithmetic between."""
    if rng.random() < 0.4:
        node = UOp.const(dtypes.int32, rng.choice([0, 3]))._mop(Ops.RESHAPE, (1, 1))
        node = node._mop(Ops.EXPAND, (2, 3))
    else:
        node = UOp.new_buffer("CPU", 12, dtypes.int32)._mop(
            Ops.RESHAPE, rng.choice([(3, 4), (12,)])
        )
    for _ in range(rng.randint(1, 5)):
        node = random_movement(rng, node)
        if rng.random() < 0.2:
            node = UOp(Ops.ADD, node.dtype, (node, UOp.const(node.dtype, 1)))
        if rng.random() < 0.1:
            node = UOp(Ops.CONTIGUOUS, node.dtype, (node,))
    return node


def test_movement_rules_keep_every_element() -> None:
    checker = StepChecker()
    names: Counter[str] = Counter()
    for seed in range(300):
        rng = random.Random(seed)
        node = random_view(rng)
        for part in node.toposort():
            for rule in movement.rules:
                result = applied(rule, part)
                if result is None or result is part:
                    continue
                try:
                    found = compare(part, result, rng)
                except NoMeaning:
                    continue
                assert found is None, f"seed {seed}: {rule} is wrong: {found}"
                names[rule.name] += 1
        with tracing(checker):
            graph_rewrite(node, movement + symbolic)
    assert not checker.wrong, checker.wrong[0]
    wanted = {rule.name for rule in movement.rules if rule.name != "<lambda>"}
    assert wanted <= names.keys(), f"never matched: {wanted - names.keys()}"


def _array(*shape: int, device: str = "CPU") -> UOp:
    size = int(np.prod(shape))
    return UOp.new_buffer(device, size, dtypes.int32)._mop(Ops.RESHAPE, shape)


def _written_view() -> UOp:
    """A view of storage, after a part of it was written."""
    view = _array(3, 4)._mop(Ops.PERMUTE, (1, 0))
    part = view._mop(Ops.SHRINK, ((1, 2), (0, 3)))
    store = UOp(Ops.STORE, dtypes.void, (part, UOp.const(dtypes.int32, 7)))
    return UOp(Ops.AFTER, dtypes.int32, (view, store))


def _node(op: Ops, x: UOp, arg: object = None) -> UOp:
    return UOp(op, x.dtype, (x,), arg)


def _reduced(x: UOp, op: Ops, *axes: int) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), ReduceArg(op, axes))


def _ones(*shape: int) -> UOp:
    one = UOp.const(dtypes.int32, 3)._mop(Ops.RESHAPE, (1,) * len(shape))
    return one._mop(Ops.EXPAND, shape)


def _product() -> UOp:
    """A matmul, of which each operand is read often."""
    left = _array(1, 8, 16)._mop(Ops.EXPAND, (8, 8, 16))
    right = _array(8, 1, 16)._mop(Ops.EXPAND, (8, 8, 16))
    return _reduced(UOp(Ops.MUL, dtypes.int32, (left, right)), Ops.ADD, 2)


def _in_blocks() -> UOp:
    """Rows of two blocks of four, with a number for each block."""
    scale = _array(3, 2, 1)._mop(Ops.EXPAND, (3, 2, 4))
    return UOp(Ops.MUL, dtypes.int32, (_array(3, 2, 4), scale))._mop(Ops.RESHAPE, (3, 8))


# nodes that the rules of the schedule change; thresholds are lowered where they are used
PREPARED = {
    "<lambda>": [_node(Ops.DETACH, _array(3))],
    "drop_idle_copy": [_node(Ops.COPY, _array(3), "CPU"), _node(Ops.COPY, _ones(3), "CPU")],
    "store_copied": [_node(Ops.COPY, _array(3, 2)._mop(Ops.PERMUTE, (1, 0)), "CPU:1")],
    "drop_idle_contiguous": [
        _node(Ops.CONTIGUOUS, _array(3, 2)),
        _node(Ops.CONTIGUOUS, _node(Ops.COPY, _array(3), "CPU:1")),
    ],
    "sink_after": [_written_view()],
    "reduce_nothing": [
        _reduced(_array(3, 1), Ops.ADD, 1),
        _reduced(_array(3, 1, 2), Ops.MAX, 1, 2),
        *[
            _reduced(_array(3, 2)._mop(Ops.SHRINK, ((0, 3), (1, 1))), op, 1)
            for op in (Ops.ADD, Ops.MAX, Ops.MUL)
        ],
    ],
    "reduce_constant": [_reduced(_ones(3, 4), op, 1) for op in (Ops.ADD, Ops.MAX)],
    "write_long_cat": [UOp(Ops.CAT, dtypes.int32, tuple(_array(2, k + 1) for k in range(9)), 1)],
    "split_reduced_axes": [_reduced(_in_blocks(), op, 1) for op in (Ops.ADD, Ops.MAX)],
    "split_long_reduction": [
        *[_reduced(_array(2, 1024), op, 1) for op in (Ops.ADD, Ops.MAX, Ops.MUL)],
        _reduced(_array(1024, 2), Ops.ADD, 0, 1),
        *[_reduced(_array(512, 6), op, 0) for op in (Ops.ADD, Ops.MAX)],
        _product(),
    ],
}


@pytest.mark.parametrize("name", PREPARED)
def test_rules_of_the_schedule_keep_every_element(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threshold in ("TALL", "LONG_PART", "PRODUCT_REUSE"):
        monkeypatch.setattr(prepare_module, threshold, 4)
    # a machine on which a launch costs next to nothing
    eager = Target(cores=4, launch_cycles=1)
    monkeypatch.setattr(steps, "ELEMENTS_AT_MOST", 20_000)
    rules = [rule for rule in OWN_RULES_OF_PREPARE if rule.name == name]
    assert rules, f"the schedule has no rule {name}"
    for node in PREPARED[name]:
        context = PrepareContext(-100, "CPU", lambda device: eager)
        results = [applied(rule, node, context) for rule in rules]
        changed = [result for result in results if result is not None and result is not node]
        assert changed, f"{name} does not match {node.text()}"
        for result in changed:
            found = compare(node, result, random.Random(0))
            assert found is None, f"{name} is wrong: {found}"


OWN_RULES_OF_PREPARE = [
    rule
    for rule in prepare.rules
    if all(rule is not other for other in (*movement.rules, *fold.rules))
]


def test_every_rule_of_the_schedule_has_nodes() -> None:
    assert {rule.name for rule in OWN_RULES_OF_PREPARE} == set(PREPARED)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_every_step_on_random_programs(first: int) -> None:
    """From the tensor graph to the program: each replacement of each rewrite keeps the value."""
    checker = StepChecker()
    # what earlier tests left in the caches would not be rewritten again
    clear_programs()
    clear_simplified()
    with tracing(checker), Context(SCACHE=0, CCACHE=0):
        for seed in range(first, first + 10):
            run_weft(Generator(seed, 8).run().statements)
    assert not checker.wrong, "{} in {!r}: {}".format(*checker.wrong[0])
    assert checker.checked > 100


# ------------------------------------------------------------ decompositions


class Plain(PythonRenderer):
    """A target that has nothing but the ops every machine has."""

    native_dtypes = frozenset((*dtypes.ints, dtypes.bool, dtypes.float32, dtypes.float64))

    def __init__(self) -> None:
        lacks = {op for rule in DECOMPOSE.rules for op in rule.pattern.op or ()}
        super().__init__(Target(name="plain"), lacks)


@pytest.mark.parametrize("rule", DECOMPOSE.rules, ids=rule_id)
def test_decompositions_of_ints_and_exact_ops(rule: Rule) -> None:
    """Also keeps the promises of what is tagged "raw": the reference raises where one is broken."""
    fired = 0
    for dtype in (*dtypes.ints, dtypes.bool, *dtypes.floats):
        rng = random.Random(f"{rule.name} {dtype}")
        for _ in range(80):
            maker = Maker(rng)
            try:
                node = maker.match(rule.pattern, dtype, 0)
            except NoInstance:
                continue
            if node.op in APPROXIMATED:
                continue
            result = applied(rule, node, Plain())
            if result is None or result is node:
                continue
            try:
                found = compare(node, result, rng, 24)
            except NoMeaning:
                continue
            assert found is None, f"{rule} is wrong: {found}"
            fired += 1
    assert fired > 20


# ------------------------------------------------------------ rules that do not come to rest


@pytest.mark.parametrize("dtype", [*INTS, dtypes.bool, dtypes.float32], ids=str)
def test_rule_sets_come_to_rest(dtype: DType) -> None:
    """On random expressions: an endless rewrite raises, and what is simple stays as it is."""
    for seed in range(150):
        node = Maker(random.Random(f"{seed} {dtype}")).value(dtype, 4)
        simple = graph_rewrite(node, symbolic)
        assert graph_rewrite(simple, symbolic) is simple, f"seed {seed}: {node.text()}"


def test_whole_kernels_come_to_rest() -> None:
    for make in KERNELS:
        for seed in range(4):
            ast, _ = make(random.Random(seed), 9)
            simple = graph_rewrite(ast, sym)
            assert graph_rewrite(simple, sym) is simple, f"{make.__name__} {seed}"


def test_tensor_graphs_come_to_rest() -> None:
    """The rules of the schedule on the graphs of random programs."""
    for seed in range(25):
        tensors: dict[str, object] = dict(ENVIRONMENT)
        for statement in Generator(seed, 10).run().statements:
            exec(statement.weft, tensors)
        values = [t.uop for t in tensors.values() if isinstance(t, Tensor)]
        graph = UOp.sink(*values)
        simple = graph_rewrite(graph, prepare, ctx=PrepareContext(-100, "CPU"))
        again = graph_rewrite(simple, prepare, ctx=PrepareContext(-200, "CPU"))
        assert again is simple, f"seed {seed}"


@pytest.mark.parametrize("dtype", [*dtypes.ints, *dtypes.floats], ids=str)
def test_decompositions_come_to_rest(dtype: DType) -> None:
    """What is decomposed for a machine that has little holds nothing that would be again."""
    for seed in range(12):
        maker = Maker(random.Random(f"{seed} {dtype}"))
        try:
            node = maker.value(dtype, 3)
        except NoInstance:
            continue
        plain = graph_rewrite(node, DECOMPOSE, ctx=Plain())
        assert graph_rewrite(plain, DECOMPOSE, ctx=Plain()) is plain, f"seed {seed}"


# ------------------------------------------------------------ completeness

# where each rule set of the package is checked
CHECKED: dict[str, PatternMatcher] = {
    "uop.rules.fold.fold": fold,
    "uop.rules.algebra.algebra": algebra,
    "uop.rules.divmod.divmod": division,
    "uop.rules.compare.compare": comparison,
    "uop.rules.validity.validity": validity,
    "uop.rules.validity.unit_ranges": unit_ranges,
    "uop.rules.movement.movement": movement,
    "schedule.prepare.prepare": prepare,
    "codegen.decompose.decompose.RULES": DECOMPOSE,
    # by bits, in test_narrow.py
    "codegen.decompose.decompose.ROUNDINGS": ROUNDINGS,
    # what they give is compared with values and with tinygrad in test_compat.py
    "uop.compat_functions.pm_unbind": compat_functions.pm_unbind,
    "uop.compat_functions.remove_all_tags": compat_functions.remove_all_tags,
    "uop.render._nested": render._nested,
}


def unchecked_rules() -> list[str]:
    """Rules of the package that are in none of the sets above, with where they are."""
    known = {id(rule) for matcher in CHECKED.values() for rule in matcher.rules}
    found = []
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        if module.name.endswith("__main__"):
            continue
        if module.name.startswith("weft.torch") and optional.found("torch") is None:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, PatternMatcher):
                missing = [rule for rule in value.rules if id(rule) not in known]
                found += [f"{rule} of {module.name}.{name}" for rule in missing]
    return found


def test_every_rule_of_the_package_is_checked_here() -> None:
    assert not unchecked_rules()


def test_a_rule_set_that_nobody_checks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    new = PatternMatcher([(UPat.var("x") + UPat.var("x"), lambda x: x * 2)])
    monkeypatch.setattr(fold_module, "doubles", new, raising=False)
    (found,) = unchecked_rules()
    assert found.endswith("weft.uop.rules.fold.doubles")


def test_rules_are_made_where_they_are_found() -> None:
    """A rule set inside a function would be seen by no test: they are constants of modules."""
    for path in Path(weft.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        hidden = [
            f"{path.name}:{call.lineno}"
            for function in functions
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "PatternMatcher"
        ]
        assert path.name == "matcher.py" or not hidden, hidden


def test_a_wrong_rule_is_found() -> None:
    """The checks see what they look for."""
    node = UOp.variable("x", 0, 9) // 2
    kernel = UOp.sink(node, arg=KernelInfo())
    assert kernel.src[0] is node
    for wrong in (node + 1, node * 2, node.cast(dtypes.int32)):
        assert compare(node, wrong, random.Random(0)) is not None
    assert compare(node, node + 0, random.Random(0)) is None
