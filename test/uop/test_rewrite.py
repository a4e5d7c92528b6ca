"""graph_rewrite: both orders, sharing, gates, context, endless rules, deep chains, tracing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from weft.dtype import dtypes
from weft.errors import ArgumentError, RewriteError
from weft.uop import trace
from weft.uop.matcher import PatternMatcher, Rule
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.resolve import resolve, sym_infer
from weft.uop.rewrite import graph_rewrite, graph_rewrite_map

x = Variable("x", 0, 10)
y = Variable("y", 0, 3)

v, w, c, d = UPat.var("v"), UPat.var("w"), UPat.cvar("c"), UPat.cvar("d")
simple = PatternMatcher(
    [
        (v * 1, lambda v: v),
        (v + 0, lambda v: v),
        (c + d, lambda c, d: c.const_like(c.arg + d.arg)),
        # a constant v would be moved around for ever before its sources are folded
        ((v + c) + d, lambda v, c, d: None if v.op is Ops.CONST else v + (c + d)),
    ]
)


# ------------------------------------------------------------ fixed point
def test_a_result_is_processed_again_with_its_new_sources() -> None:
    assert graph_rewrite((x * 1 + 3) + 4 + 0, simple) is x + 7


def test_nothing_to_do_gives_the_same_object() -> None:
    node = (x + y) * 3
    assert graph_rewrite(node, simple) is node


def test_a_rule_that_returns_its_node_changes_nothing() -> None:
    pm = PatternMatcher([(UPat(Ops.ADD, name="a"), lambda a: a)])
    assert graph_rewrite(x + y, pm) is x + y
    assert graph_rewrite(x + y, pm, bottom_up=True) is x + y


def test_sources_come_first() -> None:
    order: list[UOp] = []
    pm = PatternMatcher([(UPat(name="n"), lambda n: order.append(n))])
    graph_rewrite(-(x + y), pm)
    assert order == [x, y, x + y, -(x + y)]


def test_bottom_up_offers_a_node_before_its_sources() -> None:
    order: list[UOp] = []
    pm = PatternMatcher([(UPat(name="n"), lambda n: order.append(n))])
    graph_rewrite(-(x + y), pm, bottom_up=True)
    assert order == [-(x + y), x + y, x, y]


def test_the_orders_give_different_results_where_rules_compete() -> None:
    pm = PatternMatcher([(-v, lambda v: v), (v + w, lambda v, w: v * w)])
    outer_first = PatternMatcher([(-(v + w), lambda v, w: v), (v + w, lambda v, w: v * w)])
    assert graph_rewrite(-(x + y), pm) is x * y
    assert graph_rewrite(-(x + y), outer_first) is -(x * y)
    assert graph_rewrite(-(x + y), outer_first, bottom_up=True) is x


def test_bottom_up_looks_again_when_sources_changed() -> None:
    pm = PatternMatcher([(v * 1, lambda v: v), (-(v + w), lambda v, w: v)])
    assert graph_rewrite(-((x + y) * 1), pm, bottom_up=True) is x


def test_rules_for_the_way_down_and_the_way_up() -> None:
    down = PatternMatcher([(-v, lambda v: v * 1)])
    assert graph_rewrite(x.neg().neg() + 0, simple, bpm=down) is x
    with pytest.raises(ArgumentError, match="not both"):
        graph_rewrite(x, simple, bottom_up=True, bpm=down)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_random_expressions_keep_their_value(bottom_up: bool) -> None:
    rng = random.Random(3)
    for _ in range(200):
        nodes = [x, y, x.const_like(0), x.const_like(1), x.const_like(5)]
        for _ in range(12):
            left, right = rng.choice(nodes), rng.choice(nodes)
            nodes.append(left + right if rng.random() < 0.6 else left * right)
        before = nodes[-1]
        after = graph_rewrite(before, simple, bottom_up=bottom_up)
        for values in ({"x": 7, "y": 2}, {"x": 0, "y": 3}):
            assert sym_infer(before, values) == sym_infer(after, values)
        assert graph_rewrite(after, simple, bottom_up=bottom_up) is after


# ------------------------------------------------------------ sharing, depth
def test_a_shared_subgraph_is_processed_once() -> None:
    count = 0

    def counting(n: UOp) -> None:
        nonlocal count
        count += 1

    pm = PatternMatcher([(UPat(Ops.ADD, name="n"), counting)])
    node = x + y
    for _ in range(200):
        node = node + node
    graph_rewrite(node, pm)
    assert count == 201
    count = 0
    graph_rewrite(node, pm, bottom_up=True)
    assert count == 201


def test_each_version_of_a_node_is_offered_once() -> None:
    offered: list[UOp] = []
    pm = PatternMatcher(
        [
            (UPat(name="n"), lambda n: offered.append(n)),
            (v * 1, lambda v: v),
        ]
    )
    node = (x * 1) + y
    graph_rewrite(node.sink(-node, node * node), pm)
    assert len(offered) == len(set(offered))


def test_a_rebuilt_node_that_was_replaced_is_met_again() -> None:
    pm = PatternMatcher([(v * 1, lambda v: v), (-v, lambda v: v + 1)])
    assert graph_rewrite((-(x * 1)).sink(-x), pm) is (x + 1).sink(x + 1)
    assert graph_rewrite((-(x * 1)).sink(-x), pm, bottom_up=True) is (x + 1).sink(x + 1)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_chains_of_100000_nodes(bottom_up: bool) -> None:
    node = x * 1
    for _ in range(100_000):
        node = UOp(Ops.ADD, dtypes.weakint, (node, y))
    result = graph_rewrite(node, simple, bottom_up=bottom_up)
    assert len(result.toposort()) == 100_002


def test_a_rule_at_every_node_of_a_long_chain() -> None:
    node = x
    for _ in range(20_000):
        node = node + 1
    assert graph_rewrite(node, simple) is x + 20_000


# ------------------------------------------------------------ gates, context, maps
def test_a_gate_says_whose_sources_to_enter() -> None:
    inner = (x * 1).reduce(Ops.ADD, UOp.range(3, 0))
    node = inner + y * 1
    result = graph_rewrite(node, simple, gate=lambda u: u.op is not Ops.REDUCE)
    assert result is inner + y
    result = graph_rewrite(node, simple, gate=lambda u: u.op is not Ops.REDUCE, bottom_up=True)
    assert result is inner + y


def test_a_gated_node_is_itself_offered() -> None:
    pm = PatternMatcher([(-v, lambda v: v), (v * 1, lambda v: v)])
    result = graph_rewrite(-(x * 1), pm, gate=lambda u: u.op is Ops.SINK)
    assert result is x
    result = graph_rewrite((-(x * 1)).sink(), pm, gate=lambda u: u.op is Ops.SINK)
    assert result is x.sink()


def test_context_collects() -> None:
    def number(n: UOp, ctx: dict[UOp, int]) -> None:
        ctx[n] = len(ctx)

    ctx: dict[UOp, int] = {}
    pm = PatternMatcher([(UPat(Ops.VARIABLE, name="n"), number)])
    graph_rewrite(x + y + x, pm, ctx=ctx)
    assert ctx == {x: 0, y: 1}


def test_the_map_tells_what_each_node_became() -> None:
    node = (x * 1 + 3) + 4
    changed = graph_rewrite_map(node, simple)
    assert changed == {x * 1: x, x * 1 + 3: x + 3, node: x + 7}
    assert graph_rewrite_map(x + y, simple) == {}


def test_origins_are_kept() -> None:
    node = Variable("origin_test", 0, 3) * 1 + y
    node.origin = ("model.py", 3)
    result = graph_rewrite(node, simple)
    assert result is not node and result.origin == ("model.py", 3)
    pm = PatternMatcher([(v + w, lambda v, w: v * w)])
    assert graph_rewrite(node, pm).origin == ("model.py", 3)


# ------------------------------------------------------------ endless rules
def double_to_sum(v: UOp) -> UOp:
    return v + v


def sum_to_double(v: UOp) -> UOp:
    return v * 2


def grow_constant(v: UOp, c: UOp) -> UOp:
    return v + (c.arg + 1)


def wrap_itself(n: UOp) -> UOp:
    return -n


def nest_deeper(v: UOp) -> UOp:
    return -(-(v + 1) * 2)


ENDLESS: list[tuple[Any, list[str]]] = [
    ([(v * 2, double_to_sum), (v + v, sum_to_double)], ["double_to_sum", "sum_to_double"]),
    ([(v + c, grow_constant)], ["grow_constant"]),
    ([(UPat(Ops.VARIABLE, name="n"), wrap_itself)], ["wrap_itself"]),
    ([(-v, nest_deeper)], ["nest_deeper"]),
]


@pytest.mark.parametrize("bottom_up", [False, True])
@pytest.mark.parametrize("rules, names", ENDLESS)
def test_endless_rules_are_reported_by_name(rules: Any, names: list[str], bottom_up: bool) -> None:
    node = -(x * 2 + 1)
    with pytest.raises(RewriteError, match="'spin' does not come to rest") as caught:
        graph_rewrite(node, PatternMatcher(rules), name="spin", bottom_up=bottom_up)
    for name in names:
        assert name in str(caught.value)
    assert "test_rewrite.py:" in str(caught.value)


def test_a_long_but_finite_replacement_is_fine() -> None:
    pm = PatternMatcher([(v + c, lambda v, c: v + (c.arg - 1) if c.arg > 0 else None)])
    assert graph_rewrite(x + 500, pm) is x + 0


def test_a_result_that_is_no_uop_is_an_error() -> None:
    pm = PatternMatcher([(v * 1, lambda v: "text")])
    with pytest.raises(RewriteError, match="returned 'text', which is no UOp"):
        graph_rewrite(x * 1, pm)


# ------------------------------------------------------------ tracing
class Recorder:
    """A tracer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def start(self, name: str, root: UOp) -> None:
        self.events.append(("start", name, root))

    def step(self, name: str, before: UOp, after: UOp, rule: trace.Rule) -> None:
        assert isinstance(rule, Rule)
        self.events.append(("step", name, before, after))

    def finish(self, name: str, result: UOp) -> None:
        self.events.append(("finish", name, result))


