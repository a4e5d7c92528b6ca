"""Graphs of a trace: rows, states between steps, marks, expressions, listings."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from weft.dtype import dtypes
from weft.errors import DataError
from weft.uop.node import UOp
from weft.uop.ops import PatternMatcher, UPat, graph_rewrite
from weft.uop.trace import Rule, tracing
from weft.viz.graphs import CHANGED, HEAD, KEPT, NOTHING, REBUILT, UnitGraphs
from weft.viz.listing import listing
from weft.viz.node_table import TEXT_LIMIT, NodeTable

a, b = UOp.variable("a", 0, 10), UOp.variable("b", 0, 10)


def unit_of(table: NodeTable, *passes: dict[str, Any]) -> UnitGraphs:
    return UnitGraphs(data_of(table, *passes), "a unit")


def data_of(table: NodeTable, *passes: dict[str, Any]) -> dict[str, Any]:
    return {
        "strings": table.strings,
        "origins": [list(origin) for origin in table.origins],
        "nodes": table.rows,
        "passes": list(passes),
    }


def test_rows_have_sources_first_and_are_shared() -> None:
    table = NodeTable()
    whole = table.number((a + b) * (a + b))
    count = len(table.rows)
    assert table.number(a + b) < whole
    assert len(table.rows) == count == 4
    for number, row in enumerate(table.rows):
        assert all(source < number for source in row[HEAD:])


def test_arguments_that_are_equal_in_python_keep_their_own_text() -> None:
    table = NodeTable()
    values = [
        UOp.const(dtypes.int32, 1),
        UOp.const(dtypes.float32, 1.0),
        UOp.const(dtypes.bool, True),
        UOp.const(dtypes.float32, 0.0),
        UOp.const(dtypes.float32, -0.0),
    ]
    texts = [table.strings[table.rows[table.number(value)][2]] for value in values]
    assert texts == ["1", "1.0", "True", "0.0", "-0.0"]


def test_long_text_is_cut_and_deep_graphs_do_not_recurse() -> None:
    table = NodeTable()
    assert len(table.strings[table.text("x" * 10_000)]) == TEXT_LIMIT + 1
    deep = a
    for _ in range(20_000):
        deep = deep + b
    root = table.number(deep)
    unit = unit_of(table, {"name": "p", "before": root, "after": root, "rewrites": []})
    graph = unit.graph(root, unit.pass_marks(0, "after"))
    assert len(graph["op"]) == 20_002
    assert unit.expression(root).endswith(" + b")


class Steps:
    """A tracer that keeps what the recorder would."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.runs: list[dict[str, Any]] = []

    def start(self, name: str, root: UOp) -> None:
        self.runs.append({"name": name, "root": self.table.number(root), "steps": []})

    def step(self, name: str, before: UOp, after: UOp, rule: Rule) -> None:
        self.runs[-1]["steps"] += (self.table.number(before), self.table.number(after), 0)

    def finish(self, name: str, result: UOp) -> None:
        self.runs[-1]["result"] = self.table.number(result)


RULES = PatternMatcher(
    [
        (UPat.var("x") + 0, lambda x: x),
        (UPat.var("x") * 1, lambda x: x),
        (UPat.var("x") + UPat.var("x"), lambda x: x * 2),
    ]
)


def watch(graph: UOp) -> UnitGraphs:
    steps = Steps()
    with tracing(steps):
        graph_rewrite(graph, RULES, name="test")
    run = steps.runs[0]
    return unit_of(
        steps.table,
        {"name": "p", "before": run["root"], "after": run["result"], "rewrites": [run]},
    )


def test_each_step_is_a_whole_graph() -> None:
    zero = UOp.const(dtypes.weakint, 0)
    one = UOp.const(dtypes.weakint, 1)
    unit = watch(((a + zero) + (a * one)) * b)
    rewrite = unit.passes[0]["rewrites"][0]
    states = [unit.expression(unit.state(rewrite, k)) for k in range(4)]
    assert states[0] == "((a + 0) + (a * 1)) * b"
    assert states[-1] == "(a * 2) * b"
    assert len(set(states)) == 4
    assert unit.state(rewrite, 3) == rewrite["result"]


