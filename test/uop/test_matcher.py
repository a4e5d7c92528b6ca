"""PatternMatcher: order, names, ctx, the index, errors, statistics."""

from __future__ import annotations

import functools
import itertools
import random
import re
import subprocess
import sys
from typing import Any

import pytest

from weft.dtype import dtypes
from weft.errors import ArgumentError, RewriteError, ShapeError
from weft.knobs import Context
from weft.uop import trace
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.rewrite import graph_rewrite

x = Variable("x", 0, 10)
y = Variable("y", 0, 3)


# ------------------------------------------------------------ rules and their order
def test_the_first_rule_that_gives_something_wins() -> None:
    pm = PatternMatcher(
        [
            (UPat.var("v") + 0, lambda v: None),
            (UPat.var("v") + 0, lambda v: v),
            (UPat(Ops.ADD, name="v"), lambda v: v.src[1]),
        ]
    )
    assert pm.rewrite(x + 0) is x
    assert pm.rewrite(x + y) is y
    assert pm.rewrite(x * y) is None


def test_none_leaves_it_to_the_next_order() -> None:
    seen: list[tuple[UOp, UOp]] = []

    def second_only(a: UOp, b: UOp) -> UOp | None:
        seen.append((a, b))
        return a if a is y else None

    pm = PatternMatcher([(UPat.var("a") + UPat.var("b"), second_only)])
    assert pm.rewrite(x + y) is y
    assert seen == [(x, y), (y, x)]


def test_joining_keeps_both_orders_and_shares_rules() -> None:
    first = PatternMatcher([(UPat.var("v") * 1, lambda v: v)])
    second = PatternMatcher([(UPat.var("v") * 1, lambda v: None), (UPat.var("v") + 0, lambda v: v)])
    both = first + second
    assert len(both) == 3
    assert both.rules == (*first.rules, *second.rules)
    assert both.rewrite(x * 1) is x and both.rewrite(x + 0) is x
    assert first.rewrite(x + 0) is None


def test_a_rule_may_return_anything_when_called_directly() -> None:
    pm = PatternMatcher([(UPat(Ops.VARIABLE, name="v"), lambda v: f"int {v.arg.name}")])
    assert pm.rewrite(x) == "int x"


# ------------------------------------------------------------ parameters
def test_ctx_is_passed_to_those_who_ask() -> None:
    pm = PatternMatcher(
        [
            (UPat(Ops.NEG, src=(UPat.var("v"),)), lambda v, ctx: ctx.append(v)),
            (UPat(Ops.NEG, src=(UPat.var("v"),)), lambda ctx, v: v if ctx else None),
        ]
    )
    ctx: list[UOp] = []
    assert pm.rewrite(-x, ctx) is x
    assert ctx == [x]


def test_all_kinds_of_functions_are_rules() -> None:
    class Callable:
        def __call__(self, v: UOp) -> UOp:
            return v

        def method(self, v: UOp) -> UOp:
            return v

    def keywords(*, v: UOp, ctx: Any) -> UOp:
        return v

    def everything(**names: UOp) -> UOp:
        return names["v"]

    def with_default(v: UOp, w: UOp | None = None, *, ctx: Any = 5) -> UOp | None:
        return v if w is None else None

    def closure(depth: int, v: UOp) -> UOp:
        return v

    functions: list[Any] = [Callable(), Callable().method, keywords, everything, with_default]
    functions.append(functools.partial(closure, 3))
    for function in functions:
        assert PatternMatcher([(UPat.var("v") * 1, function)]).rewrite(x * 1) is x


def test_a_name_the_rule_does_not_take_is_a_constraint_only() -> None:
    pm = PatternMatcher([(UPat.var("v") * UPat.var("c") + UPat.var("v"), lambda c: c)])
    assert pm.rewrite(x * y + x) is y


def test_a_parameter_that_the_pattern_does_not_bind_is_refused_at_once() -> None:
    with pytest.raises(ArgumentError, match=r"rule .*<lambda> \(.*test_matcher.py:\d+\) takes 'w'"):
        PatternMatcher([(UPat.var("v") * 1, lambda w: w)])