@pytest.mark.parametrize("bottom_up", [False, True])
def test_tracers_see_every_step(bottom_up: bool) -> None:
    recorder = Recorder()
    node = -(x * 1)
    with trace.tracing(recorder):
        graph_rewrite(node, simple, name="tidy", bottom_up=bottom_up)
    assert recorder.events == [
        ("start", "tidy", node),
        ("step", "tidy", x * 1, x),
        ("finish", "tidy", -x),
    ]
    graph_rewrite(node, simple)
    assert len(recorder.events) == 3


# ------------------------------------------------------------ deciding
def test_resolve() -> None:
    assert resolve(True) is True and resolve(False) is False
    assert resolve(x < 11) is True
    assert resolve(x < 0) is False
    assert resolve(x < 5) is True and resolve(x < 5, False) is False
    with pytest.raises(ArgumentError, match="found 'maybe'"):
        resolve("maybe")  # type: ignore[arg-type]


def test_sym_infer() -> None:
    expression = (x * 4 + y) // 3 % 5
    assert sym_infer(expression, {x: 7, y: 2}) == (7 * 4 + 2) // 3 % 5
    assert sym_infer(expression, {"x": 7, "y": 2}) == (7 * 4 + 2) // 3 % 5
    assert sym_infer(x.bind(3) + 1, {}) == 4
    assert sym_infer(12, {}) == 12
    assert sym_infer(UOp.const(dtypes.weakint, 5), {}) == 5
    with pytest.raises(ArgumentError, match="variable y has no value"):
        sym_infer(expression, {"x": 7})