def test_marks_say_what_changed_and_what_only_moved() -> None:
    zero = UOp.const(dtypes.weakint, 0)
    unit = watch((a + zero) * b)
    before, after = unit.pair(0, 0, 0)
    marks = unit.marks(before, after)
    names = {unit.strings[unit.rows[node][0]]: mark for node, mark in marks.items()}
    assert names == {"VARIABLE": KEPT, "CONST": CHANGED, "ADD": CHANGED, "MUL": REBUILT}
    assert set(unit.marks(after, before).values()) == {KEPT, REBUILT}
    graph = unit.graph(after, unit.marks(after, before))
    assert graph["src"][-1] == [0, 1] and graph["mark"][-1] == REBUILT


def test_marks_of_a_pass_come_from_its_steps() -> None:
    """A change right below the root must not make all that is below it look new."""
    zero = UOp.const(dtypes.weakint, 0)
    deep = (a * b + a) * (b + 3)
    unit = watch(((deep + zero) + (deep + zero)) * b)
    old, new = (
        {unit.expression(node): mark for node, mark in unit.pass_marks(0, side).items()}
        for side in ("before", "after")
    )
    assert {text for text, mark in new.items() if mark == CHANGED} == {
        "(((a * b) + a) * (b + 3)) * 2",
        "2",
    }
    assert new["((a * b) + a) * (b + 3)"] == KEPT and REBUILT in new.values()
    assert old["0"] == CHANGED and old["b + 3"] == KEPT


def test_a_node_with_more_sources_than_before_is_changed_but_what_it_keeps_is_not() -> None:
    table = NodeTable()
    before, after = table.number(UOp.sink(a + b)), table.number(UOp.sink(a + b, a * b))
    unit = unit_of(table, {"name": "p", "before": before, "after": after, "rewrites": []})
    marks = unit.marks(after, before)
    assert marks[after] == CHANGED and marks[table.number(a + b)] == KEPT


@pytest.mark.parametrize("place", [(5, -1, 0), (0, 3, 0), (0, 0, 99), (-1, -1, 0)])
def test_questions_about_what_is_not_there(place: tuple[int, int, int]) -> None:
    unit = watch(a + UOp.const(dtypes.weakint, 0))
    with pytest.raises(DataError, match="has no"):
        unit.pair(*place)


def test_damaged_units_are_refused() -> None:
    table = NodeTable()
    root = table.number((a + b) * a)
    steps = [root, 0, 0]
    run = {"name": "r", "root": root, "result": root, "steps": steps}
    whole = data_of(table, {"name": "p", "before": root, "after": NOTHING, "rewrites": [run]})
    UnitGraphs(copy.deepcopy(whole), "fine")
    damages: list[tuple[tuple[Any, ...], Any]] = [
        (("nodes", 0, 0), 99),
        (("nodes", 0, 1), "text"),
        (("nodes", 2), [0, 0, 0]),
        (("nodes", 2, HEAD), 2),
        (("nodes", 2, HEAD), -1),
        (("nodes", 0, 5), 3),
        (("strings", 0), 5),
        (("passes", 0, "before"), 77),
        (("passes", 0, "rewrites", 0, "steps"), [0, 0]),
        (("passes", 0, "rewrites", 0, "steps", 1), 77),
        (("passes", 0, "rewrites", 0, "steps", 1), 1.5),
        (("passes",), None),
    ]
    for path, value in damages:
        data = copy.deepcopy(whole)
        place: Any = data
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        with pytest.raises(DataError, match="damaged"):
            UnitGraphs(data, "broken")


def test_steps_that_lead_in_a_circle_end() -> None:
    """No rewriter writes these, but a file may."""
    table = NodeTable()
    plus, times = table.number(a + b), table.number(a * b)
    run = {"name": "r", "root": plus, "result": plus, "steps": [plus, times, 0, times, plus, 0]}
    unit = unit_of(table, {"name": "p", "before": plus, "after": plus, "rewrites": [run]})
    assert unit.state(run, 2) in (plus, times)


def test_a_listing_reads_like_loops() -> None:
    from weft.codegen.pipeline import lower
    from weft.renderer.llvmir import LLVMRenderer
    from weft.tensor import Tensor

    item = (Tensor.arange(12).reshape(3, 4).float() * 2).sum(1).schedule()[-1]
    text = listing(lower(item.ast, LLVMRenderer()).uops)
    assert "p0: float32[3]" in text
    assert "for r" in text and "# " in text
    assert all(line.strip() for line in text.splitlines())