def test_a_parameter_that_only_some_alternatives_bind_needs_a_default() -> None:
    either = UPat.any(UPat.var("v") + UPat.cvar("c"), UPat(Ops.NEG, src=(UPat.var("v"),)))
    with pytest.raises(ArgumentError, match="only some alternatives bind"):
        PatternMatcher([(either, lambda v, c: v)])
    pm = PatternMatcher([(either, lambda v, c=None: v if c is None else c)])
    assert pm.rewrite(-x) is x
    assert pm.rewrite(x + 3) is UOp.const(dtypes.weakint, 3)


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a rule is"):
        PatternMatcher([(UPat.var("v"), 3)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        PatternMatcher([]) + 3  # type: ignore[operator]


# ------------------------------------------------------------ the index
def _random_pattern(rng: random.Random, depth: int) -> UPat:
    kind = rng.choice(
        ["var", "op", "const", "any", "list", "repeat"] if depth else ["var", "const"]
    )
    if kind == "var":
        return UPat.var(dtype=rng.choice([None, dtypes.int32, dtypes.bool]))
    if kind == "const":
        return rng.choice([UPat.cvar(), UPat.const(None, 1)])
    if kind == "any":
        return UPat.any(*[_random_pattern(rng, depth - 1) for _ in range(2)])
    op = rng.choice([Ops.ADD, Ops.MUL, Ops.CMPLT, Ops.SINK])
    if kind == "repeat":
        return UPat(op, src=_random_pattern(rng, depth - 1))
    count = 2 if op is not Ops.SINK else rng.randint(0, 5)
    src = [_random_pattern(rng, depth - 1) for _ in range(count)]
    if kind == "list" and count < 4:
        return UPat(rng.choice([op, None]), src=src)
    return UPat(op, src=tuple(src), allow_any_len=rng.random() < 0.5)


def _random_node(rng: random.Random, depth: int) -> UOp:
    if not depth or rng.random() < 0.2:
        dtype = rng.choice([dtypes.int32, dtypes.bool])
        return rng.choice(
            [UOp.const(dtype, 1), UOp.const(dtype, 0), UOp.variable("q", 0, 1, dtype)]
        )
    op = rng.choice([Ops.ADD, Ops.MUL, Ops.CMPLT, Ops.SINK])
    count = 2 if op is not Ops.SINK else rng.randint(0, 5)
    src = tuple(_random_node(rng, depth - 1) for _ in range(count))
    return UOp(op, rng.choice([dtypes.int32, dtypes.bool]), src)


def _plainly_matches(pattern: UPat, node: UOp) -> bool:
    """The meaning of a pattern without names, written down directly."""
    if pattern.alternatives:
        return any(_plainly_matches(option, node) for option in pattern.alternatives)
    if pattern.op is not None and node.op not in pattern.op:
        return False
    if pattern.dtype is not None and node.dtype not in pattern.dtype:
        return False
    if pattern.arg is not None and node.arg != pattern.arg:
        return False
    if pattern.src is None:
        return True
    if pattern.is_repeat:
        return all(_plainly_matches(pattern.src[0], s) for s in node.src)
    if pattern.allow_any_len:
        found = node.src[: len(pattern.src)]
    else:
        found = node.src
    if len(found) != len(pattern.src):
        return False
    orders = itertools.permutations(found) if pattern.is_unordered else [found]
    return any(
        all(_plainly_matches(p, s) for p, s in zip(pattern.src, order, strict=True))
        for order in orders
    )


def test_compiled_patterns_mean_what_they_say() -> None:
    rng = random.Random(7)
    matched = 0
    for _ in range(400):
        pattern = _random_pattern(rng, 2)
        pm = PatternMatcher([(pattern, lambda: True)])
        for _ in range(25):
            node = _random_node(rng, 2)
            wanted = _plainly_matches(pattern, node)
            matched += wanted
            assert (pm.rewrite(node) is True) == wanted, f"{pattern}\n{node}"
    assert matched > 500


def test_the_index_tells_long_nodes_apart() -> None:
    four = UPat(Ops.SINK, src=(UPat.var(), UPat.var(), UPat.var(), UPat(Ops.CONST)))
    pm = PatternMatcher([(four, lambda: True)])
    one = UOp.const(dtypes.weakint, 1)
    assert pm.rewrite(x.sink(x, x, x)) is None
    assert pm.rewrite(x.sink(x, x, one)) is True
    assert pm.rewrite(x.sink(x, x, one, x)) is None


# ------------------------------------------------------------ errors
def broken_rule(v: UOp) -> UOp:
    return v.arg.no_such_field


def test_an_exception_in_a_rule_names_rule_and_node() -> None:
    pm = PatternMatcher([(UPat.var("v") * 1, broken_rule)])
    with pytest.raises(RewriteError) as caught:
        pm.rewrite(x * 1)
    text = str(caught.value)
    assert "broken_rule" in text and "test_matcher.py:" in text and "Ops.MUL" in text
    assert isinstance(caught.value.__cause__, AttributeError)


def test_an_error_of_our_own_passes_with_a_note() -> None:
    def refuse(v: UOp) -> UOp:
        raise ShapeError("does not fit")

    pm = PatternMatcher([(UPat.var("v") * 1, refuse)])
    with pytest.raises(ShapeError, match="does not fit") as caught:
        graph_rewrite(-(x * 1), pm)
    assert any("refuse" in note for note in caught.value.__notes__)


# ------------------------------------------------------------ statistics
STATS_ROW = re.compile(r"^ *\d+ / +\d+ -- +\d+\.\d\d / +\d+\.\d\d ms -- ")


def test_statistics_count_matches_and_attempts() -> None:
    pm = PatternMatcher(
        [
            (UPat.var("v") * 1, lambda v: v),
            (UPat.var("v") * UPat.cvar("c"), lambda v, c: None),
        ]
    )
    trace.clear_match_stats()
    with Context(TRACK_MATCH_STATS=1):
        graph_rewrite((x * 1) + (y * 2) + (x * 3), pm)
    first, second = (trace.stats_of(rule) for rule in pm.rules)
    assert (first.matches, first.attempts) == (1, 3)
    assert (second.matches, second.attempts) == (0, 2)
    assert first.total_time >= first.match_time > 0
    table = trace.match_stats_table().splitlines()
    assert len(table) == 3 and all(STATS_ROW.match(row) for row in table)
    assert "test_matcher.py:" in table[0] and table[-1].endswith("all 2 rules")
    trace.clear_match_stats()


def test_without_the_knob_nothing_is_counted() -> None:
    trace.clear_match_stats()
    pm = PatternMatcher([(UPat.var("v") * 1, lambda v: v)])
    graph_rewrite(x * 1, pm)
    assert trace._stats == {}


@pytest.mark.parametrize("level, printed", [(0, False), (1, False), (2, True)])
def test_the_table_is_printed_at_exit(level: int, printed: bool) -> None:
    program = (
        "from weft.uop.ops import UPat, PatternMatcher, graph_rewrite, Variable\n"
        "pm = PatternMatcher([(UPat.var('v') * 1, lambda v: v)])\n"
        "graph_rewrite(Variable('x', 0, 3) * 1, pm)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"TRACK_MATCH_STATS": str(level), "PYTHONPATH": ":".join(sys.path)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert ("all " in done.stderr and " rules" in done.stderr) == printed


def test_a_rule_that_gives_the_node_itself_changes_nothing() -> None:
    node = UOp.const(dtypes.int32, 1)
    same = (UPat(Ops.CONST, name="x"), lambda x: x)
    other = (UPat(Ops.CONST, arg=1, name="x"), lambda x: x.replace(arg=2))
    assert PatternMatcher([same]).rewrite(node) is None
    assert PatternMatcher([same, other]).rewrite(node) is UOp.const(dtypes.int32, 2)


def test_unequal_patterns_match_unequal_values() -> None:
    pattern = UPat.var("x") != UPat.var("y")
    a, b = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
    assert pattern.match(a.ne(b), {}) and not pattern.match(a < b, {})
    assert pattern.early_reject == frozenset()
    assert UPat(Ops.ADD, src=(UPat(Ops.MUL), UPat.var())).early_reject == {Ops.MUL}
    assert UPat(Ops.ADD, custom_early_reject={Ops.MUL}).early_reject == {Ops.MUL}
